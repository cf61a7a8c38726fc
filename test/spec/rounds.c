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
