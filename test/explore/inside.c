/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a timer, in the end of each execution:
 *
 *   records       each free record is in one cache or in the free set, each
 *                 other one in neither; what is in a set can be found from
 *                 the top; a page that is not committed reads as 0
 *   entries       each entry in the wheel is its record's only one; a record
 *                 with HAS_ENTRY has one in time for its deadline; what is
 *                 PENDING without HAS_ENTRY is in the queue, and as urgent as
 *                 its deadline is at each level
 */
#include "program.h"

uint32_t
index_of(unsigned i)
{
	return (uint32_t)(subject[i].handle.id & INDEX_MASK);
}

struct slab *
slab_of(uint32_t index)
{
	return (void *)(uintptr_t)timer->store.slabs[index >> SLAB_BITS];
}

static uint32_t
page_of(uint32_t index)
{
	return index / PAGE_RECORDS % SLAB_PAGES;
}

a64_t *
free_bits_of(uint32_t index)
{
	return &slab_of(index)->free_bits[page_of(index)];
}

struct queued *
queued_of(uint32_t index)
{
	return &slab_of(index)->queued[page_of(index)];
}

a64_t *
slab_urgency_of(uint32_t index)
{
	return &timer->store.slab_urgency[index >> SLAB_BITS];
}

/* Counts how often each free record is there. */
static void
count_cache(const struct cache *cache, unsigned *found)
{
	uint32_t i;

	for (i = 0; i < cache->count; i++)
		found[cache->slot[i]]++;
}

bool
queue_has(uint32_t index, uint64_t deadline_ns)
{
	const struct queued *queued = queued_of(index);
	uint64_t urgency = mpsc_urgency(deadline_ns);

	return (queued->bits >> index % PAGE_RECORDS & 1) &&
	    queued->urgency >= urgency && *slab_urgency_of(index) >= urgency;
}

static bool
free_can_be_found(uint32_t index)
{
	uint32_t number = index >> SLAB_BITS;

	return (slab_of(index)->free_summary >> page_of(index) & 1) &&
	    (timer->store.free_top[number / 64] >> number % 64 & 1);
}

static bool
index_exists(uint32_t index)
{
	return index >> SLAB_BITS < timer->store.limit &&
	    index % SLAB_RECORDS >= HEADER_PAGES * PAGE_RECORDS;
}

static bool
is_committed(uint32_t index)
{
	return slab_of(index)->committed >> page_of(index) & 1;
}

static bool
slab_is_idle(uint32_t index)
{
	uint32_t number = index >> SLAB_BITS;

	return timer->store.idle[number / 64] >> number % 64 & 1;
}

static void
verify_uncommitted(uint32_t index)
{
	static const struct record zero;

	if (memcmp(record_at(&timer->store, index), &zero, sizeof(zero)) != 0)
		explore_fail("record %u is not committed, and not 0", index);
}

/* Found: in how many caches. */
static void
verify_record(uint32_t index, unsigned found)
{
	uint64_t word = pair_word(&record_at(&timer->store, index)->pair);
	bool in_set = *free_bits_of(index) >> index % PAGE_RECORDS & 1;
	bool free = word_state(word) == STATE_FREE && !slab_is_idle(index);

	if (!is_committed(index))
		verify_uncommitted(index);
	if (found + in_set != free)
		explore_fail("record %u, word %llx, is in %u places", index,
		    (unsigned long long)word, found + in_set);
	if (in_set && !free_can_be_found(index))
		explore_fail("record %u is free and cannot be found", index);
}

static void
verify_free_pages(void)
{
	uint32_t end = store_limit(&timer->store) << SLAB_BITS;
	uint64_t pages = 0;
	uint32_t index;

	for (index = 0; index < end; index += PAGE_RECORDS) {
		if (index_exists(index) && is_committed(index) &&
		    *free_bits_of(index) == PAGE_ALL)
			pages++;
	}
	if (pages != timer->store.free_pages)
		explore_fail("%u pages are free, and %u are counted",
		    (unsigned)pages, (unsigned)timer->store.free_pages);
}

