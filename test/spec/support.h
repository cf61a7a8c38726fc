/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Support of the suites, the modules' too. Every test runs in a process of its
 * own, so that fixtures may be static variables. Include this file first.
 *
 *   manual timer     struct fixture, `manual`, ManualTest, manual_*: the test
 *                    moves the clock and turns the wheel
 *   worker           `live`, WorkerTest, live_*; RunningTest: its worker is in
 *                    the task of running.probe, stopped at running.gate
 *   tasks            struct probe records its runs; forbidden_task aborts
 *   executor         `recorder`, ExecutorTest: holds, refuses or runs
 *   threads          struct gate, in_parallel, wait_for, thread_*
 *   children         child_*: report by their exit status; ROLES: this binary
 *                    executed anew
 *   fault injection  fault_*: the n-th call of a system function fails
 */
#ifndef HWT_TEST_SUPPORT_H
#define HWT_TEST_SUPPORT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "hwt.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifndef WITH_ASAN
#define WITH_ASAN 0
#endif

/* A test that needs longer hangs. One limit for all: one that ends before those
 * of tests that run already makes Criterion forget, and leak, all of theirs. */
#ifndef SUITE_SECONDS
#define SUITE_SECONDS (WITH_ASAN ? 240 : 60)
#endif
#define SUITE(name)                                             \
	TestSuite(name, .init = suite_init, .fini = suite_fini, \
	    .timeout = SUITE_SECONDS)

/* Criterion takes a test that exits or leaks for one that passed: these abort
 * at an exit, and each test ends with assert_no_leaks. */
void suite_init(void);
void suite_fini(void);
void assert_no_leaks(void);

