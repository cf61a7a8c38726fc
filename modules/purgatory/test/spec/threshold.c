/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threshold: raise touches only operations that complete, in order of threshold
 * and then of arrival. The values of a key only grow while something is linked
 * under it.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <stdlib.h>

SUITE(threshold);

static struct yard yard;

YardTest(threshold, three_one_five_under_one_to_five)
{
	static const uint64_t at_least[] = {3, 1, 5};
	static const size_t completed[] = {1, 0, 1, 0, 1};
	struct operation operation[3] = {
	    {.yard = &yard}, {.yard = &yard}, {.yard = &yard}};
	uint64_t value;
	unsigned i;

	for (i = 0; i < 3; i++)
		assert_rc(watch_value(&operation[i], KEY(1), at_least[i]), 0);
	assert_stats(&yard, 3, 3, 1);
	for (value = 1; value <= 5; value++) {
		assert_u64(
		    raise_to(&yard, KEY(1), value), completed[value - 1]);
		for (i = 0; i < 3; i++)
			assert_u64(operation[i].dones, at_least[i] <= value);
	}
	assert_stats(&yard, 0, 0, 0);
	assert_u64(yard_stats(&yard).tried, 0);
}

#define WAITERS 1000

YardTest(threshold, in_order_of_value_and_then_of_arrival)
{
	static struct operation operation[WAITERS];
	struct operation *by_order[WAITERS];
	unsigned i;

	for (i = 0; i < WAITERS; i++) {
		operation[i].yard = &yard;
		operation[i].count = 1 + i * 7919 % 100;
		assert_rc(
		    watch_value(&operation[i], KEY(1), operation[i].count), 0);
	}
	assert_u64(raise_to(&yard, KEY(1), 50), WAITERS / 2);
	assert_u64(raise_to(&yard, KEY(1), 50), 0);
	assert_u64(raise_to(&yard, KEY(1), UINT64_MAX), WAITERS / 2);
	for (i = 0; i < WAITERS; i++)
		by_order[operation[i].order - 1] = &operation[i];
	for (i = 1; i < WAITERS; i++) {
		cr_assert(by_order[i - 1]->count < by_order[i]->count ||
		    (by_order[i - 1]->count == by_order[i]->count &&
			by_order[i - 1] < by_order[i]));
	}
}

YardTest(threshold, a_value_that_was_reached_completes_at_watch)
{
	party_make(&yard);
	play("value 0 1 100, raise 1 7 0, reached 1 1 7, completed 1, "
	     "value 2 1 8, stats 2 2 1, raise 1 8 1");
	assert_u64(yard_stats(&yard).completed, 2);
}

YardTest(threshold, a_lower_value_completes_nothing)
{
	party_make(&yard);
	play("value 0 1 100, raise 1 50 0, raise 1 10 0, raise 1 0 0, "
	     "reached 1 1 50, pending 0");
}

YardTest(threshold, the_value_ends_with_the_last_link)
{
	party_make(&yard);
	play("raise 1 9 0, value 0 1 5, raise 1 9 1, value 1 1 5, "
	     "stats 1 1 1, raise 1 5 1");
}

/* The key has none without memory; the next raise completes what waits then. */
YardTest(threshold, hwt_purgatory_raise_ENOMEM_keeps_no_value)
{
	party_make(&yard);
	play("watch 0 1");
	fault_arm(FAULT_HEAP, 1);
	assert_rc(
	    hwt_purgatory_raise(yard.purgatory, KEY(1), 5, NULL), -ENOMEM);
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

YardTest(threshold, what_is_watched_again_waits_for_the_next_raise)
{
	static struct operation operation[32];
	unsigned i;

	for (i = 0; i < 32; i++) {
		operation[i].yard = &yard;
		operation[i].in_done = same_value;
		assert_rc(watch_value(&operation[i], KEY(1), 5), 0);
	}
	assert_u64(raise_to(&yard, KEY(1), 9), 32);
	assert_u64(operation[31].count, 1);
	assert_u64(raise_to(&yard, KEY(1), 9), 32);
	assert_u64(operation[31].count, 2);
}
