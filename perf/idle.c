/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often does an idle timer wake up, and what does that cost?
 *
 *   pending=0     timeouts that are an hour away
 *   per_second=0  beside them, so many a second are scheduled, one by one, due
 *                 200 ms later
 *   seconds=10  tick_ms=100  seed=1 (no lots are drawn)
 *
 * Without the latter, the figures should be 0: the kernel's, for all threads
 * but the one that calls, for a minute.
 */
#include <dirent.h>

#include "perf/loads.h"

enum {
	DELAY_MS = 200
};

static struct {
	uint64_t pending, per_second, seconds, tick_ns;
} load;

struct count {
	uint64_t voluntary, cpu_ns, threads;
};

static struct subject *subject;
static atomic_uint_fast64_t started;

SUBJECT_TASK(idle_task, arg)
{
	(void)arg;
	atomic_fetch_add(&started, 1);
}

/* Of one of its threads; the first figure of schedstat is the time on a
 * processor. */
static void
add_thread(const char *task, struct count *count)
{
	char path[300];
	uint64_t cpu_ns;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
	count->voluntary += perf_proc(path, "voluntary_ctxt_switches:");
	snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", task);
	cpu_ns = perf_proc(path, "");
	perf_must(cpu_ns != UINT64_MAX, "reading a thread's schedstat");
	count->cpu_ns += cpu_ns;
	count->threads++;
}

/* The calling thread is the first one, whose number is the process's. */
static struct count
read_count(void)
{
	struct count count = {0};
	DIR *tasks = opendir("/proc/self/task");
	long caller = getpid();
	struct dirent *task;

	perf_must(tasks, "opening /proc/self/task");
	while ((task = readdir(tasks))) {
		if (task->d_name[0] == '.' ||
		    strtol(task->d_name, NULL, 10) == caller)
			continue;
		add_thread(task->d_name, &count);
	}
	closedir(tasks);
	return count;
}

/* Those that are scheduled one by one, and sleep between them. */
static void
run_load(subject_handle *handles)
{
	uint64_t begun_ns = perf_now_ns(), i;
	uint64_t count = load.per_second * load.seconds;

	for (i = 0; i < count; i++) {
		subject_schedule(
		    subject, &handles[i], idle_task, NULL, HWT_MS(DELAY_MS));
		perf_sleep_until_ns(
		    begun_ns + (i + 1) * HWT_SEC(1) / load.per_second);
	}
	perf_sleep_until_ns(begun_ns + HWT_SEC(load.seconds));
}

static void
tell(const struct count *from, const struct count *to)
{
	perf_metric("wakeups", "1/min",
	    60 * (double)(to->voluntary - from->voluntary) /
		(double)load.seconds);
	perf_metric("worker_cpu_percent", "%",
	    (double)(to->cpu_ns - from->cpu_ns) / 1e7 / (double)load.seconds);
}

static void
run(void)
{
	uint64_t ones = load.per_second * load.seconds, i;
	subject_handle *handles =
	    calloc(load.pending + ones + 1, sizeof(*handles));
	struct count from, to;

	perf_must(handles, "calloc");
	subject = subject_create(load.tick_ns, load.pending + ones);
	for (i = 0; i < load.pending; i++)
		subject_schedule(
		    subject, &handles[i], idle_task, NULL, HWT_SEC(3600));
	/* It takes them over and falls asleep. */
	perf_sleep_until_ns(perf_now_ns() + HWT_SEC(1) + 2 * load.tick_ns);
	from = read_count();
	run_load(handles + load.pending);
	to = read_count();
	perf_must(to.threads == from.threads, "keeping threads");
	tell(&from, &to);
	perf_sleep_until_ns(
	    perf_now_ns() + HWT_SEC(1) + HWT_MS(DELAY_MS) + 2 * load.tick_ns);
	perf_must(atomic_load(&started) == ones, "starting each once");
	for (i = 0; i < load.pending + ones; i++)
		subject_cancel(subject, handles[i]);
	subject_destroy(subject);
	free(handles);
}

int
main(int argc, char **argv)
{
	(void)perf_begin(argc, argv, subject_version());
	load.pending = perf_option("pending", 0);
	load.per_second = perf_option("per_second", 0);
	load.seconds = perf_option("seconds", 10);
	load.tick_ns = HWT_MS(perf_option("tick_ms", 100));
	perf_options_end();
	perf_must(load.seconds && load.tick_ns, "reading the options");
	if (SUBJECT_SINGLE)
		perf_skip(SUBJECT_NAME ": it has no thread that could sleep");
	run();
	return 0;
}
