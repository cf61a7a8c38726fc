/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject mutex_wheel, the baseline: see perf/mutex_wheel.h.
 */
#include "perf/mutex_wheel.h"

#ifndef SUBJECT_NAME
#define SUBJECT_NAME "mutex_wheel"
#define SUBJECT_VERSION "one mutex round a wheel, coarse clock, malloc"
#endif
#ifndef SUBJECT_SINGLE
#define SUBJECT_SINGLE 0
#endif
/* Rescheduling leaves the handle as it is, from two threads at once, too. */
#define SUBJECT_KEEPS_HANDLE 1

/* Tasks of an earlier tick start first. */
#define SUBJECT_TICK_ORDER 1

#define SUBJECT_TELLS 1

/* The length of the wheel can be chosen. */
#define SUBJECT_WHEELS 1

/* Deadlines are from the begin of the loop's turn, where there is one. */
#ifndef SUBJECT_DEADLINES
#define SUBJECT_DEADLINES 0
#endif

typedef struct mutex_wheel_timeout *subject_handle;

struct subject {
	struct mutex_wheel *wheel;
};

static inline const char *
subject_version(void)
{
	return SUBJECT_VERSION;
}

static inline struct subject *
subject_create_wheel(uint64_t tick_ns, uint64_t capacity, uint64_t buckets)
{
	struct subject *subject = malloc(sizeof(*subject));

	(void)capacity;
	perf_must(subject, "malloc");
	subject->wheel = mutex_wheel_create(tick_ns, buckets);
	perf_must(subject->wheel, "mutex_wheel_create");
	return subject;
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	return subject_create_wheel(tick_ns, capacity, MUTEX_WHEEL_BUCKETS);
}

static inline void
subject_destroy(struct subject *subject)
{
	mutex_wheel_destroy(subject->wheel);
	free(subject);
}

static inline uint64_t
subject_due_ns(const struct subject *subject, uint64_t delay_ns)
{
	if (SUBJECT_DEADLINES && subject_turn_ns)
		return subject_turn_ns + delay_ns;
	return mutex_wheel_due_ns(subject->wheel, delay_ns);
}

static inline void
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct mutex_wheel_timeout *timeout =
	    mutex_wheel_schedule_at(subject->wheel, task, arg,
		subject_due_ns(subject, delay_ns), handle != NULL);

	perf_must(timeout, "malloc");
	if (handle)
		*handle = timeout;
}

static inline void
subject_cancel(struct subject *subject, subject_handle handle)
{
	if (!mutex_wheel_cancel(subject->wheel, handle))
		subject_refused++;
}

static inline void
subject_reschedule(
    struct subject *subject, subject_handle *handle, uint64_t delay_ns)
{
	perf_must(mutex_wheel_reschedule_at(subject->wheel, *handle,
		      subject_due_ns(subject, delay_ns)),
	    "rescheduling");
}

#define SUBJECT_TURNS 1
static inline void
subject_turn(struct subject *subject)
{
#if SUBJECT_SINGLE
	subject_turn_ns = mutex_wheel_now_ns(CLOCK_MONOTONIC);
	mutex_wheel_turn_until(subject->wheel, subject_turn_ns);
#else
	(void)subject;
#endif
}
