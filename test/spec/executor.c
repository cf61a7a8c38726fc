/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executors: the worker runs a task itself, or hands its timeout to an
 * executor, which takes it (0) and calls hwt_run for it once, now or later, on
 * any thread; or refuses it, and then the worker runs it after all. Pools and
 * mailboxes have suites of their own.
 */
#include "test/spec/support_promises.h"

#include <string.h>
#include <syslog.h>

SUITE(executor);

static hwt_timeout
schedule_on(struct fixture *fixture, const struct hwt_executor *executor,
    struct probe *probe, uint64_t delay_ns)
{
	probe->fixture = fixture;
	assert_ok(hwt_new_timeout_on(fixture->timer, executor, &probe->handle,
	    probe_task, probe, delay_ns));
	return probe->handle;
}

WorkerTest(executor, without_one_the_worker_runs_the_task)
{
	struct probe first = {0}, second = {0};

	assert_ok(hwt_new_timeout(live.timer, NULL, probe_task, &first, 0));
	assert_ok(hwt_new_timeout(live.timer, NULL, probe_task, &second, 0));
	wait_for(&first.runs, 1);
	wait_for(&second.runs, 1);

	cr_assert(!pthread_equal(first.thread, pthread_self()));
	cr_assert(pthread_equal(first.thread, second.thread));
}

ManualTest(executor, it_gets_the_ctx_the_timer_and_the_handle)
{
	static struct recording_executor executor;
	struct probe probe = {0};

	executor_init(&executor, EXECUTOR_HOLDS);
	schedule_on(&manual, &executor.hook, &probe, FIXTURE_TICK);

	manual_tick(1);

	assert_u64(executor.count, 1);
	cr_assert(executor.calls[0].timer == manual.timer);
	assert_u64(executor.calls[0].timeout.id, probe.handle.id);
	assert_ok(executor_run(&executor, 0));
	assert_u64(probe.timeout.id, probe.handle.id);
}

ManualTest(executor, it_is_called_once_for_each_timeout_that_is_due)
{
	static struct recording_executor executor;
	struct probe probe = {0};

	executor_init(&executor, EXECUTOR_HOLDS);
	schedule_on(&manual, &executor.hook, &probe, FIXTURE_TICK);

	for (uint64_t tick = 1; tick <= 3 * FIXTURE_WHEEL; tick++)
		assert_u64(manual_tick(tick), 0);

	assert_u64(executor.count, 1);
	assert_u64(probe.runs, 0);
	assert_ok(executor_run(&executor, 0));
}

Test(executor, the_timers_own_gets_what_names_none)
{
	static struct recording_executor own, other;
	struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .executor = &own.hook};
	struct probe unnamed = {0}, named = {0};

	executor_init(&own, EXECUTOR_RUNS);
	executor_init(&other, EXECUTOR_RUNS);
	manual_open(&options);
	schedule_on(&manual, NULL, &unnamed, 0);
	schedule_on(&manual, &other.hook, &named, 0);

	manual_tick(1);

	assert_u64(own.count, 1);
	assert_u64(own.calls[0].timeout.id, unnamed.handle.id);
	assert_u64(other.count, 1);
	assert_u64(other.calls[0].timeout.id, named.handle.id);
	manual_close();
}

Test(executor, the_timers_own_was_copied_by_create)
{
	static struct recording_executor own;
	struct hwt_executor hook;
	struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .executor = &hook};
	struct probe probe = {0};

	executor_init(&own, EXECUTOR_RUNS);
	hook = own.hook;
	manual_open(&options);
	memset(&hook, 0, sizeof(hook));
	schedule_on(&manual, NULL, &probe, 0);

	manual_tick(1);

	assert_u64(own.count, 1);
	assert_u64(probe.runs, 1);
	manual_close();
}

ManualTest(executor, each_timeout_of_a_batch_may_name_its_own)
{
	static struct recording_executor executors[2];
	struct probe probes[3] = {{0}};
	struct hwt_spec specs[3] = {{.task = probe_task, .arg = &probes[0]},
	    {.task = probe_task,
		.arg = &probes[1],
		.executor = &executors[0].hook},
	    {.task = probe_task,
		.arg = &probes[2],
		.executor = &executors[1].hook}};

	executor_init(&executors[0], EXECUTOR_RUNS);
	executor_init(&executors[1], EXECUTOR_HOLDS);
	assert_ok(hwt_new_timeouts(manual.timer, 3, specs, NULL));

	manual_tick(1);

	assert_u64(probes[0].runs, 1);
	assert_u64(executors[0].count, 1);
	assert_u64(probes[1].runs, 1);
	assert_u64(executors[1].count, 1);
	assert_u64(probes[2].runs, 0);
	assert_ok(executor_run(&executors[1], 0));
	assert_u64(probes[2].runs, 1);
}

