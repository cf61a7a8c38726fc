/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of hwt_run against hwt_destroy, which nothing else orders: an
 * executor's own thread runs a timeout long after the timer was stopped, while
 * another tries again and again to destroy the timer.
 *
 *   counted    runs, and destroys that came too early
 *   judged by  ThreadSanitizer: what hwt_run did last comes before what
 *              hwt_destroy frees
 */
#include "stress.h"

#define TURNS 50

static struct hwt *timer;
static hwt_timeout held;
static atomic_uint runs;

static void
task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	atomic_fetch_add_explicit(&runs, 1, memory_order_relaxed);
}

static int
hold(void *ctx, struct hwt *from, hwt_timeout timeout)
{
	(void)ctx;
	(void)from;
	held = timeout;
	return 0;
}

static void *
run_late(void *arg)
{
	(void)arg;
	stress_sleep_ns(HWT_MS(5));
	stress_check(hwt_run(timer, held) == 0, "the timeout was not held");
	return NULL;
}

/* How often it was too early to destroy. */
static uint64_t
turn(void)
{
	const struct hwt_executor executor = {.execute = hold};
	const struct hwt_options options = {
	    .tick_ns = HWT_MS(1), .flags = HWT_MANUAL};
	uint64_t early = 0;
	pthread_t thread;

	held.id = 0;
	stress_must(!hwt_create(&timer, &options), "hwt_create");
	stress_must(!hwt_new_timeout_on(timer, &executor, NULL, task, NULL, 0),
	    "hwt_new_timeout_on");
	while (!held.id)
		stress_must(!hwt_advance(timer, NULL), "hwt_advance");
	stress_must(!hwt_stop(timer, NULL), "hwt_stop");
	thread = stress_thread(run_late, NULL);
	while (hwt_destroy(timer) == -EBUSY)
		early++;
	stress_join(thread);
	return early;
}

int
main(int argc, char **argv)
{
	uint64_t turns, early = 0, i;

	stress_begin("run_end", argc, argv);
	turns = stress_scaled(TURNS);
	for (i = 0; i < turns; i++)
		early += turn();
	stress_check(atomic_load(&runs) == turns, "%u runs of %" PRIu64,
	    atomic_load(&runs), turns);
	return stress_end("%" PRIu64 " runs, destroyed too early %" PRIu64
			  " times",
	    turns, early);
}
