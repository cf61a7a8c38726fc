/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pause: when hwt_checkout_pause has answered 0, nothing is out, and nothing is
 * granted before hwt_checkout_resume.
 * no-lock-held: granted may call what it likes, and a chain of grants takes no
 * stack.
 */
#include "modules/checkout/test/spec/checkout.h"

SUITE(pause);
SUITE(no_lock_held);

#define CHAIN 200000

/* Terracotta's: with nothing out it is at once; what comes then waits. With one
 * out: rules.c. */
CheckoutTest(pause, with_nothing_out_it_is_declared_at_once)
{
	clients("a b");
	play("pause, refused 0, wait-ms 0 1000, wait-ms 1 1000, waits 0, "
	     "out 0 2, cannot-destroy, resume, granted 0, granted 1, "
	     "before 0 1, release 0, release 1");
	assert_u64(checkout_stats().pauses, 1);
}

CheckoutTest(pause, that_times_out_leaves_all_as_it_was)
{
	clients("a b a");
	play("take 0, wait 2, pause-late, take 1, release 1, release 0, "
	     "granted 2, release 2");
	assert_rc(hwt_checkout_resume(checkout), -EALREADY);
	assert_u64(checkout_stats().pauses, 0);
}

CheckoutTest(no_lock_held, granted_may_release_and_acquire)
{
	clients("a b a b");
	client[1].script = "release 1, take 1, release 1";
	client[2].script = "release 2, wait 3";
	play("take 0, wait 2, try 1, release 0, granted 2, release 1, "
	     "granted 3, release 3");
}

static void
call_what_waits(struct client *of)
{
	assert_rc(client_wait(&client[2], HWT_NEVER), -EDEADLK);
	assert_rc(hwt_checkout_pause(checkout, HWT_NEVER), -EDEADLK);
	assert_rc(hwt_checkout_destroy(checkout), -EDEADLK);
	assert_ok(client_release(of));
}

CheckoutTest(no_lock_held, EDEADLK_of_a_call_that_waits_in_granted)
{
	clients("a a b");
	client[1].then = call_what_waits;
	play("take 0, wait 1, release 0, granted 1");
}

static struct client chain[2];
static uint64_t grants;
static char *deepest, *highest;

/* Each grant begins the next. */
static void
pass_it_on(struct client *of)
{
	struct client *next = of == &chain[0] ? &chain[1] : &chain[0];
	char here;

	deepest = deepest == NULL || &here < deepest ? &here : deepest;
	highest = &here > highest ? &here : highest;
	if (++grants < CHAIN)
		assert_rc(client_acquire(next, HWT_NEVER), 1);
	assert_ok(client_release(of));
}

CheckoutTest(no_lock_held, a_chain_of_grants_takes_no_stack)
{
	clients("a");
	client_init(&chain[0], "a");
	client_init(&chain[1], "a");
	chain[0].then = pass_it_on;
	chain[1].then = pass_it_on;
	play("take 0");
	assert_rc(client_acquire(&chain[0], HWT_NEVER), 1);
	play("release 0");
	assert_u64(grants, CHAIN);
	cr_assert(highest - deepest < 4096, "%td bytes", highest - deepest);
}
