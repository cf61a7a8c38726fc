/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eager: when done is called, the operation is out of every key and its timeout
 * is cancelled; a key exists exactly while something is linked under it.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <stdlib.h>

SUITE(eager);

static struct yard yard;

static void
look_around(struct operation *operation)
{
	assert_stats(&yard, 0, 0, 0);
	if (operation->outcome != HWT_EXPIRED)
		assert_u64(hwt_pending_timeouts(yard.fixture.timer), 0);
	operation->count = 1;
}

static void
watch_three(struct operation *operation)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(3)};

	*operation = (struct operation){.yard = &yard, .in_done = look_around};
	assert_rc(watch_keys(operation, keys, 3, HWT_SEC(1)), 0);
	assert_stats(&yard, 1, 3, 3);
	assert_u64(hwt_pending_timeouts(yard.fixture.timer), 1);
}

YardTest(eager, done_finds_nothing_left_whatever_ended_it)
{
	struct operation operation;

	watch_three(&operation);
	operation.holds = 1;
	assert_u64(check(&yard, KEY(2)), 1);
	assert_u64(operation.count, 1);
	watch_three(&operation);
	assert_u64(cancel_key(&yard, KEY(3)), 1);
	assert_u64(operation.count, 1);
	watch_three(&operation);
	(void)fixture_step(&yard.fixture, HWT_SEC(2));
	assert_u64(operation.count, 1);
	watch_three(&operation);
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
	assert_u64(operation.count, 1);
}

/* Kafka's testRequestPurge, without a purge. */
YardTest(eager, three_operations_on_one_two_and_three_of_three_keys)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(3)};
	struct operation operation[3] = {
	    {.yard = &yard}, {.yard = &yard}, {.yard = &yard}};
	unsigned i;

	for (i = 0; i < 3; i++)
		assert_rc(
		    watch_keys(&operation[i], keys, i + 1, HWT_SEC(100)), 0);
	assert_stats(&yard, 3, 6, 3);
	assert_rc(
	    hwt_operation_complete(yard.purgatory, operation[1].handle), 0);
	assert_stats(&yard, 2, 4, 3);
	assert_rc(
	    hwt_operation_complete(yard.purgatory, operation[2].handle), 0);
	assert_stats(&yard, 1, 1, 1);
	assert_rc(
	    hwt_operation_complete(yard.purgatory, operation[0].handle), 0);
	assert_stats(&yard, 0, 0, 0);
}

#define MILLION (WITH_ASAN ? 100000u : 1000000u)

YardTest(eager, a_million_keys_leave_none)
{
	struct operation operation = {.yard = &yard};
	uint64_t bytes;
	uint64_t i;

	bytes = yard_stats(&yard).memory_bytes;
	for (i = 0; i < MILLION; i++) {
		assert_rc(watch_key(&operation, KEY(i), HWT_SEC(100)), 0);
		operation.holds = 1;
		assert_u64(check(&yard, KEY(i)), 1);
		assert_ended(&operation, HWT_COMPLETED);
		operation.holds = 0;
		operation.dones = 0;
	}
	assert_stats(&yard, 0, 0, 0);
	/* One slab a shard at most. */
	cr_assert(yard_stats(&yard).memory_bytes < bytes + (64 << 18));
}

/* Many keys at the same time: the tables grow, and shrink again. */
#define KEYS (MILLION / 5)

YardTest(eager, an_operation_on_two_keys_leaves_the_other_when_one_is_cancelled)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2)};

	party_make(&yard);
	assert_rc(watch_keys(&party[0], keys, 2, HWT_SEC(1)), 0);
	play("watch-ms 1 2 1000, cancel-key 1 1, cancelled 0, pending 1, "
	     "stats 1 1 1");
}

YardTest(eager, the_same_key_twice_counts_once)
{
	const struct hwt_key few[] = {KEY(1), KEY(1), KEY(2)};
	struct hwt_key many[1000];
	unsigned i;

	party_make(&yard);
	assert_rc(watch_keys(&party[0], few, 3, HWT_SEC(1)), 0);
	play("stats 1 2 2, cancel-key 1 1");
	for (i = 0; i < 1000; i++)
		many[i] = (struct hwt_key){i % 10, i % 250};
	party[0] = (struct operation){.yard = &yard};
	assert_rc(watch_keys(&party[0], many, 1000, HWT_SEC(1)), 0);
	play("stats 1 250 250, holds 0");
	assert_u64(check(&yard, (struct hwt_key){9, 249}), 1);
	play("stats 0 0 0");
}
