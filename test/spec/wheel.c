/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wheel, from inside: which entries a walk moves, and how many. Nothing but
 * speed depends on it.
 */
#include "test/spec/support.h"

#include "core/timer.h"

SUITE(wheel);

/* Those of core/wheel.c. */
#define ARENA_CHUNKS 4096u
#define SLOT_BITS 4
#define NEAR_ROUNDS 64u
#define MOVES_MAX 256u
#define CHUNKS_PER_PAGE 32u
#define TRIM_CHUNK_PAGES 64u

/* All are in the bucket of tick 1. */
static uint32_t
place_in_round(uint64_t round)
{
	hwt_timeout timeout = schedule_task(manual.timer, idle_task,
	    (1 + round * FIXTURE_WHEEL) * FIXTURE_TICK);

	manual_step(0);
	return (uint32_t)(timeout.id & INDEX_MASK);
}

static uint32_t
entry_of(uint32_t index)
{
	return record_at(&manual.timer->store, index)->entry_at;
}

static bool
is_far(uint32_t index)
{
	uint32_t at = entry_of(index) >> SLOT_BITS;
	const struct chunk *arena =
	    aptr_load_acquire(&manual.timer->wheel.arenas[at / ARENA_CHUNKS]);

	return arena[at % ARENA_CHUNKS].which == FAR;
}

static void
walk_round(uint64_t round, uint64_t due)
{
	assert_u64(manual_tick(1 + round * FIXTURE_WHEEL), due);
}

ManualTest(wheel, what_is_64_rounds_ahead_is_far)
{
	uint32_t near, far;

	near = place_in_round(NEAR_ROUNDS - 1);
	far = place_in_round(NEAR_ROUNDS);

	cr_assert(!is_far(near) && is_far(far));
}

ManualTest(wheel, a_walk_leaves_near_entries_of_other_rounds_in_place)
{
	uint32_t index[2 * CHUNK_ENTRIES];
	uint32_t before[2 * CHUNK_ENTRIES];
	uint32_t i;

	for (i = 0; i < 2 * CHUNK_ENTRIES; i++)
		index[i] = place_in_round(1 + i);
	for (i = 0; i < 2 * CHUNK_ENTRIES; i++)
		before[i] = entry_of(index[i]);
	(void)place_in_round(0);

	walk_round(0, 1);

	for (i = 0; i < 2 * CHUNK_ENTRIES; i++)
		assert_u64(entry_of(index[i]), before[i]);
}

ManualTest(wheel, it_moves_far_entries_that_have_come_near_and_no_others)
{
	uint32_t come, stay, farther;

	come = place_in_round(NEAR_ROUNDS + NEAR_ROUNDS - 1);
	stay = place_in_round(NEAR_ROUNDS + NEAR_ROUNDS);
	farther = place_in_round(9 * NEAR_ROUNDS);
	(void)place_in_round(NEAR_ROUNDS);

	walk_round(NEAR_ROUNDS, 1);

	cr_assert(!is_far(come) && is_far(stay) && is_far(farther));
	walk_round(2 * NEAR_ROUNDS - 1, 1);
	walk_round(2 * NEAR_ROUNDS, 1);
	cr_assert(is_far(farther));
	walk_round(9 * NEAR_ROUNDS, 1);
}

/* A far list is not walked before one of its entries may be due. */
ManualTest(wheel, what_comes_near_stays_far_while_nothing_there_is_due)
{
	uint32_t far;

	far = place_in_round(NEAR_ROUNDS + 3);
	(void)place_in_round(NEAR_ROUNDS - 1);

	walk_round(NEAR_ROUNDS - 1, 1);

	cr_assert(is_far(far));
	walk_round(NEAR_ROUNDS + 3, 1);
}

ManualTest(wheel, one_walk_moves_so_many_and_no_more)
{
	uint32_t index[3 * MOVES_MAX / 2];
	uint32_t last = 3 * MOVES_MAX / 2 - 1;
	uint32_t near = 0;
	uint32_t i;

	for (i = 0; i < last; i++)
		index[i] = place_in_round(NEAR_ROUNDS + 9);
	index[last] = place_in_round(NEAR_ROUNDS + 1);
	(void)place_in_round(NEAR_ROUNDS);

	walk_round(NEAR_ROUNDS, 1);

	for (i = 0; i <= last; i++)
		near += !is_far(index[i]);
	assert_u64(near, MOVES_MAX);
	walk_round(NEAR_ROUNDS + 1, 1);
	walk_round(NEAR_ROUNDS + 9, last);
}

/* Before a sleep, the worker drops at most so many before it looks again. */
#define STALE_ENTRIES 64u

ManualTest(wheel, no_bucket_is_looked_at_whose_last_entry_was_dropped)
{
	hwt_timeout timeouts[STALE_ENTRIES];
	uint32_t i;

	for (i = 0; i < STALE_ENTRIES; i++)
		timeouts[i] =
		    schedule_task(manual.timer, idle_task, FIXTURE_TICK);
	manual_step(0);
	for (i = 0; i < STALE_ENTRIES; i++)
		assert_ok(hwt_cancel(manual.timer, timeouts[i]));
	cr_assert(manual.timer->wheel.filled.level[0][0] != 0);

	assert_u64(manual_wait(), HWT_NEVER);

	assert_u64(manual.timer->wheel.filled.level[0][0], 0);
}

/* More than two words of the bitmap of pages have bits. */
#define PAGES 130u

static uint32_t
pages_given_back(const struct wheel *wheel)
{
	uint32_t given = 0;
	uint32_t page;

	for (page = 0; page < PAGES; page++)
		given += wheel->decommitted[page / 64] >> page % 64 & 1;
	return given;
}

static uint32_t given_before, given_at_once;

/* Between two readings, the worker does one piece of work. */
static uint64_t
watching_clock(void *ctx)
{
	uint32_t given;

	(void)ctx;
	if (manual.timer != NULL) {
		given = pages_given_back(&manual.timer->wheel);
		if (given - given_before > given_at_once)
			given_at_once = given - given_before;
		given_before = given;
	}
	return manual.now_ns;
}

Test(wheel, each_page_of_free_chunks_is_given_back_64_at_a_time)
{
	const uint32_t count = PAGES * CHUNKS_PER_PAGE * CHUNK_ENTRIES;
	const struct hwt_clock clock = {.now_ns = watching_clock};
	hwt_timeout *timeouts = calloc(count, sizeof(*timeouts));
	uint32_t i;

	cr_assert_not_null(timeouts);
	manual_open(&(struct hwt_options){.clock = &clock});
	for (i = 0; i < count; i++)
		timeouts[i] =
		    schedule_task(manual.timer, idle_task, FIXTURE_TICK);
	manual_step(0);
	cr_assert(manual.timer->wheel.carved > PAGES * CHUNKS_PER_PAGE);
	for (i = 0; i < count; i++)
		assert_ok(hwt_cancel(manual.timer, timeouts[i]));
	manual_step(0);
	assert_u64(manual_wait(), HWT_NEVER);

	/* Chunk 0 is never free. */
	assert_u64(pages_given_back(&manual.timer->wheel), PAGES - 1);
	assert_u64(given_at_once, TRIM_CHUNK_PAGES);
	manual_close();
	free(timeouts);
}
