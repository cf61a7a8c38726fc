/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schemes 1, 2, 5 and 6: a wheel of BUCKETS lists, where 1 is a list alone.
 * LINK puts a record into a list; EXPIRE runs what is due there. A file defines
 * these three, includes this one, and has LISTS among its scheme's members.
 */
#include "perf/schemes/record.h"

static struct record *bucket[BUCKETS];

static void
lists_create(uint64_t capacity, uint64_t range)
{
	(void)range;
	pool_create(capacity);
	memset(bucket, 0, sizeof(bucket));
}

static uint64_t
lists_start(uint64_t interval, uint32_t who)
{
	struct record *record = pool_take(interval, who);

	LINK(&bucket[record->due % BUCKETS], record);
	return record_handle(record);
}

static void
lists_tick(void)
{
	EXPIRE(&bucket[++pool.now % BUCKETS]);
}

#define LISTS                                                                  \
	.create = lists_create, .destroy = pool_destroy, .start = lists_start, \
	.stop = record_stop, .tick = lists_tick
