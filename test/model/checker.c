/* SPDX-License-Identifier: Apache-2.0 */
/* The whole of a check, and what records and counters say. See checker.h. */
#include "test/model/checker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {
    "FREE", "PENDING", "HANDED", "REVOKED", "RUNNING", "UNPROCESSED", "6", "7"};

bool
checker_object(struct checker *checker, uint32_t index, const char *invariant,
    const char *condition)
{
	const struct record *record;
	uint64_t word;

	if (index == 0 || !checker_knows(checker, index)) {
		(void)snprintf(checker->text, sizeof(checker->text),
		    "%s: %s; record %" PRIu32, invariant, condition, index);
		return false;
	}
	record = record_at(&checker->timer->store, index);
	word = pair_word(&record->pair);
	(void)snprintf(checker->text, sizeof(checker->text),
	    "%s: %s; timeout %" PRIu32 " (handle 0x%" PRIx64
	    ") %s, flags 0x%" PRIx64 ", deadline %" PRIu64
	    ", entry at 0x%" PRIx32 " for tick %" PRIu64,
	    invariant, condition, index, word_id(word, index),
	    state_names[word_state(word)], word & INDEX_MASK & ~STATE_MASK,
	    pair_load(&record->pair).deadline_ns, record->entry_at,
	    record->entry_tick);
	return false;
}

static void
tally_clear(struct checker_tally *tally, size_t count)
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

bool
checker_check(struct checker *checker, const struct hwt *timer)
{
	size_t records = (size_t)store_limit(&timer->store) * SLAB_RECORDS + 1;

	checker->timer = timer;
	checker->checks++;
	checker->open_slabs = 0;
	checker->pages = 0;
	checker->pending = 0;
	checker->dispatched = 0;
	tally_clear(&checker->free, records);
	tally_clear(&checker->entries, records);
	tally_clear(&checker->chunks, timer->wheel.carved);
	return check_store(checker) && check_free(checker) &&
	    check_queue(checker) && check_wheel(checker) &&
	    check_records(checker) && check_counts(checker);
}

void
checker_close(struct checker *checker)
{
	free(checker->free.times);
	free(checker->entries.times);
	free(checker->chunks.times);
	memset(checker, 0, sizeof(*checker));
}

/* Records. */

static bool
check_flags(struct checker *checker, uint32_t index, uint64_t word)
{
	const struct record *record = record_at(&checker->timer->store, index);
	const struct hwt_executor *executor =
	    aptr_load_acquire(&record->executor);
	uint64_t state = word_state(word);

	if (state == STATE_FREE) {
		must((word & INDEX_MASK & ~FLAG_HAS_ENTRY) == 0, index,
		    "record: a free one has HAS_ENTRY or not");
		return true;
	}
	must(state == STATE_RUNNING || !(word & (FLAG_ENDING | FLAG_WAITED)),
	    index, "record: only a running one ends or is waited for");
	must(record_task(record) != NULL, index, "record: has a task");
	must(executor == NULL || executor->execute != NULL, index,
	    "record: its executor has a function");
	must(!(word & FLAG_PERIODIC) == (record->period_ns == 0), index,
	    "record: PERIODIC if and only if it has a period");
	return true;
}

/* A deadline of a tick that has been begun belongs to the next one. */
static bool
check_has_entry(struct checker *checker, uint32_t index, struct pair_value seen)
{
	const struct wheel *wheel = &checker->timer->wheel;
	const struct record *record = record_at(&checker->timer->store, index);
	uint64_t tick = timer_tick_of(checker->timer, seen.deadline_ns);

	if (tick < wheel->next_tick)
		tick = wheel->next_tick;
	must(tick == TICK_NEVER ||
		(record->entry_at != 0 && record->entry_tick <= tick),
	    index, "record: HAS_ENTRY says that an entry is in time");
	return true;
}

static bool
check_state(struct checker *checker, uint32_t index, struct pair_value seen)
{
	const struct record *record = record_at(&checker->timer->store, index);
	bool stopped =
	    a64_load_relaxed(&checker->timer->phase) == PHASE_STOPPED;
	uint64_t state = word_state(seen.word);

	must(state <= STATE_UNPROCESSED, index, "record: a state");
	must(checker->free.times[index] == (state == STATE_FREE), index,
	    "record 1: a free record is in one place, others in none");
	must(checker->entries.times[index] == (record->entry_at != 0), index,
	    "wheel 2: entry_at is 0 if and only if it has no entry");
	must(!stopped || state != STATE_PENDING, index,
	    "record: nothing is PENDING in a stopped timer");
	must(stopped || state != STATE_UNPROCESSED, index,
	    "record: UNPROCESSED once the timer has stopped");
	if (state == STATE_HANDED || state == STATE_REVOKED ||
	    state == STATE_RUNNING) {
		must(record->entry_at == 0, index,
		    "record: what is under way has no entry");
		must(!(seen.word & FLAG_HAS_ENTRY), index,
		    "record: what is under way has no HAS_ENTRY");
	}
	if (seen.word & FLAG_HAS_ENTRY)
		return check_has_entry(checker, index, seen);
	return state != STATE_PENDING || check_queued(checker, index, seen);
}

