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

	(void)record_free(timer, cache_of(timer), index);
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
	(void)record_free(timer, cache_of(timer), first[1]);
	(void)record_free(timer, cache_of(timer), first[0]);
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

/* A slab whose records are all free: four batches on the stack. */
static void
begin_all_free(void)
{
	begin_manual();
	thread_prepare(0, 0);
	thread_prepare(1, 0);
	thread_prepare(2, 0);
	take(7, 7);
	while (held_count[7] > 0) {
		give(7);
		cache_flush(timer, cache_of(timer));
	}
}

static void
trim_all(void)
{
	trim_start(timer);
	while (trim_step(timer))
		continue;
}

static void
trim_twice(void)
{
	trim_all();
	trim_all();
}

static void
take_three(void)
{
	take(0, 3);
}

static void
take_two_give_one(void)
{
	take(1, 2);
	give(1);
	cache_flush(timer, cache_of(timer));
}

/* All pages are blank: who takes the first writes the slab's header. */
static void
begin_all_blank(void)
{
	begin_all_free();
	trim_all();
	explore_check(timer->store.blank_pages == SLAB_RECORDS / BATCH);
}

/* A record knows its index by the header. */
static void
take_and_look(unsigned thread)
{
	unsigned i;

	take(thread, 2);
	for (i = 0; i < held_count[thread]; i++) {
		uint32_t index = held[thread][i];

		explore_check(
		    record_index(record_at(&timer->store, index)) == index);
	}
}

static void
take_and_look_first(void)
{
	take_and_look(0);
}

static void
take_and_look_second(void)
{
	take_and_look(1);
}

/* Two slabs, nearly all of it in use, and a worker that has asked for no
 * call. */
#define IN_USE 13u
#define IN_USE_MAX 27u

static uint32_t in_use[IN_USE_MAX];
static unsigned in_use_count;
static bool called;

static void
begin_in_use(unsigned count)
{
	struct cache *cache;
	unsigned i;
	int error;

	begin_manual();
	cache = cache_claim(timer);
	for (i = 0; i < count; i++)
		in_use[i] = record_alloc(timer, cache, &error);
	cache_flush(timer, cache);
	cache->accepted = count;
	in_use_count = count;
	timer->store.call_at = UINT64_MAX;
	called = false;
}

static void
begin_none_spare(void)
{
	begin_in_use(IN_USE);
	thread_prepare(0, 0);
}

static void
end_down_to(unsigned left)
{
	struct cache *cache = cache_of(timer);

	while (in_use_count > left) {
		called |= record_free(timer, cache, in_use[--in_use_count]);
		cache_count(cache, &cache->ended, 1);
	}
}

/* Some are spare, but it was tried in vain, so that it is not time yet. */
static void
begin_spare_later(void)
{
	struct trim *trim;

	begin_in_use(IN_USE_MAX);
	trim = &timer->trim;
	end_down_to(IN_USE_MAX - SPARE_RECORDS - 1);
	cache_flush(timer, cache_of(timer));
	trim->floor = SPARE_RECORDS;
	trim->vain = 3;
	explore_check(trim_time(timer, 1) > 1000000000);
	explore_check(trim_time(timer, 1) < HWT_NEVER && !called);
	thread_prepare(0, 0);
}

static void
end_all(void)
{
	end_down_to(0);
}

static void
look_for_spare(void)
{
	(void)trim_time(timer, 1);
}

/* Either the worker has seen that it is time now, or it is told. */
static void
end_now_or_told(void)
{
	explore_check(timer->trim.since_ns == 1 || called);
}

/* Either the worker has seen that they are spare, or it is told. */
static void
end_seen_or_told(void)
{
	explore_check(timer->trim.since_ns != 0 || called);
}

/* A record that was in use twice, in a page that became blank: no handle of
 * before is valid again, and what is scheduled goes its way. */
static void
begin_used(void)
{
	begin_all_free();
	explore_check(schedule(0, TICK_NS) == 0);
	explore_check(cancel(0) == 0);
	(void)advance(0);
	cache_flush(timer, cache_of(timer));
}

static void
schedule_anew(void)
{
	explore_check(schedule(1, 3 * TICK_NS) == 0);
	explore_check(subject[1].handle.id != subject[0].handle.id);
}

static void
cancel_old(void)
{
	explore_check(hwt_cancel(timer, subject[0].handle) == -ENOENT);
}

/* The system takes no memory back from the slab's last page on, the one with
 * its header: the others are there still. */
static void
begin_refused(void)
{
	begin_all_free();
	model_settings.releases_refused = true;
	model_settings.releases = SLAB_RECORDS / BATCH - 1;
}

/* It takes nothing back at all: what the worker has collected, it holds. */
static void
begin_all_refused(void)
{
	begin_all_free();
	model_settings.releases_refused = true;
	model_settings.releases = 0;
}

