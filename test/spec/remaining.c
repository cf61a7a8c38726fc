/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_remaining in every state of a timeout.
 */
#include "test/spec/support.h"

SUITE(remaining);

static struct recording_executor executor;

static void
assert_no_answer(hwt_timeout timeout, int expected)
{
	int64_t remaining_ns = 77;

	assert_rc(
	    hwt_remaining(manual.timer, timeout, &remaining_ns), expected);
	assert_i64(remaining_ns, 77);
}

ManualTest(remaining, it_is_the_time_to_the_deadline_not_to_the_tick)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_US(2500));
	assert_i64(manual_remaining(probe.handle), (int64_t)HWT_US(2500));
	manual_tick(1);
	assert_i64(manual_remaining(probe.handle), (int64_t)HWT_US(1500));

	manual.now_ns += HWT_US(1500) - 1;
	assert_i64(manual_remaining(probe.handle), 1);
	manual.now_ns += 1;
	assert_i64(manual_remaining(probe.handle), 0);
}

ManualTest(remaining, it_is_negative_when_overdue)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_MS(2));

	manual.now_ns += HWT_MS(2) + 1;
	assert_i64(manual_remaining(probe.handle), -1);
	manual.now_ns += HWT_MIN(60);
	assert_i64(manual_remaining(probe.handle), -(int64_t)HWT_MIN(60) - 1);
}

ManualTest(remaining, a_delay_of_0_counts_as_1_ns)
{
	struct probe probe = {0};

	probe_schedule(&probe, 0);

	assert_i64(manual_remaining(probe.handle), 1);
	assert_ok(hwt_reschedule(manual.timer, probe.handle, HWT_MS(5)));
	assert_ok(hwt_reschedule(manual.timer, probe.handle, 0));
	assert_i64(manual_remaining(probe.handle), 1);
}

ExecutorTest(
    remaining, what_an_executor_holds_is_overdue_not_running, EXECUTOR_HOLDS)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_US(500));
	manual_tick(1);
	assert_u64(executor.count, 1);

	assert_i64(manual_remaining(probe.handle), -(int64_t)HWT_US(500));

	assert_ok(executor_run(&executor, 0));
	assert_no_answer(probe.handle, -ENOENT);
}

static void
then_ask(struct probe *probe)
{
	int64_t remaining_ns = 77;

	assert_rc(hwt_remaining(manual.timer, probe->timeout, &remaining_ns),
	    -EINPROGRESS);
	assert_i64(remaining_ns, 77);
}

ManualTest(remaining, while_it_runs_there_is_no_answer)
{
	struct probe once = {.then = then_ask};
	struct probe periodic = once;

	probe_schedule(&once, 0);
	probe_schedule_periodic(&periodic, 0, HWT_MS(1));

	assert_u64(manual_tick(1), 2);

	assert_no_answer(once.handle, -ENOENT);
}

Test(remaining, while_it_runs_elsewhere_there_is_no_answer)
{
	struct gate gate;
	struct probe probe = {.then = probe_then_gate, .data = &gate};

	gate_init(&gate);
	manual.timer = worker_timer_open(HWT_MS(1));
	assert_ok(hwt_new_timeout(
	    manual.timer, &probe.handle, probe_task, &probe, 0));
	gate_await(&gate);

	assert_no_answer(probe.handle, -EINPROGRESS);

	gate_open(&gate);
	worker_timer_close(manual.timer);
}

ManualTest(remaining, what_has_ended_has_no_answer)
{
	struct probe probe = {0}, cancelled = {0}, given_back = {0};

	probe_schedule(&probe, 0);
	probe_schedule(&cancelled, HWT_MS(5));
	probe_schedule(&given_back, HWT_MS(5));
	manual_tick(1);
	assert_ok(hwt_cancel(manual.timer, cancelled.handle));

	assert_no_answer(probe.handle, -ENOENT);
	assert_no_answer(cancelled.handle, -ENOENT);
	assert_no_answer((hwt_timeout){0}, -ENOENT);
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_no_answer(given_back.handle, -ENOENT);
}

ManualTest(remaining, null_is_refused)
{
	struct probe probe = {0};
	int64_t remaining_ns = 77;

	probe_schedule(&probe, 0);

	assert_rc(hwt_remaining(manual.timer, probe.handle, NULL), -EINVAL);
	assert_rc(hwt_remaining(NULL, probe.handle, &remaining_ns), -EINVAL);

	assert_i64(remaining_ns, 77);
}
