/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where free records wait, and how their memory is released: threads' caches,
 * the free set, slabs that are added, released and opened again. A slab has 2
 * pages of 2 records, a cache has room for 4, and there are 4 caches. The
 * worker is a thread that does nothing but release.
 *
 * No record is in two hands, and in the end (program.c) each free one is in one
 * place. Nobody changes a record of a page that was released (sim.c).
 */
#include "program.h"

#include <errno.h>

#define FIRST (HEADER_PAGES * PAGE_RECORDS)
#define IN_SLAB ((SLAB_PAGES - HEADER_PAGES) * PAGE_RECORDS)

static uint32_t held[EXPLORE_THREADS_MAX][8];
static unsigned held_count[EXPLORE_THREADS_MAX];
static bool in_hand[1u << INDEX_BITS];

static void
begin_manual(void)
{
	memset(held_count, 0, sizeof(held_count));
	memset(in_hand, 0, sizeof(in_hand));
	timer_make(HWT_MANUAL, NULL);
}

static void
take(unsigned thread, unsigned count)
{
	uint32_t index;

	while (count-- > 0) {
		index = record_alloc(timer, thread_attach_cache(timer, true));
		explore_check(index != 0 && !in_hand[index]);
		explore_check(index >> SLAB_BITS < timer->store.limit);
		in_hand[index] = true;
		held[thread][held_count[thread]++] = index;
	}
}

static void
give(unsigned thread)
{
	uint32_t index = held[thread][--held_count[thread]];

	in_hand[index] = false;
	record_free(timer, cache_of(timer), index);
}

