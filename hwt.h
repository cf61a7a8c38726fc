/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt - a hashed wheel timer for network programs.
 *
 * Any thread can schedule, cancel and reschedule timeouts, in constant time and
 * without a lock. One worker thread turns a wheel of buckets (Varghese &
 * Lauck's scheme 6). When a timeout is due, the worker runs its task or hands
 * the timeout over to an executor. The behaviour follows Netty's
 * HashedWheelTimer. hwt(7) explains memory, forks, sandboxes and environment.
 *
 * TEN FUNCTIONS are all that most programs call. int functions return 0 or a
 * negative errno value; durations are in nanoseconds: HWT_MS(250), HWT_SEC(30).
 *
 *   hwt_create(&timer, NULL)
 *       Makes a timer with a tick of 100 ms; options set another one. Its
 *       thread starts with the first timeout. One timer serves a process.
 *   hwt_new_timeout(timer, &timeout, task, arg, delay_ns)
 *       Runs task(timeout, arg) once, in the timer's thread, after delay_ns
 *       rounded up to the next tick. Keep the handle to cancel or move it.
 *   hwt_new_timeout_on(timer, executor, &timeout, task, arg, delay_ns)
 *       The same, but an executor runs the task: a pool of threads for tasks
 *       that block, or the mailbox of an event loop for its own thread.
 *   hwt_new_periodic(timer, NULL, &timeout, task, arg, delay_ns, period_ns)
 *       Runs task after delay_ns and then in each period, until it is
 *       cancelled. Runs never overlap; missed ones coalesce.
 *   hwt_touch(timer, NULL, &timeout, task, arg, delay_ns)
 *       For idle timeouts, called per request: pushes the deadline out, or
 *       schedules where there is none. The first time, timeout is {0}.
 *   hwt_reschedule(timer, timeout, delay_ns)
 *       Moves the deadline of a pending timeout, earlier or later. The handle
 *       stays the same. -EINPROGRESS: too late, its task is about to run.
 *   hwt_cancel(timer, timeout)
 *       0: the task has not started and never will; arg is yours again.
 *       -EINPROGRESS: it may be using arg now. -ENOENT: it has ended.
 *   hwt_cancel_wait(timer, timeout)
 *       The same, but it waits for a running task: call it before you free
 *       arg, not from that very task.
 *   hwt_stop(timer, NULL)
 *       When it returns 0, no task runs in the timer's thread, and none will.
 *       With a list instead of NULL, you get what was still pending.
 *   hwt_destroy(timer)
 *       Frees a stopped timer. -EBUSY: an executor still holds timeouts of
 *       it; let it run them first.
 *
 * PROMISES
 *
 *   never-early     A task never starts before its deadline, on its clock.
 *   on-tick         Only earlier tasks, the machine, short housekeeping and
 *                   0.1 us per record that is due make a timeout late.
 *   once            Every accepted timeout ends exactly once: started,
 *                   cancelled, or returned by stop, whatever calls race.
 *   rounds          Delays have any length. A timeout of a later revolution
 *                   stays in its bucket, unread unless its entry moves.
 *   prompt-release  A record is free after hwt_cancel, in an executor after
 *                   hwt_run. Memory grows with live timeouts, not calls.
 *   quiet           The worker wakes only for the earliest deadline, even if
 *                   cancelled or moved, and once per long sleep to tidy up.
 *   catch-up        After a stall or suspend, empty ticks are skipped by
 *                   arithmetic, and due tasks run in tick order.
 *   tick-order      Tasks of an earlier tick come first; no order within a
 *                   tick, nor for deadlines that had passed when they were set.
 *   memory-order    A task sees what came before its scheduling or moving;
 *                   -ENOENT, or 0 of hwt_cancel_wait: what the task wrote.
 *   safe-handles    Every call accepts any handle, and refuses one that is not
 *                   live; it errs with a probability of at most 2^-32.
 *   signals         The worker blocks all signals except SIGSEGV, SIGBUS,
 *                   SIGFPE, SIGILL, SIGTRAP, SIGSYS and SIGPROF.
 *   fork            In a child, what was made before is inert: int functions
 *                   return -EOWNERDEAD, others 0, NULL or false; destroys free.
 *                   A fork in a task is safe: its copy ends in _exit or exec.
 *   no-exit-hang    A live timer does not keep a process from ending by exit or
 *                   return from main. dlclose does not unmap running code.
 *
 * NOT PROMISED: any order within a tick, wall-clock time, tasks that outlive
 * hwt_destroy, a callback on cancel: who ends a timeout owns its arg again.
 *
 * UNITS. Durations and clock readings are nanoseconds in uint64_t and never
 * wrap silently. Write HWT_MS(5): a bare 5000 is 5 us, and no compiler warns.
 *
 * ERRORS. On failure nothing has changed, but a handle argument is {0} and
 * *unprocessed all zero. A needed NULL is -EINVAL; destroys of NULL return 0.
 * In a child -EOWNERDEAD precedes others. Compilers warn of ignored results:
 * write (void)! before the call, or define HWT_NO_WARN_UNUSED.
 *
 * THREADS. [any]: any thread may call it. [cb]: a task of the timer may, too.
 * X: the caller must serialize the two; -: they may run at the same time.
 *
 *                                       1   2   3   4   5   6
 *   1  functions marked [any]           -   -   -   -   a   X
 *   2  hwt_advance, hwt_next_wakeup     -   X   -   -   a   X
 *   3  hwt_unprocessed_next, one list   -   -   X   -   -   X
 *   4  hwt_mailbox_run                  -   -   -   X   X   b
 *   5  destroy of a pool or mailbox     a   a   -   X   X   -
 *   6  hwt_destroy                      X   X   X   b   -   X
 *
 *   a  X for scheduling for that executor, handing over to it, posting to it
 *   b  X if the mailbox may run timeouts of that timer
 *
 * For the variable *timeout of hwt_touch see there. No function is
 * async-signal-safe. Tasks and callbacks must return, not leave by longjmp, an
 * exception, pthread_exit or cancellation, nor be cancelled in a call of hwt.
 *
 * PROGRESS. A lock-free call waits for no other thread, except in the kernel
 * when the timer grows. The worker does not wait for executors' threads.
 */
#ifndef HWT_H
#define HWT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined HWT_NO_WARN_UNUSED
#define HWT_MUST_CHECK
#elif defined __cplusplus && __cplusplus >= 201703L
#define HWT_MUST_CHECK [[nodiscard]]
#else
#define HWT_MUST_CHECK __attribute__((__warn_unused_result__))
#endif

#pragma GCC visibility push(default)

#define HWT_VERSION_MAJOR 1
#define HWT_VERSION_MINOR 0
#define HWT_VERSION_PATCH 0

/* Durations in nanoseconds; the argument may be a fraction: HWT_SEC(0.5). What
 * does not fit into 64 bits (a fraction: 63 bits) is not checked. A negative
 * one is -EINVAL as a delay, but from -2 ns to 0 it is 0 or HWT_NEVER. */
#define HWT_NS(n) ((uint64_t)(int64_t)(UINT64_C(1) * HWT_WIDE(n)))
#define HWT_US(n) ((uint64_t)(int64_t)(UINT64_C(1000) * HWT_WIDE(n)))
#define HWT_MS(n) ((uint64_t)(int64_t)(UINT64_C(1000000) * HWT_WIDE(n)))
#define HWT_SEC(n) ((uint64_t)(int64_t)(UINT64_C(1000000000) * HWT_WIDE(n)))
#define HWT_MIN(n) ((uint64_t)(int64_t)(UINT64_C(60000000000) * HWT_WIDE(n)))
/* Used by these: a whole number as uint64_t, a fraction as it is. */
#define HWT_WIDE(n) ((__typeof__(UINT64_C(1) * (n)))(n))

/* As a delay or deadline: never due. As a wait: no limit, or nothing to do. */
#define HWT_NEVER UINT64_MAX

/* A timer: one wheel, one worker thread. */
struct hwt;

/* A handle, by value; it can be copied. {0} is never a handle. It is refused
 * when its timeout has ended. It is no capability: whoever has seen some can
 * compute others. */
typedef struct hwt_timeout {
	uint64_t id;
} hwt_timeout;

/* Never a handle. hwt_touch of a variable that has this value returns
 * -ECANCELED: see there. For all other calls it has ended: -ENOENT. */
#define HWT_CLOSED HWT_LITERAL(hwt_timeout, UINT64_MAX)
#ifdef __cplusplus
#define HWT_LITERAL(type, value) (type{value})
#else
#define HWT_LITERAL(type, value) ((type){value})
#endif

/* A task. Its arguments are its own handle and the arg that it was scheduled
 * with. It runs in the worker, or where its executor runs it. It may call all
 * functions marked [cb]. A task that blocks the worker delays all others, and a
 * program that it starts inherits blocked signals, SIGTERM too: see hwt(7). */
typedef void hwt_task(hwt_timeout timeout, void *arg);

/* Takes over due timeouts. The worker calls execute once for each: 0 accepts
 * it, and hwt_run must then be called for it once, on any thread, now or later.
 * Anything else refuses it: that is counted and logged, and the task runs in
 * the worker, unless execute has run it. execute may call the functions marked
 * [cb]. It must outlive its timeouts; one of your own, until stop. */
struct hwt_executor {
	int (*execute)(void *ctx, struct hwt *timer, hwt_timeout timeout);
	void *ctx;
};

/* A clock that never goes back, in nanoseconds below 2^63. It is called from
 * any thread. It must neither call the timer nor fork. */
struct hwt_clock {
	uint64_t (*now_ns)(void *ctx);
	void *ctx;
};

/* wake tells the thread that turns a manual timer to call hwt_next_wakeup
 * again. Any thread calls it. It must not call the timer. */
struct hwt_wake {
	void (*wake)(void *ctx);
	void *ctx;
};

/* write gets warnings: one line without a newline, and a level of syslog(3). It
 * may call the functions that execute may; the worker waits for it. */
struct hwt_log {
	void (*write)(void *ctx, int level, const char *message);
	void *ctx;
};

/* No worker: one thread turns the wheel with hwt_advance. */
#define HWT_MANUAL 1u

/* All zero: the defaults, given below. hwt_create copies the structures behind
 * the const pointers, except thread_attr; their ctx must outlive the timer. A
 * value outside its range is -EINVAL; nothing is clamped silently. */
struct hwt_options {
	/* 10 us and up; 0: 100 ms. Boundaries are the clock at hwt_create plus
	 * n times tick_ns; a deadline belongs to the first at or after it that
	 * has not been begun. tick_ns times ticks_per_wheel is below 2^63. */
	uint64_t tick_ns;
	/* 1 .. 2^30, rounded up to a power of two; 0: 512. */
	uint32_t ticks_per_wheel;
	uint32_t flags; /* HWT_MANUAL */
	/* Strict limit of pending timeouts; 0: none. A place is free again when
	 * hwt_cancel has returned 0, and before a one-shot task begins. */
	uint64_t max_pending;
	/* A task or an execute that holds the worker longer is counted, and
	 * logged at most once a second; 0: off. */
	uint64_t slow_task_ns;
	/* Of timeouts scheduled without an executor; NULL: the worker. */
	const struct hwt_executor *executor;
	/* NULL: CLOCK_MONOTONIC. Another clock only with HWT_MANUAL. */
	const struct hwt_clock *clock;
	/* Only with HWT_MANUAL; NULL: nothing is called. */
	const struct hwt_wake *wake;
	const struct hwt_log *log; /* NULL: stderr; never waits */
	/* At most 15 bytes; NULL: "hwt-worker". Copied. */
	const char *thread_name;
	/* Not detached; lives until the worker starts. NULL: defaults. */
	const pthread_attr_t *thread_attr;
	/* Must be 0, as in all structures that a call reads. */
	uint64_t reserved[8];
};

/* Filled in by hwt_unprocessed_next. */
struct hwt_timeout_info {
	hwt_timeout timeout;
	hwt_task *task;
	void *arg;
	/* At the call of stop; negative: overdue; INT64_MAX: never due. */
	int64_t remaining_ns;
	uint64_t period_ns;
	/* The one it was scheduled with; NULL: the timer's. */
	const struct hwt_executor *executor;
	uint64_t reserved[2];
};

/* The timeouts that stop returned. Walking the list does not change count. */
struct hwt_unprocessed {
	uint64_t count;
	uint64_t private_words[7];
};

/* Counters only grow, except pending and memory_bytes. A timeout that stop has
 * returned counts in scheduled and nowhere else. */
struct hwt_stats {
	/* scheduled: timeouts accepted. started: tasks begun, each run of a
	 * periodic one. cancelled: by hwt_cancel, hwt_cancel_wait, and in an
	 * executor by hwt_touch. rescheduled: deadlines moved. */
	uint64_t scheduled, started, cancelled, rescheduled;
	/* Refused because of max_pending; refused by executors. */
	uint64_t rejected, executor_refused;
	/* ticks: boundaries that the worker has begun, not those skipped.
	 * wakeups: returns of the worker from sleep. late_ticks: begun more
	 * than one tick after their boundary. slow_tasks: see slow_task_ns. */
	uint64_t pending, ticks, wakeups, late_ticks, slow_tasks;
	/* Start or hand-over minus deadline; the clock is read at least once
	 * per 16 timeouts. Element k counts [2^k, 2^(k+1)) ns. */
	uint64_t lateness_ns_max, lateness_ns_histogram[64];
	/* Memory of the timer: records, wheel in full, caches of threads. */
	uint64_t memory_bytes;
	uint64_t reserved[16];
};

/* Makes a timer; it has no thread yet. options may be NULL: the defaults. The
 * process is warned once when more than 64 workers run: one timer is enough.
 * [any][cb]. The caller owns *timer and ends it with hwt_stop and hwt_destroy.
 * -EINVAL  an option is out of range, a reserved word or an unknown flag is
 *          set, clock or wake is given without HWT_MANUAL, a structure's
 *          function is NULL, or thread_attr is detached
 * -EAGAIN, -ENOMEM  CLOCK_MONOTONIC cannot be read; no memory */
HWT_MUST_CHECK
int hwt_create(struct hwt **timer, const struct hwt_options *options);

/* Starts the worker now instead of at the first timeout, with the main thread's
 * priority: hwt(7). Idempotent, also after a failure. [any][cb].
 * -EINVAL     a manual timer
 * -ESHUTDOWN  stopped, or being stopped
 * -EAGAIN, -ENOMEM  no thread can be created, or not with thread_attr */
int hwt_start(struct hwt *timer);

/* Stops the timer. When it returns 0: the worker's thread has ended, and no
 * task runs or will start there; hwt_new_timeout* return -ESHUTDOWN; and all
 * timeouts that were neither started, cancelled nor handed over are cancelled
 * and are in *unprocessed, each once. If unprocessed is NULL, they are dropped.
 * The first call that returns 0 gets the list; later ones get count 0. A run of
 * a periodic timeout that is under way or handed over is its last. Timeouts
 * that executors hold can still run until hwt_run was called for each.
 * hwt_stop_within waits at most wait_ns for the worker, which takes time to end
 * even if no task runs. [any], not from a task.
 * -ETIMEDOUT  hwt_stop_within: stopping continues; call again to get the list
 * -EDEADLK  called from a task of this timer, in whatever thread, or from a
 *           destructor of thread-specific data in its worker
 * -EPERM    the shared timer */
HWT_MUST_CHECK
int hwt_stop(struct hwt *timer, struct hwt_unprocessed *unprocessed);
HWT_MUST_CHECK
int hwt_stop_within(
    struct hwt *timer, uint64_t wait_ns, struct hwt_unprocessed *unprocessed);

/* Gets the next unprocessed timeout; false at the end. Allocates nothing; the
 * list is valid until hwt_destroy. Its handles have ended. */
bool hwt_unprocessed_next(
    struct hwt_unprocessed *unprocessed, struct hwt_timeout_info *info);

/* Frees the timer, after stop and the end of its executors. No other call on
 * the timer may be under way, and none may follow. [any]
 * -EBUSY  not stopped, or hwt_run has not returned for each timeout that was
 *         handed over, also cancelled ones (hwt_cancel_wait returns earlier)
 * -EPERM  the shared timer */
HWT_MUST_CHECK
int hwt_destroy(struct hwt *timer);

/* Runs task once, with arg, after delay_ns; never inside this call. executor
 * takes it over when due and must outlive it; NULL: the timer's. *timeout
 * becomes its handle before the task can start; timeout may be NULL. A delay of
 * 0 counts as 1 ns. HWT_NEVER, and a deadline at or beyond 2^63-1 on the clock,
 * are never due and stay pending. Other delays of 2^63 and more are -EINVAL.
 * [any][cb]. Lock-free; never waits for the worker, except that the first call
 * starts the thread. arg is lent to the timeout until the task has returned,
 * hwt_cancel has returned 0, or stop has returned it.
 * -EINVAL     delay_ns is out of range, or executor->execute is NULL
 * -ESHUTDOWN  stopped, or being stopped
 * -ENOBUFS    max_pending is reached
 * -EAGAIN     no thread can be created for the worker
 * -ENOMEM     no memory, or no more records */
HWT_MUST_CHECK
int hwt_new_timeout(struct hwt *timer, hwt_timeout *timeout, hwt_task *task,
    void *arg, uint64_t delay_ns);
HWT_MUST_CHECK
int hwt_new_timeout_on(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t delay_ns);

/* Reads the timer's clock. Do so once per iteration of an event loop, and add
 * delays: calls with a deadline read none. [any][cb]. */
int hwt_now(const struct hwt *timer, uint64_t *now_ns);

/* Runs task once, at deadline_ns on the timer's clock, and never before it. As
 * hwt_new_timeout_on otherwise. A passed deadline is no error: the task runs at
 * the next boundary. HWT_NEVER, and all from 2^63-1 on, are never due.
 * [any][cb]. Lock-free. Errors as hwt_new_timeout. */
HWT_MUST_CHECK
int hwt_new_timeout_at(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t deadline_ns);

/* Schedules a periodic timeout: task runs after delay_ns, and then at first
 * deadline + n * period_ns. When a run has ended, the next is at the first of
 * these points after that. The handle is valid, and counts as pending, until it
 * is cancelled or the timer ends.
 * [any][cb]. Lock-free. Errors as hwt_new_timeout otherwise.
 * -EINVAL  period_ns is 0, or 2^63 or more */
HWT_MUST_CHECK
int hwt_new_periodic(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t delay_ns,
    uint64_t period_ns);

/* Cancels timeout. 0: the task has not started and never will, and the caller
 * owns arg again at once. [any][cb]. Lock-free, never waits, needs no memory.
 * -EINPROGRESS  it is running: nobody may free arg until the task has returned.
 *               A periodic one will not run again, nor reschedule itself
 * -ENOENT       it has ended, or never existed */
HWT_MUST_CHECK
int hwt_cancel(struct hwt *timer, hwt_timeout timeout);

/* Cancels timeout, and waits until its task is not running. 0: the caller owns
 * arg now. Only one call gets 0: the one that cancelled it before it started
 * or, for a running periodic one, the first hwt_cancel_wait. Others get
 * -ENOENT. Hold no lock that the task takes. Mutual waits deadlock.
 * [any][cb]. Waits while the task runs.
 * -ENOENT   it has ended, or never existed, or another call owns arg
 * -EDEADLK  called from that very task; a periodic timeout continues */
HWT_MUST_CHECK
int hwt_cancel_wait(struct hwt *timer, hwt_timeout timeout);

/* Moves the deadline. 0: the only deadline is now delay_ns from this call, or
 * deadline_ns on the timer's clock; the handle stays the same. Ranges are as
 * for hwt_new_timeout and hwt_new_timeout_at. The task of a periodic timeout
 * may reschedule it: later runs are whole periods after that deadline; -ENOENT
 * if the timer is being stopped.
 * [any][cb]. Lock-free, O(1), no allocation.
 * -EINPROGRESS  handed over to an executor, or running
 * -ENOENT       it has ended, or never existed
 * -EINVAL       delay_ns is out of range */
int hwt_reschedule(struct hwt *timer, hwt_timeout timeout, uint64_t delay_ns);
int hwt_reschedule_at(
    struct hwt *timer, hwt_timeout timeout, uint64_t deadline_ns);

/* Pushes an idle timeout out, or schedules it. If the one that *timeout names
 * is pending in the timer, it is rescheduled and keeps its handle, task, arg
 * and executor. Otherwise a new one is scheduled, as by hwt_new_timeout_on, and
 * *timeout becomes its handle before its task can start. {0}: none yet. Always
 * pass the same arg.
 *
 * One that has ended, is running, or is held by an executor is replaced. In an
 * executor it is cancelled once the new one exists, and may start before that.
 * A running task continues; let it do nothing if its handle is not *timeout.
 * Before you free arg, hwt_cancel_wait the old handle, too (copy it before the
 * call). A periodic timeout is replaced only in its last run.
 *
 * To close a connection, cancel the handle and set *timeout to HWT_CLOSED, else
 * a later touch revives it. The caller serializes all use of the variable.
 * [any][cb]. Lock-free. On failure *timeout stays too: it may name a live
 * timeout. Errors as hwt_new_timeout otherwise.
 * -ECANCELED    *timeout is HWT_CLOSED
 * -EINPROGRESS  a periodic timeout that is handed over or running */
HWT_MUST_CHECK
int hwt_touch(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t delay_ns);

#define HWT_STATE_PENDING 1 /* in the timer; its task has not started */
#define HWT_STATE_HANDED_OVER 2 /* an executor holds it */
#define HWT_STATE_RUNNING 3 /* its task is running */

/* Returns where a timeout is: HWT_STATE_PENDING, HWT_STATE_HANDED_OVER or
 * HWT_STATE_RUNNING, all positive; more may be added. *arg becomes its arg,
 * without owning it; arg may be NULL. The state can change at any time.
 * [any][cb]. Lock-free. On failure *arg does not change.
 * -ENOENT  it has ended, was cancelled or returned by stop, or never existed */
int hwt_state(struct hwt *timer, hwt_timeout timeout, void **arg);

/* Gets the time to the deadline; negative: overdue; INT64_MAX: never. [any][cb]
 * -EINPROGRESS  it is running
 * -ENOENT       it has ended, or never existed */
int hwt_remaining(
    struct hwt *timer, hwt_timeout timeout, int64_t *remaining_ns);

/* Returns the number of timeouts that were accepted and not yet started,
 * cancelled or returned: exact when nothing acts. NULL: 0. [any][cb]. */
uint64_t hwt_pending_timeouts(const struct hwt *timer);

/* Gets a snapshot of the counters. [any][cb]. */
int hwt_read_stats(const struct hwt *timer, struct hwt_stats *stats);

/* For executors of your own: starts a task that was handed over, unless it was
 * cancelled meanwhile; then it frees the record. [any][cb]. Call it once, on
 * any thread, also inside execute, but not if a pool or mailbox holds it.
 * -ENOENT  cancelled; or a second call, or not handed over: no effect */
int hwt_run(struct hwt *timer, hwt_timeout timeout);

/* Turns the wheel of a manual timer up to now. *tasks_started becomes the
 * number of tasks that this call itself has started; tasks_started may be NULL.
 * Housekeeping follows; the next call continues it. One thread at a time.
 * -EINVAL     not a manual timer
 * -EDEADLK    another hwt_advance of this timer is under way, also around it
 * -ESHUTDOWN  stopped, or being stopped */
int hwt_advance(struct hwt *timer, uint64_t *tasks_started);

/* Gets the time until a manual timer has something to do: 0 when something is
 * due, HWT_NEVER when there is nothing or the timer is stopped; in a task, or
 * with housekeeping left, at most the time to the next boundary. After it, the
 * first call that needs an earlier wake-up calls wake, once until the next
 * hwt_advance or hwt_next_wakeup. One thread at a time.
 * -EINVAL  not a manual timer */
int hwt_next_wakeup(struct hwt *timer, uint64_t *wait_ns);

/* Gets the process-wide timer: tick of 10 ms, made and started, as hwt_start
 * does, at the first call. Only hwt_shared_shutdown can stop it. [any][cb].
 * -EAGAIN, -ENOMEM  no thread can be created, or no clock read; call again
 * -ESHUTDOWN  after hwt_shared_shutdown */
HWT_MUST_CHECK
int hwt_shared(struct hwt **timer);

/* Stops the shared timer, as hwt_stop does, for good; the list stays valid
 * until exit. [any], not from a task.
 * -EDEADLK  called from a task of the shared timer */
HWT_MUST_CHECK
int hwt_shared_shutdown(struct hwt_unprocessed *unprocessed);

/* A function to run on another thread: put one first into a structure of your
 * own, and cast. It must live, unchanged, until the function has begun. */
struct hwt_post {
	uint64_t private_words[2];
};
typedef void hwt_posted(struct hwt_post *post);

/* An executor with threads of its own. */
struct hwt_pool;

/* Makes a pool of that many threads, named "hwt-pool"; they block the signals
 * that the worker blocks. queue_limit: timeouts and posts that can wait; 0:
 * 2^31-1. A full queue refuses. They are begun in order. [any][cb].
 * -EINVAL  threads is 0
 * -EAGAIN, -ENOMEM  not all threads can be created; none is left behind */
HWT_MUST_CHECK
int hwt_pool_create(
    struct hwt_pool **pool, unsigned threads, size_t queue_limit);

/* Returns the pool as an executor, valid until hwt_pool_destroy. [any][cb]. */
const struct hwt_executor *hwt_pool_executor(struct hwt_pool *pool);

/* Calls function(post) on a thread of the pool, in the order of arrival. The
 * function sees what the caller wrote before.
 * [any][cb]. Lock-free, no allocation.
 * -EAGAIN  the queue is full, or the pool is being destroyed */
HWT_MUST_CHECK
int hwt_pool_post(
    struct hwt_pool *pool, struct hwt_post *post, hwt_posted *function);

/* Runs what the pool holds, joins its threads and frees it. No timer may still
 * hand timeouts over to it, nor others post. [any], not from a task in it.
 * -EDEADLK  called from a task, or a posted function, in this pool */
HWT_MUST_CHECK
int hwt_pool_destroy(struct hwt_pool *pool);

/* An executor for an event loop; one mailbox per loop. */
struct hwt_mailbox;

/* Makes a mailbox. It never refuses a timeout. [any][cb].
 * -EMFILE, -ENFILE, -ENOMEM  no file descriptor left, or no memory */
HWT_MUST_CHECK
int hwt_mailbox_create(struct hwt_mailbox **mailbox);

/* Returns an eventfd that is readable while something is due. Watch it, do not
 * read or close it. With EPOLLET, call hwt_mailbox_run per event. [any][cb]. */
int hwt_mailbox_fd(const struct hwt_mailbox *mailbox);

/* Calls function(post) in hwt_mailbox_run; posts of one thread in the order of
 * its calls. The function sees what the caller wrote before. One that posts
 * itself runs again in the next hwt_mailbox_run.
 * [any][cb]. Lock-free, no allocation, cannot fail for valid arguments. */
int hwt_mailbox_post(
    struct hwt_mailbox *mailbox, struct hwt_post *post, hwt_posted *function);

/* Starts at most max tasks and posted functions on the calling thread; 0: all
 * that are there now. Each call first sorts all new ones, 7 ns each, whatever
 * max is. *tasks_started becomes the number of tasks without posts; it may be
 * NULL. After hwt_cancel has returned 0 on the loop's thread, the task does not
 * run, even if it was in the mailbox.
 * Call it on the loop's thread; a task that it runs may call it too. Another
 * thread can take over when the former one was joined, or under a lock. */
int hwt_mailbox_run(
    struct hwt_mailbox *mailbox, size_t max, size_t *tasks_started);

/* Returns the mailbox as an executor, valid until its destroy. [any][cb]. */
const struct hwt_executor *hwt_mailbox_executor(struct hwt_mailbox *mailbox);

/* Frees the mailbox, on the loop's thread. First take its fd out of epoll, stop
 * its timers, or cancel its timeouts; then call hwt_mailbox_run and this
 * function until it returns 0. No post may be under way.
 * -EBUSY  it holds posts or timeouts (including cancelled ones, which one more
 *         hwt_mailbox_run releases), or hwt_mailbox_run is running one */
HWT_MUST_CHECK
int hwt_mailbox_destroy(struct hwt_mailbox *mailbox);

/* Output formats of hwt_stats_write. */
enum hwt_format {
	/* Text format 0.0.4, with labels timer, the thread_name, and serial. */
	HWT_PROMETHEUS,
	/* An object on one line, with the names of struct hwt_stats. */
	HWT_JSON,
	/* For the second timer of an exposition: no # HELP, no # TYPE. */
	HWT_PROMETHEUS_SAMPLES
};

/* Writes the counters of hwt_read_stats to file and flushes it, whatever the
 * locale. After an error, a part may have been written. [any][cb].
 * -EINVAL  a NULL argument, or no such format
 * -EIO     the file could not be written; or the errno of the C library:
 *          -EBADF, -ENOSPC, -EPIPE, -EFBIG, or -EAGAIN */
int hwt_stats_write(
    const struct hwt *timer, FILE *file, enum hwt_format format);

/* Writes all that a stopped or a manual timer holds to file, as text for people
 * to read; the form may change. Changes by other threads may be missing.
 * [any] for a stopped timer; for a manual one, the thread that turns it,
 * outside hwt_advance.
 * -EBUSY   neither stopped nor manual; or being turned, or being stopped
 * -ENOMEM  no memory
 * -EIO     as hwt_stats_write, with the errnos named there */
int hwt_dump(const struct hwt *timer, FILE *file);

/* Returns the meaning of an error of this library. error is a result, or the
 * errno value without its sign; never NULL. [any][cb]. */
const char *hwt_strerror(int error);

/* Returns the version of the library that is linked, "1.0.0". [any][cb]. */
const char *hwt_version(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
