/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel itself, one timerfd per timeout in an epoll instance with a
 * thread: timerfd_settime to schedule, to cancel and to reschedule. The
 * descriptor of a block stays in the epoll instance: see perf/kernel.h. One
 * that was disarmed since epoll told of it cannot be read, which refuses it.
 *
 * Who would call it unfair: who has one timerfd for a heap of its own; that is
 * what libev and others do. This is for those who want the kernel to keep their
 * timers, with its precision.
 *
 * Skipped when RLIMIT_NOFILE or epoll's own limit does not allow as many.
 */
#define SUBJECT_KEEPS_HANDLE 1

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

/* stop: written to stop; the only event without a timeout. */
#define KERNEL_TIMER int
#define KERNEL_FIELDS int epoll, stop;
#include "perf/kernel.h"

enum {
	TIMERFD_EVENTS = 256,
	/* Descriptors for other things. */
	TIMERFD_SPARE = 64
};

static inline const char *
subject_version(void)
{
	return "timerfd of the kernel";
}

/* One of them was told of by epoll, and may have been disarmed since. */
static inline void
timerfd_collect(struct subject *subject, struct kernel_timeout *timeout,
    struct peer_queue *due)
{
	uint64_t expired;

	if (read(timeout->timer, &expired, sizeof(expired)) != sizeof(expired))
		return;
	pthread_mutex_lock(&subject->mutex);
	if (timeout->due_ns != KERNEL_ENDED)
		peer_queue_append(due, &timeout->block);
	timeout->due_ns = KERNEL_ENDED;
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

	while (!stopping) {
		count = epoll_wait(subject->epoll, events, TIMERFD_EVENTS, -1);
		for (i = 0; i < count; i++) {
			if (events[i].data.ptr)
				timerfd_collect(
				    subject, events[i].data.ptr, &due);
			else
				stopping = true;
		}
		peer_run_queue(&due);
		pthread_mutex_lock(&subject->mutex);
		peer_drop_queue(&subject->blocks, &due);
		pthread_mutex_unlock(&subject->mutex);
	}
	return NULL;
}

static inline void
timerfd_watch(struct subject *subject, int fd, void *timeout)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = timeout};

	perf_must(
	    !epoll_ctl(subject->epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

static inline void
kernel_open(struct subject *subject, uint64_t capacity)
{
	uint64_t needed = capacity + TIMERFD_SPARE;

	peer_limit(RLIMIT_NOFILE, needed, "RLIMIT_NOFILE");
	if (perf_proc("/proc/sys/fs/epoll/max_user_watches", "") < needed)
		perf_skip("epoll's max_user_watches is too low");
	subject->epoll = epoll_create1(EPOLL_CLOEXEC);
	subject->stop = eventfd(0, EFD_CLOEXEC);
	timerfd_watch(subject, subject->stop, NULL);
	perf_start(&subject->worker, timerfd_worker, subject);
}

static inline void
kernel_close(struct subject *subject)
{
	eventfd_write(subject->stop, 1);
	pthread_join(subject->worker, NULL);
	close(subject->stop);
	close(subject->epoll);
}

static inline void
kernel_make(struct subject *subject, struct kernel_timeout *timeout)
{
	timeout->timer =
	    timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	perf_must(timeout->timer >= 0, "timerfd_create");
	timerfd_watch(subject, timeout->timer, timeout);
}

static inline void
kernel_unmake(const struct kernel_timeout *timeout)
{
	close(timeout->timer);
}

/* From now on. */
static inline uint64_t
kernel_due_ns(uint64_t delay_ns)
{
	return delay_ns ? delay_ns : 1;
}

static inline void
kernel_set(const struct kernel_timeout *timeout, uint64_t due_ns)
{
	struct itimerspec due = {.it_value = peer_timespec(due_ns)};

	perf_must(
	    !timerfd_settime(timeout->timer, 0, &due, NULL), "timerfd_settime");
}