static void
give_back(unsigned thread)
{
	while (held_count[thread] > 0)
		give(thread);
	cache_flush(timer, cache_of(timer));
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

/* Two pages are free, and a third has one free record; all caches are empty. */
static void
begin_three_pages(void)
{
	begin_manual();
	threads_prepare(0, 0, 0);
	take(7, 5);
	cache_flush(timer, cache_of(timer));
	while (held_count[7] > 1)
		give(7);
	cache_flush(timer, cache_of(timer));
}

static void
take_one(void)
{
	take(0, 1);
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

/* The page that is taken comes back as it was. */
static void
take_two_give_two(void)
{
	take(1, 2);
	give_back(1);
}

/* Without a cache: what is left of a page goes back at once. */
static void
take_uncached(void)
{
	uint32_t index = record_alloc(timer, &timer->store.shared_cache);

	explore_check(index != 0 && !in_hand[index]);
	in_hand[index] = true;
	held[2][held_count[2]++] = index;
}

/* No record is free: the next one needs a slab. */
static void
begin_slab_full(void)
{
	begin_manual();
	thread_prepare(0, 0);
	thread_prepare(1, 0);
	take(7, IN_SLAB);
	explore_check(timer->store.limit == 1);
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

/* While one has reserved the pages of a new slab, the other may find none. But
 * nobody adds a third one while there are records in those. */
static void
end_grown(void)
{
	explore_check(timer->store.limit == 2 || timer->store.limit == 3);
	end_give_all();
}

/* Adds a slab, uses it up, and adds another one, while the other thread looks
 * for records with the limit of before: an index is below the limit, or stop
 * would not find its record. */
static void
take_more_than_a_slab(void)
{
	take(1, IN_SLAB + 1);
}

/* One has put a slab into the table and stays stopped before others can see
 * its records there: who needs one takes them without it. */
static void
begin_stopped_in_growth(void)
{
	begin_slab_full();
	/* Nothing is free there, so that the next change is the growth's. */
	a64_store_relaxed(timer->store.free_top, 0);
	thread_stop_before_change(0, timer->store.free_top);
}

static void
begin_stopped_before_limit(void)
{
	begin_slab_full();
	thread_stop_before_change(0, &timer->store.limit);
}

static void
begin_stopped_before_slab(void)
{
	begin_slab_full();
	thread_stop_before_change(0, &timer->store.slabs[1]);
}

/* As hwt_stop does: each slab below the limit is there. */
static void
sweep_without_stopped(void)
{
	uint32_t index = 0;

	await_stopped();
	while ((index = record_next_used(&timer->store, index)) != 0)
		continue;
	go_on();
}

static void
take_without_stopped(void)
{
	await_stopped();
	take(1, IN_SLAB + 1);
	go_on();
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
	hwt_timeout guess = {.id = GENERATION_ONE | (SLAB_RECORDS + FIRST)};
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

/* Threads without a cache of their own: each record comes from the
 * set. */
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

/* A thread returns its cache while the timer is destroyed. */
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

/* Another timer has its address by then. */
static void
begin_recurring(void)
{
	begin_manual();
	sim_settings.memory_recurs = true;
}

static void
schedule_tell_and_wait(void)
{
	schedule_and_tell();
	flag_await(1);
}

static void
make_anew_when_told(void)
{
	const struct hwt *before = timer;

	destroy_when_told();
	timer_make(HWT_MANUAL, NULL);
	timer_stopped = 0;
	explore_check(timer == before);
	flag_set(1);
	explore_check(schedule(1, TICK_NS) == 0);
}

/* A thread exits, and the records of its cache complete so many pages that it
 * wakes the worker. It stays stopped there, while another thread claims the
 * last cache, and has something due. */
static void
begin_worker_three_caches(void)
{
	unsigned i;

	timer_make(0, NULL);
	for (i = 3; i < CACHES_MAX; i++)
		explore_check(cache_claim(timer) != NULL);
	explore_check(hwt_start(timer) == 0);
}

static void
free_all_and_exit(void)
{
	unsigned i;

	for (i = 0; i < IN_SLAB; i++)
		explore_check(schedule(i, HWT_NEVER) == 0);
	for (i = 0; i < IN_SLAB; i++)
		explore_check(cancel(i) == 0);
	await_worker_sleeps();
	explore_check(timer->store.free_pages == 0);
	thread_stop_at(0, &timer->wake_sequence);
}

static void
schedule_while_one_exits(void)
{
	await_stopped();
	subject[IN_SLAB].releases = true;
	explore_check(schedule(IN_SLAB, TICK_NS) == 0);
	explore_check(timer->store.shared_cache.accepted == 0);
	await_started(IN_SLAB);
	await_thread(0);
	stop();
}

/* Both have returned theirs, and so has the worker. */
static void
end_released(void)
{
	unsigned owned = 0;
	unsigned i;

	for (i = 0; i < CACHES_MAX; i++)
		owned += timer->store.caches[i].owned;
	explore_check(owned == CACHES_MAX - 3);
}

/* A slab whose records are all free. */
static void
begin_all_free(void)
{
	begin_manual();
	threads_prepare(0, 0, 0);
	take(7, IN_SLAB);
	give_back(7);
	explore_check(timer->store.free_pages == IN_SLAB / PAGE_RECORDS);
}

static void
trim_twice(void)
{
	trim_all();
	trim_all();
}

/* The slab is idle: who takes a record opens it again. */
static void
begin_idle(void)
{
	begin_all_free();
	trim_all();
	explore_check(timer->store.idle[0] == 1);
}

/* A record knows its index by the header. */
static void
take_and_look(unsigned thread, unsigned count)
{
	unsigned i;

	take(thread, count);
	for (i = 0; i < held_count[thread]; i++) {
		uint32_t index = held[thread][i];
		const struct record *record = record_at(&timer->store, index);

		explore_check(record_index(record) == index);
		explore_check(record_slab(record)->timer == timer);
	}
}

static void
take_and_look_first(void)
{
	take_and_look(0, 2);
}

static void
take_and_look_second(void)
{
	take_and_look(1, 2);
}

/* The slab is opened, released, and opened. */
static void
take_give_and_take(void)
{
	take_and_look(0, 1);
	give_back(0);
	take_and_look(0, 1);
}

/* One page is committed and the other one is not: that may be committed, used
 * and free again while the worker releases the first. */
static void
begin_one_committed(void)
{
	begin_idle();
	take(7, 1);
	give_back(7);
	explore_check(timer->store.free_pages == 1);
}

static void
take_three_give_three(void)
{
	take_and_look(0, 3);
	give_back(0);
}

static void
trim_and_take(void)
{
	trim_all();
	take_and_look(1, 1);
}

/* One returns the last record, and makes that visible only when the slab has
 * become idle. */
static void
begin_last_held(void)
{
	begin_manual();
	threads_prepare(0, 0, 0);
	take(7, IN_SLAB);
	while (held_count[7] > 1)
		give(7);
	cache_flush(timer, cache_of(timer));
	held[0][0] = held[7][0];
	held_count[0] = 1;
	held_count[7] = 0;
}

static void
begin_last_stopped_at_summary(void)
{
	begin_last_held();
	thread_stop_at(0, &slab_of(held[0][0])->free_summary);
}

static void
begin_last_stopped_at_top(void)
{
	begin_last_held();
	thread_stop_at(0, timer->store.free_top);
}

static void
begin_last_stopped_at_count(void)
{
	begin_last_held();
	thread_stop_at(0, &timer->store.free_pages);
}

/* The page that is not counted yet is counted off: there are not many. */
static void
take_all_when_stopped(void)
{
	await_stopped();
	take(1, IN_SLAB);
	explore_check(!record_may_trim(timer));
	go_on();
}

static void
give_last(void)
{
	give_back(0);
}

static void
trim_when_stopped(void)
{
	await_stopped();
	trim_all();
	go_on();
	trim_all();
}

/* All are in use, and a search has found that: the top is 0. */
static void
begin_none_free(unsigned slabs)
{
	begin_manual();
	thread_prepare(0, 0);
	thread_prepare(1, 0);
	take(7, slabs * IN_SLAB);
	explore_check(timer->store.limit == slabs);
	timer->store.free_top[0] = 0;
}

static void
hand(unsigned from, unsigned to)
{
	uint32_t *last = &held[7][--held_count[7]];

	held[to][held_count[to]++] = held[7][from];
	held[7][from] = *last;
}

/* One has returned its record, and stays stopped before the top tells of it.
 * What another one returns to the same page is found without the first. */
static void
begin_page_stopped_at_top(void)
{
	begin_none_free(1);
	hand(1, 1);
	hand(0, 0);
	explore_check(held[0][0] / PAGE_RECORDS == held[1][0] / PAGE_RECORDS);
	thread_stop_at(0, timer->store.free_top);
}

static void
give_and_take(void)
{
	await_stopped();
	give_back(1);
	take(1, 1);
	explore_check(timer->store.limit == 1);
	go_on();
}

/* Each returns a record of another slab. */
static void
begin_two_slabs_none_free(void)
{
	begin_none_free(2);
	hand(2 * IN_SLAB - 1, 1);
	hand(0, 0);
}

static void
give_second(void)
{
	give_back(1);
}

/* A caller has published and is stopped before its push; its timeout is
 * cancelled and its record released with the whole slab. */
static void
begin_push_stopped(void)
{
	begin_manual();
	threads_prepare(1, 0, 0);
	thread_stop_at(0, &queued_of(timer->store.caches[0].slot[0])->bits);
}

static void
schedule_stopped(void)
{
	explore_check(schedule(0, TICK_NS) == 0);
	explore_check(subject[0].cancelled == 1);
	explore_check(schedule(1, 2 * TICK_NS) == 0);
}

static void
cancel_and_trim(void)
{
	await_stopped();
	explore_check(cancel(0) == 0);
	cache_flush(timer, cache_of(timer));
	trim_all();
	explore_check(timer->store.idle[0] == 1);
	go_on();
	(void)advance(0);
	trim_all();
	(void)advance(0);
}

/* A record that was in use twice, in a page that is released: no handle of
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

/* Its record has an entry in the wheel. */
static void
begin_with_entry(void)
{
	begin_all_free();
	explore_check(schedule(0, 2 * TICK_NS) == 0);
	(void)advance(0);
	explore_check(cancel(0) == 0);
	cache_flush(timer, cache_of(timer));
}

/* The system does not take it. */
static void
begin_with_entry_refused(void)
{
	begin_with_entry();
	sim_failures[SIM_RELEASE] =
	    (struct sim_failure){.after = 0, .count = UINT32_MAX};
}

/* Its index waits in the queue. */
static void
begin_pushed(void)
{
	begin_all_free();
	explore_check(schedule(0, TICK_NS) == 0);
	explore_check(cancel(0) == 0);
	cache_flush(timer, cache_of(timer));
}

static void
trim_and_turn(void)
{
	trim_all();
	(void)advance(0);
	trim_all();
}

/* The system takes records, but not the header; or nothing at all. */
static void
begin_header_refused(void)
{
	begin_all_free();
	sim_failures[SIM_RELEASE] =
	    (struct sim_failure){.after = 1, .count = UINT32_MAX};
}

static void
begin_all_refused(void)
{
	begin_all_free();
	sim_failures[SIM_RELEASE] =
	    (struct sim_failure){.after = 0, .count = UINT32_MAX};
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

/* Two threads use records while they are released. */
static struct handles handles_told[2];

static void
begin_handles(void)
{
	memset(handles_told, 0, sizeof(handles_told));
	begin_all_free();
}

static void
use_some(unsigned thread)
{
	struct handles *handles = &handles_told[thread];

	schedule_some(handles, 2, true);
	cache_flush(timer, cache_of(timer));
	schedule_some(handles, 1, true);
	cache_flush(timer, cache_of(timer));
}

static void
use_some_first(void)
{
	use_some(0);
}

static void
use_some_second(void)
{
	use_some(1);
}

static void
end_handles(void)
{
	unsigned i, j;

	for (i = 0; i < handles_told[0].count; i++) {
		for (j = 0; j < handles_told[1].count; j++)
			explore_check(handles_told[0].told[i].id !=
			    handles_told[1].told[j].id);
	}
}

/* A worker that is about to sleep for ever, while enough pages become free to
 * be released. */
static void
begin_worker(void)
{
	memset(held_count, 0, sizeof(held_count));
	memset(in_hand, 0, sizeof(in_hand));
	timer_make(0, NULL);
	thread_prepare(0, 0);
	take(0, IN_SLAB);
	explore_check(hwt_start(timer) == 0);
}

static bool
is_zero(const void *context)
{
	return *(const uint64_t *)context == 0;
}

static void
give_and_await_trim(void)
{
	const struct slab *slab = (void *)(uintptr_t)timer->store.slabs[0];

	while (held_count[0] > 0)
		give(0);
	cache_flush(timer, cache_of(timer));
	explore_await(&slab->committed, 8, is_zero, &slab->committed);
	stop();
}

/* Threads without a cache: a cancel completes the last page. */
static void
begin_worker_without_caches(void)
{
	timer_make(0, NULL);
	while (cache_claim(timer) != NULL)
		continue;
	explore_check(hwt_start(timer) == 0);
}

static void
cancel_all_and_await_trim(void)
{
	const struct slab *slab;
	unsigned i;

	for (i = 0; i < IN_SLAB; i++)
		explore_check(schedule(i, HWT_NEVER) == 0);
	explore_check(timer->store.limit == 1);
	slab = (void *)(uintptr_t)timer->store.slabs[0];
	await_worker_sleeps();
	for (i = 0; i < IN_SLAB; i++)
		explore_check(cancel(i) == 0);
	explore_await(&slab->committed, 8, is_zero, &slab->committed);
	stop();
}

const struct program record_programs[] = {
    {
	.name = "record/page-stopped-at-top",
	.begin = begin_page_stopped_at_top,
	.thread = {give_last, give_and_take},
	.end = end_give_all,
    },
    {
	.name = "record/two-slabs",
	.begin = begin_two_slabs_none_free,
	.thread = {give_last, give_second},
	.end = end_give_all,
    },
    {
	.name = "record/page-comes-back",
	.begin = begin_three_pages,
	.thread = {take_one, take_two_give_two},
	.end = end_give_all,
    },
    {
	.name = "record/take-uncached",
	.begin = begin_three_pages,
	.thread = {take_one, take_two_give_one, take_uncached},
	.end = end_give_all,
    },
    {
	.name = "record/two-add-a-slab",
	.begin = begin_slab_full,
	.thread = {take_first, take_second},
	.end = end_grown,
	.pso = true,
    },
    {
	.name = "record/stopped-in-growth",
	.begin = begin_stopped_in_growth,
	.thread = {take_first, take_without_stopped},
	.end = end_grown,
    },
    {
	.name = "record/stopped-before-slab",
	.begin = begin_stopped_before_slab,
	.thread = {take_first, sweep_without_stopped},
	.end = end_give_all,
    },
    {
	.name = "record/stopped-before-limit",
	.begin = begin_stopped_before_limit,
	.thread = {take_first, take_without_stopped},
	.end = end_give_all,
    },
    {
	.name = "record/limit-of-before",
	.begin = begin_slab_full,
	.thread = {take_first, take_more_than_a_slab},
	.end = end_give_all,
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
    {
	.name = "record/exit-new-timer",
	.begin = begin_recurring,
	.thread = {schedule_tell_and_wait, make_anew_when_told},
    },
    {
	.name = "record/exit-wakes",
	.begin = begin_worker_three_caches,
	.thread = {free_all_and_exit, schedule_while_one_exits},
	.end = end_released,
    },
    {
	.name = "trim/take",
	.begin = begin_all_free,
	.thread = {take_three, take_two_give_one, trim_all},
	.end = end_give_all,
	.pso = true,
    },
    {
	.name = "trim/uncached",
	.begin = begin_all_free,
	.thread = {take_uncached, trim_twice},
	.end = end_give_all,
    },
    {
	.name = "trim/idle-slab",
	.begin = begin_idle,
	.thread = {take_and_look_first, take_and_look_second},
	.end = end_give_all,
	.pso = true,
    },
    {
	.name = "trim/idle-slab-again",
	.begin = begin_idle,
	.thread = {take_give_and_take, trim_twice},
	.end = end_give_all,
	.pso = true,
    },
    {
	.name = "trim/late-summary",
	.begin = begin_last_stopped_at_summary,
	.thread = {give_last, trim_when_stopped, take_uncached},
	.end = end_give_all,
    },
    {
	.name = "trim/late-top",
	.begin = begin_last_stopped_at_top,
	.thread = {give_last, trim_when_stopped, take_uncached},
	.end = end_give_all,
    },
    {
	.name = "trim/late-count",
	.begin = begin_last_stopped_at_count,
	.thread = {give_last, take_all_when_stopped},
	.end = end_give_all,
    },
    {
	.name = "trim/late-push",
	.begin = begin_push_stopped,
	.thread = {schedule_stopped, cancel_and_trim},
	.pso = true,
    },
    {
	.name = "trim/old-handle",
	.begin = begin_used,
	.thread = {schedule_anew, cancel_old, trim_all},
	.pso = true,
    },
    {
	.name = "trim/has-entry",
	.begin = begin_with_entry,
	.thread = {schedule_anew, cancel_old, trim_and_turn},
    },
    {
	.name = "trim/has-entry-refused",
	.begin = begin_with_entry_refused,
	.thread = {schedule_anew, cancel_old, trim_and_turn},
    },
    {
	.name = "trim/pushed",
	.begin = begin_pushed,
	.thread = {schedule_anew, trim_and_turn},
    },
    {
	.name = "trim/header-refused-take",
	.begin = begin_header_refused,
	.thread = {take_three, trim_all},
	.end = end_give_all,
    },
    {
	.name = "trim/refused-take",
	.begin = begin_all_refused,
	.thread = {take_three, take_two_give_one, trim_all},
	.end = end_give_all,
    },
    {
	.name = "trim/no-handle-twice",
	.begin = begin_all_free,
	.thread = {use_all_differently},
	.schedules = 20,
    },
    {
	.name = "trim/wakes",
	.begin = begin_worker,
	.thread = {give_and_await_trim},
    },
    {
	.name = "trim/wakes-without-caches",
	.begin = begin_worker_without_caches,
	.thread = {cancel_all_and_await_trim},
    },
    {
	.name = "trim/handles",
	.begin = begin_handles,
	.thread = {use_some_first, use_some_second, trim_twice},
	.end = end_handles,
	.pso = true,
    },
    {
	.name = "trim/committed-meanwhile",
	.begin = begin_one_committed,
	.thread = {take_three_give_three, trim_and_take},
	.end = end_give_all,
    },
    {0},
};
