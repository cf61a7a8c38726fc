/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_cancel in every state of a timeout. What its handle is worth afterwards,
 * and what garbage it accepts, is in safe_handles.c.
 */
#include "test/spec/support_promises.h"

#include <stdlib.h>

SUITE(cancel);

static struct recording_executor executor;

/* A timeout of 3 ms; the wheel is turned up to turned_ns, and the clock goes on
 * to called_ns. */
static const struct {
	uint64_t turned_ns, called_ns;
} moments[] = {
    {0, 0}, /* not placed yet */
    {HWT_MS(2), HWT_MS(2)}, /* in the wheel */
    {HWT_MS(1), HWT_MS(20)}, /* due, but not begun */
};

Test(cancel, it_wins_until_the_task_has_begun)
{
	for (size_t index = 0; index < 3; index++) {
		hwt_timeout timeout;

		manual_open(NULL);
		timeout =
		    schedule_task(manual.timer, forbidden_task, HWT_MS(3));
		if (moments[index].turned_ns > 0)
			manual_step(moments[index].turned_ns);
		manual.now_ns = manual.start_ns + moments[index].called_ns;

		assert_ok(hwt_cancel(manual.timer, timeout));

		assert_rc(hwt_cancel(manual.timer, timeout), -ENOENT);
		assert_u64(hwt_pending_timeouts(manual.timer), 0);
		assert_u64(manual_step(HWT_MS(30)), 0);
		assert_u64(manual_stats().cancelled, 1);
		manual_close();
	}
}

ExecutorTest(
    cancel, it_wins_while_the_timeout_waits_in_an_executor, EXECUTOR_HOLDS)
{
	hwt_timeout timeout;

	timeout = schedule_task(manual.timer, forbidden_task, 0);
	manual_tick(1);
	assert_u64(executor.count, 1);

	assert_ok(hwt_cancel(manual.timer, timeout));

	assert_rc(hwt_cancel(manual.timer, timeout), -ENOENT);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_rc(executor_run(&executor, 0), -ENOENT);
	assert_u64(manual_stats().cancelled, 1);
	assert_u64(manual_stats().started, 0);
}

ManualTest(cancel, it_loses_against_a_task_that_has_run)
{
	struct probe probe = {0};

	probe_schedule(&probe, 0);
	assert_u64(manual_tick(1), 1);

	assert_rc(hwt_cancel(manual.timer, probe.handle), -ENOENT);

	assert_u64(manual_stats().cancelled, 0);
}

static void
then_cancel_itself(struct probe *probe)
{
	probe->rc = hwt_cancel(manual.timer, probe->timeout);
}

ManualTest(cancel, from_its_own_task_it_is_in_progress)
{
	struct probe probe = {.then = then_cancel_itself};

	probe_schedule(&probe, 0);

	assert_u64(manual_tick(1), 1);

	assert_rc(probe.rc, -EINPROGRESS);
	assert_rc(hwt_cancel(manual.timer, probe.handle), -ENOENT);
	assert_u64(manual_stats().cancelled, 0);
}

RunningTest(cancel, while_the_task_runs_elsewhere_it_is_in_progress)
{
	hwt_timeout timeout = running.probe.handle;

	assert_rc(hwt_cancel(live.timer, timeout), -EINPROGRESS);
	assert_rc(hwt_cancel(live.timer, timeout), -EINPROGRESS);

	gate_open(&running.gate);
	wait_for(&running.probe.runs, 1);
	assert_ok(hwt_stop(live.timer, NULL));
	assert_u64(running.probe.runs, 1);
}

RunningPeriodicTest(
    cancel, a_running_periodic_task_is_in_progress_and_runs_no_more)
{
	hwt_timeout timeout = running.probe.handle;

	assert_rc(hwt_cancel(live.timer, timeout), -EINPROGRESS);
	gate_open(&running.gate);
	for (unsigned tick = 0; tick < 5; tick++)
		live_pass_tick();

	assert_u64(running.probe.runs, 1);
	assert_rc(hwt_cancel(live.timer, timeout), -ENOENT);
	assert_u64(hwt_pending_timeouts(live.timer), 0);
}

static hwt_timeout all_handles[100];

static void
then_cancel_all(struct probe *probe)
{
	(void)probe;
	for (size_t index = 0; index < 100; index++)
		(void)!hwt_cancel(manual.timer, all_handles[index]);
}

ManualTest(cancel, a_task_may_cancel_all_others_of_its_tick)
{
	struct probe probe = {.then = then_cancel_all};

	for (size_t index = 0; index < 100; index++)
		all_handles[index] = probe_schedule(&probe, HWT_MS(1));

	assert_u64(manual_tick(1), 1);

	assert_u64(manual_stats().cancelled, 99);
	assert_u64(manual_step(HWT_MS(50)), 0);
}

ManualTest(cancel, the_arg_is_the_callers_again_at_once)
{
	struct probe *probe;

	for (unsigned ticks = 0; ticks < 3; ticks++) {
		probe = calloc(1, sizeof(*probe));
		probe_schedule(probe, HWT_MS(2));
		manual_step(ticks == 0 ? 0 : HWT_MS(1));

		assert_ok(hwt_cancel(manual.timer, probe->handle));
		free(probe);
	}

	assert_u64(manual_step(HWT_MS(20)), 0);
}

static void
cancel_without_memory(unsigned index, void *arg)
{
	hwt_timeout *timeouts = arg;

	assert_ok(hwt_cancel(manual.timer, timeouts[index]));
}

ExecutorTest(cancel, it_needs_no_memory_and_no_key_in_a_thread_of_its_own,
    EXECUTOR_HOLDS)
{
	hwt_timeout timeouts[3];
	struct probe held = {0};

	probe_schedule(&held, 0);
	timeouts[1] = schedule_task(manual.timer, forbidden_task, HWT_SEC(9));
	manual_tick(1);
	timeouts[0] = held.handle;
	timeouts[2] = schedule_task(manual.timer, forbidden_task, HWT_SEC(9));

	fault_arm(FAULT_MEMORY | FAULT_KEY, FAULT_ALWAYS);
	in_parallel(3, cancel_without_memory, timeouts);
	fault_disarm();

	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_rc(executor_run(&executor, 0), -ENOENT);
}

Test(cancel, a_null_timer_is_refused)
{
	assert_rc(hwt_cancel(NULL, (hwt_timeout){1}), -EINVAL);
}
