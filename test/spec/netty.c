/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The behaviour that Netty's own tests of its HashedWheelTimer ask for, said
 * anew for this library. They use real time where the originals do; only one
 * has an upper limit, and that one allows for what a control thread's sleeps
 * show this machine to be late.
 */
#include "test/spec/support.h"

#include <stdlib.h>

SUITE(netty);

static struct recording_executor executor;

/* Netty's default. */
#define TICK HWT_MS(100)

static struct hwt_unprocessed
stop(struct hwt *timer)
{
	struct hwt_unprocessed list;

	assert_ok(hwt_stop(timer, &list));
	return list;
}

static void
schedule(struct hwt *timer, unsigned count, hwt_task *task, void *arg,
    uint64_t delay_ns)
{
	while (count-- > 0)
		assert_ok(hwt_new_timeout(timer, NULL, task, arg, delay_ns));
}

Test(netty, a_timeout_of_10_s_has_not_run_after_3_s)
{
	struct hwt *timer = worker_timer_open(TICK);
	int64_t remaining_ns = 0;
	hwt_timeout timeout;

	timeout = schedule_task(timer, forbidden_task, HWT_SEC(10));

	sleep_ns(HWT_SEC(3));

	assert_ok(hwt_remaining(timer, timeout, &remaining_ns));
	cr_assert(remaining_ns > 0);
	cr_assert(remaining_ns <= (int64_t)HWT_SEC(7));
	assert_ok(hwt_cancel(timer, timeout));
	worker_timer_close(timer);
}

Test(netty, a_timeout_of_2_s_has_run_by_3_s)
{
	struct hwt *timer = worker_timer_open(TICK);
	struct probe probe = {0};
	struct lag_meter lag;
	hwt_timeout timeout;

	lag_meter_start(&lag);
	assert_ok(
	    hwt_new_timeout(timer, &timeout, probe_task, &probe, HWT_SEC(2)));

	sleep_ns(HWT_SEC(3));
	sleep_ns(lag_meter_stop(&lag));

	assert_u64(probe.runs, 1);
	assert_rc(hwt_cancel(timer, timeout), -ENOENT);
	worker_timer_close(timer);
}

Test(netty, stop_returns_nothing_when_all_have_run)
{
	struct hwt *timer = worker_timer_open(TICK);
	struct probe probe = {0};

	schedule(timer, 3, probe_task, &probe, HWT_MS(1));
	wait_for(&probe.runs, 3);

	assert_u64(stop(timer).count, 0);

	assert_ok(hwt_destroy(timer));
}

Test(netty, stop_returns_what_is_pending_and_has_cancelled_it)
{
	struct hwt *timer = worker_timer_open(TICK);
	struct hwt_unprocessed list;
	struct hwt_timeout_info info;
	unsigned count = 0;

	schedule(timer, 5, forbidden_task, NULL, HWT_SEC(5));
	sleep_ns(HWT_SEC(1));

	list = stop(timer);

	assert_u64(list.count, 5);
	while (hwt_unprocessed_next(&list, &info)) {
		assert_rc(hwt_cancel(timer, info.timeout), -ENOENT);
		count++;
	}
	assert_u64(count, 5);
	assert_ok(hwt_destroy(timer));
}

Test(netty, scheduling_after_stop_is_refused)
{
	struct hwt *timer = worker_timer_open(TICK);
	struct probe probe = {0};

	schedule(timer, 3, probe_task, &probe, HWT_MS(1));
	wait_for(&probe.runs, 3);
	stop(timer);

	assert_rc(hwt_new_timeout(timer, NULL, forbidden_task, NULL, HWT_MS(1)),
	    -ESHUTDOWN);

	assert_ok(hwt_destroy(timer));
}

/* Arms itself again before its run is counted. */
static void
then_rearm(struct probe *probe)
{
	(void)!hwt_new_timeout(probe->data, NULL, probe_task, probe, TICK);
}

Test(netty, a_task_that_rearms_itself_leaves_one_unprocessed)
{
	struct hwt_options options = {.tick_ns = TICK, .ticks_per_wheel = 32};
	struct probe probe = {.then = then_rearm};
	struct hwt *timer = NULL;

	assert_ok(hwt_create(&timer, &options));
	probe.data = timer;
	schedule(timer, 1, probe_task, &probe, TICK);
	wait_for(&probe.runs, 3);

	assert_u64(stop(timer).count, 1);

	assert_ok(hwt_destroy(timer));
}

#define MANY 100000

struct punctual {
	uint64_t scheduled_ns;
	uint64_t late_ns;
	_Atomic uint64_t *runs;
};

static void
punctual_task(hwt_timeout timeout, void *arg)
{
	struct punctual *punctual = arg;

	(void)timeout;
	punctual->late_ns = monotonic_ns() - punctual->scheduled_ns;
	(*punctual->runs)++;
}

Test(netty, of_100000_none_is_early_and_none_late_by_more_than_2_ticks)
{
	struct punctual *all = calloc(MANY, sizeof(*all));
	struct hwt *timer = worker_timer_open(HWT_MS(200));
	struct lag_meter lag;
	_Atomic uint64_t runs = 0;
	uint64_t lag_ns;

	lag_meter_start(&lag);
	for (size_t index = 0; index < MANY; index++) {
		all[index].runs = &runs;
		all[index].scheduled_ns = monotonic_ns();
		schedule(timer, 1, punctual_task, &all[index], HWT_MS(125));
	}
	wait_for(&runs, MANY);
	lag_ns = lag_meter_stop(&lag);

	for (size_t index = 0; index < MANY; index++) {
		cr_assert(all[index].late_ns >= HWT_MS(125));
		cr_assert(all[index].late_ns < HWT_MS(650) + lag_ns);
	}
	worker_timer_close(timer);
	assert_u64(runs, MANY);
	free(all);
}

