/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catch-up: after a stall, SIGSTOP or suspend, empty ticks are skipped by
 * arithmetic, and due ones run in tick order.
 */
#include "test/spec/support.h"

SUITE(catch_up);

/* 2^58 ns are some 10^13 ticks: whoever counts them never ends. */
ManualTestWith(
    catch_up, empty_ticks_are_skipped_by_arithmetic, .tick_ns = HWT_US(10))
{
	struct probe probe = {0};

	assert_u64(manual_step(UINT64_C(1) << 58), 0);
	probe_schedule(&probe, UINT64_C(1) << 57);
	assert_u64(manual_step(UINT64_C(1) << 57), 0);
	assert_u64(manual_step(HWT_US(10)), 1);
}

static void
then_schedule_data(struct probe *probe)
{
	probe_schedule(probe->data, FIXTURE_TICK);
}

ManualTest(catch_up, timeout_scheduled_by_a_task_in_catch_up_waits_its_delay)
{
	struct probe next = {0}, last = {0};
	struct probe first = {.then = then_schedule_data, .data = &next};

	probe_schedule(&first, TICKS(1));
	probe_schedule(&last, TICKS(50));

	assert_u64(manual_tick(60), 2);
	assert_u64(next.runs, 0);
	assert_u64(manual_tick(61), 1);
}
