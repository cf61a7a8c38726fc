/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For all benchmarks, those of the modules too: options, clocks, random
 * numbers, a histogram, and the lines in which they print figures.
 *
 * A benchmark does one round of one case for one subject, for perf/run. Options
 * are name=value. It prints lines of name, unit and value. Exit status 77: the
 * subject cannot do this case, and stderr says why. With "about" as the only
 * argument it prints its compiler, flags and version.
 */
#ifndef PERF_H
#define PERF_H

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "hwt.h"

#ifndef HWT_CFLAGS
#define HWT_CFLAGS "unknown flags"
#endif

enum {
	PERF_SKIPPED = 77,
	/* One call in so many is timed. */
	PERF_SAMPLED = 64,
	/* Buckets of a histogram's octave: they differ by 1 % at most. */
	PERF_OCTAVE = 128,
	PERF_OCTAVES = 40
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

/* The number after a name in a file of /proc; UINT64_MAX: there is none. */
static inline uint64_t
perf_proc(const char *path, const char *name)
{
	size_t length = strlen(name);
	uint64_t value = UINT64_MAX;
	FILE *file = fopen(path, "r");
	char line[256];

	if (!file)
		return UINT64_MAX;
	while (value == UINT64_MAX && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, length))
			value = strtoull(line + length, NULL, 10);
	fclose(file);
	return value;
}

/* Summed page by page: the error of the kernel's quick figure is about the size
 * of a small timer. */
static inline uint64_t
perf_rss_exact_bytes(void)
{
	uint64_t kib = perf_proc("/proc/self/smaps_rollup", "Rss:");

	perf_must(kib != UINT64_MAX, "reading smaps_rollup");
	return 1024 * kib;
}

static inline void
perf_sleep_until_ns(uint64_t until_ns)
{
	struct timespec until = {
	    (time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL))
		continue;
}

/* The program's arguments; a bit of asked is set when an option is read. */
static struct {
	int count;
	char **text;
	uint64_t asked;
} perf_arguments;

/* The value of the option name=value. */
static inline const char *
perf_text(const char *name, const char *otherwise)
{
	size_t length = strlen(name);
	const char *text;
	int i;

	for (i = 1; i < perf_arguments.count; i++) {
		text = perf_arguments.text[i];
		if (strncmp(text, name, length) != 0 || text[length] != '=')
			continue;
		perf_arguments.asked |= UINT64_C(1) << i;
		return text + length + 1;
	}
	return otherwise;
}

/* As perf_text, for a number. */
static inline uint64_t
perf_option(const char *name, uint64_t otherwise)
{
	const char *text = perf_text(name, NULL);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

/* As perf_option, with a fraction. */
static inline double
perf_fraction(const char *name, double otherwise)
{
	const char *text = perf_text(name, NULL);

	return text ? strtod(text, NULL) : otherwise;
}

/* Keeps the arguments, and prints the answer to "about". Returns the seed, an
 * option of all benchmarks. */
static inline uint64_t
perf_begin(int argc, char **argv, const char *subject_version)
{
	perf_must(argc <= 64, "reading so many options");
	perf_arguments.count = argc;
	perf_arguments.text = argv;
	if (argc != 2 || strcmp(argv[1], "about") != 0)
		return perf_option("seed", 1);
#ifdef __clang__
	printf("compiler clang %s\n", __clang_version__);
#else
	printf("compiler gcc %s\n", __VERSION__);
#endif
	printf("flags %s\n", HWT_CFLAGS);
	printf("version %s\n", subject_version);
	exit(0);
}

/* Fails on an argument that no option has read: a misspelt option would measure
 * another case. */
static inline void
perf_options_end(void)
{
	int i;

	for (i = 1; i < perf_arguments.count; i++) {
		if (perf_arguments.asked >> i & 1)
			continue;
		fprintf(stderr, "perf: no such option: %s\n",
		    perf_arguments.text[i]);
		exit(2);
	}
}

static inline void __attribute__((format(printf, 1, 2), noreturn))
perf_skip(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n");
	exit(PERF_SKIPPED);
}

/* One figure. */
static inline void
perf_metric(const char *name, const char *unit, double value)
{
	printf("%s %s %.9g\n", name, unit, value);
}

/* The next of a sequence of 64-bit numbers, whose upper bits are the better
 * ones. The first state can be any number. */
static inline uint64_t
perf_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state ^ *state >> 32;
}

/* Below limit, which is below 2^32. */
static inline uint64_t
perf_random_below(uint64_t *state, uint64_t limit)
{
	return (perf_random(state) >> 32) * limit >> 32;
}

/* In [0, 1). */
static inline double
perf_random_fraction(uint64_t *state)
{
	return (double)(perf_random(state) >> 11) * 0x1p-53;
}

static inline void
perf_start(pthread_t *thread, void *(*function)(void *arg), void *arg)
{
	perf_must(
	    !pthread_create(thread, NULL, function, arg), "pthread_create");
}

#ifdef CPU_SET
/* Gives the calling thread a processor of its own, if there are enough for
 * count threads: otherwise the kernel may leave threads that were woken
 * together on one, where a mutex is not contended. The processors of the first
 * call count, since a thread inherits those of its creator. */
