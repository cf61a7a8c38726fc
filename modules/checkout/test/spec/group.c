/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: equal objects, of which a request takes any one. */
#include "modules/checkout/test/spec/checkout.h"

SUITE(group);

static struct store store;

StoreTest(group, any_one_is_granted_while_one_is_free)
{
	store_group(&store, 0, 2);
	party_make(&store, "* * *");
	play("try 0, try 1");
	cr_assert(demand_got(&party[0], 0) != demand_got(&party[1], 0),
	    "one for two");
	play("refused 2, got-nothing 2, release 1, release 0, "
	     "got-nothing 0, try 2, try 1");
	cr_assert(demand_got(&party[1], 0) != demand_got(&party[2], 0),
	    "one for two");
	play("refused 0, release 2, release 1");
}

/* More than the requests can have slots for. */
StoreTest(group, every_free_member_is_granted_to_whoever_asks)
{
	struct demand demand[OBJECTS] = {0};
	unsigned turn, i;

	store_group(&store, 0, OBJECTS);
	for (i = 0; i < OBJECTS; i++)
		demand_init(&demand[i], &store, "*");
	for (turn = 0; turn < 3; turn++) {
		for (i = 0; i < OBJECTS; i++)
			assert_rc(demand_try(&demand[i]), 0);
		for (i = 0; i < OBJECTS; i++)
			demand_release(&demand[i]);
	}
}

StoreTest(group, a_request_gets_the_member_that_it_released_last)
{
	struct thing *thing;
	unsigned turn;

	store_group(&store, 0, 2);
	party_make(&store, "*");
	play("try 0");
	thing = demand_got(&party[0], 0);
	for (turn = 0; turn < 3; turn++) {
		demand_release(&party[0]);
		assert_rc(demand_try(&party[0]), 0);
		cr_assert(demand_got(&party[0], 0) == thing, "another one");
	}
	play("release 0");
}

StoreTest(group, one_waits_for_any_and_gets_what_is_released)
{
	struct demand demand[3] = {0};
	struct thing *thing;
	unsigned i;

	store_group(&store, 0, 2);
	for (i = 0; i < 3; i++)
		demand_init(&demand[i], &store, "*");
	assert_rc(demand_acquire(&demand[0], HWT_SEC(1)), 0);
	assert_rc(demand_acquire(&demand[1], HWT_SEC(1)), 0);
	assert_rc(demand_acquire(&demand[2], HWT_SEC(1)), 1);
	thing = demand_got(&demand[1], 0);
	demand_release(&demand[1]);
	assert_told(&demand[2], HWT_GRANTED);
	cr_assert(demand_got(&demand[2], 0) == thing, "another one");
	demand_release(&demand[0]);
	demand_release(&demand[2]);
}

StoreTest(group, a_wait_for_any_ends_at_its_deadline)
{
	party_make(&store, "*");
	play("wait-ms 0 5, pass 50, expired 0, got-nothing 0");
}

static void
add_a_member_to(const struct hwt_checkout_options *options)
{
	store_open(&store, options);
	party_make(&store, "* *");
	play("wait 0, wait 1, members 3 1, granted 0, got 0 3, waits 1, "
	     "release 0, granted 1, release 1");
	store_close(&store);
}

Test(group, a_new_member_goes_to_the_first_that_waits)
{
	const struct hwt_checkout_options first_come = {.hold_after = 1};

	add_a_member_to(NULL);
	add_a_member_to(&first_come);
}

StoreTest(group, a_set_has_an_object_and_any_one_or_neither)
{
	store_group(&store, 1, 1);
	party_make(&store, "* a *a");
	play("take 0, wait 2, try 1, release 1, release 0, granted 2, "
	     "got 2 1");
	cr_assert(
	    demand_got(&party[2], 1) == &store.thing[0], "not the object");
	play("refused 1, refused 0, release 2");
}

/* A broken connection is closed, and a new one put in its place. */
StoreTest(group, a_member_is_retired_by_its_holder_and_no_wait_ends)
{
	store_group(&store, 0, 1);
	party_make(&store, "* *");
	play("cannot-retire 0, take 0, wait 1, retire 0, got-nothing 0");
	memset(&store.thing[0], 0xff, sizeof(store.thing[0]));
	assert_rc(hwt_checkout_release(store.checkout, &party[0].request), 0);
	play("waits 1, members 1 1, granted 1, release 1");
	/* The request is as good as before. */
	play("try 0, release 0, forget 0");
}

