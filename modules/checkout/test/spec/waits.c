/* SPDX-License-Identifier: Apache-2.0 */
/*
 * once: granted is called once for each wait.
 * no-lost-wake: nobody waits while all its objects are free.
 * few-wakes: a release wakes one.
 * deadline: it ends a wait, never a grant, and never early.
 */
#include "modules/checkout/test/spec/checkout.h"

SUITE(once);
SUITE(no_lost_wake);
SUITE(few_wakes);
SUITE(deadline);

#define WAITERS 1000

static struct store store;

StoreTest(once, after_one_outcome_no_other)
{
	party_make(&store, "a a");
	play("take-ms 0 1000, wait-ms 1 5, cancel 1, cancelled 1, "
	     "too-late 1, pass 50, release 0, cancelled 1");
	/* And it can be used again. */
	play("take-ms 1 5, release 1");
}

/* Whoever waits with it wins or ends; in the end all are told once. */
static void
race(unsigned index, void *arg)
{
	struct demand *demand = arg;

	if (index == 0)
		demand_release(&demand[0]);
	else if (index == 1)
		(void)demand_cancel(&demand[1]);
	else
		(void)fixture_step(&store.fixture, HWT_MS(2));
}

StoreTest(once, release_cancel_and_deadline_at_the_same_time)
{
	static struct demand demand[2];
	unsigned turn;

	for (turn = 0; turn < 300; turn++) {
		demand_init(&demand[0], &store, "a");
		demand_init(&demand[1], &store, "ab");
		assert_rc(demand_acquire(&demand[0], HWT_NEVER), 0);
		assert_rc(demand_acquire(&demand[1], HWT_MS(1)), 1);
		in_parallel(3, race, demand);
		assert_u64(demand[1].calls, 1);
		if (demand[1].grant == HWT_GRANTED)
			demand_release(&demand[1]);
		assert_stats(&store, 0, 0);
	}
}

/* Rolling back wakes: the request for {a, b} had a for a moment. */
StoreTest(no_lost_wake, the_baton_is_handed_on)
{
	party_make(&store, "a b ab a");
	play("take 0, take 1, wait 2, wait 3, release 0, waits 2, "
	     "granted 3, release 3, release 1, granted 2, release 2");
}

/* The one that is woken cannot reach the object: a is taken meanwhile. */
StoreTest(no_lost_wake, a_baton_whose_object_comes_later)
{
	party_make(&store, "a b ab b");
	play("take 1, wait 2, wait 3, take 0, release 1, waits 2, "
	     "granted 3, release 3, release 0, granted 2, release 2");
}

StoreTest(few_wakes, a_thousand_waiters_cost_a_thousand_wakes)
{
	static struct demand demand[WAITERS + 1];
	unsigned i;

	for (i = 0; i <= WAITERS; i++) {
		demand_init(&demand[i], &store, "a");
		demand[i].in_granted = release_in_granted;
		assert_rc(demand_acquire(&demand[i], HWT_NEVER), i > 0);
	}
	demand_release(&demand[0]);
	for (i = 1; i <= WAITERS; i++) {
		assert_told(&demand[i], HWT_GRANTED);
		cr_assert(demand[i].order > demand[i - 1].order);
	}
	assert_u64(store_stats(&store).woken, WAITERS);
	assert_u64(store_stats(&store).waited, WAITERS);
}

/* Pairs that all wait for both: one wake each, and one more at most. */
StoreTest(few_wakes, a_thousand_that_wait_for_the_same_pair)
{
	static struct demand demand[WAITERS + 1];
	uint64_t woken;
	unsigned i;

	for (i = 0; i <= WAITERS; i++) {
		demand_init(&demand[i], &store, "ab");
		demand[i].in_granted = release_in_granted;
		assert_rc(demand_acquire(&demand[i], HWT_NEVER), i > 0);
	}
	demand_release(&demand[0]);
	for (i = 1; i <= WAITERS; i++)
		assert_told(&demand[i], HWT_GRANTED);
	woken = store_stats(&store).woken;
	cr_assert(woken <= 2 * WAITERS, "%" PRIu64, woken);
}

StoreTest(few_wakes, a_grant_without_a_wait_takes_no_memory)
{
	party_make(&store, "hgfedcba");
	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	play("take-ms 0 1000, release 0");
	assert_u64(fault_disarm(), 0);
	assert_u64(store_stats(&store).waited, 0);
}

StoreTest(deadline, it_ends_the_wait_and_not_before_its_time)
{
	party_make(&store, "a a");
	play("take-ms 0 1, wait-ms 1 5");
	(void)fixture_step(&store.fixture, HWT_MS(5) - 1);
	play("waits 1");
	(void)fixture_step(&store.fixture, 1 + FIXTURE_TICK);
	play("expired 1");
	/* The grant has outlived its own delay. */
	play("out 1 0, release 0, expired 1");
	assert_u64(store_stats(&store).expired, 1);
}

StoreTest(deadline, a_grant_in_time_cancels_it)
{
	party_make(&store, "a a");
	play("take 0, wait-ms 1 5, timeouts 1, release 0, granted 1, "
	     "timeouts 0, pass 50, out 1 0, release 1");
}
