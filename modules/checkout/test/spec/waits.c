/* SPDX-License-Identifier: Apache-2.0 */
/*
 * once: granted is called once for each wait.
 * no-lost-wake: nobody waits while all its objects are free.
 * few-wakes: a release wakes one.
 * deadline: it ends a wait, never a grant, and never early.
 */
#include "modules/checkout/test/spec/checkout.h"

SUITE(once);
SUITE(no_lost_wake);
SUITE(few_wakes);
SUITE(deadline);

#define WAITERS 1000

CheckoutTest(once, a_wait_that_has_ended_does_not_end_again)
{
	clients("a a");
	play("take-ms 0 1000, wait-ms 1 5, cancel 1, cancelled 1, too-late 1, "
	     "pass 50, release 0, cancelled 1");
	play("take 0, wait-ms 1 5, release 0, granted 1, too-late 1, pass 50, "
	     "granted 1, release 1");
	/* And the request can be used again. */
	play("take 1, release 1, waits 1");
}

/* The request for {a, b} took a for a moment, and could not have b. */
CheckoutTest(no_lost_wake, a_rollback_wakes_who_waits_for_the_object)
{
	clients("a b ab a");
	play("take 0, take 1, wait 2, wait 3, release 0, waits 2, granted 3, "
	     "release 3, release 1, granted 2, release 2");
}

/* It is woken at b, and then waits at a, which comes before it. */
CheckoutTest(no_lost_wake, a_wake_up_is_handed_on_by_who_then_waits_elsewhere)
{
	clients("a b ab b");
	play("take 1, wait 2, wait 3, take 0, release 1, waits 2, granted 3, "
	     "release 3, release 0, granted 2, release 2");
}

CheckoutTest(no_lost_wake, a_wake_up_is_handed_on_by_who_ends)
{
	clients("a ab b b");
	/* It was woken at b, waits at a, and others have come behind it. */
	play("take 2, wait 1, take 0, wait 3, release 2, granted 3, "
	     "release 3, take 2, wait 3, cancel 1, cancelled 1, release 2, "
	     "granted 3, release 3, release 0");
}

CheckoutTest(few_wakes, a_thousand_waiters_on_one_object_cost_a_thousand_wakes)
{
	static struct client waiter[WAITERS + 1];
	unsigned i;

	for (i = 0; i <= WAITERS; i++) {
		client_init(&waiter[i], "a");
		waiter[i].then = release_in_granted;
		assert_rc(client_acquire(&waiter[i], HWT_NEVER), i > 0);
	}
	assert_ok(client_release(&waiter[0]));
	for (i = 1; i <= WAITERS; i++) {
		assert_u64(waiter[i].calls, 1);
		cr_assert(waiter[i].turn > waiter[i - 1].turn);
	}
	cr_assert(checkout_stats().woken <= WAITERS);
	assert_u64(checkout_stats().waited, WAITERS);
}

CheckoutTest(few_wakes, a_grant_without_a_wait_takes_no_memory_and_no_timeout)
{
	clients("hgfedcba");
	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	play("take-ms 0 1000, timeouts 0, release 0");
	assert_u64(fault_disarm(), 0);
	assert_u64(checkout_stats().waited, 0);
}

CheckoutTest(deadline, ends_the_wait_and_not_before_its_delay_has_passed)
{
	clients("a a");
	play("take-ms 0 1, wait-ms 1 5");
	(void)manual_step(HWT_MS(5) - 1);
	play("waits 1");
	(void)manual_step(1 + FIXTURE_TICK);
	play("expired 1, timeouts 0");
	/* The grant has outlived its own delay, and cancels that of a wait. */
	play("out 1 0, wait-ms 1 5, timeouts 1, release 0, granted 1, "
	     "timeouts 0, pass 50, out 1 0, release 1");
	assert_u64(checkout_stats().expired, 1);
}
