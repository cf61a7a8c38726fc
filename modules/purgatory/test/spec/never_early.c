/* SPDX-License-Identifier: Apache-2.0 */
/*
 * never-early: an operation expires as a timeout of the timer does, never
 * before its delay; the timer's worker never waits for a predicate.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(never_early);

/* Kafka's testRequestExpiry. */
PurgatoryTest(never_early, twenty_milliseconds_beside_two_hundred_seconds)
{
	play(
	    "watch-ms 0 1 20, watch-ms 1 2 200000, pass 19, pending 0, pass 2, "
	    "expired 0, pending 1, tries 0 1, stats 1 1 1");
}

PurgatoryTest(never_early, five_deadlines)
{
	play("watch-ms 0 0 150, watch-ms 1 1 200, watch-ms 2 0 300, "
	     "watch-ms 3 1 150, watch-ms 4 0 200, pass 149, stats 5 5 2, "
	     "runs 2 2, expired 0, expired 3, pass 48, stats 3 3 2, runs 2 2, "
	     "expired 1, expired 4, pass 98, pending 2, runs 2 1, expired 2");
}

PurgatoryTest(never_early, delay_0_is_tried_and_expires_at_the_next_tick)
{
	play("holds 1, met 1 1, completed 1, watch-ms 0 1 0, tries 0 1, "
	     "runs 0 0, pending 0, runs 1 1, expired 0");
}

PurgatoryTest(never_early, without_a_deadline_it_stays)
{
	play("watch 0 1, timeouts 1, pass 1000000000, pending 0, shutdown, "
	     "shut-down 0");
}

/* Kafka's futures of two parts: complete when both parts did. */
PurgatoryTest(never_early, futures_of_two_parts)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2)};

	party[0].counts = party[1].counts = true;
	party[0].holds = party[1].holds = 3;
	assert_rc(watch_keys(&party[0], keys, 2, HWT_MS(200)), 0);
	assert_rc(watch_keys(&party[1], &keys[1], 1, HWT_MS(200)), 0);
	play("check 1 0, check 2 1, completed 0, pending 1, pass 202, "
	     "expired 1");
}

/* Its record may be another one's while the timeout's task has not returned. */
static void
watch_again(struct operation *operation)
{
	if (operation->outcome != HWT_EXPIRED)
		return;
	operation->dones = 0;
	operation->count++;
	assert_rc(watch_key(operation, KEY(1), HWT_MS(5)), 0);
}

PurgatoryTest(never_early, an_expiry_watches_again)
{
	unsigned i;

	party[0].in_done = watch_again;
	play("watch-ms 0 1 5");
	for (i = 0; i < 100; i++)
		play("pass 1");
	assert_u64(party[0].count, 20);
	play("stats 1 1 1, timeouts 1");
}
