/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shards: keys, links and thresholds.
 *
 * A shard is a hash table of keys under a lock. A key has a list of operations
 * by arrival, and a tree of those that wait for a value, by value and arrival.
 * It is made with its first link and freed with its last, unless a walk has its
 * position in the list.
 *
 * The table grows by one bucket with each key, and shrinks by a few (linear
 * hashing, Litwin 1980), so that no call pays for a whole table. Which shard
 * and which bucket a key belongs to follows from a keyed hash, so that nobody
 * can choose keys that meet; handles, which others see, have another secret.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "operation.h"
#include "probe.h"

#define BUCKETS_MIN 16u
/* A key that is made and freed again and again needs no allocation. */
#define SPARES_MAX 32u

static int
threshold_compare(const struct threshold *a, const struct threshold *b)
{
	if (a->at_least != b->at_least)
		return a->at_least < b->at_least ? -1 : 1;
	return a->arrival < b->arrival ? -1 : a->arrival > b->arrival;
}

RB_GENERATE_INTERNAL(thresholds, threshold, entry, threshold_compare,
    __attribute__((unused)) static)

/* Tables. */

static uint32_t
segment_of(uint32_t bucket)
{
	return bucket < BUCKETS_MIN
	    ? 0
	    : 32 - (uint32_t)__builtin_clz(bucket / BUCKETS_MIN);
}

/* The first bucket of a segment; it has as many buckets, but the first. */
static uint32_t
segment_first(uint32_t segment)
{
	return segment == 0 ? 0 : BUCKETS_MIN << (segment - 1);
}

static uint32_t
segment_buckets(uint32_t segment)
{
	return segment == 0 ? BUCKETS_MIN : segment_first(segment);
}

static struct key **
bucket_at(const struct table *table, uint32_t bucket)
{
	uint32_t segment = segment_of(bucket);

	return &table->segment[segment][bucket - segment_first(segment)];
}

static uint32_t
bucket_number(const struct table *table, uint64_t hash)
{
	uint32_t bucket = (uint32_t)hash & (2 * table->base - 1);

	return bucket < table->buckets ? bucket : bucket & (table->base - 1);
}

static bool
segment_create(struct shard *shard, uint32_t segment)
{
	size_t bytes = segment_buckets(segment) * sizeof(struct key *);

	shard->table.segment[segment] = calloc(1, bytes);
	if (shard->table.segment[segment] == NULL)
		return false;
	shard->memory_bytes += bytes;
	return true;
}

static void
segment_destroy(struct shard *shard, uint32_t segment)
{
	free(shard->table.segment[segment]);
	shard->table.segment[segment] = NULL;
	shard->memory_bytes -= segment_buckets(segment) * sizeof(struct key *);
}

/* Adds a bucket, with the keys of the one it is split from. Without memory the
 * table stays as it is. */
static void
table_grow(struct shard *shard)
{
	struct table *table = &shard->table;
	uint32_t bucket = table->buckets;
	struct key **from, **to;
	struct key *key;

	if (bucket == UINT32_C(1) << 30)
		return;
	if (table->segment[segment_of(bucket)] == NULL &&
	    !segment_create(shard, segment_of(bucket)))
		return;
	from = bucket_at(table, bucket - table->base);
	to = bucket_at(table, bucket);
	table->buckets++;
	while ((key = *from) != NULL) {
		if (bucket_number(table, key->hash) != bucket) {
			from = &key->chain;
			continue;
		}
		*from = key->chain;
		key->chain = *to;
		*to = key;
	}
	if (table->buckets == 2 * table->base)
		table->base *= 2;
}

/* Removes the last bucket; its keys go to the one it was split from. */
static void
table_shrink(struct shard *shard)
{
	struct table *table = &shard->table;
	uint32_t bucket = table->buckets - 1;
	struct key **end, **from;

	if (table->buckets == table->base)
		table->base /= 2;
	table->buckets--;
	from = bucket_at(table, bucket);
	end = bucket_at(table, bucket - table->base);
	while (*end != NULL)
		end = &(*end)->chain;
	*end = *from;
	*from = NULL;
	if (bucket == segment_first(segment_of(bucket)))
		segment_destroy(shard, segment_of(bucket));
}

/* Keys. */

struct key *
key_find(const struct shard *shard, struct hwt_key name, uint64_t hash)
{
	struct key *key =
	    *bucket_at(&shard->table, bucket_number(&shard->table, hash));

	while (key != NULL &&
	    (key->name.id != name.id || key->name.kind != name.kind))
		key = key->chain;
	return key;
}

