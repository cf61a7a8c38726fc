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
	mpsc_create(&queue, &manual.timer->store);
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
push(uint32_t index, uint64_t deadline_ns)
{
	return mpsc_push(&queue, index, deadline_ns);
}

static bool
push_due(uint32_t index)
{
	return push(index, NOW);
}

static bool
push_late(uint32_t index)
{
	return push(index, LATE);
}

static uint64_t
pop_due_at(uint64_t now_ns)
{
	return mpsc_pop_due(&queue, now_ns, &popped_first);
}

static uint64_t
pop_due(void)
{
	return pop_due_at(NOW);
}

static uint64_t
pop_any(void)
{
	return mpsc_pop_any(&queue, &popped_first);
}

static void
assert_is_empty(void)
{
	cr_assert(mpsc_is_empty(&queue));
	assert_u64(pop_due(), 0);
	assert_u64(pop_any(), 0);
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
	push_late(index_in(1, 63, 63));
	push_due(index_in(0, 1, 0));
	push_late(index_in(0, 7, 5));
	push_due(index_in(0, 7, 62));
	cr_assert(!mpsc_is_empty(&queue));

	assert_u64(pop_any(), bit(0));
	assert_u64(popped_first, index_in(0, 1, 0));
	assert_u64(pop_any(), bit(5) | bit(62));
	assert_u64(popped_first, index_in(0, 7, 0));
	assert_u64(pop_any(), bit(63));
	assert_u64(popped_first, index_in(1, 63, 0));

	assert_u64(pop_any(), 0);
	assert_is_empty();
	tested_close();
}

/* This bounds what comes before a turn: nothing but pages on which something
 * is due by then, however much waits. */
Test(mpsc_queue, a_due_pass_pops_the_pages_on_which_something_is_due)
{
	uint32_t slab, page;

	tested_open(3);
	for (slab = 0; slab < 3; slab++) {
		for (page = 1; page < SLAB_PAGES; page++)
			push(index_in(slab, page, 1), NOW + 2);
	}
	push(index_in(0, 2, 0), 0);
	push(index_in(0, 9, 5), NOW);
	push(index_in(2, 63, 2), NOW + 1);

	assert_u64(pop_due(), bit(0) | bit(1));
	assert_u64(popped_first, index_in(0, 2, 0));
	assert_u64(pop_due(), bit(1) | bit(5));
	assert_u64(popped_first, index_in(0, 9, 0));
	assert_u64(pop_due(), 0);
	assert_u64(pop_due_at(NOW + 1), bit(1) | bit(2));
	assert_u64(popped_first, index_in(2, 63, 0));
	assert_u64(pop_due_at(NOW + 1), 0);

	cr_assert(!mpsc_is_empty(&queue));
	while (pop_any() != 0)
		continue;
	assert_is_empty();
	tested_close();
}

Test(mpsc_queue, the_earliest_deadline_that_was_pushed_counts)
{
	tested_open(1);
	push(index_in(0, 2, 0), LATE);
	push(index_in(0, 2, 0), NOW);
	push(index_in(0, 3, 0), NOW);
	push(index_in(0, 3, 0), LATE);

	assert_u64(pop_due_at(NOW - 1), 0);
	assert_u64(pop_due(), bit(0));
	assert_u64(pop_due(), bit(0));
	assert_u64(popped_first, index_in(0, 3, 0));
	assert_u64(pop_due(), 0);
	assert_is_empty();
	tested_close();
}

/* Its pages do not count any more, and what is left does. */
Test(mpsc_queue, after_a_due_pass_the_next_deadline_counts)
{
	a64_t *urgency;

	tested_open(2);
	urgency = manual.timer->store.slab_urgency;
	push(index_in(0, 5, 0), LATE);
	push(index_in(0, 6, 0), LATE - 1);
	push(index_in(0, 4, 0), NOW);
	push(index_in(1, 4, 0), NOW);

	assert_u64(pop_due(), bit(0));
	assert_u64(pop_due(), bit(0));
	assert_u64(pop_due(), 0);

	assert_u64(a64_load_relaxed(&urgency[0]), mpsc_urgency(LATE - 1));
	assert_u64(a64_load_relaxed(&urgency[1]), 0);
	while (pop_any() != 0)
		continue;
	assert_is_empty();
	tested_close();
}

Test(mpsc_queue, what_is_never_due_is_popped_too)
{
	tested_open(1);
	push(index_in(0, 2, 0), DEADLINE_NEVER);

	assert_u64(pop_due_at(DEADLINE_NEVER - 1), 0);
	cr_assert(!mpsc_is_empty(&queue));
	assert_u64(pop_any(), bit(0));
	assert_u64(pop_any(), 0);
	assert_is_empty();
	tested_close();
}

