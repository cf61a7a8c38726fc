/* SPDX-License-Identifier: Apache-2.0 */
/*
 * in-order: what was refused hold_after times gets each object before all that
 * began to wait for it later.
 */
#include "modules/checkout/test/spec/checkout.h"

SUITE(in_order);

static const struct hwt_checkout_options never = {
    .hold_after = HWT_CHECKOUT_NEVER};

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

/* It holds a and waits for b: it is the first at both. */
CheckoutTestWith(
    in_order, a_set_keeps_its_place_at_each_of_its_objects, .hold_after = 1)
{
	clients("b ab a b");
	play("take 0, wait 1, wait 2, wait 3, release 0, granted 1, "
	     "waits 2, waits 3, release 1, granted 2, granted 3, "
	     "release 2, release 3");
}

CheckoutTestWith(
    in_order, an_object_of_one_that_ends_goes_to_the_next, .hold_after = 1)
{
	clients("b ab a ab");
	play("take 0, wait-ms 1 5, wait 2, wait 3, waits 2, pass 50, "
	     "expired 1, granted 2, release 2, release 0, granted 3, "
	     "release 3");
}

/* Seed 003's pair: each is granted, whichever comes first. */
CheckoutTestWith(in_order, crossed_sets_hold_without_deadlock, .hold_after = 1)
{
	clients("bcd abc cda abc cda");
	play("take 0, wait 1, wait 2, wait 3, wait 4, releases 1, releases 2, "
	     "releases 3, releases 4, release 0, granted 1, granted 2, "
	     "granted 3, granted 4");
}

/* Eight hold an object each, and take it again as soon as they have released
 * it. Answers how many turns it takes until a set of the eight is granted. */
static unsigned
turns_of_eight_hammers(
    const struct hwt_checkout_options *options, unsigned most)
{
	bool has[8] = {false};
	unsigned turn, i;

	checkout_open(options);
	clients("a b c d e f g h abcdefgh");
	for (i = 0; i < 8; i++)
		has[i] = client_try(&client[i]) == 0;
	assert_rc(client_acquire(&client[8], HWT_NEVER), 1);
	for (turn = 0; client[8].calls == 0 && turn < most; turn++) {
		for (i = 0; i < 8; i++) {
			if (has[i])
				assert_ok(client_release(&client[i]));
			has[i] = client_try(&client[i]) == 0;
		}
	}
	for (i = 0; i < 8; i++) {
		if (has[i])
			assert_ok(client_release(&client[i]));
	}
	play("granted 8, release 8");
	checkout_close();
	return turn;
}

Test(in_order, a_set_of_eight_is_granted_among_eight_hammers)
{
	const struct hwt_checkout_options first_come = {.hold_after = 1};

	/* Each turn refuses it once at least, and then gives it an object. */
	cr_assert(turns_of_eight_hammers(NULL, 1000) <= 16 + 8);
	cr_assert(turns_of_eight_hammers(&first_come, 1000) <= 1 + 8);
	assert_u64(turns_of_eight_hammers(&never, 1000), 1000);
}
