/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel, one timerfd per timeout in an epoll instance: timerfd_settime to
 * schedule, to cancel and to reschedule. Descriptors stay open and in the epoll
 * instance, for reuse, so that a pair is two system calls.
 *
 * Who would call it unfair: who has one timerfd for a heap of his own. This is
 * for those who want the kernel to keep their timers, with its precision.
 *
 * Skipped if RLIMIT_NOFILE or epoll's own limit does not allow as many.
 */
#include <sys/epoll.h>
#include <sys/timerfd.h>

typedef int native_timer;

#include "perf/single.h"

enum {
	TIMERFD_EVENTS = 256
};

struct subject {
	struct single single;
	int epoll;
};

static inline const char *
subject_version(void)
{
	return "timerfd of the kernel";
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = calloc(1, sizeof(*subject));
	struct rlimit limit;

	(void)tick_ns;
	(void)capacity;
	perf_must(subject, "calloc");
	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	subject->epoll = epoll_create1(EPOLL_CLOEXEC);
	perf_must(subject->epoll >= 0, "epoll_create1");
	return subject;
}

static void
native_close(struct single_timeout *timeout)
{
	close(timeout->timer);
	free(timeout);
}

static inline void
subject_destroy(struct subject *subject)
{
	single_destroy(subject);
	close(subject->epoll);
	free(subject);
}

static void
native_init(struct subject *subject, struct single_timeout *timeout)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = timeout};

	timeout->timer =
	    timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (timeout->timer < 0 ||
	    epoll_ctl(subject->epoll, EPOLL_CTL_ADD, timeout->timer, &event))
		perf_skip("the system does not allow so many timerfds");
}

static inline void
timerfd_set(int fd, uint64_t delay_ns)
{
	struct itimerspec due = {.it_value = {(time_t)(delay_ns / 1000000000u),
				     (long)(delay_ns % 1000000000u)}};

	perf_must(!timerfd_settime(fd, 0, &due, NULL), "timerfd_settime");
}

static void
native_arm(
    struct subject *subject, struct single_timeout *timeout, uint64_t delay_ns)
{
	(void)subject;
	timerfd_set(timeout->timer, delay_ns);
}

static void
native_disarm(struct single_timeout *timeout)
{
	timerfd_set(timeout->timer, 0);
}

/* One that was disarmed or moved after epoll reported it cannot be read. */
static inline void
subject_turn(struct subject *subject)
{
	struct epoll_event events[TIMERFD_EVENTS];
	int count = epoll_wait(subject->epoll, events, TIMERFD_EVENTS, 0), i;
	struct single_timeout *timeout;
	uint64_t expired;

	for (i = 0; i < count; i++) {
		timeout = events[i].data.ptr;
		if (read(timeout->timer, &expired, sizeof(expired)) ==
		    sizeof(expired))
			single_due(timeout);
	}
}
