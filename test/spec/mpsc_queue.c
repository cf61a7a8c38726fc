/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue between producers and the worker, from inside: this file has a
 * copy of it of its own. What preempted producers leave behind is made by hand,
 * since no test could preempt them at the right instruction. The last tests
 * take all segments away from a timer and see that nothing is lost.
 */
#include "test/spec/support.h"

#include <stdlib.h>

#include "../../mpsc_queue.c"
#include "../../core/system.c"
#include "core/timer.h"

SUITE(mpsc_queue);

/* A pool and a queue on it, and what was popped last. */
struct tested {
	struct mpsc_pool pool;
	struct mpsc_queue queue;
	a64_t memory_bytes;
	uint32_t out[64 * MPSC_SLOTS];
};

static struct tested tested;

static void
tested_open(void)
{
	assert_rc(mpsc_pool_create(&tested.pool, &tested.memory_bytes), 0);
	cr_assert(mpsc_pool_reserve(&tested.pool, 1, 1));
	mpsc_queue_create(&tested.queue);
}

static void
tested_close(void)
{
	mpsc_pool_destroy(&tested.pool);
}

static int
push(uint32_t index)
{
	bool filled;

	return mpsc_push(&tested.queue, &tested.pool, index, &filled);
}

/* Pushes count indexes from first on. */
static void
push_many(uint32_t first, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		assert_rc(push(first + i), 0);
}

static size_t
pop(size_t max)
{
	return mpsc_pop(&tested.queue, &tested.pool, mpsc_end(&tested.queue),
	    tested.out, max);
}

/* That the next count are first and those that follow it. */
static void
assert_pops(uint32_t first, uint32_t count)
{
	uint32_t i;

	assert_u64(pop(count), count);
	for (i = 0; i < count; i++)
		assert_u64(tested.out[i], first + i);
}

static bool
is_empty(void)
{
	return !mpsc_behind(&tested.queue, mpsc_end(&tested.queue)) &&
	    pop(1) == 0;
}

/* A producer's first half, and, with what it returned, its second. */
static uint64_t
reserve(void)
{
	uint64_t tail = a64_add_seq(&tested.queue.tail, 1);

	cr_assert((uint32_t)tail < MPSC_SLOTS);
	return tail;
}

static void
fill(uint64_t tail, uint32_t index)
{
	a32_store_release(&segment_at(&tested.pool, tail_segment(tail))
			       ->slot[tail_slot(tail)],
	    index);
}

/* Segments that a queue could still get. */
static uint32_t
count_segments(void)
{
	uint32_t segments[1024];
	uint32_t count = 0;
	uint32_t i;

	while ((segments[count] = pool_get(&tested.pool)) != 0)
		count++;
	for (i = 0; i < count; i++)
		pool_put(&tested.pool, segments[i]);
	return count;
}

Test(mpsc_queue, a_new_one_is_empty)
{
	tested_open();

	cr_assert(is_empty());

	assert_u64(tested.memory_bytes, 0);
	tested_close();
}

Test(mpsc_queue, what_one_thread_pushed_comes_out_in_its_order)
{
	uint32_t turn;

	tested_open();
	for (turn = 1; turn <= 3 * MPSC_SLOTS; turn++) {
		push_many(7 * turn, 7);
		assert_pops(7 * turn, 7);
		cr_assert(is_empty());
	}
	tested_close();
}

Test(mpsc_queue, it_grows_over_many_segments_and_gives_them_back)
{
	uint32_t before;

	tested_open();
	before = count_segments();
	push_many(1, 20 * MPSC_SLOTS + 5);
	assert_u64(count_segments(), before - 21);

	/* In two halves: links are made up to the tail of the first. */
	assert_pops(1, 7 * MPSC_SLOTS + 3);
	push_many(20 * MPSC_SLOTS + 6, 2 * MPSC_SLOTS);
	assert_pops(7 * MPSC_SLOTS + 4, 15 * MPSC_SLOTS + 2);

	cr_assert(is_empty());
	assert_u64(count_segments(), before - 1);
	tested_close();
}

