/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt - a hashed wheel timer for network programs.
 *
 * Any thread can schedule, cancel and reschedule timeouts, in constant time and
 * without a lock. One worker thread turns a wheel of buckets (Varghese &
 * Lauck's scheme 6). When a timeout is due, the worker runs its task or hands
 * the timeout over to an executor. The behaviour follows Netty's
 * HashedWheelTimer.
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
 *       arg. It cannot be called from that very task.
 *   hwt_stop(timer, NULL)
 *       When it returns 0, no task runs in the timer's thread, and none will.
 *       With a list instead of NULL, you get what was still pending.
 *   hwt_destroy(timer)
 *       Frees a stopped timer. -EBUSY: an executor still holds timeouts of
 *       it; let it run them first.
 *
 * What follows is precise; read it where you need to know. The functions are
 * declared below in the order in which a program needs them.
 *
 * PROMISES
 *
 *   never-early      A task never starts before its deadline, or before its
 *                    delay has passed since the call, by the timer's clock.
 *   on-tick          A timeout is started or handed over on its tick. Only
 *                    these can delay it: tasks that were started before it,
 *                    the machine, and housekeeping, which is done in bounded
 *                    pieces (a few milliseconds in all). The number of timeouts
 *                    per tick is not limited. However fast other threads
 *                    schedule, cancel and pull deadlines in, no other timeout
 *                    is late because of it, with one exception: on waking, the
 *                    worker first reads each record that was scheduled for, or
 *                    pulled in to, a tick that is due by then, and those that
 *                    wait in the same page of 64 records: about 0.1 us for
 *                    each, and for none more than once. Records of later
 *                    deadlines are read in bounded pieces.
 *   once             Every accepted timeout ends exactly once: it is started,
 *                    cancelled, or returned by stop. This holds for all races
 *                    between calls.
 *   rounds           Delays can have any length and can be scheduled in any
 *                    order. A timeout that is more than one revolution of the
 *                    wheel away shares a bucket with timeouts of earlier
 *                    revolutions (rounds). Passing over it there does not
 *                    access its record, unless its entry moves.
 *   prompt-release   The record (the memory) of a cancelled timeout can be used
 *                    for another one as soon as hwt_cancel has returned 0, even
 *                    if the worker is in a long sleep. (If the calling thread
 *                    keeps free records, it is one of them: see MEMORY.) The
 *                    record of a timeout that an executor holds is released
 *                    when the executor calls hwt_run. Memory grows with the
 *                    number of live timeouts, not with the rate of calls.
 *   quiet            With nothing pending, the worker sleeps without a timeout
 *                    and does not wake up. Otherwise it does not wake up before
 *                    the earliest deadline. There are two exceptions: once for
 *                    each earliest deadline that was superseded while it slept
 *                    (its timeout was cancelled or pushed out), also if nothing
 *                    is pending since, and once per long sleep for the first
 *                    call that leaves work for it: an earlier deadline, a long
 *                    queue, or a megabyte of free memory. A thread that has a
 *                    cache of its own (see PROGRESS) wakes the worker at most
 *                    once per sleep. If calls end two long sleeps within one
 *                    tick, the next sleep lasts until the next tick boundary.
 *   catch-up         After a stall, SIGSTOP or suspend, empty ticks are skipped
 *                    by arithmetic, not one by one, and tasks that are due run
 *                    in tick order.
 *   tick-order       Tasks of an earlier tick are started or handed over before
 *                    those of a later tick. There is no order within one tick,
 *                    nor for deadlines that had passed when they were set.
 *                    A task that schedules itself again with delay 0 does not
 *                    delay the tick.
 *   memory-order     A task sees what a thread wrote before it scheduled the
 *                    timeout, and what any thread wrote before an
 *                    hwt_reschedule of it that returned 0. A thread that gets
 *                    -ENOENT for the timeout, or 0 from hwt_cancel_wait, sees
 *                    what the task wrote.
 *   safe-handles     Every call accepts any handle: stale, of another timer, or
 *                    garbage. A handle is refused unless it equals the handle
 *                    of a live timeout. The probability that a wrong handle
 *                    does so is at most 2^-32 per call.
 *   signals          The worker blocks all signals except SIGSEGV, SIGBUS,
 *                    SIGFPE, SIGILL, SIGTRAP, SIGSYS and SIGPROF.
 *   fork             In a child process, every timer, pool and mailbox made
 *                    before the fork is inert: int functions return
 *                    -EOWNERDEAD, others 0, NULL or false; executors refuse;
 *                    the destroy functions free memory without joining a thread
 *                    and return 0, for the shared timer too; hwt_shared makes a
 *                    new timer. No fork deadlocks or corrupts, whatever the
 *                    worker is doing. This includes a fork in a task: the
 *                    child's copy of that task may go on and must end in _exit
 *                    or exec.
 *   no-exit-hang     A live timer does not keep a process from ending by exit
 *                    or by return from main. dlclose does not unmap code that
 *                    is running. pthread_exit in main is different: the process
 *                    then lives as long as any of its threads. Workers and pool
 *                    threads do not end by themselves, and they block SIGTERM
 *                    and SIGINT; if no other thread is left, only SIGKILL ends
 *                    the process. Before pthread_exit in main, stop the timers
 *                    and destroy the pools, or keep a thread that will call
 *                    exit.
 *
 * NOT PROMISED: any order within a tick, wall-clock time, tasks that outlive
 * hwt_destroy. There is no clean-up callback on cancel: the caller that ends a
 * timeout owns its arg again.
 *
 * CLOCK. If CLOCK_MONOTONIC cannot be read (a sandbox can forbid it),
 * hwt_create and hwt_shared return -EAGAIN. If a reading fails later, the
 * library writes a message to stderr and aborts, since it cannot keep its
 * promises.
 *
 * UNITS. Durations and clock readings are nanoseconds in uint64_t. They never
 * wrap silently: see hwt_new_timeout and hwt_new_timeout_at for the limits of
 * the range. Write constants with HWT_NS, HWT_US, HWT_MS, HWT_SEC or HWT_MIN: a
 * bare 5000 is 5 us. No compiler warns of it, since it is equal to HWT_US(5).
 *
 * MEMORY. Records of timeouts that have ended are kept for reuse. When a
 * megabyte or more of 4 KiB pages has only free records, these pages are
 * returned to the system: before the worker goes into a long sleep, or when
 * there has been that much for 250 ms; but a worker that sleeps until a tick
 * boundary (see quiet) returns them there. A manual timer does so in
 * hwt_advance after 250 ms, and in hwt_next_wakeup at once. Each thread that
 * uses a timer keeps up to 128 free records of it until it uses them or ends;
 * each such record can keep a page from being returned. Where the system's
 * pages are larger, or where it refuses to take memory back, it can be that
 * none are returned before hwt_destroy.
 *
 * ERRORS. int functions return 0 or a negative errno value. On failure nothing
 * has changed, except that a handle argument is set
 * to {0} and *unprocessed to all zero; hwt_touch leaves the handle as it is. A
 * NULL argument that is needed is -EINVAL; the destroy functions return 0 for
 * NULL. In a forked child, -EOWNERDEAD takes precedence over every other error
 * of a timer that was made before the fork. (A kernel without MADV_WIPEONFORK
 * needs an atfork handler. If there is no memory for it when the library is
 * loaded, all functions that make something return -ENOMEM.)
 * Functions marked HWT_MUST_CHECK decide who owns an arg, or whether a timer or
 * an executor exists: compilers warn if their result is ignored. Where any
 * result is fine, as that of hwt_cancel for an arg that is never freed, write
 * (void)!hwt_cancel(timer, timeout). To turn these warnings off, define
 * HWT_NO_WARN_UNUSED before hwt.h is included.
 *
 * THREADS. Each function is marked:
 *
 *   [any]   any thread may call it, concurrently with every other call on the
 *           same timer except hwt_destroy
 *   [cb]    a task of the same timer may call it too
 *
 * The caller must serialize these, and nothing else:
 *
 *   hwt_destroy              with every call on that timer
 *   hwt_advance, hwt_next_wakeup
 *                            with each other: one thread turns a manual timer
 *   hwt_unprocessed_next     with other walks of the same list, and with
 *                            hwt_destroy
 *   hwt_mailbox_run, hwt_mailbox_destroy
 *                            with each other: they belong to the loop's thread
 *   hwt_touch                with all other use of the variable *timeout, not
 *                            of the timeout: see there
 *   hwt_pool_destroy, hwt_mailbox_destroy
 *                            with scheduling for that executor, and posting to
 *                            it: end the timeouts, or stop the timers, first
 *
 * No function is async-signal-safe. Tasks and callbacks must return: they must
 * not leave by longjmp, by a C++ exception, by pthread_exit or by cancellation.
 * A thread must not be cancelled while it is in a call of this library: a
 * program that uses pthread_cancel must disable it around such calls.
 *
 * PROGRESS. A call that is marked as lock-free does not wait for another
 * thread, whatever that thread is doing. When the timer grows, hwt_new_timeout*
 * call mmap, where the kernel may make threads of a process wait for each
 * other, as it may when they touch new memory. A thread that is descheduled in
 * a call does not make the timeouts of other threads late, since each thread
 * wakes the worker itself. With HWT_MANUAL it can: of several threads whose
 * timeouts are due before the next wake-up, one calls wake for all.
 * The worker does not wait for the threads of a pool or a mailbox. A thread has
 * a cache of its own, with free records, for up to 8 live timers, and up to
 * 1024 threads have one for the same timer. Beyond these limits, calls use a
 * cache that threads share, and cost more.
 *
 * SYSTEM CALLS. A sandbox must allow, for the parts of the library in use:
 *
 *   mmap, munmap, futex           everything
 *   clone3 or clone, prctl, and   threads: what the C library calls
 *   what else a thread needs
 *   clock_gettime                 if the C library cannot read the clock
 *                                 without a system call: see CLOCK
 *   write                         mailboxes; warnings on stderr
 *   eventfd2, read, close         mailboxes
 *
 * A sandbox should allow these. They may fail with an error, but must not kill
 * the process:
 *
 *   madvise                       otherwise an atfork handler detects forks,
 *                                 and no memory is released
 *   clock_nanosleep, sched_yield  otherwise a short wait for another thread is
 *                                 a busy one
 *   poll, or ppoll (aarch64)      otherwise warnings on stderr are dropped
 *   sched_getattr, sched_setattr  otherwise threads are as urgent as the one
 *                                 that has made them
 *   getrandom                     first generations are random; otherwise they
 *                                 come from AT_RANDOM of getauxval(3)
 *   openat, read, close           hwt_create reads the name of the kernel's
 *                                 clock source; otherwise calls take longer to
 *                                 read the clock
 *   these and newfstatat          HWT_DEBUG=slow; otherwise it gives an address
 *
 * ENVIRONMENT. The variable HWT_DEBUG is read once, when the library is loaded.
 * It is ignored in set-user-ID and set-group-ID programs, and wherever else
 * secure_getenv(3) hides it. Its value is a list of these words, separated by
 * commas or spaces. Other words are reported on stderr, once.
 *
 *   leaks   at exit, a line on stderr for each timer, pool and mailbox that
 *           this process has made and not destroyed, with the place in the code
 *           that made it; not for the shared timer
 *   slow    the warnings of slow_task_ns, an option that is off by default, say
 *           which task, by file and offset, from /proc/self/maps
 *
 * The places of leaks, and the tasks in hwt_dump, are shown as the dynamic
 * linker's symbols: functions of a program have one if it was linked with
 * -rdynamic and they are not static. For others there are file and offset, for
 * addr2line.
 *
 * PLUGINS. libhwt.so stays in memory once it is loaded. A shared object that
 * contains the static library, and may be closed by dlclose, should be linked
 * with -Wl,-z,nodelete. Without that, before it is closed, its timers must be
 * stopped, its pools destroyed, and no thread may be in a call or ending;
 * threads that have used its timers may end later.
 *
 * ORDER OF CALLS. hwt_create; then anything; then hwt_stop; then end the
 * executors: hwt_pool_destroy, which runs what the pool holds, and for a
 * mailbox hwt_mailbox_run until hwt_mailbox_destroy returns 0; then
 * hwt_destroy, which returns -EBUSY while an executor holds timeouts of the
 * timer. An executor that serves other timers too is kept until they are
 * stopped; one that holds nothing may also be destroyed after its timers.
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

/* A compiler warns where the result is ignored: see ERRORS. */
#if defined HWT_NO_WARN_UNUSED
#define HWT_MUST_CHECK
#elif defined __cplusplus && __cplusplus >= 201703L
#define HWT_MUST_CHECK [[nodiscard]]
#else
#define HWT_MUST_CHECK __attribute__((__warn_unused_result__))
#endif

#pragma GCC visibility push(default)

#define HWT_VERSION_MAJOR 0
#define HWT_VERSION_MINOR 2
#define HWT_VERSION_PATCH 0

/* Durations in nanoseconds. The argument may be a fraction: HWT_SEC(0.5). The
 * result for a whole number must fit into 64 bits (HWT_MIN: 584 years), for a
 * fraction into 63 bits. The result for a negative argument is -EINVAL as a
 * delay, but what is between -2 ns and 0 is truncated to 0 or to -1, which is
 * HWT_NEVER. */
#define HWT_NS(n) ((uint64_t)(int64_t)(UINT64_C(1) * HWT_WIDE(n)))
#define HWT_US(n) ((uint64_t)(int64_t)(UINT64_C(1000) * HWT_WIDE(n)))
#define HWT_MS(n) ((uint64_t)(int64_t)(UINT64_C(1000000) * HWT_WIDE(n)))
#define HWT_SEC(n) ((uint64_t)(int64_t)(UINT64_C(1000000000) * HWT_WIDE(n)))
#define HWT_MIN(n) ((uint64_t)(int64_t)(UINT64_C(60000000000) * HWT_WIDE(n)))
/* Used by these: converts a whole number to uint64_t and leaves a fraction as
 * it is. */
#define HWT_WIDE(n) ((__typeof__(UINT64_C(1) * (n)))(n))

/* As a delay or deadline: never due; the timeout stays pending. As a wait:
 * without limit, or nothing to wait for. */
#define HWT_NEVER UINT64_MAX

/* A timer: one wheel, one worker thread. */
struct hwt;

/* A handle, by value; it can be copied. {0} is never a handle. It contains a
 * generation, so that it is refused when its timeout has ended. A generation
 * has 36 bits and starts at a random number: if one record is reused ten
 * million times a second, its generation wraps after two hours, and a handle
 * kept that long can then name a later timeout.
 *
 * A handle is no capability. It says nothing about other records, but who has
 * seen one knows the later ones of the same record, which count up; and a call
 * does not ask who makes it. Where handles come from outside the process, check
 * first whose they are. */
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
 * functions marked [cb]. A task that blocks the worker delays all others.
 * A program that a task starts (posix_spawn, fork and exec, system) inherits
 * the blocked signals of its thread, the worker's or a pool's, and so ignores
 * SIGTERM: start it with a mask of its own, as docs/RECIPES shows. */
typedef void hwt_task(hwt_timeout timeout, void *arg);

/*
 * An executor takes over timeouts that are due. The worker calls execute once
 * for each of them. execute returns 0 to accept the timeout, anything else to
 * refuse it. Whoever accepts a timeout must call hwt_run for it once, on any
 * thread, now or later. A refusal is counted, and logged once a second at most;
 * the task then runs in the worker, so that nothing is lost.
 *
 * execute may call the functions marked [cb]. hwt_stop and hwt_advance of the
 * same timer return -EDEADLK there.
 *
 * If execute calls hwt_run and then refuses, the task has run and does not run
 * again; the refusal is counted and logged. If an executor accepts a timeout
 * and never calls hwt_run for it, the timeout stays pending and counts for
 * max_pending until hwt_cancel has returned 0; its record is never used again,
 * stop does not list it, and hwt_destroy always returns -EBUSY. An executor
 * that wants to drop a timeout calls hwt_cancel and then hwt_run, which returns
 * -ENOENT.
 *
 * An executor must outlive its timeouts. It must also outlive a call of execute
 * that the worker is about to make for a timeout that is cancelled in that
 * moment. As pools and mailboxes are destroyed, they wait for such a call if
 * the timeout was given the pointer that hwt_pool_executor or
 * hwt_mailbox_executor returned, not one to a copy. An executor of your own
 * cannot wait, and is kept until the timer is stopped.
 */
struct hwt_executor {
	int (*execute)(void *ctx, struct hwt *timer, hwt_timeout timeout);
	void *ctx;
};

/* A clock that never goes back, in nanoseconds below 2^63. It is called from
 * any thread. It must not call the timer. */
struct hwt_clock {
	uint64_t (*now_ns)(void *ctx);
	void *ctx;
};

/* wake tells the thread that turns a manual timer that it must call
 * hwt_next_wakeup again: the wait that it got has become too long. It is called
 * from any thread, in the call that makes it necessary. It must not call the
 * timer. hwt_stop does not call wake. */
struct hwt_wake {
	void (*wake)(void *ctx);
	void *ctx;
};

/* write gets warnings. message is one line without a newline; level is that of
 * syslog(3). It is called by the worker, and by hwt_advance in its thread. It
 * may call what execute may call. While it blocks, no timeout of the timer
 * runs, and hwt_stop waits.
 *
 * Without it, warnings go to stderr, and never block: if poll(2) says that
 * stderr cannot be written at once, the warning is dropped. The next one that
 * is written says how many were. */
struct hwt_log {
	void (*write)(void *ctx, int level, const char *message);
	void *ctx;
};

/* The timer has no worker: one controlling thread turns the wheel with
 * hwt_advance. Any thread may schedule and cancel. */
#define HWT_MANUAL 1u

/* Options of a timer. All zero: the defaults, given below. hwt_create copies
 * the structures behind the const pointers, except thread_attr; their ctx must
 * outlive the timer. A value outside its range is -EINVAL; nothing is clamped
 * silently. */
struct hwt_options {
	/* The tick: 10 us and up; 0: 100 ms. Tick boundaries are the clock at
	 * hwt_create plus n times tick_ns. A deadline belongs to the first
	 * boundary at or after it that has not been begun. tick_ns times the
	 * wheel's length must be below 2^63. */
	uint64_t tick_ns;
	/* The wheel's length: 1 .. 2^30, rounded up to a power of two; 0: 512.
	 * An empty bucket takes 16 bytes. A bucket in use also has chunks of
	 * 128 bytes for up to 15 timeouts each: with few timeouts per bucket,
	 * one timeout can take that much. A timeout that is more than 2^30
	 * revolutions of the wheel away costs one wake-up per 2^30
	 * revolutions. */
	uint32_t ticks_per_wheel;
	/* HWT_MANUAL. */
	uint32_t flags;
	/* Strict limit of pending timeouts; 0: none. It is never exceeded, and
	 * no call is refused while a place is free and nobody else is
	 * scheduling. A place is free again when hwt_cancel has returned 0, and
	 * before the first instruction of a one-shot task. (Whatever the limit,
	 * a timer has at most 2^28 - 2^22 records, and in a wheel of 2^27 ticks
	 * or more 247 million; without a free one: -ENOMEM.) */
	uint64_t max_pending;
	/* A task or an execute that holds the worker longer is counted, and
	 * logged at most once per second of the timer's clock; 0: off. */
	uint64_t slow_task_ns;
	/* Gets every due timeout that has no executor of its own; NULL: tasks
	 * run in the worker. */
	const struct hwt_executor *executor;
	/* NULL: CLOCK_MONOTONIC. Another clock only with HWT_MANUAL. */
	const struct hwt_clock *clock;
	/* Only with HWT_MANUAL; NULL: nothing is called. */
	const struct hwt_wake *wake;
	/* NULL: warnings go to stderr. */
	const struct hwt_log *log;
	/* At most 15 bytes; NULL: "hwt-worker". Copied. */
	const char *thread_name;
	/* Must not be detached. It is used when the worker starts and must live
	 * until then. NULL: the system's defaults, but see hwt_start for the
	 * priority. */
	const pthread_attr_t *thread_attr;
	/* Must be 0, as in all structures that a call reads. */
	uint64_t reserved[8];
};

/* One unprocessed timeout, filled in by hwt_unprocessed_next. */
struct hwt_timeout_info {
	hwt_timeout timeout;
	hwt_task *task;
	void *arg;
	/* At the call of stop; negative when overdue; INT64_MAX when never
	 * due. */
	int64_t remaining_ns;
	uint64_t period_ns;
	/* The one it was scheduled with; NULL: the timer's. */
	const struct hwt_executor *executor;
	uint64_t reserved[2];
};

/* The list of the timeouts that stop returned. count is their number; walking
 * the list does not change it. */
struct hwt_unprocessed {
	uint64_t count;
	uint64_t private_words[7];
};

/* Counters only grow, except pending and memory_bytes. A timeout that stop gave
 * back was counted in scheduled; it leaves pending and is counted nowhere
 * else. */
struct hwt_stats {
	/* scheduled: timeouts accepted. started: tasks begun (for a periodic
	 * timeout, each run). cancelled: calls of hwt_cancel and
	 * hwt_cancel_wait that returned 0, and what hwt_touch has cancelled in
	 * an executor. rescheduled: calls that moved a
	 * deadline (hwt_reschedule, hwt_reschedule_at, hwt_touch). */
	uint64_t scheduled, started, cancelled, rescheduled;
	/* rejected: timeouts refused because of max_pending. executor_refused:
	 * timeouts refused by executors. */
	uint64_t rejected, executor_refused;
	/* pending: as hwt_pending_timeouts. ticks: tick boundaries that the
	 * worker has begun (not those that it slept over or skipped by
	 * arithmetic). wakeups: returns of the worker from sleep; 0 with
	 * HWT_MANUAL. late_ticks: ticks begun more than one tick after their
	 * boundary. slow_tasks: see slow_task_ns. */
	uint64_t pending, ticks, wakeups, late_ticks, slow_tasks;
	/* Lateness is the time at which a timeout is started in the worker or
	 * handed over to an executor, minus its deadline. The clock is read at
	 * each tick and at least once per 16 timeouts. Element k counts
	 * lateness in [2^k, 2^(k+1)) ns; 0 counts in element 0. */
	uint64_t lateness_ns_max, lateness_ns_histogram[64];
	/* Memory that the timer holds: records, wheel, and what is kept per
	 * thread. The wheel's buckets count in full, touched or not. See
	 * MEMORY. */
	uint64_t memory_bytes;
	uint64_t reserved[16];
};

/*
 * Makes a timer; it has no thread yet. options may be NULL: the defaults. When
 * more than 64 workers are running, the process gets one warning from the one
 * that exceeds this, since one timer can serve a whole process. Manual timers
 * do not count.
 *
 * [any][cb]. On success the caller owns *timer and ends it with hwt_stop and
 * hwt_destroy.
 * -EINVAL   an option is outside its range, a reserved word or an unknown flag
 *           is set, clock or wake is given without HWT_MANUAL, a structure's
 *           function is NULL, or thread_attr is detached
 * -ENOMEM   no memory
 * -EAGAIN   CLOCK_MONOTONIC cannot be read
 */
HWT_MUST_CHECK
int hwt_create(struct hwt **timer, const struct hwt_options *options);

/*
 * Starts the worker now instead of at the first timeout. Idempotent. If no
 * thread can be created, the timer can be started again later. Concurrent calls
 * that start the worker wait while one of them creates the thread; if that
 * fails, each of them tries in its turn.
 *
 * Without thread_attr, the worker takes the scheduling policy, the priority and
 * the nice value of the process's main thread, on Linux, and not those of the
 * thread that happens to start it. If that thread is less urgent (SCHED_IDLE, a
 * nice value), the kernel allows it only with CAP_SYS_NICE or RLIMIT_NICE, and
 * otherwise the worker stays as urgent as that: let another thread start it.
 * The worker runs on the processors of the thread that starts it.
 *
 * [any][cb].
 * -EINVAL     a manual timer
 * -ESHUTDOWN  stopped, or being stopped
 * -EAGAIN     no thread can be created, or not with thread_attr
 * -ENOMEM     no memory for the thread
 */
int hwt_start(struct hwt *timer);

/*
 * Stops the timer. When it returns 0:
 *
 *   - no task runs in the worker, and none will start there; the worker's
 *     thread has ended, and destructors of its thread-specific data have
 *     returned;
 *   - hwt_new_timeout* return -ESHUTDOWN;
 *   - all timeouts that were accepted and were neither started, cancelled nor
 *     handed over to an executor are cancelled and are in *unprocessed, each
 *     once. If unprocessed is NULL, they are dropped.
 *
 * Exactly one call, the first that returns 0, gets the list; later calls wait
 * for the same end and get count 0. If a run of a periodic timeout is under way
 * or handed over, that run is its last. Timeouts that executors hold can still
 * run until hwt_run was called for each of them.
 *
 * [any], not from a task. Waits for the task that is running in the worker.
 * -EDEADLK  called from a task of this timer, in whatever thread, or from a
 *           destructor of thread-specific data in its worker. (Two workers
 *           whose destructors stop each other's timer deadlock; they get this
 *           error only if the system detects it.)
 * -EPERM    the shared timer
 */
HWT_MUST_CHECK
int hwt_stop(struct hwt *timer, struct hwt_unprocessed *unprocessed);

/*
 * As hwt_stop, but waits at most wait_ns for a task that does not return. (It
 * always waits for a call that is creating the thread.) The worker takes a
 * moment to end: with a short wait, above all 0, the result can be -ETIMEDOUT
 * although no task is running.
 *
 * -ETIMEDOUT  stopping continues; call again to get the list
 * Errors as hwt_stop otherwise.
 */
HWT_MUST_CHECK
int hwt_stop_within(
    struct hwt *timer, uint64_t wait_ns, struct hwt_unprocessed *unprocessed);

/*
 * Gets the next unprocessed timeout; false at the end. It reads the stopped
 * timer's own memory and allocates none; the list is valid until hwt_destroy.
 * The handles have ended: they only serve to find the caller's own data.
 *
 * One thread at a time per list.
 */
bool hwt_unprocessed_next(
    struct hwt_unprocessed *unprocessed, struct hwt_timeout_info *info);

/*
 * Frees the timer. First stop it and end its executors: see ORDER OF CALLS. No
 * other call on the timer may be under way, and none may follow. After a
 * destroy, if the memory was not used for something else, a second hwt_destroy
 * writes a message to stderr and aborts, and other calls return -EOWNERDEAD or
 * the like; do not rely on this.
 *
 * [any]
 * -EBUSY  not stopped, or an executor still holds timeouts of it, including
 *         cancelled ones: hwt_run must be called for each of them
 * -EPERM  the shared timer
 */
HWT_MUST_CHECK
int hwt_destroy(struct hwt *timer);

/*
 * Runs task once, with arg, after delay_ns. *timeout becomes its handle before
 * the task can start; timeout may be NULL. The task never runs inside this
 * call. A delay of 0 counts as 1 ns: on a tick boundary, it belongs to the next
 * one.
 *
 * [any][cb]. Lock-free; never waits for the worker, except that the first call
 * on a timer starts the thread. arg is lent to the timeout until it ends: until
 * the task has returned, hwt_cancel has returned 0, or stop has returned it.
 *
 * The clock is CLOCK_MONOTONIC. On x86-64, if the kernel's own clock is the
 * time stamp counter, the library extrapolates from a reading of
 * CLOCK_MONOTONIC by that counter for up to 4 us, and rounds up: a deadline can
 * be up to 3 us later than requested, and never earlier.
 *
 * With HWT_NEVER, and with a deadline at or beyond 2^63-1 on the clock, the
 * timeout is never due and stays pending. Other delays of 2^63 and more are
 * -EINVAL, since a negative difference is a bug.
 * -EINVAL     task or timer is NULL, or delay_ns is out of range
 * -ESHUTDOWN  stopped, or being stopped
 * -ENOBUFS    max_pending is reached
 * -EAGAIN     no thread can be created for the worker
 * -ENOMEM     no memory, or no more records: see max_pending
 */
HWT_MUST_CHECK
int hwt_new_timeout(struct hwt *timer, hwt_timeout *timeout, hwt_task *task,
    void *arg, uint64_t delay_ns);

/*
 * As hwt_new_timeout; the timeout is handed over to executor when it is due.
 * executor must outlive the timeout (see hwt_executor); NULL: the timer's.
 *
 * -EINVAL  also: executor->execute is NULL
 * Errors as hwt_new_timeout otherwise.
 */
HWT_MUST_CHECK
int hwt_new_timeout_on(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t delay_ns);

/*
 * Reads the timer's clock: CLOCK_MONOTONIC, or the clock of a manual timer.
 * Deadlines are times on it. Read it once, for example per iteration of an
 * event loop, and add delays to the result: calls with a deadline read no
 * clock.
 * Where the timer has no clock of its own, a reading of CLOCK_MONOTONIC from
 * elsewhere serves as well.
 *
 * [any][cb]. Also after hwt_stop. On failure *now_ns does not change.
 * -EINVAL  timer or now_ns is NULL
 */
int hwt_now(const struct hwt *timer, uint64_t *now_ns);

/*
 * As hwt_new_timeout_on, but the task runs at deadline_ns on the timer's clock
 * (see hwt_now), and never before it. The call reads no clock.
 *
 * A deadline that has passed is not an error: the task runs at the next tick
 * boundary at the latest. Timeouts whose deadline had passed when it was set
 * have no order among them. The task never runs inside this call. lateness in
 * hwt_stats counts from the deadline.
 *
 * HWT_NEVER, and every other deadline at or beyond 2^63-1, is never due and
 * stays pending. So the sum of a reading of the clock and a delay below 2^63 is
 * always a valid deadline (for HWT_NEVER pass that itself: the sum would wrap);
 * and a difference that has become negative is never due, and not an error.
 *
 * [any][cb]. Lock-free, and visible, as hwt_new_timeout.
 * -EINVAL  task or timer is NULL, or executor->execute is NULL
 * Errors as hwt_new_timeout otherwise.
 */
HWT_MUST_CHECK
int hwt_new_timeout_at(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t deadline_ns);

/*
 * Schedules a periodic timeout: the task runs after delay_ns, and from then on
 * at a fixed rate, at first deadline + n * period_ns. When a run has ended, the
 * next one is at the first of these points after that moment: runs never
 * overlap, and missed ones coalesce. The handle stays valid and the timeout
 * counts as pending until it ends: by hwt_cancel, by hwt_cancel_wait, or with
 * the timer. executor NULL: the timer's.
 *
 * [any][cb]. Lock-free, and visible, as hwt_new_timeout.
 * -EINVAL  period_ns is 0, or 2^63 or more
 * Errors as hwt_new_timeout otherwise.
 */
HWT_MUST_CHECK
int hwt_new_periodic(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t delay_ns,
    uint64_t period_ns);

/*
 * Cancels timeout. 0: this call has won. The task has not started and never
 * will, and the caller owns arg again at once, even if an executor holds the
 * timeout.
 *
 * [any][cb]. Lock-free, never waits, cannot fail for want of memory.
 * -EINPROGRESS  it is running, also for repeated calls: nobody may free arg
 *               until the task has returned. A periodic timeout will not run
 *               again, and from then on its own hwt_reschedule returns -ENOENT
 * -ENOENT       it has ended, or never existed
 */
HWT_MUST_CHECK
int hwt_cancel(struct hwt *timer, hwt_timeout timeout);

/*
 * As hwt_cancel, and when it returns the task is not running. 0: the caller
 * owns arg now. One call gets it: the one that cancelled the timeout before it
 * started, or, for a periodic timeout that was running, the first
 * hwt_cancel_wait. All others get -ENOENT.
 *
 * Do not hold a lock that the task takes:
 *
 *        caller                          task
 *        lock                            begins
 *        hwt_cancel_wait: waits until    lock: waits until the caller
 *        the task has returned           has unlocked
 *
 * The same goes for two tasks that wait for each other; one may wait for
 * another.
 *
 * Let one owner end the timeout: after any answer but -EDEADLK, it may free
 * arg. If several threads may end it, -ENOENT means that the task is not
 * running, and not that arg is the caller's: decide elsewhere which of them
 * frees it. A one-shot task that schedules its successor has a new handle then;
 * a periodic timeout that reschedules itself keeps the one that is waited for.
 *
 * [any][cb]. Waits while the task runs.
 * -ENOENT   it had ended, or never existed, or it was running and has ended
 *           now, or another call owns arg
 * -EDEADLK  called from that very task; a periodic timeout goes on
 */
HWT_MUST_CHECK
int hwt_cancel_wait(struct hwt *timer, hwt_timeout timeout);

/*
 * Moves the deadline. 0: the only deadline is now delay_ns from this call,
 * earlier or later; the handle stays the same. delay_ns has the range that
 * hwt_new_timeout states; 0 counts as 1 ns. The task of a periodic timeout may
 * reschedule its own timeout: the next run is then at that deadline, and the
 * later ones are whole periods after it. If the timer is being stopped, that
 * run is the last: -ENOENT.
 *
 * [any][cb]. Lock-free, O(1), no allocation. To push a deadline out is one
 * atomic update and does not disturb the worker.
 * -EINPROGRESS  handed over to an executor, or running
 * -ENOENT       it has ended, or never existed
 * -EINVAL       delay_ns is out of range
 */
int hwt_reschedule(struct hwt *timer, hwt_timeout timeout, uint64_t delay_ns);

/*
 * As hwt_reschedule, but the deadline is given on the timer's clock: see
 * hwt_now, and hwt_new_timeout_at for its range and for what has passed. The
 * call reads no clock. In the task of a periodic timeout, a deadline that has
 * passed makes the next run come at the next boundary, and the later ones whole
 * periods after that deadline.
 *
 * [any][cb]. Lock-free, O(1), no allocation, as hwt_reschedule.
 * -EINPROGRESS  handed over to an executor, or running
 * -ENOENT       it has ended, or never existed
 */
int hwt_reschedule_at(
    struct hwt *timer, hwt_timeout timeout, uint64_t deadline_ns);

/*
 * For idle timeouts: makes sure that a timeout is due in delay_ns. If the
 * timeout that *timeout names is pending in the timer, the call is
 * hwt_reschedule: the handle, task, arg and executor stay those of before.
 * Otherwise it schedules a new one, as hwt_new_timeout_on, and *timeout becomes
 * its handle before the new task can start. A *timeout of {0} is the start:
 * there is none yet.
 *
 * A new one is made when the old one has ended, was cancelled or was returned
 * by stop (then: -ESHUTDOWN), when an executor holds it, or when its task is
 * running. If an executor holds the old one, it is cancelled after the new one
 * was made: its task does not start, unless it has done so in between. On the
 * thread of a mailbox's loop, only the task of the handle in *timeout can then
 * start. If the old task is running, it goes on beside the new timeout: it must
 * compare its handle with *timeout and do nothing if they differ. With a pool,
 * several old tasks can be running. To end the timeout, keep a copy of each
 * handle that was replaced, and call hwt_cancel_wait for each of them and for
 * the one in *timeout.
 *
 * Always pass the same arg: a rescheduled timeout keeps its old one. The new
 * one takes a place of max_pending before the old one gives up its own:
 * -ENOBUFS if the limit is reached.
 *
 * A task that touches its own timeout is running: a one-shot task so schedules
 * its successor. A periodic timeout is never replaced, since its task would go
 * on to run beside the new one: its own task reschedules it, and while it is
 * handed over or running, others get -EINPROGRESS. One that was cancelled
 * while it runs is in its last run, and a one-shot timeout replaces it.
 *
 * A touch also revives what was cancelled. So whoever closes a connection sets
 * *timeout to HWT_CLOSED after it has cancelled the handle: a touch that comes
 * later returns -ECANCELED and changes nothing. The variable *timeout is read
 * and written without atomic operations. The caller serializes calls for the
 * same variable, and what else reads or writes it, with each other: a lock, or
 * one thread (the loop that runs the mailbox). That includes a task that
 * compares its handle with the variable, unless it is the new one's task: that
 * sees the new handle. Calls that take a copy of the handle need no such care.
 *
 * [any][cb]. Lock-free, as hwt_reschedule and hwt_new_timeout. On failure
 * nothing has changed, *timeout included: it may name a live timeout.
 * -ECANCELED    *timeout is HWT_CLOSED
 * -EINPROGRESS  a periodic timeout: see above
 * -EINVAL       timer, timeout or task is NULL, executor->execute is NULL, or
 *               delay_ns is out of range, also when a reschedule would not use
 *               them
 * Errors as hwt_new_timeout otherwise.
 */
HWT_MUST_CHECK
int hwt_touch(struct hwt *timer, const struct hwt_executor *executor,
    hwt_timeout *timeout, hwt_task *task, void *arg, uint64_t delay_ns);

/* What hwt_state returns for a live timeout. More may be added. */
#define HWT_STATE_PENDING 1 /* in the timer; its task has not started */
#define HWT_STATE_HANDED_OVER 2 /* an executor holds it */
#define HWT_STATE_RUNNING 3 /* its task is running */

/*
 * Returns where a timeout is: HWT_STATE_PENDING, HWT_STATE_HANDED_OVER or
 * HWT_STATE_RUNNING, all positive. *arg becomes the arg that it was scheduled
 * with; arg may be NULL. Another thread can change the state before the call
 * returns: the result is for messages and decisions of the thread that owns the
 * timeout, and the result of hwt_cancel decides. The caller does not own *arg
 * by this call, and may only use what it points to if nobody can end the
 * timeout and free it meanwhile.
 *
 * [any][cb]. Lock-free. On failure *arg does not change.
 * -ENOENT  it has ended, was cancelled or returned by stop, or never existed
 * -EINVAL  timer is NULL
 */
int hwt_state(struct hwt *timer, hwt_timeout timeout, void **arg);

/*
 * Gets the time to the deadline; negative when overdue, INT64_MAX when never
 * due.
 *
 * [any][cb].
 * -EINPROGRESS  it is running
 * -ENOENT       it has ended, or never existed
 */
int hwt_remaining(
    struct hwt *timer, hwt_timeout timeout, int64_t *remaining_ns);

/*
 * Returns the number of timeouts that were accepted and not yet started,
 * cancelled or returned. It is exact when neither callers nor the worker are
 * active, and never below zero. A periodic timeout counts until it ends. For
 * NULL it returns 0.
 *
 * [any][cb].
 */
uint64_t hwt_pending_timeouts(const struct hwt *timer);

/*
 * Gets a snapshot of the counters.
 *
 * [any][cb]. Counters are kept per thread and added up here, so that other
 * calls do not become noticeably slower.
 */
int hwt_read_stats(const struct hwt *timer, struct hwt_stats *stats);

/*
 * For executors: starts the task of a timeout that was handed over, unless the
 * timeout was cancelled meanwhile; then it frees the record and returns
 * -ENOENT. The executor that accepted the timeout calls it once, on any thread,
 * or inside execute. Nobody else may call it.
 *
 * [any][cb].
 * -ENOENT  the timeout was cancelled; or this is a second call, or the timeout
 *          is not handed over: no effect
 */
int hwt_run(struct hwt *timer, hwt_timeout timeout);

/*
 * Turns the wheel of a manual timer up to now. *tasks_started becomes the
 * number of tasks that this call itself has started, without those that
 * executors have started; tasks_started may be NULL. What is due runs first.
 * Then the call does housekeeping (see MEMORY), up to the next tick boundary;
 * the next call continues it.
 *
 * One thread at a time.
 * -EINVAL     not a manual timer
 * -EDEADLK    inside an hwt_advance of this timer, or while another thread's
 *             is under way
 * -ESHUTDOWN  stopped, or being stopped
 */
int hwt_advance(struct hwt *timer, uint64_t *tasks_started);

/*
 * Gets the time until a manual timer has something to do: 0 when something is
 * due, HWT_NEVER when there is nothing to wait for or the timer is stopped.
 * Round up when converting it to milliseconds. The call does housekeeping (see
 * MEMORY) up to the next tick boundary at most. If some is left then, the
 * result is 0 or the time to the next boundary, where hwt_advance may start
 * nothing. After it, the first call from anywhere that makes an earlier wake-up
 * necessary calls wake once, until the next hwt_advance or hwt_next_wakeup.
 *
 * One thread at a time. In a task, the result is the time to the next boundary.
 * -EINVAL  not a manual timer
 */
int hwt_next_wakeup(struct hwt *timer, uint64_t *wait_ns);

/*
 * Gets the process-wide timer. It has a tick of 10 ms, is made and started at
 * the first call, and is the same for every caller. Only hwt_shared_shutdown
 * can stop it. hwt_start says how urgent its worker is, depending on the thread
 * that calls first.
 *
 * [any][cb].
 * -ENOMEM     no memory
 * -EAGAIN     no thread can be created, or CLOCK_MONOTONIC cannot be read; call
 *             again
 * -ESHUTDOWN  after hwt_shared_shutdown
 */
HWT_MUST_CHECK
int hwt_shared(struct hwt **timer);

/*
 * Stops the shared timer, as hwt_stop does: the application's last act. The
 * list stays valid until exit. If there is no shared timer yet, there will be
 * none.
 *
 * [any], not from a task.
 * -EDEADLK  called from a task of the shared timer
 */
HWT_MUST_CHECK
int hwt_shared_shutdown(struct hwt_unprocessed *unprocessed);

/* A function that is to run on the thread of an event loop, or of a pool: put
 * one into a structure of your own, as its first member, and cast. It is the
 * caller's memory: it must live, and be left alone, from the call that posts it
 * until the function has begun. From then on it is free, to be freed or posted
 * again, by the function too. What is posted cannot be called back. */
struct hwt_post {
	uint64_t private_words[2];
};
typedef void hwt_posted(struct hwt_post *post);

/* An executor with threads of its own. */
struct hwt_pool;

/*
 * Makes a pool of that many threads. They are named "hwt-pool", block the same
 * signals as the worker, and are as urgent as hwt_start says. queue_limit is
 * the number of timeouts that can wait; 0: no limit (but 2^31-1 in any case). A
 * full queue refuses timeouts. Timeouts are begun in the order in which they
 * were handed over.
 *
 * [any][cb].
 * -EINVAL  threads is 0
 * -EAGAIN  not all threads can be created; none is left behind
 * -ENOMEM  no memory
 */
HWT_MUST_CHECK
int hwt_pool_create(
    struct hwt_pool **pool, unsigned threads, size_t queue_limit);

/* Returns the pool as an executor, valid until hwt_pool_destroy; NULL for NULL,
 * and in a child. [any][cb]. */
const struct hwt_executor *hwt_pool_executor(struct hwt_pool *pool);

/*
 * Calls function(post) on a thread of the pool. Posts and timeouts are begun in
 * the order in which they arrived, and share the places of queue_limit. What
 * the caller wrote before, the function sees.
 *
 * [any][cb]. Lock-free, no allocation.
 * -EAGAIN  the queue is full, or the pool is being destroyed
 */
HWT_MUST_CHECK
int hwt_pool_post(
    struct hwt_pool *pool, struct hwt_post *post, hwt_posted *function);

/*
 * Runs what the pool holds, joins its threads and frees it.
 *
 * [any], not from a task in it. No timer may still hand timeouts over to it,
 * and other threads' hwt_pool_post must have returned.
 * -EDEADLK  called from a task, or a posted function, in this pool
 */
HWT_MUST_CHECK
int hwt_pool_destroy(struct hwt_pool *pool);

/* An executor for an event loop: one loop has one mailbox; many loops can share
 * one timer. */
struct hwt_mailbox;

/*
 * Makes a mailbox. It never refuses a timeout.
 *
 * [any][cb].
 * -EMFILE, -ENFILE  no file descriptor left
 * -ENOMEM           no memory
 */
HWT_MUST_CHECK
int hwt_mailbox_create(struct hwt_mailbox **mailbox);

/* Returns an eventfd that is readable while something is due. Watch it, do not
 * read it. The mailbox owns it. (If the system refuses to make it readable, the
 * next timeout that comes due tries again; hwt_mailbox_run works without it.)
 * EPOLLET works: one hwt_mailbox_run per event is enough, since it makes the
 * descriptor readable again when it leaves something over, and a timeout that
 * comes due later does so too. Without such a call there is no further event.
 * -EINVAL for NULL, -EOWNERDEAD in a child. [any][cb]. */
int hwt_mailbox_fd(const struct hwt_mailbox *mailbox);

/*
 * Calls function(post) in hwt_mailbox_run. Posts of one thread run in the order
 * of its calls. What the caller wrote before, the function sees. A function
 * that posts itself again runs in the next hwt_mailbox_run.
 *
 * [any][cb]. Lock-free, no allocation, cannot fail for valid arguments.
 */
int hwt_mailbox_post(
    struct hwt_mailbox *mailbox, struct hwt_post *post, hwt_posted *function);

/*
 * Starts at most max tasks and posted functions on the calling thread; 0: all
 * that are there now. *tasks_started becomes the number of tasks, without
 * posted functions; tasks_started may be NULL. After hwt_cancel has returned 0
 * on the loop's thread, the task does not run, even if it was in the mailbox.
 *
 * Call it on the loop's thread. A task that it runs may call it too, and then
 * starts tasks that the outer call would have started.
 *
 * max does not bound how long a call takes that finds many: it puts all that
 * came in since the last call into order at once, in a few nanoseconds for each
 * (7 ms for a million), and those after it find that done.
 *
 * Another thread can become the loop's thread, for hwt_mailbox_destroy too,
 * when the former one has ended and was joined, or has handed the mailbox over
 * under a lock.
 */
int hwt_mailbox_run(
    struct hwt_mailbox *mailbox, size_t max, size_t *tasks_started);

/* Returns the mailbox as an executor, valid until hwt_mailbox_destroy; NULL for
 * NULL, and in a child. [any][cb]. */
const struct hwt_executor *hwt_mailbox_executor(struct hwt_mailbox *mailbox);

/*
 * Frees the mailbox and closes its file descriptor; remove it from epoll
 * before. First stop its timers, or cancel its timeouts if they live on. Then
 * call hwt_mailbox_run and this function until it returns 0: a timeout that was
 * cancelled while a worker was handing it over arrives after that.
 *
 * Call it on the loop's thread. No timer may still hand timeouts over to it,
 * and every hwt_mailbox_post must have returned.
 * -EBUSY  it holds posts or timeouts (including cancelled ones, which one more
 *         hwt_mailbox_run releases), or hwt_mailbox_run is running a task or a
 *         posted function of it
 */
HWT_MUST_CHECK
int hwt_mailbox_destroy(struct hwt_mailbox *mailbox);

/* What hwt_stats_write writes. */
enum hwt_format {
	/* Prometheus's text format 0.0.4. Labels: timer is the thread_name,
	 * serial a number that no other timer of the process has. Lateness is a
	 * histogram in seconds, in buckets from 1.023 us to 68.7 s. */
	HWT_PROMETHEUS,
	/* An object on one line, with the names of struct hwt_stats, and timer,
	 * serial and lateness_ns_sum. */
	HWT_JSON,
	/* HWT_PROMETHEUS without the # HELP and # TYPE lines, which may occur
	 * once per exposition: for its second timer, and those after it. */
	HWT_PROMETHEUS_SAMPLES
};

/*
 * Writes the counters of hwt_read_stats to file and flushes it. In both
 * formats, the numbers do not depend on the locale, and what is no UTF-8 in the
 * thread_name, or a control character, is replaced. Lateness is summed up in
 * 64 bits: after 584 years of it, the sum begins again.
 *
 * [any][cb]. After an error, a part may have been written.
 * -EINVAL      a NULL argument, or no such format
 * -EIO         the file could not be written and the C library does not say
 *              why; otherwise its errno: -EBADF, -ENOSPC, -EPIPE, -EFBIG, or
 *              -EAGAIN from a file that does not block
 */
int hwt_stats_write(
    const struct hwt *timer, FILE *file, enum hwt_format format);

/*
 * Writes what a stopped or a manual timer holds to file, for people to read,
 * and flushes it; a timer with a worker is refused until it is stopped. The
 * text: the options; then each timeout with its handle, deadline, period, task,
 * arg and executor, in the order of the wheel's ticks, with bucket and round;
 * then those in the queue, which the wheel does not have yet; those that are
 * never due; and those that executors hold or run. A timeout that was put off
 * is at its former tick until the wheel comes to it. The form may change.
 *
 * [any] for a stopped timer. For a manual one, the thread that turns it, but
 * not a task that hwt_advance runs. Others may go on to use the timer; what
 * they change meanwhile may be missing. The text is written from a copy, which
 * takes memory; the timer can be turned and stopped meanwhile.
 * -EBUSY   neither stopped nor manual; or being turned, or being stopped
 * -ENOMEM  no memory
 * -EIO     as hwt_stats_write, with the errnos named there
 */
int hwt_dump(const struct hwt *timer, FILE *file);

/* Returns what an error of this library means: "the timer is stopped or being
 * stopped" for -ESHUTDOWN. error is what a function returned, or the errno
 * value without its sign; 0 is "success". Never NULL, for any value: what hwt
 * does not return has a text that says so. The strings are constant, in English
 * and without a newline. [any][cb]. */
const char *hwt_strerror(int error);

/* Returns the version of the library that is linked, "0.2.0". [any][cb]. */
const char *hwt_version(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
