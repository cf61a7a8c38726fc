/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_cancel_wait: when it returns the task is not running, and 0 goes to the
 * one caller who owns arg.
 */
#include "test/spec/support_promises.h"

SUITE(cancel_wait);

static struct recording_executor executor;

ManualTest(cancel_wait, it_cancels_a_pending_timeout)
{
	hwt_timeout queued;
	hwt_timeout placed;

	placed = schedule_task(manual.timer, forbidden_task, HWT_MS(3));
	manual_tick(1);
	queued = schedule_task(manual.timer, forbidden_task, HWT_MS(3));

	assert_ok(hwt_cancel_wait(manual.timer, placed));
	assert_ok(hwt_cancel_wait(manual.timer, queued));

	assert_rc(hwt_cancel_wait(manual.timer, placed), -ENOENT);
	assert_rc(hwt_cancel_wait(manual.timer, queued), -ENOENT);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_u64(manual_stats().cancelled, 2);
	assert_u64(manual_step(HWT_MS(30)), 0);
}

Test(cancel_wait, a_null_timer_is_refused)
{
	assert_rc(hwt_cancel_wait(NULL, (hwt_timeout){1}), -EINVAL);
}

/* From the task itself. */

static void
then_cancel_wait_itself(struct probe *probe)
{
	probe->rc = hwt_cancel_wait(probe->fixture->timer, probe->timeout);
}

ManualTest(cancel_wait, from_that_very_task_it_is_a_deadlock)
{
	struct probe probe = {.then = then_cancel_wait_itself};

	probe_schedule(&probe, 0);

	assert_u64(manual_tick(1), 1);

	assert_rc(probe.rc, -EDEADLK);
	assert_rc(hwt_cancel_wait(manual.timer, probe.handle), -ENOENT);
}

ExecutorTest(cancel_wait, from_that_very_task_in_an_executor_it_is_a_deadlock,
    EXECUTOR_HOLDS)
{
	struct probe probe = {.then = then_cancel_wait_itself};

	probe_schedule(&probe, 0);
	manual_tick(1);

	assert_ok(executor_run(&executor, 0));

	assert_rc(probe.rc, -EDEADLK);
}

ManualTest(cancel_wait, from_a_periodic_task_it_changes_nothing)
{
	struct probe probe = {.then = then_cancel_wait_itself};

	probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(1));
	assert_u64(manual_tick(1), 1);
	assert_rc(probe.rc, -EDEADLK);

	assert_u64(manual_tick(2), 1);

	assert_ok(hwt_cancel_wait(manual.timer, probe.handle));
	assert_u64(manual_tick(3), 0);
}

static void
then_advance_other(struct probe *probe)
{
	assert_u64(fixture_step(probe->data, HWT_MS(1)), 1);
}

static void
then_cancel_wait_outer(struct probe *probe)
{
	struct probe *outer = probe->data;

	probe->rc = hwt_cancel_wait(outer->fixture->timer, outer->timeout);
}

ManualTest(cancel_wait, from_a_task_inside_that_task_it_is_a_deadlock)
{
	static struct fixture other;
	struct probe outer = {.then = then_advance_other, .data = &other};
	struct probe inner = {
	    .fixture = &other, .then = then_cancel_wait_outer, .data = &outer};

	fixture_open(&other, NULL);
	probe_schedule(&outer, 0);
	probe_schedule(&inner, 0);

	assert_u64(manual_tick(1), 1);

	assert_u64(inner.runs, 1);
	assert_rc(inner.rc, -EDEADLK);
	fixture_close(&other);
}

/* While the task runs in another thread. */

struct waiter {
	struct hwt *timer;
	struct probe *probe;
	pthread_t thread;
	uint64_t runs_at_return;
	int rc;
	_Atomic uint64_t *begun;
};

static void *
waiter_main(void *arg)
{
	struct waiter *waiter = arg;

	(*waiter->begun)++;
	waiter->rc = hwt_cancel_wait(waiter->timer, waiter->probe->handle);
	waiter->runs_at_return = waiter->probe->runs;
	return NULL;
}

/* A task that stays in the worker until all waiters are about to wait. */
static void
then_await_waiters(struct probe *probe)
{
	struct gate *gate = probe->data;

	gate_pass(gate);
	sleep_ns(HWT_MS(20));
}

WorkerTest(cancel_wait, it_waits_for_a_running_task_and_finds_it_ended)
{
	static struct gate gate;
	static struct probe probe = {.then = then_await_waiters, .data = &gate};
	_Atomic uint64_t begun = 0;
	struct waiter waiters[3];

	gate_init(&gate);
	assert_ok(
	    hwt_new_timeout(live.timer, &probe.handle, probe_task, &probe, 0));
	gate_await(&gate);
	for (size_t index = 0; index < 3; index++) {
		waiters[index] = (struct waiter){
		    .timer = live.timer, .probe = &probe, .begun = &begun};
		pthread_create(
		    &waiters[index].thread, NULL, waiter_main, &waiters[index]);
	}
	wait_for(&begun, 3);
	gate_open(&gate);

	for (size_t index = 0; index < 3; index++) {
		pthread_join(waiters[index].thread, NULL);
		assert_rc(waiters[index].rc, -ENOENT);
		assert_u64(waiters[index].runs_at_return, 1);
	}
}

Test(cancel_wait, after_a_cancel_in_progress_it_still_gets_the_arg)
{
	struct hwt *timer = worker_timer_open(HWT_US(100));
	struct gate gate;
	struct probe probe = {.then = then_await_waiters, .data = &gate};
	struct hwt_spec spec = {
	    .task = probe_task, .arg = &probe, .period_ns = HWT_US(100)};
	_Atomic uint64_t begun = 0;
	struct waiter waiter = {
	    .timer = timer, .probe = &probe, .begun = &begun};

	gate_init(&gate);
	assert_ok(hwt_new_timeouts(timer, 1, &spec, &probe.handle));
	gate_await(&gate);
	assert_rc(hwt_cancel(timer, probe.handle), -EINPROGRESS);
	pthread_create(&waiter.thread, NULL, waiter_main, &waiter);
	wait_for(&begun, 1);
	sleep_ns(HWT_MS(5));
	gate_open(&gate);
	pthread_join(waiter.thread, NULL);

	assert_ok(waiter.rc);
	assert_u64(waiter.runs_at_return, 1);
	worker_timer_close(timer);
	assert_u64(probe.runs, 1);
}

static void
then_cancel_wait_data(struct probe *probe)
{
	struct probe *other = probe->data;

	probe->rc = hwt_cancel_wait(probe->fixture->timer, other->handle);
	assert_u64(other->runs, 1);
}

static void *
run_held_main(void *arg)
{
	assert_ok(executor_run(arg, 0));
	return NULL;
}

ManualTest(cancel_wait, from_another_task_it_may_wait)
{
	struct gate gate;
	struct probe held = {.then = then_await_waiters, .data = &gate};
	struct probe waiting = {.then = then_cancel_wait_data, .data = &held};
	pthread_t thread;

	gate_init(&gate);
	executor_init(&executor, EXECUTOR_HOLDS);
	assert_ok(hwt_new_timeout_on(
	    manual.timer, &executor.hook, &held.handle, probe_task, &held, 0));
	manual_tick(1);
	probe_schedule(&waiting, 0);
	pthread_create(&thread, NULL, run_held_main, &executor);
	gate_await(&gate);
	gate_open(&gate);

	assert_u64(manual_tick(2), 1);

	assert_rc(waiting.rc, -ENOENT);
	pthread_join(thread, NULL);
}
