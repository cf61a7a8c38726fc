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

ExecutorTest(
    periodic, runs_never_overlap_while_an_executor_holds_one, EXECUTOR_HOLDS)
{
	struct probe probe = {0};

	probe_periodic(&probe, TICKS(1), TICKS(2));
	manual_tick(10);
	assert_u64(recorder.count, 1);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	assert_ok(executor_run(&recorder, 0));

	manual_tick(11);
	manual_tick(13);

	assert_u64(recorder.count, 2);
	assert_ok(executor_run(&recorder, 1));
	assert_u64(probe.runs, 2);
}

/* The end. */

static void
then_cancel_itself(struct probe *probe)
{
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	probe->rc = hwt_cancel(manual.timer, probe->timeout);
	assert_rc(hwt_reschedule(manual.timer, probe->timeout, 0), -ENOENT);
}

ManualTest(periodic, cancel_in_a_run_makes_it_the_last)
{
	struct probe probe = {.then = then_cancel_itself};

	probe_periodic(&probe, TICKS(1), TICKS(1));

	assert_u64(manual_tick(1), 1);

	assert_rc(probe.rc, -EINPROGRESS);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_u64(manual_tick(9), 0);
}

/* Moving the grid. Of a timeout with a period of 10 ticks that runs at tick 10
 * and whose task then moves itself to a deadline: its next two runs. */
static void
then_move_to_data(struct probe *probe)
{
	probe->then = NULL;
	probe->rc = hwt_reschedule_at(
	    manual.timer, probe->timeout, *(const uint64_t *)probe->data);
}

static const struct {
	const char *what;
	uint64_t deadline_tick, runs;
} own_moves[] = {
    {"to later", 13, ON(13) | ON(23)},
    {"to the past: the next boundary", 4, ON(11) | ON(14) | ON(24)},
    {"to the deadline of this run", 10, ON(11) | ON(20)},
};

Test(periodic, task_moves_its_own_grid)
{
	for (size_t i = 0; i < 3; i++) {
		uint64_t deadline_ns =
		    FIXTURE_START + TICKS(own_moves[i].deadline_tick);
		struct probe probe = {
		    .then = then_move_to_data, .data = &deadline_ns};

		manual_open(NULL);
		probe_periodic(&probe, TICKS(10), TICKS(10));
		manual_tick(10);
		assert_ok(probe.rc);

		cr_assert(ticks_of_runs(&probe, 11, 24) == own_moves[i].runs,
		    "%s", own_moves[i].what);
		manual_close();
	}
}
