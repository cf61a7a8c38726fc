/* SPDX-License-Identifier: Apache-2.0 */
/*
 * never-early: an operation expires as a timeout of the timer does, never
 * before its delay; the timer's worker never waits for a predicate.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(never_early);

static struct yard yard;

/* Kafka's testRequestExpiry. */
YardTest(never_early, twenty_milliseconds_beside_two_hundred_seconds)
{
	uint64_t begun_ns;

	party_make(&yard);
	begun_ns = yard.fixture.now_ns;
	play("watch-ms 0 1 20, watch-ms 1 2 200000");
	while (party[0].dones == 0)
		(void)fixture_step(&yard.fixture, FIXTURE_TICK);
	play("expired 0");
	cr_assert(party[0].ended_ns >= begun_ns + HWT_MS(20));
	cr_assert(
	    party[0].ended_ns <= begun_ns + HWT_MS(20) + 2 * FIXTURE_TICK);
	play("pending 1, tries 0 1, stats 1 1 1");
}

YardTest(never_early, five_deadlines)
{
	static const uint64_t delay_ms[] = {150, 200, 300, 150, 200};
	struct operation operation[5] = {{0}};
	uint64_t begun_ns, delay_ns;
	unsigned i;

	begun_ns = yard.fixture.now_ns;
	for (i = 0; i < 5; i++) {
		operation[i].yard = &yard;
		assert_rc(
		    watch_key(&operation[i], KEY(i % 2), HWT_MS(delay_ms[i])),
		    0);
	}
	for (i = 0; i < 310; i++)
		(void)fixture_step(&yard.fixture, FIXTURE_TICK);
	for (i = 0; i < 5; i++) {
		delay_ns = operation[i].ended_ns - begun_ns;
		assert_ended(&operation[i], HWT_EXPIRED);
		cr_assert(delay_ns >= HWT_MS(delay_ms[i]));
		cr_assert(delay_ns <= HWT_MS(delay_ms[i]) + 2 * FIXTURE_TICK);
	}
	assert_u64(yard_stats(&yard).expired, 5);
}

YardTest(never_early, delay_0_is_tried_and_expires_at_the_next_tick)
{
	party_make(&yard);
	play("holds 1, met 1 1, completed 1, watch-ms 0 1 0, tries 0 1, "
	     "runs 0 0, pending 0, runs 1 1, expired 0");
}

Test(never_early, without_a_deadline_it_stays)
{
	party_make(&yard);
	yard_open(&yard, NULL);
	play("watch 0 1, timeouts 1, pass 1000000000, pending 0");
	yard_close(&yard);
	play("shut-down 0");
}

/* Futures of two parts: the operation completes when both parts did. */
YardTest(never_early, futures_of_two_parts)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2)};

	party_make(&yard);
	party[0].counts = party[1].counts = true;
	party[0].holds = party[1].holds = 3;
	assert_rc(watch_keys(&party[0], keys, 2, HWT_MS(200)), 0);
	assert_rc(watch_keys(&party[1], &keys[1], 1, HWT_MS(200)), 0);
	play("check 1 0, check 2 1, completed 0, pending 1, pass 202, "
	     "expired 1");
}

/* Watched again in done of its expiry, the record may be another one's while
 * the timeout's task has not returned. */
static void
watch_again(struct operation *operation)
{
	if (operation->outcome != HWT_EXPIRED)
		return;
	operation->dones = 0;
	operation->count++;
	assert_rc(watch_key(operation, KEY(1), HWT_MS(5)), 0);
}

YardTest(never_early, an_expiry_watches_again)
{
	static struct operation operation = {
	    .yard = &yard, .in_done = watch_again};
	unsigned i;

	assert_rc(watch_key(&operation, KEY(1), HWT_MS(5)), 0);
	for (i = 0; i < 100; i++)
		(void)fixture_step(&yard.fixture, FIXTURE_TICK);
	assert_u64(operation.count, 20);
	assert_stats(&yard, 1, 1, 1);
	assert_u64(hwt_pending_timeouts(yard.fixture.timer), 1);
}
