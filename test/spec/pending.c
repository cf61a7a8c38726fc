/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_pending_timeouts: accepted and not yet started, cancelled or returned.
 */
#include "test/spec/support.h"

SUITE(pending);

static struct recording_executor executor;

static uint64_t
pending(void)
{
	uint64_t count = hwt_pending_timeouts(manual.timer);

	assert_u64(manual_stats().pending, count);
	return count;
}

Test(pending, null_has_none)
{
	assert_u64(hwt_pending_timeouts(NULL), 0);
}

ManualTest(pending, it_follows_each_schedule_cancel_and_start)
{
	struct probe probes[4];

	assert_u64(pending(), 0);
	for (size_t index = 0; index < 4; index++) {
		probes[index] = (struct probe){0};
		probe_schedule(&probes[index], HWT_MS(1 + index));
		assert_u64(pending(), 1 + index);
	}

	assert_ok(hwt_cancel(manual.timer, probes[3].handle));
	assert_u64(pending(), 3);
	assert_rc(hwt_cancel(manual.timer, probes[3].handle), -ENOENT);
	assert_u64(pending(), 3);
	assert_u64(manual_tick(1), 1);
	assert_u64(pending(), 2);
	assert_ok(hwt_cancel(manual.timer, probes[2].handle));
	assert_u64(pending(), 1);
	assert_ok(hwt_reschedule(manual.timer, probes[1].handle, HWT_MS(9)));
	assert_u64(pending(), 1);
	assert_u64(manual_tick(30), 1);
	assert_u64(pending(), 0);
}

static void
then_count(struct probe *probe)
{
	probe->rc = (int)hwt_pending_timeouts(manual.timer);
}

ManualTest(pending, a_one_shot_task_is_not_counted_in_its_own_run)
{
	struct probe probe = {.then = then_count};

	probe_schedule(&probe, 0);
	probe.rc = 77;

	assert_u64(manual_tick(1), 1);

	assert_i64(probe.rc, 0);
}

ExecutorTest(
    pending, what_an_executor_holds_is_counted_until_it_starts, EXECUTOR_HOLDS)
{
	struct probe probe = {.then = then_count};

	probe_schedule(&probe, 0);
	manual_tick(1);
	assert_u64(executor.count, 1);
	assert_u64(pending(), 1);

	assert_ok(executor_run(&executor, 0));

	assert_i64(probe.rc, 0);
	assert_u64(pending(), 0);
}

ExecutorTest(pending, stop_leaves_none_but_what_executors_hold, EXECUTOR_HOLDS)
{
	struct probe held = {0};

	probe_schedule(&held, 0);
	manual_tick(1);
	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, forbidden_task, NULL, HWT_SEC(1)));
	assert_u64(pending(), 2);

	assert_ok(hwt_stop(manual.timer, NULL));

	assert_u64(pending(), 1);
	assert_ok(hwt_cancel(manual.timer, held.handle));
	assert_u64(pending(), 0);
	assert_rc(executor_run(&executor, 0), -ENOENT);
	assert_u64(pending(), 0);
}

/* A thread keeps memory of its own for few timers at a time. */
#define MANY 12
#define TURNS 1000

Test(pending, it_is_exact_on_each_of_many_timers_that_one_thread_uses_in_turn)
{
	struct hwt_options options = {.flags = HWT_MANUAL};
	struct hwt *timers[MANY];
	hwt_timeout timeouts[MANY][2];

	for (unsigned index = 0; index < MANY; index++)
		assert_ok(hwt_create(&timers[index], &options));
	for (unsigned turn = 0; turn < TURNS; turn++) {
		for (unsigned index = 0; index < MANY; index++) {
			hwt_timeout *mine = timeouts[index];

			if (turn >= 2)
				assert_ok(
				    hwt_cancel(timers[index], mine[turn % 2]));
			mine[turn % 2] = schedule_task(
			    timers[index], forbidden_task, HWT_SEC(1));
			assert_u64(hwt_pending_timeouts(timers[index]),
			    turn == 0 ? 1 : 2);
		}
	}

	for (unsigned index = 0; index < MANY; index++) {
		struct hwt_unprocessed unprocessed;

		assert_ok(hwt_stop(timers[index], &unprocessed));
		assert_u64(unprocessed.count, 2);
		assert_ok(hwt_destroy(timers[index]));
	}
}

Test(pending, without_memory_it_stays_on_timers_that_a_thread_keeps_none_for)
{
	struct hwt_options options = {.flags = HWT_MANUAL};
	struct hwt *timers[MANY];
	hwt_timeout timeout;
	unsigned index;

	for (index = 0; index < MANY; index++)
		assert_ok(hwt_create(&timers[index], &options));
	for (index = 0; index < MANY - 1; index++)
		assert_ok(hwt_new_timeout(
		    timers[index], NULL, forbidden_task, NULL, HWT_SEC(1)));
	fault_arm(FAULT_MMAP, FAULT_ALWAYS);
	assert_rc(hwt_new_timeout(timers[index], &timeout, forbidden_task, NULL,
		      HWT_SEC(1)),
	    -ENOMEM);
	fault_disarm();

	assert_u64(timeout.id, 0);
	assert_u64(hwt_pending_timeouts(timers[index]), 0);
	for (index = 0; index < MANY; index++) {
		assert_ok(hwt_stop(timers[index], NULL));
		assert_ok(hwt_destroy(timers[index]));
	}
}
