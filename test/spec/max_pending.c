/* SPDX-License-Identifier: Apache-2.0 */
/*
 * max_pending: never exceeded, never a refusal while a place is free, and the
 * moments at which a place is free again.
 */
#include "test/spec/support.h"

#include <string.h>

SUITE(max_pending);

static struct recording_executor executor;

static void
open_limited(uint64_t max_pending, const struct hwt_executor *hook)
{
	memset(&manual, 0, sizeof(manual));
	manual_open(&(struct hwt_options){.tick_ns = HWT_MS(1),
	    .max_pending = max_pending,
	    .executor = hook});
}

/* A manual timer with that limit. */
#define LimitedTest(suite, name, limit) \
	TestBetween(open_limited(limit, NULL), manual_close(), suite, name)

static int
schedule_one(hwt_timeout *timeout)
{
	return hwt_new_timeout(
	    manual.timer, timeout, forbidden_task, NULL, HWT_MIN(1));
}

static int
schedule_batch(size_t count)
{
	static struct hwt_spec specs[64];
	static hwt_timeout timeouts[64];
	int rc;

	cr_assert(count <= 64);
	for (size_t index = 0; index < count; index++) {
		specs[index] = (struct hwt_spec){
		    .task = forbidden_task, .delay_ns = HWT_MIN(1)};
		timeouts[index].id = 1;
	}
	rc = hwt_new_timeouts(manual.timer, count, specs, timeouts);
	for (size_t index = 0; index < count; index++)
		cr_assert((rc == 0) == (timeouts[index].id != 0));
	return rc;
}

Test(max_pending, the_limit_is_reached_and_not_exceeded)
{
	const uint64_t limits[] = {1, 2, 3, 64, 1000};
	hwt_timeout timeout;

	for (size_t index = 0; index < sizeof(limits) / sizeof(limits[0]);
	     index++) {
		open_limited(limits[index], NULL);
		for (uint64_t count = 0; count < limits[index]; count++)
			assert_ok(schedule_one(&timeout));

		timeout.id = 1;
		assert_rc(schedule_one(&timeout), -ENOBUFS);
		assert_rc(schedule_one(NULL), -ENOBUFS);

		assert_u64(timeout.id, 0);
		assert_u64(hwt_pending_timeouts(manual.timer), limits[index]);
		assert_u64(manual_stats().scheduled, limits[index]);
		assert_u64(manual_stats().rejected, 2);
		manual_close();
	}
}

LimitedTest(max_pending, a_limit_of_0_is_none, 0)
{
	for (unsigned count = 0; count < 100000; count++)
		assert_ok(schedule_one(NULL));

	assert_u64(manual_stats().rejected, 0);
}

LimitedTest(max_pending, the_greatest_limit_refuses_nothing, UINT64_MAX)
{
	assert_ok(schedule_one(NULL));
	assert_ok(schedule_batch(64));

	assert_u64(hwt_pending_timeouts(manual.timer), 65);
}

LimitedTest(max_pending, cancel_frees_the_place_at_once, 1)
{
	hwt_timeout timeout;

	assert_ok(schedule_one(&timeout));

	for (unsigned round = 0; round < 100; round++) {
		assert_rc(schedule_one(NULL), -ENOBUFS);
		assert_ok(hwt_cancel(manual.timer, timeout));
		assert_ok(schedule_one(&timeout));
		if (round % 3 == 0)
			manual_step(HWT_MS(1));
	}

	assert_ok(hwt_cancel_wait(manual.timer, timeout));
	assert_ok(schedule_one(&timeout));
}

static void
then_schedule_forbidden(struct probe *probe)
{
	probe->rc = schedule_one(NULL);
}

LimitedTest(max_pending, the_place_is_free_before_the_task_begins, 1)
{
	struct probe probe = {.then = then_schedule_forbidden};

	probe_schedule(&probe, 0);

	assert_u64(manual_tick(1), 1);

	assert_ok(probe.rc);
	assert_rc(schedule_one(NULL), -ENOBUFS);
}

Test(max_pending, what_an_executor_holds_keeps_its_place_until_it_starts)
{
	struct probe probe = {.then = then_schedule_forbidden};

	executor_init(&executor, EXECUTOR_HOLDS);
	open_limited(1, &executor.hook);
	probe_schedule(&probe, 0);
	manual_tick(1);
	assert_u64(executor.count, 1);
	assert_rc(schedule_one(NULL), -ENOBUFS);

	assert_ok(executor_run(&executor, 0));

	assert_ok(probe.rc);
	manual_close();
}

