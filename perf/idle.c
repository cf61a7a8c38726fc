/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often does an idle timer wake up?
 *
 * Six timers stand idle side by side: with nothing pending, and with one
 * timeout an hour away, at ticks of 100, 10 and 1 ms. Their workers are found
 * by name in /proc/self/task, and the kernel's count of voluntary context
 * switches is read before and after; so are the timer's own count of wake-ups
 * and the worker's CPU time. The bound is 0 for each.
 *
 *   idle [seconds=10] [--check]
 */
#include <dirent.h>

#include "perf.h"

enum {
	TICKS = 3,
	CASES = 2 * TICKS
};

struct idle {
	uint64_t tick_ns;
	bool far;
	char name[16];
	struct hwt *timer;
};

struct count {
	uint64_t voluntary, involuntary, wakeups, cpu_ns;
};

static void
nothing(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

static bool
field(const char *line, const char *name, uint64_t *value)
{
	size_t length = strlen(name);

	if (strncmp(line, name, length) != 0)
		return false;
	*value = strtoull(line + length, NULL, 10);
	return true;
}

/* False: the thread has another name. */
static bool
read_status(const char *task, const char *name, struct count *count)
{
	char path[300], line[256];
	bool found = false;
	FILE *status;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
	status = fopen(path, "r");
	if (!status)
		return false;
	while (fgets(line, sizeof(line), status)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "Name:\t", 6))
			found = !strcmp(line + 6, name);
		field(line, "voluntary_ctxt_switches:", &count->voluntary);
		field(line, "nonvoluntary_ctxt_switches:", &count->involuntary);
	}
	fclose(status);
	return found;
}

/* The first figure of schedstat: the time on a processor. */
static uint64_t
read_cpu_ns(const char *task)
{
	char path[300];
	unsigned long long cpu_ns = 0;
	FILE *schedstat;

	snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", task);
	schedstat = fopen(path, "r");
	if (!schedstat)
		return 0;
	if (fscanf(schedstat, "%llu", &cpu_ns) != 1)
		cpu_ns = 0;
	fclose(schedstat);
	return cpu_ns;
}

static struct count
read_count(const struct idle *idle)
{
	struct count count = {0}, seen = {0};
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	struct hwt_stats stats;
	unsigned found = 0;

	perf_must(tasks, "opening /proc/self/task");
	while ((task = readdir(tasks))) {
		if (!read_status(task->d_name, idle->name, &seen))
			continue;
		count = seen;
		count.cpu_ns = read_cpu_ns(task->d_name);
		found++;
	}
	closedir(tasks);
	perf_must(found == 1, "finding the worker by its name");
	perf_must(!hwt_read_stats(idle->timer, &stats), "hwt_read_stats");
	count.wakeups = stats.wakeups;
	return count;
}

static void
idle_start(struct idle *idle, unsigned number, uint64_t tick_ns, bool far)
{
	struct hwt_options options = {.tick_ns = tick_ns};

	idle->tick_ns = tick_ns;
	idle->far = far;
	snprintf(idle->name, sizeof(idle->name), "idle-%u", number);
	options.thread_name = idle->name;
	perf_must(
	    !hwt_create(&idle->timer, &options) && !hwt_start(idle->timer),
	    "hwt_create");
	perf_must(!far ||
		!hwt_new_timeout(
		    idle->timer, NULL, nothing, NULL, HWT_SEC(3600)),
	    "hwt_new_timeout");
}

static bool
idle_print(const struct idle *idle, const struct count *before,
    const struct count *after, uint64_t seconds)
{
	uint64_t voluntary = after->voluntary - before->voluntary;
	uint64_t wakeups = after->wakeups - before->wakeups;
	bool kept = !voluntary && !wakeups;

	printf("%-28s tick %3" PRIu64 " ms: CPU %" PRIu64 " ns, %" PRIu64
	       " voluntary and %" PRIu64 " other context switches, %" PRIu64
	       " wake-ups in %" PRIu64 " s%s\n",
	    idle->far ? "one timeout an hour away," : "nothing pending,",
	    idle->tick_ns / 1000000, after->cpu_ns - before->cpu_ns, voluntary,
	    after->involuntary - before->involuntary, wakeups, seconds,
	    kept ? "" : "  MISSED");
	return kept;
}

int
main(int argc, char **argv)
{
	static const uint64_t ticks[TICKS] = {
	    HWT_MS(100), HWT_MS(10), HWT_MS(1)};
	uint64_t seconds = perf_option(argc, argv, "seconds", 10);
	struct count before[CASES], after;
	struct idle idle[CASES];
	bool kept = true;
	unsigned i;

	perf_header("How often does an idle timer wake up? (bound: 0)");
	for (i = 0; i < CASES; i++)
		idle_start(&idle[i], i, ticks[i % TICKS], i >= TICKS);
	/* The workers take the timeouts over and fall asleep. */
	perf_sleep_until_ns(perf_now_ns() + HWT_SEC(1));
	for (i = 0; i < CASES; i++)
		before[i] = read_count(&idle[i]);
	perf_sleep_until_ns(perf_now_ns() + HWT_SEC(seconds));
	for (i = 0; i < CASES; i++) {
		after = read_count(&idle[i]);
		kept &= idle_print(&idle[i], &before[i], &after, seconds);
	}
	for (i = 0; i < CASES; i++)
		perf_must(!hwt_stop(idle[i].timer, NULL) &&
			!hwt_destroy(idle[i].timer),
		    "hwt_destroy");
	return kept || !perf_flag(argc, argv, "--check") ? 0 : 1;
}
