/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair, touch, flood, rounds: threads that make calls, as fast as they can or
 * at a pace, and the observer beside them.
 *
 * pair   cancels the oldest timeout and schedules one in its place: the life of
 *        almost every timeout of a network program
 * touch  pushes one out, at random, of the connections of all threads
 * flood  does what its option says, minutes before anything is due:
 *        what=replace     cancels one at random and schedules another
 *             reschedule  moves one at random, earlier or later
 *             pull_in     pulls each in by 5 s, in turn; after an hour's worth,
 *                         all go back
 *             at_once     schedules all at once, then nothing
 *             earlier     schedules all, each a tick earlier than the one
 *                         before, cancels them all, and so on
 * rounds has timeouts that are not due for many rounds of the wheel, and probes
 *        beside them, due within a second, in the same buckets. The difference
 *        to outstanding=1 is what passing over them costs
 *
 *   threads=1        a subject for one thread is made for each
 *   outstanding=N    timeouts of each thread; with touch, of all
 *   delay_ms=N       30 s in pair, 60 s in touch; none may become due
 *   mix=1            pair: delays of 50 ms, 250 ms, 1 s and 30 s, by chance
 *   random=1         pair: one drawn at random is replaced
 *   seconds=1        of the window
 *   calls=0          of each thread; 0: no limit. The window is the shorter
 *   pace=0           pair: calls a second of all threads together, in batches,
 *                    one each millisecond; 0: as fast as they can
 *   tick_ms=N  probe_every_us=N probe_delay_ms=N probe_stagger_ms=N
 *
 * The window begins two ticks after all was scheduled, and CPU is measured
 * until two ticks after its end, in which the subject may take over what was
 * scheduled. CPU is that of the process, less the observer's. One pair of
 * 64 is timed. touch has a window of a quarter before,
 * to warm up, and small pages for all subjects.
 */
#ifndef PERF_CALLS_H
#define PERF_CALLS_H

#include <sys/prctl.h>

#include "perf/driver.h"

enum {
	/* Calls between two readings of the clock. A pair is two calls, so that
	 * a subject without a thread gets its turn every TURN_CALLS. */
	BATCH = TURN_CALLS / 2,
	THREADS_MAX = 256,
	STEPS_PER_S = 1000,
	FLOOD_NEAREST_S = 120,
	FLOOD_RANGE_S = 3600,
	FLOOD_PULL_IN_S = 5
};

/* Above all numbers of connections: neighbours in the table are none in the
 * subject's memory. */
static const uint64_t stride_prime = 1000000007;

struct caller {
	_Alignas(64) struct subject *subject;
	subject_handle *table;
	uint64_t place, lap, random, done;
	uint64_t begun_ns, refused;
	struct perf_histogram *times;
	pthread_t thread;
	unsigned number;
};

static struct {
	uint64_t threads, outstanding, tick_ns, delay_ns, calls, pace, seed;
	uint64_t window_ns, origin_from_ns, origin_to_ns, clock_cost_ns;
	bool mix, random, touch, flood, rounds, filled;
	void (*batch)(struct caller *caller, uint64_t count);
	unsigned windows;
	/* That of all threads, unless each has its own. */
	struct subject *shared;
	struct caller callers[THREADS_MAX];
	pthread_barrier_t filled_all, begun, ended;
} load;

/* wall_ns: from the first call to the last. cpu_ns: in cpu_wall_ns, which ends
 * with the last call's consequences. */
struct window {
	uint64_t wall_ns, cpu_ns, cpu_wall_ns;
};

static uint64_t
next_delay(struct caller *caller)
{
	static const uint64_t delays[4] = {
	    HWT_MS(50), HWT_MS(250), HWT_SEC(1), HWT_SEC(30)};

	return load.mix ? delays[perf_random(&caller->random) >> 62]
			: load.delay_ns;
}

static uint64_t
next_place(struct caller *caller)
{
	uint64_t place = caller->place;

	if (load.random)
		return perf_random_below(&caller->random, load.outstanding);
	caller->place = place + 1 == load.outstanding ? 0 : place + 1;
	return place;
}

