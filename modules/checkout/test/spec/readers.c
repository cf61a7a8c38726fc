/* SPDX-License-Identifier: Apache-2.0 */
/* readers: an object is written by one, or read by any number. */
#include "modules/checkout/test/spec/checkout.h"

SUITE(readers);

CheckoutTest(readers, many_read_at_a_time_and_one_writes_alone)
{
	clients("A A A a");
	play(
	    "take 0, take 1, take 2, out 3 0, refused 3, release 1, refused 3, "
	    "release 0, refused 3, release 2, try 3, refused 0, release 3");
}

/* Who comes while a writer waits reads after it. */
CheckoutTest(readers, a_writer_waits_for_those_alone_that_read_already)
{
	clients("A A a A");
	play("take 0, take 1, wait 2, refused 3, wait 3, release 0, wait 0, "
	     "release 1, granted 2, waits 3, release 2, granted 3, granted 0, "
	     "release 0, release 3");
}

CheckoutTest(readers, all_that_wait_before_a_writer_are_granted_together)
{
	clients("a A A a A A");
	play("take 0, wait 1, wait 2, wait 3, wait 4, wait 5, release 0, "
	     "granted 1, granted 2, waits 3, waits 4, release 2, waits 3, "
	     "release 1, granted 3, waits 4, release 3, granted 4, granted 5, "
	     "release 4, release 5");
}

CheckoutTest(
    readers, join_those_that_read_when_the_writer_between_them_gives_up)
{
	clients("A a A A");
	play("take 0, wait 1, wait 2, wait 3, cancel 1, cancelled 1, "
	     "granted 2, granted 3, release 0, release 2, release 3");
	play("take 0, wait-ms 1 5, wait 2, wait 3, pass 50, expired 1, "
	     "granted 2, granted 3, release 0, release 2, release 3");
}

CheckoutTest(readers, an_object_is_retired_by_who_writes_it)
{
	clients("A a AB");
	play("try 0, cannot-retire a, release 0, try 1, wait 2, retire a, "
	     "retired 2, release 1");
}
