/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tick-order: tasks of an earlier tick are handed over before those of a later
 * one; inside one tick there is no order. A task that re-arms with delay 0 does
 * not hold the tick.
 */
#include "test/spec/support.h"

SUITE(tick_order);

ManualTest(tick_order, tasks_of_an_earlier_tick_start_first)
{
	static const uint64_t ticks[] = {3, 1, 2};
	struct probe probes[3] = {{0}};

	for (unsigned i = 0; i < 3; i++)
		probe_schedule(&probes[i], TICKS(ticks[i]));

	assert_u64(manual_tick(5), 3);

	for (unsigned i = 0; i < 3; i++)
		assert_u64(probes[i].order, ticks[i]);
}

static void
then_rearm(struct probe *probe)
{
	probe_schedule(probe, 0);
}

ManualTest(tick_order, task_that_re_arms_with_delay_0_does_not_hold_the_tick)
{
	struct probe again = {.then = then_rearm}, beside = {0};

	probe_schedule(&again, 0);
	probe_schedule(&beside, TICKS(5));

	for (uint64_t tick = 1; tick <= 3 * FIXTURE_WHEEL; tick++)
		assert_u64(manual_tick(tick), tick == 5 ? 2 : 1);
	assert_u64(beside.runs, 1);
}
