/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executors: the worker runs a task itself, or hands its timeout to an
 * executor, which takes it (0) and calls hwt_run for it once, now or later, on
 * any thread; or refuses it, and then the worker runs it after all. Pools and
 * mailboxes have suites of their own.
 */
#include "test/spec/support_promises.h"

#include <syslog.h>

SUITE(executor);

static struct recording_executor executor;

static hwt_timeout
schedule_on(
    const struct hwt_executor *hook, struct probe *probe, uint64_t delay_ns)
{
	assert_ok(hwt_new_timeout_on(
	    manual.timer, hook, &probe->handle, probe_task, probe, delay_ns));
	return probe->handle;
}

WorkerTest(executor, without_one_the_worker_runs_the_task)
{
	static struct probe first = {0}, second = {0};

	assert_ok(hwt_new_timeout(live.timer, NULL, probe_task, &first, 0));
	assert_ok(hwt_new_timeout(live.timer, NULL, probe_task, &second, 0));
	wait_for(&first.runs, 1);
	wait_for(&second.runs, 1);

	cr_assert(!pthread_equal(first.thread, pthread_self()));
	cr_assert(pthread_equal(first.thread, second.thread));
}

ManualTest(executor, advance_counts_the_tasks_that_it_started_itself)
{
	static struct recording_executor holds, refuses;
	struct probe probes[3] = {{0}};

	executor_init(&holds, EXECUTOR_HOLDS);
	executor_init(&refuses, EXECUTOR_REFUSES);
	schedule_on(&holds.hook, &probes[0], 0);
	schedule_on(&refuses.hook, &probes[1], 0);
	schedule_on(NULL, &probes[2], 0);

	assert_u64(manual_tick(1), 2);

	assert_ok(executor_run(&holds, 0));
}

/* Running. */

static void
run_elsewhere(unsigned index, void *arg)
{
	(void)index;
	(void)arg;
	executor.run_rc = executor_run(&executor, 0);
}

ManualTest(executor, hwt_run_starts_the_task_on_the_thread_that_calls_it)
{
	struct probe probe = {0};

	executor_init(&executor, EXECUTOR_HOLDS);
	schedule_on(&executor.hook, &probe, 0);
	manual_tick(1);

	in_parallel(1, run_elsewhere, NULL);

	assert_ok(executor.run_rc);
	assert_u64(probe.runs, 1);
	cr_assert(!pthread_equal(probe.thread, pthread_self()));
}

/* While an executor holds it. */

ManualTest(executor, what_it_holds_can_be_cancelled_after_stop)
{
	hwt_timeout timeout;

	executor_init(&executor, EXECUTOR_HOLDS);
	assert_ok(hwt_new_timeout_on(
	    manual.timer, &executor.hook, &timeout, forbidden_task, NULL, 0));
	manual_tick(1);
	assert_ok(hwt_stop(manual.timer, NULL));

	assert_ok(hwt_cancel(manual.timer, timeout));

	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	assert_rc(hwt_destroy(manual.timer), -EBUSY);
	assert_rc(executor_run(&executor, 0), -ENOENT);
}

/* Refusing. */

WorkerTest(executor, what_it_refuses_runs_in_the_worker)
{
	static struct probe refused = {0}, plain = {0};

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
	struct hwt_executor refusing = {.execute = run_and_refuse, .ctx = &rc};
	struct probe probe = {0};
	struct hwt_spec spec = {.task = probe_task,
	    .arg = &probe,
	    .delay_ns = FIXTURE_TICK,
	    .period_ns = period_ns,
	    .executor = &refusing};

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

ManualTest(executor, anything_but_0_is_a_refusal)
{
	static const int answers[] = {-1, 1, 2, INT32_MIN, INT32_MAX, -ENOENT};

	executor_init(&executor, EXECUTOR_REFUSES);
	for (unsigned index = 0; index < 6; index++) {
		struct probe probe = {0};

		executor.refusal = answers[index];
		schedule_on(&executor.hook, &probe, 0);
		assert_u64(manual_step(FIXTURE_TICK), 1);
		assert_u64(probe.runs, 1);
	}

	assert_u64(manual_stats().executor_refused, 6);
}

ManualTest(executor, refusals_are_counted_and_logged_once_a_second_at_most)
{
	struct probe probes[10] = {{0}};

	executor_init(&executor, EXECUTOR_REFUSES);
	for (unsigned index = 0; index < 10; index++)
		schedule_on(&executor.hook, &probes[index],
		    (index < 8 ? 1 : 3) * FIXTURE_TICK);

	/* Eight and two within a second: one line. */
	assert_u64(manual_tick(1), 8);
	assert_u64(manual_tick(3), 2);
	assert_u64(manual_stats().executor_refused, 10);
	assert_u64(log_recorder_count(&manual.log), 1);
	cr_assert(manual.log.lines[0].level == LOG_WARNING);

	/* A second after the first line, another one. */
	schedule_on(&executor.hook, &probes[0], HWT_MS(997));
	assert_u64(manual_tick(1000), 1);
	assert_u64(log_recorder_count(&manual.log), 1);
	schedule_on(&executor.hook, &probes[0], FIXTURE_TICK);
	assert_u64(manual_tick(1001), 1);
	assert_u64(log_recorder_count(&manual.log), 2);
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
	struct hwt_executor refusing = {
	    .execute = cancels_and_refuses, .ctx = &rc};

	assert_ok(hwt_new_timeout_on(
	    manual.timer, &refusing, NULL, forbidden_task, NULL, 0));

	assert_u64(manual_tick(1), 0);

	assert_ok(rc);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

Test(executor, refusals_in_one_moment_are_logged_once)
{
	static struct recording_executor refuses;
	struct probe probes[10] = {{0}};

	manual.start_ns = 2 * FIXTURE_START;
	manual_open(NULL);
	executor_init(&refuses, EXECUTOR_REFUSES);
	for (unsigned index = 0; index < 10; index++)
		schedule_on(&refuses.hook, &probes[index], 0);
	/* On an even moment, and on the odd one after it. */
	assert_u64(manual_tick(1), 10);
	assert_u64(log_recorder_count(&manual.log), 1);
	manual_step(HWT_SEC(2) + 1);
	for (unsigned index = 0; index < 10; index++)
		schedule_on(&refuses.hook, &probes[index], 0);
	manual_step(10 * FIXTURE_TICK);

	assert_u64(manual_stats().executor_refused, 20);
	assert_u64(log_recorder_count(&manual.log), 2);
	manual_close();
}
