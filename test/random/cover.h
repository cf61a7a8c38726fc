/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a random run has covered: how often each call gave each answer, and how
 * often what is worth seeing happened. A long run in which one of those that
 * must occur did not has missed something, and says so.
 */
#ifndef HWT_TEST_RANDOM_COVER_H
#define HWT_TEST_RANDOM_COVER_H

#include <stdbool.h>
#include <stdint.h>

struct hwt_spec;

/* Calls, and the answers that must occur. */
#define CALLS(X)                                                  \
	X(hwt_create, "0 EINVAL")                                 \
	X(hwt_start, "EINVAL")                                    \
	X(hwt_stop, "0 EDEADLK EINVAL EPERM")                     \
	X(hwt_stop_within, "0 EDEADLK EINVAL EPERM")              \
	X(hwt_destroy, "0 EBUSY EPERM")                           \
	X(hwt_new_timeout, "0 EINVAL ENOBUFS ESHUTDOWN")          \
	X(hwt_new_timeout_on, "0 EINVAL ENOBUFS ESHUTDOWN")       \
	X(hwt_new_timeout_at, "0 EINVAL ENOBUFS ESHUTDOWN")       \
	X(hwt_new_periodic, "0 EINVAL ENOBUFS ESHUTDOWN")         \
	X(hwt_new_timeouts, "0 EINVAL ENOBUFS ESHUTDOWN")         \
	X(hwt_cancel, "0 EINPROGRESS ENOENT EINVAL")              \
	X(hwt_cancel_wait, "0 EDEADLK ENOENT EINVAL")             \
	X(hwt_reschedule, "0 EINPROGRESS ENOENT EINVAL")          \
	X(hwt_reschedule_at, "0 EINPROGRESS ENOENT EINVAL")       \
	X(hwt_touch, "0 EINPROGRESS EINVAL ENOBUFS ESHUTDOWN")    \
	X(hwt_remaining, "0 EINPROGRESS ENOENT EINVAL")           \
	X(hwt_state, "PENDING HANDED_OVER RUNNING ENOENT EINVAL") \
	X(hwt_now, "0 EINVAL")                                    \
	X(hwt_read_stats, "0 EINVAL")                             \
	X(hwt_run, "0 ENOENT EINVAL")                             \
	X(hwt_advance, "0 EDEADLK ESHUTDOWN EINVAL")              \
	X(hwt_next_wakeup, "0 EINVAL")                            \
	X(hwt_shared, "0 EINVAL")                                 \
	X(hwt_mailbox_create, "0 EINVAL")                         \
	X(hwt_mailbox_run, "0 EINVAL")                            \
	X(hwt_mailbox_destroy, "0 EBUSY")                         \
	X(hwt_pool_create, "EINVAL")                              \
	X(hwt_pool_destroy, "0")

/* The fields of struct hwt_spec that the model sets. One that hwt.h has besides
 * does not compile: cover.c. */
#define SPEC_FIELDS(X) X(task) X(arg) X(delay_ns) X(period_ns) X(executor)

