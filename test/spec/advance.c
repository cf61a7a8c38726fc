/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_advance: who may turn the wheel, and what the call tells.
 */
#include "test/spec/support.h"

SUITE(advance);

static struct fixture manual;
static struct recording_executor executor;

Test(advance, a_timer_with_a_worker_is_not_for_turning)
{
	struct hwt *timer = worker_timer_open(HWT_MS(1));
	uint64_t tasks_started = 77;

	assert_rc(hwt_advance(timer, &tasks_started), -EINVAL);
	assert_rc(hwt_advance(timer, NULL), -EINVAL);
	assert_rc(hwt_advance(NULL, &tasks_started), -EINVAL);

	assert_u64(tasks_started, 77);
	worker_timer_close(timer);
}

Test(advance, it_tells_how_many_tasks_it_started)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	assert_u64(fixture_step(&manual, 0), 0);
	probe_schedule(&probe, HWT_MS(1));
	probe_schedule(&probe, HWT_MS(2));
	probe_schedule(&probe, HWT_MS(2));
	probe_schedule(&probe, HWT_MS(4));

	assert_u64(fixture_tick(&manual, 1), 1);
	assert_u64(fixture_tick(&manual, 3), 2);
	assert_u64(fixture_tick(&manual, 3), 0);
	assert_u64(fixture_tick(&manual, 100), 1);

	assert_u64(probe.runs, 4);
	fixture_close(&manual);
}

Test(advance, nobody_needs_to_take_the_number)
{
	struct probe probe = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(1));
	manual.now_ns += HWT_MS(1);

	assert_rc(hwt_advance(manual.timer, NULL), 0);

	assert_u64(probe.runs, 1);
	fixture_close(&manual);
}

Test(advance, what_it_hands_over_it_did_not_start)
{
	struct probe probe = {.fixture = &manual};

	executor_init(&executor, EXECUTOR_HOLDS);
	fixture_open(
	    &manual, &(struct hwt_options){.executor = &executor.hook});
	probe_schedule(&probe, 0);
	assert_u64(fixture_tick(&manual, 1), 0);
	assert_u64(executor.count, 1);
	assert_rc(executor_run(&executor, 0), 0);

	executor.mode = EXECUTOR_REFUSES;
	probe_schedule(&probe, 0);

	assert_u64(fixture_tick(&manual, 2), 1);
	assert_u64(probe.runs, 2);
	fixture_close(&manual);
}

static void
then_advance(struct probe *probe)
{
	uint64_t tasks_started = 77;

	probe->rc = hwt_advance(manual.timer, &tasks_started);
	assert_u64(tasks_started, 77);
}

Test(advance, from_a_task_of_its_own_it_is_a_deadlock)
{
	struct probe probe = {.fixture = &manual, .then = then_advance};
	struct probe later = {.fixture = &manual};

	fixture_open(&manual, NULL);
	probe_schedule(&probe, HWT_MS(1));
	probe_schedule(&later, HWT_MS(2));

	assert_u64(fixture_tick(&manual, 1), 1);
	assert_rc(probe.rc, -EDEADLK);

	assert_u64(fixture_tick(&manual, 2), 1);
	fixture_close(&manual);
}

Test(advance, from_a_task_run_inside_execute_it_is_a_deadlock)
{
	struct probe probe = {.fixture = &manual, .then = then_advance};

	executor_init(&executor, EXECUTOR_RUNS);
	fixture_open(
	    &manual, &(struct hwt_options){.executor = &executor.hook});
	probe_schedule(&probe, 0);

	fixture_tick(&manual, 1);

	assert_u64(probe.runs, 1);
	assert_rc(probe.rc, -EDEADLK);
	fixture_close(&manual);
}

static void *
advancing_main(void *arg)
{
	assert_rc(hwt_advance(arg, NULL), 0);
	return NULL;
}

Test(advance, while_another_threads_is_under_way_it_is_a_deadlock)
{
	struct gate gate;
	struct probe probe = {
	    .fixture = &manual, .then = probe_then_gate, .data = &gate};
	uint64_t tasks_started = 77;
	pthread_t thread;

	gate_init(&gate);
	fixture_open(&manual, NULL);
	probe_schedule(&probe, 0);
	manual.now_ns += HWT_MS(1);
	pthread_create(&thread, NULL, advancing_main, manual.timer);
	gate_await(&gate);

	assert_rc(hwt_advance(manual.timer, &tasks_started), -EDEADLK);

	assert_u64(tasks_started, 77);
	gate_open(&gate);
	pthread_join(thread, NULL);
	assert_u64(fixture_step(&manual, 0), 0);
	assert_u64(probe.runs, 1);
	fixture_close(&manual);
}

static void
then_advance_other(struct probe *probe)
{
	assert_u64(fixture_step(probe->data, HWT_MS(1)), 1);
}

Test(advance, a_task_may_turn_another_timer)
{
	static struct fixture other;
	struct probe outer = {
	    .fixture = &manual, .then = then_advance_other, .data = &other};
	struct probe inner = {.fixture = &other};

	fixture_open(&manual, NULL);
	fixture_open(&other, NULL);
	probe_schedule(&outer, 0);
	probe_schedule(&inner, 0);

	assert_u64(fixture_tick(&manual, 1), 1);

	assert_u64(inner.runs, 1);
	fixture_close(&other);
	fixture_close(&manual);
}

Test(advance, after_stop_it_is_refused)
{
	uint64_t tasks_started = 77;

	fixture_open(&manual, NULL);
	assert_rc(hwt_stop(manual.timer, NULL), 0);

	assert_rc(hwt_advance(manual.timer, &tasks_started), -ESHUTDOWN);

	assert_u64(tasks_started, 77);
	assert_rc(hwt_destroy(manual.timer), 0);
}

Test(advance, time_that_stands_still_starts_nothing_again)
{
	struct probe probe = {.fixture = &manual};
	unsigned round;

	fixture_open(&manual, NULL);
	probe_schedule_periodic(&probe, 0, 1);
	assert_u64(fixture_tick(&manual, 1), 1);

	for (round = 0; round < 10; round++)
		assert_u64(fixture_step(&manual, 0), 0);

	fixture_close(&manual);
}

static void
take_two_ticks(struct probe *probe)
{
	probe->fixture->now_ns += 2 * FIXTURE_TICK;
}

/* Else tasks that take longer than it is until the next is due would hold it
 * for ever. */
Test(advance, what_comes_due_meanwhile_is_for_the_next_call)
{
	struct fixture fixture = {0};
	struct probe slow = {.fixture = &fixture, .then = take_two_ticks};
	struct probe next = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	probe_schedule(&slow, FIXTURE_TICK);
	probe_schedule(&next, 2 * FIXTURE_TICK);

	assert_u64(fixture_step(&fixture, FIXTURE_TICK), 1);
	assert_u64(next.runs, 0);
	assert_u64(fixture_wait(&fixture), 0);
	assert_u64(fixture_step(&fixture, 0), 1);
	assert_u64(next.runs, 1);
	fixture_close(&fixture);
}
