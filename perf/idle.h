/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idle: how often does an idle timer wake up, by the kernel's count of all
 * threads but the one that calls?
 *
 *   pending=0 (timeouts that are an hour away)  seconds=10  tick_ms=100
 */
#ifndef PERF_IDLE_H
#define PERF_IDLE_H

#include <dirent.h>

#include "perf/driver.h"

struct idle_count {
	uint64_t wakeups, threads;
};

static void
idle_add_thread(const char *task, struct idle_count *count)
{
	char path[300];

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
	count->wakeups += perf_proc(path, "voluntary_ctxt_switches:");
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
idle(uint64_t seed)
{
	uint64_t pending = perf_option("pending", 0), i;
	uint64_t seconds = perf_option("seconds", 10);
	uint64_t tick_ns = HWT_MS(perf_option("tick_ms", 100));
	double minutes = (double)seconds / 60;
	struct idle_count from, to;
	struct subject *subject;

	(void)seed;
	perf_options_end();
	perf_must(seconds && tick_ns, "reading the options");
	need_threads();
	subject = subject_create(tick_ns, pending);
	for (i = 0; i < pending; i++)
		subject_schedule(
		    subject, NULL, stray_task, NULL, HWT_SEC(3600));
	/* It takes them over and falls asleep. */
	perf_sleep_until_ns(perf_now_ns() + HWT_SEC(1) + 2 * tick_ns);
	from = idle_read_count();
	perf_sleep_until_ns(perf_now_ns() + HWT_SEC(seconds));
	to = idle_read_count();
	perf_must(to.threads == from.threads, "keeping threads");
	perf_metric(
	    "wakeups", "1/min", (double)(to.wakeups - from.wakeups) / minutes);
	perf_metric("strays", "count", (double)atomic_load(&strays));
	subject_destroy(subject);
}

#endif
