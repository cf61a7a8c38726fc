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
 *   mix=1            pair: delays of 50 ms, 250 ms, 1 s and 30 s, by chance,
 *                    instead of 30 s
 *   random=1         pair: one drawn at random is replaced
 *   pace=0           pair: calls a second of all threads together, in batches,
 *                    one each millisecond; 0: as fast as they can
 *   seconds=1 (of the window)  tick_ms=N
 *
 * The window begins two ticks after all was scheduled, and CPU is measured
 * until two ticks after its end, in which the subject may take over what was
 * scheduled. CPU is that of the process, less the observer's. One pair of 64 is
 * timed. In touch, all subjects have small pages.
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
	uint64_t threads, outstanding, tick_ns, delay_ns, pace, seed;
	uint64_t window_ns, clock_cost_ns;
	bool random, touch, flood, rounds, filled;
	enum {
		DELAY_SAME, /* delay_ns */
		DELAY_MIX,
		DELAY_FAR
	} delays;
	void (*batch)(struct caller *caller, uint64_t count);
	/* Of all threads, unless each has its own. */
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
far_delay_ns(struct caller *caller)
{
	return HWT_SEC(FLOOD_NEAREST_S) +
	    HWT_MS(perf_random_below(&caller->random, 1000 * FLOOD_RANGE_S));
}

static uint64_t
next_delay_ns(struct caller *caller)
{
	static const uint64_t mix[4] = {
	    HWT_MS(50), HWT_MS(250), HWT_SEC(1), HWT_SEC(30)};

	if (load.delays == DELAY_SAME)
		return load.delay_ns;
	return load.delays == DELAY_FAR
	    ? far_delay_ns(caller)
	    : mix[perf_random(&caller->random) >> 62];
}

static subject_handle *
random_place(struct caller *caller)
{
	return &caller->table[perf_random_below(
	    &caller->random, load.outstanding)];
}

static subject_handle *
next_place(struct caller *caller)
{
	uint64_t place = caller->place;

	if (load.random)
		return random_place(caller);
	caller->place = place + 1 == load.outstanding ? 0 : place + 1;
	return &caller->table[place];
}

static inline void
schedule(struct caller *caller, subject_handle *handle, uint64_t delay_ns)
{
	subject_schedule(caller->subject, handle, stray_task, NULL, delay_ns);
}

static void
pair_batch(struct caller *caller, uint64_t count)
{
	subject_handle *place;
	uint64_t begun_ns;

	for (; count; count--) {
		begun_ns = caller->done++ % PERF_SAMPLED ? 0 : perf_now_ns();
		place = next_place(caller);
		subject_cancel(caller->subject, *place);
		schedule(caller, place, next_delay_ns(caller));
		if (begun_ns)
			perf_sample(
			    caller->times, begun_ns, load.clock_cost_ns);
	}
}

