/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A multi-producer single-consumer queue of record indexes. mpsc_queue.c
 * describes how it works.
 *
 *   mpsc_push     any thread. Wait-free, takes no memory, cannot fail
 *   all others    the consumer, one thread at a time
 *
 * An index is in the queue at most once: to push it again has no effect. The
 * only order: what is due before the horizon can be popped first.
 */
#ifndef HWT_MPSC_QUEUE_H
#define HWT_MPSC_QUEUE_H

#include "core/record.h"

/* The consumer's position in one half of the queue. */
struct mpsc_pass {
	enum record_set set;
	uint32_t word; /* the next one of the top table */
	uint64_t slabs; /* bits of the last top word not visited yet */
	uint32_t slab; /* the one that was visited last */
	uint64_t pages; /* of that slab: not visited yet */
};

struct mpsc_queue {
	/* Deadlines before it go to the near half. The consumer moves it on.
	 * In a cache line of its own: callers read it with each push. */
	_Alignas(CACHE_LINE) a64_t horizon_ns;
	_Alignas(CACHE_LINE) struct record_store *store;
	struct mpsc_pass near, later;
	/* The horizon when the last complete pass through the later half began:
	 * what is left there is not due before. */
	uint64_t complete_ns;
	bool in_pass; /* through the later half; the horizon does not move */
};

void mpsc_create(
    struct mpsc_queue *queue, struct record_store *store, uint64_t now_ns);

/* The caller has changed the record, and the consumer must look at it before
 * deadline_ns. True: so many indexes wait that the consumer should be woken. */
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
	/* Not a branch: it would often be mispredicted. */
	uint64_t horizon_ns = a64_load_relaxed(&queue->horizon_ns);
	uint32_t set = SET_NEAR + (deadline_ns >= horizon_ns);

	/* E:queue fence: the caller's operation on the word, and this. */
	if (!(a64_load_seq(&slab->bits[set][page]) >> index % PAGE_RECORDS & 1))
		return false;
	/* E:set fence: from below upwards. */
	if (!(a64_load_seq(&slab->summary[set]) >> page & 1) ||
	    !(a64_load_seq(&store->top[set][number / 64]) >> number % 64 & 1))
		return false;
	/* E:horizon fence. If it has moved on, this may be near now. */
	return a64_load_seq(&queue->horizon_ns) == horizon_ns;
}

/* Pops from the near half: records of one page, as bits, and the page's first
 * index. 0: the pass has ended, and all that was pushed before its first call
 * was popped. */
uint64_t mpsc_pop_near(struct mpsc_queue *queue, uint32_t *first);

/* The same from the later half. When it returns 0, nothing in it is due before
 * mpsc_complete. */
uint64_t mpsc_pop_later(
    struct mpsc_queue *queue, uint64_t now_ns, uint32_t *first);

/* What is due before this time was popped, or is in the near half. */
static inline uint64_t
mpsc_complete(const struct mpsc_queue *queue)
{
	return queue->complete_ns;
}

/* Whether something was pushed and not popped. */
bool mpsc_is_empty(const struct mpsc_queue *queue);

#endif
