/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: equal objects, of which a request takes any one. */
#include "modules/checkout/test/spec/checkout.h"

SUITE(group);

static struct store store;

StoreTest(group, any_one_is_granted_while_one_is_free)
{
	struct demand one = {0};
	struct demand two = {0};
	struct demand three = {0};

	store_group(&store, 0, 2);
	demand_init(&one, &store, "*");
	demand_init(&two, &store, "*");
	demand_init(&three, &store, "*");
	assert_rc(demand_try(&one), 0);
	assert_rc(demand_try(&two), 0);
	cr_assert(demand_got(&one, 0) != demand_got(&two, 0), "one for two");
	assert_rc(demand_try(&three), -EAGAIN);
	cr_assert(demand_got(&three, 0) == NULL, "refused, and has something");
	demand_release(&two);
	demand_release(&one);
	cr_assert(demand_got(&one, 0) == NULL, "released, and has something");
	assert_rc(demand_try(&three), 0);
	assert_rc(demand_try(&two), 0);
	cr_assert(demand_got(&two, 0) != demand_got(&three, 0), "one for two");
	assert_rc(demand_try(&one), -EAGAIN);
	demand_release(&three);
	demand_release(&two);
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
	struct demand one = {0};
	struct thing *thing;
	unsigned turn;

	store_group(&store, 0, 2);
	demand_init(&one, &store, "*");
	assert_rc(demand_try(&one), 0);
	thing = demand_got(&one, 0);
	for (turn = 0; turn < 3; turn++) {
		demand_release(&one);
		assert_rc(demand_try(&one), 0);
		cr_assert(demand_got(&one, 0) == thing, "another one");
	}
	demand_release(&one);
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
	struct demand waiter = {0};

	demand_init(&waiter, &store, "*");
	assert_rc(demand_acquire(&waiter, HWT_MS(5)), 1);
	(void)fixture_step(&store.fixture, HWT_MS(50));
	assert_told(&waiter, HWT_GRANT_EXPIRED);
	cr_assert(demand_got(&waiter, 0) == NULL, "expired with something");
}

static void
add_a_member_to(const struct hwt_checkout_options *options)
{
	struct demand first = {0};
	struct demand second = {0};

	store_open(&store, options);
	demand_init(&first, &store, "*");
	demand_init(&second, &store, "*");
	assert_rc(demand_acquire(&first, HWT_NEVER), 1);
	assert_rc(demand_acquire(&second, HWT_NEVER), 1);
	store_group(&store, 3, 1);
	assert_told(&first, HWT_GRANTED);
	cr_assert(demand_got(&first, 0) == &store.thing[3], "not the new one");
	assert_waits(&second);
	demand_release(&first);
	assert_told(&second, HWT_GRANTED);
	demand_release(&second);
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
	struct demand member = {0};
	struct demand object = {0};
	struct demand both = {0};

	store_group(&store, 1, 1);
	demand_init(&member, &store, "*");
	demand_init(&object, &store, "a");
	demand_init(&both, &store, "*a");
	assert_rc(demand_acquire(&member, HWT_NEVER), 0);
	assert_rc(demand_acquire(&both, HWT_NEVER), 1);
	assert_rc(demand_try(&object), 0);
	demand_release(&object);
	demand_release(&member);
	assert_told(&both, HWT_GRANTED);
	cr_assert(demand_got(&both, 0) == &store.thing[1], "not the member");
	cr_assert(demand_got(&both, 1) == &store.thing[0], "not the object");
	assert_rc(demand_try(&object), -EAGAIN);
	assert_rc(demand_try(&member), -EAGAIN);
	demand_release(&both);
}

