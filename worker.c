/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker: turns the wheel.
 *
 * ONE TURN, in this order and for these reasons:
 *
 *   1. Read the clock: it tells which ticks are this turn's, so that tasks
 *      which take longer than their periods do not make it endless.
 *   2. Drain: take every entry that was queued before. So nothing that is due
 *      by that time is still in the queue (but relaxed ones while there is no
 *      clock for their delays to begin at). A new timeout is placed, one that
 *      was pulled in is placed again. Only up to the end seen at the start, so
 *      that fast producers cannot hold the turn.
 *   3. Find the next tick that is due and not after that time. Empty ones are
 *      skipped by arithmetic, after however long a stall.
 *   4. Begin it: from here on, deadlines that belong to it go to the next.
 *   5. Walk its bucket; each timeout of its round is run or handed over. One
 *      whose deadline was pushed out meanwhile is placed again: that, once for
 *      each time that its old place comes up, is what pushing out costs. What
 *      was cancelled is no more than looked at.
 *   6. Again from 2, until no tick is left. Then memory and dead entries are
 *      seen to, a piece at a time, and when there is nothing of that to do, it
 *      sleeps, if only until the next tick is due.
 *
 * SLEEP. A long sleep lasts until the earliest deadline, or for ever. Before
 * it, the worker announces in wake_before which deadlines would come too early
 * for it, and a caller that brings such a one calls it, as does one that adds a
 * segment to the queue; the first to clear wake_before makes the call, and only
 * that one. What else is queued meanwhile waits for the end of the sleep, since
 * nothing of it is due before. A worker that was called twice within one tick
 * sleeps briefly, to the next tick boundary, where no call is needed, and goes
 * on like that while work comes in: so calls are rare when work is plenty. Now
 * and then it tries a long one again, since little work may need no call.
 *
 *        caller                               worker
 *        ------                               ------
 *   (A1) queue an entry: add to tail,    (B1) wake_before := announcement
 *        or compare-and-swap the word         full fence
 *        (full fence)
 *   (A2) read the word, if it pushed
 *   (A3) read wake_before                (B2) read the tails
 *
 *   Forbidden: A3 reads 0 and B2 misses the entry. Then the worker would sleep
 *   past the deadline. This is E:asleep. A caller that finds ENQUEUED set
 *   pushes nothing. When the entry is in the queue already, B2 sees it, or the
 *   worker has slept since before it was pushed, and A3 reads the announcement.
 *   When another caller is still about to push it, that one's A2 comes after
 *   its push and reads what the record asks for by then, and it calls.
 *   A caller that puts off what is QUEUED does not call: whoever asked for the
 *   earlier deadline has called for that, or still will, or finds this one at
 *   A2 and calls for it.
 *   A caller that finds BUCKETED set, and asks for no earlier deadline than the
 *   last one of that record, neither pushes nor calls (publish_placed): there
 *   is an entry in a bucket in time for it, and a worker sleeps no longer than
 *   until its first entry, or else has taken this one out, which clears
 *   BUCKETED.
 *
 * MEMORY. Before it sleeps, the worker looks whether much of it is spare. If it
 * is for a quarter of a second, it is given back: trim.c. So a sleep after a
 * peak may end for that. While memory is given back, the worker does not sleep,
 * but takes a turn after each piece.
 *
 * EDGES
 *   E:asleep    see above; fence in call_worker and wake_worker, fence in
 *               worker_announce and worker_has_work.
 *   E:called    what the caller did, release by clearing wake_before in
 *               wake_worker, acquired by the worker that finds it cleared in
 *               worker_announced.
 *   E:stopping  what hwt_stop did before, release in stop_begin, acquired by
 *               timer_is_stopping.
 *   E:word      a record's fields and what the scheduling thread wrote,
 *               release by publishing its word (timer_publish), acquired by
 *               pair_load in worker_take and worker_expire. Every move of a
 *               word is a compare-and-swap with both orders, so that each
 *               state hands on what all before it did.
 *   E:handing   all that execute did, release in hand_over_end, acquired in
 *               process_await_hand_overs by whoever destroys an executor.
 *               Who cancelled a timeout that is HANDED has seen handing set.
 *   E:overflow  an index and its link, release in timer_overflow, acquired in
 *               worker_take_overflow.
 *
 * INTERLEAVINGS, by the word that decides each:
 *
 *   take against cancel       QUEUED or PLACED -> FREE: before the take, the
 *                             entry is dropped; after it, the one in the
 *                             bucket is dead when its tick comes.
 *   take against reschedule   both swap word and deadline together: either the
 *                             take sees the new deadline, or the reschedule
 *                             sees PLACED and queues when it is earlier.
 *   take against reuse        the record may be freed and published again
 *                             before the take: it takes the new one. The
 *                             reader of the clock for HWT_RELAXED comes after
 *                             the load of the word that is taken.
 *   expire against cancel     PLACED -> RUNNING or HANDED, or -> FREE.
 *   expire against reuse      a FREE record's entry is dropped by clearing
 *                             BUCKETED, or a caller makes the record PLACED
 *                             again, for a deadline that is not before that
 *                             entry (publish_placed): both change the word,
 *                             and one of them fails.
 *   expire against reschedule the swap of word and deadline fails when the
 *                             deadline has changed; the worker looks again.
 *   hand over against run     HANDED is set before execute is called, and the
 *                             count of what executors hold before that.
 *   cancel in an executor     HANDED -> REVOKED; hwt_run frees the record.
 *   stop against all          see hwt.c.
 *   fork in a task            the child's copy of the worker finds that it
 *                             does not own the timer, and ends.
 */