static inline void
schedule(struct caller *caller, subject_handle *handle, uint64_t delay_ns)
{
	subject_schedule(caller->subject, handle, stray_task, NULL, delay_ns);
}

/* 0: this call is not one of those that are timed. */
static inline uint64_t
call_begins(struct caller *caller)
{
	return caller->done++ % PERF_SAMPLED ? 0 : perf_now_ns();
}

static inline void
call_ends(struct caller *caller, uint64_t begun_ns)
{
	if (begun_ns)
		perf_sample(caller->times, begun_ns, load.clock_cost_ns);
}

static void
pair_batch(struct caller *caller, uint64_t count)
{
	subject_handle *place;
	uint64_t begun_ns;

	for (; count; count--) {
		begun_ns = call_begins(caller);
		place = &caller->table[next_place(caller)];
		subject_cancel(caller->subject, *place);
		schedule(caller, place, next_delay(caller));
		call_ends(caller, begun_ns);
	}
}

static void
touch_batch(struct caller *caller, uint64_t count)
{
	uint64_t random = caller->random, connections = load.outstanding;
	subject_handle *handle;

	caller->done += count;
	for (; count; count--) {
		handle =
		    &caller->table[perf_random_below(&random, connections)];
		subject_reschedule(caller->subject, handle, load.delay_ns);
	}
	caller->random = random;
}

static uint64_t
far_delay_ns(struct caller *caller)
{
	return HWT_SEC(FLOOD_NEAREST_S) +
	    HWT_MS(perf_random_below(
		&caller->random, UINT64_C(1000) * FLOOD_RANGE_S));
}

static void
replace_batch(struct caller *caller, uint64_t count)
{
	subject_handle *handle;

	caller->done += count;
	for (; count; count--) {
		handle = &caller->table[perf_random_below(
		    &caller->random, load.outstanding)];
		subject_cancel(caller->subject, *handle);
		schedule(caller, handle, far_delay_ns(caller));
	}
}

static void
reschedule_batch(struct caller *caller, uint64_t count)
{
	subject_handle *handle;

	caller->done += count;
	for (; count; count--) {
		handle = &caller->table[perf_random_below(
		    &caller->random, load.outstanding)];
		subject_reschedule(
		    caller->subject, handle, far_delay_ns(caller));
	}
}

static void
pull_in_batch(struct caller *caller, uint64_t count)
{
	uint64_t delay_s;

	caller->done += count;
	for (; count; count--) {
		if (caller->place == load.outstanding) {
			caller->place = 0;
			caller->lap++;
		}
		delay_s = FLOOD_NEAREST_S + FLOOD_RANGE_S -
		    caller->lap * FLOOD_PULL_IN_S % FLOOD_RANGE_S;
		subject_reschedule(caller->subject,
		    &caller->table[caller->place++], HWT_SEC(delay_s));
	}
}

static void
at_once_batch(struct caller *caller, uint64_t count)
{
	if (caller->place == load.outstanding)
		perf_sleep_until_ns(perf_now_ns() + CONTROL_STEP_NS);
	for (; count && caller->place < load.outstanding; count--) {
		schedule(caller, &caller->table[caller->place++],
		    far_delay_ns(caller));
		caller->done++;
	}
}

/* place: below outstanding, that one is scheduled next; beyond, cancelled. */
static void
earlier_batch(struct caller *caller, uint64_t count)
{
	uint64_t ticks = HWT_SEC(FLOOD_RANGE_S) / load.tick_ns, place;

	caller->done += count;
	for (; count; count--) {
		place = caller->place++;
		if (place < load.outstanding)
			schedule(caller, &caller->table[place],
			    HWT_SEC(FLOOD_NEAREST_S) +
				(ticks - caller->lap++ % ticks) * load.tick_ns);
		else
			subject_cancel(caller->subject,
			    caller->table[place - load.outstanding]);
		if (caller->place == 2 * load.outstanding)
			caller->place = 0;
	}
}

