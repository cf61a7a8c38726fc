/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does an innocent timeout stay on time while others flood the timer with
 * timeouts that are minutes away?
 *
 *   flood=replace        each producer keeps its timeouts pending, cancels one
 *                        at random and schedules another in its place
 *         reschedule     moves one at random, earlier or later
 *         pull_in        pulls each in by 5 s, one after the other, again and
 *                        again; after an hour's worth, all go back
 *         at_once        schedules all its timeouts at once, then nothing
 *         earlier        schedules them, each a tick earlier than the one
 *                        before, cancels them all, and so on; after an
 *                        hour's worth of ticks, from the farthest again
 *   outstanding=100000   timeouts of each producer
 *   producers=1  seconds=5 (60 at most)  tick_ms=1  seed=1
 *   delay_ms=20  every_ms=2   of the probes; every other one has STAGGER_MS
 *                        more, so that they are not due in order
 *
 * ..._beyond_ms is lateness above the control thread's lag, p99 above p99 and
 * greatest above greatest. order: probes that started after one with a later
 * tick boundary. rss_growth_ratio: the greatest RSS, second half to first.
 */
#include "perf/loads.h"

enum {
	STAGGER_MS = 5,
	NEAREST_S = 120,
	RANGE_S = 3600,
	PULL_IN_S = 5,
	SECONDS_MAX = 60,
	/* For the worker to take over what was there before the flood. */
	SETTLE_MS = 300,
	RSS_EVERY_MS = 50,
	/* By how much a subject's clock may be ahead of CLOCK_MONOTONIC. */
	CLOCK_AHEAD_NS = 10000,
	BATCH = 512,
	TIMEOUT_BYTES = 256
};

/* Due when the call began, or at the latest when it returned, and its delay. */
struct probe {
	struct loads_timeout timeout;
	uint64_t latest_due_ns;
};

/* A cache line each: place is written in every batch. */
struct producer {
	_Alignas(64) subject_handle *handles;
	uint64_t place, lap, random, calls;
	pthread_t thread;
};

struct flood {
	const char *name;
	/* Its timeouts are pending before it begins. */
	bool filled;
	void (*batch)(struct producer *producer);
};

static struct {
	const struct flood *flood;
	uint64_t producers, outstanding, tick_ns, delay_ns, every_ns;
	double seconds;
} load;

static struct subject *subject;
/* The first tick boundary lies between these. */
static uint64_t origin_from_ns, origin_to_ns;
static struct probe *probes;
static uint64_t probe_count;
static pthread_barrier_t filled, begun;
static atomic_bool quit;

static uint64_t
random_delay_ns(struct producer *producer)
{
	return HWT_SEC(NEAREST_S) +
	    HWT_MS(
		perf_random_below(&producer->random, UINT64_C(1000) * RANGE_S));
}

static subject_handle *
random_handle(struct producer *producer)
{
	return &producer->handles[perf_random_below(
	    &producer->random, load.outstanding)];
}

static void
schedule(subject_handle *handle, uint64_t delay_ns)
{
	subject_schedule(subject, handle, loads_stray, NULL, delay_ns);
}

static void
replace_batch(struct producer *producer)
{
	subject_handle *handle;
	unsigned i;

	for (i = 0; i < BATCH; i++) {
		handle = random_handle(producer);
		subject_cancel(subject, *handle);
		schedule(handle, random_delay_ns(producer));
	}
	producer->calls += (uint64_t)2 * BATCH;
}

static void
reschedule_batch(struct producer *producer)
{
	unsigned i;

	for (i = 0; i < BATCH; i++)
		subject_reschedule(subject, random_handle(producer),
		    random_delay_ns(producer));
	producer->calls += BATCH;
}

static void
pull_in_batch(struct producer *producer)
{
	uint64_t delay_ns;
	unsigned i;

	for (i = 0; i < BATCH; i++) {
		if (producer->place == load.outstanding) {
			producer->place = 0;
			producer->lap++;
		}
		delay_ns = HWT_SEC(
		    NEAREST_S + RANGE_S - producer->lap * PULL_IN_S % RANGE_S);
		subject_reschedule(
		    subject, &producer->handles[producer->place++], delay_ns);
	}
	producer->calls += BATCH;
}

static void
at_once_batch(struct producer *producer)
{
	unsigned i;

	if (producer->place == load.outstanding)
		perf_sleep_until_ns(perf_now_ns() + PERF_STEP_NS);
	for (i = 0; i < BATCH && producer->place < load.outstanding; i++)
		schedule(&producer->handles[producer->place++],
		    random_delay_ns(producer));
	producer->calls += i;
}