#define _GNU_SOURCE
#include <syslog.h>

#include "core/timer.h"

#ifndef TAKE_BATCH
#define TAKE_BATCH 64u
#endif
#define READING_EVERY 16u
/* Before one sleep: how many entries are put right, and how many buckets are
 * looked at. Where they lie among ten thousands of other rounds, it is those
 * that take the time. */
#define SETTLE_MAX 512u
#define SEARCH_MAX 65536u
/* So many entries that are passed over count as one that is put right. */
#define PASSED_PER_LOOK 1024u
/* So many short sleeps in a row, or fewer, and it tries a long one. */
#define BRIEFS_MAX 16u
#define SECOND_NS UINT64_C(1000000000)

/* When the clock cannot be read, no time has passed. */
static uint64_t
worker_now(const struct hwt *timer)
{
	uint64_t now_ns = timer_now(timer);

	return timer_has_read(timer, now_ns) ? now_ns : timer->worker.now_ns;
}

/* Gives a record that has just become BUCKETED, or was so by its word before,
 * an entry for that deadline, unless it has one that will do. */
static void
worker_place(
    struct hwt *timer, uint32_t index, uint64_t before, struct pair_value due)
{
	uint64_t tick = timer_tick_of(timer, due);

	if (tick == TICK_NEVER ||
	    ((before & FLAG_BUCKETED) &&
		wheel_covers(&timer->wheel, index, tick)))
		return;
	wheel_place(&timer->wheel, index, tick);
}

/* What is due some day has an entry. */
static uint64_t
bucketed_flag(const struct hwt *timer, struct pair_value due)
{
	return timer_tick_of(timer, due) != TICK_NEVER ? FLAG_BUCKETED : 0;
}

/* Takes a new timeout over. seen was loaded before now_ns was read. */
static bool
take_queued(
    struct hwt *timer, uint32_t index, struct pair_value seen, uint64_t now_ns)
{
	struct record *record = record_at(&timer->store, index);
	struct pair_value next = seen;

