/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Do timeouts stay on time, and memory flat, beside producers at full speed?
 *
 * Producers schedule and cancel the oldest of their outstanding timeouts as
 * fast as they can. Beside them a probe of 200 ms is scheduled every 50 ms. A
 * control thread does nothing but sleep from one millisecond to the next, and
 * its largest lag is what the machine itself took away.
 *
 *   producers=2       threads. A subject that is for one thread alone has one,
 *                     which schedules the probes as well
 *   outstanding=1024  timeouts of each
 *   seconds=10        3 or more: RSS at the end is told as a multiple of that
 *                     after 2 s
 *   tick_ms=100  seed=1 (no lots are drawn)
 *
 * late_beyond_ms: by how much the latest probe was later than two ticks and the
 * control thread's largest lag; below 0, it was not.
 */
#include "perf/perf.h"
#include SUBJECT

enum {
	PROBE_EVERY_MS = 50,
	PROBE_DELAY_MS = 200,
	RSS_AFTER_S = 2,
	/* A probe that has not started that long after its time is lost. */
	PATIENCE_S = 30,
	BATCH = 512
};

struct probe {
	subject_handle handle;
	uint64_t asked_ns;
	atomic_uint_fast64_t started_ns;
};

/* A cache line each: place is written for every pair. */
struct producer {
	_Alignas(64) subject_handle *ring;
	uint64_t place, pairs;
	pthread_t thread;
};

static struct {
	uint64_t producers, outstanding, seconds, tick_ns;
} load;

static struct subject *subject;
static struct probe *probes;
static uint64_t probe_count, begun_ns;
static atomic_bool quit;

SUBJECT_TASK(never_due, arg)
{
	(void)arg;
	perf_must(false, "keeping what was not due from running");
}

SUBJECT_TASK(probe_task, arg)
{
	struct probe *probe = arg;

	atomic_store(&probe->started_ns, perf_now_ns());
}

static void
schedule(subject_handle *handle)
{
	perf_must(
	    subject_schedule(subject, handle, never_due, NULL, HWT_SEC(30)),
	    "scheduling");
}

static void
producer_fill(struct producer *producer)
{
	uint64_t i;

	producer->ring = calloc(load.outstanding, sizeof(*producer->ring));
	perf_must(producer->ring, "calloc");
	for (i = 0; i < load.outstanding; i++)
		schedule(&producer->ring[i]);
}

static void
producer_run(struct producer *producer)
{
	subject_handle *handle;
	unsigned i;

	for (i = 0; i < BATCH; i++) {
		handle = &producer->ring[producer->place];
		if (++producer->place == load.outstanding)
			producer->place = 0;
		subject_cancel(subject, *handle);
		schedule(handle);
	}
	producer->pairs += BATCH;
	subject_turn(subject);
}

static void
producer_empty(struct producer *producer)
{
	uint64_t i;

	for (i = 0; i < load.outstanding; i++)
		subject_cancel(subject, producer->ring[i]);
	free(producer->ring);
}

static void *
producer_thread(void *arg)
{
	struct producer *producer = arg;

	producer_fill(producer);
	while (!atomic_load_explicit(&quit, memory_order_relaxed))
		producer_run(producer);
	producer_empty(producer);
	return NULL;
}

/* Of a subject for one thread: that thread. */
static void
await(uint64_t until_ns, struct producer *producer)
{
	if (!SUBJECT_SINGLE) {
		perf_sleep_until_ns(until_ns);
		return;
	}
	while (perf_now_ns() < until_ns)
		producer_run(producer);
}

static void
await_probes(struct producer *producer)
{
	uint64_t end_ns = perf_now_ns() + HWT_SEC(PATIENCE_S), i = 0;

	while (i < probe_count && perf_now_ns() < end_ns) {
		if (atomic_load(&probes[i].started_ns))
			i++;
		else
			await(perf_now_ns() + PERF_STEP_NS, producer);
	}
}

static void
run_probes(struct producer *producer, double rss_mib[2])
{
	uint64_t i;

	for (i = 0; i < probe_count; i++) {
		if (i == RSS_AFTER_S * 1000 / PROBE_EVERY_MS)
			rss_mib[0] = (double)perf_rss_bytes() / 1048576;
		probes[i].asked_ns = perf_now_ns();
		perf_must(subject_schedule(subject, &probes[i].handle,
			      probe_task, &probes[i], HWT_MS(PROBE_DELAY_MS)),
		    "scheduling a probe");
		await(begun_ns + HWT_MS(PROBE_EVERY_MS) * (i + 1), producer);
	}
	rss_mib[1] = (double)perf_rss_bytes() / 1048576;
	await_probes(producer);
}

