/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_reschedule: the one deadline moves, the handle stays. How it rebases a
 * periodic timeout is in periodic.c.
 */
#include "test/spec/support.h"

#include <stdlib.h>

SUITE(reschedule);

static struct fixture manual;
static struct recording_executor executor;

/* The tick on which probe runs for the first time, turning one by one. */
static uint64_t
tick_of_run(struct probe *probe, uint64_t first, uint64_t last)
{
	uint64_t tick = 0;
	uint64_t index;

	for (index = first; index <= last; index++) {
		fixture_tick(&manual, index);
		if (tick == 0 && probe->runs > 0)
			tick = index;
	}
	cr_assert(probe->runs <= 1, "it ran more than once");
	return tick;
}

Test(reschedule, before_the_wheel_was_turned_it_moves_out)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(2));

	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(21)), 0);

	assert_i64(
	    fixture_remaining(&manual, probe.handle), (int64_t)HWT_MS(21));
	assert_u64(tick_of_run(&probe, 1, 40), 21);
	fixture_close(&manual);
}

Test(reschedule, before_the_wheel_was_turned_it_moves_in)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(21));

	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(2)), 0);

	assert_u64(tick_of_run(&probe, 1, 40), 2);
	fixture_close(&manual);
}

Test(reschedule, out_of_the_wheel_it_moves_out)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(4));
	fixture_tick(&manual, 2);

	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(21)), 0);

	assert_u64(tick_of_run(&probe, 3, 40), 23);
	assert_u64(probe.timeout.id, probe.handle.id);
	fixture_close(&manual);
}

Test(reschedule, out_of_the_wheel_it_moves_in)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(30));
	fixture_tick(&manual, 2);

	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(5)), 0);

	assert_u64(tick_of_run(&probe, 3, 40), 7);
	assert_u64(probe.timeout.id, probe.handle.id);
	fixture_close(&manual);
}

Test(reschedule, the_delay_counts_from_the_call)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(4));
	manual.now_ns += HWT_US(1500);

	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(4)), 0);

	assert_i64(
	    fixture_remaining(&manual, probe.handle), (int64_t)HWT_MS(4));
	assert_u64(tick_of_run(&probe, 2, 10), 6);
	fixture_close(&manual);
}

Test(reschedule, a_delay_of_0_is_the_next_tick)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(30));
	fixture_tick(&manual, 3);

	assert_rc(hwt_reschedule(manual.timer, probe.handle, 0), 0);

	assert_u64(fixture_step(&manual, 0), 0);
	assert_u64(tick_of_run(&probe, 4, 9), 4);
	fixture_close(&manual);
}

Test(reschedule, from_a_delay_of_0_to_a_boundary_it_is_due_on_that)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, 0);

	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(2)), 0);

	assert_u64(tick_of_run(&probe, 1, 9), 2);
	fixture_close(&manual);
}

Test(reschedule, to_the_deadline_that_it_has_changes_nothing)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(5));
	fixture_tick(&manual, 1);

	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(4)), 0);

	assert_u64(tick_of_run(&probe, 2, 30), 5);
	fixture_close(&manual);
}

Test(reschedule, pushed_out_again_and_again_it_runs_once_at_the_last)
{
	struct probe probe = {.fixture = &manual};
	uint64_t index;

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(5));
	for (index = 1; index <= 100; index++) {
		assert_u64(fixture_tick(&manual, index), 0);
		assert_rc(
		    hwt_reschedule(manual.timer, probe.handle, HWT_MS(5)), 0);
	}

	assert_u64(tick_of_run(&probe, 101, 130), 105);
	assert_u64(fixture_stats(&manual).rescheduled, 100);
	assert_u64(fixture_stats(&manual).scheduled, 1);
	assert_u64(fixture_stats(&manual).started, 1);
	fixture_close(&manual);
}

