/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libevent: event_add, event_del, and event_add once more to reschedule. The
 * first delays that occur have a queue each, which is faster than its heap
 * (event_base_init_common_timeout); others are in the heap. The clock is
 * precise: the default one is coarse, and timeouts may start early with it.
 *
 * Who would call it unfair: who adds events in callbacks, where libevent uses
 * the time of the turn. Who pushes timeouts out for each packet notes the
 * activity instead: see mutex_wheel_lazy.
 */
#include <event2/event.h>
#include <event2/event_struct.h>

typedef struct event native_timer;

#include "perf/single.h"

enum {
	LIBEVENT_COMMON_MAX = 8
};

/* A delay that has a queue; event_add knows it by this pointer. */
struct libevent_common {
	uint64_t delay_ns;
	const struct timeval *known;
};

struct subject {
	struct single single;
	struct event_base *base;
	unsigned commons;
	struct libevent_common common[LIBEVENT_COMMON_MAX];
};

static inline const char *
subject_version(void)
{
	static char version[64];

	snprintf(version, sizeof(version), "libevent %s", event_get_version());
	return version;
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = calloc(1, sizeof(*subject));
	struct event_config *config = event_config_new();

	(void)tick_ns;
	(void)capacity;
	perf_must(subject && config &&
		!event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER),
	    "event_config_new");
	subject->base = event_base_new_with_config(config);
	event_config_free(config);
	perf_must(subject->base, "event_base_new_with_config");
	return subject;
}

static void
native_close(struct single_timeout *timeout)
{
	event_del(&timeout->timer);
	free(timeout);
}

static inline void
subject_destroy(struct subject *subject)
{
	single_destroy(subject);
	event_base_free(subject->base);
	free(subject);
}

static inline void
native_due(evutil_socket_t none, short events, void *arg)
{
	(void)none;
	(void)events;
	single_due(arg);
}

static void
native_init(struct subject *subject, struct single_timeout *timeout)
{
	evtimer_assign(&timeout->timer, subject->base, native_due, timeout);
}

/* Rounded up, since a timeout must not be early. */
static inline struct timeval
libevent_timeval(uint64_t delay_ns)
{
	uint64_t us = delay_ns / 1000 + !!(delay_ns % 1000);

	return (struct timeval){
	    (time_t)(us / 1000000), (suseconds_t)(us % 1000000)};
}

static void
native_arm(
    struct subject *subject, struct single_timeout *timeout, uint64_t delay_ns)
{
	struct timeval delay = libevent_timeval(delay_ns);
	const struct timeval *known = &delay;
	unsigned i;

	for (i = 0; i < subject->commons; i++)
		if (subject->common[i].delay_ns == delay_ns)
			known = subject->common[i].known;
	if (known == &delay && i < LIBEVENT_COMMON_MAX) {
		known = event_base_init_common_timeout(subject->base, &delay);
		subject->common[subject->commons++] =
		    (struct libevent_common){delay_ns, known};
	}
	perf_must(!event_add(&timeout->timer, known), "event_add");
}

static void
native_disarm(struct single_timeout *timeout)
{
	event_del(&timeout->timer);
}

static inline void
subject_turn(struct subject *subject)
{
	event_base_loop(subject->base, EVLOOP_NONBLOCK);
}
