/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounds: delays of any length, in any order of insertion. All timeouts of a
 * test meet in one bucket, and each must leave it in its own round.
 */
#include "test/spec/support_promises.h"

#include <stdlib.h>

SUITE(rounds);

#define TURN (FIXTURE_WHEEL * FIXTURE_TICK)

Test(rounds, a_delay_of_whole_turns_is_kept_from_every_bucket)
{
	struct fixture fixture = {0};
	uint64_t bucket;
	uint64_t turns;
	uint64_t tick = 0;

	fixture_open(&fixture, NULL);
	for (bucket = 0; bucket < FIXTURE_WHEEL; bucket++) {
		for (turns = 1; turns <= 5; turns++) {
			struct probe probe = {.fixture = &fixture};

			probe_schedule(&probe, turns * TURN);
			tick += turns * FIXTURE_WHEEL;
			assert_u64(fixture_tick(&fixture, tick - 1), 0);
			assert_u64(fixture_tick(&fixture, tick), 1);
		}
		fixture_tick(&fixture, ++tick);
	}

	fixture_close(&fixture);
}

Test(rounds, a_delay_of_whole_turns_is_kept_when_every_tick_is_turned)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};
	uint64_t tick;

	fixture_open(&fixture, NULL);
	probe_schedule(&probe, 4 * TURN);

	for (tick = 1; tick < 4 * FIXTURE_WHEEL; tick++)
		assert_u64(fixture_tick(&fixture, tick), 0);
	assert_u64(fixture_tick(&fixture, tick), 1);

	fixture_close(&fixture);
}

Test(rounds, one_nanosecond_more_than_a_turn_waits_one_tick_more)
{
	struct fixture fixture = {0};
	struct probe less = {.fixture = &fixture};
	struct probe equal = {.fixture = &fixture};
	struct probe more = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	probe_schedule(&more, TURN + 1);
	probe_schedule(&equal, TURN);
	probe_schedule(&less, TURN - FIXTURE_TICK);

	assert_u64(fixture_tick(&fixture, FIXTURE_WHEEL - 1), 1);
	assert_u64(less.runs, 1);
	assert_u64(fixture_tick(&fixture, FIXTURE_WHEEL), 1);
	assert_u64(equal.runs, 1);
	assert_u64(fixture_tick(&fixture, FIXTURE_WHEEL + 1), 1);
	assert_u64(more.runs, 1);
	fixture_close(&fixture);
}

#define ROUNDS 64

/* Schedules one timeout per round into the bucket of tick 3, in the order that
 * order gives; every round must then start exactly its own. */
static void
assert_rounds(const unsigned *order)
{
	static struct probe probes[ROUNDS];
	struct fixture fixture = {0};
	unsigned index;
	unsigned round;

	fixture_open(&fixture, NULL);
	for (index = 0; index < ROUNDS; index++) {
		round = order[index];
		probes[round] = (struct probe){.fixture = &fixture};
		probe_schedule(&probes[round], 3 * FIXTURE_TICK + round * TURN);
	}

	for (round = 0; round < ROUNDS; round++) {
		uint64_t tick = 3 + round * FIXTURE_WHEEL;

		assert_u64(fixture_tick(&fixture, tick - 1), 0);
		assert_u64(fixture_tick(&fixture, tick), 1);
		assert_u64(probes[round].runs, 1);
	}
	fixture_close(&fixture);
}

Test(rounds, rounds_inserted_in_rising_order_are_kept)
{
	unsigned order[ROUNDS];
	unsigned index;

	for (index = 0; index < ROUNDS; index++)
		order[index] = index;
	assert_rounds(order);
}

Test(rounds, rounds_inserted_in_falling_order_are_kept)
{
	unsigned order[ROUNDS];
	unsigned index;

	for (index = 0; index < ROUNDS; index++)
		order[index] = ROUNDS - 1 - index;
	assert_rounds(order);
}

Test(rounds, rounds_inserted_in_any_order_are_kept)
{
	struct rng rng = {.state = 7};
	unsigned order[ROUNDS];
	unsigned index;
	unsigned turn;

	for (index = 0; index < ROUNDS; index++)
		order[index] = index;
	for (turn = 0; turn < 20; turn++) {
		for (index = ROUNDS - 1; index > 0; index--) {
			unsigned other = (unsigned)rng_below(&rng, index + 1);
			unsigned swapped = order[index];

			order[index] = order[other];
			order[other] = swapped;
		}
		assert_rounds(order);
	}
}

