/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whole: a granted request holds all its objects, a waiting one none, until
 * hold_after lets it.
 * one-holder: no object is in two granted requests, unless both read it; with
 * threads: test/stress/checkout_race.c.
 */
#include "modules/checkout/test/spec/checkout.h"

SUITE(whole);
SUITE(one_holder);

CheckoutTest(whole, a_free_set_is_granted_at_once)
{
	clients("ca ac");
	play("take-ms 0 1000, out 1 0, timeouts 0, holds 0 c, refused 1, "
	     "release 0, holds-none 0, try 1, release 1, waits 0");
}

/* Terracotta's: one holds B; who wants A and B waits, and then gets both. */
CheckoutTest(whole, held_by_one_a_set_waits_and_then_gets_exactly_both)
{
	clients("b ab a b");
	play("take 0, wait 1, waits 1, out 1 1, holds-none 1, "
	     "release 0, granted 1, out 1 0, refused 2, refused 3, "
	     "release 1, try 2, try 3, release 2, release 3");
	cr_assert(client_holds(&client[1], 1) == NULL);
}

/* As a snapshot of many objects wants them: they are not sorted, but given in
 * ascending order. */
CheckoutTest(whole, a_set_of_more_than_HWT_SORTED_MAX_waits_and_is_granted)
{
	clients("y abcdefghijklmnopqrstuvwxyz az");
	play("take 0, wait 1, waits 1, out 1 1, holds-none 1, release 0, "
	     "granted 1, out 1 0, refused 0, refused 2");
	cr_assert_eq(hwt_object_retire(checkout, &thing[3].object), -E2BIG);
	play("release 1, try 2, release 2");
}

/* After one refusal it keeps a, until it has b too, or its wait ends. */
CheckoutTestWith(whole, a_set_holds_while_it_waits_after_hold_after_refusals,
    .hold_after = 1)
{
	clients("b ab a");
	play("take 0, wait-ms 1 1000, refused 2, out 1 1, release 0, "
	     "granted 1, release 1, try 2, release 2");
	play("take 0, wait-ms 1 5, refused 2, pass 50, expired 1, try 2, "
	     "release 2, wait 1, refused 2, cancel 1, cancelled 1, try 2, "
	     "release 2, release 0");
}

/* a and b are taken by turns, so that each release refuses it once more. */
static uint64_t
refusals_before_a_set_holds(uint32_t hold_after, uint64_t most)
{
	struct client *taken = &client[1], *other = &client[0], *swap;
	uint64_t refusals = 1;

	checkout_open(&(struct hwt_checkout_options){.hold_after = hold_after});
	clients("a b ab");
	play("take 1, wait 2");
	while (refusals < most && client_try(other) == 0) {
		assert_ok(client_release(taken));
		play("waits 2");
		swap = taken;
		taken = other;
		other = swap;
		refusals++;
	}
	assert_ok(client_release(taken));
	play("granted 2, release 2");
	checkout_close();
	return refusals;
}

Test(whole, a_set_holds_after_16_refusals_unless_options_say_otherwise)
{
	/* The one that counts may be for the object that it would hold. */
	cr_assert(refusals_before_a_set_holds(0, 1000) - 16 <= 1);
	cr_assert(refusals_before_a_set_holds(255, 1000) - 255 <= 1);
	cr_assert(refusals_before_a_set_holds(2, 1000) - 2 <= 1);
	assert_u64(refusals_before_a_set_holds(HWT_CHECKOUT_NEVER, 1000), 1000);
}

CheckoutTest(one_holder, of_crossed_sets_one_is_granted_at_a_time)
{
	clients("abc cda bd dcba");
	play("take 0, refused 1, refused 2, wait 1, wait 3, refused 2, "
	     "releases 1, releases 3, release 0, granted 1, granted 3, "
	     "take 2, release 2");
}
