/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker: turns the wheel.
 *
 * ONE TURN, in this order and for these reasons:
 *
 *   1. Read the clock. This fixes the last tick of the turn, so that tasks
 *      which take longer than their periods cannot make the turn endless.
 *   2. Take over what was pushed and is due by then.
 *   3. Find the next tick, up to the last one, that has an entry. Empty ticks
 *      are skipped by arithmetic, after however long a stall.
 *   4. Begin it: from here on, deadlines that belong to it go to the next tick.
 *   5. Walk its entries, which removes them; each timeout that is due is run
 *      or handed over. One that was put off gets an entry at its new tick: so
 *      putting off costs one insertion each time the old entry comes up.
 *   6. Repeat from 3, until no tick is left.
 *   7. Flush the worker's cache, so that records which were freed in this turn
 *      serve other threads.
 *
 * The queue is read once per turn, which loses no order: a delay of 0 counts as
 * 1 ns, and so what is scheduled with a delay after step 1 belongs to no tick
 * of this turn. A deadline on the clock that has passed is due at the next
 * boundary; that is one after this turn's, too. (If the queue were read between
 * ticks, tasks that take longer than a tick and schedule passed deadlines would
 * make turns ever longer.)
 *
 * After a turn the worker does one bounded piece of what can wait: it takes
 * over a part of what else was pushed, returns memory to the system, or
 * removes stale entries. Then it takes another turn, or sleeps if nothing is
 * left to do.
 *
 * SLEEP. A long sleep lasts until the earliest deadline, or for ever. Before
 * it, the worker announces in wake_before which deadlines are too early for it.
 * Each thread that pushes such a deadline wakes the worker, once per sleep if
 * it has a cache of its own: nobody relies on a thread that may be descheduled
 * before its call. Whatever else is pushed waits for the end of the sleep; but
 * a caller that makes the queue long wakes the worker, too. A worker that was
 * woken twice within one tick sleeps to the next boundary without an
 * announcement, and needs no wake-up.
 *
 *        caller                               worker
 *        ------                               ------
 *   (A1) change the word                 (B1) wake_before := announcement
 *        full fence                           full fence
 *   (A2) raise the urgencies of the
 *        queue, or find them so
 *        full fence
 *   (A3) read wake_before                (B2) read the queue's urgencies
 *
 *   Forbidden: A3 reads 0 and B2 finds nothing. Then the worker would sleep
 *   past the deadline. This is E:asleep. The same holds for the count of free
 *   pages, which a caller raises at A2 and the worker reads at B2: no long
 *   sleep begins while there is memory to release. A caller that uses a
 *   record with HAS_ENTRY for a deadline that is not earlier neither pushes nor
 *   wakes: the worker sleeps at most until its first entry. A worker that
 *   removes an entry clears HAS_ENTRY before it sleeps, or finds the record
 *   PENDING and inserts another one.
 *
 * EDGES
 *   E:asleep    see above; fence in wake_worker_if_needed, wake_manual,
 *               wake_worker_for_trim and free_add; fence in worker_announce,
 *               mpsc_is_empty and record_may_trim.
 *   E:called    what the caller did: release in wake_worker and stop_begin, by
 *               incrementing wake_sequence, acquire in was_woken,
 *               worker_announce and sleep_until. With HWT_MANUAL: release in
 *               wake_manual, by clearing wake_before.
 *   E:sleep     what the worker read of wake_sequence: release in
 *               worker_announce, by storing announced_sequence, acquire in
 *               wake_worker. So whoever wakes the worker from a sleep
 *               increments a sequence that this sleep began with.
 *   E:word      a record's fields, and what the thread wrote that scheduled it:
 *               release by publishing the word (timer_publish), acquire by
 *               loading it (worker_take, entry_resolve); and what the task
 *               wrote: release in run_ended, acquire in record_word, by whoever
 *               finds another word. Every change of a word is a
 *               compare-and-swap with both orders: it hands on what all changes
 *               before it released. Annotated for ThreadSanitizer on the
 *               record: tsan_release before the operation that hands on,
 *               tsan_acquire after that which takes over.
 *   E:handing   all that execute did: release in dispatch_end, acquire in
 *               is_handing_to, by whoever destroys an executor. A thread that
 *               cancels a HANDED timeout sees that dispatching_to is set.
 *
 * INTERLEAVINGS, by the word that decides each:
 *
 *   take against cancel       PENDING gets HAS_ENTRY, or becomes FREE. What was
 *                             cancelled after the take leaves an entry that is
 *                             stale when its tick comes.
 *   take against reschedule   both swap word and deadline together: either the
 *                             take sees the new deadline; or the reschedule
 *                             sees HAS_ENTRY, clears it when the deadline is
 *                             earlier, and pushes; or the take's swap fails,
 *                             and the reschedule pushes.
 *   take against reuse        a record that was freed and published again
 *                             before the take read its word: the new timeout is
 *                             taken. After that: the take's swap fails, and the
 *                             thread that published pushes.
 *   expire against cancel     PENDING -> RUNNING or HANDED, or -> FREE.
 *   expire against reuse      a FREE record loses HAS_ENTRY, or a caller makes
 *                             it PENDING again, with HAS_ENTRY for a deadline
 *                             that is not earlier: both change the word, and
 *                             one of them fails.
 *   expire against reschedule the swap of word and deadline fails when the
 *                             deadline has changed; the worker looks again.
 *   hand over against run     HANDED is set before execute is called, and the
 *                             count of what executors hold before that.
 *   cancel in an executor     HANDED -> REVOKED; hwt_run frees the record.
 *   stop against all          see core/lifecycle.c.
 *   fork in a task            the child's copy of the worker finds that this
 *                             process does not own the timer, and ends.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <syslog.h>

