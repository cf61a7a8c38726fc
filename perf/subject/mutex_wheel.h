/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mutex_wheel, the baseline, and its variants: see perf/mutex_wheel.h.
 *
 *   _adaptive  with a mutex that spins for a while before it sleeps, which is
 *              glibc's alone
 *   _spin      with a lock that only spins, for processors that nobody else
 *              wants: whoever waits for a holder that does not run burns its
 *              whole time slice
 *   _at        with deadlines, in a loop that reads the clock once per turn, as
 *              hwt_at has them
 *   _embedded  without malloc
 *   _lazy      notes a connection's activity without the lock, and looks at it
 *              when the timeout is due; deadlines as in _at
 *   _sharded   at its best for threads that have loops of their own: each has a
 *              wheel and a mutex, which other threads lock only to cancel what
 *              is in it; embedded, with deadlines. One worker turns all wheels
 *   wheel      without any lock or atomic operation, for the one thread that
 *              turns it: what a program with a loop per thread would take, and
 *              what there is to save where no other thread cancels. Embedded;
 *              deadlines count from the turn's time, as in libuv: one may be
 *              early by the length of a turn
 */
#include "perf/mutex_wheel.h"

#define SUBJECT_SINGLE (MUTEX_WHEEL_LOCK == MUTEX_WHEEL_NONE)
#define SUBJECT_MAY_BE_EARLY SUBJECT_SINGLE
#define SUBJECT_KEEPS_HANDLE 1
#define SUBJECT_TICK_ORDER 1
#define SUBJECT_TELLS 1
#define SUBJECT_WHEELS 1

typedef struct mutex_wheel_timeout *subject_handle;

struct subject {
	struct mutex_wheel *wheel;
};

static inline const char *
subject_version(void)
{
	return "a hashed wheel, as perf/mutex_wheel.h says";
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