/* Some of what 20 of them took, and then the rest. */
Test(mpsc_queue, what_its_pool_gives_back_serves_again)
{
	uint64_t before;
	unsigned turn;

	tested_open();
	for (turn = 0; turn < 3; turn++) {
		push_many(1, 20 * MPSC_SLOTS);
		assert_pops(1, 20 * MPSC_SLOTS);
		before = tested.memory_bytes;

		cr_assert(mpsc_pool_trim(&tested.pool, 15));
		assert_u64(tested.memory_bytes,
		    before - 15 * sizeof(struct mpsc_segment));
		cr_assert(!mpsc_pool_trim(&tested.pool, 15));
		assert_u64(tested.memory_bytes, sizeof(struct mpsc_segment));
	}
	tested_close();
}

Test(mpsc_queue, it_tells_when_it_takes_another_segment)
{
	uint32_t i;
	bool filled;

	/* The first of all is none. */
	tested_open();
	for (i = 0; i < 3 * MPSC_SLOTS; i++) {
		assert_rc(
		    mpsc_push(&tested.queue, &tested.pool, 1, &filled), 0);
		cr_assert(filled == (i > 0 && i % MPSC_SLOTS == 0));
	}
	tested_close();
}

Test(mpsc_queue, what_comes_after_the_end_is_left)
{
	uint64_t end;

	tested_open();
	push_many(1, MPSC_SLOTS - 10);
	end = mpsc_end(&tested.queue);
	push_many(MPSC_SLOTS - 9, 30);

	assert_u64(mpsc_pop(&tested.queue, &tested.pool, end, tested.out,
		       2 * MPSC_SLOTS),
	    MPSC_SLOTS - 10);

	cr_assert(!mpsc_behind(&tested.queue, end));
	assert_pops(MPSC_SLOTS - 9, 30);
	tested_close();
}

Test(mpsc_queue, a_place_that_is_not_filled_is_passed_over_and_comes_later)
{
	uint64_t first;
	uint64_t second;

	tested_open();
	push_many(1, 2);
	first = reserve();
	push_many(3, 2);
	second = reserve();
	assert_pops(1, 4);
	assert_u64(pop(10), 0);
	cr_assert(mpsc_behind(&tested.queue, mpsc_end(&tested.queue)));

	fill(second, 5);
	assert_pops(5, 1);
	fill(first, 6);
	push_many(7, 1);
	assert_pops(6, 2);

	cr_assert(is_empty());
	tested_close();
}

Test(mpsc_queue, a_segment_with_an_open_place_is_kept_until_that_is_filled)
{
	uint32_t before;
	uint64_t hole;

	tested_open();
	before = count_segments();
	push_many(1, 1);
	hole = reserve();
	push_many(2, 3 * MPSC_SLOTS - 2);
	assert_pops(1, 3 * MPSC_SLOTS - 1);
	assert_u64(count_segments(), before - 2);

	fill(hole, 77);
	assert_pops(77, 1);

	assert_u64(count_segments(), before - 1);
	tested_close();
}

Test(mpsc_queue, at_one_open_place_too_many_it_waits)
{
	uint64_t holes[MPSC_HOLES + 1];
	uint32_t i;

	tested_open();
	push_many(1, 1);
	for (i = 0; i <= MPSC_HOLES; i++)
		holes[i] = reserve();
	push_many(2, 1);
	assert_pops(1, 1);
	assert_u64(pop(10), 0);

	/* One filled makes room for the last, and what lies behind comes. */
	fill(holes[3], 5);
	assert_u64(pop(10), 2);
	assert_u64(tested.out[0], 5);
	assert_u64(tested.out[1], 2);
	for (i = 0; i <= MPSC_HOLES; i++)
		fill(holes[i], i == 3 ? 0 : 100 + i);
	assert_u64(pop(100), MPSC_HOLES);

	cr_assert(is_empty());
	tested_close();
}

