/* SPDX-License-Identifier: Apache-2.0 */
/* max_pending: never exceeded, never a refusal while a place is free. */
#include "test/spec/support.h"

SUITE(max_pending);

Test(max_pending, limit_is_reached_and_not_exceeded)
{
	for (uint64_t limit = 1; limit <= 1000; limit *= 10) {
		manual_open(&(struct hwt_options){.max_pending = limit});
		for (uint64_t count = 0; count < limit; count++)
			schedule_forbidden(HWT_MIN(1));

		assert_rc(hwt_new_timeout(manual.timer, NULL, forbidden_task,
			      NULL, HWT_MIN(1)),
		    -ENOBUFS);

		assert_u64(hwt_pending_timeouts(manual.timer), limit);
		assert_u64(manual_stats().scheduled, limit);
		assert_u64(manual_stats().rejected, 1);
		manual_close();
	}
}
