/* SPDX-License-Identifier: Apache-2.0 */
/* Scheme 7, hierarchical wheels: four of 256 buckets each, a bucket of one
 * covering all of the one below. When a wheel has gone round, the next bucket
 * of the one above is spread over it. */
#include "perf/schemes/record.h"

enum {
	LEVELS = 4,
	LEVEL_BITS = 8,
	LEVEL_BUCKETS = 1 << LEVEL_BITS
};

static struct record *bucket[LEVELS][LEVEL_BUCKETS];

static void
wheels_create(uint64_t capacity, uint64_t range)
{
	perf_must(range <= UINT64_C(1) << LEVELS * LEVEL_BITS, "the range");
	pool_create(capacity);
	memset(bucket, 0, sizeof(bucket));
}

static struct record **
wheels_bucket(unsigned level, uint64_t tick)
{
	return &bucket[level][tick >> level * LEVEL_BITS & (LEVEL_BUCKETS - 1)];
}

/* In the lowest wheel whose turn reaches so far. */
static void
wheels_place(struct record *record)
{
	uint64_t ahead = record->due - pool.now;
	unsigned level = 0;

	while (ahead >> LEVEL_BITS * (level + 1))
		level++;
	record_link(wheels_bucket(level, record->due), record);
}

static uint64_t
wheels_start(uint64_t interval, uint32_t who)
{
	struct record *record = pool_take(interval, who);

	wheels_place(record);
	return record_handle(record);
}

static void
wheels_spread(unsigned level)
{
	struct record **head = wheels_bucket(level, pool.now);
	struct record *record = *head, *next;

	*head = NULL;
	for (; record; record = next) {
		next = record->next;
		wheels_place(record);
	}
}

static void
wheels_tick(void)
{
	unsigned level;
	struct record **head;

	pool.now++;
	/* How many of the wheels have gone round. */
	level = (unsigned)__builtin_ctzll(pool.now) / LEVEL_BITS;
	for (level = level < LEVELS ? level : LEVELS - 1; level > 0; level--)
		wheels_spread(level);
	head = wheels_bucket(0, pool.now);
	while (*head)
		record_expire(*head);
}

const struct scheme scheme = {.what = "scheme 7, hierarchical wheels",
    .start_cost = "O(m)",
    .stop_cost = "O(1)",
    .tick_cost = "O(1)",
    .create = wheels_create,
    .destroy = pool_destroy,
    .start = wheels_start,
    .stop = record_stop,
    .tick = wheels_tick};
