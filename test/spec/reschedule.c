/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_reschedule: the one deadline moves, the handle stays. How it rebases a
 * periodic timeout is in periodic.c.
 */
#include "test/spec/support.h"

SUITE(reschedule);

static struct recording_executor executor;

/* A timeout is made at 0, and moved once at some moment. Ticks are of 1 ms; the
 * wheel is turned up to turned_ns, and the clock goes on to called_ns. */
static const struct {
	const char *what;
	uint64_t delay_ns, turned_ns, called_ns, new_delay_ns;
	uint64_t due;
} moves[] = {
    {"out, not placed yet", HWT_MS(2), 0, 0, HWT_MS(21), 21},
    {"in, not placed yet", HWT_MS(21), 0, 0, HWT_MS(2), 2},
    {"out of its bucket", HWT_MS(4), HWT_MS(2), HWT_MS(2), HWT_MS(21), 23},
    {"in, in its bucket", HWT_MS(30), HWT_MS(2), HWT_MS(2), HWT_MS(5), 7},
    {"counted from the call", HWT_MS(4), 0, HWT_US(1500), HWT_MS(4), 6},
    {"0: the next tick", HWT_MS(30), HWT_MS(3), HWT_MS(3), 0, 4},
    {"from 0 to a boundary", 0, 0, 0, HWT_MS(2), 2},
    {"to where it is", HWT_MS(5), HWT_MS(1), HWT_MS(1), HWT_MS(4), 5},
    {"due, but not begun", HWT_MS(3), HWT_MS(1), HWT_MS(10), HWT_MS(5), 15},
};

Test(reschedule, it_is_due_on_the_tick_of_its_new_delay_and_no_other)
{
	for (size_t index = 0; index < sizeof(moves) / sizeof(moves[0]);
	     index++) {
		struct probe probe = {0};
		uint64_t tick;

		manual_open(NULL);
		probe_schedule(&probe, moves[index].delay_ns);
		if (moves[index].turned_ns > 0)
			manual_step(moves[index].turned_ns);
		manual.now_ns = manual.start_ns + moves[index].called_ns;

		assert_ok(hwt_reschedule(
		    manual.timer, probe.handle, moves[index].new_delay_ns));

		assert_i64(manual_remaining(probe.handle),
		    moves[index].new_delay_ns > 0
			? (int64_t)moves[index].new_delay_ns
			: 1);
		tick = tick_of_run(
		    &probe, moves[index].called_ns / HWT_MS(1) + 1, 40);
		cr_assert(tick == moves[index].due, "%s: on tick %" PRIu64,
		    moves[index].what, tick);
		assert_u64(probe.timeout.id, probe.handle.id);
		manual_close();
	}
}

ManualTest(reschedule, pushed_out_again_and_again_it_runs_once_at_the_last)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_MS(5));
	for (uint64_t index = 1; index <= 100; index++) {
		assert_u64(manual_tick(index), 0);
		assert_ok(
		    hwt_reschedule(manual.timer, probe.handle, HWT_MS(5)));
	}

	assert_u64(tick_of_run(&probe, 101, 130), 105);
	assert_u64(manual_stats().rescheduled, 100);
	assert_u64(manual_stats().scheduled, 1);
	assert_u64(manual_stats().started, 1);
}

ManualTest(reschedule, to_never_and_back)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_MS(3));
	manual_tick(1);

	assert_ok(hwt_reschedule(manual.timer, probe.handle, HWT_NEVER));
	assert_i64(manual_remaining(probe.handle), INT64_MAX);
	assert_u64(tick_of_run(&probe, 2, 50), 0);
	assert_u64(manual_wait(), HWT_NEVER);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);

	assert_ok(hwt_reschedule(manual.timer, probe.handle, HWT_MS(3)));
	assert_u64(tick_of_run(&probe, 51, 60), 53);
}

ManualTest(reschedule, the_range_of_delays_is_that_of_a_new_timeout)
{
	struct probe probe = {0};
	const uint64_t edge = UINT64_C(1) << 63;

	probe_schedule(&probe, HWT_MS(3));

	assert_rc(hwt_reschedule(manual.timer, probe.handle, edge), -EINVAL);
	assert_rc(
	    hwt_reschedule(manual.timer, probe.handle, HWT_NEVER - 1), -EINVAL);
	assert_i64(manual_remaining(probe.handle), (int64_t)HWT_MS(3));
	assert_u64(manual_stats().rescheduled, 0);

	assert_ok(hwt_reschedule(manual.timer, probe.handle, edge - 1));
	assert_i64(manual_remaining(probe.handle), INT64_MAX);
}

Test(reschedule, a_null_timer_is_refused)
{
	assert_rc(hwt_reschedule(NULL, (hwt_timeout){1}, 0), -EINVAL);
}

ManualTest(reschedule, one_that_has_ended_is_not_there)
{
	struct probe probe = {0};
	hwt_timeout cancelled;

	probe_schedule(&probe, 0);
	cancelled = schedule_task(manual.timer, forbidden_task, HWT_MS(5));
	manual_tick(1);
	assert_ok(hwt_cancel(manual.timer, cancelled));

	assert_rc(hwt_reschedule(manual.timer, probe.handle, 0), -ENOENT);
	assert_rc(hwt_reschedule(manual.timer, cancelled, 0), -ENOENT);
	assert_rc(hwt_reschedule(manual.timer, (hwt_timeout){0}, 0), -ENOENT);

	assert_u64(manual_step(HWT_MS(30)), 0);
}

static void
then_reschedule_itself(struct probe *probe)
{
	probe->rc = hwt_reschedule(probe->fixture->timer, probe->timeout, 0);
}