Test(reschedule, pulled_in_again_and_again_it_runs_once_at_the_last)
{
	struct probe probe = {.fixture = &manual};
	uint64_t index;

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(500));
	for (index = 1; index <= 100; index++) {
		assert_u64(fixture_tick(&manual, index), 0);
		assert_rc(hwt_reschedule(manual.timer, probe.handle,
			      HWT_MS(300 - 2 * index)),
		    0);
	}

	assert_u64(tick_of_run(&probe, 101, 600), 200);
	fixture_close(&manual);
}

Test(reschedule, in_and_out_between_two_ticks_the_last_word_counts)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(10));
	fixture_tick(&manual, 1);
	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(1)), 0);
	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(30)), 0);
	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(2)), 0);
	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(6)), 0);

	assert_u64(tick_of_run(&probe, 2, 50), 7);
	fixture_close(&manual);
}

Test(reschedule, pushed_out_by_any_number_of_ticks_it_is_on_the_new_one)
{
	enum {
		COUNT = 40
	};
	struct probe probes[COUNT];
	uint64_t index;

	fixture_open(&manual, NULL);
	for (index = 0; index < COUNT; index++) {
		probes[index] = (struct probe){.fixture = &manual};
		probe_schedule(&probes[index], HWT_MS(3));
	}
	fixture_tick(&manual, 1);
	for (index = 0; index < COUNT; index++) {
		assert_rc(hwt_reschedule(manual.timer, probes[index].handle,
			      HWT_MS(2 + index)),
		    0);
	}

	for (index = 0; index < COUNT; index++) {
		assert_u64(fixture_tick(&manual, 3 + index), 1);
		assert_u64(probes[index].runs, 1);
	}
	fixture_close(&manual);
}

Test(reschedule, to_never_and_back)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(3));
	fixture_tick(&manual, 1);

	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_NEVER), 0);
	assert_i64(fixture_remaining(&manual, probe.handle), INT64_MAX);
	assert_u64(tick_of_run(&probe, 2, 50), 0);
	assert_u64(fixture_wait(&manual), HWT_NEVER);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);

	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(3)), 0);
	assert_u64(tick_of_run(&probe, 51, 60), 53);
	fixture_close(&manual);
}

Test(reschedule, it_may_be_cancelled_in_its_new_place)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(30));
	fixture_tick(&manual, 1);
	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(3)), 0);

	assert_rc(hwt_cancel(manual.timer, probe.handle), 0);

	assert_u64(tick_of_run(&probe, 2, 40), 0);
	assert_rc(
	    hwt_reschedule(manual.timer, probe.handle, HWT_MS(3)), -ENOENT);
	fixture_close(&manual);
}

Test(reschedule, the_range_of_delays_is_that_of_a_new_timeout)
{
	struct probe probe = {.fixture = &manual};
	const uint64_t edge = UINT64_C(1) << 63;

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(3));

	assert_rc(hwt_reschedule(manual.timer, probe.handle, edge), -EINVAL);
	assert_rc(
	    hwt_reschedule(manual.timer, probe.handle, HWT_NEVER - 1), -EINVAL);
	assert_i64(
	    fixture_remaining(&manual, probe.handle), (int64_t)HWT_MS(3));
	assert_u64(fixture_stats(&manual).rescheduled, 0);

	assert_rc(hwt_reschedule(manual.timer, probe.handle, edge - 1), 0);
	assert_i64(fixture_remaining(&manual, probe.handle), INT64_MAX);
	fixture_close(&manual);
}

Test(reschedule, a_null_timer_is_refused)
{
	assert_rc(hwt_reschedule(NULL, (hwt_timeout){1}, 0), -EINVAL);
}

Test(reschedule, one_that_has_ended_is_not_there)
{
	struct probe probe = {.fixture = &manual};
	hwt_timeout cancelled;

	fixture_open(&manual, NULL);
	probe_schedule(&probe, 0);
	cancelled = schedule_task(manual.timer, forbidden_task, HWT_MS(5));
	fixture_tick(&manual, 1);
	assert_rc(hwt_cancel(manual.timer, cancelled), 0);

	assert_rc(hwt_reschedule(manual.timer, probe.handle, 0), -ENOENT);
	assert_rc(hwt_reschedule(manual.timer, cancelled, 0), -ENOENT);
	assert_rc(hwt_reschedule(manual.timer, (hwt_timeout){0}, 0), -ENOENT);

	assert_u64(fixture_step(&manual, HWT_MS(30)), 0);
	fixture_close(&manual);
}