/* place: below outstanding, that one is scheduled next; beyond, cancelled. */
static void
earlier_batch(struct producer *producer)
{
	uint64_t ticks = HWT_SEC(RANGE_S) / load.tick_ns, place;
	unsigned i;

	for (i = 0; i < BATCH; i++) {
		place = producer->place++;
		if (place < load.outstanding)
			schedule(&producer->handles[place],
			    HWT_SEC(NEAREST_S) +
				(ticks - producer->lap++ % ticks) *
				    load.tick_ns);
		else
			subject_cancel(subject,
			    producer->handles[place - load.outstanding]);
		if (producer->place == 2 * load.outstanding)
			producer->place = 0;
	}
	producer->calls += BATCH;
}

static const struct flood floods[] = {{"replace", true, replace_batch},
    {"reschedule", true, reschedule_batch}, {"pull_in", true, pull_in_batch},
    {"at_once", false, at_once_batch}, {"earlier", false, earlier_batch}};

static void *
producer_thread(void *arg)
{
	struct producer *producer = arg;
	uint64_t i;

	for (i = 0; load.flood->filled && i < load.outstanding; i++)
		schedule(&producer->handles[i], HWT_SEC(NEAREST_S + RANGE_S));
	pthread_barrier_wait(&filled);
	pthread_barrier_wait(&begun);
	while (!atomic_load_explicit(&quit, memory_order_relaxed))
		load.flood->batch(producer);
	return NULL;
}

static void
schedule_probe(struct probe *probe, uint64_t delay_ns)
{
	probe->timeout.due_ns = perf_now_ns() + delay_ns;
	subject_schedule(subject, NULL, loads_task, &probe->timeout, delay_ns);
	probe->latest_due_ns = perf_now_ns() + delay_ns;
}

/* rss_bytes: the greatest of each half. */
static void
run_probes(uint64_t rss_bytes[2])
{
	uint64_t begun_ns = perf_now_ns(), rss_ns = begun_ns, bytes, i;
	unsigned half;

	for (i = 0; i < probe_count; i++) {
		schedule_probe(&probes[i],
		    load.delay_ns + (i % 2 ? HWT_MS(STAGGER_MS) : 0));
		perf_sleep_until_ns(begun_ns + load.every_ns * (i + 1));
		if (perf_now_ns() < rss_ns)
			continue;
		rss_ns += HWT_MS(RSS_EVERY_MS);
		bytes = perf_rss_bytes();
		half = i >= probe_count / 2;
		if (bytes > rss_bytes[half])
			rss_bytes[half] = bytes;
	}
	loads_await(subject, probe_count, perf_now_ns() + load.delay_ns);
}

/* The first boundary at or after the deadline, as a number from the origin:
 * the least it can be. */
static uint64_t
least_tick(const struct probe *probe)
{
	return (probe->timeout.due_ns - origin_to_ns + load.tick_ns - 1) /
	    load.tick_ns;
}

static uint64_t
greatest_tick(const struct probe *probe)
{
	return (probe->latest_due_ns + CLOCK_AHEAD_NS - origin_from_ns +
		   load.tick_ns - 1) /
	    load.tick_ns;
}

static int
compare_started(const void *left, const void *right)
{
	const struct probe *a = left, *b = right;

	return perf_compare_ns(&a->timeout.started_ns, &b->timeout.started_ns);
}

/* Sorts them, and leaves those that never started in front. */
static uint64_t
count_order(void)
{
	uint64_t latest = 0, order = 0, i;

	qsort(probes, probe_count, sizeof(*probes), compare_started);
	for (i = 0; i < probe_count; i++) {
		if (!atomic_load(&probes[i].timeout.started_ns))
			continue;
		if (greatest_tick(&probes[i]) < latest)
			order++;
		if (least_tick(&probes[i]) > latest)
			latest = least_tick(&probes[i]);
	}
	return order;
}

static void
tell(struct perf_histogram *lag)
{
	static struct loads_starts starts;
	const struct perf_histogram *late = &starts.late;
	uint64_t i;

	for (i = 0; i < probe_count; i++)
		loads_judge(&starts, &probes[i].timeout);
	perf_metric("late_p99_beyond_ms", "ms",
	    (perf_histogram_ns(late, 0.99) - perf_histogram_ns(lag, 0.99)) /
		1e6);
	perf_metric("late_max_beyond_ms", "ms",
	    ((double)late->max_ns - (double)lag->max_ns) / 1e6);
	loads_tell_starts(&starts);
	perf_metric_lateness("lag", lag);
	if (SUBJECT_TICK_ORDER)
		perf_metric("order", "count", (double)count_order());
}