/* Fewer chunks than a page has are in use: none is decommitted. */
static void
verify_memory(void)
{
	const struct record_store *store = &timer->store;
	const struct wheel *wheel = &timer->wheel;
	uint32_t end = store_limit(store) << SLAB_BITS;
	uint64_t bytes = sizeof(*timer) +
	    (wheel->carved - 1) * sizeof(struct chunk) +
	    store->caches_used * sizeof(struct cache) +
	    ((uintptr_t)wheel->arenas - (uintptr_t)wheel->buckets);
	uint32_t index;

	for (index = 0; index < end; index += PAGE_RECORDS) {
		if (index_exists(index) ? is_committed(index)
					: !slab_is_idle(index))
			bytes += PAGE_BYTES;
	}
	if (bytes != store->memory_bytes)
		explore_fail("%llu bytes are in use, and %llu are counted",
		    (unsigned long long)bytes,
		    (unsigned long long)store->memory_bytes);
}

void
verify_records(void)
{
	const struct record_store *store = &timer->store;
	unsigned found[1u << INDEX_BITS] = {0};
	uint32_t end = store_limit(store) << SLAB_BITS;
	uint32_t index, i;

	explore_check(store->shared_cache.count == 0);
	for (i = 0; i < store->caches_used; i++)
		count_cache(&store->caches[i], found);
	for (index = 0; index < end; index++) {
		if (index_exists(index))
			verify_record(index, found[index]);
		else
			explore_check(found[index] == 0);
	}
	verify_free_pages();
	verify_memory();
}

/* The wheel's entries, by the records that own them. */
#define ENTRY_SLOT_BITS 4u

static const struct chunk *
chunk_of(uint32_t chunk)
{
	const struct chunk *first =
	    (void *)(uintptr_t)timer->wheel.arenas[chunk >> ARENA_BITS];

	return &first[chunk & ((1u << ARENA_BITS) - 1)];
}

static unsigned
count_wheel(void)
{
	unsigned entries = 0;
	uint32_t i, at;

	for (i = 0; i < 2 * (timer->wheel.mask + 1); i++) {
		at = timer->wheel.buckets[i / 2].list[i % 2].last;
		for (; at != 0; at = chunk_of(at)->previous)
			entries += chunk_of(at)->count;
	}
	return entries;
}

static void
verify_entry(uint32_t index)
{
	uint32_t at = record_at(&timer->store, index)->entry_at;
	uint32_t slot = at & ((1u << ENTRY_SLOT_BITS) - 1);
	const struct chunk *chunk = chunk_of(at >> ENTRY_SLOT_BITS);

	explore_check(slot < chunk->count);
	explore_check(chunk->entry[slot].index == index);
}

static void
verify_has_entry(uint32_t index)
{
	const struct record *record = record_at(&timer->store, index);
	uint64_t due = timer_tick_of(timer, record->pair.half[1]);

	if (due == TICK_NEVER)
		return;
	if (record->entry_at == 0 ||
	    record->entry_tick > wheel_reach(&timer->wheel, due))
		explore_fail("record %u has HAS_ENTRY and no entry", index);
}

/* What is PENDING without HAS_ENTRY: the worker will look at it in time. */
static void
verify_queued(uint32_t index)
{
	const uint64_t *pair = record_at(&timer->store, index)->pair.half;

	if (!queue_has(index, pair[1]))
		explore_fail("record %u is not in the queue in time", index);
}

void
verify_entries(void)
{
	uint32_t end = store_limit(&timer->store) << SLAB_BITS;
	unsigned entries = 0;
	uint32_t index;
	uint64_t word;

	for (index = 0; index < end; index++) {
		if (!index_exists(index) || !is_committed(index))
			continue;
		word = pair_word(&record_at(&timer->store, index)->pair);
		if (record_at(&timer->store, index)->entry_at != 0) {
			verify_entry(index);
			entries++;
		}
		if (word & FLAG_HAS_ENTRY)
			verify_has_entry(index);
		else if (word_state(word) == STATE_PENDING)
			verify_queued(index);
	}
	explore_check(entries == count_wheel());
}
