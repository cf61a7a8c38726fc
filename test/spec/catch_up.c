/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catch-up: after a stall, SIGSTOP or suspend, empty ticks are skipped by
 * arithmetic and due ones run in tick order.
 */
#include "test/spec/support_promises.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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

ManualTest(catch_up, due_ones_run_in_tick_order)
{
	static struct probe probes[10 * FIXTURE_WHEEL];
	const unsigned count = 10 * FIXTURE_WHEEL;

	/* 37 and 80 have no common divisor: each tick once, in no order. */
	for (unsigned index = 0; index < count; index++) {
		unsigned tick = index * 37 % count;

		probe_schedule(&probes[tick], (tick + 1) * FIXTURE_TICK);
	}

	assert_u64(manual_step(HOUR), count);

	for (unsigned index = 0; index < count; index++)
		assert_u64(probes[index].order, index + 1);
}

ManualTest(catch_up, due_ones_far_apart_run_in_tick_order)
{
	struct probe probes[40];

	for (unsigned power = 40; power-- > 0;) {
		probes[power] = (struct probe){0};
		probe_schedule(&probes[power], FIXTURE_TICK << power);
	}

	assert_u64(manual_step(FIXTURE_TICK << 39), 40);

	for (unsigned power = 0; power < 40; power++)
		assert_u64(probes[power].order, power + 1);
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

ManualTest(catch_up, what_is_not_due_yet_is_not_touched_by_a_stall)
{
	static struct probe probes[4 * FIXTURE_WHEEL];
	const unsigned count = 4 * FIXTURE_WHEEL;

	/* One in each bucket and round; the stall ends inside the third. */
	for (unsigned index = 0; index < count; index++) {
		probe_schedule(&probes[index], (index + 1) * FIXTURE_TICK);
	}

	assert_u64(manual_tick(2 * FIXTURE_WHEEL + 3), 2 * FIXTURE_WHEEL + 3);
	for (unsigned index = 2 * FIXTURE_WHEEL + 3; index < count; index++) {
		assert_u64(manual_tick(index + 1), 1);
		assert_u64(probes[index].runs, 1);
	}
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

ManualTest(catch_up, runs_of_a_periodic_timeout_missed_in_a_stall_coalesce)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, 2 * FIXTURE_TICK, 3 * FIXTURE_TICK);

	/* The grid is 2, 5, .. 98, 101. */
	assert_u64(manual_tick(99), 1);
	assert_u64(manual_tick(100), 0);
	assert_u64(manual_tick(101), 1);

	assert_u64(probe.runs, 2);
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

struct stopped {
	struct probe early;
	struct probe late;
	_Atomic uint64_t wrong_order;
};

static void
then_checks_order(struct probe *probe)
{
	struct stopped *stopped = probe->data;

	if (stopped->early.runs != 1)
		stopped->wrong_order++;
}

static void
sigstop_child(void *arg)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct stopped stopped = {
	    .late = {.then = then_checks_order, .data = &stopped}};
	/* Their delays begin at one moment, however slow this thread is. */
	struct hwt_spec specs[] = {
	    {.task = probe_task, .arg = &stopped.late, .delay_ns = HWT_MS(300)},
	    {.task = probe_task,
		.arg = &stopped.early,
		.delay_ns = HWT_MS(200)},
	};
	struct hwt *timer;
	uint64_t called_ns;

	(void)arg;
	child_ok(hwt_create(&timer, &options));
	child_ok(hwt_new_timeouts(timer, 2, specs, NULL));
	child_ok(raise(SIGSTOP));

	/* Now both are overdue; what comes after them is not. */
	called_ns = monotonic_ns();
	while (stopped.late.runs == 0)
		sleep_ns(HWT_MS(1));
	child_check(stopped.wrong_order == 0);
	stopped.early.runs = 0;
	child_ok(hwt_new_timeout(
	    timer, NULL, probe_task, &stopped.early, HWT_MS(5)));
	while (stopped.early.runs == 0)
		sleep_ns(HWT_MS(1));
	child_check(monotonic_ns() - called_ns >= HWT_MS(5));
	child_ok(hwt_stop(timer, NULL));
	child_ok(hwt_destroy(timer));
}

Test(catch_up, after_a_sigstop_due_ones_run_in_tick_order)
{
	int status = 0;
	pid_t child = child_fork(sigstop_child, NULL);

	cr_assert(waitpid(child, &status, WUNTRACED) == child);
	cr_assert(WIFSTOPPED(status));

	sleep_ns(HWT_MS(400));
	cr_assert(kill(child, SIGCONT) == 0);

	cr_assert(child_wait(child) == 0);
}
