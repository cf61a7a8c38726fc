/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue between producers and the worker, from inside: this file has a
 * copy of it of its own. It works on the record store of a manual timer that is
 * not turned meanwhile, so that nobody else pushes or pops.
 */
#include "test/spec/support.h"

#include <stdlib.h>

#include "../../mpsc_queue.c"
#include "core/timer.h"
#include "test/rng.h"

SUITE(mpsc_queue);

#define NOW HWT_SEC(100)
#define SOON (NOW + HWT_MS(1))
#define LATE (NOW + HWT_SEC(3600))

static struct mpsc_queue queue;
/* The first index of the last page that was popped. */
static uint32_t popped_first;

/* A store of so many slabs, and nothing in the queue. */
static void
tested_open(uint32_t slabs)
{
	uint32_t count = slabs * (SLAB_PAGES - HEADER_PAGES) * PAGE_RECORDS;
	uint32_t i;

	fixture_open(&manual, NULL);
	for (i = 0; i < count; i++)
		assert_rc(hwt_new_timeout(manual.timer, NULL, forbidden_task,
			      NULL, HWT_NEVER),
		    0);
	fixture_step(&manual, 0);
	assert_u64(store_limit(&manual.timer->store), slabs);
	mpsc_create(&queue, &manual.timer->store, NOW);
}

static void
tested_close(void)
{
	fixture_close(&manual);
}

/* The index of a record: page 0 of a slab has none. */
static uint32_t
index_in(uint32_t slab, uint32_t page, uint32_t record)
{
	return slab * SLAB_RECORDS + page * PAGE_RECORDS + record;
}

static uint64_t
bit(uint32_t record)
{
	return UINT64_C(1) << record;
}

static bool
push_soon(uint32_t index)
{
	return mpsc_push(&queue, index, SOON);
}

static bool
push_late(uint32_t index)
{
	return mpsc_push(&queue, index, LATE);
}

static uint64_t
pop_near(void)
{
	return mpsc_pop_near(&queue, &popped_first);
}

static uint64_t
pop_later(void)
{
	return mpsc_pop_later(&queue, NOW, &popped_first);
}

static void
assert_is_empty(void)
{
	cr_assert(mpsc_is_empty(&queue));
	assert_u64(pop_near(), 0);
	assert_u64(pop_later(), 0);
	cr_assert(mpsc_is_empty(&queue));
}

Test(mpsc_queue, a_new_one_is_empty)
{
	tested_open(1);

	assert_is_empty();

	tested_close();
}

/* Before the first slab there is nothing to search. */
Test(mpsc_queue, so_is_one_of_a_store_without_slabs)
{
	tested_open(0);

	assert_is_empty();

	tested_close();
}

Test(mpsc_queue, what_was_pushed_is_popped_once_page_by_page)
{
	tested_open(2);
	push_soon(index_in(1, 63, 63));
	push_soon(index_in(0, 1, 0));
	push_soon(index_in(0, 7, 5));
	push_soon(index_in(0, 7, 62));
	cr_assert(!mpsc_is_empty(&queue));

	assert_u64(pop_near(), bit(0));
	assert_u64(popped_first, index_in(0, 1, 0));
	assert_u64(pop_near(), bit(5) | bit(62));
	assert_u64(popped_first, index_in(0, 7, 0));
	assert_u64(pop_near(), bit(63));
	assert_u64(popped_first, index_in(1, 63, 0));

	assert_u64(pop_near(), 0);
	assert_is_empty();
	tested_close();
}

Test(mpsc_queue, to_push_again_has_no_effect)
{
	unsigned turn;

	tested_open(1);
	for (turn = 0; turn < 1000; turn++) {
		push_soon(index_in(0, 3, 9));
		push_late(index_in(0, 4, 9));
	}

	assert_u64(pop_near(), bit(9));
	assert_u64(pop_near(), 0);
	assert_u64(pop_later(), bit(9));
	assert_u64(popped_first, index_in(0, 4, 0));
	assert_u64(pop_later(), 0);
	assert_is_empty();
	tested_close();
}

Test(mpsc_queue, what_was_popped_can_be_pushed_again_in_the_same_pass)
{
	unsigned turn;

	tested_open(1);
	for (turn = 0; turn < 3; turn++) {
		push_soon(index_in(0, 3, 9));
		push_soon(index_in(0, 5, 9));
		assert_u64(pop_near(), bit(9));
		push_soon(index_in(0, 3, 9));
		assert_u64(pop_near(), bit(9));
		assert_u64(popped_first, index_in(0, 5, 0));
		assert_u64(pop_near(), 0);

		cr_assert(!mpsc_is_empty(&queue));
		assert_u64(pop_near(), bit(9));
		assert_u64(popped_first, index_in(0, 3, 0));
		assert_u64(pop_near(), 0);
		assert_is_empty();
	}
	tested_close();
}

