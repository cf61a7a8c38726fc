/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mailbox: done on an event loop's thread; and executors in general.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <stdlib.h>
#include <sys/eventfd.h>

SUITE(mailbox);

static struct yard yard;
static struct hwt_operation_mailbox *mailbox;
static int fd;

static void
mailed_open(void)
{
	struct hwt_purgatory_options options = {0};

	assert_rc(hwt_operation_mailbox_create(&mailbox), 0);
	fd = hwt_operation_mailbox_fd(mailbox);
	cr_assert(fd >= 0);
	options.executor = hwt_operation_mailbox_executor(mailbox);
	yard_open(&yard, &options);
}

static size_t
mailbox_run(size_t max)
{
	size_t count = SIZE_MAX;

	assert_rc(hwt_operation_mailbox_run(mailbox, max, &count), 0);
	return count;
}

static void
mailed_close(void)
{
	yard_close(&yard);
	assert_rc(hwt_operation_mailbox_destroy(mailbox), 0);
}

#define MailTest(name) TestBetween(mailed_open(), mailed_close(), mailbox, name)

MailTest(done_is_called_on_the_loops_thread)
{
	party_make(&yard);
	play("holds 0");
	cr_assert(!readable(fd));
	play("met 0 1, pending 0, stats 0 0 0");
	cr_assert(readable(fd));
	assert_rc(
	    hwt_operation_cancel(yard.purgatory, party[0].handle), -ENOENT);
	assert_u64(mailbox_run(0), 1);
	play("completed 0");
	cr_assert(!readable(fd));
	assert_u64(mailbox_run(0), 0);
	assert_rc(hwt_operation_run(yard.purgatory, party[0].handle), -ENOENT);
}

MailTest(in_the_order_in_which_they_ended_and_at_most_max)
{
	static struct operation operation[10];
	unsigned i;

	for (i = 0; i < 10; i++) {
		operation[i].yard = &yard;
		assert_rc(watch_key(&operation[i], KEY(i), HWT_SEC(1)), 0);
	}
	for (i = 0; i < 10; i++)
		assert_u64(cancel_key(&yard, KEY((i + 3) % 10)), 1);
	assert_u64(mailbox_run(4), 4);
	cr_assert(readable(fd));
	assert_u64(mailbox_run(0), 6);
	for (i = 0; i < 10; i++)
		assert_u64(operation[(i + 3) % 10].order, i + 1);
}

/* What ends while the mailbox runs is there for the next run. */
static void
watch_again(struct operation *operation)
{
	if (operation->count++ > 3)
		return;
	operation->dones = 0;
	operation->holds = 1;
	assert_rc(watch_key(operation, KEY(1), HWT_SEC(1)), 1);
}

MailTest(a_run_ends_although_done_goes_on)
{
	static struct operation operation = {
	    .yard = &yard, .in_done = watch_again, .holds = 1};
	unsigned i;

	assert_rc(watch_key(&operation, KEY(1), HWT_SEC(1)), 1);
	for (i = 0; i < 5; i++) {
		cr_assert(readable(fd));
		assert_u64(mailbox_run(0), 1);
	}
	assert_u64(mailbox_run(0), 0);
}

/* Another one ends, and a run in done takes what was there before. */
static struct operation later, second;
static size_t inner_count;

static void
end_another_and_run(struct operation *operation)
{
	(void)operation;
	later = (struct operation){.yard = &yard, .holds = 1};
	assert_rc(watch_key(&later, KEY(2), HWT_SEC(1)), 1);
	inner_count = mailbox_run(1);
	assert_pending(&second);
}

MailTest(a_run_that_one_in_done_has_overtaken_takes_nothing_that_came_since)
{
	party_make(&yard);
	party[0].in_done = end_another_and_run;
	play("holds 0");
	second = (struct operation){.yard = &yard, .holds = 1};
	play("met 0 1");
	assert_rc(watch_key(&second, KEY(1), HWT_SEC(1)), 1);
	assert_u64(mailbox_run(0), 1);
	assert_u64(inner_count, 1);
	assert_ended(&second, HWT_COMPLETED);
	assert_pending(&later);
	cr_assert(readable(fd));
	assert_u64(mailbox_run(0), 1);
	assert_ended(&later, HWT_COMPLETED);
}

static void
destroy_mailbox(struct operation *operation)
{
	operation->rc = hwt_operation_mailbox_destroy(mailbox);
}

MailTest(EBUSY_while_it_runs)
{
	static struct operation operation = {
	    .yard = &yard, .in_done = destroy_mailbox, .holds = 1};

	assert_rc(watch_key(&operation, KEY(1), HWT_SEC(1)), 1);
	assert_u64(mailbox_run(0), 1);
	assert_rc(operation.rc, -EBUSY);
}

MailTest(shutdown_leaves_to_it_what_it_holds)
{
	party_make(&yard);
	play("holds 1, watch-ms 0 1 1000, met 1 1, shutdown, pending 0, "
	     "cannot-destroy");
	assert_rc(hwt_operation_mailbox_destroy(mailbox), -EBUSY);
	assert_u64(mailbox_run(1), 1);
	play("cannot-destroy");
	assert_rc(hwt_operation_mailbox_destroy(mailbox), -EBUSY);
	assert_u64(mailbox_run(0), 1);
	play("shut-down 0, completed 1");
}

