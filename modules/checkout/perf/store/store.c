/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does a request of a store with many objects cost and wait for, while
 * others are loaded and unloaded and a pause comes each second? And how often
 * does the order of unloading keep what is wanted?
 *
 *   checkout-store DESIGN [objects=10000000] [threads=16] [zipf=0.99]
 *       [cold=0.1] [load_us=100] [seconds=10] [pause_ms=1000] [shards=4096]
 *       [seed=1]
 *
 * DESIGN is hwt; mutex: a table with a list by last use, where one mutex is
 * held for all but the load, and those that wait for an object or a load wait
 * for one condition; or order, which has no threads and tells the part of hits
 * of a tenth of the objects beside the least recently used, and beside the best
 * that can be kept without change.
 *
 * All objects are loaded first: that many are the limit. Then each thread
 * acquires one, by Zipf's law, and releases it; the part cold of the requests
 * names one that was never there, whose load sleeps for load_us, so that
 * another one is unloaded. wait is from the call to the grant.
 *
 * The user of the mutex might call it unfair that its list is one: but so is
 * its mutex. It has no deadline and no cancel; hwt's requests have a limit of
 * 600 s, as a user's would.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "modules/checkout/hwt_checkout.h"
#include "perf/perf.h"

enum {
	THREADS_MAX = 64,
	WAIT_LIMIT_S = 600,
	DRAWS = 1 << 22
};

static struct {
	uint64_t objects, threads, load_us, seconds, pause_ms, shards, seed;
	double zipf, cold;
} options;

static uint32_t draws[DRAWS];
static atomic_bool over;
static _Atomic uint64_t next_cold;

/* A design. acquire returns when the key is granted. */
struct design {
	const char *name;
	void (*create)(uint64_t limit);
	void *(*thread_begin)(void);
	void (*acquire)(void *thread, const uint64_t *key);
	void (*release)(void *thread, const uint64_t *key);
	void (*pause)(void);
	void (*resume)(void);
	uint64_t (*loads)(void);
	void (*destroy)(void);
};

static bool filling;

static void
load_value(void)
{
	if (!filling && options.load_us > 0)
		perf_sleep_until_ns(perf_now_ns() + options.load_us * 1000);
}

/* The store. */

static struct hwt *timer;
static struct hwt_checkout *checkout;
static struct hwt_store *store;

struct hwt_thread {
	struct hwt_store_request request;
	struct hwt_store_item item;
	uint64_t key;
};

static int
hwt_load(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    struct hwt_loaded *loaded)
{
	(void)ctx;
	(void)job;
	(void)key;
	(void)size;
	(void)loaded;
	load_value();
	return 0;
}

static void
hwt_create_store(uint64_t limit)
{
	const struct hwt_checkout_options wide = {.shards = 1024};
	const struct hwt_store_options kept = {.load = hwt_load,
	    .limit = limit,
	    .shards = (uint32_t)options.shards};

	perf_must(hwt_create(&timer, NULL) == 0 &&
		hwt_checkout_create(&checkout, timer, &wide) == 0 &&
		hwt_store_create(&store, checkout, &kept) == 0,
	    "hwt_store_create");
}

static void *
hwt_thread_begin(void)
{
	struct hwt_thread *thread = calloc(1, sizeof(*thread));

	perf_must(thread != NULL, "memory");
	thread->item.key = &thread->key;
	thread->item.size = sizeof(thread->key);
	perf_must(hwt_store_request_init(store, &thread->request, &thread->item,
		      1, NULL, NULL) == 0,
	    "hwt_store_request_init");
	return thread;
}

static void
hwt_acquire(void *arg, const uint64_t *key)
{
	struct hwt_thread *thread = arg;

	thread->key = *key;
	perf_must(hwt_store_acquire_wait(
		      store, &thread->request, HWT_SEC(WAIT_LIMIT_S)) == 0,
	    "acquire");
}

static void
hwt_release(void *arg, const uint64_t *key)
{
	struct hwt_thread *thread = arg;

	(void)key;
	(void)hwt_store_release(store, &thread->request);
}

static void
hwt_pause(void)
{
	perf_must(hwt_checkout_pause(checkout, HWT_NEVER) == 0, "pause");
}

static void
hwt_resume(void)
{
	perf_must(hwt_checkout_resume(checkout) == 0, "resume");
}