ManualTest(executor, advance_counts_the_tasks_that_it_started_itself)
{
	static struct recording_executor holds, refuses;
	struct probe probes[3] = {{0}};

	executor_init(&holds, EXECUTOR_HOLDS);
	executor_init(&refuses, EXECUTOR_REFUSES);
	schedule_on(&manual, &holds.hook, &probes[0], 0);
	schedule_on(&manual, &refuses.hook, &probes[1], 0);
	schedule_on(&manual, NULL, &probes[2], 0);

	assert_u64(manual_tick(1), 2);

	assert_ok(executor_run(&holds, 0));
}

/* Running. */

ManualTest(executor, hwt_run_inside_execute_starts_the_task)
{
	static struct recording_executor executor;
	struct probe probe = {0};

	executor_init(&executor, EXECUTOR_RUNS);
	executor.run_rc = 1;
	schedule_on(&manual, &executor.hook, &probe, 0);

	manual_tick(1);

	assert_ok(executor.run_rc);
	assert_u64(probe.runs, 1);
}

static void
run_elsewhere(unsigned index, void *arg)
{
	struct recording_executor *executor = arg;

	(void)index;
	executor->run_rc =
	    hwt_run(executor->calls[0].timer, executor->calls[0].timeout);
}

ManualTest(executor, hwt_run_starts_the_task_on_the_thread_that_calls_it)
{
	static struct recording_executor executor;
	struct probe probe = {0};

	executor_init(&executor, EXECUTOR_HOLDS);
	schedule_on(&manual, &executor.hook, &probe, 0);
	manual_tick(1);

	in_parallel(1, run_elsewhere, &executor);

	assert_ok(executor.run_rc);
	assert_u64(probe.runs, 1);
	cr_assert(!pthread_equal(probe.thread, pthread_self()));
}

ManualTest(executor, a_second_hwt_run_has_no_effect)
{
	static struct recording_executor executor;
	struct probe probe = {0};

	executor_init(&executor, EXECUTOR_HOLDS);
	schedule_on(&manual, &executor.hook, &probe, 0);
	manual_tick(1);
	assert_ok(executor_run(&executor, 0));

	assert_rc(executor_run(&executor, 0), -ENOENT);

	assert_u64(probe.runs, 1);
	assert_u64(manual_stats().started, 1);
}

static void
then_runs_itself(struct probe *probe)
{
	probe->rc = hwt_run(probe->fixture->timer, probe->timeout);
}

ManualTest(executor, hwt_run_of_what_is_running_has_no_effect)
{
	struct probe probe = {.then = then_runs_itself};

	probe_schedule(&probe, 0);

	assert_u64(manual_tick(1), 1);

	assert_rc(probe.rc, -ENOENT);
	assert_u64(probe.runs, 1);
}

ManualTest(executor, hwt_run_of_what_is_not_handed_over_has_no_effect)
{
	struct probe probe = {0};

	/* Queued, placed, ended. */
	probe_schedule(&probe, 2 * FIXTURE_TICK);
	assert_rc(hwt_run(manual.timer, probe.handle), -ENOENT);
	manual_tick(1);
	assert_rc(hwt_run(manual.timer, probe.handle), -ENOENT);
	assert_u64(probe.runs, 0);

	assert_u64(manual_tick(2), 1);
	assert_rc(hwt_run(manual.timer, probe.handle), -ENOENT);
	assert_u64(probe.runs, 1);
}

/* While an executor holds it. */

ManualTest(executor, what_it_holds_can_be_cancelled)
{
	static struct recording_executor executor;
	hwt_timeout timeouts[2];

	executor_init(&executor, EXECUTOR_HOLDS);
	for (unsigned index = 0; index < 2; index++)
		assert_ok(hwt_new_timeout_on(manual.timer, &executor.hook,
		    &timeouts[index], forbidden_task, NULL, 0));
	manual_tick(1);

	assert_ok(hwt_cancel(manual.timer, executor.calls[0].timeout));
	assert_ok(hwt_cancel_wait(manual.timer, executor.calls[1].timeout));

	assert_rc(executor_run(&executor, 0), -ENOENT);
	assert_rc(executor_run(&executor, 1), -ENOENT);
	assert_u64(manual_stats().cancelled, 2);
}

