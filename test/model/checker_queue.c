/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue, and the bits above the free set. See checker.h, record.c and
 * mpsc_queue.c.
 *
 * A bit above the free set may be set without one below; not the other way
 * round. A slab is as urgent as its pages; the one that a pass has stopped in
 * may be more so.
 */
#include "test/model/checker.h"

static bool
check_free_bits(struct checker *checker, const struct slab *slab)
{
	uint32_t number = slab->first_index >> SLAB_BITS;
	uint64_t pages = a64_load_acquire(&slab->free_summary);
	uint64_t slabs =
	    a64_load_acquire(&checker->timer->store.free_top[number / 64]);
	uint32_t page;

	for (page = 0; page < SLAB_PAGES; page++)
		must(a64_load_acquire(&slab->free_bits[page]) == 0 ||
			(pages >> page & 1),
		    slab->first_index + page * PAGE_RECORDS,
		    "queue: free_summary has a bit for each page with bits");
	must(pages == 0 || (slabs >> number % 64 & 1), slab->first_index,
	    "queue: free_top has a bit for each slab with a free_summary");
	return true;
}

static bool
check_slab(struct checker *checker, const struct slab *slab)
{
	uint32_t number = slab->first_index >> SLAB_BITS;
	uint64_t most = 0;
	uint64_t waiting = 0;
	uint64_t urgency;
	uint32_t page;

	for (page = 0; page < SLAB_PAGES; page++) {
		urgency = a64_load_acquire(&slab->queued[page].urgency);
		must(a64_load_acquire(&slab->queued[page].bits) == 0 ||
			urgency != 0,
		    slab->first_index + page * PAGE_RECORDS,
		    "queue: a page with bits has an urgency");
		waiting += urgency != 0;
		most = urgency > most ? urgency : most;
	}
	urgency = a64_load_acquire(&checker->timer->store.slab_urgency[number]);
	must(urgency == most ||
		(urgency > most &&
		    checker->timer->queue.any.slabs == number + 1),
	    slab->first_index, "queue: a slab is as urgent as its pages");
	must(waiting == a64_load_acquire(&slab->waiting), slab->first_index,
	    "queue: the pages that wait are counted");
	return true;
}

static bool
check_slabs(struct checker *checker)
{
	const struct slab *slab;
	uint32_t number;

	for (number = 0; number < checker_limit(checker); number++) {
		slab = slab_at(&checker->timer->store, number);
		if (!checker_is_idle(checker, number) &&
		    !(check_free_bits(checker, slab) &&
			check_slab(checker, slab)))
			return false;
	}
	return true;
}

static bool
check_passes(struct checker *checker)
{
	const struct mpsc_queue *queue = &checker->timer->queue;

	must(queue->due.slabs == 0 && queue->due.pages == 0, 0,
	    "queue: a pass through what is due goes to its end");
	must(queue->any.slabs != 0 || queue->any.pages == 0, 0,
	    "queue: no pass through all is under way");
	return true;
}

bool
check_queue(struct checker *checker)
{
	return check_slabs(checker) && check_passes(checker);
}

bool
check_queued(struct checker *checker, uint32_t index, struct pair_value seen)
{
	const struct record_store *store = &checker->timer->store;
	uint64_t urgency = mpsc_urgency(seen.deadline_ns);
	uint32_t number = index >> SLAB_BITS;
	const struct queued *queued =
	    &slab_at(store, number)->queued[index / PAGE_RECORDS % SLAB_PAGES];

	must(a64_load_acquire(&queued->bits) >> index % PAGE_RECORDS & 1, index,
	    "queue: what is PENDING without HAS_ENTRY is in it");
	must(a64_load_acquire(&queued->urgency) >= urgency &&
		a64_load_acquire(&store->slab_urgency[number]) >= urgency,
	    index, "queue: each level is as urgent as what it has");
	return true;
}
