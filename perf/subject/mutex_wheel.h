/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject mutex_wheel, the baseline: see perf/mutex_wheel.h.
 */
#ifndef SUBJECT_MUTEX_WHEEL_H
#define SUBJECT_MUTEX_WHEEL_H

#include <stdio.h>

#include "perf/mutex_wheel.h"

#ifndef SUBJECT_NAME
#define SUBJECT_NAME "mutex_wheel"
#define SUBJECT_VERSION "one mutex round an intrusive wheel"
#endif
#define SUBJECT_SINGLE 0
#define SUBJECT_STALE_SAFE 1
/* Rescheduling leaves the handle as it is, from two threads at once, too. */
#define SUBJECT_KEEPS_HANDLE 1

/* Tasks of an earlier tick start first. */
#define SUBJECT_TICK_ORDER 1

/* A cancel that finds nothing to cancel is counted, in its own thread. */
#define SUBJECT_TELLS 1
static _Thread_local uint64_t subject_refused;

/* The length of the wheel can be chosen. */
#define SUBJECT_WHEELS 1

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
	if (subject)
		subject->wheel = mutex_wheel_create(tick_ns, buckets);
	if (!subject || !subject->wheel) {
		fprintf(stderr, "mutex_wheel: no wheel\n");
		exit(2);
	}
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

/* handle may be NULL: then it cannot be cancelled. */
static inline bool
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct mutex_wheel_timeout *timeout = mutex_wheel_schedule(
	    subject->wheel, task, arg, delay_ns, handle != NULL);

	if (handle)
		*handle = timeout;
	return timeout;
}

static inline void
subject_cancel(struct subject *subject, subject_handle handle)
{
	if (!mutex_wheel_cancel(subject->wheel, handle))
		subject_refused++;
}

/* False: it has ended, or is about to. */
static inline bool
subject_reschedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	(void)task;
	(void)arg;
	if (mutex_wheel_reschedule(subject->wheel, *handle, delay_ns))
		return true;
	*handle = NULL;
	return false;
}

static inline void
subject_turn(struct subject *subject)
{
	(void)subject;
}

static inline uint64_t
subject_wakeups(struct subject *subject)
{
	return atomic_load(&subject->wheel->wakeups);
}

#endif
