/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt - a hashed wheel timer for network programs.
 *
 * Any thread schedules, cancels and reschedules timeouts in constant time,
 * without a lock. One worker thread turns a wheel of buckets (Varghese &
 * Lauck's scheme 6; Netty's HashedWheelTimer is the reference for behaviour)
 * and hands every timeout that is due to an executor.
 *
 * PROMISES
 *
 *   never-early      A task never starts before its delay has passed since
 *                    the call, by the timer's clock.
 *   on-tick          A timeout is handed over on its tick; later only by what
 *                    tasks before it took and by the machine. There is no cap
 *                    per tick: however fast others schedule and cancel, an
 *                    innocent timeout stays on time.
 *   once             Every accepted timeout ends exactly once: started,
 *                    cancelled, or given back by stop; also when all calls
 *                    race.
 *   rounds           Delays of any length, in any order of insertion. A
 *                    timeout of a later round costs the earlier rounds no
 *                    pointer chase.
 *   prompt-release   The record of a cancelled timeout serves another at the
 *                    latest one tick later, also when the worker was in a
 *                    long sleep, and at once when the worker has not placed it
 *                    yet. What waits in an executor is released when that
 *                    calls hwt_run. Memory follows the number of live
 *                    timeouts, never the rate of calls.
 *   quiet            Nothing pending: no wake-up at all. Otherwise none before
 *                    the earliest deadline, but one per superseded earliest
 *                    deadline, one per long sleep for the first call that
 *                    leaves work, and, when many thousand timeouts have ended,
 *                    one or two to give their memory back. Where hundreds that
 *                    were cancelled or pushed out lie in front of what is
 *                    pending, or more than 65536 buckets are in use, the worker
 *                    may wake now and then to look on. A producer makes at most
 *                    one wake-up call per sleep.
 *   catch-up         After a stall, SIGSTOP or suspend, empty ticks are
 *                    skipped by arithmetic and due ones run in tick order.
 *   tick-order       Tasks of an earlier tick are handed over before those of
 *                    a later one; inside one tick there is no order. A task
 *                    that re-arms with delay 0 does not hold the tick.
 *   memory-order     What a thread wrote before scheduling, the task reads; so
 *                    it does what was written before an hwt_reschedule that
 *                    returned 0, earlier or later, by whichever thread. What
 *                    the task wrote is seen by whoever got -ENOENT for it, or 0
 *                    from hwt_cancel_wait.
 *   safe-handles     Every call accepts any handle: stale, foreign, garbage.
 *                    It is refused unless it equals a live one; accidental
 *                    equality is at most 2^-32 per call.
 *   signals          The worker blocks all signals but SIGSEGV, SIGBUS,
 *                    SIGFPE, SIGILL, SIGTRAP, SIGSYS and SIGPROF.
 *   fork             In a child, every timer, pool and mailbox made before the
 *                    fork is inert: int functions answer -EOWNERDEAD, others
 *                    0, NULL or false; executors refuse; destroys, also of the
 *                    shared timer, free without joining and answer 0;
 *                    hwt_shared makes a new one. No fork deadlocks or
 *                    corrupts, whatever the worker was doing, also from a
 *                    task (the child's copy of that task may go on and must
 *                    end in _exit or exec).
 *   no-exit-hang     A live timer does not keep a process from ending by exit
 *                    or return from main; dlclose does not unmap running code.
 *                    Not so pthread_exit in main: the process then lives for as
 *                    long as any of its threads. A worker and a pool's threads
 *                    do not end by themselves and block SIGTERM and SIGINT;
 *                    with no other thread left, kill -9 alone ends it. Before
 *                    pthread_exit in main, stop the timers and destroy the
 *                    pools, or keep a thread that calls exit some day.
 *
 * NOT PROMISED: any order inside a tick, wall-clock time, tasks that outlive
 * hwt_destroy. There is no clean-up callback on cancel: whoever ends a timeout
 * holds its arg again.
 *
 * A CLOCK THAT CANNOT BE READ (where a sandbox forbids it) never makes a task
 * early. Calls that need it answer -EAGAIN, whatever the delay and the handle;
 * for the worker and for hwt_advance no time passes until it can be read again,
 * and the worker looks every tenth of a millisecond when something is due; a
 * periodic timeout goes on one period after its last deadline; hwt_next_wakeup
 * tells one tick; hwt_stop_within does not wait, but with HWT_NEVER; what
 * remained as of stop is told as of when the worker last turned the wheel.
 *
 * UNITS. Durations and clock readings are nanoseconds in uint64_t. They never
 * wrap silently: see hwt_new_timeout for the ends of the range.
 *
 * ERRORS. int functions return 0 or a negative errno value. On failure nothing
 * has changed, but that a handle argument, each of an array, is set to {0} and
 * *unprocessed to all zero. NULL where something is needed is -EINVAL; destroys
 * of NULL are 0. In a forked child, -EOWNERDEAD comes before every other answer
 * about a timer that was made before the fork. (On a kernel without
 * MADV_WIPEONFORK, forks are seen by a handler. When there is no memory for it
 * as the library is loaded, everything that makes something answers -ENOMEM.)
 *
 * THREADS. Marks on each function:
 *
 *   [any]   may be called from any thread, at the same time as any other call
 *           on the same timer but hwt_destroy
 *   [cb]    may also be called from a task of the same timer
 *
 * Nothing else needs to be serialized but this:
 *
 *   hwt_destroy              with every call on that timer
 *   hwt_advance, hwt_next_wakeup
 *                            with each other: one thread turns a manual timer
 *   hwt_unprocessed_next     with other walks of the same list, and with
 *                            hwt_destroy
 *   hwt_mailbox_run, hwt_mailbox_destroy
 *                            with each other: they belong to the loop's thread
 *   hwt_pool_destroy, hwt_mailbox_destroy
 *                            with scheduling for that executor: end the
 *                            timeouts, or stop the timers, first
 *
 * None of the functions is async-signal-safe. Tasks and callbacks must return:
 * no longjmp, no C++ exception, no pthread_exit or cancellation out of them.
 * Nor may a thread be cancelled in a call of this library: who uses
 * pthread_cancel disables it round such calls.
 *
 * PROGRESS. Lock-free means: no call waits for another thread, whatever that
 * one is doing. The exceptions are those calls that may make the timer grow,
 * hwt_new_timeout*: a lock guards getting memory from the system. The worker
 * hands over to a pool or a mailbox without waiting for their threads. A thread
 * keeps free records at hand for the first 8 timers that it uses; for others it
 * pays more per call, and so does a thread beyond the 1024 that can have free
 * records of one timer.
 *
 * SYSTEM CALLS. A sandbox must allow, for what is used of the library:
 *
 *   mmap, munmap, futex           everywhere
 *   clone3 or clone, and what     threads: the C library's calls
 *   else a thread takes, prctl
 *   clock_gettime                 where the C library cannot read the clock
 *                                 without a call; when it is refused, see A
 *                                 CLOCK THAT CANNOT BE READ
 *   write                         warnings on stderr; mailboxes
 *   eventfd2, read, close         mailboxes
 *
 * These should be allowed, and may fail with an error (a sandbox that kills
 * instead must allow them):
 *
 *   madvise                       forks are then seen by a handler, and memory
 *                                 is not given back
 *   getrandom                     generations of handles then begin at the
 *                                 clock
 *   clock_nanosleep, sched_yield  a short wait for another thread is then a
 *                                 busy one
 *   openat, read, close           hwt_create reads the name of the kernel's
 *                                 clock source and the number of processors;
 *                                 calls then take longer to read the clock
 *
 * ORDER OF CALLS. hwt_create, then anything, then hwt_stop; let executors
 * finish what they hold, until when hwt_destroy answers -EBUSY; hwt_destroy;
 * last the executors' own destroys. Once all its timers are stopped, a pool may
 * go before them: hwt_pool_destroy runs what it holds.
 */
