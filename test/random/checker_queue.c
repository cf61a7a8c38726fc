/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two halves of the queue, and the bits above all three sets. See checker.h
 * and mpsc_queue.c.
 *
 * A bit above may be set without one below; not the other way round, but for
 * what a pass has taken from above and not visited yet.
 */
#include "test/random/checker.h"

/* The pass through a set that can stop half way; NULL: there is none. */
static const struct mpsc_pass *
pass_of(const struct checker *checker, enum record_set set)
{
	return set == SET_LATER ? &checker->timer->queue.later : NULL;
}

/* Pages of a slab that will be visited for the set. */
static uint64_t
pages_above(const struct checker *checker, enum record_set set, uint32_t number)
{
	const struct slab *slab = slab_at(&checker->timer->store, number);
	const struct mpsc_pass *pass = pass_of(checker, set);
	uint64_t pages = a64_load_acquire(&slab->summary[set]);

	if (pass != NULL && pass->slab == number)
		pages |= pass->pages;
	return pages;
}

/* Whether the set's summary of a slab will be looked at. */
static bool
slab_above(const struct checker *checker, enum record_set set, uint32_t number)
{
	const struct mpsc_pass *pass = pass_of(checker, set);
	uint64_t slabs =
	    a64_load_acquire(&checker->timer->store.top[set][number / 64]);

	if (pass != NULL && pass->word == number / 64 + 1)
		slabs |= pass->slabs;
	return slabs >> number % 64 & 1;
}

static bool
check_set(struct checker *checker, enum record_set set, uint32_t number)
{
	const struct slab *slab = slab_at(&checker->timer->store, number);
	uint64_t pages = pages_above(checker, set, number);
	uint32_t page;

	for (page = 0; page < SLAB_PAGES; page++)
		must(a64_load_acquire(&slab->bits[set][page]) == 0 ||
			(pages >> page & 1),
		    slab->first_index + page * PAGE_RECORDS,
		    "queue: a summary has a bit for each page with bits");
	must(a64_load_acquire(&slab->summary[set]) == 0 ||
		slab_above(checker, set, number),
	    slab->first_index,
	    "queue: the table has a bit for each slab with a summary");
	return true;
}

static bool
check_sets(struct checker *checker)
{
	uint32_t number;
	int set;

	for (number = 0; number < checker_limit(checker); number++) {
		if (checker_is_idle(checker, number))
			continue;
		for (set = 0; set < SETS; set++) {
			if (!check_set(checker, (enum record_set)set, number))
				return false;
		}
	}
	return true;
}

static bool
check_passes(struct checker *checker)
{
	const struct mpsc_queue *queue = &checker->timer->queue;
	const struct mpsc_pass *near = &queue->near;
	const struct mpsc_pass *later = &queue->later;

	must(near->set == SET_NEAR && later->set == SET_LATER, 0,
	    "queue: each half has its set");
	must(near->word == 0 && near->slabs == 0 && near->pages == 0, 0,
	    "queue: a pass through the near half goes to its end");
	must(queue->in_pass ||
		(later->word == 0 && later->slabs == 0 && later->pages == 0),
	    0, "queue: no pass through the later half is under way");
	return true;
}

static bool
check_horizons(struct checker *checker)
{
	const struct hwt *timer = checker->timer;
	const struct mpsc_queue *queue = &timer->queue;
	uint64_t horizon_ns = a64_load_acquire(&queue->horizon_ns);

	must(queue->complete_ns <= horizon_ns, 0,
	    "queue: a complete pass began after its horizon was set");
	must(timer_boundary(timer, timer->wheel.next_tick - 1) <
		queue->complete_ns,
	    0, "queue: no tick is begun beyond the complete horizon");
	return true;
}

bool
check_queue(struct checker *checker)
{
	return check_sets(checker) && check_passes(checker) &&
	    check_horizons(checker);
}

static bool
set_has(const struct checker *checker, enum record_set set, uint32_t index)
{
	uint32_t number = index >> SLAB_BITS;
	uint32_t page = index / PAGE_RECORDS % SLAB_PAGES;
	const struct slab *slab = slab_at(&checker->timer->store, number);
	const struct mpsc_pass *pass = pass_of(checker, set);
	bool visited = slab_above(checker, set, number) ||
	    (pass != NULL && pass->slab == number && (pass->pages >> page & 1));

	return visited && (pages_above(checker, set, number) >> page & 1) &&
	    (a64_load_acquire(&slab->bits[set][page]) >> index % PAGE_RECORDS &
		1);
}

bool
check_queued(struct checker *checker, uint32_t index, struct pair_value seen)
{
	uint64_t due_ns = seen.word & FLAG_RELATIVE ? 0 : seen.deadline_ns;

	must(set_has(checker, SET_NEAR, index) ||
		set_has(checker, SET_LATER, index),
	    index, "queue: what is PENDING and not COVERED is in a half");
	must(set_has(checker, SET_NEAR, index) ||
		due_ns >= mpsc_complete(&checker->timer->queue),
	    index, "queue: the later half has nothing due before complete");
	return true;
}