/* A broken connection is closed, and a new one put in its place. */
StoreTest(group, a_member_is_retired_by_its_holder_and_no_wait_ends)
{
	struct demand holder = {0};
	struct demand waiter = {0};

	store_group(&store, 0, 1);
	demand_init(&holder, &store, "*");
	demand_init(&waiter, &store, "*");
	assert_rc(
	    hwt_object_retire(store.checkout, &store.thing[0].object), -EPERM);
	assert_rc(demand_acquire(&holder, HWT_NEVER), 0);
	assert_rc(demand_acquire(&waiter, HWT_NEVER), 1);
	assert_rc(hwt_object_retire(store.checkout, &store.thing[0].object), 0);
	cr_assert(demand_got(&holder, 0) == NULL, "it has what is retired");
	memset(&store.thing[0], 0xff, sizeof(store.thing[0]));
	assert_rc(hwt_checkout_release(store.checkout, &holder.request), 0);
	assert_waits(&waiter);
	store_group(&store, 1, 1);
	assert_told(&waiter, HWT_GRANTED);
	demand_release(&waiter);
	/* The request is as good as before. */
	assert_rc(demand_try(&holder), 0);
	demand_release(&holder);
	store.thing[0].holder = NULL;
}

/* An object leaves the set, and what was granted for it is nobody's. */
StoreTest(group, an_object_that_is_retired_is_not_granted_any_more)
{
	struct demand both = {0};

	store_group(&store, 1, 1);
	demand_init(&both, &store, "a*");
	assert_rc(demand_acquire(&both, HWT_NEVER), 0);
	assert_rc(hwt_object_retire(store.checkout, &store.thing[0].object), 0);
	cr_assert(demand_got(&both, 0) == NULL, "it has what is retired");
	cr_assert(demand_got(&both, 1) == &store.thing[1], "not the member");
	demand_release(&both);
	store.thing[0].holder = NULL;
	assert_rc(hwt_checkout_try(store.checkout, &both.request), 0);
	cr_assert(demand_got(&both, 0) == NULL, "it has what is retired");
	cr_assert(demand_got(&both, 1) == &store.thing[1], "not the member");
	assert_rc(hwt_checkout_release(store.checkout, &both.request), 0);
}

StoreTest(group, a_group_without_members_is_retired_and_ends_the_waits)
{
	struct demand holder = {0};
	struct demand waiter = {0};

	store_group(&store, 0, 1);
	demand_init(&holder, &store, "*");
	demand_init(&waiter, &store, "*");
	assert_rc(hwt_group_retire(store.checkout, &store.group), -EBUSY);
	assert_rc(demand_acquire(&holder, HWT_NEVER), 0);
	assert_rc(demand_acquire(&waiter, HWT_NEVER), 1);
	assert_rc(hwt_group_retire(store.checkout, &store.group), -EBUSY);
	assert_rc(hwt_object_retire(store.checkout, &store.thing[0].object), 0);
	store.thing[0].holder = NULL;
	assert_rc(hwt_group_retire(store.checkout, &store.group), 0);
	assert_told(&waiter, HWT_GRANT_RETIRED);
	assert_rc(hwt_checkout_release(store.checkout, &holder.request), 0);
	assert_rc(demand_try(&holder), -EIDRM);
	assert_rc(hwt_group_retire(store.checkout, &store.group), -EIDRM);
	assert_rc(
	    hwt_group_add(store.checkout, &store.group, &store.thing[1].object),
	    -EIDRM);
}

StoreTest(group, a_pause_delays_what_is_added_and_released)
{
	struct demand holder = {0};
	struct demand waiter = {0};
	struct demand late = {0};

	store_group(&store, 0, 1);
	demand_init(&holder, &store, "*");
	demand_init(&waiter, &store, "*");
	demand_init(&late, &store, "*");
	assert_rc(demand_acquire(&holder, HWT_NEVER), 0);
	assert_rc(demand_acquire(&waiter, HWT_NEVER), 1);
	assert_rc(hwt_checkout_pause(store.checkout, 0), -ETIMEDOUT);
	demand_release(&holder);
	assert_told(&waiter, HWT_GRANTED);
	demand_release(&waiter);
	assert_rc(hwt_checkout_pause(store.checkout, 0), 0);
	assert_rc(demand_acquire(&waiter, HWT_NEVER), 1);
	assert_rc(demand_acquire(&late, HWT_NEVER), 1);
	store_group(&store, 1, 1);
	assert_waits(&waiter);
	assert_rc(hwt_checkout_resume(store.checkout), 0);
	assert_told(&waiter, HWT_GRANTED);
	assert_told(&late, HWT_GRANTED);
	demand_release(&waiter);
	demand_release(&late);
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