	next.word &= ~(STATE_MASK | FLAG_ENQUEUED | FLAG_RELATIVE);
	next.word |= STATE_PLACED;
	if (seen.word & FLAG_RELATIVE) {
		next.deadline_ns = DEADLINE_NEVER;
		if (seen.deadline_ns < DEADLINE_NEVER &&
		    now_ns < DEADLINE_NEVER - seen.deadline_ns)
			next.deadline_ns = now_ns + seen.deadline_ns;
	}
	next.word |= bucketed_flag(timer, next);
	if (!pair_cas(&record->pair, seen, next))
		return false;
	worker_place(timer, index, seen.word, next);
	return true;
}

/* Ended or under way before its entry was taken. A deadline that was pulled in
 * and not taken may be before the entry in a bucket, which then does not count
 * any more. */
static bool
take_ended(struct hwt *timer, uint32_t index, struct pair_value seen)
{
	uint64_t word = seen.word & ~FLAG_ENQUEUED;

	if (!wheel_covers(&timer->wheel, index, timer_tick_of(timer, seen)))
		word &= ~FLAG_BUCKETED;
	return pair_cas_word(
	    &record_at(&timer->store, index)->pair, seen.word, word);
}

/* Acts on one entry; false: the record has changed since seen. */
static bool
take_seen(
    struct hwt *timer, uint32_t index, struct pair_value seen, uint64_t now_ns)
{
	struct record *record = record_at(&timer->store, index);
	struct pair_value next = seen;

	switch (word_state(seen.word)) {
	case STATE_QUEUED:
		return take_queued(timer, index, seen, now_ns);
	case STATE_PLACED: /* pulled in */
		next.word &= ~FLAG_ENQUEUED;
		next.word |= bucketed_flag(timer, seen);
		if (!pair_cas(&record->pair, seen, next))
			return false;
		worker_place(timer, index, seen.word, seen);
		return true;
	default:
		return take_ended(timer, index, seen);
	}
}

/* The clock for relative deadlines. False: it cannot be read. */
static bool
take_reads_clock(const struct hwt *timer, uint64_t *now_ns)
{
	if (!(timer->flags & HWT_RELAXED))
		return true;
	*now_ns = timer_now(timer);
	return timer_has_read(timer, *now_ns);
}

/* Without a clock, a delay cannot begin: it is looked at again. When the timer
 * is being stopped, the records are found without their entries. */
static void
take_later(struct hwt *timer, const uint32_t *index, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		(void)timer_overflow(timer, index[i]);
}

/* Words first, then one reading of the clock, then the moves. */
static void
worker_take(struct hwt *timer, const uint32_t *index, size_t count)
{
	struct pair_value seen[TAKE_BATCH];
	uint64_t now_ns = 0;
	size_t i;

	for (i = 0; i < count; i++)
		__builtin_prefetch(record_at(&timer->store, index[i]), 1);
	for (i = 0; i < count; i++)
		seen[i] = pair_load(&record_at(&timer->store, index[i])->pair);
	if (!take_reads_clock(timer, &now_ns)) {
		take_later(timer, index, count);
		return;
	}
	for (i = 0; i < count; i++) {
		while (!take_seen(timer, index[i], seen[i], now_ns)) {
			/* E:word acquire */
			seen[i] = pair_load(
			    &record_at(&timer->store, index[i])->pair);
			if (!take_reads_clock(timer, &now_ns)) {
				take_later(timer, index + i, count - i);
				return;
			}
		}
	}
}

static uint64_t
worker_take_queue(struct hwt *timer, struct mpsc_queue *queue)
{
	uint32_t index[TAKE_BATCH];
	uint64_t end = mpsc_end(queue);
	uint64_t taken = 0;
	size_t count;

	do {
		count = mpsc_pop(queue, &timer->pool, end, index, TAKE_BATCH);
		worker_take(timer, index, count);
		taken += count;
	} while (count == TAKE_BATCH);
	return taken;
}

