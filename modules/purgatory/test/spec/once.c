/* SPDX-License-Identifier: Apache-2.0 */
/*
 * once: done runs exactly once for every operation that watch accepted, with
 * one outcome, whatever races.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(once);

static struct yard yard;

Test(once, what_holds_at_watch_completes_there)
{
	party_make(&yard);
	play("holds 0");
	yard_open(&yard, NULL);
	play("met 0 1, completed 0, tries 0 1, stats 0 0 0, check 1 0, "
	     "runs 2000 0");
	yard_close(&yard);
	play("completed 0");
}

/* After one outcome, every other call is refused. */
static void
assert_over(struct operation *operation, enum hwt_outcome outcome)
{
	hwt_operation handle = operation->handle;

	assert_ended(operation, outcome);
	operation->holds = 1;
	assert_rc(hwt_operation_complete(yard.purgatory, handle), -ENOENT);
	assert_rc(hwt_operation_cancel(yard.purgatory, handle), -ENOENT);
	assert_u64(check(&yard, KEY(1)), 0);
	assert_u64(cancel_key(&yard, KEY(1)), 0);
	(void)fixture_step(&yard.fixture, HWT_SEC(10));
	assert_ended(operation, outcome);
	assert_stats(&yard, 0, 0, 0);
}

YardTest(once, each_outcome_is_the_only_one)
{
	party_make(&yard);
	play("watch-ms 0 1 1000, complete 0");
	assert_over(&party[0], HWT_COMPLETED);
	play("watch-ms 1 1 1000, cancel 1");
	assert_over(&party[1], HWT_CANCELLED);
	play("watch-ms 2 1 1000, pass 1000, pass 1");
	assert_over(&party[2], HWT_EXPIRED);
	play("watch-ms 3 1 1000, shutdown");
	assert_over(&party[3], HWT_SHUT_DOWN);
	assert_u64(yard_stats(&yard).completed, 1);
	assert_u64(yard_stats(&yard).cancelled, 1);
	assert_u64(yard_stats(&yard).expired, 1);
	assert_u64(yard_stats(&yard).shut_down, 1);
}

/* One call decides, and it says so: while another one runs the predicate, that
 * one does not count it, too. */
static void
complete_from_inside(struct operation *operation)
{
	if (operation->tries == 1)
		operation->rc = hwt_operation_complete(
		    operation->yard->purgatory, operation->handle);
}

YardTest(once, one_call_counts_the_decision)
{
	party_make(&yard);
	party[0].in_try = complete_from_inside;
	play("watch-ms 0 1 1000");
	party[0].rc = 1;
	play("holds 0, check 1 0");
	assert_rc(party[0].rc, 0);
	play("completed 0");
}
