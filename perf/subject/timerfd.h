/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel itself, one timerfd per timeout in an epoll instance with a
 * thread: timerfd_settime to schedule, to cancel and to reschedule.
 *
 * needs: sys/timerfd.h (libc6-dev)
 *
 * Blocks with a descriptor each that stays in the epoll instance, kept for
 * reuse under a mutex: a pair is two calls of the system, where timerfd_create,
 * epoll_ctl and close for each timeout would make five. A descriptor that was
 * disarmed since epoll told of it cannot be read, which refuses it.
 *
 * Who would call it unfair: who has one timerfd for a heap of its own; that is
 * what libev and others do. This is for those who want the kernel to keep their
 * timers, with its precision.
 *
 * Skipped when RLIMIT_NOFILE or epoll's own limit does not allow as many.
 */
#define SUBJECT_NAME "timerfd"
#define SUBJECT_SINGLE 0
#define SUBJECT_STALE_SAFE 1
#define SUBJECT_TELLS 1
/* Rescheduling leaves the handle as it is, from two threads at once, too. */
#define SUBJECT_KEEPS_HANDLE 1

#include <pthread.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "perf/peer.h"

/* Cancels of a thread that found nothing to cancel. */
static _Thread_local uint64_t subject_refused;

enum {
	TIMERFD_EVENTS = 256,
	/* Descriptors for other things. */
	TIMERFD_SPARE = 64
};

struct timerfd_timeout {
	struct peer_block block;
	int fd;
	/* Under the mutex. */
	bool pending;
	void (*task)(void *arg);
	void *arg;
};

typedef struct timerfd_timeout *subject_handle;

struct subject {
	_Alignas(64) pthread_mutex_t mutex;
	struct peer_blocks blocks;
	_Alignas(64) int epoll;
	/* Written to stop; the only event without a timeout. */
	int stop;
	peer_thread thread;
	pthread_t worker;
};

static inline const char *
subject_version(void)
{
	return "timerfd of the kernel";
}

/* One of them was told of by epoll, and may have been disarmed since. */
static inline void
timerfd_collect(struct subject *subject, struct timerfd_timeout *timeout,
    struct peer_queue *due)
{
	uint64_t expired;

	if (read(timeout->fd, &expired, sizeof(expired)) != sizeof(expired))
		return;
	pthread_mutex_lock(&subject->mutex);
	if (timeout->pending)
		peer_queue_append(due, &timeout->block);
	timeout->pending = false;
	pthread_mutex_unlock(&subject->mutex);
}

static inline void
timerfd_run(struct subject *subject, struct peer_queue *due)
{
	struct peer_block *block;

	for (block = due->first; block; block = block->next) {
		struct timerfd_timeout *timeout =
		    (struct timerfd_timeout *)block;

		timeout->task(timeout->arg);
	}
	pthread_mutex_lock(&subject->mutex);
	peer_drop_queue(&subject->blocks, due);
	pthread_mutex_unlock(&subject->mutex);
}

static inline void *
timerfd_worker(void *arg)
{
	struct subject *subject = arg;
	struct epoll_event events[TIMERFD_EVENTS];
	struct peer_queue due = {0};
	bool stopping = false;
	int count, i;

	peer_thread_here(&subject->thread);
	while (!stopping) {
		count = epoll_wait(subject->epoll, events, TIMERFD_EVENTS, -1);
		for (i = 0; i < count; i++) {
			if (events[i].data.ptr)
				timerfd_collect(
				    subject, events[i].data.ptr, &due);
			else
				stopping = true;
		}
		timerfd_run(subject, &due);
	}
	return NULL;
}

static inline void
timerfd_limits(uint64_t needed)
{
	unsigned long long watches;
	FILE *file = fopen("/proc/sys/fs/epoll/max_user_watches", "r");

	peer_limit(RLIMIT_NOFILE, needed, "RLIMIT_NOFILE");
	if (!file)
		return;
	if (fscanf(file, "%llu", &watches) == 1 && watches < needed)
		peer_skip("epoll's max_user_watches is too low");
	fclose(file);
}

