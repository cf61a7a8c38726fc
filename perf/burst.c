/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens when everything is due at once, as when the network breaks?
 *
 * count timeouts have the same deadline, just before a boundary of ticks: when
 * has the last of them started, and what has that taken? A bystander schedules
 * one timeout and cancels the oldest of 1024 as fast as it can, in a quiet
 * window before, and during the burst.
 *
 *   burst [count=100000] [task_us=0] [via=inline|pool|mailbox] [bystander=1]
 *         [aged=1] [tick_ms=100] [lead_ms=N] [seed=1]
 *
 * aged=1: before, twice as many others were scheduled and half of them, at
 * random, cancelled; the other half when all is scheduled. So memory lies about
 * as it does in a process that has lived.
 *
 * cpu_ns is what the process takes from a millisecond before the deadline (20,
 * if the worker may be early) to the last start, for each timeout, less what
 * the bystander's own thread takes; what it costs others in misses stays, so
 * targets for CPU go by bystander=0. None is early when the first start is
 * not. What starts twice, or is a bystander's, is a stray.
 */
#define _GNU_SOURCE
#include <poll.h>

/* A coarse clock would put what is due in another tick. */
#define MUTEX_WHEEL_PRECISE 1
#include "perf/loads.h"

enum {
	RING = 1024,
	/* So much before the deadline the quiet time ends, and the burst
	 * begins. */
	AHEAD_MS = SUBJECT_MAY_BE_EARLY && !SUBJECT_SINGLE ? 20 : 1
};

enum phase {
	PHASE_BEGIN,
	PHASE_QUIET,
	PHASE_BURST,
	PHASE_END,
	PHASES
};

/* A timeout belongs to the boundary at or after its deadline: that much before
 * it, all do, also when the clock is read a little later than it is here. And
 * the timer's origin is at most that much after subject_create began. */
static const uint64_t before_boundary_ns = 250000;

static struct {
	_Alignas(64) pthread_t thread;
	subject_handle ring[RING];
	struct perf_histogram calls[PHASES];
} bystander;

static struct {
	struct subject *subject;
	uint64_t count, unsure, tick_ns, task_ns, due_ns, clock_cost_ns;
	uint64_t lead_ms; /* 0: as long as it needs */
	const char *via;
	bool aged, bystander;
	/* Where the bystander waits until its clock has been read. */
	pthread_barrier_t ended;
} run;

static atomic_int phase;
static atomic_uint_fast64_t started;
/* Written by the first and the last start; then over is set. */
static uint64_t first_ns, last_ns;
static uint64_t cpu_begun_ns, cpu_ended_ns;
static atomic_bool over;

/* User and system time of all threads but the bystander. Its own is read first:
 * asking for it brings it up to date, also in the sum of all. */
static uint64_t
read_cpu_ns(void)
{
	uint64_t own_ns = 0;
	clockid_t clock;

	if (run.bystander) {
		perf_must(!pthread_getcpuclockid(bystander.thread, &clock),
		    "a thread's clock");
		own_ns = perf_clock_ns(clock);
	}
	return perf_cpu_ns() - own_ns;
}

static inline uint64_t
count_start(void)
{
	uint64_t count;

	if (SUBJECT_CONCURRENT)
		return atomic_fetch_add(&started, 1) + 1;
	count = atomic_load_explicit(&started, memory_order_relaxed) + 1;
	atomic_store_explicit(&started, count, memory_order_relaxed);
	return count;
}

static void
note_last(void)
{
	last_ns = perf_now_ns();
	cpu_ended_ns = read_cpu_ns();
	atomic_store(&phase, PHASE_END);
	atomic_store(&over, true);
}

static void
spin(uint64_t ns)
{
	uint64_t end_ns = perf_now_ns() + ns;

	while (perf_now_ns() < end_ns)
		continue;
}

SUBJECT_TASK(burst_task, arg)
{
	uint64_t count = count_start();

	(void)arg;
	if (count == 1)
		first_ns = perf_now_ns();
	if (count == run.count)
		note_last();
	if (run.task_ns)
		spin(run.task_ns);
}

static void
bystander_schedule(subject_handle *handle)
{
	subject_schedule(run.subject, handle, loads_stray, NULL, HWT_SEC(3600));
}

/* A pair counts for the burst if any of it was in the burst. */
static void
bystander_pairs(void)
{
	uint64_t begun_ns, pairs;
	int before = PHASE_BEGIN, after;
	subject_handle *place;

	for (pairs = 0; before != PHASE_END; pairs++) {
		place = &bystander.ring[pairs % RING];
		begun_ns = perf_now_ns();
		subject_cancel(run.subject, *place);
		bystander_schedule(place);
		after = atomic_load_explicit(&phase, memory_order_relaxed);
		if (before != PHASE_BURST)
			before = after == PHASE_END ? PHASE_BURST : after;
		perf_sample(
		    &bystander.calls[before], begun_ns, run.clock_cost_ns);
		before = after;
	}
}

