/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libev, a 4-heap of timers in an event loop: ev_timer_start, ev_timer_stop,
 * and ev_timer_again to reschedule, the second of the ways that its manual
 * gives for timeouts that are mostly pushed out.
 *
 * needs: ev.h, -lev (libev-dev)
 *
 * Blocks with the ev_timer inside, kept for reuse: libev cannot tell what is
 * pending, and a program embeds an ev_timer in what it belongs to. The backend
 * is epoll. A delay counts from the loop's own time, which is that of the last
 * turn: a timeout may be early by as long as the loop has not turned. This is
 * libev's way; its manual leaves it to the caller to turn often enough.
 *
 * Who would call it unfair: whoever needs timers that are not early, or another
 * thread's; it is for one thread, without locks, and there hardly to be beaten.
 * The third of the manual's ways, which notes the activity and lets the timer
 * come due, does not need libev: mutex_wheel_lazy.h has it.
 */
#define SUBJECT_NAME "libev"
#define SUBJECT_SINGLE 1
#define SUBJECT_STALE_SAFE 1
#define SUBJECT_TELLS 1

/* 1: a task may start before its delay has passed. Its clock stands
 * still between turns. */
#define SUBJECT_MAY_BE_EARLY 1

#include <ev.h>
#include <stdbool.h>

#include "perf/peer.h"

/* Cancels of a thread that found nothing to cancel. */
static _Thread_local uint64_t subject_refused;

struct libev_timeout {
	struct peer_block block;
	ev_timer timer;
	void (*task)(void *arg);
	void *arg;
};

typedef struct libev_timeout *subject_handle;

struct subject {
	struct ev_loop *loop;
	struct peer_blocks blocks;
};

static inline const char *
subject_version(void)
{
	char version[32];

	snprintf(version, sizeof(version), "%d.%d", ev_version_major(),
	    ev_version_minor());
	return peer_version("libev", version);
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = calloc(1, sizeof(*subject));

	(void)tick_ns;
	(void)capacity;
	if (!subject)
		return NULL;
	subject->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
	if (!subject->loop) {
		free(subject);
		return NULL;
	}
	ev_set_userdata(subject->loop, subject);
	return subject;
}

static inline void
subject_destroy(struct subject *subject)
{
	void *block;

	ev_loop_destroy(subject->loop);
	while ((block = peer_unmake(&subject->blocks)))
		free(block);
	free(subject);
}

/* A timeout that was rescheduled would repeat. */
static inline void
libev_due(struct ev_loop *loop, ev_timer *timer, int events)
{
	struct libev_timeout *timeout = timer->data;
	struct subject *subject = ev_userdata(loop);

	(void)events;
	ev_timer_stop(loop, timer);
	timeout->task(timeout->arg);
	peer_drop(&subject->blocks, &timeout->block);
}

static inline struct libev_timeout *
libev_take(struct subject *subject)
{
	struct libev_timeout *timeout = peer_take(&subject->blocks);

	if (timeout)
		return timeout;
	timeout = malloc(sizeof(*timeout));
	if (!timeout)
		return NULL;
	timeout->timer.data = timeout;
	peer_made(&subject->blocks, &timeout->block);
	return timeout;
}

static inline bool
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct libev_timeout *timeout = libev_take(subject);

	if (!timeout)
		return false;
	timeout->task = task;
	timeout->arg = arg;
	peer_hold(&timeout->block, handle);
	if (handle)
		*handle = timeout;
	ev_timer_init(&timeout->timer, libev_due, (double)delay_ns * 1e-9, 0);
	ev_timer_start(subject->loop, &timeout->timer);
	return true;
}

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	if (ev_is_active(&timeout->timer)) {
		ev_timer_stop(subject->loop, &timeout->timer);
		peer_give(&subject->blocks, &timeout->block);
		return;
	}
	subject_refused++;
	peer_drop(&subject->blocks, &timeout->block);
}

/* A repeat of 0 would stop the timer. */
static inline bool
subject_reschedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct libev_timeout *timeout = *handle;

	(void)task;
	(void)arg;
	if (!ev_is_active(&timeout->timer)) {
		peer_drop(&subject->blocks, &timeout->block);
		*handle = NULL;
		return false;
	}
	timeout->timer.repeat = (double)(delay_ns ? delay_ns : 1) * 1e-9;
	ev_timer_again(subject->loop, &timeout->timer);
	return true;
}

static inline void
subject_turn(struct subject *subject)
{
	ev_run(subject->loop, EVRUN_NOWAIT);
}

static inline uint64_t
subject_wakeups(struct subject *subject)
{
	(void)subject;
	return UINT64_MAX;
}