ManualTest(executor, what_it_holds_cannot_be_rescheduled)
{
	static struct recording_executor executor;
	struct probe probe = {0};

	executor_init(&executor, EXECUTOR_HOLDS);
	schedule_on(&manual, &executor.hook, &probe, 0);
	manual_tick(1);

	assert_rc(hwt_reschedule(manual.timer, probe.handle, 0), -EINPROGRESS);
	assert_rc(hwt_reschedule(manual.timer, probe.handle, FIXTURE_TICK),
	    -EINPROGRESS);

	assert_u64(manual_tick(20), 0);
	assert_u64(executor.count, 1);
	assert_ok(executor_run(&executor, 0));
}

ManualTest(executor, what_it_holds_tells_how_long_it_is_overdue)
{
	static struct recording_executor executor;
	struct probe probe = {0};

	executor_init(&executor, EXECUTOR_HOLDS);
	schedule_on(&manual, &executor.hook, &probe, FIXTURE_TICK);
	manual_tick(1);
	assert_i64(manual_remaining(probe.handle), 0);

	manual_step(77);

	assert_i64(manual_remaining(probe.handle), -77);
	assert_ok(executor_run(&executor, 0));
}

ManualTest(executor, what_it_holds_is_pending_until_its_task_starts)
{
	static struct recording_executor executor;
	struct probe probe = {0};

	executor_init(&executor, EXECUTOR_HOLDS);
	schedule_on(&manual, &executor.hook, &probe, 0);
	manual_tick(1);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);

	assert_ok(executor_run(&executor, 0));

	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

Test(executor, what_it_holds_keeps_its_place_until_its_task_starts)
{
	static struct recording_executor executor;
	struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .max_pending = 1};
	struct probe probe = {0};

	manual_open(&options);
	executor_init(&executor, EXECUTOR_HOLDS);
	schedule_on(&manual, &executor.hook, &probe, 0);
	manual_tick(1);
	assert_rc(
	    hwt_new_timeout(manual.timer, NULL, idle_task, NULL, 0), -ENOBUFS);

	assert_ok(executor_run(&executor, 0));

	assert_ok(hwt_new_timeout(manual.timer, NULL, idle_task, NULL, 0));
	manual_close();
}

Test(executor, what_it_holds_may_still_run_after_stop)
{
	static struct recording_executor executor;
	struct hwt_unprocessed unprocessed;
	struct probe probe = {0};

	manual_open(NULL);
	executor_init(&executor, EXECUTOR_HOLDS);
	schedule_on(&manual, &executor.hook, &probe, 0);
	manual_tick(1);
	assert_ok(hwt_stop(manual.timer, &unprocessed));

	assert_u64(unprocessed.count, 0);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	assert_rc(hwt_destroy(manual.timer), -EBUSY);
	assert_ok(executor_run(&executor, 0));

	assert_u64(probe.runs, 1);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_ok(hwt_destroy(manual.timer));
}

Test(executor, what_it_holds_can_be_cancelled_after_stop)
{
	static struct recording_executor executor;
	hwt_timeout timeout;

	manual_open(NULL);
	executor_init(&executor, EXECUTOR_HOLDS);
	assert_ok(hwt_new_timeout_on(
	    manual.timer, &executor.hook, &timeout, forbidden_task, NULL, 0));
	manual_tick(1);
	assert_ok(hwt_stop(manual.timer, NULL));

	assert_ok(hwt_cancel(manual.timer, timeout));

	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_rc(hwt_destroy(manual.timer), -EBUSY);
	assert_rc(executor_run(&executor, 0), -ENOENT);
	assert_ok(hwt_destroy(manual.timer));
}

Test(executor, a_periodic_timeout_handed_over_at_stop_runs_its_last_time)
{
	static struct recording_executor executor;
	struct probe probe = {0};
	struct hwt_spec spec = {.task = probe_task,
	    .arg = &probe,
	    .period_ns = FIXTURE_TICK,
	    .executor = &executor.hook};
	struct hwt_unprocessed unprocessed;

	manual_open(NULL);
	executor_init(&executor, EXECUTOR_HOLDS);
	assert_ok(hwt_new_timeouts(manual.timer, 1, &spec, NULL));
	manual_tick(1);
	assert_ok(hwt_stop(manual.timer, &unprocessed));
	assert_u64(unprocessed.count, 0);

	assert_ok(executor_run(&executor, 0));

	assert_u64(probe.runs, 1);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_rc(executor_run(&executor, 0), -ENOENT);
	assert_ok(hwt_destroy(manual.timer));
}