#include "core/debug.h"
#include "sys/log.h"
#include "sys/probe.h"
#include "core/timer.h"

/* Timeouts expired between two readings of the clock. */
#define CLOCK_READ_EVERY 16u
/* Bounds of one piece: pages taken over, stale entries removed. Passing over so
 * many chunks of other rounds counts as one entry. */
#define TAKE_PAGES 4u
#define STALE_ENTRIES 64u
#define STALE_CHUNKS 64u
#define SECOND_NS UINT64_C(1000000000)

/* Makes sure that the record has an entry in time for tick. */
static void
worker_place(struct hwt *timer, uint32_t index, uint64_t tick)
{
	const struct record *record = record_at(&timer->store, index);

	if (tick == TICK_NEVER)
		return;
	if (record->entry_at != 0) {
		if (record->entry_tick <= tick)
			return;
		wheel_remove(&timer->wheel, index);
	}
	wheel_insert(&timer->wheel, index, tick);
	PROBE(place, timer, index, tick);
}

/* Takes over a timeout, if it is PENDING without HAS_ENTRY. If the swap fails,
 * another thread has changed the record, and pushes it if it is PENDING; for a
 * later deadline the entry is in time, too, however long that takes. */
static void
take_record(struct hwt *timer, uint32_t index)
{
	struct record *record = record_at(&timer->store, index);
	/* E:queue fence, E:word acquire */
	struct wide seen = wide_load_seq(&record->wide);
	struct wide next = seen;

	if (word_state(seen.word) != STATE_PENDING ||
	    (seen.word & FLAG_HAS_ENTRY))
		return;
	next.word |= FLAG_HAS_ENTRY;
	(void)wide_cas(&record->wide, seen, next);
	worker_place(timer, index, timer_tick_of(timer, seen.deadline_ns));
}

/* Takes over records of one page, given as bits. */
static void
worker_take(struct hwt *timer, uint32_t first, uint64_t bits)
{
	uint64_t left;

	for (left = bits; left != 0; left &= left - 1)
		take_line(record_at(
		    &timer->store, first + (uint32_t)__builtin_ctzll(left)));
	for (; bits != 0; bits &= bits - 1)
		take_record(timer, first + (uint32_t)__builtin_ctzll(bits));
}

void
worker_take_due(struct hwt *timer)
{
	uint64_t now_ns = timer->worker.now_ns;
	uint64_t bits;
	uint32_t first;

	while ((bits = mpsc_pop_due(&timer->queue, now_ns, &first)) != 0)
		worker_take(timer, first, bits);
}

/* Continues the pass through all that was pushed, by so many pages at most.
 * True: the pass has ended. */
static bool
worker_take_any(struct hwt *timer, uint32_t pages)
{
	uint64_t bits;
	uint32_t first;

	for (; pages > 0; pages--) {
		bits = mpsc_pop_any(&timer->queue, &first);
		if (bits == 0)
			return true;
		worker_take(timer, first, bits);
	}
	return false;
}

