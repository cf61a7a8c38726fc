/* SPDX-License-Identifier: Apache-2.0 */
/* The whole of a check, and what records and counters say. See checker.h. */
#include "test/random/checker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {"FREE", "QUEUED", "PLACED", "HANDED",
    "REVOKED", "RUNNING", "6", "UNPROCESSED"};

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
	    ") %s, flags 0x%" PRIx64 ", deadline %" PRIu64 ", placed %" PRIu32,
	    invariant, condition, index, word_id(word, index),
	    state_names[word_state(word)], word & INDEX_MASK & ~STATE_MASK,
	    pair_load(&record->pair).deadline_ns, record->placed);
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

static void
own_clear(struct checker *checker, size_t count)
{
	if (count > checker->own_room) {
		free(checker->own);
		checker->own_room = 2 * count;
		checker->own =
		    malloc(checker->own_room * sizeof(checker->own[0]));
		if (checker->own == NULL)
			abort();
	}
	memset(checker->own, 0xff, count * sizeof(checker->own[0]));
}

bool
checker_check(struct checker *checker, const struct hwt *timer)
{
	size_t records = a32_load_acquire(&timer->store.carved) + 1;

	checker->timer = timer;
	checker->checks++;
	checker->pending = 0;
	checker->handed = 0;
	checker->earliest = TICK_NEVER;
	checker->entries = 0;
	tally_clear(&checker->free, records);
	tally_clear(&checker->queued, records);
	own_clear(checker, records);
	tally_clear(&checker->chunks, timer->wheel.carved);
	tally_clear(&checker->segments, a32_load_acquire(&timer->pool.carved));
	return check_store(checker) && check_free(checker) &&
	    check_queues(checker) && check_wheel(checker) &&
	    check_records(checker) && check_counts(checker);
}

void
checker_close(struct checker *checker)
{
	free(checker->free.times);
	free(checker->queued.times);
	free(checker->own);
	free(checker->chunks.times);
	free(checker->segments.times);
	memset(checker, 0, sizeof(*checker));
}

/* Records. */

/* The entry of a timeout that no queue holds a word about lies no later than
 * its deadline asks for, or as near to that as can be told apart. */
static bool
check_place(struct checker *checker, uint32_t index, struct pair_value seen)
{
	const struct wheel *wheel = &checker->timer->wheel;
	uint64_t tick = timer_tick_of(checker->timer, seen);

	if (tick < wheel->next_tick)
		tick = wheel->next_tick;
	must(tick == TICK_NEVER || (seen.word & FLAG_BUCKETED), index,
	    "record: what is due some time is in a bucket");
	must(tick == TICK_NEVER || checker->own[index] <= tick, index,
	    "record: no entry later than the deadline");
	return true;
}

static bool
check_flags(struct checker *checker, uint32_t index, uint64_t word)
{
	const struct record *record = record_at(&checker->timer->store, index);
	const struct hwt_executor *executor =
	    aptr_load_acquire(&record->executor);
	uint64_t state = word_state(word);
	const uint64_t running =
	    FLAG_ENDING | FLAG_CLAIMED | FLAG_WAITED | FLAG_MOVED;

	if (state == STATE_FREE) {
		must((word & INDEX_MASK &
			 ~(FLAG_ENQUEUED | FLAG_BUCKETED | FLAG_AFTER)) == 0,
		    index, "record: a free one has the flags of its entries");
		return true;
	}
	must(state == STATE_RUNNING || !(word & running), index,
	    "record: only a running one ends, moved or is waited for");
	must(record->task != NULL, index, "record: has a task");
	must(executor == NULL || executor->execute != NULL, index,
	    "record: its executor has a function");
	must(!(word & FLAG_PERIODIC) == (record->period_ns == 0), index,
	    "record: PERIODIC if and only if it has a period");
	if (word & FLAG_RELATIVE) {
		must(checker->timer->flags & HWT_RELAXED, index,
		    "record: RELATIVE in a relaxed timer");
		must(state == STATE_QUEUED || state == STATE_UNPROCESSED, index,
		    "record: RELATIVE until the worker takes it over");
	}
	return true;
}

/* Which places a record may be in, by its state. */
static bool
check_state(struct checker *checker, uint32_t index, struct pair_value seen)
{
	uint64_t state = word_state(seen.word);
	bool enqueued = (seen.word & FLAG_ENQUEUED) != 0;
	bool bucketed = (seen.word & FLAG_BUCKETED) != 0;

	must(checker->free.times[index] == (state == STATE_FREE), index,
	    "free: a free record is in one cache or batch, others in none");
	must(!checker->queued.times[index] || enqueued, index,
	    "queue: what has an entry is ENQUEUED");
	must(checker->queued.times[index] == enqueued ||
		checker_stopping(checker),
	    index, "queue: what is ENQUEUED has one entry");
	must(!bucketed || checker->own[index] != TICK_NEVER, index,
	    "wheel 2: what is BUCKETED has an entry");
	must(!bucketed || (state != STATE_HANDED && state != STATE_RUNNING),
	    index, "record: what is under way is in no bucket");
	must(state != STATE_QUEUED || enqueued, index,
	    "record: QUEUED is ENQUEUED");
	must((state == STATE_UNPROCESSED) <=
		(checker->timer->life.phase == PHASE_STOPPED),
	    index, "record: UNPROCESSED once the timer has stopped");
	must(checker->timer->life.phase != PHASE_STOPPED ||
		(state != STATE_QUEUED && state != STATE_PLACED),
	    index, "record: nothing is pending in a stopped timer");
	return (state != STATE_PLACED && !(state == STATE_FREE && bucketed)) ||
	    enqueued || check_place(checker, index, seen);
}

