/* SPDX-License-Identifier: Apache-2.0 */
/*
 * max_pending: never exceeded, never a refusal while a place is free, and the
 * moments at which a place is free again.
 */
#include "test/spec/support.h"

SUITE(max_pending);

#define LimitedTest(name, limit) \
	ManualTestWith(          \
	    max_pending, name, .tick_ns = FIXTURE_TICK, .max_pending = limit)

static int
schedule_one(hwt_timeout *timeout)
{
	return hwt_new_timeout(
	    manual.timer, timeout, forbidden_task, NULL, HWT_MIN(1));
}

Test(max_pending, limit_is_reached_and_not_exceeded)
{
	for (uint64_t limit = 1; limit <= 1000; limit *= 10) {
		manual_open(&(struct hwt_options){.max_pending = limit});
		for (uint64_t count = 0; count < limit; count++)
			assert_ok(schedule_one(NULL));

		assert_rc(schedule_one(NULL), -ENOBUFS);

		assert_u64(hwt_pending_timeouts(manual.timer), limit);
		assert_u64(manual_stats().scheduled, limit);
		assert_u64(manual_stats().rejected, 1);
		manual_close();
	}
}

LimitedTest(cancel_frees_the_place_at_once, 1)
{
	hwt_timeout timeout;

	assert_ok(schedule_one(&timeout));

	for (unsigned round = 0; round < 100; round++) {
		assert_rc(schedule_one(NULL), -ENOBUFS);
		assert_ok(hwt_cancel(manual.timer, timeout));
		assert_ok(schedule_one(&timeout));
		if (round % 3 == 0)
			manual_step(FIXTURE_TICK);
	}
}

static void
then_schedule(struct probe *probe)
{
	probe->rc = schedule_one(NULL);
}

LimitedTest(place_is_free_before_the_task_begins, 1)
{
	struct probe probe = {.then = then_schedule};

	probe_schedule(&probe, 0);

	assert_u64(manual_tick(1), 1);

	assert_ok(probe.rc);
	assert_rc(schedule_one(NULL), -ENOBUFS);
}

LimitedTest(held_timeout_keeps_its_place_until_it_starts_or_is_cancelled, 1)
{
	struct probe probe = {.then = then_schedule};

	executor_init(&recorder, EXECUTOR_HOLDS);
	for (unsigned round = 0; round < 2; round++) {
		assert_ok(hwt_new_timeout_on(manual.timer, &recorder.hook,
		    &probe.handle, probe_task, &probe, 0));
		manual_step(FIXTURE_TICK);
		assert_rc(schedule_one(NULL), -ENOBUFS);
		if (round == 1)
			break;
		assert_ok(hwt_cancel(manual.timer, probe.handle));
		assert_rc(executor_run(&recorder, round), -ENOENT);
	}

	assert_ok(executor_run(&recorder, 1));

	assert_ok(probe.rc);
}

LimitedTest(refused_call_takes_no_place, 1)
{
	assert_rc(hwt_new_timeout(manual.timer, NULL, NULL, NULL, 0), -EINVAL);
	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	assert_rc(schedule_one(NULL), -ENOMEM);
	fault_disarm();

	assert_ok(schedule_one(NULL));
}
