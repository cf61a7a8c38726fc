/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slabs, free records, and the caches in which threads keep them.
 *
 * Slabs of 4096 records are mapped when needed and stay until the timer is
 * destroyed; pages of them that are free may give their memory back meanwhile,
 * see trim.c. Records are carved from slabs by pages of 64, and then go round:
 *
 *   a thread's cache <-> batches of up to 64 on a stack that all threads share
 *
 * A cache is last in, first out, so that the record which was cancelled last,
 * still in the processor's cache, is scheduled next. It holds 128 at most and
 * passes half of them on: where one thread schedules and another cancels,
 * records flow back in batches, at two compare-and-swaps for 64 timeouts.
 *
 * INVARIANTS
 *   1. The index of a FREE record is in exactly one place: a cache, a batch,
 *      a blank page, or the hands of one thread. A record that is not FREE is
 *      in none.
 *   2. carved <= limit, and every slab below limit is in the table, with room
 *      for all its records in the wheel (wheel_reserve) and in the queues
 *      (mpsc_pool_reserve).
 *   3. Caches are there from the start, as untouched memory. A thread that
 *      exits leaves its cache to the next one, counters included.
 *
 * A batch lies in its records: every fifth of them is a node, which has the
 * indexes of the next four and the one of the next node. So thirteen lines are
 * touched to pass 64 records on.
 *
 * COST. alloc and free touch the record's index alone; once per 64, a
 * compare-and-swap on a shared word and thirteen lines.
 *
 * EDGES
 *   E:slab    a slab's contents, release in store_grow by the store into the
 *             table, acquired by record_at and record_find.
 *   E:carve   limit, release in store_grow after the slab, acquired by
 *             store_carve.
 *   E:free    a batch's nodes and all that was done to its records, release
 *             in batch_push, acquired in batch_pop. The stack's head carries a
 *             tag that each push moves on: a pop that was overtaken by a pop
 *             and a push of the same batch fails. Reading the link of a batch
 *             that somebody else has taken is harmless, since a record stays a
 *             record and the compare-and-swap then fails.
 *   E:owned   a cache and its counters, release in cache_release, acquired by
 *             the next thread to claim it, in cache_claim.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "core/timer.h"

#define TABLE_BYTES (SLABS_MAX * sizeof(aptr_t))
#define CACHES_BYTES (CACHES_MAX * sizeof(struct cache))
#define PAGES_BYTES ((size_t)2 * SLABS_MAX * sizeof(a64_t))

/* SplitMix64's finalizer: a bijection that spreads every bit. */
static uint64_t
mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t
random_seed(const struct record_store *store)
{
	uint64_t seed;
	struct timespec now = {0};

	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == sizeof(seed))
		return seed;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	return mix((uint64_t)now.tv_nsec ^ (uint64_t)(uintptr_t)store);
}

int
record_store_create(struct record_store *store)
{
	store->slabs = system_map(TABLE_BYTES);
	if (store->slabs == NULL)
		return -ENOMEM;
	store->caches = system_map(CACHES_BYTES);
	if (store->caches == NULL)
		goto free_slabs;
	store->blank = system_map(PAGES_BYTES);
	if (store->blank == NULL)
		goto free_caches;
	store->uses = store->blank + SLABS_MAX;
	store->grow_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	store->seed = random_seed(store);
	store->spare.shared = true;
	a64_store_relaxed(&store->call_at, SPARE_RECORDS);
	return 0;

free_caches:
	system_unmap(store->caches, CACHES_BYTES);
free_slabs:
	system_unmap(store->slabs, TABLE_BYTES);
	return -ENOMEM;
}

void
record_store_destroy(struct record_store *store)
{
	size_t i;

	for (i = 0; i < SLABS_MAX; i++) {
		void *slab = aptr_load_acquire(&store->slabs[i]);

		if (slab == NULL)
			break;
		system_unmap(slab, SLAB_BYTES);
	}
	system_unmap(store->slabs, TABLE_BYTES);
	system_unmap(store->caches, CACHES_BYTES);
	system_unmap(store->blank, PAGES_BYTES);
}

/* A slab on a boundary of its own size, so that a record finds its header. */
static void *
map_slab(void)
{
	char *memory = system_map(2 * SLAB_BYTES);
	size_t before;

	if (memory == NULL)
		return NULL;
	before = -(uintptr_t)memory & (SLAB_BYTES - 1);
	if (before > 0)
		system_unmap(memory, before);
	system_unmap(memory + before + SLAB_BYTES, SLAB_BYTES - before);
	return memory + before;
}

