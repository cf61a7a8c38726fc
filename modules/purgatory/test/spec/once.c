/* SPDX-License-Identifier: Apache-2.0 */
/*
 * once: done runs exactly once for every operation that watch accepted, with
 * one outcome, whatever races.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(once);

/* Kafka's testRequestSatisfaction: already at watch, by an unknown key, by its
 * own ones. */
PurgatoryTest(once, satisfaction_at_watch_by_its_key_and_by_no_other)
{
	play(
	    "holds 0, met 0 1, completed 0, tries 0 1, stats 0 0 0, check 1 0, "
	    "runs 2000 0, watch 1 1, watch 2 2, check 9 0, holds 1, check 1 1, "
	    "completed 1, check 1 0, pending 2, holds 2, check 2 1, "
	    "completed 2, stats 0 0 0");
}

/* After one outcome, every other call is refused. */
PurgatoryTest(once, each_outcome_is_the_only_one)
{
	play("watch-ms 0 1 1000, complete 0, completed 0, holds 0, over 0, "
	     "watch-ms 1 1 1000, cancel 1, cancelled 1, holds 1, over 1, "
	     "watch-ms 2 1 1000, pass 1000, pass 1, expired 2, over 2, "
	     "check 1 0, cancel-key 1 0, watch-ms 3 1 1000, shutdown, over 3, "
	     "pass 10000, completed 0, cancelled 1, expired 2, shut-down 3, "
	     "stats 0 0 0");
}

/* One call decides, and it says so: while another one runs the predicate, that
 * one does not count it, too. */
static void
complete_from_inside(struct operation *operation)
{
	if (operation->tries == 1)
		operation->rc =
		    hwt_operation_complete(purgatory, operation->handle);
}

PurgatoryTest(once, one_call_counts_the_decision)
{
	party[0].in_try = complete_from_inside;
	party[0].rc = 1;
	play("watch-ms 0 1 1000, holds 0, check 1 0, completed 0");
	assert_rc(party[0].rc, 0);
}