static struct hwt_store_stats
hwt_stats_now(void)
{
	struct hwt_store_stats stats;

	perf_must(hwt_store_read_stats(store, &stats) == 0, "stats");
	return stats;
}

static uint64_t
hwt_loads(void)
{
	return hwt_stats_now().loads;
}

static void
hwt_destroy_store(void)
{
	perf_must(hwt_store_trim(store, 0) == 0 &&
		hwt_store_destroy(store) == 0 &&
		hwt_checkout_destroy(checkout) == 0 &&
		hwt_stop(timer, NULL) == 0 && hwt_destroy(timer) == 0,
	    "hwt_store_destroy");
}

/* All held by one mutex. */

struct node {
	struct node *chain, *newer, *older;
	uint64_t key;
	bool out, loading;
	unsigned wants;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct node **table, oldest_newest;
static uint64_t table_size, node_count, node_limit, node_loads, nodes_out;
static unsigned waiters;
static bool node_paused;

static uint64_t
slot_of(uint64_t key)
{
	return (key * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (table_size - 1);
}

static void
mutex_create(uint64_t limit)
{
	node_limit = limit;
	for (table_size = 16; table_size < limit; table_size *= 2)
		;
	table = calloc(table_size, sizeof(struct node *));
	perf_must(table != NULL, "memory");
	oldest_newest.newer = &oldest_newest;
	oldest_newest.older = &oldest_newest;
}

static void
list_out(struct node *node)
{
	node->newer->older = node->older;
	node->older->newer = node->newer;
}

static void
list_newest(struct node *node)
{
	node->newer = &oldest_newest;
	node->older = oldest_newest.older;
	node->older->newer = node;
	oldest_newest.older = node;
}

static void
node_end(struct node *node)
{
	struct node **at = &table[slot_of(node->key)];

	while (*at != node)
		at = &(*at)->chain;
	*at = node->chain;
	list_out(node);
	free(node);
	node_count--;
}

static struct node *
node_make(uint64_t key)
{
	struct node *node = calloc(1, sizeof(*node));
	struct node *old;

	perf_must(node != NULL, "memory");
	node->key = key;
	node->loading = true;
	node->chain = table[slot_of(key)];
	table[slot_of(key)] = node;
	list_newest(node);
	node_count++;
	node_loads++;
	for (old = oldest_newest.newer;
	     node_count > node_limit && old != &oldest_newest;) {
		struct node *next = old->newer;

		if (old->wants == 0 && !old->loading)
			node_end(old);
		old = next;
	}
	return node;
}

static void
mutex_wait(void)
{
	waiters++;
	(void)pthread_cond_wait(&changed, &mutex);
	waiters--;
}

static void
tell_changed(void)
{
	if (waiters > 0)
		(void)pthread_cond_broadcast(&changed);
}

static void *
mutex_thread_begin(void)
{
	return calloc(1, sizeof(struct node *));
}

static void
mutex_acquire(void *arg, const uint64_t *key)
{
	struct node *node;

	(void)pthread_mutex_lock(&mutex);
	node = table[slot_of(*key)];
	while (node != NULL && node->key != *key)
		node = node->chain;
	if (node == NULL) {
		node = node_make(*key);
		node->wants++;
		(void)pthread_mutex_unlock(&mutex);
		load_value();
		(void)pthread_mutex_lock(&mutex);
		node->loading = false;
		tell_changed();
	} else {
		node->wants++;
		list_out(node);
		list_newest(node);
	}
	while (node->out || node->loading || node_paused)
		mutex_wait();
	node->out = true;
	nodes_out++;
	*(struct node **)arg = node;
	(void)pthread_mutex_unlock(&mutex);
}

static void
mutex_release(void *arg, const uint64_t *key)
{
	struct node *node = *(struct node **)arg;

	(void)key;
	(void)pthread_mutex_lock(&mutex);
	node->out = false;
	nodes_out--;
	node->wants--;
	tell_changed();
	(void)pthread_mutex_unlock(&mutex);
}

static void
mutex_pause(void)
{
	(void)pthread_mutex_lock(&mutex);
	node_paused = true;
	while (nodes_out > 0)
		mutex_wait();
	(void)pthread_mutex_unlock(&mutex);
}

static void
mutex_resume(void)
{
	(void)pthread_mutex_lock(&mutex);
	node_paused = false;
	tell_changed();
	(void)pthread_mutex_unlock(&mutex);
}

static uint64_t
mutex_loads(void)
{
	return node_loads;
}

static void
mutex_destroy(void)
{
	while (oldest_newest.newer != &oldest_newest)
		node_end(oldest_newest.newer);
	free(table);
}

static const struct design designs[] = {
    {"hwt", hwt_create_store, hwt_thread_begin, hwt_acquire, hwt_release,
	hwt_pause, hwt_resume, hwt_loads, hwt_destroy_store},
    {"mutex", mutex_create, mutex_thread_begin, mutex_acquire, mutex_release,
	mutex_pause, mutex_resume, mutex_loads, mutex_destroy},
};
static const struct design *design;

/* The load. */

/* Which objects are wanted often has nothing to do with their age. */
static uint32_t
scattered(uint64_t rank, uint64_t count)
{
	return (uint32_t)((rank * UINT64_C(0x9e3779b1)) % count);
}

static void
draw_all(uint64_t count)
{
	double *sum = malloc(count * sizeof(double)), total = 0, at;
	uint64_t i, low, high, middle, random = options.seed;

	perf_must(sum != NULL, "memory");
	for (i = 0; i < count; i++) {
		total += 1 / pow((double)(i + 1), options.zipf);
		sum[i] = total;
	}
	for (i = 0; i < DRAWS; i++) {
		at = perf_random_fraction(&random) * total;
		for (low = 0, high = count - 1; low < high;) {
			middle = (low + high) / 2;
			if (sum[middle] < at)
				low = middle + 1;
			else
				high = middle;
		}
		draws[i] = scattered(low, count);
	}
	free(sum);
}

struct worker {
	pthread_t thread;
	unsigned number;
	uint64_t turns, cpu_ns;
	struct perf_histogram waits;
};
static struct worker workers[THREADS_MAX];

static void *
worker_thread(void *arg)
{
	struct worker *worker = arg;
	void *thread = design->thread_begin();
	uint64_t at = worker->number * (DRAWS / THREADS_MAX);
	uint64_t random = options.seed + worker->number + 1;
	uint64_t cold = (uint64_t)(options.cold * 0x1p32), key, begun_ns, now;

	while (!atomic_load_explicit(&over, memory_order_relaxed)) {
		key = draws[at++ % DRAWS];
		if (perf_random(&random) >> 32 < cold)
			key = atomic_fetch_add(&next_cold, 1);
		begun_ns = perf_now_ns();
		design->acquire(thread, &key);
		now = perf_now_ns();
		design->release(thread, &key);
		perf_histogram_add(&worker->waits, now - begun_ns);
		worker->turns++;
	}
	worker->cpu_ns = perf_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	free(thread);
	return NULL;
}

static void
pause_now_and_then(uint64_t end_ns, struct perf_histogram *pauses)
{
	uint64_t next_ns = perf_now_ns() + options.pause_ms * 1000000, begun_ns;

	while (options.pause_ms > 0 && next_ns < end_ns) {
		perf_sleep_until_ns(next_ns);
		begun_ns = perf_now_ns();
		design->pause();
		perf_histogram_add(pauses, perf_now_ns() - begun_ns);
		design->resume();
		next_ns += options.pause_ms * 1000000;
	}
	perf_sleep_until_ns(end_ns);
}

static void
tell(uint64_t wall_ns, uint64_t loads, const struct perf_histogram *pauses)
{
	static struct perf_histogram waits;
	uint64_t turns = 0, cpu_ns = 0;
	unsigned i;

	for (i = 0; i < options.threads; i++) {
		turns += workers[i].turns;
		cpu_ns += workers[i].cpu_ns;
		perf_histogram_merge(&waits, &workers[i].waits);
	}
	perf_metric(
	    "requests_per_s", "/s", (double)turns * 1e9 / (double)wall_ns);
	perf_metric("cpu_ns", "ns", (double)cpu_ns / (double)turns);
	perf_metric("missed", "%", 100 * (double)loads / (double)turns);
	perf_metric("wait_p50_ns", "ns", perf_histogram_ns(&waits, 0.5));
	perf_metric("wait_p99_ns", "ns", perf_histogram_ns(&waits, 0.99));
	perf_metric("wait_p9999_ns", "ns", perf_histogram_ns(&waits, 0.9999));
	perf_metric("wait_max_ns", "ns", perf_histogram_ns(&waits, 1));
	perf_metric("pause_max_ns", "ns", perf_histogram_ns(pauses, 1));
}

static void
fill(void)
{
	void *thread = design->thread_begin();
	uint64_t key, before = perf_rss_bytes();

	filling = true;
	for (key = 0; key < options.objects; key++) {
		design->acquire(thread, &key);
		design->release(thread, &key);
	}
	filling = false;
	free(thread);
	perf_metric("object_bytes", "B",
	    (double)(perf_rss_bytes() - before) / (double)options.objects);
}

static void
measure(void)
{
	static struct perf_histogram pauses;
	uint64_t begun_ns, cpu_ns, loads, before;
	unsigned i;

	draw_all(options.objects);
	before = perf_rss_bytes();
	next_cold = options.objects;
	design->create(options.objects);
	fill();
	loads = design->loads();
	begun_ns = perf_now_ns();
	for (i = 0; i < options.threads; i++) {
		workers[i].number = i;
		perf_start(&workers[i].thread, worker_thread, &workers[i]);
	}
	pause_now_and_then(begun_ns + options.seconds * 1000000000, &pauses);
	atomic_store(&over, true);
	for (i = 0; i < options.threads; i++)
		(void)pthread_join(workers[i].thread, NULL);
	tell(perf_now_ns() - begun_ns, design->loads() - loads, &pauses);
	begun_ns = perf_now_ns();
	cpu_ns = perf_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	design->destroy();
	perf_metric("destroy_cpu_ms", "ms",
	    (double)(perf_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns) / 1e6);
	perf_metric(
	    "destroy_ms", "ms", (double)(perf_now_ns() - begun_ns) / 1e6);
	perf_metric(
	    "left", "%", 100 * (double)perf_rss_bytes() / (double)before);
	/* What malloc keeps goes to the system only when it is told so. */
	(void)malloc_trim(0);
	perf_metric("left_trimmed", "%",
	    100 * (double)perf_rss_bytes() / (double)before);
}

/* Hits, in one thread. */

static double
hits_of(const struct design *of, uint64_t limit)
{
	uint64_t i, before, key;
	void *thread;

	of->create(limit);
	thread = of->thread_begin();
	for (i = 0, before = 0; i < 2 * (uint64_t)DRAWS; i++) {
		/* The first pass fills it. */
		if (i == DRAWS)
			before = of->loads();
		key = draws[i % DRAWS];
		of->acquire(thread, &key);
		of->release(thread, &key);
	}
	before = of->loads() - before;
	free(thread);
	of->destroy();
	return 100 - 100 * (double)before / DRAWS;
}

static double
hits_of_best(uint64_t limit)
{
	double kept = 0, total = 0;
	uint64_t i;

	for (i = 0; i < options.objects; i++) {
		total += 1 / pow((double)(i + 1), options.zipf);
		if (i + 1 == limit)
			kept = total;
	}
	return 100 * kept / total;
}

static void
order(void)
{
	uint64_t limit = options.objects / 10;

	filling = true; /* loads take no time */
	draw_all(options.objects);
	perf_metric("hits_hwt", "%", hits_of(&designs[0], limit));
	perf_metric("hits_lru", "%", hits_of(&designs[1], limit));
	perf_metric("hits_best", "%", hits_of_best(limit));
}

int
main(int argc, char **argv)
{
	unsigned i;

	perf_must(argc >= 2, "a design");
	/* A buffer of stdio would lie above all objects. */
	(void)setvbuf(stdout, NULL, _IONBF, 0);
	options.seed = perf_begin(argc - 1, argv + 1, "a store");
	options.objects = perf_option("objects", 10000000);
	options.threads = perf_option("threads", 16);
	options.zipf = perf_fraction("zipf", 0.99);
	options.cold = perf_fraction("cold", 0.1);
	options.load_us = perf_option("load_us", 100);
	options.seconds = perf_option("seconds", 10);
	options.pause_ms = perf_option("pause_ms", 1000);
	options.shards = perf_option("shards", 4096);
	perf_options_end();
	perf_must(
	    options.threads >= 1 && options.threads <= THREADS_MAX, "threads");
	if (strcmp(argv[1], "order") == 0) {
		order();
		return 0;
	}
	for (i = 0; i < 2; i++) {
		if (strcmp(argv[1], designs[i].name) == 0)
			design = &designs[i];
	}
	perf_must(design != NULL, "a design");
	measure();
	return 0;
}
