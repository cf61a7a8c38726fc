/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a task, in the worker or in an executor.
 *
 * While the record is RUNNING, only the thread that runs the task changes its
 * state; others may set flags in its word (ENDING, WAITED). When the task has
 * returned, the record becomes:
 *
 *   one-shot              FREE, and the record goes into this thread's cache
 *   periodic              PENDING for its next run
 *   periodic and ENDING,  FREE
 *   or the timer stops
 *
 * A cancel that races with the end of a periodic run either sets ENDING first,
 * and the swap to PENDING fails and is tried again, or comes after that swap
 * and cancels the next run. A stop that comes after it puts the next run into
 * its list, or requeue finds the gate closed and retracts it.
 *
 * EDGES
 *   E:word     drawn in worker.c; release in run_ended.
 *   E:closed   drawn in hwt.c; fence in requeue too.
 *   E:dispatched
 *              all that hwt_run did: release in cache_count, for timer_run's
 *              last access to the timer, acquire in timer_dispatched.
 */
#include <errno.h>

#include "sys/probe.h"
#include "core/timer.h"

/* Until it returns, calls of this thread that would wait answer -EDEADLK.
 * True: it has rescheduled itself. */
static bool
run_task(struct hwt *timer, hwt_task *task, uint64_t id, void *arg)
{
	struct run_frame frame = {
	    .serial = timer->serial, .id = id, .outer = thread_state.frames};

	thread_state.frames = &frame;
	PROBE(task_begin, timer, id, task, arg);
	task((hwt_timeout){id}, arg);
	PROBE(task_end, timer, id, task);
	thread_state.frames = frame.outer;
	return frame.rescheduled;
}

/* The first deadline_ns + n * period_ns after now_ns, n >= 1. */
static uint64_t
next_deadline(uint64_t deadline_ns, uint64_t period_ns, uint64_t now_ns)
{
	uint64_t periods;

	periods =
	    now_ns < deadline_ns ? 1 : (now_ns - deadline_ns) / period_ns + 1;
	if (periods > (DEADLINE_NEVER - deadline_ns) / period_ns)
		return DEADLINE_NEVER;
	return deadline_ns + periods * period_ns;
}

static void
run_ended(struct hwt *timer, struct record *record, uint32_t index)
{
	uint64_t word, freed;

	do {
		word = wide_word(&record->wide);
		freed = word & FLAG_WAITED ? word_freed_waited(word)
					   : word_freed(word);
		/* E:word release */
	} while (!wide_cas_word(&record->wide, word, freed));
	if (word & FLAG_WAITED)
		futex_wake(system_high_half(&record->wide), FUTEX_ALL);
	record_free(timer, cache_of(timer), index);
}

/* Counts the end of a timeout, before others can see it. */
static void
count_ended(struct hwt *timer)
{
	struct cache *cache = cache_of(timer);

	cache_count(cache, &cache->ended, 1);
	pending_release(timer, 1);
}

/* Pushes the next run, which was published. */
static void
requeue(
    struct hwt *timer, struct record *record, uint32_t index, struct wide now)
{
	/* E:closed fence */
	if (a64_load_seq(&timer->phase) == PHASE_RUNNING) {
		(void)timer_notify(timer, index, now.deadline_ns);
	} else if (timer_retract(record, word_id(now.word, index), 0)) {
		count_ended(timer);
		record_free(timer, cache_of(timer), index);
	}
}

/* The deadline is still the one of the ended run, unless the task has
 * rescheduled itself. Nobody else changes that of a RUNNING record. */
static void
end_periodic(
    struct hwt *timer, struct record *record, uint32_t index, bool rescheduled)
{
	uint64_t period_ns = a64_load_relaxed(&record->period_ns);
	uint64_t now_ns = timer_now(timer);
	struct wide seen, next;

	for (;;) {
		seen = wide_load(&record->wide);
		if ((seen.word & FLAG_ENDING) || timer_is_stopping(timer)) {
			count_ended(timer);
			run_ended(timer, record, index);
			return;
		}
		next = seen;
		next.word &= ~STATE_MASK;
		next.word |= STATE_PENDING;
		if (!rescheduled)
			next.deadline_ns =
			    next_deadline(seen.deadline_ns, period_ns, now_ns);
		if (wide_cas(&record->wide, seen, next)) {
			requeue(timer, record, index, next);
			return;
		}
	}
}

void
timer_run_record(struct hwt *timer, struct record *record, uint32_t index)
{
	struct cache *cache = cache_of(timer);
	uint64_t word = wide_word(&record->wide);
	uint64_t id = word_id(word, index);
	bool periodic = (word & FLAG_PERIODIC) != 0;
	bool rescheduled;

	cache_count(cache, &cache->started, 1);
	if (!periodic)
		count_ended(timer);
	rescheduled = run_task(
	    timer, record_task(record), id, aptr_load_acquire(&record->arg));
	if (!process_owns(timer->epoch))
		return;
	tsan_release(record);
	if (periodic)
		end_periodic(timer, record, index, rescheduled);
	else
		run_ended(timer, record, index);
}

/* HANDED to RUNNING, or REVOKED to FREE. */
static int
run_claim(struct hwt *timer, struct record *record, uint64_t id)
{
	uint64_t word, next;

	do {
		word = wide_word(&record->wide);
		if (!word_matches(word, id))
			return -ENOENT;
		if (word_state(word) == STATE_REVOKED)
			next = word_freed(word);
		else if (word_state(word) == STATE_HANDED)
			next = (word & ~STATE_MASK) | STATE_RUNNING;
		else
			return -ENOENT;
	} while (!wide_cas_word(&record->wide, word, next));
	tsan_acquire(record);
	if (word_state(word) == STATE_HANDED)
		return 0;
	record_free(timer, cache_of(timer), (uint32_t)(id & INDEX_MASK));
	return -ECANCELED;
}

int
timer_run(struct hwt *timer, uint64_t id)
{
	struct record *record = record_find(&timer->store, id);
	struct cache *cache;
	int result = -ENOENT;

	if (record != NULL)
		result = run_claim(timer, record, id);
	if (result == -ENOENT)
		return result;
	if (result == 0) {
		timer_run_record(timer, record, (uint32_t)(id & INDEX_MASK));
		if (!process_owns(timer->epoch))
			return 0;
	}
	cache = cache_of(timer);
	tsan_release(&timer->dispatched_count);
	/* E:dispatched, in cache_count */
	cache_count(cache, &cache->returned, 1);
	return result == 0 ? 0 : -ENOENT;
}

int
hwt_run(struct hwt *timer, hwt_timeout timeout)
{
	int error = timer_check(timer, true);

	return error != 0 ? error : timer_run(timer, timeout.id);
}