static inline bool
timerfd_watch(struct subject *subject, int fd, void *timeout)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = timeout};

	return !epoll_ctl(subject->epoll, EPOLL_CTL_ADD, fd, &event);
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = aligned_alloc(64, sizeof(*subject));

	(void)tick_ns;
	timerfd_limits(capacity + TIMERFD_SPARE);
	if (!subject)
		return NULL;
	subject->blocks.idle = subject->blocks.made = NULL;
	subject->epoll = epoll_create1(EPOLL_CLOEXEC);
	subject->stop = eventfd(0, EFD_CLOEXEC);
	pthread_mutex_init(&subject->mutex, NULL);
	if (timerfd_watch(subject, subject->stop, NULL) &&
	    !pthread_create(&subject->worker, NULL, timerfd_worker, subject))
		return subject;
	pthread_mutex_destroy(&subject->mutex);
	close(subject->stop);
	close(subject->epoll);
	free(subject);
	return NULL;
}

static inline void
subject_destroy(struct subject *subject)
{
	struct timerfd_timeout *timeout;

	eventfd_write(subject->stop, 1);
	pthread_join(subject->worker, NULL);
	while ((timeout = peer_unmake(&subject->blocks))) {
		close(timeout->fd);
		free(timeout);
	}
	pthread_mutex_destroy(&subject->mutex);
	close(subject->stop);
	close(subject->epoll);
	free(subject);
}

static inline struct timerfd_timeout *
timerfd_make(struct subject *subject)
{
	struct timerfd_timeout *timeout = malloc(sizeof(*timeout));

	if (!timeout)
		return NULL;
	timeout->fd =
	    timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (timeout->fd < 0 || !timerfd_watch(subject, timeout->fd, timeout)) {
		if (timeout->fd >= 0)
			close(timeout->fd);
		free(timeout);
		return NULL;
	}
	peer_made(&subject->blocks, &timeout->block);
	return timeout;
}

/* 0 disarms. */
static inline bool
timerfd_set(const struct timerfd_timeout *timeout, uint64_t delay_ns)
{
	struct itimerspec delay = {.it_value = peer_timespec(delay_ns)};

	return !timerfd_settime(timeout->fd, 0, &delay, NULL);
}

static inline bool
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct timerfd_timeout *timeout;

	pthread_mutex_lock(&subject->mutex);
	timeout = peer_take(&subject->blocks);
	if (!timeout)
		timeout = timerfd_make(subject);
	if (timeout) {
		timeout->task = task;
		timeout->arg = arg;
		timeout->pending = true;
		peer_hold(&timeout->block, handle);
	}
	pthread_mutex_unlock(&subject->mutex);
	if (!timeout)
		return false;
	if (handle)
		*handle = timeout;
	return timerfd_set(timeout, delay_ns ? delay_ns : 1);
}

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	timerfd_set(timeout, 0);
	pthread_mutex_lock(&subject->mutex);
	if (timeout->pending) {
		timeout->pending = false;
		peer_give(&subject->blocks, &timeout->block);
	} else {
		subject_refused++;
		peer_drop(&subject->blocks, &timeout->block);
	}
	pthread_mutex_unlock(&subject->mutex);
}

/* One that has ended by the time that it is armed again must not expire once
 * more. */
static inline bool
subject_reschedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct timerfd_timeout *timeout = *handle;
	bool pending;

	(void)task;
	(void)arg;
	timerfd_set(timeout, delay_ns ? delay_ns : 1);
	pthread_mutex_lock(&subject->mutex);
	pending = timeout->pending;
	if (!pending) {
		timerfd_set(timeout, 0);
		peer_drop(&subject->blocks, &timeout->block);
		*handle = NULL;
	}
	pthread_mutex_unlock(&subject->mutex);
	return pending;
}

static inline uint64_t
subject_wakeups(struct subject *subject)
{
	return peer_thread_switches(&subject->thread);
}
