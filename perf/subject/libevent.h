/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libevent: event_add, event_del, and event_add once more to reschedule. The
 * first delays that occur have a queue each, which is faster than its heap
 * (event_base_init_common_timeout); others are in the heap. The clock is
 * precise: the default one is coarse, and timeouts may start early with it.
 * libevent is for one thread, which turns the loop; libevent_mt has libevent's
 * own locks, and a thread that runs the loop.
 *
 * Who would call it unfair: who has the event in a connection, since malloc and
 * free take 5 ns of a pair; and who adds events in callbacks, where libevent
 * uses the time of the turn. Who pushes timeouts out for each packet notes the
 * activity instead: see mutex_wheel_lazy.
 */
#ifndef LIBEVENT_MT
#define LIBEVENT_MT 0
#endif
#define SUBJECT_SINGLE (!LIBEVENT_MT)

#include <event2/event.h>
#include <event2/event_struct.h>
#include <event2/thread.h>

enum {
	LIBEVENT_COMMON_MAX = 8
};

/* A holder of a handle frees it; otherwise it is freed after its task. */
struct libevent_timeout {
	struct event event;
	void (*task)(void *arg);
	void *arg;
	bool held;
	atomic_bool ended;
};

typedef struct libevent_timeout *subject_handle;

/* A delay that has a queue; event_add knows it by this pointer. */
struct libevent_common {
	uint64_t delay_ns;
	const struct timeval *known;
};

struct subject {
	struct event_base *base;
	pthread_t worker;
	pthread_mutex_t mutex; /* to add a common delay */
	atomic_uint commons;
	struct libevent_common common[LIBEVENT_COMMON_MAX];
};

static inline const char *
subject_version(void)
{
	static char version[64];

	snprintf(version, sizeof(version), "libevent %s", event_get_version());
	return version;
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
	struct event_config *config;

	(void)tick_ns;
	(void)capacity;
	perf_must(
	    subject && (!LIBEVENT_MT || !evthread_use_pthreads()), "threads");
	config = event_config_new();
	perf_must(config &&
		!event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER),
	    "event_config_new");
	subject->base = event_base_new_with_config(config);
	event_config_free(config);
	perf_must(subject->base, "event_base_new_with_config");
	pthread_mutex_init(&subject->mutex, NULL);
	if (LIBEVENT_MT)
		perf_start(&subject->worker, libevent_worker, subject);
	return subject;
}

/* Nobody cancels what is still pending: its memory stays. */
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

/* Freed last, so that no other timeout gets the address while libevent still
 * takes it for the event that it runs. */
static inline void
libevent_due(evutil_socket_t none, short events, void *arg)
{
	struct libevent_timeout *timeout = arg;
	bool held = timeout->held;

	(void)none;
	(void)events;
	atomic_store(&timeout->ended, true);
	timeout->task(timeout->arg);
	if (!held)
		free(timeout);
}

/* Rounded up, since a timeout must not be early. */
static inline struct timeval
libevent_timeval(uint64_t delay_ns)
{
	uint64_t us = delay_ns / 1000 + !!(delay_ns % 1000);

	return (struct timeval){
	    (time_t)(us / 1000000), (suseconds_t)(us % 1000000)};
}

/* NULL: there are as many queues as there may be. */
static inline const struct timeval *
libevent_new_common(struct subject *subject, uint64_t delay_ns)
{
	struct timeval delay = libevent_timeval(delay_ns);
	const struct timeval *known = NULL;
	unsigned commons;

	pthread_mutex_lock(&subject->mutex);
	commons = atomic_load(&subject->commons);
	if (commons < LIBEVENT_COMMON_MAX) {
		known = event_base_init_common_timeout(subject->base, &delay);
		subject->common[commons] =
		    (struct libevent_common){delay_ns, known};
		atomic_store(&subject->commons, commons + 1);
	}
	pthread_mutex_unlock(&subject->mutex);
	return known;
}

static inline void
libevent_add(struct subject *subject, struct libevent_timeout *timeout,
    uint64_t delay_ns)
{
	unsigned commons =
	    atomic_load_explicit(&subject->commons, memory_order_acquire);
	const struct timeval *known = NULL;
	struct timeval delay;
	unsigned i;

	for (i = 0; i < commons && !known; i++)
		if (subject->common[i].delay_ns == delay_ns)
			known = subject->common[i].known;
	if (!known && commons < LIBEVENT_COMMON_MAX)
		known = libevent_new_common(subject, delay_ns);
	if (!known) {
		delay = libevent_timeval(delay_ns);
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

/* event_del waits for a task that is running. */
static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	(void)subject;
	event_del(&timeout->event);
	if (atomic_load(&timeout->ended))
		subject_refused++;
	free(timeout);
}

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