Test(mpsc_queue, the_horizon_tells_the_near_half_from_the_later_one)
{
	tested_open(1);
	(void)mpsc_push(&queue, index_in(0, 2, 0), 0);
	(void)mpsc_push(&queue, index_in(0, 2, 1), NOW + HORIZON_NS - 1);
	(void)mpsc_push(&queue, index_in(0, 2, 2), NOW + HORIZON_NS);
	(void)mpsc_push(&queue, index_in(0, 2, 3), UINT64_MAX);

	assert_u64(pop_near(), bit(0) | bit(1));
	assert_u64(pop_near(), 0);
	cr_assert(!mpsc_is_empty(&queue));
	assert_u64(pop_later(), bit(2) | bit(3));
	assert_u64(pop_later(), 0);
	assert_is_empty();
	tested_close();
}

/* So that callers seldom find that cache line gone. */
Test(mpsc_queue, the_horizon_moves_when_half_of_it_has_passed)
{
	tested_open(1);
	assert_u64(mpsc_complete(&queue), NOW + HORIZON_NS);

	assert_u64(
	    mpsc_pop_later(&queue, NOW + HORIZON_NS / 2, &popped_first), 0);
	assert_u64(a64_load_relaxed(&queue.horizon_ns), NOW + HORIZON_NS);
	assert_u64(mpsc_complete(&queue), NOW + HORIZON_NS);

	assert_u64(
	    mpsc_pop_later(&queue, NOW + HORIZON_NS / 2 + 1, &popped_first), 0);
	assert_u64(a64_load_relaxed(&queue.horizon_ns),
	    NOW + HORIZON_NS / 2 + 1 + HORIZON_NS);
	assert_u64(
	    mpsc_complete(&queue), NOW + HORIZON_NS / 2 + 1 + HORIZON_NS);
	tested_close();
}

/* A pass that began before the horizon was moved on may have missed what is due
 * before the new one: only the end of a pass that began after tells. */
Test(mpsc_queue, a_pass_counts_from_its_beginning_and_at_its_end)
{
	uint64_t next_ns = NOW + 2 * HORIZON_NS;

	tested_open(1);
	push_late(index_in(0, 2, 0));
	push_late(index_in(0, 3, 0));
	assert_u64(pop_later(), bit(0));
	assert_u64(mpsc_pop_later(&queue, next_ns, &popped_first), bit(0));
	assert_u64(mpsc_complete(&queue), NOW + HORIZON_NS);
	assert_u64(mpsc_pop_later(&queue, next_ns, &popped_first), 0);
	assert_u64(mpsc_complete(&queue), NOW + HORIZON_NS);

	push_late(index_in(0, 2, 0));
	assert_u64(mpsc_pop_later(&queue, next_ns, &popped_first), bit(0));
	/* From here on, what is due before goes to the near half. */
	push_soon(index_in(0, 9, 0));
	(void)mpsc_push(&queue, index_in(0, 9, 1), next_ns + HORIZON_NS - 1);
	assert_u64(mpsc_complete(&queue), NOW + HORIZON_NS);
	assert_u64(mpsc_pop_later(&queue, next_ns, &popped_first), 0);
	assert_u64(mpsc_complete(&queue), next_ns + HORIZON_NS);
	assert_u64(pop_near(), bit(0) | bit(1));
	assert_u64(pop_near(), 0);
	tested_close();
}

/* Behind it in the page, the slab, or the table: whoever is fast enough to push
 * each time cannot hold a pass. */
Test(mpsc_queue, what_is_pushed_behind_a_pass_waits_for_the_next)
{
	uint32_t slabs[] = {0, 1, 66, 67};
	uint32_t pops = 0;
	uint32_t i;

	tested_open(68);
	for (i = 0; i < 4; i++)
		push_soon(index_in(slabs[i], 5, 0));

	while (pop_near() != 0) {
		cr_assert(++pops <= 4);
		assert_u64(popped_first, index_in(slabs[pops - 1], 5, 0));
		for (i = 0; i < pops; i++) {
			push_soon(index_in(slabs[i], 4, pops));
			push_soon(index_in(slabs[i], 5, pops));
		}
		cr_assert(!mpsc_is_empty(&queue));
	}

	assert_u64(pops, 4);
	cr_assert(!mpsc_is_empty(&queue));
	for (pops = 0; pop_near() != 0; pops++)
		continue;
	assert_u64(pops, 8);
	assert_is_empty();
	tested_close();
}

