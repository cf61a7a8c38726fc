/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_reschedule, hwt_reschedule_at, hwt_remaining, hwt_state: the one deadline
 * moves, the handle stays. Periodic timeouts are in periodic.c.
 */
#include "test/spec/support.h"

SUITE(reschedule);

ManualTest(reschedule, timeout_is_due_on_the_tick_of_its_new_delay_and_no_other)
{
	struct probe out = {0}, in = {0};

	probe_schedule(&out, TICKS(4));
	probe_schedule(&in, TICKS(30));
	manual_tick(2);

	assert_ok(hwt_reschedule(manual.timer, out.handle, TICKS(21)));
	assert_ok(hwt_reschedule_at(
	    manual.timer, in.handle, FIXTURE_START + TICKS(7)));

	assert_u64(ticks_of_runs(&in, 3, 22), ON(7));
	assert_u64(ticks_of_runs(&out, 23, 40), ON(23));
	assert_u64(out.timeout.id, out.handle.id);
}

/* hwt_remaining and hwt_state. */

ManualTest(reschedule, remaining_is_the_time_to_the_deadline_not_to_the_tick)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_US(2500));
	assert_i64(manual_remaining(probe.handle), (int64_t)HWT_US(2500));
	manual_tick(1);
	assert_i64(manual_remaining(probe.handle), (int64_t)HWT_US(1500));

	manual.now_ns += HWT_MIN(60);
	assert_i64(manual_remaining(probe.handle),
	    (int64_t)HWT_US(1500) - (int64_t)HWT_MIN(60));
}

static void
then_ask_state(struct probe *probe)
{
	void *arg = NULL;

	probe->rc = hwt_state(manual.timer, probe->timeout, &arg);
	cr_assert(arg == probe);
}

ExecutorTest(reschedule, state_follows_the_timeout_to_its_end, EXECUTOR_HOLDS)
{
	struct probe probe = {.then = then_ask_state};
	void *arg = &manual;

	probe_schedule(&probe, TICKS(1));
	assert_rc(manual_state(probe.handle), HWT_STATE_PENDING);
	manual_tick(1);
	assert_rc(manual_state(probe.handle), HWT_STATE_HANDED_OVER);
	assert_ok(executor_run(&recorder, 0));

	assert_rc(probe.rc, HWT_STATE_RUNNING);
	assert_rc(hwt_state(manual.timer, probe.handle, &arg), -ENOENT);
	cr_assert(arg == &manual);
}
