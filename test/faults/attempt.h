/* SPDX-License-Identifier: Apache-2.0 */
/* For the sections of the library: calls of hwt.h that are judged, and timeouts
 * that are counted. */
#ifndef HWT_TEST_FAULTS_ATTEMPT_H
#define HWT_TEST_FAULTS_ATTEMPT_H

#include "test/faults/faults.h"

/*
 * RETRY(hwt_function, call of it, timer or NULL) body: until the call answers
 * 0. Each failure must be one that the fault explains and that hwt.h lists for
 * the function, and must leave the timer's counters as they were; then body is
 * executed, which checks the rest. A fault that is permanent is switched off
 * after the second failure.
 */
#define RETRY(function, expression, timer)                               \
	for (attempt_begin(#function, timer); !attempt_over(expression); \
	     attempt_begin(#function, timer))

void attempt_begin(const char *function, const struct hwt *timer);
bool attempt_over(int result);
/* Several threads use the timers: then what counters were says nothing. */
void attempts_race(bool race);

/* A timeout that is to end exactly once. */
struct timeout {
	hwt_timeout handle;
	uint64_t not_before_ns; /* by CLOCK_MONOTONIC; 0: another clock */
	uint64_t period_ns;
	_Atomic unsigned runs, ended;
	void (*then)(struct timeout *timeout);
	struct timeout *next;
	struct hwt *timer;
};

struct hwt *timer_make(const struct hwt_options *options);
/* Stops it; what is pending comes back, and so many timeouts do, when count is
 * not ANY. Then destroys it. */
#define ANY UINT64_MAX
void timer_end(struct hwt *timer, uint64_t count);
void timer_stop_all(struct hwt *timer, uint64_t count);
void list_take(struct hwt_unprocessed *list, uint64_t count);
void timer_destroy_all(struct hwt *timer);

struct timeout *schedule(struct hwt *timer, uint64_t delay_ns);
struct timeout *schedule_on(struct hwt *timer,
    const struct hwt_executor *executor, uint64_t delay_ns,
    void (*then)(struct timeout *));
/* count of them with one call; the first is returned, the others are next. */
struct timeout *schedule_at(struct hwt *timer, uint64_t delay_ns);
struct timeout *schedule_periodic(
    struct hwt *timer, uint64_t delay_ns, uint64_t period_ns);
struct timeout *schedule_touched(struct hwt *timer, uint64_t delay_ns);
struct timeout *schedule_batch(struct hwt *timer, size_t count,
    const struct hwt_executor *executor, uint64_t delay_ns, uint64_t period_ns);
void cancel(struct timeout *timeout);
/* Of a periodic timeout, which may be running. */
void cancel_and_wait(struct timeout *timeout);
void reschedule(struct timeout *timeout, uint64_t delay_ns);
/* Of one that is minutes away. */
void look_at(struct timeout *timeout);
/* Until the tasks have counted so far; until it has run so often. */
void await_count(const _Atomic unsigned *count, unsigned least);
void await_runs(struct timeout *timeout, unsigned runs);
/* Delays are not CLOCK_MONOTONIC's from now on. */
void timeouts_by_another_clock(bool another);

#endif