Test(mpsc_queue, when_closed_it_takes_nothing_and_gives_what_it_has)
{
	uint64_t hole;

	tested_open();
	push_many(1, 5);
	hole = reserve();
	mpsc_close(&tested.queue);
	mpsc_close(&tested.queue);

	assert_rc(push(9), -ESHUTDOWN);
	assert_rc(push(9), -ESHUTDOWN);

	assert_pops(1, 5);
	fill(hole, 6);
	assert_pops(6, 1);
	tested_close();
}

Test(mpsc_queue, a_full_segment_does_not_open_a_closed_one)
{
	tested_open();
	push_many(1, MPSC_SLOTS);
	mpsc_close(&tested.queue);

	assert_rc(push(9), -ESHUTDOWN);

	assert_pops(1, MPSC_SLOTS);
	tested_close();
}

Test(mpsc_queue, one_who_comes_second_with_another_segment_is_told)
{
	uint64_t full;
	uint32_t first;
	uint32_t second;

	tested_open();
	push_many(1, MPSC_SLOTS);
	full = a64_load_relaxed(&tested.queue.tail);
	first = pool_get(&tested.pool);
	second = pool_get(&tested.pool);
	cr_assert(mpsc_extend(&tested.queue, &tested.pool, tail_segment(full),
	    first, MPSC_SLOTS + 1));
	cr_assert(!mpsc_extend(
	    &tested.queue, &tested.pool, tail_segment(full), second, 9));
	push_many(MPSC_SLOTS + 2, MPSC_SLOTS - 1);

	/* Also one who comes when it was closed. */
	mpsc_close(&tested.queue);
	cr_assert(!mpsc_extend(&tested.queue, &tested.pool, first, second, 9));

	assert_pops(1, 2 * MPSC_SLOTS);
	cr_assert(is_empty());
	tested_close();
}

Test(mpsc_queue, without_a_segment_it_is_enomem_until_there_is_one)
{
	uint32_t count;
	uint32_t i;

	/* One is taken by nobody. */
	tested_open();
	count = count_segments();
	push_many(1, count * MPSC_SLOTS);
	for (i = 0; i < 1000; i++)
		assert_rc(push(9), -ENOMEM);
	assert_u64(tail_slot(a64_load_relaxed(&tested.queue.tail)), MPSC_SLOTS);
	/* Refusals do not add up in the word. */
	assert_u64((uint32_t)a64_load_relaxed(&tested.queue.tail), MPSC_SLOTS);

	assert_pops(1, MPSC_SLOTS);
	assert_rc(push(count * MPSC_SLOTS + 1), -ENOMEM);
	/* The first segment is left when the second is entered. */
	assert_pops(MPSC_SLOTS + 1, 1);
	assert_rc(push(count * MPSC_SLOTS + 1), 0);

	assert_pops(MPSC_SLOTS + 2, (count - 1) * MPSC_SLOTS);
	cr_assert(is_empty());
	tested_close();
}

Test(mpsc_queue, a_producer_that_rewinds_late_leaves_free_places_alone)
{
	uint64_t tail;

	tested_open();
	push_many(1, 5);
	tail = a64_load_relaxed(&tested.queue.tail);

	/* It found this segment full in an earlier life of it. */
	tail_rewind(&tested.queue, tail_segment(tail));

	push_many(6, 5);
	assert_pops(1, 10);
	cr_assert(is_empty());
	tested_close();
}

Test(mpsc_queue, a_producer_that_rewinds_late_does_not_open_a_closed_one)
{
	uint64_t tail;

	tested_open();
	push_many(1, MPSC_SLOTS);
	tail = a64_add_seq(&tested.queue.tail, 1);
	mpsc_close(&tested.queue);

	tail_rewind(&tested.queue, tail_segment(tail));

	assert_rc(push(9), -ESHUTDOWN);
	assert_pops(1, MPSC_SLOTS);
	cr_assert(is_empty());
	tested_close();
}