#ifndef HWT_H
#define HWT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define HWT_VERSION_MAJOR 0
#define HWT_VERSION_MINOR 1
#define HWT_VERSION_PATCH 0

/* Durations in nanoseconds, also of fractions: HWT_SEC(0.5). A whole number
 * must be small enough for 64 bits, where HWT_MIN reaches 584 years; a fraction
 * for 63 bits. A negative argument makes a value that is -EINVAL as a delay,
 * but for a fraction that is less than 2 ns below 0: what is left of that in
 * whole nanoseconds is 0 or HWT_NEVER. */
#define HWT_US(n) ((uint64_t)(int64_t)(UINT64_C(1000) * HWT_WIDE(n)))
#define HWT_MS(n) ((uint64_t)(int64_t)(UINT64_C(1000000) * HWT_WIDE(n)))
#define HWT_SEC(n) ((uint64_t)(int64_t)(UINT64_C(1000000000) * HWT_WIDE(n)))
#define HWT_MIN(n) ((uint64_t)(int64_t)(UINT64_C(60000000000) * HWT_WIDE(n)))
/* For these: a whole number as uint64_t, a fraction as it is. */
#define HWT_WIDE(n) ((__typeof__(UINT64_C(1) * (n)))(n))

/* As a delay: never due, stays pending. As a wait: nothing to wait for. */
#define HWT_NEVER UINT64_MAX

