/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record that is used again while it waits in the queue, or has an entry in
 * the wheel: in the second case the second timeout goes to the worker through
 * the record's word alone, since the entry of the first one serves both.
 *
 * In each turn a thread schedules one, cancels it, and schedules another one,
 * with another arg: either at once, or when the worker has taken the first one
 * over, and then not for an earlier time. Nothing else passes from this thread
 * to the worker until that has run.
 *
 *   counted    turns, and those in which the record was the same
 *   judged by  the arg that the task gets; ThreadSanitizer: what was filled
 *              into the record comes before the worker's reading it
 */
#include "stress.h"

enum {
	TURNS = 1000
};

struct item {
	hwt_timeout timeout; /* plain: written before it may start */
	atomic_bool ran;
};

static atomic_bool wrong;

/* The worker may be faster than the cancel. */
static void
near_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

static void
far_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	atomic_store_explicit(&wrong, true, memory_order_relaxed);
}

static void
task(hwt_timeout timeout, void *arg)
{
	struct item *item = arg;

	if (item->timeout.id != timeout.id)
		atomic_store_explicit(&wrong, true, memory_order_relaxed);
	atomic_store_explicit(&item->ran, true, memory_order_relaxed);
}

static hwt_timeout
schedule(struct hwt *timer, hwt_task *run, struct item *item, uint64_t delay_ns)
{
	hwt_timeout timeout;

	stress_must(!hwt_new_timeout(timer, &timeout, run, item, delay_ns),
	    "hwt_new_timeout");
	return timeout;
}

/* True: both had the same record. */
static bool
second(
    struct hwt *timer, struct item *item, hwt_timeout first, uint64_t delay_ns)
{
	const uint64_t index_mask = (UINT64_C(1) << 28) - 1;

	stress_must(
	    !hwt_new_timeout(timer, &item->timeout, task, item, delay_ns),
	    "hwt_new_timeout");
	while (!atomic_load_explicit(&item->ran, memory_order_relaxed))
		stress_sleep_ns(HWT_US(50));
	return ((first.id ^ item->timeout.id) & index_mask) == 0;
}

static bool
turn_queued(struct hwt *timer, struct item *item)
{
	hwt_timeout first = schedule(timer, far_task, item, HWT_SEC(3600));

	stress_must(!hwt_cancel(timer, first), "hwt_cancel");
	return second(timer, item, first, 0);
}

static bool
turn_placed(struct hwt *timer, struct item *item)
{
	hwt_timeout first = schedule(timer, near_task, item, HWT_MS(1));

	stress_sleep_ns(HWT_US(300));
	if (hwt_cancel(timer, first) != 0)
		return false;
	return second(timer, item, first, HWT_MS(1));
}

int
main(int argc, char **argv)
{
	const struct hwt_options options = {.tick_ns = HWT_US(200)};
	uint64_t turns, queued = 0, placed = 0, i;
	struct item *items;
	struct hwt *timer;

	stress_begin("reused", argc, argv);
	turns = stress_scaled(TURNS);
	items = calloc(turns, sizeof(*items));
	stress_must(items, "calloc");
	stress_must(
	    !hwt_create(&timer, &options) && !hwt_start(timer), "hwt_create");
	for (i = 0; i + 1 < turns; i += 2) {
		queued += turn_queued(timer, &items[i]);
		placed += turn_placed(timer, &items[i + 1]);
	}
	stress_must(!hwt_stop(timer, NULL) && !hwt_destroy(timer), "hwt_stop");
	stress_check(!wrong, "a task got what was not its own");
	stress_check(queued > 0, "no queued record served again");
	stress_check(placed > 0, "no placed record served again");
	free(items);
	return stress_end("%" PRIu64 " turns; with the same record %" PRIu64
			  " queued, %" PRIu64 " placed",
	    turns, queued, placed);
}
