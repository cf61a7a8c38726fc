/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executors and hwt_run: who accepts a timeout calls hwt_run for it once, now
 * or later, on any thread; what is refused runs in the worker.
 */
#include "test/spec/support.h"

#include <syslog.h>

SUITE(executor);

ExecutorTest(executor, hwt_run_starts_a_held_timeout_once, EXECUTOR_HOLDS)
{
	struct probe probe = {0};

	probe_schedule(&probe, TICKS(1));
	assert_rc(hwt_run(manual.timer, probe.handle), -ENOENT);
	assert_u64(manual_tick(1), 0);
	assert_u64(recorder.calls[0].timeout.id, probe.handle.id);
	cr_assert(recorder.calls[0].timer == manual.timer);

	assert_ok(hwt_run(manual.timer, probe.handle));

	assert_rc(hwt_run(manual.timer, probe.handle), -ENOENT);
	assert_u64(probe.runs, 1);
}

WorkerTest(executor, tasks_run_in_the_worker_without_one_and_after_a_refusal)
{
	static struct probe refused, plain;

	executor_init(&recorder, EXECUTOR_REFUSES);
	assert_ok(hwt_new_timeout_on(
	    live.timer, &recorder.hook, NULL, probe_task, &refused, 0));
	assert_ok(hwt_new_timeout(live.timer, NULL, probe_task, &plain, 0));
	wait_for(&refused.runs, 1);
	wait_for(&plain.runs, 1);

	cr_assert(pthread_equal(refused.thread, plain.thread));
	cr_assert(!pthread_equal(plain.thread, pthread_self()));
	assert_u64(live_stats().executor_refused, 1);
}

ExecutorTest(
    executor, refusals_are_logged_once_a_second_at_most, EXECUTOR_REFUSES)
{
	for (unsigned i = 0; i < 8; i++)
		schedule_task(manual.timer, idle_task, TICKS(1 + i / 4));
	schedule_task(manual.timer, idle_task, TICKS(1000));
	schedule_task(manual.timer, idle_task, TICKS(1001));

	assert_u64(manual_tick(1), 4);
	assert_u64(manual_tick(2), 4);
	assert_u64(manual_tick(1000), 1);
	assert_u64(manual.log.count, 1);
	assert_i64(manual.log.lines[0].level, LOG_WARNING);
	assert_u64(manual_tick(1001), 1);

	assert_u64(manual.log.count, 2);
	assert_u64(manual_stats().executor_refused, 10);
}