static void
nothing_batch(struct caller *caller, uint64_t count)
{
	caller->done += count;
	perf_sleep_until_ns(perf_now_ns() + HWT_MS(10));
}

static const struct flood {
	const char *name;
	/* Its timeouts are pending before it begins. */
	bool filled;
	void (*batch)(struct caller *caller, uint64_t count);
} floods[] = {{"replace", true, replace_batch},
    {"reschedule", true, reschedule_batch}, {"pull_in", true, pull_in_batch},
    {"at_once", false, at_once_batch}, {"earlier", false, earlier_batch},
    {"nothing", true, nothing_batch}};

/* How many calls the pace still asks for in this millisecond; 0: it sleeps. */
static uint64_t
behind_pace(const struct caller *caller, uint64_t now_ns)
{
	uint64_t step = (now_ns - caller->begun_ns) / CONTROL_STEP_NS + 1;
	uint64_t target = step * load.pace / (STEPS_PER_S * load.threads);

	if (target > caller->done)
		return target - caller->done;
	perf_sleep_until_ns(caller->begun_ns + step * CONTROL_STEP_NS);
	subject_turn(caller->subject);
	return 0;
}

/* How many calls come next; 0: the end. Each caller makes one batch at least:
 * one that gets no processor extends the window. */
static uint64_t
next_batch(const struct caller *caller)
{
	uint64_t batch = 0, now_ns;

	while (!batch) {
		now_ns = perf_now_ns();
		if (caller->done && now_ns - caller->begun_ns >= load.window_ns)
			return 0;
		batch = load.pace ? behind_pace(caller, now_ns) : BATCH;
	}
	subject_turn_begins(now_ns);
	if (batch > BATCH)
		batch = BATCH;
	if (load.calls && load.calls - caller->done < batch)
		batch = load.calls - caller->done;
	return batch;
}

static void
calls_window(struct caller *caller)
{
	uint64_t batch;

	while ((batch = next_batch(caller))) {
		load.batch(caller, batch);
		/* A caller with a pace turns when it has slept. */
		if (batch == BATCH)
			subject_turn(caller->subject);
	}
	subject_turn_begins(0);
}

static uint64_t
fill_delay_ns(struct caller *caller)
{
	if (load.rounds)
		return far_delay_ns(caller);
	if (load.flood)
		return HWT_SEC(FLOOD_NEAREST_S + FLOOD_RANGE_S);
	return next_delay(caller);
}

static void
fill_table(struct caller *caller)
{
	uint64_t stride = load.touch ? stride_prime : 1, i;

	for (i = 0; load.filled && i < load.outstanding; i++) {
		schedule(caller, &caller->table[i * stride % load.outstanding],
		    fill_delay_ns(caller));
		if (i % BATCH == 0)
			subject_turn(caller->subject);
	}
}

/* In touch all threads share the table of the first. */
static void
caller_begin(struct caller *caller)
{
	perf_pin(caller->number, load.threads);
	caller->subject = SUBJECT_SINGLE
	    ? subject_create(load.tick_ns, load.outstanding)
	    : load.shared;
	caller->times = calloc(1, sizeof(*caller->times));
	perf_must(caller->times, "calloc");
	if (load.touch && caller->number)
		return;
	caller->table = calloc(load.outstanding, sizeof(subject_handle));
	perf_must(caller->table, "calloc");
	fill_table(caller);
}

static void
caller_end(struct caller *caller)
{
	uint64_t i;

	for (i = 0; !load.touch && !load.flood && caller->table &&
	     i < load.outstanding;
	     i++)
		subject_cancel(caller->subject, caller->table[i]);
	caller->refused = subject_refused;
	if (SUBJECT_SINGLE)
		subject_destroy(caller->subject);
}