static void
then_reschedule_itself(struct probe *probe)
{
	probe->rc = hwt_reschedule(probe->fixture->timer, probe->timeout, 0);
}

Test(reschedule, a_one_shot_task_cannot_move_itself)
{
	struct probe probe = {
	    .fixture = &manual, .then = then_reschedule_itself};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(1));

	assert_u64(tick_of_run(&probe, 1, 20), 1);

	assert_rc(probe.rc, -EINPROGRESS);
	fixture_close(&manual);
}

Test(reschedule, what_was_handed_over_is_not_pulled_back)
{
	struct probe once = {.fixture = &manual};
	struct probe periodic = {.fixture = &manual};

	executor_init(&executor, EXECUTOR_HOLDS);
	fixture_open(
	    &manual, &(struct hwt_options){.executor = &executor.hook});
	probe_schedule(&once, 0);
	probe_schedule_periodic(&periodic, 0, HWT_SEC(1));
	fixture_tick(&manual, 1);
	assert_u64(executor.count, 2);

	assert_rc(
	    hwt_reschedule(manual.timer, once.handle, HWT_MS(5)), -EINPROGRESS);
	assert_rc(hwt_reschedule(manual.timer, periodic.handle, HWT_MS(5)),
	    -EINPROGRESS);

	assert_rc(executor_run(&executor, 0), 0);
	assert_rc(executor_run(&executor, 1), 0);
	assert_u64(once.runs + periodic.runs, 2);
	fixture_close(&manual);
}

Test(reschedule, from_outside_a_running_task_is_not_moved)
{
	struct hwt *timer = worker_timer_open(HWT_MS(1));
	struct gate gate;
	struct probe once = {.then = probe_then_gate, .data = &gate};
	struct probe periodic = once;
	struct hwt_spec spec = {
	    .task = probe_task, .arg = &periodic, .period_ns = HWT_MIN(1)};

	gate_init(&gate);
	assert_rc(
	    hwt_new_timeout(timer, &once.handle, probe_task, &once, 0), 0);
	gate_await(&gate);
	assert_rc(hwt_reschedule(timer, once.handle, 0), -EINPROGRESS);
	gate_open(&gate);

	assert_rc(hwt_new_timeouts(timer, 1, &spec, &periodic.handle), 0);
	gate_await(&gate);
	assert_rc(hwt_reschedule(timer, periodic.handle, 0), -EINPROGRESS);
	gate_open(&gate);

	wait_for(&periodic.runs, 1);
	worker_timer_close(timer);
	assert_u64(once.runs, 1);
	assert_u64(periodic.runs, 1);
}

static void
then_move_the_other(struct probe *probe)
{
	struct probe *other = probe->data;

	probe->then = NULL;
	other->then = NULL;
	probe->rc =
	    hwt_reschedule(probe->fixture->timer, other->handle, HWT_MS(2));
}

Test(reschedule, a_task_may_move_the_next_one_of_its_own_tick)
{
	struct probe one = {.fixture = &manual, .then = then_move_the_other};
	struct probe two = one;

	one.data = &two;
	two.data = &one;
	fixture_open(&manual, NULL);
	probe_schedule(&one, HWT_MS(1));
	probe_schedule(&two, HWT_MS(1));

	assert_u64(fixture_tick(&manual, 1), 1);
	assert_u64(one.runs + two.runs, 1);
	assert_rc(one.runs == 1 ? one.rc : two.rc, 0);

	assert_u64(fixture_tick(&manual, 2), 0);
	assert_u64(fixture_tick(&manual, 3), 1);
	assert_u64(one.runs, 1);
	assert_u64(two.runs, 1);
	fixture_close(&manual);
}

