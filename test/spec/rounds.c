/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounds: delays of any length, in any order of insertion. Timeouts of a test
 * share buckets, and each must leave its bucket in its own round.
 */
#include "test/spec/support.h"

SUITE(rounds);

#define ROUND TICKS(FIXTURE_WHEEL)

ManualTest(rounds, delay_of_whole_rounds_is_kept_from_every_bucket)
{
	uint64_t tick = 0;

	for (uint64_t bucket = 0; bucket < FIXTURE_WHEEL; bucket++) {
		for (uint64_t rounds = 1; rounds <= 5; rounds++) {
			struct probe probe = {0};

			probe_schedule(&probe, rounds * ROUND);
			tick += rounds * FIXTURE_WHEEL;
			assert_u64(manual_tick(tick - 1), 0);
			assert_u64(manual_tick(tick), 1);
		}
		manual_tick(++tick);
	}
}

#define LONG_ROUNDS 5000

/* A round counts 32 bits in the wheel; what lies farther away costs a wait in
 * vain for each 2^30 rounds. */
Test(rounds, more_rounds_than_32_bits_count_are_kept)
{
	for (uint32_t wheel = 1; wheel <= 16; wheel *= 4) {
		uint64_t delay_ns = ((UINT64_C(3) << 33) * wheel + 1) * 10000;
		struct probe probe = {0};
		unsigned waits = 0;

		manual_open(&(struct hwt_options){
		    .tick_ns = HWT_US(10), .ticks_per_wheel = wheel});
		probe_schedule(&probe, delay_ns);
		while (manual_step(manual_wait()) == 0)
			waits++;

		assert_u64(probe.started_ns, FIXTURE_START + delay_ns);
		cr_assert(waits <= 24);
		manual_close();
	}
}

#define BUCKETS (1 << 17)
