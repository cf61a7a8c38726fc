/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does a pair cost, schedule one timeout and cancel an old one? This is
 * the life of almost every timeout of a network program. docs/PERFORMANCE says
 * what is in the window.
 *
 *   producers=1       threads; a subject for one thread is made for each
 *   outstanding=1024  timeouts of each producer, which it replaces in turn
 *   mix=1             delays of 50 ms, 250 ms, 1 s and 30 s, by chance: a
 *                     cancel may find nothing. Otherwise 30 s, which is longer
 *                     than a timeout stays: none may be due
 *   random=1          not the oldest is replaced, but one drawn by lot
 *   handoff=1         for each producer another thread cancels; handles go
 *                     there through a bounded ring of blocks
 *   pairs=0           of each producer, 0: no limit
 *   seconds=1         whichever of the two comes first, but after one batch
 *   pace=0            pairs a second of all producers together, in batches, one
 *                     each millisecond; 0: as fast as they can
 *   probe=1           beside that, a timeout of 200 ms every 50 ms, whose
 *                     lateness is told with the control thread's largest lag,
 *                     and RSS at the end beside that after a fifth of the time
 *   aged=1            at first, timeouts lie in memory without any order; not
 *                     with handoff
 *   tick_ms=100  seed=1
 *
 * A sampled call is a pair, with handoff one call.
 */
#define _GNU_SOURCE
#include <semaphore.h>

#include "perf/loads.h"

enum {
	/* Pairs from one look at the clock to the next; two calls each, so that
	 * a subject without a thread gets its turn every 1024 calls. */
	BATCH = 512,
	/* The ring between two threads: blocks of handles. */
	BLOCK = 256,
	BLOCKS = 4,
	PRODUCERS_MAX = 1000,
	STEPS_PER_S = 1000,
	DELAY_S = 30,
	PROBE_EVERY_MS = 50,
	PROBE_DELAY_MS = 200
};

static struct {
	uint64_t producers, outstanding, tick_ns, pairs, pace, seed;
	bool mix, random, handoff, probe, aged;
	double seconds;
} load;

/* One thread writes blocks, another reads them. An empty block is the end. */
struct ring {
	subject_handle block[BLOCKS][BLOCK];
	uint64_t count[BLOCKS];
	uint64_t written, read;
	sem_t empty, full;
};

/* A thread that makes calls: both of a pair, or with handoff one of them. */
struct caller {
	_Alignas(64) struct subject *subject;
	subject_handle *table;
	uint64_t place, random, calls;
	uint64_t begun_ns, refused;
	struct ring *ring;
	struct perf_histogram *times;
	void *(*run)(void *caller);
	pthread_t thread;
	unsigned number;
};

/* The window from the first pair to the end of the last one's consequences. */
struct window {
	uint64_t cpu_ns, wall_ns, sleeps;
	/* wall_ns ends with the last pair. */
	/* With probes: RSS at the end to that early in it. */
	double rss_growth;
};

/* That of all callers, but where each has its own. */
static struct subject *shared;
static struct caller callers[2 * PRODUCERS_MAX];
static unsigned caller_count;
static pthread_barrier_t filled, begun, ended;
static uint64_t clock_cost_ns;
static atomic_uint_fast64_t due;

SUBJECT_TASK(count_due, arg)
{
	(void)arg;
	atomic_fetch_add_explicit(&due, 1, memory_order_relaxed);
}

