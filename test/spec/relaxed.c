/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HWT_RELAXED: a delay counts from the tick at which the timeout is taken
 * over, so that scheduling reads no clock.
 */
#include "test/spec/support_promises.h"

SUITE(relaxed);

static void
open_relaxed(void)
{
	manual_open(&(struct hwt_options){
	    .tick_ns = HWT_MS(1), .ticks_per_wheel = 8, .flags = HWT_RELAXED});
}

#define RelaxedTest(suite, name) \
	TestBetween(open_relaxed(), manual_close(), suite, name)

RelaxedTest(relaxed, scheduling_reads_no_clock)
{
	struct hwt_spec specs[2] = {
	    {.task = forbidden_task}, {.task = forbidden_task}};
	uint64_t reads;

	reads = manual.clock_reads;
	assert_ok(hwt_new_timeout(manual.timer, NULL, forbidden_task, NULL, 0));
	assert_ok(hwt_new_timeout_on(
	    manual.timer, NULL, NULL, forbidden_task, NULL, 0));
	assert_ok(hwt_new_timeouts(manual.timer, 2, specs, NULL));
	assert_u64(manual.clock_reads, reads);
}

RelaxedTest(relaxed, the_delay_counts_from_the_tick_that_takes_it_over)
{
	struct probe probe = {0};

	manual.now_ns += HWT_US(300);
	probe_schedule(&probe, HWT_MS(3));

	assert_u64(manual_tick(1), 0);
	assert_u64(manual_tick(3), 0);
	assert_u64(manual_tick(4), 1);
}

RelaxedTest(relaxed, until_it_is_taken_over_the_whole_delay_remains)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_MS(3));
	manual.now_ns += HWT_US(300);
	assert_i64(manual_remaining(probe.handle), (int64_t)HWT_MS(3));

	assert_u64(manual_tick(1), 0);
	assert_i64(manual_remaining(probe.handle), (int64_t)HWT_MS(3));
	manual.now_ns += HWT_US(300);
	assert_i64(manual_remaining(probe.handle), (int64_t)HWT_US(2700));
}

RelaxedTest(relaxed, never_stays_pending)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_NEVER);

	assert_u64(manual_tick(100), 0);

	assert_i64(manual_remaining(probe.handle), INT64_MAX);
}

RelaxedTest(relaxed, a_periodic_timeout_keeps_the_grid_of_its_first_deadline)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, HWT_MS(2), HWT_MS(5));

	for (uint64_t index = 1; index <= 13; index++) {
		assert_u64(manual_tick(index),
		    index == 3 || index == 8 || index == 13 ? 1 : 0);
	}
}

RelaxedTest(relaxed, a_reschedule_counts_from_the_call)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_MS(3));

	assert_ok(hwt_reschedule(manual.timer, probe.handle, HWT_MS(2)));
	assert_i64(manual_remaining(probe.handle), (int64_t)HWT_MS(2));

	assert_u64(manual_tick(1), 0);
	assert_u64(manual_tick(2), 1);
}

RelaxedTest(relaxed, what_was_not_taken_over_is_given_back_with_its_delay)
{
	struct hwt_unprocessed list;
	struct hwt_timeout_info info;

	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, forbidden_task, NULL, HWT_MS(7)));
	manual.now_ns += HWT_MS(50);

	assert_ok(hwt_stop(manual.timer, &list));

	cr_assert(hwt_unprocessed_next(&list, &info));
	assert_i64(info.remaining_ns, (int64_t)HWT_MS(7));
}

RelaxedTest(relaxed, any_schedule_wakes_the_thread_that_turns_the_wheel)
{
	assert_u64(manual_wait(), HWT_NEVER);

	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, forbidden_task, NULL, HWT_MIN(1)));
	assert_u64(manual.wakes, 1);

	assert_ok(hwt_new_timeout(manual.timer, NULL, forbidden_task, NULL, 0));
	assert_u64(manual.wakes, 1);
}

/* Its delay, taken for a moment, would lie behind what is waited for. */
RelaxedTest(relaxed, a_long_delay_wakes_as_well_while_a_short_one_is_waited_for)
{
	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, forbidden_task, NULL, HWT_MS(9)));
	assert_u64(manual_tick(1), 0);
	assert_u64(manual_wait(), HWT_MS(9));

	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, forbidden_task, NULL, HWT_MIN(1)));

	assert_u64(manual.wakes, 1);
}

static bool busy;
static uint64_t busy_readings;

/* A clock at each reading of which others have scheduled 64 more. */
static uint64_t
busy_clock(void *ctx)
{
	(void)ctx;
	if (busy && ++busy_readings <= 1000) {
		for (int i = 0; i < 64; i++)
			assert_ok(hwt_new_timeout(manual.timer, NULL,
			    forbidden_task, NULL, HWT_NEVER));
	}
	return manual.now_ns;
}

static const struct hwt_clock clock_of_busy = {.now_ns = busy_clock};

ManualTestWith(relaxed, who_schedules_fast_does_not_hold_the_turn,
    .flags = HWT_RELAXED, .clock = &clock_of_busy)
{
	busy = true;
	assert_u64(manual_step(0), 0);
	busy = false;

	cr_assert(busy_readings < 10, "%" PRIu64 " readings", busy_readings);
}

/* Each look finds more in the queue: then the wait is to the next boundary. */
ManualTestWith(relaxed, who_schedules_fast_does_not_hold_next_wakeup,
    .flags = HWT_RELAXED, .clock = &clock_of_busy)
{
	busy = true;
	assert_u64(manual_wait(), manual.tick_ns);
	busy = false;

	cr_assert(busy_readings < 20, "%" PRIu64 " readings", busy_readings);
}

/* Boundaries come one by one; the one after the call takes it over. */
Test(relaxed, a_task_starts_up_to_one_tick_later_than_without)
{
	const uint64_t step_ns = HWT_US(200);

	for (uint64_t phase_ns = 0; phase_ns < HWT_MS(1); phase_ns += step_ns) {
		for (uint64_t delay_ns = 0; delay_ns < HWT_MS(20);
		     delay_ns += step_ns) {
			struct probe probe = {0};
			uint64_t strict =
			    grid_tick(HWT_MS(1), phase_ns, delay_ns);
			uint64_t tick = 0;

			open_relaxed();
			manual_step(phase_ns);
			probe_schedule(&probe, delay_ns);
			while (probe.runs == 0)
				manual_tick(++tick);

			assert_u64(tick, 1 + grid_tick(HWT_MS(1), 0, delay_ns));
			cr_assert(tick == strict || tick == strict + 1);
			manual_close();
		}
	}
}

Test(relaxed, a_delay_of_whole_turns_is_not_a_round_off)
{
	for (uint64_t turns = 1; turns <= 4; turns++) {
		struct probe probe = {0};

		open_relaxed();
		manual_tick(5);
		probe_schedule(&probe, turns * HWT_MS(8));
		assert_u64(manual_tick(6), 0);

		assert_u64(manual_tick(6 + turns * 8 - 1), 0);
		assert_u64(manual_tick(6 + turns * 8), 1);
		manual_close();
	}
}

RelaxedTest(
    relaxed, a_deadline_that_lies_beyond_the_clock_when_it_is_taken_over_stays)
{
	hwt_timeout timeout;

	timeout = schedule_task(
	    manual.timer, forbidden_task, (UINT64_C(1) << 63) - 2);
	assert_i64(manual_remaining(timeout), INT64_MAX - 1);

	manual_tick(1);

	assert_i64(manual_remaining(timeout), INT64_MAX);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
}
