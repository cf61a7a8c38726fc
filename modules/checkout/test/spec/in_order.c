/* SPDX-License-Identifier: Apache-2.0 */
/*
 * in-order: what was refused options.hold_after times gets each object before
 * all that began to wait for it later.
 */
#include "modules/checkout/test/spec/checkout.h"

SUITE(in_order);

#define WAITERS 1000

static const struct hwt_checkout_options first_come = {.hold_after = 1};
static struct store store;

StoreTestWith(in_order, first_come_first_served, .hold_after = 1)
{
	static struct demand demand[5];
	unsigned i;

	for (i = 0; i < 5; i++)
		demand_init(&demand[i], &store, "a");
	assert_rc(demand_acquire(&demand[0], HWT_NEVER), 0);
	for (i = 1; i < 5; i++)
		assert_rc(demand_acquire(&demand[i], HWT_NEVER), 1);
	for (i = 1; i < 5; i++) {
		demand_release(&demand[i - 1]);
		assert_told(&demand[i], HWT_GRANTED);
		assert_stats(&store, 1, 4 - i);
	}
	demand_release(&demand[4]);
}

/* What the request of another does while the one that waits is not yet told. */
static struct demand *newcomer;

static void
release_and_try(struct demand *demand)
{
	struct demand *holder = demand->data;

	demand_release(holder);
	/* It is handed over, or free, and whoever waits is told later. */
	demand->rc = demand_try(newcomer);
	demand_release(demand);
}

static int
try_of_a_newcomer(const struct hwt_checkout_options *options)
{
	int rc;

	newcomer = &party[2];
	store_open(&store, options);
	party_make(&store, "a a a b b");
	party[4].in_granted = release_and_try;
	party[4].data = &party[0];
	play("take 0, take 3, wait 1, wait 4, release 3");
	rc = party[4].rc;
	if (rc == 0) {
		assert_waits(&party[1]);
		demand_release(&party[2]);
	}
	play("granted 1, release 1");
	store_close(&store);
	return rc;
}

Test(in_order, a_newcomer_does_not_overtake_one_that_is_not_yet_told)
{
	assert_rc(try_of_a_newcomer(&first_come), -EAGAIN);
	/* And it does where it may, so that this test can see it. */
	assert_rc(try_of_a_newcomer(NULL), 0);
}

static void
release_and_cancel(struct demand *demand)
{
	struct demand *cancelled = demand->data;

	demand_release(newcomer);
	demand->rc = demand_cancel(cancelled);
	demand_release(demand);
}

Test(in_order, what_was_handed_to_one_that_ends_goes_to_the_next)
{
	newcomer = &party[0];
	store_open(&store, &first_come);
	party_make(&store, "a a a b b");
	party[4].in_granted = release_and_cancel;
	party[4].data = &party[1];
	play("take 0, take 3, wait 1, wait 2, wait 4, release 3");
	assert_rc(party[4].rc, 0);
	play("cancelled 1, granted 2, out 1 0, release 2");
	store_close(&store);
}

/* Refused twice, the first is served in order; the others are not yet. It ends
 * with what it was handed, and then one of them is woken, not two. */
Test(in_order, what_is_handed_over_in_vain_wakes_one)
{
	const struct hwt_checkout_options options = {.hold_after = 2};

	newcomer = &party[2];
	store_open(&store, &options);
	party_make(&store, "a a a b b a a");
	party[4].in_granted = release_and_try;
	party[4].data = &party[0];
	play("take 0, take 3, wait 1, wait 4, release 3");
	assert_rc(party[4].rc, 0);
	play("waits 1, wait 5, wait 6");
	party[4].in_granted = release_and_cancel;
	party[4].data = &party[1];
	play("take 3, wait 4, release 3, cancelled 1, granted 5");
	/* inner and first twice each, and second. */
	assert_u64(store_stats(&store).woken, 5);
	play("release 5, granted 6, release 6");
	store_close(&store);
}

/* It keeps a and waits for b: then it is the first at both. */
StoreTestWith(in_order, a_set_keeps_what_it_has_and_its_place, .hold_after = 1)
{
	party_make(&store, "b ab a b");
	play("take 0, wait 1, wait 2, wait 3, release 0, granted 1, "
	     "waits 2, waits 3, release 1, granted 2, granted 3, "
	     "release 2, release 3");
}

/* Each time that a is free, it is refused by b, which is then taken, and the
 * other way round: without an order it would wait for ever. */
static unsigned
refusals_until_granted(
    const struct hwt_checkout_options *options, unsigned most)
{
	struct demand *taken = &party[1], *free = &party[0], *swap;
	unsigned refusals = 1;

	store_open(&store, options);
	party_make(&store, "a b ab");
	assert_rc(demand_try(taken), 0);
	play("wait 2");
	while (refusals < most && demand_try(free) == 0) {
		demand_release(taken);
		swap = taken;
		taken = free;
		free = swap;
		refusals++;
	}
	demand_release(taken);
	play("granted 2, release 2");
	store_close(&store);
	return refusals;
}

Test(in_order, sixteen_refusals_unless_options_say_otherwise)
{
	const struct hwt_checkout_options never = {
	    .hold_after = HWT_CHECKOUT_NEVER};

	/* The 17th is for b: before it there was nothing to keep. */
	assert_u64(refusals_until_granted(NULL, 1000), 17);
	assert_u64(refusals_until_granted(&first_come, 1000), 1);
	assert_u64(refusals_until_granted(&never, 1000), 1000);
}

