/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A multi-producer single-consumer queue of record indexes. mpsc_queue.c tells
 * how it works.
 *
 *   mpsc_push     any thread. Wait-free, takes no memory, cannot fail
 *   all others    one thread at a time, the consumer
 *
 * An index is in the queue at most once: to push it again has no effect. There
 * is no order but this: what is due before the horizon can be popped first.
 */
#ifndef HWT_MPSC_QUEUE_H
#define HWT_MPSC_QUEUE_H

#include "core/record.h"

/* Where the consumer is in its way through one half of the queue. */
struct mpsc_pass {
	enum record_set set;
	uint32_t word; /* of the table of slabs: the next one */
	uint64_t slabs; /* of the word before: still to be visited */
	uint32_t slab; /* the last of these */
	uint64_t pages; /* of that slab: still to be visited */
};

struct mpsc_queue {
	/* Deadlines before it go to the near half. The consumer's to move on.
	 * In a cache line of its own: callers read it with each push. */
	_Alignas(CACHE_LINE) a64_t horizon_ns;
	_Alignas(CACHE_LINE) struct record_store *store;
	struct mpsc_pass near, later;
	/* The horizon when the pass through the later half began, and when the
	 * last complete one did: what is left there is not due before that. */
	uint64_t pass_horizon_ns, complete_ns;
	bool in_pass;
};

void mpsc_create(
    struct mpsc_queue *queue, struct record_store *store, uint64_t now_ns);

/* The caller has changed the record, and needs the consumer to look at it until
 * deadline_ns. True: so many indexes wait that the consumer should not sleep
 * any longer. */
bool mpsc_push(struct mpsc_queue *queue, uint32_t index, uint64_t deadline_ns);

/* Fast path of mpsc_push: true when all that it would set is set. */
static inline bool
mpsc_is_pushed(
    const struct mpsc_queue *queue, uint32_t index, uint64_t deadline_ns)
{
	const struct record_store *store = queue->store;
	uint32_t number = index >> SLAB_BITS;
	uint32_t page = index / PAGE_RECORDS % SLAB_PAGES;
	const struct slab *slab = slab_at(store, number);
	/* No branch on what is later: it would be mispredicted often. */
	uint64_t horizon_ns = a64_load_relaxed(&queue->horizon_ns);
	uint32_t set = SET_NEAR + (deadline_ns >= horizon_ns);

	/* E:queue fence: the caller's operation on the word, and this. */
	if (!(a64_load_seq(&slab->bits[set][page]) >> index % PAGE_RECORDS & 1))
		return false;
	/* E:set fence: from below upwards. */
	if (!(a64_load_seq(&slab->summary[set]) >> page & 1) ||
	    !(a64_load_seq(&store->top[set][number / 64]) >> number % 64 & 1))
		return false;
	/* E:horizon fence. It has moved on: maybe this is near now. */
	return a64_load_seq(&queue->horizon_ns) == horizon_ns;
}

/* Pops what was pushed for a deadline before the horizon, some records of one
 * page with each call: as bits, with the page's first index. 0: there is no
 * more of what was pushed before the first of these calls. */
uint64_t mpsc_pop_near(struct mpsc_queue *queue, uint32_t *first);

/* The same with all else. When it returns 0, nothing that is left is due before
 * mpsc_complete. */
uint64_t mpsc_pop_later(
    struct mpsc_queue *queue, uint64_t now_ns, uint32_t *first);

/* All that is due before this was popped, or is in the near half. */
static inline uint64_t
mpsc_complete(const struct mpsc_queue *queue)
{
	return queue->complete_ns;
}

/* Whether something was pushed and not popped. */
bool mpsc_is_empty(const struct mpsc_queue *queue);
/* The same for the later half. */
bool mpsc_later_is_empty(const struct mpsc_queue *queue);

#endif