/* A timer: one wheel, one worker thread. */
struct hwt;

/* A handle, by value; copy it freely. {0} is never one. It carries a
 * generation, so that it is refused once its timeout has ended. A generation
 * has 36 bits and starts at random: one record that is reused ten million
 * times a second comes round after two hours, and a handle kept that long
 * could then name a later timeout. */
typedef struct hwt_timeout {
	uint64_t id;
} hwt_timeout;

/* A task. It gets its own handle and the arg it was scheduled with. It runs in
 * the worker unless an executor takes it elsewhere. It may call everything
 * marked [cb]. A task that blocks the worker delays all others. */
typedef void hwt_task(hwt_timeout timeout, void *arg);

/*
 * Takes over a due timeout. execute is called by the worker, once for each
 * timeout that is due, and answers 0 to accept or anything else to refuse.
 * Whoever accepts calls hwt_run for the timeout once, on any thread, now or
 * later. What is refused is counted, logged once a second at most, and run in
 * the worker, so that nothing is lost.
 *
 * execute may call what is marked [cb]. hwt_stop and hwt_advance of the same
 * timer answer -EDEADLK there.
 *
 * An execute that calls hwt_run and then refuses: the task has run, and does
 * not run again; the refusal is counted and logged. An executor that accepts a
 * timeout and never calls hwt_run for it: the timeout stays pending and counts
 * in max_pending, until hwt_cancel gives arg back; its record is never used
 * again, stop does not list it, and hwt_destroy answers -EBUSY for good. Who
 * wants to drop work calls hwt_cancel, and then hwt_run, which answers -ENOENT.
 *
 * An executor must outlive its timeouts, and an execute that the worker is
 * about to call: a timeout can be cancelled in that very moment. The destroys
 * of this library's own executors wait for that; another executor is to be kept
 * until the timer has stopped.
 */
struct hwt_executor {
	int (*execute)(void *ctx, struct hwt *timer, hwt_timeout timeout);
	void *ctx;
};

/* A clock that never goes back, in nanoseconds below 2^63; called from any
 * thread. It must not call the timer. */
struct hwt_clock {
	uint64_t (*now_ns)(void *ctx);
	void *ctx;
};

/* Tells the thread that turns a manual timer that the wait which it got from
 * hwt_next_wakeup has become too long for an earlier deadline. Called from any
 * thread, inside the call that makes it so. It must not call the timer.
 * hwt_stop does not call it, but waits for an hwt_new_timeouts that is in it:
 * so do not stop the timer while holding a lock that wake takes. */
struct hwt_wake {
	void (*wake)(void *ctx);
	void *ctx;
};

/* Takes warnings; message is one line without its end. level is as in
 * syslog(3). Called by the worker, and by hwt_advance in its thread. write may
 * call what execute may. */
struct hwt_log {
	void (*write)(void *ctx, int level, const char *message);
	void *ctx;
};

/* No thread: one controlling thread turns the wheel with hwt_advance. Any
 * thread may schedule and cancel. */
