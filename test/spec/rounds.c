/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounds: delays of any length, in any order of insertion. All timeouts of a
 * test meet in one bucket, and each must leave it in its own round.
 */
#include "test/spec/support_promises.h"

#include <stdlib.h>

SUITE(rounds);

#define TURN (FIXTURE_WHEEL * FIXTURE_TICK)

ManualTest(rounds, a_delay_of_whole_turns_is_kept_from_every_bucket)
{
	uint64_t tick = 0;

	for (uint64_t bucket = 0; bucket < FIXTURE_WHEEL; bucket++) {
		for (uint64_t turns = 1; turns <= 5; turns++) {
			struct probe probe = {0};

			probe_schedule(&probe, turns * TURN);
			tick += turns * FIXTURE_WHEEL;
			assert_u64(manual_tick(tick - 1), 0);
			assert_u64(manual_tick(tick), 1);
		}
		manual_tick(++tick);
	}
}

#define LONG_ROUNDS 5000

ManualTestWith(rounds, a_wheel_of_one_bucket_serves_thousands_of_rounds,
    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = 1)
{
	static struct probe probes[LONG_ROUNDS];

	/* 3571 is prime: an order without any order. */
	for (unsigned index = 0; index < LONG_ROUNDS; index++) {
		unsigned round = index * 3571 % LONG_ROUNDS;

		probe_schedule(&probes[round], (round + 1) * FIXTURE_TICK);
	}

	for (unsigned index = 0; index < LONG_ROUNDS; index++) {
		assert_u64(manual_tick(index + 1), 1);
		assert_u64(probes[index].runs, 1);
	}
}

ManualTest(rounds, delays_of_every_power_of_two_of_nanoseconds_are_kept)
{
	static struct probe probes[62];
	unsigned power;

	for (power = 0; power < 62; power++) {
		probe_schedule(&probes[power], UINT64_C(1) << power);
	}

	/* Below the twentieth power all belong to tick 1. */
	assert_u64(manual_tick(1), 20);
	for (power = 20; power < 62; power++) {
		uint64_t tick =
		    grid_tick(FIXTURE_TICK, 0, UINT64_C(1) << power);

		assert_u64(manual_tick(tick - 1), 0);
		assert_u64(manual_tick(tick), 1);
		assert_u64(probes[power].runs, 1);
	}
}

Test(rounds, more_rounds_than_32_bits_count_are_kept)
{
	static const uint32_t wheels[] = {1, 2, 16};

	for (unsigned index = 0; index < 3; index++) {
		struct hwt_options options = {
		    .tick_ns = HWT_US(10), .ticks_per_wheel = wheels[index]};
		struct probe probe = {0};
		uint64_t ticks = (UINT64_C(3) << 33) * wheels[index] + 1;
		uint64_t waits = 0;

		/* Some waits end in vain: 2^30 rounds each. */
		manual_open(&options);
		probe_schedule(&probe, ticks * HWT_US(10));
		while (manual_step(manual_wait()) == 0)
			waits++;

		assert_u64(
		    probe.started_ns, FIXTURE_START + ticks * HWT_US(10));
		cr_assert(waits <= 24);
		manual_close();
	}
}

static const struct hwt_options tiny_wheel = {
    .tick_ns = HWT_US(10), .ticks_per_wheel = 1};

/* A day and more has more rounds than are counted. */
#define DAY HWT_MIN(60 * 24)

