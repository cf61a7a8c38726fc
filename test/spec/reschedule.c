/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_reschedule, hwt_reschedule_at, hwt_remaining, hwt_state: the one deadline
 * moves, the handle stays. Periodic timeouts are in periodic.c.
 */
#include "test/spec/support.h"

SUITE(reschedule);

/* The wheel is turned to turned_ns, and the clock goes on to called_ns. */
static const struct {
	const char *what;
	uint64_t delay_ns, turned_ns, called_ns, new_delay_ns, tick;
} moves[] = {
    {"out of the queue", TICKS(2), 0, 0, TICKS(21), 21},
    {"in, in the queue", TICKS(21), 0, 0, TICKS(2), 2},
    {"out of its bucket", TICKS(4), TICKS(2), TICKS(2), TICKS(21), 23},
    {"in, from its bucket", TICKS(30), TICKS(2), TICKS(2), TICKS(5), 7},
    {"counted from the call", TICKS(4), 0, HWT_US(1500), TICKS(4), 6},
    {"0: the next tick", TICKS(30), TICKS(3), TICKS(3), 0, 4},
    {"from 0 to a boundary", 0, 0, 0, TICKS(2), 2},
    {"to where it is", TICKS(5), TICKS(1), TICKS(1), TICKS(4), 5},
    {"due, but not begun", TICKS(3), TICKS(1), TICKS(10), TICKS(5), 15},
};

Test(reschedule, timeout_is_due_on_the_tick_of_its_new_delay_and_no_other)
{
	for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
		struct probe probe = {0};

		manual_open(NULL);
		probe_schedule(&probe, moves[i].delay_ns);
		if (moves[i].turned_ns > 0)
			manual_step(moves[i].turned_ns);
		manual.now_ns = manual.start_ns + moves[i].called_ns;

		assert_ok(hwt_reschedule(
		    manual.timer, probe.handle, moves[i].new_delay_ns));

		assert_i64(manual_remaining(probe.handle),
		    (int64_t)moves[i].new_delay_ns +
			(moves[i].new_delay_ns == 0));
		cr_assert(ticks_of_runs(&probe,
			      (unsigned)(moves[i].called_ns / FIXTURE_TICK) + 1,
			      40) == ON(moves[i].tick),
		    "%s", moves[i].what);
		assert_u64(probe.timeout.id, probe.handle.id);
		manual_close();
	}
}

ManualTest(reschedule, deadline_on_the_clock_moves_out_and_in)
{
	struct probe out = {0}, in = {0};

	probe_schedule(&out, TICKS(4));
	probe_schedule(&in, TICKS(30));
	manual_tick(2);

	assert_ok(hwt_reschedule_at(
	    manual.timer, out.handle, FIXTURE_START + TICKS(21)));
	assert_ok(hwt_reschedule_at(
	    manual.timer, in.handle, FIXTURE_START + TICKS(5)));

	assert_u64(ticks_of_runs(&in, 3, 20), ON(5));
	assert_u64(ticks_of_runs(&out, 21, 40), ON(21));
	assert_u64(manual_stats().rescheduled, 2);
}

#define MANY 3000

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

ExecutorTest(reschedule, cancelled_timeout_held_by_an_executor_has_no_state,
    EXECUTOR_HOLDS)
{
	hwt_timeout timeout = schedule_forbidden(0);

	manual_tick(1);
	assert_ok(hwt_cancel(manual.timer, timeout));

	assert_rc(manual_state(timeout), -ENOENT);
	assert_rc(executor_run(&recorder, 0), -ENOENT);
}
