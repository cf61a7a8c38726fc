/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A closable multi-producer single-consumer queue of 32-bit indexes, in linked
 * arrays. mpsc_queue.c tells how it works.
 *
 *   mpsc_push                    any thread
 *   mpsc_close                   any thread; for good
 *   mpsc_pool_trim               any thread
 *   mpsc_end, mpsc_pop, mpsc_behind
 *                                one thread at a time, the consumer
 *
 * Order: what one thread pushes comes out in its order, but for what follows a
 * place that another thread has reserved and not yet filled.
 */
#ifndef HWT_MPSC_QUEUE_H
#define HWT_MPSC_QUEUE_H

#include <stddef.h>

#include "core/atomic.h"

#ifndef MPSC_SLOTS
#define MPSC_SLOTS 1020u
#define MPSC_HOLES 16u
#endif

struct mpsc_segment {
	uint32_t previous; /* fixed when the segment becomes the tail */
	uint32_t next; /* consumer's */
	uint32_t taken; /* consumer's: slots emptied */
	uint32_t padding;
	a32_t slot[MPSC_SLOTS]; /* 0: not filled */
};

/* Where queues get their segments from and leave them. */
struct mpsc_pool {
	aptr_t *arenas;
	a32_t *links; /* of a free or blank segment: the next one */
	/* Tag and index of the first. Blank ones take no memory. */
	_Alignas(CACHE_LINE) a64_t free;
	a64_t blank;
	_Alignas(CACHE_LINE) a32_t carved;
	a32_t limit;
	a64_t *memory_bytes;
};

struct mpsc_hole {
	uint32_t segment, slot;
};

struct mpsc_queue {
	/* Producers': closed bit, segment, next free slot of it. */
	_Alignas(CACHE_LINE) a64_t tail;
	/* Consumer's: where it reads, up to where segments are linked forward,
	 * and the places that it passed over. */
	_Alignas(CACHE_LINE) uint32_t head_segment;
	uint32_t head_slot;
	uint32_t linked;
	uint32_t hole_count;
	struct mpsc_hole hole[MPSC_HOLES];
};

int mpsc_pool_create(struct mpsc_pool *pool, a64_t *memory_bytes);
void mpsc_pool_destroy(struct mpsc_pool *pool);
/* Makes sure that so many indexes can wait in so many queues. One thread at a
 * time. */
bool mpsc_pool_reserve(
    struct mpsc_pool *pool, uint64_t indexes, uint32_t queues);
/* Gives up to so many free segments back to the system. False: there are no
 * more, or they cannot be given back. Lock-free. */
bool mpsc_pool_trim(struct mpsc_pool *pool, uint32_t segments);
void mpsc_queue_create(struct mpsc_queue *queue);

/* Lock-free. 0; -ESHUTDOWN when closed; -ENOMEM when no segment is to be had,
 * which can only happen while other threads are in the middle of a push or of
 * mpsc_pool_trim.
 * *filled: the push took the first place of another segment. */
int mpsc_push(struct mpsc_queue *queue, struct mpsc_pool *pool, uint32_t index,
    bool *filled);
void mpsc_close(struct mpsc_queue *queue);

/* Everything that was pushed before now lies before the end that this tells. */
uint64_t mpsc_end(const struct mpsc_queue *queue);
/* Takes up to max indexes that lie before end; fewer: there are no more. */
size_t mpsc_pop(struct mpsc_queue *queue, struct mpsc_pool *pool, uint64_t end,
    uint32_t *out, size_t max);
/* Whether something lies before end that was not taken. */
bool mpsc_behind(const struct mpsc_queue *queue, uint64_t end);

#endif
