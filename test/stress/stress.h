/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the stress programs.
 *
 * Each program is called as "program [scale [seed]]": scale in percent of the
 * default amount of work, seed of its random choices. A seed repeats the
 * choices, not the interleaving. Without one a fresh seed is taken; it is
 * printed in the summary and with each failure.
 *
 * stress_begin comes first and starts a watchdog, so that a hang is a failure
 * that says in which phase it happened. stress_check counts what broke and
 * goes on, stress_must ends the program, since nothing after it would mean
 * anything. stress_end prints the summary and gives main its exit status.
 *
 * The watchdog is a thread and not alarm(2): ThreadSanitizer holds back signal
 * handlers while a thread sits in a system call that it does not know, which
 * is where a lost wake-up leaves it.
 */
#ifndef STRESS_H
#define STRESS_H

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "hwt.h"

#ifdef __SANITIZE_THREAD__
#define STRESS_TSAN 1
#else
#define STRESS_TSAN 0
#endif

#ifdef __SANITIZE_ADDRESS__
#define STRESS_ASAN 1
#else
#define STRESS_ASAN 0
#endif

#if STRESS_TSAN
/* The sanitizer looks for this name: a report must end the program, or its
 * exit status would tell nothing. */
const char *__tsan_default_options(void) __attribute__((weak));

const char *
__tsan_default_options(void)
{
	return "halt_on_error=1";
}
#endif

enum {
	STRESS_MESSAGES_MAX = 20
};

struct stress {
	const char *name;
	unsigned scale;
	unsigned watchdog_s;
	uint64_t seed;
	atomic_uint failures;
	/* Where the program is, for the watchdog's message. */
	const char *_Atomic phase;
	atomic_uint_fast64_t step;
};

/* One of a program, however many of its files include this. */
__attribute__((weak)) struct stress stress;

static inline uint64_t
stress_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void
stress_sleep_ns(uint64_t ns)
{
	struct timespec until;

	/* A flood of signals cannot stretch it. */
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	ns += (uint64_t)until.tv_nsec;
	until.tv_sec += (time_t)(ns / 1000000000u);
	until.tv_nsec = (long)(ns % 1000000000u);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) ==
	    EINTR)
		continue;
}

/* Passes a few nanoseconds per step, to move two threads against each other
 * by less than a system call takes. */
static inline void
stress_spin(uint64_t steps)
{
	while (steps--)
		__asm__ volatile("" ::: "memory");
}

static inline void
stress_phase(const char *phase, uint64_t step)
{
	atomic_store_explicit(&stress.step, step, memory_order_relaxed);
	atomic_store_explicit(&stress.phase, phase, memory_order_relaxed);
}

static inline void *
stress_watchdog(void *unused)
{
	const char *phase;
	uint64_t step;

	(void)unused;
	stress_sleep_ns(HWT_SEC(stress.watchdog_s));
	phase = atomic_load(&stress.phase);
	step = atomic_load(&stress.step);
	fprintf(stderr,
	    "%s: no end after %u s, in phase \"%s\", step %" PRIu64
	    " (seed %" PRIu64 ")\n",
	    stress.name, stress.watchdog_s, phase, step, stress.seed);
	_exit(1);
}

__attribute__((format(printf, 1, 2))) static inline void
stress_fail(const char *format, ...)
{
	char message[256];
	va_list args;

	if (atomic_fetch_add(&stress.failures, 1) >= STRESS_MESSAGES_MAX)
		return;
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	fprintf(stderr, "%s: %s (seed %" PRIu64 ")\n", stress.name, message,
	    stress.seed);
}

#define stress_check(condition, ...)              \
	do {                                      \
		if (!(condition))                 \
			stress_fail(__VA_ARGS__); \
	} while (0)

#define stress_must(condition, ...)               \
	do {                                      \
		if (!(condition)) {               \
			stress_fail(__VA_ARGS__); \
			_exit(1);                 \
		}                                 \
	} while (0)

static inline pthread_t
stress_thread(void *(*run)(void *), void *arg)
{
	pthread_t thread;
	int error = pthread_create(&thread, NULL, run, arg);

	stress_must(!error, "pthread_create: %s", strerror(error));
	return thread;
}

static inline void
stress_join(pthread_t thread)
{
	int error = pthread_join(thread, NULL);

	stress_must(!error, "pthread_join: %s", strerror(error));
}

static inline void
stress_begin(const char *name, int argc, char **argv)
{
	stress.name = name;
	stress.scale = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 100;
	if (!stress.scale)
		stress.scale = 1;
	stress.seed = argc > 2 ? strtoull(argv[2], NULL, 10)
			       : stress_now_ns() % 1000000007u;
	stress.watchdog_s = 120 * (1 + stress.scale / 200);
	if (STRESS_TSAN || STRESS_ASAN)
		stress.watchdog_s *= 3;
	/* What is resident is then what was touched, page by page: a huge page
	 * is more than what memory may grow by. */
	(void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	stress_phase("begin", 0);
	pthread_detach(stress_thread(stress_watchdog, NULL));
}

/* The share of count that the scale asks for, at least one. */
static inline uint64_t
stress_scaled(uint64_t count)
{
	uint64_t scaled = count * stress.scale / 100;

	return scaled ? scaled : 1;
}

__attribute__((format(printf, 1, 2))) static inline int
stress_end(const char *format, ...)
{
	unsigned failures = atomic_load(&stress.failures);
	char message[512];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	printf("%s: %s: %s (seed %" PRIu64 ")\n", stress.name,
	    failures ? "FAILED" : "ok", message, stress.seed);
	return failures ? 1 : 0;
}

/* splitmix64: any seed is a good one. */
static inline uint64_t
random_next(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static inline uint64_t
random_below(uint64_t *state, uint64_t bound)
{
	return random_next(state) % bound;
}

/* A stream of its own for each thread, told apart by salt. */
static inline uint64_t
random_seed(uint64_t salt)
{
	uint64_t state = stress.seed ^ salt * UINT64_C(0xd6e8feb86659fd93);

	return random_next(&state);
}

static inline void
log_nothing(void *ctx, int level, const char *message)
{
	(void)ctx;
	(void)level;
	(void)message;
}

/* For programs that provoke warnings on purpose. */
static const struct hwt_log quiet_log = {log_nothing, NULL};

static inline struct hwt *
timer_create_ns(uint64_t tick_ns, uint32_t ticks_per_wheel, uint32_t flags)
{
	struct hwt_options options = {.tick_ns = tick_ns,
	    .ticks_per_wheel = ticks_per_wheel,
	    .flags = flags,
	    .log = &quiet_log};
	struct hwt *timer = NULL;
	int error = hwt_create(&timer, &options);

	stress_must(!error, "hwt_create: %d", error);
	return timer;
}

#endif
