/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines on the timer's clock: hwt_now, hwt_new_timeout_at and
 * hwt_reschedule_at. That they answer -EOWNERDEAD in a child is in fork.c.
 */
#include "test/spec/support_promises.h"

SUITE(deadline);

#define CLOCK_END (UINT64_C(1) << 63)

static struct recording_executor executor;

/* The boundary of a tick on the fixture's clock. */
static uint64_t
boundary(uint64_t index)
{
	return manual.start_ns + index * manual.tick_ns;
}

static void
schedule_at(struct probe *probe, uint64_t deadline_ns)
{
	assert_ok(hwt_new_timeout_at(manual.timer, NULL, &probe->handle,
	    probe_task, probe, deadline_ns));
}

static void
move_to(struct probe *probe, uint64_t deadline_ns)
{
	assert_ok(hwt_reschedule_at(manual.timer, probe->handle, deadline_ns));
}

/* hwt_now. */

ManualTest(deadline, now_is_a_manual_timers_own_clock)
{
	uint64_t now_ns = 0;

	assert_ok(hwt_now(manual.timer, &now_ns));
	assert_u64(now_ns, FIXTURE_START);

	manual.now_ns += 17;
	assert_ok(hwt_now(manual.timer, &now_ns));
	assert_u64(now_ns, FIXTURE_START + 17);
}

WorkerTest(deadline, now_is_the_monotonic_clock_of_a_worker)
{
	uint64_t before_ns, now_ns;

	for (unsigned turn = 0; turn < 10000; turn++) {
		before_ns = monotonic_ns();
		assert_ok(hwt_now(live.timer, &now_ns));
		cr_assert(before_ns <= now_ns && now_ns <= monotonic_ns());
	}
}

ManualTest(deadline, now_is_told_by_a_stopped_timer_too)
{
	uint64_t now_ns = 0;

	assert_ok(hwt_stop(manual.timer, NULL));

	assert_ok(hwt_now(manual.timer, &now_ns));

	assert_u64(now_ns, FIXTURE_START);
}

ManualTest(deadline, now_needs_a_timer_and_a_place)
{
	uint64_t now_ns = 7;

	assert_rc(hwt_now(NULL, &now_ns), -EINVAL);
	assert_rc(hwt_now(manual.timer, NULL), -EINVAL);
	assert_u64(now_ns, 7);
}

/* The grid. */

ManualTest(deadline, it_belongs_to_the_first_boundary_at_or_after_it)
{
	struct probe before = {0}, on = {0}, after = {0};

	schedule_at(&before, boundary(3) - 1);
	schedule_at(&on, boundary(3));
	schedule_at(&after, boundary(3) + 1);

	assert_u64(manual_tick(2), 0);
	assert_u64(manual_tick(3), 2);
	assert_u64(after.runs, 0);
	assert_u64(manual_tick(4), 1);
}

ManualTest(deadline, a_sum_with_now_is_the_same_as_a_delay)
{
	struct probe by_delay = {0}, by_deadline = {0};
	uint64_t now_ns;

	manual_step(HWT_US(2300));
	assert_ok(hwt_now(manual.timer, &now_ns));
	probe_schedule(&by_delay, HWT_US(4900));
	schedule_at(&by_deadline, now_ns + HWT_US(4900));

	assert_i64(manual_remaining(by_deadline.handle),
	    manual_remaining(by_delay.handle));
	assert_u64(tick_of_run(&by_deadline, 3, 20), 8);
	assert_u64(by_deadline.started_ns, by_delay.started_ns);
}

ManualTest(deadline, what_has_passed_is_due_at_the_next_boundary)
{
	struct probe probes[6];
	uint64_t passed[6];

	manual_tick(5);
	passed[0] = 0;
	passed[1] = 1;
	passed[2] = manual.start_ns - 1;
	passed[3] = manual.start_ns;
	passed[4] = boundary(3) + 1;
	passed[5] = boundary(5);
	for (unsigned index = 0; index < 6; index++) {
		probes[index] = (struct probe){0};
		schedule_at(&probes[index], passed[index]);
	}

	assert_u64(manual_wait(), FIXTURE_TICK);
	assert_u64(manual_step(FIXTURE_TICK - 1), 0);
	assert_u64(manual_step(1), 6);
}

ManualTest(deadline, the_boundary_of_the_making_has_been_begun)
{
	struct probe probe = {0};

	schedule_at(&probe, manual.start_ns);

	assert_u64(tick_of_run(&probe, 0, 3), 1);
}