/* Which a pass reads after that. */
Test(mpsc_queue, what_is_pushed_ahead_of_a_pass_may_come_in_it)
{
	tested_open(68);
	push_soon(index_in(0, 5, 0));
	assert_u64(pop_near(), bit(0));

	push_soon(index_in(67, 5, 1));

	assert_u64(pop_near(), bit(1));
	assert_u64(popped_first, index_in(67, 5, 0));
	assert_u64(pop_near(), 0);
	assert_is_empty();
	tested_close();
}

Test(mpsc_queue, it_is_not_empty_before_the_pass_has_ended)
{
	tested_open(1);
	push_soon(index_in(0, 5, 0));
	assert_u64(pop_near(), bit(0));

	cr_assert(!mpsc_is_empty(&queue));

	assert_u64(pop_near(), 0);
	cr_assert(mpsc_is_empty(&queue));
	tested_close();
}

/* As a push leaves them that the consumer overtook. */
Test(mpsc_queue, bits_above_without_one_below_are_passed_over)
{
	struct record_store *store;

	tested_open(2);
	store = &manual.timer->store;
	a64_or_seq(&store->top[SET_NEAR][0], bit(0) | bit(1));
	a64_or_seq(&slab_at(store, 1)->summary[SET_NEAR], bit(8));
	push_soon(index_in(1, 9, 3));

	assert_u64(pop_near(), bit(3));
	assert_u64(popped_first, index_in(1, 9, 0));
	assert_u64(pop_near(), 0);
	assert_is_empty();
	tested_close();
}

/* And as one leaves it that has not come to its end: another push of the same
 * index makes up for it. */
Test(mpsc_queue, a_push_that_was_interrupted_delays_no_other_of_the_same)
{
	struct record_store *store;

	tested_open(1);
	store = &manual.timer->store;
	a64_or_seq(&slab_at(store, 0)->bits[SET_NEAR][9], bit(3));
	assert_u64(pop_near(), 0);

	push_soon(index_in(0, 9, 3));
	assert_u64(pop_near(), bit(3));
	assert_u64(pop_near(), 0);

	a64_or_seq(&slab_at(store, 0)->bits[SET_NEAR][9], bit(3));
	a64_or_seq(&slab_at(store, 0)->summary[SET_NEAR], bit(9));
	assert_u64(pop_near(), 0);

	push_soon(index_in(0, 9, 3));
	assert_u64(pop_near(), bit(3));
	assert_u64(pop_near(), 0);
	assert_is_empty();
	tested_close();
}

static bool
is_pushed(uint32_t index, uint64_t deadline_ns)
{
	return mpsc_is_pushed(&queue, index, deadline_ns);
}

/* So callers need not push again. */
Test(mpsc_queue, what_is_pushed_is_found_in_its_half)
{
	static const uint32_t slabs[] = {0, 1, 63, 64, 67};
	uint32_t index, i;

	tested_open(68);
	for (i = 0; i < 5; i++) {
		index = index_in(slabs[i], 9, 3);
		cr_assert(!is_pushed(index, SOON) && !is_pushed(index, LATE));
		push_soon(index);
		cr_assert(is_pushed(index, SOON) && !is_pushed(index, LATE));
		cr_assert(!is_pushed(index_in(slabs[i], 9, 4), SOON));
		push_late(index);
		cr_assert(is_pushed(index, SOON) && is_pushed(index, LATE));
		while (pop_near() != 0)
			continue;
		cr_assert(!is_pushed(index, SOON) && is_pushed(index, LATE));
		while (pop_later() != 0)
			continue;
		cr_assert(!is_pushed(index, LATE));
	}
	tested_close();
}

/* The horizon divides them as it does for a push. */
Test(mpsc_queue, what_is_due_at_the_horizon_is_found_in_the_later_half)
{
	uint32_t index = index_in(0, 9, 3);

	tested_open(1);
	(void)mpsc_push(&queue, index, NOW + HORIZON_NS);

	cr_assert(is_pushed(index, NOW + HORIZON_NS));
	cr_assert(!is_pushed(index, NOW + HORIZON_NS - 1));

	cr_assert(pop_later() != 0 && pop_later() == 0);
	(void)mpsc_push(&queue, index, NOW + HORIZON_NS - 1);
	cr_assert(!is_pushed(index, NOW + HORIZON_NS));
	cr_assert(is_pushed(index, NOW + HORIZON_NS - 1));
	assert_u64(pop_near(), bit(3));
	assert_u64(pop_near(), 0);
	tested_close();
}

