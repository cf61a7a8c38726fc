/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_shared, hwt_shared_shutdown: one timer for the process, which only the
 * latter ends. Each test has a process, and so a shared timer, of its own.
 */
#include "test/spec/support.h"

SUITE(shared);

static void
race_for_the_first(unsigned index, void *arg)
{
	struct hwt **timers = arg;

	assert_ok(hwt_shared(&timers[index]));
}

Test(shared, callers_that_race_for_the_first_get_the_same_started_timer)
{
	struct hwt *timers[8] = {NULL};
	struct probe probe = {0};

	fault_arm(FAULT_THREAD, FAULT_COUNT);
	in_parallel(8, race_for_the_first, timers);
	assert_ok(hwt_new_timeout(timers[0], NULL, probe_task, &probe, 0));
	wait_for(&probe.runs, 1);
	assert_u64(fault_disarm(), 1);

	for (unsigned i = 0; i < 8; i++)
		cr_assert(timers[i] == timers[0]);
	assert_ok(hwt_shared_shutdown(NULL));
}

/* A tick is begun only when something is due on it: 100 ms are 11 at most. */
Test(shared, tick_is_10_ms)
{
	struct probe probe = {0};
	struct hwt_stats stats;
	struct hwt *timer;

	assert_ok(hwt_shared(&timer));
	for (unsigned i = 0; i < 100; i++)
		assert_ok(hwt_new_timeout(
		    timer, NULL, probe_task, &probe, HWT_MS(100 + i)));
	wait_for(&probe.runs, 100);

	assert_ok(hwt_read_stats(timer, &stats));
	cr_assert(stats.ticks <= 12);
	assert_ok(hwt_shared_shutdown(NULL));
}

Test(shared, nobody_stops_or_destroys_it)
{
	struct hwt_unprocessed list = {.count = 5};
	struct hwt *timer;

	assert_ok(hwt_shared(&timer));

	for (unsigned i = 0; i < 2; i++) {
		assert_rc(hwt_stop(timer, &list), -EPERM);
		assert_u64(list.count, 0);
		assert_rc(hwt_stop_within(timer, HWT_SEC(1), NULL), -EPERM);
		assert_rc(hwt_destroy(timer), -EPERM);
		assert_ok(hwt_shared_shutdown(NULL));
	}
}

static void
then_shut_down(struct probe *probe)
{
	probe->rc = hwt_shared_shutdown(NULL);
}

Test(shared, its_own_task_cannot_shut_it_down)
{
	struct probe probe = {.then = then_shut_down};
	struct hwt *timer;

	assert_ok(hwt_shared(&timer));
	assert_ok(hwt_new_timeout(timer, NULL, probe_task, &probe, 0));
	wait_for(&probe.runs, 1);
	assert_rc(probe.rc, -EDEADLK);
	assert_ok(hwt_shared_shutdown(NULL));
}

Test(shared, after_shutdown_there_is_none)
{
	struct hwt_unprocessed list;
	struct hwt *timer, *another = NULL;

	assert_ok(hwt_shared(&timer));
	schedule_task(timer, forbidden_task, HWT_MIN(1));
	assert_ok(hwt_shared_shutdown(&list));
	assert_u64(list.count, 1);

	assert_rc(hwt_shared(&another), -ESHUTDOWN);
	cr_assert(another == NULL);
	assert_rc(hwt_start(timer), -ESHUTDOWN);
	assert_ok(hwt_shared_shutdown(&list));
	assert_u64(list.count, 0);
}
