/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites of the promises share beyond support.h.
 *
 *   WorkerTest           a test with a timer that has a worker, `live`
 *   RunningTest             the same, whose worker is in a task, `running`
 *   child_*, in_child    a forked child that reports by its exit status
 *   thread_*             what the kernel says about a thread of this process
 *   grid_tick            the tick that the header's rule gives to a delay
 *   readable             whether a file descriptor can be read at once
 *   library_*            the shared library, for the tests that load it
 *
 * and, from rng.h, repeatable random numbers.
 */
#ifndef HWT_TEST_SUPPORT_PROMISES_H
#define HWT_TEST_SUPPORT_PROMISES_H

#include "test/spec/support.h"

#include "test/rng.h"

#include <sys/types.h>

/* The test's timer with a worker. live_open adds the log recorder to options,
 * which may be NULL: a tick of 1 ms, a wheel of 64. */
extern struct live {
	struct hwt *timer;
	uint64_t tick_ns;
	struct log_recorder log;
} live;

void live_open(const struct hwt_options *options);
/* Stops, drops what is left and destroys; all of it must be 0. */
void live_close(void);
struct hwt_stats live_stats(void);
/* Returns when the worker has begun a tick after the call, and so has placed
 * what was scheduled and released what was cancelled before. */
void live_pass_tick(void);
/* Returns when the worker lies in a sleep that has lasted for several ticks
 * and so is a long one. */
void live_settle(pid_t worker);

/* A test for which live is open, by its defaults, before the body, and is
 * closed after it. What its tasks use is static: they may still run when the
 * body has returned. */
#define WorkerTest(suite, name) \
	TestBetween(live_open(NULL), live_close(), suite, name)

/* A WorkerTest that begins while the worker is in the task of running.probe. It
 * stands at running.gate until the body opens that. */
#define RunningTest(suite, name) \
	TestBetween(running_open(0), live_close(), suite, name)
/* The same with a periodic timeout, which runs in each tick. */
#define RunningPeriodicTest(suite, name) \
	TestBetween(running_open(HWT_MS(1)), live_close(), suite, name)

extern struct running {
	struct gate gate;
	struct probe probe;
} running;

/* A new gate, and a probe whose task stops at it. */
void running_init(void);
/* live_open, and running in its worker; period_ns: 0, or it is periodic. */
void running_open(uint64_t period_ns);

/*
 * In a forked child nothing of the runner may be used. child_check says on
 * stderr what does not hold and ends the child with status 1; it serves tasks
 * on other threads too.
 */
#define child_check(condition) \
	child_require((condition), __FILE__, __LINE__, #condition)
/* As assert_rc. */
#define child_rc(call, expected) \
	child_require_rc((call), (expected), __FILE__, __LINE__, #call)

#define child_ok(call) child_rc(call, 0)

void child_require(bool holds, const char *file, int line, const char *text);
void child_require_rc(
    int rc, int expected, const char *file, int line, const char *text);

/* Forks; 0 in the child, which has a minute and must end with _exit. */
pid_t child_split(void);

/* Forks; the child runs body, has a minute for it, and ends with _exit. */
pid_t child_fork(void (*body)(void *arg), void *arg);
/* Waits for the child's end: its exit status, or 256 and more for a child that
 * was killed, which is how one that hangs ends. On any thread, also in a
 * child. */
int child_reap(pid_t child);
/* child_reap, for the test's own thread; the child must not have been
 * killed. */
int child_wait(pid_t child);
/* child_fork, and the exit status must be 0. */
void in_child(void (*body)(void *arg), void *arg);

/* The number of threads of this process that have this name. */
unsigned thread_count(const char *name);
/* Waits until there are so many: a thread shows its name, and is gone, a
 * little after it was made, or joined. */
void thread_await_count(const char *name, unsigned count);
/* Waits for the one thread of this name. */
pid_t thread_await(const char *name);
/* A number from /proc/self/task/TID/status. */
uint64_t thread_status(pid_t thread, const char *field, int base);
/* R, S, D, as ps shows its state; X when there is no such thread. */
char thread_letter(pid_t thread);

/* The index of the boundary to which a delay belongs that is asked for
 * offset_ns after creation. */
uint64_t grid_tick(uint64_t tick_ns, uint64_t offset_ns, uint64_t delay_ns);

/* From inside: how many records wait in the queue. */
uint64_t queued_in(const struct hwt *timer);

bool readable(int fd);

/* The shared library that make has built beside this binary, or the one that
 * HWT_LIBRARY names. Ends the process when there is none. */
void *library_open(void);

#endif
