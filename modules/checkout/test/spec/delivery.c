/* SPDX-License-Identifier: Apache-2.0 */
/* Where granted runs: on an executor, in a mailbox. */
#include <poll.h>

#include "modules/checkout/test/spec/checkout.h"

SUITE(delivery);

static struct store store;
static struct hwt_request_mailbox *mailbox;

/* holder has object a; each of the others waits for it. */
static void
open_with(const struct hwt_request_executor *executor, struct demand *demand,
    unsigned count)
{
	const struct hwt_checkout_options options = {.executor = executor};
	unsigned i;

	store_open(&store, &options);
	for (i = 0; i < count; i++)
		demand_init(&demand[i], &store, "a");
	assert_rc(demand_acquire(&demand[0], HWT_NEVER), 0);
	for (i = 1; i < count; i++)
		assert_rc(demand_acquire(&demand[i], HWT_NEVER), 1);
}

static void
open_mailbox(struct demand *demand, unsigned count)
{
	assert_rc(hwt_request_mailbox_create(&mailbox), 0);
	open_with(hwt_request_mailbox_executor(mailbox), demand, count);
}

static void
close_mailbox(void)
{
	store_close(&store);
	assert_rc(hwt_request_mailbox_destroy(mailbox), 0);
}

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
	static struct demand demand[2];

	open_mailbox(demand, 2);
	cr_assert(!(is_readable()));
	demand_release(&demand[0]);
	assert_waits(&demand[1]);
	cr_assert(is_readable());
	assert_stats(&store, 1, 0);
	assert_rc(demand_cancel(&demand[1]), -ENOENT);
	assert_rc(hwt_checkout_destroy(store.checkout), -EBUSY);
	assert_rc(hwt_request_mailbox_destroy(mailbox), -EBUSY);
	assert_u64(run_mailbox(0), 1);
	assert_told(&demand[1], HWT_GRANTED);
	cr_assert(!(is_readable()));
	demand_release(&demand[1]);
	close_mailbox();
}

Test(delivery, each_outcome_goes_there_in_the_order_of_the_ends)
{
	static struct demand demand[4];
	unsigned i;

	open_mailbox(demand, 4);
	assert_rc(demand_cancel(&demand[2]), 0);
	assert_rc(demand_cancel(&demand[1]), 0);
	assert_rc(hwt_checkout_shutdown(store.checkout), 0);
	for (i = 1; i < 4; i++)
		assert_waits(&demand[i]);
	assert_u64(run_mailbox(2), 2);
	assert_told(&demand[2], HWT_GRANT_CANCELLED);
	assert_told(&demand[1], HWT_GRANT_CANCELLED);
	assert_u64(demand[2].order + 1, demand[1].order);
	assert_waits(&demand[3]);
	cr_assert(is_readable());
	assert_u64(run_mailbox(0), 1);
	assert_told(&demand[3], HWT_GRANT_SHUT_DOWN);
	demand_release(&demand[0]);
	close_mailbox();
}

/* Released in granted: the next one is told by the next run. */
Test(delivery, a_run_ends_although_granted_goes_on)
{
	static struct demand demand[3];

	open_mailbox(demand, 3);
	demand[1].in_granted = release_in_granted;
	demand[2].in_granted = release_in_granted;
	demand_release(&demand[0]);
	assert_u64(run_mailbox(0), 1);
	assert_waits(&demand[2]);
	cr_assert(is_readable());
	assert_u64(run_mailbox(0), 1);
	assert_told(&demand[2], HWT_GRANTED);
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
	static struct demand demand[2];

	open_mailbox(demand, 1);
	demand_init(&demand[1], &store, "a");
	in_parallel(2, wait_or_release, demand);
	demand_release(&demand[1]);
	assert_u64(run_mailbox(0), 0);
	close_mailbox();
}

Test(delivery, a_stranger_cannot_run_what_is_in_a_mailbox)
{
	static struct demand demand[2];

	open_mailbox(demand, 2);
	assert_rc(hwt_request_run(store.checkout, &demand[0].request), -ENOENT);
	assert_rc(hwt_request_run(store.checkout, &demand[1].request), -ENOENT);
	demand_release(&demand[0]);
	assert_rc(hwt_request_run(store.checkout, &demand[1].request), -ENOENT);
	assert_waits(&demand[1]);
	assert_u64(run_mailbox(0), 1);
	demand_release(&demand[1]);
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
	static struct demand demand[2];
	struct hwt_request *kept = NULL;
	const struct hwt_request_executor executor = {keep_it, &kept};

	open_with(&executor, demand, 2);
	demand_release(&demand[0]);
	assert_waits(&demand[1]);
	cr_assert(kept == &demand[1].request);
	assert_rc(hwt_request_run(store.checkout, kept), 0);
	assert_told(&demand[1], HWT_GRANTED);
	assert_rc(hwt_request_run(store.checkout, kept), -ENOENT);
	demand_release(&demand[1]);
	store_close(&store);
}

Test(delivery, an_executor_that_runs_at_once_or_refuses)
{
	static struct demand demand[2];
	const struct hwt_request_executor executors[] = {
	    {run_it, NULL}, {refuse_it, NULL}};
	unsigned i;

	for (i = 0; i < 2; i++) {
		open_with(&executors[i], demand, 2);
		demand_release(&demand[0]);
		assert_told(&demand[1], HWT_GRANTED);
		demand_release(&demand[1]);
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
	static struct demand demand[2];

	open_mailbox(demand, 2);
	demand_release(&demand[0]);
	in_child(use_in_child, &demand[1]);
	assert_u64(run_mailbox(0), 1);
	demand_release(&demand[1]);
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
