/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue between producers and the worker.
 *
 * Linked arrays rather than linked nodes: the worker reads indexes in sequence
 * and can prefetch what they name, where a linked queue would cost it one
 * dependent cache miss for each. ConcurrencyKit's ck_ring with several
 * producers waits for the producer before it, and its ck_fifo_mpmc may report
 * empty falsely (0.7.1), so neither is used.
 *
 * HOW IT WORKS. One word, tail, holds the segment in use, the next free slot
 * and the closed bit. A producer adds one to it and so owns a slot, or finds
 * that the segment is full, or that the queue is closed. In a full segment, it
 * makes a new one the tail by a compare-and-swap; the new segment already
 * holds its index and knows its predecessor. So no producer ever waits for
 * another. The consumer follows the predecessors backwards from the tail to
 * where it has been, once for each segment, and links them forwards.
 *
 * A producer may be preempted between owning a slot and filling it. The
 * consumer notes the hole, reads on, and comes back with the next call. When
 * too many holes are open, it waits at the last one (by returning).
 *
 * CLOSE sets a bit in tail. An addition to tail comes before that, and its
 * index can be taken, or after it, and the producer is told.
 *
 * INVARIANTS
 *   1. A slot is 0 or holds an index that was not taken; in a segment in the
 *      pool, all are 0.
 *   2. A segment goes back to the pool when all its slots were taken and the
 *      consumer has left it, which it does only when it is not the tail.
 *   3. Segments: as many as full ones that wait, and two per queue, and one
 *      for each open hole and each producer that is about to extend. All but
 *      the last two kinds are reserved before a record exists that could need
 *      them, so that a push takes no lock and no memory from the system. When
 *      too many producers were preempted, it answers -ENOMEM.
 *
 * A producer that read tail and is overtaken until its segment was emptied,
 * reused and is full at the tail again may still succeed with its
 * compare-and-swap. That is as good as any: it then is the tail's successor.
 *
 * Segments in the pool are linked in a table beside them. So one that is free
 * can be given back to the system: it is blank then, and the pool's last choice
 * before one that was never used.
 *
 * COST. A push is one atomic addition and one store. A pop is one load, one
 * store, in sequence.
 *
 * EDGES
 *   E:queue    a slot's index and all that was done to its record, release in
 *              mpsc_push, acquired by mpsc_take.
 *   E:tail     previous and the first slot of a new segment, release in
 *              mpsc_extend, acquired by mpsc_end. All changes of tail are
 *              read-modify-writes, so that the release reaches the consumer
 *              through those that follow it.
 *   E:segment  an emptied segment, release in stack_push, acquired in
 *              stack_pop. As with batches in record.c, a tag guards the stack.
 *   E:arena    an arena, release in mpsc_pool_reserve, acquired by segment_at.
 *   E:limit    the number of segments, release in mpsc_pool_reserve after the
 *              arena, acquired in pool_carve.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "core/mpsc_queue.h"
#include "core/system.h"

#define CLOSED (UINT64_C(1) << 63)
#ifndef ARENA_BITS
#define ARENA_BITS 6
#define ARENAS_MAX 8192u
#endif
#define ARENA_SEGMENTS (1u << ARENA_BITS)
#define ARENA_BYTES (ARENA_SEGMENTS * sizeof(struct mpsc_segment))
#define TABLE_BYTES (ARENAS_MAX * sizeof(aptr_t))
#define LINKS_BYTES ((size_t)ARENAS_MAX * ARENA_SEGMENTS * sizeof(a32_t))
/* For holes and for producers that are about to extend. */
#define SPARE MPSC_HOLES

_Static_assert(MPSC_SLOTS != 1020u || sizeof(struct mpsc_segment) == 4096,
    "a segment is one page");

static inline uint32_t
tail_segment(uint64_t tail)
{
	return (uint32_t)((tail & ~CLOSED) >> 32);
}