static void
tell(uint64_t lag_max_ns)
{
	static struct perf_histogram late;
	uint64_t i, due_ns, started_ns, early = 0, lost = 0;
	double beyond_ns;

	for (i = 0; i < probe_count; i++) {
		due_ns = probes[i].asked_ns + HWT_MS(PROBE_DELAY_MS);
		started_ns = atomic_load(&probes[i].started_ns);
		if (!started_ns)
			lost++;
		else if (started_ns < due_ns)
			early++;
		else
			perf_histogram_add(&late, started_ns - due_ns);
	}
	beyond_ns = (double)late.max_ns - (double)(2 * load.tick_ns) -
	    (double)lag_max_ns;
	perf_metric("late_beyond_ms", "ms", beyond_ns / 1e6);
	perf_metric_lateness("late", &late);
	perf_metric("lag_max_ms", "ms", (double)lag_max_ns / 1e6);
	perf_metric("early", "count", (double)early);
	perf_metric("lost", "count", (double)lost);
	perf_metric("tick_ms", "ms", (double)load.tick_ns / 1e6);
}

static uint64_t
join_producers(struct producer *producers)
{
	uint64_t pairs = 0, i;

	atomic_store(&quit, true);
	for (i = 0; i < load.producers; i++) {
		if (SUBJECT_SINGLE)
			producer_empty(&producers[i]);
		else
			pthread_join(producers[i].thread, NULL);
		pairs += producers[i].pairs;
	}
	return pairs;
}

static void
run(void)
{
	size_t size = load.producers * sizeof(struct producer);
	struct producer *producers =
	    aligned_alloc(_Alignof(struct producer), size);
	struct perf_control control;
	uint64_t cpu_ns = perf_cpu_ns(), pairs, i;
	double rss_mib[2] = {1, 1};

	perf_must(producers != NULL, "aligned_alloc");
	memset(producers, 0, size);
	perf_control_start(&control);
	begun_ns = perf_now_ns();
	for (i = 0; i < load.producers; i++) {
		if (SUBJECT_SINGLE)
			producer_fill(&producers[i]);
		else
			perf_must(!pthread_create(&producers[i].thread, NULL,
				      producer_thread, &producers[i]),
			    "pthread_create");
	}
	run_probes(producers, rss_mib);
	perf_control_stop(&control);
	pairs = join_producers(producers);
	cpu_ns = perf_cpu_ns() - cpu_ns - control.cpu_ns;
	tell(control.lag.max_ns);
	perf_metric("rss_growth_ratio", "ratio", rss_mib[1] / rss_mib[0]);
	perf_metric("rss_mib", "MiB", rss_mib[1]);
	perf_metric("cpu_ns", "ns", (double)cpu_ns / (double)pairs);
	perf_metric("pairs", "count", (double)pairs);
	for (i = 0; SUBJECT_STALE_SAFE && i < probe_count; i++)
		subject_cancel(subject, probes[i].handle);
	free(producers);
}

int
main(int argc, char **argv)
{
	perf_about(argc, argv, subject_version());
	perf_known(argc, argv, "producers outstanding seconds tick_ms seed");
	load.producers = perf_option(argc, argv, "producers", 2);
	load.outstanding = perf_option(argc, argv, "outstanding", 1024);
	load.seconds = perf_option(argc, argv, "seconds", 10);
	load.tick_ns = HWT_MS(perf_option(argc, argv, "tick_ms", 100));
	perf_must(load.producers && load.outstanding && load.tick_ns &&
		load.seconds > RSS_AFTER_S,
	    "reading the options");
	if (SUBJECT_SINGLE)
		load.producers = 1;
	probe_count = load.seconds * 1000 / PROBE_EVERY_MS;
	probes = calloc(probe_count, sizeof(*probes));
	perf_must(probes, "calloc");
	subject = subject_create(
	    load.tick_ns, load.producers * load.outstanding + probe_count);
	run();
	subject_destroy(subject);
	free(probes);
	return 0;
}