/* A timer that sleeps wakes in time for what it knows of, and has been called
 * for what it does not. */
static bool
check_asleep(struct checker *checker, uint32_t index, struct pair_value seen)
{
	const struct hwt *timer = checker->timer;
	uint64_t before_ns = a64_load_acquire(&timer->wake_before);
	uint64_t due_ns = seen.deadline_ns + ((seen.word & FLAG_AFTER) != 0);
	uint64_t state = word_state(seen.word);
	uint64_t at = checker->own[index];

	if (before_ns == 0 || checker_stopping(checker))
		return true;
	must(!(seen.word & FLAG_RELATIVE) || state != STATE_QUEUED, index,
	    "asleep: called for a delay that is to run");
	if (at != TICK_NEVER && state == STATE_PLACED)
		must(timer_boundary(timer, at - 1) + 1 >= before_ns, index,
		    "asleep: no longer than until the earliest entry");
	if (state == STATE_QUEUED ||
	    (state == STATE_PLACED && (seen.word & FLAG_ENQUEUED)))
		must(due_ns >= before_ns, index,
		    "asleep: called for an earlier deadline");
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

	checker->pending += state == STATE_QUEUED || state == STATE_PLACED ||
	    state == STATE_HANDED ||
	    (state == STATE_RUNNING && (word & FLAG_PERIODIC));
	checker->handed += state == STATE_HANDED || state == STATE_REVOKED ||
	    (state == STATE_RUNNING && executed);
}

bool
check_records(struct checker *checker)
{
	const struct record_store *store = &checker->timer->store;
	uint32_t carved = a32_load_acquire(&store->carved);
	struct pair_value seen;
	uint32_t index;

	for (index = 1; index < carved; index++) {
		if (index % SLAB_RECORDS == 0)
			continue;
		seen = pair_load_whole(&record_at(store, index)->pair);
		if (!check_state(checker, index, seen) ||
		    !check_flags(checker, index, seen.word) ||
		    !check_asleep(checker, index, seen))
			return false;
		count_record(checker, index, seen.word);
	}
	return true;
}

/* Counters. */

static uint64_t
stack_depth(const struct mpsc_pool *pool, const a64_t *stack)
{
	uint32_t segment = (uint32_t)a64_load_acquire(stack);
	uint64_t depth = 0;

	for (; segment != 0; segment = a32_load_acquire(&pool->links[segment]))
		depth++;
	return depth;
}

/* A word tells of 64 pages of 32 chunks. */
static uint64_t
blank_chunks(const struct wheel *wheel)
{
	uint64_t pages = 0;
	uint32_t chunk;

	for (chunk = 0; chunk < wheel->carved; chunk += 64 * 32)
		pages += (uint64_t)__builtin_popcountll(
		    wheel->blank[chunk / (64 * 32)]);
	return pages * 32;
}

static uint64_t
memory_of(const struct hwt *timer)
{
	uint64_t carved = a32_load_acquire(&timer->store.carved);
	uint64_t blank = a32_load_acquire(&timer->store.blank_pages);
	uint64_t segments = a32_load_acquire(&timer->pool.carved) - 1 -
	    stack_depth(&timer->pool, &timer->pool.blank);
	uint64_t caches = a32_load_acquire(&timer->store.caches_used);

	return sizeof(*timer) +
	    timer->stripe_count * sizeof(struct mpsc_queue) +
	    timer->wheel.bytes +
	    (timer->wheel.carved - 1 - blank_chunks(&timer->wheel)) *
	    sizeof(struct chunk) +
	    segments * sizeof(struct mpsc_segment) +
	    (carved - blank * BATCH) * sizeof(struct record) +
	    caches * sizeof(struct cache);
}

bool
check_counts(struct checker *checker)
{
	const struct hwt *timer = checker->timer;
	uint64_t places = a64_load_acquire(&timer->places);
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
	must(places == (timer->max_pending != 0 ? checker->pending : 0), 0,
	    "count: a place of max_pending for each that is pending");
	must(timer->max_pending == 0 || places <= timer->max_pending, 0,
	    "count: max_pending");
	must(a64_load_acquire(&timer->handed) == checker->handed, 0,
	    "count: handed is what executors hold");
	must(aptr_load_acquire(&timer->handing) == NULL, 0,
	    "count: nothing is being handed over");
	must(a64_load_acquire(&timer->batches) == 0, 0,
	    "count: no batch is under way");
	must(!timer->life.turning, 0, "count: nobody turns the wheel");
	must((a64_load_acquire(&timer->gate) == 1) != checker_stopping(checker),
	    0, "count: the gate is open until stop");
	must(a64_load_acquire(&timer->store.memory_bytes) == memory_of(timer),
	    0, "count: memory_bytes");
	return true;
}
