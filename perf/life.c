/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does every timeout of an ordinary life end as it should, and on time?
 *
 * Delays are log-uniform: as many from 1 to 10 ms as from 1 to 10 s. 95 % are
 * cancelled at a random moment before they are due; the others run, once,
 * never early. One thread schedules and cancels in steps of 1 ms, in which it
 * makes a cancel whose moment lies there.
 *
 *   rate=50000          timeouts a second
 *   max_delay_ms=60000
 *   seconds=10          of scheduling, which is also the window of the CPU; the
 *                       program runs max_delay_ms longer
 *   tick_ms=100  seed=1
 *
 * CPU is that of the process but for the control thread; the worker's is what
 * remains without the caller.
 */
#define _GNU_SOURCE
#include <math.h>
#include <sys/mman.h>

#include "perf/loads.h"

enum {
	STEPS_PER_S = 1000,
	DELAY_MIN_NS = 1000000,
	CANCELLED_PERCENT = 95,
	/* Time after the last deadline for what must not start any more. */
	LATE_MS = 500
};

enum outcome {
	PENDING,
	CANCELLED,
	/* The call found that it had started, or ended. */
	REFUSED,
	/* The call does not tell, and came after it was due. */
	UNKNOWN
};

struct life {
	subject_handle handle;
	struct loads_timeout timeout;
	/* In the calendar: the next of the same step, counted from 1. */
	uint32_t next;
	enum outcome outcome;
};

static struct {
	uint64_t rate, tick_ns, seconds;
	double delay_max_ns;
} load;

static struct subject *subject;
static struct life *lives;
static uint64_t count, scheduled, begun_ns, last_due_ns, lots;
static atomic_uint_fast64_t started_twice;

/* By steps since begun_ns: the first to cancel, counted from 1. */
static uint32_t *calendar;
static uint64_t calendar_steps, calendar_last;

SUBJECT_TASK(life_task, arg)
{
	struct life *life = arg;

	if (atomic_exchange_explicit(
		&life->timeout.started_ns, perf_now_ns(), memory_order_relaxed))
		atomic_fetch_add(&started_twice, 1);
}

static uint64_t
draw_delay(void)
{
	return (uint64_t)(DELAY_MIN_NS *
	    pow(load.delay_max_ns / DELAY_MIN_NS, perf_random_fraction(&lots)));
}

static uint64_t
step_of(uint64_t now_ns)
{
	return (now_ns - begun_ns) / PERF_STEP_NS;
}

static void
calendar_note(uint64_t step, struct life *life)
{
	perf_must(step < calendar_steps, "the calendar's length");
	if (step > calendar_last)
		calendar_last = step;
	life->next = calendar[step];
	calendar[step] = (uint32_t)(life - lives) + 1;
}

static void
schedule(uint64_t step)
{
	struct life *life = &lives[scheduled++];
	uint64_t now_ns = perf_now_ns(), delay_ns = draw_delay(), then;

	life->timeout.due_ns = now_ns + delay_ns;
	if (life->timeout.due_ns > last_due_ns)
		last_due_ns = life->timeout.due_ns;
	subject_schedule(subject, &life->handle, life_task, life, delay_ns);
	if (perf_random_fraction(&lots) * 100 >= CANCELLED_PERCENT)
		return;
	then = step_of(now_ns +
	    (uint64_t)(perf_random_fraction(&lots) * (double)delay_ns));
	calendar_note(then > step ? then : step, life);
}

static bool
has_started(struct life *life)
{
	return atomic_load_explicit(
	    &life->timeout.started_ns, memory_order_relaxed);
}

static void
cancel(struct life *life)
{
	uint64_t refusals = subject_refused;
	bool ended = has_started(life);

	subject_cancel(subject, life->handle);
	if (subject_refused != refusals || ended)
		life->outcome = REFUSED;
	else if (SUBJECT_TELLS || SUBJECT_SINGLE ||
	    perf_now_ns() < life->timeout.due_ns)
		life->outcome = CANCELLED;
	else
		life->outcome = UNKNOWN;
}

/* Cancels what has its moment in this step. */
static void
cancel_step(uint64_t step)
{
	uint32_t i, next;

	for (i = calendar[step]; i; i = next) {
		next = lives[i - 1].next;
		cancel(&lives[i - 1]);
	}
}

static void
run_step(uint64_t step)
{
	uint64_t target = (step + 1) * load.rate / STEPS_PER_S;

	while (scheduled < count && scheduled < target)
		schedule(step);
	if (step < calendar_steps)
		cancel_step(step);
	subject_turn(subject);
	perf_sleep_until_ns(begun_ns + (step + 1) * PERF_STEP_NS);
}

/* Gives the first step after the last. */
static uint64_t
run_scheduling(void)
{
	uint64_t step = 0;

	for (; scheduled < count; step++)
		run_step(step);
	return step;
}

static bool
is_missing(struct life *life)
{
	return (life->outcome == PENDING || life->outcome == REFUSED) &&
	    !has_started(life);
}