/* What others have counted past the end of the next segment is theirs. */
Test(mpsc_queue, a_producer_that_rewinds_late_leaves_the_next_segment_alone)
{
	uint64_t first;

	tested_open();
	push_many(1, MPSC_SLOTS);
	first = a64_load_relaxed(&tested.queue.tail);
	push_many(MPSC_SLOTS + 1, MPSC_SLOTS);
	(void)a64_add_seq(&tested.queue.tail, 1);

	tail_rewind(&tested.queue, tail_segment(first));

	assert_rc(push(2 * MPSC_SLOTS + 1), 0);
	assert_pops(1, 2 * MPSC_SLOTS + 1);
	cr_assert(is_empty());
	tested_close();
}

/* The segment that it found full is the tail again, or another full one is. */
Test(mpsc_queue, one_who_comes_late_with_another_segment_is_told)
{
	uint32_t fresh;
	uint64_t first;

	tested_open();
	push_many(1, 5);
	first = a64_load_relaxed(&tested.queue.tail);
	fresh = pool_get(&tested.pool);
	cr_assert(!mpsc_extend(
	    &tested.queue, &tested.pool, tail_segment(first), fresh, 9));

	push_many(6, 2 * MPSC_SLOTS - 5);
	cr_assert(!mpsc_extend(
	    &tested.queue, &tested.pool, tail_segment(first), fresh, 9));

	assert_pops(1, 2 * MPSC_SLOTS);
	cr_assert(is_empty());
	tested_close();
}

Test(mpsc_queue, no_more_is_taken_from_open_places_than_is_asked_for)
{
	uint64_t holes[3];
	uint32_t i;

	tested_open();
	push_many(1, 1);
	for (i = 0; i < 3; i++)
		holes[i] = reserve();
	assert_pops(1, 1);
	assert_u64(pop(1), 0);
	for (i = 0; i < 3; i++)
		fill(holes[i], 2 + i);

	for (i = 0; i < 3; i++)
		assert_pops(2 + i, 1);

	cr_assert(is_empty());
	tested_close();
}

Test(mpsc_queue, two_of_them_share_a_pool)
{
	static struct mpsc_queue other;
	uint32_t out[2];
	uint32_t turn;
	bool filled;

	tested_open();
	mpsc_queue_create(&other);
	for (turn = 1; turn <= 10 * MPSC_SLOTS; turn++) {
		push_many(turn, 1);
		assert_rc(
		    mpsc_push(&other, &tested.pool, turn + 1, &filled), 0);
		assert_pops(turn, 1);
		assert_u64(
		    mpsc_pop(&other, &tested.pool, mpsc_end(&other), out, 2),
		    1);
		assert_u64(out[0], turn + 1);
	}

	/* Each has one and takes another before it leaves that. */
	cr_assert(tested.memory_bytes <= 4 * sizeof(struct mpsc_segment));
	tested_close();
}

/* Producers and the consumer at once; see in_parallel. */
#define PRODUCERS 3
#define PRODUCED 300000

static void
produce(uint32_t producer)
{
	uint32_t i;

	for (i = 1; i <= PRODUCED; i++)
		if (push(producer << 24 | i) != 0)
			abort();
}

/* All come, each producer's once: the sum of their numbers, and of these
 * squared, tells. */
static void
consume(uint64_t *sums)
{
	uint32_t left = PRODUCERS * PRODUCED;
	size_t count;
	size_t i;

	while (left > 0) {
		count = pop(64);
		for (i = 0; i < count; i++) {
			uint64_t number = tested.out[i] & 0xffffff;

			sums[tested.out[i] >> 24] += number + number * number;
		}
		left -= (uint32_t)count;
	}
}

static void
produce_or_consume(unsigned index, void *arg)
{
	if (index < PRODUCERS)
		produce(index);
	else
		consume(arg);
}

Test(mpsc_queue, what_several_threads_push_comes_out_once_each)
{
	const uint64_t n = PRODUCED;
	uint64_t sums[PRODUCERS] = {0};
	uint32_t before;
	unsigned index;

	tested_open();
	cr_assert(mpsc_pool_reserve(&tested.pool, PRODUCERS * PRODUCED, 1));

	before = count_segments();

	in_parallel(PRODUCERS + 1, produce_or_consume, sums);

	/* Those that came second with another segment have given it back. */
	assert_u64(count_segments(), before - 1);
	for (index = 0; index < PRODUCERS; index++)
		assert_u64(sums[index],
		    n * (n + 1) / 2 + n * (n + 1) * (2 * n + 1) / 6);
	cr_assert(is_empty());
	tested_close();
}