static void *
bystander_thread(void *arg)
{
	unsigned i;

	(void)arg;
	for (i = 0; i < RING; i++)
		bystander_schedule(&bystander.ring[i]);
	bystander_pairs();
	pthread_barrier_wait(&run.ended);
	for (i = 0; i < RING; i++)
		subject_cancel(run.subject, bystander.ring[i]);
	return NULL;
}

#ifdef SUBJECT_EXECUTORS

static struct hwt_pool *pool;
static struct hwt_mailbox *mailbox;

/* The timer hands all to it that is due; NULL: tasks run in the worker. */
static const struct hwt_executor *
executor_create(void)
{
	if (!strcmp(run.via, "pool")) {
		perf_must(!hwt_pool_create(&pool, 1, 0), "hwt_pool_create");
		return hwt_pool_executor(pool);
	}
	if (!strcmp(run.via, "mailbox")) {
		perf_must(!hwt_mailbox_create(&mailbox), "hwt_mailbox_create");
		return hwt_mailbox_executor(mailbox);
	}
	perf_must(!strcmp(run.via, "inline"), "finding such a via");
	return NULL;
}

static struct subject *
create(uint64_t capacity)
{
	return subject_create_on(run.tick_ns, capacity, executor_create());
}

static void
destroy(void)
{
	subject_destroy(run.subject);
	perf_must(!hwt_pool_destroy(pool), "hwt_pool_destroy");
	perf_must(!hwt_mailbox_destroy(mailbox), "hwt_mailbox_destroy");
}

/* What a loop does with a mailbox. False: there is none. */
static bool
loop_turn(void)
{
	struct pollfd readable = {.events = POLLIN};

	if (!mailbox)
		return false;
	readable.fd = hwt_mailbox_fd(mailbox);
	if (poll(&readable, 1, 100) > 0)
		perf_must(!hwt_mailbox_run(mailbox, 0, NULL), "a mailbox");
	return true;
}

#else

static struct subject *
create(uint64_t capacity)
{
	if (strcmp(run.via, "inline") != 0)
		perf_skip(SUBJECT_NAME ": no executor to hand over to");
	return subject_create(run.tick_ns, capacity);
}

static void
destroy(void)
{
	subject_destroy(run.subject);
}

static bool
loop_turn(void)
{
	if (!SUBJECT_SINGLE)
		return false;
	subject_turn(run.subject);
	return true;
}

#endif

/* When the thread was descheduled inside the call, the deadline is that much
 * later, and might belong to the next tick. One more is scheduled for each of
 * those, and the last start is that of the count-th. */
static void
fill(void)
{
	uint64_t i, now_ns, limit_ns = before_boundary_ns / 2;

	for (i = 0; i < run.count + run.unsure; i++) {
		now_ns = perf_now_ns();
		perf_must(now_ns < run.due_ns, "scheduling within lead_ms");
		subject_schedule(
		    run.subject, NULL, burst_task, NULL, run.due_ns - now_ns);
		if (perf_now_ns() - now_ns > limit_ns)
			run.unsure++;
		loads_turn_seldom(run.subject, i);
	}
}

static void
swap(subject_handle *a, subject_handle *b)
{
	subject_handle kept = *a;

	*a = *b;
	*b = kept;
}

static void
age_cancel(const subject_handle *handles)
{
	uint64_t i;

	for (i = 0; i < run.count; i++) {
		subject_cancel(run.subject, handles[i]);
		loads_turn_seldom(run.subject, i);
	}
}

/* Returns those that are left, in another order. */
static subject_handle *
age_begin(uint64_t seed)
{
	uint64_t i, count = 2 * run.count;
	subject_handle *handles = calloc(count, sizeof(*handles));

	perf_must(handles, "calloc");
	for (i = 0; i < count; i++) {
		bystander_schedule(&handles[i]);
		loads_turn_seldom(run.subject, i);
	}
	for (i = count; i > 1; i--)
		swap(&handles[perf_random_below(&seed, i)], &handles[i - 1]);
	/* A worker has the time to take over, and then to let go. */
	perf_sleep_until_ns(perf_now_ns() + 2 * run.tick_ns);
	age_cancel(handles + run.count);
	perf_sleep_until_ns(perf_now_ns() + 2 * run.tick_ns);
	return handles;
}

/* Until all have started, or should have for long. A loop of a single-threaded
 * subject would sleep until they are due. */
static void
await_last(void)
{
	uint64_t end_ns = run.due_ns + HWT_SEC(LOADS_PATIENCE_S);

	if (SUBJECT_SINGLE)
		perf_sleep_until_ns(run.due_ns);
	while (!atomic_load(&over) && perf_now_ns() < end_ns)
		if (!loop_turn())
			perf_sleep_until_ns(perf_now_ns() + HWT_MS(1));
	atomic_store(&phase, PHASE_END);
	pthread_barrier_wait(&run.ended);
}