/* With the lock held. NULL: no memory. */
static struct key *
key_alloc(struct shard *shard)
{
	struct key *key = shard->spare_keys;

	if (key != NULL) {
		shard->spare_keys = key->chain;
		shard->spares--;
		return key;
	}
	key = malloc(sizeof(*key));
	if (key != NULL)
		shard->memory_bytes += sizeof(*key);
	return key;
}

static void
key_free(struct shard *shard, struct key *key)
{
	if (shard->spares < SPARES_MAX) {
		key->chain = shard->spare_keys;
		shard->spare_keys = key;
		shard->spares++;
		return;
	}
	free(key);
	shard->memory_bytes -= sizeof(*key);
}

/* With the lock held. NULL: no memory. */
static struct key *
key_create(struct shard *shard, struct hwt_key name, uint64_t hash)
{
	struct table *table = &shard->table;
	struct key *key = key_alloc(shard);
	struct key **bucket;

	if (key == NULL)
		return NULL;
	if (table->keys++ >= table->buckets)
		table_grow(shard);
	bucket = bucket_at(table, bucket_number(table, hash));
	*key = (struct key){.name = name, .hash = hash, .chain = *bucket};
	*bucket = key;
	return key;
}

static void
key_destroy(struct shard *shard, struct key *key)
{
	struct table *table = &shard->table;
	struct key **at = bucket_at(table, bucket_number(table, key->hash));
	unsigned shrinks = 4;

	while (*at != key)
		at = &(*at)->chain;
	*at = key->chain;
	key_free(shard, key);
	table->keys--;
	/* At most four: with the last key the table is as it was at first. */
	while (shrinks-- > 0 && table->keys < table->buckets / 4 &&
	    table->buckets > BUCKETS_MIN)
		table_shrink(shard);
}

static void
list_insert(struct key *key, struct link *link, struct link *before)
{
	struct link *after = before != NULL ? before->previous : key->last;

	link->key = key;
	link->previous = after;
	link->next = before;
	*(after != NULL ? &after->next : &key->first) = link;
	*(before != NULL ? &before->previous : &key->last) = link;
}

static void
list_remove(struct key *key, struct link *link)
{
	*(link->previous != NULL ? &link->previous->next : &key->first) =
	    link->next;
	*(link->next != NULL ? &link->next->previous : &key->last) =
	    link->previous;
}

int
key_link(struct shard *shard, struct operation *operation, struct link *link,
    struct hwt_key name, uint64_t hash, uint64_t at_least)
{
	struct key *key = key_find(shard, name, hash);

	link->operation = operation;
	if (key != NULL && at_least != 0 && key->links > 0 &&
	    key->value >= at_least)
		return 1;
	if (key == NULL)
		key = key_create(shard, name, hash);
	if (key == NULL)
		return -ENOMEM;
	if (key->links++ == 0) {
		key->value = 0;
		shard->keys++;
		OPERATION_PROBE(key_make, shard->purgatory, name.kind, name.id);
	}
	shard->links++;
	if (at_least != 0) {
		link->key = key;
		link->previous = NULL;
		operation->threshold.at_least = at_least;
		operation->threshold.arrival = shard->arrivals++;
		RB_INSERT(thresholds, &key->thresholds, &operation->threshold);
	} else {
		list_insert(key, link, NULL);
	}
	return 0;
}

/* Whether the link is that of a threshold; a list's first one has no previous
 * either, but is the key's first. */
static bool
link_waits_for_value(const struct link *link)
{
	return link->previous == NULL && link->key->first != link;
}

bool
key_unlink(struct shard *shard, struct link *link)
{
	struct key *key = link->key;

	if (link_waits_for_value(link))
		RB_REMOVE(
		    thresholds, &key->thresholds, &link->operation->threshold);
	else
		list_remove(key, link);
	link->key = NULL;
	shard->links--;
	if (--key->links > 0)
		return true;
	shard->keys--;
	OPERATION_PROBE(
	    key_remove, shard->purgatory, key->name.kind, key->name.id);
	if (key->positions > 0)
		return true;
	key_destroy(shard, key);
	return false;
}

struct threshold *
key_lowest(struct key *key)
{
	return RB_MIN(thresholds, &key->thresholds);
}

struct threshold *
key_after(struct key *key, const struct threshold *after)
{
	struct threshold behind;

	behind.at_least = after->at_least;
	behind.arrival = after->arrival + 1;
	return RB_NFIND(thresholds, &key->thresholds, &behind);
}

void
key_raise(struct key *key, uint64_t value)
{
	/* Without a link, the first one begins anew. */
	if (key->value < value)
		key->value = value;
}

