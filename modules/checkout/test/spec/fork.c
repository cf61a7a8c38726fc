/* SPDX-License-Identifier: Apache-2.0 */
/* fork: in a child all answers -EOWNERDEAD, and what was made can be freed. */
#include "modules/checkout/test/spec/checkout.h"

SUITE(fork_child);

static void
use_in_child(void *arg)
{
	struct hwt_request *mine = &client[0].request;
	struct hwt_object *object = &thing[0].object;
	struct hwt_checkout_stats stats;
	struct hwt_checkout *made;

	(void)arg;
	child_rc(hwt_checkout_create(&made, manual.timer, NULL), -EOWNERDEAD);
	child_rc(hwt_checkout_shutdown(checkout), -EOWNERDEAD);
	child_rc(hwt_object_init(checkout, object, 0), -EOWNERDEAD);
	child_rc(hwt_object_retire(checkout, object), -EOWNERDEAD);
	child_rc(hwt_group_init(checkout, &group, 0), -EOWNERDEAD);
	child_rc(hwt_group_add(checkout, &group, object), -EOWNERDEAD);
	child_rc(hwt_group_retire(checkout, &group), -EOWNERDEAD);
	child_rc(hwt_checkout_try(checkout, mine), -EOWNERDEAD);
	child_rc(hwt_checkout_acquire(checkout, mine, 1), -EOWNERDEAD);
	child_rc(hwt_checkout_acquire_wait(checkout, mine, 1), -EOWNERDEAD);
	child_rc(hwt_checkout_release(checkout, mine), -EOWNERDEAD);
	child_rc(hwt_checkout_cancel(checkout, mine), -EOWNERDEAD);
	child_rc(hwt_checkout_pause(checkout, 0), -EOWNERDEAD);
	child_rc(hwt_checkout_resume(checkout), -EOWNERDEAD);
	child_rc(hwt_checkout_read_stats(checkout, &stats), -EOWNERDEAD);
	/* Although something is out, and another waits. */
	child_ok(hwt_checkout_destroy(checkout));
	child_ok(hwt_destroy(manual.timer));
}

CheckoutTest(fork_child, EOWNERDEAD_of_each_call_and_destroy_frees)
{
	clients("a a");
	play("take 0, wait-ms 1 1000");
	in_child(use_in_child, NULL);
	play("waits 1, release 0, granted 1, release 1");
}
