/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_read_stats: each counter, and what moves it.
 */
#include "test/spec/support_promises.h"

#include <string.h>

SUITE(stats);

static struct recording_executor executor;

static void
open_with_ticks_of_1_ms(const struct hwt_executor *hook)
{
	manual_open(&(struct hwt_options){
	    .tick_ns = HWT_MS(1), .ticks_per_wheel = 8, .executor = hook});
}

ManualTest(stats, null_is_refused)
{
	struct hwt_stats stats;

	assert_rc(hwt_read_stats(NULL, &stats), -EINVAL);
	assert_rc(hwt_read_stats(manual.timer, NULL), -EINVAL);
}

ManualTest(stats, a_new_timer_has_counted_nothing)
{
	struct hwt_stats stats;
	struct hwt_stats nothing = {0};

	stats = manual_stats();
	nothing.memory_bytes = stats.memory_bytes;

	cr_assert(memcmp(&stats, &nothing, sizeof(stats)) == 0);
	cr_assert(stats.memory_bytes >= FIXTURE_WHEEL * UINT64_C(8));
}

ManualTest(stats, scheduled_counts_what_was_accepted)
{
	const struct hwt_spec specs[3] = {{.task = forbidden_task},
	    {.task = forbidden_task, .period_ns = 1},
	    {.task = forbidden_task, .delay_ns = HWT_NEVER}};

	assert_ok(hwt_new_timeout(manual.timer, NULL, forbidden_task, NULL, 0));
	assert_ok(hwt_new_timeout_on(
	    manual.timer, NULL, NULL, forbidden_task, NULL, 0));
	assert_ok(hwt_new_timeouts(manual.timer, 3, specs, NULL));
	assert_rc(hwt_new_timeout(manual.timer, NULL, NULL, NULL, 0), -EINVAL);

	assert_u64(manual_stats().scheduled, 5);
	assert_u64(manual_stats().pending, 5);
}

ManualTest(stats, started_counts_each_run)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_MS(2));
	probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(1));

	for (uint64_t index = 1; index <= 5; index++)
		manual_tick(index);

	assert_u64(manual_stats().started, 6);
}

ManualTest(stats, cancelled_counts_the_cancels_that_won)
{
	hwt_timeout timeouts[3];

	for (size_t index = 0; index < 3; index++) {
		timeouts[index] =
		    schedule_task(manual.timer, forbidden_task, HWT_MS(5));
	}

	assert_ok(hwt_cancel(manual.timer, timeouts[0]));
	assert_ok(hwt_cancel_wait(manual.timer, timeouts[1]));
	assert_rc(hwt_cancel(manual.timer, timeouts[0]), -ENOENT);
	assert_rc(hwt_cancel_wait(manual.timer, timeouts[1]), -ENOENT);

	assert_u64(manual_stats().cancelled, 2);
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_u64(manual_stats().cancelled, 2);
}

ManualTest(stats, rescheduled_counts_the_reschedules_that_succeeded)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_MS(1));

	assert_ok(hwt_reschedule(manual.timer, probe.handle, HWT_MS(2)));
	assert_ok(hwt_reschedule(manual.timer, probe.handle, HWT_MS(1)));
	assert_rc(
	    hwt_reschedule(manual.timer, probe.handle, HWT_NEVER - 1), -EINVAL);
	manual_tick(1);
	assert_rc(
	    hwt_reschedule(manual.timer, probe.handle, HWT_MS(1)), -ENOENT);

	assert_u64(manual_stats().rescheduled, 2);
}

/* Slow tasks. */

static void
then_take_data_ns(struct probe *probe)
{
	manual.now_ns += *(uint64_t *)probe->data;
}

ManualTestWith(stats, slow_tasks_counts_what_took_longer_than_the_option_says,
    .tick_ns = HWT_MS(1), .slow_task_ns = HWT_US(100))
{
	uint64_t taken_ns = HWT_US(100);
	struct probe probe = {.then = then_take_data_ns, .data = &taken_ns};

	probe_schedule(&probe, 0);
	manual_tick(1);
	assert_u64(manual_stats().slow_tasks, 0);
	assert_u64(log_recorder_count(&manual.log), 0);

	taken_ns++;
	probe_schedule(&probe, 0);
	manual_tick(2);

	assert_u64(manual_stats().slow_tasks, 1);
	assert_u64(log_recorder_count(&manual.log), 1);
}

