/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_new_periodic: fixed rate on a grid, runs that never overlap, missed ones
 * that coalesce.
 */
#include "test/spec/support.h"

SUITE(periodic);

ManualTest(periodic, task_runs_at_the_first_deadline_and_every_period_after)
{
	struct probe probe = {0};
	hwt_timeout timeout = probe_periodic(&probe, HWT_US(2500), TICKS(3));

	assert_u64(
	    ticks_of_runs(&probe, 1, 13), ON(3) | ON(6) | ON(9) | ON(12));

	assert_u64(probe.timeout.id, timeout.id);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	assert_u64(manual_stats().scheduled, 1);
	assert_u64(manual_stats().started, 4);
	assert_ok(hwt_cancel(manual.timer, timeout));
	assert_u64(ticks_of_runs(&probe, 14, 20), 0);
}

ManualTest(periodic, missed_runs_coalesce_into_one)
{
	struct probe probe = {0};

	probe_periodic(&probe, TICKS(2), TICKS(3));

	assert_u64(manual_tick(30), 1);

	assert_u64(ticks_of_runs(&probe, 31, 38), ON(32) | ON(35) | ON(38));
}

static void
then_take_data_ns(struct probe *probe)
{
	manual.now_ns += *(const uint64_t *)probe->data;
	probe->then = NULL;
}

/* On a grid of 1, 4, 7, 10: a run that ends between two points, and one that
 * ends on one. */
Test(periodic, next_run_is_at_the_grid_point_after_the_end_of_the_last)
{
	for (uint64_t end = 8; end >= 7; end--) {
		uint64_t taken_ns = TICKS(end - 1);
		struct probe probe = {
		    .then = then_take_data_ns, .data = &taken_ns};

		manual_open(NULL);
		probe_periodic(&probe, TICKS(1), TICKS(3));
		assert_u64(manual_tick(1), 1);

		assert_u64(ticks_of_runs(&probe, (unsigned)end, 17),
		    ON(10) | ON(13) | ON(16));
		manual_close();
	}
}
