/* SPDX-License-Identifier: Apache-2.0 */
/* Scheme 5, a hashed wheel whose buckets are lists in the order of deadlines:
 * constant time while there are no more timers than buckets. */
#include "perf/schemes/record.h"

static struct record *bucket[HASHED_BUCKETS];

static void
wheel_create(uint64_t capacity, uint64_t range)
{
	(void)range;
	pool_create(capacity);
	memset(bucket, 0, sizeof(bucket));
}

static uint64_t
wheel_start(uint64_t interval, uint32_t who)
{
	struct record *record = pool_take(interval, who);

	record_link_sorted(&bucket[record->due % HASHED_BUCKETS], record);
	return record_handle(record);
}

static void
wheel_tick(void)
{
	list_expire_sorted(&bucket[++pool.now % HASHED_BUCKETS]);
}

const struct scheme scheme = {
    .what = "scheme 5, a hashed wheel, buckets sorted",
    .start_cost = "O(1)avg|O(n)worst",
    .stop_cost = "O(1)",
    .tick_cost = "O(1)",
    .create = wheel_create,
    .destroy = pool_destroy,
    .start = wheel_start,
    .stop = record_stop,
    .tick = wheel_tick};
