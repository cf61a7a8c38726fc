/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues, their segments, and the overflow stack. See checker.h and
 * ../../mpsc_queue.c.
 *
 * A segment is in one place: in a queue, left by the consumer with holes in
 * it, or in the pool.
 */
#include "test/random/checker.h"

#define TAIL_CLOSED (UINT64_C(1) << 63)
#define ARENA_SEGMENTS 64u

/* One queue, as its tail was read. */
struct view {
	const struct mpsc_queue *queue;
	uint32_t tail_segment, tail_slot;
};

static const struct mpsc_segment *
segment_of(const struct checker *checker, uint32_t segment)
{
	const struct mpsc_segment *arena = aptr_load_acquire(
	    &checker->timer->pool.arenas[segment / ARENA_SEGMENTS]);

	return &arena[segment % ARENA_SEGMENTS];
}

static bool
segment_exists(const struct checker *checker, uint32_t segment)
{
	return segment != 0 &&
	    segment < a32_load_acquire(&checker->timer->pool.carved);
}

static bool
note_entry(struct checker *checker, uint32_t index)
{
	must(checker_knows(checker, index), index,
	    "queue: an entry names a record that exists");
	must(checker->queued.times[index]++ == 0, index,
	    "queue: a record has one entry");
	return true;
}

/* How many of the slots from..to-1 are filled. */
static uint32_t
filled_slots(const struct mpsc_segment *at, uint32_t from, uint32_t to)
{
	/* Nobody writes meanwhile. */
	const void *plain = at->slot;
	const uint32_t *slots = plain;
	uint32_t filled = 0;

	for (; from < to; from++)
		filled += slots[from] != 0;
	return filled;
}

/* All slots of a segment of the queue: what the consumer has read is 0, but
 * for holes, and so is what no producer has reached. */
static bool
check_slots(struct checker *checker, const struct view *view, uint32_t segment,
    uint32_t from, uint32_t to)
{
	const struct mpsc_segment *at = segment_of(checker, segment);
	uint32_t holes = 0;
	uint32_t slot, i;

	for (i = 0; i < view->queue->hole_count; i++) {
		const struct mpsc_hole *hole = &view->queue->hole[i];

		if (hole->segment != segment)
			continue;
		must(hole->slot < from, 0, "queue: a hole was passed over");
		holes++;
		if (!note_entry(
			checker, a32_load_acquire(&at->slot[hole->slot])))
			return false;
	}
	must(filled_slots(at, 0, from) == holes, 0,
	    "queue: what was taken is empty");
	must(filled_slots(at, to, MPSC_SLOTS) == 0, 0,
	    "queue: what nobody has pushed to is empty");
	must(at->taken == from - holes, 0,
	    "queue: taken counts the emptied slots");
	for (slot = from; slot < to; slot++) {
		if (!note_entry(checker, a32_load_acquire(&at->slot[slot])))
			return false;
	}
	return true;
}

static bool
note_segment(struct checker *checker, uint32_t segment)
{
	must(segment_exists(checker, segment), 0,
	    "queue: links lead to segments");
	must(checker->segments.times[segment]++ == 0, 0,
	    "queue: a segment is in one place");
	return true;
}

static bool
check_segment(
    struct checker *checker, const struct view *view, uint32_t segment)
{
	uint32_t from = 0;
	uint32_t to = MPSC_SLOTS;

	if (!note_segment(checker, segment))
		return false;
	if (segment == view->queue->head_segment)
		from = view->queue->head_slot;
	if (segment == view->tail_segment)
		to = view->tail_slot;
	must(from <= to, 0, "queue: the head is not past the tail");
	return check_slots(checker, view, segment, from, to);
}

/* From the tail back to the last segment that is linked forwards, and from the
 * head forwards to that one. */
static bool
check_chain(struct checker *checker, const struct view *view)
{
	const struct mpsc_queue *queue = view->queue;
	uint32_t segment = view->tail_segment;

	while (segment != queue->linked) {
		if (!check_segment(checker, view, segment))
			return false;
		segment = segment_of(checker, segment)->previous;
	}
	if (queue->linked == 0)
		return true;
	segment = queue->head_segment;
	while (segment != queue->linked) {
		if (!check_segment(checker, view, segment))
			return false;
		segment = segment_of(checker, segment)->next;
	}
	return check_segment(checker, view, segment);
}