#undef Test
#define Test(suite, name, ...)                                   \
	static void suite##_##name##_spec(void);                 \
	CR_TEST_BASE(suite, name, ##__VA_ARGS__, .sentinel_ = 0) \
	{                                                        \
		suite##_##name##_spec();                         \
		assert_no_leaks();                               \
	}                                                        \
	static void suite##_##name##_spec(void)

/* A test with something done before and after its body. */
#define TestBetween(before, after, suite, name)  \
	static void suite##_##name##_body(void); \
	Test(suite, name)                        \
	{                                        \
		before;                          \
		suite##_##name##_body();         \
		after;                           \
	}                                        \
	static void suite##_##name##_body(void)

#define ManualTest(suite, name) \
	TestBetween(manual_open(NULL), manual_close(), suite, name)
#define ManualTestWith(suite, name, ...)                             \
	TestBetween(manual_open(&(struct hwt_options){__VA_ARGS__}), \
	    manual_close(), suite, name)
/* The manual timer's own executor is `recorder`, in that mode. */
#define ExecutorTest(suite, name, mode) \
	TestBetween(recorder_open(mode), manual_close(), suite, name)
/* The data of a worker's tasks is static: they may run after the body. */
#define WorkerTest(suite, name) \
	TestBetween(live_open(NULL), live_close(), suite, name)
#define RunningTest(suite, name) \
	TestBetween(running_open(0), live_close(), suite, name)
#define RunningPeriodicTest(suite, name) \
	TestBetween(running_open(HWT_MS(1)), live_close(), suite, name)

#define assert_ok(call) assert_rc(call, 0)
#define assert_rc(call, expected)                                        \
	do {                                                             \
		int rc_is = (call);                                      \
		int rc_wanted = (expected);                              \
		cr_assert(rc_is == rc_wanted, "%s is %s, not %s", #call, \
		    rc_name(rc_is), rc_name(rc_wanted));                 \
	} while (0)
#define assert_number(type, format, actual, expected)                      \
	do {                                                               \
		type number_is = (actual);                                 \
		type number_wanted = (expected);                           \
		cr_assert(number_is == number_wanted,                      \
		    "%s is %" format ", not %" format, #actual, number_is, \
		    number_wanted);                                        \
	} while (0)
#define assert_u64(actual, expected) \
	assert_number(uint64_t, PRIu64, actual, expected)
#define assert_i64(actual, expected) \
	assert_number(int64_t, PRId64, actual, expected)

/* "0", "-ENOENT", or the number. */
const char *rc_name(int rc);

#define LOG_LINES 16

struct log_recorder {
	_Atomic uint64_t count;
	struct {
		int level;
		char message[256];
	} lines[LOG_LINES];
};

struct hwt_log log_recorder_hook(struct log_recorder *log);

/* The clock starts at a moment that is no multiple of any tick, so that a grid
 * that hung on the clock's zero would be seen. */
#define FIXTURE_TICK HWT_MS(1)
#define FIXTURE_WHEEL 8
#define FIXTURE_START UINT64_C(1234567891)
#define TICKS(n) ((n)*FIXTURE_TICK)

struct fixture {
	struct hwt *timer;
	uint64_t tick_ns;
	_Atomic uint64_t now_ns; /* what the timer's clock reads */
	_Atomic uint64_t wakes; /* calls of wake */
	_Atomic uint64_t clock_reads;
	_Atomic uint64_t runs; /* of probes of this fixture */
	struct log_recorder log;
};

/* Fills in what options leaves open; NULL: FIXTURE_TICK and FIXTURE_WHEEL. */
void fixture_open(struct fixture *fixture, const struct hwt_options *options);
void fixture_close(struct fixture *fixture);
/* Moves the clock by ns, or to the boundary of a tick, and advances; returns
 * the number of tasks started. */
uint64_t fixture_step(struct fixture *fixture, uint64_t ns);
uint64_t fixture_tick(struct fixture *fixture, uint64_t index);
struct hwt_stats fixture_stats(struct fixture *fixture);

extern struct fixture manual;

#define manual_open(...) fixture_open(&manual, (__VA_ARGS__))
#define manual_close() fixture_close(&manual)
#define manual_step(ns) fixture_step(&manual, (ns))
#define manual_tick(index) fixture_tick(&manual, (index))
#define manual_stats() fixture_stats(&manual)
/* hwt_next_wakeup, hwt_remaining and hwt_state of the manual timer. */
uint64_t manual_wait(void);
int64_t manual_remaining(hwt_timeout timeout);
#define manual_state(timeout) hwt_state(manual.timer, (timeout), NULL)

/* A timer with a worker; both calls must succeed. */
struct hwt *worker_timer_open(uint64_t tick_ns);
void worker_timer_close(struct hwt *timer);

/* A task's arg. A fresh one is zero but for what the test sets. */
struct probe {
	struct fixture *fixture; /* NULL: manual */
	void (*then)(struct probe *probe); /* what the task does; may be NULL */
	void *data; /* for then */
	hwt_timeout handle;
	int rc; /* for then */

	/* Written by the task before it calls then, and runs after that. */
	hwt_timeout timeout;
	pthread_t thread;
	uint64_t started_ns; /* on the fixture's clock */
	uint64_t order; /* among the fixture's runs; the first is 1 */
	_Atomic uint64_t runs;
};

hwt_task probe_task;
hwt_task forbidden_task;
hwt_task idle_task;
/* These must be accepted; the probe's handle is stored in it. */
hwt_timeout probe_schedule(struct probe *probe, uint64_t delay_ns);
hwt_timeout probe_periodic(
    struct probe *probe, uint64_t delay_ns, uint64_t period_ns);
hwt_timeout schedule_task(struct hwt *timer, hwt_task *task, uint64_t delay_ns);
/* A forbidden task of the manual timer. */
#define schedule_forbidden(delay_ns) \
	schedule_task(manual.timer, forbidden_task, (delay_ns))
/* Turns manual tick by tick; bit n of the result: the probe ran on tick n. */
uint64_t ticks_of_runs(struct probe *probe, unsigned first, unsigned last);
#define ON(tick) (UINT64_C(1) << (tick))

enum executor_mode {
	EXECUTOR_HOLDS,
	EXECUTOR_REFUSES,
};

#define EXECUTOR_PLACES 16

struct recording_executor {
	struct hwt_executor hook;
	enum executor_mode mode;
	int refusal;
	_Atomic uint64_t count;
	struct {
		struct hwt *timer;
		hwt_timeout timeout;
	} calls[EXECUTOR_PLACES];
};

void executor_init(
    struct recording_executor *executor, enum executor_mode mode);
/* hwt_run for a hand-over, counted from 0. */
int executor_run(struct recording_executor *executor, uint64_t index);

extern struct recording_executor recorder;

void recorder_open(enum executor_mode mode);

/* A place at which a task stops until the test opens it. */
struct gate {
	sem_t entered, opened;
};

void gate_init(struct gate *gate);
void gate_pass(struct gate *gate);
#define gate_await(gate) semaphore_wait(&(gate)->entered)
#define gate_open(gate) ((void)sem_post(&(gate)->opened))
void semaphore_wait(sem_t *semaphore);

extern struct live {
	struct hwt *timer;
	struct log_recorder log;
} live;

/* NULL: a tick of 1 ms. */
void live_open(const struct hwt_options *options);
void live_close(void);
struct hwt_stats live_stats(void);
/* Returns when the worker has begun a later tick. */
void live_pass_tick(void);
/* Waits until the worker is in a long sleep; returns its thread. */
pid_t live_settle(void);

extern struct running {
	struct gate gate;
	struct probe probe;
} running;

void running_init(void);
void running_open(uint64_t period_ns);

void in_parallel(
    unsigned count, void (*body)(unsigned index, void *arg), void *arg);
/* Fails the test when that takes longer than any machine needs. */
void wait_for(const _Atomic uint64_t *word, uint64_t value);
void sleep_ns(uint64_t ns);
uint64_t monotonic_ns(void);
bool readable(int fd);
/* dlopen of the shared library that make builds, or of HWT_LIBRARY. */
void *library_open(void);

/* Waits for so many threads of that name; returns one of them. */
pid_t thread_await(const char *name, unsigned count);
/* What its status in /proc says, and its state. */
const char *thread_status(pid_t thread, const char *field);
#define thread_number(thread, field, base) \
	strtoull(thread_status((thread), (field)), NULL, (base))
#define thread_letter(thread) (thread_status((thread), "State")[0])

/* In a child, which may not use Criterion. */
#define child_check(condition) \
	child_require((condition), __FILE__, __LINE__, #condition, "")
#define child_rc(call, expected)                                              \
	do {                                                                  \
		int rc_is = (call);                                           \
		child_require(rc_is == (expected), __FILE__, __LINE__, #call, \
		    rc_name(rc_is));                                          \
	} while (0)
#define child_ok(call) child_rc(call, 0)
void child_require(bool holds, const char *file, int line, const char *text,
    const char *answer);
/* fork; the child has a minute and ends with _exit. */
pid_t child_split(void);
pid_t child_fork(void (*body)(void *arg), void *arg);
/* The exit status, or 256 and the signal that killed it. */
int child_wait(pid_t child);
/* child_fork and child_wait, which must be 0. */
void in_child(void (*body)(void *arg), void *arg);

/* Run by this binary instead of tests, when role_run executes it
 * anew; a role that returns leaves by exit. */
struct role {
	const char *name;
	void (*play)(void);
};

#define LEFT_BY_EXIT 17
#define ROLES(roles)                                                  \
	__attribute__((constructor)) static void play_role(void)      \
	{                                                             \
		role_play((roles), sizeof(roles) / sizeof(*(roles))); \
	}
void role_play(const struct role *roles, size_t count);
bool role_is(const char *name);
/* Its exit status. debug: HWT_DEBUG, or NULL; said: takes stderr, or NULL. */
int role_run(const char *name, const char *debug, char said[4096]);

#define FAULT_THREAD 1u
#define FAULT_MMAP 2u
#define FAULT_HEAP 4u
#define FAULT_CLOCK 8u
#define FAULT_MEMORY (FAULT_MMAP | FAULT_HEAP)
/* As nth: every call fails; none does. */
#define FAULT_ALWAYS 0
#define FAULT_COUNT UINT64_MAX

/* The nth call, 1 is the first, of these functions fails, in any thread. */
void fault_arm(unsigned set, uint64_t nth);
/* Every pthread_create fails with that error. */
void fault_arm_thread(int error);
/* pthread_create first stops at the gate; error 0: and then succeeds. */
void fault_hold_thread(struct gate *gate, int error);
/* Nothing fails any more; returns the number of calls that were counted. */
uint64_t fault_disarm(void);

#endif
