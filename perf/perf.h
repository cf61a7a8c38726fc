/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the benchmarks share: the header that says on what they ran, clocks,
 * options, and the median of rounds.
 *
 * Each program answers one question, named in its opening comment and in its
 * first line of output. Options are given as name=value; --check makes the
 * exit status 1 when a bound that the program names is not kept.
 */
#ifndef PERF_H
#define PERF_H

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "hwt.h"

#ifndef HWT_CFLAGS
#define HWT_CFLAGS "unknown flags"
#endif

enum {
	PERF_ROUNDS_MAX = 101
};

/* The figures of one case, one for each round. */
struct perf_rounds {
	double value[PERF_ROUNDS_MAX];
	unsigned count;
};

static inline void
perf_must(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "perf: %s failed\n", what);
	exit(2);
}

static inline uint64_t
perf_clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t
perf_now_ns(void)
{
	return perf_clock_ns(CLOCK_MONOTONIC);
}

/* User and system time of all threads of the process. */
static inline uint64_t
perf_cpu_ns(void)
{
	struct rusage usage;
	uint64_t us;

	getrusage(RUSAGE_SELF, &usage);
	us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) *
		1000000u +
	    (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
	return us * 1000u;
}

static inline uint64_t
perf_rss_bytes(void)
{
	unsigned long long size, resident = 0;
	FILE *statm = fopen("/proc/self/statm", "r");

	perf_must(statm && fscanf(statm, "%llu %llu", &size, &resident) == 2,
	    "reading /proc/self/statm");
	fclose(statm);
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static inline void
perf_sleep_until_ns(uint64_t until_ns)
{
	struct timespec until = {
	    (time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL))
		continue;
}

static inline void
perf_print_processor(void)
{
	char line[256], *model;
	FILE *info = fopen("/proc/cpuinfo", "r");

	while (info && fgets(line, sizeof(line), info)) {
		if (strncmp(line, "model name", 10) != 0)
			continue;
		model = strchr(line, ':');
		if (!model)
			break;
		model[strcspn(model, "\n")] = 0;
		printf("machine   %s", model + 2);
		fclose(info);
		return;
	}
	if (info)
		fclose(info);
	printf("machine   unknown processor");
}

static inline void
perf_header(const char *question)
{
	struct utsname system;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("%s\n\n", question);
	uname(&system);
	perf_print_processor();
	printf(", %ld of %ld cores, %s, %s %s\n", sysconf(_SC_NPROCESSORS_ONLN),
	    sysconf(_SC_NPROCESSORS_CONF), system.machine, system.sysname,
	    system.release);
#ifdef __clang__
	printf("compiler  clang %s\n", __clang_version__);
#else
	printf("compiler  gcc %s\n", __VERSION__);
#endif
	printf("flags     %s\n", HWT_CFLAGS);
	printf("library   hwt %s\n\n", hwt_version());
}

static inline bool
perf_flag(int argc, char **argv, const char *name)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return false;
}

/* The number after "name=" among the arguments. */
static inline uint64_t
perf_option(int argc, char **argv, const char *name, uint64_t otherwise)
{
	size_t length = strlen(name);
	int i;

	for (i = 1; i < argc; i++)
		if (!strncmp(argv[i], name, length) && argv[i][length] == '=')
			return strtoull(argv[i] + length + 1, NULL, 10);
	return otherwise;
}

static inline void
perf_add(struct perf_rounds *rounds, double value)
{
	perf_must(rounds->count < PERF_ROUNDS_MAX, "too many rounds");
	rounds->value[rounds->count++] = value;
}

static inline int
perf_compare(const void *left, const void *right)
{
	const double *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

/* Element of the sorted rounds: 0 the least, 1 the median, 2 the greatest. */
static inline double
perf_rank(const struct perf_rounds *rounds, unsigned rank)
{
	struct perf_rounds sorted = *rounds;

	perf_must(sorted.count, "at least one round");
	qsort(
	    sorted.value, sorted.count, sizeof(sorted.value[0]), perf_compare);
	return sorted.value[rank * (sorted.count - 1) / 2];
}

static inline double
perf_median(const struct perf_rounds *rounds)
{
	return perf_rank(rounds, 1);
}

/* "median (min..max)" */
static inline void
perf_print_rounds(const struct perf_rounds *rounds)
{
	printf("%7.1f (%.1f..%.1f)", perf_rank(rounds, 1), perf_rank(rounds, 0),
	    perf_rank(rounds, 2));
}

#endif