#define HWT_MANUAL 1u

/* A delay counts from the tick at which the worker takes the timeout over (by
 * the clock as it is then), so that hwt_new_timeout* read no clock. A task
 * starts up to one tick later than without it, and by as much more as the
 * worker itself is late. Rescheduling still reads the clock. */
#define HWT_RELAXED 2u

/* Options of a timer. All zero: the defaults, named below. The structures
 * behind the const pointers are copied by hwt_create; their ctx must outlive
 * the timer. Anything outside the ranges is -EINVAL, never a silent clamp. */
struct hwt_options {
	/* The tick: 10 us and up; 0: 100 ms. Tick boundaries are the clock at
	 * hwt_create plus n times tick_ns. A deadline belongs to the first
	 * boundary at or after it that has not been begun. A delay of 0 asked
	 * for on a boundary belongs to the next one. tick_ns times the wheel's
	 * length must be below 2^63. */
	uint64_t tick_ns;
	/* The wheel's length: 1 .. 2^30, rounded up to a power of two; 0: 512.
	 * An empty bucket takes 24 bytes. One in use has chunks of 128 more,
	 * for up to 15 timeouts each: with few to a bucket, a timeout takes up
	 * to as much as that. */
	uint32_t ticks_per_wheel;
	/* HWT_MANUAL, HWT_RELAXED. */
	uint32_t flags;
	/* Strict limit of pending timeouts; 0: none. It is never exceeded, and
	 * never refuses while a place is free and nobody else is scheduling. A
	 * place is free again when hwt_cancel returned 0, and before the first
	 * instruction of a one-shot task. (Whatever the limit, at most
	 * 2^28-2^16 timeouts are live at once, 2^27 in wheels of more than
	 * 2^27: beyond that, -ENOMEM.) */
	uint64_t max_pending;
	/* A task, or an execute, that holds the worker longer is counted, and
	 * logged once a second of the timer's clock at most; 0: off. */
	uint64_t slow_task_ns;
	/* Gets every due timeout that names no executor of its own; NULL: tasks
	 * run in the worker. */
	const struct hwt_executor *executor;
	/* NULL: CLOCK_MONOTONIC. Another one only with HWT_MANUAL. */
	const struct hwt_clock *clock;
	/* Only with HWT_MANUAL; NULL: nobody is told. */
	const struct hwt_wake *wake;
	/* NULL: warnings go to stderr. */
	const struct hwt_log *log;
	/* At most 15 bytes; NULL: "hwt-worker". Copied. */
	const char *thread_name;
	/* Not detached. It is used when the worker starts and must live until
	 * then. NULL: the system's defaults. */
	const pthread_attr_t *thread_attr;
	/* Must be 0, as in all structures here. */
	uint64_t reserved[8];
};

/* One timeout to schedule with hwt_new_timeouts. */
struct hwt_spec {
	hwt_task *task;
	void *arg;
	uint64_t delay_ns;
	/* 0: once. Otherwise the task runs at fixed rate on the grid first
	 * deadline + n periods. When a run has ended, the next is at the first
	 * grid point after that moment: runs never overlap, and missed ones
	 * coalesce. The handle stays valid, and the timeout counts as pending,
	 * until it ends. A period of 2^63 or more is -EINVAL. */
	uint64_t period_ns;
	/* NULL: the timer's. Must outlive the timeout: see hwt_executor. */
	const struct hwt_executor *executor;
	uint64_t reserved[3];
};

/* One unprocessed timeout, as hwt_unprocessed_next tells it. */
struct hwt_timeout_info {
	hwt_timeout timeout;
	hwt_task *task;
	void *arg;
	/* As of stop; negative when overdue; INT64_MAX when never due. For a
	 * timeout of an HWT_RELAXED timer that the worker has not taken over
	 * yet: its delay. */
	int64_t remaining_ns;
	uint64_t period_ns;
	/* As it was scheduled with; NULL: the timer's. */
	const struct hwt_executor *executor;
	uint64_t reserved[2];
};

/* The list of what stop left unprocessed. count: how many there are in all;
 * walking does not change it. */
