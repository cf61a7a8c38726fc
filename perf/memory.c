/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many bytes does a pending timeout take, everything counted, and are they
 * released when it has ended?
 *
 *   count=1000000  so many are pending at once, and the growth of RSS is told
 *   spread_s=0     their delays are an hour, and up to that much more
 *   ended=0        so many are pending at once instead, and end; a second later
 *                  RSS is told as a multiple of what it was at first
 *   fired=0        how they end: cancelled by their producer; 1: by running
 *   tick_ms=100  seed=1 (no lots are drawn)
 *
 * The memory of handles is taken from the system apart and counted off.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "perf/loads.h"

enum {
	WARM_UP = 1000,
	/* What the hungriest subjects take for a timeout, handle included. */
	BYTES_EXPECTED = 400,
	/* Timeouts that run do so within so much time, and none before all
	 * are there. */
	FIRED_SPREAD_MS = 1000,
	FIRED_CALL_NS = 1000,
	PATIENCE_S = 60
};

static struct {
	uint64_t count, spread_ns, ended, tick_ns;
	bool fired;
} load;

static struct subject *subject;
static subject_handle *handles;
static uint64_t handles_bytes;
static atomic_uint_fast64_t started, last_started_ns;

SUBJECT_TASK(memory_task, arg)
{
	(void)arg;
	atomic_store_explicit(
	    &last_started_ns, perf_now_ns(), memory_order_relaxed);
	atomic_fetch_add(&started, 1);
}

/* All of it is resident from the start. */
static void
map_handles(uint64_t count)
{
	handles_bytes = count * sizeof(*handles);
	handles = mmap(NULL, handles_bytes, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	perf_must(handles != MAP_FAILED, "mmap");
}

static void
unmap_handles(void)
{
	perf_must(!munmap(handles, handles_bytes), "munmap");
}

/* The first boundary after the last call is a tick away at most, and one tick
 * after that the worker must have taken over what there was. */
static void
pass_ticks(void)
{
	loads_pass_until_ns(subject, perf_now_ns() + 2 * load.tick_ns);
}

static void
schedule(uint64_t number, uint64_t delay_ns)
{
	subject_schedule(
	    subject, &handles[number], memory_task, NULL, delay_ns);
	loads_turn_seldom(subject, number);
}

static void
cancel_all(uint64_t count)
{
	uint64_t i;

	for (i = 0; i < count; i++) {
		subject_cancel(subject, handles[i]);
		loads_turn_seldom(subject, i);
	}
}

static void
run_pending(void)
{
	uint64_t before, i;
	double growth;

	map_handles(load.count);
	subject = subject_create(load.tick_ns, load.count);
	before = perf_rss_exact_bytes();
	for (i = 0; i < load.count; i++)
		schedule(i, HWT_SEC(3600) + i * (load.spread_ns / load.count));
	pass_ticks();
	growth = (double)perf_rss_exact_bytes() - (double)before;
	perf_metric("bytes", "bytes", growth / (double)load.count);
	cancel_all(load.count);
	subject_destroy(subject);
	unmap_handles();
}

static void
warm_up(void)
{
	uint64_t i;

	map_handles(WARM_UP);
	for (i = 0; i < WARM_UP; i++)
		schedule(i, HWT_SEC(3600));
	pass_ticks();
	cancel_all(WARM_UP);
	pass_ticks();
	unmap_handles();
}

/* Gives the moment at which the last has ended. */
static uint64_t
end_by_cancel(void)
{
	uint64_t i;

	for (i = 0; i < load.ended; i++)
		schedule(i, HWT_SEC(3600));
	pass_ticks();
	cancel_all(load.ended);
	return perf_now_ns();
}

/* Their deadlines are set, so that what is scheduled last has the shorter
 * delays. */
static uint64_t
end_by_running(void)
{
	uint64_t due_ns = perf_now_ns() + HWT_SEC(1) + 2 * load.tick_ns +
	    load.ended * FIRED_CALL_NS;
	uint64_t i, until_ns;

	for (i = 0; i < load.ended; i++) {
		until_ns = due_ns + i % FIRED_SPREAD_MS * HWT_MS(1);
		schedule(i, until_ns - perf_now_ns());
	}
	perf_must(perf_now_ns() < due_ns && !atomic_load(&started),
	    "scheduling all before the first is due");
	while (atomic_load(&started) < load.ended) {
		loads_pass_until_ns(subject, perf_now_ns() + HWT_MS(10));
		perf_must(perf_now_ns() < due_ns + HWT_SEC(PATIENCE_S),
		    "starting every task");
	}
	return atomic_load(&last_started_ns);
}

static void
run_ended(void)
{
	double before, after;
	uint64_t ended_ns;

	subject = subject_create(load.tick_ns, load.ended);
	warm_up();
	before = (double)perf_rss_exact_bytes();
	map_handles(load.ended);
	ended_ns = load.fired ? end_by_running() : end_by_cancel();
	/* Handles of what has run may hold memory: that ends now. */
	if (load.fired)
		cancel_all(load.ended);
	unmap_handles();
	loads_pass_until_ns(subject, ended_ns + HWT_SEC(1));
	after = (double)perf_rss_exact_bytes();
	perf_metric("rss_after_ratio", "ratio", after / before);
	perf_metric("rss_before_mib", "MiB", before / 1048576);
	perf_metric("rss_after_mib", "MiB", after / 1048576);
	subject_destroy(subject);
}

int
main(int argc, char **argv)
{
	(void)perf_begin(argc, argv, subject_version());
	load.count = perf_option("count", 1000000);
	load.spread_ns = HWT_SEC(perf_option("spread_s", 0));
	load.ended = perf_option("ended", 0);
	load.fired = perf_option("fired", 0);
	load.tick_ns = HWT_MS(perf_option("tick_ms", 100));
	perf_options_end();
	perf_must(load.count && load.tick_ns, "reading the options");
	loads_need_memory(load.ended ? load.ended : load.count, BYTES_EXPECTED);
	if (load.ended)
		run_ended();
	else
		run_pending();
	return 0;
}
