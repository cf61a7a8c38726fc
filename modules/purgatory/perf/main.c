/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does an operation cost that waits under keys for an event or for its
 * deadline? One round of one case, for one design: see perf/perf.h.
 *
 * load=closed: each thread has so many outstanding. It completes the oldest by
 * its keys, and watches another one. How many a second is what the design can
 * do.
 *
 * load=open: Kafka's benchmark of its purgatory, with keys drawn for each
 * request. Requests come at a rate, whatever happens, and become true after a
 * log-normal latency with the quartiles p50 and p75; a second thread then
 * checks their keys. Those that take longer than timeout_ms expire. (Kafka's
 * is TestPurgatoryPerformance: its key-space-size is space, keys keys, rate
 * rate, num rate * seconds, timeout timeout_ms, pct50 and pct75 p50 and p75,
 * size size. Its requests come at random intervals with that mean, ours each
 * millisecond, as many as are due.) With the design floor: an empty run.
 *
 * load=inflight: a table of requests in flight: each request has a key of its
 * own, and is finished by it.
 *
 * load=hot: waiters under one key; each event concerns one of them. With
 * value=1 they wait for values, otherwise each event asks all predicates.
 *
 * load=memory: waiters wait for values of so many keys, and all end, within 100
 * seconds. RSS is told for each, at first, with a thousand waiters behind it,
 * and after a second of quiet.
 *
 *   purgatory/DESIGN load=closed [keys=3] [space=100000] [outstanding=1024]
 *       [threads=1] [seconds=1] [seed=1]
 *   purgatory/DESIGN load=open [rate=20000] [p50=20] [p75=60]
 *       [timeout_ms=200] [keys=3] [space=100] [size=0] [seconds=2] [seed=1]
 *   purgatory/DESIGN load=inflight [outstanding=1024] [seconds=1] [seed=1]
 *   purgatory/DESIGN load=hot [waiters=10000] [value=0] [seconds=1]
 *   purgatory/DESIGN load=memory [waiters=10000] [space=100000]
 */
#define _GNU_SOURCE
#include <math.h>

#include "modules/purgatory/perf/design.h"
#include "perf/perf.h"

enum {
	FLAGS = 1 << 21,
	LATENCIES = 1 << 16,
	LATENCY_MAX_MS = 2000,
	CALENDAR_MS = 4096,
	THREADS_MAX = 8
};

static struct {
	unsigned keys, outstanding, threads, waiters;
	uint64_t size; /* bytes that each request has beside its keys */
	uint64_t space, rate, timeout_ns, seconds, seed;
	double p50, p75;
	bool value;
} options;

/* By request number: it holds now. Threads share no numbers, and in the closed
 * loads no counter, which would cost more than what is measured. */
static atomic_uchar flags[THREADS_MAX][FLAGS];
static _Thread_local struct {
	unsigned thread;
	uint64_t count;
} numbers;
static bool are_counted;
static atomic_uint_fast64_t ends, expiries, early;
/* Lateness is added by the design's one thread that expires. */
static struct perf_histogram late;

static atomic_uchar *
flag_of(uint64_t number)
{
	return &flags[number / FLAGS][number % FLAGS];
}

bool
request_holds(const struct request *request)
{
	return atomic_load_explicit(
		   flag_of(request->number), memory_order_acquire) != 0;
}

void
request_ended(const struct request *request, bool expired)
{
	uint64_t now_ns;

	if (are_counted)
		atomic_fetch_add_explicit(&ends, 1, memory_order_relaxed);
	if (!expired)
		return;
	now_ns = perf_now_ns();
	atomic_fetch_add_explicit(&expiries, 1, memory_order_relaxed);
	if (now_ns < request->due_ns)
		atomic_fetch_add_explicit(&early, 1, memory_order_relaxed);
	else
		perf_histogram_add(&late, now_ns - request->due_ns);
}

uint32_t
request_hash(uint32_t key)
{
	uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);

	return (uint32_t)(hash >> 32);
}

static struct request *
request_make(unsigned keys, uint64_t delay_ns)
{
	struct request *request = malloc(
	    sizeof(*request) + keys * sizeof(request->key[0]) + options.size);

	perf_must(request != NULL, "malloc");
	memset(&request->key[keys], 0, options.size);
	request->number =
	    numbers.thread * (uint64_t)FLAGS + numbers.count++ % FLAGS;
	request->key_count = keys;
	request->due_ns = perf_now_ns() + delay_ns;
	atomic_store_explicit(
	    flag_of(request->number), 0, memory_order_relaxed);
	return request;
}