static void
touch_batch(struct caller *caller, uint64_t count)
{
	subject_handle *place;

	caller->done += count;
	for (; count; count--) {
		place = random_place(caller);
		subject_reschedule(
		    caller->subject, place, next_delay_ns(caller));
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
} floods[] = {{"replace", true, pair_batch}, {"reschedule", true, touch_batch},
    {"pull_in", true, pull_in_batch}, {"at_once", false, at_once_batch},
    {"earlier", false, earlier_batch}, {"nothing", true, nothing_batch}};

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
	return batch < BATCH ? batch : BATCH;
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

/* A flood's delays are random only when it has begun. */
static void
fill_table(struct caller *caller)
{
	uint64_t stride = load.touch ? stride_prime : 1, delay_ns, i;

	for (i = 0; load.filled && i < load.outstanding; i++) {
		delay_ns = load.flood && !load.rounds
		    ? HWT_SEC(FLOOD_NEAREST_S + FLOOD_RANGE_S)
		    : next_delay_ns(caller);
		schedule(caller, &caller->table[i * stride % load.outstanding],
		    delay_ns);
		if (i % BATCH == 0)
			subject_turn(caller->subject);
	}
	for (i = 0; load.touch && i < load.outstanding; i += BATCH) {
		touch_batch(caller, BATCH);
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
	caller->done = 0;
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

	caller_begin(caller);
	pthread_barrier_wait(&load.filled_all);
	if (load.touch)
		caller->table = load.callers[0].table;
	pthread_barrier_wait(&load.begun);
	/* Its own: on a busy machine it may be late to begin. */
	caller->begun_ns = perf_now_ns();
	calls_window(caller);
	pthread_barrier_wait(&load.ended);
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
measure(void)
{
	struct window window;
	uint64_t begun_ns, own_ns;

	pthread_barrier_wait(&load.filled_all);
	settle();
	own_ns = perf_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	window.cpu_ns = perf_cpu_ns() - own_ns;
	begun_ns = perf_now_ns();
	observer_begin();
	pthread_barrier_wait(&load.begun);
	observer_run(load.shared, begun_ns);
	pthread_barrier_wait(&load.ended);
	window.wall_ns = perf_now_ns() - begun_ns;
	settle();
	own_ns = perf_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	window.cpu_ns = perf_cpu_ns() - own_ns - window.cpu_ns;
	window.cpu_wall_ns = perf_now_ns() - begun_ns;
	window.cpu_ns -= observer_end(load.shared);
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

	if (load.delays != DELAY_MIX && ran && took_ns >= load.delay_ns)
		perf_skip("too slow for this: timeouts became due before they "
			  "could be cancelled");
	perf_must(load.delays == DELAY_MIX || !ran,
	    "keeping what was not due from running");
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
		perf_metric_parts(times, "call", "ns", 1);
}

static void
calls_run(void)
{
	static struct perf_histogram times;
	uint64_t begun_ns = perf_now_ns(), refused = 0, done;
	struct window window;

	load.clock_cost_ns = perf_clock_cost_ns();
	if (!SUBJECT_SINGLE)
		load.shared = subject_create(load.tick_ns,
		    load.threads * load.outstanding + observer.count);
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
	free(observer.probes);
}

static void
calls_read_options(uint64_t seed, uint64_t outstanding, uint64_t tick_ms)
{
	load.seed = seed;
	load.filled = true;
	load.threads = perf_option("threads", 1);
	load.outstanding = perf_option("outstanding", outstanding);
	load.tick_ns = HWT_MS(perf_option("tick_ms", tick_ms));
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
	load.delay_ns = HWT_SEC(30);
	load.delays = perf_option("mix", 0) ? DELAY_MIX : DELAY_SAME;
	load.random = perf_option("random", 0);
	load.pace = perf_option("pace", 0);
	perf_options_end();
	load.batch = pair_batch;
	calls_run();
}

static void
touch(uint64_t seed)
{
	calls_read_options(seed, 100000, 100);
	load.delay_ns = HWT_SEC(60);
	perf_options_end();
	if (load.threads > 1)
		need_threads();
	need_memory(load.outstanding, 256);
	(void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	load.batch = touch_batch;
	load.touch = true;
	calls_run();
}

/* Minutes before anything is due. */
static void
far_run(const char *name, uint64_t every_us, uint64_t delay_ms)
{
	const struct flood *flood = floods;

	perf_options_end();
	need_threads();
	need_memory(load.threads * load.outstanding, 256);
	while (strcmp(name, flood->name) != 0)
		perf_must(++flood < floods + sizeof(floods) / sizeof(*floods),
		    "finding such a flood");
	load.batch = flood->batch;
	load.filled = flood->filled;
	load.flood = load.random = true;
	load.delay_ns = HWT_SEC(FLOOD_NEAREST_S);
	load.delays = DELAY_FAR;
	perf_must(load.window_ns <= load.delay_ns / 2, "reading the options");
	observer_create(load.window_ns, load.tick_ns, every_us, delay_ms);
	calls_run();
}

static void
flood(uint64_t seed)
{
	calls_read_options(seed, 100000, 1);
	far_run(perf_text("what", "replace"), 2000, 20);
}

static void
rounds(uint64_t seed)
{
	calls_read_options(seed, 1000000, 1);
	load.rounds = true;
	far_run("nothing", 100, 500);
}

#endif