/* For those that are unsure or lost, and what would start twice. */
static void
await_rest(void)
{
	uint64_t begun_ns = perf_now_ns(), now_ns = begun_ns;
	uint64_t all = run.count + run.unsure;

	while (now_ns < begun_ns + 2 * run.tick_ns + HWT_MS(10) ||
	    (atomic_load(&started) < all &&
		now_ns < begun_ns + HWT_SEC(LOADS_PATIENCE_S))) {
		if (!loop_turn())
			perf_sleep_until_ns(now_ns + HWT_MS(10));
		now_ns = perf_now_ns();
	}
}

static void
tell_burst(void)
{
	uint64_t cpu_ns = cpu_ended_ns - cpu_begun_ns;

	perf_metric("cpu_ns", "ns", (double)cpu_ns / (double)run.count);
	perf_metric("first_start_ms", "ms",
	    (double)(int64_t)(first_ns - run.due_ns) / 1e6);
	perf_metric("last_start_ms", "ms",
	    (double)(int64_t)(last_ns - run.due_ns) / 1e6);
}

static void
tell(void)
{
	uint64_t all = run.count + run.unsure, starts = atomic_load(&started);
	uint64_t more = starts > all ? starts - all : 0;
	bool early = starts && first_ns < run.due_ns;

	if (atomic_load(&over))
		tell_burst();
	if (run.bystander) {
		perf_metric_calls("by", &bystander.calls[PHASE_BURST]);
		perf_metric_calls("quiet", &bystander.calls[PHASE_QUIET]);
	}
	perf_metric("early", "count", early);
	perf_metric("lost", "count", (double)(all + more - starts));
	loads_tell_strays(more);
}

/* A thread that was descheduled finds that the burst has begun, or is over:
 * then CPU counts from the quiet time on, in which little is done but by the
 * bystanders. */
static void
begin_burst(void)
{
	uint64_t cpu_ns = read_cpu_ns();
	int quiet = PHASE_QUIET;

	if (!atomic_load(&started))
		cpu_begun_ns = cpu_ns;
	atomic_compare_exchange_strong(&phase, &quiet, PHASE_BURST);
}

static void
measure(subject_handle *aged)
{
	uint64_t quiet_ns;

	fill();
	if (aged)
		age_cancel(aged);
	free(aged);
	pthread_barrier_init(&run.ended, NULL, 1 + run.bystander);
	if (run.bystander)
		perf_start(&bystander.thread, bystander_thread, NULL);
	/* A worker takes what is new over. */
	perf_sleep_until_ns(perf_now_ns() + 2 * run.tick_ns);
	quiet_ns = perf_now_ns();
	perf_must(quiet_ns + HWT_MS(200) < run.due_ns,
	    "scheduling all in time: lead_ms is too short; that");
	atomic_store(&phase, PHASE_QUIET);
	cpu_begun_ns = read_cpu_ns();
	perf_sleep_until_ns(run.due_ns - HWT_MS(AHEAD_MS));
	begin_burst();
	await_last();
	await_rest();
}

static void
read_load(void)
{
	run.count = perf_option("count", 100000);
	run.task_ns = HWT_US(perf_option("task_us", 0));
	run.bystander = perf_option("bystander", 1);
	run.via = perf_text("via", "inline");
	run.aged = perf_option("aged", 1);
	run.tick_ns = HWT_MS(perf_option("tick_ms", 100));
	run.lead_ms = perf_option("lead_ms", 0);
	perf_options_end();
	perf_must(run.count && run.tick_ns, "reading the options");
	if (run.bystander)
		loads_need_threads();
	loads_need_memory(3 * run.count, 128);
}

int
main(int argc, char **argv)
{
	uint64_t seed = perf_begin(argc, argv, subject_version());
	uint64_t created_ns, begun_ns, ticks;
	subject_handle *aged = NULL;

	read_load();
	run.clock_cost_ns = perf_clock_cost_ns();
	created_ns = perf_now_ns();
	run.subject = create(3 * run.count + RING + 1);
	begun_ns = perf_now_ns();
	if (run.aged)
		aged = age_begin(seed);
	/* What is still to be done is less than that was; and then there is
	 * to be a quiet time. */
	if (!run.lead_ms)
		run.lead_ms = 1000 + run.count / 1000 +
		    3 * (perf_now_ns() - begun_ns) / HWT_MS(1);
	ticks =
	    (perf_now_ns() - created_ns + HWT_MS(run.lead_ms)) / run.tick_ns;
	run.due_ns = created_ns + ticks * run.tick_ns - before_boundary_ns;
	measure(aged);
	if (run.bystander)
		pthread_join(bystander.thread, NULL);
	tell();
	destroy();
	return 0;
}
