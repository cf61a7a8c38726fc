/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_shared and hwt_shared_shutdown: one timer for the process, which only
 * the latter ends. Each test has a process, and so a shared timer, of its own.
 */
#include "test/spec/support.h"

#include <string.h>

SUITE(shared);

static struct hwt *
shared(void)
{
	struct hwt *timer = NULL;

	assert_ok(hwt_shared(&timer));
	cr_assert(timer != NULL);
	return timer;
}

struct shared_race {
	struct hwt *timers[8];
	int rc[8];
};

static void
race_for_the_first(unsigned index, void *arg)
{
	struct shared_race *race = arg;

	race->rc[index] = hwt_shared(&race->timers[index]);
}

Test(shared, callers_that_race_for_the_first_get_the_same)
{
	static struct shared_race race;

	fault_arm(FAULT_THREAD, FAULT_COUNT);
	in_parallel(8, race_for_the_first, &race);
	assert_u64(fault_disarm(), 1);

	for (unsigned index = 0; index < 8; index++) {
		assert_ok(race.rc[index]);
		cr_assert(race.timers[index] == race.timers[0]);
	}
	cr_assert(race.timers[0] != NULL);
}

Test(shared, it_is_started_and_runs_tasks)
{
	struct hwt *timer = shared();
	struct probe probe = {0};

	fault_arm(FAULT_THREAD, FAULT_COUNT);
	assert_ok(hwt_new_timeout(timer, NULL, probe_task, &probe, HWT_MS(1)));
	wait_for(&probe.runs, 1);
	assert_u64(fault_disarm(), 0);

	assert_ok(hwt_shared_shutdown(NULL));
}

/* A tick is begun only when something is due on it, so the number of ticks
 * tells their length: 100 ms are 10 or 11 of them. */
Test(shared, its_tick_is_not_below_10_ms)
{
	static struct probe probe;
	static struct hwt_spec specs[100];
	struct hwt *timer = shared();
	struct hwt_stats stats;

	for (size_t index = 0; index < 100; index++) {
		specs[index] = (struct hwt_spec){.task = probe_task,
		    .arg = &probe,
		    .delay_ns = HWT_MS(100 + index)};
	}
	assert_ok(hwt_new_timeouts(timer, 100, specs, NULL));
	wait_for(&probe.runs, 100);

	assert_ok(hwt_read_stats(timer, &stats));
	cr_assert(stats.ticks <= 11);
	assert_ok(hwt_shared_shutdown(NULL));
}

Test(shared, null_is_refused)
{
	assert_rc(hwt_shared(NULL), -EINVAL);
}

Test(shared, nobody_stops_or_destroys_it)
{
	struct hwt *timer = shared();
	struct hwt_unprocessed list;
	struct hwt_unprocessed nothing = {0};
	struct probe probe = {0};

	memset(&list, 0xa5, sizeof(list));
	assert_rc(hwt_stop(timer, &list), -EPERM);
	cr_assert(memcmp(&list, &nothing, sizeof(list)) == 0);
	memset(&list, 0xa5, sizeof(list));
	assert_rc(hwt_stop_within(timer, HWT_SEC(1), &list), -EPERM);
	cr_assert(memcmp(&list, &nothing, sizeof(list)) == 0);
	assert_rc(hwt_destroy(timer), -EPERM);

	assert_ok(hwt_new_timeout(timer, NULL, probe_task, &probe, 0));
	wait_for(&probe.runs, 1);
	assert_ok(hwt_shared_shutdown(NULL));
	assert_rc(hwt_stop(timer, NULL), -EPERM);
	assert_rc(hwt_destroy(timer), -EPERM);
}

Test(shared, after_shutdown_there_is_none)
{
	struct hwt *timer = shared();
	struct hwt *another = (struct hwt *)1;
	hwt_timeout timeout = {1};

	assert_ok(hwt_shared_shutdown(NULL));

	assert_rc(hwt_shared(&another), -ESHUTDOWN);
	cr_assert(another == (struct hwt *)1);
	assert_rc(hwt_new_timeout(timer, &timeout, forbidden_task, NULL, 0),
	    -ESHUTDOWN);
	assert_u64(timeout.id, 0);
	assert_rc(hwt_start(timer), -ESHUTDOWN);
	assert_u64(hwt_pending_timeouts(timer), 0);
}

Test(shared, a_second_shutdown_gives_an_empty_list)
{
	struct hwt_unprocessed list;

	assert_ok(
	    hwt_new_timeout(shared(), NULL, forbidden_task, NULL, HWT_MIN(1)));
	assert_ok(hwt_shared_shutdown(NULL));
	memset(&list, 0xa5, sizeof(list));

	assert_ok(hwt_shared_shutdown(&list));

	assert_u64(list.count, 0);
}

Test(shared, shutdown_before_the_first_use_means_that_there_is_never_one)
{
	struct hwt_unprocessed list;
	struct hwt *timer = NULL;

	memset(&list, 0xa5, sizeof(list));
	assert_ok(hwt_shared_shutdown(&list));
	assert_u64(list.count, 0);

	fault_arm(FAULT_THREAD, FAULT_COUNT);
	assert_rc(hwt_shared(&timer), -ESHUTDOWN);
	assert_u64(fault_disarm(), 0);
	cr_assert(timer == NULL);
	assert_ok(hwt_shared_shutdown(&list));
}

static void
then_shut_down(struct probe *probe)
{
	struct hwt_unprocessed *list = probe->data;

	probe->rc = hwt_shared_shutdown(list);
}

Test(shared, shutdown_from_its_own_task_is_a_deadlock)
{
	struct hwt_unprocessed list;
	struct hwt_unprocessed nothing = {0};
	struct probe probe = {.then = then_shut_down, .data = &list};

	memset(&list, 0xa5, sizeof(list));
	assert_ok(hwt_new_timeout(shared(), NULL, probe_task, &probe, 0));
	wait_for(&probe.runs, 1);

	assert_rc(probe.rc, -EDEADLK);
	cr_assert(memcmp(&list, &nothing, sizeof(list)) == 0);
	shared();
	assert_ok(hwt_shared_shutdown(NULL));
}

Test(shared, without_a_thread_or_memory_a_later_call_may_succeed)
{
	struct hwt *timer = (struct hwt *)1;

	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	assert_rc(hwt_shared(&timer), -ENOMEM);
	fault_disarm();
	fault_arm(FAULT_THREAD, FAULT_ALWAYS);
	assert_rc(hwt_shared(&timer), -EAGAIN);
	assert_rc(hwt_shared(&timer), -EAGAIN);
	fault_disarm();
	cr_assert(timer == (struct hwt *)1);

	shared();
	assert_ok(hwt_shared_shutdown(NULL));
}
