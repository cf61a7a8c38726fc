/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue between callers and the worker.
 *
 * One bit for each record: it says that the worker has to look at the record.
 * Above the words of bits there are summary words, so that the worker finds the
 * set bits without a search (record.h). A push sets a bit at each of three
 * levels, or finds it set, as is usual. So
 *
 *   - the queue cannot become longer than there are records, takes no memory
 *     beyond theirs, and a push neither fails nor waits;
 *   - a caller pushes whatever other threads are in the middle of: a second
 *     push of an index finds the bit set, or sets it. A thread that was
 *     descheduled in a push delays no other;
 *   - the worker looks at records in the order of their addresses.
 *
 * NEAR AND LATER. Before the worker begins a tick, it must have looked at all
 * that is due; but a million timeouts that are due in minutes must not delay
 * one that is due now. So the queue has two halves. A push compares the
 * deadline with the horizon, about a second ahead: what is due before goes to
 * the near half, which the worker empties before each turn. The rest goes to
 * the later half, which it empties in pieces between turns. Before a turn that
 * reaches the previous horizon, it completes a pass through the later half that
 * began after the horizon was moved on.
 *
 *        caller                            worker
 *        ------                            ------
 *   (A1) set the bit in the later half     (B1) horizon_ns := further on
 *        full fence                             full fence
 *   (A2) read horizon_ns; due before:      (B2) pop all bits of the later half
 *        push to the near half as well
 *
 *   Forbidden: A2 reads the old horizon and B2 misses the bit. Then the
 *   timeout, due before the new horizon, could be late. This is E:horizon.
 *
 * A pass reads each word of the top table once, from the first to the last.
 * What is pushed behind it waits for the next pass, so that fast callers cannot
 * make it endless.
 *
 * COST. push: five loads if all bits are set (mpsc_is_pushed); otherwise up to
 * eight more, and one locked instruction for each bit that was not set. pop: a
 * swap for each page that has some.
 *
 * EDGES
 *   E:queue    the fence between changing a record's word and reading its bit,
 *              in half_push and mpsc_is_pushed; the fence between clearing the
 *              bit and reading the word, in mpsc_pop. Either the caller finds
 *              the bit cleared, and sets it, or the worker sees the change.
 *   E:horizon  drawn above; fences in mpsc_push and mpsc_pop_later.
 *   E:set      drawn in core/record.c.
 */
#include "core/mpsc_queue.h"

#define HORIZON_NS UINT64_C(1000000000)
/* mpsc_push asks for a wake-up for every so many waiting pages of a slab. */
#ifndef CALL_PAGES
#define CALL_PAGES 16
#endif

void
mpsc_create(
    struct mpsc_queue *queue, struct record_store *store, uint64_t now_ns)
{
	queue->store = store;
	queue->near.set = SET_NEAR;
	queue->later.set = SET_LATER;
	a64_store_relaxed(&queue->horizon_ns, now_ns + HORIZON_NS);
	queue->complete_ns = now_ns + HORIZON_NS;
}

/* True: many pages of the slab wait. */
static bool
half_push(struct mpsc_queue *queue, enum record_set set, uint32_t index)
{
	struct record_store *store = queue->store;
	uint32_t number = index >> SLAB_BITS;
	uint32_t page = index / PAGE_RECORDS % SLAB_PAGES;
	uint64_t bit = UINT64_C(1) << index % PAGE_RECORDS;
	a64_t *bits = &slab_at(store, number)->bits[set][page];
	uint64_t pages;

	/* E:queue fence: the caller's operation on the word, and this. */
	if (!(a64_load_seq(bits) & bit))
		a64_or_seq(bits, bit);
	pages = set_raise(store, set, number, page);
	return !(pages >> page & 1) &&
	    __builtin_popcountll(pages) % CALL_PAGES == CALL_PAGES - 1;
}

bool
mpsc_push(struct mpsc_queue *queue, uint32_t index, uint64_t deadline_ns)
{
	bool many = false;

	if (deadline_ns >= a64_load_relaxed(&queue->horizon_ns)) {
		many = half_push(queue, SET_LATER, index);
		/* E:horizon fence */
		if (deadline_ns >= a64_load_seq(&queue->horizon_ns))
			return many;
	}
	return half_push(queue, SET_NEAR, index) || many;
}

/* The next bits of a pass; 0: it has come to its end. */
static uint64_t
mpsc_pop(
    const struct mpsc_queue *queue, struct mpsc_pass *pass, uint32_t *first)
{
	const struct record_store *store = queue->store;
	a64_t *top = store->top[pass->set];
	struct slab *slab;
	uint64_t bits;
	uint32_t page;

	for (;;) {
		while (pass->pages != 0) {
			slab = slab_at(store, pass->slab);
			page = (uint32_t)__builtin_ctzll(pass->pages);
			pass->pages &= pass->pages - 1;
			/* E:queue fence, E:set fence */
			bits = a64_swap_seq(&slab->bits[pass->set][page], 0);
			*first =
			    (pass->slab << SLAB_BITS) + page * PAGE_RECORDS;
			if (bits != 0)
				return bits;
		}
		if (pass->slabs != 0) {
			pass->slab = (pass->word - 1) * 64 +
			    (uint32_t)__builtin_ctzll(pass->slabs);
			pass->slabs &= pass->slabs - 1;
			slab = slab_at(store, pass->slab);
			/* E:set fence; an idle slab is left untouched. */
			if (a64_load_seq(&slab->summary[pass->set]) != 0)
				pass->pages =
				    a64_swap_seq(&slab->summary[pass->set], 0);
			continue;
		}
		/* E:horizon fence: the limit, too. */
		if (pass->word * 64 >= store_limit(store)) {
			pass->word = 0;
			return 0;
		}
		/* E:set fence, E:horizon fence */
		if (a64_load_seq(&top[pass->word]) != 0)
			pass->slabs = a64_swap_seq(&top[pass->word], 0);
		pass->word++;
	}
}

uint64_t
mpsc_pop_near(struct mpsc_queue *queue, uint32_t *first)
{
	return mpsc_pop(queue, &queue->near, first);
}

uint64_t
mpsc_pop_later(struct mpsc_queue *queue, uint64_t now_ns, uint32_t *first)
{
	uint64_t horizon_ns = a64_load_relaxed(&queue->horizon_ns);
	uint64_t bits;

	/* Not more often: callers read that line with each push. */
	if (!queue->in_pass && horizon_ns < now_ns + HORIZON_NS / 2) {
		horizon_ns = now_ns + HORIZON_NS;
		/* E:horizon fence */
		a64_store_seq(&queue->horizon_ns, horizon_ns);
	}
	bits = mpsc_pop(queue, &queue->later, first);
	queue->in_pass = bits != 0;
	if (bits == 0)
		queue->complete_ns = horizon_ns;
	return bits;
}

static bool
half_is_empty(const struct mpsc_queue *queue, const struct mpsc_pass *pass)
{
	const struct record_store *store = queue->store;
	uint32_t words = (store_limit(store) + 63) / 64;
	uint32_t word;

	if (pass->word != 0)
		return false;
	for (word = 0; word < words; word++) {
		/* E:asleep fence, E:set fence */
		if (a64_load_seq(&store->top[pass->set][word]) != 0)
			return false;
	}
	return true;
}

bool
mpsc_is_empty(const struct mpsc_queue *queue)
{
	return half_is_empty(queue, &queue->near) &&
	    half_is_empty(queue, &queue->later);
}
