/* SPDX-License-Identifier: Apache-2.0 */
/*
 * once: done runs exactly once for every operation that watch accepted, with
 * one outcome, whatever races.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(once);

static struct yard yard;

Test(once, what_holds_at_watch_completes_there)
{
	struct operation operation = {.yard = &yard, .holds = 1};

	yard_open(&yard, NULL);
	assert_rc(watch_key(&operation, KEY(1), HWT_SEC(1)), 1);
	assert_ended(&operation, HWT_COMPLETED);
	assert_u64(operation.tries, 1);
	assert_stats(&yard, 0, 0, 0);
	assert_u64(check(&yard, KEY(1)), 0);
	assert_u64(fixture_step(&yard.fixture, HWT_SEC(2)), 0);
	yard_close(&yard);
	assert_ended(&operation, HWT_COMPLETED);
}

Test(once, an_event_completes_what_holds_and_nothing_else)
{
	struct operation one = {.yard = &yard};
	struct operation two = {.yard = &yard};

	yard_open(&yard, NULL);
	assert_rc(watch_key(&one, KEY(1), HWT_SEC(1)), 0);
	assert_rc(watch_key(&two, KEY(1), HWT_SEC(1)), 0);
	assert_u64(check(&yard, KEY(1)), 0);
	one.holds = 1;
	assert_u64(check(&yard, KEY(2)), 0);
	assert_u64(check(&yard, KEY(1)), 1);
	assert_ended(&one, HWT_COMPLETED);
	assert_pending(&two);
	assert_u64(check(&yard, KEY(1)), 0);
	assert_u64(one.tries, 3);
	two.holds = 1;
	assert_u64(check(&yard, KEY(1)), 1);
	yard_close(&yard);
	assert_ended(&one, HWT_COMPLETED);
	assert_ended(&two, HWT_COMPLETED);
}

/* After one outcome, every other call is refused. */
static void
assert_over(struct operation *operation, enum hwt_outcome outcome)
{
	hwt_operation handle = operation->handle;

	assert_ended(operation, outcome);
	operation->holds = 1;
	assert_rc(hwt_operation_complete(yard.purgatory, handle), -ENOENT);
	assert_rc(hwt_operation_cancel(yard.purgatory, handle), -ENOENT);
	assert_u64(check(&yard, KEY(1)), 0);
	assert_u64(cancel_key(&yard, KEY(1)), 0);
	(void)fixture_step(&yard.fixture, HWT_SEC(10));
	assert_ended(operation, outcome);
	assert_stats(&yard, 0, 0, 0);
}

YardTest(once, each_outcome_is_the_only_one)
{
	struct operation completed = {.yard = &yard};
	struct operation cancelled = {.yard = &yard};
	struct operation expired = {.yard = &yard};
	struct operation ended = {.yard = &yard};

	assert_rc(watch_key(&completed, KEY(1), HWT_SEC(1)), 0);
	assert_rc(hwt_operation_complete(yard.purgatory, completed.handle), 0);
	assert_over(&completed, HWT_COMPLETED);
	assert_rc(watch_key(&cancelled, KEY(1), HWT_SEC(1)), 0);
	assert_rc(hwt_operation_cancel(yard.purgatory, cancelled.handle), 0);
	assert_over(&cancelled, HWT_CANCELLED);
	assert_rc(watch_key(&expired, KEY(1), HWT_SEC(1)), 0);
	(void)fixture_step(&yard.fixture, HWT_SEC(1));
	(void)fixture_step(&yard.fixture, FIXTURE_TICK);
	assert_over(&expired, HWT_EXPIRED);
	assert_rc(watch_key(&ended, KEY(1), HWT_SEC(1)), 0);
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
	assert_over(&ended, HWT_SHUT_DOWN);
	assert_u64(yard_stats(&yard).completed, 1);
	assert_u64(yard_stats(&yard).cancelled, 1);
	assert_u64(yard_stats(&yard).expired, 1);
	assert_u64(yard_stats(&yard).shut_down, 1);
}

/* One call decides, and it says so: while another one runs the predicate, that
 * one does not count it, too. */
static void
complete_from_inside(struct operation *operation)
{
	if (operation->tries == 1)
		operation->rc = hwt_operation_complete(
		    operation->yard->purgatory, operation->handle);
}

YardTest(once, one_call_counts_the_decision)
{
	struct operation operation = {
	    .yard = &yard, .in_try = complete_from_inside};

	assert_rc(watch_key(&operation, KEY(1), HWT_SEC(1)), 0);
	operation.rc = 1;
	operation.holds = 1;
	assert_u64(check(&yard, KEY(1)), 0);
	assert_rc(operation.rc, 0);
	assert_ended(&operation, HWT_COMPLETED);
}

YardTest(once, completed_inside_watch_is_not_watchs)
{
	struct operation operation = {
	    .yard = &yard, .in_try = complete_from_inside, .tries = 1};

	assert_rc(watch_key(&operation, KEY(1), HWT_SEC(1)), 0);
	assert_ended(&operation, HWT_COMPLETED);
}

/* All that can end an operation, at once. */
#define RACERS 6
#define ROUNDS 300

static struct operation race[ROUNDS];
static _Atomic uint64_t decided;

static void
race_body(unsigned index, void *arg)
{
	struct operation *operation = arg;
	struct hwt_purgatory *purgatory = yard.purgatory;
	size_t count = 0;

	switch (index) {
	case 0:
		(void)hwt_advance(yard.fixture.timer, NULL);
		return;
	case 1:
		count =
		    hwt_operation_complete(purgatory, operation->handle) == 0;
		break;
	case 2:
		count = hwt_operation_cancel(purgatory, operation->handle) == 0;
		break;
	case 3:
		(void)hwt_purgatory_cancel_key(purgatory, KEY(2), &count);
		break;
	default:
		operation->holds = 1;
		(void)hwt_purgatory_check(purgatory, KEY(1), &count);
	}
	decided += count;
}

Test(once, whatever_races)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2)};
	uint64_t expired = 0;
	unsigned i;

	yard_open(&yard, NULL);
	for (i = 0; i < ROUNDS; i++) {
		race[i].yard = &yard;
		assert_rc(watch_keys(&race[i], keys, 2, HWT_MS(1)), 0);
		yard.fixture.now_ns += 2 * FIXTURE_TICK;
		in_parallel(RACERS, race_body, &race[i]);
		(void)fixture_step(&yard.fixture, 0);
		assert_u64(race[i].dones, 1);
		expired += race[i].outcome == HWT_EXPIRED;
		assert_stats(&yard, 0, 0, 0);
		assert_u64(hwt_pending_timeouts(yard.fixture.timer), 0);
	}
	assert_u64(decided + expired, ROUNDS);
	yard_close(&yard);
	for (i = 0; i < ROUNDS; i++)
		assert_u64(race[i].dones, 1);
}
