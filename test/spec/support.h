/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites share. Every test of a suite runs in a process of its own,
 * so that fixtures may be static variables.
 *
 *   SUITE(name);             opens a suite: limits, leak check at the end
 *   assert_rc, assert_ok, assert_u64, assert_i64
 *                            assertions that print the values
 *   ManualTest, ManualTestWith, ExecutorTest
 *                            a test with a manual timer, `manual`; with options
 *                            for it; with an executor of its own
 *   struct fixture           a manual timer with its clock, wake counter, log
 *   worker_timer_open        a timer with a worker
 *   struct probe             a task that writes down its runs
 *   struct recording_executor
 *                            accepts and holds, refuses, or runs at once
 *   struct log_recorder      keeps the warnings
 *   struct gate              a task stops at it until the test opens it
 *   in_parallel              the same function in many threads at once
 *   wait_for                 waits, in real time, for another thread's word
 *   fault_arm, fault_disarm  make the n-th call of a system function fail
 *   suspend                  this machine slept for so long
 *
 * Fault injection needs these words for the linker:
 *
 *   -Wl,--wrap=pthread_create -Wl,--wrap=pthread_key_create
 *   -Wl,--wrap=mmap -Wl,--wrap=eventfd -Wl,--wrap=clock_gettime
 *   -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc
 *   -Wl,--wrap=aligned_alloc -Wl,--wrap=posix_memalign
 */
#ifndef HWT_TEST_SUPPORT_H
#define HWT_TEST_SUPPORT_H

/* Include this file first. */
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

#include "hwt.h"

/* Whether this is a build with AddressSanitizer. */
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

/* A test that needs longer hangs: no specification takes a minute, but for
 * forks under AddressSanitizer and a million timeouts under an emulator, beside
 * other work. No test has a limit of its own: a limit that ends before those of
 * tests that run already makes the runner forget, and leak, all of theirs. */
#ifdef HWT_EMULATED
#define TEST_SECONDS 240
#else
#define TEST_SECONDS (WITH_ASAN ? 240 : 60)
#endif

#define SUITE(name)                                             \
	TestSuite(name, .init = suite_init, .fini = suite_fini, \
	    .timeout = TEST_SECONDS)

/* Abort at a test that left by exit: the runner takes that for success. */
void suite_init(void);
void suite_fini(void);

/* The runner also swallows leaks, those that a .fini finds too: each test ends
 * with a check of its own. Under AddressSanitizer only. */
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

/* A test whose manual timer, `manual` below, is open with its defaults before
 * the body, and is closed after it. */
#define ManualTest(suite, name) \
	TestBetween(manual_open(NULL), manual_close(), suite, name)

/* The same with options of the timer: ManualTestWith(suite, name, .tick_ns =
 * HWT_US(10)). */
#define ManualTestWith(suite, name, ...)                             \
	TestBetween(manual_open(&(struct hwt_options){__VA_ARGS__}), \
	    manual_close(), suite, name)

/* The same with an executor of the timer's own in that mode: `executor`, a
 * struct recording_executor of the suite. */
#define ExecutorTest(suite, name, mode) \
	TestBetween(executor_open(&executor, mode), manual_close(), suite, name)

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

/* Each evaluates its arguments once. assert_rc names errno values. */
#define assert_ok(call) assert_rc(call, 0)

#define assert_rc(call, expected)                                        \
	do {                                                             \
		int rc_is = (call);                                      \
		int rc_wanted = (expected);                              \
		cr_assert(rc_is == rc_wanted, "%s is %s, not %s", #call, \
		    rc_name(rc_is), rc_name(rc_wanted));                 \
	} while (0)

#define assert_u64(actual, expected)                                     \
	do {                                                             \
		uint64_t word_is = (actual);                             \
		uint64_t word_wanted = (expected);                       \
		cr_assert(word_is == word_wanted,                        \
		    "%s is %" PRIu64 ", not %" PRIu64, #actual, word_is, \
		    word_wanted);                                        \
	} while (0)

#define assert_i64(actual, expected)                                     \
	do {                                                             \
		int64_t word_is = (actual);                              \
		int64_t word_wanted = (expected);                        \
		cr_assert(word_is == word_wanted,                        \
		    "%s is %" PRId64 ", not %" PRId64, #actual, word_is, \
		    word_wanted);                                        \
	} while (0)

/* A file that takes so many writes, and fails from then on without a reason.
 * One at a time. */
FILE *file_that_takes(unsigned writes);

/* "0", "-ENOENT", or the number. */
const char *rc_name(int rc);

