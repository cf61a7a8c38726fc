/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record that is used again while its entry is queued: the second timeout
 * goes to the worker through the record's word alone, since the entry that was
 * pushed for the first one serves both.
 *
 * In each turn a thread schedules one far away, cancels it, and schedules one
 * that is due, with another arg. Nothing else passes from this thread to the
 * worker until that has run.
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

/* True: both had the same record. */
static bool
turn(struct hwt *timer, struct item *item)
{
	const uint64_t index_mask = (UINT64_C(1) << 28) - 1;
	hwt_timeout first;

	stress_must(
	    !hwt_new_timeout(timer, &first, far_task, item, HWT_SEC(3600)),
	    "hwt_new_timeout");
	stress_must(!hwt_cancel(timer, first), "hwt_cancel");
	stress_must(!hwt_new_timeout(timer, &item->timeout, task, item, 0),
	    "hwt_new_timeout");
	while (!atomic_load_explicit(&item->ran, memory_order_relaxed))
		stress_sleep_ns(HWT_US(50));
	return ((first.id ^ item->timeout.id) & index_mask) == 0;
}

int
main(int argc, char **argv)
{
	const struct hwt_options options = {.tick_ns = HWT_US(200)};
	uint64_t turns, same = 0, i;
	struct item *items;
	struct hwt *timer;

	stress_begin("reused", argc, argv);
	turns = stress_scaled(TURNS);
	items = calloc(turns, sizeof(*items));
	stress_must(items, "calloc");
	stress_must(
	    !hwt_create(&timer, &options) && !hwt_start(timer), "hwt_create");
	for (i = 0; i < turns; i++)
		same += turn(timer, &items[i]);
	stress_must(!hwt_stop(timer, NULL) && !hwt_destroy(timer), "hwt_stop");
	stress_check(!wrong, "a task got what was not its own");
	stress_check(same > 0, "no record served again");
	free(items);
	return stress_end(
	    "%" PRIu64 " turns, %" PRIu64 " with the same record", turns, same);
}
