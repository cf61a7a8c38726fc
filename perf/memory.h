/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory: how many bytes does a pending timeout take, everything counted, and
 * are they released when it has ended?
 *
 *   count=1000000  so many, an hour away, are pending at once: growth of RSS
 *   ended=1        they are cancelled, and RSS a second later is a multiple of
 *                  that after a warm-up
 *   tick_ms=100
 *
 * The memory of handles is mapped apart, and unmapped or not counted.
 */
#ifndef PERF_MEMORY_H
#define PERF_MEMORY_H

#include <sys/mman.h>

#include "perf/driver.h"

enum {
	MEMORY_WARM_UP = 1000,
	/* The most that a subject takes for a timeout, handle included. */
	MEMORY_BYTES_EXPECTED = 400
};

static struct {
	struct subject *subject;
	subject_handle *handles;
	uint64_t count, tick_ns;
} memory_run;

/* All of it is resident from the start. */
static void
memory_map_handles(uint64_t count)
{
	memory_run.handles =
	    mmap(NULL, count * sizeof(subject_handle), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	perf_must(memory_run.handles != MAP_FAILED, "mmap");
}

static void
memory_unmap_handles(uint64_t count)
{
	perf_must(!munmap(memory_run.handles, count * sizeof(subject_handle)),
	    "munmap");
}

/* The first boundary after the last call is a tick away at most, and one tick
 * after that the worker must have taken over what there was. */
static void
memory_pass_ticks(void)
{
	pass_until_ns(
	    memory_run.subject, perf_now_ns() + 2 * memory_run.tick_ns);
}

static void
memory_schedule(uint64_t count)
{
	uint64_t i;

	for (i = 0; i < count; i++) {
		subject_schedule(memory_run.subject, &memory_run.handles[i],
		    stray_task, NULL, HWT_SEC(3600));
		turn_seldom(memory_run.subject, i);
	}
	memory_pass_ticks();
}

static void
memory_cancel(uint64_t count)
{
	uint64_t i;

	for (i = 0; i < count; i++) {
		subject_cancel(memory_run.subject, memory_run.handles[i]);
		turn_seldom(memory_run.subject, i);
	}
}

static void
memory_pending(void)
{
	double before;

	memory_map_handles(memory_run.count);
	before = (double)perf_rss_exact_bytes();
	memory_schedule(memory_run.count);
	perf_metric("bytes", "bytes",
	    ((double)perf_rss_exact_bytes() - before) /
		(double)memory_run.count);
	memory_cancel(memory_run.count);
	memory_unmap_handles(memory_run.count);
}

static void
memory_ended(void)
{
	double before, after;

	memory_map_handles(MEMORY_WARM_UP);
	memory_schedule(MEMORY_WARM_UP);
	memory_cancel(MEMORY_WARM_UP);
	memory_pass_ticks();
	memory_unmap_handles(MEMORY_WARM_UP);
	before = (double)perf_rss_exact_bytes();
	memory_map_handles(memory_run.count);
	memory_schedule(memory_run.count);
	memory_cancel(memory_run.count);
	memory_unmap_handles(memory_run.count);
	pass_until_ns(memory_run.subject, perf_now_ns() + HWT_SEC(1));
	after = (double)perf_rss_exact_bytes();
	perf_metric("rss_after", "ratio", after / before);
}

static void
memory(uint64_t seed)
{
	bool ended = perf_option("ended", 0);

	(void)seed;
	memory_run.count = perf_option("count", 1000000);
	memory_run.tick_ns = HWT_MS(perf_option("tick_ms", 100));
	perf_options_end();
	perf_must(memory_run.count >= MEMORY_WARM_UP && memory_run.tick_ns,
	    "reading the options");
	need_memory(memory_run.count, MEMORY_BYTES_EXPECTED);
	memory_run.subject =
	    subject_create(memory_run.tick_ns, memory_run.count);
	if (ended)
		memory_ended();
	else
		memory_pending();
	perf_metric("strays", "count", (double)atomic_load(&strays));
	subject_destroy(memory_run.subject);
}

#endif
