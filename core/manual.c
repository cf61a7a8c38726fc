/* SPDX-License-Identifier: Apache-2.0 */
/* Manual timers: the thread that calls hwt_advance is the worker. */
#include <errno.h>

#include "core/timer.h"

int
timer_turn_begin(struct hwt *timer)
{
	struct lifecycle *life = &timer->life;
	int error = 0;

	if (!(timer->options.flags & HWT_MANUAL))
		return -EINVAL;
	(void)pthread_mutex_lock(&life->lock);
	if (timer_is_stopping(timer))
		error = -ESHUTDOWN;
	else if (a64_load_relaxed(&life->driver) == DRIVER_ACTIVE)
		error = -EDEADLK;
	else
		a64_store_relaxed(&life->driver, DRIVER_ACTIVE);
	(void)pthread_mutex_unlock(&life->lock);
	return error;
}

/* Whether something may be due that was not due in the last turn. */
static bool
boundary_has_come(const struct hwt *timer)
{
	return timer_now(timer) >=
	    timer_boundary(timer, timer->wheel.next_tick);
}

int
hwt_advance(struct hwt *timer, uint64_t *tasks_started)
{
	struct run_frame frame;
	uint64_t before;
	int error = timer_check(timer, true);

	if (error == 0)
		error = timer_turn_begin(timer);
	if (error != 0)
		return error;
	frame = (struct run_frame){
	    .serial = timer->serial, .outer = thread_state.frames};
	thread_state.frames = &frame;
	before = timer->worker.tasks_started;
	(void)a64_swap_seq(&timer->wake_before, 0);
	worker_turn(timer);
	thread_state.frames = frame.outer;
	/* A task forked, and this is the child's copy of its return. */
	if (!process_owns(timer->epoch))
		return -EOWNERDEAD;
	if (tasks_started != NULL)
		*tasks_started = timer->worker.tasks_started - before;
	while (!timer_is_stopping(timer) && worker_tidy(timer, false) &&
	    !boundary_has_come(timer))
		continue;
	timer_turn_end(timer);
	return 0;
}

static uint64_t
until(const struct hwt *timer, uint64_t until_ns)
{
	uint64_t now_ns = timer_now(timer);

	if (until_ns == HWT_NEVER)
		return HWT_NEVER;
	return until_ns > now_ns ? until_ns - now_ns : 0;
}

/* Other threads may push so fast that no announcement succeeds, and what can
 * wait may take until the next boundary: then that is the result. */
static uint64_t
wait_of(struct hwt *timer)
{
	uint64_t tick = TICK_NEVER;
	uint64_t until_ns;
	int tries = 0;

	(void)a64_swap_seq(&timer->wake_before, 0);
	timer->worker.now_ns = timer_now(timer);
	do {
		worker_take_due(timer);
		cache_flush(timer, cache_of(timer));
		if (worker_tidy(timer, true) || worker_drop_stale(timer, &tick))
			continue;
		if (worker_announce(timer, tick, &until_ns))
			return until(timer, until_ns);
		tries++;
	} while (tries < 3 && !boundary_has_come(timer));
	return until(timer, timer_boundary(timer, timer->wheel.next_tick));
}

int
hwt_next_wakeup(struct hwt *timer, uint64_t *wait_ns)
{
	int error = timer_check(timer, wait_ns != NULL);

	if (error == 0)
		error = timer_turn_begin(timer);
	if (error == -ESHUTDOWN) {
		*wait_ns = HWT_NEVER;
	} else if (error == -EDEADLK) {
		/* From a task: nothing can be due before the next boundary. */
		*wait_ns =
		    until(timer, timer_boundary(timer, timer->wheel.next_tick));
	} else if (error == 0) {
		*wait_ns = wait_of(timer);
		timer_turn_end(timer);
	} else {
		return error;
	}
	return 0;
}