Test(max_pending, cancelling_what_an_executor_holds_frees_the_place)
{
	struct probe probe = {0};

	executor_init(&executor, EXECUTOR_HOLDS);
	open_limited(1, &executor.hook);
	probe_schedule(&probe, 0);
	manual_tick(1);

	assert_ok(hwt_cancel(manual.timer, probe.handle));

	assert_ok(schedule_one(NULL));
	assert_rc(executor_run(&executor, 0), -ENOENT);
	assert_rc(schedule_one(NULL), -ENOBUFS);
	manual_close();
}

LimitedTest(max_pending, a_periodic_timeout_keeps_its_place_while_it_runs, 1)
{
	struct probe probe = {.then = then_schedule_forbidden};

	probe_schedule_periodic(&probe, 0, HWT_MS(1));
	assert_u64(manual_tick(1), 1);
	assert_rc(probe.rc, -ENOBUFS);
	assert_rc(schedule_one(NULL), -ENOBUFS);

	assert_ok(hwt_cancel(manual.timer, probe.handle));

	assert_ok(schedule_one(NULL));
}

static void
then_cancel_itself(struct probe *probe)
{
	probe->rc = hwt_cancel(manual.timer, probe->timeout);
}

LimitedTest(max_pending, a_periodic_timeout_that_ends_itself_frees_its_place, 1)
{
	struct probe probe = {.then = then_cancel_itself};

	probe_schedule_periodic(&probe, 0, HWT_MS(1));
	assert_u64(manual_tick(1), 1);
	assert_rc(probe.rc, -EINPROGRESS);

	assert_ok(schedule_one(NULL));
	assert_rc(schedule_one(NULL), -ENOBUFS);
}

LimitedTest(max_pending, a_batch_that_does_not_fit_is_refused_whole, 4)
{
	assert_ok(schedule_batch(2));

	assert_rc(schedule_batch(3), -ENOBUFS);
	assert_u64(hwt_pending_timeouts(manual.timer), 2);
	assert_u64(manual_stats().rejected, 3);
	assert_ok(schedule_batch(2));
	assert_rc(schedule_batch(1), -ENOBUFS);

	assert_u64(hwt_pending_timeouts(manual.timer), 4);
	assert_u64(manual_stats().scheduled, 4);
	assert_u64(manual_stats().rejected, 4);
}

LimitedTest(max_pending, a_refused_call_takes_no_place, 1)
{
	const struct hwt_spec wrong[2] = {
	    {.task = forbidden_task}, {.task = NULL}};
	const struct hwt_executor nothing = {0};

	assert_rc(hwt_new_timeout(manual.timer, NULL, NULL, NULL, 0), -EINVAL);
	assert_rc(hwt_new_timeout(
		      manual.timer, NULL, forbidden_task, NULL, HWT_NEVER - 1),
	    -EINVAL);
	assert_rc(hwt_new_timeout_on(
		      manual.timer, &nothing, NULL, forbidden_task, NULL, 0),
	    -EINVAL);
	assert_rc(hwt_new_timeouts(manual.timer, 2, wrong, NULL), -EINVAL);

	assert_ok(schedule_one(NULL));
}

Test(max_pending, a_call_without_a_thread_takes_no_place)
{
	struct hwt *timer = NULL;

	assert_ok(hwt_create(&timer, &(struct hwt_options){.max_pending = 1}));
	fault_arm(FAULT_THREAD, FAULT_ALWAYS);
	assert_rc(
	    hwt_new_timeout(timer, NULL, forbidden_task, NULL, HWT_MIN(1)),
	    -EAGAIN);
	fault_disarm();

	assert_ok(
	    hwt_new_timeout(timer, NULL, forbidden_task, NULL, HWT_MIN(1)));
	assert_rc(
	    hwt_new_timeout(timer, NULL, forbidden_task, NULL, HWT_MIN(1)),
	    -ENOBUFS);
	worker_timer_close(timer);
}

static void
then_schedule_two(struct probe *probe)
{
	assert_ok(schedule_one(NULL));
	probe->rc = schedule_one(NULL);
}

LimitedTest(max_pending, a_task_may_take_the_place_that_it_left_and_no_more, 3)
{
	struct probe probe = {.then = then_schedule_two};

	assert_ok(schedule_batch(2));
	probe_schedule(&probe, 0);

	assert_u64(manual_tick(1), 1);

	assert_rc(probe.rc, -ENOBUFS);
}
