/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where free records wait: batches, slabs and threads' caches. A slab has 8
 * records, a batch 2, a cache 4, and there are 4 caches.
 */
#include "program.h"

#include <errno.h>

static uint32_t held[EXPLORE_THREADS_MAX][8];
static unsigned held_count[EXPLORE_THREADS_MAX];

static void
begin_manual(void)
{
	memset(held_count, 0, sizeof(held_count));
	timer_make(HWT_MANUAL, NULL);
}

static void
take(unsigned thread, unsigned count)
{
	int error = 0;
	uint32_t index;

	while (count-- > 0) {
		index = record_alloc(timer, cache_for_new(timer), &error);
		explore_check(index != 0);
		held[thread][held_count[thread]++] = index;
	}
}

static void
give(unsigned thread)
{
	uint32_t index = held[thread][--held_count[thread]];

	record_free(timer, cache_of(timer), index);
}

/* What threads hold goes back: whatever two of them hold is there twice. */
static void
end_give_all(void)
{
	unsigned i;

	for (i = 0; i < EXPLORE_THREADS_MAX; i++) {
		while (held_count[i] > 0)
			give(i);
	}
}

/* Two batches on the stack; the caches of both threads are empty. */
static void
begin_two_batches(void)
{
	unsigned i;

	begin_manual();
	thread_prepare(0, 0);
	thread_prepare(1, 0);
	take(7, 5);
	cache_flush(timer, cache_of(timer));
	for (i = 0; i < 4; i++)
		give(7);
	cache_flush(timer, cache_of(timer));
	give(7);
	cache_flush(timer, cache_of(timer));
}

static void
take_one(void)
{
	take(0, 1);
}

/* Both batches are taken, and the first one comes back as it was. */
static void
take_two_and_give_one(void)
{
	uint32_t first[2];

	take(1, 2);
	first[0] = held[1][0];
	first[1] = held[1][1];
	held_count[1] = 0;
	take(1, 2);
	record_free(timer, cache_of(timer), first[1]);
	record_free(timer, cache_of(timer), first[0]);
	cache_flush(timer, cache_of(timer));
}

/* No free record, and no place for one: the next one needs a slab. */
static void
begin_slab_full(void)
{
	begin_manual();
	thread_prepare(0, 0);
	thread_prepare(1, 0);
	take(7, 7);
	explore_check(timer->store.carved == timer->store.limit);
}

static void
take_first(void)
{
	take(0, 1);
}

static void
take_second(void)
{
	take(1, 2);
}

static void
end_grown(void)
{
	explore_check(timer->store.limit == 2 * SLAB_RECORDS);
	end_give_all();
}

/* A handle is looked up in a slab that is being added. */
static void
schedule_in_new_slab(void)
{
	explore_check(schedule(1, TICK_NS) == 0);
}

static void
look_up_in_new_slab(void)
{
	hwt_timeout guess = {.id = GENERATION_ONE | (SLAB_RECORDS + 1)};
	int64_t remaining_ns;
	int result;

	explore_check(hwt_cancel(timer, guess) == -ENOENT);
	result = hwt_remaining(timer, subject[1].handle, &remaining_ns);
	explore_check(result == 0 || result == -ENOENT);
	if (cancel(1) == 0)
		explore_check(cancel(1) == -ENOENT);
}

/* One thread schedules, another one cancels: its cache runs over. */
static void
begin_two_caches(void)
{
	begin_manual();
	thread_prepare(0, 2);
	thread_prepare(1, 4);
}

static void
schedule_four(void)
{
	unsigned i;

	for (i = 0; i < 2; i++)
		explore_check(schedule(i, TICK_NS) == 0);
	flag_set(0);
	for (; i < 4; i++)
		explore_check(schedule(i, TICK_NS) == 0);
}

static void
cancel_two(void)
{
	flag_await(0);
	(void)cancel(0);
	(void)cancel(1);
}

static void
turn(void)
{
	(void)advance(0);
}

/* Threads without a cache of their own: each record comes from the stack. */
static void
begin_without_caches(void)
{
	begin_manual();
	while (cache_claim(timer) != NULL)
		continue;
}

static void
schedule_and_cancel_first(void)
{
	explore_check(schedule(0, TICK_NS) == 0);
	explore_check(cancel(0) == 0);
}

static void
schedule_second(void)
{
	explore_check(schedule(1, TICK_NS) == 0);
}

/* One cache is left: who ends leaves it to the other one, or that does without.
 * Counters go with it. */
static void
begin_one_cache(void)
{
	unsigned i;

	begin_manual();
	for (i = 1; i < CACHES_MAX; i++)
		explore_check(cache_claim(timer) != NULL);
}

static void
schedule_first_and_end(void)
{
	explore_check(schedule(0, TICK_NS) == 0);
}

static void
schedule_second_and_end(void)
{
	explore_check(schedule(1, TICK_NS) == 0);
	explore_check(cancel(1) == 0);
}

/* A thread gives its cache back while the timer is destroyed. */
static void
schedule_and_tell(void)
{
	explore_check(schedule(0, TICK_NS) == 0);
	flag_set(0);
}

static void
destroy_when_told(void)
{
	flag_await(0);
	stop();
	explore_check(hwt_destroy(timer) == 0);
	timer = NULL;
}

const struct program record_programs[] = {
    {
	.name = "record/batch-comes-back",
	.begin = begin_two_batches,
	.thread = {take_one, take_two_and_give_one},
	.end = end_give_all,
    },
    {
	.name = "record/two-add-a-slab",
	.begin = begin_slab_full,
	.thread = {take_first, take_second},
	.end = end_grown,
    },
    {
	.name = "record/lookup-in-new-slab",
	.begin = begin_slab_full,
	.thread = {schedule_in_new_slab, look_up_in_new_slab},
	.end = end_give_all,
	.pso = true,
    },
    {
	.name = "record/cache-runs-over",
	.begin = begin_two_caches,
	.thread = {schedule_four, cancel_two, turn},
    },
    {
	.name = "record/no-cache",
	.begin = begin_without_caches,
	.thread = {schedule_and_cancel_first, schedule_second},
    },
    {
	.name = "record/exit-claim",
	.begin = begin_one_cache,
	.thread = {schedule_first_and_end, schedule_second_and_end},
    },
    {
	.name = "record/exit-destroy",
	.begin = begin_manual,
	.thread = {schedule_and_tell, destroy_when_told},
    },
    {0},
};
