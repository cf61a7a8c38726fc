/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manual timers: hwt_advance, hwt_next_wakeup, and wake, which tells who turns
 * the wheel that the wait has become too long.
 */
#include "test/spec/support.h"

SUITE(manual);

ManualTest(manual, advance_counts_the_tasks_that_it_started)
{
	for (unsigned i = 0; i < 4; i++)
		schedule_task(manual.timer, idle_task, TICKS(i + i / 3));

	assert_u64(manual_tick(1), 2);
	assert_u64(manual_tick(3), 1);
	assert_u64(manual_tick(3), 0);
	assert_u64(manual_tick(100), 1);
}

ManualTest(manual, wait_is_to_the_boundary_of_the_earliest_deadline)
{
	schedule_forbidden(HWT_MS(7));
	schedule_forbidden(HWT_US(2500));

	assert_u64(manual_wait(), HWT_MS(3));
	manual.now_ns += HWT_US(1200);
	assert_u64(manual_wait(), HWT_US(1800));
	manual.now_ns += HWT_US(1800) - 1;
	assert_u64(manual_wait(), 1);
}

static void
then_ask_wait(struct probe *probe)
{
	*(uint64_t *)probe->data = manual_wait();
}

ManualTest(manual, wait_in_a_task_is_to_the_next_boundary)
{
	uint64_t wait_ns = 0;
	struct probe probe = {.then = then_ask_wait, .data = &wait_ns};

	probe_schedule(&probe, HWT_MS(1));

	assert_u64(manual_step(HWT_US(1300)), 1);

	assert_u64(wait_ns, HWT_US(700));
}

/* Wake. */

ManualTest(manual, earlier_deadline_calls_wake_once_per_wait)
{
	schedule_forbidden(HWT_MS(10));
	assert_u64(manual_wait(), HWT_MS(10));

	schedule_forbidden(HWT_MS(9));
	assert_u64(manual.wakes, 1);
	schedule_forbidden(HWT_MS(4));
	schedule_forbidden(HWT_MS(3));

	assert_u64(manual.wakes, 1);
	assert_u64(manual_wait(), HWT_MS(3));
	schedule_forbidden(HWT_MS(2));
	assert_u64(manual.wakes, 2);
}
