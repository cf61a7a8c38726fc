/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats: exact counts.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(stats);

static struct yard yard;

YardTest(stats, each_end_is_counted_once)
{
	struct operation operation[6];
	struct hwt_purgatory_stats now;
	unsigned i;

	for (i = 0; i < 6; i++) {
		operation[i] = (struct operation){.yard = &yard};
		assert_rc(watch_key(&operation[i], KEY(i), HWT_SEC(1 + i)), 0);
	}
	assert_u64(yard_stats(&yard).tried, 6);
	operation[5].holds = 1;
	assert_u64(check(&yard, KEY(5)), 1);
	assert_u64(check(&yard, KEY(4)), 0);
	assert_u64(cancel_key(&yard, KEY(4)), 1);
	assert_rc(
	    hwt_operation_complete(yard.purgatory, operation[3].handle), 0);
	(void)fixture_step(&yard.fixture, HWT_MS(1001));
	now = yard_stats(&yard);
	assert_u64(now.pending, 2);
	assert_u64(now.links, 2);
	assert_u64(now.keys, 2);
	assert_u64(now.completed, 2);
	assert_u64(now.expired, 1);
	assert_u64(now.cancelled, 1);
	assert_u64(now.shut_down, 0);
	assert_u64(now.tried, 8);
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
	assert_u64(yard_stats(&yard).shut_down, 2);
	for (i = 0; i < sizeof(now.reserved) / sizeof(now.reserved[0]); i++)
		assert_u64(now.reserved[i], 0);
}

/* At 3 keys, with the timer's record and the keys' part where each key has many
 * operations: at most 280 bytes each. */
YardTestWith(
    stats, an_operation_on_three_keys_takes_at_most_280_bytes, .shards = 1)
{
	static struct operation operation[50000];
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(3)};
	uint64_t before, after;
	unsigned i;

	before = yard_stats(&yard).memory_bytes +
	    fixture_stats(&yard.fixture).memory_bytes;
	for (i = 0; i < 50000; i++) {
		operation[i].yard = &yard;
		operation[i].holds = 0;
		assert_rc(watch_keys(&operation[i], keys, 3, HWT_SEC(1)), 0);
	}
	after = yard_stats(&yard).memory_bytes +
	    fixture_stats(&yard.fixture).memory_bytes;
	cr_assert((after - before) / 50000 <= 280, "%u bytes",
	    (unsigned)((after - before) / 50000));
}
