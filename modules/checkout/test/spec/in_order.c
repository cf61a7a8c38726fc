/* SPDX-License-Identifier: Apache-2.0 */
/*
 * in-order: what was refused hold_after times gets each object before all that
 * began to wait for it later.
 */
#include "modules/checkout/test/spec/checkout.h"

SUITE(in_order);

CheckoutTestWith(in_order, first_come_first_served, .hold_after = 1)
{
	clients("a a a a a");
	play("take 0, wait 1, wait 2, wait 3, wait 4, release 0, granted 1, "
	     "out 1 3, release 1, granted 2, out 1 2, release 2, granted 3, "
	     "release 3, granted 4, release 4");
}

static void
release_and_try(struct client *of)
{
	play("release 0, waits 1");
	client[2].rc = client_try(&client[2]);
	assert_ok(client_release(of));
}

/* Client 4 releases a in its granted; what waits for a is told after that, and
 * the newcomer comes before. */
CheckoutTestWith(
    in_order, a_newcomer_does_not_overtake_who_is_not_yet_told, .hold_after = 1)
{
	clients("a ac a b b");
	client[4].then = release_and_try;
	play("take 0, take 3, wait 1, wait 4, release 3, granted 1, "
	     "release 1");
	assert_rc(client[2].rc, -EAGAIN);
}

CheckoutTest(in_order, who_is_overtaken_keeps_its_place)
{
	clients("a ac a b b a");
	client[4].then = release_and_try;
	play("take 0, take 3, wait 1, wait 5, wait 4, release 3");
	assert_ok(client[2].rc);
	play("waits 1, release 2, granted 1, waits 5, release 1, granted 5, "
	     "release 5");
}

CheckoutTestWith(
    in_order, an_object_of_one_that_ends_goes_to_the_next, .hold_after = 1)
{
	clients("b ab a ab");
	play("take 0, wait-ms 1 5, wait 2, wait 3, waits 2, pass 50, "
	     "expired 1, granted 2, release 2, release 0, granted 3, "
	     "release 3");
}