static uint64_t
worker_take_overflow(struct hwt *timer)
{
	uint64_t head = a64_load_acquire(&timer->overflow);
	uint64_t taken = 0;
	uint32_t index, next;

	if ((head & ~OVERFLOW_CLOSED) == 0)
		return 0;
	/* E:overflow acquire */
	while (!a64_cas_acq_rel(&timer->overflow, head, head & OVERFLOW_CLOSED))
		head = a64_load_relaxed(&timer->overflow);
	for (index = (uint32_t)head; index != 0; index = next, taken++) {
		next = a32_load_relaxed(
		    &record_at(&timer->store, index)->overflow_link);
		worker_take(timer, &index, 1);
	}
	return taken;
}

uint64_t
worker_drain(struct hwt *timer)
{
	uint64_t taken = worker_take_overflow(timer);
	uint32_t i;

	for (i = 0; i < timer->stripe_count; i++)
		taken += worker_take_queue(timer, &timer->queues[i]);
	return taken;
}

static void
note_lateness(struct hwt *timer, uint64_t deadline_ns)
{
	struct worker *worker = &timer->worker;
	uint64_t late_ns;

	if (worker->readings++ % READING_EVERY == 0)
		worker->now_ns = worker_now(timer);
	late_ns = worker->now_ns - deadline_ns;
	if (late_ns > a64_load_relaxed(&worker->lateness_max))
		a64_store_relaxed(&worker->lateness_max, late_ns);
	a64_count(&worker->lateness[63 - __builtin_clzll(late_ns | 1)], 1);
}

static void
log_seldom(const struct hwt *timer, uint64_t *logged_ns, const char *message)
{
	uint64_t now_ns = worker_now(timer) + 1; /* 0: never */

	if (*logged_ns != 0 && now_ns - *logged_ns < SECOND_NS)
		return;
	*logged_ns = now_ns;
	timer_log(timer, LOG_WARNING, message);
}

/* Counts what has held the worker since began_ns. */
static void
note_slowness(struct hwt *timer, uint64_t began_ns)
{
	struct worker *worker = &timer->worker;

	worker->now_ns = worker_now(timer);
	if (worker->now_ns - began_ns <= timer->slow_task_ns)
		return;
	a64_count(&worker->slow_tasks, 1);
	log_seldom(timer, &worker->slow_logged_ns,
	    "a task held the worker longer than slow_task_ns");
}

/* From before the word says HANDED until execute has returned, the executor is
 * in use, also if a cancel ends the timeout meanwhile. */
static void
hand_over_begin(struct hwt *timer, const struct hwt_executor *executor)
{
	(void)a64_add_relaxed(&timer->handed, 1);
	/* E:handing: the word's move to HANDED hands this on. */
	aptr_store_release(&timer->handing, executor);
}

static void
hand_over_end(struct hwt *timer)
{
	/* E:handing release */
	aptr_store_release(&timer->handing, NULL);
}

/* After execute has accepted, the record is not the worker's any more. */
static void
worker_hand_over(
    struct hwt *timer, const struct hwt_executor *executor, uint64_t id)
{
	struct worker *worker = &timer->worker;
	int refused =
	    executor->execute(executor->ctx, timer, (hwt_timeout){id});

	if (!process_owns(timer->epoch))
		return;
	hand_over_end(timer);
	if (refused == 0)
		return;
	a64_count(&worker->executor_refused, 1);
	log_seldom(timer, &worker->refused_logged_ns,
	    "an executor refused a timeout; its task runs in the worker");
	if (timer_run(timer, id) == 0)
		worker->tasks_started++;
}

/* An entry at tick was taken out of its bucket. If that was its record's own,
 * the record gets another one, or none; but true: it is PLACED, *seen is what
 * it looks like, and it would come to that tick again. */
static bool
worker_judge(
    struct hwt *timer, uint32_t index, uint64_t tick, struct pair_value *seen)
{
	struct record *record = record_at(&timer->store, index);
	uint64_t due;

