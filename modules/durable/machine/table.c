/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BUCKETS. With 2^k <= buckets < 2^(k+1), an entry is in the bucket of the low
 * k+1 bits of its hash, if there is such a bucket, otherwise of the low k bits.
 * Adding bucket 2^k + i moves to it those entries of bucket i whose bit k is
 * set; removing it merges them back.
 *
 * TREE. For the least of the numbers, a segment has words behind its buckets:
 * word n / 4 is the greatest hint of bucket n and the three beside it, and word
 * i the greater of the words 2 i and 2 i + 1. So word 1 is the greatest of all.
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
/* Neighbours among so many numbers are in neighbouring buckets; where these
 * begin depends on the seed, so that no choice of numbers fills one bucket. */
#define ROUND 1024

static uint64_t
hash_mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9fb21c651e98df25);
	return hash ^ hash >> 29;
}

static uint64_t
bytes_hash(uint64_t seed, const void *bytes, size_t length)
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
key_hash(const struct table *table, const void *key, size_t length)
{
	uint64_t number, round;

	if (!table->numbers)
		return bytes_hash(table->seed, key, length);
	memcpy(&number, key, sizeof(number));
	round = number / ROUND;
	return bytes_hash(table->seed, &round, sizeof(round)) + number % ROUND;
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

static uint64_t *
tree_of(const struct table *table, unsigned segment)
{
	return (
	    void *)&table->segments[segment][(size_t)TABLE_FIRST << segment];
}

static uint64_t
greater(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The greatest hint of a chain of numbers. */
static uint64_t
greatest(const struct table *table, const struct node *node)
{
	uint64_t number, most = 0;
	size_t length;

	for (; node != NULL; node = node->chain) {
		memcpy(&number, table->key(node, &length), sizeof(number));
		most = greater(most, ~number);
	}
	return most;
}

/* A number was added or removed. */
static void
tree_update(const struct table *table, size_t number)
{
	struct bucket *bucket = bucket_at(table, number);
	uint64_t most, *words;

	bucket->hint = greatest(table, bucket->first);
	if (number < TABLE_FIRST)
		return;
	bucket -= number % 4;
	most = greater(greater(bucket[0].hint, bucket[1].hint),
	    greater(bucket[2].hint, bucket[3].hint));
	words = tree_of(table, segment_of(number));
	for (number /= 4; number > 0 && words[number] != most; number /= 2) {
		words[number] = most;
		most = greater(most, words[number ^ 1]);
	}
}

uint64_t
table_least(const struct table *table)
{
	uint64_t most = 0;
	unsigned i;

	for (i = 0; i < TABLE_FIRST; i++)
		most = greater(most, table->first[i].hint);
	for (i = 0; i < TABLE_SEGMENTS && table->segments[i] != NULL; i++)
		most = greater(most, tree_of(table, i)[1]);
	return ~most;
}

static void
bucket_add(struct table *table, size_t number, struct node *node, uint64_t hash)
{
	struct bucket *bucket = bucket_at(table, number);

	if (bucket->first == NULL)
		bucket->hint = 0;
	node->chain = bucket->first;
	bucket->first = node;
	if (table->numbers)
		tree_update(table, number);
	else
		bucket->hint |= UINT64_C(1) << (hash >> 58);
}

/* Moves what is in it to where it belongs now. */
static void
bucket_spread(struct table *table, size_t number)
{
	struct node *next, *node = bucket_at(table, number)->first;
	uint64_t hash;

	bucket_at(table, number)->first = NULL;
	if (table->numbers)
		tree_update(table, number);
	for (; node != NULL; node = next) {
		next = node->chain;
		hash = node_hash(table, node);
		bucket_add(table, bucket_number(table, hash), node, hash);
	}
}

struct node *
table_find(const struct table *table, const void *key, size_t length)
{
	uint64_t hash = key_hash(table, key, length);
	const struct bucket *bucket =
	    bucket_at(table, bucket_number(table, hash));
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
	size_t words = table->numbers ? added / 2 : 0;
	struct bucket *segment;

	if ((added & (added - 1)) == 0) {
		segment = memory.zeroed(
		    1, added * sizeof(*segment) + words * sizeof(uint64_t));
		if (segment == NULL)
			return;
		table->segments[segment_of(added)] = segment;
	}
	table->grown++;
	bucket_spread(table, added - ((size_t)1 << log2_of(added)));
}

static void
table_shrink(struct table *table)
{
	size_t last = table_buckets(table) - 1;

	table->grown--;
	bucket_spread(table, last);
	if ((last & (last - 1)) != 0)
		return;
	memory.release(table->segments[segment_of(last)]);
	table->segments[segment_of(last)] = NULL;
}

void
table_insert(struct table *table, struct node *node)
{
	uint64_t hash = node_hash(table, node);

	bucket_add(table, bucket_number(table, hash), node, hash);
	if (++table->count > LOAD * table_buckets(table))
		table_grow(table);
}

/* What points to an entry, and the number of its bucket. */
static struct node **
node_place(struct table *table, const struct node *node, size_t *number)
{
	struct node **place;

	*number = bucket_number(table, node_hash(table, node));
	place = &bucket_at(table, *number)->first;
	while (*place != node)
		place = &(*place)->chain;
	return place;
}

void
table_replace(struct table *table, struct node *node, struct node *by)
{
	size_t number;

	by->chain = node->chain;
	*node_place(table, node, &number) = by;
}

void
table_remove(struct table *table, struct node *node)
{
	size_t number;

	*node_place(table, node, &number) = node->chain;
	if (table->numbers)
		tree_update(table, number);
	table->count--;
	if (table->grown > 0 && table_buckets(table) > table->count)
		table_shrink(table);
}

void
group_insert(struct table *table, struct entry *entry)
{
	size_t length;
	const void *key = table->key(&entry->node, &length);
	struct entry *first = (void *)table_find(table, key, length);

	list_init(&entry->link);
	if (first == NULL) {
		table_insert(table, &entry->node);
		return;
	}
	entry->node.chain = &entry->node;
	list_insert(&first->link, &entry->link);
}

void
group_remove(struct table *table, struct entry *entry)
{
	struct entry *after =
	    container_of(entry->link.next, struct entry, link);
	bool first = entry->node.chain != &entry->node;

	if (first && after == entry)
		table_remove(table, &entry->node);
	else if (first)
		table_replace(table, &entry->node, &after->node);
	list_remove(&entry->link);
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
	size_t bytes = 0;
	unsigned i;

	for (i = 0; i < TABLE_SEGMENTS && table->segments[i] != NULL; i++)
		bytes += memory.size(table->segments[i]);
	return bytes;
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
