/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel, one timerfd per timeout in an epoll instance with a thread:
 * timerfd_settime to schedule, to cancel and to reschedule. Descriptors stay
 * open and in the epoll instance, for reuse, so that a pair is two system
 * calls. One that was disarmed after epoll reported it cannot be read, which
 * refuses it.
 *
 * Who would call it unfair: who has one timerfd for a heap of his own. This is
 * for those who want the kernel to keep their timers, with its precision.
 *
 * Skipped if RLIMIT_NOFILE or epoll's own limit does not allow as many.
 */

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

enum {
	TIMERFD_EVENTS = 256,
	/* Descriptors for other things. */
	TIMERFD_SPARE = 64
};

/* holders: the timer, and the owner of a handle. Under the mutex. */
struct timerfd_timeout {
	struct timerfd_timeout *next, *next_made;
	void (*task)(void *arg);
	void *arg;
	unsigned holders;
	bool pending;
	int fd;
};

typedef struct timerfd_timeout *subject_handle;

/* stop: written to stop; the only event without a timeout. */
struct subject {
	_Alignas(64) pthread_mutex_t mutex;
	struct timerfd_timeout *idle, *made;
	int epoll, stop;
	pthread_t worker;
};

static inline const char *
subject_version(void)
{
	return "timerfd of the kernel";
}

static inline void
timerfd_release(struct subject *subject, struct timerfd_timeout *timeout)
{
	if (--timeout->holders)
		return;
	timeout->next = subject->idle;
	subject->idle = timeout;
}

/* One that epoll has reported; false: it was disarmed since. */
static inline bool
timerfd_take_due(struct subject *subject, struct timerfd_timeout *timeout)
{
	uint64_t expired;
	bool pending;

	if (read(timeout->fd, &expired, sizeof(expired)) != sizeof(expired))
		return false;
	pthread_mutex_lock(&subject->mutex);
	pending = timeout->pending;
	timeout->pending = false;
	pthread_mutex_unlock(&subject->mutex);
	return pending;
}

static inline void *
timerfd_worker(void *arg)
{
	struct subject *subject = arg;
	struct epoll_event events[TIMERFD_EVENTS];
	struct timerfd_timeout *timeout;
	int count, i;

	while (true) {
		count = epoll_wait(subject->epoll, events, TIMERFD_EVENTS, -1);
		for (i = 0; i < count; i++) {
			timeout = events[i].data.ptr;
			if (!timeout)
				return NULL;
			if (!timerfd_take_due(subject, timeout))
				continue;
			timeout->task(timeout->arg);
			pthread_mutex_lock(&subject->mutex);
			timerfd_release(subject, timeout);
			pthread_mutex_unlock(&subject->mutex);
		}
	}
}

static inline void
timerfd_watch(struct subject *subject, int fd, struct timerfd_timeout *timeout)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = timeout};

	perf_must(
	    fd >= 0 && !epoll_ctl(subject->epoll, EPOLL_CTL_ADD, fd, &event),
	    "epoll_ctl");
}

static inline void
timerfd_need(uint64_t needed)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		perf_skip("RLIMIT_NOFILE");
	if (limit.rlim_cur < needed)
		limit.rlim_cur = needed;
	if (limit.rlim_max < needed)
		limit.rlim_max = needed;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		perf_skip("RLIMIT_NOFILE cannot be %" PRIu64, needed);
	if (perf_proc("/proc/sys/fs/epoll/max_user_watches", "") < needed)
		perf_skip("epoll's max_user_watches is too low");
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = aligned_alloc(64, sizeof(*subject));

	(void)tick_ns;
	perf_must(subject, "aligned_alloc");
	timerfd_need(capacity + TIMERFD_SPARE);
	pthread_mutex_init(&subject->mutex, NULL);
	subject->idle = subject->made = NULL;
	subject->epoll = epoll_create1(EPOLL_CLOEXEC);
	subject->stop = eventfd(0, EFD_CLOEXEC);
	timerfd_watch(subject, subject->stop, NULL);
	perf_start(&subject->worker, timerfd_worker, subject);
	return subject;
}

static inline void
subject_destroy(struct subject *subject)
{
	struct timerfd_timeout *timeout;

	eventfd_write(subject->stop, 1);
	pthread_join(subject->worker, NULL);
	while ((timeout = subject->made)) {
		subject->made = timeout->next_made;
		close(timeout->fd);
		free(timeout);
	}
	close(subject->stop);
	close(subject->epoll);
	pthread_mutex_destroy(&subject->mutex);
	free(subject);
}

/* 0 disarms. */
static inline void
timerfd_set(const struct timerfd_timeout *timeout, uint64_t delay_ns)
{
	struct itimerspec due = {.it_value = {(time_t)(delay_ns / 1000000000u),
				     (long)(delay_ns % 1000000000u)}};

	perf_must(
	    !timerfd_settime(timeout->fd, 0, &due, NULL), "timerfd_settime");
}

/* Under the mutex. */
static inline struct timerfd_timeout *
timerfd_take(struct subject *subject)
{
	struct timerfd_timeout *timeout = subject->idle;

	if (timeout) {
		subject->idle = timeout->next;
		return timeout;
	}
	timeout = malloc(sizeof(*timeout));
	perf_must(timeout, "malloc");
	timeout->fd =
	    timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	timerfd_watch(subject, timeout->fd, timeout);
	timeout->next_made = subject->made;
	subject->made = timeout;
	return timeout;
}

static inline void
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct timerfd_timeout *timeout;

	pthread_mutex_lock(&subject->mutex);
	timeout = timerfd_take(subject);
	timeout->pending = true;
	timeout->task = task;
	timeout->arg = arg;
	timeout->holders = handle ? 2 : 1;
	pthread_mutex_unlock(&subject->mutex);
	if (handle)
		*handle = timeout;
	timerfd_set(timeout, delay_ns ? delay_ns : 1);
}

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	timerfd_set(timeout, 0);
	pthread_mutex_lock(&subject->mutex);
	if (timeout->pending)
		timeout->holders--;
	else
		subject_refused++;
	timeout->pending = false;
	timerfd_release(subject, timeout);
	pthread_mutex_unlock(&subject->mutex);
}

static inline void
subject_reschedule(
    struct subject *subject, subject_handle *handle, uint64_t delay_ns)
{
	(void)subject;
	timerfd_set(*handle, delay_ns ? delay_ns : 1);
}
