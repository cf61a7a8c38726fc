/* SPDX-License-Identifier: Apache-2.0 */
/* stats: what the counters say besides what all suites ask. */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(stats);

PurgatoryTest(stats, each_end_is_counted_once)
{
	struct hwt_purgatory_stats now;
	unsigned i;

	play("watch 0 0, watch 1 1, watch 2 2, watch-ms 3 3 10, watch 4 4, "
	     "watch 5 5, holds 5, check 5 1, check 4 0, cancel-key 4 1, "
	     "complete 2, runs 20 1, stats 2 2 2, shutdown");
	now = stats_now();
	assert_u64(now.completed, 2);
	assert_u64(now.expired, 1);
	assert_u64(now.cancelled, 1);
	assert_u64(now.shut_down, 2);
	assert_u64(now.tried, 8);
	for (i = 0; i < sizeof(now.reserved) / sizeof(now.reserved[0]); i++)
		assert_u64(now.reserved[i], 0);
}

/* With the timer's record and the keys' part where each key has many. */
PurgatoryTestWith(
    stats, an_operation_on_three_keys_takes_at_most_280_bytes, .shards = 1)
{
	static struct operation operation[50000];
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(3)};
	uint64_t bytes;
	unsigned i;

	bytes = stats_now().memory_bytes + fixture_stats(&manual).memory_bytes;
	for (i = 0; i < 50000; i++)
		assert_rc(watch_keys(&operation[i], keys, 3, HWT_SEC(1)), 0);
	bytes = stats_now().memory_bytes + fixture_stats(&manual).memory_bytes -
	    bytes;
	cr_assert(bytes / 50000 <= 280, "%u bytes", (unsigned)(bytes / 50000));
}
