/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_run, which executors call: once per accepted hand-over, and of no effect
 * in every other state of the timeout.
 */
#include "test/spec/support.h"

SUITE(run);

static struct recording_executor executor;

ExecutorTest(run, it_starts_what_was_handed_over_once, EXECUTOR_HOLDS)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_MS(1));
	manual_tick(1);
	assert_u64(executor.count, 1);
	assert_u64(executor.calls[0].timeout.id, probe.handle.id);
	cr_assert(executor.calls[0].timer == manual.timer);

	assert_ok(hwt_run(manual.timer, probe.handle));

	assert_rc(hwt_run(manual.timer, probe.handle), -ENOENT);
	assert_u64(probe.runs, 1);
	assert_u64(probe.timeout.id, probe.handle.id);
}

ExecutorTest(run, it_has_no_effect_before_the_hand_over, EXECUTOR_HOLDS)
{
	struct probe queued = {0}, placed = {0};

	probe_schedule(&placed, HWT_MS(3));
	manual_tick(1);
	probe_schedule(&queued, HWT_MS(2));

	assert_rc(hwt_run(manual.timer, placed.handle), -ENOENT);
	assert_rc(hwt_run(manual.timer, queued.handle), -ENOENT);

	assert_u64(placed.runs + queued.runs, 0);
	assert_u64(hwt_pending_timeouts(manual.timer), 2);
	manual_tick(3);
	assert_u64(executor.count, 2);
	assert_ok(executor_run(&executor, 0));
	assert_ok(executor_run(&executor, 1));
	assert_u64(placed.runs, 1);
	assert_u64(queued.runs, 1);
}

static void
then_run_itself(struct probe *probe)
{
	probe->rc = hwt_run(manual.timer, probe->timeout);
}

ExecutorTest(
    run, a_second_call_while_the_task_runs_has_no_effect, EXECUTOR_HOLDS)
{
	struct probe probe = {.then = then_run_itself};

	probe_schedule(&probe, 0);
	manual_tick(1);

	assert_ok(executor_run(&executor, 0));

	assert_rc(probe.rc, -ENOENT);
	assert_u64(probe.runs, 1);
}

ManualTest(run, a_task_that_runs_in_the_worker_is_not_handed_over)
{
	struct probe probe = {.then = then_run_itself};

	probe_schedule(&probe, 0);

	assert_u64(manual_tick(1), 1);

	assert_rc(probe.rc, -ENOENT);
	assert_rc(hwt_run(manual.timer, probe.handle), -ENOENT);
	assert_u64(probe.runs, 1);
}

ExecutorTest(run, inside_execute_it_starts_the_task, EXECUTOR_RUNS)
{
	struct probe probe = {0};

	probe_schedule(&probe, 0);

	manual_tick(1);

	assert_u64(executor.count, 1);
	assert_ok(executor.run_rc);
	assert_u64(probe.runs, 1);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_u64(manual_stats().executor_refused, 0);
}

ExecutorTest(
    run, what_was_refused_has_run_and_is_not_handed_over, EXECUTOR_REFUSES)
{
	struct probe probe = {0};

	probe_schedule(&probe, 0);

	assert_u64(manual_tick(1), 1);

	assert_u64(probe.runs, 1);
	assert_rc(executor_run(&executor, 0), -ENOENT);
	assert_u64(probe.runs, 1);
}

ExecutorTest(
    run, a_periodic_timeout_is_handed_over_again_after_each_run, EXECUTOR_HOLDS)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(1));

	for (uint64_t index = 0; index < 3; index++) {
		manual_tick(1 + index);
		assert_u64(executor.count, 1 + index);
		assert_ok(executor_run(&executor, index));
		assert_rc(executor_run(&executor, index), -ENOENT);
		assert_u64(probe.runs, 1 + index);
	}
}

ManualTest(run, nothing_and_null_are_refused)
{
	assert_rc(hwt_run(manual.timer, (hwt_timeout){0}), -ENOENT);
	assert_rc(hwt_run(NULL, (hwt_timeout){1}), -EINVAL);
}