static void *
caller_thread(void *arg)
{
	struct caller *caller = arg;
	unsigned i;

	caller_begin(caller);
	pthread_barrier_wait(&load.filled_all);
	if (load.touch)
		caller->table = load.callers[0].table;
	for (i = 0; i < load.windows; i++) {
		caller->done = 0;
		memset(caller->times, 0, sizeof(*caller->times));
		pthread_barrier_wait(&load.begun);
		/* Its own: on a busy machine it may be late to begin. */
		caller->begun_ns = perf_now_ns();
		calls_window(caller);
		pthread_barrier_wait(&load.ended);
	}
	pthread_barrier_wait(&load.ended);
	caller_end(caller);
	return NULL;
}

/* The subject has so long to take over what was scheduled. */
static void
settle(void)
{
	perf_sleep_until_ns(perf_now_ns() + 2 * load.tick_ns + HWT_MS(5) +
	    load.threads * load.outstanding * 300);
}

/* The observer's CPU, which is this thread's and the control thread's, does not
 * count. */
static struct window
measure_window(bool last)
{
	struct window window;
	uint64_t begun_ns, own_ns;

	settle();
	own_ns = perf_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	window.cpu_ns = perf_cpu_ns() - own_ns;
	begun_ns = perf_now_ns();
	if (last)
		observer_begin();
	pthread_barrier_wait(&load.begun);
	if (last)
		observer_run(load.shared, begun_ns);
	pthread_barrier_wait(&load.ended);
	window.wall_ns = perf_now_ns() - begun_ns;
	settle();
	own_ns = perf_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	window.cpu_ns = perf_cpu_ns() - own_ns - window.cpu_ns;
	window.cpu_wall_ns = perf_now_ns() - begun_ns;
	if (last)
		window.cpu_ns -= observer_end(load.shared);
	return window;
}

static struct window
measure(void)
{
	uint64_t window_ns = load.window_ns;
	struct window window;
	unsigned i;

	pthread_barrier_wait(&load.filled_all);
	for (i = 0; i < load.windows; i++) {
		load.window_ns =
		    i + 1 < load.windows ? window_ns / 4 : window_ns;
		window = measure_window(i + 1 == load.windows);
	}
	pthread_barrier_wait(&load.ended);
	return window;
}

static void
start_callers(void)
{
	struct caller *caller;
	unsigned i;

	pthread_barrier_init(&load.filled_all, NULL, load.threads + 1);
	pthread_barrier_init(&load.begun, NULL, load.threads + 1);
	pthread_barrier_init(&load.ended, NULL, load.threads + 1);
	for (i = 0; i < load.threads; i++) {
		caller = &load.callers[i];
		caller->number = i;
		caller->random = load.seed * 1000003 + i;
		perf_start(&caller->thread, caller_thread, caller);
	}
}

/* Returns the number of calls; adds up the rest. */
static uint64_t
join_callers(struct perf_histogram *times, uint64_t *refused)
{
	struct caller *caller;
	uint64_t done = 0, i;

	for (i = 0; i < load.threads; i++) {
		caller = &load.callers[i];
		pthread_join(caller->thread, NULL);
		perf_histogram_merge(times, caller->times);
		*refused += caller->refused;
		done += caller->done;
		if (!load.touch || !i)
			free(caller->table);
		free(caller->times);
	}
	return done;
}

/* Each timeout was cancelled or has run, never both, and none ran that was not
 * due: unless the subject is so slow that it comes to the oldest too late. */
static void
judge_outcomes(uint64_t refused, uint64_t took_ns)
{
	uint64_t ran = atomic_load(&strays);

	if (!load.mix && ran && took_ns >= load.delay_ns)
		perf_skip("too slow for this: timeouts became due before they "
			  "could be cancelled");
	perf_must(load.mix || !ran, "keeping what was not due from running");
	if (!load.touch && !load.flood)
		perf_must(refused == ran, "cancelling what was pending");
}

static void
print_window(const struct window *window, uint64_t done,
    const struct perf_histogram *times)
{
	perf_metric("cpu_ns", "ns", (double)window->cpu_ns / (double)done);
	perf_metric("wall_ns", "ns", (double)window->wall_ns / (double)done);
	if (times->count)
		perf_metric_calls("call", times);
}