/* Producers that found the segment full have counted on. */
static inline uint32_t
tail_slot(uint64_t tail)
{
	uint32_t slot = (uint32_t)tail;

	return slot < MPSC_SLOTS ? slot : MPSC_SLOTS;
}

static inline struct mpsc_segment *
segment_at(const struct mpsc_pool *pool, uint32_t segment)
{
	/* E:arena acquire */
	struct mpsc_segment *arena =
	    aptr_load_acquire(&pool->arenas[segment >> ARENA_BITS]);

	return &arena[segment & (ARENA_SEGMENTS - 1)];
}

int
mpsc_pool_create(struct mpsc_pool *pool, a64_t *memory_bytes)
{
	pool->arenas = system_map(TABLE_BYTES);
	if (pool->arenas == NULL)
		return -ENOMEM;
	pool->links = system_map(LINKS_BYTES);
	if (pool->links == NULL) {
		system_unmap(pool->arenas, TABLE_BYTES);
		return -ENOMEM;
	}
	pool->memory_bytes = memory_bytes;
	a32_store_relaxed(&pool->carved, 1); /* 0 is none */
	return 0;
}

void
mpsc_pool_destroy(struct mpsc_pool *pool)
{
	uint32_t i;

	for (i = 0; i < ARENAS_MAX; i++) {
		void *arena = aptr_load_acquire(&pool->arenas[i]);

		if (arena == NULL)
			break;
		system_unmap(arena, ARENA_BYTES);
	}
	system_unmap(pool->arenas, TABLE_BYTES);
	system_unmap(pool->links, LINKS_BYTES);
}

void
mpsc_queue_create(struct mpsc_queue *queue)
{
	/* No segment, and that one full: the first push brings one. */
	a64_store_release(&queue->tail, MPSC_SLOTS);
	queue->head_segment = 0;
	queue->head_slot = MPSC_SLOTS;
	queue->linked = 0;
	queue->hole_count = 0;
}

bool
mpsc_pool_reserve(struct mpsc_pool *pool, uint64_t indexes, uint32_t queues)
{
	uint64_t needed =
	    1 + indexes / MPSC_SLOTS + 2 * (uint64_t)queues + SPARE;
	uint32_t limit = a32_load_relaxed(&pool->limit);
	void *arena;

	while (limit < needed) {
		if (limit >= ARENAS_MAX * ARENA_SEGMENTS)
			return false;
		arena = system_map(ARENA_BYTES);
		if (arena == NULL)
			return false;
		/* E:arena release */
		aptr_store_release(&pool->arenas[limit >> ARENA_BITS], arena);
		limit += ARENA_SEGMENTS;
		/* E:limit release */
		a32_store_release(&pool->limit, limit);
	}
	return true;
}

/* A segment that was never used; 0: there is none. */
static uint32_t
pool_carve(struct mpsc_pool *pool)
{
	uint32_t at;

	do {
		at = a32_load_relaxed(&pool->carved);
		/* E:limit acquire */
		if (at >= a32_load_acquire(&pool->limit))
			return 0;
	} while (!a32_cas_acq_rel(&pool->carved, at, at + 1));
	(void)a64_add_relaxed(pool->memory_bytes, sizeof(struct mpsc_segment));
	return at;
}

/* 0: the stack is empty. */
static uint32_t
stack_pop(struct mpsc_pool *pool, a64_t *stack)
{
	uint64_t old, next;

	do {
		old = a64_load_acquire(stack);
		if ((uint32_t)old == 0)
			return 0;
		/* Maybe already another's: then the tag has moved on. */
		next = a32_load_relaxed(&pool->links[(uint32_t)old]);
		next |= old & ~(uint64_t)UINT32_MAX;
		/* E:segment acquire */
	} while (!a64_cas_acq_rel(stack, old, next));
	return (uint32_t)old;
}