Test(rounds, pushed_out_by_more_rounds_than_are_counted_it_is_slept_for)
{
	struct probe probes[8];

	manual_open(&tiny_wheel);
	for (uint64_t index = 0; index < 8; index++) {
		probes[index] = (struct probe){0};
		probe_schedule(&probes[index], HWT_MS(10));
	}
	assert_u64(manual_wait(), HWT_MS(10));
	for (uint64_t index = 0; index < 8; index++)
		assert_ok(hwt_reschedule(
		    manual.timer, probes[index].handle, (index + 1) * DAY));

	/* Half a counter's length at least, and never too long. */
	for (uint64_t index = 0; index < 8; index++) {
		uint64_t due_ns = FIXTURE_START + (index + 1) * DAY;
		uint64_t wait_ns;

		while (probes[index].runs == 0) {
			wait_ns = manual_wait();
			cr_assert(wait_ns <= due_ns - manual.now_ns);
			cr_assert(wait_ns >= HWT_US(10) << 30 ||
			    wait_ns == due_ns - manual.now_ns);
			manual_step(wait_ns);
		}
		assert_u64(probes[index].started_ns, due_ns);
	}
	manual_close();
}

/* More buckets than there are chunks of entries in an arena. */
#define LONG_WHEEL 16384u

ManualTestWith(rounds, a_long_wheel_has_room_for_one_timeout_in_each_bucket,
    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = LONG_WHEEL)
{
	struct probe *probes = calloc(LONG_WHEEL, sizeof(*probes));

	cr_assert(probes != NULL);
	for (uint64_t tick = 1; tick <= LONG_WHEEL; tick++) {
		probe_schedule(&probes[tick - 1], tick * FIXTURE_TICK);
	}

	for (uint64_t tick = 1; tick <= LONG_WHEEL; tick++)
		assert_u64(manual_tick(tick), 1);

	free(probes);
}

/* Every bucket has one chunk that is not full, and memory for no more. */
ManualTestWith(rounds, the_worst_spread_over_the_wheel_has_room,
    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = 512)
{
	uint64_t runs = 0;

	for (uint64_t index = 0; index < 52000; index++)
		assert_ok(hwt_new_timeout(manual.timer, NULL, idle_task, NULL,
		    (1 + index % 512) * FIXTURE_TICK));
	for (uint64_t tick = 1; tick <= 512; tick++)
		runs += manual_tick(tick);

	assert_u64(runs, 52000);
}

/* All far entries of a bucket come near at once, and most are dead. */
ManualTestWith(rounds, however_many_come_near_at_once_there_is_room,
    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = 1)
{
	static hwt_timeout timeouts[36000];
	const unsigned count = sizeof(timeouts) / sizeof(timeouts[0]);

	for (unsigned index = 0; index < count; index++)
		timeouts[index] =
		    schedule_task(manual.timer, idle_task, 200 * FIXTURE_TICK);
	manual_step(FIXTURE_TICK);
	for (unsigned index = 8; index < count; index++)
		assert_ok(hwt_reschedule(
		    manual.timer, timeouts[index], 100 * FIXTURE_TICK));
	manual_step(0);

	assert_u64(manual_step(100 * FIXTURE_TICK), count - 8);
	assert_u64(manual_step(98 * FIXTURE_TICK), 0);
	assert_u64(manual_step(FIXTURE_TICK), 8);
}

/* A round counts 32 bits: that of the one is that of the other. */
ManualTest(rounds, two_ticks_2_to_the_32_rounds_apart_are_told_apart)
{
	const uint64_t apart = (UINT64_C(1) << 32) * TURN;
	struct probe early = {0}, late = {0};
	unsigned waits;

	probe_schedule(&early, 2 * TURN);
	probe_schedule(&late, 2 * TURN + apart);
	assert_u64(manual_step(2 * TURN), 1);
	assert_u64(early.runs, 1);

	/* And for one whose deadline is moved from there to here. */
	probe_schedule(&early, TURN + apart);
	manual_step(0);
	assert_ok(hwt_reschedule(manual.timer, early.handle, TURN));
	manual_step(0);
	manual_step(TURN - FIXTURE_TICK);
	assert_u64(early.runs, 1);
	manual_step(FIXTURE_TICK);
	assert_u64(early.runs, 2);

	/* A quarter of them can be distinguished at a time. */
	for (waits = 0; late.runs == 0; waits++)
		manual_step(manual_wait());
	cr_assert(waits <= 5);
	assert_u64(late.started_ns, manual.start_ns + 2 * TURN + apart);
}

