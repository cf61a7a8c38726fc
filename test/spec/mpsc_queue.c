/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue between producers and the worker, from inside: this file has a copy
 * of its source, on the record store of a manual timer that nobody turns.
 */
#include "test/spec/support.h"

#include "../../mpsc_queue.c"
#include "core/timer.h"

SUITE(mpsc_queue);

#define NOW HWT_SEC(100)
#define LATE (NOW + HWT_SEC(3600))

static struct mpsc_queue queue;
/* The first index of the last page that was popped. */
static uint32_t first;

static void
queue_open(uint32_t slabs)
{
	manual_open(NULL);
	while (store_limit(&manual.timer->store) < slabs)
		schedule_forbidden(HWT_NEVER);
	manual_step(0);
	queue = (struct mpsc_queue){.store = &manual.timer->store};
}

static uint64_t
pop_any(void)
{
	return mpsc_pop_any(&queue, &first);
}

static uint64_t
pop_due(uint64_t now_ns)
{
	return mpsc_pop_due(&queue, now_ns, &first);
}

static void
queue_close(void)
{
	while (pop_any() != 0)
		continue;
	cr_assert(mpsc_is_empty(&queue));
	assert_u64(pop_due(DEADLINE_NEVER), 0);
	manual_close();
}

#define QueueTest(name, slabs) \
	TestBetween(queue_open(slabs), queue_close(), mpsc_queue, name)

static uint32_t
at(uint32_t slab, uint32_t page, uint32_t record)
{
	return slab * SLAB_RECORDS + page * PAGE_RECORDS + record;
}

static bool
push(uint32_t index, uint64_t deadline_ns)
{
	return mpsc_push(&queue, index, deadline_ns);
}

#define BIT(record) (UINT64_C(1) << (record))

QueueTest(pushed_records_are_popped_once_page_by_page, 2)
{
	push(at(1, 63, 63), LATE);
	push(at(0, 2, 0), NOW);
	push(at(0, 7, 5), LATE);
	push(at(0, 7, 62), NOW);

	assert_u64(pop_any(), BIT(0));
	assert_u64(first, at(0, 2, 0));
	assert_u64(pop_any(), BIT(5) | BIT(62));
	assert_u64(first, at(0, 7, 0));
	assert_u64(pop_any(), BIT(63));
	assert_u64(first, at(1, 63, 0));
	assert_u64(pop_any(), 0);
	assert_u64(pop_due(NOW), 0);
	cr_assert(mpsc_is_empty(&queue));
}

/* This bounds what comes before a turn of the wheel. */
QueueTest(due_pass_pops_only_pages_on_which_something_is_due, 3)
{
	for (uint32_t slab = 0; slab < 3; slab++)
		for (uint32_t page = 1; page < SLAB_PAGES; page++)
			push(at(slab, page, 1), NOW + 2);
	push(at(0, 2, 0), 0);
	push(at(0, 9, 5), NOW);
	push(at(2, 63, 2), NOW + 1);

	assert_u64(pop_due(NOW), BIT(0) | BIT(1));
	assert_u64(pop_due(NOW), BIT(1) | BIT(5));
	assert_u64(pop_due(NOW), 0);
	assert_u64(pop_due(NOW + 1), BIT(1) | BIT(2));
	assert_u64(first, at(2, 63, 0));
	assert_u64(pop_due(NOW + 1), 0);
	cr_assert(!mpsc_is_empty(&queue));
}

QueueTest(earliest_deadline_that_was_pushed_counts, 1)
{
	push(at(0, 2, 0), LATE);
	push(at(0, 2, 0), NOW);
	push(at(0, 3, 0), NOW);
	push(at(0, 3, 0), LATE);

	assert_u64(pop_due(NOW - 1), 0);
	assert_u64(pop_due(NOW), BIT(0));
	assert_u64(pop_due(NOW), BIT(0));
	assert_u64(pop_due(NOW), 0);
}

/* Callers need not push such a record again; but one whose deadline the slab,
 * or the page, does not know would come too late. */
QueueTest(pushed_record_is_found_unless_something_above_is_less_urgent, 2)
{
	uint32_t index = at(1, 9, 3);
	struct record_store *store = &manual.timer->store;
	a64_t *const above[] = {
	    &store->slab_urgency[1], &slab_at(store, 1)->queued[9].urgency};

	cr_assert(!mpsc_is_pushed(&queue, index, LATE));
	push(index, LATE);
	cr_assert(mpsc_is_pushed(&queue, index, LATE));
	cr_assert(!mpsc_is_pushed(&queue, index, LATE - 1));
	cr_assert(!mpsc_is_pushed(&queue, at(1, 9, 4), LATE));
	push(index, NOW);
	for (unsigned i = 0; i < 2; i++) {
		cr_assert(mpsc_is_pushed(&queue, index, NOW));
		a64_store_relaxed(above[i], mpsc_urgency(NOW + 1));
		cr_assert(!mpsc_is_pushed(&queue, index, NOW));
		push(index, NOW);
	}

	assert_u64(pop_due(NOW), BIT(3));
	cr_assert(!mpsc_is_pushed(&queue, index, LATE));
}

/* More records of the same pages are no more pages. */
static void
assert_wakes(uint32_t slab, uint32_t record, bool wakes)
{
	for (uint32_t page = 1; page < SLAB_PAGES; page++)
		cr_assert(push(at(slab, page, record), LATE) ==
		    (wakes && page % WAKE_PAGES == 0));
}

QueueTest(many_pages_that_wait_ask_for_the_consumer, 2)
{
	for (unsigned turn = 0; turn < 2; turn++) {
		assert_wakes(0, 0, true);
		assert_wakes(1, 0, true);
		assert_wakes(0, 1, false);
		while (pop_any() != 0)
			continue;
	}
}