ManualTestWith(stats, slow_tasks_are_logged_once_a_second_at_most,
    .tick_ns = HWT_MS(1), .slow_task_ns = 1)
{
	uint64_t taken_ns = HWT_MS(500);
	struct probe probe = {.then = then_take_data_ns, .data = &taken_ns};

	for (uint64_t second = 0; second < 5; second++) {
		probe_schedule(&probe, 0);
		manual_step(HWT_MS(1));
		probe_schedule(&probe, 0);
		manual_step(HWT_MS(1));
	}

	assert_u64(manual_stats().slow_tasks, 10);
	assert_u64(log_recorder_count(&manual.log), 5);
}

Test(stats, a_slow_task_in_an_executor_does_not_hold_the_worker)
{
	uint64_t taken_ns = HWT_MS(500);
	struct probe probe = {.then = then_take_data_ns, .data = &taken_ns};

	executor_init(&executor, EXECUTOR_HOLDS);
	manual_open(&(struct hwt_options){.tick_ns = HWT_MS(1),
	    .slow_task_ns = 1,
	    .executor = &executor.hook});
	probe_schedule(&probe, 0);
	manual_tick(1);

	assert_ok(executor_run(&executor, 0));

	assert_u64(manual_stats().slow_tasks, 0);
	manual_close();
}

Test(stats, a_slow_task_that_an_executor_refused_holds_the_worker)
{
	uint64_t taken_ns = HWT_US(200);
	struct probe probe = {.then = then_take_data_ns, .data = &taken_ns};

	executor_init(&executor, EXECUTOR_REFUSES);
	manual_open(&(struct hwt_options){.tick_ns = HWT_MS(1),
	    .slow_task_ns = HWT_US(100),
	    .executor = &executor.hook});
	probe_schedule(&probe, 0);
	manual_tick(1);
	assert_u64(manual_stats().slow_tasks, 1);

	/* So does one that is run inside execute. */
	executor.mode = EXECUTOR_RUNS;
	probe_schedule(&probe, 0);
	manual_tick(2);

	assert_u64(manual_stats().slow_tasks, 2);
	assert_u64(probe.runs, 2);
	manual_close();
}

/* Ticks. */

ManualTest(stats, ticks_counts_those_begun_not_those_skipped)
{
	struct probe probe = {0};

	manual_tick(100);
	assert_u64(manual_stats().ticks, 0);
	probe_schedule(&probe, HWT_MS(1));
	probe_schedule(&probe, HWT_MS(1));
	probe_schedule(&probe, HWT_MS(700));

	manual_tick(1000);

	assert_u64(probe.runs, 3);
	assert_u64(manual_stats().ticks, 2);
}

ManualTest(stats, late_ticks_counts_those_begun_more_than_a_tick_late)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_MS(1));
	manual_tick(2);
	assert_u64(probe.runs, 1);
	assert_u64(manual_stats().late_ticks, 0);

	probe_schedule(&probe, HWT_MS(1));
	manual_step(HWT_MS(2) + 1);

	assert_u64(probe.runs, 2);
	assert_u64(manual_stats().late_ticks, 1);
}

WorkerTest(stats, wakeups_counts_the_returns_of_the_worker_from_sleep)
{
	static struct probe probe = {0};

	/* The first may come to a worker that has not slept yet. */
	for (uint64_t round = 1; round <= 4; round++) {
		assert_ok(hwt_new_timeout(
		    live.timer, NULL, probe_task, &probe, HWT_MS(2)));
		wait_for(&probe.runs, round);
		live_settle(thread_await("hwt-worker"));
	}

	cr_assert(live_stats().wakeups >= 3);
}

/* Lateness. */

static void
assert_lateness_only_in(unsigned element, uint64_t count)
{
	struct hwt_stats stats = manual_stats();

	for (unsigned index = 0; index < 64; index++) {
		assert_u64(stats.lateness_ns_histogram[index],
		    index == element ? count : 0);
	}
}

