/* SPDX-License-Identifier: Apache-2.0 */
/*
 * burst: what happens when everything is due at once, as when a network breaks?
 *
 * count timeouts have the same deadline, just before a boundary of ticks. A
 * bystander schedules one timeout and cancels the oldest of 1024 as fast as it
 * can, in a quiet time before, and during the burst.
 *
 *   count=100000  bystander=1  aged=1  tick_ms=100
 *
 * aged=1: before, twice as many others were scheduled and half of them, at
 * random, cancelled; the other half when all is scheduled. So memory lies about
 * as it does in a process that has lived.
 *
 * cpu_ns is what the process takes from a millisecond before the deadline to
 * the last start, for each timeout, less what the bystander's own thread takes.
 * A task that starts twice, or a bystander's that starts, is a stray.
 */
#ifndef PERF_BURST_H
#define PERF_BURST_H

#include "perf/driver.h"

enum {
	BURST_RING = 1024,
	/* So much before the deadline the quiet time ends. */
	BURST_AHEAD_MS = 1
};

enum burst_phase {
	PHASE_BEGIN,
	PHASE_QUIET,
	PHASE_BURST,
	PHASE_END,
	PHASES
};

/* A timeout belongs to the boundary at or after its deadline: that much before
 * it, all do, also when the clock is read a little later than it is here. And
 * the timer's origin is at most that much after subject_create began. */
static const uint64_t burst_before_boundary_ns = 250000;

static struct {
	_Alignas(64) pthread_t thread;
	subject_handle ring[BURST_RING];
	struct perf_histogram calls[PHASES];
} bystander;

static struct {
	struct subject *subject;
	uint64_t count, unsure, tick_ns, due_ns, clock_cost_ns;
	bool aged, bystander;
	/* Where the bystander waits until its clock has been read. */
	pthread_barrier_t ended;
} burst_load;

static atomic_int burst_phase;
static atomic_uint_fast64_t burst_started;
/* Written by the first and the last start; then burst_over is set. */
static uint64_t burst_first_ns, burst_last_ns;
static uint64_t burst_cpu_begun_ns, burst_cpu_ended_ns;
static atomic_bool burst_over;

/* User and system time of all threads but the bystander. Its own is read first:
 * asking for it brings it up to date, also in the sum of all. */
static uint64_t
burst_read_cpu_ns(void)
{
	uint64_t own_ns = 0;
	clockid_t clock;

	if (burst_load.bystander) {
		perf_must(!pthread_getcpuclockid(bystander.thread, &clock),
		    "a thread's clock");
		own_ns = perf_clock_ns(clock);
	}
	return perf_cpu_ns() - own_ns;
}

static void
burst_note_last(void)
{
	burst_last_ns = perf_now_ns();
	burst_cpu_ended_ns = burst_read_cpu_ns();
	atomic_store(&burst_phase, PHASE_END);
	atomic_store(&burst_over, true);
}

/* All tasks run in one thread. */
SUBJECT_TASK(burst_task, arg)
{
	uint64_t count =
	    atomic_load_explicit(&burst_started, memory_order_relaxed) + 1;

	(void)arg;
	atomic_store_explicit(&burst_started, count, memory_order_relaxed);
	if (count == 1)
		burst_first_ns = perf_now_ns();
	if (count == burst_load.count)
		burst_note_last();
}

static void
bystander_schedule(subject_handle *handle)
{
	subject_schedule(
	    burst_load.subject, handle, stray_task, NULL, HWT_SEC(3600));
}

/* A pair counts for the burst if any of it was in the burst. */
static void
bystander_pairs(void)
{
	uint64_t begun_ns, pairs;
	int before = PHASE_BEGIN, after;
	subject_handle *place;

	for (pairs = 0; before != PHASE_END; pairs++) {
		place = &bystander.ring[pairs % BURST_RING];
		begun_ns = perf_now_ns();
		subject_cancel(burst_load.subject, *place);
		bystander_schedule(place);
		after =
		    atomic_load_explicit(&burst_phase, memory_order_relaxed);
		if (before != PHASE_BURST)
			before = after == PHASE_END ? PHASE_BURST : after;
		perf_sample(&bystander.calls[before], begun_ns,
		    burst_load.clock_cost_ns);
		before = after;
	}
}

