/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, starting, stopping and destroying a timer.
 *
 * PHASES, all changes under the lifecycle lock. Callers read them without: the
 * gate is open while the timer is RUNNING, as a manual one is from the start.
 *
 *    NEW ---> RUNNING ---> STOPPING ---> STOPPED
 *     |  start          stop          stop, when the worker has ended
 *     +-------------------^
 *
 * The thread is created with the lock held. Meanwhile other calls that start
 * wait, and a stop; if the attempt fails, each of the former makes one.
 *
 * STOPPING, in this order and for these reasons:
 *
 *   1. Close the gate: calls that begin now are refused, and the worker ends
 *      after the task that it is running.
 *   2. Wait for the end of the worker, or of an hwt_advance.
 *   3. Sweep all records: PENDING becomes UNPROCESSED. A caller that is still
 *      scheduling has either published before the sweep read its record, and
 *      the timeout is in the list; or it finds the gate closed (E:closed), and
 *      retracts the timeout. The record's word decides: no timeout is lost, and
 *      none is both refused and in the list.
 *
 * A run in an executor that ends after 1 is the last one of its periodic
 * timeout; a run that ended before may have published the next, which 3 finds,
 * or requeue retracts.
 *
 * EDGES
 *   E:gate      drawn in hwt.c.
 *   E:closed    drawn in hwt.c; fences in stop_begin and record_next_used.
 *   E:dispatched  drawn in run.c; acquire in timer_dispatched.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/debug.h"
#include "core/timer.h"

#define TICK_DEFAULT_NS HWT_MS(100)
#define TICK_MIN_NS HWT_US(10)
#define WHEEL_DEFAULT 512u
#define WHEEL_MAX (1u << 30)

static uint32_t
wheel_length(const struct hwt_options *options)
{
	uint32_t length = 1;

	if (options->ticks_per_wheel == 0)
		return WHEEL_DEFAULT;
	while (length < options->ticks_per_wheel)
		length *= 2;
	return length;
}

static bool
attr_is_valid(const pthread_attr_t *attr)
{
	int state = PTHREAD_CREATE_JOINABLE;

	if (attr != NULL)
		(void)pthread_attr_getdetachstate(attr, &state);
	return state == PTHREAD_CREATE_JOINABLE;
}

static bool
callbacks_are_valid(const struct hwt_options *o)
{
	return (o->executor == NULL || o->executor->execute != NULL) &&
	    (o->log == NULL || o->log->write != NULL) &&
	    (o->clock == NULL || o->clock->now_ns != NULL) &&
	    (o->wake == NULL || o->wake->wake != NULL) &&
	    ((o->flags & HWT_MANUAL) || (o->clock == NULL && o->wake == NULL));
}

static bool
options_are_valid(const struct hwt_options *o)
{
	return RESERVED_IS_ZERO(o) && (o->flags & ~HWT_MANUAL) == 0 &&
	    (o->tick_ns == 0 || o->tick_ns >= TICK_MIN_NS) &&
	    o->ticks_per_wheel <= WHEEL_MAX &&
	    o->tick_ns <= (uint64_t)INT64_MAX / wheel_length(o) &&
	    name_is_short(o->thread_name) && callbacks_are_valid(o) &&
	    attr_is_valid(o->thread_attr);
}

static void
timer_set_options(struct hwt *timer, const struct hwt_options *options)
{
	timer->options = *options;
	if (options->tick_ns == 0)
		timer->options.tick_ns = TICK_DEFAULT_NS;
	if (options->executor != NULL)
		timer->executor = *options->executor;
	if (options->clock != NULL)
		timer->clock = *options->clock;
	if (options->wake != NULL)
		timer->wake = *options->wake;
	if (options->log != NULL)
		timer->log = *options->log;
	name_copy(timer->life.thread_name, options->thread_name, "hwt-worker");
}

int
hwt_create(struct hwt **timer, const struct hwt_options *options)
{
	static const struct hwt_options defaults;
	struct timespec now;
	struct hwt *made;

	if (options == NULL)
		options = &defaults;
	if (timer == NULL || !options_are_valid(options))
		return -EINVAL;
	if (!process_sees_forks)
		return -ENOMEM;
	if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
		return -EAGAIN;
	made = aligned_alloc(CACHE_LINE, sizeof(*made));
	if (made == NULL)
		return -ENOMEM;
	memset(made, 0, sizeof(*made));
	timer_set_options(made, options);
	if (!record_store_create(&made->store))
		goto free_timer;
	if (!wheel_create(&made->wheel, &made->store, wheel_length(options)))
		goto free_store;
	memory_add(&made->store, sizeof(*made));
	made->store.trim_due = wake_worker_for_trim;
	made->queue.store = &made->store;
	made->life.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	made->origin_ns = timer_now(made);
	made->worker.now_ns = made->origin_ns;
	clock_prepare();
	made->epoch = process_epoch();
	a64_store_relaxed(&made->wake_sequence, 1);
	if (made->options.flags & HWT_MANUAL)
		a64_store_relaxed(&made->phase, PHASE_RUNNING);
	process_add_timer(made);
	DEBUG_MADE("timer", made, made->epoch);
	*timer = made;
	return 0;

free_store:
	record_store_destroy(&made->store);
free_timer:
	free(made);
	return -ENOMEM;
}

