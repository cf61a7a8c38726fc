/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_next_wakeup and wake: how long a manual timer has nothing to do, and who
 * is told when that has become too long.
 */
#include "test/spec/support_promises.h"

#include <stdlib.h>

SUITE(next_wakeup);

static struct recording_executor executor;

/* Schedules one that must not run during the test. */
static hwt_timeout
schedule(uint64_t delay_ns)
{
	hwt_timeout timeout;

	timeout = schedule_task(manual.timer, forbidden_task, delay_ns);
	return timeout;
}

WorkerTest(next_wakeup, null_and_a_timer_with_a_worker_are_refused)
{
	uint64_t wait_ns = 77;

	manual_open(NULL);

	assert_rc(hwt_next_wakeup(live.timer, &wait_ns), -EINVAL);
	assert_rc(hwt_next_wakeup(NULL, &wait_ns), -EINVAL);
	assert_rc(hwt_next_wakeup(manual.timer, NULL), -EINVAL);

	assert_u64(wait_ns, 77);
	manual_close();
}

ManualTest(next_wakeup, with_nothing_pending_there_is_nothing_to_wait_for)
{
	assert_u64(manual_wait(), HWT_NEVER);

	schedule(HWT_NEVER);
	schedule((UINT64_C(1) << 63) - 1);

	assert_u64(manual_wait(), HWT_NEVER);
}

ManualTest(next_wakeup, it_is_the_time_to_the_boundary_of_the_earliest_deadline)
{
	schedule(HWT_MS(7));
	schedule(HWT_US(2500));
	schedule(HWT_MS(5));

	assert_u64(manual_wait(), HWT_MS(3));
	manual.now_ns += HWT_US(1200);
	assert_u64(manual_wait(), HWT_US(1800));
	assert_u64(manual_step(0), 0);
	assert_u64(manual_wait(), HWT_US(1800));
	manual.now_ns += HWT_US(1800) - 1;
	assert_u64(manual_wait(), 1);
}

ManualTest(next_wakeup, it_is_0_when_something_is_due)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_MS(2));
	manual.now_ns += HWT_MS(2);
	assert_u64(manual_wait(), 0);
	manual.now_ns += HWT_SEC(2);
	assert_u64(manual_wait(), 0);

	assert_u64(manual_step(0), 1);

	assert_u64(manual_wait(), HWT_NEVER);
}

ManualTest(next_wakeup, what_was_cancelled_is_not_waited_for)
{
	hwt_timeout placed;
	hwt_timeout queued;

	placed = schedule(HWT_MS(3));
	schedule(HWT_MS(20));
	manual_tick(1);
	queued = schedule(HWT_MS(1));

	assert_ok(hwt_cancel(manual.timer, queued));
	assert_ok(hwt_cancel(manual.timer, placed));

	assert_u64(manual_wait(), HWT_MS(19));
}

static void
then_ask(struct probe *probe)
{
	*(uint64_t *)probe->data = manual_wait();
}

ManualTest(next_wakeup, from_a_task_it_is_the_wait_to_the_next_boundary)
{
	uint64_t wait_ns = 0;
	struct probe probe = {.then = then_ask, .data = &wait_ns};

	probe_schedule(&probe, HWT_MS(1));

	assert_u64(manual_step(HWT_US(1300)), 1);

	assert_u64(wait_ns, HWT_US(700));
}

/* Wake. */

ManualTest(next_wakeup, an_earlier_deadline_calls_wake_once)
{
	schedule(HWT_MS(10));
	assert_u64(manual_wait(), HWT_MS(10));
	assert_u64(manual.wakes, 0);

	schedule(HWT_MS(5));
	assert_u64(manual.wakes, 1);
	schedule(HWT_MS(4));
	schedule(HWT_MS(3));

	assert_u64(manual.wakes, 1);
	assert_u64(manual_wait(), HWT_MS(3));
	schedule(HWT_MS(2));
	assert_u64(manual.wakes, 2);
}

ManualTest(next_wakeup, a_deadline_of_the_same_or_a_later_tick_calls_nobody)
{
	schedule(HWT_MS(10));
	assert_u64(manual_wait(), HWT_MS(10));

	schedule(HWT_MS(10));
	schedule(HWT_MS(9) + 1);
	schedule(HWT_MS(11));
	schedule(HWT_NEVER);
	assert_u64(manual.wakes, 0);

	schedule(HWT_MS(9));
	assert_u64(manual.wakes, 1);
}

ManualTest(next_wakeup, the_first_deadline_calls_one_who_waits_for_nothing)
{
	assert_u64(manual_wait(), HWT_NEVER);

	schedule(HWT_NEVER);
	assert_u64(manual.wakes, 0);
	schedule(HWT_MIN(60));

	assert_u64(manual.wakes, 1);
	assert_u64(manual_wait(), HWT_MIN(60));
}

ManualTest(next_wakeup, nobody_is_called_who_has_not_asked)
{
	struct probe probe = {0};

	schedule(HWT_MS(10));
	assert_u64(manual.wakes, 0);

	assert_u64(manual_wait(), HWT_MS(10));
	manual_tick(1);
	probe_schedule(&probe, 0);

	assert_u64(manual.wakes, 0);
}