struct hwt_unprocessed {
	uint64_t count;
	uint64_t private_words[7];
};

/* Counters only grow, pending and memory_bytes aside. What stop gave back was
 * counted in scheduled, leaves pending, and is counted nowhere else. */
struct hwt_stats {
	/* Timeouts accepted; runs of tasks begun (each run of a periodic one);
	 * timeouts ended by a call that returned 0 from hwt_cancel or
	 * hwt_cancel_wait; calls of hwt_reschedule that returned 0. */
	uint64_t scheduled, started, cancelled, rescheduled;
	/* Timeouts refused by max_pending; hand-overs refused by executors. */
	uint64_t rejected, executor_refused;
	/* pending: as hwt_pending_timeouts. ticks: tick boundaries that the
	 * worker has begun (those that it slept over or skipped by arithmetic
	 * are not counted). wakeups: returns of the worker from sleep;
	 * 0 with HWT_MANUAL. late_ticks: ticks begun more than one tick after
	 * their boundary. slow_tasks: see slow_task_ns. */
	uint64_t pending, ticks, wakeups, late_ticks, slow_tasks;
	/* Lateness is the moment at which a timeout is started in the worker or
	 * handed to an executor, minus its deadline. The clock is read at each
	 * tick and at least once per 16 timeouts. Element k counts lateness in
	 * [2^k, 2^(k+1)) ns; 0 counts in element 0. */
	uint64_t lateness_ns_max, lateness_ns_histogram[64];
	/* Memory for records, queues and wheel; the wheel's buckets count in
	 * full, touched or not. What has ended is kept for reuse; after a peak,
	 * most of it goes back to the system, by the worker, or by an
	 * hwt_advance a quarter of a second or more after one that saw it spare
	 * (hwt_next_wakeup does not ask for either). Each thread that uses the
	 * timer keeps up to 128 free records, until it uses them or ends, and
	 * each of these may hold back a page of 4 KiB. */
	uint64_t memory_bytes;
	uint64_t reserved[16];
};

/*
 * Makes a timer; no thread yet. options may be NULL: the defaults. More than
 * 64 running workers: one warning per process, by the one that comes after
 * these, since one timer serves a whole process. Manual timers do not count.
 *
 * [any][cb]. On success *timer is owned by the caller, who ends it with
 * hwt_stop and hwt_destroy.
 * -EINVAL   an option is outside its range, a reserved word or an unknown flag
 *           is set, a clock or wake without HWT_MANUAL, a structure whose
 *           function is NULL, a detached thread_attr
 * -ENOMEM
 * -EAGAIN   the system's clock cannot be read
 */
int hwt_create(struct hwt **timer, const struct hwt_options *options);

/*
 * Starts the worker now instead of at the first timeout. Idempotent. When no
 * thread can be had, the timer stays startable; callers that raced for the
 * start all wait for its outcome and get it.
 *
 * [any][cb].
 * -EINVAL     a manual timer
 * -ESHUTDOWN  stopped, or being stopped
 * -EAGAIN     no thread to be had, or not as thread_attr asks for it
 * -ENOMEM     no memory for it
 */
int hwt_start(struct hwt *timer);

/*
 * Stops the timer. When it returns 0, no task runs in the worker or will start
 * there; hwt_new_timeout* answer -ESHUTDOWN; and what was accepted and neither
 * started nor was cancelled nor was handed to an executor is in *unprocessed
 * (or dropped, when unprocessed is NULL), cancelled, each once. Exactly one
 * call, the first that returns 0, gets the list; later ones get count 0. They
 * wait for the same end. A periodic timeout whose run is under way or handed
 * over: that run is its last. What executors hold may still run, until each
 * was given to hwt_run. The worker's thread has ended, and destructors of its
 * thread-specific data have returned.
 *
 * [any], not from a task. Waits for the task that is running in the worker.
 * -EDEADLK  from any task of this timer, in whatever thread, and from a
 *           destructor of thread-specific data in its worker. (Two workers
 *           whose destructors stop each other's timer do deadlock; it is told
 *           only where the system tells it.)
 * -EPERM    the shared timer
 */
int hwt_stop(struct hwt *timer, struct hwt_unprocessed *unprocessed);

