/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libev, a 4-heap of timers in an event loop: ev_timer_start, ev_timer_stop,
 * and ev_timer_again to reschedule. Blocks with the ev_timer inside; the
 * backend is epoll. A delay counts from the loop's own time, which is that of
 * the last turn: a timeout may be early by as long as the loop has not turned.
 *
 * Who would call it unfair: whoever needs timers that are not early, or another
 * thread's; it is for one thread, without locks, and there hardly to be beaten.
 * Noting the activity, the third way of its manual for timeouts that are mostly
 * pushed out, does not need libev: mutex_wheel_lazy.h has it.
 *
 * libev_mt is this one with LOOP_MT, as the chapter on threads of the manual
 * has it: see perf/loop.h. Where its example is too simple, this does better:
 *
 *   - The loop's time stands still while it polls. Each call brings it up to
 *     date, or timeouts would be early by the length of that sleep.
 *   - The loop is woken only when the new timeout is the earliest. libev tells
 *     that by the timer's place in its heap (ev_is_active); which place is the
 *     top, two timers show when the subject is made. If they do not agree, the
 *     loop is woken each time.
 *
 * Who would call that unfair: libev's author, who has each thread run a loop of
 * its own. This is what it takes to cancel from another thread.
 */
#ifndef LOOP_MT
#define LOOP_MT 0
#endif
/* Its clock stands still between turns. */
#define SUBJECT_MAY_BE_EARLY (!LOOP_MT)

#include <ev.h>

#define LOOP_TIMER ev_timer
#define LOOP_FIELDS           \
	struct ev_loop *loop; \
	ev_async wake;        \
	int top;
#include "perf/loop.h"

enum {
	LIBEV_TOP_UNKNOWN = 0
};

static inline const char *
subject_version(void)
{
	char version[32];

	snprintf(version, sizeof(version), "%d.%d", ev_version_major(),
	    ev_version_minor());
	return peer_version("libev", version);
}

static inline void
libev_never(struct ev_loop *loop, ev_timer *timer, int events)
{
	(void)loop;
	(void)timer;
	(void)events;
}

/* The place of the earliest timer: that of the only one, which a later one that
 * is earlier must take over. */
static inline int
libev_find_top(struct ev_loop *loop)
{
	ev_timer far, near;
	int only, first, second;

	ev_timer_init(&far, libev_never, 2e6, 0);
	ev_timer_init(&near, libev_never, 1e6, 0);
	ev_timer_start(loop, &far);
	only = ev_is_active(&far);
	ev_timer_start(loop, &near);
	first = ev_is_active(&near);
	second = ev_is_active(&far);
	ev_timer_stop(loop, &far);
	ev_timer_stop(loop, &near);
	return first == only && second != only ? only : LIBEV_TOP_UNKNOWN;
}

/* A timeout that was rescheduled would repeat. */
static inline void
libev_due(struct ev_loop *loop, ev_timer *timer, int events)
{
	struct loop_timeout *timeout = timer->data;
	struct subject *subject = ev_userdata(loop);

	(void)events;
	ev_timer_stop(loop, timer);
	loop_due(subject, timeout);
}

#if LOOP_MT
static inline void
libev_release(struct ev_loop *loop) EV_NOEXCEPT
{
	struct subject *subject = ev_userdata(loop);

	pthread_mutex_unlock(&subject->mutex);
}

static inline void
libev_acquire(struct ev_loop *loop) EV_NOEXCEPT
{
	struct subject *subject = ev_userdata(loop);

	pthread_mutex_lock(&subject->mutex);
}

static inline void
libev_woken(struct ev_loop *loop, ev_async *wake, int events)
{
	struct subject *subject = ev_userdata(loop);

	(void)wake;
	(void)events;
	if (subject->stopping)
		ev_break(loop, EVBREAK_ALL);
}

/* Takes the place of ev_invoke_pending. */
static inline void
libev_invoke(struct ev_loop *loop)
{
	struct subject *subject = ev_userdata(loop);

	ev_invoke_pending(loop);
	if (subject->due.first)
		loop_run_due(subject);
}

static inline void
libev_share(struct subject *subject)
{
	ev_set_loop_release_cb(subject->loop, libev_release, libev_acquire);
	ev_set_invoke_pending_cb(subject->loop, libev_invoke);
	ev_async_init(&subject->wake, libev_woken);
	ev_async_start(subject->loop, &subject->wake);
}

static inline void
loop_run(struct subject *subject)
{
	ev_run(subject->loop, 0);
}

static inline void
loop_wake(struct subject *subject)
{
	ev_async_send(subject->loop, &subject->wake);
}
#else
static inline void
libev_share(struct subject *subject)
{
	(void)subject;
}

static inline void
loop_run_once(struct subject *subject)
{
	ev_run(subject->loop, EVRUN_NOWAIT);
}
#endif

static inline void
loop_open(struct subject *subject)
{
	subject->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
	perf_must(subject->loop, "ev_loop_new");
	subject->top = libev_find_top(subject->loop);
	ev_set_userdata(subject->loop, subject);
	libev_share(subject);
}

static inline void
loop_close(struct subject *subject)
{
	ev_loop_destroy(subject->loop);
}

static inline void
loop_make(struct subject *subject, struct loop_timeout *timeout)
{
	(void)subject;
	(void)timeout;
}

static inline bool
libev_earliest(struct subject *subject, struct loop_timeout *timeout)
{
	return LOOP_MT &&
	    (subject->top == LIBEV_TOP_UNKNOWN ||
		ev_is_active(&timeout->timer) == subject->top);
}

static inline bool
loop_start(
    struct subject *subject, struct loop_timeout *timeout, uint64_t delay_ns)
{
	ev_timer_init(&timeout->timer, libev_due, (double)delay_ns * 1e-9, 0);
	if (LOOP_MT)
		ev_now_update(subject->loop);
	ev_timer_start(subject->loop, &timeout->timer);
	return libev_earliest(subject, timeout);
}

/* A repeat of 0 would stop the timer. */
static inline bool
loop_again(
    struct subject *subject, struct loop_timeout *timeout, uint64_t delay_ns)
{
	timeout->timer.repeat = (double)(delay_ns ? delay_ns : 1) * 1e-9;
	if (LOOP_MT)
		ev_now_update(subject->loop);
	ev_timer_again(subject->loop, &timeout->timer);
	return libev_earliest(subject, timeout);
}

static inline void
loop_stop(struct subject *subject, struct loop_timeout *timeout)
{
	ev_timer_stop(subject->loop, &timeout->timer);
}

static inline bool
loop_active(const struct loop_timeout *timeout)
{
	return ev_is_active(&timeout->timer);
}
