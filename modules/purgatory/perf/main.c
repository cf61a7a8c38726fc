/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does an operation cost that waits under keys for an event or for its
 * deadline? One round of one case, for one design: see perf/perf.h.
 *
 * load=closed: each thread has so many outstanding. It completes the oldest by
 * its keys, which are drawn at random, and watches another one.
 * load=inflight: the same for a table of requests in flight: each request has a
 * key of its own, and is finished by it.
 * load=hot: waiters under one key; each event concerns one of them. With
 * value=1 they wait for values, otherwise each event asks all predicates.
 *
 *   purgatory/DESIGN load=closed [keys=3] [space=100000] [outstanding=1024]
 *       [threads=1] [seconds=1] [seed=1]
 *   purgatory/DESIGN load=inflight [outstanding=1024] [seconds=1]
 *   purgatory/DESIGN load=hot [waiters=10000] [value=0] [seconds=1]
 */
#define _GNU_SOURCE
#include "modules/purgatory/perf/design.h"

enum {
	FLAGS = 1 << 20,
	THREADS_MAX = 8,
	ASKED = 256 /* one in so many asks for the time */
};

enum flag {
	WAITS,
	HOLDS,
	ENDED
};

static struct {
	unsigned keys, outstanding, threads, waiters;
	uint64_t space, seconds, seed;
	bool value;
} options;

/* By request number; threads share none. */
static atomic_uchar flags[THREADS_MAX][FLAGS];
static uint64_t until_ns;
static uint64_t delay_ns = HWT_SEC(1);

static atomic_uchar *
flag_of(uint64_t number)
{
	return &flags[number / FLAGS][number % FLAGS];
}

bool
request_holds(const struct request *request)
{
	return atomic_load_explicit(
		   flag_of(request->number), memory_order_acquire) == HOLDS;
}

void
request_ended(const struct request *request)
{
	atomic_store_explicit(
	    flag_of(request->number), ENDED, memory_order_relaxed);
}

/* An event that may free the request: what it is about was copied. */
struct event {
	uint64_t number;
	uint32_t key[KEYS_MAX];
};

struct worker {
	_Alignas(128) pthread_t thread;
	unsigned number;
	uint64_t random, operations;
	struct event *ring;
};

static void
event_happens(const struct event *event)
{
	unsigned i;

	atomic_store_explicit(
	    flag_of(event->number), HOLDS, memory_order_release);
	for (i = 0; i < options.keys; i++)
		design.check(event->key[i]);
}

/* Watches one; the event is that which ends it. */
static void
watch_one(struct worker *worker, struct event *event, bool is_alone)
{
	struct request *request = malloc(sizeof(*request));
	unsigned i;

	perf_must(request != NULL, "malloc");
	event->number =
	    worker->number * (uint64_t)FLAGS + worker->operations++ % FLAGS;
	for (i = 0; i < options.keys; i++)
		event->key[i] = is_alone
		    ? (worker->number << 28) + (uint32_t)worker->operations
		    : (uint32_t)perf_random_below(
			  &worker->random, options.space);
	request->number = event->number;
	request->due_ns = perf_now_ns() + delay_ns;
	request->key_count = options.keys;
	memcpy(request->key, event->key, sizeof(request->key));
	atomic_store_explicit(
	    flag_of(request->number), WAITS, memory_order_relaxed);
	design.watch(request, delay_ns);
}

static void
run_loop(struct worker *worker, bool is_alone)
{
	uint64_t done = 0;
	struct event *event;
	bool more = true;

	while (more || done < worker->operations) {
		if (!more || worker->operations >= options.outstanding) {
			event = &worker->ring[done++ % options.outstanding];
			if (is_alone)
				design.finish(event->key[0]);
			else
				event_happens(event);
		}
		if (!more)
			continue;
		watch_one(worker,
		    &worker->ring[worker->operations % options.outstanding],
		    is_alone);
		more =
		    worker->operations % ASKED != 0 || perf_now_ns() < until_ns;
	}
}

static void *
closed_thread(void *worker)
{
	perf_pin(((struct worker *)worker)->number, options.threads);
	run_loop(worker, false);
	return NULL;
}

