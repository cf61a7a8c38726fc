/* SPDX-License-Identifier: Apache-2.0 */
/*
 * never-early: a task never starts before its delay has passed since the call,
 * by the timer's clock. Of workers, test/stress asks it of every timeout.
 */
#include "test/spec/support.h"

SUITE(never_early);

ManualTest(never_early, task_starts_when_its_delay_has_passed_and_not_before)
{
	struct probe probe = {0};

	probe_schedule(&probe, TICKS(3));

	assert_u64(manual_step(TICKS(3) - 1), 0);
	assert_u64(manual_step(1), 1);

	assert_u64(probe.started_ns, FIXTURE_START + TICKS(3));
}

/* A clock of the application's own may misbehave. */

ManualTest(never_early, clock_that_goes_back_before_create_starts_nothing)
{
	struct probe probe = {0};

	manual.now_ns = FIXTURE_START - TICKS(10);
	probe_schedule(&probe, FIXTURE_TICK);

	assert_u64(manual_step(TICKS(5)), 0);
	assert_u64(manual_step(TICKS(5)), 0);
	assert_u64(manual_step(TICKS(1)), 1);
}
