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

#include "modules/durable/machine/memory.h"

#define SEGMENT_BITS 9
#define TABLE_SEGMENT ((size_t)1 << SEGMENT_BITS)
/* The table shrinks when there are so many buckets for each entry. */
#define SPARSE 4

static uint64_t
hash_mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9fb21c651e98df25);
	return hash ^ hash >> 29;
}

static uint64_t
hash_bytes(uint64_t seed, const void *bytes, size_t length)
{
	const unsigned char *at = bytes;
	uint64_t hash = hash_mix(seed, length);
	uint64_t word;

	for (; length >= sizeof(word); length -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		hash = hash_mix(hash, word);
		at += sizeof(word);
	}
	word = 0;
	memcpy(&word, at, length);
	hash = hash_mix(hash_mix(hash, word), seed);
	return hash ^ hash >> 32;
}

static uint64_t
node_hash(const struct table *table, const struct node *node)
{
	size_t length;
	const void *key = table->key(node, &length);

	return hash_bytes(table->seed, key, length);
}

/* The largest power of two that is not greater. */
static size_t
table_level(const struct table *table)
{
	return (size_t)1 << (63 - __builtin_clzll(table->buckets));
}

static size_t
bucket_number(const struct table *table, uint64_t hash)
{
	size_t level = table_level(table);
	size_t number = hash & (2 * level - 1);

	return number < table->buckets ? number : number - level;
}

static struct node **
bucket_at(const struct table *table, size_t number)
{
	return &table->segments[number >> SEGMENT_BITS]
			       [number & (TABLE_SEGMENT - 1)];
}

static struct node **
bucket_of(const struct table *table, uint64_t hash)
{
	return bucket_at(table, bucket_number(table, hash));
}

struct node *
table_find(const struct table *table, const void *key, size_t length)
{
	struct node *node;
	const void *its_key;
	size_t its_length;

	if (table->count == 0)
		return NULL;
	node = *bucket_of(table, hash_bytes(table->seed, key, length));
	for (; node != NULL; node = node->chain) {
		its_key = table->key(node, &its_length);
		if (its_length == length && memcmp(its_key, key, length) == 0)
			break;
	}
	return node;
}

static bool
directory_grow(struct table *table)
{
	size_t most = table->segments_max == 0 ? 8 : 2 * table->segments_max;
	struct node ***segments =
	    memory.resize(table->segments, most * sizeof(*segments));

	if (segments == NULL)
		return false;
	table->bytes += (most - table->segments_max) * sizeof(*segments);
	table->segments = segments;
	table->segments_max = most;
	return true;
}

/* Makes room for one more bucket, of a new segment maybe. */
static bool
bucket_prepare(struct table *table)
{
	size_t segment = table->buckets >> SEGMENT_BITS;
	struct node **buckets;

	if (table->buckets & (TABLE_SEGMENT - 1))
		return true;
	if (segment == table->segments_max && !directory_grow(table))
		return false;
	buckets = memory.zeroed(TABLE_SEGMENT, sizeof(struct node *));
	if (buckets == NULL)
		return false;
	table->segments[segment] = buckets;
	table->bytes += TABLE_SEGMENT * sizeof(struct node *);
	return true;
}

bool
table_prepare(struct table *table)
{
	if (table->buckets == 0 && bucket_prepare(table))
		table->buckets = 1;
	return table->buckets != 0;
}

/* Moves the entries that belong to the bucket that was added last. */
static void
bucket_split(struct table *table)
{
	size_t added = table->buckets - 1;
	size_t top = (size_t)1 << (63 - __builtin_clzll(added));
	struct node **from, **to;
	struct node *node;

	from = bucket_at(table, added - top);
	to = bucket_at(table, added);
	while ((node = *from) != NULL) {
		if (bucket_number(table, node_hash(table, node)) != added) {
			from = &node->chain;
			continue;
		}
		*from = node->chain;
		node->chain = *to;
		*to = node;
	}
}

void
table_insert(struct table *table, struct node *node)
{
	struct node **bucket = bucket_of(table, node_hash(table, node));

	node->chain = *bucket;
	*bucket = node;
	if (++table->count > table->buckets && bucket_prepare(table)) {
		table->buckets++;
		bucket_split(table);
	}
}

/* Removes the last bucket. */
static void
bucket_merge(struct table *table)
{
	struct node **from = bucket_at(table, table->buckets - 1);
	struct node *node = *from;
	struct node **to;
	size_t segment;

	*from = NULL;
	table->buckets--;
	while (node != NULL) {
		struct node *next = node->chain;

		to = bucket_of(table, node_hash(table, node));
		node->chain = *to;
		*to = node;
		node = next;
	}
	if ((table->buckets & (TABLE_SEGMENT - 1)) != 0)
		return;
	segment = table->buckets >> SEGMENT_BITS;
	memory.release(table->segments[segment]);
	table->bytes -= TABLE_SEGMENT * sizeof(struct node *);
}

static struct node **
node_place(struct table *table, const struct node *node)
{
	struct node **place = bucket_of(table, node_hash(table, node));

	while (*place != node)
		place = &(*place)->chain;
	return place;
}

void
table_remove(struct table *table, struct node *node)
{
	*node_place(table, node) = node->chain;
	table->count--;
	if (table->buckets > 1 && table->buckets > SPARSE * table->count)
		bucket_merge(table);
}

void
table_replace(struct table *table, struct node *node, struct node *with)
{
	*node_place(table, node) = with;
	with->chain = node->chain;
}

void
table_clear(struct table *table, void (*release)(struct node *node))
{
	struct node *node, *next;
	size_t number;

	for (number = 0; number < table->buckets && release != NULL; number++) {
		for (node = *bucket_at(table, number); node; node = next) {
			next = node->chain;
			release(node);
		}
	}
	for (number = 0; number < table->buckets; number += TABLE_SEGMENT)
		memory.release(table->segments[number >> SEGMENT_BITS]);
	memory.release(table->segments);
	table->count = 0;
	table->segments = NULL;
	table->segments_max = table->buckets = table->bytes = 0;
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
	size_t level = table_level(table);
	/* Whether its entries have one more bit in common. */
	bool split = number >= level || number + level < table->buckets;
	size_t spread = split ? 2 * level : level;

	if (spread == 1)
		return 0;
	return bits_reversed(number) +
	    (UINT64_C(1) << (64 - __builtin_ctzll(spread)));
}

uint64_t
table_scan(struct table *table, uint64_t cursor,
    void (*visit)(struct node *node, void *ctx), void *ctx)
{
	struct node *node;
	uint64_t end;
	size_t number;

	if (table->count == 0)
		return 0;
	number = bucket_number(table, bits_reversed(cursor));
	end = bucket_end(table, number);
	for (node = *bucket_at(table, number); node; node = node->chain) {
		if (bits_reversed(node_hash(table, node)) >= cursor)
			visit(node, ctx);
	}
	return end;
}
