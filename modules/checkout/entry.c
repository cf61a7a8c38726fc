/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of a shard's keys, the order of its loaded objects, and the ends of
 * entries.
 *
 * The table grows by one bucket with each key and shrinks by one (linear
 * hashing, Litwin 1980), so that no call pays for a whole table.
 *
 * ORDER. SIEVE (Zhang and others, NSDI 2024): a queue by age and a hand that
 * moves from the oldest to the newest. An object that was used again since the
 * hand has passed it is passed over once more, the first other one is unloaded.
 * So a use sets one bit and moves nothing. What is wanted or pinned is passed
 * over, too.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"

#define BUCKETS_MIN 16u
#define BUCKETS_MAX (UINT32_C(1) << 30)

bool
shard_open(struct store_shard *shard)
{
	shard->bucket = calloc(BUCKETS_MIN, sizeof(struct store_entry *));
	if (shard->bucket == NULL)
		return false;
	shard->base = BUCKETS_MIN;
	shard->buckets = BUCKETS_MIN;
	shard->room = BUCKETS_MIN;
	shard->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	return true;
}

static uint32_t
bucket_number(const struct store_shard *shard, uint64_t hash)
{
	uint32_t bucket = (uint32_t)hash & (2 * shard->base - 1);

	return bucket < shard->buckets ? bucket : bucket & (shard->base - 1);
}

/* False: no memory, and the table stays as it is. */
static bool
table_resize(struct store_shard *shard, uint32_t room)
{
	struct store_entry **moved =
	    malloc(room * sizeof(struct store_entry *));
	struct store_entry **old = shard->bucket;

	if (moved == NULL)
		return false;
	memcpy(moved, old, shard->buckets * sizeof(struct store_entry *));
	shard->bucket = moved;
	shard->room = room;
	free(old);
	return true;
}

/* Adds a bucket, with the keys of the one it is split from. Without memory the
 * table stays as it is. */
static void
table_grow(struct store_shard *shard)
{
	uint32_t bucket = shard->buckets;
	struct store_entry **from, **to, *entry;

	if (bucket == BUCKETS_MAX ||
	    (bucket == shard->room && !table_resize(shard, 2 * bucket)))
		return;
	from = &shard->bucket[bucket - shard->base];
	to = &shard->bucket[bucket];
	*to = NULL;
	shard->buckets++;
	while ((entry = *from) != NULL) {
		if (bucket_number(shard, entry->hash) != bucket) {
			from = &entry->chain;
			continue;
		}
		*from = entry->chain;
		entry->chain = *to;
		*to = entry;
	}
	if (shard->buckets == 2 * shard->base)
		shard->base *= 2;
}

/* Removes the last bucket; its keys go to the one it was split from. */
static void
table_shrink(struct store_shard *shard)
{
	uint32_t bucket = shard->buckets - 1;
	struct store_entry **end;

	if (shard->buckets == shard->base)
		shard->base /= 2;
	shard->buckets = bucket;
	end = &shard->bucket[bucket - shard->base];
	while (*end != NULL)
		end = &(*end)->chain;
	*end = shard->bucket[bucket];
	if (bucket < shard->room / 4)
		(void)table_resize(shard, shard->room / 2);
}

struct store_entry *
entry_find(const struct store_shard *shard, const void *key, size_t size,
    uint64_t hash)
{
	struct store_entry *entry = shard->bucket[bucket_number(shard, hash)];

	while (entry != NULL &&
	    (entry->hash != hash || entry->size != size ||
		memcmp(entry->key, key, size) != 0))
		entry = entry->chain;
	return entry;
}

struct store_entry *
entry_create(struct hwt_store *store, struct store_shard *shard,
    const void *key, size_t size, uint64_t hash)
{
	struct store_entry *entry = malloc(sizeof(*entry) + size);
	struct store_entry **bucket;

	if (entry == NULL)
		return NULL;
	*entry = (struct store_entry){
	    .object = {.order = (uintptr_t)store, .checkout = store->checkout},
	    .hash = hash,
	    .size = (uint8_t)size,
	    .state = ENTRY_LOADING,
	    .wants = 1,
	    .in_table = true,
	};
	memcpy(entry->key, key, size);
	if (store->options.load != NULL)
		entry->since_ns = checkout_now(store->checkout);
	object_hold(&entry->object);
	if (shard->keys++ >= shard->buckets)
		table_grow(shard);
	shard->entries++;
	bucket = &shard->bucket[bucket_number(shard, entry->hash)];
	entry->chain = *bucket;
	*bucket = entry;
	return entry;
}