ManualTest(next_wakeup, a_batch_calls_once)
{
	const struct hwt_spec specs[3] = {
	    {.task = forbidden_task, .delay_ns = HWT_MS(30)},
	    {.task = forbidden_task, .delay_ns = HWT_MS(5)},
	    {.task = forbidden_task, .delay_ns = HWT_MS(4)}};

	schedule(HWT_MS(10));
	assert_u64(manual_wait(), HWT_MS(10));

	assert_ok(hwt_new_timeouts(manual.timer, 3, specs, NULL));

	assert_u64(manual.wakes, 1);
}

ManualTest(next_wakeup, a_reschedule_calls_when_it_pulls_in_only)
{
	hwt_timeout near;
	hwt_timeout far;

	near = schedule(HWT_MS(10));
	far = schedule(HWT_MS(100));
	assert_u64(manual_wait(), HWT_MS(10));

	assert_ok(hwt_reschedule(manual.timer, near, HWT_MS(20)));
	assert_ok(hwt_reschedule(manual.timer, far, HWT_MS(200)));
	assert_ok(hwt_reschedule(manual.timer, far, HWT_MS(10)));
	assert_u64(manual.wakes, 0);
	assert_ok(hwt_reschedule(manual.timer, far, HWT_MS(5)));

	assert_u64(manual.wakes, 1);
	assert_u64(manual_wait(), HWT_MS(5));
}

ManualTest(
    next_wakeup, a_reschedule_calls_when_it_pulls_in_what_is_not_placed_yet)
{
	hwt_timeout queued;

	schedule(HWT_MS(10));
	assert_u64(manual_wait(), HWT_MS(10));
	queued = schedule(HWT_MS(20));
	assert_u64(manual.wakes, 0);

	assert_ok(hwt_reschedule(manual.timer, queued, HWT_MS(5)));

	assert_u64(manual.wakes, 1);
	assert_u64(manual_wait(), HWT_MS(5));
}

ExecutorTest(
    next_wakeup, a_periodic_timeout_run_by_an_executor_calls, EXECUTOR_HOLDS)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(5));
	manual_tick(1);
	assert_u64(manual_wait(), HWT_NEVER);

	assert_ok(executor_run(&executor, 0));

	assert_u64(manual.wakes, 1);
	assert_u64(manual_wait(), HWT_MS(5));
}

Test(next_wakeup, a_timer_without_a_wake_tells_nobody)
{
	struct hwt *timer = NULL;
	uint64_t wait_ns = 0;

	assert_ok(hwt_create(&timer,
	    &(struct hwt_options){.flags = HWT_MANUAL, .tick_ns = HWT_MS(1)}));
	assert_ok(hwt_next_wakeup(timer, &wait_ns));
	assert_u64(wait_ns, HWT_NEVER);

	assert_ok(
	    hwt_new_timeout(timer, NULL, forbidden_task, NULL, HWT_MIN(1)));

	assert_ok(hwt_next_wakeup(timer, &wait_ns));
	cr_assert(wait_ns <= HWT_MIN(1) + HWT_MS(1));
	worker_timer_close(timer);
}

ManualTest(
    next_wakeup, a_stopped_timer_with_many_placed_has_nothing_to_wait_for)
{
	for (unsigned index = 0; index < 512; index++)
		assert_ok(hwt_new_timeout(
		    manual.timer, NULL, forbidden_task, NULL, HWT_SEC(100)));
	manual_step(FIXTURE_TICK);
	assert_ok(hwt_stop(manual.timer, NULL));

	assert_u64(manual_wait(), HWT_NEVER);
}

#define MILLION 1000000

/* Readings of the clock show how often it looked whether to go on. */
static uint64_t
readings_of_a_wait_that_is_0(void)
{
	uint64_t before = manual.clock_reads;

	assert_u64(manual_wait(), 0);
	return manual.clock_reads - before;
}

ManualTest(
    next_wakeup, with_something_due_a_million_that_came_are_left_for_later)
{
	struct probe probe = {0};

	probe_schedule(&probe, FIXTURE_TICK);
	assert_u64(manual_wait(), FIXTURE_TICK);
	for (unsigned index = 0; index < MILLION; index++)
		schedule(HWT_SEC(3600));
	manual.now_ns += FIXTURE_TICK;

	cr_assert(readings_of_a_wait_that_is_0() < 10);

	cr_assert(queued_in(manual.timer) >= MILLION - MILLION / 100);
	assert_u64(manual_step(0), 1);
	assert_u64(queued_in(manual.timer), 0);
}

ManualTest(next_wakeup, with_something_due_so_is_what_a_million_left_that_went)
{
	hwt_timeout *timeouts = calloc(MILLION, sizeof(*timeouts));
	struct probe probe = {0};
	uint64_t bytes;

	cr_assert_not_null(timeouts);
	for (unsigned index = 0; index < MILLION; index++)
		timeouts[index] = schedule(HWT_MS(5) + HWT_US(1) * index);
	probe_schedule(&probe, FIXTURE_TICK);
	assert_u64(manual_wait(), FIXTURE_TICK);
	for (unsigned index = 0; index < MILLION; index++)
		assert_ok(hwt_cancel(manual.timer, timeouts[index]));
	bytes = manual_stats().memory_bytes;
	manual.now_ns += FIXTURE_TICK;

	cr_assert(readings_of_a_wait_that_is_0() < 10);

	/* A slab is all that it released. */
	cr_assert(manual_stats().memory_bytes >= bytes - (1 << 20));
	assert_u64(manual_step(0), 1);
	assert_u64(manual_wait(), HWT_NEVER);
	cr_assert(manual_stats().memory_bytes < bytes / 2);
	free(timeouts);
}