Test(rounds, rounds_inserted_while_the_wheel_turns_are_kept)
{
	static struct probe probes[ROUNDS];
	struct fixture fixture = {0};
	uint64_t tick;

	/* Each comes one turn after the one before and is due in the same
	 * round as all others. */
	fixture_open(&fixture, NULL);
	for (tick = 0; tick < ROUNDS; tick++) {
		probes[tick].fixture = &fixture;
		probe_schedule(&probes[tick], (ROUNDS - tick) * TURN);
		assert_u64(
		    fixture_tick(&fixture, (tick + 1) * FIXTURE_WHEEL - 1), 0);
		if (tick + 1 < ROUNDS)
			assert_u64(
			    fixture_tick(&fixture, (tick + 1) * FIXTURE_WHEEL),
			    0);
	}

	assert_u64(fixture_tick(&fixture, ROUNDS * FIXTURE_WHEEL), ROUNDS);
	fixture_close(&fixture);
}

#define LONG_ROUNDS 5000

Test(rounds, a_wheel_of_one_bucket_serves_thousands_of_rounds)
{
	static struct probe probes[LONG_ROUNDS];
	struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = 1};
	struct fixture fixture = {0};
	unsigned index;

	/* 3571 is prime: an order without any order. */
	fixture_open(&fixture, &options);
	for (index = 0; index < LONG_ROUNDS; index++) {
		unsigned round = index * 3571 % LONG_ROUNDS;

		probes[round].fixture = &fixture;
		probe_schedule(&probes[round], (round + 1) * FIXTURE_TICK);
	}

	for (index = 0; index < LONG_ROUNDS; index++) {
		assert_u64(fixture_tick(&fixture, index + 1), 1);
		assert_u64(probes[index].runs, 1);
	}
	fixture_close(&fixture);
}

Test(rounds, removals_leave_the_rounds_of_the_others_alone)
{
	static struct probe probes[ROUNDS];
	struct fixture fixture = {0};
	unsigned round;

	fixture_open(&fixture, NULL);
	for (round = 0; round < ROUNDS; round++) {
		probes[round].fixture = &fixture;
		probe_schedule(&probes[round], 3 * FIXTURE_TICK + round * TURN);
	}
	fixture_tick(&fixture, 1);

	/* Two of three go: in the front, in the middle and at the end. */
	for (round = 0; round < ROUNDS; round++) {
		if (round % 3 != 1)
			assert_rc(
			    hwt_cancel(fixture.timer, probes[round].handle), 0);
	}

	for (round = 0; round < ROUNDS; round++)
		assert_u64(fixture_tick(&fixture, 3 + round * FIXTURE_WHEEL),
		    round % 3 == 1 ? 1 : 0);
	fixture_close(&fixture);
}

Test(rounds, a_timeout_moved_by_whole_turns_stays_in_its_bucket_and_is_kept)
{
	struct fixture fixture = {0};
	struct probe moved = {.fixture = &fixture};
	struct probe beside = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	probe_schedule(&moved, TURN);
	probe_schedule(&beside, 2 * TURN);
	fixture_step(&fixture, 0);
	assert_rc(hwt_reschedule(fixture.timer, moved.handle, 5 * TURN), 0);

	assert_u64(fixture_tick(&fixture, FIXTURE_WHEEL), 0);
	assert_u64(fixture_tick(&fixture, 2 * FIXTURE_WHEEL), 1);
	assert_rc(hwt_reschedule(fixture.timer, moved.handle, TURN), 0);
	assert_u64(fixture_tick(&fixture, 3 * FIXTURE_WHEEL), 1);

	assert_u64(moved.runs, 1);
	assert_u64(beside.runs, 1);
	fixture_close(&fixture);
}

