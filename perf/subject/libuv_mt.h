/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libuv for any thread: a mutex that the loop's thread holds except while it
 * polls and while it runs tasks, and uv_async_send when a new timeout is the
 * earliest.
 *
 * needs: uv.h, -luv (libuv1-dev)
 *
 * Blocks with the uv_timer_t inside, kept for reuse under the mutex: see
 * libuv.h. The thread polls libuv's own epoll instance (uv_backend_fd) for as
 * long as libuv tells (uv_backend_timeout), then lets the loop take a turn that
 * does not wait. To unlock in a uv_prepare and to lock in a uv_check would be a
 * race: between these two, libuv reads its heap, and sets the loop's time.
 *
 * That time stands still while the thread polls. Each call brings it up to
 * date, or timeouts would be early by the length of the sleep. They may be by
 * up to a millisecond, as in libuv.h.
 */
#define SUBJECT_NAME "libuv_mt"
#define SUBJECT_SINGLE 0
#define SUBJECT_STALE_SAFE 1
#define SUBJECT_TELLS 1
/* Rescheduling leaves the handle as it is, from two threads at once, too. */
#define SUBJECT_KEEPS_HANDLE 1

/* 1: a task may start before its delay has passed. Its clock counts
 * milliseconds. */
#define SUBJECT_MAY_BE_EARLY 1

#include <poll.h>
#include <pthread.h>
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
	pthread_mutex_t mutex;
	uv_loop_t loop;
	uv_async_t wake;
	/* By the loop's time; 0: the thread is not polling. */
	uint64_t polls_until_ms;
	bool stopping;
	struct peer_blocks blocks;
	struct peer_queue due;
	peer_thread thread;
	pthread_t worker;
};

static inline const char *
subject_version(void)
{
	return peer_version("libuv", uv_version_string());
}

/* What is due is collected under the mutex and run without it. */
static inline void
libuv_due(uv_timer_t *timer)
{
	struct libuv_timeout *timeout = timer->data;
	struct subject *subject = timer->loop->data;

	peer_queue_append(&subject->due, &timeout->block);
}

static inline void
libuv_run_due(struct subject *subject)
{
	struct peer_block *block;

	pthread_mutex_unlock(&subject->mutex);
	for (block = subject->due.first; block; block = block->next) {
		struct libuv_timeout *timeout = (struct libuv_timeout *)block;

		timeout->task(timeout->arg);
	}
	pthread_mutex_lock(&subject->mutex);
	peer_drop_queue(&subject->blocks, &subject->due);
}

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

static inline void *
libuv_worker(void *arg)
{
	struct subject *subject = arg;

	peer_thread_here(&subject->thread);
	pthread_mutex_lock(&subject->mutex);
	while (!subject->stopping) {
		uv_run(&subject->loop, UV_RUN_NOWAIT);
		if (subject->due.first)
			libuv_run_due(subject);
		else
			libuv_poll(subject);
	}
	pthread_mutex_unlock(&subject->mutex);
	return NULL;
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = calloc(1, sizeof(*subject));

	(void)tick_ns;
	(void)capacity;
	if (!subject || uv_loop_init(&subject->loop))
		goto free_subject;
	pthread_mutex_init(&subject->mutex, NULL);
	subject->loop.data = subject;
	if (!uv_async_init(&subject->loop, &subject->wake, NULL) &&
	    !pthread_create(&subject->worker, NULL, libuv_worker, subject))
		return subject;
	pthread_mutex_destroy(&subject->mutex);
	uv_loop_close(&subject->loop);
free_subject:
	free(subject);
	return NULL;
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

	pthread_mutex_lock(&subject->mutex);
	subject->stopping = true;
	pthread_mutex_unlock(&subject->mutex);
	uv_async_send(&subject->wake);
	pthread_join(subject->worker, NULL);
	uv_walk(&subject->loop, libuv_close, NULL);
	uv_run(&subject->loop, UV_RUN_DEFAULT);
	uv_loop_close(&subject->loop);
	while ((block = peer_unmake(&subject->blocks)))
		free(block);
	pthread_mutex_destroy(&subject->mutex);
	free(subject);
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

/* True: the thread must be woken, since it would poll for too long. */
static inline bool
libuv_start(
    struct subject *subject, struct libuv_timeout *timeout, uint64_t delay_ns)
{
	uint64_t delay_ms = peer_ms(delay_ns), due_ms;

	uv_update_time(&subject->loop);
	uv_timer_start(&timeout->timer, libuv_due, delay_ms, 0);
	due_ms = uv_now(&subject->loop) + delay_ms;
	if (due_ms >= subject->polls_until_ms)
		return false;
	subject->polls_until_ms = due_ms;
	return true;
}

static inline bool
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct libuv_timeout *timeout;
	bool earliest = false;

	pthread_mutex_lock(&subject->mutex);
	timeout = libuv_take(subject);
	if (timeout) {
		timeout->task = task;
		timeout->arg = arg;
		peer_hold(&timeout->block, handle);
		if (handle)
			*handle = timeout;
		earliest = libuv_start(subject, timeout, delay_ns);
	}
	pthread_mutex_unlock(&subject->mutex);
	if (earliest)
		uv_async_send(&subject->wake);
	return timeout;
}

static inline bool
libuv_active(const struct libuv_timeout *timeout)
{
	return uv_is_active((const uv_handle_t *)&timeout->timer);
}

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	pthread_mutex_lock(&subject->mutex);
	if (libuv_active(timeout)) {
		uv_timer_stop(&timeout->timer);
		peer_give(&subject->blocks, &timeout->block);
	} else {
		subject_refused++;
		peer_drop(&subject->blocks, &timeout->block);
	}
	pthread_mutex_unlock(&subject->mutex);
}

static inline bool
subject_reschedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct libuv_timeout *timeout = *handle;
	bool active, earliest = false;

	(void)task;
	(void)arg;
	pthread_mutex_lock(&subject->mutex);
	active = libuv_active(timeout);
	if (active) {
		earliest = libuv_start(subject, timeout, delay_ns);
	} else {
		peer_drop(&subject->blocks, &timeout->block);
		*handle = NULL;
	}
	pthread_mutex_unlock(&subject->mutex);
	if (earliest)
		uv_async_send(&subject->wake);
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
