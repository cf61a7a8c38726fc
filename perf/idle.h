/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idle: how often does an idle timer wake up, and what does that cost?
 *
 *   pending=0     timeouts that are an hour away
 *   per_second=0  beside them, so many a second are scheduled, due 200 ms later
 *   seconds=10  tick_ms=100
 *
 * The figures are the kernel's, of all threads but the one that calls, per
 * minute. With per_second=0 they should be 0.
 */
#ifndef PERF_IDLE_H
#define PERF_IDLE_H

#include <dirent.h>

#include "perf/driver.h"

enum {
	IDLE_DELAY_MS = 200
};

static struct {
	struct subject *subject;
	uint64_t pending, per_second, seconds, tick_ns;
	atomic_uint_fast64_t started;
} idle_run;

struct idle_count {
	uint64_t wakeups, cpu_ns, threads;
};

SUBJECT_TASK(idle_task, arg)
{
	(void)arg;
	atomic_fetch_add(&idle_run.started, 1);
}

/* The first figure of schedstat is the time on a processor. */
static void
idle_add_thread(const char *task, struct idle_count *count)
{
	char path[300];
	uint64_t cpu_ns;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
	count->wakeups += perf_proc(path, "voluntary_ctxt_switches:");
	snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", task);
	cpu_ns = perf_proc(path, "");
	perf_must(cpu_ns != UINT64_MAX, "reading a thread's schedstat");
	count->cpu_ns += cpu_ns;
	count->threads++;
}

/* The calling thread is the first one, whose number is the process's. */
static struct idle_count
idle_read_count(void)
{
	struct idle_count count = {0};
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;

	perf_must(tasks, "opening /proc/self/task");
	while ((task = readdir(tasks)))
		if (task->d_name[0] != '.' &&
		    strtol(task->d_name, NULL, 10) != getpid())
			idle_add_thread(task->d_name, &count);
	closedir(tasks);
	return count;
}

static void
idle_load(void)
{
	uint64_t begun_ns = perf_now_ns(), i;

	for (i = 0; i < idle_run.per_second * idle_run.seconds; i++) {
		subject_schedule(idle_run.subject, NULL, idle_task, NULL,
		    HWT_MS(IDLE_DELAY_MS));
		perf_sleep_until_ns(
		    begun_ns + (i + 1) * HWT_SEC(1) / idle_run.per_second);
	}
	perf_sleep_until_ns(begun_ns + HWT_SEC(idle_run.seconds));
}

static void
idle_measure(void)
{
	uint64_t ones = idle_run.per_second * idle_run.seconds, i;
	double minutes = (double)idle_run.seconds / 60;
	struct idle_count from, to;

	idle_run.subject =
	    subject_create(idle_run.tick_ns, idle_run.pending + ones);
	for (i = 0; i < idle_run.pending; i++)
		subject_schedule(
		    idle_run.subject, NULL, stray_task, NULL, HWT_SEC(3600));
	/* It takes them over and falls asleep. */
	perf_sleep_until_ns(perf_now_ns() + HWT_SEC(1) + 2 * idle_run.tick_ns);
	from = idle_read_count();
	idle_load();
	to = idle_read_count();
	perf_must(to.threads == from.threads, "keeping threads");
	perf_metric(
	    "wakeups", "1/min", (double)(to.wakeups - from.wakeups) / minutes);
	perf_metric("worker_cpu_percent", "%",
	    (double)(to.cpu_ns - from.cpu_ns) / 6e8 / minutes);
	perf_sleep_until_ns(perf_now_ns() + HWT_SEC(1) + HWT_MS(IDLE_DELAY_MS) +
	    2 * idle_run.tick_ns);
	perf_metric("lost", "count",
	    (double)ones - (double)atomic_load(&idle_run.started));
	perf_metric("strays", "count", (double)atomic_load(&strays));
	subject_destroy(idle_run.subject);
}

static void
idle(uint64_t seed)
{
	(void)seed;
	idle_run.pending = perf_option("pending", 0);
	idle_run.per_second = perf_option("per_second", 0);
	idle_run.seconds = perf_option("seconds", 10);
	idle_run.tick_ns = HWT_MS(perf_option("tick_ms", 100));
	perf_options_end();
	perf_must(idle_run.seconds && idle_run.tick_ns, "reading the options");
	need_threads();
	idle_measure();
}

#endif
