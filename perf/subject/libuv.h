/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libuv, a heap of timers in an event loop: uv_timer_start, uv_timer_stop, and
 * uv_timer_start once more to reschedule.
 *
 * needs: uv.h, -luv (libuv1-dev)
 *
 * Blocks with the uv_timer_t inside, kept for reuse: a handle's memory can only
 * be freed by way of uv_close and a turn of the loop, which a program spares
 * itself that has its handles in what they belong to. The backend is epoll.
 * Delays are milliseconds, and count from the loop's own time, which is that of
 * the last turn, cut off to a millisecond: a timeout may be early by up to one,
 * and by as long as the loop has not turned. This is libuv's way.
 *
 * Who would call it unfair: who would use uv_timer_again. For a timer that does
 * not repeat it does what uv_timer_start does, a stop and a start.
 */
#define SUBJECT_NAME "libuv"
#define SUBJECT_SINGLE 1
#define SUBJECT_STALE_SAFE 1
#define SUBJECT_TELLS 1

/* 1: a task may start before its delay has passed. Its clock counts
 * milliseconds, and stands still between turns. */
#define SUBJECT_MAY_BE_EARLY 1

#include <stdbool.h>
#include <uv.h>

#include "perf/peer.h"

/* Cancels of a thread that found nothing to cancel. */
static _Thread_local uint64_t subject_refused;

struct libuv_timeout {
	struct peer_block block;
	uv_timer_t timer;
	void (*task)(void *arg);
	void *arg;
};

typedef struct libuv_timeout *subject_handle;

struct subject {
	uv_loop_t loop;
	struct peer_blocks blocks;
};

static inline const char *
subject_version(void)
{
	return peer_version("libuv", uv_version_string());
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = calloc(1, sizeof(*subject));

	(void)tick_ns;
	(void)capacity;
	if (!subject)
		return NULL;
	if (uv_loop_init(&subject->loop)) {
		free(subject);
		return NULL;
	}
	subject->loop.data = subject;
	return subject;
}

static inline void
libuv_close(uv_handle_t *handle, void *arg)
{
	(void)arg;
	uv_close(handle, NULL);
}

static inline void
subject_destroy(struct subject *subject)
{
	void *block;

	uv_walk(&subject->loop, libuv_close, NULL);
	uv_run(&subject->loop, UV_RUN_DEFAULT);
	uv_loop_close(&subject->loop);
	while ((block = peer_unmake(&subject->blocks)))
		free(block);
	free(subject);
}

static inline void
libuv_due(uv_timer_t *timer)
{
	struct libuv_timeout *timeout = timer->data;
	struct subject *subject = timer->loop->data;

	timeout->task(timeout->arg);
	peer_drop(&subject->blocks, &timeout->block);
}

static inline struct libuv_timeout *
libuv_take(struct subject *subject)
{
	struct libuv_timeout *timeout = peer_take(&subject->blocks);

	if (timeout)
		return timeout;
	timeout = malloc(sizeof(*timeout));
	if (!timeout)
		return NULL;
	uv_timer_init(&subject->loop, &timeout->timer);
	timeout->timer.data = timeout;
	peer_made(&subject->blocks, &timeout->block);
	return timeout;
}

static inline bool
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct libuv_timeout *timeout = libuv_take(subject);

	if (!timeout)
		return false;
	timeout->task = task;
	timeout->arg = arg;
	peer_hold(&timeout->block, handle);
	if (handle)
		*handle = timeout;
	return !uv_timer_start(
	    &timeout->timer, libuv_due, peer_ms(delay_ns), 0);
}

static inline bool
libuv_active(const struct libuv_timeout *timeout)
{
	return uv_is_active((const uv_handle_t *)&timeout->timer);
}

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	if (libuv_active(timeout)) {
		uv_timer_stop(&timeout->timer);
		peer_give(&subject->blocks, &timeout->block);
		return;
	}
	subject_refused++;
	peer_drop(&subject->blocks, &timeout->block);
}

static inline bool
subject_reschedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct libuv_timeout *timeout = *handle;

	(void)task;
	(void)arg;
	if (libuv_active(timeout))
		return !uv_timer_start(
		    &timeout->timer, libuv_due, peer_ms(delay_ns), 0);
	peer_drop(&subject->blocks, &timeout->block);
	*handle = NULL;
	return false;
}

static inline void
subject_turn(struct subject *subject)
{
	uv_run(&subject->loop, UV_RUN_NOWAIT);
}

static inline uint64_t
subject_wakeups(struct subject *subject)
{
	(void)subject;
	return UINT64_MAX;
}
