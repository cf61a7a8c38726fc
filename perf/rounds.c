/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What do timeouts cost that are not due for many rounds of the wheel?
 *
 * Near traffic of 10,000 timeouts a second, due within a second, is measured
 * alone first, and then beside far ones that are due in 30 to 60 minutes and
 * lie in the same buckets: what the worker takes more is what it takes to pass
 * them over. A far one that starts is a stray.
 *
 *   rounds [far=1000000] [tick_ms=1] [buckets=512] [seconds=5] [seed=1]
 *
 * The worker's CPU is that of the process, less that of the thread that
 * schedules; of a single-threaded subject, the whole.
 */
#define _GNU_SOURCE
#include "perf/loads.h"

enum {
	BUCKETS = 512,
	/* Timeouts scheduled at a time; then the thread sleeps. */
	BATCHES_A_SECOND = 1000,
	BATCH = 10,
	RATE = BATCH * BATCHES_A_SECOND
};

static const uint64_t far_min_ns = HWT_MIN(30), far_spread_ns = HWT_MIN(30);
static const uint64_t near_spread_ns = HWT_SEC(1);

struct figures {
	double worker_percent;
	uint64_t far_bytes;
};

static struct {
	struct subject *subject;
	struct loads_timeout *near;
	uint64_t near_count, random;
} run;

static void
schedule_far(uint64_t far)
{
	uint64_t i;

	for (i = 0; i < far; i++) {
		subject_schedule(run.subject, NULL, loads_stray, NULL,
		    far_min_ns + perf_random(&run.random) % far_spread_ns);
		loads_turn_seldom(run.subject, i);
	}
}

static void
schedule_near(struct loads_timeout *near)
{
	uint64_t delay_ns = perf_random_below(&run.random, near_spread_ns);

	near->due_ns = perf_now_ns() + delay_ns;
	subject_schedule(run.subject, NULL, loads_task, near, delay_ns);
}

static uint64_t
worker_cpu_ns(void)
{
	return SUBJECT_SINGLE ? perf_cpu_ns() : loads_others_cpu_ns();
}

/* Near traffic for so long; the first second of it fills the second to come,
 * and is not counted. */
static void
near_traffic(uint64_t seconds, struct figures *figures)
{
	uint64_t begun_ns = perf_now_ns(), begun_cpu_ns = 0, counted_ns = 0;
	uint64_t batch, i;

	for (batch = 0; batch < (seconds + 1) * BATCHES_A_SECOND; batch++) {
		if (batch == BATCHES_A_SECOND) {
			counted_ns = perf_now_ns();
			begun_cpu_ns = worker_cpu_ns();
		}
		for (i = 0; i < BATCH; i++)
			schedule_near(&run.near[run.near_count++]);
		loads_pass_until_ns(run.subject,
		    begun_ns + (batch + 1) * (HWT_SEC(1) / BATCHES_A_SECOND));
	}
	counted_ns = perf_now_ns() - counted_ns;
	figures->worker_percent =
	    100 * (double)(worker_cpu_ns() - begun_cpu_ns) / (double)counted_ns;
}

static struct subject *
create(uint64_t tick_ns, uint64_t capacity, uint64_t buckets)
{
#if SUBJECT_WHEELS
	return subject_create_wheel(tick_ns, capacity, buckets);
#else
	if (buckets != BUCKETS)
		perf_skip(SUBJECT_NAME ": no wheel whose length can be chosen");
	return subject_create(tick_ns, capacity);
#endif
}

static struct figures
measure(uint64_t far, uint64_t tick_ns, uint64_t buckets, uint64_t seconds)
{
	struct figures figures = {0};
	uint64_t rss_bytes;

	run.subject =
	    create(tick_ns, far + 2 * RATE + BATCHES_A_SECOND, buckets);
	rss_bytes = perf_rss_bytes();
	schedule_far(far);
	/* A worker takes them over. */
	loads_pass_until_ns(
	    run.subject, perf_now_ns() + 2 * tick_ns + HWT_MS(500) + 100 * far);
	figures.far_bytes = perf_rss_bytes() - rss_bytes;
	near_traffic(seconds, &figures);
	loads_await(
	    run.subject, run.near_count, perf_now_ns() + near_spread_ns);
	subject_destroy(run.subject);
	return figures;
}

static void
tell_figures(
    uint64_t far, const struct figures *alone, const struct figures *with)
{
	perf_metric("far_cpu_percent", "%",
	    with->worker_percent - alone->worker_percent);
	perf_metric("worker_cpu_percent", "%", with->worker_percent);
	perf_metric("near_cpu_percent", "%", alone->worker_percent);
	if (far)
		perf_metric(
		    "bytes", "B", (double)with->far_bytes / (double)far);
}

static void
tell_near(void)
{
	static struct loads_starts starts;
	uint64_t i;

	for (i = 0; i < run.near_count; i++)
		loads_judge(&starts, &run.near[i]);
	loads_tell_starts(&starts);
	loads_tell_strays(0);
}

int
main(int argc, char **argv)
{
	uint64_t far, tick_ns, buckets, seconds;
	struct figures alone, with;

	run.random = perf_begin(argc, argv, subject_version());
	far = perf_option("far", 1000000);
	tick_ns = HWT_MS(perf_option("tick_ms", 1));
	buckets = perf_option("buckets", BUCKETS);
	seconds = perf_option("seconds", 5);
	perf_options_end();
	perf_must(tick_ns && buckets && seconds, "options");
	loads_need_memory(far, 192);
	run.near = calloc(2 * (seconds + 1) * RATE, sizeof(*run.near));
	perf_must(run.near, "calloc");
	alone = measure(0, tick_ns, buckets, seconds);
	with = far ? measure(far, tick_ns, buckets, seconds) : alone;
	tell_figures(far, &alone, &with);
	tell_near();
	free(run.near);
	return 0;
}