static void
start_producers(struct producer *producers, uint64_t seed)
{
	uint64_t i;

	for (i = 0; i < load.producers; i++) {
		producers[i] = (struct producer){.random = seed * 1000 + i};
		producers[i].handles =
		    calloc(load.outstanding, sizeof(*producers[i].handles));
		perf_must(producers[i].handles, "calloc");
		perf_start(
		    &producers[i].thread, producer_thread, &producers[i]);
	}
}

/* What is pending stays so: destroying the subject drops it. */
static uint64_t
join_producers(struct producer *producers)
{
	uint64_t calls = 0, i;

	atomic_store(&quit, true);
	for (i = 0; i < load.producers; i++) {
		pthread_join(producers[i].thread, NULL);
		calls += producers[i].calls;
	}
	return calls;
}

static void
run(uint64_t seed)
{
	struct producer *producers = aligned_alloc(_Alignof(struct producer),
	    load.producers * sizeof(struct producer));
	static struct perf_control control;
	uint64_t rss_bytes[2] = {0, 0}, flood_ns, calls, i;

	perf_must(producers != NULL, "aligned_alloc");
	start_producers(producers, seed);
	pthread_barrier_wait(&filled);
	if (load.flood->filled)
		perf_sleep_until_ns(perf_now_ns() + HWT_MS(SETTLE_MS));
	perf_control_start(&control);
	pthread_barrier_wait(&begun);
	flood_ns = perf_now_ns();
	run_probes(rss_bytes);
	perf_control_stop(&control);
	calls = join_producers(producers);
	perf_must(!atomic_load(&loads_strays), "keeping what was not due");
	flood_ns = perf_now_ns() - flood_ns;
	tell(&control.lag);
	perf_metric("rss_growth_ratio", "ratio",
	    (double)rss_bytes[1] / (double)rss_bytes[0]);
	perf_metric("rss_mib", "MiB", (double)rss_bytes[1] / 1048576);
	perf_metric(
	    "calls_per_us", "1/us", 1e3 * (double)calls / (double)flood_ns);
	for (i = 0; i < load.producers; i++)
		free(producers[i].handles);
	free(producers);
}

static const struct flood *
find_flood(const char *name)
{
	unsigned i;

	for (i = 0; i < sizeof(floods) / sizeof(floods[0]); i++)
		if (!strcmp(name, floods[i].name))
			return &floods[i];
	perf_must(false, "finding such a flood");
	return NULL;
}

static void
read_load(void)
{
	load.flood = find_flood(perf_text("flood", "replace"));
	load.outstanding = perf_option("outstanding", 100000);
	load.producers = perf_option("producers", 1);
	load.seconds = perf_fraction("seconds", 5);
	load.tick_ns = HWT_MS(perf_option("tick_ms", 1));
	load.delay_ns = HWT_MS(perf_option("delay_ms", 20));
	load.every_ns = HWT_MS(perf_option("every_ms", 2));
	perf_options_end();
	perf_must(load.outstanding && load.producers && load.tick_ns &&
		load.every_ns && load.seconds > 0 &&
		load.seconds <= SECONDS_MAX,
	    "reading the options");
	probe_count = (uint64_t)(load.seconds * 1e9) / load.every_ns;
	perf_must(probe_count > 1, "reading the options");
	loads_need_threads();
	loads_need_memory(load.producers * load.outstanding, TIMEOUT_BYTES);
}

int
main(int argc, char **argv)
{
	uint64_t seed = perf_begin(argc, argv, subject_version());
	unsigned threads;

	read_load();
	threads = (unsigned)load.producers + 1;
	pthread_barrier_init(&filled, NULL, threads);
	pthread_barrier_init(&begun, NULL, threads);
	probes = calloc(probe_count, sizeof(*probes));
	perf_must(probes, "calloc");
	origin_from_ns = perf_now_ns();
	subject = subject_create(
	    load.tick_ns, load.producers * load.outstanding + probe_count);
	origin_to_ns = perf_now_ns();
	run(seed);
	subject_destroy(subject);
	free(probes);
	return 0;
}