static uint64_t
next_delay(struct caller *caller)
{
	static const uint64_t delays[4] = {
	    HWT_MS(50), HWT_MS(250), HWT_SEC(1), HWT_SEC(DELAY_S)};

	if (!load.mix)
		return HWT_SEC(DELAY_S);
	return delays[perf_random(&caller->random) >> 62];
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
schedule(struct caller *caller, subject_handle *handle)
{
	subject_schedule(
	    caller->subject, handle, count_due, NULL, next_delay(caller));
}

static inline void
replace(struct caller *caller, const subject_handle *handle)
{
	subject_handle *place = &caller->table[next_place(caller)];

	subject_cancel(caller->subject, *place);
	if (handle)
		*place = *handle;
	else
		schedule(caller, place);
}

/* Counts a call. 0: it is not one of those that are timed. */
static inline uint64_t
call_begins(struct caller *caller)
{
	return caller->calls++ % PERF_SAMPLED ? 0 : perf_now_ns();
}

static inline void
call_ends(struct caller *caller, uint64_t begun_ns)
{
	if (begun_ns)
		perf_sample(caller->times, begun_ns, clock_cost_ns);
}

static void
make_pairs(struct caller *caller, uint64_t count)
{
	uint64_t begun_ns;

	for (; count; count--) {
		begun_ns = call_begins(caller);
		replace(caller, NULL);
		call_ends(caller, begun_ns);
	}
}

/* An empty one ends it. */
static void
send_block(struct caller *caller, uint64_t count)
{
	struct ring *ring = caller->ring;
	uint64_t number = ring->written++ % BLOCKS, i, begun_ns;
	subject_handle *block = ring->block[number];

	while (sem_wait(&ring->empty))
		continue;
	for (i = 0; i < count; i++) {
		begun_ns = call_begins(caller);
		schedule(caller, &block[i]);
		call_ends(caller, begun_ns);
	}
	ring->count[number] = count;
	sem_post(&ring->full);
}

static void
send_pairs(struct caller *caller, uint64_t count)
{
	uint64_t part;

	for (; count; count -= part) {
		part = count < BLOCK ? count : BLOCK;
		send_block(caller, part);
	}
}

/* Gives the number of handles, which are there until done_block. */
static uint64_t
receive_block(struct caller *caller, subject_handle **block)
{
	struct ring *ring = caller->ring;

	while (sem_wait(&ring->full))
		continue;
	*block = ring->block[ring->read % BLOCKS];
	return ring->count[ring->read % BLOCKS];
}

static void
done_block(struct caller *caller)
{
	caller->ring->read++;
	sem_post(&caller->ring->empty);
}

static void
cancel_block(struct caller *caller, const subject_handle *block, uint64_t count)
{
	uint64_t i, begun_ns;

	for (i = 0; i < count; i++) {
		begun_ns = call_begins(caller);
		replace(caller, &block[i]);
		call_ends(caller, begun_ns);
	}
}

/* How many pairs the pace still asks for in this millisecond; 0: it is kept. A
 * loop would sleep here, and know the time when it wakes up. */
static uint64_t
behind_pace(const struct caller *caller, uint64_t now_ns)
{
	uint64_t step = (now_ns - caller->begun_ns) / PERF_STEP_NS + 1;
	uint64_t target = step * load.pace / (STEPS_PER_S * load.producers);

	if (target > caller->calls)
		return target - caller->calls;
	perf_sleep_until_ns(caller->begun_ns + step * PERF_STEP_NS);
	subject_turn(caller->subject);
	return 0;
}

/* How many pairs come next; 0: the end. Each caller makes one batch at least:
 * one that gets no processor extends the window. */
static uint64_t
next_batch(const struct caller *caller)
{
	uint64_t batch = 0, now_ns;

	while (!batch) {
		now_ns = perf_now_ns();
		if (caller->calls &&
		    (double)(now_ns - caller->begun_ns) >= load.seconds * 1e9)
			return 0;
		batch = load.pace ? behind_pace(caller, now_ns) : BATCH;
	}
	subject_turn_begins(now_ns);
	if (batch > BATCH)
		batch = BATCH;
	if (load.pairs && load.pairs - caller->calls < batch)
		batch = load.pairs - caller->calls;
	return batch;
}

static void
fill_table(struct caller *caller)
{
	uint64_t i;

	for (i = 0; i < load.outstanding; i++) {
		schedule(caller, &caller->table[i]);
		if (i % BATCH == 0)
			subject_turn(caller->subject);
	}
}

/* Shuffles the table's memory: what was returned last is handed out first,
 * and so two that are replaced together change places. */
static void
age_table(struct caller *caller)
{
	uint64_t left;

	for (left = load.outstanding; left > 1; left--) {
		subject_handle *one = &caller->table[left - 1];
		subject_handle *other =
		    &caller->table[perf_random_below(&caller->random, left)];

		subject_cancel(caller->subject, *one);
		if (one != other)
			subject_cancel(caller->subject, *other);
		schedule(caller, one);
		if (one != other)
			schedule(caller, other);
		if (left % BATCH == 0)
			subject_turn(caller->subject);
	}
}

static void
receive_table(struct caller *caller)
{
	subject_handle *block;
	uint64_t i, count;

	for (i = 0; i < load.outstanding; i += count) {
		count = receive_block(caller, &block);
		memcpy(
		    &caller->table[i], block, count * sizeof(subject_handle));
		done_block(caller);
	}
}

static void
wait_for_begin(struct caller *caller)
{
	pthread_barrier_wait(&filled);
	caller->calls = 0;
	memset(caller->times, 0, sizeof(*caller->times));
	pthread_barrier_wait(&begun);
	/* Its own: on a machine that is busy it may be late to begin. */
	caller->begun_ns = perf_now_ns();
}

static struct caller *
caller_begin(void *arg)
{
	struct caller *caller = arg;

	perf_pin(caller->number, caller_count);
	caller->subject = shared;
	if (SUBJECT_SINGLE)
		caller->subject =
		    subject_create(load.tick_ns, load.outstanding);
	caller->table = calloc(load.outstanding, sizeof(subject_handle));
	caller->times = calloc(1, sizeof(*caller->times));
	perf_must(caller->table && caller->times, "calloc");
	return caller;
}

/* has_table: what is pending in it is cancelled. */
static void
caller_end(struct caller *caller, bool has_table)
{
	uint64_t i;

	pthread_barrier_wait(&ended);
	pthread_barrier_wait(&ended);
	for (i = 0; has_table && i < load.outstanding; i++)
		subject_cancel(caller->subject, caller->table[i]);
	caller->refused = subject_refused;
	if (SUBJECT_SINGLE)
		subject_destroy(caller->subject);
	free(caller->table);
}

static void *
pairs_thread(void *arg)
{
	struct caller *caller = caller_begin(arg);
	uint64_t batch;

	fill_table(caller);
	if (load.aged)
		age_table(caller);
	wait_for_begin(caller);
	while ((batch = next_batch(caller))) {
		make_pairs(caller, batch);
		/* What is paced turns when it has slept. */
		if (batch == BATCH)
			subject_turn(caller->subject);
	}
	caller_end(caller, true);
	return NULL;
}

static void *
schedule_thread(void *arg)
{
	struct caller *caller = caller_begin(arg);
	uint64_t batch;

	send_pairs(caller, load.outstanding);
	wait_for_begin(caller);
	while ((batch = next_batch(caller)))
		send_pairs(caller, batch);
	send_block(caller, 0);
	caller_end(caller, false);
	return NULL;
}

static void *
cancel_thread(void *arg)
{
	struct caller *caller = caller_begin(arg);
	subject_handle *block;
	uint64_t count;

	receive_table(caller);
	wait_for_begin(caller);
	while ((count = receive_block(caller, &block))) {
		cancel_block(caller, block, count);
		done_block(caller);
	}
	caller_end(caller, true);
	return NULL;
}

/* So many that the last is due before the producers end. */
static uint64_t
probe_count(void)
{
	double ms =
	    load.seconds * 1e3 - PROBE_DELAY_MS - 2e-6 * (double)load.tick_ns;

	return ms > 0 ? (uint64_t)(ms / PROBE_EVERY_MS) : 0;
}

/* Returns RSS after a fifth of the window: the tables are full by then. */
static double
run_probes(struct loads_timeout *probes, uint64_t count, uint64_t begun_ns)
{
	double rss_bytes = 0;
	uint64_t i;

	for (i = 0; i < count; i++) {
		if (i == count / 5)
			rss_bytes = (double)perf_rss_bytes();
		probes[i].due_ns = perf_now_ns() + HWT_MS(PROBE_DELAY_MS);
		subject_schedule(shared, NULL, loads_task, &probes[i],
		    HWT_MS(PROBE_DELAY_MS));
		perf_sleep_until_ns(
		    begun_ns + HWT_MS(PROBE_EVERY_MS) * (i + 1));
	}
	return rss_bytes;
}

static void
tell_probes(struct loads_timeout *probes, uint64_t count, uint64_t lag_max_ns)
{
	static struct loads_starts starts;
	double beyond_ns;
	uint64_t i;

	for (i = 0; i < count; i++)
		loads_judge(&starts, &probes[i]);
	beyond_ns = (double)starts.late.max_ns - (double)(2 * load.tick_ns) -
	    (double)lag_max_ns;
	loads_tell_starts(&starts);
	perf_metric("lag_max_ms", "ms", (double)lag_max_ns / 1e6);
	perf_metric("late_beyond_ms", "ms", beyond_ns / 1e6);
}

/* How often threads of the process have gone to sleep, by the kernel's count:
 * as often they were woken. */
static uint64_t
sleeps(void)
{
	struct rusage usage;

	perf_must(!getrusage(RUSAGE_SELF, &usage), "getrusage");
	return (uint64_t)usage.ru_nvcsw;
}

/* A subject has two ticks to take over what was scheduled, before the window
 * and at its end. */
static void
settle(void)
{
	perf_sleep_until_ns(perf_now_ns() + 2 * load.tick_ns);
}

static struct window
measure(struct loads_timeout *probes, uint64_t probe_number)
{
	struct window window;
	uint64_t begun_ns;
	double rss_bytes;

	pthread_barrier_wait(&filled);
	settle();
	window.cpu_ns = perf_cpu_ns();
	window.sleeps = sleeps();
	begun_ns = perf_now_ns();
	pthread_barrier_wait(&begun);
	rss_bytes = run_probes(probes, probe_number, begun_ns);
	pthread_barrier_wait(&ended);
	window.wall_ns = perf_now_ns() - begun_ns;
	settle();
	window.cpu_ns = perf_cpu_ns() - window.cpu_ns;
	window.sleeps = sleeps() - window.sleeps;
	window.rss_growth = (double)perf_rss_bytes() / rss_bytes;
	/* On a machine that is busy the last may be late. */
	loads_await(shared, probe_number, perf_now_ns());
	pthread_barrier_wait(&ended);
	return window;
}

static void
add_caller(struct ring *ring, void *(*run)(void *))
{
	struct caller *caller = &callers[caller_count];

	caller->run = run;
	caller->ring = ring;
	caller->number = caller_count++;
	caller->random = load.seed * 1000003 + caller->number;
}

static struct ring *
ring_create(void)
{
	struct ring *ring = calloc(1, sizeof(*ring));

	perf_must(ring, "calloc");
	sem_init(&ring->empty, 0, BLOCKS);
	sem_init(&ring->full, 0, 0);
	return ring;
}

/* They read how many they are, and so start when all are there. */
static void
start_callers(void)
{
	struct ring *ring;
	uint64_t i;

	for (i = 0; i < load.producers; i++) {
		if (load.handoff) {
			ring = ring_create();
			add_caller(ring, schedule_thread);
			add_caller(ring, cancel_thread);
		} else {
			add_caller(NULL, pairs_thread);
		}
	}
	pthread_barrier_init(&filled, NULL, caller_count + 1);
	pthread_barrier_init(&begun, NULL, caller_count + 1);
	pthread_barrier_init(&ended, NULL, caller_count + 1);
	for (i = 0; i < caller_count; i++)
		perf_start(&callers[i].thread, callers[i].run, &callers[i]);
}

/* Gives the number of pairs; adds up the rest. */
static uint64_t
join_callers(struct perf_histogram *times, uint64_t *refused)
{
	uint64_t pairs = 0, i;

	for (i = 0; i < caller_count; i++) {
		pthread_join(callers[i].thread, NULL);
		perf_histogram_merge(times, callers[i].times);
		*refused += callers[i].refused;
		if (callers[i].run != cancel_thread)
			pairs += callers[i].calls;
		if (callers[i].run == cancel_thread)
			free(callers[i].ring);
		free(callers[i].times);
	}
	return pairs;
}

/* Each timeout was cancelled or has run, and never both; and none ran that
 * could not be due. With one delay, none is, unless the subject is so slow at
 * this that it comes to the oldest too late. */
static void
judge_outcomes(uint64_t refused, uint64_t took_ns)
{
	uint64_t ran = atomic_load(&due);

	if (!load.mix && ran && took_ns >= HWT_SEC(DELAY_S))
		perf_skip("too slow for this: timeouts came due before they "
			  "could be cancelled");
	if (!load.mix)
		perf_must(!ran, "keeping what was not due from running");
	if (!load.mix || SUBJECT_TELLS)
		perf_must(refused == ran, "cancelling what was pending");
}

static void
tell(const struct window *window, uint64_t pairs,
    const struct perf_histogram *times)
{
	double wall_s = (double)window->wall_ns / 1e9;

	perf_metric("cpu_ns", "ns", (double)window->cpu_ns / (double)pairs);
	perf_metric("wall_ns", "ns", (double)window->wall_ns / (double)pairs);
	perf_metric_calls("call", times);
	perf_metric("pairs_per_s", "1/s", (double)pairs / wall_s);
	perf_metric("ran", "count", (double)atomic_load(&due));
	perf_metric("wakeups", "1/s", (double)window->sleeps / wall_s);
}

static void
run(void)
{
	static struct perf_histogram times;
	struct perf_control control = {.cpu_ns = 0};
	uint64_t probe_number = load.probe ? probe_count() : 0;
	struct loads_timeout *probes =
	    calloc(probe_number + 1, sizeof(*probes));
	uint64_t begun_ns = perf_now_ns();
	uint64_t refused = 0, pairs;
	struct window window;

	perf_must(probes, "calloc");
	if (!SUBJECT_SINGLE)
		shared = subject_create(load.tick_ns,
		    load.producers * load.outstanding + probe_number);
	start_callers();
	if (load.probe)
		perf_control_start(&control);
	window = measure(probes, probe_number);
	if (load.probe)
		perf_control_stop(&control);
	window.cpu_ns -= control.cpu_ns;
	pairs = join_callers(&times, &refused);
	if (!SUBJECT_SINGLE)
		subject_destroy(shared);
	judge_outcomes(refused, perf_now_ns() - begun_ns);
	tell(&window, pairs, &times);
	if (load.probe) {
		tell_probes(probes, probe_number, control.lag.max_ns);
		perf_metric("rss_growth_ratio", "ratio", window.rss_growth);
	}
	free(probes);
}

static void
read_load(void)
{
	load.producers = perf_option("producers", 1);
	load.outstanding = perf_option("outstanding", 1024);
	load.tick_ns = HWT_MS(perf_option("tick_ms", 100));
	load.pairs = perf_option("pairs", 0);
	load.seconds = perf_fraction("seconds", 1);
	load.pace = perf_option("pace", 0);
	load.mix = perf_option("mix", 0);
	load.random = perf_option("random", 0);
	load.handoff = perf_option("handoff", 0);
	load.probe = perf_option("probe", 0);
	load.aged = perf_option("aged", 0);
	perf_options_end();
	perf_must(load.producers && load.producers <= PRODUCERS_MAX &&
		load.outstanding && load.outstanding < UINT32_MAX &&
		load.tick_ns && load.seconds > 0 &&
		!(load.aged && load.handoff),
	    "reading the options");
	perf_must(!load.probe || (probe_count() && !load.pairs),
	    "finding time for a probe");
}

int
main(int argc, char **argv)
{
	load.seed = perf_begin(argc, argv, subject_version());
	read_load();
	if (load.handoff || load.probe)
		loads_need_threads();
	clock_cost_ns = perf_clock_cost_ns();
	run();
	return 0;
}