void
key_place(struct key *key, struct link *position, bool last)
{
	position->operation = NULL;
	key->positions++;
	list_insert(key, position, last ? NULL : key->first);
}

void
key_move(struct link *position, struct link *before)
{
	struct key *key = position->key;

	list_remove(key, position);
	list_insert(key, position, before);
}

void
key_displace(struct shard *shard, struct link *position)
{
	struct key *key = position->key;

	list_remove(key, position);
	key->positions--;
	if (key->links == 0 && key->positions == 0)
		key_destroy(shard, key);
}

/* Operations. */

struct operation *
shard_alloc(struct shard *shard)
{
	struct operation *operation;

	if (shard->free == NULL)
		shard->free = pool_take(shard->purgatory);
	operation = shard->free;
	if (operation != NULL)
		shard->free = operation->next;
	return operation;
}

static bool
links_are_allocated(const struct operation *operation)
{
	return operation->links != NULL &&
	    operation->links != operation->inside;
}

/* A child that was forked meanwhile must not free them again. */
void
links_free(struct operation *operation)
{
	struct link *links = operation->links;
	bool allocated = links_are_allocated(operation);

	operation->links = NULL;
	if (allocated)
		free(links);
}

/* The owner's: only a raise unlinks what others own, and only thresholds, which
 * have one link. */
void
operation_unlink(struct operation *operation, uint64_t outcome)
{
	struct shard *home = operation->home;
	struct shard *shard;
	struct link *link;
	uint32_t i;

	OPERATION_PROBE(end, home->purgatory, operation_handle(operation).id,
	    outcome, operation->arg);
	for (i = operation->link_count; i-- > 1;) {
		link = &operation->links[i];
		if (link->key == NULL)
			continue;
		shard = shard_of(home->purgatory, link->key->hash);
		shard_lock(shard);
		(void)key_unlink(shard, link);
		shard_unlock(shard);
	}
	shard_lock(home);
	if (operation->links[0].key != NULL)
		(void)key_unlink(home, &operation->links[0]);
	if (links_are_allocated(operation))
		home->memory_bytes -=
		    operation->link_count * sizeof(struct link);
	home->pending--;
	home->ended[outcome]++;
	home->tried += call_take_tried(home->purgatory);
	shard_unlock(home);
	links_free(operation);
}

/* Making and freeing. */

static int
shard_create(struct hwt_purgatory *purgatory, struct shard *shard)
{
	shard->purgatory = purgatory;
	shard->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	if (!segment_create(shard, 0))
		return -ENOMEM;
	shard->table.buckets = BUCKETS_MIN;
	shard->table.base = BUCKETS_MIN;
	return 0;
}

int
shards_create(struct hwt_purgatory *purgatory, uint32_t count)
{
	size_t bytes = count * sizeof(struct shard);
	uint32_t i;

	purgatory->shard_count = count;
	purgatory->pool = pool_create();
	purgatory->shard = aligned_alloc(CACHE_LINE, bytes);
	if (purgatory->pool == NULL || purgatory->shard == NULL) {
		pool_destroy(purgatory, false);
		free(purgatory->shard);
		return -ENOMEM;
	}
	memset(purgatory->shard, 0, bytes);
	purgatory->shard[0].memory_bytes = sizeof(*purgatory) + bytes;
	for (i = 0; i < count; i++) {
		if (shard_create(purgatory, &purgatory->shard[i]) != 0) {
			shards_destroy(purgatory, false);
			return -ENOMEM;
		}
	}
	return 0;
}

static void
keys_free(struct key *key)
{
	struct key *next;

	for (; key != NULL; key = next) {
		next = key->chain;
		free(key);
	}
}

static void
table_destroy(struct table *table)
{
	uint32_t i;

	for (i = 0; i < table->buckets; i++)
		keys_free(*bucket_at(table, i));
	for (i = 0; i < SEGMENTS; i++)
		free(table->segment[i]);
}

/* Where nobody was in the lock as the child was forked, all is as it should
 * be. */
void
shards_destroy(struct hwt_purgatory *purgatory, bool inherited)
{
	struct shard *shard;
	uint32_t i;

	for (i = 0; i < purgatory->shard_count; i++) {
		shard = &purgatory->shard[i];
		if (shard->table.buckets != 0 &&
		    (!inherited || pthread_mutex_trylock(&shard->lock) == 0)) {
			keys_free(shard->spare_keys);
			table_destroy(&shard->table);
		}
	}
	pool_destroy(purgatory, inherited);
	free(purgatory->shard);
}
