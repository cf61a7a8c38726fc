/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BUCKETS. With 2^k <= buckets < 2^(k+1), an entry is in the bucket of the low
 * k+1 bits of its hash, if there is such a bucket, otherwise of the low k bits.
 * Adding bucket 2^k + i moves to it those entries of bucket i whose bit k is
 * set; removing it merges them back.
 *
 * SCAN. Sorted by their hashes with the bits reversed, the entries of a bucket
 * are neighbours: the low bits that they share become a prefix. A cursor is a
 * position in this order. When a bucket is split or merged, its range is split
 * or merged, and the entries keep their order.
 */
#include "modules/durable/machine/table.h"

#include <string.h>

/* Entries of a bucket, on average, when the table grows. It shrinks when there
 * is less than one. */
#define LOAD 2

static uint64_t
hash_mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9fb21c651e98df25);
	return hash ^ hash >> 29;
}

static uint64_t
key_hash(const struct table *table, const void *key, size_t length)
{
	const unsigned char *at = key;
	uint64_t hash = hash_mix(table->seed, length);
	uint64_t word;

	for (; length >= sizeof(word); length -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		if (table->numbers)
			return word;
		hash = hash_mix(hash, word);
		at += sizeof(word);
	}
	word = 0;
	memcpy(&word, at, length);
	hash = hash_mix(hash_mix(hash, word), table->seed);
	return hash ^ hash >> 32;
}

static uint64_t
node_hash(const struct table *table, const struct node *node)
{
	size_t length;
	const void *key = table->key(node, &length);

	return key_hash(table, key, length);
}

static unsigned
log2_of(size_t number)
{
	return 63 - (unsigned)__builtin_clzll(number);
}

static size_t
table_buckets(const struct table *table)
{
	return TABLE_FIRST + table->grown;
}

static size_t
bucket_number(const struct table *table, uint64_t hash)
{
	size_t buckets = table_buckets(table);
	size_t level = (size_t)1 << log2_of(buckets);
	size_t number = hash & (2 * level - 1);

	return number < buckets ? number : number - level;
}

/* The segment that begins with this bucket or a lower one. */
static unsigned
segment_of(size_t number)
{
	return log2_of(number / TABLE_FIRST);
}

static struct bucket *
bucket_at(const struct table *table, size_t number)
{
	unsigned segment;

	if (number < TABLE_FIRST)
		return (struct bucket *)(uintptr_t)&table->first[number];
	segment = segment_of(number);
	return &table->segments[segment]
			       [number - ((size_t)TABLE_FIRST << segment)];
}

/* The one that a bucket was split from. */
static struct bucket *
bucket_before(const struct table *table, size_t number)
{
	return bucket_at(table, number - ((size_t)1 << log2_of(number)));
}

struct bucket *
table_bucket(const struct table *table, uint64_t hash)
{
	return bucket_at(table, bucket_number(table, hash));
}

static void
bucket_add(const struct table *table, struct bucket *bucket, struct node *node,
    uint64_t hash)
{
	uint64_t bit = UINT64_C(1) << (hash >> 58);

	if (bucket->first == NULL)
		bucket->hint = table->numbers ? hash : 0;
	if (!table->numbers)
		bucket->hint |= bit;
	else if (hash < bucket->hint)
		bucket->hint = hash;
	node->chain = bucket->first;
	bucket->first = node;
}

struct node *
table_find(const struct table *table, const void *key, size_t length)
{
	uint64_t hash = key_hash(table, key, length);
	const struct bucket *bucket = table_bucket(table, hash);
	struct node *node = bucket->first;
	const void *its_key;
	size_t its_length;

	if (!table->numbers && (bucket->hint >> (hash >> 58) & 1) == 0)
		return NULL;
	for (; node != NULL; node = node->chain) {
		its_key = table->key(node, &its_length);
		if (its_length == length && memcmp(its_key, key, length) == 0)
			break;
	}
	return node;
}