/* Adds a slab, unless another thread has done so since limit was read. */
static int
store_grow(struct hwt *timer, uint32_t seen_limit)
{
	struct record_store *store = &timer->store;
	struct slab_header *slab;
	int error = -ENOMEM;

	(void)pthread_mutex_lock(&store->grow_lock);
	if (a32_load_relaxed(&store->limit) != seen_limit) {
		error = 0;
		goto unlock;
	}
	if (seen_limit >= SLABS_MAX * SLAB_RECORDS ||
	    !wheel_reserve(&timer->wheel, seen_limit + SLAB_RECORDS) ||
	    !mpsc_pool_reserve(
		&timer->pool, seen_limit + SLAB_RECORDS, timer->stripe_count))
		goto unlock;
	slab = map_slab();
	if (slab == NULL)
		goto unlock;
	slab->timer = timer;
	slab->first_index = seen_limit;
	/* E:slab release */
	aptr_store_release(&store->slabs[seen_limit >> SLAB_BITS], slab);
	/* E:carve release */
	a32_store_release(&store->limit, seen_limit + SLAB_RECORDS);
	error = 0;
unlock:
	(void)pthread_mutex_unlock(&store->grow_lock);
	return error;
}

/* Generations begin at random, so that a handle that is mistaken or made up
 * hits none. */
uint64_t
record_first_word(const struct record_store *store, uint32_t index)
{
	return mix(store->seed + index) & ~INDEX_MASK;
}

uint32_t
record_page_create(struct record_store *store, uint32_t *first)
{
	uint64_t used = a64_load_relaxed(&store->uses[*first >> SLAB_BITS])
	    << INDEX_BITS;
	uint32_t end = *first + BATCH;
	uint32_t i;

	(void)a64_add_relaxed(
	    &store->memory_bytes, BATCH * sizeof(struct record));
	*first += *first % SLAB_RECORDS == 0;
	for (i = *first; i < end; i++)
		pair_init(&record_at(store, i)->pair,
		    record_first_word(store, i) + used);
	return end - *first;
}

/* Takes a page of records that were never used. Returns how many; *first is the
 * first. */
static uint32_t
store_carve(struct hwt *timer, uint32_t *first, int *error)
{
	struct record_store *store = &timer->store;
	uint32_t at, limit;

	for (;;) {
		/* E:carve acquire */
		limit = a32_load_acquire(&store->limit);
		at = a32_load_relaxed(&store->carved);
		if (at >= limit) {
			*error = store_grow(timer, limit);
			if (*error != 0)
				return 0;
		} else if (a32_cas_acq_rel(&store->carved, at, at + BATCH)) {
			break;
		}
	}
	*first = at;
	return record_page_create(store, first);
}

/* first is the first node of a batch of count. */
static void
batch_push(struct record_store *store, uint32_t first, uint64_t count)
{
	struct record *head = record_at(store, first);
	uint64_t old, tag;

	do {
		old = a64_load_relaxed(&store->free);
		tag = (old >> 32) + 1;
		a64_store_relaxed(&head->next, count << 32 | (uint32_t)old);
		/* E:free release */
	} while (!a64_cas_acq_rel(&store->free, old, tag << 32 | first));
}

uint32_t
record_batch_pop(struct record_store *store)
{
	uint64_t old, link, next;

	do {
		old = a64_load_acquire(&store->free);
		if ((old & UINT32_MAX) == 0)
			return 0;
		/* Maybe already another's: then the tag has moved on. */
		link = a64_load_relaxed(&record_at(store, (uint32_t)old)->next);
		next = (old & ~(uint64_t)UINT32_MAX) | (uint32_t)link;
		/* E:free acquire */
	} while (!a64_cas_acq_rel(&store->free, old, next));
	(void)a64_add_acq_rel(&store->stacked, -(link >> 32));
	return (uint32_t)old;
}

void
record_batch_give(
    struct record_store *store, const uint32_t *index, uint32_t count)
{
	uint32_t i, next;

