/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the workloads of the driver: the subject's tasks, waiting, the
 * memory that there is, and the observer.
 *
 * The observer schedules a probe every few milliseconds beside the load, and
 * gives the distribution of their lateness. Its control thread only sleeps from
 * one millisecond to the next: its lag is what the machine itself takes away.
 */
#ifndef PERF_DRIVER_H
#define PERF_DRIVER_H

#include "perf/perf.h"
#include "perf/subject.h"

enum {
	/* Calls between two turns of a subject that has no thread. */
	TURN_CALLS = 1024,
	/* A task that has not started so long after its time is lost. */
	PATIENCE_S = 30,
	CONTROL_STEP_NS = 1000000,
	RSS_EVERY_MS = 50
};

/* A timeout that must start. started_ns: 0 if it has not. */
struct probe {
	uint64_t due_ns;
	atomic_uint_fast64_t started_ns;
};

/* How many probes have started, and how many tasks that were not due. */
static atomic_uint_fast64_t probes_started, strays;

__attribute__((unused)) SUBJECT_TASK(probe_task, arg)
{
	struct probe *probe = arg;

	atomic_store(&probe->started_ns, perf_now_ns());
	atomic_fetch_add(&probes_started, 1);
}

__attribute__((unused)) SUBJECT_TASK(stray_task, arg)
{
	(void)arg;
	atomic_fetch_add_explicit(&strays, 1, memory_order_relaxed);
}

static void
probe_schedule(struct subject *subject, struct probe *probe, uint64_t delay_ns)
{
	probe->due_ns = perf_now_ns() + delay_ns;
	subject_schedule(subject, NULL, probe_task, probe, delay_ns);
}

static void
turn_seldom(struct subject *subject, uint64_t call)
{
	if (call % TURN_CALLS == 0)
		subject_turn(subject);
}

/* Sleeps; a subject without a thread is turned meanwhile. */
static void
pass_until_ns(struct subject *subject, uint64_t until_ns)
{
	uint64_t now_ns;

	while (SUBJECT_SINGLE && (now_ns = perf_now_ns()) < until_ns) {
		subject_turn(subject);
		now_ns += CONTROL_STEP_NS;
		perf_sleep_until_ns(now_ns < until_ns ? now_ns : until_ns);
	}
	perf_sleep_until_ns(until_ns);
}

static void
await_probes(struct subject *subject, uint64_t count, uint64_t due_ns)
{
	uint64_t end_ns = due_ns + HWT_SEC(PATIENCE_S);

	while (atomic_load(&probes_started) < count && perf_now_ns() < end_ns)
		pass_until_ns(subject, perf_now_ns() + CONTROL_STEP_NS);
}

static void
need_threads(void)
{
	if (SUBJECT_SINGLE)
		perf_skip(SUBJECT_NAME ": only one thread may call");
}

static void
need_memory(uint64_t timeouts, uint64_t bytes_each)
{
	uint64_t needed = timeouts * bytes_each + (UINT64_C(64) << 20);

	if (perf_proc("/proc/meminfo", "MemAvailable:") < needed / 1024)
		perf_skip("%" PRIu64 " timeouts may take %" PRIu64
			  " MiB, and less memory is available",
		    timeouts, needed >> 20);
}

/* Prints lateness as a distribution, and how many were early or lost. */
static void
print_probes(struct probe *probes, uint64_t count, struct perf_histogram *late)
{
	uint64_t early = 0, lost = 0, started_ns, i;

	for (i = 0; i < count; i++) {
		started_ns = atomic_load(&probes[i].started_ns);
		if (!started_ns)
			lost++;
		else if (started_ns < probes[i].due_ns)
			early++;
		else
			perf_histogram_add(late, started_ns - probes[i].due_ns);
	}
	perf_metric_parts(late, "late", "ms", 1e6);
	perf_metric("early", "count", (double)early);
	perf_metric("lost", "count", (double)lost);
}