Test(reschedule, what_is_due_but_not_begun_can_be_pushed_out)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(3));
	fixture_tick(&manual, 1);
	manual.now_ns += HWT_MS(9);

	assert_rc(hwt_reschedule(manual.timer, probe.handle, HWT_MS(5)), 0);

	assert_u64(tick_of_run(&probe, 10, 30), 15);
	fixture_close(&manual);
}

Test(reschedule, it_needs_no_memory)
{
	struct probe queued = {.fixture = &manual};
	struct probe placed = {.fixture = &manual};
	unsigned round;

	fixture_open(&manual, NULL);
	probe_schedule(&placed, HWT_MS(9));
	fixture_tick(&manual, 1);
	probe_schedule(&queued, HWT_MS(9));

	fault_arm(FAULT_MEMORY | FAULT_KEY, FAULT_ALWAYS);
	for (round = 0; round < 100000; round++) {
		assert_rc(hwt_reschedule(manual.timer, placed.handle,
			      HWT_MS(100 - round % 90)),
		    0);
		assert_rc(hwt_reschedule(manual.timer, queued.handle,
			      HWT_MS(10 + round % 90)),
		    0);
	}
	assert_u64(fault_disarm(), 0);

	assert_u64(fixture_tick(&manual, 200), 2);
	fixture_close(&manual);
}

Test(reschedule, many_that_moved_each_run_on_their_own_tick)
{
	enum {
		COUNT = 1000
	};
	static struct probe probes[COUNT];
	uint64_t index;

	fixture_open(&manual, NULL);
	for (index = 0; index < COUNT; index++) {
		probes[index].fixture = &manual;
		probe_schedule(&probes[index], HWT_MS(1 + index * 7 % 90));
		if (index % 100 == 50)
			fixture_step(&manual, 0);
	}
	for (index = 0; index < COUNT; index++) {
		assert_rc(hwt_reschedule(manual.timer, probes[index].handle,
			      HWT_MS(1 + index)),
		    0);
	}

	for (index = 0; index < COUNT; index++) {
		assert_u64(fixture_tick(&manual, 1 + index), 1);
		assert_u64(probes[index].runs, 1);
	}
	fixture_close(&manual);
}

/* Passes the gate first. */
static void
then_move_itself_after_gate(struct probe *probe)
{
	struct gate *gate = probe->data;

	gate_pass(gate);
	probe->rc =
	    hwt_reschedule(probe->fixture->timer, probe->timeout, HWT_MS(1));
}

Test(reschedule, in_the_last_run_before_a_stop_there_is_nothing_to_move)
{
	struct gate gate;
	struct fixture worker = {.timer = worker_timer_open(HWT_MS(1))};
	struct probe probe = {.fixture = &worker,
	    .then = then_move_itself_after_gate,
	    .data = &gate};
	struct hwt_unprocessed list;

	gate_init(&gate);
	probe_schedule_periodic(&probe, 0, HWT_MS(1));
	gate_await(&gate);
	assert_rc(hwt_stop_within(worker.timer, 0, NULL), -ETIMEDOUT);
	gate_open(&gate);
	assert_rc(hwt_stop(worker.timer, &list), 0);

	assert_rc(probe.rc, -ENOENT);
	assert_u64(list.count, 0);
	assert_u64(probe.runs, 1);
	assert_rc(hwt_destroy(worker.timer), 0);
}

/* What a thread that has never used the timer does while there is no memory. */
#define STRANGE 3000

struct stranger {
	hwt_timeout queued[STRANGE];
	hwt_timeout placed[STRANGE];
	unsigned moved;
	unsigned cancelled;
	uint64_t calls;
};