/* Turns until that time. Gives the first step after it. */
static uint64_t
run_until_ns(uint64_t until_ns, uint64_t step)
{
	while (perf_now_ns() < until_ns)
		run_step(step++);
	return step;
}

/* When the last is due, each has been cancelled that is to be. */
static void
run_rest(uint64_t step)
{
	uint64_t end_ns = last_due_ns + HWT_SEC(LOADS_PATIENCE_S), i = 0;

	step = run_until_ns(
	    last_due_ns + 2 * load.tick_ns + HWT_MS(LATE_MS), step);
	while (step <= calendar_last)
		run_step(step++);
	while (i < count && perf_now_ns() < end_ns) {
		if (is_missing(&lives[i]))
			run_step(step++);
		else
			i++;
	}
}

struct outcomes {
	uint64_t cancelled, ran_cancelled, unknown;
	struct loads_starts starts;
};

/* What is not cancelled has had its time: it may free what is left of it. */
static void
judge(struct life *life, struct outcomes *outcomes)
{
	if (life->outcome == CANCELLED) {
		outcomes->cancelled++;
		outcomes->ran_cancelled += has_started(life);
	} else if (life->outcome == UNKNOWN && !has_started(life)) {
		outcomes->unknown++;
	} else {
		loads_judge(&outcomes->starts, &life->timeout);
	}
	if (life->outcome == PENDING)
		subject_cancel(subject, life->handle);
}

static void
tell_outcomes(uint64_t lag_max_ns)
{
	static struct outcomes outcomes;
	uint64_t i;

	perf_must(!atomic_load(&started_twice), "running each once");
	for (i = 0; i < count; i++)
		judge(&lives[i], &outcomes);
	loads_tell_starts(&outcomes.starts);
	perf_metric("ran_cancelled", "count", (double)outcomes.ran_cancelled);
	perf_metric("lag_max_ms", "ms", (double)lag_max_ns / 1e6);
	perf_metric("cancelled_percent", "%",
	    100 * (double)outcomes.cancelled / (double)count);
	perf_metric("unknown", "count", (double)outcomes.unknown);
}

/* What the window of scheduling has cost. */
struct window {
	uint64_t wall_ns, cpu_ns, caller_ns;
};

static struct window
read_window(void)
{
	return (struct window){perf_now_ns(), perf_cpu_ns(),
	    perf_clock_ns(CLOCK_THREAD_CPUTIME_ID)};
}

static void
tell_window(const struct window *from, const struct window *to,
    const struct perf_control *control)
{
	double seconds = (double)(to->wall_ns - from->wall_ns) / 1e9;
	double cpu_ns = (double)(to->cpu_ns - from->cpu_ns);
	double caller_ns = (double)(to->caller_ns - from->caller_ns);

	cpu_ns -= (double)control->cpu_ns;
	perf_metric("cpu_ns", "ns", cpu_ns / (double)count);
	if (!SUBJECT_SINGLE)
		perf_metric("worker_cpu_percent", "%",
		    (cpu_ns - caller_ns) / 1e7 / seconds);
}

/* The control thread's lag is of the whole run; of its CPU, that of the window
 * counts. */
static void
run(void)
{
	struct perf_control windows = {.cpu_ns = 0}, rests = {.cpu_ns = 0};
	struct window from, to;
	uint64_t step;

	perf_control_start(&windows);
	begun_ns = perf_now_ns();
	from = read_window();
	step = run_scheduling();
	perf_control_stop(&windows);
	to = read_window();
	perf_control_start(&rests);
	run_rest(step);
	perf_control_stop(&rests);
	tell_window(&from, &to, &windows);
	tell_outcomes(windows.lag.max_ns > rests.lag.max_ns ? windows.lag.max_ns
							    : rests.lag.max_ns);
}

static void
read_load(void)
{
	load.rate = perf_option("rate", 50000);
	load.seconds = perf_option("seconds", 10);
	load.tick_ns = HWT_MS(perf_option("tick_ms", 100));
	load.delay_max_ns = 1e6 * perf_fraction("max_delay_ms", 60000);
	perf_options_end();
	perf_must(load.rate && load.seconds && load.tick_ns &&
		load.delay_max_ns >= DELAY_MIN_NS && load.delay_max_ns < 1e15,
	    "reading the options");
	count = load.rate * load.seconds;
	perf_must(count < UINT32_MAX, "reading the options");
}

/* All of it is resident, so that no page is new to the caller in the window. */
static void *
make_table(uint64_t elements, uint64_t bytes)
{
	void *table = mmap(NULL, elements * bytes, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	perf_must(table != MAP_FAILED, "mmap");
	return table;
}

int
main(int argc, char **argv)
{
	lots = perf_begin(argc, argv, subject_version());
	read_load();
	/* A caller that lags has cancels in later steps than it should. */
	calendar_steps = (2 * load.seconds + 10) * STEPS_PER_S +
	    (uint64_t)(load.delay_max_ns / PERF_STEP_NS);
	calendar = make_table(calendar_steps, sizeof(*calendar));
	lives = make_table(count, sizeof(*lives));
	subject = subject_create(load.tick_ns, count);
	run();
	subject_destroy(subject);
	return 0;
}
