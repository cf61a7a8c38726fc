/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the workloads share beyond perf.h: the subject, its turns, timeouts that
 * are to start, the memory that there is, and the CPU of the other threads.
 */
#ifndef LOADS_H
#define LOADS_H

#include "perf/perf.h"
#include "perf/subject.h"

enum {
	/* Calls from one turn of a subject without a thread to the next. */
	LOADS_TURN_CALLS = 1024,
	/* What has not started so long after its time is lost. */
	LOADS_PATIENCE_S = 30
};

/* A timeout that is to start; 0: it has not. */
struct loads_timeout {
	uint64_t due_ns;
	atomic_uint_fast64_t started_ns;
};

/* How many have started, and how many that were not to. */
static atomic_uint_fast64_t loads_started, loads_strays;

__attribute__((unused)) SUBJECT_TASK(loads_task, arg)
{
	struct loads_timeout *timeout = arg;

	atomic_store(&timeout->started_ns, perf_now_ns());
	atomic_fetch_add(&loads_started, 1);
}

__attribute__((unused)) SUBJECT_TASK(loads_stray, arg)
{
	(void)arg;
	atomic_fetch_add(&loads_strays, 1);
}

/* What became of them. */
struct loads_starts {
	struct perf_histogram late;
	uint64_t early, lost;
};

static inline void
loads_judge(struct loads_starts *starts, struct loads_timeout *timeout)
{
	uint64_t started_ns = atomic_load(&timeout->started_ns);

	if (!started_ns)
		starts->lost++;
	else if (started_ns < timeout->due_ns)
		starts->early++;
	else
		perf_histogram_add(&starts->late, started_ns - timeout->due_ns);
}

static inline void
loads_tell_starts(const struct loads_starts *starts)
{
	perf_metric_lateness("late", &starts->late);
	perf_metric("early", "count", (double)starts->early);
	perf_metric("lost", "count", (double)starts->lost);
}

static inline void
loads_tell_strays(uint64_t more)
{
	perf_metric(
	    "strays", "count", (double)(atomic_load(&loads_strays) + more));
}

/* In a loop of calls that a subject without a thread takes part in. */
static inline void
loads_turn_seldom(struct subject *subject, uint64_t call)
{
	if (call % LOADS_TURN_CALLS == 0)
		subject_turn(subject);
}

/* Sleeps; the loop of a single-threaded subject goes on meanwhile. */
static inline void
loads_pass_until_ns(struct subject *subject, uint64_t until_ns)
{
	uint64_t now_ns;

	while (SUBJECT_SINGLE && (now_ns = perf_now_ns()) < until_ns) {
		subject_turn(subject);
		now_ns += PERF_STEP_NS;
		perf_sleep_until_ns(now_ns < until_ns ? now_ns : until_ns);
	}
	perf_sleep_until_ns(until_ns);
}

/* Until so many have started, or should have for long. */
static inline void
loads_await(struct subject *subject, uint64_t count, uint64_t due_ns)
{
	uint64_t end_ns = due_ns + HWT_SEC(LOADS_PATIENCE_S);

	while (atomic_load(&loads_started) < count && perf_now_ns() < end_ns)
		loads_pass_until_ns(subject, perf_now_ns() + PERF_STEP_NS);
}

/* User and system time of all threads but the calling one. */
static inline uint64_t
loads_others_cpu_ns(void)
{
	uint64_t own_ns = perf_clock_ns(CLOCK_THREAD_CPUTIME_ID);

	return perf_cpu_ns() - own_ns;
}

/* Leaves the round out where one thread alone may call the subject. */
static inline void
loads_need_threads(void)
{
	if (SUBJECT_SINGLE)
		perf_skip(SUBJECT_NAME ": one thread alone may call");
}

/* Leaves the round out where its timeouts would not fit. */
static inline void
loads_need_memory(uint64_t timeouts, uint64_t bytes_each)
{
	uint64_t needed = timeouts * bytes_each + (UINT64_C(64) << 20);

	if (perf_proc("/proc/meminfo", "MemAvailable:") < needed / 1024)
		perf_skip("%" PRIu64 " timeouts may take %" PRIu64
			  " MiB, and there is less memory available",
		    timeouts, needed >> 20);
}

#endif