static void
stack_push(struct mpsc_pool *pool, a64_t *stack, uint32_t segment)
{
	uint64_t old, tag;

	do {
		old = a64_load_relaxed(stack);
		tag = (old >> 32) + 1;
		a32_store_relaxed(&pool->links[segment], (uint32_t)old);
		/* E:segment release */
	} while (!a64_cas_acq_rel(stack, old, tag << 32 | segment));
}

static uint32_t
pool_get(struct mpsc_pool *pool)
{
	uint32_t segment = stack_pop(pool, &pool->free);

	if (segment != 0)
		return segment;
	segment = stack_pop(pool, &pool->blank);
	if (segment == 0)
		return pool_carve(pool);
	(void)a64_add_relaxed(pool->memory_bytes, sizeof(struct mpsc_segment));
	return segment;
}

static void
pool_put(struct mpsc_pool *pool, uint32_t segment)
{
	stack_push(pool, &pool->free, segment);
}

bool
mpsc_pool_trim(struct mpsc_pool *pool, uint32_t segments)
{
	uint32_t segment;

	for (; segments > 0; segments--) {
		segment = stack_pop(pool, &pool->free);
		if (segment == 0)
			return false;
		if (!system_release(segment_at(pool, segment),
			sizeof(struct mpsc_segment))) {
			pool_put(pool, segment);
			return false;
		}
		(void)a64_add_relaxed(
		    pool->memory_bytes, -(uint64_t)sizeof(struct mpsc_segment));
		stack_push(pool, &pool->blank, segment);
	}
	return true;
}

/* The segment of old is full: makes a new one the tail, with index in its
 * first slot. False: another thread has done so, or closed the queue. */
static bool
mpsc_extend(struct mpsc_queue *queue, struct mpsc_pool *pool, uint32_t segment,
    uint32_t fresh, uint32_t index)
{
	struct mpsc_segment *next = segment_at(pool, fresh);
	uint64_t tail = a64_load_acquire(&queue->tail);

	next->previous = segment;
	next->next = 0;
	next->taken = 0;
	a32_store_relaxed(&next->slot[0], index);
	while (!(tail & CLOSED) && tail_segment(tail) == segment &&
	    tail_slot(tail) == MPSC_SLOTS) {
		/* E:tail release */
		if (a64_cas_seq(&queue->tail, tail, (uint64_t)fresh << 32 | 1))
			return true;
		tail = a64_load_acquire(&queue->tail);
	}
	return false;
}

/* Takes back what producers have counted past a full segment's end, which would
 * run over in the end. */
static void
tail_rewind(struct mpsc_queue *queue, uint32_t segment)
{
	uint64_t tail = a64_load_relaxed(&queue->tail);

	if (!(tail & CLOSED) && tail_segment(tail) == segment &&
	    (uint32_t)tail > MPSC_SLOTS)
		(void)a64_cas_seq(
		    &queue->tail, tail, (uint64_t)segment << 32 | MPSC_SLOTS);
}

int
mpsc_push(struct mpsc_queue *queue, struct mpsc_pool *pool, uint32_t index,
    bool *filled)
{
	uint32_t fresh, segment, slot;
	uint64_t tail;

	*filled = false;
	for (;;) {
		tail = a64_add_seq(&queue->tail, 1);
		if (tail & CLOSED)
			return -ESHUTDOWN;
		segment = tail_segment(tail);
		slot = tail_slot(tail);
		if (slot < MPSC_SLOTS)
			break;
		fresh = pool_get(pool);
		if (fresh == 0) {
			tail_rewind(queue, segment);
			return -ENOMEM;
		}
		if (mpsc_extend(queue, pool, segment, fresh, index)) {
			*filled = segment != 0;
			return 0;
		}
		pool_put(pool, fresh);
	}
	/* E:queue release */
	a32_store_release(&segment_at(pool, segment)->slot[slot], index);
	return 0;
}

