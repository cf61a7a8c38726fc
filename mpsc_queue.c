/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue between callers and the worker.
 *
 * One bit for each record says that the worker has to look at it. With the bits
 * of each page there is the page's URGENCY: the earliest deadline that was
 * pushed, as a number that is greater the earlier it is, and 0 if nothing
 * waits. The urgency of a slab is the greatest of its pages'. A push sets a bit
 * and raises two urgencies, or finds that there is nothing to do, as is usual.
 * So
 *
 *   - the queue cannot become longer than there are records, and a push takes
 *     no memory and neither fails nor waits: a thread that was descheduled in
 *     a push delays no other, which finds the bit set, or sets it;
 *   - a million timeouts that are due in minutes do not delay one that is due
 *     now: before a turn, the worker pops the pages on which something is due
 *     by then (mpsc_pop_due), and all others in pieces between turns
 *     (mpsc_pop_any).
 *
 * An urgency may be too great: the record was cancelled or put off since, or
 * was popped before its push had raised the urgency. Then the worker pops the
 * page needlessly, once. It is never less than the urgency of a record that a
 * completed push has left in the queue.
 *
 * A PASS visits each slab that is urgent enough once, from the first to the
 * last, and in it the pages that are so. What is pushed behind it waits for the
 * next pass, so that fast callers cannot make it endless. A page is popped by
 * setting its urgency and then its bits to 0. The urgency of a slab is settled
 * when a pass leaves it: it is set to 0, and then raised to the greatest of its
 * pages'. A pass that has stopped half way leaves a slab that is too urgent.
 *
 *        caller                            worker
 *        ------                            ------
 *   (A1) set the bit, or raise the         (B1) set the urgency above to 0
 *        urgency below                          full fence
 *        full fence                        (B2) swap the bits with 0, or read
 *   (A2) read the urgency above;                the urgencies below
 *        less: raise it
 *
 *   Forbidden: A2 reads the urgency from before B1, and B2 misses A1. This is
 *   E:set. If A2 comes after B1, the caller raises the urgency itself. The
 *   worker may raise it too, to what it has read: that makes it only greater.
 *
 * COST. push: three loads if there is nothing to do (mpsc_is_pushed), or a
 * locked instruction for each word that changes. pop: two swaps for each page.
 *
 * EDGES
 *   E:queue    the fence between changing a record's word and reading its bit,
 *              in mpsc_push and mpsc_is_pushed; the fence between clearing the
 *              bit and reading the word, in page_pop. Either the caller finds
 *              the bit cleared, and sets it, or the worker sees the change.
 *   E:set      drawn above: fences in urgency_raise and mpsc_is_pushed; in
 *              page_pop and slab_settle. In the free set of core/record.c the
 *              same holds of bits and the bits above: fences in free_raise; in
 *              find_slab and page_take.
 */
#include "mpsc_queue.h"

/* mpsc_push asks for a wake-up for every so many waiting pages of a slab. */
#ifndef WAKE_PAGES
#define WAKE_PAGES 16
#endif

/* An urgency that each deadline has. */
#define URGENCY_ANY 1u

/* Makes an urgency at least as great. Returns what it was. */
static uint64_t
urgency_raise(a64_t *word, uint64_t urgency)
{
	uint64_t seen;

	do {
		/* E:set fence: (A1) of the bit, or of the urgency below, before
		 * (A2) this read. */
		seen = a64_load_seq(word);
	} while (seen < urgency && !a64_cas_seq(word, seen, urgency));
	return seen;
}

bool
mpsc_push(struct mpsc_queue *queue, uint32_t index, uint64_t deadline_ns)
{
	uint64_t urgency = mpsc_urgency(deadline_ns);
	uint64_t bit = UINT64_C(1) << index % PAGE_RECORDS;
	uint32_t number = index >> SLAB_BITS;
	struct slab *slab = slab_at(queue->store, number);
	struct queued *page = &slab->queued[index / PAGE_RECORDS % SLAB_PAGES];
	uint64_t waiting = 0;

	/* E:queue fence: the caller's operation on the word, and this. */
	if (!(a64_load_seq(&page->bits) & bit))
		a64_or_seq(&page->bits, bit);
	if (urgency_raise(&page->urgency, urgency) == 0)
		waiting = a64_add_seq(&slab->waiting, 1) + 1;
	(void)urgency_raise(&queue->store->slab_urgency[number], urgency);
	/* Below 0 where the worker has counted pages off before their pushers
	 * have counted them on. */
	return (int64_t)waiting > 0 && waiting % WAKE_PAGES == 0;
}