ManualTest(deadline, a_boundary_that_has_passed_but_was_not_begun_is_due)
{
	struct probe on = {0}, between = {0}, later = {0};

	manual_tick(3);
	manual.now_ns = boundary(7) + HWT_US(500);
	schedule_at(&on, boundary(7));
	schedule_at(&between, boundary(5) + 1);
	schedule_at(&later, boundary(7) + 1);

	assert_u64(manual_wait(), 0);
	assert_u64(manual_step(0), 2);
	cr_assert(between.order < on.order);
	assert_u64(manual_wait(), HWT_US(500));
	assert_u64(manual_tick(8), 1);
}

/* A task that schedules its next run one period after its last deadline. */
struct chain {
	struct probe probe;
	uint64_t deadline_ns;
	uint64_t period_ns;
};

static void
then_schedule_the_next(struct probe *probe)
{
	struct chain *chain = (struct chain *)probe;

	chain->deadline_ns += chain->period_ns;
	assert_ok(hwt_new_timeout_at(probe->fixture->timer, NULL, NULL,
	    probe_task, probe, chain->deadline_ns));
}

ManualTest(deadline, what_a_task_sets_to_the_past_waits_for_the_next_boundary)
{
	struct chain chain = {.probe = {.then = then_schedule_the_next}};
	struct probe fourth = {0}, ninth = {0};

	chain.deadline_ns = boundary(1);
	chain.period_ns = HWT_MS(1);
	schedule_at(&chain.probe, chain.deadline_ns);
	schedule_at(&fourth, boundary(4) - 1);
	schedule_at(&ninth, boundary(9));

	assert_u64(manual_tick(8), 2);
	assert_u64(chain.probe.runs, 1);
	assert_u64(fourth.order, 2);
	assert_u64(manual_step(HWT_US(999)), 0);
	assert_u64(manual_tick(9), 2);
	assert_u64(chain.probe.runs, 2);
	assert_u64(manual_stats().ticks, 3);
}

static void
then_take_three_ticks(struct probe *probe)
{
	manual.now_ns += 3 * manual.tick_ns;
	then_schedule_the_next(probe);
}

ManualTest(deadline, long_tasks_that_set_what_has_passed_hold_up_no_other)
{
	struct chain chain = {.probe = {.then = then_take_three_ticks}};
	struct probe innocent[10] = {{0}};

	schedule_at(&chain.probe, 0);
	for (unsigned i = 0; i < 10; i++)
		schedule_at(&innocent[i], boundary(20 * (i + 1)));

	for (unsigned i = 0; i < 10; i++) {
		while (innocent[i].runs == 0)
			(void)manual_step(manual.tick_ns);
		cr_assert(manual.now_ns <= boundary(20 * (i + 1) + 2 * 4));
	}
}

/* Clock. */

ManualTest(deadline, setting_one_reads_no_clock)
{
	struct probe fresh = {0}, placed = {0}, reused = {0};
	uint64_t reads;

	reads = manual.clock_reads;
	schedule_at(&placed, boundary(9)); /* nothing is at hand yet */
	assert_u64(manual.clock_reads, reads);
	manual_tick(1);

	reads = manual.clock_reads;
	schedule_at(&fresh, boundary(5));
	move_to(&placed, boundary(20));
	move_to(&placed, boundary(3));
	move_to(&placed, HWT_NEVER);
	move_to(&placed, 0);
	assert_ok(hwt_cancel(manual.timer, fresh.handle));
	schedule_at(&reused, boundary(2000));
	assert_u64(manual.clock_reads, reads);
}

ManualTestWith(deadline, with_hwt_relaxed_it_is_as_exact_as_without,
    .tick_ns = HWT_MS(1), .flags = HWT_RELAXED)
{
	struct probe probe = {0}, moved = {0};

	manual.now_ns += HWT_US(300);
	schedule_at(&probe, boundary(3));
	/* Its delay has not begun yet. */
	probe_schedule(&moved, HWT_MS(1));
	move_to(&moved, boundary(4));

	assert_i64(manual_remaining(probe.handle), (int64_t)HWT_US(2700));
	assert_i64(manual_remaining(moved.handle), (int64_t)HWT_US(3700));
	assert_u64(manual_tick(2), 0);
	assert_u64(manual_tick(3), 1);
	assert_u64(manual_tick(4), 1);
}

/* Range and errors. */