	for (;;) {
		/* E:word acquire */
		*seen = pair_load_whole(&record->pair);
		if (!(seen->word & FLAG_BUCKETED) ||
		    record->placed != (uint32_t)tick)
			return false;
		due = timer_tick_of(timer, *seen);
		if (word_state(seen->word) == STATE_PLACED &&
		    due != TICK_NEVER) {
			if (due <= tick ||
			    wheel_reach(&timer->wheel, due) <= tick)
				return true;
			wheel_place(&timer->wheel, index, due);
			return false;
		}
		if (pair_cas_word(
			&record->pair, seen->word, seen->word & ~FLAG_BUCKETED))
			return false;
	}
}

/* One entry of the tick that has been begun. */
static void
worker_expire(struct hwt *timer, uint32_t index, uint64_t tick)
{
	struct record *record = record_at(&timer->store, index);
	const struct hwt_executor *executor = NULL;
	struct pair_value seen, next;
	uint64_t began_ns;

	for (;;) {
		if (!worker_judge(timer, index, tick, &seen))
			return;
		executor = aptr_load_acquire(&record->executor);
		if (executor == NULL && timer->executor.execute != NULL)
			executor = &timer->executor;
		next = seen;
		next.word &= ~(STATE_MASK | FLAG_BUCKETED);
		next.word |= executor != NULL ? STATE_HANDED : STATE_RUNNING;
		if (executor != NULL)
			hand_over_begin(timer, executor);
		if (pair_cas(&record->pair, seen, next))
			break;
		if (executor != NULL) {
			(void)a64_add_relaxed(&timer->handed, UINT64_MAX);
			hand_over_end(timer);
		}
	}
	note_lateness(timer, seen.deadline_ns);
	began_ns = timer->slow_task_ns != 0 ? worker_now(timer) : 0;
	if (executor != NULL) {
		worker_hand_over(timer, executor, word_id(seen.word, index));
	} else {
		timer->worker.tasks_started++;
		timer_run_record(timer, record, index);
	}
	if (timer->slow_task_ns != 0 && process_owns(timer->epoch))
		note_slowness(timer, began_ns);
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
	worker->readings = 1;
	worker->now_ns = worker_now(timer);
	a64_count(&worker->ticks, 1);
	if (worker->now_ns - timer_boundary(timer, tick) > timer->tick_ns)
		a64_count(&worker->late_ticks, 1);
	wheel_walk_start(&timer->wheel, &walk, tick);
	while ((index = wheel_walk_next(&timer->wheel, &walk)) != 0) {
		worker_expire(timer, index, tick);
		if (worker_must_end(timer)) {
			wheel_walk_stop(&timer->wheel, &walk);
			return;
		}
	}
}

uint64_t
worker_turn(struct hwt *timer)
{
	struct wheel *wheel = &timer->wheel;
	uint64_t taken = 0;
	uint64_t last, tick;

	timer->worker.now_ns = worker_now(timer);
	last = timer_tick_at(timer, timer->worker.now_ns);
	while (!worker_must_end(timer)) {
		taken += worker_drain(timer);
		tick = wheel_next(wheel, last);
		if (tick == TICK_NEVER) {
			if (last >= wheel->next_tick)
				wheel->next_tick = last + 1;
			break;
		}
		worker_tick(timer, tick);
	}
	/* What has ended here is to serve others. */
	if (process_owns(timer->epoch))
		cache_flush(timer, cache_of(timer));
	return taken;
}

static bool
worker_has_work(const struct hwt *timer)
{
	uint32_t i;

	/* E:asleep fence */
	if ((a64_load_seq(&timer->overflow) & ~OVERFLOW_CLOSED) != 0)
		return true;
	for (i = 0; i < timer->stripe_count; i++) {
		if (mpsc_behind(&timer->queues[i], mpsc_end(&timer->queues[i])))
			return true;
	}
	return false;
}

