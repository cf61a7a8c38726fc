/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_operation_reschedule: an operation expires at the deadline that was set
 * last, not before it; whether a call has set one is answered exactly. (The
 * model moves deadlines at random, the explorer beside all that ends them.)
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(reschedule);

static int
move(const struct operation *operation, uint64_t delay_ns)
{
	return hwt_operation_reschedule(purgatory, operation->handle, delay_ns);
}

PurgatoryTest(reschedule, later_sooner_never_and_back)
{
	play("watch-ms 0 1 20, pass 10, move-ms 0 50, pass 49, pending 0, "
	     "runs 2 1, expired 0, timeouts 0, "
	     "watch-ms 1 1 100000, move-ms 1 0, runs 0 0, runs 1 1, expired 1, "
	     "watch 2 1");
	assert_rc(move(&party[2], HWT_NEVER), 0);
	play("pass 1000000000, move-ms 2 9, move-ms 2 7, timeouts 1, pass 6, "
	     "pending 2, runs 2 1, expired 2");
}

PurgatoryTest(reschedule, hwt_operation_reschedule_errors_change_nothing)
{
	play("watch-ms 0 1 1, cancel-key 1 1, watch-ms 1 1 50");
	/* The next one has the record of the first. */
	assert_rc(move(&party[0], HWT_MS(1)), -ENOENT);
	assert_rc(move(&party[0], HWT_NEVER), -ENOENT);
	assert_rc(move(&party[2], HWT_MS(1)), -ENOENT);
	assert_rc(hwt_operation_reschedule(NULL, party[1].handle, 1), -EINVAL);
	assert_rc(move(&party[1], UINT64_C(1) << 63), -EINVAL);
	assert_rc(move(&party[1], HWT_NEVER - 1), -EINVAL);
	play("pass 49, pending 1, runs 2 1, expired 1");
	assert_rc(move(&party[1], HWT_MS(50)), -ENOENT);
}

Test(reschedule, one_whose_predicate_runs_is_moved_at_once)
{
	struct operation operation = {.holds = 0};
	pthread_t thread = hold_predicate(&operation, HWT_MS(5));

	assert_rc(move(&operation, HWT_MS(40)), 0);
	play("pass 10");
	let_go(thread);
	play("pass 29");
	assert_pending(&operation);
	play("runs 2 1");
	assert_ended(&operation, HWT_EXPIRED);
	purgatory_close();
}
