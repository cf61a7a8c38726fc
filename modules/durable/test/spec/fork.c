/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork: in a child, what the parent opened and started answers -EOWNERDEAD, and
 * the parent goes on.
 */
#include "modules/durable/test/spec/durable.h"

#include <unistd.h>

#include "test/spec/support.h"

SUITE(fork);

static struct hwt_durable_token token;
static _Atomic uint64_t calls;

/* It forks once, and the child uses what a callback may. */
static int
callback(void *ctx, const struct hwt_durable_delivery *delivery)
{
	pid_t child = child_split();

	(void)ctx;
	if (child == 0) {
		child_rc(hwt_durable_set_error(delivery, "text", 4), 0);
		child_rc(
		    hwt_durable_finish(delivery->token, 0, 0), -EOWNERDEAD);
		child_rc(hwt_durable_worker_stop(place.worker, 0), -EOWNERDEAD);
		_exit(0);
	}
	cr_assert(child_wait(child) == 0, "the child failed");
	token = delivery->token;
	(void)atomic_fetch_add(&calls, 1);
	return HWT_DURABLE_LATER;
}

static int
visit(void *ctx, const struct hwt_durable_schedule *schedule,
    const struct hwt_durable_schedule_info *info)
{
	(void)ctx;
	(void)schedule;
	(void)info;
	return 0;
}

static void
change_tasks(void *arg)
{
	struct hwt_durable_task task = task_of("b");
	struct hwt_durable *durable = place.durable;
	struct hwt_durable_info info;
	struct hwt_durable_stats stats;

	(void)arg;
	child_rc(hwt_durable_add(durable, 1, &task, NULL), -EOWNERDEAD);
	child_rc(hwt_durable_cancel(durable, "a", 1), -EOWNERDEAD);
	child_rc(hwt_durable_reschedule(durable, "a", 1, 0, 0), -EOWNERDEAD);
	child_rc(hwt_durable_get(durable, "a", 1, &info, NULL, 0), -EOWNERDEAD);
	child_rc(hwt_durable_read_stats(durable, &stats), -EOWNERDEAD);
	child_rc(hwt_durable_finish(token, 0, 0), -EOWNERDEAD);
	child_rc(
	    hwt_durable_finish_error(token, HWT_DURABLE_FAIL, 0, "text", 4),
	    -EOWNERDEAD);
}

static void
change_queues_and_schedules(void *arg)
{
	const struct hwt_durable_limits limits = {.at_once = 2};
	const struct hwt_durable_schedule schedule = {
	    .name = "s", .every_ns = HWT_SEC(60), .task = {.queue = "q"}};
	struct hwt_durable *durable = place.durable;
	uint64_t next;

	(void)arg;
	child_rc(hwt_durable_pause(durable, "q"), -EOWNERDEAD);
	child_rc(hwt_durable_resume(durable, "q"), -EOWNERDEAD);
	child_rc(hwt_durable_limit(durable, "q", &limits), -EOWNERDEAD);
	child_rc(hwt_durable_schedule_put(durable, &schedule), -EOWNERDEAD);
	child_rc(hwt_durable_schedule_drop(durable, "s"), -EOWNERDEAD);
	child_rc(
	    hwt_durable_schedule_list(durable, "s", visit, NULL), -EOWNERDEAD);
	child_rc(hwt_durable_schedule_next(&schedule, 0, &next, NULL), 0);
	child_check(next == HWT_SEC(60));
}

static void
open_its_own(void *arg)
{
	struct hwt_durable_options options = place_options();
	struct hwt_durable_task task = task_of("b");
	struct hwt_durable *own;

	(void)arg;
	task.queue = "other";
	child_rc(hwt_durable_open(&own, &options), 0);
	child_rc(hwt_durable_add(own, 1, &task, NULL), 0);
	child_rc(hwt_durable_close(own), 0);
}

static void
start_and_stop(void *arg)
{
	const struct hwt_durable_worker_options options = {
	    .queue = "q", .callback = callback};
	struct hwt_durable *durable = place.durable;
	struct hwt_durable_scheduler *scheduler;
	struct hwt_durable_worker *worker;

	(void)arg;
	child_rc(
	    hwt_durable_worker_start(&worker, durable, &options), -EOWNERDEAD);
	child_rc(hwt_durable_worker_stats_write(place.worker, stderr, HWT_JSON),
	    -EOWNERDEAD);
	child_rc(hwt_durable_worker_stop(place.worker, 0), -EOWNERDEAD);
	child_rc(hwt_durable_scheduler_start(&scheduler, durable, NULL),
	    -EOWNERDEAD);
	child_rc(hwt_durable_scheduler_stop(place.scheduler), -EOWNERDEAD);
	child_rc(hwt_durable_close(durable), -EOWNERDEAD);
}

SchedulerTest(fork, every_function_is_EOWNERDEAD_in_a_child)
{
	const struct hwt_durable_worker_options options = {
	    .queue = "q", .callback = callback};

	place_work(&options);
	assert_ok(add_one("a"));
	wait_for(&calls, 1);
	in_child(change_tasks, NULL);
	in_child(change_queues_and_schedules, NULL);
	in_child(start_and_stop, NULL);
	in_child(open_its_own, NULL);
	cr_assert(state_of("b") != HWT_DURABLE_RUNNING);
	assert_ok(hwt_durable_finish(token, 0, 0));
	await_state("a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 1);
}