static void
note_lateness(struct hwt *timer, uint64_t deadline_ns)
{
	struct worker *worker = &timer->worker;
	uint64_t late_ns;

	if (worker->expired_count++ % CLOCK_READ_EVERY == 0)
		worker->now_ns = timer_now(timer);
	late_ns = worker->now_ns - deadline_ns;
	if (late_ns > a64_load_relaxed(&worker->lateness_max))
		a64_store_relaxed(&worker->lateness_max, late_ns);
	a64_count(&worker->lateness[63 - __builtin_clzll(late_ns | 1)], 1);
	a64_count(&worker->lateness_sum, late_ns);
}

static void
timer_warn(const struct hwt *timer, const char *message)
{
	if (timer->log.write != NULL)
		timer->log.write(timer->log.ctx, LOG_WARNING, message);
	else
		log_stderr("%s", message);
}

static void
log_seldom(const struct hwt *timer, uint64_t *logged_ns, const char *message)
{
	uint64_t now_ns = timer_now(timer);

	/* 0: never. */
	if (*logged_ns != 0 && now_ns - *logged_ns < SECOND_NS)
		return;
	*logged_ns = now_ns;
	timer_warn(timer, message);
}

/* Counts a task that has held the worker since began_ns. */
static void
note_slowness(struct hwt *timer, uint64_t id, hwt_task *task, uint64_t began_ns)
{
	struct worker *worker = &timer->worker;
	uint64_t held_ns;

	worker->now_ns = timer_now(timer);
	held_ns = worker->now_ns - began_ns;
	if (held_ns <= timer->options.slow_task_ns)
		return;
	PROBE(slow_task, timer, id, task, held_ns);
	a64_count(&worker->slow_tasks, 1);
	log_seldom(timer, &worker->slow_logged_ns,
	    "a task held the worker longer than slow_task_ns");
}

/* From before the word becomes HANDED until execute has returned, the executor
 * is in use, also if a cancel ends the timeout meanwhile. */
static void
dispatch_begin(struct hwt *timer, const struct hwt_executor *executor)
{
	a64_count(&timer->dispatched_count, 1);
	/* E:handing: the word's move to HANDED hands this on. */
	aptr_store_release(&timer->dispatching_to, executor);
}

static void
dispatch_end(struct hwt *timer)
{
	/* E:handing release */
	aptr_store_release(&timer->dispatching_to, NULL);
}

/* The word did not become HANDED. */
static void
dispatch_abort(struct hwt *timer)
{
	a64_count(&timer->dispatched_count, UINT64_MAX);
	dispatch_end(timer);
}

/* After execute has accepted, the worker does not touch the record. */
static void
worker_hand_over(
    struct hwt *timer, const struct hwt_executor *executor, uint64_t id)
{
	struct worker *worker = &timer->worker;
	int refused =
	    executor->execute(executor->ctx, timer, (hwt_timeout){id});

	if (!process_owns(timer->epoch))
		return;
	dispatch_end(timer);
	if (refused == 0)
		return;
	a64_count(&worker->executor_refused, 1);
	log_seldom(timer, &worker->refused_logged_ns,
	    "an executor refused a timeout; its task runs in the worker");
	if (!process_owns(timer->epoch))
		return;
	if (timer_run(timer, id) == 0)
		worker->tasks_started++;
}

/* Decides about a record whose entry at tick was removed by the walk. True: it
 * is due there, and *seen is its word and deadline. Otherwise a timeout that is
 * due later gets another entry and keeps HAS_ENTRY, and a record that is not
 * PENDING loses it. wide_load may return a deadline that was written later than
 * the word, even that of the record's next timeout. That is harmless: while
 * HAS_ENTRY is set, deadlines only become later. */
static bool
entry_resolve(
    struct hwt *timer, uint32_t index, uint64_t tick, struct wide *seen)
{
	struct record *record = record_at(&timer->store, index);
	uint64_t due;

	for (;;) {
		/* E:word acquire */
		*seen = wide_load(&record->wide);
		if (word_state(seen->word) == STATE_PENDING) {
			due = timer_tick_of(timer, seen->deadline_ns);
			if (due <= tick)
				return true;
			worker_place(timer, index, due);
			return false;
		}
		if (!(seen->word & FLAG_HAS_ENTRY) ||
		    wide_cas_word(&record->wide, seen->word,
			seen->word & ~FLAG_HAS_ENTRY))
			return false;
	}
}

