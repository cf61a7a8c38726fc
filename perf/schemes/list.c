/* SPDX-License-Identifier: Apache-2.0 */
/* Scheme 1, straightforward: a list without order, looked through as a whole at
 * each tick. */
#include "perf/schemes/record.h"

static struct record *list;

static void
list_create(uint64_t capacity, uint64_t range)
{
	(void)range;
	pool_create(capacity);
	list = NULL;
}

static uint64_t
list_start(uint64_t interval, uint32_t who)
{
	struct record *record = pool_take(interval, who);

	record_link(&list, record);
	return record_handle(record);
}

static void
list_tick(void)
{
	pool.now++;
	list_expire(list);
}

const struct scheme scheme = {.what = "scheme 1, an unordered list",
    .start_cost = "O(1)",
    .stop_cost = "O(1)",
    .tick_cost = "O(n)",
    .create = list_create,
    .destroy = pool_destroy,
    .start = list_start,
    .stop = record_stop,
    .tick = list_tick};
