/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_mailbox: an executor for an event loop. The test is both the worker, on a
 * manual timer, and the loop.
 */
#include "test/spec/support.h"

SUITE(mailbox);

static struct hwt_mailbox *mailbox;
static int fd;

static void
mailbox_open(void)
{
	manual_open(NULL);
	assert_ok(hwt_mailbox_create(&mailbox));
	fd = hwt_mailbox_fd(mailbox);
}

static void
mailbox_close(void)
{
	manual_close();
	assert_ok(hwt_mailbox_destroy(mailbox));
}

#define MailboxTest(name) \
	TestBetween(mailbox_open(), mailbox_close(), mailbox, name)

static void
deliver(struct probe *probes, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		assert_ok(hwt_new_timeout_on(manual.timer,
		    hwt_mailbox_executor(mailbox), &probes[i].handle,
		    probe_task, &probes[i], 0));
		assert_u64(manual_step(FIXTURE_TICK), 0);
	}
}

static size_t
run(size_t max)
{
	size_t tasks_started = SIZE_MAX;

	assert_ok(hwt_mailbox_run(mailbox, max, &tasks_started));
	return tasks_started;
}

MailboxTest(fd_is_readable_exactly_while_something_is_due)
{
	struct probe probe = {0};

	cr_assert(!readable(fd));
	deliver(&probe, 1);
	cr_assert(readable(fd));
	assert_u64(probe.runs, 0);

	assert_u64(run(0), 1);

	cr_assert(!readable(fd));
	assert_u64(probe.runs, 1);
}

/* Posts: functions that run in hwt_mailbox_run. */

struct letter {
	struct hwt_post post;
	uint64_t digit;
};

/* Posts that ran, as digits; a task is a 0. */
static uint64_t ran;

static void
read_letter(struct hwt_post *post)
{
	struct letter *letter = (struct letter *)post;

	ran = ran * 10 + letter->digit;
}

static void
then_append_0(struct probe *probe)
{
	(void)probe;
	ran *= 10;
}

static void
post_digit(struct letter *letter, uint64_t digit)
{
	letter->digit = digit;
	assert_ok(hwt_mailbox_post(mailbox, &letter->post, read_letter));
}

MailboxTest(posts_and_tasks_run_in_the_order_of_their_arrival)
{
	struct probe probe = {.then = then_append_0};
	static struct letter letters[3];

	post_digit(&letters[0], 1);
	cr_assert(readable(fd));
	post_digit(&letters[1], 2);
	deliver(&probe, 1);
	post_digit(&letters[2], 3);
	assert_rc(hwt_mailbox_destroy(mailbox), -EBUSY);

	assert_u64(run(2), 0);
	assert_u64(run(0), 1);

	assert_u64(ran, 1203);
	cr_assert(!readable(fd));
}

static void
then_cancel_data(struct probe *probe)
{
	probe->rc =
	    hwt_cancel(manual.timer, ((struct probe *)probe->data)->handle);
}

MailboxTest(task_cancelled_on_the_loops_thread_does_not_run)
{
	struct probe probes[2] = {
	    {.then = then_cancel_data, .data = &probes[1]}, {0}};

	deliver(probes, 2);

	assert_u64(run(0), 1);

	assert_ok(probes[0].rc);
	assert_u64(probes[1].runs, 0);
}