/* Whether the record that was due at tick last time still is. */
static bool
still_settled(const struct hwt *timer, uint32_t index, uint64_t tick)
{
	const struct record *record = record_at(&timer->store, index);
	struct pair_value seen = pair_load_whole(&record->pair);

	return (seen.word & FLAG_BUCKETED) &&
	    word_state(seen.word) == STATE_PLACED &&
	    record->placed == (uint32_t)tick &&
	    timer_tick_of(timer, seen) <= tick;
}

/* Whether anything is really due at the wheel's earliest tick. Entries there
 * that are dead, or come too early for what was pushed out, are put right, so
 * that they wake nobody, while *budget lasts: this holds up the worker. */
static bool
worker_settle(struct hwt *timer, uint64_t tick, uint32_t *budget)
{
	uint32_t *settled = &timer->worker.settled;
	struct wheel_walk walk;
	struct pair_value seen;
	uint32_t looks;

	if (*settled != 0 && still_settled(timer, *settled, tick))
		return true;
	wheel_look_start(&timer->wheel, &walk, tick);
	while ((*settled = wheel_walk_next(&timer->wheel, &walk)) != 0) {
		--*budget;
		if (worker_judge(timer, *settled, tick, &seen)) {
			wheel_walk_keep(&timer->wheel, &walk, *settled);
			return true;
		}
		if (*budget == 0) {
			wheel_walk_stop(&timer->wheel, &walk);
			return true;
		}
	}
	/* Nothing of it is there any more: one search for nothing. */
	looks = 1 + walk.passed / PASSED_PER_LOOK;
	*budget -= looks < *budget ? looks : *budget;
	return *budget == 0;
}

bool
worker_announce(struct hwt *timer, uint64_t *until_ns)
{
	uint64_t before_ns = DEADLINE_NEVER;
	uint32_t budget = SETTLE_MAX;
	uint32_t buckets = SEARCH_MAX;
	uint64_t settled = 0;
	uint64_t tick;

	do {
		tick = wheel_earliest(&timer->wheel, &buckets);
		/* Where the search was cut short: nothing is before the last
		 * tick that was settled, either. */
		if (tick < settled)
			tick = settled;
		settled = tick;
	} while (tick != TICK_NEVER && buckets > 0 &&
	    !worker_settle(timer, tick, &budget));
	*until_ns = HWT_NEVER;
	if (tick != TICK_NEVER) {
		*until_ns = timer_boundary(timer, tick);
		before_ns = *until_ns - timer->tick_ns + 1;
	}
	/* E:asleep fence */
	a64_store_seq(&timer->wake_before, before_ns);
	if (!worker_has_work(timer))
		return true;
	(void)a64_swap_acq_rel(&timer->wake_before, 0);
	return false;
}

/* False: a caller has cleared it. */
static bool
worker_announced(const struct hwt *timer)
{
	/* E:called acquire */
	return a64_load_acquire(&timer->wake_before) != 0;
}

/* Without a clock, the system's own sleep is over at once, again and again. */
static bool
time_has_come(const struct hwt *timer, uint64_t until_ns)
{
	uint64_t now_ns;

	if (until_ns == HWT_NEVER)
		return false;
	now_ns = timer_now(timer);
	if (now_ns == CLOCK_FAILED)
		system_pause();
	return now_ns >= until_ns;
}

/* A caller first clears wake_before and then moves the sequence on; so does
 * hwt_stop after stopping. Whoever reads the sequence after that sees both. */
static void
sleep_until(struct hwt *timer, uint64_t until_ns, bool announced)
{
	uint32_t sequence;

	for (;;) {
		sequence = a32_load_acquire(&timer->wake_sequence);
		if (timer_is_stopping(timer) ||
		    (announced && !worker_announced(timer)) ||
		    time_has_come(timer, until_ns))
			return;
		futex_wait(&timer->wake_sequence, sequence, until_ns);
		a64_count(&timer->worker.wakeups, 1);
	}
}

