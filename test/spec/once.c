/* SPDX-License-Identifier: Apache-2.0 */
/*
 * once: every accepted timeout ends exactly once: started, cancelled, or given
 * back by stop; also when all calls race.
 */
#include "test/spec/support.h"

SUITE(once);

static void
assert_ended(hwt_timeout timeout)
{
	int64_t remaining_ns;

	assert_rc(hwt_cancel(manual.timer, timeout), -ENOENT);
	assert_rc(hwt_cancel_wait(manual.timer, timeout), -ENOENT);
	assert_rc(hwt_reschedule(manual.timer, timeout, 0), -ENOENT);
	assert_rc(hwt_remaining(manual.timer, timeout, &remaining_ns), -ENOENT);
	assert_rc(hwt_run(manual.timer, timeout), -ENOENT);
	assert_rc(manual_state(timeout), -ENOENT);
}

static uint64_t
stop_and_count(void)
{
	struct hwt_unprocessed unprocessed;

	assert_ok(hwt_stop(manual.timer, &unprocessed));
	return unprocessed.count;
}

ManualTest(once, timeout_given_back_by_stop_has_ended)
{
	hwt_timeout timeout = schedule_forbidden(TICKS(1));

	assert_u64(stop_and_count(), 1);

	assert_ended(timeout);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}