void
mpsc_close(struct mpsc_queue *queue)
{
	uint64_t tail;

	do
		tail = a64_load_relaxed(&queue->tail);
	while (!(tail & CLOSED) &&
	    !a64_cas_seq(&queue->tail, tail, tail | CLOSED));
}

uint64_t
mpsc_end(const struct mpsc_queue *queue)
{
	/* E:tail acquire */
	return a64_load_seq(&queue->tail);
}

bool
mpsc_behind(const struct mpsc_queue *queue, uint64_t end)
{
	return queue->hole_count > 0 ||
	    tail_segment(end) != queue->head_segment ||
	    tail_slot(end) > queue->head_slot;
}

/* Links segments forwards from where that was done last up to the tail. */
static void
mpsc_link(struct mpsc_queue *queue, struct mpsc_pool *pool, uint32_t segment)
{
	uint32_t last = segment;
	uint32_t previous;

	for (; segment != queue->linked; segment = previous) {
		previous = segment_at(pool, segment)->previous;
		if (previous != 0) {
			segment_at(pool, previous)->next = segment;
		} else { /* the first segment of all */
			queue->head_segment = segment;
			queue->head_slot = 0;
		}
	}
	queue->linked = last;
}

/* Empties a slot; 0: it is not filled yet. */
static uint32_t
mpsc_take(struct mpsc_queue *queue, struct mpsc_pool *pool, uint32_t segment,
    uint32_t slot)
{
	struct mpsc_segment *at = segment_at(pool, segment);
	/* E:queue acquire */
	uint32_t index = a32_load_acquire(&at->slot[slot]);

	if (index == 0)
		return 0;
	a32_store_relaxed(&at->slot[slot], 0);
	if (++at->taken == MPSC_SLOTS && segment != queue->head_segment)
		pool_put(pool, segment);
	return index;
}

/* Goes from a segment that was read to its end on to the next. */
static void
mpsc_leave(struct mpsc_queue *queue, struct mpsc_pool *pool)
{
	uint32_t segment = queue->head_segment;

	queue->head_segment = segment_at(pool, segment)->next;
	queue->head_slot = 0;
	if (segment_at(pool, segment)->taken == MPSC_SLOTS)
		pool_put(pool, segment);
}

static size_t
mpsc_pop_holes(
    struct mpsc_queue *queue, struct mpsc_pool *pool, uint32_t *out, size_t max)
{
	struct mpsc_hole *hole = queue->hole;
	uint32_t kept = 0;
	size_t count = 0;
	uint32_t i;

	for (i = 0; i < queue->hole_count; i++) {
		uint32_t index = count == max
		    ? 0
		    : mpsc_take(queue, pool, hole[i].segment, hole[i].slot);

		if (index == 0)
			hole[kept++] = hole[i];
		else
			out[count++] = index;
	}
	queue->hole_count = kept;
	return count;
}

size_t
mpsc_pop(struct mpsc_queue *queue, struct mpsc_pool *pool, uint64_t end,
    uint32_t *out, size_t max)
{
	uint32_t last = tail_segment(end);
	size_t count;

	if (!mpsc_behind(queue, end))
		return 0;
	if (last != queue->linked)
		mpsc_link(queue, pool, last);
	count = mpsc_pop_holes(queue, pool, out, max);
	while (count < max) {
		uint32_t index;

		if (queue->head_slot == MPSC_SLOTS &&
		    queue->head_segment != last)
			mpsc_leave(queue, pool);
		if (queue->head_segment == last &&
		    queue->head_slot == tail_slot(end))
			break;
		index = mpsc_take(
		    queue, pool, queue->head_segment, queue->head_slot);
		if (index != 0) {
			out[count++] = index;
		} else {
			if (queue->hole_count == MPSC_HOLES)
				break;
			queue->hole[queue->hole_count++] = (struct mpsc_hole){
			    queue->head_segment, queue->head_slot};
		}
		queue->head_slot++;
	}
	return count;
}