/* Warnings of a timer, the first LOG_LINES of them with their text. */
#define LOG_LINES 16

struct log_recorder {
	pthread_mutex_t lock;
	uint64_t count;
	struct {
		int level;
		char message[256];
	} lines[LOG_LINES];
};

void log_recorder_init(struct log_recorder *log);
/* The hooks of hwt_options; valid as long as the recorder. */
struct hwt_log log_recorder_hook(struct log_recorder *log);
uint64_t log_recorder_count(struct log_recorder *log);

/*
 * A manual timer. fixture_open fills in what options leaves open: HWT_MANUAL,
 * the clock, the wake counter, the log recorder. options may be NULL: a tick
 * of FIXTURE_TICK and a wheel of FIXTURE_WHEEL. The clock stands at
 * FIXTURE_START, which is no multiple of any tick, so that a grid that hung on
 * the clock's zero would be seen. To choose another, set start_ns before.
 */
#define FIXTURE_TICK HWT_MS(1)
#define FIXTURE_WHEEL 8
#define FIXTURE_START UINT64_C(1234567891)

struct fixture {
	struct hwt *timer;
	/* 0: FIXTURE_START. The clock's reading at hwt_create. */
	uint64_t start_ns;
	uint64_t tick_ns;
	/* What the timer's clock reads. */
	_Atomic uint64_t now_ns;
	/* By how much each reading moves it on; 0: the test does. */
	uint64_t reading_ns;
	/* Calls of wake. */
	_Atomic uint64_t wakes;
	/* Readings of the clock. */
	_Atomic uint64_t clock_reads;
	/* Runs of probes that name this fixture. */
	_Atomic uint64_t runs;
	struct log_recorder log;
};

void fixture_open(struct fixture *fixture, const struct hwt_options *options);
/* As fixture_open, and returns what hwt_create answers. */
int fixture_try_open(
    struct fixture *fixture, const struct hwt_options *options);
/* Stops, drops what is left and destroys; all of it must be 0. */
void fixture_close(struct fixture *fixture);

/* Moves the clock by ns and advances; returns the number of tasks started. */
uint64_t fixture_step(struct fixture *fixture, uint64_t ns);
/* Moves the clock to the boundary start_ns + index * tick_ns and advances. */
uint64_t fixture_tick(struct fixture *fixture, uint64_t index);
/* The wait that hwt_next_wakeup tells. */
uint64_t fixture_wait(struct fixture *fixture);
struct hwt_stats fixture_stats(struct fixture *fixture);
/* hwt_remaining, which must answer 0. */
int64_t fixture_remaining(struct fixture *fixture, hwt_timeout timeout);

/* The timer of most tests, and the same calls for it; `...`: since options may
 * have commas in them. It may be opened again when it was closed. */
extern struct fixture manual;

#define manual_open(...) fixture_open(&manual, (__VA_ARGS__))
#define manual_try_open(...) fixture_try_open(&manual, (__VA_ARGS__))
#define manual_close() fixture_close(&manual)
#define manual_step(ns) fixture_step(&manual, (ns))
#define manual_tick(index) fixture_tick(&manual, (index))
#define manual_wait() fixture_wait(&manual)
#define manual_stats() fixture_stats(&manual)
#define manual_remaining(timeout) fixture_remaining(&manual, (timeout))

/* A timer with a worker, in real time; both must succeed. */
struct hwt *worker_timer_open(uint64_t tick_ns);
void worker_timer_close(struct hwt *timer);

/*
 * A task's arg: schedule probe_task with a pointer to one. All zero but for
 * what the test sets is a fresh one. A run that comes on a probe writes down
 * the last run's values; runs is written last, with release.
 */
struct probe {
	/* Set by the test; NULL: manual. */
	struct fixture *fixture;
	/* Set by the test: what the task does besides; may be NULL. */
	void (*then)(struct probe *probe);
	void *data;
	/* Handle that the test knows, for the use of then. */
	hwt_timeout handle;

	/* Written by the task, before it calls then. */
	hwt_timeout timeout;
	pthread_t thread;
	/* The fixture's clock. */
	uint64_t started_ns;
	/* Which run of the fixture's it was; 1 is the first. */
	uint64_t order;
	/* Answers that then may leave for the test. */
	int rc;
	_Atomic uint64_t runs;
};

hwt_task probe_task;
/* Schedules probe on its fixture's timer, which must accept it, and keeps the
 * handle in probe->handle. */
hwt_timeout probe_schedule(struct probe *probe, uint64_t delay_ns);
/* The same, periodic. */
hwt_timeout probe_schedule_periodic(
    struct probe *probe, uint64_t delay_ns, uint64_t period_ns);
