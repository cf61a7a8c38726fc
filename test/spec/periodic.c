/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Periodic timeouts: fixed rate on a grid, runs that never overlap, missed
 * ones that coalesce, and the ways in which they end.
 */
#include "test/spec/support.h"

SUITE(periodic);

static struct recording_executor executor;

/* Turns the wheel tick by tick from first to last and tells, as a bit mask
 * whose bit n is tick n, on which ones probe ran; never more than once. */
static uint64_t
ticks_of_runs(struct probe *probe, uint64_t first, uint64_t last)
{
	uint64_t ticks = 0;

	for (uint64_t index = first; index <= last; index++) {
		uint64_t before = probe->runs;

		manual_tick(index);
		cr_assert(probe->runs - before <= 1);
		ticks |= (probe->runs - before) << index;
	}
	return ticks;
}

#define TICK(n) (UINT64_C(1) << (n))

ManualTest(periodic, it_runs_at_the_first_deadline_and_every_period_after)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, HWT_US(2500), HWT_MS(3));

	assert_u64(ticks_of_runs(&probe, 1, 13),
	    TICK(3) | TICK(6) | TICK(9) | TICK(12));
}

ManualTest(periodic, a_period_that_is_no_multiple_of_the_tick_does_not_drift)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, HWT_US(500), HWT_US(1500));

	assert_u64(ticks_of_runs(&probe, 1, 10),
	    TICK(1) | TICK(2) | TICK(4) | TICK(5) | TICK(7) | TICK(8) |
		TICK(10));
}

ManualTest(periodic, a_period_below_the_tick_runs_once_a_tick)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, 0, 1);

	assert_u64(ticks_of_runs(&probe, 1, 3), TICK(1) | TICK(2) | TICK(3));
}

ManualTest(periodic, it_keeps_one_handle_and_counts_as_one_pending)
{
	struct probe probe = {0};
	hwt_timeout timeout;

	timeout = probe_schedule_periodic(&probe, HWT_MS(2), HWT_MS(2));

	for (uint64_t index = 1; index <= 5; index++) {
		assert_u64(manual_tick(2 * index), 1);
		assert_u64(probe.timeout.id, timeout.id);
		assert_u64(hwt_pending_timeouts(manual.timer), 1);
		assert_i64(manual_remaining(timeout), (int64_t)HWT_MS(2));
	}

	assert_u64(manual_stats().scheduled, 1);
	assert_u64(manual_stats().started, 5);
}

static void
then_count_pending(struct probe *probe)
{
	int64_t remaining_ns = 77;

	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	probe->rc = hwt_remaining(manual.timer, probe->timeout, &remaining_ns);
	assert_i64(remaining_ns, 77);
}

ManualTest(periodic, it_counts_as_pending_while_it_runs)
{
	struct probe probe = {.then = then_count_pending};

	probe_schedule_periodic(&probe, 0, HWT_MS(1));

	assert_u64(manual_tick(1), 1);

	assert_rc(probe.rc, -EINPROGRESS);
}

ManualTest(periodic, missed_runs_coalesce_into_one)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, HWT_MS(2), HWT_MS(3));

	assert_u64(manual_tick(30), 1);
	assert_i64(manual_remaining(probe.handle), (int64_t)HWT_MS(2));

	assert_u64(
	    ticks_of_runs(&probe, 31, 38), TICK(32) | TICK(35) | TICK(38));
}

static void
then_take_data_ns(struct probe *probe)
{
	manual.now_ns += *(const uint64_t *)probe->data;
	probe->then = NULL;
}

/* Of a grid of 1, 4, 7, 10 ..: a run that ends between two points, and one that
 * ends on a point, which it leaves out. */
Test(periodic, the_next_run_is_at_the_grid_point_after_the_end_of_the_last)
{
	for (uint64_t end_ms = 8; end_ms >= 7; end_ms--) {
		uint64_t taken_ns = HWT_MS(end_ms - 1);
		struct probe probe = {
		    .then = then_take_data_ns, .data = &taken_ns};

		manual_open(NULL);
		probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(3));
		assert_u64(manual_tick(1), 1);

		assert_u64(ticks_of_runs(&probe, end_ms, 17),
		    TICK(10) | TICK(13) | TICK(16));
		manual_close();
	}
}

