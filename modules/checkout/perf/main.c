/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does it cost to take a set of objects, hold it, and release it, and how
 * long does it take until a thread has it? One round of one case, for one
 * design: see perf/perf.h.
 *
 *   checkout/DESIGN [set=2] [objects=256] [zipf=0] [hold_ns=0] [threads=2]
 *       [seconds=1] [seed=1]
 *   checkout/DESIGN any=1 [objects=256] [threads=2] [sleep_ns=0] [tail_ns=0]
 *   checkout/DESIGN store=10000000
 *
 * Objects are drawn by Zipf's law: number k with a weight of 1 / k^zipf. A
 * thread holds its set for hold_ns without giving up its processor; cpu_ns is
 * what a set costs beyond that. With any=1 it takes any one of all objects, as
 * from a pool of connections, and sleeps with it for sleep_ns, or, once in a
 * hundred times, for tail_ns. With store=N, N objects are named by keys, and
 * the store is destroyed.
 *
 * DESIGN has figures of HikariCP for any=1 objects=8 threads=16.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "modules/checkout/perf/design.h"
#include "perf/perf.h"

enum {
	THREADS_MAX = 1024,
	DRAWS = 1 << 12 /* sets that a thread draws beforehand */
};

static struct {
	unsigned set, objects, threads, any;
	uint64_t hold_ns, sleep_ns, tail_ns, seconds, store;
	double zipf;
} options;

static struct worker {
	pthread_t thread;
	unsigned number;
	unsigned draw[DRAWS][SET_MAX];
	uint64_t turns, cpu_ns, random;
	struct perf_histogram waits;
} workers[THREADS_MAX];

static double weight[OBJECTS_MAX];
static atomic_bool over;
/* Written by its holder alone. */
static unsigned holder[OBJECTS_MAX];

static void
make_weights(void)
{
	double sum = 0;
	unsigned i;

	for (i = 0; i < options.objects; i++) {
		sum += 1 / pow(i + 1, options.zipf);
		weight[i] = sum;
	}
}

static unsigned
draw_object(uint64_t *random)
{
	double at = perf_random_fraction(random) * weight[options.objects - 1];
	unsigned object = 0;

	while (object < options.objects - 1 && weight[object] < at)
		object++;
	return object;
}

/* In ascending order, no object twice. */
static void
draw_set(unsigned *set, uint64_t *random)
{
	unsigned count = 0, object, i;

	while (count < options.set) {
		object = draw_object(random);
		for (i = 0; i < count && set[i] < object; i++)
			;
		if (i < count && set[i] == object)
			continue;
		memmove(&set[i + 1], &set[i], (count - i) * sizeof(*set));
		set[i] = object;
		count++;
	}
}

static void
hold(const unsigned *set, unsigned count, struct worker *worker)
{
	uint64_t begun_ns = options.hold_ns > 0 ? perf_now_ns() : 0;
	uint64_t sleep_ns = options.sleep_ns;
	unsigned i;

	for (i = 0; i < count; i++) {
		perf_must(holder[set[i]] == 0, "an object with one holder");
		holder[set[i]] = worker->number + 1;
	}
	while (
	    options.hold_ns > 0 && perf_now_ns() < begun_ns + options.hold_ns)
		;
	if (options.tail_ns > 0 && perf_random(&worker->random) % 100 == 0)
		sleep_ns = options.tail_ns;
	if (sleep_ns > 0)
		perf_sleep_until_ns(perf_now_ns() + sleep_ns);
	for (i = 0; i < count; i++)
		holder[set[i]] = 0;
}