static void
table_grow(struct table *table)
{
	size_t added = table_buckets(table);
	struct bucket *segment;
	struct node *node, *next;
	uint64_t hash;

	if ((added & (added - 1)) == 0) {
		segment = memory.zeroed(added, sizeof(*segment));
		if (segment == NULL)
			return;
		table->segments[segment_of(added)] = segment;
	}
	node = bucket_before(table, added)->first;
	bucket_before(table, added)->first = NULL;
	table->grown++;
	for (; node != NULL; node = next) {
		next = node->chain;
		hash = node_hash(table, node);
		bucket_add(table, table_bucket(table, hash), node, hash);
	}
}

static void
table_shrink(struct table *table)
{
	size_t last = table_buckets(table) - 1;
	struct bucket *bucket = bucket_at(table, last);
	struct node *node = bucket->first;
	unsigned segment = segment_of(last);
	struct node *next;

	bucket->first = NULL;
	table->grown--;
	for (; node != NULL; node = next) {
		next = node->chain;
		bucket_add(table, bucket_before(table, last), node,
		    node_hash(table, node));
	}
	if ((last & (last - 1)) != 0)
		return;
	memory.release(table->segments[segment]);
	table->segments[segment] = NULL;
}

void
table_insert(struct table *table, struct node *node)
{
	uint64_t hash = node_hash(table, node);

	bucket_add(table, table_bucket(table, hash), node, hash);
	if (++table->count > LOAD * table_buckets(table))
		table_grow(table);
}

void
table_remove(struct table *table, struct node *node)
{
	struct node **place =
	    &table_bucket(table, node_hash(table, node))->first;

	while (*place != node)
		place = &(*place)->chain;
	*place = node->chain;
	table->count--;
	if (table->grown > 0 && table_buckets(table) > table->count)
		table_shrink(table);
}

void
table_clear(struct table *table, void (*release)(struct node *node))
{
	struct node *node, *next;
	size_t number;

	for (number = 0; number < table_buckets(table); number++) {
		node = bucket_at(table, number)->first;
		for (; node != NULL && release != NULL; node = next) {
			next = node->chain;
			release(node);
		}
	}
	for (number = 0; number < TABLE_SEGMENTS; number++)
		memory.release(table->segments[number]);
	memset(table->first, 0, sizeof(table->first));
	memset(table->segments, 0, sizeof(table->segments));
	table->count = table->grown = 0;
}

size_t
table_memory(const struct table *table)
{
	/* Up to the end of the segment of the last bucket. */
	size_t end = (size_t)2 << log2_of(table_buckets(table) - 1);

	return (end - TABLE_FIRST) * sizeof(struct bucket);
}

static uint64_t
bits_reversed(uint64_t x)
{
	x = (x & UINT64_C(0x5555555555555555)) << 1 |
	    (x >> 1 & UINT64_C(0x5555555555555555));
	x = (x & UINT64_C(0x3333333333333333)) << 2 |
	    (x >> 2 & UINT64_C(0x3333333333333333));
	x = (x & UINT64_C(0x0f0f0f0f0f0f0f0f)) << 4 |
	    (x >> 4 & UINT64_C(0x0f0f0f0f0f0f0f0f));
	return __builtin_bswap64(x);
}

/* Where the range of a bucket ends in the order of a scan; 0: at its end. */
static uint64_t
bucket_end(const struct table *table, size_t number)
{
	size_t buckets = table_buckets(table);
	size_t level = (size_t)1 << log2_of(buckets);
	/* Whether its entries have one more bit in common. */
	bool split = number >= level || number + level < buckets;

	return bits_reversed(number) +
	    (UINT64_C(1) << (64 - log2_of(level) - split));
}

uint64_t
table_scan(const struct table *table, uint64_t cursor,
    void (*visit)(struct node *node, void *ctx), void *ctx)
{
	size_t number = bucket_number(table, bits_reversed(cursor));
	struct node *node = bucket_at(table, number)->first;

	for (; node != NULL; node = node->chain) {
		if (bits_reversed(node_hash(table, node)) >= cursor)
			visit(node, ctx);
	}
	return bucket_end(table, number);
}