void
entry_leave_table(struct store_shard *shard, struct store_entry *entry)
{
	struct store_entry **at =
	    &shard->bucket[bucket_number(shard, entry->hash)];

	while (*at != entry)
		at = &(*at)->chain;
	*at = entry->chain;
	entry->in_table = false;
	shard->keys--;
	if (shard->buckets > BUCKETS_MIN && shard->keys < shard->buckets - 1)
		table_shrink(shard);
}

void
entry_link(struct hwt_store *store, struct store_shard *shard,
    struct store_entry *entry)
{
	entry->used = false;
	entry->newer = NULL;
	entry->older = shard->newest;
	if (shard->newest != NULL)
		shard->newest->newer = entry;
	else
		shard->oldest = entry;
	shard->newest = entry;
	shard->stats.loaded++;
	(void)a64_add_seq(&store->weight, entry->weight);
}

void
entry_unlink(struct hwt_store *store, struct store_shard *shard,
    struct store_entry *entry)
{
	if (shard->hand == entry)
		shard->hand = entry->newer;
	if (entry->newer != NULL)
		entry->newer->older = entry->older;
	else
		shard->newest = entry->older;
	if (entry->older != NULL)
		entry->older->newer = entry->newer;
	else
		shard->oldest = entry->newer;
	shard->stats.loaded--;
	(void)a64_add_seq(&store->weight, -(uint64_t)entry->weight);
}

static bool
may_unload(struct store_entry *entry, enum choice choice)
{
	if (entry->wants > 0 || (entry->pinned && choice != CHOOSE_ALL))
		return false;
	if (!entry->used || choice != CHOOSE_UNUSED)
		return true;
	entry->used = false;
	return false;
}

struct store_entry *
entry_choose(struct store_shard *shard, enum choice choice, uint64_t *steps)
{
	struct store_entry *entry;
	uint32_t looks;

	for (looks = 0; looks<STORE_LOOKS && * steps> 0; looks++) {
		--*steps;
		entry = shard->hand != NULL ? shard->hand : shard->oldest;
		if (entry == NULL)
			break;
		shard->hand = entry->newer;
		if (may_unload(entry, choice))
			return entry;
	}
	return NULL;
}

struct store_entry *
entry_die(struct store_entry *entry)
{
	struct hwt_store *store = entry_store(entry);

	if (entry->in_table || entry->wants > 0)
		return NULL;
	entry->state = ENTRY_DEAD;
	entry_shard(entry)->entries--;
	if (!entry->armed ||
	    hwt_cancel(store_timer(store), entry->timeout) != -EINPROGRESS)
		return entry;
	/* For the task, which frees it. */
	(void)a64_add_seq(&store->busy, 1);
	return NULL;
}

bool
entry_arm(struct store_entry *entry, uint64_t delay_ns)
{
	struct hwt *timer = store_timer(entry_store(entry));

	if (!entry->armed)
		entry->armed = hwt_new_timeout(timer, &entry->timeout,
				   entry_expire, entry, delay_ns) == 0;
	return entry->armed;
}

/* Nobody wants it. Where the timer has no room, it stays until somebody has
 * wanted it again. */
static void
entry_rest(struct store_entry *entry)
{
	struct hwt_store *store = entry_store(entry);

	if (store->options.idle_ns == 0 || entry->pinned)
		return;
	entry->since_ns = checkout_now(store->checkout);
	(void)entry_arm(entry, store->options.idle_ns);
}

bool
entry_back_off(struct store_entry *entry)
{
	struct hwt_store *store = entry_store(entry);
	int error;

	if (store->options.backoff_ns == 0)
		return false;
	entry->since_ns = checkout_now(store->checkout);
	if (!entry->armed)
		return entry_arm(entry, store->options.backoff_ns);
	/* A task that has begun finds what is left. */
	error = hwt_reschedule(
	    store_timer(store), entry->timeout, store->options.backoff_ns);
	return error == 0 || error == -EINPROGRESS;
}

void
entry_put(struct store_entry *entry, int *error)
{
	struct store_shard *shard = entry_shard(entry);
	struct store_entry *dead = NULL;

	store_lock(shard);
	if (error == NULL)
		shard->stats.jobs--;
	else if (entry->state == ENTRY_FAILED)
		*error = entry->error;
	if (--entry->wants == 0) {
		if (entry->state == ENTRY_LOADED)
			entry_rest(entry);
		dead = entry_die(entry);
	}
	store_unlock(shard);
	free(dead);
}