static void *
worker_thread(void *arg)
{
	struct worker *worker = arg;
	uint64_t begun_ns, granted_ns;
	unsigned any;
	const unsigned *set = &any;

	/* Threads that sleep are many, and not pinned. */
	if (!options.any)
		perf_pin(worker->number, options.threads);
	while (!atomic_load_explicit(&over, memory_order_relaxed)) {
		if (!options.any)
			set = worker->draw[worker->turns % DRAWS];
		begun_ns = perf_now_ns();
		if (options.any)
			any = design.acquire_any();
		else
			design.acquire(set, options.set);
		granted_ns = perf_now_ns();
		hold(set, options.any ? 1 : options.set, worker);
		if (options.any)
			design.release_any(any);
		else
			design.release(set, options.set);
		perf_histogram_add(&worker->waits, granted_ns - begun_ns);
		worker->turns++;
	}
	worker->cpu_ns = perf_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

static void
print_waits(uint64_t wall_ns)
{
	static struct perf_histogram waits;
	uint64_t turns = 0, cpu_ns = 0;
	unsigned i;

	for (i = 0; i < options.threads; i++) {
		turns += workers[i].turns;
		cpu_ns += workers[i].cpu_ns;
		perf_histogram_merge(&waits, &workers[i].waits);
	}
	perf_metric("cpu_ns", "ns",
	    (double)cpu_ns / (double)turns - (double)options.hold_ns);
	perf_metric("ops_per_s", "/s", (double)turns * 1e9 / (double)wall_ns);
	perf_metric("wait_p50_ns", "ns", perf_histogram_ns(&waits, 0.5));
	perf_metric("wait_p99_ns", "ns", perf_histogram_ns(&waits, 0.99));
	perf_metric("wait_max_ns", "ns", perf_histogram_ns(&waits, 1));
}

static void
measure_store(void)
{
	uint64_t filled_ns;

	design.fill_store(options.store);
	filled_ns = perf_now_ns();
	design.destroy_store();
	perf_metric(
	    "destroy_ms", "ms", (double)(perf_now_ns() - filled_ns) / 1e6);
}

static void
measure_waits(uint64_t seed)
{
	uint64_t begun_ns;
	unsigned i, k;

	make_weights();
	for (i = 0; i < options.threads; i++) {
		workers[i].number = i;
		workers[i].random = seed + i;
		for (k = 0; !options.any && k < DRAWS; k++)
			draw_set(workers[i].draw[k], &seed);
	}
	begun_ns = perf_now_ns();
	for (i = 0; i < options.threads; i++)
		perf_start(&workers[i].thread, worker_thread, &workers[i]);
	perf_sleep_until_ns(begun_ns + options.seconds * 1000000000u);
	atomic_store(&over, true);
	for (i = 0; i < options.threads; i++)
		(void)pthread_join(workers[i].thread, NULL);
	print_waits(perf_now_ns() - begun_ns);
}

int
main(int argc, char **argv)
{
	uint64_t seed = perf_begin(argc, argv, design.what);

	options.set = (unsigned)perf_option("set", 2);
	options.objects = (unsigned)perf_option("objects", 256);
	options.zipf = perf_fraction("zipf", 0);
	options.hold_ns = perf_option("hold_ns", 0);
	options.threads = (unsigned)perf_option("threads", 2);
	options.seconds = perf_option("seconds", 1);
	options.any = (unsigned)perf_option("any", 0);
	options.sleep_ns = perf_option("sleep_ns", 0);
	options.tail_ns = perf_option("tail_ns", 0);
	options.store = perf_option("store", 0);
	perf_options_end();
	perf_must(options.set >= 1 && options.set <= SET_MAX &&
		options.objects >= options.set &&
		options.objects <= OBJECTS_MAX && options.threads >= 1 &&
		options.threads <= THREADS_MAX,
	    "options in range");
	if (options.store     ? !design.fill_store
		: options.any ? !design.acquire_any
			      : !design.acquire)
		perf_skip("%s: it has no such request", design.what);
	if (design.create != NULL)
		design.create(options.objects);
	if (options.store)
		measure_store();
	else
		measure_waits(seed);
	if (design.destroy != NULL)
		design.destroy();
	return 0;
}