MailTest(an_expiry_goes_there_and_its_timeout_does_not_come_back)
{
	party_make(&yard);
	play("watch-ms 0 1 1, pass 3, pending 0");
	assert_u64(mailbox_run(0), 1);
	play("expired 0, watch-ms 1 1 1, pass 3");
	assert_u64(mailbox_run(0), 1);
	play("expired 1");
}

/* Whoever has its descriptor can write to it. */
MailTest(a_count_that_is_full_is_readable)
{
	static struct operation operation[2] = {
	    {.yard = &yard, .holds = 1}, {.yard = &yard, .holds = 1}};
	unsigned i;

	for (i = 0; i < 2; i++) {
		assert_rc(eventfd_write(fd, UINT64_MAX - 1), 0);
		assert_rc(watch_key(&operation[i], KEY(1), HWT_SEC(1)), 1);
		cr_assert(readable(fd));
		assert_u64(mailbox_run(0), 1);
		cr_assert(!readable(fd));
		assert_ended(&operation[i], HWT_COMPLETED);
	}
}

/* execute is the purgatory's to call. */
MailTest(what_it_is_not_handed_over_is_refused)
{
	const struct hwt_operation_executor *executor;

	party_make(&yard);
	hwt_operation stale;
	executor = hwt_operation_mailbox_executor(mailbox);
	play("watch-ms 0 1 1000");
	stale = party[0].handle;
	assert_rc(
	    executor->execute(executor->ctx, yard.purgatory, stale), -ENOENT);
	play("cancel-key 1 1");
	assert_u64(mailbox_run(0), 1);
	play("watch-ms 1 1 1000");
	assert_rc(
	    executor->execute(executor->ctx, yard.purgatory, stale), -ENOENT);
	assert_rc(executor->execute(
		      executor->ctx, yard.purgatory, (hwt_operation){0}),
	    -ENOENT);
	assert_u64(mailbox_run(0), 0);
	play("pending 1, cancel-key 1 1");
	assert_u64(mailbox_run(0), 1);
}

/* hwt_operation_mailbox_create */
Test(mailbox, EMFILE_ENFILE_and_ENOMEM)
{
	struct hwt_operation_mailbox *made = NULL;

	fault_arm_eventfd(EMFILE);
	assert_rc(hwt_operation_mailbox_create(&made), -EMFILE);
	fault_arm_eventfd(ENFILE);
	assert_rc(hwt_operation_mailbox_create(&made), -ENFILE);
	fault_arm_eventfd(ENODEV);
	assert_rc(hwt_operation_mailbox_create(&made), -ENOMEM);
	fault_arm(FAULT_HEAP, 1);
	assert_rc(hwt_operation_mailbox_create(&made), -ENOMEM);
	(void)fault_disarm();
	cr_assert(made == NULL);
}

/* Executors of one's own. */
static struct {
	int answer;
	bool runs;
	unsigned calls;
	hwt_operation last;
} mine;

static int
my_execute(void *ctx, struct hwt_purgatory *purgatory, hwt_operation operation)
{
	(void)ctx;
	cr_assert(purgatory == yard.purgatory);
	mine.calls++;
	mine.last = operation;
	if (mine.runs)
		assert_rc(hwt_operation_run(purgatory, operation), 0);
	return mine.answer;
}

static const struct hwt_operation_executor my_executor = {my_execute, NULL};

static void
end_with_my_executor(struct operation *operation)
{
	*operation =
	    (struct operation){.yard = &yard, .executor = &my_executor};
	assert_rc(watch_key(operation, KEY(1), HWT_SEC(1)), 0);
	assert_u64(cancel_key(&yard, KEY(1)), 1);
}

MailTest(an_executor_that_refuses)
{
	static struct operation operation;

	mine.answer = -EAGAIN;
	end_with_my_executor(&operation);
	assert_ended(&operation, HWT_CANCELLED);
	assert_u64(mine.calls, 1);
	assert_rc(hwt_operation_run(yard.purgatory, mine.last), -ENOENT);
}

MailTest(an_executor_that_runs_at_once)
{
	static struct operation operation;

	mine.runs = true;
	end_with_my_executor(&operation);
	assert_ended(&operation, HWT_CANCELLED);
	assert_rc(hwt_operation_run(yard.purgatory, mine.last), -ENOENT);
}

MailTest(an_executor_that_runs_at_once_and_then_refuses)
{
	static struct operation operation;

	mine.runs = true;
	mine.answer = 1;
	end_with_my_executor(&operation);
	assert_ended(&operation, HWT_CANCELLED);
}

MailTest(an_executor_of_its_own_beside_the_purgatorys)
{
	static struct operation operation;

	end_with_my_executor(&operation);
	assert_pending(&operation);
	assert_u64(mailbox_run(0), 0);
	assert_rc(hwt_operation_run(yard.purgatory, mine.last), 0);
	assert_ended(&operation, HWT_CANCELLED);
	assert_rc(hwt_operation_run(yard.purgatory, mine.last), -ENOENT);
}
