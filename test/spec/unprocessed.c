/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of what stop left unprocessed: which timeouts are in it, each once,
 * and what is told about each.
 */
#include "test/spec/support.h"

#include <string.h>

SUITE(unprocessed);

static struct recording_executor executor;

/* Stops, and tells the only timeout that is left. */
static struct hwt_timeout_info
stop_with_one_left(void)
{
	struct hwt_timeout_info info;
	struct hwt_timeout_info another;
	struct hwt_unprocessed list;

	memset(&info, 0xa5, sizeof(info));
	assert_ok(hwt_stop(manual.timer, &list));
	assert_u64(list.count, 1);
	cr_assert(hwt_unprocessed_next(&list, &info));
	cr_assert(!hwt_unprocessed_next(&list, &another));
	cr_assert(!hwt_unprocessed_next(&list, &another));
	assert_u64(list.count, 1);
	assert_ok(hwt_destroy(manual.timer));
	return info;
}

Test(unprocessed, null_tells_nothing)
{
	struct hwt_unprocessed list = {0};
	struct hwt_timeout_info info;

	cr_assert(!hwt_unprocessed_next(NULL, &info));
	cr_assert(!hwt_unprocessed_next(&list, &info));
	cr_assert(!hwt_unprocessed_next(NULL, NULL));
}

ManualTest(unprocessed, without_a_place_for_it_nothing_is_told_or_passed_over)
{
	struct hwt_unprocessed list;
	struct hwt_timeout_info info;

	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, forbidden_task, NULL, HWT_MS(3)));
	assert_ok(hwt_stop(manual.timer, &list));

	cr_assert(!hwt_unprocessed_next(&list, NULL));

	cr_assert(hwt_unprocessed_next(&list, &info));
}

Test(unprocessed, it_tells_everything_about_a_plain_one)
{
	struct hwt_timeout_info info;
	hwt_timeout timeout;
	int arg;

	manual_open(NULL);
	assert_ok(hwt_new_timeout(
	    manual.timer, &timeout, forbidden_task, &arg, HWT_MS(3)));
	manual.now_ns += HWT_US(700);

	info = stop_with_one_left();

	assert_u64(info.timeout.id, timeout.id);
	cr_assert(info.task == forbidden_task);
	cr_assert(info.arg == &arg);
	assert_i64(info.remaining_ns, (int64_t)HWT_US(2300));
	assert_u64(info.period_ns, 0);
	cr_assert(info.executor == NULL);
	assert_u64(info.reserved[0] | info.reserved[1], 0);
}

Test(unprocessed, it_tells_everything_about_a_periodic_one_with_executor)
{
	struct hwt_timeout_info info;
	hwt_timeout timeout;
	int arg;
	const struct hwt_spec spec = {.task = forbidden_task,
	    .arg = &arg,
	    .delay_ns = HWT_SEC(3),
	    .period_ns = HWT_SEC(7),
	    .executor = &executor.hook};

	executor_init(&executor, EXECUTOR_HOLDS);
	manual_open(NULL);
	assert_ok(hwt_new_timeouts(manual.timer, 1, &spec, &timeout));
	manual_tick(1);

	info = stop_with_one_left();

	assert_u64(info.timeout.id, timeout.id);
	cr_assert(info.task == forbidden_task);
	cr_assert(info.arg == &arg);
	assert_i64(info.remaining_ns, (int64_t)(HWT_SEC(3) - HWT_MS(1)));
	assert_u64(info.period_ns, HWT_SEC(7));
	cr_assert(info.executor == &executor.hook);
}

Test(unprocessed, the_timers_own_executor_is_told_as_null)
{
	executor_init(&executor, EXECUTOR_HOLDS);
	manual_open(&(struct hwt_options){.executor = &executor.hook});
	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, forbidden_task, NULL, HWT_MS(3)));

	cr_assert(stop_with_one_left().executor == NULL);
}

Test(unprocessed, what_is_overdue_has_less_than_nothing_left)
{
	struct hwt_timeout_info info;

	manual_open(NULL);
	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, forbidden_task, NULL, HWT_MS(3)));
	manual_tick(2);
	manual.now_ns += HWT_SEC(1);

	info = stop_with_one_left();

	assert_i64(info.remaining_ns, -(int64_t)(HWT_SEC(1) - HWT_MS(1)));
}