static void
timer_free(struct hwt *timer)
{
	debug_destroyed(timer);
	wheel_destroy(&timer->wheel);
	record_store_destroy(&timer->store);
	free(timer);
}

/* With the lock held. */
static int
attempt_start(struct hwt *timer)
{
	struct lifecycle *life = &timer->life;
	int error = thread_create(
	    &life->thread, timer->options.thread_attr, worker_main, timer);

	if (error == 0) {
		a64_store_relaxed(&life->driver, DRIVER_ACTIVE);
		/* E:gate release */
		a64_store_release(&timer->phase, PHASE_RUNNING);
	}
	return error;
}

int
timer_start(struct hwt *timer)
{
	struct lifecycle *life = &timer->life;
	int result = 0;

	if (timer_is_open(timer))
		return 0;
	if (timer_is_stopping(timer))
		return -ESHUTDOWN;
	(void)pthread_mutex_lock(&life->lock);
	if (a64_load_relaxed(&timer->phase) == PHASE_NEW)
		result = attempt_start(timer);
	if (timer_is_stopping(timer))
		result = -ESHUTDOWN;
	(void)pthread_mutex_unlock(&life->lock);
	return result;
}

int
hwt_start(struct hwt *timer)
{
	int error = timer_check(timer, true);

	if (error == 0 && (timer->options.flags & HWT_MANUAL))
		error = -EINVAL;
	return error != 0 ? error : timer_start(timer);
}

/* Step 1. With the lock held. */
static void
stop_begin(struct hwt *timer)
{
	/* E:gate release, E:closed fence */
	a64_store_seq(&timer->phase, PHASE_STOPPING);
	/* E:called release */
	(void)a64_add_seq(&timer->wake_sequence, 1);
	futex_wake(&timer->wake_sequence, FUTEX_ALL);
}

/* True when the record was pending. */
static bool
sweep_record(struct record *record)
{
	struct wide seen, next;

	do {
		seen = wide_load_seq(&record->wide);
		if (word_state(seen.word) != STATE_PENDING)
			return false;
		next = seen;
		next.word = (seen.word & ~STATE_MASK) | STATE_UNPROCESSED;
	} while (!wide_cas(&record->wide, seen, next));
	tsan_acquire(record);
	return true;
}

/* Step 3, also for pages that are committed later. */
static void
stop_sweep(struct hwt *timer)
{
	struct record_store *store = &timer->store;
	uint64_t count = 0;
	uint32_t index = 0;

	while ((index = record_next_used(store, index)) != 0) {
		if (sweep_record(record_at(store, index)))
			count++;
	}
	cache_count(&store->shared_cache, &store->shared_cache.ended, count);
	pending_release(timer, count);
	timer->life.unprocessed = count;
}

/* With the lock held, which is released meanwhile. */
static int
await_other_driver(struct lifecycle *life, uint64_t driver, uint64_t until_ns)
{
	if (clock_monotonic_ns() >= until_ns)
		return -ETIMEDOUT;
	(void)pthread_mutex_unlock(&life->lock);
	futex_wait(&life->driver, (uint32_t)driver, until_ns);
	(void)pthread_mutex_lock(&life->lock);
	return 0;
}

/* pthread_clockjoin_np would do the same, but ThreadSanitizer does not know
 * it. */
static bool
join_within(pthread_t thread, uint64_t until_ns)
{
	uint64_t now_ns;

	while (!system_try_join(thread)) {
		now_ns = clock_monotonic_ns();
		if (now_ns >= until_ns)
			return false;
		pause_shortly();
	}
	return true;
}

/* With the lock held, which is released meanwhile: destructors of the worker's
 * thread-specific data may take long, or call the timer. */
static int
join_worker(struct lifecycle *life, uint64_t until_ns)
{
	int error = 0;

	a64_store_relaxed(&life->driver, DRIVER_JOINING);
	(void)pthread_mutex_unlock(&life->lock);
	if (until_ns == HWT_NEVER)
		error = pthread_join(life->thread, NULL) == 0 ? 0 : -EDEADLK;
	else if (!join_within(life->thread, until_ns))
		error = -ETIMEDOUT;
	(void)pthread_mutex_lock(&life->lock);
	a64_store_relaxed(
	    &life->driver, error == 0 ? DRIVER_NONE : DRIVER_ENDED);
	futex_wake(&life->driver, FUTEX_ALL);
	return error;
}