/* An event that may free the request: what it is about was copied. */
struct event {
	uint64_t number;
	uint32_t key[KEYS_MAX];
};

static void
event_happens(const struct event *event, unsigned keys)
{
	unsigned i;

	atomic_store_explicit(flag_of(event->number), 1, memory_order_release);
	for (i = 0; i < keys; i++)
		design.check(event->key[i]);
}

static void
draw_keys(struct request *request, struct event *event, uint64_t *random)
{
	unsigned i;

	for (i = 0; i < request->key_count; i++)
		request->key[i] = event->key[i] =
		    (uint32_t)perf_random_below(random, options.space);
	event->number = request->number;
}

/* Closed. */

struct worker {
	_Alignas(128) pthread_t thread;
	unsigned number;
	uint64_t seed, operations;
	struct perf_histogram calls;
};

static uint64_t until_ns;

/* One in so many is timed; false: the time is over. */
static bool
watch_one(struct worker *worker, struct request *request)
{
	uint64_t before_ns;

	if (worker->operations++ % PERF_SAMPLED != 0) {
		(void)design.watch(request, options.timeout_ns);
		return true;
	}
	before_ns = perf_now_ns();
	(void)design.watch(request, options.timeout_ns);
	perf_histogram_add(&worker->calls, perf_now_ns() - before_ns);
	return before_ns < until_ns;
}

/* All that it has watched have completed when it ends. */
static void *
closed_thread(void *arg)
{
	struct worker *worker = arg;
	struct event *ring = calloc(options.outstanding, sizeof(*ring)), *event;
	uint64_t random = worker->seed, done = 0;
	struct request *request;
	bool more = true;

	perf_pin(worker->number, options.threads);
	numbers.thread = worker->number;
	perf_must(ring != NULL, "calloc");
	while (more || done < worker->operations) {
		event = &ring[worker->operations % options.outstanding];
		if (!more || worker->operations >= options.outstanding)
			event_happens(
			    &ring[done++ % options.outstanding], options.keys);
		if (!more)
			continue;
		request = request_make(options.keys, options.timeout_ns);
		draw_keys(request, event, &random);
		more = watch_one(worker, request);
	}
	free(ring);
	return NULL;
}

static void *
inflight_thread(void *arg)
{
	struct worker *worker = arg;
	const uint32_t base = (uint32_t)worker->seed << 28;
	uint32_t done = 0;
	struct request *request;
	bool more = true;

	perf_pin(worker->number, options.threads);
	numbers.thread = worker->number;
	while (more || done < worker->operations) {
		if (!more || worker->operations >= options.outstanding)
			design.finish(base + done++);
		if (!more)
			continue;
		request = request_make(1, options.timeout_ns);
		request->key[0] = base + (uint32_t)worker->operations;
		more = watch_one(worker, request);
	}
	return NULL;
}

static uint64_t
run_workers(void *(*body)(void *), struct worker *worker)
{
	uint64_t operations = 0;
	unsigned i;

	until_ns = perf_now_ns() + options.seconds * 1000000000u;
	for (i = 0; i < options.threads; i++) {
		worker[i].number = i;
		worker[i].seed = options.seed * 8 + i;
		perf_start(&worker[i].thread, body, &worker[i]);
	}
	for (i = 0; i < options.threads; i++) {
		pthread_join(worker[i].thread, NULL);
		operations += worker[i].operations;
		if (i > 0)
			perf_histogram_merge(
			    &worker[0].calls, &worker[i].calls);
	}
	return operations;
}

/* What has ended and is still in lists, when all have ended. */
static void
tell_retained(void)
{
	perf_metric("retained", "count", (double)design.linked());
}

static void
tell(uint64_t operations, uint64_t cpu_ns, uint64_t wall_ns,
    const struct perf_histogram *calls)
{
	perf_metric("cpu_ns", "ns", (double)cpu_ns / (double)operations);
	perf_metric(
	    "ops_per_s", "1/s", (double)operations * 1e9 / (double)wall_ns);
	if (calls != NULL)
		perf_metric_calls("watch", calls);
	perf_metric("early", "count", (double)early);
	perf_metric("rss_mb", "MB", (double)perf_rss_bytes() / 1e6);
}

