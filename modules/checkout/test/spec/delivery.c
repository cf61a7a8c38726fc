/* SPDX-License-Identifier: Apache-2.0 */
/* Where granted runs: on an executor, in a mailbox. */
#include <poll.h>

#include "modules/checkout/test/spec/checkout.h"

SUITE(delivery);

static struct store store;
static struct hwt_request_mailbox *mailbox;

/* The first has object a; each of the others waits for it. */
static void
open_with(const struct hwt_request_executor *executor, const char *members)
{
	const struct hwt_checkout_options options = {.executor = executor};
	unsigned i;

	store_open(&store, &options);
	party_make(&store, members);
	play("take 0");
	for (i = 1; i < (strlen(members) + 1) / 2; i++)
		assert_rc(demand_acquire(&party[i], HWT_NEVER), 1);
}

static void
open_mailbox(const char *members)
{
	assert_rc(hwt_request_mailbox_create(&mailbox), 0);
	open_with(hwt_request_mailbox_executor(mailbox), members);
}

static void
close_mailbox(void)
{
	store_close(&store);
	assert_rc(hwt_request_mailbox_destroy(mailbox), 0);
}

/* A test of a checkout whose granted runs in the mailbox. */
#define MailTest(name, members) \
	TestBetween(open_mailbox(members), close_mailbox(), delivery, name)