/* One entry of the tick that has been begun. */
static void
worker_expire(struct hwt *timer, uint32_t index, uint64_t tick)
{
	struct record *record = record_at(&timer->store, index);
	const struct hwt_executor *executor = NULL;
	struct wide seen, next;
	uint64_t id, began_ns;
	hwt_task *task;

	for (;;) {
		if (!entry_resolve(timer, index, tick, &seen))
			return;
		executor = aptr_load_acquire(&record->executor);
		if (executor == NULL && timer->executor.execute != NULL)
			executor = &timer->executor;
		next = seen;
		next.word &= ~(STATE_MASK | FLAG_HAS_ENTRY | FLAG_NEW);
		next.word |= executor != NULL ? STATE_HANDED : STATE_RUNNING;
		if (executor != NULL)
			dispatch_begin(timer, executor);
		if (wide_cas(&record->wide, seen, next))
			break;
		if (executor != NULL)
			dispatch_abort(timer);
	}
	tsan_acquire(record);
	id = word_id(seen.word, index);
	/* The record may be reused when it has run. */
	task = record_task(record);
	note_lateness(timer, seen.deadline_ns);
	PROBE(expire, timer, id, seen.deadline_ns, timer->worker.now_ns);
	began_ns = timer->options.slow_task_ns != 0 ? timer_now(timer) : 0;
	if (executor != NULL) {
		worker_hand_over(timer, executor, id);
	} else {
		timer->worker.tasks_started++;
		timer_run_record(timer, record, index);
	}
	if (timer->options.slow_task_ns != 0 && process_owns(timer->epoch))
		note_slowness(timer, id, task, began_ns);
}

static bool
worker_must_end(const struct hwt *timer)
{
	return timer_is_stopping(timer) || !process_owns(timer->epoch);
}

static void
worker_tick(struct hwt *timer, uint64_t tick)
{
	struct worker *worker = &timer->worker;
	struct wheel_walk walk;
	uint32_t index;

	timer->wheel.next_tick = tick + 1;
	worker->now_ns = timer_now(timer);
	a64_count(&worker->ticks, 1);
	if (worker->now_ns - timer_boundary(timer, tick) >
	    timer->options.tick_ns)
		a64_count(&worker->late_ticks, 1);
	wheel_walk_start(&timer->wheel, &walk, tick);
	while ((index = wheel_walk_take(&timer->wheel, &walk)) != 0) {
		worker_expire(timer, index, tick);
		/* Nobody turns the wheel again. */
		if (worker_must_end(timer))
			return;
	}
}

void
worker_turn(struct hwt *timer)
{
	struct wheel *wheel = &timer->wheel;
	uint64_t last, tick;

	timer->worker.now_ns = timer_now(timer);
	last = timer_tick_at(timer, timer->worker.now_ns);
	worker_take_due(timer);
	while (!worker_must_end(timer) &&
	    (tick = wheel_next(wheel, last)) != TICK_NEVER)
		worker_tick(timer, tick);
	if (!process_owns(timer->epoch))
		return;
	wheel->next_tick = last + 1;
	/* Records that were freed here are to serve other threads. */
	cache_flush(timer, cache_of(timer));
}

bool
worker_tidy(struct hwt *timer, bool idle)
{
	return !worker_take_any(timer, TAKE_PAGES) || record_trim(timer, idle);
}

bool
worker_drop_stale(struct hwt *timer, uint64_t *tick)
{
	const struct record *record;
	struct wheel_walk walk;
	struct wide seen;
	uint32_t entries = 0;
	uint32_t index;

	for (; entries < STALE_ENTRIES; entries++) {
		*tick = wheel_next(&timer->wheel, TICK_NEVER);
		if (*tick == TICK_NEVER)
			return false;
		wheel_walk_start(&timer->wheel, &walk, *tick);
		while ((index = wheel_walk_take(&timer->wheel, &walk)) != 0) {
			if (entry_resolve(timer, index, *tick, &seen))
				wheel_insert(&timer->wheel, index, *tick);
			record = record_at(&timer->store, index);
			if (record->entry_at != 0 &&
			    record->entry_tick <= *tick) {
				wheel_walk_stop(&timer->wheel, &walk);
				return false;
			}
			if (++entries >= STALE_ENTRIES) {
				wheel_walk_stop(&timer->wheel, &walk);
				return true;
			}
		}
		entries += walk.chunks / STALE_CHUNKS;
	}
	return true;
}