Test(rounds, delays_of_every_power_of_two_of_nanoseconds_are_kept)
{
	static struct probe probes[62];
	struct fixture fixture = {0};
	unsigned power;

	fixture_open(&fixture, NULL);
	for (power = 0; power < 62; power++) {
		probes[power].fixture = &fixture;
		probe_schedule(&probes[power], UINT64_C(1) << power);
	}

	/* Below the twentieth power all belong to tick 1. */
	assert_u64(fixture_tick(&fixture, 1), 20);
	for (power = 20; power < 62; power++) {
		uint64_t tick =
		    grid_tick(FIXTURE_TICK, 0, UINT64_C(1) << power);

		assert_u64(fixture_tick(&fixture, tick - 1), 0);
		assert_u64(fixture_tick(&fixture, tick), 1);
		assert_u64(probes[power].runs, 1);
	}
	fixture_close(&fixture);
}

Test(rounds, more_rounds_than_32_bits_count_are_kept)
{
	static const uint32_t wheels[] = {1, 2, 16};
	unsigned index;

	for (index = 0; index < 3; index++) {
		struct hwt_options options = {
		    .tick_ns = HWT_US(10), .ticks_per_wheel = wheels[index]};
		struct fixture fixture = {0};
		struct probe probe = {.fixture = &fixture};
		uint64_t ticks = (UINT64_C(3) << 33) * wheels[index] + 1;
		uint64_t waits = 0;

		/* Some waits may end in vain, half a counter's length each. */
		fixture_open(&fixture, &options);
		probe_schedule(&probe, ticks * HWT_US(10));
		while (fixture_step(&fixture, fixture_wait(&fixture)) == 0)
			waits++;

		assert_u64(
		    probe.started_ns, FIXTURE_START + ticks * HWT_US(10));
		cr_assert(waits <= 12);
		fixture_close(&fixture);
	}
}

static const struct hwt_options tiny_wheel = {
    .tick_ns = HWT_US(10), .ticks_per_wheel = 1};

/* A day and more has more rounds than are counted. */
#define DAY HWT_MIN(60 * 24)

Test(rounds, pushed_out_by_more_rounds_than_are_counted_it_is_slept_for)
{
	struct fixture fixture = {0};
	struct probe probes[8];
	uint64_t index;

	fixture_open(&fixture, &tiny_wheel);
	for (index = 0; index < 8; index++) {
		probes[index] = (struct probe){.fixture = &fixture};
		probe_schedule(&probes[index], HWT_MS(10));
	}
	assert_u64(fixture_wait(&fixture), HWT_MS(10));
	for (index = 0; index < 8; index++)
		assert_rc(hwt_reschedule(fixture.timer, probes[index].handle,
			      (index + 1) * DAY),
		    0);

	/* Half a counter's length at least, and never too long. */
	for (index = 0; index < 8; index++) {
		uint64_t due_ns = FIXTURE_START + (index + 1) * DAY;
		uint64_t wait_ns;

		while (probes[index].runs == 0) {
			wait_ns = fixture_wait(&fixture);
			cr_assert(wait_ns <= due_ns - fixture.now_ns);
			cr_assert(wait_ns >= HWT_US(10) << 30 ||
			    wait_ns == due_ns - fixture.now_ns);
			fixture_step(&fixture, wait_ns);
		}
		assert_u64(probes[index].started_ns, due_ns);
	}
	fixture_close(&fixture);
}

Test(rounds, a_worker_runs_what_is_near_while_others_are_that_far)
{
	struct live live = {0};
	struct hwt_unprocessed unprocessed;
	unsigned turn;

	live_open(&live, &tiny_wheel);
	for (turn = 1; turn <= 20; turn++) {
		struct probe probe = {0};

		assert_rc(hwt_new_timeout(live.timer, NULL, forbidden_task,
			      NULL, turn * DAY),
		    0);
		assert_rc(hwt_new_timeout(live.timer, NULL, probe_task, &probe,
			      HWT_MS(turn % 3)),
		    0);
		wait_for(&probe.runs, 1);
	}

	assert_rc(hwt_stop_within(live.timer, HWT_SEC(30), &unprocessed), 0);

	assert_u64(unprocessed.count, 20);
	assert_rc(hwt_destroy(live.timer), 0);
}

/* The greatest deadline that is one: a nanosecond more is never. */
#define LAST_DEADLINE ((UINT64_C(1) << 63) - 2)

Test(rounds, the_longest_delay_that_ends_is_kept)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};
	uint64_t delay_ns = LAST_DEADLINE - FIXTURE_START;
	uint64_t tick = grid_tick(FIXTURE_TICK, 0, delay_ns);

	fixture_open(&fixture, NULL);
	probe_schedule(&probe, delay_ns);
	assert_i64(
	    fixture_remaining(&fixture, probe.handle), (int64_t)delay_ns);

	assert_u64(fixture_tick(&fixture, tick - 1), 0);
	assert_u64(fixture_tick(&fixture, tick), 1);

	fixture_close(&fixture);
}