static void
run_closed(void *(*body)(void *))
{
	static struct worker worker[THREADS_MAX];
	uint64_t cpu_ns, begun_ns, operations;

	design.create();
	cpu_ns = perf_cpu_ns();
	begun_ns = perf_now_ns();
	operations = run_workers(body, worker);
	tell(operations, perf_cpu_ns() - cpu_ns, perf_now_ns() - begun_ns,
	    &worker[0].calls);
	tell_retained();
	design.destroy();
}

/* Open. */

struct planned {
	struct planned *next;
	struct event event;
};

static struct {
	pthread_mutex_t lock;
	struct planned *first[CALENDAR_MS];
} calendar = {.lock = PTHREAD_MUTEX_INITIALIZER};
static uint64_t origin_ns;
static atomic_bool over;

static void *
events_thread(void *unused)
{
	struct planned *planned, *next;
	uint64_t ms = 0;

	(void)unused;
	while (!atomic_load(&over)) {
		perf_sleep_until_ns(origin_ns + ++ms * 1000000);
		pthread_mutex_lock(&calendar.lock);
		planned = calendar.first[ms % CALENDAR_MS];
		calendar.first[ms % CALENDAR_MS] = NULL;
		pthread_mutex_unlock(&calendar.lock);
		for (; planned != NULL; planned = next) {
			next = planned->next;
			event_happens(&planned->event, options.keys);
			free(planned);
		}
	}
	return NULL;
}

static uint16_t latency_ms[LATENCIES];

