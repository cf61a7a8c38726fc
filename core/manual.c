/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manual timers: the wheel is turned by whoever calls hwt_advance, and the
 * sleep is the caller's. Everything else is as with a worker: worker.c does
 * not know who runs it.
 */
#include <errno.h>

#include "core/timer.h"

/* Takes the wheel, so that a stop waits. */
static int
turn_begin(struct hwt *timer)
{
	struct lifecycle *life = &timer->life;
	int error = 0;

	(void)pthread_mutex_lock(&life->lock);
	if (life->phase >= PHASE_STOPPING)
		error = -ESHUTDOWN;
	else if (life->turning)
		error = -EDEADLK;
	else
		life->turning = true;
	(void)pthread_mutex_unlock(&life->lock);
	return error;
}

static void
turn_end(struct hwt *timer)
{
	struct lifecycle *life = &timer->life;

	(void)pthread_mutex_lock(&life->lock);
	life->turning = false;
	(void)pthread_cond_broadcast(&life->changed);
	(void)pthread_mutex_unlock(&life->lock);
}

int
hwt_advance(struct hwt *timer, uint64_t *tasks_started)
{
	struct run_frame frame;
	uint64_t before;
	int error;

	if (timer == NULL)
		return -EINVAL;
	if (!process_owns(timer->epoch))
		return -EOWNERDEAD;
	if (!(timer->flags & HWT_MANUAL))
		return -EINVAL;
	error = turn_begin(timer);
	if (error != 0)
		return error;
	frame = (struct run_frame){
	    .serial = timer->serial, .outer = thread_state.frames};
	thread_state.frames = &frame;
	before = timer->worker.tasks_started;
	(void)a64_swap_acq_rel(&timer->wake_before, 0);
	(void)worker_turn(timer);
	thread_state.frames = frame.outer;
	/* A task forked, and this is the child's copy of its return. */
	if (!process_owns(timer->epoch))
		return -EOWNERDEAD;
	if (tasks_started != NULL)
		*tasks_started = timer->worker.tasks_started - before;
	/* At once, since who turns it may not come back soon; but no timeout
	 * gets late by it. */
	while (!timer_is_stopping(timer) &&
	    (worker_sweep(timer) || worker_trim(timer)) &&
	    !worker_is_late(timer))
		continue;
	turn_end(timer);
	return 0;
}

static uint64_t
until(const struct hwt *timer, uint64_t until_ns)
{
	uint64_t now_ns = timer_now(timer);

	if (until_ns == HWT_NEVER)
		return HWT_NEVER;
	if (!timer_has_read(timer, now_ns))
		return timer->tick_ns;
	return until_ns > now_ns ? until_ns - now_ns : 0;
}

static uint64_t
wait_of(struct hwt *timer)
{
	uint64_t until_ns;
	int tries;

	(void)a64_swap_acq_rel(&timer->wake_before, 0);
	for (tries = 0; tries < 3; tries++) {
		(void)worker_drain(timer);
		cache_flush(timer, cache_of(timer));
		if (worker_has_dead(timer))
			wheel_sweep_all(&timer->wheel);
		if (worker_announce(timer, &until_ns))
			return until(timer, until_ns);
	}
	/* Others are too busy for an announcement to hold: the next tick. */
	return until(timer, timer_boundary(timer, timer->wheel.next_tick));
}

int
hwt_next_wakeup(struct hwt *timer, uint64_t *wait_ns)
{
	int error;

	if (timer == NULL)
		return -EINVAL;
	if (!process_owns(timer->epoch))
		return -EOWNERDEAD;
	if (!(timer->flags & HWT_MANUAL) || wait_ns == NULL)
		return -EINVAL;
	error = turn_begin(timer);
	if (error == -ESHUTDOWN) {
		*wait_ns = HWT_NEVER;
	} else if (error == -EDEADLK) {
		/* From a task: nothing can be due before the next boundary. */
		*wait_ns =
		    until(timer, timer_boundary(timer, timer->wheel.next_tick));
	} else {
		*wait_ns = wait_of(timer);
		turn_end(timer);
	}
	return 0;
}
