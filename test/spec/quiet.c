/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quiet: nothing pending, no wake-up at all. Otherwise none before the earliest
 * deadline, but one per superseded earliest deadline and one per long sleep for
 * the first call that leaves work.
 *
 * On manual timers the sleep is the wait that hwt_next_wakeup returns. Of real
 * workers, the kernel counts context switches: a test watches for a while in
 * which a timer that is not quiet would be heard many times.
 */
#include "test/spec/support.h"

SUITE(quiet);

#define HOUR HWT_SEC(3600)

ManualTest(quiet, timeout_that_is_never_due_is_nothing_to_wait_for)
{
	schedule_forbidden(HWT_NEVER);
	assert_u64(manual_wait(), HWT_NEVER);

	assert_u64(manual_step(HOUR), 0);

	assert_u64(manual_wait(), HWT_NEVER);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
}

/* Real workers. */

static void
assert_silence(void)
{
	pid_t worker = live_settle();
	uint64_t wakeups = live_stats().wakeups;
	uint64_t switches =
	    thread_number(worker, "voluntary_ctxt_switches", 10);

	sleep_ns(HWT_MS(1000));

	assert_u64(
	    thread_number(worker, "voluntary_ctxt_switches", 10), switches);
	assert_u64(live_stats().wakeups, wakeups);
}

Test(quiet, worker_with_a_timeout_an_hour_away_never_wakes_up)
{
	for (uint64_t tick_ns = HWT_MS(1); tick_ns <= HWT_MS(100);
	     tick_ns *= 10) {
		live_open(&(struct hwt_options){.tick_ns = tick_ns});
		schedule_task(live.timer, forbidden_task, HOUR);
		live_pass_tick();

		assert_silence();
		live_close();
	}
}

WorkerTest(quiet, pushing_deadlines_out_leaves_the_worker_alone)
{
	hwt_timeout timeout = schedule_task(live.timer, forbidden_task, HOUR);
	uint64_t wakeups;

	live_pass_tick();
	live_settle();
	wakeups = live_stats().wakeups;
	for (uint64_t turn = 0; turn < 100000; turn++)
		assert_ok(hwt_reschedule(live.timer, timeout, HOUR + turn));

	live_settle();
	assert_u64(live_stats().wakeups, wakeups);
}

WorkerTest(quiet, first_call_that_leaves_work_costs_one_wake_up_per_long_sleep)
{
	uint64_t wakeups;

	assert_ok(hwt_start(live.timer));
	live_settle();
	wakeups = live_stats().wakeups;

	for (unsigned turn = 0; turn < 5; turn++) {
		schedule_task(
		    live.timer, forbidden_task, HOUR - turn * HWT_MIN(1));
		live_settle();
	}

	assert_u64(live_stats().wakeups - wakeups, 5);
}

/* One wake-up for the call, one for its deadline. */
Test(quiet, worker_sleeps_through_to_its_deadline)
{
	struct probe probe = {0};
	uint64_t wakeups;

	live_open(&(struct hwt_options){.tick_ns = HWT_MS(100)});
	assert_ok(hwt_start(live.timer));
	live_settle();
	wakeups = live_stats().wakeups;

	assert_ok(
	    hwt_new_timeout(live.timer, NULL, probe_task, &probe, HWT_MS(150)));
	wait_for(&probe.runs, 1);
	live_settle();

	cr_assert(live_stats().wakeups - wakeups <= 2);
	live_close();
}