#define EVENTS(X)                                                          \
	X(TASK_IN_WORKER, "a task ran in the worker")                      \
	X(TASK_IN_EXECUTE, "a task ran inside execute")                    \
	X(TASK_LATE, "an executor ran a task later")                       \
	X(TASK_FROM_MAILBOX, "a mailbox ran a task")                       \
	X(TASK_REFUSED, "a refused task ran in the worker")                \
	X(TASK_AFTER_STOP, "a task ran after stop")                        \
	X(TASK_NESTED, "a task ran inside another")                        \
	X(TASK_FAR, "a task ran that was 2^30 rounds away")                \
	X(TASK_SLOW, "a task took longer than slow_task_ns")               \
	X(REVOKED, "cancelled while an executor held it")                  \
	X(REVOKED_IN_EXECUTE, "cancelled inside its own execute")          \
	X(CANCELLED_QUEUED, "cancelled before it was placed")              \
	X(CANCELLED_PLACED, "cancelled in its bucket")                     \
	X(PERIOD_NEXT, "a periodic timeout came round")                    \
	X(PERIOD_COALESCED, "a periodic timeout missed runs")              \
	X(PERIOD_MOVED, "a periodic task moved itself")                    \
	X(PERIOD_ENDED, "a periodic timeout ended in its task")            \
	X(PULLED_IN, "rescheduled to an earlier tick")                     \
	X(PULLED_IN_ENTRY, "rescheduled to a tick before its entry")       \
	X(PUSHED_OUT, "rescheduled to a later tick")                       \
	X(PUSHED_OUT_ENTRY, "an entry moved to a later tick")              \
	X(REUSED, "scheduled in a record with an entry in time")           \
	X(QUEUED_FIRST, "queued, and the most urgent of its page")         \
	X(QUEUED_LATER, "queued on a page that is more urgent")            \
	X(DELAY_NONE, "scheduled with delay 0")                            \
	X(DELAY_NEVER, "scheduled with HWT_NEVER")                         \
	X(DELAY_BEYOND, "scheduled at or beyond 2^63-1 on the clock")      \
	X(DELAY_FAR, "scheduled 2^30 rounds away or more")                 \
	X(DEADLINE_PASSED, "scheduled for what has passed")                \
	X(DEADLINE_IN_TURN, "scheduled for a later tick of the same turn") \
	X(TOUCHED, "a touch moved a timeout")                              \
	X(TOUCHED_NEW, "a touch made a first timeout")                     \
	X(TOUCHED_HELD, "a touch replaced what an executor holds")         \
	X(TOUCHED_RUNNING, "a touch replaced a running timeout")           \
	X(RELATIVE, "scheduled with HWT_RELAXED")                          \
	X(BATCH_NONE, "a batch of none")                                   \
	X(BATCH_LARGE, "a batch of more than 64")                          \
	X(WOKEN, "wake was called")                                        \
	X(CLOCK_STALLED, "an advance at an unchanged clock")               \
	X(CLOCK_JUMPED, "an advance over more than a round")               \
	X(CLOCK_MOVED, "the clock moved on inside a task")                 \
	X(OTHER_THREAD, "a step on another thread")                        \
	X(HANDLE_FOREIGN, "another timer's live handle")                   \
	X(HANDLE_STALE, "a stale handle")                                  \
	X(HANDLE_FLIPPED, "a live handle with a bit flipped")              \
	X(HANDLE_RAW, "a random handle")                                   \
	X(UNPROCESSED, "returned by stop")                                 \
	X(UNPROCESSED_DROPPED, "dropped by stop")                          \
	X(SHARED_CACHE, "a record went through the shared cache")          \
	X(GROWN, "a timer with more than one slab")                        \
	X(PAGE_RELEASED, "pages were released")                            \
	X(PAGE_COMMITTED, "a page was used again")                         \
	X(SLAB_RETIRED, "a slab was released with its header")             \
	X(SLAB_OPENED, "an idle slab was opened again")                    \
	X(CHUNK_RELEASED, "chunks were released")                          \
	X(CHUNK_USED, "chunks that were released are used again")          \
	X(HOUSEKEEPING_LEFT, "an advance left housekeeping behind")

enum call {
#define X(name, answers) CALL_##name,
	CALLS(X)
#undef X
	CALL_COUNT
};

enum event {
#define X(name, text) EVENT_##name,
	EVENTS(X)
#undef X
	EVENT_COUNT
};

void cover_call(enum call call, int rc);
/* One that was accepted. */
void cover_spec(const struct hwt_spec *spec);
void cover_event(enum event event);
uint64_t cover_calls(void);
const char *cover_rc_name(int rc);

/* Prints the table; true when everything has occurred that must. */
bool cover_report(bool quiet);

#endif