static void
sleep_briefly(struct hwt *timer)
{
	sleep_until(
	    timer, timer_boundary(timer, timer->wheel.next_tick), false);
	timer->worker.called = false;
}

bool
worker_is_late(const struct hwt *timer)
{
	uint64_t last = timer_tick_at(timer, worker_now(timer));

	return wheel_next(&timer->wheel, last) != TICK_NEVER;
}

bool
worker_trim(struct hwt *timer)
{
	if (!trim_begin(timer, timer->worker.now_ns))
		return false;
	(void)trim_step(timer);
	return true;
}

/* Whether most entries are dead, and more than settling has the budget for,
 * which takes an entry and a search for each. They would wake a worker that has
 * nothing else to do. */
bool
worker_has_dead(struct hwt *timer)
{
	uint64_t entries = timer->wheel.entries;

	return entries >= SETTLE_MAX / 2 &&
	    entries >= 2 * hwt_pending_timeouts(timer) + SETTLE_MAX / 2;
}

/* A piece of a sweep, when it is time for one. */
bool
worker_sweep(struct hwt *timer)
{
	struct wheel *wheel = &timer->wheel;
	uint64_t pending;

	if (!wheel->sweeping && wheel->entries >= wheel->sweep_at) {
		pending = hwt_pending_timeouts(timer);
		if (wheel->entries > pending + pending / 2)
			wheel_sweep_start(wheel);
		else
			wheel_sweep_later(wheel);
	}
	return wheel_sweep(wheel);
}

/* Once in a tick. */
static bool
sweep_before_sleep(struct hwt *timer)
{
	struct worker *worker = &timer->worker;

	if (worker->swept_tick == timer->wheel.next_tick ||
	    !worker_has_dead(timer))
		return false;
	worker->swept_tick = timer->wheel.next_tick;
	wheel_sweep_start(&timer->wheel);
	return true;
}

static void
sleep_long(struct hwt *timer)
{
	struct worker *worker = &timer->worker;
	uint64_t until_ns, trim_ns;

	worker->brief = false;
	if (sweep_before_sleep(timer))
		return;
	if (!worker_announce(timer, &until_ns)) {
		/* One more turn; then producers are too fast for this. */
		worker->brief = worker->retried;
		if (worker->retried)
			sleep_briefly(timer);
		worker->retried = !worker->retried;
		return;
	}
	worker->retried = false;
	trim_ns = trim_time(timer, worker->now_ns);
	sleep_until(timer, until_ns < trim_ns ? until_ns : trim_ns, true);
	worker->called = a64_swap_acq_rel(&timer->wake_before, 0) == 0;
}

static void
worker_sleep(struct hwt *timer, bool found_work)
{
	struct worker *worker = &timer->worker;
	uint64_t tick = timer->wheel.next_tick;
	bool again = worker->called && worker->called_tick == tick;

	if (worker_sweep(timer) || worker_trim(timer))
		return;
	if (worker->called)
		worker->called_tick = tick;
	worker->called = false;
	if (again ||
	    (worker->brief && found_work &&
		++worker->briefs % BRIEFS_MAX != 0)) {
		worker->brief = true;
		sleep_briefly(timer);
	} else {
		sleep_long(timer);
	}
}

void *
worker_main(void *argument)
{
	struct hwt *timer = argument;
	struct run_frame frame = {.serial = timer->serial};

	thread_block_signals(NULL);
	(void)pthread_setname_np(pthread_self(), timer->life.thread_name);
	thread_state.worker_serial = timer->serial;
	thread_state.frames = &frame;
	timer_worker_begins(timer);
	while (!worker_must_end(timer)) {
		uint64_t taken = worker_turn(timer);

		if (!worker_must_end(timer))
			worker_sleep(timer, taken > 0);
	}
	thread_state.frames = NULL;
	if (!process_owns(timer->epoch))
		return NULL;
	timer_worker_ends(timer);
	return NULL;
}