ManualTest(executor, a_periodic_timeout_is_handed_over_again_after_each_run)
{
	static struct recording_executor executor;
	struct probe probe = {0};
	struct hwt_spec spec = {.task = probe_task,
	    .arg = &probe,
	    .delay_ns = FIXTURE_TICK,
	    .period_ns = FIXTURE_TICK,
	    .executor = &executor.hook};

	/* Held over three grid points: they make one run. */
	executor_init(&executor, EXECUTOR_HOLDS);
	assert_ok(hwt_new_timeouts(manual.timer, 1, &spec, NULL));
	manual_tick(1);
	manual_tick(4);
	assert_u64(executor.count, 1);

	assert_ok(executor_run(&executor, 0));
	manual_tick(5);
	assert_u64(executor.count, 2);
	assert_u64(executor.calls[1].timeout.id, executor.calls[0].timeout.id);
	assert_ok(executor_run(&executor, 1));

	assert_u64(probe.runs, 2);
}

static void
then_stops_its_timer(struct probe *probe)
{
	probe->rc = hwt_stop(probe->fixture->timer, NULL);
}

ManualTest(executor, a_task_that_it_runs_cannot_stop_its_timer)
{
	static struct recording_executor executor;
	struct probe probe = {.then = then_stops_its_timer};

	executor_init(&executor, EXECUTOR_HOLDS);
	schedule_on(&manual, &executor.hook, &probe, 0);
	manual_tick(1);

	in_parallel(1, run_elsewhere, &executor);

	assert_rc(probe.rc, -EDEADLK);
}

/* Refusing. */

WorkerTest(executor, what_it_refuses_runs_in_the_worker)
{
	static struct recording_executor executor;
	struct probe refused = {0}, plain = {0};

	executor_init(&executor, EXECUTOR_REFUSES);
	assert_ok(hwt_new_timeout_on(
	    live.timer, &executor.hook, NULL, probe_task, &refused, 0));
	assert_ok(hwt_new_timeout(live.timer, NULL, probe_task, &plain, 0));
	wait_for(&refused.runs, 1);
	wait_for(&plain.runs, 1);

	cr_assert(pthread_equal(refused.thread, plain.thread));
	assert_u64(executor.count, 1);
	assert_u64(live_stats().executor_refused, 1);
}

static int
run_and_refuse(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	int *rc = ctx;

	*rc = hwt_run(timer, timeout);
	return -EAGAIN;
}

static void
refuse_after_running(uint64_t period_ns)
{
	int rc = -1;
	struct hwt_executor executor = {.execute = run_and_refuse, .ctx = &rc};
	struct probe probe = {0};
	struct hwt_spec spec = {.task = probe_task,
	    .arg = &probe,
	    .delay_ns = FIXTURE_TICK,
	    .period_ns = period_ns,
	    .executor = &executor};

	manual_open(NULL);
	assert_ok(hwt_new_timeouts(manual.timer, 1, &spec, NULL));

	assert_u64(manual_tick(1), 0);

	assert_ok(rc);
	assert_u64(probe.runs, 1);
	assert_u64(manual_stats().executor_refused, 1);
	assert_u64(hwt_pending_timeouts(manual.timer), period_ns != 0);
	manual_close();
}

Test(executor, what_it_has_run_and_then_refuses_does_not_run_again)
{
	refuse_after_running(0);
	refuse_after_running(FIXTURE_TICK);
}

Test(executor, what_it_accepts_and_drops_stays_until_it_is_cancelled)
{
	static struct recording_executor executor;
	struct probe probe = {0};

	manual_open(NULL);
	executor_init(&executor, EXECUTOR_HOLDS);
	assert_ok(hwt_new_timeout_on(manual.timer, &executor.hook,
	    &probe.handle, probe_task, &probe, FIXTURE_TICK));
	manual_tick(1);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);

	assert_ok(hwt_cancel(manual.timer, probe.handle));
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_rc(hwt_destroy(manual.timer), -EBUSY);

	assert_rc(executor_run(&executor, 0), -ENOENT);
	assert_u64(probe.runs, 0);
	assert_ok(hwt_destroy(manual.timer));
}

ManualTest(executor, anything_but_0_is_a_refusal)
{
	static struct recording_executor executor;
	static const int answers[] = {-1, 1, 2, INT32_MIN, INT32_MAX, -ENOENT};

	executor_init(&executor, EXECUTOR_REFUSES);
	for (unsigned index = 0; index < 6; index++) {
		struct probe probe = {0};

		executor.refusal = answers[index];
		schedule_on(&manual, &executor.hook, &probe, 0);
		assert_u64(manual_step(FIXTURE_TICK), 1);
		assert_u64(probe.runs, 1);
	}

	assert_u64(manual_stats().executor_refused, 6);
}

