/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Do timeouts stay on time, and memory flat, beside producers at full speed?
 *
 * Producers schedule and cancel the oldest of 1024 outstanding timeouts as
 * fast as they can. Beside them a probe of 200 ms is scheduled every 50 ms. A
 * control thread does nothing but sleep from one millisecond to the next, and
 * its largest lag is what the machine itself took away. No probe may be early,
 * none later than two ticks plus that lag; and RSS at the end may be at most
 * 1.1 times that after 2 seconds.
 *
 *   probe [producers=2] [seconds=10] [outstanding=1024] [tick_ms=100] [--check]
 */
#include "perf.h"

enum {
	PROBE_EVERY_MS = 50,
	PROBE_DELAY_MS = 200,
	RSS_AFTER_S = 2
};

struct probe {
	uint64_t asked_ns, started_ns;
	atomic_bool started;
};

static struct hwt *timer;
static uint64_t outstanding;
static atomic_bool quit;
static atomic_uint_fast64_t pairs_total, lag_max_ns;

static void
nothing(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

static void *
producer_thread(void *unused)
{
	hwt_timeout *ring = calloc(outstanding, sizeof(*ring));
	uint64_t pairs = 0, place;

	(void)unused;
	perf_must(ring, "calloc");
	for (; !atomic_load_explicit(&quit, memory_order_relaxed); pairs++) {
		place = pairs % outstanding;
		if (ring[place].id)
			hwt_cancel(timer, ring[place]);
		perf_must(!hwt_new_timeout(
			      timer, &ring[place], nothing, NULL, HWT_SEC(30)),
		    "hwt_new_timeout");
	}
	atomic_fetch_add(&pairs_total, pairs);
	free(ring);
	return NULL;
}

static void *
control_thread(void *unused)
{
	uint64_t step_ns = perf_now_ns(), lag_ns, lag_max = 0;

	(void)unused;
	while (!atomic_load(&quit)) {
		step_ns += HWT_MS(1);
		perf_sleep_until_ns(step_ns);
		lag_ns = perf_now_ns() - step_ns;
		if (lag_ns > lag_max)
			lag_max = lag_ns;
		if (lag_ns > HWT_MS(1))
			step_ns += lag_ns;
	}
	atomic_store(&lag_max_ns, lag_max);
	return NULL;
}

static void
probe_task(hwt_timeout timeout, void *arg)
{
	struct probe *probe = arg;

	(void)timeout;
	probe->started_ns = perf_now_ns();
	atomic_store(&probe->started, true);
}

/* Schedules the probes one after the other, and tells RSS after RSS_AFTER_S
 * seconds and at the end. */
static void
run_probes(struct probe *probes, unsigned count, uint64_t rss_bytes[2])
{
	uint64_t begun_ns = perf_now_ns();
	unsigned early = RSS_AFTER_S * 1000 / PROBE_EVERY_MS;
	unsigned i;

	for (i = 0; i < count; i++) {
		if (i == early)
			rss_bytes[0] = perf_rss_bytes();
		probes[i].asked_ns = perf_now_ns();
		perf_must(!hwt_new_timeout(timer, NULL, probe_task, &probes[i],
			      HWT_MS(PROBE_DELAY_MS)),
		    "hwt_new_timeout");
		perf_sleep_until_ns(
		    begun_ns + HWT_MS(PROBE_EVERY_MS) * (i + 1));
	}
	rss_bytes[1] = perf_rss_bytes();
}

static int
compare(const void *left, const void *right)
{
	const int64_t *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

/* Lateness of each probe, sorted; the last ones get a second of patience. */
static int64_t *
latenesses(struct probe *probes, unsigned count)
{
	int64_t *late_ns = calloc(count, sizeof(*late_ns));
	unsigned i;

	perf_must(late_ns, "calloc");
	perf_sleep_until_ns(perf_now_ns() + HWT_SEC(1));
	for (i = 0; i < count; i++) {
		late_ns[i] = INT64_MAX;
		if (atomic_load(&probes[i].started))
			late_ns[i] = (int64_t)(probes[i].started_ns -
			    probes[i].asked_ns - HWT_MS(PROBE_DELAY_MS));
	}
	qsort(late_ns, count, sizeof(*late_ns), compare);
	return late_ns;
}

static bool
report(const int64_t *late_ns, unsigned count, uint64_t tick_ns,
    const uint64_t rss_bytes[2])
{
	static const double ranks[] = {0, 0.5, 0.9, 0.99, 1};
	static const char *const names[] = {"min", "p50", "p90", "p99", "max"};
	int64_t lag_ns = (int64_t)atomic_load(&lag_max_ns);
	int64_t bound_ns = (int64_t)(2 * tick_ns) + lag_ns, late;
	double growth = (double)rss_bytes[1] / (double)rss_bytes[0];
	bool kept;
	unsigned i;

	for (i = 0; i < 5; i++) {
		late = late_ns[(unsigned)(ranks[i] * (count - 1))];
		printf("  %s %.3f ms (%.2f ticks)\n", names[i],
		    (double)late / 1e6, (double)late / (double)tick_ns);
	}
	kept = late_ns[0] >= 0 && late_ns[count - 1] <= bound_ns;
	printf("  bounds: 0 and 2 ticks + %.3f ms, the control thread's "
	       "largest lag: %s\n",
	    (double)lag_ns / 1e6, kept ? "kept" : "MISSED");
	printf("RSS %.1f MiB after %d s, %.1f MiB at the end: %.3f times, "
	       "bound 1.1: %s\n",
	    (double)rss_bytes[0] / 1048576, RSS_AFTER_S,
	    (double)rss_bytes[1] / 1048576, growth,
	    growth <= 1.1 ? "kept" : "MISSED");
	return kept && growth <= 1.1;
}

static bool
run(unsigned producers, uint64_t tick_ns, uint64_t seconds)
{
	unsigned count = (unsigned)(seconds * 1000 / PROBE_EVERY_MS);
	struct probe *probes = calloc(count, sizeof(*probes));
	pthread_t *threads = calloc(producers + 1, sizeof(*threads));
	uint64_t rss_bytes[2] = {1, 1}, cpu_ns = perf_cpu_ns();
	int64_t *late_ns;
	bool kept;
	unsigned i;

	perf_must(probes && threads, "calloc");
	for (i = 0; i <= producers; i++)
		perf_must(!pthread_create(&threads[i], NULL,
			      i ? producer_thread : control_thread, NULL),
		    "pthread_create");
	run_probes(probes, count, rss_bytes);
	late_ns = latenesses(probes, count);
	atomic_store(&quit, true);
	for (i = 0; i <= producers; i++)
		pthread_join(threads[i], NULL);
	cpu_ns = perf_cpu_ns() - cpu_ns;
	printf("%u producers, %" PRIu64 " s: %.1f million pairs, CPU %.1f ns "
	       "per pair\n%u probes of %d ms, later than asked by\n",
	    producers, seconds, (double)pairs_total / 1e6,
	    (double)cpu_ns / (double)pairs_total, count, PROBE_DELAY_MS);
	kept = report(late_ns, count, tick_ns, rss_bytes);
	free(late_ns);
	free(threads);
	free(probes);
	return kept;
}

int
main(int argc, char **argv)
{
	struct hwt_options options = {0};
	uint64_t seconds = perf_option(argc, argv, "seconds", 10);
	bool kept;

	options.tick_ns = HWT_MS(perf_option(argc, argv, "tick_ms", 100));
	outstanding = perf_option(argc, argv, "outstanding", 1024);
	perf_must(seconds > RSS_AFTER_S && outstanding, "options");
	perf_header("Do timeouts stay on time, and memory flat, beside "
		    "producers at full speed?");
	perf_must(!hwt_create(&timer, &options), "hwt_create");
	kept = run((unsigned)perf_option(argc, argv, "producers", 2),
	    options.tick_ns, seconds);
	perf_must(!hwt_stop(timer, NULL) && !hwt_destroy(timer), "hwt_destroy");
	return kept || !perf_flag(argc, argv, "--check") ? 0 : 1;
}