/* Segments that the consumer has left, but for a hole. */
static bool
check_holes(struct checker *checker, const struct view *view)
{
	uint32_t i;

	must(view->queue->hole_count <= MPSC_HOLES, 0, "queue: so many holes");
	for (i = 0; i < view->queue->hole_count; i++) {
		uint32_t segment = view->queue->hole[i].segment;

		must(segment_exists(checker, segment), 0,
		    "queue: a hole is in a segment");
		if (checker->segments.times[segment] != 0)
			continue;
		if (!note_segment(checker, segment) ||
		    !check_slots(
			checker, view, segment, MPSC_SLOTS, MPSC_SLOTS))
			return false;
	}
	return true;
}

static bool
check_queue(struct checker *checker, const struct mpsc_queue *queue)
{
	uint64_t tail = a64_load_acquire(&queue->tail);
	struct view view = {.queue = queue,
	    .tail_segment = (uint32_t)((tail & ~TAIL_CLOSED) >> 32),
	    .tail_slot = (uint32_t)tail};

	/* Producers that were told so have counted on. */
	must(!(tail & TAIL_CLOSED) == !checker_stopping(checker), 0,
	    "queue: closed if and only if the timer is stopping");
	must(view.tail_slot <= MPSC_SLOTS || (tail & TAIL_CLOSED), 0,
	    "queue: nobody is in the middle of a push");
	if (view.tail_slot > MPSC_SLOTS)
		view.tail_slot = MPSC_SLOTS;
	if (view.tail_segment == 0) {
		must(queue->head_segment == 0 && queue->linked == 0, 0,
		    "queue: no segment before the first push");
		return true;
	}
	return check_chain(checker, &view) && check_holes(checker, &view);
}

static bool
check_pooled(struct checker *checker, uint32_t segment)
{
	must(filled_slots(segment_of(checker, segment), 0, MPSC_SLOTS) == 0, 0,
	    "queue: a segment in the pool is empty");
	return true;
}

static bool
check_stack(struct checker *checker, const a64_t *stack)
{
	const struct mpsc_pool *pool = &checker->timer->pool;
	uint32_t segment = (uint32_t)a64_load_acquire(stack);

	for (; segment != 0;
	     segment = a32_load_acquire(&pool->links[segment])) {
		if (!note_segment(checker, segment) ||
		    !check_pooled(checker, segment))
			return false;
	}
	return true;
}

static bool
check_pool(struct checker *checker)
{
	const struct mpsc_pool *pool = &checker->timer->pool;
	uint32_t carved = a32_load_acquire(&pool->carved);
	uint32_t limit = a32_load_acquire(&pool->limit);
	uint32_t segment;

	must(carved == 1 || carved <= limit, 0, "queue: carved <= limit");
	if (!check_stack(checker, &pool->free) ||
	    !check_stack(checker, &pool->blank))
		return false;
	for (segment = 1; segment < carved; segment++)
		must(checker->segments.times[segment] == 1, 0,
		    "queue: a segment is somewhere");
	return true;
}

static bool
check_overflow(struct checker *checker)
{
	const struct hwt *timer = checker->timer;
	uint64_t head = a64_load_acquire(&timer->overflow);
	uint32_t index = (uint32_t)head;

	must(!(head & OVERFLOW_CLOSED) == !checker_stopping(checker), 0,
	    "queue: the overflow is closed when the timer is stopping");
	while (index != 0) {
		if (!note_entry(checker, index))
			return false;
		index = a32_load_acquire(
		    &record_at(&timer->store, index)->overflow_link);
	}
	return true;
}

bool
check_queues(struct checker *checker)
{
	uint32_t i;

	for (i = 0; i < checker->timer->stripe_count; i++) {
		if (!check_queue(checker, &checker->timer->queues[i]))
			return false;
	}
	return check_pool(checker) && check_overflow(checker);
}
