/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libuv, a heap of timers in an event loop: uv_timer_start, uv_timer_stop, and
 * uv_timer_start once more to reschedule. Blocks with the uv_timer_t inside;
 * the backend is epoll. Delays are milliseconds, and count from the loop's own
 * time, which is that of the last turn, cut off to a millisecond: a timeout may
 * be early by up to one, and by as long as the loop has not turned.
 *
 * Who would call it unfair: who would use uv_timer_again. For a timer that does
 * not repeat it does what uv_timer_start does, a stop and a start.
 *
 * libuv_mt is this one with LOOP_MT: see perf/loop.h. Its thread polls libuv's
 * own epoll instance (uv_backend_fd) for as long as libuv tells, then lets the
 * loop take a turn that does not wait: to unlock in a uv_prepare and to lock in
 * a uv_check would be a race. The loop's time stands still while the thread
 * polls, so that each call brings it up to date.
 *
 * Who would call that unfair: who posts such calls to the loop, and wakes it by
 * uv_async_send. That is an allocation for each, a write to a descriptor for
 * some, and its caller cannot tell whether a cancel came in time; a mutex is
 * cheaper.
 */
#ifndef LOOP_MT
#define LOOP_MT 0
#endif
/* Its clock counts milliseconds, and of libuv stands still between turns. */
#define SUBJECT_MAY_BE_EARLY 1

#include <poll.h>
#include <uv.h>

#define LOOP_TIMER uv_timer_t
/* polls_until_ms: by the loop's time; 0: the thread is not polling. */
#define LOOP_FIELDS      \
	uv_loop_t loop;  \
	uv_async_t wake; \
	uint64_t polls_until_ms;
#include "perf/loop.h"

static inline const char *
subject_version(void)
{
	return peer_version("libuv", uv_version_string());
}

static inline void
libuv_due(uv_timer_t *timer)
{
	struct loop_timeout *timeout = timer->data;
	struct subject *subject = timer->loop->data;

	loop_due(subject, timeout);
}

#if LOOP_MT
static inline void
libuv_poll(struct subject *subject)
{
	struct pollfd backend = {uv_backend_fd(&subject->loop), POLLIN, 0};
	int timeout_ms = uv_backend_timeout(&subject->loop);

	if (!timeout_ms)
		return;
	subject->polls_until_ms = timeout_ms < 0
	    ? UINT64_MAX
	    : uv_now(&subject->loop) + (uint64_t)timeout_ms;
	pthread_mutex_unlock(&subject->mutex);
	poll(&backend, 1, timeout_ms);
	pthread_mutex_lock(&subject->mutex);
	subject->polls_until_ms = 0;
}

static inline void
loop_run(struct subject *subject)
{
	while (!subject->stopping) {
		uv_run(&subject->loop, UV_RUN_NOWAIT);
		if (subject->due.first)
			loop_run_due(subject);
		else
			libuv_poll(subject);
	}
}

static inline void
loop_wake(struct subject *subject)
{
	uv_async_send(&subject->wake);
}
#else
static inline void
loop_run_once(struct subject *subject)
{
	uv_run(&subject->loop, UV_RUN_NOWAIT);
}
#endif

static inline void
loop_open(struct subject *subject)
{
	perf_must(!uv_loop_init(&subject->loop), "uv_loop_init");
	subject->loop.data = subject;
	perf_must(!uv_async_init(&subject->loop, &subject->wake, NULL),
	    "uv_async_init");
}

static inline void
libuv_close(uv_handle_t *handle, void *arg)
{
	(void)arg;
	uv_close(handle, NULL);
}

static inline void
loop_close(struct subject *subject)
{
	uv_walk(&subject->loop, libuv_close, NULL);
	uv_run(&subject->loop, UV_RUN_DEFAULT);
	uv_loop_close(&subject->loop);
}

static inline void
loop_make(struct subject *subject, struct loop_timeout *timeout)
{
	uv_timer_init(&subject->loop, &timeout->timer);
}

/* The thread must be woken if it would poll for too long. */
static inline bool
loop_start(
    struct subject *subject, struct loop_timeout *timeout, uint64_t delay_ns)
{
	uint64_t delay_ms = peer_ms(delay_ns), due_ms;

	if (LOOP_MT)
		uv_update_time(&subject->loop);
	uv_timer_start(&timeout->timer, libuv_due, delay_ms, 0);
	due_ms = uv_now(&subject->loop) + delay_ms;
	if (!LOOP_MT || due_ms >= subject->polls_until_ms)
		return false;
	subject->polls_until_ms = due_ms;
	return true;
}

static inline bool
loop_again(
    struct subject *subject, struct loop_timeout *timeout, uint64_t delay_ns)
{
	return loop_start(subject, timeout, delay_ns);
}

static inline void
loop_stop(struct subject *subject, struct loop_timeout *timeout)
{
	(void)subject;
	uv_timer_stop(&timeout->timer);
}

static inline bool
loop_active(const struct loop_timeout *timeout)
{
	return uv_is_active((const uv_handle_t *)&timeout->timer);
}
