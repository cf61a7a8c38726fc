/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many bytes does a pending timeout take, everything counted?
 *
 * Each case schedules its timeouts in a process of its own, waits until the
 * worker has taken all over (one tick after the last), and prints the growth
 * of RSS, which counts all that the library holds, and hwt_stats.memory_bytes.
 * Handles are not kept. The bound is 96 bytes at a million.
 *
 *   memory [count=N] [--check]
 */
#include <sys/wait.h>

#include "perf.h"

enum {
	BOUND_BYTES = 96,
	AIM_BYTES = 80
};

struct load {
	uint64_t count;
	/* Delays are spread over that much, from an hour on. */
	uint64_t spread_ns;
	bool bounded;
};

static const uint64_t tick_ns = HWT_MS(100);

static void
nothing(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

/* The first boundary after the last timeout was scheduled is at most a tick
 * away, and one tick after that the worker must have taken over what there was.
 */
static void
wait_for_tick(void)
{
	perf_sleep_until_ns(perf_now_ns() + 2 * tick_ns);
}

static int
run_case(const struct load *load)
{
	struct hwt_options options = {.tick_ns = tick_ns};
	uint64_t rss_bytes, i, delay_ns = HWT_SEC(3600);
	struct hwt_stats stats;
	double by_rss, by_stats;
	struct hwt *timer;

	perf_must(
	    !hwt_create(&timer, &options) && !hwt_start(timer), "hwt_create");
	perf_must(!hwt_read_stats(timer, &stats), "hwt_read_stats");
	rss_bytes = perf_rss_bytes();
	for (i = 0; i < load->count; i++) {
		if (load->spread_ns)
			delay_ns =
			    HWT_SEC(3600) + i * (load->spread_ns / load->count);
		perf_must(
		    !hwt_new_timeout(timer, NULL, nothing, NULL, delay_ns),
		    "hwt_new_timeout");
	}
	wait_for_tick();
	by_rss = (double)(perf_rss_bytes() - rss_bytes);
	perf_must(!hwt_read_stats(timer, &stats), "hwt_read_stats");
	by_stats = (double)stats.memory_bytes;
	by_rss /= (double)load->count;
	by_stats /= (double)load->count;
	printf("%8" PRIu64 " timeouts, delays %-19s %5.1f bytes each by RSS, "
	       "%5.1f by memory_bytes",
	    load->count,
	    load->spread_ns ? "spread over an hour:" : "the same:", by_rss,
	    by_stats);
	if (load->bounded)
		printf(", bound %d%s, aim %d%s", BOUND_BYTES,
		    by_rss > BOUND_BYTES ? " MISSED" : "", AIM_BYTES,
		    by_rss > AIM_BYTES ? " missed" : "");
	printf("\n");
	fflush(stdout);
	return load->bounded && by_rss > BOUND_BYTES;
}

/* A fresh process for each, so that none finds the memory of another. */
static bool
run_case_alone(const struct load *load)
{
	pid_t child = fork();
	int status = 0;

	perf_must(child >= 0, "fork");
	if (!child)
		_exit(run_case(load));
	perf_must(waitpid(child, &status, 0) == child, "waitpid");
	perf_must(WIFEXITED(status) && WEXITSTATUS(status) < 2, "a case");
	return !WEXITSTATUS(status);
}

int
main(int argc, char **argv)
{
	uint64_t count = perf_option(argc, argv, "count", 0);
	struct load loads[] = {{100000, 0, false},
	    {100000, HWT_SEC(3600), false}, {1000000, 0, true},
	    {1000000, HWT_SEC(3600), true}};
	bool kept = true;
	unsigned i;

	perf_header("How many bytes does a pending timeout take?");
	for (i = 0; i < 4; i++) {
		if (count)
			loads[i].count = count;
		if (!count || i < 2)
			kept &= run_case_alone(&loads[i]);
	}
	return kept || !perf_flag(argc, argv, "--check") ? 0 : 1;
}