ManualTest(reschedule, a_one_shot_task_cannot_move_itself)
{
	struct probe probe = {.then = then_reschedule_itself};

	probe_schedule(&probe, HWT_MS(1));

	assert_u64(tick_of_run(&probe, 1, 20), 1);

	assert_rc(probe.rc, -EINPROGRESS);
}

ExecutorTest(
    reschedule, what_was_handed_over_is_not_pulled_back, EXECUTOR_HOLDS)
{
	struct probe once = {0}, periodic = {0};

	probe_schedule(&once, 0);
	probe_schedule_periodic(&periodic, 0, HWT_SEC(1));
	manual_tick(1);
	assert_u64(executor.count, 2);

	assert_rc(
	    hwt_reschedule(manual.timer, once.handle, HWT_MS(5)), -EINPROGRESS);
	assert_rc(hwt_reschedule(manual.timer, periodic.handle, HWT_MS(5)),
	    -EINPROGRESS);

	assert_ok(executor_run(&executor, 0));
	assert_ok(executor_run(&executor, 1));
	assert_u64(once.runs + periodic.runs, 2);
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
	assert_ok(hwt_new_timeout(timer, &once.handle, probe_task, &once, 0));
	gate_await(&gate);
	assert_rc(hwt_reschedule(timer, once.handle, 0), -EINPROGRESS);
	gate_open(&gate);

	assert_ok(hwt_new_timeouts(timer, 1, &spec, &periodic.handle));
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

ManualTest(reschedule, a_task_may_move_the_next_one_of_its_own_tick)
{
	struct probe one = {.then = then_move_the_other};
	struct probe two = one;

	one.data = &two;
	two.data = &one;
	probe_schedule(&one, HWT_MS(1));
	probe_schedule(&two, HWT_MS(1));

	assert_u64(manual_tick(1), 1);
	assert_u64(one.runs + two.runs, 1);
	assert_ok(one.runs == 1 ? one.rc : two.rc);

	assert_u64(manual_tick(2), 0);
	assert_u64(manual_tick(3), 1);
	assert_u64(one.runs, 1);
	assert_u64(two.runs, 1);
}

ManualTest(reschedule, it_needs_no_memory)
{
	struct probe queued = {0}, placed = {0};

	probe_schedule(&placed, HWT_MS(9));
	manual_tick(1);
	probe_schedule(&queued, HWT_MS(9));

	fault_arm(FAULT_MEMORY | FAULT_KEY, FAULT_ALWAYS);
	for (unsigned round = 0; round < 100000; round++) {
		assert_ok(hwt_reschedule(
		    manual.timer, placed.handle, HWT_MS(100 - round % 90)));
		assert_ok(hwt_reschedule(
		    manual.timer, queued.handle, HWT_MS(10 + round % 90)));
	}
	assert_u64(fault_disarm(), 0);

	assert_u64(manual_tick(200), 2);
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
	assert_ok(hwt_stop(worker.timer, &list));

	assert_rc(probe.rc, -ENOENT);
	assert_u64(list.count, 0);
	assert_u64(probe.runs, 1);
	assert_ok(hwt_destroy(worker.timer));
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

ManualTest(
    reschedule, a_thread_new_to_the_timer_moves_and_cancels_without_memory)
{
	static struct stranger stranger;

	for (unsigned index = 0; index < STRANGE; index++)
		stranger.placed[index] =
		    schedule_task(manual.timer, idle_task, HWT_MS(9));
	manual_tick(1);
	for (unsigned index = 0; index < STRANGE; index++)
		stranger.queued[index] =
		    schedule_task(manual.timer, idle_task, HWT_MS(9));

	in_parallel(1, come_as_stranger, &stranger);

	assert_u64(stranger.moved, 2 * STRANGE);
	assert_u64(stranger.cancelled, STRANGE);
	assert_u64(stranger.calls, 0);
	assert_u64(manual_tick(3), STRANGE);
}

/* With a worker, on the fast path: to put a timeout off, with the clock
 * and the thread's own cache at hand. The clock comes to be at hand by being
 * read for some milliseconds. */
static void
read_clock_often(struct hwt *timer, hwt_timeout timeout)
{
	uint64_t until_ns = monotonic_ns() + HWT_MS(30);
	int64_t remaining_ns;

	while (monotonic_ns() < until_ns)
		assert_ok(hwt_remaining(timer, timeout, &remaining_ns));
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
		assert_ok(hwt_reschedule(
		    working->timer, working->timeout, HWT_SEC(7200)));
}

static void
working_open(struct working *working)
{
	assert_ok(hwt_create(&working->timer, NULL));
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

	assert_ok(hwt_read_stats(working.timer, &stats));
	assert_u64(stats.rescheduled, 3000);
	assert_ok(hwt_stop(working.timer, NULL));
	assert_ok(hwt_destroy(working.timer));
}

Test(reschedule, with_a_worker_no_delay_is_too_long_and_what_is_none_refused)
{
	struct working working;
	int64_t remaining_ns;

	working_open(&working);
	read_clock_often(working.timer, working.timeout);

	for (unsigned index = 0; index < 100; index++)
		assert_rc(hwt_reschedule(
			      working.timer, working.timeout, HWT_NEVER - 1),
		    -EINVAL);
	for (unsigned index = 0; index < 100; index++)
		assert_ok(
		    hwt_reschedule(working.timer, working.timeout, INT64_MAX));

	assert_ok(hwt_remaining(working.timer, working.timeout, &remaining_ns));
	assert_i64(remaining_ns, INT64_MAX);
	assert_ok(hwt_stop(working.timer, NULL));
	assert_ok(hwt_destroy(working.timer));
}