Test(rounds, what_is_scheduled_after_the_end_of_the_clock_is_never_due)
{
	struct fixture fixture = {.start_ns = LAST_DEADLINE + HWT_SEC(1)};
	struct probe probe = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	probe_schedule(&probe, HWT_MS(1));
	assert_i64(fixture_remaining(&fixture, probe.handle), INT64_MAX);

	assert_u64(fixture_step(&fixture, HWT_SEC(1)), 0);

	assert_u64(hwt_pending_timeouts(fixture.timer), 1);
	fixture_close(&fixture);
}

Test(rounds, a_deadline_at_the_end_of_the_clock_is_never_due)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	probe_schedule(&probe, LAST_DEADLINE - FIXTURE_START + 1);
	assert_i64(fixture_remaining(&fixture, probe.handle), INT64_MAX);

	assert_u64(fixture_step(&fixture, LAST_DEADLINE), 0);

	assert_u64(hwt_pending_timeouts(fixture.timer), 1);
	fixture_close(&fixture);
}

/* More buckets than there are chunks of entries in an arena. */
#define LONG_WHEEL 16384u

Test(rounds, a_long_wheel_has_room_for_one_timeout_in_each_bucket)
{
	struct fixture fixture = {0};
	struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = LONG_WHEEL};
	struct probe *probes = calloc(LONG_WHEEL, sizeof(*probes));
	uint64_t tick;

	cr_assert(probes != NULL);
	fixture_open(&fixture, &options);
	for (tick = 1; tick <= LONG_WHEEL; tick++) {
		probes[tick - 1].fixture = &fixture;
		probe_schedule(&probes[tick - 1], tick * FIXTURE_TICK);
	}

	for (tick = 1; tick <= LONG_WHEEL; tick++)
		assert_u64(fixture_tick(&fixture, tick), 1);

	fixture_close(&fixture);
	free(probes);
}

/* Every bucket has one chunk that is not full, and memory for no more. */
Test(rounds, the_worst_spread_over_the_wheel_has_room)
{
	struct fixture fixture = {0};
	struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = 512};
	uint64_t runs = 0;
	uint64_t tick;
	uint64_t index;

	fixture_open(&fixture, &options);
	for (index = 0; index < 52000; index++)
		assert_rc(hwt_new_timeout(fixture.timer, NULL, idle_task, NULL,
			      (1 + index % 512) * FIXTURE_TICK),
		    0);
	for (tick = 1; tick <= 512; tick++)
		runs += fixture_tick(&fixture, tick);

	assert_u64(runs, 52000);
	fixture_close(&fixture);
}

/* All far entries of a bucket come near at once, and most are dead. */
Test(rounds, however_many_come_near_at_once_there_is_room)
{
	static hwt_timeout timeouts[36000];
	const unsigned count = sizeof(timeouts) / sizeof(timeouts[0]);
	struct fixture fixture = {0};
	unsigned index;

	fixture_open(&fixture,
	    &(struct hwt_options){
		.tick_ns = FIXTURE_TICK, .ticks_per_wheel = 1});
	for (index = 0; index < count; index++)
		assert_rc(hwt_new_timeout(fixture.timer, &timeouts[index],
			      idle_task, NULL, 200 * FIXTURE_TICK),
		    0);
	fixture_step(&fixture, FIXTURE_TICK);
	for (index = 8; index < count; index++)
		assert_rc(hwt_reschedule(fixture.timer, timeouts[index],
			      100 * FIXTURE_TICK),
		    0);
	fixture_step(&fixture, 0);

	assert_u64(fixture_step(&fixture, 100 * FIXTURE_TICK), count - 8);
	assert_u64(fixture_step(&fixture, 98 * FIXTURE_TICK), 0);
	assert_u64(fixture_step(&fixture, FIXTURE_TICK), 8);
	fixture_close(&fixture);
}

#define OTHERS 10000

