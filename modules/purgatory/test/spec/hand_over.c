/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hand_over: what ends goes to its executor outside of other callbacks, stays
 * with the mailbox that has it, and shutdown waits for execute.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <stdlib.h>

SUITE(hand_over);

#define CHAIN 100000u

static struct yard yard;
static struct gate gate;
static uint64_t next_key, depth, depth_max, dones, opened;

/* A chain of executors: each checks the next key. */

static bool
is_open(hwt_operation operation, void *arg)
{
	(void)operation;
	(void)arg;
	return opened != 0;
}

static void
count_done(hwt_operation operation, void *arg, enum hwt_outcome outcome)
{
	(void)operation;
	(void)arg;
	dones += outcome == HWT_COMPLETED;
}

static int
check_next(void *ctx, struct hwt_purgatory *purgatory, hwt_operation operation)
{
	(void)ctx;
	if (++depth > depth_max)
		depth_max = depth;
	(void)check(&yard, KEY(++next_key));
	assert_rc(hwt_operation_run(purgatory, operation), 0);
	depth--;
	return 0;
}

YardTest(hand_over, a_chain_through_execute_needs_no_stack)
{
	static const struct hwt_operation_executor executor = {
	    check_next, NULL};
	struct hwt_key key;
	const struct hwt_operation_spec spec = {.try_complete = is_open,
	    .done = count_done,
	    .keys = &key,
	    .key_count = 1,
	    .delay_ns = HWT_NEVER,
	    .executor = &executor};
	uint64_t i;

	for (i = 0; i < CHAIN; i++) {
		key = KEY(i);
		assert_rc(hwt_purgatory_watch(yard.purgatory, NULL, &spec), 0);
	}
	opened = 1;
	assert_u64(check(&yard, KEY(0)), 1);
	assert_u64(dones, CHAIN);
	assert_u64(depth_max, 1);
}

/* An executor that takes its time, and refuses in the end. */

static int
pass_and_refuse(
    void *ctx, struct hwt_purgatory *purgatory, hwt_operation operation)
{
	(void)purgatory;
	(void)operation;
	gate_pass(&gate);
	return *(int *)ctx;
}

static void *
cancel_first(void *arg)
{
	(void)arg;
	assert_u64(cancel_key(&yard, KEY(1)), 1);
	return NULL;
}

static _Atomic uint64_t over;

static void *
shut_down(void *arg)
{
	(void)arg;
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
	over = 1;
	return NULL;
}

static void
wait_for_execute(int answer)
{
	const struct hwt_operation_executor executor = {
	    pass_and_refuse, &answer};
	struct operation operation = {.yard = &yard, .executor = &executor};
	pthread_t first, second;

	yard_open(&yard, NULL);
	gate_init(&gate);
	over = 0;
	assert_rc(watch_key(&operation, KEY(1), HWT_SEC(1)), 0);
	assert_rc(pthread_create(&first, NULL, cancel_first, NULL), 0);
	gate_await(&gate);
	assert_rc(pthread_create(&second, NULL, shut_down, NULL), 0);
	/* It has closed when a watch is refused. */
	while (watch_key(&(struct operation){.yard = &yard, .holds = 1}, KEY(2),
		   HWT_NEVER) == 1)
		continue;
	assert_u64(over, 0);
	gate_open(&gate);
	assert_rc(pthread_join(second, NULL), 0);
	if (answer != 0)
		assert_ended(&operation, HWT_CANCELLED);
	assert_rc(pthread_join(first, NULL), 0);
	if (answer == 0)
		assert_rc(
		    hwt_operation_run(yard.purgatory, operation.handle), 0);
	assert_ended(&operation, HWT_CANCELLED);
	yard_close(&yard);
}

Test(hand_over, shutdown_waits_for_an_execute_that_takes)
{
	wait_for_execute(0);
}

Test(hand_over, shutdown_waits_for_the_done_of_one_that_refuses)
{
	wait_for_execute(-1);
}

Test(hand_over, a_stranger_cannot_run_what_is_in_a_mailbox)
{
	struct hwt_operation_mailbox *mailbox;
	struct operation operation[10];
	size_t count = 0;
	unsigned i;

	assert_rc(hwt_operation_mailbox_create(&mailbox), 0);
	yard_open(&yard, NULL);
	for (i = 0; i < 10; i++) {
		operation[i] = (struct operation){.yard = &yard,
		    .executor = hwt_operation_mailbox_executor(mailbox)};
		assert_rc(watch_key(&operation[i], KEY(1), HWT_NEVER), 0);
	}
	assert_u64(cancel_key(&yard, KEY(1)), 10);
	assert_rc(
	    hwt_operation_run(yard.purgatory, operation[5].handle), -ENOENT);
	assert_rc(hwt_operation_mailbox_run(mailbox, 0, &count), 0);
	assert_u64(count, 10);
	for (i = 0; i < 10; i++)
		assert_ended(&operation[i], HWT_CANCELLED);
	yard_close(&yard);
	assert_rc(hwt_operation_mailbox_destroy(mailbox), 0);
}

/* An executor that runs it elsewhere first: the mailbox does not get it. */
static int
run_then_post(
    void *ctx, struct hwt_purgatory *purgatory, hwt_operation operation)
{
	const struct hwt_operation_executor *to =
	    hwt_operation_mailbox_executor(ctx);

	assert_rc(hwt_operation_run(purgatory, operation), 0);
	cr_assert(to->execute(to->ctx, purgatory, operation) != 0);
	return 1;
}

Test(hand_over, a_mailbox_refuses_what_no_executor_holds)
{
	struct hwt_operation_mailbox *mailbox;
	struct hwt_operation_executor executor = {run_then_post, NULL};

	party_make(&yard);
	party[0].executor = &executor;
	assert_rc(hwt_operation_mailbox_create(&mailbox), 0);
	executor.ctx = mailbox;
	yard_open(&yard, NULL);
	play("watch 0 1, cancel-key 1 1, cancelled 0");
	yard_close(&yard);
	assert_rc(hwt_operation_mailbox_destroy(mailbox), 0);
}

static void
child_asks(void *mailbox)
{
	child_check(hwt_operation_mailbox_executor(mailbox) == NULL);
	child_rc(hwt_operation_mailbox_destroy(mailbox), 0);
}

Test(hand_over, a_child_has_no_executor_of_a_mailbox)
{
	struct hwt_operation_mailbox *mailbox;

	assert_rc(hwt_operation_mailbox_create(&mailbox), 0);
	in_child(child_asks, mailbox);
	assert_rc(hwt_operation_mailbox_destroy(mailbox), 0);
}

Test(hand_over, destroy_without_shutdown)
{
	party_make(&yard);
	yard_open(&yard, NULL);
	yard_destroy(&yard);
	yard_open(&yard, NULL);
	play("watch-ms 0 1 1, cannot-destroy, pass 3, expired 0");
	yard_destroy(&yard);
}
