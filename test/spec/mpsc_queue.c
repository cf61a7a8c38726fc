/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue between producers and the worker, from inside: this file has a
 * copy of it of its own. It works on the record store of a manual timer that is
 * not turned meanwhile, so that nobody else pushes or pops.
 */
#include "test/spec/support.h"

#include "../../mpsc_queue.c"
#include "core/timer.h"

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
	queue = (struct mpsc_queue){.store = &manual.timer->store};
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

static void
tested_close(void)
{
	assert_is_empty();
	fixture_close(&manual);
}

/* A test with a store of so many slabs; it leaves nothing in the queue. */
#define QueueTest(suite, name, slabs) \
	TestBetween(tested_open(slabs), tested_close(), suite, name)

Test(mpsc_queue, a_new_one_is_empty)
{
	/* Before the first slab there is nothing to search. */
	for (uint32_t slabs = 0; slabs <= 1; slabs++) {
		tested_open(slabs);
		tested_close();
	}
}

QueueTest(mpsc_queue, what_was_pushed_is_popped_once_page_by_page, 2)
{
	push_late(index_in(1, 63, 63));
	push_due(index_in(0, 2, 0));
	push_late(index_in(0, 7, 5));
	push_due(index_in(0, 7, 62));
	cr_assert(!mpsc_is_empty(&queue));

	assert_u64(pop_any(), bit(0));
	assert_u64(popped_first, index_in(0, 2, 0));
	assert_u64(pop_any(), bit(5) | bit(62));
	assert_u64(popped_first, index_in(0, 7, 0));
	assert_u64(pop_any(), bit(63));
	assert_u64(popped_first, index_in(1, 63, 0));

	assert_u64(pop_any(), 0);
}

/* This bounds what comes before a turn: nothing but pages on which something
 * is due by then, however much waits. */
QueueTest(mpsc_queue, a_due_pass_pops_the_pages_on_which_something_is_due, 3)
{
	uint32_t slab, page;

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
}

QueueTest(mpsc_queue, the_earliest_deadline_that_was_pushed_counts, 1)
{
	push(index_in(0, 2, 0), LATE);
	push(index_in(0, 2, 0), NOW);
	push(index_in(0, 3, 0), NOW);
	push(index_in(0, 3, 0), LATE);

	assert_u64(pop_due_at(NOW - 1), 0);
	assert_u64(pop_due(), bit(0));
	assert_u64(pop_due(), bit(0));
	assert_u64(popped_first, index_in(0, 3, 0));
	assert_u64(pop_due(), 0);
}

/* Its pages do not count any more, and what is left does. */
QueueTest(mpsc_queue, after_a_due_pass_the_next_deadline_counts, 2)
{
	a64_t *urgency;

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
}

QueueTest(mpsc_queue, what_is_never_due_is_popped_too, 1)
{
	push(index_in(0, 2, 0), DEADLINE_NEVER);

	assert_u64(pop_due_at(DEADLINE_NEVER - 1), 0);
	cr_assert(!mpsc_is_empty(&queue));
	assert_u64(pop_any(), bit(0));
	assert_u64(pop_any(), 0);
}

QueueTest(mpsc_queue, what_was_popped_can_be_pushed_again_in_the_same_pass, 1)
{
	unsigned turn;

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
}

/* In a slab that it has left, that it is in, and that it has not come to. */
QueueTest(mpsc_queue, what_is_due_is_popped_beside_a_pass_that_is_half_done, 3)
{
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
}

/* Behind it in the page, in the slab, or in another one: whoever is fast enough
 * to push each time cannot hold a pass. */
QueueTest(mpsc_queue, what_is_pushed_behind_a_pass_waits_for_the_next, 5)
{
	uint32_t slabs[] = {0, 1, 2, 4};
	uint32_t pops = 0;
	uint32_t i;

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
}

/* Urgencies, each without one below, as a push leaves them that the consumer
 * overtook: it looks in vain, once. */
QueueTest(mpsc_queue, what_is_too_urgent_is_passed_over, 2)
{
	uint64_t urgency = mpsc_urgency(NOW);
	struct record_store *store;

	store = &manual.timer->store;
	a64_store_relaxed(&store->slab_urgency[0], urgency);
	a64_store_relaxed(&store->slab_urgency[1], urgency);
	a64_store_relaxed(&slab_at(store, 1)->queued[8].urgency, urgency);
	push_due(index_in(1, 9, 3));

	assert_u64(pop_due(), bit(3));
	assert_u64(popped_first, index_in(1, 9, 0));
	assert_u64(pop_due(), 0);
}

/* And as one leaves it that has not come to its end: another push of the same
 * index makes up for it. */
QueueTest(
    mpsc_queue, a_push_that_was_interrupted_delays_no_other_of_the_same, 1)
{
	uint64_t urgency = mpsc_urgency(NOW);
	struct queued *queued;
	unsigned level;

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
}

static bool
is_pushed(uint32_t index, uint64_t deadline_ns)
{
	return mpsc_is_pushed(&queue, index, deadline_ns);
}

/* So callers need not push again. */
QueueTest(mpsc_queue, what_is_pushed_is_found_but_for_an_earlier_deadline, 4)
{
	static const uint32_t slabs[] = {0, 1, 3};
	uint32_t index, i;

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
}

/* The consumer would not come to it, or too late. */
QueueTest(mpsc_queue, what_is_not_as_urgent_above_is_not_found, 2)
{
	uint32_t index = index_in(1, 9, 3);
	struct record_store *store;
	a64_t *level[2];
	uint32_t i;

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
}

/* What had no page yet of so many. */
static uint32_t
pages_that_call(bool (*push_it)(uint32_t), uint32_t slab, uint32_t record)
{
	uint32_t calls = 0;
	uint32_t page;

	for (page = 1; page < SLAB_PAGES; page++) {
		bool calls_now = push_it(index_in(slab, page, record));

		cr_assert(calls_now == (record == 0 && page % WAKE_PAGES == 0));
		calls += calls_now;
	}
	return calls;
}

QueueTest(mpsc_queue, many_pages_that_wait_ask_for_the_consumer, 2)
{
	unsigned turn;

	for (turn = 0; turn < 2; turn++) {
		assert_u64(pages_that_call(push_due, 0, 0),
		    SLAB_PAGES / WAKE_PAGES - 1);
		assert_u64(pages_that_call(push_late, 1, 0),
		    SLAB_PAGES / WAKE_PAGES - 1);
		/* More records of the same pages are no more pages. */
		assert_u64(pages_that_call(push_due, 0, 1), 0);
		assert_u64(pages_that_call(push_late, 1, 63), 0);

		while (pop_due() != 0 || pop_any() != 0)
			continue;
		assert_is_empty();
	}
}