ExecutorTest(
    periodic, runs_never_overlap_while_an_executor_holds_one, EXECUTOR_HOLDS)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(2));
	assert_u64(ticks_of_runs(&probe, 1, 10), 0);
	assert_u64(executor.count, 1);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	assert_ok(executor_run(&executor, 0));
	assert_u64(probe.runs, 1);

	manual_tick(11);
	assert_u64(executor.count, 2);
	manual_tick(13);

	assert_u64(executor.count, 2);
	assert_ok(executor_run(&executor, 1));
	assert_u64(probe.runs, 2);
}

ManualTest(periodic, the_longest_period_runs_once_and_stays_pending)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, HWT_MS(1), (UINT64_C(1) << 63) - 1);

	assert_u64(manual_tick(1), 1);

	assert_u64(manual_wait(), HWT_NEVER);
	assert_u64(manual_step(HWT_SEC(1)), 0);
	assert_i64(manual_remaining(probe.handle), INT64_MAX);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	assert_ok(hwt_cancel(manual.timer, probe.handle));
}

/* The end. */

static void
then_cancel_itself(struct probe *probe)
{
	struct hwt *timer = manual.timer;

	probe->rc = hwt_cancel(timer, probe->timeout);
	assert_rc(hwt_reschedule(timer, probe->timeout, 0), -ENOENT);
}

ManualTest(periodic, cancel_in_its_own_run_makes_that_run_the_last)
{
	struct probe probe = {.then = then_cancel_itself};

	probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(1));

	assert_u64(manual_tick(1), 1);

	assert_rc(probe.rc, -EINPROGRESS);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_rc(hwt_cancel(manual.timer, probe.handle), -ENOENT);
	assert_u64(manual_tick(9), 0);
	assert_u64(manual_stats().cancelled, 0);
}

ExecutorTest(periodic, cancel_while_an_executor_holds_it_wins_and_ends_it,
    EXECUTOR_HOLDS)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(1));
	manual_tick(1);

	assert_ok(hwt_cancel(manual.timer, probe.handle));

	assert_rc(executor_run(&executor, 0), -ENOENT);
	assert_u64(probe.runs, 0);
	manual_tick(9);
	assert_u64(executor.count, 1);
}

/* Rebasing. */

static void
then_reschedule_itself(struct probe *probe)
{
	probe->rc = hwt_reschedule(manual.timer, probe->timeout, HWT_US(1250));
}

ManualTest(periodic, rescheduled_by_its_own_task_it_gets_a_new_grid)
{
	struct probe probe = {.then = then_reschedule_itself};

	probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(4));
	assert_u64(manual_tick(1), 1);
	assert_ok(probe.rc);
	probe.then = NULL;
	assert_i64(manual_remaining(probe.handle), (int64_t)HWT_US(1250));

	assert_u64(ticks_of_runs(&probe, 2, 12), TICK(3) | TICK(7) | TICK(11));

	assert_u64(manual_stats().rescheduled, 1);
}

static void
then_never_again(struct probe *probe)
{
	probe->rc = hwt_reschedule(manual.timer, probe->timeout, HWT_NEVER);
}

ManualTest(periodic, its_task_may_put_it_off_for_ever)
{
	struct probe probe = {.then = then_never_again};

	probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(1));
	assert_u64(ticks_of_runs(&probe, 1, 9), TICK(1));
	assert_ok(probe.rc);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	probe.then = NULL;

	assert_ok(hwt_reschedule(manual.timer, probe.handle, HWT_MS(1)));

	assert_u64(ticks_of_runs(&probe, 10, 11), TICK(10) | TICK(11));
}

static void
then_reschedule_out_of_range(struct probe *probe)
{
	probe->rc =
	    hwt_reschedule(manual.timer, probe->timeout, UINT64_C(1) << 63);
}