static inline void
perf_pin(unsigned number, unsigned count)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static cpu_set_t allowed;
	static bool known;
	cpu_set_t own;
	unsigned left = number;
	int processor;

	(void)pthread_mutex_lock(&lock);
	known = known || !sched_getaffinity(0, sizeof(allowed), &allowed);
	(void)pthread_mutex_unlock(&lock);
	if (!known || count > (unsigned)CPU_COUNT(&allowed))
		return;
	for (processor = 0; processor < CPU_SETSIZE; processor++) {
		if (!CPU_ISSET(processor, &allowed) || left--)
			continue;
		CPU_ZERO(&own);
		CPU_SET(processor, &own);
		(void)pthread_setaffinity_np(pthread_self(), sizeof(own), &own);
		return;
	}
}
#endif

/* Durations with a resolution of 1 %. Below PERF_OCTAVE each nanosecond has a
 * bucket; above, each octave has PERF_OCTAVE buckets. */
struct perf_histogram {
	uint64_t count, max_ns;
	uint32_t bucket[PERF_OCTAVES * PERF_OCTAVE];
};

static inline unsigned
perf_bucket(uint64_t ns)
{
	unsigned octave, place;

	if (ns < PERF_OCTAVE)
		return (unsigned)ns;
	/* 1 for [PERF_OCTAVE, 2 * PERF_OCTAVE). */
	octave = 63 - (unsigned)__builtin_clzll(ns / PERF_OCTAVE) + 1;
	if (octave >= PERF_OCTAVES)
		return PERF_OCTAVES * PERF_OCTAVE - 1;
	place = (unsigned)(ns >> (octave - 1)) - PERF_OCTAVE;
	return octave * PERF_OCTAVE + place;
}

/* The middle of a bucket. */
static inline double
perf_bucket_ns(unsigned bucket)
{
	unsigned octave = bucket / PERF_OCTAVE, place = bucket % PERF_OCTAVE;
	double width;

	if (!octave)
		return bucket;
	width = (double)(UINT64_C(1) << (octave - 1));
	return width * (PERF_OCTAVE + place) + (width - 1) / 2;
}

static inline void
perf_histogram_add(struct perf_histogram *histogram, uint64_t ns)
{
	histogram->bucket[perf_bucket(ns)]++;
	histogram->count++;
	if (ns > histogram->max_ns)
		histogram->max_ns = ns;
}

static inline void
perf_histogram_merge(
    struct perf_histogram *into, const struct perf_histogram *from)
{
	unsigned i;

	for (i = 0; i < PERF_OCTAVES * PERF_OCTAVE; i++)
		into->bucket[i] += from->bucket[i];
	into->count += from->count;
	if (from->max_ns > into->max_ns)
		into->max_ns = from->max_ns;
}

/* The duration that a part of all, 0 to 1, does not exceed; 0 if empty. */
static inline double
perf_histogram_ns(const struct perf_histogram *histogram, double part)
{
	uint64_t rank = (uint64_t)(part * (double)histogram->count);
	uint64_t seen = 0;
	double ns;
	unsigned i;

	if (!histogram->count)
		return 0;
	if (rank >= histogram->count)
		return (double)histogram->max_ns;
	for (i = 0; i < PERF_OCTAVES * PERF_OCTAVE; i++) {
		seen += histogram->bucket[i];
		if (seen > rank)
			break;
	}
	ns = perf_bucket_ns(i);
	return ns < (double)histogram->max_ns ? ns : (double)histogram->max_ns;
}

/* PREFIX_p50_UNIT and so on, in units of so many nanoseconds. */
static inline void
perf_metric_parts(const struct perf_histogram *histogram, const char *prefix,
    const char *unit, double unit_ns)
{
	static const struct {
		const char *name;
		double part;
	} parts[] = {{"p50", 0.5}, {"p99", 0.99}, {"max", 1}};
	char name[64];
	unsigned i;

	for (i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "%s_%s_%s", prefix, parts[i].name,
		    unit);
		perf_metric(name, unit,
		    perf_histogram_ns(histogram, parts[i].part) / unit_ns);
	}
}

static inline int
perf_compare_ns(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

/* The median difference of two readings of the clock, one after the other. */
static inline uint64_t
perf_clock_cost_ns(void)
{
	enum {
		READINGS = 1001
	};
	uint64_t cost[READINGS], before_ns;
	unsigned i;

	for (i = 0; i < READINGS; i++) {
		before_ns = perf_now_ns();
		cost[i] = perf_now_ns() - before_ns;
	}
	qsort(cost, READINGS, sizeof(cost[0]), perf_compare_ns);
	return cost[READINGS / 2];
}

/* A timed call: from before_ns to now, less the clock's own cost. */
static inline void
perf_sample(
    struct perf_histogram *histogram, uint64_t before_ns, uint64_t clock_ns)
{
	uint64_t ns = perf_now_ns() - before_ns;

	perf_histogram_add(histogram, ns > clock_ns ? ns - clock_ns : 0);
}

#endif
