/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_new_timeout, hwt_new_timeout_on, hwt_new_timeout_at, hwt_now: what a task
 * gets, and deadlines at the ends of their range. Refusals are in errors.c.
 */
#include "test/spec/support.h"

SUITE(schedule);

#define CLOCK_END (UINT64_C(1) << 63)

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

ManualTest(schedule, calls_with_a_deadline_read_no_clock)
{
	struct probe probe = {0};
	uint64_t now_ns = 0, reads;

	assert_ok(hwt_now(manual.timer, &now_ns));
	assert_u64(now_ns, FIXTURE_START);
	reads = manual.clock_reads;
	assert_ok(hwt_new_timeout_at(manual.timer, NULL, &probe.handle,
	    probe_task, &probe, now_ns + TICKS(9)));
	assert_u64(manual.clock_reads, reads);
	manual_tick(1);

	reads = manual.clock_reads;
	assert_ok(hwt_reschedule_at(manual.timer, probe.handle, HWT_NEVER));
	assert_ok(
	    hwt_reschedule_at(manual.timer, probe.handle, now_ns + TICKS(3)));
	assert_u64(manual.clock_reads, reads);
	assert_u64(ticks_of_runs(&probe, 2, 9), ON(3));
}
