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
	struct demand holder = {0};
	struct demand waiter = {0};

	demand_init(&holder, &store, "a");
	demand_init(&waiter, &store, "a");
	assert_rc(demand_acquire(&holder, HWT_SEC(1)), 0);
	assert_rc(demand_acquire(&waiter, HWT_MS(5)), 1);
	assert_rc(demand_cancel(&waiter), 0);
	assert_told(&waiter, HWT_GRANT_CANCELLED);
	assert_rc(
	    hwt_checkout_cancel(store.checkout, &waiter.request), -ENOENT);
	(void)fixture_step(&store.fixture, HWT_MS(50));
	demand_release(&holder);
	assert_told(&waiter, HWT_GRANT_CANCELLED);
	/* And it can be used again. */
	assert_rc(demand_acquire(&waiter, HWT_MS(5)), 0);
	demand_release(&waiter);
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
	struct demand a = {0};
	struct demand b = {0};
	struct demand both = {0};
	struct demand last = {0};

	demand_init(&a, &store, "a");
	demand_init(&b, &store, "b");
	demand_init(&both, &store, "ab");
	demand_init(&last, &store, "a");
	assert_rc(demand_acquire(&a, HWT_NEVER), 0);
	assert_rc(demand_acquire(&b, HWT_NEVER), 0);
	assert_rc(demand_acquire(&both, HWT_NEVER), 1);
	assert_rc(demand_acquire(&last, HWT_NEVER), 1);
	demand_release(&a);
	assert_waits(&both);
	assert_told(&last, HWT_GRANTED);
	demand_release(&last);
	demand_release(&b);
	assert_told(&both, HWT_GRANTED);
	demand_release(&both);
}

/* The one that is woken cannot reach the object: a is taken meanwhile. */
StoreTest(no_lost_wake, a_baton_whose_object_comes_later)
{
	struct demand a = {0};
	struct demand b = {0};
	struct demand both = {0};
	struct demand last = {0};

	demand_init(&a, &store, "a");
	demand_init(&b, &store, "b");
	demand_init(&both, &store, "ab");
	demand_init(&last, &store, "b");
	assert_rc(demand_acquire(&b, HWT_NEVER), 0);
	assert_rc(demand_acquire(&both, HWT_NEVER), 1);
	assert_rc(demand_acquire(&last, HWT_NEVER), 1);
	assert_rc(demand_acquire(&a, HWT_NEVER), 0);
	demand_release(&b);
	assert_waits(&both);
	assert_told(&last, HWT_GRANTED);
	demand_release(&last);
	demand_release(&a);
	assert_told(&both, HWT_GRANTED);
	demand_release(&both);
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
	struct demand one = {0};

	demand_init(&one, &store, "hgfedcba");
	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	assert_rc(demand_acquire(&one, HWT_SEC(1)), 0);
	demand_release(&one);
	assert_u64(fault_disarm(), 0);
	assert_u64(store_stats(&store).waited, 0);
}

StoreTest(deadline, it_ends_the_wait_and_not_before_its_time)
{
	struct demand holder = {0};
	struct demand waiter = {0};

	demand_init(&holder, &store, "a");
	demand_init(&waiter, &store, "a");
	assert_rc(demand_acquire(&holder, HWT_MS(1)), 0);
	assert_rc(demand_acquire(&waiter, HWT_MS(5)), 1);
	(void)fixture_step(&store.fixture, HWT_MS(5) - 1);
	assert_waits(&waiter);
	(void)fixture_step(&store.fixture, 1 + FIXTURE_TICK);
	assert_told(&waiter, HWT_GRANT_EXPIRED);
	/* The grant has outlived its own delay. */
	assert_stats(&store, 1, 0);
	demand_release(&holder);
	assert_told(&waiter, HWT_GRANT_EXPIRED);
	assert_u64(store_stats(&store).expired, 1);
}

StoreTest(deadline, a_grant_in_time_cancels_it)
{
	struct demand holder = {0};
	struct demand waiter = {0};

	demand_init(&holder, &store, "a");
	demand_init(&waiter, &store, "a");
	assert_rc(demand_acquire(&holder, HWT_NEVER), 0);
	assert_rc(demand_acquire(&waiter, HWT_MS(5)), 1);
	assert_u64(hwt_pending_timeouts(store.fixture.timer), 1);
	demand_release(&holder);
	assert_told(&waiter, HWT_GRANTED);
	assert_u64(hwt_pending_timeouts(store.fixture.timer), 0);
	(void)fixture_step(&store.fixture, HWT_MS(50));
	assert_stats(&store, 1, 0);
	demand_release(&waiter);
}