Test(mpsc_queue, to_push_again_has_no_effect)
{
	unsigned turn;

	tested_open(1);
	for (turn = 0; turn < 1000; turn++) {
		push_due(index_in(0, 3, 9));
		push_late(index_in(0, 4, 9));
	}

	assert_u64(pop_due(), bit(9));
	assert_u64(pop_due(), 0);
	assert_u64(pop_any(), bit(9));
	assert_u64(popped_first, index_in(0, 4, 0));
	assert_u64(pop_any(), 0);
	assert_is_empty();
	tested_close();
}

Test(mpsc_queue, what_was_popped_can_be_pushed_again_in_the_same_pass)
{
	unsigned turn;

	tested_open(1);
	for (turn = 0; turn < 3; turn++) {
		push_due(index_in(0, 3, 9));
		push_due(index_in(0, 5, 9));
		assert_u64(pop_due(), bit(9));
		push_due(index_in(0, 3, 9));
		assert_u64(pop_due(), bit(9));
		assert_u64(popped_first, index_in(0, 5, 0));
		assert_u64(pop_due(), 0);

		cr_assert(!mpsc_is_empty(&queue));
		assert_u64(pop_due(), bit(9));
		assert_u64(popped_first, index_in(0, 3, 0));
		assert_u64(pop_due(), 0);
		assert_is_empty();
	}
	tested_close();
}

/* In a slab that it has left, that it is in, and that it has not come to. */
Test(mpsc_queue, what_is_due_is_popped_beside_a_pass_that_is_half_done)
{
	tested_open(3);
	push_late(index_in(1, 2, 0));
	push_late(index_in(1, 3, 0));
	push_late(index_in(1, 4, 0));
	push_late(index_in(2, 2, 0));
	assert_u64(pop_any(), bit(0));
	push_due(index_in(0, 2, 1));
	push_due(index_in(1, 2, 1));
	push_due(index_in(1, 3, 1));
	push_due(index_in(2, 2, 1));

	assert_u64(pop_due(), bit(1));
	assert_u64(popped_first, index_in(0, 2, 0));
	assert_u64(pop_due(), bit(1));
	assert_u64(popped_first, index_in(1, 2, 0));
	assert_u64(pop_due(), bit(0) | bit(1));
	assert_u64(popped_first, index_in(1, 3, 0));
	assert_u64(pop_due(), bit(0) | bit(1));
	assert_u64(popped_first, index_in(2, 2, 0));
	assert_u64(pop_due(), 0);

	assert_u64(pop_any(), bit(0));
	assert_u64(popped_first, index_in(1, 4, 0));
	assert_u64(pop_any(), 0);
	assert_is_empty();
	tested_close();
}

/* Behind it in the page, in the slab, or in another one: whoever is fast enough
 * to push each time cannot hold a pass. */
Test(mpsc_queue, what_is_pushed_behind_a_pass_waits_for_the_next)
{
	uint32_t slabs[] = {0, 1, 2, 4};
	uint32_t pops = 0;
	uint32_t i;

	tested_open(5);
	for (i = 0; i < 4; i++)
		push_due(index_in(slabs[i], 5, 0));

	while (pop_due() != 0) {
		cr_assert(++pops <= 4);
		assert_u64(popped_first, index_in(slabs[pops - 1], 5, 0));
		for (i = 0; i < pops; i++) {
			push_due(index_in(slabs[i], 4, pops));
			push_due(index_in(slabs[i], 5, pops));
		}
		cr_assert(!mpsc_is_empty(&queue));
	}

	assert_u64(pops, 4);
	cr_assert(!mpsc_is_empty(&queue));
	for (pops = 0; pop_due() != 0; pops++)
		continue;
	assert_u64(pops, 8);
	assert_is_empty();
	tested_close();
}

/* Which a pass reads after that. */
Test(mpsc_queue, what_is_pushed_ahead_of_a_pass_may_come_in_it)
{
	tested_open(3);
	push_due(index_in(0, 5, 0));
	assert_u64(pop_due(), bit(0));

	push_due(index_in(2, 5, 1));

	assert_u64(pop_due(), bit(1));
	assert_u64(popped_first, index_in(2, 5, 0));
	assert_u64(pop_due(), 0);
	assert_is_empty();
	tested_close();
}

/* Urgencies, each without one below, as a push leaves them that the consumer
 * overtook: it looks in vain, once. */
