/* SPDX-License-Identifier: Apache-2.0 */
/* Scheme 2, a timer queue: a list in the order of deadlines, searched from the
 * front. */
#include "perf/schemes/record.h"

static struct record *queue;

static void
queue_create(uint64_t capacity, uint64_t range)
{
	(void)range;
	pool_create(capacity);
	queue = NULL;
}

static uint64_t
queue_start(uint64_t interval, uint32_t who)
{
	struct record *record = pool_take(interval, who);

	record_link_sorted(&queue, record);
	return record_handle(record);
}

static void
queue_tick(void)
{
	pool.now++;
	list_expire_sorted(&queue);
}

const struct scheme scheme = {.what = "scheme 2, an ordered list",
    .start_cost = "O(n)",
    .stop_cost = "O(1)",
    .tick_cost = "O(1)",
    .create = queue_create,
    .destroy = pool_destroy,
    .start = queue_start,
    .stop = record_stop,
    .tick = queue_tick};