	if (count == 0)
		return;
	for (i = 0; i < count; i = next) {
		struct record *node = record_at(store, index[i]);

		next = i + 1 + NODE_RECORDS;
		if (next > count)
			next = count;
		node->node_count = next - i - 1;
		memcpy(node->node, index + i + 1,
		    node->node_count * sizeof(node->node[0]));
		node->node_next = next < count ? index[next] : 0;
	}
	/* E:spare fence */
	(void)a64_add_seq(&store->stacked, count);
	batch_push(store, index[0], count);
}

/* After so many more were left there. Only one caller finds that it is for it
 * to call the worker. */
static bool
must_call(struct record_store *store, uint32_t count)
{
	/* E:spare fence */
	uint64_t at = a64_load_seq(&store->call_at);

	(void)a64_add_relaxed(&store->given, count);
	return a64_load_relaxed(&store->stacked) >= at &&
	    a64_cas_acq_rel(&store->call_at, at, UINT64_MAX);
}

static void
cache_refill(struct hwt *timer, struct cache *cache, int *error)
{
	struct record_store *store = &timer->store;
	uint32_t node = record_batch_pop(store);
	uint32_t first = 0;
	uint32_t index;

	while (node != 0)
		node =
		    record_node_read(store, node, cache->slot, &cache->count);
	if (cache->count == 0)
		cache->count = trim_take_held(timer, cache->slot);
	for (index = 0; index < cache->count; index++)
		__builtin_prefetch(record_at(store, cache->slot[index]));
	if (cache->count > 0)
		return;
	cache->count = trim_take_page(timer, &first);
	if (cache->count == 0)
		cache->count = store_carve(timer, &first, error);
	for (index = 0; index < cache->count; index++)
		cache->slot[index] = first + cache->count - 1 - index;
}

/* For a thread without a cache: the rest of the batch goes back. */
static uint32_t
alloc_uncached(struct hwt *timer, int *error)
{
	struct record_store *store = &timer->store;
	struct cache batch = {0};

	cache_refill(timer, &batch, error);
	if (batch.count == 0)
		return 0;
	record_batch_give(store, batch.slot, batch.count - 1);
	return batch.slot[batch.count - 1];
}

uint32_t
record_alloc_slowly(struct hwt *timer, struct cache *cache, int *error)
{
	if (cache->shared)
		return alloc_uncached(timer, error);
	cache_refill(timer, cache, error);
	if (cache->count == 0)
		return 0;
	return cache->slot[--cache->count];
}

bool
record_free_slowly(struct hwt *timer, struct cache *cache, uint32_t index)
{
	struct record_store *store = &timer->store;

	if (cache->shared) {
		record_batch_give(store, &index, 1);
		return must_call(store, 1);
	}
	record_batch_give(store, cache->slot, BATCH);
	cache->count -= BATCH;
	memmove(cache->slot, cache->slot + BATCH,
	    cache->count * sizeof(cache->slot[0]));
	cache->slot[cache->count++] = index;
	return must_call(store, BATCH);
}

struct cache *
cache_claim(struct hwt *timer)
{
	struct record_store *store = &timer->store;
	struct cache *cache;
	uint32_t used, i;

	for (i = 0; i < CACHES_MAX; i++) {
		cache = &store->caches[i];
		if (a32_load_relaxed(&cache->owned) != 0)
			continue;
		/* E:owned acquire */
		if (a32_cas_acq_rel(&cache->owned, 0, 1))
			break;
	}
	if (i == CACHES_MAX)
		return NULL;
	cache->stripe = i % timer->stripe_count;
	for (;;) {
		used = a32_load_relaxed(&store->caches_used);
		if (used > i)
			return cache;
		if (a32_cas_acq_rel(&store->caches_used, used, i + 1))
			(void)a64_add_relaxed(&store->memory_bytes,
			    (i + 1 - used) * sizeof(*cache));
	}
}

void
cache_flush(struct hwt *timer, struct cache *cache)
{
	uint32_t first;

	if (cache->shared)
		return;
	for (first = 0; first < cache->count; first += BATCH) {
		uint32_t count = cache->count - first;

		record_batch_give(&timer->store, cache->slot + first,
		    count < BATCH ? count : BATCH);
	}
	cache->count = 0;
}

bool
cache_release(struct hwt *timer, struct cache *cache)
{
	uint32_t count = cache->count;

	cache_flush(timer, cache);
	/* E:owned release */
	a32_store_release(&cache->owned, 0);
	return must_call(&timer->store, count);
}