/* Eight hammers have an object each, and take it again as soon as they have
 * released it. How many turns of all it takes until a set of the eight is
 * granted. */
static unsigned
turns_of_eight_hammers(
    const struct hwt_checkout_options *options, unsigned most)
{
	struct demand hammer[8] = {0};
	struct demand eight = {0};
	bool has[8] = {false};
	unsigned turns = 0, i;

	store_open(&store, options);
	demand_init(&eight, &store, "abcdefgh");
	for (i = 0; i < 8; i++) {
		const char member[] = {(char)('a' + i), 0};

		demand_init(&hammer[i], &store, member);
		has[i] = demand_try(&hammer[i]) == 0;
	}
	assert_rc(demand_acquire(&eight, HWT_NEVER), 1);
	for (; eight.calls == 0 && turns < most; turns++) {
		for (i = 0; i < 8; i++) {
			if (has[i])
				demand_release(&hammer[i]);
			has[i] = demand_try(&hammer[i]) == 0;
		}
	}
	for (i = 0; i < 8; i++) {
		if (has[i])
			demand_release(&hammer[i]);
	}
	assert_told(&eight, HWT_GRANTED);
	demand_release(&eight);
	store_close(&store);
	return turns;
}

Test(in_order, a_set_of_eight_is_granted_among_eight_hammers_by_default)
{
	const struct hwt_checkout_options never = {
	    .hold_after = HWT_CHECKOUT_NEVER};

	/* Each turn refuses it once at least, and then gives it an object. */
	cr_assert(turns_of_eight_hammers(NULL, 1000) <= 16 + 8);
	cr_assert(turns_of_eight_hammers(&first_come, 1000) <= 1 + 8);
	assert_u64(turns_of_eight_hammers(&never, 1000), 1000);
}

StoreTestWith(in_order, a_thousand_wait_for_a_pool_of_fifty, .hold_after = 1)
{
	static struct demand demand[WAITERS];
	static struct demand holder[OBJECTS];
	unsigned i;

	store_group(&store, 0, OBJECTS);
	for (i = 0; i < OBJECTS; i++) {
		demand_init(&holder[i], &store, "*");
		assert_rc(demand_acquire(&holder[i], HWT_NEVER), 0);
	}
	for (i = 0; i < WAITERS; i++) {
		demand_init(&demand[i], &store, "*");
		demand[i].in_granted = release_in_granted;
		assert_rc(demand_acquire(&demand[i], HWT_NEVER), 1);
	}
	for (i = 0; i < OBJECTS; i++)
		demand_release(&holder[i]);
	for (i = 0; i < WAITERS; i++) {
		assert_told(&demand[i], HWT_GRANTED);
		if (i > 0)
			assert_u64(demand[i].order, demand[i - 1].order + 1);
	}
}

static struct demand *cancelled_first, *cancelled_last;

/* Ends what was woken, and then one whose end is reported after the next was
 * woken in its place. */
static void
release_and_cancel_both(struct demand *demand)
{
	demand_release(demand->data);
	demand->rc = demand_cancel(cancelled_first);
	(void)demand_cancel(cancelled_last);
	demand_release(demand);
}

static void
try_the_newcomer(struct demand *demand)
{
	demand->rc = demand_try(newcomer);
}

/* The first at b is not served in order yet, and ends when it was woken; the
 * second at b is. names: b, and both. */
static void
is_next_when_the_first_ends(const char *b, const char *both)
{
	const struct hwt_checkout_options options = {.hold_after = 2};
	struct demand holder_a = {0}, holder_b = {0}, other = {0}, late = {0};
	struct demand first = {0}, second = {0}, last = {0};
	struct demand inner = {.in_granted = release_and_cancel_both};

	newcomer = &late;
	cancelled_first = &first;
	cancelled_last = &last;
	inner.data = &holder_b;
	last.in_granted = try_the_newcomer;
	store_open(&store, &options);
	store_group(&store, 31, 1);
	demand_init(&holder_a, &store, "a");
	demand_init(&holder_b, &store, b);
	demand_init(&other, &store, "c");
	demand_init(&late, &store, b);
	demand_init(&first, &store, b);
	demand_init(&second, &store, both);
	demand_init(&last, &store, "c");
	demand_init(&inner, &store, "c");
	assert_rc(demand_acquire(&holder_a, HWT_NEVER), 0);
	assert_rc(demand_acquire(&holder_b, HWT_NEVER), 0);
	assert_rc(demand_acquire(&other, HWT_NEVER), 0);
	assert_rc(demand_acquire(&second, HWT_NEVER), 1);
	assert_rc(demand_acquire(&first, HWT_NEVER), 1);
	demand_release(&holder_a); /* second has a now, and is refused again */
	assert_rc(demand_acquire(&inner, HWT_NEVER), 1);
	assert_rc(demand_acquire(&last, HWT_NEVER), 1);
	demand_release(&other);
	assert_rc(inner.rc, 0);
	assert_told(&first, HWT_GRANT_CANCELLED);
	assert_told(&last, HWT_GRANT_CANCELLED);
	assert_rc(last.rc, -EAGAIN);
	assert_told(&second, HWT_GRANTED);
	demand_release(&second);
	store_close(&store);
}

Test(in_order, no_newcomer_gets_what_a_woken_one_leaves_to_the_next)
{
	is_next_when_the_first_ends("b", "ab");
	is_next_when_the_first_ends("*", "a*");
}