Test(mpsc_queue, what_is_too_urgent_is_passed_over)
{
	uint64_t urgency = mpsc_urgency(NOW);
	struct record_store *store;

	tested_open(2);
	store = &manual.timer->store;
	a64_store_relaxed(&store->slab_urgency[0], urgency);
	a64_store_relaxed(&store->slab_urgency[1], urgency);
	a64_store_relaxed(&slab_at(store, 1)->queued[8].urgency, urgency);
	push_due(index_in(1, 9, 3));

	assert_u64(pop_due(), bit(3));
	assert_u64(popped_first, index_in(1, 9, 0));
	assert_u64(pop_due(), 0);
	assert_is_empty();
	tested_close();
}

/* And as one leaves it that has not come to its end: another push of the same
 * index makes up for it. */
Test(mpsc_queue, a_push_that_was_interrupted_delays_no_other_of_the_same)
{
	uint64_t urgency = mpsc_urgency(NOW);
	struct queued *queued;
	unsigned level;

	tested_open(1);
	queued = &slab_at(&manual.timer->store, 0)->queued[9];
	for (level = 0; level < 2; level++) {
		a64_or_seq(&queued->bits, bit(3));
		if (level == 1)
			a64_store_relaxed(&queued->urgency, urgency);
		assert_u64(pop_due(), 0);

		push_due(index_in(0, 9, 3));
		assert_u64(pop_due(), bit(3));
		assert_u64(pop_due(), 0);
		assert_is_empty();
	}
	tested_close();
}

static bool
is_pushed(uint32_t index, uint64_t deadline_ns)
{
	return mpsc_is_pushed(&queue, index, deadline_ns);
}

/* So callers need not push again. */
Test(mpsc_queue, what_is_pushed_is_found_but_for_an_earlier_deadline)
{
	static const uint32_t slabs[] = {0, 1, 3};
	uint32_t index, i;

	tested_open(4);
	for (i = 0; i < 3; i++) {
		index = index_in(slabs[i], 9, 3);
		cr_assert(!is_pushed(index, LATE));
		push_late(index);
		cr_assert(is_pushed(index, LATE) && is_pushed(index, LATE + 1));
		cr_assert(!is_pushed(index, LATE - 1));
		cr_assert(!is_pushed(index_in(slabs[i], 9, 4), LATE));
		push_due(index);
		cr_assert(is_pushed(index, NOW) && is_pushed(index, LATE));
		while (pop_due() != 0)
			continue;
		cr_assert(!is_pushed(index, LATE));
	}
	assert_is_empty();
	tested_close();
}

/* The consumer would not come to it, or too late. */
Test(mpsc_queue, what_is_not_as_urgent_above_is_not_found)
{
	uint32_t index = index_in(1, 9, 3);
	struct record_store *store;
	a64_t *level[2];
	uint32_t i;

	tested_open(2);
	store = &manual.timer->store;
	level[0] = &store->slab_urgency[1];
	level[1] = &slab_at(store, 1)->queued[9].urgency;
	push_due(index);
	for (i = 0; i < 2; i++) {
		cr_assert(is_pushed(index, NOW));
		a64_store_relaxed(level[i], mpsc_urgency(NOW + 1));
		cr_assert(!is_pushed(index, NOW));
		push_due(index);
	}

	assert_u64(pop_due(), bit(3));
	assert_u64(pop_due(), 0);
	assert_is_empty();
	tested_close();
}

/* What had no page yet of so many. */
static uint32_t
pages_that_call(bool (*push_it)(uint32_t), uint32_t slab, uint32_t record)
{
	uint32_t calls = 0;
	uint32_t page;

	for (page = 1; page < SLAB_PAGES; page++) {
		bool calls_now = push_it(index_in(slab, page, record));

		cr_assert(calls_now == (record == 0 && page % CALL_PAGES == 0));
		calls += calls_now;
	}
	return calls;
}

Test(mpsc_queue, many_pages_that_wait_ask_for_the_consumer)
{
	unsigned turn;

	tested_open(2);
	for (turn = 0; turn < 2; turn++) {
		assert_u64(pages_that_call(push_due, 0, 0),
		    SLAB_PAGES / CALL_PAGES - 1);
		assert_u64(pages_that_call(push_late, 1, 0),
		    SLAB_PAGES / CALL_PAGES - 1);
		/* More records of the same pages are no more pages. */
		assert_u64(pages_that_call(push_due, 0, 1), 0);
		assert_u64(pages_that_call(push_late, 1, 63), 0);

		while (pop_due() != 0 || pop_any() != 0)
			continue;
		assert_is_empty();
	}
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
/* The producers' deadlines are before and after it. */
#define AHEAD_NS HWT_SEC(1)
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
		(void)mpsc_push(
		    &queue, index, moving_now_ns + rng_below(&rng, AHEAD_NS));
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
		while ((records = pop_due_at(moving_now_ns)) != 0)
			look_at(records);
		if ((records = pop_any()) != 0)
			look_at(records);
		moving_now_ns += AHEAD_NS / 1000;
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
