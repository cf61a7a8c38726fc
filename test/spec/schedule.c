/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_new_timeout, hwt_new_timeout_on, hwt_new_timeout_at, hwt_now: what a task
 * gets, and deadlines at the ends of their range. Refusals are in errors.c.
 */
#include "test/spec/support.h"

SUITE(schedule);

#define CLOCK_END (UINT64_C(1) << 63)

static uint64_t
boundary(uint64_t tick)
{
	return FIXTURE_START + TICKS(tick);
}

static void
schedule_at(struct probe *probe, uint64_t deadline_ns)
{
	assert_ok(hwt_new_timeout_at(manual.timer, NULL, &probe->handle,
	    probe_task, probe, deadline_ns));
}

ManualTest(schedule, task_gets_its_handle_and_its_arg_once)
{
	struct probe probe = {0};
	hwt_timeout timeout = probe_schedule(&probe, HWT_US(1));

	assert_u64(ticks_of_runs(&probe, 1, 30), ON(1));

	assert_u64(probe.timeout.id, timeout.id);
}

static hwt_timeout written;
static _Atomic uint64_t equal, started;

static void
compare_task(hwt_timeout timeout, void *arg)
{
	(void)arg;
	equal += written.id == timeout.id;
	started++;
}

Test(schedule, handle_is_written_before_the_task_can_start)
{
	struct hwt *timer = worker_timer_open(HWT_US(10));

	for (uint64_t round = 1; round <= 500; round++) {
		written.id = 0;
		assert_ok(
		    hwt_new_timeout(timer, &written, compare_task, NULL, 0));
		while (started < round)
			sched_yield();
	}

	assert_u64(equal, 500);
	worker_timer_close(timer);
}

ManualTest(schedule, never_and_the_longest_delays_stay_pending)
{
	const uint64_t delays[] = {HWT_NEVER, CLOCK_END - 1, CLOCK_END - 2};

	for (unsigned i = 0; i < 3; i++)
		assert_i64(
		    manual_remaining(schedule_forbidden(delays[i])), INT64_MAX);

	assert_u64(manual_wait(), HWT_NEVER);
	assert_u64(manual_step(HWT_MIN(60)), 0);
	assert_u64(hwt_pending_timeouts(manual.timer), 3);
}

#define MANY 20000

/* Deadlines on the timer's clock. */

ManualTest(schedule, deadline_belongs_to_the_first_boundary_at_or_after_it)
{
	struct probe before = {0}, on = {0}, after = {0};

	schedule_at(&before, boundary(3) - 1);
	schedule_at(&on, boundary(3));
	schedule_at(&after, boundary(3) + 1);

	assert_u64(manual_tick(2), 0);
	assert_u64(manual_tick(3), 2);
	assert_u64(manual_tick(4), 1);
}

ManualTest(schedule, passed_deadline_is_due_at_the_next_boundary)
{
	const uint64_t passed[] = {0, 1, FIXTURE_START - 1, FIXTURE_START,
	    boundary(3) + 1, boundary(5)};
	struct probe probes[6] = {{0}};

	manual_tick(5);
	for (unsigned i = 0; i < 6; i++)
		schedule_at(&probes[i], passed[i]);

	assert_u64(manual_wait(), FIXTURE_TICK);
	assert_u64(manual_step(FIXTURE_TICK - 1), 0);
	assert_u64(manual_step(1), 6);
}

ManualTest(schedule, calls_with_a_deadline_read_no_clock)
{
	struct probe first = {0}, second = {0};
	uint64_t reads = manual.clock_reads;

	schedule_at(&first, boundary(9));
	assert_u64(manual.clock_reads, reads);
	manual_tick(1);

	reads = manual.clock_reads;
	schedule_at(&second, boundary(5));
	assert_ok(hwt_reschedule_at(manual.timer, first.handle, boundary(3)));
	assert_ok(hwt_reschedule_at(manual.timer, first.handle, HWT_NEVER));
	assert_u64(manual.clock_reads, reads);
}