ManualTest(executor, refusals_are_counted_and_logged_once_a_second_at_most)
{
	static struct recording_executor executor;
	struct probe probes[10] = {{0}};

	executor_init(&executor, EXECUTOR_REFUSES);
	for (unsigned index = 0; index < 10; index++)
		schedule_on(&manual, &executor.hook, &probes[index],
		    (index < 8 ? 1 : 3) * FIXTURE_TICK);

	/* Eight and two within a second: one line. */
	assert_u64(manual_tick(1), 8);
	assert_u64(manual_tick(3), 2);
	assert_u64(manual_stats().executor_refused, 10);
	assert_u64(log_recorder_count(&manual.log), 1);
	cr_assert(manual.log.lines[0].level == LOG_WARNING);

	/* A second after the first line, another one. */
	schedule_on(&manual, &executor.hook, &probes[0], HWT_MS(997));
	assert_u64(manual_tick(1000), 1);
	assert_u64(log_recorder_count(&manual.log), 1);
	schedule_on(&manual, &executor.hook, &probes[0], FIXTURE_TICK);
	assert_u64(manual_tick(1001), 1);
	assert_u64(log_recorder_count(&manual.log), 2);
}

ManualTest(executor, a_refused_periodic_timeout_runs_on_its_grid)
{
	static struct recording_executor executor;
	struct probe probe = {0};
	struct hwt_spec spec = {.task = probe_task,
	    .arg = &probe,
	    .delay_ns = FIXTURE_TICK,
	    .period_ns = 2 * FIXTURE_TICK,
	    .executor = &executor.hook};

	executor_init(&executor, EXECUTOR_REFUSES);
	assert_ok(hwt_new_timeouts(manual.timer, 1, &spec, NULL));

	for (uint64_t tick = 1; tick <= 20; tick++)
		assert_u64(manual_tick(tick), tick % 2);

	assert_u64(executor.count, 10);
}

static int
cancels_and_refuses(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	int *rc = ctx;

	*rc = hwt_cancel(timer, timeout);
	return -EAGAIN;
}

ManualTest(executor, what_was_cancelled_before_it_was_refused_does_not_run)
{
	int rc = 1;
	struct hwt_executor executor = {
	    .execute = cancels_and_refuses, .ctx = &rc};

	assert_ok(hwt_new_timeout_on(
	    manual.timer, &executor, NULL, forbidden_task, NULL, 0));

	assert_u64(manual_tick(1), 0);

	assert_ok(rc);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

Test(executor, one_executor_serves_several_timers)
{
	static struct recording_executor executor;
	struct fixture fixtures[3] = {{0}};
	struct probe probes[3] = {{0}};

	executor_init(&executor, EXECUTOR_HOLDS);
	for (unsigned index = 0; index < 3; index++) {
		fixture_open(&fixtures[index], NULL);
		schedule_on(
		    &fixtures[index], &executor.hook, &probes[index], 0);
		fixture_tick(&fixtures[index], 1);
	}

	for (unsigned index = 0; index < 3; index++) {
		cr_assert(executor.calls[index].timer == fixtures[index].timer);
		assert_ok(executor_run(&executor, index));
		assert_u64(probes[index].runs, 1);
		fixture_close(&fixtures[index]);
	}
}

Test(executor, refusals_in_one_moment_are_logged_once)
{
	static struct recording_executor refuses;
	struct fixture fixture = {.start_ns = 2 * FIXTURE_START};
	struct probe probes[10] = {{0}};

	fixture_open(&fixture, NULL);
	executor_init(&refuses, EXECUTOR_REFUSES);
	for (unsigned index = 0; index < 10; index++) {
		probes[index].fixture = &fixture;
		schedule_on(&fixture, &refuses.hook, &probes[index], 0);
	}
	/* On an even moment, and on the odd one after it. */
	assert_u64(fixture_tick(&fixture, 1), 10);
	assert_u64(log_recorder_count(&fixture.log), 1);
	fixture_step(&fixture, HWT_SEC(2) + 1);
	for (unsigned index = 0; index < 10; index++)
		schedule_on(&fixture, &refuses.hook, &probes[index], 0);
	fixture_step(&fixture, 10 * FIXTURE_TICK);

	assert_u64(fixture_stats(&fixture).executor_refused, 20);
	assert_u64(log_recorder_count(&fixture.log), 2);
	fixture_close(&fixture);
}