/* Steps 2 and 3. With the lock held. */
static int
stop_finish(struct hwt *timer, uint64_t until_ns)
{
	struct lifecycle *life = &timer->life;
	uint64_t driver;
	int error;

	while ((driver = a64_load_relaxed(&life->driver)) != DRIVER_NONE) {
		if (driver == DRIVER_ENDED)
			error = join_worker(life, until_ns);
		else
			error = await_other_driver(life, driver, until_ns);
		if (error != 0)
			return error;
	}
	if (a64_load_relaxed(&timer->phase) != PHASE_STOPPED) {
		/* E:gate release */
		a64_store_release(&timer->phase, PHASE_STOPPED);
		stop_sweep(timer);
	}
	return 0;
}

/* After a stop that has failed, nothing has been swept yet. */
static void
take_list(
    struct hwt *timer, uint64_t called_ns, struct hwt_unprocessed *unprocessed)
{
	struct lifecycle *life = &timer->life;

	if (life->unprocessed != 0 && unprocessed != NULL) {
		life->stopped_ns = called_ns;
		unprocessed->count = life->unprocessed;
		unprocessed->private_words[0] = (uint64_t)(uintptr_t)timer;
	}
	life->unprocessed = 0;
}

int
timer_stop(
    struct hwt *timer, uint64_t wait_ns, struct hwt_unprocessed *unprocessed)
{
	struct lifecycle *life = &timer->life;
	uint64_t called_ns = timer_now_ahead(timer);
	uint64_t now_ns = clock_monotonic_ns();
	uint64_t until_ns = HWT_NEVER;
	int result;

	if (thread_frame_of(timer, 0) != NULL)
		return -EDEADLK;
	if (wait_ns < DEADLINE_NEVER - now_ns)
		until_ns = now_ns + wait_ns;
	(void)pthread_mutex_lock(&life->lock);
	if (!timer_is_stopping(timer))
		stop_begin(timer);
	result = stop_finish(timer, until_ns);
	take_list(timer, called_ns, unprocessed);
	(void)pthread_mutex_unlock(&life->lock);
	return result;
}

int
hwt_stop_within(
    struct hwt *timer, uint64_t wait_ns, struct hwt_unprocessed *unprocessed)
{
	int error = timer_check(timer, true);

	if (unprocessed != NULL)
		memset(unprocessed, 0, sizeof(*unprocessed));
	if (error == 0 && timer->shared)
		error = -EPERM;
	return error != 0 ? error : timer_stop(timer, wait_ns, unprocessed);
}

int
hwt_stop(struct hwt *timer, struct hwt_unprocessed *unprocessed)
{
	return hwt_stop_within(timer, HWT_NEVER, unprocessed);
}

bool
hwt_unprocessed_next(
    struct hwt_unprocessed *unprocessed, struct hwt_timeout_info *info)
{
	const struct hwt *timer;
	const struct record *record;
	struct wide seen;
	uint32_t index;

	if (unprocessed == NULL || info == NULL)
		return false;
	timer = (const struct hwt *)(uintptr_t)unprocessed->private_words[0];
	if (timer == NULL || !process_owns(timer->epoch))
		return false;
	index = (uint32_t)unprocessed->private_words[1];
	do {
		index = record_next_used(&timer->store, index);
		if (index == 0)
			return false;
		record = record_at(&timer->store, index);
		seen = wide_load(&record->wide);
	} while (word_state(seen.word) != STATE_UNPROCESSED);
	unprocessed->private_words[1] = index;
	memset(info, 0, sizeof(*info));
	info->timeout.id = word_id(seen.word, index);
	info->task = record_task(record);
	info->arg = aptr_load_acquire(&record->arg);
	info->remaining_ns = remaining_at(seen, timer->life.stopped_ns);
	info->period_ns = a64_load_relaxed(&record->period_ns);
	info->executor = aptr_load_acquire(&record->executor);
	return true;
}

int
hwt_destroy(struct hwt *timer)
{
	bool busy;

	if (timer == NULL)
		return 0;
	if (!process_owns(timer->epoch)) {
		/* A child: the lock and the thread are its parent's. */
		timer_free(timer);
		return 0;
	}
	if (timer->shared)
		return -EPERM;
	/* After the stop that was last. */
	(void)pthread_mutex_lock(&timer->life.lock);
	busy = a64_load_relaxed(&timer->phase) != PHASE_STOPPED ||
	    timer_dispatched(timer) != 0;
	(void)pthread_mutex_unlock(&timer->life.lock);
	if (busy)
		return -EBUSY;
	tsan_acquire(&timer->dispatched_count);
	process_remove_timer(timer);
	(void)pthread_mutex_destroy(&timer->life.lock);
	timer_free(timer);
	return 0;
}
