/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wake-ups by real futexes: threads schedule while the worker, and a pool's
 * thread, go to sleep. In each round all wait until all tasks have run, so that
 * nothing makes up for a wake-up that is lost: that is a hang.
 */
#include "storm.h"

enum {
	PRODUCERS = 2
};

static struct hwt *sleeper;
static const struct hwt_executor *ways[2];
static atomic_uint_fast64_t tasks;

static void
count_task(hwt_timeout timeout, void *unused)
{
	(void)timeout;
	(void)unused;
	atomic_fetch_add(&tasks, 1);
}

static void *
producer_thread(void *salt)
{
	uint64_t random = random_seed((uintptr_t)salt);
	uint64_t rounds = stress_scaled(50000), round, tries;
	hwt_timeout timeout;

	for (round = 1; round <= rounds; round++) {
		bool pulls_in = random_below(&random, 2);

		stress_spin(
		    random_next(&random) >> 46 >> random_below(&random, 18));
		stress_must(
		    !hwt_new_timeout_on(sleeper, ways[random_below(&random, 2)],
			&timeout, count_task, NULL, pulls_in ? HWT_MIN(60) : 0),
		    "hwt_new_timeout_on");
		stress_must(!pulls_in || !hwt_reschedule(sleeper, timeout, 0),
		    "hwt_reschedule");
		for (tries = 1; atomic_load(&tasks) < round * PRODUCERS;
		     tries++)
			if (tries % 4096 == 0)
				sched_yield();
	}
	return NULL;
}

void
run_sleep(void)
{
	pthread_t threads[PRODUCERS];
	struct hwt_stats stats;
	struct hwt_pool *pool;
	uintptr_t i;

	stress_phase("sleep", 0);
	sleeper = timer_create_ns(HWT_US(20), 64, 0);
	stress_must(!hwt_pool_create(&pool, 1, 0), "hwt_pool_create");
	ways[1] = hwt_pool_executor(pool);
	atomic_store(&tasks, 0);
	for (i = 0; i < PRODUCERS; i++)
		threads[i] = stress_thread(producer_thread, (void *)(i + 50));
	for (i = 0; i < PRODUCERS; i++)
		stress_join(threads[i]);
	stress_must(!hwt_stop(sleeper, NULL), "hwt_stop");
	stress_must(!hwt_read_stats(sleeper, &stats), "hwt_read_stats");
	/* For the call, for a deadline that is superseded, when it is due. */
	stress_check(stats.started == stats.scheduled &&
		stats.wakeups <= 3 * stats.scheduled + 1,
	    "%" PRIu64 " wake-ups for %" PRIu64 " timeouts", stats.wakeups,
	    stats.scheduled);
	stress_check(!hwt_pool_destroy(pool) && !hwt_destroy(sleeper),
	    "a timer with all at its end");
}
