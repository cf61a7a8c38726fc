/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue alone: producers push, one consumer pops. Segments have 3 slots and
 * at most 2 holes are noted.
 *
 * In the end, the consumer takes what is left. What was pushed with 0 was
 * taken once; what was refused, never; one producer's indexes came in their
 * order, but after a hole; and the tail counts no further than its segment.
 */
#include "program.h"

#include <errno.h>

#define INDEXES 16u

static struct mpsc_pool pool;
static struct mpsc_queue queue[2];
static a64_t memory_bytes;
static unsigned pushed[INDEXES], popped[INDEXES];

static void
queues_open(void)
{
	unsigned i;

	pool = (struct mpsc_pool){0};
	memset(queue, 0, sizeof(queue));
	memset(pushed, 0, sizeof(pushed));
	memset(popped, 0, sizeof(popped));
	memory_bytes = 0;
	explore_check(mpsc_pool_create(&pool, &memory_bytes) == 0);
	explore_check(mpsc_pool_reserve(&pool, 1, 1));
	for (i = 0; i < 2; i++)
		mpsc_queue_create(&queue[i]);
	explore_name(&queue[0].tail, 8, "tail");
	explore_name(&queue[1].tail, 8, "tail of the second queue");
	explore_name(&pool.free, 8, "free segments");
	explore_name(&pool.carved, 4, "carved segments");
}

static int
push_to(unsigned which, uint32_t index)
{
	bool filled;
	int error = mpsc_push(&queue[which], &pool, index, &filled);

	if (error == 0)
		pushed[index]++;
	return error;
}

static void
push(uint32_t index)
{
	explore_check(push_to(0, index) == 0);
}

static void
push_or_refused(uint32_t index)
{
	int error = push_to(0, index);

	explore_check(error == 0 || error == -ESHUTDOWN || error == -ENOMEM);
}

/* Takes what lies before the end, at most max in all; returns how many. */
static size_t
pop_from(unsigned which, size_t max)
{
	uint64_t end = mpsc_end(&queue[which]);
	uint32_t out[INDEXES];
	size_t count = mpsc_pop(&queue[which], &pool, end, out, max);
	size_t i;

	explore_check(queue[which].hole_count <= MPSC_HOLES);
	for (i = 0; i < count; i++) {
		explore_check(out[i] > 0 && out[i] < INDEXES);
		popped[out[i]]++;
	}
	return count;
}

static void
queues_close(void)
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		while (pop_from(i, 2) > 0)
			continue;
		verify_segments(&pool, &queue[i]);
		/* What was refused has counted on. */
		if (queue[i].tail & UINT64_C(1) << 63)
			continue;
		explore_check(!mpsc_behind(&queue[i], mpsc_end(&queue[i])));
		explore_check((uint32_t)queue[i].tail <= MPSC_SLOTS);
	}
	for (i = 0; i < INDEXES; i++) {
		if (pushed[i] != popped[i])
			explore_fail("%u: pushed %u times, popped %u times", i,
			    pushed[i], popped[i]);
	}
	mpsc_pool_destroy(&pool);
}

/* Two producers and the consumer: holes, and the first segment of all. */
static void
push_one(void)
{
	push(1);
}

static void
push_two(void)
{
	push(2);
	push(3);
}

static void
pop_twice(void)
{
	(void)pop_from(0, 8);
	(void)pop_from(0, 8);
}

/* The segment is full but for one slot: two producers extend it, and the
 * consumer sends it back to the pool. */
static void
begin_nearly_full(void)
{
	queues_open();
	push(10);
	push(11);
}

/* As many preempted producers as holes can be noted, and one more. */
static void
begin_with_a_segment(void)
{
	queues_open();
	push(10);
	(void)pop_from(0, 1);
}

static void
push_four(void)
{
	push(4);
}

/* The first of these brings a segment, the second may be a hole in it. */
static void
push_five_and_six(void)
{
	push(5);
	push(6);
}

/* Close against push. */
static void
push_until_closed(void)
{
	push_or_refused(1);
	push_or_refused(2);
}

static void
push_three_until_closed(void)
{
	push_or_refused(3);
}

static void
close_queue(void)
{
	mpsc_close(&queue[0]);
	(void)pop_from(0, 8);
	explore_check(push_to(0, 9) == -ESHUTDOWN);
}

/* No segment is left, and the tail is full: what was counted on is taken back,
 * unless the consumer has brought one. */
static void
begin_without_segments(void)
{
	unsigned i;

	queues_open();
	for (i = 10; i < 16; i++)
		push(i);
	(void)pop_from(0, 2);
	pool.carved = pool.limit;
}

static void
end_without_segments(void)
{
	explore_check((uint32_t)queue[0].tail <= MPSC_SLOTS);
	queues_close();
}

/* Pushes these, and takes all. */
static void
push_some(uint32_t first, uint32_t last)
{
	while (first <= last)
		push(first++);
	while (pop_from(0, 8) > 0)
		continue;
}

/* The pool's stack: while one producer is about to take a segment, another
 * takes that and the next and puts the first back. */
static void
begin_with_two_free(void)
{
	queues_open();
	push_some(1, 7);
	/* The second of the three is on top, and is taken again, so that tags
	 * would repeat if taking changed them. */
	push_some(8, 10);
	pool.carved = pool.limit;
	memset(pushed, 0, sizeof(pushed));
	memset(popped, 0, sizeof(popped));
	push(13);
	push(14);
	explore_check((uint32_t)pool.free != 0);
}

static void
push_new_segment(void)
{
	push_or_refused(1);
}

static void
push_or_full(uint32_t index)
{
	int error = push_to(1, index);

	explore_check(error == 0 || error == -ENOMEM);
}

static void
take_two_and_put_one(void)
{
	uint32_t i;

	for (i = 4; i <= 7; i++)
		push_or_full(i);
	(void)pop_from(1, 8);
	for (i = 8; i <= 10; i++)
		push_or_full(i);
}

const struct program queue_programs[] = {
    {
	.name = "queue/push-push-pop",
	.begin = queues_open,
	.thread = {push_one, push_two, pop_twice},
	.end = queues_close,
    },
    {
	.name = "queue/extend-twice",
	.begin = begin_nearly_full,
	.thread = {push_one, push_two, pop_twice},
	.end = queues_close,
    },
    {
	.name = "queue/more-holes-than-noted",
	.begin = begin_with_a_segment,
	.thread = {push_one, push_four, push_five_and_six, pop_twice},
	.end = queues_close,
	.preemptions = 3,
	.schedules = 12000,
    },
    {
	.name = "queue/push-close",
	.begin = begin_nearly_full,
	.thread = {push_until_closed, push_three_until_closed, close_queue},
	.end = queues_close,
    },
    {
	.name = "queue/tail-rewind",
	.begin = begin_without_segments,
	.thread = {push_until_closed, push_three_until_closed, pop_twice},
	.end = end_without_segments,
    },
    {
	.name = "queue/segment-through-pool",
	.begin = begin_with_two_free,
	.thread = {push_new_segment, take_two_and_put_one},
	.end = queues_close,
    },
    {0},
};
