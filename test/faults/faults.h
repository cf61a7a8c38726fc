/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each call of the system that fails must leave: see faults.c.
 *
 *   system.c     what the library calls, made to fail; what it holds
 *   attempt.c    calls of hwt.h that are judged; timeouts that are counted
 *   sections.c   programs that together cover the interface
 *   faults.c     runs each section with each fault in a process of its own
 */
#ifndef HWT_TEST_FAULTS_H
#define HWT_TEST_FAULTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hwt.h"

/* In the order of the table in system.c. */
enum call {
	CALL_ABORT,
	CALL_ALIGNED_ALLOC,
	CALL_CALLOC,
	CALL_CLOCK_GETTIME,
	CALL_CLOCK_REALTIME,
	CALL_CLOSE,
	CALL_DPRINTF,
	CALL_EVENTFD,
	CALL_EVENTFD_READ,
	CALL_EVENTFD_WRITE,
	CALL_FFLUSH,
	CALL_FREE,
	CALL_FUTEX_WAIT,
	CALL_FUTEX_WAKE,
	CALL_GETRANDOM,
	CALL_MADVISE,
	CALL_MMAP,
	CALL_MUNMAP,
	CALL_NANOSLEEP,
	CALL_OPEN,
	CALL_PTHREAD_ATFORK,
	CALL_PTHREAD_ATTR_GETDETACHSTATE,
	CALL_PTHREAD_COND_INIT,
	CALL_PTHREAD_COND_TIMEDWAIT,
	CALL_PTHREAD_COND_WAIT,
	CALL_PTHREAD_CONDATTR_INIT,
	CALL_PTHREAD_CONDATTR_SETCLOCK,
	CALL_PTHREAD_CREATE,
	CALL_PTHREAD_JOIN,
	CALL_PTHREAD_KEY_CREATE,
	CALL_PTHREAD_SETNAME_NP,
	CALL_PTHREAD_SETSPECIFIC,
	CALL_PTHREAD_TRYJOIN_NP,
	CALL_READ,
	CALL_SYSCONF,
	CALL_VFPRINTF,
	CALLS,
	CALL_NONE = CALLS
};

#define ERRORS_MAX 6
/* As an error: the call does nothing and says that it has. */
#define SPURIOUS 9999
/* As an error: it answers less than was asked for. */
#define SHORT 9998

/* A call that is made to fail: the name by which the library imports it, the
 * name by which we tell it apart, and with what it fails. */
struct swept {
	const char *import;
	const char *name;
	int errors[ERRORS_MAX];
	/* Only reached when that one fails, so that it does, always. */
	enum call with;
	int with_error;
	/* It cannot fail for good: see the table. */
	bool passing;
};

extern const struct swept swept[CALLS];

/* What fails in this process. */
struct fault {
	enum call call;
	int error;
	uint64_t nth;
	bool permanent; /* all calls from the nth on */
};

/* As the environment says, which also reaches what runs before main. */
const struct fault *fault_here(void);
void fault_off(void);
/* When that was; 0: not yet. */
uint64_t fault_off_ns(void);
bool fault_is_on(void);
/* How often it has struck; how many calls there were of a kind. */
uint64_t fault_injected(void);
uint64_t fault_calls(enum call call);
const char *error_name(int error, char *buffer);

/* What the library holds. */
struct balance {
	int64_t bytes; /* mapped; without what could not be unmapped */
	int64_t blocks; /* of the heap */
	int64_t fds;
	int64_t threads; /* made and not joined */
};

struct balance balance_now(void);

/* The clock as it is. */
uint64_t now_ns(void);
void pause_ns(uint64_t ns);

/* Ends the process as a failure. */
void fail(const char *format, ...)
    __attribute__((noreturn, format(printf, 1, 2)));
#define CHECK(condition)       \
	((condition) ? (void)0 \
		     : fail("%s:%d: %s", __FILE__, __LINE__, #condition))

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
/* Each timeout has ended once. */
void timeouts_settle(void);

struct section {
	const char *name;
	void (*run)(void);
};

extern const struct section sections[];

/* Ends this process as one that passed; as one that aborted as it should. */
_Noreturn void section_end(void);
_Noreturn void section_abort(void);

#endif
