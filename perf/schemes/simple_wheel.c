/* SPDX-License-Identifier: Apache-2.0 */
/* Scheme 4, a simple wheel: a bucket for each tick up to the longest interval.
 * Longer ones are refused; the range is paid for with memory. */
#include "perf/schemes/record.h"

static struct {
	struct record **bucket;
	uint64_t mask;
} wheel;

static void
wheel_create(uint64_t capacity, uint64_t range)
{
	pool_create(capacity);
	wheel.mask = power_above(range - 1) - 1;
	wheel.bucket = calloc(wheel.mask + 1, sizeof(struct record *));
	perf_must(wheel.bucket, "calloc");
}

static void
wheel_destroy(void)
{
	free(wheel.bucket);
	pool_destroy();
}

static uint64_t
wheel_start(uint64_t interval, uint32_t who)
{
	struct record *record;

	if (interval > wheel.mask)
		return 0;
	record = pool_take(interval, who);
	record_link(&wheel.bucket[record->due & wheel.mask], record);
	return record_handle(record);
}

static void
wheel_tick(void)
{
	struct record **head = &wheel.bucket[++pool.now & wheel.mask];

	while (*head)
		record_expire(*head);
}

const struct scheme scheme = {.what = "scheme 4, a simple wheel",
    .start_cost = "O(1)",
    .stop_cost = "O(1)",
    .tick_cost = "O(1)",
    .bounded = true,
    .create = wheel_create,
    .destroy = wheel_destroy,
    .start = wheel_start,
    .stop = record_stop,
    .tick = wheel_tick};