Test(netty, a_custom_executor_gets_the_task)
{
	struct hwt_options options = {.tick_ns = TICK,
	    .ticks_per_wheel = 32,
	    .max_pending = 2,
	    .executor = &executor.hook};
	struct probe probe = {0};
	struct hwt *timer = NULL;

	executor_init(&executor, EXECUTOR_RUNS);
	assert_ok(hwt_create(&timer, &options));
	schedule(timer, 1, probe_task, &probe, HWT_MS(10));

	wait_for(&probe.runs, 1);

	assert_u64(executor.count, 1);
	worker_timer_close(timer);
	assert_ok(executor.run_rc);
}

static struct hwt *
open_with_limit_of_2(uint64_t tick_ns, uint32_t ticks_per_wheel)
{
	struct hwt_options options = {.tick_ns = tick_ns,
	    .ticks_per_wheel = ticks_per_wheel,
	    .max_pending = 2};
	struct hwt *timer = NULL;

	assert_ok(hwt_create(&timer, &options));
	return timer;
}

Test(netty, the_limit_of_2_refuses_a_third_and_admits_it_after_a_cancel)
{
	struct hwt *timer = open_with_limit_of_2(TICK, 32);
	struct probe probe = {0};
	hwt_timeout timeout;

	schedule(timer, 1, forbidden_task, NULL, HWT_MIN(5));
	timeout = schedule_task(timer, forbidden_task, HWT_MIN(5));
	assert_rc(hwt_new_timeout(timer, NULL, forbidden_task, NULL, HWT_MS(1)),
	    -ENOBUFS);
	assert_ok(hwt_cancel(timer, timeout));

	schedule(timer, 1, probe_task, &probe, HWT_MS(90));

	wait_for(&probe.runs, 1);
	worker_timer_close(timer);
}

Test(netty, the_limit_of_2_admits_again_directly_after_an_expiry)
{
	struct hwt *timer = open_with_limit_of_2(HWT_MS(25), 4);
	struct probe first = {0}, second = {0};

	schedule(timer, 1, forbidden_task, NULL, HWT_MIN(5));
	schedule(timer, 1, probe_task, &first, HWT_MS(90));
	wait_for(&first.runs, 1);

	schedule(timer, 1, probe_task, &second, HWT_MS(90));

	wait_for(&second.runs, 1);
	worker_timer_close(timer);
}

Test(netty, pending_counts_3_and_with_two_cancelled_and_one_run_0)
{
	struct hwt *timer = worker_timer_open(TICK);
	struct probe probe = {0};
	hwt_timeout timeouts[2];

	timeouts[0] = schedule_task(timer, forbidden_task, HWT_MIN(100));
	timeouts[1] = schedule_task(timer, forbidden_task, HWT_MIN(100));
	schedule(timer, 1, probe_task, &probe, HWT_MS(90));

	assert_u64(hwt_pending_timeouts(timer), 3);
	assert_ok(hwt_cancel(timer, timeouts[0]));
	assert_ok(hwt_cancel(timer, timeouts[1]));
	wait_for(&probe.runs, 1);

	assert_u64(hwt_pending_timeouts(timer), 0);
	worker_timer_close(timer);
}

Test(netty, the_longest_delay_has_not_run_after_1_s)
{
	struct hwt *timer = worker_timer_open(TICK);
	hwt_timeout timeouts[2];

	timeouts[0] = schedule_task(timer, forbidden_task, HWT_NEVER);
	timeouts[1] =
	    schedule_task(timer, forbidden_task, (UINT64_C(1) << 63) - 1);

	sleep_ns(HWT_SEC(1));

	assert_ok(hwt_cancel(timer, timeouts[0]));
	assert_ok(hwt_cancel(timer, timeouts[1]));
	worker_timer_close(timer);
}

/* The first of a tick to run blocks the worker. */
static void
then_first_blocks(struct probe *probe)
{
	if (probe->runs == 0)
		gate_pass(probe->data);
}

Test(netty, ten_cancelled_while_an_eleventh_blocks_the_worker_leave_none)
{
	struct hwt *timer = worker_timer_open(TICK);
	struct gate gate;
	struct probe blocking = {.then = then_first_blocks, .data = &gate};
	struct probe later = {0};
	hwt_timeout timeouts[11];
	struct hwt_spec specs[11];
	unsigned won = 0;

	gate_init(&gate);
	for (size_t index = 0; index < 11; index++) {
		specs[index] = (struct hwt_spec){.task = probe_task,
		    .arg = &blocking,
		    .delay_ns = HWT_MS(200)};
	}
	assert_ok(hwt_new_timeouts(timer, 11, specs, timeouts));
	gate_await(&gate);

	for (size_t index = 0; index < 11; index++)
		won += hwt_cancel(timer, timeouts[index]) == 0;
	assert_u64(won, 10);
	assert_u64(hwt_pending_timeouts(timer), 0);
	gate_open(&gate);
	assert_ok(hwt_new_timeout(timer, NULL, probe_task, &later, 2 * TICK));
	wait_for(&later.runs, 1);

	assert_u64(hwt_pending_timeouts(timer), 0);
	worker_timer_close(timer);
	assert_u64(blocking.runs, 1);
}