static void *
bystander_thread(void *arg)
{
	unsigned i;

	(void)arg;
	for (i = 0; i < BURST_RING; i++)
		bystander_schedule(&bystander.ring[i]);
	bystander_pairs();
	pthread_barrier_wait(&burst_load.ended);
	for (i = 0; i < BURST_RING; i++)
		subject_cancel(burst_load.subject, bystander.ring[i]);
	return NULL;
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
		bystander_schedule(&handles[i]);
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

/* Until all have started, or should have for long. A loop of a single-threaded
 * subject would sleep until they are due. */
static void
burst_await_last(void)
{
	uint64_t end_ns = burst_load.due_ns + HWT_SEC(PATIENCE_S);

	perf_sleep_until_ns(burst_load.due_ns);
	while (!atomic_load(&burst_over) && perf_now_ns() < end_ns) {
		subject_turn(burst_load.subject);
		if (!SUBJECT_SINGLE)
			perf_sleep_until_ns(perf_now_ns() + HWT_MS(1));
	}
	atomic_store(&burst_phase, PHASE_END);
	pthread_barrier_wait(&burst_load.ended);
}

/* For those that are unsure or lost, and what would start twice. */
static void
burst_await_rest(void)
{
	uint64_t all = burst_load.count + burst_load.unsure;
	uint64_t end_ns = perf_now_ns() + HWT_SEC(PATIENCE_S);

	do
		pass_until_ns(burst_load.subject,
		    perf_now_ns() + 2 * burst_load.tick_ns + HWT_MS(10));
	while (atomic_load(&burst_started) < all && perf_now_ns() < end_ns);
}

static void
burst_print_starts(void)
{
	uint64_t cpu_ns = burst_cpu_ended_ns - burst_cpu_begun_ns;

	perf_metric("cpu_ns", "ns", (double)cpu_ns / (double)burst_load.count);
	perf_metric("first_start_ms", "ms",
	    (double)(int64_t)(burst_first_ns - burst_load.due_ns) / 1e6);
	perf_metric("last_start_ms", "ms",
	    (double)(int64_t)(burst_last_ns - burst_load.due_ns) / 1e6);
}

static void
burst_print(void)
{
	uint64_t all = burst_load.count + burst_load.unsure,
		 starts = atomic_load(&burst_started);
	uint64_t more = starts > all ? starts - all : 0;
	bool early = starts && burst_first_ns < burst_load.due_ns;

	if (atomic_load(&burst_over))
		burst_print_starts();
	if (burst_load.bystander) {
		perf_metric_calls("by", &bystander.calls[PHASE_BURST]);
		perf_metric_calls("quiet", &bystander.calls[PHASE_QUIET]);
	}
	perf_metric("early", "count", early);
	perf_metric("lost", "count", (double)(all + more - starts));
	perf_metric("strays", "count", (double)(atomic_load(&strays) + more));
}

/* A thread that was descheduled finds that the burst has begun, or is over:
 * then CPU counts from the quiet time on, in which little is done but by the
 * bystanders. */
static void
burst_begin(void)
{
	uint64_t cpu_ns = burst_read_cpu_ns();
	int quiet = PHASE_QUIET;

	if (!atomic_load(&burst_started))
		burst_cpu_begun_ns = cpu_ns;
	atomic_compare_exchange_strong(&burst_phase, &quiet, PHASE_BURST);
}

static void
burst_measure(subject_handle *aged)
{
	uint64_t quiet_ns;

	burst_fill();
	if (aged)
		burst_age_cancel(aged);
	free(aged);
	pthread_barrier_init(&burst_load.ended, NULL, 1 + burst_load.bystander);
	if (burst_load.bystander)
		perf_start(&bystander.thread, bystander_thread, NULL);
	/* A worker takes over what is new. */
	perf_sleep_until_ns(perf_now_ns() + 2 * burst_load.tick_ns);
	quiet_ns = perf_now_ns();
	perf_must(quiet_ns + HWT_MS(200) < burst_load.due_ns,
	    "scheduling all in time");
	atomic_store(&burst_phase, PHASE_QUIET);
	burst_cpu_begun_ns = burst_read_cpu_ns();
	perf_sleep_until_ns(burst_load.due_ns - HWT_MS(BURST_AHEAD_MS));
	burst_begin();
	burst_await_last();
	burst_await_rest();
}

static void
burst_read_options(void)
{
	burst_load.count = perf_option("count", 100000);
	burst_load.bystander = perf_option("bystander", 1);
	burst_load.aged = perf_option("aged", 1);
	burst_load.tick_ns = HWT_MS(perf_option("tick_ms", 100));
	perf_options_end();
	perf_must(
	    burst_load.count && burst_load.tick_ns, "reading the options");
	if (burst_load.bystander)
		need_threads();
	need_memory(3 * burst_load.count, 128);
}

static void
burst(uint64_t seed)
{
	uint64_t created_ns, begun_ns, lead_ns, ticks;
	subject_handle *aged = NULL;

	burst_read_options();
	burst_load.clock_cost_ns = perf_clock_cost_ns();
	created_ns = perf_now_ns();
	burst_load.subject = subject_create(
	    burst_load.tick_ns, 3 * burst_load.count + BURST_RING + 1);
	begun_ns = perf_now_ns();
	if (burst_load.aged)
		aged = burst_age_begin(seed);
	/* What is still to be done is less than that was; and then there is
	 * to be a quiet time. */
	lead_ns = HWT_SEC(1) + HWT_US(burst_load.count) +
	    3 * (perf_now_ns() - begun_ns);
	ticks = (perf_now_ns() - created_ns + lead_ns) / burst_load.tick_ns;
	burst_load.due_ns =
	    created_ns + ticks * burst_load.tick_ns - burst_before_boundary_ns;
	burst_measure(aged);
	if (burst_load.bystander)
		pthread_join(bystander.thread, NULL);
	burst_print();
	subject_destroy(burst_load.subject);
}

#endif
