/* SPDX-License-Identifier: Apache-2.0 */
/* groups: equal objects, of which a request takes any one. */
#include "modules/checkout/test/spec/checkout.h"

SUITE(groups);

CheckoutTest(groups, any_member_is_granted_while_one_is_free)
{
	clients("* * *");
	play("member a, member b, try 0, try 1, refused 2, holds-none 2, "
	     "release 1, release 0, holds-none 0, try 2, try 1, refused 0, "
	     "release 2, release 1");
}

CheckoutTest(groups, who_waits_for_any_gets_what_is_released)
{
	clients("* * * *");
	play("member a, member b, take 0, take 1, wait-ms 2 1000, wait 3, "
	     "release 1, granted 2, waits 3, release 0, granted 3, before 2 3, "
	     "release 2, release 3");
}

CheckoutTest(groups, a_set_gets_its_object_and_any_or_neither)
{
	clients("* a *a b");
	play("member b, take 0, wait 2, try 1, release 1, release 0, "
	     "granted 2, holds 2 b, refused 1, refused 0, release 2");
	assert_u64(client[2].calls, 1);
}

/* A broken connection is closed, and a new one put in its place. */
CheckoutTest(groups, a_member_is_retired_by_its_holder_and_no_wait_ends)
{
	clients("* *");
	play("member a, cannot-retire a, take 0, wait 1, retire a, "
	     "holds-none 0");
	memset(&thing[0], 0xff, sizeof(thing[0].object));
	play("release 0, waits 1, member b, granted 1, release 1, try 0, "
	     "release 0");
}

CheckoutTest(groups, without_members_it_is_retired_and_ends_the_waits)
{
	uint64_t mine;

	clients("* * a");
	play("member a, take 0, wait 1");
	assert_rc(hwt_group_retire(checkout, &group), -EBUSY);
	play("retire a, waits 1");
	assert_ok(hwt_group_retire(checkout, &group));
	/* What looks like an object that is released: the memory is the user's
	 * before that. */
	mine = (uint64_t)(uintptr_t)&client[0].request | 1;
	group.any.private_words[0] = mine;
	play("release 0, retired 1, out 0 0");
	assert_u64(group.any.private_words[0], mine);
}
