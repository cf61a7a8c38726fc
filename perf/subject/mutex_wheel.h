/* SPDX-License-Identifier: Apache-2.0 */
/* The baseline: see perf/mutex_wheel.h. Its variants: mutex_wheel_at is given
 * deadlines, _spin spins, _sharded has a wheel for each thread and is given
 * deadlines, _lazy notes the activity and is given deadlines. */
#include "perf/mutex_wheel.h"

#define SUBJECT_TICK_ORDER 1

typedef struct mutex_wheel_timeout *subject_handle;

struct subject {
	struct mutex_wheel *wheel;
};

static inline const char *
subject_version(void)
{
	return "a hashed wheel behind a mutex, perf/mutex_wheel.h";
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = malloc(sizeof(*subject));

	(void)capacity;
	perf_must(subject, "malloc");
	subject->wheel = mutex_wheel_create(tick_ns, MUTEX_WHEEL_BUCKETS);
	perf_must(subject->wheel, "mutex_wheel_create");
	return subject;
}

static inline void
subject_destroy(struct subject *subject)
{
	mutex_wheel_destroy(subject->wheel);
	free(subject);
}

static inline uint64_t
subject_due_ns(uint64_t delay_ns)
{
	if (SUBJECT_DEADLINES && subject_turn_ns)
		return subject_turn_ns + delay_ns;
	return mutex_wheel_now_ns() + delay_ns;
}

static inline void
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct mutex_wheel_timeout *timeout =
	    mutex_wheel_schedule_at(subject->wheel, task, arg,
		subject_due_ns(delay_ns), handle != NULL);

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
	perf_must(mutex_wheel_reschedule_at(
		      subject->wheel, *handle, subject_due_ns(delay_ns)),
	    "rescheduling");
}
