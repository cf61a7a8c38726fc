/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of record indexes with deadlines, which any thread pushes and one pops;
 * not a FIFO: that would be walked to its end for the one that is due, and a
 * record that is pushed twice would need a second link, or a wait. Here a
 * second push of an index has no effect but that the earlier deadline counts.
 *
 *   mpsc_push, mpsc_is_pushed     any thread. Lock-free, take no memory, cannot
 *                                 fail
 *   mpsc_pop_due, mpsc_pop_any,   the consumer, one thread at a time
 *   mpsc_is_empty
 */
#ifndef HWT_MPSC_QUEUE_H
#define HWT_MPSC_QUEUE_H

#include "core/record.h"

/* The consumer's position in a pass through the queue. */
struct mpsc_pass {
	uint32_t slabs; /* so many were visited, or passed over; 0: no pass */
	uint64_t pages; /* of the last of them: not visited yet */
};

/* All zero, but for the store, is an empty one. */
struct mpsc_queue {
	struct record_store *store;
	APART struct mpsc_pass due, any;
};

/* The earlier a deadline, the greater its urgency. 0: nothing waits. */
static inline uint64_t
mpsc_urgency(uint64_t deadline_ns)
{
	return DEADLINE_NEVER + 1 - deadline_ns;
}

/* The caller has changed the record, and the consumer must look at it before
 * it begins the tick of deadline_ns. True: so many indexes wait that the
 * consumer should be woken. */
bool mpsc_push(struct mpsc_queue *queue, uint32_t index, uint64_t deadline_ns);

/* Fast path of mpsc_push: true when there is nothing that it would change. */
static inline bool
mpsc_is_pushed(
    const struct mpsc_queue *queue, uint32_t index, uint64_t deadline_ns)
{
	const struct record_store *store = queue->store;
	uint32_t number = index >> SLAB_BITS;
	const struct queued *page =
	    &slab_at(store, number)->queued[index / PAGE_RECORDS % SLAB_PAGES];
	uint64_t urgency = mpsc_urgency(deadline_ns);

	/* E:queue fence: the caller's operation on the word, and this. */
	if (!(a64_load_seq(&page->bits) >> index % PAGE_RECORDS & 1))
		return false;
	/* E:set fence: from below upwards. */
	return a64_load_seq(&page->urgency) >= urgency &&
	    a64_load_seq(&store->slab_urgency[number]) >= urgency;
}

/* Pops all records that wait on one page on which something is due at now_ns or
 * before, as bits, and the page's first index. 0: the pass has ended, and all
 * that is due by then and was pushed before its first call was popped. */
uint64_t mpsc_pop_due(
    struct mpsc_queue *queue, uint64_t now_ns, uint32_t *first);

/* The same from all pages. A pass of this kind can stop half way. */
uint64_t mpsc_pop_any(struct mpsc_queue *queue, uint32_t *first);

/* Whether all that was pushed was popped. May be false, too, before the pass
 * that popped the last of it has ended. */
bool mpsc_is_empty(const struct mpsc_queue *queue);

#endif