/* Turns manual one by one, and returns the tick on which the probe has run; 0:
 * none of them. It may run once. */
uint64_t tick_of_run(struct probe *probe, uint64_t first, uint64_t last);

/* A task that must not run: it fails the process. */
hwt_task forbidden_task;
/* A task that does nothing. */
hwt_task idle_task;
/* Schedules one of these two, without arg; the timer must accept it. */
hwt_timeout schedule_task(struct hwt *timer, hwt_task *task, uint64_t delay_ns);

/* What a recording executor does with a timeout. */
enum executor_mode {
	EXECUTOR_HOLDS,
	EXECUTOR_REFUSES,
	EXECUTOR_RUNS,
};

#define EXECUTOR_PLACES 1024

/*
 * An executor that writes down each hand-over. Initialize it with
 * executor_init; hook is what the library wants. mode may be changed at any
 * time. run_rc: what hwt_run answered to the last EXECUTOR_RUNS.
 */
struct recording_executor {
	struct hwt_executor hook;
	enum executor_mode mode;
	/* What a refusal answers; executor_init sets -EAGAIN. */
	int refusal;
	int run_rc;
	/* Hand-overs in all; the first EXECUTOR_PLACES of them. */
	_Atomic uint64_t count;
	struct {
		struct hwt *timer;
		hwt_timeout timeout;
	} calls[EXECUTOR_PLACES];
};

void executor_init(
    struct recording_executor *executor, enum executor_mode mode);
/* executor_init, and manual_open with it. */
void executor_open(
    struct recording_executor *executor, enum executor_mode mode);
/* hwt_run for hand-over number index, counted from 0. */
int executor_run(struct recording_executor *executor, uint64_t index);

/* A place at which a task stops until the test lets it on, once each. */
struct gate {
	sem_t entered;
	sem_t opened;
};

void gate_init(struct gate *gate);
/* The task's side: says that it is there, and waits. */
void gate_pass(struct gate *gate);
/* The test's side: waits for a task to be there; lets one task on. */
void gate_await(struct gate *gate);
void gate_open(struct gate *gate);
/* probe->then for a probe whose data is a gate. */
void probe_then_gate(struct probe *probe);

/* Runs body in count threads that are let loose together, and joins them.
 * index: 0 .. count-1. Its threads are not subject to fault injection. */
void in_parallel(
    unsigned count, void (*body)(unsigned index, void *arg), void *arg);

/* Waits until *word is at least value; fails the test when that takes longer
 * than any machine needs. */
void wait_for(const _Atomic uint64_t *word, uint64_t value);
/* Sleeps in real time, at least ns. */
void sleep_ns(uint64_t ns);
/* CLOCK_MONOTONIC. */
uint64_t monotonic_ns(void);

/* What fault_arm may make fail; combine with |. */
#define FAULT_THREAD 1u /* pthread_create: EAGAIN */
#define FAULT_MMAP 2u /* mmap: ENOMEM */
#define FAULT_HEAP 4u /* malloc and its kin: ENOMEM */
#define FAULT_MEMORY (FAULT_MMAP | FAULT_HEAP)
#define FAULT_EVENTFD 8u /* eventfd: the error that is set */
#define FAULT_KEY 16u /* pthread_key_create: EAGAIN */
#define FAULT_CLOCK 32u /* clock_gettime: EPERM */
#define FAULT_RANDOM 64u /* getrandom: ENOSYS */

/* As nth: every call fails; none does (to count them). */
#define FAULT_ALWAYS 0
#define FAULT_COUNT UINT64_MAX

/* What the next calls of getrandom give, one after the other. */
void random_give(const void *bytes, size_t size);

/*
 * From now on the nth call, 1 is the first, of all functions in the set
 * together fails; calls from any thread count, but only those of the library
 * and the tests, not those that the C library makes itself.
 */
void fault_arm(unsigned set, uint64_t nth);
/* Every call of eventfd, or of pthread_create, fails with that error. */
void fault_arm_eventfd(int error);
void fault_arm_thread(int error);
/* As fault_arm_thread, but every call first stops at the gate; 0: and then it
 * succeeds. */
void fault_hold_thread(struct gate *gate, int error);
/* The next call of mmap stops at the gate, and then succeeds. */
void fault_hold_mmap(struct gate *gate);
/* Nothing fails any more. Returns the number of calls seen while armed. */
uint64_t fault_disarm(void);

/* CLOCK_BOOTTIME jumps by this, and CLOCK_MONOTONIC does not. Needs the same
 * words for the linker. */
void suspend(uint64_t ns);

#endif
