/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does an operation cost that waits under keys for an event or for its
 * deadline? One round of one case, for one design: see perf/perf.h. Each thread
 * has so many outstanding. It completes the oldest and watches another one.
 *
 *   closed    by checks of its keys, which are drawn at random from so many
 *   inflight  by ending it: each has a key of its own, and no predicate
 *   value     by raising the one key, for whose values all wait
 *
 *   purgatory/DESIGN load=closed [keys=3] [space=100000] [outstanding=1024]
 *       [threads=1] [seconds=1] [seed=1]
 */
#define _GNU_SOURCE
#include "modules/purgatory/perf/design.h"

#define FLAGS (1u << 20)
#define THREADS_MAX 8u
#define OUTSTANDING_MAX (1u << 16)

enum {
	WAITS,
	HOLDS,
	ENDED
};

static struct worker {
	_Alignas(128) pthread_t thread;
	uint64_t random, watched, completed;
	uint32_t key[OUTSTANDING_MAX][KEYS_MAX];
	atomic_uchar flag[FLAGS]; /* by request number */
} worker[THREADS_MAX];

static unsigned keys, outstanding, threads;
static uint64_t space, until_ns;
enum load load;

bool
request_holds(const struct request *request)
{
	return atomic_load_explicit(request->flag, memory_order_acquire) ==
	    HOLDS;
}

void
request_ended(const struct request *request)
{
	atomic_store_explicit(request->flag, ENDED, memory_order_release);
}

static void
complete_oldest(struct worker *w)
{
	const uint32_t *key = w->key[w->completed % outstanding];
	atomic_uchar *flag = &w->flag[w->completed++ % FLAGS];
	unsigned i;

	atomic_store_explicit(flag, HOLDS, memory_order_release);
	for (i = 0; i < keys; i++)
		design.event(key[i], w->completed);
	/* On another thread, its done may come later. */
	perf_must(threads > 1 || *flag == ENDED, "completing");
}

static void
watch_one(struct worker *w)
{
	struct request *request = malloc(design.size);
	uint32_t *key = w->key[w->watched % outstanding];
	unsigned i;

	perf_must(request != NULL, "malloc");
	request->flag = &w->flag[w->watched++ % FLAGS];
	atomic_store_explicit(request->flag, WAITS, memory_order_relaxed);
	request->at_least = load == LOAD_VALUE ? w->watched : 0;
	request->key_count = keys;
	for (i = 0; i < keys; i++)
		key[i] = request->key[i] = load == LOAD_INFLIGHT
		    ? (uint32_t)(w - worker) << 28 | (uint32_t)w->watched
		    : (uint32_t)perf_random_below(&w->random, space) * keys + i;
	design.watch(request, HWT_SEC(30));
}

static void *
run_loop(void *arg)
{
	struct worker *w = arg;

	perf_pin((unsigned)(w - worker), threads);
	/* One in 16 asks for the time. */
	while (w->watched % 16 != 0 || perf_now_ns() < until_ns) {
		if (w->watched >= outstanding)
			complete_oldest(w);
		watch_one(w);
	}
	return NULL;
}

int
main(int argc, char **argv)
{
	uint64_t seed = perf_begin(argc, argv, design.what);
	uint64_t cpu_ns, completed = 0;
	struct worker *w;

	load = (enum load)perf_text("load", "closed")[0];
	keys = (unsigned)perf_option("keys", load == LOAD_CLOSED ? 3 : 1);
	space = perf_option("space", load == LOAD_CLOSED ? 100000 : 1) / keys;
	outstanding = (unsigned)perf_option("outstanding", 1024);
	threads = (unsigned)perf_option("threads", 1);
	until_ns = perf_now_ns() + HWT_SEC(perf_option("seconds", 1));
	perf_options_end();
	perf_must(outstanding <= OUTSTANDING_MAX && keys <= KEYS_MAX &&
		space > 0 && threads <= THREADS_MAX &&
		(load != LOAD_VALUE || design.has_values),
	    "options");
	design.create(threads * outstanding * keys);
	cpu_ns = perf_cpu_ns();
	for (w = worker; w < &worker[threads]; w++) {
		w->random = seed * 8 + (uint64_t)(w - worker);
		perf_start(&w->thread, run_loop, w);
	}
	for (w = worker; w < &worker[threads]; w++) {
		pthread_join(w->thread, NULL);
		completed += w->completed;
	}
	perf_metric("cpu_ns", "ns",
	    (double)(perf_cpu_ns() - cpu_ns) / (double)completed);
	return 0;
}
