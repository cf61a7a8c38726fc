/* SPDX-License-Identifier: Apache-2.0 */
/*
 * never-early: an operation expires as a timeout of the timer does, never
 * before its delay; the timer's worker never waits for a predicate.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(never_early);

static struct yard yard;

/* Kafka's testRequestExpiry. */
Test(never_early, twenty_milliseconds_beside_two_hundred_seconds)
{
	struct operation soon = {.yard = &yard};
	struct operation late = {.yard = &yard};
	uint64_t begun_ns;

	yard_open(&yard, NULL);
	begun_ns = yard.fixture.now_ns;
	assert_rc(watch_key(&soon, KEY(1), HWT_MS(20)), 0);
	assert_rc(watch_key(&late, KEY(2), HWT_SEC(200)), 0);
	while (soon.dones == 0)
		(void)fixture_step(&yard.fixture, FIXTURE_TICK);
	assert_ended(&soon, HWT_EXPIRED);
	cr_assert(soon.ended_ns >= begun_ns + HWT_MS(20));
	cr_assert(soon.ended_ns <= begun_ns + HWT_MS(20) + 2 * FIXTURE_TICK);
	assert_pending(&late);
	assert_u64(soon.tries, 1);
	assert_stats(&yard, 1, 1, 1);
	yard_close(&yard);
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
	struct operation no = {.yard = &yard};
	struct operation yes = {.yard = &yard, .holds = 1};

	assert_rc(watch_key(&yes, KEY(1), 0), 1);
	assert_ended(&yes, HWT_COMPLETED);
	assert_rc(watch_key(&no, KEY(1), 0), 0);
	assert_u64(no.tries, 1);
	assert_u64(fixture_step(&yard.fixture, 0), 0);
	assert_pending(&no);
	assert_u64(fixture_step(&yard.fixture, FIXTURE_TICK), 1);
	assert_ended(&no, HWT_EXPIRED);
}

Test(never_early, without_a_deadline_it_stays)
{
	struct operation operation = {.yard = &yard};

	yard_open(&yard, NULL);
	assert_rc(watch_key(&operation, KEY(1), HWT_NEVER), 0);
	assert_u64(hwt_pending_timeouts(yard.fixture.timer), 0);
	(void)fixture_step(&yard.fixture, HWT_SEC(1000000));
	assert_pending(&operation);
	yard_close(&yard);
	assert_ended(&operation, HWT_SHUT_DOWN);
}

/* Futures of two parts: the operation completes when both parts did. */
YardTest(never_early, futures_of_two_parts)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2)};
	struct operation both = {.yard = &yard};
	struct operation half = {.yard = &yard};

	both.counts = half.counts = true;
	both.holds = half.holds = 3;
	assert_rc(watch_keys(&both, keys, 2, HWT_MS(200)), 0);
	assert_rc(watch_keys(&half, &keys[1], 1, HWT_MS(200)), 0);
	assert_u64(check(&yard, KEY(1)), 0);
	assert_u64(check(&yard, KEY(2)), 1);
	assert_ended(&both, HWT_COMPLETED);
	assert_pending(&half);
	(void)fixture_step(&yard.fixture, HWT_MS(202));
	assert_ended(&half, HWT_EXPIRED);
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

Test(never_early, an_expiry_watches_again)
{
	struct operation operation = {.yard = &yard, .in_done = watch_again};
	unsigned i;

	yard_open(&yard, NULL);
	assert_rc(watch_key(&operation, KEY(1), HWT_MS(5)), 0);
	for (i = 0; i < 100; i++)
		(void)fixture_step(&yard.fixture, FIXTURE_TICK);
	assert_u64(operation.count, 20);
	assert_stats(&yard, 1, 1, 1);
	assert_u64(hwt_pending_timeouts(yard.fixture.timer), 1);
	yard_close(&yard);
}