static void *
inflight_thread(void *worker)
{
	perf_pin(((struct worker *)worker)->number, options.threads);
	run_loop(worker, true);
	return NULL;
}

static void
tell(uint64_t operations, uint64_t cpu_ns, uint64_t wall_ns)
{
	perf_metric("cpu_ns", "ns", (double)cpu_ns / (double)operations);
	perf_metric(
	    "ops_per_s", "1/s", (double)operations * 1e9 / (double)wall_ns);
}

static void
run_threads(void *(*body)(void *))
{
	static struct worker worker[THREADS_MAX];
	uint64_t cpu_ns = perf_cpu_ns(), begun_ns = perf_now_ns();
	uint64_t operations = 0, lost = 0, k;
	unsigned i;

	until_ns = begun_ns + options.seconds * 1000000000u;
	for (i = 0; i < options.threads; i++) {
		worker[i].number = i;
		worker[i].random = options.seed * 8 + i;
		worker[i].ring =
		    calloc(options.outstanding, sizeof(*worker[i].ring));
		perf_must(worker[i].ring != NULL, "calloc");
		perf_start(&worker[i].thread, body, &worker[i]);
	}
	for (i = 0; i < options.threads; i++) {
		pthread_join(worker[i].thread, NULL);
		operations += worker[i].operations;
	}
	tell(operations, perf_cpu_ns() - cpu_ns, perf_now_ns() - begun_ns);
	for (i = 0; i < options.threads; i++) {
		for (k = 0; k < worker[i].operations && k < FLAGS; k++)
			lost += flags[i][k] != ENDED;
		free(worker[i].ring);
	}
	perf_metric("lost", "count", (double)lost);
}

static void
run_hot(void)
{
	static struct worker worker;
	struct event event = {.key = {0}}, unused;
	uint64_t cpu_ns, begun_ns, turn, i;

	if (options.value && design.watch_value == NULL)
		perf_skip("this design has no values");
	delay_ns = HWT_SEC(100);
	options.keys = 1;
	options.space = 1;
	for (i = 0; i < options.waiters; i++) {
		if (options.value)
			design.watch_value(0, i + 1);
		else
			watch_one(&worker, &unused, false);
	}
	cpu_ns = perf_cpu_ns();
	begun_ns = perf_now_ns();
	until_ns = begun_ns + options.seconds * 1000000000u;
	/* One of the waiters completes, and another one comes. */
	for (turn = 0; perf_now_ns() < until_ns; turn++) {
		if (options.value) {
			design.raise(0, turn + 1);
			design.watch_value(0, options.waiters + turn + 1);
			continue;
		}
		event.number = turn % FLAGS;
		event_happens(&event);
		watch_one(&worker, &unused, false);
	}
	tell(turn, perf_cpu_ns() - cpu_ns, perf_now_ns() - begun_ns);
}

int
main(int argc, char **argv)
{
	const char *load;

	options.seed = perf_begin(argc, argv, design.what);
	load = perf_text("load", "closed");
	options.keys = (unsigned)perf_option("keys", 3);
	options.space = perf_option("space", 100000);
	options.outstanding = (unsigned)perf_option("outstanding", 1024);
	options.threads = (unsigned)perf_option("threads", 1);
	options.seconds = perf_option("seconds", 1);
	options.waiters = (unsigned)perf_option("waiters", 10000);
	options.value = perf_option("value", 0) != 0;
	perf_options_end();
	perf_must(options.outstanding >= 1, "outstanding");
	perf_must(options.keys >= 1 && options.keys <= KEYS_MAX, "keys");
	perf_must(
	    options.threads >= 1 && options.threads <= THREADS_MAX, "threads");
	if (strcmp(load, "inflight") != 0 && design.check == NULL)
		perf_skip("this design cannot wait for an event");
	if (strcmp(load, "inflight") == 0 && design.finish == NULL)
		perf_skip("this design is no table");
	design.create();
	if (strcmp(load, "hot") == 0) {
		run_hot();
	} else if (strcmp(load, "inflight") == 0) {
		options.keys = 1;
		run_threads(inflight_thread);
	} else {
		perf_must(strcmp(load, "closed") == 0, "load");
		run_threads(closed_thread);
	}
	design.destroy();
	return 0;
}