/*
 * As hwt_stop, but waits at most wait_ns for a task that does not return. (A
 * start or an hwt_new_timeouts that is under way is waited for in any case.)
 * The worker takes a moment to end: after a short wait, 0 above all, it may be
 * -ETIMEDOUT though no task is running.
 *
 * -ETIMEDOUT  stopping goes on; call again: the list is still to be had
 */
int hwt_stop_within(
    struct hwt *timer, uint64_t wait_ns, struct hwt_unprocessed *unprocessed);

/*
 * Tells the next unprocessed timeout; false at the end. Walks the stopped
 * timer's own storage and allocates nothing; valid until hwt_destroy. The
 * handles are ended: they serve to find one's own records.
 *
 * One thread at a time per list.
 */
bool hwt_unprocessed_next(
    struct hwt_unprocessed *unprocessed, struct hwt_timeout_info *info);

/*
 * Frees everything. The order is: stop, let executors finish, destroy. No
 * other call on the timer may be under way, and none may follow. When one does,
 * and the memory was not used for something else meanwhile, a second
 * hwt_destroy says so on stderr and aborts, and other calls answer -EOWNERDEAD
 * or the like; nothing of this is to be relied on.
 *
 * [any]
 * -EBUSY  not stopped, or an executor still holds timeouts of it, cancelled
 *         ones included: each is to be given to hwt_run
 * -EPERM  the shared timer
 */
int hwt_destroy(struct hwt *timer);

/*
 * Runs task once, with arg, after delay_ns. *timeout becomes its handle, and
 * is written before the task can start; timeout may be NULL.
 *
 * [any][cb]. Lock-free, but for getting memory from the system when the timer
 * grows; never waits for the worker, the very first call's start of the thread
 * aside. arg is lent to the timeout until it ends: until the task has
 * returned, or hwt_cancel returned 0, or stop gave it back.
 *
 * The clock is CLOCK_MONOTONIC. Between readings of it that are 4 us apart at
 * most, x86-64's time stamp counter stands in, where that is the kernel's own
 * clock. It is taken to run fast, so that a deadline may lie up to 3 us later
 * than asked for, and never earlier.
 *
 * HWT_NEVER, and every deadline at or beyond 2^63-1 on the clock: never fires
 * and stays pending. Other delays of 2^63 and more are -EINVAL, since a
 * negative difference is a bug.
 * -EINVAL     task or timer is NULL, delay_ns out of range
 * -ESHUTDOWN  stopped, or being stopped
 * -ENOBUFS    max_pending
 * -EAGAIN     no thread to be had for the worker, or the clock cannot be read
 * -ENOMEM
 */
int hwt_new_timeout(struct hwt *timer, hwt_timeout *timeout, hwt_task *task,
    void *arg, uint64_t delay_ns);

/*
 * As hwt_new_timeout, handed to executor when due. executor must outlive the
 * timeout (see hwt_executor); NULL: the timer's.
 *
 * -EINVAL  also: executor->execute is NULL
 */
int hwt_new_timeout_on(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t delay_ns);

/*
 * Schedules the count timeouts that specs describe, all or none; their handles
 * go to timeouts, which may be NULL. count 0 is 0, whatever specs is. One
 * reading of the clock serves all. hwt_stop waits for a call that is under way.
 *
 * [any][cb]. Errors as hwt_new_timeout; -EINVAL also: specs is NULL, a
 * reserved word is set, a period is out of range.
 */
int hwt_new_timeouts(struct hwt *timer, size_t count,
    const struct hwt_spec *specs, hwt_timeout *timeouts);

/*
 * Cancels timeout. 0: this call won. The task has not started and never will,
 * and arg is the caller's again at once, also when the timeout waits in an
 * executor.
 *
 * [any][cb]. Lock-free, never waits, cannot fail for want of memory.
 * -EINPROGRESS  it is running, also when called again; a periodic one will not
 *               run again, and its own reschedule answers -ENOENT from then on
 * -ENOENT       it has ended, or never was
 */
int hwt_cancel(struct hwt *timer, hwt_timeout timeout);

