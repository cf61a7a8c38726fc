/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole: a granted request holds all its objects, a waiting one none.
 * one-holder: no object is in two granted requests.
 */
#include "modules/checkout/test/spec/checkout.h"

SUITE(whole);
SUITE(one_holder);

static struct store store;

StoreTest(whole, a_free_set_is_granted_at_once)
{
	party_make(&store, "ca");
	play("take-ms 0 1000, out 1 0, waits 0, timeouts 0, release 0");
}

/* Terracotta's: one has B; who wants A and B waits, and then gets both. */
StoreTest(whole, one_of_two_is_held_by_another)
{
	party_make(&store, "b ab a");
	play("take-ms 0 1000, wait-ms 1 1000, waits 1, out 1 1");
	/* It holds nothing. */
	play("try 2, release 2, release 0, granted 1, out 1 0, refused 2, "
	     "refused 0, release 1");
}

StoreTest(whole, try_that_is_refused_holds_nothing)
{
	party_make(&store, "c abc ab");
	play("try 0, refused 1, try 2, release 2, release 0, try 1, "
	     "release 1");
}

/* After one refusal it keeps a, until it has b too. */
StoreTestWith(whole, hold_after_keeps_what_it_has, .hold_after = 1)
{
	party_make(&store, "b ab a");
	play("take-ms 0 1000, wait-ms 1 1000, refused 2, out 1 1");
	assert_u64(store_stats(&store).granted, 1);
	play("release 0, granted 1, out 1 0, release 1, try 2, release 2");
	/* What it keeps is free again when its wait ends. */
	play("take-ms 0 1000, wait-ms 1 1000, pause-late, cancel 1, "
	     "cancelled 1, out 1 0");
	assert_u64(store_stats(&store).granted, 4);
	play("try 2, release 2, release 0");
}

/* The two objects are taken in turns, so that it is refused each time that one
 * is returned. */
static unsigned
refusals_until_it_keeps_a(const char *taken_first)
{
	const struct hwt_checkout_options options = {.hold_after = 255};
	struct demand one = {0};
	struct demand other = {0};
	struct demand both = {0};
	struct demand *taken = &one, *free = &other, *swap;
	unsigned refusals = 1;

	store_open(&store, &options);
	demand_init(taken, &store, taken_first);
	demand_init(free, &store, *taken_first == 'a' ? "b" : "a");
	demand_init(&both, &store, "ab");
	assert_rc(hwt_checkout_try(store.checkout, &taken->request), 0);
	assert_rc(demand_acquire(&both, HWT_SEC(1)), 1);
	while (refusals < 1000 &&
	    hwt_checkout_try(store.checkout, &free->request) == 0) {
		assert_rc(
		    hwt_checkout_release(store.checkout, &taken->request), 0);
		assert_waits(&both);
		swap = taken;
		taken = free;
		free = swap;
		refusals++;
	}
	assert_rc(hwt_checkout_release(store.checkout, &taken->request), 0);
	assert_told(&both, HWT_GRANTED);
	demand_release(&both);
	store_close(&store);
	return refusals;
}

Test(whole, hold_after_has_up_to_255_refusals)
{
	/* The 255th is for b. */
	assert_u64(refusals_until_it_keeps_a("b"), 255);
	/* It is for a, so that there is nothing to keep before the 256th. */
	assert_u64(refusals_until_it_keeps_a("a"), 256);
}

static void
plain_transfers(unsigned index, void *arg)
{
	struct demand *demand = arg;
	struct demand *mine = &demand[index];
	unsigned turn;

	for (turn = 0; turn < 2000; turn++) {
		assert_rc(demand_wait(mine, HWT_NEVER), 0);
		demand_release(mine);
	}
}

/* The holder fields are plain: see also test/stress/checkout_race.c. */
StoreTest(one_holder, crossed_sets_in_four_threads)
{
	static const char *const sets[] = {"abc", "cda", "bd", "dcba"};
	static struct demand demand[4];
	unsigned i;

	for (i = 0; i < 4; i++)
		demand_init(&demand[i], &store, sets[i]);
	in_parallel(4, plain_transfers, demand);
	assert_u64(store_stats(&store).granted, 8000);
}