/* A millisecond that the control thread slept over counts with its own lag, so
 * that the lag compares with the lateness of what was due meanwhile. */
struct control {
	pthread_t thread;
	atomic_bool quit;
	struct perf_histogram lag;
	uint64_t cpu_ns;
};

static void *
control_thread(void *arg)
{
	struct control *control = arg;
	uint64_t step_ns = perf_now_ns() + CONTROL_STEP_NS, now_ns;

	while (!atomic_load(&control->quit)) {
		perf_sleep_until_ns(step_ns);
		now_ns = perf_now_ns();
		for (; step_ns <= now_ns; step_ns += CONTROL_STEP_NS)
			perf_histogram_add(&control->lag, now_ns - step_ns);
	}
	control->cpu_ns = perf_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

/* every_ns 0: it does not observe. Every other probe has stagger_ns more, so
 * that they are not due in the order of scheduling. */
static struct observer {
	uint64_t every_ns, delay_ns, stagger_ns;
	struct control control;
	struct probe *probes;
	uint64_t count;
	uint64_t rss_bytes[2]; /* the greatest of each half */
} observer;

/* The last probe is due before the load ends. */
static void
observer_create(
    uint64_t load_ns, uint64_t tick_ns, uint64_t every_us, uint64_t delay_ms)
{
	uint64_t last_ns;

	observer.every_ns = HWT_US(every_us);
	observer.delay_ns = HWT_MS(delay_ms);
	observer.stagger_ns = HWT_MS(5);
	last_ns = observer.delay_ns + observer.stagger_ns + 2 * tick_ns;
	perf_must(load_ns >= last_ns + 2 * observer.every_ns,
	    "finding time for probes: the seconds; that");
	observer.count = (load_ns - last_ns) / observer.every_ns;
	observer.probes = calloc(observer.count, sizeof(*observer.probes));
	perf_must(observer.probes, "calloc");
}

static void
observer_run(struct subject *subject, uint64_t begun_ns)
{
	uint64_t rss_ns = begun_ns, bytes, i;
	uint64_t *greatest;

	for (i = 0; i < observer.count; i++) {
		probe_schedule(subject, &observer.probes[i],
		    observer.delay_ns + (i % 2 ? observer.stagger_ns : 0));
		perf_sleep_until_ns(begun_ns + observer.every_ns * (i + 1));
		if (perf_now_ns() < rss_ns)
			continue;
		rss_ns += HWT_MS(RSS_EVERY_MS);
		bytes = perf_rss_bytes();
		greatest = &observer.rss_bytes[i >= observer.count / 2];
		if (bytes > *greatest)
			*greatest = bytes;
	}
}

static void
observer_begin(void)
{
	if (observer.every_ns)
		perf_start(&observer.control.thread, control_thread,
		    &observer.control);
}

/* Returns the CPU time of the control thread, which is not the subject's. */
static uint64_t
observer_end(struct subject *subject)
{
	if (!observer.every_ns)
		return 0;
	await_probes(subject, observer.count, perf_now_ns());
	atomic_store(&observer.control.quit, true);
	pthread_join(observer.control.thread, NULL);
	return observer.control.cpu_ns;
}

/* _beyond: p99 above the lag's p99, and the greatest above the greatest. */
static void
observer_print(void)
{
	static struct perf_histogram late;
	const struct perf_histogram *lag = &observer.control.lag;

	if (!observer.every_ns)
		return;
	print_probes(observer.probes, observer.count, &late);
	perf_metric("late_p99_beyond_ms", "ms",
	    (perf_histogram_ns(&late, 0.99) - perf_histogram_ns(lag, 0.99)) /
		1e6);
	perf_metric("late_max_beyond_ms", "ms",
	    ((double)late.max_ns - (double)lag->max_ns) / 1e6);
	perf_metric_parts(lag, "lag", "ms", 1e6);
	perf_metric("rss_growth", "ratio",
	    (double)observer.rss_bytes[1] / (double)observer.rss_bytes[0]);
}

#endif