/*
 * As hwt_cancel, and when it returns the task is not running. 0 for the one
 * caller who owns arg now: who cancelled it before it started, or, for a
 * periodic timeout that was running, the first hwt_cancel_wait; otherwise
 * -ENOENT. From another task it may wait; mutual waits deadlock.
 *
 * [any][cb]. Waits while the task runs.
 * -ENOENT   it had ended, or never was, or it ran and has ended now, or
 *           another call owns arg
 * -EDEADLK  from that very task; a periodic one goes on
 */
int hwt_cancel_wait(struct hwt *timer, hwt_timeout timeout);

/*
 * Moves the deadline. 0: the one deadline is now delay_ns from this call,
 * earlier or later, same handle. delay_ns has the range that hwt_new_timeout
 * states. A periodic timeout's task may reschedule itself, which rebases its
 * grid; when the timer is being stopped, that run is its last: -ENOENT.
 *
 * [any][cb]. Lock-free, O(1), no allocation. Pushing a deadline out is one
 * atomic update and leaves the worker alone.
 * -EINPROGRESS  handed to an executor, or running
 * -ENOENT       it has ended, or never was
 * -EINVAL       delay_ns out of range
 * -EAGAIN       the clock cannot be read
 */
int hwt_reschedule(struct hwt *timer, hwt_timeout timeout, uint64_t delay_ns);

/*
 * Tells the time to the deadline; negative when overdue, INT64_MAX when never
 * due. HWT_RELAXED: the whole delay until the worker has taken it over.
 *
 * [any][cb].
 * -EINPROGRESS  it is running
 * -ENOENT       it has ended, or never was
 * -EAGAIN       the clock cannot be read
 */
int hwt_remaining(
    struct hwt *timer, hwt_timeout timeout, int64_t *remaining_ns);

/*
 * The number of timeouts accepted and not yet started, cancelled or given
 * back; exact when neither callers nor the worker act; never below zero. A
 * periodic timeout counts until it ends. NULL: 0.
 *
 * [any][cb].
 */
uint64_t hwt_pending_timeouts(const struct hwt *timer);

/*
 * A snapshot of the counters.
 *
 * [any][cb]. Costs the hot path nothing that it can feel: counters are kept
 * per thread and added up here.
 */
int hwt_read_stats(const struct hwt *timer, struct hwt_stats *stats);

/*
 * For executors, once per accepted hand-over, on any thread, also inside
 * execute: starts the task unless it was cancelled meanwhile. Then it frees
 * the record and answers -ENOENT. Only the executor that accepted the timeout
 * may call it.
 *
 * [any][cb].
 * -ENOENT  cancelled; or a second call, or a timeout that is not handed over:
 *          no effect
 */
int hwt_run(struct hwt *timer, hwt_timeout timeout);

/*
 * Turns the wheel of a manual timer up to now. *tasks_started becomes the
 * number of tasks that this call started itself, not counting what an executor
 * started; NULL: not wanted. When a call a quarter of a second or more before
 * saw much memory spare, and it still is, that then goes back to the system:
 * some 50 ms for a million timeouts, but when something is due meanwhile, the
 * rest is left to the next call.
 *
 * One thread at a time.
 * -EINVAL     not a manual timer
 * -EDEADLK    inside an hwt_advance of this timer, or while another thread's
 *             is under way
 * -ESHUTDOWN  stopped, or being stopped
 */
int hwt_advance(struct hwt *timer, uint64_t *tasks_started);

/*
 * Tells how long a manual timer has nothing to do: 0 when something is due,
 * HWT_NEVER when there is nothing to wait for, also once it is stopped. It may
 * tell less where timeouts were cancelled or pushed out: then hwt_advance
 * starts nothing. Round up when converting it to milliseconds. After it, the
 * first call from anywhere that makes an earlier wake-up necessary calls wake
 * once, until the next hwt_advance or hwt_next_wakeup.
 *
 * One thread at a time. From a task, it tells the wait to the next boundary.
 * -EINVAL  not a manual timer
 */
int hwt_next_wakeup(struct hwt *timer, uint64_t *wait_ns);

