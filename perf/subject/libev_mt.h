/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libev for any thread, as the chapter on threads of its manual has it: a mutex
 * that the loop's thread holds except while it polls (ev_set_loop_release_cb),
 * and an ev_async that wakes it.
 *
 * needs: ev.h, -lev (libev-dev)
 *
 * Blocks with the ev_timer inside, kept for reuse under the mutex; the backend
 * is epoll, as in libev.h. Where the manual's example is too simple, this one
 * does better:
 *
 *   - The loop's time stands still while it polls. Each call brings it up to
 *     date, or timeouts would be early by the length of that sleep.
 *   - The loop is woken only when the new timeout is the earliest. libev tells
 *     that by the timer's place in its heap (ev_is_active); which place is the
 *     top, two timers show when the subject is made. If they do not agree, the
 *     loop is woken each time.
 *   - What is due is collected under the mutex and run without it.
 */
#define SUBJECT_NAME "libev_mt"
#define SUBJECT_SINGLE 0
#define SUBJECT_STALE_SAFE 1
#define SUBJECT_TELLS 1
/* Rescheduling leaves the handle as it is, from two threads at once, too. */
#define SUBJECT_KEEPS_HANDLE 1

#include <ev.h>
#include <pthread.h>
#include <stdbool.h>

#include "perf/peer.h"

/* Cancels of a thread that found nothing to cancel. */
static _Thread_local uint64_t subject_refused;

enum {
	LIBEV_TOP_UNKNOWN = 0
};

struct libev_timeout {
	struct peer_block block;
	ev_timer timer;
	void (*task)(void *arg);
	void *arg;
};

typedef struct libev_timeout *subject_handle;

struct subject {
	pthread_mutex_t mutex;
	struct ev_loop *loop;
	ev_async wake;
	int top;
	bool stopping;
	struct peer_blocks blocks;
	struct peer_queue due;
	peer_thread thread;
	pthread_t worker;
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

/* A timeout that was rescheduled would repeat. */
static inline void
libev_due(struct ev_loop *loop, ev_timer *timer, int events)
{
	struct libev_timeout *timeout = timer->data;
	struct subject *subject = ev_userdata(loop);

	(void)events;
	ev_timer_stop(loop, timer);
	peer_queue_append(&subject->due, &timeout->block);
}

/* Takes the place of ev_invoke_pending. */
static inline void
libev_invoke(struct ev_loop *loop)
{
	struct subject *subject = ev_userdata(loop);
	struct peer_block *block;

	ev_invoke_pending(loop);
	if (!subject->due.first)
		return;
	pthread_mutex_unlock(&subject->mutex);
	for (block = subject->due.first; block; block = block->next) {
		struct libev_timeout *timeout = (struct libev_timeout *)block;

		timeout->task(timeout->arg);
	}
	pthread_mutex_lock(&subject->mutex);
	peer_drop_queue(&subject->blocks, &subject->due);
}

static inline void *
libev_worker(void *arg)
{
	struct subject *subject = arg;

	peer_thread_here(&subject->thread);
	pthread_mutex_lock(&subject->mutex);
	ev_run(subject->loop, 0);
	pthread_mutex_unlock(&subject->mutex);
	return NULL;
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
	if (!subject->loop)
		goto free_subject;
	pthread_mutex_init(&subject->mutex, NULL);
	subject->top = libev_find_top(subject->loop);
	ev_set_userdata(subject->loop, subject);
	ev_set_loop_release_cb(subject->loop, libev_release, libev_acquire);
	ev_set_invoke_pending_cb(subject->loop, libev_invoke);
	ev_async_init(&subject->wake, libev_woken);
	ev_async_start(subject->loop, &subject->wake);
	if (!pthread_create(&subject->worker, NULL, libev_worker, subject))
		return subject;
	pthread_mutex_destroy(&subject->mutex);
	ev_loop_destroy(subject->loop);
free_subject:
	free(subject);
	return NULL;
}

static inline void
subject_destroy(struct subject *subject)
{
	void *block;

	pthread_mutex_lock(&subject->mutex);
	subject->stopping = true;
	pthread_mutex_unlock(&subject->mutex);
	ev_async_send(subject->loop, &subject->wake);
	pthread_join(subject->worker, NULL);
	ev_loop_destroy(subject->loop);
	while ((block = peer_unmake(&subject->blocks)))
		free(block);
	pthread_mutex_destroy(&subject->mutex);
	free(subject);
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
libev_earliest(struct subject *subject, struct libev_timeout *timeout)
{
	return subject->top == LIBEV_TOP_UNKNOWN ||
	    ev_is_active(&timeout->timer) == subject->top;
}

static inline bool
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct libev_timeout *timeout;
	bool earliest;

	pthread_mutex_lock(&subject->mutex);
	timeout = libev_take(subject);
	if (!timeout) {
		pthread_mutex_unlock(&subject->mutex);
		return false;
	}
	timeout->task = task;
	timeout->arg = arg;
	peer_hold(&timeout->block, handle);
	if (handle)
		*handle = timeout;
	ev_timer_init(&timeout->timer, libev_due, (double)delay_ns * 1e-9, 0);
	ev_now_update(subject->loop);
	ev_timer_start(subject->loop, &timeout->timer);
	earliest = libev_earliest(subject, timeout);
	pthread_mutex_unlock(&subject->mutex);
	if (earliest)
		ev_async_send(subject->loop, &subject->wake);
	return true;
}

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	pthread_mutex_lock(&subject->mutex);
	if (ev_is_active(&timeout->timer)) {
		ev_timer_stop(subject->loop, &timeout->timer);
		peer_give(&subject->blocks, &timeout->block);
	} else {
		subject_refused++;
		peer_drop(&subject->blocks, &timeout->block);
	}
	pthread_mutex_unlock(&subject->mutex);
}

/* A repeat of 0 would stop the timer. */
static inline bool
subject_reschedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct libev_timeout *timeout = *handle;
	bool active, earliest = false;

	(void)task;
	(void)arg;
	pthread_mutex_lock(&subject->mutex);
	active = ev_is_active(&timeout->timer);
	if (active) {
		timeout->timer.repeat =
		    (double)(delay_ns ? delay_ns : 1) * 1e-9;
		ev_now_update(subject->loop);
		ev_timer_again(subject->loop, &timeout->timer);
		earliest = libev_earliest(subject, timeout);
	} else {
		peer_drop(&subject->blocks, &timeout->block);
		*handle = NULL;
	}
	pthread_mutex_unlock(&subject->mutex);
	if (earliest)
		ev_async_send(subject->loop, &subject->wake);
	return active;
}

static inline void
subject_turn(struct subject *subject)
{
	(void)subject;
}

static inline uint64_t
subject_wakeups(struct subject *subject)
{
	return peer_thread_switches(&subject->thread);
}