Test(unprocessed, what_is_never_due_has_the_most_left)
{
	manual_open(NULL);
	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, forbidden_task, NULL, HWT_NEVER));
	assert_i64(stop_with_one_left().remaining_ns, INT64_MAX);

	manual_open(NULL);
	assert_ok(hwt_new_timeout(
	    manual.timer, NULL, forbidden_task, NULL, (UINT64_C(1) << 63) - 1));
	manual_tick(3);
	assert_i64(stop_with_one_left().remaining_ns, INT64_MAX);
}

Test(unprocessed, what_was_rescheduled_is_told_with_its_last_deadline)
{
	hwt_timeout timeout;

	manual_open(NULL);
	timeout = schedule_task(manual.timer, forbidden_task, HWT_MS(3));
	manual_tick(1);
	assert_ok(hwt_reschedule(manual.timer, timeout, HWT_MS(90)));
	assert_i64(stop_with_one_left().remaining_ns, (int64_t)HWT_MS(90));

	manual_open(NULL);
	timeout = schedule_task(manual.timer, forbidden_task, HWT_MS(90));
	manual_tick(1);
	assert_ok(hwt_reschedule(manual.timer, timeout, HWT_MS(3)));
	assert_i64(stop_with_one_left().remaining_ns, (int64_t)HWT_MS(3));
}

Test(unprocessed, a_periodic_one_between_runs_is_told_with_its_next_deadline)
{
	struct probe probe = {0};
	struct hwt_timeout_info info;

	manual_open(NULL);
	probe_schedule_periodic(&probe, HWT_MS(1), HWT_MS(5));
	assert_u64(manual_tick(1), 1);

	info = stop_with_one_left();

	assert_i64(info.remaining_ns, (int64_t)HWT_MS(5));
	assert_u64(info.timeout.id, probe.handle.id);
	assert_u64(probe.runs, 1);
}

#define MANY 30000

static unsigned char told[MANY];

ManualTest(unprocessed, each_of_many_is_in_it_once)
{
	struct hwt_unprocessed list;
	struct hwt_timeout_info info;
	hwt_timeout timeout;
	uint64_t count = 0;

	for (size_t index = 0; index < MANY; index++) {
		assert_ok(hwt_new_timeout(manual.timer, &timeout,
		    forbidden_task, &told[index], HWT_MS(10 + index % 1000)));
		if (index % 3 == 0)
			assert_ok(hwt_cancel(manual.timer, timeout));
		if (index % 3 == 1)
			assert_ok(
			    hwt_reschedule(manual.timer, timeout, HWT_MS(9)));
		if (index == MANY / 2)
			manual_tick(1);
	}

	assert_ok(hwt_stop(manual.timer, &list));
	assert_u64(list.count, MANY / 3 * 2);
	while (hwt_unprocessed_next(&list, &info)) {
		(*(unsigned char *)info.arg)++;
		assert_rc(hwt_cancel(manual.timer, info.timeout), -ENOENT);
		count++;
	}

	assert_u64(count, MANY / 3 * 2);
	assert_u64(list.count, MANY / 3 * 2);
	for (size_t index = 0; index < MANY; index++)
		assert_u64(told[index], index % 3 == 0 ? 0 : 1);
}

ManualTest(unprocessed, stop_and_the_walk_need_no_memory)
{
	struct hwt_unprocessed list;
	struct hwt_timeout_info info;
	uint64_t count = 0;

	for (size_t index = 0; index < 1000; index++) {
		assert_ok(hwt_new_timeout(manual.timer, NULL, forbidden_task,
		    NULL, HWT_MS(10 + index)));
		if (index == 500)
			manual_tick(1);
	}

	fault_arm(FAULT_MEMORY | FAULT_KEY | FAULT_THREAD, FAULT_ALWAYS);
	assert_ok(hwt_stop(manual.timer, &list));
	while (hwt_unprocessed_next(&list, &info))
		count++;
	assert_u64(fault_disarm(), 0);

	assert_u64(count, 1000);
}