static uint64_t
page_pop(struct slab *slab, uint32_t page)
{
	/* E:set fence: (B1) this, before (B2) the swap of the bits. */
	if (a64_swap_seq(&slab->queued[page].urgency, 0) != 0)
		(void)a64_add_seq(&slab->waiting, UINT64_MAX);
	/* E:queue fence: clearing the bits, before the worker reads the
	 * records' words. E:set fence: (B2). */
	return a64_swap_seq(&slab->queued[page].bits, 0);
}

/* The pages of a slab that are as urgent, as bits; and the greatest urgency. */
static uint64_t
slab_read(const struct slab *slab, uint64_t least, uint64_t *most)
{
	uint64_t pages = 0;
	uint64_t urgency;
	uint32_t page;

	*most = 0;
	for (page = HEADER_PAGES; page < SLAB_PAGES; page++) {
		/* E:set fence: (B2), after the slab's urgency was set to 0. */
		urgency = a64_load_seq(&slab->queued[page].urgency);
		pages |= (uint64_t)(urgency >= least) << page;
		if (urgency > *most)
			*most = urgency;
	}
	return pages;
}

static void
slab_settle(struct record_store *store, uint32_t number)
{
	uint64_t most;

	/* E:set fence: (B1) this, before (B2) the urgencies of the pages. */
	(void)a64_swap_seq(&store->slab_urgency[number], 0);
	(void)slab_read(slab_at(store, number), URGENCY_ANY, &most);
	(void)urgency_raise(&store->slab_urgency[number], most);
}

/* Goes on to the next slab that is as urgent. False: there is none. */
static bool
pass_go_on(struct record_store *store, struct mpsc_pass *pass, uint64_t least)
{
	uint32_t limit = store_limit(store);
	uint64_t most;

	if (pass->slabs > 0)
		slab_settle(store, pass->slabs - 1);
	while (pass->slabs < limit) {
		/* E:set fence: what this reads is not less than what was
		 * pushed before. */
		if (a64_load_seq(&store->slab_urgency[pass->slabs++]) < least)
			continue;
		pass->pages =
		    slab_read(slab_at(store, pass->slabs - 1), least, &most);
		return true;
	}
	pass->slabs = 0;
	return false;
}

/* The next bits of a pass; 0: it has come to its end. */
static uint64_t
mpsc_pop(const struct mpsc_queue *queue, struct mpsc_pass *pass, uint64_t least,
    uint32_t *first)
{
	uint32_t number, page;
	uint64_t bits;

	do {
		while (pass->pages != 0) {
			number = pass->slabs - 1;
			page = (uint32_t)__builtin_ctzll(pass->pages);
			pass->pages &= pass->pages - 1;
			bits = page_pop(slab_at(queue->store, number), page);
			*first = (number << SLAB_BITS) + page * PAGE_RECORDS;
			if (bits != 0)
				return bits;
		}
	} while (pass_go_on(queue->store, pass, least));
	return 0;
}

uint64_t
mpsc_pop_due(struct mpsc_queue *queue, uint64_t now_ns, uint32_t *first)
{
	return mpsc_pop(queue, &queue->due, mpsc_urgency(now_ns), first);
}

uint64_t
mpsc_pop_any(struct mpsc_queue *queue, uint32_t *first)
{
	return mpsc_pop(queue, &queue->any, URGENCY_ANY, first);
}

bool
mpsc_is_empty(const struct mpsc_queue *queue)
{
	const struct record_store *store = queue->store;
	uint32_t limit = store_limit(store);
	uint32_t number;

	for (number = 0; number < limit; number++) {
		/* E:asleep fence: the worker's announcement, before this read.
		 * E:set fence: what this reads is not less than what was
		 * pushed before. */
		if (a64_load_seq(&store->slab_urgency[number]) != 0)
			return false;
	}
	return true;
}
