/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long does one call of hwt_advance or hwt_next_wakeup hold an event loop,
 * and does what is due run on time, after the loop scheduled or cancelled very
 * many timeouts?
 *
 * A turn schedules so many that are minutes away, then loops for loop_ms;
 * cancels them all, and loops again: hwt_next_wakeup, a sleep of that length,
 * hwt_advance. Every other loop begins with hwt_advance. A probe of 5 ms is
 * always pending.
 *
 *   calls=1000000  schedules, and as many cancels, of a turn
 *   turns=4  loop_ms=300  seed=1
 *
 * Figures of what follows schedules begin with schedule, the others with
 * cancel. late_..._beyond_ms: as in flood. A call is timed by the wall clock
 * (max) and by the thread's own (cpu_max).
 */
#include "perf/loads.h"

#ifdef SUBJECT_MANUAL

enum {
	NEAREST_S = 120,
	RANGE_S = 3600,
	DUE_MS = 5,
	TICK_MS = 1,
	TIMEOUT_BYTES = 200
};

struct call {
	uint64_t max_ns, cpu_max_ns;
};

struct figures {
	const char *prefix;
	struct call advance, next_wakeup;
	struct loads_starts starts;
};

static struct {
	uint64_t calls, turns, loop_ns;
} load;

static struct subject *subject;
static subject_handle *handles;

static void
time_call(struct call *call, uint64_t from_ns, uint64_t cpu_from_ns)
{
	uint64_t ns = perf_now_ns() - from_ns;
	uint64_t cpu_ns = perf_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_from_ns;

	if (ns > call->max_ns)
		call->max_ns = ns;
	if (cpu_ns > call->cpu_max_ns)
		call->cpu_max_ns = cpu_ns;
}

static void
advance(struct figures *figures)
{
	uint64_t cpu_ns = perf_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	uint64_t now_ns = perf_now_ns();

	subject_advance(subject);
	time_call(&figures->advance, now_ns, cpu_ns);
}

/* At most until until_ns. */
static void
sleep_to_wakeup(struct figures *figures, uint64_t until_ns)
{
	uint64_t cpu_ns = perf_clock_ns(CLOCK_THREAD_CPUTIME_ID), wait_ns;
	uint64_t now_ns = perf_now_ns();

	wait_ns = subject_next_wakeup(subject);
	time_call(&figures->next_wakeup, now_ns, cpu_ns);
	now_ns = perf_now_ns();
	if (now_ns < until_ns && wait_ns < until_ns - now_ns)
		until_ns = now_ns + wait_ns;
	perf_sleep_until_ns(until_ns);
}

/* False: it is lost. */
static bool
run_probe(struct figures *figures, bool advance_first)
{
	static struct loads_timeout probe;
	uint64_t end_ns;

	atomic_store(&probe.started_ns, 0);
	probe.due_ns = perf_now_ns() + HWT_MS(DUE_MS);
	end_ns = probe.due_ns + HWT_SEC(LOADS_PATIENCE_S);
	subject_schedule(subject, NULL, loads_task, &probe, HWT_MS(DUE_MS));
	if (advance_first)
		advance(figures);
	while (!atomic_load(&probe.started_ns) && perf_now_ns() < end_ns) {
		sleep_to_wakeup(figures, end_ns);
		advance(figures);
	}
	loads_judge(&figures->starts, &probe);
	return atomic_load(&probe.started_ns);
}

static void
loop(struct figures *figures, bool advance_first)
{
	uint64_t end_ns = perf_now_ns() + load.loop_ns;

	while (run_probe(figures, advance_first) && perf_now_ns() < end_ns)
		advance_first = false;
}

static void
schedule_all(uint64_t *random)
{
	uint64_t delay_ns, i;

	for (i = 0; i < load.calls; i++) {
		delay_ns = HWT_SEC(NEAREST_S) +
		    HWT_MS(perf_random_below(random, UINT64_C(1000) * RANGE_S));
		subject_schedule(
		    subject, &handles[i], loads_stray, NULL, delay_ns);
	}
}

static void
cancel_all(void)
{
	uint64_t i;

	for (i = 0; i < load.calls; i++)
		subject_cancel(subject, handles[i]);
	perf_must(!subject_refused, "cancelling what is pending");
}

static void
tell_ms(const char *prefix, const char *name, double ns)
{
	char text[64];

	snprintf(text, sizeof(text), "%s_%s_ms", prefix, name);
	perf_metric(text, "ms", ns / 1e6);
}

static void
tell(const struct figures *figures, const struct perf_histogram *lag)
{
	const struct perf_histogram *late = &figures->starts.late;
	const char *prefix = figures->prefix;
	char name[64];

	tell_ms(prefix, "late_p99_beyond",
	    perf_histogram_ns(late, 0.99) - perf_histogram_ns(lag, 0.99));
	tell_ms(prefix, "late_max_beyond",
	    (double)late->max_ns - (double)lag->max_ns);
	tell_ms(prefix, "advance_max", (double)figures->advance.max_ns);
	tell_ms(prefix, "advance_cpu_max", (double)figures->advance.cpu_max_ns);
	tell_ms(prefix, "next_wakeup_max", (double)figures->next_wakeup.max_ns);
	tell_ms(prefix, "next_wakeup_cpu_max",
	    (double)figures->next_wakeup.cpu_max_ns);
	snprintf(name, sizeof(name), "%s_late", prefix);
	perf_metric_lateness(name, late);
}

static void
run(uint64_t random)
{
	static struct figures schedules = {.prefix = "schedule"};
	static struct figures cancels = {.prefix = "cancel"};
	static struct perf_control control;
	uint64_t i;

	perf_control_start(&control);
	for (i = 0; i < load.turns; i++) {
		schedule_all(&random);
		loop(&schedules, i % 2);
		cancel_all();
		loop(&cancels, i % 2);
	}
	perf_control_stop(&control);
	perf_must(!atomic_load(&loads_strays), "keeping what was not due");
	tell(&schedules, &control.lag);
	tell(&cancels, &control.lag);
	perf_metric_lateness("lag", &control.lag);
	perf_metric("early", "count",
	    (double)(schedules.starts.early + cancels.starts.early));
	perf_metric("lost", "count",
	    (double)(schedules.starts.lost + cancels.starts.lost));
}

int
main(int argc, char **argv)
{
	uint64_t seed = perf_begin(argc, argv, subject_version());

	load.calls = perf_option("calls", 1000000);
	load.turns = perf_option("turns", 4);
	load.loop_ns = HWT_MS(perf_option("loop_ms", 300));
	perf_options_end();
	perf_must(load.calls && load.turns, "reading the options");
	loads_need_memory(load.calls, TIMEOUT_BYTES);
	handles = calloc(load.calls, sizeof(*handles));
	perf_must(handles, "calloc");
	subject = subject_create_manual(HWT_MS(TICK_MS));
	run(seed);
	subject_destroy(subject);
	free(handles);
	return 0;
}

#else

int
main(int argc, char **argv)
{
	(void)perf_begin(argc, argv, subject_version());
	perf_skip(SUBJECT_NAME ": no thread of the caller's turns it");
}

#endif