static bool
is_readable(void)
{
	struct pollfd fd = {
	    .fd = hwt_request_mailbox_fd(mailbox), .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

static size_t
run_mailbox(size_t max)
{
	size_t told = 99;

	assert_rc(hwt_request_mailbox_run(mailbox, max, &told), 0);
	return told;
}

Test(delivery, granted_runs_when_the_mailbox_does_and_the_objects_are_out)
{

	open_mailbox("a a");
	cr_assert(!(is_readable()));
	play("release 0, waits 1");
	cr_assert(is_readable());
	play("out 1 0, too-late 1, cannot-destroy");
	assert_rc(hwt_request_mailbox_destroy(mailbox), -EBUSY);
	assert_u64(run_mailbox(0), 1);
	play("granted 1");
	cr_assert(!(is_readable()));
	play("release 1");
	close_mailbox();
}

MailTest(each_outcome_goes_there_in_the_order_of_the_ends, "a a a a")
{
	unsigned i;

	play("cancel 2, cancel 1, shutdown");
	for (i = 1; i < 4; i++)
		assert_waits(&party[i]);
	assert_u64(run_mailbox(2), 2);
	play("cancelled 2, cancelled 1");
	assert_u64(party[2].order + 1, party[1].order);
	play("waits 3");
	cr_assert(is_readable());
	assert_u64(run_mailbox(0), 1);
	play("shut-down 3, release 0");
}

/* Released in granted: the next one is told by the next run. */
Test(delivery, a_run_ends_although_granted_goes_on)
{

	open_mailbox("a a a");
	play("releases 1, releases 2, release 0");
	assert_u64(run_mailbox(0), 1);
	play("waits 2");
	cr_assert(is_readable());
	assert_u64(run_mailbox(0), 1);
	play("granted 2");
	close_mailbox();
}

static void
wait_or_release(unsigned index, void *arg)
{
	struct demand *demand = arg;

	if (index == 0) {
		assert_rc(demand_wait(&demand[1], HWT_NEVER), 0);
		return;
	}
	while (store_stats(&store).waiting == 0)
		sleep_ns(HWT_US(100));
	demand_release(&demand[0]);
}

Test(delivery, a_thread_that_waits_needs_no_mailbox)
{

	open_mailbox("a");
	demand_init(&party[1], &store, "a");
	in_parallel(2, wait_or_release, party);
	play("release 1");
	assert_u64(run_mailbox(0), 0);
	close_mailbox();
}

Test(delivery, a_stranger_cannot_run_what_is_in_a_mailbox)
{

	open_mailbox("a a");
	assert_rc(hwt_request_run(store.checkout, &party[0].request), -ENOENT);
	assert_rc(hwt_request_run(store.checkout, &party[1].request), -ENOENT);
	play("release 0");
	assert_rc(hwt_request_run(store.checkout, &party[1].request), -ENOENT);
	play("waits 1");
	assert_u64(run_mailbox(0), 1);
	play("release 1");
	close_mailbox();
}

static int
keep_it(void *ctx, struct hwt_checkout *checkout, struct hwt_request *request)
{
	*(struct hwt_request **)ctx = request;
	cr_assert(checkout == store.checkout);
	return 0;
}

static int
run_it(void *ctx, struct hwt_checkout *checkout, struct hwt_request *request)
{
	(void)ctx;
	assert_rc(hwt_request_run(checkout, request), 0);
	return 0;
}

static int
refuse_it(void *ctx, struct hwt_checkout *checkout, struct hwt_request *request)
{
	(void)ctx;
	(void)checkout;
	(void)request;
	return EAGAIN;
}

Test(delivery, an_executor_runs_it_later_once)
{
	struct hwt_request *kept = NULL;
	const struct hwt_request_executor executor = {keep_it, &kept};

	open_with(&executor, "a a");
	play("release 0, waits 1");
	cr_assert(kept == &party[1].request);
	assert_rc(hwt_request_run(store.checkout, kept), 0);
	play("granted 1");
	assert_rc(hwt_request_run(store.checkout, kept), -ENOENT);
	play("release 1");
	store_close(&store);
}

Test(delivery, an_executor_that_runs_at_once_or_refuses)
{
	const struct hwt_request_executor executors[] = {
	    {run_it, NULL}, {refuse_it, NULL}};
	unsigned i;

	for (i = 0; i < 2; i++) {
		open_with(&executors[i], "a a");
		demand_release(&party[0]);
		assert_told(&party[1], HWT_GRANTED);
		demand_release(&party[1]);
		store_close(&store);
	}
}

static void
use_in_child(void *arg)
{
	struct demand *demand = arg;

	child_rc(hwt_request_mailbox_fd(mailbox), -EOWNERDEAD);
	child_rc(hwt_request_mailbox_run(mailbox, 0, NULL), -EOWNERDEAD);
	child_rc(hwt_request_mailbox_executor(mailbox) == NULL, 1);
	child_rc(
	    hwt_request_run(store.checkout, &demand->request), -EOWNERDEAD);
	child_rc(hwt_request_mailbox_destroy(mailbox), 0);
	child_rc(hwt_request_mailbox_create(&mailbox), 0);
	child_rc(hwt_request_mailbox_run(mailbox, 0, NULL), 0);
	child_rc(hwt_request_mailbox_destroy(mailbox), 0);
}

Test(delivery, EOWNERDEAD_in_a_child)
{

	open_mailbox("a a");
	play("release 0");
	in_child(use_in_child, &party[1]);
	assert_u64(run_mailbox(0), 1);
	play("release 1");
	close_mailbox();
}

Test(delivery, EINVAL_and_EMFILE_ENFILE_ENOMEM)
{
	const struct hwt_request_executor none = {NULL, NULL};
	const struct hwt_checkout_options options = {.executor = &none};
	struct hwt_request_mailbox *box = NULL;
	struct hwt_checkout *made;

	store_open(&store, NULL);
	assert_rc(
	    hwt_checkout_create(&made, store.fixture.timer, &options), -EINVAL);
	store_close(&store);
	assert_rc(hwt_request_mailbox_create(NULL), -EINVAL);
	assert_rc(hwt_request_mailbox_fd(NULL), -EINVAL);
	assert_rc(hwt_request_mailbox_run(NULL, 0, NULL), -EINVAL);
	cr_assert(hwt_request_mailbox_executor(NULL) == NULL);
	assert_rc(hwt_request_mailbox_destroy(NULL), 0);
	assert_rc(hwt_request_run(NULL, NULL), -EINVAL);
	fault_arm_eventfd(EMFILE);
	assert_rc(hwt_request_mailbox_create(&box), -EMFILE);
	fault_arm_eventfd(ENFILE);
	assert_rc(hwt_request_mailbox_create(&box), -ENFILE);
	fault_arm_eventfd(ENODEV);
	assert_rc(hwt_request_mailbox_create(&box), -ENOMEM);
	fault_arm(FAULT_HEAP, 1);
	assert_rc(hwt_request_mailbox_create(&box), -ENOMEM);
	(void)fault_disarm();
	cr_assert(box == NULL);
}
