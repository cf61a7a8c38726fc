/* SPDX-License-Identifier: Apache-2.0 */
/* retire: an object leaves by its holder, and whoever waits for it is told. */
#include "modules/checkout/test/spec/checkout.h"

SUITE(retire);

CheckoutTest(retire, ends_all_waits_for_sets_with_the_object)
{
	clients("ab c bcd bd cd");
	/* Client 2 waits for c, and has b in its set. */
	play("cannot-retire b, take 1, wait 2, wait-ms 4 1000, take 0, "
	     "wait-ms 3 1000, retire b, retired 3, waits 4, release 0, "
	     "release 1");
	assert_u64(client[2].calls, 1);
	assert_u64(client[2].grant, HWT_GRANT_RETIRED);
	play("granted 4, release 4, timeouts 0, out 0 0");
	assert_u64(checkout_stats().retired, 2);
}

CheckoutTest(retire, the_rest_of_the_holders_set_stays_granted)
{
	clients("ab b b");
	play("take 0, wait 1, retire a, holds-none 0, waits 1, refused 2, "
	     "release 0, granted 1, release 1");
}

CheckoutTest(retire, the_memory_is_the_users_at_once)
{
	clients("a a ab");
	play("take 0, wait 1, wait 2, retire a, retired 1, retired 2");
	memset(&thing[0].object, 0xff, sizeof(thing[0].object));
	play("release 0");
	assert_ok(hwt_object_init(checkout, &thing[0].object, 7));
	thing[0].writer = NULL;
	clients("ab");
	play("take 0, release 0");
}
