/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eager: when done is called, the operation is out of every key and its timeout
 * is cancelled; a key exists exactly while something is linked under it.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(eager);

static void
look_around(struct operation *operation)
{
	assert_stats(0, 0, 0);
	if (operation->outcome != HWT_EXPIRED)
		assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

static void
watch_three(struct operation *operation)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(3)};

	operation->in_done = look_around;
	assert_rc(watch_keys(operation, keys, 3, HWT_SEC(1)), 0);
	assert_stats(1, 3, 3);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
}

PurgatoryTest(eager, done_finds_nothing_left_whatever_ended_it)
{
	watch_three(&party[0]);
	play("holds 0, check 2 1, completed 0");
	watch_three(&party[1]);
	play("cancel-key 3 1, cancelled 1");
	watch_three(&party[2]);
	play("pass 2000, expired 2");
	watch_three(&party[3]);
	play("shutdown, shut-down 3");
}

/* Kafka's testRequestPurge, without a purge. */
PurgatoryTest(eager, three_operations_on_one_two_and_three_of_three_keys)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(3)};
	unsigned i;

	for (i = 0; i < 3; i++)
		assert_rc(watch_keys(&party[i], keys, i + 1, HWT_SEC(100)), 0);
	play("stats 3 6 3, complete 1, stats 2 4 3, complete 2, stats 1 1 1, "
	     "complete 0, stats 0 0 0");
}

#define MILLION (WITH_ASAN ? 100000u : 1000000u)

PurgatoryTest(eager, a_million_keys_leave_none)
{
	struct operation operation = {0};
	uint64_t bytes;
	uint64_t i;

	bytes = stats_now().memory_bytes;
	for (i = 0; i < MILLION; i++) {
		assert_rc(watch_key(&operation, KEY(i), HWT_SEC(100)), 0);
		operation.holds = 1;
		assert_u64(check(KEY(i)), 1);
		assert_ended(&operation, HWT_COMPLETED);
		operation.holds = 0;
		operation.dones = 0;
	}
	assert_stats(0, 0, 0);
	/* Tables may have grown. */
	cr_assert(stats_now().memory_bytes < bytes + (64 << 10));
}

PurgatoryTest(
    eager, an_operation_on_two_keys_leaves_the_other_when_one_is_cancelled)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2)};

	assert_rc(watch_keys(&party[0], keys, 2, HWT_SEC(1)), 0);
	play("watch-ms 1 2 1000, cancel-key 1 1, cancelled 0, pending 1, "
	     "stats 1 1 1");
}

PurgatoryTest(eager, the_same_key_twice_counts_once)
{
	const struct hwt_key few[] = {KEY(1), KEY(1), KEY(2)};
	struct hwt_key many[1000];
	unsigned i;

	assert_rc(watch_keys(&party[0], few, 3, HWT_SEC(1)), 0);
	play("stats 1 2 2, cancel-key 1 1");
	for (i = 0; i < 1000; i++)
		many[i] = (struct hwt_key){i % 10, i % 250};
	party[0] = (struct operation){0};
	assert_rc(watch_keys(&party[0], many, 1000, HWT_SEC(1)), 0);
	play("stats 1 250 250, holds 0");
	assert_u64(check((struct hwt_key){9, 249}), 1);
	play("stats 0 0 0");
}