/* An object leaves the set, and what was granted for it is nobody's. */
StoreTest(group, an_object_that_is_retired_is_not_granted_any_more)
{
	store_group(&store, 1, 1);
	party_make(&store, "a*");
	play("take 0, retire 0, got-nothing 0");
	cr_assert(
	    demand_got(&party[0], 1) == &store.thing[1], "not the member");
	play("release 0, forget 0");
	assert_rc(hwt_checkout_try(store.checkout, &party[0].request), 0);
	play("got-nothing 0");
	cr_assert(
	    demand_got(&party[0], 1) == &store.thing[1], "not the member");
	assert_rc(hwt_checkout_release(store.checkout, &party[0].request), 0);
}

StoreTest(group, a_group_without_members_is_retired_and_ends_the_waits)
{
	store_group(&store, 0, 1);
	party_make(&store, "* *");
	assert_rc(hwt_group_retire(store.checkout, &store.group), -EBUSY);
	play("take 0, wait 1");
	assert_rc(hwt_group_retire(store.checkout, &store.group), -EBUSY);
	play("retire 0, forget 0");
	assert_rc(hwt_group_retire(store.checkout, &store.group), 0);
	play("retired 1");
	assert_rc(hwt_checkout_release(store.checkout, &party[0].request), 0);
	assert_rc(demand_try(&party[0]), -EIDRM);
	assert_rc(hwt_group_retire(store.checkout, &store.group), -EIDRM);
	assert_rc(
	    hwt_group_add(store.checkout, &store.group, &store.thing[1].object),
	    -EIDRM);
}

StoreTest(group, a_pause_delays_what_is_added_and_released)
{
	store_group(&store, 0, 1);
	party_make(&store, "* * *");
	play("take 0, wait 1, pause-late, release 0, granted 1, "
	     "release 1, pause, wait 1, wait 2, members 1 1, waits 1, "
	     "resume, granted 1, granted 2, release 1, release 2");
}

StoreTest(group, EINVAL_of_what_cannot_be_named)
{
	struct hwt_request request;
	struct hwt_object *set[1];
	struct hwt_item twice[2] = {0};
	struct hwt_group raw = {0};

	store_group(&store, 0, 1);
	set[0] = &store.group.any;
	assert_rc(hwt_request_init(&request, set, 1, NULL, NULL), -EINVAL);
	set[0] = &store.thing[0].object;
	assert_rc(hwt_request_init(&request, set, 1, NULL, NULL), -EINVAL);
	twice[0].wanted = &store.thing[0].object;
	assert_rc(
	    hwt_request_init_items(&request, twice, 1, NULL, NULL), -EINVAL);
	twice[0].wanted = &store.group.any;
	twice[1].wanted = &store.group.any;
	assert_rc(
	    hwt_request_init_items(&request, twice, 2, NULL, NULL), -EINVAL);
	assert_rc(
	    hwt_request_init_items(&request, twice, 0, NULL, NULL), -EINVAL);
	assert_rc(
	    hwt_request_init_items(&request, NULL, 1, NULL, NULL), -EINVAL);
	assert_rc(hwt_request_init_items(NULL, twice, 1, NULL, NULL), -EINVAL);
	assert_rc(hwt_group_init(NULL, &raw, 0), -EINVAL);
	assert_rc(hwt_group_init(store.checkout, NULL, 0), -EINVAL);
	assert_rc(hwt_group_add(NULL, &store.group, set[0]), -EINVAL);
	assert_rc(hwt_group_add(store.checkout, NULL, set[0]), -EINVAL);
	assert_rc(hwt_group_add(store.checkout, &raw, set[0]), -EINVAL);
	assert_rc(hwt_group_add(store.checkout, &store.group, NULL), -EINVAL);
	assert_rc(hwt_group_retire(NULL, &store.group), -EINVAL);
	assert_rc(hwt_group_retire(store.checkout, NULL), -EINVAL);
	assert_rc(hwt_group_retire(store.checkout, &raw), -EINVAL);
}

StoreTest(group, hwt_request_init_items_E2BIG_unless_ascending)
{
	struct hwt_request request;
	struct hwt_item items[21] = {0};
	unsigned i;

	for (i = 0; i < 21; i++)
		items[i].wanted = &store.thing[20 - i].object;
	assert_rc(
	    hwt_request_init_items(&request, items, 21, NULL, NULL), -E2BIG);
	assert_rc(hwt_request_init_items(&request, items, 20, NULL, NULL), 0);
	for (i = 0; i < 20; i++)
		items[i].wanted = &store.thing[i].object;
	items[20].wanted = &store.group.any;
	assert_rc(hwt_request_init_items(&request, items, 21, NULL, NULL), 0);
	assert_rc(hwt_checkout_try(store.checkout, &request), -EAGAIN);
	store_group(&store, 30, 1);
	assert_rc(hwt_checkout_try(store.checkout, &request), 0);
	cr_assert(items[20].granted == &store.thing[30].object, "its member");
	cr_assert(items[7].granted == &store.thing[7].object, "its object");
	assert_rc(hwt_checkout_release(store.checkout, &request), 0);
}