/* A timer that sleeps wakes in time for what it knows of, and has been called
 * for what it does not. */
static bool
check_asleep(struct checker *checker, uint32_t index, struct pair_value seen)
{
	const struct hwt *timer = checker->timer;
	uint64_t before_ns = a64_load_acquire(&timer->wake_before);

	if (before_ns == 0 || checker_stopping(checker) ||
	    word_state(seen.word) != STATE_PENDING)
		return true;
	/* A clock that began late may have wake_before later than never. */
	must(seen.deadline_ns >= before_ns ||
		seen.deadline_ns == DEADLINE_NEVER ||
		((seen.word & FLAG_HAS_ENTRY) &&
		    timer_tick_of(timer, seen.deadline_ns) <
			timer->wheel.next_tick),
	    index, "asleep: no longer than until the earliest deadline");
	return true;
}

static void
count_record(struct checker *checker, uint32_t index, uint64_t word)
{
	const struct hwt *timer = checker->timer;
	const struct record *record = record_at(&timer->store, index);
	uint64_t state = word_state(word);
	bool executed = aptr_load_acquire(&record->executor) != NULL ||
	    timer->executor.execute != NULL;

	checker->pending += state == STATE_PENDING || state == STATE_HANDED ||
	    (state == STATE_RUNNING && (word & FLAG_PERIODIC));
	checker->dispatched += state == STATE_HANDED ||
	    state == STATE_REVOKED || (state == STATE_RUNNING && executed);
}

bool
check_records(struct checker *checker)
{
	const struct record_store *store = &checker->timer->store;
	uint32_t end = checker_limit(checker) * SLAB_RECORDS;
	struct pair_value seen;
	uint32_t index;

	for (index = 0; index < end; index++) {
		if (!checker_knows(checker, index)) {
			index |= PAGE_RECORDS - 1;
			continue;
		}
		seen = pair_load(&record_at(store, index)->pair);
		if (!check_state(checker, index, seen) ||
		    !check_flags(checker, index, seen.word) ||
		    !check_asleep(checker, index, seen))
			return false;
		count_record(checker, index, seen.word);
	}
	return true;
}

/* Counters. */

/* A word tells of 64 pages of 32 chunks. */
static uint64_t
decommitted_chunks(const struct wheel *wheel)
{
	uint64_t pages = 0;
	uint32_t chunk;

	for (chunk = 0; chunk < wheel->carved; chunk += 64 * 32)
		pages += (uint64_t)__builtin_popcountll(
		    wheel->decommitted[chunk / (64 * 32)]);
	return pages * 32;
}

/* The tables from the buckets to that of the arenas. */
static uint64_t
wheel_bytes(const struct wheel *wheel)
{
	return (uintptr_t)wheel->arenas - (uintptr_t)wheel->buckets;
}

static uint64_t
memory_of(const struct checker *checker)
{
	const struct hwt *timer = checker->timer;
	uint64_t caches = a64_load_acquire(&timer->store.caches_used);

	return sizeof(*timer) + wheel_bytes(&timer->wheel) +
	    (timer->wheel.carved - 1 - decommitted_chunks(&timer->wheel)) *
	    sizeof(struct chunk) +
	    checker->open_slabs * HEADER_PAGES * PAGE_BYTES +
	    checker->pages * PAGE_BYTES + caches * sizeof(struct cache);
}

bool
check_counts(struct checker *checker)
{
	const struct hwt *timer = checker->timer;
	uint64_t permits = a64_load_acquire(&timer->permits);
	const struct cache *cache;
	uint64_t accepted = 0;
	uint64_t ended = 0;
	uint32_t i;

	for (i = 0; (cache = cache_counted(&timer->store, i)) != NULL; i++) {
		accepted += a64_load_acquire(&cache->accepted);
		ended += a64_load_acquire(&cache->ended);
	}
	must(accepted - ended == checker->pending, 0,
	    "count: accepted - ended is what is pending");
	must(permits == (timer->max_pending != 0 ? checker->pending : 0), 0,
	    "count: a permit for each that is pending");
	must(timer->max_pending == 0 || permits <= timer->max_pending, 0,
	    "count: max_pending");
	must(timer_dispatched(timer) == checker->dispatched, 0,
	    "count: what was dispatched and has not returned");
	must(aptr_load_acquire(&timer->dispatching_to) == NULL, 0,
	    "count: nothing is being handed over");
	must(timer->life.driver != DRIVER_ACTIVE, 0,
	    "count: nobody turns the wheel");
	must((a64_load_acquire(&timer->phase) == PHASE_RUNNING) !=
		checker_stopping(checker),
	    0, "count: the gate is open until stop");
	must(a64_load_acquire(&timer->store.memory_bytes) == memory_of(checker),
	    0, "count: memory_bytes");
	return true;
}