ManualTest(stats, lateness_of_0_and_of_1_ns_is_in_element_0)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_MS(1));
	manual_tick(1);
	assert_lateness_only_in(0, 1);
	assert_u64(manual_stats().lateness_ns_max, 0);

	probe_schedule(&probe, HWT_MS(1) - 1);
	manual_tick(2);

	assert_lateness_only_in(0, 2);
	assert_u64(manual_stats().lateness_ns_max, 1);
}

ManualTest(stats, lateness_counts_from_the_deadline_in_powers_of_two)
{
	static const uint64_t lateness[] = {2, 3, 4, 7, 8, 65535, 65536};
	static const unsigned element[] = {1, 1, 2, 2, 3, 15, 16};
	struct probe probe = {0};
	uint64_t expected[64] = {0};
	struct hwt_stats stats;

	for (size_t index = 0; index < 7; index++) {
		probe_schedule(&probe, HWT_MS(1) - lateness[index]);
		manual_tick(1 + index);
		expected[element[index]]++;
		assert_u64(manual_stats().lateness_ns_max, lateness[index]);
	}

	stats = manual_stats();
	for (size_t index = 0; index < 64; index++)
		assert_u64(stats.lateness_ns_histogram[index], expected[index]);
}

ManualTest(stats, lateness_of_a_stall_counts_whole_and_the_greatest_stays)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_MS(1));
	manual_step(HWT_MS(1) + (UINT64_C(1) << 40));
	assert_lateness_only_in(40, 1);
	probe_schedule(&probe, HWT_MS(1));
	manual_step(HWT_MS(1));

	assert_u64(manual_stats().lateness_ns_max, UINT64_C(1) << 40);
}

Test(stats, lateness_of_what_is_handed_over_counts_at_the_hand_over)
{
	struct probe probe = {0};

	executor_init(&executor, EXECUTOR_HOLDS);
	open_with_ticks_of_1_ms(&executor.hook);
	probe_schedule(&probe, HWT_MS(1));
	manual_tick(1);
	assert_lateness_only_in(0, 1);
	manual.now_ns += HWT_MS(900);

	assert_ok(executor_run(&executor, 0));

	assert_lateness_only_in(0, 1);
	manual_close();
}

ManualTest(stats, the_clock_is_read_at_least_once_per_16_timeouts)
{
	enum {
		COUNT = 1600
	};
	static struct probe probes[COUNT];
	uint64_t taken_ns = 1024;
	struct hwt_stats stats;
	uint64_t total = 0;
	uint64_t reads;

	for (size_t index = 0; index < COUNT; index++) {
		probes[index] = (struct probe){
		    .then = then_take_data_ns, .data = &taken_ns};
		probe_schedule(&probes[index], HWT_MS(1));
	}

	reads = manual.clock_reads;
	manual_tick(1);

	cr_assert(manual.clock_reads - reads >= COUNT / 16);
	stats = manual_stats();
	cr_assert(stats.lateness_ns_max > taken_ns * (COUNT - 1 - 16));
	cr_assert(stats.lateness_ns_max <= taken_ns * (COUNT - 1));
	for (size_t index = 0; index < 64; index++)
		total += stats.lateness_ns_histogram[index];
	assert_u64(total, COUNT);
}

/* Memory. */

/* A hundred in a bucket of their own take more of the wheel than a hundred in
 * one. */
Test(stats, memory_counts_what_the_wheel_takes)
{
	uint64_t bytes[2];

	for (uint64_t apart = 0; apart < 2; apart++) {
		uint64_t i;

		manual_open(&(struct hwt_options){.ticks_per_wheel = 1024});
		for (i = 1; i <= 100; i++)
			assert_ok(
			    hwt_new_timeout(manual.timer, NULL, forbidden_task,
				NULL, (1 + i * apart) * manual.tick_ns));
		(void)manual_wait();
		bytes[apart] = manual_stats().memory_bytes;
		manual_close();
	}

	cr_assert(bytes[1] - bytes[0] >= 90 * 128,
	    "%" PRIu64 " bytes, then %" PRIu64, bytes[0], bytes[1]);
}