/* Its slab's page, or the slab itself: the consumer would not come to it. */
Test(mpsc_queue, what_lacks_a_bit_above_is_not_found)
{
	uint32_t index = index_in(1, 9, 3);
	struct record_store *store;

	tested_open(2);
	store = &manual.timer->store;
	push_soon(index);
	a64_and_seq(&store->top[SET_NEAR][0], ~bit(1));
	cr_assert(!is_pushed(index, SOON));

	a64_or_seq(&store->top[SET_NEAR][0], bit(1));
	cr_assert(is_pushed(index, SOON));
	a64_and_seq(&slab_at(store, 1)->summary[SET_NEAR], ~bit(9));
	cr_assert(!is_pushed(index, SOON));

	push_soon(index);
	cr_assert(is_pushed(index, SOON));
	assert_u64(pop_near(), bit(3));
	assert_u64(pop_near(), 0);
	tested_close();
}

/* What had no page yet of so many. */
static uint32_t
pages_that_call(bool (*push)(uint32_t), uint32_t slab, uint32_t record)
{
	uint32_t calls = 0;
	uint32_t page;

	for (page = 1; page < SLAB_PAGES; page++) {
		bool calls_now = push(index_in(slab, page, record));

		cr_assert(calls_now == (record == 0 && page % CALL_PAGES == 0));
		calls += calls_now;
	}
	return calls;
}

Test(mpsc_queue, many_pages_that_wait_ask_for_the_consumer)
{
	tested_open(2);

	assert_u64(
	    pages_that_call(push_soon, 0, 0), SLAB_PAGES / CALL_PAGES - 1);
	assert_u64(
	    pages_that_call(push_late, 1, 0), SLAB_PAGES / CALL_PAGES - 1);
	/* More records of the same pages are no more pages. */
	assert_u64(pages_that_call(push_soon, 0, 1), 0);
	assert_u64(pages_that_call(push_late, 1, 63), 0);

	while (pop_near() != 0 || pop_later() != 0)
		continue;
	assert_is_empty();
	tested_close();
}

/* Producers and the consumer at once; see in_parallel. Each counts up a number
 * of its own for an index and then pushes that index; all use the same ones.
 * The consumer reads all numbers of what it pops: at the end, it has seen the
 * last of each. */
#define PRODUCERS 3
#define PUSHES 300000
#define INDEXES (3 * SLAB_RECORDS)

static a64_t numbers[INDEXES][PRODUCERS];
static uint64_t seen[INDEXES][PRODUCERS];
static _Atomic unsigned producers_left;
/* Where the producers' deadlines lie on both sides of. */
static _Atomic uint64_t moving_now_ns;

static void
produce(unsigned producer)
{
	struct rng rng = {.state = producer + 1};
	uint32_t i;

	for (i = 0; i < PUSHES; i++) {
		uint32_t index = index_in((uint32_t)rng_below(&rng, 3),
		    1 + (uint32_t)rng_below(&rng, SLAB_PAGES - 1),
		    (uint32_t)rng_below(&rng, i % 2 == 0 ? 64 : 2));

		(void)a64_add_seq(&numbers[index][producer], 1);
		(void)mpsc_push(&queue, index,
		    moving_now_ns + rng_below(&rng, 2 * HORIZON_NS));
	}
	producers_left--;
}

static void
look_at(uint64_t records)
{
	uint32_t index, producer;

	for (; records != 0; records &= records - 1) {
		index = popped_first + (uint32_t)__builtin_ctzll(records);
		for (producer = 0; producer < PRODUCERS; producer++)
			seen[index][producer] =
			    a64_load_relaxed(&numbers[index][producer]);
	}
}

static void
consume(void)
{
	uint64_t records;
	bool last;

	do {
		last = producers_left == 0;
		while ((records = pop_near()) != 0)
			look_at(records);
		while ((records = mpsc_pop_later(
			    &queue, moving_now_ns, &popped_first)) != 0)
			look_at(records);
		moving_now_ns += HORIZON_NS / 4;
	} while (!last || !mpsc_is_empty(&queue));
}

static void
produce_or_consume(unsigned index, void *arg)
{
	(void)arg;
	if (index < PRODUCERS)
		produce(index);
	else
		consume();
}

Test(mpsc_queue, whatever_several_threads_push_the_last_of_it_is_seen)
{
	uint32_t index, producer;

	tested_open(3);
	producers_left = PRODUCERS;
	moving_now_ns = NOW;

	in_parallel(PRODUCERS + 1, produce_or_consume, NULL);

	for (index = 0; index < INDEXES; index++) {
		for (producer = 0; producer < PRODUCERS; producer++)
			assert_u64(seen[index][producer],
			    a64_load_relaxed(&numbers[index][producer]));
	}
	assert_is_empty();
	tested_close();
}
