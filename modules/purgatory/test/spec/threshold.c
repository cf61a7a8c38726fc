/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threshold: raise touches only operations that complete, in order of threshold
 * and then of arrival. The values of a key only grow while something is linked
 * under it.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(threshold);

PurgatoryTest(threshold, three_one_five_under_one_to_five)
{
	play("value 0 1 3, value 1 1 1, value 2 1 5, stats 3 3 1, "
	     "raise 1 1 1, completed 1, raise 1 2 0, raise 1 3 1, completed 0, "
	     "raise 1 4 0, pending 2, raise 1 5 1, completed 2, stats 0 0 0");
	assert_u64(stats_now().tried, 0);
}

#define WAITERS 1000

PurgatoryTest(threshold, in_order_of_value_and_then_of_arrival)
{
	static struct operation operation[WAITERS];
	struct operation *by_order[WAITERS];
	unsigned i;

	for (i = 0; i < WAITERS; i++) {
		operation[i].count = 1 + i * 7919 % 100;
		assert_rc(
		    watch_value(&operation[i], KEY(1), operation[i].count), 0);
	}
	assert_u64(raise_to(KEY(1), 50), WAITERS / 2);
	assert_u64(raise_to(KEY(1), 50), 0);
	assert_u64(raise_to(KEY(1), UINT64_MAX), WAITERS / 2);
	for (i = 0; i < WAITERS; i++)
		by_order[operation[i].order - 1] = &operation[i];
	for (i = 1; i < WAITERS; i++) {
		cr_assert(by_order[i - 1]->count < by_order[i]->count ||
		    (by_order[i - 1]->count == by_order[i]->count &&
			by_order[i - 1] < by_order[i]));
	}
}

PurgatoryTest(threshold, a_value_that_was_reached_completes_at_watch)
{
	play("value 0 1 100, raise 1 7 0, reached 1 1 7, completed 1, "
	     "value 2 1 8, stats 2 2 1, raise 1 8 1, "
	     "raise 1 3 0, raise 1 0 0, reached 3 1 8, pending 0");
}

PurgatoryTest(threshold, the_value_ends_with_the_last_link)
{
	play("raise 1 9 0, value 0 1 5, raise 1 9 1, value 1 1 5, "
	     "stats 1 1 1, raise 1 5 1");
}

/* The key has none without memory; the next raise completes what waits then. */
PurgatoryTest(threshold, hwt_purgatory_raise_ENOMEM_keeps_no_value)
{
	play("watch 0 1");
	fault_arm(FAULT_HEAP, 1);
	assert_rc(hwt_purgatory_raise(purgatory, KEY(1), 5, NULL), -ENOMEM);
	assert_u64(fault_disarm(), 1);
	play("value 1 1 5, raise 1 5 1, stats 1 1 1, cancel-key 1 1");
}

/* One raise completes an operation once, however often done watches again: the
 * key was empty meanwhile, and so has no value. */
static void
same_value(struct operation *operation)
{
	if (operation->outcome != HWT_COMPLETED || operation->count++ > 50)
		return;
	operation->dones = 0;
	assert_rc(watch_value(operation, KEY(1), 5), 0);
}

PurgatoryTest(threshold, what_is_watched_again_waits_for_the_next_raise)
{
	static struct operation operation[32];
	unsigned i;

	for (i = 0; i < 32; i++) {
		operation[i].in_done = same_value;
		assert_rc(watch_value(&operation[i], KEY(1), 5), 0);
	}
	assert_u64(raise_to(KEY(1), 9), 32);
	assert_u64(operation[31].count, 1);
	assert_u64(raise_to(KEY(1), 9), 32);
	assert_u64(operation[31].count, 2);
}