/* So many others come and go that the wheel is swept. */
static void
have_swept(struct fixture *fixture, bool waits)
{
	static hwt_timeout others[OTHERS];
	unsigned index;

	for (index = 0; index < OTHERS - 500; index++)
		assert_rc(hwt_new_timeout(fixture->timer, &others[index],
			      idle_task, NULL, HWT_SEC(36000)),
		    0);
	fixture_step(fixture, 0);
	for (index = 0; index < OTHERS - 500; index++)
		assert_rc(hwt_cancel(fixture->timer, others[index]), 0);
	if (waits)
		(void)fixture_wait(fixture);
	for (index = 0; index < OTHERS; index++)
		assert_rc(hwt_new_timeout(fixture->timer, &others[index],
			      idle_task, NULL, HWT_SEC(18000)),
		    0);
	fixture_step(fixture, 0);
}

/* Half a tick's number is the same for both entries of one record, in one list
 * or in two; a sweep must keep the one that comes first. */
Test(rounds, two_entries_2_to_the_32_ticks_apart_are_told_apart)
{
	const uint64_t apart = (UINT64_C(1) << 32) * FIXTURE_TICK;
	static const uint64_t delays[] = {FIXTURE_WHEEL * 8, 51200};
	unsigned turn;

	for (turn = 0; turn < 4; turn++) {
		uint64_t delay_ns = delays[turn / 2] * FIXTURE_TICK;
		struct fixture fixture = {0};
		struct probe probe = {.fixture = &fixture};

		fixture_open(&fixture, NULL);
		probe_schedule(&probe, delay_ns + apart);
		fixture_step(&fixture, 0);
		assert_rc(
		    hwt_reschedule(fixture.timer, probe.handle, delay_ns), 0);
		fixture_step(&fixture, 0);
		have_swept(&fixture, turn % 2 == 1);

		fixture_step(&fixture, delay_ns - FIXTURE_TICK);
		assert_u64(probe.runs, 0);
		fixture_step(&fixture, FIXTURE_TICK);
		assert_u64(probe.runs, 1);
		fixture_close(&fixture);
	}
}

/* More dead ones than are put right before one sleep, then one that is due.
 * Some before them, so that it ends at every place of a chunk. */
#define DEAD 700
#define CHUNK 15

Test(rounds, what_is_put_right_before_a_sleep_does_not_hide_the_rest)
{
	static hwt_timeout dead[CHUNK + DEAD];
	uint64_t round_ns = FIXTURE_WHEEL * FIXTURE_TICK;
	unsigned before;
	unsigned index;

	for (before = 0; before < CHUNK; before++) {
		struct fixture fixture = {0};
		struct probe pushed_out = {.fixture = &fixture};
		struct probe probe = {.fixture = &fixture};

		fixture_open(&fixture, NULL);
		probe_schedule(&pushed_out, 10 * FIXTURE_TICK);
		for (index = 0; index < before + DEAD; index++)
			assert_rc(hwt_new_timeout(fixture.timer, &dead[index],
				      forbidden_task, NULL,
				      (index < before ? 9 : 10) * FIXTURE_TICK),
			    0);
		for (index = 0; index < DEAD; index++)
			probe_schedule(&probe, 10 * FIXTURE_TICK);
		(void)fixture_step(&fixture, 0);
		assert_rc(hwt_reschedule(fixture.timer, pushed_out.handle,
			      10 * FIXTURE_TICK + round_ns),
		    0);
		for (index = 0; index < before + DEAD; index++)
			assert_rc(hwt_cancel(fixture.timer, dead[index]), 0);

		assert_u64(fixture_wait(&fixture), 10 * FIXTURE_TICK);
		assert_u64(fixture_step(&fixture, 10 * FIXTURE_TICK), DEAD);
		assert_u64(fixture_step(&fixture, round_ns), 1);
		fixture_close(&fixture);
	}
}

/* More buckets than one search looks at, none with a timeout of this round. */
#define BUCKETS (1 << 17)

Test(rounds, what_many_buckets_hide_is_not_slept_past)
{
	const struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = BUCKETS};
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};
	uint64_t due_ns = 2 * BUCKETS * FIXTURE_TICK;
	unsigned waits = 0;
	unsigned index;

	fixture_open(&fixture, &options);
	for (index = 0; index < BUCKETS - 1; index++)
		assert_rc(hwt_new_timeout(fixture.timer, NULL, forbidden_task,
			      NULL, due_ns + (1 + index) * FIXTURE_TICK),
		    0);
	probe_schedule(&probe, due_ns);
	for (; probe.runs == 0; waits++)
		fixture_step(&fixture, fixture_wait(&fixture));

	assert_u64(probe.started_ns, FIXTURE_START + due_ns);
	cr_assert(waits > 1 && waits <= 8);
	fixture_close(&fixture);
}