static void
come_as_stranger(unsigned index, void *arg)
{
	struct stranger *stranger = arg;

	(void)index;
	fault_arm(FAULT_MEMORY | FAULT_KEY, FAULT_ALWAYS);
	for (index = 0; index < STRANGE; index++) {
		stranger->moved += hwt_reschedule(manual.timer,
				       stranger->placed[index], HWT_MS(2)) == 0;
		stranger->moved += hwt_reschedule(manual.timer,
				       stranger->queued[index], HWT_MS(2)) == 0;
	}
	for (index = 0; index < STRANGE; index += 2) {
		stranger->cancelled +=
		    hwt_cancel(manual.timer, stranger->placed[index]) == 0;
		stranger->cancelled +=
		    hwt_cancel(manual.timer, stranger->queued[index]) == 0;
	}
	stranger->calls = fault_disarm();
}

Test(reschedule, a_thread_new_to_the_timer_moves_and_cancels_without_memory)
{
	static struct stranger stranger;
	unsigned index;

	fixture_open(&manual, NULL);
	for (index = 0; index < STRANGE; index++)
		stranger.placed[index] =
		    schedule_task(manual.timer, idle_task, HWT_MS(9));
	fixture_tick(&manual, 1);
	for (index = 0; index < STRANGE; index++)
		stranger.queued[index] =
		    schedule_task(manual.timer, idle_task, HWT_MS(9));

	in_parallel(1, come_as_stranger, &stranger);

	assert_u64(stranger.moved, 2 * STRANGE);
	assert_u64(stranger.cancelled, STRANGE);
	assert_u64(stranger.calls, 0);
	assert_u64(fixture_tick(&manual, 3), STRANGE);
	fixture_close(&manual);
}

/* With a worker, on the way that is short: to put a timeout off, with the clock
 * and the thread's own cache at hand. The clock comes to be at hand by being
 * read for some milliseconds. */
static void
read_clock_often(struct hwt *timer, hwt_timeout timeout)
{
	uint64_t until_ns = monotonic_ns() + HWT_MS(30);
	int64_t remaining_ns;

	while (monotonic_ns() < until_ns)
		assert_rc(hwt_remaining(timer, timeout, &remaining_ns), 0);
}

struct working {
	struct hwt *timer;
	hwt_timeout timeout;
};

static void
put_off_often(unsigned index, void *arg)
{
	const struct working *working = arg;

	read_clock_often(working->timer, working->timeout);
	for (index = 0; index < 1000; index++)
		assert_rc(hwt_reschedule(
			      working->timer, working->timeout, HWT_SEC(7200)),
		    0);
}

static void
working_open(struct working *working)
{
	assert_rc(hwt_create(&working->timer, NULL), 0);
	working->timeout =
	    schedule_task(working->timer, idle_task, HWT_SEC(3600));
}

Test(reschedule, with_a_worker_each_one_counts_whoever_calls)
{
	struct working working;
	struct hwt_stats stats;

	working_open(&working);

	put_off_often(0, &working);
	in_parallel(2, put_off_often, &working);

	assert_rc(hwt_read_stats(working.timer, &stats), 0);
	assert_u64(stats.rescheduled, 3000);
	assert_rc(hwt_stop(working.timer, NULL), 0);
	assert_rc(hwt_destroy(working.timer), 0);
}

Test(reschedule, with_a_worker_no_delay_is_too_long_and_what_is_none_refused)
{
	struct working working;
	int64_t remaining_ns;
	unsigned index;

	working_open(&working);
	read_clock_often(working.timer, working.timeout);

	for (index = 0; index < 100; index++)
		assert_rc(hwt_reschedule(
			      working.timer, working.timeout, HWT_NEVER - 1),
		    -EINVAL);
	for (index = 0; index < 100; index++)
		assert_rc(
		    hwt_reschedule(working.timer, working.timeout, INT64_MAX),
		    0);

	assert_rc(
	    hwt_remaining(working.timer, working.timeout, &remaining_ns), 0);
	assert_i64(remaining_ns, INT64_MAX);
	assert_rc(hwt_stop(working.timer, NULL), 0);
	assert_rc(hwt_destroy(working.timer), 0);
}
