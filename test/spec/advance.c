/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_advance: who may turn the wheel, and what the call tells.
 */
#include "test/spec/support_promises.h"

SUITE(advance);

static struct recording_executor executor;

WorkerTest(advance, a_timer_with_a_worker_is_not_for_turning)
{
	uint64_t tasks_started = 77;

	assert_rc(hwt_advance(live.timer, &tasks_started), -EINVAL);
	assert_rc(hwt_advance(live.timer, NULL), -EINVAL);
	assert_rc(hwt_advance(NULL, &tasks_started), -EINVAL);

	assert_u64(tasks_started, 77);
}

ManualTest(advance, it_tells_how_many_tasks_it_started)
{
	struct probe probe = {0};

	assert_u64(manual_step(0), 0);
	probe_schedule(&probe, HWT_MS(1));
	probe_schedule(&probe, HWT_MS(2));
	probe_schedule(&probe, HWT_MS(2));
	probe_schedule(&probe, HWT_MS(4));

	assert_u64(manual_tick(1), 1);
	assert_u64(manual_tick(3), 2);
	assert_u64(manual_tick(3), 0);
	assert_u64(manual_tick(100), 1);

	assert_u64(probe.runs, 4);
}

static void
then_advance(struct probe *probe)
{
	uint64_t tasks_started = 77;

	probe->rc = hwt_advance(manual.timer, &tasks_started);
	assert_u64(tasks_started, 77);
}

ManualTest(advance, from_a_task_of_its_own_it_is_a_deadlock)
{
	struct probe probe = {.then = then_advance};
	struct probe later = {0};

	probe_schedule(&probe, HWT_MS(1));
	probe_schedule(&later, HWT_MS(2));

	assert_u64(manual_tick(1), 1);
	assert_rc(probe.rc, -EDEADLK);

	assert_u64(manual_tick(2), 1);
}

ExecutorTest(
    advance, from_a_task_run_inside_execute_it_is_a_deadlock, EXECUTOR_RUNS)
{
	struct probe probe = {.then = then_advance};

	probe_schedule(&probe, 0);

	manual_tick(1);

	assert_u64(probe.runs, 1);
	assert_rc(probe.rc, -EDEADLK);
}

static void *
advancing_main(void *arg)
{
	assert_ok(hwt_advance(arg, NULL));
	return NULL;
}

ManualTest(advance, while_another_threads_is_under_way_it_is_a_deadlock)
{
	struct gate gate;
	struct probe probe = {.then = probe_then_gate, .data = &gate};
	uint64_t tasks_started = 77;
	pthread_t thread;

	gate_init(&gate);
	probe_schedule(&probe, 0);
	manual.now_ns += HWT_MS(1);
	pthread_create(&thread, NULL, advancing_main, manual.timer);
	gate_await(&gate);

	assert_rc(hwt_advance(manual.timer, &tasks_started), -EDEADLK);

	assert_u64(tasks_started, 77);
	gate_open(&gate);
	pthread_join(thread, NULL);
	assert_u64(manual_step(0), 0);
	assert_u64(probe.runs, 1);
}

ManualTest(advance, after_stop_it_is_refused)
{
	uint64_t tasks_started = 77;

	assert_ok(hwt_stop(manual.timer, NULL));

	assert_rc(hwt_advance(manual.timer, &tasks_started), -ESHUTDOWN);

	assert_u64(tasks_started, 77);
}

static void
take_two_ticks(struct probe *probe)
{
	probe->fixture->now_ns += 2 * FIXTURE_TICK;
}

/* Else tasks that take longer than it is until the next is due would hold it
 * for ever. */
ManualTest(advance, what_comes_due_meanwhile_is_for_the_next_call)
{
	struct probe slow = {.then = take_two_ticks};
	struct probe next = {0};

	probe_schedule(&slow, FIXTURE_TICK);
	probe_schedule(&next, 2 * FIXTURE_TICK);

	assert_u64(manual_step(FIXTURE_TICK), 1);
	assert_u64(next.runs, 0);
	assert_u64(manual_wait(), 0);
	assert_u64(manual_step(0), 1);
	assert_u64(next.runs, 1);
}