/*
 * The process-wide timer, 10 ms tick, made and started at the first call, the
 * same for every caller. Nobody stops or destroys it but hwt_shared_shutdown.
 *
 * [any][cb].
 * -ENOMEM
 * -EAGAIN     no thread to be had, or the clock cannot be read; call again
 * -ESHUTDOWN  after hwt_shared_shutdown
 */
int hwt_shared(struct hwt **timer);

/*
 * Stops the shared timer, as hwt_stop: the application's last act. The list
 * stays valid until exit. When there is none yet, there will be none.
 *
 * [any], not from a task.
 * -EDEADLK  from a task of the shared timer
 */
int hwt_shared_shutdown(struct hwt_unprocessed *unprocessed);

/* An executor with threads of its own. */
struct hwt_pool;

/*
 * Makes a pool of that many threads, named "hwt-pool", with signals blocked as
 * in the worker. queue_limit: how many timeouts wait at most; 0: no limit
 * (but 2^31-1 in any case). A full queue refuses. What was handed over first is
 * begun first.
 *
 * [any][cb].
 * -EINVAL  threads is 0
 * -EAGAIN  not all threads could be had; none is left behind
 * -ENOMEM
 */
int hwt_pool_create(
    struct hwt_pool **pool, unsigned threads, size_t queue_limit);

/* The pool as an executor; valid until hwt_pool_destroy. NULL for NULL, and in
 * a child. [any][cb]. */
const struct hwt_executor *hwt_pool_executor(struct hwt_pool *pool);

/*
 * Runs what the pool holds, joins its threads and frees it.
 *
 * [any], not from a task of it. No timer may still hand timeouts to it.
 * -EDEADLK  from its own task
 */
int hwt_pool_destroy(struct hwt_pool *pool);

/* An executor for an event loop: one loop, one mailbox; many loops share one
 * timer. */
struct hwt_mailbox;

/*
 * Makes a mailbox. It never refuses a timeout.
 *
 * [any][cb].
 * -EMFILE, -ENFILE  no file descriptor to be had
 * -ENOMEM
 */
int hwt_mailbox_create(struct hwt_mailbox **mailbox);

/* An eventfd that is readable while something is due: to be watched, not to be
 * read. Owned by the mailbox. (When the system refuses to make it readable, the
 * next timeout that comes due tries again; hwt_mailbox_run works without.)
 * EPOLLET is fine: one hwt_mailbox_run per event is enough, since it makes the
 * descriptor readable anew when it leaves something over, and so does what
 * comes due later. Without such a call, no further event comes.
 * -EINVAL for NULL, -EOWNERDEAD in a child. [any][cb]. */
int hwt_mailbox_fd(const struct hwt_mailbox *mailbox);

/*
 * Starts at most max tasks, 0: all that are there now, on the calling thread.
 * *tasks_started becomes their number; NULL: not wanted. After hwt_cancel
 * returned 0 on the loop's thread the task does not run, even if it was in the
 * mailbox.
 *
 * The loop's thread; also from a task that it runs, which may then start what
 * the outer call would have. When that thread has ended, and was joined, or has
 * given the mailbox up under a lock, another thread takes its place, for
 * hwt_mailbox_destroy too.
 */
int hwt_mailbox_run(
    struct hwt_mailbox *mailbox, size_t max, size_t *tasks_started);

/* The mailbox as an executor; valid until hwt_mailbox_destroy. NULL for NULL,
 * and in a child. [any][cb]. */
const struct hwt_executor *hwt_mailbox_executor(struct hwt_mailbox *mailbox);

/*
 * Frees the mailbox and closes its file descriptor, which is to be taken out of
 * epoll before. A loop that ends while its timers live on cancels its timeouts,
 * calls hwt_mailbox_run once more, and then this.
 *
 * The loop's thread. No timer may still hand timeouts to it.
 * -EBUSY  it holds timeouts (cancelled ones too: one more hwt_mailbox_run
 *         releases them), or a task of its hwt_mailbox_run is running
 */
int hwt_mailbox_destroy(struct hwt_mailbox *mailbox);

/* The version of the library that is linked, "0.1.0". [any][cb]. */
const char *hwt_version(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