static void
trim_a_step_and_take_all(void)
{
	trim_start(timer);
	(void)trim_step(timer);
	explore_check(record_batch_pop(&timer->store) == 0);
	take(0, 7);
	while (trim_step(timer))
		continue;
}

static void
trim_twice_and_take_all(void)
{
	trim_twice();
	take(0, 7);
}

static void
end_nothing_lost(void)
{
	explore_check(timer->store.limit == SLAB_RECORDS);
	end_give_all();
}

/* A record that is free while its entry waits in the queue. */
static void
begin_enqueued(void)
{
	begin_all_free();
	explore_check(schedule(0, TICK_NS) == 0);
	explore_check(cancel(0) == 0);
	cache_flush(timer, cache_of(timer));
}

/* Two slabs, both blank; the one that served last comes last. */
static void
take_two_slabs(uint32_t index[14])
{
	struct cache *cache = cache_for_new(timer);
	int error = 0;
	unsigned i;

	for (i = 0; i < 14; i++)
		index[i] = record_alloc(timer, cache, &error);
	explore_check(timer->store.limit == 2 * SLAB_RECORDS);
	for (i = 0; i < 14; i++) {
		const struct record *record =
		    record_at(&timer->store, index[i]);

		explore_check(record_index(record) == index[i]);
		explore_check(record_slab(record)->timer == timer);
	}
}

static void
give_two_slabs(const uint32_t index[14])
{
	unsigned i;

	for (i = 0; i < 14; i++)
		(void)record_free(timer, cache_of(timer), index[i]);
	cache_flush(timer, cache_of(timer));
}

static void
take_two_slabs_again(void)
{
	uint32_t index[14];
	unsigned turn;

	for (turn = 0; turn < 4; turn++) {
		take_two_slabs(index);
		give_two_slabs(index);
		trim_all();
	}
}

/* No handle is told twice, however often each record of a page was used, and
 * in whatever order they were. */
struct handles {
	hwt_timeout told[128];
	unsigned count;
};

static void
schedule_some(struct handles *handles, unsigned count, bool forwards)
{
	hwt_timeout *first = &handles->told[handles->count];
	unsigned i, j;

	for (i = 0; i < count; i++) {
		explore_check(hwt_new_timeout(timer, &first[i], subject_task,
				  NULL, 3 * TICK_NS) == 0);
		for (j = 0; j < handles->count + i; j++)
			explore_check(handles->told[j].id != first[i].id);
	}
	for (i = 0; i < count; i++)
		explore_check(hwt_cancel(timer,
				  first[forwards ? i : count - 1 - i]) == 0);
	handles->count += count;
}

static void
use_all_differently(void)
{
	struct handles handles = {.count = 0};
	unsigned turn, count;

	for (turn = 0; turn < 4; turn++) {
		for (count = 7; count > 0; count--)
			schedule_some(&handles, count, turn == 2);
		(void)advance(0);
		cache_flush(timer, cache_of(timer));
		trim_all();
	}
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
	.name = "trim/take",
	.begin = begin_all_free,
	.thread = {take_three, take_two_give_one, trim_all},
	.end = end_give_all,
    },
    {
	.name = "trim/held",
	.begin = begin_all_refused,
	.thread = {take_three, take_two_give_one, trim_all},
	.end = end_give_all,
    },
    {
	.name = "trim/held-serve",
	.begin = begin_all_refused,
	.thread = {trim_a_step_and_take_all},
	.end = end_nothing_lost,
    },
    {
	.name = "trim/twice",
	.begin = begin_all_free,
	.thread = {take_three, trim_twice},
	.end = end_give_all,
    },
    {
	.name = "trim/blank-slab",
	.begin = begin_all_blank,
	.thread = {take_and_look_first, take_and_look_second},
	.end = end_give_all,
    },
    {
	.name = "trim/old-handle",
	.begin = begin_used,
	.thread = {schedule_anew, cancel_old, trim_all},
    },
    {
	.name = "trim/refused",
	.begin = begin_refused,
	.thread = {trim_twice_and_take_all},
	.end = end_nothing_lost,
    },
    {
	.name = "trim/enqueued",
	.begin = begin_enqueued,
	.thread = {trim_all, schedule_anew},
    },
    {
	.name = "trim/two-slabs",
	.begin = begin_manual,
	.thread = {take_two_slabs_again},
    },
    {
	.name = "trim/no-handle-twice",
	.begin = begin_all_free,
	.thread = {use_all_differently},
	.schedules = 20,
    },
    {
	.name = "trim/spare",
	.begin = begin_none_spare,
	.thread = {end_all, look_for_spare},
	.end = end_seen_or_told,
    },
    {
	.name = "trim/spare-later",
	.begin = begin_spare_later,
	.thread = {end_all, look_for_spare},
	.end = end_now_or_told,
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