/* The set of what is kept comes in pieces of 2^20 records. */
#define MANY ((1u << 20) + 10000)

Test(rounds, a_sweep_keeps_what_comes_after_the_first_million_too)
{
	hwt_timeout *timeouts = calloc(MANY, sizeof(*timeouts));
	struct fixture fixture = {0};
	unsigned index;

	cr_assert_not_null(timeouts);
	fixture_open(&fixture, NULL);
	for (index = 0; index < MANY; index++)
		assert_rc(hwt_new_timeout(fixture.timer, &timeouts[index],
			      idle_task, NULL, HWT_SEC(1)),
		    0);
	fixture_step(&fixture, 0);
	for (index = 0; index < MANY; index++) {
		if (index % 1000 != 0)
			assert_rc(
			    hwt_cancel(fixture.timer, timeouts[index]), 0);
	}

	assert_u64(fixture_wait(&fixture), HWT_SEC(1));
	assert_u64(fixture_step(&fixture, HWT_SEC(1)), (MANY + 999) / 1000);
	fixture_close(&fixture);
	free(timeouts);
}

/* Each tick that turns out to be empty costs a search, which finds the next one
 * a round or more away: when that becomes too much, nothing is known beyond the
 * last of them, and that is where the worker sleeps to. */
Test(rounds, what_was_put_right_is_not_looked_at_before_its_old_tick)
{
	static hwt_timeout timeouts[2000];
	const struct hwt_options options = {
	    .tick_ns = HWT_MS(1), .ticks_per_wheel = 512};
	struct fixture fixture = {0};
	unsigned index;

	fixture_open(&fixture, &options);
	for (index = 0; index < 2000; index++)
		assert_rc(
		    hwt_new_timeout(fixture.timer, &timeouts[index],
			forbidden_task, NULL, HWT_SEC(40) + HWT_MS(10) * index),
		    0);
	fixture_step(&fixture, 0);
	for (index = 0; index < 2000; index++)
		assert_rc(hwt_reschedule(
			      fixture.timer, timeouts[index], HWT_SEC(1000)),
		    0);

	cr_assert(fixture_wait(&fixture) >= HWT_SEC(40));
	fixture_close(&fixture);
}

/* Entries outnumber the records that there is room for, though few of them are
 * dead: no sweep yet. But the next one does not wait for twice as many: what
 * comes after it finds chunks that are free. */
#define PULLED 8100

Test(rounds, a_sweep_does_not_wait_until_the_wheel_is_full)
{
	static hwt_timeout timeouts[PULLED];
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};
	unsigned index;
	uint64_t bytes;

	fixture_open(&fixture, NULL);
	for (index = 0; index < 4000; index++)
		timeouts[index] = probe_schedule(&probe, HWT_SEC(200));
	fixture_step(&fixture, 0);
	for (index = 0; index < 200; index++)
		assert_rc(hwt_reschedule(
			      fixture.timer, timeouts[index], HWT_SEC(100)),
		    0);
	for (index = 4000; index < PULLED; index++)
		timeouts[index] = probe_schedule(&probe, HWT_SEC(200));
	fixture_step(&fixture, 0);
	for (index = 0; index < PULLED; index++)
		assert_rc(
		    hwt_reschedule(fixture.timer, timeouts[index], HWT_SEC(50)),
		    0);
	fixture_step(&fixture, 0);
	bytes = fixture_stats(&fixture).memory_bytes;
	for (index = 0; index < 150; index++)
		assert_rc(
		    hwt_reschedule(fixture.timer, timeouts[index], HWT_SEC(25)),
		    0);
	fixture_step(&fixture, 0);

	assert_u64(fixture_stats(&fixture).memory_bytes, bytes);
	assert_u64(fixture_step(&fixture, HWT_SEC(25)), 150);
	assert_u64(fixture_step(&fixture, HWT_SEC(25)), PULLED - 150);
	fixture_close(&fixture);
}
