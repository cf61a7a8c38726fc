/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catch-up: after a stall, SIGSTOP or suspend, empty ticks are skipped by
 * arithmetic and due ones run in tick order. A worker that SIGSTOP stops is in
 * test/stress/sigstop.c.
 */
#include "test/spec/support.h"

SUITE(catch_up);

#define HOUR HWT_SEC(3600)

ManualTest(catch_up, hours_of_stall_then_the_next_tick_is_on_time)
{
	struct probe before = {0}, after = {0};

	probe_schedule(&before, FIXTURE_TICK);

	assert_u64(manual_step(5 * HOUR + 1), 1);
	assert_u64(before.runs, 1);

	probe_schedule(&after, FIXTURE_TICK - 1);
	assert_u64(manual_step(FIXTURE_TICK - 2), 0);
	assert_u64(manual_step(1), 1);
}

ManualTestWith(catch_up, empty_ticks_are_skipped_by_arithmetic,
    .tick_ns = HWT_US(10), .ticks_per_wheel = 512)
{
	struct probe probe = {0};

	/* 2^58 ns are some 10^13 ticks: whoever counts them never ends. */
	assert_u64(manual_step(UINT64_C(1) << 58), 0);
	probe_schedule(&probe, UINT64_C(1) << 57);
	assert_u64(manual_step(UINT64_C(1) << 57), 0);
	assert_u64(manual_step(HWT_US(10)), 1);
}

ManualTest(catch_up, what_was_scheduled_in_the_stall_counts_from_its_call)
{
	struct probe due = {0}, not_due = {0};

	/* Nobody advances; the clock goes on between the calls. */
	manual.now_ns += HOUR;
	probe_schedule(&due, FIXTURE_TICK);
	manual.now_ns += HOUR;
	probe_schedule(&not_due, FIXTURE_TICK);

	assert_u64(manual_step(0), 1);
	assert_u64(due.runs, 1);
	assert_u64(manual_step(FIXTURE_TICK), 1);
}

static void
then_schedules_for_the_next_tick(struct probe *probe)
{
	probe->rc = hwt_new_timeout(
	    manual.timer, NULL, probe_task, probe->data, FIXTURE_TICK);
}

ManualTest(catch_up, what_a_task_schedules_while_catching_up_waits_its_delay)
{
	struct probe next = {0};
	struct probe first = {
	    .then = then_schedules_for_the_next_tick, .data = &next};
	struct probe last = {0};

	probe_schedule(&first, FIXTURE_TICK);
	probe_schedule(&last, 50 * FIXTURE_TICK);

	assert_u64(manual_tick(60), 2);
	assert_ok(first.rc);
	assert_u64(next.runs, 0);
	assert_u64(manual_tick(61), 1);
}

static void
then_cancels(struct probe *probe)
{
	const hwt_timeout *victim = probe->data;

	probe->rc = hwt_cancel(manual.timer, *victim);
}

ManualTest(catch_up, what_is_overdue_can_still_be_cancelled_and_moved)
{
	hwt_timeout victim;
	struct probe canceller = {.then = then_cancels, .data = &victim};
	struct probe moved = {0};

	probe_schedule(&canceller, FIXTURE_TICK);
	victim = schedule_task(manual.timer, forbidden_task, 2 * FIXTURE_TICK);
	probe_schedule(&moved, 3 * FIXTURE_TICK);
	manual_step(0);

	manual.now_ns += 10 * FIXTURE_TICK;
	assert_i64(manual_remaining(moved.handle), -7 * (int64_t)FIXTURE_TICK);
	assert_ok(hwt_reschedule(manual.timer, moved.handle, FIXTURE_TICK));

	assert_u64(manual_step(0), 1);
	assert_ok(canceller.rc);
	assert_u64(moved.runs, 0);
	assert_u64(manual_tick(11), 1);
}

/* Uptime. The tick is the shortest, so that the counts are the greatest. */

static void
assert_on_tick_after(uint64_t ticks, uint32_t wheel)
{
	struct hwt_options options = {
	    .tick_ns = HWT_US(10), .ticks_per_wheel = wheel};
	uint64_t tick;

	manual_open(&options);
	manual_tick(ticks - 20);

	/* One due at each tick, all scheduled from before the mark. */
	for (tick = ticks - 19; tick < ticks + 20; tick++)
		assert_ok(hwt_new_timeout(manual.timer, NULL, idle_task, NULL,
		    (tick - (ticks - 20)) * HWT_US(10)));
	for (tick = ticks - 19; tick < ticks + 20; tick++)
		assert_u64(manual_tick(tick), 1);

	/* And more turns across it than a 32-bit count holds. */
	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, idle_task, NULL, (ticks + 5) * HWT_US(10)));
	assert_u64(manual_tick(2 * ticks + 23), 0);
	assert_u64(manual_tick(2 * ticks + 24), 1);
	manual_close();
}

Test(catch_up, an_uptime_of_more_than_2_32_ticks_keeps_every_tick)
{
	static const uint32_t wheels[] = {1, 8, 512};

	for (unsigned index = 0; index < 3; index++) {
		assert_on_tick_after(UINT64_C(1) << 31, wheels[index]);
		assert_on_tick_after(UINT64_C(1) << 32, wheels[index]);
		assert_on_tick_after(UINT64_C(1) << 40, wheels[index]);
	}
}

Test(catch_up, an_uptime_of_2_32_turns_of_the_wheel_keeps_every_tick)
{
	assert_on_tick_after((UINT64_C(1) << 32) * 8, 8);
	assert_on_tick_after((UINT64_C(1) << 32) * 512, 512);
}

/* SIGSTOP stops a real worker as a suspend does. */