/* More dead ones than are removed in one piece, then one that is due. Some
 * before them, so that it ends at every place of a chunk. */
#define DEAD 700
#define CHUNK 15

Test(rounds, what_is_put_right_before_a_sleep_does_not_hide_the_rest)
{
	static hwt_timeout dead[CHUNK + DEAD];
	uint64_t round_ns = FIXTURE_WHEEL * FIXTURE_TICK;

	for (unsigned before = 0; before < CHUNK; before++) {
		struct probe pushed_out = {0}, probe = {0};

		manual_open(NULL);
		probe_schedule(&pushed_out, 10 * FIXTURE_TICK);
		for (unsigned index = 0; index < before + DEAD; index++)
			dead[index] =
			    schedule_task(manual.timer, forbidden_task,
				(index < before ? 9 : 10) * FIXTURE_TICK);
		for (unsigned index = 0; index < DEAD; index++)
			probe_schedule(&probe, 10 * FIXTURE_TICK);
		(void)manual_step(0);
		assert_ok(hwt_reschedule(manual.timer, pushed_out.handle,
		    10 * FIXTURE_TICK + round_ns));
		for (unsigned index = 0; index < before + DEAD; index++)
			assert_ok(hwt_cancel(manual.timer, dead[index]));

		assert_u64(manual_wait(), 10 * FIXTURE_TICK);
		assert_u64(manual_step(10 * FIXTURE_TICK), DEAD);
		assert_u64(manual_step(round_ns), 1);
		manual_close();
	}
}

/* All buckets in use, and none but one with a timeout of this round. */
#define BUCKETS (1 << 17)

ManualTestWith(rounds, what_many_buckets_hide_is_found_at_once,
    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = BUCKETS)
{
	struct probe probe = {0};
	uint64_t due_ns = 2 * BUCKETS * FIXTURE_TICK;

	for (unsigned index = 0; index < BUCKETS - 1; index++)
		assert_ok(hwt_new_timeout(manual.timer, NULL, forbidden_task,
		    NULL, due_ns + (1 + index) * FIXTURE_TICK));
	probe_schedule(&probe, due_ns);

	assert_u64(manual_wait(), due_ns);
	assert_u64(manual_step(due_ns), 1);
	assert_u64(probe.started_ns, FIXTURE_START + due_ns);
}

#define PULLED 1000
#define PULLS 1000
#define CHUNK_BYTES 128

/* A timeout has one entry in the wheel: a bucket that was empty needs a chunk,
 * and nothing else is new. */
ManualTest(rounds, to_pull_a_deadline_in_moves_its_entry)
{
	static hwt_timeout timeouts[PULLED];
	uint64_t delay_ns = HWT_SEC(3600);
	uint64_t bytes, ticks;

	for (unsigned index = 0; index < PULLED; index++)
		timeouts[index] =
		    schedule_task(manual.timer, idle_task, delay_ns);
	manual_step(0);
	bytes = manual_stats().memory_bytes;
	for (unsigned turn = 0; turn < PULLS; turn++) {
		delay_ns -= 3 * FIXTURE_TICK;
		for (unsigned index = 0; index < PULLED; index++)
			assert_ok(hwt_reschedule(manual.timer, timeouts[index],
			    delay_ns + index % 16 * FIXTURE_TICK));
		assert_u64(manual_step(0), 0);
		cr_assert(manual_stats().memory_bytes <=
		    bytes + FIXTURE_WHEEL * CHUNK_BYTES);
	}

	assert_u64(manual_wait(), delay_ns);
	assert_u64(manual_step(delay_ns + 15 * FIXTURE_TICK), PULLED);
	/* Nothing is left at the ticks where they were. */
	ticks = manual_stats().ticks;
	assert_u64(manual_wait(), HWT_NEVER);
	assert_u64(manual_step(HWT_SEC(3600)), 0);
	assert_u64(manual_stats().ticks, ticks);
}
