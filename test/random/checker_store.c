/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs, caches and batches. See checker.h and ../../record.c. */
#include "test/random/checker.h"

#include <string.h>

static bool
check_slab(struct checker *checker, uint32_t first)
{
	const struct hwt *timer = checker->timer;
	const struct slab_header *slab =
	    aptr_load_acquire(&timer->store.slabs[first >> SLAB_BITS]);

	must(slab != NULL, first, "store: each slab is in the table");
	must((uintptr_t)slab % SLAB_BYTES == 0, first,
	    "store: a slab lies on a boundary of its size");
	must((slab->timer == timer && slab->first_index == first) ||
		~a64_load_acquire(&timer->store.blank[first >> SLAB_BITS]) == 0,
	    first, "store: a slab that is not blank knows timer and index");
	return true;
}

/* Enough for the worst that its records can do. */
static bool
check_room(struct checker *checker, uint32_t limit)
{
	const struct hwt *timer = checker->timer;
	uint64_t buckets = (uint64_t)timer->wheel.mask + 1;
	uint64_t partial = limit < buckets ? limit : buckets;
	uint64_t segments = limit / MPSC_SLOTS + 2 * timer->stripe_count;

	must(limit == 0 ||
		timer->wheel.capacity > limit / CHUNK_ENTRIES + partial,
	    0, "store: the wheel has room for all records");
	must(limit == 0 || a32_load_acquire(&timer->pool.limit) > segments, 0,
	    "store: the queues have room for all records");
	return true;
}

bool
check_store(struct checker *checker)
{
	const struct record_store *store = &checker->timer->store;
	uint32_t carved = a32_load_acquire(&store->carved);
	uint32_t limit = a32_load_acquire(&store->limit);
	uint32_t first;

	must(carved <= limit, 0, "store: carved <= limit");
	must(carved % BATCH == 0, 0, "store: carved in batches");
	must(limit % SLAB_RECORDS == 0, 0, "store: whole slabs");
	for (first = 0; first < limit; first += SLAB_RECORDS) {
		if (!check_slab(checker, first))
			return false;
	}
	must(aptr_load_acquire(&store->slabs[limit >> SLAB_BITS]) == NULL, 0,
	    "store: no slab beyond the limit");
	return check_room(checker, limit);
}

static bool
note_free(struct checker *checker, uint32_t index)
{
	must(checker_knows(checker, index), index,
	    "free: a cache or batch holds a record that exists");
	must(checker->free.times[index]++ == 0, index,
	    "free: a free record is in one place");
	return true;
}

static bool
check_cache(struct checker *checker, const struct cache *cache, uint32_t stripe)
{
	uint32_t owned = a32_load_acquire(&cache->owned);
	uint32_t i;

	must(owned <= 1, 0, "free: a cache has one owner or none");
	must(cache->count <= CACHE_SLOTS, 0, "free: a cache has its slots");
	must(cache->count == 0 || owned == 1, 0,
	    "free: a cache without an owner is empty");
	must(cache->stripe == stripe, 0, "free: a cache pushes to its queue");
	for (i = 0; i < cache->count; i++) {
		if (!note_free(checker, cache->slot[i]))
			return false;
	}
	return true;
}

/* The chain of one batch. */
static bool
check_batch(struct checker *checker, uint32_t index, uint64_t records)
{
	const struct record_store *store = &checker->timer->store;
	uint32_t found[BATCH + NODE_RECORDS];
	uint32_t count = 0;
	uint32_t i;

	while (index != 0) {
		must(record_at(store, index)->node_count <= NODE_RECORDS, index,
		    "free: a node has its places");
		index = record_node_read(store, index, found, &count);
		must(count <= BATCH, index, "free: a batch is a batch at most");
	}
	must(count == records, found[0], "free: a batch knows how many it has");
	for (i = 0; i < count; i++) {
		if (!note_free(checker, found[i]))
			return false;
	}
	return true;
}

static bool
check_batches(struct checker *checker)
{
	const struct record_store *store = &checker->timer->store;
	uint32_t index = (uint32_t)a64_load_acquire(&store->free);
	uint64_t records = 0;

	while (index != 0) {
		uint64_t link =
		    a64_load_acquire(&record_at(store, index)->next);

		if (!check_batch(checker, index, link >> 32))
			return false;
		records += link >> 32;
		index = (uint32_t)link;
	}
	must(records == a64_load_acquire(&store->stacked), 0,
	    "free: what is in batches is counted");
	return true;
}

/* A record of a blank page is free there, and nothing was written to it. */
static bool
check_blank(struct checker *checker)
{
	const struct record_store *store = &checker->timer->store;
	uint32_t carved = a32_load_acquire(&store->carved);
	uint32_t pages = 0;
	uint32_t index = 0;
	uint32_t next;

	for (; index < carved; index += BATCH) {
		uint64_t blank =
		    a64_load_acquire(&store->blank[index >> SLAB_BITS]);

		if (!(blank >> index % SLAB_RECORDS / BATCH & 1))
			continue;
		pages++;
		for (next = index + (index % SLAB_RECORDS == 0);
		     next < index + BATCH; next++) {
			must(pair_word(&record_at(store, next)->pair) == 0,
			    next, "free: a blank page is blank");
			if (!note_free(checker, next))
				return false;
		}
	}
	must(pages == a32_load_acquire(&store->blank_pages), 0,
	    "free: blank pages are counted");
	return true;
}

/* In the worker's hands. */
static bool
check_held(struct checker *checker)
{
	const struct hwt *timer = checker->timer;
	const a64_t *held = aptr_load_acquire(&timer->store.held);
	uint32_t carved = a32_load_acquire(&timer->store.carved);
	uint32_t pages = 0;
	uint32_t page, i;

	if (held == NULL)
		return true;
	for (page = 0; page < carved / BATCH; page++) {
		uint64_t records = a64_load_relaxed(&held[page]);

		pages += records != 0;
		for (i = 0; i < BATCH; i++) {
			if ((records >> i & 1) &&
			    !note_free(checker, page * BATCH + i))
				return false;
		}
	}
	must(pages == a32_load_acquire(&timer->store.held_pages), 0,
	    "free: pages with what is held are counted");
	must(pages == 0 || timer->trim.phase != TRIM_NOT, 0,
	    "free: nothing is held when all has been given back");
	return true;
}

bool
check_free(struct checker *checker)
{
	static const struct cache fresh;
	const struct hwt *timer = checker->timer;
	uint32_t used = a32_load_acquire(&timer->store.caches_used);
	uint32_t i;

	must(used <= CACHES_MAX, 0, "free: caches within their array");
	for (i = 0; i < used; i++) {
		const struct cache *cache = &timer->store.caches[i];

		must(!cache->shared, 0, "free: one cache is shared");
		if (!check_cache(checker, cache, i % timer->stripe_count))
			return false;
	}
	must(used == CACHES_MAX ||
		memcmp(&timer->store.caches[used], &fresh, sizeof(fresh)) == 0,
	    0, "free: a cache that was never used is all zero");
	must(timer->store.spare.shared, 0, "free: the spare one is shared");
	must(timer->store.spare.count == 0, 0, "free: and holds nothing");
	return check_cache(checker, &timer->store.spare, 0) &&
	    check_batches(checker) && check_blank(checker) &&
	    check_held(checker);
}
