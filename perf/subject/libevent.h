/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libevent, a heap of timers in an event loop: evtimer_assign, event_add,
 * event_del, and event_add once more to reschedule. malloc per timeout, with
 * the struct event inside. The base is as event_base_new makes it on Linux:
 * epoll, and the clock CLOCK_MONOTONIC_COARSE, because of which a timeout may
 * start early by the period of the kernel's tick.
 *
 * Who would call it unfair: who has the event in a connection, since malloc and
 * free are 5 ns of a pair; and who adds events in callbacks, where libevent
 * uses a time that it has kept, and saves 4 ns. With both, a pair would still
 * take more than in libev. Who pushes timeouts out per packet notes the
 * activity instead: see mutex_wheel_lazy.h.
 *
 * The other subjects of libevent are this one with
 *
 *   LIBEVENT_MT      its own locks, and a thread that runs the loop
 *   LIBEVENT_COMMON  one queue for each of the first delays that are asked for,
 *                    instead of the heap (event_base_init_common_timeout)
 */
#ifndef LIBEVENT_MT
#define LIBEVENT_MT 0
#endif
#ifndef LIBEVENT_COMMON
#define LIBEVENT_COMMON 0
#endif
#define SUBJECT_SINGLE (!LIBEVENT_MT)
#define SUBJECT_TELLS 1
#define SUBJECT_KEEPS_HANDLE LIBEVENT_MT
/* Its clock is coarse. */
#define SUBJECT_MAY_BE_EARLY 1

#include <event2/event.h>
#include <event2/event_struct.h>
#if LIBEVENT_MT
#include <event2/thread.h>
#endif

#include "perf/peer.h"

enum {
	LIBEVENT_COMMON_MAX = 8
};

struct libevent_timeout {
	struct event event;
	void (*task)(void *arg);
	void *arg;
	/* Who holds the handle frees it. */
	bool held;
	atomic_bool ended;
};

typedef struct libevent_timeout *subject_handle;

/* A delay of which there is a queue; known stands for it in event_add. */
struct libevent_common {
	uint64_t delay_ns;
	const struct timeval *known;
};

struct subject {
	struct event_base *base;
	pthread_t worker;
	pthread_mutex_t mutex;
	_Atomic unsigned commons;
	struct libevent_common common[LIBEVENT_COMMON_MAX];
};

static inline const char *
subject_version(void)
{
	return peer_version("libevent", event_get_version());
}

static inline void *
libevent_worker(void *arg)
{
	struct subject *subject = arg;

	event_base_loop(subject->base, EVLOOP_NO_EXIT_ON_EMPTY);
	return NULL;
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = calloc(1, sizeof(*subject));

	(void)tick_ns;
	(void)capacity;
	perf_must(subject, "calloc");
	pthread_mutex_init(&subject->mutex, NULL);
#if LIBEVENT_MT
	/* The base takes its locks from there. */
	perf_must(!evthread_use_pthreads(), "evthread_use_pthreads");
#endif
	subject->base = event_base_new();
	perf_must(subject->base, "event_base_new");
	if (LIBEVENT_MT)
		perf_start(&subject->worker, libevent_worker, subject);
	return subject;
}

/* The blocks of what is pending stay: their holders do not cancel any more. */
static inline void
subject_destroy(struct subject *subject)
{
	/* Unlike a break, an exit is not lost on a loop that has not begun. */
	if (LIBEVENT_MT) {
		event_base_loopexit(subject->base, NULL);
		pthread_join(subject->worker, NULL);
	}
	event_base_free(subject->base);
	pthread_mutex_destroy(&subject->mutex);
	free(subject);
}

/* The block is freed last, so that no other timeout gets its address while
 * libevent still takes that for the event which it runs. */
static inline void
libevent_due(evutil_socket_t none, short what, void *arg)
{
	struct libevent_timeout *timeout = arg;
	bool held = timeout->held;

	(void)none;
	(void)what;
	atomic_store(&timeout->ended, true);
	timeout->task(timeout->arg);
	if (!held)
		free(timeout);
}

/* NULL: there are enough queues already. */
static inline const struct timeval *
libevent_new_common(struct subject *subject, uint64_t delay_ns)
{
	struct timeval delay = peer_timeval(delay_ns);
	struct libevent_common *common;
	unsigned commons;

	pthread_mutex_lock(&subject->mutex);
	commons = atomic_load(&subject->commons);
	common = &subject->common[commons];
	if (commons < LIBEVENT_COMMON_MAX) {
		common->delay_ns = delay_ns;
		common->known =
		    event_base_init_common_timeout(subject->base, &delay);
		atomic_store(&subject->commons, commons + 1);
	}
	pthread_mutex_unlock(&subject->mutex);
	return commons < LIBEVENT_COMMON_MAX ? common->known : NULL;
}

static inline const struct timeval *
libevent_common(struct subject *subject, uint64_t delay_ns)
{
	unsigned commons =
	    atomic_load_explicit(&subject->commons, memory_order_acquire);
	unsigned i;

	for (i = 0; i < commons; i++)
		if (subject->common[i].delay_ns == delay_ns)
			return subject->common[i].known;
	return commons < LIBEVENT_COMMON_MAX
	    ? libevent_new_common(subject, delay_ns)
	    : NULL;
}

static inline void
libevent_add(struct subject *subject, struct libevent_timeout *timeout,
    uint64_t delay_ns)
{
	const struct timeval *known =
	    LIBEVENT_COMMON ? libevent_common(subject, delay_ns) : NULL;
	struct timeval delay;

	if (!known) {
		delay = peer_timeval(delay_ns);
		known = &delay;
	}
	perf_must(!event_add(&timeout->event, known), "event_add");
}

static inline void
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct libevent_timeout *timeout = malloc(sizeof(*timeout));

	perf_must(timeout, "malloc");
	timeout->task = task;
	timeout->arg = arg;
	timeout->held = handle;
	atomic_init(&timeout->ended, false);
	evtimer_assign(&timeout->event, subject->base, libevent_due, timeout);
	if (handle)
		*handle = timeout;
	libevent_add(subject, timeout, delay_ns);
}

/* event_del waits for a task that is running, so that the block can go. */
static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	(void)subject;
	event_del(&timeout->event);
	if (atomic_load(&timeout->ended))
		subject_refused++;
	free(timeout);
}

/* An event that has ended could be added once more, but is one too many. */
static inline void
subject_reschedule(
    struct subject *subject, subject_handle *handle, uint64_t delay_ns)
{
	libevent_add(subject, *handle, delay_ns);
	perf_must(!atomic_load(&(*handle)->ended), "rescheduling");
}

#define SUBJECT_TURNS 1
static inline void
subject_turn(struct subject *subject)
{
	if (!LIBEVENT_MT)
		event_base_loop(subject->base, EVLOOP_NONBLOCK);
}
