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

YardTest(threshold, a_key_has_a_value_where_something_else_is_alone)
{
	party_make(&yard);
	play("watch 0 1, raise 1 5 0, value 1 1 6, reached 2 1 5, "
	     "stats 2 2 1, cancel-key 1 2, stats 0 0 0");
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

/* Also when a walk is under way: the first done of its last batch finds the key
 * gone. */
static struct operation late = {.yard = &yard};
static struct operation later = {.yard = &yard};

static void
watch_late(struct operation *operation)
{
	if (yard_stats(operation->yard).links > 0)
		return;
	operation->rc = watch_value(&late, KEY(1), 5);
	assert_rc(watch_value(&later, KEY(1), 5), 0);
}

YardTest(threshold, nor_does_the_value_outlive_it_during_a_walk)
{
	static struct operation operation[100];
	unsigned i;

	for (i = 0; i < 100; i++) {
		operation[i].yard = &yard;
		operation[i].in_done = watch_late;
		operation[i].rc = 99;
		assert_rc(watch_key(&operation[i], KEY(1), HWT_NEVER), 0);
	}
	assert_u64(raise_to(&yard, KEY(1), 9), 0);
	assert_u64(cancel_key(&yard, KEY(1)), 100);
	assert_rc(operation[96].rc, 0);
	assert_pending(&late);
	assert_stats(&yard, 2, 2, 1);
	assert_u64(raise_to(&yard, KEY(1), 5), 2);
}

YardTest(threshold, checks_do_not_touch_those_that_wait_for_a_value)
{
	party_make(&yard);
	play("value 0 1 3, watch 1 1, holds 1, raise 1 3 1, pending 1, "
	     "check 1 1, completed 0");
}

YardTest(threshold, they_are_cancelled_by_key_and_expire_as_others_do)
{
	static struct operation operation[200];
	struct hwt_operation_spec spec;
	struct hwt_key key = KEY(1);
	unsigned i;

	for (i = 0; i < 200; i++) {
		operation[i].yard = &yard;
		spec = operation_spec(
		    &operation[i], &key, 1, i < 100 ? HWT_MS(1) : HWT_NEVER);
		spec.try_complete = NULL;
		spec.at_least = 1 + i;
		assert_rc(hwt_purgatory_watch(
			      yard.purgatory, &operation[i].handle, &spec),
		    0);
	}
	assert_u64(fixture_step(&yard.fixture, HWT_MS(3)), 100);
	assert_stats(&yard, 100, 100, 1);
	assert_u64(cancel_key(&yard, KEY(1)), 100);
	for (i = 0; i < 200; i++)
		assert_ended(
		    &operation[i], i < 100 ? HWT_EXPIRED : HWT_CANCELLED);
}

/* done raises, watches again with the next value, and so on. */
static void
next_value(struct operation *operation)
{
	if (operation->outcome != HWT_COMPLETED)
		return;
	operation->dones = 0;
	operation->count++;
	assert_rc(watch_value(operation, KEY(1), operation->count + 1), 0);
}

YardTest(threshold, the_next_value_is_watched_in_done)
{
	static struct operation operation = {
	    .yard = &yard, .in_done = next_value};
	uint64_t value;

	assert_rc(watch_value(&operation, KEY(1), 1), 0);
	for (value = 1; value <= 100; value++)
		assert_u64(raise_to(&yard, KEY(1), value), 1);
	assert_u64(operation.count, 100);
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
