/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_touch: moves the timeout that a variable names, or makes a new one, and
 * never loses a live one. Races are in test/explore.
 */
#include "test/spec/support.h"

SUITE(touch);

/* probe->handle is the variable. */
static void
touch(struct probe *probe, uint64_t delay_ns)
{
	assert_ok(hwt_touch(
	    manual.timer, NULL, &probe->handle, probe_task, probe, delay_ns));
}

ManualTest(touch, pending_timeout_moves_and_keeps_handle_task_and_arg)
{
	struct probe probe = {0};
	hwt_timeout first;

	touch(&probe, TICKS(3));
	first = probe.handle;
	manual_tick(2);

	assert_ok(hwt_touch(
	    manual.timer, NULL, &probe.handle, forbidden_task, NULL, TICKS(3)));

	assert_u64(probe.handle.id, first.id);
	assert_u64(ticks_of_runs(&probe, 3, 9), ON(5));
	assert_u64(manual_stats().scheduled, 1);
	assert_u64(manual_stats().rescheduled, 1);
}

ManualTest(touch, ended_timeout_gets_a_successor)
{
	struct probe probe = {0};
	hwt_timeout ended;

	touch(&probe, 0);
	assert_u64(manual_tick(1), 1);
	ended = probe.handle;

	touch(&probe, TICKS(2));

	cr_assert(probe.handle.id != ended.id);
	assert_u64(ticks_of_runs(&probe, 2, 9), ON(3));
}

ManualTest(touch, closed_variable_stays_closed)
{
	hwt_timeout closed = HWT_CLOSED;

	assert_rc(hwt_touch(manual.timer, NULL, &closed, idle_task, NULL, 0),
	    -ECANCELED);

	assert_u64(closed.id, UINT64_MAX);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_rc(hwt_cancel(manual.timer, closed), -ENOENT);
	assert_rc(hwt_reschedule(manual.timer, closed, 0), -ENOENT);
}

/* The variable, as wake finds it inside the call. */
static hwt_timeout *variable, seen;

static void
wake_reads(void *ctx)
{
	(void)ctx;
	seen = *variable;
}

Test(touch, variable_is_written_before_the_new_task_can_start)
{
	const struct hwt_wake wake = {.wake = wake_reads};
	struct probe probe = {0};

	manual_open(
	    &(struct hwt_options){.tick_ns = FIXTURE_TICK, .wake = &wake});
	variable = &probe.handle;
	touch(&probe, 0);
	manual_tick(1);
	assert_u64(manual_wait(), HWT_NEVER);

	touch(&probe, TICKS(1));

	assert_u64(seen.id, probe.handle.id);
	manual_close();
}
