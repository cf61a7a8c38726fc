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