/* Box and Muller's; the third quartile of the normal distribution is 0.6745. */
static void
draw_latencies(uint64_t *random)
{
	double sigma = log(options.p75 / options.p50) / 0.6745;
	double u, v, ms;
	unsigned i;

	for (i = 0; i < LATENCIES; i++) {
		u = 1 - perf_random_fraction(random);
		v = perf_random_fraction(random);
		ms = options.p50 *
		    exp(sigma * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
		latency_ms[i] = ms < 1    ? 1
		    : ms > LATENCY_MAX_MS ? LATENCY_MAX_MS
					  : (uint16_t)ms;
	}
}

static void
plan(struct planned *planned, uint64_t number)
{
	uint64_t ms = (perf_now_ns() - origin_ns) / 1000000 + 1 +
	    latency_ms[number % LATENCIES];

	pthread_mutex_lock(&calendar.lock);
	planned->next = calendar.first[ms % CALENDAR_MS];
	calendar.first[ms % CALENDAR_MS] = planned;
	pthread_mutex_unlock(&calendar.lock);
}

static void
open_request(uint64_t *random, struct perf_histogram *calls)
{
	struct request *request =
	    request_make(options.keys, options.timeout_ns);
	struct planned *planned = malloc(sizeof(*planned));
	uint64_t before_ns;

	perf_must(planned != NULL, "malloc");
	draw_keys(request, &planned->event, random);
	plan(planned, planned->event.number);
	before_ns = perf_now_ns();
	(void)design.watch(request, options.timeout_ns);
	perf_histogram_add(calls, perf_now_ns() - before_ns);
}

static void
run_open(void)
{
	static struct perf_histogram calls;
	uint64_t random = options.seed, cpu_ns, wall_ns;
	uint64_t ms = 0, made = 0, wanted;
	pthread_t events;

	are_counted = true;
	draw_latencies(&random);
	design.create();
	cpu_ns = perf_cpu_ns();
	origin_ns = perf_now_ns();
	perf_start(&events, events_thread, NULL);
	for (ms = 1; ms <= options.seconds * 1000; ms++) {
		perf_sleep_until_ns(origin_ns + ms * 1000000);
		for (wanted = ms * options.rate / 1000; made < wanted; made++)
			open_request(&random, &calls);
	}
	wall_ns = perf_now_ns() - origin_ns;
	cpu_ns = perf_cpu_ns() - cpu_ns;
	tell(made, cpu_ns, wall_ns, &calls);
	/* All have ended by then. */
	perf_sleep_until_ns(perf_now_ns() + options.timeout_ns + HWT_MS(200));
	atomic_store(&over, true);
	pthread_join(events, NULL);
	tell_retained();
	perf_metric("lost", "count", (double)(made - ends));
	perf_metric("expired", "count", (double)expiries);
	perf_metric_lateness("late", &late);
	design.destroy();
}

/* Hot. */

static void
run_hot(void)
{
	struct event event = {0};
	uint64_t cpu_ns, begun_ns, turns = 0, i;
	struct request *request;

	if (options.value && design.watch_value == NULL)
		perf_skip("this design has no values");
	design.create();
	for (i = 0; i < options.waiters; i++) {
		if (options.value) {
			design.watch_value(0, i + 1);
		} else {
			request = request_make(1, HWT_SEC(100));
			request->key[0] = 0;
			(void)design.watch(request, HWT_SEC(100));
		}
	}
	cpu_ns = perf_cpu_ns();
	begun_ns = perf_now_ns();
	until_ns = begun_ns + options.seconds * 1000000000u;
	/* One of the waiters completes, and another one comes. */
	for (turns = 0; perf_now_ns() < until_ns; turns++) {
		if (options.value) {
			design.raise(0, turns + 1);
			design.watch_value(0, options.waiters + turns + 1);
			continue;
		}
		event.number = turns % FLAGS;
		event_happens(&event, 1);
		request = request_make(1, HWT_SEC(100));
		request->key[0] = 0;
		(void)design.watch(request, HWT_SEC(100));
	}
	tell(turns, perf_cpu_ns() - cpu_ns, perf_now_ns() - begun_ns, NULL);
	design.destroy();
}

/* Memory. */

static void
wait_for_values(uint64_t count)
{
	uint64_t i;

	for (i = 0; i < count; i++)
		design.watch_value((uint32_t)(i % options.space), 1);
}

static void
reach_values(uint64_t count)
{
	uint64_t i;

	for (i = 0; i < count && i < options.space; i++)
		design.raise((uint32_t)i, 1);
}

static void
run_memory(void)
{
	uint64_t before, most, cpu_ns, begun_ns;

	if (design.watch_value == NULL)
		perf_skip("this design has no values");
	design.create();
	wait_for_values(1000);
	reach_values(1000);
	before = perf_rss_exact_bytes();
	cpu_ns = perf_cpu_ns();
	begun_ns = perf_now_ns();
	wait_for_values(options.waiters);
	most = perf_rss_exact_bytes();
	reach_values(options.waiters);
	tell(options.waiters, perf_cpu_ns() - cpu_ns, perf_now_ns() - begun_ns,
	    NULL);
	perf_must(design.linked() == 0, "an end of all");
	perf_sleep_until_ns(perf_now_ns() + HWT_SEC(1));
	perf_metric("bytes", "count",
	    (double)(most - before) / (double)options.waiters);
	perf_metric("rss_before_mb", "MB", (double)before / 1e6);
	perf_metric("rss_most_mb", "MB", (double)most / 1e6);
	perf_metric("rss_after_mb", "MB", (double)perf_rss_exact_bytes() / 1e6);
	design.destroy();
}

static void
read_options(void)
{
	options.keys = (unsigned)perf_option("keys", 3);
	options.space = perf_option("space", 100000);
	options.outstanding = (unsigned)perf_option("outstanding", 1024);
	options.threads = (unsigned)perf_option("threads", 1);
	options.seconds = perf_option("seconds", 1);
	options.size = perf_option("size", 0);
	options.rate = perf_option("rate", 20000);
	options.p50 = perf_fraction("p50", 20);
	options.p75 = perf_fraction("p75", 60);
	options.timeout_ns = HWT_MS(perf_option("timeout_ms", 200));
	options.waiters = (unsigned)perf_option("waiters", 10000);
	options.value = perf_option("value", 0) != 0;
	perf_options_end();
	perf_must(options.outstanding >= 1, "outstanding");
	perf_must(options.keys >= 1 && options.keys <= KEYS_MAX, "keys");
	perf_must(
	    options.threads >= 1 && options.threads <= THREADS_MAX, "threads");
}

int
main(int argc, char **argv)
{
	const char *load;

	options.seed = perf_begin(argc, argv, design.what);
	load = perf_text("load", "closed");
	read_options();
	if (design.check == NULL && strcmp(load, "inflight") != 0)
		perf_skip("this design cannot wait for an event");
	if (strcmp(load, "open") == 0) {
		run_open();
	} else if (strcmp(load, "hot") == 0) {
		run_hot();
	} else if (strcmp(load, "memory") == 0) {
		run_memory();
	} else if (strcmp(load, "inflight") == 0) {
		if (design.finish == NULL)
			perf_skip("this design has no such table");
		run_closed(inflight_thread);
	} else {
		run_closed(closed_thread);
	}
	return 0;
}