/* A timer to which no segment is left: what it cannot queue must find another
 * way to the worker. */

static struct fixture manual;

static void
open_without_segments(void)
{
	static struct mpsc_queue hoard;
	hwt_timeout timeout;
	bool filled;

	fixture_open(&manual, NULL);
	/* Records and segments come together. */
	assert_rc(hwt_new_timeout(
		      manual.timer, &timeout, forbidden_task, NULL, HWT_MS(1)),
	    0);
	assert_rc(hwt_cancel(manual.timer, timeout), 0);
	mpsc_queue_create(&hoard);
	while (mpsc_push(&hoard, &manual.timer->pool, 1, &filled) == 0)
		continue;
}

static uint32_t
overflow_top(void)
{
	return (uint32_t)a64_load_seq(&manual.timer->overflow);
}

/* More than the one segment that the queue has. */
#define OVERFLOWING (2 * MPSC_SLOTS)

static hwt_timeout overflowing[OVERFLOWING];

static void
schedule_overflowing(uint64_t delay_ns)
{
	unsigned index;

	for (index = 0; index < OVERFLOWING; index++)
		assert_rc(hwt_new_timeout(manual.timer, &overflowing[index],
			      idle_task, NULL, delay_ns),
		    0);
	cr_assert(overflow_top() != 0);
}

Test(mpsc_queue, a_timer_without_segments_still_starts_all_on_their_tick)
{
	unsigned turn;

	open_without_segments();
	for (turn = 1; turn <= 3; turn++) {
		schedule_overflowing(HWT_MS(2));
		assert_u64(fixture_step(&manual, HWT_MS(1)), 0);
		assert_u64(overflow_top(), 0);
		assert_u64(fixture_step(&manual, HWT_MS(1)), OVERFLOWING);
	}
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	fixture_close(&manual);
}

Test(mpsc_queue, a_timer_without_segments_cancels_and_moves_as_ever)
{
	unsigned index;

	open_without_segments();
	schedule_overflowing(HWT_MS(9));
	fixture_step(&manual, HWT_MS(1));
	for (index = 0; index < OVERFLOWING; index += 2) {
		assert_rc(hwt_cancel(manual.timer, overflowing[index]), 0);
		assert_rc(hwt_reschedule(
			      manual.timer, overflowing[index + 1], HWT_MS(2)),
		    0);
	}
	cr_assert(overflow_top() != 0);

	assert_u64(fixture_wait(&manual), HWT_MS(2));
	assert_u64(fixture_step(&manual, HWT_MS(2)), OVERFLOWING / 2);

	assert_u64(fixture_step(&manual, HWT_MS(20)), 0);
	fixture_close(&manual);
}

Test(mpsc_queue, what_a_timer_without_segments_accepted_stop_gives_back)
{
	struct hwt_unprocessed list;

	open_without_segments();
	schedule_overflowing(HWT_MS(9));

	assert_rc(hwt_stop(manual.timer, &list), 0);

	assert_u64(list.count, OVERFLOWING);
	assert_rc(hwt_new_timeout(manual.timer, NULL, forbidden_task, NULL, 0),
	    -ESHUTDOWN);
	assert_rc(hwt_destroy(manual.timer), 0);
}

Test(mpsc_queue, one_who_sleeps_without_segments_is_called)
{
	open_without_segments();
	schedule_overflowing(HWT_MS(9));
	assert_u64(fixture_wait(&manual), HWT_MS(9));

	/* Both queue and overflow: the queue's segment is used up. */
	schedule_overflowing(HWT_MS(3));

	assert_u64(manual.wakes, 1);
	assert_u64(fixture_wait(&manual), HWT_MS(3));
	fixture_close(&manual);
}