static void
calls_run(void)
{
	static struct perf_histogram times;
	uint64_t begun_ns = perf_now_ns(), refused = 0, done;
	struct window window;

	load.clock_cost_ns = perf_clock_cost_ns();
	load.origin_from_ns = perf_now_ns();
	if (!SUBJECT_SINGLE)
		load.shared = subject_create(load.tick_ns,
		    load.threads * load.outstanding + observer.count);
	load.origin_to_ns = perf_now_ns();
	start_callers();
	window = measure();
	done = join_callers(&times, &refused);
	if (!SUBJECT_SINGLE)
		subject_destroy(load.shared);
	judge_outcomes(refused, perf_now_ns() - begun_ns);
	if (load.rounds)
		perf_metric("worker_cpu_percent", "%",
		    100 * (double)window.cpu_ns / (double)window.cpu_wall_ns);
	if (!load.flood)
		print_window(&window, done, &times);
	observer_print();
	if (load.flood && !load.rounds)
		print_window(&window, done, &times);
	if (SUBJECT_TICK_ORDER && observer.every_ns)
		perf_metric("disorder", "count",
		    (double)observer_disorder(
			load.origin_from_ns, load.origin_to_ns, load.tick_ns));
	free(observer.probes);
}

static void
calls_read_options(uint64_t seed, uint64_t outstanding, uint64_t tick_ms)
{
	load.seed = seed;
	load.threads = perf_option("threads", 1);
	load.outstanding = perf_option("outstanding", outstanding);
	load.tick_ns = HWT_MS(perf_option("tick_ms", tick_ms));
	load.calls = perf_option("calls", 0);
	load.window_ns = (uint64_t)(1e9 * perf_fraction("seconds", 1));
	perf_must(load.threads && load.threads <= THREADS_MAX &&
		load.outstanding && load.outstanding < stride_prime &&
		load.tick_ns && load.window_ns,
	    "reading the options");
}

static void
pair(uint64_t seed)
{
	calls_read_options(seed, 1024, 100);
	observer_read_options(0, 200, 0);
	load.delay_ns = HWT_MS(perf_option("delay_ms", 30000));
	load.mix = perf_option("mix", 0);
	load.random = perf_option("random", 0);
	load.pace = perf_option("pace", 0);
	perf_options_end();
	load.batch = pair_batch;
	load.filled = true;
	load.windows = 1;
	observer_create(load.window_ns, load.tick_ns);
	calls_run();
}

static void
touch(uint64_t seed)
{
	calls_read_options(seed, 100000, 100);
	load.delay_ns = HWT_MS(perf_option("delay_ms", 60000));
	perf_options_end();
	if (load.threads > 1)
		need_threads();
	need_memory(load.outstanding, 256);
	(void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	load.batch = touch_batch;
	load.touch = load.filled = true;
	load.windows = 2;
	calls_run();
}

/* Minutes before anything is due. */
static void
far_run(uint64_t seed, const char *name)
{
	const struct flood *chosen = NULL;
	unsigned i;

	perf_options_end();
	need_threads();
	need_memory(load.threads * load.outstanding, 256);
	for (i = 0; i < sizeof(floods) / sizeof(floods[0]); i++)
		if (!strcmp(name, floods[i].name))
			chosen = &floods[i];
	perf_must(chosen && load.window_ns <= HWT_SEC(FLOOD_NEAREST_S) / 2,
	    "reading the options");
	load.seed = seed;
	load.batch = chosen->batch;
	load.filled = chosen->filled;
	load.flood = true;
	load.delay_ns = HWT_SEC(FLOOD_NEAREST_S);
	load.windows = 1;
	observer_create(load.window_ns, load.tick_ns);
	calls_run();
}

static void
flood(uint64_t seed)
{
	calls_read_options(seed, 100000, 1);
	observer_read_options(2000, 20, 5);
	far_run(seed, perf_text("what", "replace"));
}

static void
rounds(uint64_t seed)
{
	calls_read_options(seed, 1000000, 1);
	observer_read_options(100, 500, 5);
	load.rounds = true;
	far_run(seed, "nothing");
}

#endif