ManualTest(deadline, from_the_end_of_the_clock_on_it_is_never)
{
	const uint64_t never[] = {
	    CLOCK_END - 1, CLOCK_END, CLOCK_END + 1, HWT_NEVER - 1, HWT_NEVER};
	struct probe probes[5], moved = {0};

	schedule_at(&moved, boundary(2));
	for (unsigned index = 0; index < 5; index++) {
		probes[index] = (struct probe){0};
		schedule_at(&probes[index], never[index]);
		move_to(&moved, never[index]);
		assert_i64(manual_remaining(probes[index].handle), INT64_MAX);
		assert_i64(manual_remaining(moved.handle), INT64_MAX);
	}

	assert_u64(manual_wait(), HWT_NEVER);
	assert_u64(manual_tick(1000), 0);
	assert_u64(hwt_pending_timeouts(manual.timer), 6);
}

ManualTest(deadline, the_last_one_on_the_clock_is_one)
{
	struct probe probe = {0};

	schedule_at(&probe, CLOCK_END - 2);

	assert_i64(manual_remaining(probe.handle),
	    (int64_t)(CLOCK_END - 2 - FIXTURE_START));
}

Test(deadline, of_0_counts_as_1)
{
	struct probe probe = {0};

	manual.start_ns = 1;
	manual_open(NULL);
	schedule_at(&probe, 0);
	assert_i64(manual_remaining(probe.handle), 0);
	move_to(&probe, boundary(5));
	move_to(&probe, 0);
	assert_i64(manual_remaining(probe.handle), 0);

	assert_u64(tick_of_run(&probe, 1, 3), 1);
	manual_close();
}