ManualTest(periodic, a_reschedule_that_is_refused_leaves_its_grid)
{
	struct probe probe = {.then = then_reschedule_out_of_range};

	probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(2));

	assert_u64(ticks_of_runs(&probe, 1, 4), TICK(1) | TICK(3));

	assert_rc(probe.rc, -EINVAL);
}

ManualTest(periodic, rescheduled_between_runs_it_gets_a_new_grid)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(4));
	assert_u64(manual_tick(1), 1);

	assert_ok(hwt_reschedule(manual.timer, probe.handle, HWT_MS(6)));

	assert_u64(ticks_of_runs(&probe, 2, 15), TICK(7) | TICK(11) | TICK(15));
}

/* hwt_new_periodic. */

static int
new_periodic(hwt_timeout *timeout, uint64_t delay_ns, uint64_t period_ns)
{
	return hwt_new_periodic(manual.timer, NULL, timeout, forbidden_task,
	    NULL, delay_ns, period_ns);
}

ManualTest(periodic, one_call_schedules_one)
{
	struct probe probe = {0};

	assert_ok(hwt_new_periodic(manual.timer, NULL, &probe.handle,
	    probe_task, &probe, HWT_MS(2), HWT_MS(3)));

	assert_u64(ticks_of_runs(&probe, 1, 9), TICK(2) | TICK(5) | TICK(8));
	assert_u64(probe.timeout.id, probe.handle.id);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	assert_ok(hwt_cancel(manual.timer, probe.handle));
	assert_u64(ticks_of_runs(&probe, 10, 20), 0);
}

ManualTest(periodic, one_call_refuses_what_is_out_of_range)
{
	static const struct hwt_executor hollow;
	const uint64_t bad[][2] = {{0, 0}, {0, UINT64_C(1) << 63},
	    {0, HWT_NEVER}, {UINT64_C(1) << 63, 1}, {HWT_NEVER - 1, 1}};
	hwt_timeout timeout;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		timeout.id = 7;
		assert_rc(
		    new_periodic(&timeout, bad[i][0], bad[i][1]), -EINVAL);
		assert_u64(timeout.id, 0);
	}
	assert_rc(
	    hwt_new_periodic(NULL, NULL, NULL, forbidden_task, NULL, 0, 1),
	    -EINVAL);
	assert_rc(hwt_new_periodic(manual.timer, NULL, NULL, NULL, NULL, 0, 1),
	    -EINVAL);
	assert_rc(hwt_new_periodic(
		      manual.timer, &hollow, NULL, forbidden_task, NULL, 0, 1),
	    -EINVAL);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

ManualTestWith(periodic, one_call_is_refused_beyond_the_limit_and_after_stop,
    .tick_ns = HWT_MS(1), .max_pending = 1)
{
	hwt_timeout timeout = {7};

	assert_ok(new_periodic(NULL, HWT_NEVER, 1));

	assert_rc(hwt_new_periodic(
		      manual.timer, NULL, &timeout, forbidden_task, NULL, 0, 1),
	    -ENOBUFS);
	assert_u64(timeout.id, 0);
	assert_ok(hwt_stop(manual.timer, NULL));
	timeout.id = 7;
	assert_rc(hwt_new_periodic(
		      manual.timer, NULL, &timeout, forbidden_task, NULL, 0, 1),
	    -ESHUTDOWN);
	assert_u64(timeout.id, 0);
}

Test(periodic, one_call_is_refused_without_memory_or_a_thread)
{
	struct hwt *timer = worker_timer_open(HWT_MS(1));
	hwt_timeout timeout = {7};
	int rc;

	fault_arm(FAULT_THREAD, FAULT_ALWAYS);
	assert_rc(
	    hwt_new_periodic(timer, NULL, &timeout, forbidden_task, NULL, 0, 1),
	    -EAGAIN);
	fault_disarm();
	assert_u64(timeout.id, 0);
	worker_timer_close(timer);

	manual_open(NULL);
	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	do {
		timeout.id = 7;
		rc = new_periodic(&timeout, HWT_NEVER, 1);
	} while (rc == 0);
	fault_disarm();
	assert_rc(rc, -ENOMEM);
	assert_u64(timeout.id, 0);
	manual_close();
}