bool
worker_announce(struct hwt *timer, uint64_t tick, uint64_t *until_ns)
{
	uint64_t before_ns = DEADLINE_NEVER;
	uint64_t sequence;

	*until_ns = HWT_NEVER;
	if (tick != TICK_NEVER) {
		*until_ns = timer_boundary(timer, tick);
		/* A past deadline belongs to next_tick as well: then only
		 * due_ns 0 needs to wake the worker. */
		before_ns = tick == timer->wheel.next_tick
		    ? 1
		    : *until_ns - timer->options.tick_ns + 1;
	}
	/* E:called acquire */
	sequence = a64_load_acquire(&timer->wake_sequence);
	/* It identifies the sleep: two sleeps have the same one only if no
	 * caller woke the worker between them. E:sleep release */
	a64_store_release(&timer->announced_sequence, sequence);
	/* E:asleep fence */
	a64_store_seq(&timer->wake_before, before_ns);
	if (mpsc_is_empty(&timer->queue) && !record_may_trim(timer))
		return true;
	(void)a64_swap_seq(&timer->wake_before, 0);
	return false;
}

/* Whether a caller has incremented wake_sequence since the announcement. */
static bool
was_woken(const struct hwt *timer)
{
	/* E:called acquire */
	uint64_t sequence = a64_load_acquire(&timer->wake_sequence);

	return sequence != a64_load_relaxed(&timer->announced_sequence);
}

/* hwt_stop closes the gate and then increments the sequence: whoever reads the
 * new sequence sees both. */
static void
sleep_until(struct hwt *timer, uint64_t until_ns, bool announced)
{
	uint64_t sequence;

	for (;;) {
		/* E:called acquire */
		sequence = a64_load_acquire(&timer->wake_sequence);
		if (timer_is_stopping(timer) ||
		    (announced && was_woken(timer)) ||
		    (until_ns != HWT_NEVER && timer_now(timer) >= until_ns))
			return;
		PROBE(sleep, timer, until_ns);
		futex_wait(&timer->wake_sequence, (uint32_t)sequence, until_ns);
		PROBE(wake, timer);
		a64_count(&timer->worker.wakeups, 1);
	}
}

/* Called after the turn that followed the sleep, so that next_tick is
 * current. */
static void
note_woken(struct hwt *timer)
{
	struct worker *worker = &timer->worker;

	if (!worker->woken)
		return;
	worker->woken = false;
	worker->crowded = worker->woken_tick == timer->wheel.next_tick;
	worker->woken_tick = timer->wheel.next_tick;
}

static void
worker_sleep(struct hwt *timer)
{
	struct worker *worker = &timer->worker;
	uint64_t until_ns, tick;

	note_woken(timer);
	if (worker_tidy(timer, !worker->crowded))
		return;
	if (worker->crowded) {
		worker->crowded = false;
		sleep_until(timer,
		    timer_boundary(timer, timer->wheel.next_tick), false);
		return;
	}
	/* From here to the announcement, nothing is inserted before tick. */
	if (worker_drop_stale(timer, &tick))
		return;
	if (worker_announce(timer, tick, &until_ns)) {
		sleep_until(timer, until_ns, true);
		a64_store_relaxed(&timer->wake_before, 0);
		if (!was_woken(timer))
			return;
	}
	worker->woken = true;
}

void
timer_turn_end(struct hwt *timer)
{
	struct lifecycle *life = &timer->life;
	bool manual = (timer->options.flags & HWT_MANUAL) != 0;

	(void)pthread_mutex_lock(&life->lock);
	a64_store_relaxed(&life->driver, manual ? DRIVER_NONE : DRIVER_ENDED);
	if (timer_is_stopping(timer))
		futex_wake(&life->driver, FUTEX_ALL);
	(void)pthread_mutex_unlock(&life->lock);
}

void *
worker_main(void *argument)
{
	struct hwt *timer = argument;

	thread_begin(timer->life.thread_name, timer->options.thread_attr);
	thread_state.worker_frame.serial = timer->serial;
	thread_state.frames = &thread_state.worker_frame;
	if (process_add_worker())
		timer_warn(timer,
		    "more than 64 timers have a running thread each; one timer "
		    "serves a whole process");
	while (!worker_must_end(timer)) {
		worker_turn(timer);
		if (!worker_must_end(timer))
			worker_sleep(timer);
	}
	if (!process_owns(timer->epoch))
		return NULL;
	process_remove_worker();
	timer_turn_end(timer);
	return NULL;
}