ManualTest(deadline, what_is_missing_is_refused)
{
	static const struct hwt_executor hollow;
	hwt_timeout timeout = {7};

	assert_rc(
	    hwt_new_timeout_at(NULL, NULL, &timeout, forbidden_task, NULL, 0),
	    -EINVAL);
	assert_u64(timeout.id, 0);
	timeout.id = 7;
	assert_rc(
	    hwt_new_timeout_at(manual.timer, NULL, &timeout, NULL, NULL, 0),
	    -EINVAL);
	assert_u64(timeout.id, 0);
	timeout.id = 7;
	assert_rc(hwt_new_timeout_at(
		      manual.timer, &hollow, &timeout, forbidden_task, NULL, 0),
	    -EINVAL);
	assert_u64(timeout.id, 0);
	assert_rc(hwt_reschedule_at(NULL, timeout, 0), -EINVAL);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

ManualTest(deadline, a_stopped_timer_takes_none)
{
	hwt_timeout timeout = {7};

	assert_ok(hwt_stop(manual.timer, NULL));

	assert_rc(hwt_new_timeout_at(manual.timer, NULL, &timeout,
		      forbidden_task, NULL, boundary(1)),
	    -ESHUTDOWN);

	assert_u64(timeout.id, 0);
}

ManualTestWith(
    deadline, the_limit_holds_for_it, .tick_ns = HWT_MS(1), .max_pending = 1)
{
	struct probe probe = {0};
	hwt_timeout timeout = {7};

	schedule_at(&probe, HWT_NEVER);

	assert_rc(hwt_new_timeout_at(manual.timer, NULL, &timeout,
		      forbidden_task, NULL, boundary(1)),
	    -ENOBUFS);

	assert_u64(timeout.id, 0);
	assert_u64(manual_stats().rejected, 1);
	assert_ok(hwt_cancel(manual.timer, probe.handle));
	schedule_at(&probe, HWT_NEVER);
}

Test(deadline, without_memory_or_a_thread_it_is_refused)
{
	struct hwt *timer = worker_timer_open(HWT_MS(1));
	hwt_timeout timeout = {7};

	fault_arm(FAULT_THREAD, FAULT_ALWAYS);
	assert_rc(
	    hwt_new_timeout_at(timer, NULL, &timeout, forbidden_task, NULL, 0),
	    -EAGAIN);
	fault_disarm();
	assert_u64(timeout.id, 0);

	timeout.id = 7;
	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	assert_rc(
	    hwt_new_timeout_at(timer, NULL, &timeout, forbidden_task, NULL, 0),
	    -ENOMEM);
	fault_disarm();
	assert_u64(timeout.id, 0);
	worker_timer_close(timer);
}

/* Waking. */

ManualTest(deadline, one_before_the_announced_wait_wakes_once)
{
	struct probe late = {0}, early = {0}, earlier = {0};

	manual_tick(1);
	schedule_at(&late, boundary(20));
	assert_u64(manual_wait(), HWT_MS(19));

	schedule_at(&early, boundary(20) - 1);
	assert_u64(manual.wakes, 0);
	move_to(&early, boundary(19));
	assert_u64(manual.wakes, 1);
	schedule_at(&earlier, boundary(3));
	assert_u64(manual.wakes, 1);

	assert_u64(manual_wait(), HWT_MS(2));
}

/* It cannot be earlier than the next boundary, whatever has passed. */
ManualTest(deadline, none_wakes_from_a_sleep_to_the_next_boundary)
{
	struct probe next = {0}, passed = {0};

	manual_tick(5);
	schedule_at(&next, boundary(6));
	assert_u64(manual_wait(), HWT_MS(1));

	schedule_at(&passed, boundary(2));
	move_to(&passed, 0);

	assert_u64(manual.wakes, 0);
	assert_u64(manual_tick(6), 2);
}

/* hwt_reschedule_at. */

ManualTest(deadline, a_pending_one_moves_out_and_in)
{
	struct probe out = {0}, in = {0};

	schedule_at(&out, boundary(4));
	schedule_at(&in, boundary(30));
	manual_tick(2);

	move_to(&out, boundary(21));
	move_to(&in, boundary(5));

	assert_u64(tick_of_run(&in, 3, 20), 5);
	assert_u64(tick_of_run(&out, 21, 40), 21);
	assert_u64(out.timeout.id, out.handle.id);
	assert_u64(manual_stats().rescheduled, 2);
}

ManualTest(deadline, one_that_has_ended_is_not_moved)
{
	struct probe probe = {0};

	schedule_at(&probe, 0);
	manual_tick(1);

	assert_rc(hwt_reschedule_at(manual.timer, probe.handle, 0), -ENOENT);
	assert_rc(
	    hwt_reschedule_at(manual.timer, (hwt_timeout){0}, 0), -ENOENT);
	assert_rc(hwt_reschedule_at(
		      manual.timer, (hwt_timeout){UINT64_MAX}, HWT_NEVER),
	    -ENOENT);
	assert_u64(manual_stats().rescheduled, 0);
}

ExecutorTest(deadline, one_that_was_handed_over_is_not_moved, EXECUTOR_HOLDS)
{
	struct probe probe = {0};

	schedule_at(&probe, 0);
	manual_tick(1);

	assert_rc(hwt_reschedule_at(manual.timer, probe.handle, boundary(9)),
	    -EINPROGRESS);

	assert_ok(executor_run(&executor, 0));
	assert_u64(probe.runs, 1);
}

static void
then_move_itself(struct probe *probe)
{
	const uint64_t *deadline_ns = probe->data;

	probe->then = NULL;
	probe->rc = hwt_reschedule_at(
	    probe->fixture->timer, probe->timeout, *deadline_ns);
}

/* Moves a periodic timeout of 10 ms, which runs at 10 ms, from its own task to
 * deadline_ns; returns the tick of its next run. The one after that follows a
 * whole number of periods after the deadline. */
static uint64_t
tick_after_own_move(uint64_t deadline_ns, uint64_t expected_phase)
{
	struct probe probe = {.then = then_move_itself, .data = &deadline_ns};
	uint64_t index, tick = 0;

	probe_schedule_periodic(&probe, HWT_MS(10), HWT_MS(10));
	for (index = 1; probe.runs < 3; index++) {
		manual_tick(index);
		if (probe.runs == 2 && tick == 0)
			tick = index;
	}
	assert_ok(probe.rc);
	assert_u64((index - 1) % 10, expected_phase);
	assert_ok(hwt_cancel(manual.timer, probe.handle));
	return tick;
}

ManualTest(deadline, a_periodic_task_moves_its_grid)
{
	assert_u64(tick_after_own_move(boundary(13), 3), 13);
}

ManualTest(
    deadline, a_periodic_task_that_moves_to_the_past_runs_at_the_next_boundary)
{
	assert_u64(tick_after_own_move(boundary(4), 4), 11);
}

ManualTest(deadline, a_periodic_task_may_move_to_the_deadline_of_its_own_run)
{
	assert_u64(tick_after_own_move(boundary(10), 0), 11);
}

ManualTest(deadline, a_pending_periodic_one_moves_its_grid)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, HWT_MS(2), HWT_MS(10));
	manual_tick(1);

	move_to(&probe, boundary(5));

	assert_u64(tick_of_run(&probe, 2, 14), 5);
	manual_tick(15);
	assert_u64(probe.runs, 2);
}
