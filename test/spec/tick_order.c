/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tick-order: tasks of an earlier tick are handed over before those of a later
 * one; inside one tick there is no order. A task that re-arms with delay 0 does
 * not hold the tick.
 */
#include "test/spec/support.h"

SUITE(tick_order);

/* 389 is prime: each tick of 1 .. 256 four times, in no order. */
ExecutorTest(tick_order, timeouts_are_handed_over_in_the_order_of_their_ticks,
    EXECUTOR_HOLDS)
{
	static hwt_timeout timeouts[EXECUTOR_PLACES];
	uint64_t last = 0;

	for (unsigned i = 0; i < EXECUTOR_PLACES; i++)
		timeouts[i] = schedule_task(
		    manual.timer, idle_task, TICKS(1 + i * 389 % 256));

	manual_tick(300);

	assert_u64(recorder.count, EXECUTOR_PLACES);
	for (unsigned i = 0; i < EXECUTOR_PLACES; i++) {
		unsigned k = 0;

		while (timeouts[k].id != recorder.calls[i].timeout.id)
			k++;
		cr_assert(1 + k * 389 % 256 >= last);
		last = 1 + k * 389 % 256;
		assert_ok(executor_run(&recorder, i));
	}
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
