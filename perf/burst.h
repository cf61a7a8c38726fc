/* SPDX-License-Identifier: Apache-2.0 */
/*
 * burst: what does each of count timeouts cost that are due in one tick, as
 * when a network breaks?
 *
 *   count=100000  aged=1  tick_ms=100
 *
 * aged=1: before, twice as many others were scheduled and half of them, at
 * random, cancelled; the other half when all is scheduled. So memory lies about
 * as it does in a process that has lived.
 *
 * cpu_ns is that of the process from a millisecond before the deadline to the
 * last start, for each timeout. A task that starts twice is a stray.
 */
#ifndef PERF_BURST_H
#define PERF_BURST_H

#include "perf/driver.h"

/* The deadline is so much before a boundary: also when the clock is read a
 * little later, it belongs there; and the timer's origin is at most so much
 * after subject_create began. */
static const uint64_t burst_before_boundary_ns = 250000;

static struct {
	struct subject *subject;
	uint64_t count, unsure, tick_ns, due_ns, cpu_begun_ns;
	bool aged;
} burst_load;

static atomic_uint_fast64_t burst_started;
/* Written by the first and the last start; then burst_over is set. */
static uint64_t burst_first_ns, burst_cpu_ended_ns;
static atomic_bool burst_over;

/* All tasks run in one thread. */
SUBJECT_TASK(burst_task, arg)
{
	uint64_t count =
	    atomic_load_explicit(&burst_started, memory_order_relaxed) + 1;

	(void)arg;
	atomic_store_explicit(&burst_started, count, memory_order_relaxed);
	if (count == 1)
		burst_first_ns = perf_now_ns();
	if (count != burst_load.count)
		return;
	burst_cpu_ended_ns = perf_cpu_ns();
	atomic_store(&burst_over, true);
}

/* When the thread was descheduled inside the call, the deadline is that much
 * later, and might belong to the next tick. One more is scheduled for each of
 * those, and the last start is that of the count-th. */
static void
burst_fill(void)
{
	uint64_t i, now_ns, limit_ns = burst_before_boundary_ns / 2;

	for (i = 0; i < burst_load.count + burst_load.unsure; i++) {
		now_ns = perf_now_ns();
		perf_must(now_ns < burst_load.due_ns, "scheduling in time");
		subject_schedule(burst_load.subject, NULL, burst_task, NULL,
		    burst_load.due_ns - now_ns);
		if (perf_now_ns() - now_ns > limit_ns)
			burst_load.unsure++;
		turn_seldom(burst_load.subject, i);
	}
}

static void
burst_age_cancel(const subject_handle *handles)
{
	uint64_t i;

	for (i = 0; i < burst_load.count; i++) {
		subject_cancel(burst_load.subject, handles[i]);
		turn_seldom(burst_load.subject, i);
	}
}

/* Returns those that are left, in another order. */
static subject_handle *
burst_age_begin(uint64_t seed)
{
	uint64_t i, count = 2 * burst_load.count;
	subject_handle *handles = calloc(count, sizeof(*handles)), *other, kept;

	perf_must(handles, "calloc");
	for (i = 0; i < count; i++) {
		subject_schedule(burst_load.subject, &handles[i], stray_task,
		    NULL, HWT_SEC(3600));
		turn_seldom(burst_load.subject, i);
	}
	for (i = count; i > 1; i--) {
		other = &handles[perf_random_below(&seed, i)];
		kept = *other;
		*other = handles[i - 1];
		handles[i - 1] = kept;
	}
	/* A worker takes them over, and then releases them. */
	perf_sleep_until_ns(perf_now_ns() + 2 * burst_load.tick_ns);
	burst_age_cancel(handles + burst_load.count);
	perf_sleep_until_ns(perf_now_ns() + 2 * burst_load.tick_ns);
	return handles;
}

/* Until all have started, or should have for long; then for those that are
 * unsure or lost, and what would start twice. */
static void
burst_await(void)
{
	uint64_t all = burst_load.count + burst_load.unsure;
	uint64_t end_ns = burst_load.due_ns + HWT_SEC(PATIENCE_S);

	perf_sleep_until_ns(burst_load.due_ns);
	while (!atomic_load(&burst_over) && perf_now_ns() < end_ns) {
		subject_turn(burst_load.subject);
		if (!SUBJECT_SINGLE)
			perf_sleep_until_ns(perf_now_ns() + HWT_MS(1));
	}
	do
		pass_until_ns(burst_load.subject,
		    perf_now_ns() + 2 * burst_load.tick_ns + HWT_MS(10));
	while (atomic_load(&burst_started) < all && perf_now_ns() < end_ns);
}

static void
burst_print(void)
{
	uint64_t all = burst_load.count + burst_load.unsure,
		 starts = atomic_load(&burst_started);
	uint64_t more = starts > all ? starts - all : 0;
	bool early = starts && burst_first_ns < burst_load.due_ns;

	if (atomic_load(&burst_over))
		perf_metric("cpu_ns", "ns",
		    (double)(burst_cpu_ended_ns - burst_load.cpu_begun_ns) /
			(double)burst_load.count);
	perf_metric("early", "count", early);
	perf_metric("lost", "count", (double)(all + more - starts));
	perf_metric("strays", "count", (double)(atomic_load(&strays) + more));
}

static void
burst_measure(subject_handle *aged)
{
	uint64_t quiet_ns;

	burst_fill();
	if (aged)
		burst_age_cancel(aged);
	free(aged);
	/* A worker takes over what is new. */
	quiet_ns = perf_now_ns() + 2 * burst_load.tick_ns;
	perf_must(quiet_ns + HWT_MS(200) < burst_load.due_ns,
	    "scheduling all in time");
	perf_sleep_until_ns(quiet_ns);
	/* If this thread is late, CPU counts from here on. */
	burst_load.cpu_begun_ns = perf_cpu_ns();
	perf_sleep_until_ns(burst_load.due_ns - HWT_MS(1));
	if (!atomic_load(&burst_started))
		burst_load.cpu_begun_ns = perf_cpu_ns();
	burst_await();
}

static void
burst(uint64_t seed)
{
	uint64_t created_ns, begun_ns, lead_ns, ticks;
	subject_handle *aged = NULL;

	burst_load.count = perf_option("count", 100000);
	burst_load.aged = perf_option("aged", 1);
	burst_load.tick_ns = HWT_MS(perf_option("tick_ms", 100));
	perf_options_end();
	perf_must(
	    burst_load.count && burst_load.tick_ns, "reading the options");
	need_memory(3 * burst_load.count, 128);
	created_ns = perf_now_ns();
	burst_load.subject =
	    subject_create(burst_load.tick_ns, 3 * burst_load.count);
	begun_ns = perf_now_ns();
	if (burst_load.aged)
		aged = burst_age_begin(seed);
	/* Less is still to be done than was; and then there is to be a quiet
	 * time. */
	lead_ns = HWT_SEC(1) + HWT_US(burst_load.count) +
	    3 * (perf_now_ns() - begun_ns);
	ticks = (perf_now_ns() - created_ns + lead_ns) / burst_load.tick_ns;
	burst_load.due_ns =
	    created_ns + ticks * burst_load.tick_ns - burst_before_boundary_ns;
	burst_measure(aged);
	burst_print();
	subject_destroy(burst_load.subject);
}

#endif
