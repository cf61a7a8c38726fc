/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of the object manager that this module comes from, Terracotta's of
 * 2010, each by the name that its authors gave it; the fourth is in store.c.
 */
#include "modules/checkout/test/spec/checkout.h"

SUITE(rules);

#define TURNS 3000

/* "If not we have to roll back, i.e. unmark the objects we just marked so far,
 * and add the request to a blocked request queue." */
CheckoutTest(rules, try_to_mark_objects_for_use_and_rollback_on_failure)
{
	clients("c abc ab");
	play("take 0, wait 1");
	/* Requests for a and b can be served meanwhile. */
	play("try 2, release 0, waits 1, release 2, granted 1, release 1");
}

/* "If two requests for objects (A, B and C) and (C, D and A) are processed
 * concurrently": each keeps what it has while it waits for the next. */
CheckoutTestWith(rules, maintain_lock_order, .hold_after = 1)
{
	clients("bcd abc cda");
	play("take 0, wait 2, wait 1, releases 1, releases 2, release 0, "
	     "granted 1, granted 2");
}

static void
come_and_go(unsigned index, void *arg)
{
	struct client *mine = &client[index];
	unsigned turn;
	int rc;

	(void)arg;
	for (turn = 0; turn < TURNS; turn++) {
		rc = client_acquire(mine, HWT_NEVER);
		cr_assert(rc == 0 || rc == 1, "acquire: %d", rc);
		if (rc == 0)
			assert_ok(client_release(mine));
		while (rc == 1 && mine->calls == 0)
			sched_yield();
	}
}

/* "The object C could be checked back in and become available for use, as
 * things are running in parallel. This will lead to a request ending up in the
 * blocked queue when all requested objects are available": it would wait for
 * ever here. The explorer tries each interleaving of smaller programs. */
CheckoutTest(rules, check_change_and_recheck_state)
{
	clients("ac bc bc");
	play("releases 0, releases 1, releases 2");
	in_parallel(3, come_and_go, NULL);
	assert_u64(checkout_stats().granted, 3 * TURNS);
}

static _Atomic uint64_t notified;

static void
collect_garbage(unsigned index, void *arg)
{
	(void)arg;
	if (index == 0) {
		assert_ok(hwt_checkout_pause(checkout, HWT_NEVER));
		notified = 1;
		return;
	}
	while (hwt_checkout_resume(checkout) == -EALREADY)
		sleep_ns(HWT_US(100));
	play("wait 1, waits 1, refused 2");
	assert_u64(notified, 0);
	assert_rc(hwt_checkout_resume(checkout), -EBUSY);
	assert_rc(hwt_checkout_pause(checkout, 0), -EALREADY);
	play("release 0");
	wait_for(&notified, 1);
}

/* "Any currently processing requests should complete, but new requests should
 * be queued up and DGC should be notified." Terracotta's: with one out, a pause
 * waits for its release; then what waited is granted. */
CheckoutTest(rules, pause_and_unpause_the_object_manager_when_needed)
{
	clients("a b c");
	play("take 0");
	in_parallel(2, collect_garbage, NULL);
	play("waits 1, out 0 1, resume, granted 1, release 1");
}
