/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of checker.h, in this order: slabs and their pages, free records,
 * the queue, the wheel, records, counters. An invariant that a source file
 * numbers is named by that. */
#include "test/model/checker.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef ARENA_BITS
#define ARENA_BITS 12
#endif
#define CHUNKS_PER_PAGE 32u
#define SLOT_BITS 4

static const struct hwt *timer;
static const struct record_store *store;
static const struct wheel *wheel;
static bool raced, stopping;
static uint64_t checks;

/* How often each record or chunk was found in a place. */
static struct tally {
	uint8_t *times;
	size_t room;
} free_records, entries, chunks;

static uint64_t memory_bytes, pending, dispatched;
static jmp_buf failed;
static char text[512];

/* index: the timeout that it is about; 0: none. */
#define must(condition, index, invariant) \
	((condition) ? (void)0 : object((index), (invariant), #condition))

static bool
is_idle(uint32_t slab)
{
	return store->idle[slab / 64] >> slab % 64 & 1;
}

static bool
is_committed(const struct slab *slab, uint32_t page)
{
	return a64_load_acquire(&slab->committed) >> page & 1;
}

/* Whether index names a record that is there. */
static bool
is_record(uint32_t index)
{
	uint32_t slab = index >> SLAB_BITS;

	return slab < store_limit(store) && !is_idle(slab) &&
	    is_committed(
		slab_at(store, slab), index % SLAB_RECORDS / PAGE_RECORDS);
}

static _Noreturn void
object(uint32_t index, const char *invariant, const char *condition)
{
	int length = snprintf(text, sizeof(text), "%s: %s; record %" PRIu32,
	    invariant, condition, index);

	if (index != 0 && is_record(index)) {
		const struct record *record = record_at(store, index);
		struct wide seen = wide_load(&record->wide);

		(void)snprintf(text + length, sizeof(text) - (size_t)length,
		    ", handle 0x%" PRIx64 ", state %" PRIu64
		    ", flags 0x%" PRIx64 ", deadline %" PRIu64
		    ", entry at 0x%" PRIx32 " for tick %" PRIu64,
		    word_id(seen.word, index), word_state(seen.word),
		    seen.word & INDEX_MASK & ~STATE_MASK, seen.deadline_ns,
		    record->entry_at, record->entry_tick);
	}
	longjmp(failed, 1);
}

static void
tally_clear(struct tally *tally, size_t count)
{
	if (count > tally->room) {
		free(tally->times);
		tally->room = 2 * count;
		tally->times = malloc(tally->room);
		if (tally->times == NULL)
			abort();
	}
	memset(tally->times, 0, count);
}

static bool
is_zero(const void *memory, size_t bytes)
{
	const char *first = memory;

	return *first == 0 && memcmp(first, first + 1, bytes - 1) == 0;
}

/* Slabs, and what is free. */

static void
check_free(uint32_t index)
{
	must(is_record(index), index,
	    "record 1: a cache or the free set has a record that is there");
	must(free_records.times[index]++ == 0, index,
	    "record 1: a free record is in one place");
}

static void
check_cache(const struct cache *cache)
{
	uint64_t owned = a64_load_acquire(&cache->owned);
	uint32_t i;

	must(owned <= 1 && cache->count <= CACHE_SLOTS, 0,
	    "free: a cache has an owner or none, and its slots");
	must(cache->count == 0 || owned == 1, 0,
	    "free: a cache without an owner is empty");
	for (i = 0; i < cache->count; i++)
		check_free(cache->slot[i]);
}

static void
check_caches(void)
{
	uint64_t used = a64_load_acquire(&store->caches_used);
	uint32_t i;

	must(used <= CACHES_MAX, 0, "free: caches within their array");
	for (i = 0; i < used; i++) {
		must(!store->caches[i].shared, 0, "free: one cache is shared");
		check_cache(&store->caches[i]);
	}
	must(used == CACHES_MAX ||
		is_zero(&store->caches[used], sizeof(struct cache)),
	    0, "record 4: a cache that was never used is all zero");
	must(store->shared_cache.shared, 0, "free: the shared one is shared");
	check_cache(&store->shared_cache);
	memory_bytes += used * sizeof(struct cache);
}

/* Returns whether it is committed and complete. */
static bool
check_page(const struct slab *slab, uint32_t page)
{
	uint64_t bits = a64_load_acquire(&slab->free_bits[page]);
	uint32_t first = slab->first_index + page * PAGE_RECORDS;
	const void *memory =
	    (const char *)(const void *)slab + page * PAGE_BYTES;

	must(page >= HEADER_PAGES || (bits == 0 && !is_committed(slab, page)),
	    first, "store: the header has no records");
	must((bits & ~PAGE_ALL) == 0, first, "free: a page has its records");
	/* E:set: a bit above may be set without one below. */
	must(bits == 0 || a64_load_acquire(&slab->free_summary) >> page & 1,
	    first, "free: free_summary has a bit for each page with bits");
	if (page < HEADER_PAGES || is_committed(slab, page))
		memory_bytes += PAGE_BYTES;
	if (page < HEADER_PAGES)
		return false;
	if (!is_committed(slab, page)) {
		must(bits == PAGE_ALL && is_zero(memory, PAGE_BYTES), first,
		    "record 3: a page that is not committed is free and 0");
		return false;
	}
	for (; bits != 0; bits &= bits - 1)
		check_free(first + (uint32_t)__builtin_ctzll(bits));
	return a64_load_acquire(&slab->free_bits[page]) == PAGE_ALL;
}

/* The queue: a slab is as urgent as its pages; more so, where a pass
 * has stopped in it. */
static void
check_queue(const struct slab *slab, uint32_t number)
{
	uint64_t slab_urgency = a64_load_acquire(&store->slab_urgency[number]);
	uint64_t most = 0, waiting = 0;
	uint32_t page;

	for (page = 0; page < SLAB_PAGES; page++) {
		const struct queued *queued = &slab->queued[page];
		uint64_t urgency = a64_load_acquire(&queued->urgency);

		must(a64_load_acquire(&queued->bits) == 0 || urgency != 0,
		    slab->first_index + page * PAGE_RECORDS,
		    "queue: a page with bits has an urgency");
		waiting += urgency != 0;
		most = urgency > most ? urgency : most;
	}
	must(slab_urgency >= most &&
		(slab_urgency == most || raced ||
		    timer->queue.any.slabs == number + 1),
	    slab->first_index, "queue: a slab is as urgent as its pages");
	must(raced || waiting == a64_load_acquire(&slab->waiting),
	    slab->first_index, "queue: the pages that wait are counted");
}

static uint64_t
check_slab(uint32_t number)
{
	const struct slab *slab = slab_at(store, number);
	uint32_t first = number << SLAB_BITS;
	uint64_t complete = 0;
	uint32_t page;

	must(slab != NULL && (uintptr_t)slab % SLAB_BYTES == 0, first,
	    "record 2: each slab is in the table, on a boundary of its size");
	if (is_idle(number)) {
		page = raced ? HEADER_PAGES : 0;
		must(is_zero(
			 (const char *)(const void *)slab + page * PAGE_BYTES,
			 SLAB_BYTES - page * PAGE_BYTES),
		    first, "record 3: an idle slab reads as 0");
		return 0;
	}
	must(slab->timer == timer && slab->first_index == first, first,
	    "store: a slab knows timer and index");
	for (page = 0; page < SLAB_PAGES; page++)
		complete += check_page(slab, page);
	must(a64_load_acquire(&slab->free_summary) == 0 ||
		a64_load_acquire(&store->free_top[number / 64]) >> number % 64 &
		    1,
	    first, "free: free_top has a bit for each slab with a summary");
	check_queue(slab, number);
	return complete;
}

static void
check_store(void)
{
	uint32_t limit = store_limit(store);
	uint64_t records = (uint64_t)limit * SLAB_RECORDS;
	uint64_t lists = 2 * ((uint64_t)wheel->mask + 1);
	uint64_t complete = 0;
	uint32_t number;

	check_caches();
	for (number = 0; number < limit; number++)
		complete += check_slab(number);
	must(a64_load_acquire(&store->free_pages) == complete, 0,
	    "free: complete pages are counted");
	must(limit < SLABS_MAX && slab_at(store, limit) == NULL &&
		!is_idle(limit),
	    0, "store: no slab beyond the limit");
	/* Enough for the worst that its records can do. */
	must(records == 0 ||
		wheel->capacity > records / CHUNK_ENTRIES +
			(records < lists ? records : lists),
	    0, "record 2: the wheel has room for all records");
	must(timer->queue.due.slabs == 0 && timer->queue.due.pages == 0, 0,
	    "queue: a pass through what is due goes to its end");
	must(timer->queue.any.slabs != 0 || timer->queue.any.pages == 0, 0,
	    "queue: no pass through all is under way");
}

/* The wheel. */

static const struct chunk *
chunk_of(uint32_t chunk)
{
	const struct chunk *arena =
	    aptr_load_acquire(&wheel->arenas[chunk >> ARENA_BITS]);

	return &arena[chunk & ((1u << ARENA_BITS) - 1)];
}

static void
check_entry(uint32_t number, uint32_t at, uint32_t slot)
{
	const struct chunk *chunk = chunk_of(at);
	const struct entry *entry = &chunk->entry[slot];
	const struct list *list = &wheel->buckets[number].list[chunk->which];
	uint32_t index = entry->index;
	const struct record *record;
	uint64_t tick;

	must(is_record(index), index,
	    "wheel 2: an entry names a record that is there");
	must(entries.times[index]++ == 0, index,
	    "wheel 2: a record has one entry");
	record = record_at(store, index);
	tick = record->entry_tick;
	must(record->entry_at == (at << SLOT_BITS | slot), index,
	    "wheel 2: entry_at is where the entry is");
	must((tick & wheel->mask) == number &&
		(uint32_t)(tick >> wheel->bits) == entry->round,
	    index, "wheel 2: in the bucket and the round of entry_tick");
	/* A walk that a stop ends leaves bounds that nobody needs. */
	must(stopping || tick >= wheel->next_tick, index,
	    "wheel 1: entries lie at ticks to come");
	must(stopping ||
		(tick >= wheel->earliest &&
		    (int32_t)(entry->round - list->round_min) >= 0),
	    index, "wheel 4: earliest and round_min are not after any entry");
}

static void
check_list(uint32_t number, enum which which)
{
	const struct list *list = &wheel->buckets[number].list[which];
	/* The tick at which the wheel comes to the bucket next. */
	uint64_t pass = wheel->next_tick +
	    ((number - (uint32_t)wheel->next_tick) & wheel->mask);
	uint32_t at, slot;

	must(list->last == 0 || stopping ||
		(int32_t)(list->round_min - (uint32_t)(pass >> wheel->bits)) >=
		    0,
	    0, "wheel 4: round_min is not behind");
	for (at = list->last; at != 0; at = chunk_of(at)->previous) {
		const struct chunk *chunk = chunk_of(at);

		must(at < wheel->carved && chunk->which == which, 0,
		    "wheel: links lead to chunks, which know their list");
		must(chunks.times[at]++ == 0, 0,
		    "wheel 5: a chunk is in one place");
		must(chunk->count > 0 && chunk->count <= CHUNK_ENTRIES &&
			(at == list->last || chunk->count == CHUNK_ENTRIES),
		    0, "wheel 4: no chunk is empty, only the last not full");
		for (slot = 0; slot < chunk->count; slot++)
			check_entry(number, at, slot);
	}
}

/* The words of a level that tell of the first bits. */
static size_t
words_of(uint32_t bits, uint32_t level)
{
	size_t words = bits;

	do
		words = (words + 63) / 64;
	while (level-- > 0);
	return words;
}

static void
check_levels(const struct bitmap *bitmap, uint32_t used)
{
	uint32_t level;
	size_t i;

	must(bitmap->levels <= BITMAP_LEVELS_MAX &&
		words_of(bitmap->length, bitmap->levels - 1) == 1,
	    0, "wheel 3: levels up to one word");
	for (level = 1; level < bitmap->levels; level++) {
		for (i = 0; i < words_of(used, level - 1); i++)
			must((bitmap->level[level][i / 64] >> i % 64 & 1) ==
				(bitmap->level[level - 1][i] != 0),
			    0, "wheel 3: a bit for each word that has bits");
	}
}

static void
check_chunk(uint32_t chunk)
{
	uint32_t page = chunk / CHUNKS_PER_PAGE;
	bool is_free = wheel->free.level[0][chunk / 64] >> chunk % 64 & 1;
	bool is_decommitted = wheel->decommitted[page / 64] >> page % 64 & 1;

	must(chunks.times[chunk] + is_free == (chunk != 0), 0,
	    "wheel 5: a chunk is in one place; chunk 0 in none");
	must(is_free || !is_decommitted || chunk == 0, 0,
	    "wheel 5: what is decommitted is free");
	must(!is_free || chunk_of(chunk)->count == 0, 0,
	    "wheel 5: a free chunk has no entry");
	if (chunk != 0 && !is_decommitted)
		memory_bytes += sizeof(struct chunk);
}

static void
check_wheel(void)
{
	uint32_t number, chunk;

	must(wheel->mask + 1 == 1u << wheel->bits && wheel->store == store, 0,
	    "wheel: a power of two of buckets, and its store");
	must(wheel->earliest >= wheel->next_tick || stopping, 0,
	    "wheel 4: earliest is not before next_tick");
	must(wheel->carved == 1 || wheel->carved <= wheel->capacity, 0,
	    "wheel: chunks within their arenas");
	check_levels(&wheel->filled, wheel->mask + 1);
	check_levels(&wheel->free, wheel->carved);
	for (number = 0; number <= wheel->mask; number++) {
		const struct list *list = wheel->buckets[number].list;
		bool filled =
		    wheel->filled.level[0][number / 64] >> number % 64 & 1;
		bool has_chunk = list[NEAR].last != 0 || list[FAR].last != 0;

		must(filled == has_chunk || (filled && stopping), 0,
		    "wheel 3: a bit for each bucket that has a chunk");
		if (has_chunk) {
			check_list(number, NEAR);
			check_list(number, FAR);
		}
	}
	for (chunk = 0; chunk < wheel->carved; chunk++)
		check_chunk(chunk);
	must(wheel->free.level[0][chunk / 64] >> chunk % 64 == 0, 0,
	    "wheel 5: what was never used is not free");
	/* The tables from the buckets to the arenas. */
	memory_bytes += (uintptr_t)wheel->arenas - (uintptr_t)wheel->buckets;
}

/* Records. */

static void
check_flags(uint32_t index, const struct record *record, uint64_t word)
{
	uint64_t state = word_state(word);

	if (state == STATE_FREE) {
		must((word & INDEX_MASK & ~FLAG_HAS_ENTRY) == 0, index,
		    "record: a free one has HAS_ENTRY or not");
		return;
	}
	must(state == STATE_RUNNING || !(word & (FLAG_ENDING | FLAG_WAITED)),
	    index, "record: only a running one ends or is waited for");
	must(record_task(record) != NULL, index, "record: has a task");
	must(!(word & FLAG_PERIODIC) == (record->period_ns == 0), index,
	    "record: PERIODIC if and only if it has a period");
}

/* The wheel has an entry in time, or the worker will look at it in time. A
 * deadline of a tick that has been begun belongs to the next one. */
static void
check_in_time(uint32_t index, const struct record *record, struct wide seen)
{
	uint64_t tick = timer_tick_of(timer, seen.deadline_ns);
	uint64_t urgency = mpsc_urgency(seen.deadline_ns);
	uint32_t number = index >> SLAB_BITS;
	const struct queued *queued =
	    &slab_at(store, number)->queued[index / PAGE_RECORDS % SLAB_PAGES];

	if (seen.word & FLAG_HAS_ENTRY) {
		if (tick < wheel->next_tick)
			tick = wheel->next_tick;
		must(tick == TICK_NEVER ||
			(record->entry_at != 0 && record->entry_tick <= tick),
		    index, "record: HAS_ENTRY says that an entry is in time");
	} else if (word_state(seen.word) == STATE_PENDING) {
		must(
		    a64_load_acquire(&queued->bits) >> index % PAGE_RECORDS & 1,
		    index, "queue: what is PENDING without HAS_ENTRY is in it");
		must(a64_load_acquire(&queued->urgency) >= urgency &&
			a64_load_acquire(&store->slab_urgency[number]) >=
			    urgency,
		    index, "queue: each level is as urgent as what it has");
	}
}

static void
check_state(uint32_t index, const struct record *record, uint64_t word)
{
	bool stopped = a64_load_relaxed(&timer->phase) == PHASE_STOPPED;
	uint64_t state = word_state(word);

	must(state <= STATE_UNPROCESSED, index, "record: a state");
	must(free_records.times[index] == (state == STATE_FREE), index,
	    "record 1: a free record is in one place, others in none");
	must(entries.times[index] == (record->entry_at != 0), index,
	    "wheel 2: entry_at is 0 if and only if it has no entry");
	must(!stopped || state != STATE_PENDING, index,
	    "record: nothing is PENDING in a stopped timer");
	must(stopped || state != STATE_UNPROCESSED, index,
	    "record: UNPROCESSED once the timer has stopped");
	must((state != STATE_HANDED && state != STATE_REVOKED &&
		 state != STATE_RUNNING) ||
		(record->entry_at == 0 && !(word & FLAG_HAS_ENTRY)),
	    index, "record: what is under way has no entry");
}

/* A timer that sleeps wakes in time for what it knows of, and has been called
 * for what it does not. A clock that began late may have wake_before later than
 * never. */
static void
check_asleep(uint32_t index, struct wide seen)
{
	uint64_t before_ns = a64_load_acquire(&timer->wake_before);

	if (before_ns == 0 || stopping ||
	    word_state(seen.word) != STATE_PENDING)
		return;
	must(seen.deadline_ns >= before_ns ||
		seen.deadline_ns == DEADLINE_NEVER ||
		((seen.word & FLAG_HAS_ENTRY) &&
		    timer_tick_of(timer, seen.deadline_ns) < wheel->next_tick),
	    index, "asleep: no longer than until the earliest deadline");
}

static void
check_record(uint32_t index)
{
	const struct record *record = record_at(store, index);
	struct wide seen = wide_load(&record->wide);
	uint64_t state = word_state(seen.word);
	bool executed = aptr_load_acquire(&record->executor) != NULL ||
	    timer->executor.execute != NULL;

	check_state(index, record, seen.word);
	check_in_time(index, record, seen);
	check_flags(index, record, seen.word);
	check_asleep(index, seen);
	pending += state == STATE_PENDING || state == STATE_HANDED ||
	    (state == STATE_RUNNING && (seen.word & FLAG_PERIODIC));
	dispatched += state == STATE_HANDED || state == STATE_REVOKED ||
	    (state == STATE_RUNNING && executed);
}

static void
check_counts(void)
{
	uint64_t permits = a64_load_acquire(&timer->permits);
	const struct cache *cache;
	uint64_t counted = 0;
	uint32_t i;

	for (i = 0; (cache = cache_counted(store, i)) != NULL; i++)
		counted += a64_load_acquire(&cache->scheduled) -
		    a64_load_acquire(&cache->ended);
	must(counted == pending, 0,
	    "count: scheduled - ended is what is pending");
	must(permits == (timer->options.max_pending != 0 ? pending : 0) &&
		(timer->options.max_pending == 0 ||
		    permits <= timer->options.max_pending),
	    0, "count: a permit for each that is pending, up to the limit");
	must(timer_dispatched(timer) == dispatched, 0,
	    "count: what was dispatched and has not returned");
	must(aptr_load_acquire(&timer->dispatching_to) == NULL &&
		timer->life.driver != DRIVER_ACTIVE,
	    0, "count: nobody turns the wheel or hands over");
	must((a64_load_acquire(&timer->phase) == PHASE_RUNNING) != stopping, 0,
	    "count: the gate is open until stop");
	must(a64_load_acquire(&store->memory_bytes) == memory_bytes, 0,
	    "count: memory_bytes");
}

const char *
checker_check(const struct hwt *checked, bool calls_raced)
{
	uint32_t end, index;

	timer = checked;
	store = &timer->store;
	wheel = &timer->wheel;
	raced = calls_raced;
	stopping = timer_is_stopping(timer);
	checks++;
	memory_bytes = sizeof(*timer);
	pending = dispatched = 0;
	end = store_limit(store) * SLAB_RECORDS;
	tally_clear(&free_records, end + 1);
	tally_clear(&entries, end + 1);
	tally_clear(&chunks, wheel->carved);
	if (setjmp(failed) != 0)
		return text;
	check_store();
	check_wheel();
	for (index = 0; index < end; index++) {
		if (is_record(index))
			check_record(index);
		else /* nor is any other of its page */
			index |= PAGE_RECORDS - 1;
	}
	check_counts();
	return NULL;
}

uint64_t
checker_checks(void)
{
	return checks;
}

void
checker_close(void)
{
	struct tally *const all[] = {&free_records, &entries, &chunks};
	unsigned i;

	for (i = 0; i < 3; i++) {
		free(all[i]->times);
		*all[i] = (struct tally){NULL, 0};
	}
}
