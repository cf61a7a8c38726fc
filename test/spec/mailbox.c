/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_mailbox: an executor for an event loop. In the first half the test is
 * both the worker, on a manual timer, and the loop, so that it sees the file
 * descriptor at every step; in the second there is a real worker.
 */
#include "test/spec/support_promises.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

SUITE(mailbox);

struct mailed {
	struct hwt_mailbox *mailbox;
	int fd;
};

static struct mailed mailed;

static void
mailed_open(void)
{
	manual_open(NULL);
	assert_ok(hwt_mailbox_create(&mailed.mailbox));
	mailed.fd = hwt_mailbox_fd(mailed.mailbox);
	cr_assert(mailed.fd >= 0);
}

static void
mailed_close(void)
{
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_ok(hwt_destroy(manual.timer));
	assert_ok(hwt_mailbox_destroy(mailed.mailbox));
}

/* A test with a mailbox, and a timer for it. */
#define MailboxTest(suite, name) \
	TestBetween(mailed_open(), mailed_close(), suite, name)

/* For the next tick. */
static void
mailed_schedule(struct probe *probe)
{
	assert_ok(hwt_new_timeout_on(manual.timer,
	    hwt_mailbox_executor(mailed.mailbox), &probe->handle, probe_task,
	    probe, 0));
}

static uint64_t
mailed_step(void)
{
	return manual_step(FIXTURE_TICK);
}

static size_t
mailed_run(size_t max)
{
	size_t tasks_started = SIZE_MAX;

	assert_ok(hwt_mailbox_run(mailed.mailbox, max, &tasks_started));
	return tasks_started;
}

/* Fills the mailbox with count timeouts. */
static void
mailed_fill(struct probe *probes, unsigned count)
{
	for (unsigned index = 0; index < count; index++) {
		probes[index] = (struct probe){0};
		mailed_schedule(&probes[index]);
	}
	assert_u64(mailed_step(), 0);
}

MailboxTest(mailbox, its_fd_is_an_eventfd)
{
	char path[64];
	char target[64] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", mailed.fd);

	cr_assert(readlink(path, target, sizeof(target) - 1) > 0);

	cr_assert(strcmp(target, "anon_inode:[eventfd]") == 0);
}

MailboxTest(mailbox, its_fd_is_readable_exactly_while_something_is_due)
{
	struct probe probe = {0};

	cr_assert(!readable(mailed.fd));
	mailed_schedule(&probe);
	cr_assert(!readable(mailed.fd));

	mailed_step();
	cr_assert(readable(mailed.fd));
	assert_u64(probe.runs, 0);

	assert_u64(mailed_run(0), 1);
	cr_assert(!readable(mailed.fd));
	assert_u64(probe.runs, 1);
}

MailboxTest(mailbox, its_fd_tells_of_the_second_as_of_the_first)
{
	struct probe probe;

	for (unsigned turn = 0; turn < 100; turn++) {
		mailed_fill(&probe, 1);
		cr_assert(readable(mailed.fd));
		assert_u64(mailed_run(0), 1);
		cr_assert(!readable(mailed.fd));
	}
}

MailboxTest(mailbox, max_is_how_many_tasks_are_started_at_most)
{
	struct probe probes[5];

	mailed_fill(probes, 5);

	assert_u64(mailed_run(2), 2);
	assert_u64(manual.runs, 2);
	assert_u64(mailed_run(1), 1);
	assert_u64(mailed_run(9), 2);
	assert_u64(manual.runs, 5);
}

MailboxTest(mailbox, what_max_leaves_keeps_the_fd_readable)
{
	struct probe probes[5];

	mailed_fill(probes, 5);

	for (unsigned left = 5; left > 0; left--) {
		cr_assert(readable(mailed.fd));
		assert_u64(mailed_run(1), 1);
	}
	cr_assert(!readable(mailed.fd));
}

MailboxTest(mailbox, what_max_left_and_what_came_since_all_run)
{
	struct probe early[5];
	struct probe late[5];

	mailed_fill(early, 5);
	assert_u64(mailed_run(3), 3);
	mailed_fill(late, 5);

	assert_u64(mailed_run(0), 7);

	assert_u64(manual.runs, 10);
	cr_assert(!readable(mailed.fd));
}

MailboxTest(mailbox, tasks_of_an_earlier_tick_start_first)
{
	struct probe probes[50];

	for (unsigned index = 0; index < 50; index++) {
		mailed_fill(&probes[index], 1);
		/* Some turns leave a part over. */
		if (index % 7 == 6)
			assert_u64(mailed_run(3), 3);
	}
	mailed_run(0);

	for (unsigned index = 0; index < 50; index++)
		assert_u64(probes[index].order, index + 1);
}

static void
then_fills_another(struct probe *probe)
{
	struct fixture *other = probe->data;

	assert_ok(hwt_new_timeout_on(other->timer,
	    hwt_mailbox_executor(mailed.mailbox), NULL, probe_task, &probe[1],
	    0));
	fixture_step(other, FIXTURE_TICK);
}

/* rest: a run before has left something. The task turns another timer, whose
 * timeout goes into the same mailbox while that is run. */
static void
assert_no_more_than_was_there(bool rest)
{
	struct fixture other = {0};
	struct probe first = {0};
	struct probe probes[2] = {
	    {.then = then_fills_another, .data = &other}, {0}};

	mailed_open();
	fixture_open(&other, NULL);
	if (rest) {
		mailed_schedule(&first);
		mailed_step();
	}
	mailed_schedule(&probes[0]);
	mailed_step();
	if (rest)
		assert_u64(mailed_run(1), 1);
	assert_u64(first.runs, rest);

	assert_u64(mailed_run(0), 1);
	assert_u64(probes[1].runs, 0);
	cr_assert(readable(mailed.fd));
	assert_u64(mailed_run(0), 1);

	assert_u64(probes[1].runs, 1);
	fixture_close(&other);
	mailed_close();
}

Test(mailbox, max_0_starts_all_that_are_there_now_and_no_more)
{
	assert_no_more_than_was_there(false);
}

Test(mailbox, nor_any_more_when_a_run_before_has_left_something)
{
	assert_no_more_than_was_there(true);
}

/* What a run has left over is all that the next one may start; meanwhile, one
 * more has come. */
MailboxTest(mailbox, it_is_readable_for_what_came_behind_the_rest_of_a_run)
{
	struct probe probes[3] = {{0}};

	mailed_fill(probes, 2);
	assert_u64(mailed_run(1), 1);
	mailed_fill(&probes[2], 1);

	assert_u64(mailed_run(1), 1);

	assert_u64(probes[2].runs, 0);
	cr_assert(readable(mailed.fd));
	assert_u64(mailed_run(0), 1);
	cr_assert(!readable(mailed.fd));
}

/* Two more come, and a run inside the task takes one of them. */
static void
then_two_more_and_a_run(struct probe *probe)
{
	struct probe *more = probe->data;

	mailed_schedule(&more[0]);
	mailed_schedule(&more[1]);
	mailed_step();
	probe->rc = hwt_mailbox_run(mailed.mailbox, 1, NULL);
}

MailboxTest(
    mailbox, what_a_run_inside_a_task_leaves_is_left_by_the_outer_one_too)
{
	struct probe more[2] = {{0}};
	struct probe probe = {.then = then_two_more_and_a_run, .data = more};

	mailed_schedule(&probe);
	mailed_step();

	assert_u64(mailed_run(0), 1);

	assert_ok(probe.rc);
	assert_u64(more[0].runs + more[1].runs, 1);
	cr_assert(readable(mailed.fd));
	assert_u64(mailed_run(0), 1);
	assert_u64(more[0].runs + more[1].runs, 2);
}

/* One more comes, and a run inside the task takes what was there before. */
static void
then_one_more_and_a_run(struct probe *probe)
{
	struct probe *more = probe->data;

	mailed_schedule(more);
	mailed_step();
	probe->rc = hwt_mailbox_run(mailed.mailbox, 1, NULL);
}

MailboxTest(
    mailbox, a_run_that_one_inside_has_overtaken_takes_nothing_that_came_since)
{
	struct probe more = {0}, second = {0};
	struct probe probe = {.then = then_one_more_and_a_run, .data = &more};

	mailed_schedule(&probe);
	mailed_step();
	mailed_schedule(&second);
	mailed_step();

	assert_u64(mailed_run(0), 1);

	assert_ok(probe.rc);
	assert_u64(second.runs, 1);
	assert_u64(more.runs, 0);
	assert_u64(mailed_run(0), 1);
	assert_u64(more.runs, 1);
}

MailboxTest(mailbox, an_eventfd_that_is_full_already_is_as_readable)
{
	struct probe probe = {0};

	cr_assert(eventfd_write(mailed.fd, UINT64_MAX - 1) == 0);
	mailed_schedule(&probe);
	mailed_step();

	cr_assert(readable(mailed.fd));
	assert_u64(mailed_run(0), 1);
	cr_assert(!readable(mailed.fd));
}

/* What a worker is mailed by before its write, and between its write and
 * what it does next. */
static void (*before_write)(void);
static void (*after_write)(void);
static int write_error;
static unsigned writes;

int __real_eventfd_write(int fd, eventfd_t value);
int __wrap_eventfd_write(int fd, eventfd_t value);

int
__wrap_eventfd_write(int fd, eventfd_t value)
{
	void (*before)(void) = before_write;
	void (*overtake)(void) = after_write;
	int result;

	writes++;
	before_write = NULL;
	if (before != NULL)
		before();
	if (write_error != 0) {
		errno = write_error;
		return -1;
	}
	result = __real_eventfd_write(fd, value);
	after_write = NULL;
	if (overtake != NULL)
		overtake();
	return result;
}

static struct fixture overtaker;

/* Another timer's worker hands over to the same mailbox. */
static void
overtake(void)
{
	static struct probe probe;

	assert_ok(hwt_new_timeout_on(overtaker.timer,
	    hwt_mailbox_executor(mailed.mailbox), NULL, probe_task, &probe, 0));
	fixture_step(&overtaker, FIXTURE_TICK);
}

/* The loop empties the mailbox; another timer's hand-over cannot tell it. */
static void
empty_and_fail(void)
{
	assert_u64(mailed_run(0), 1);
	write_error = EIO;
	overtake();
	write_error = 0;
	cr_assert(!readable(mailed.fd));
}

MailboxTest(
    mailbox, a_write_that_failed_is_made_good_though_another_came_through)
{
	struct probe probes[2] = {{0}};

	fixture_open(&overtaker, NULL);
	after_write = empty_and_fail;
	mailed_schedule(&probes[0]);
	mailed_step();
	assert_u64(probes[0].runs, 1);

	mailed_schedule(&probes[1]);
	mailed_step();

	cr_assert(readable(mailed.fd));
	assert_ok(hwt_stop(overtaker.timer, NULL));
	assert_u64(mailed_run(0), 2);
	assert_ok(hwt_destroy(overtaker.timer));
}

static void
overtake_and_look(void)
{
	overtake();
	cr_assert(readable(mailed.fd));
}

MailboxTest(mailbox, a_write_that_failed_is_made_good_by_the_next_hand_over)
{
	struct probe probes[2] = {{0}};

	write_error = EIO;
	mailed_schedule(&probes[0]);
	mailed_step();
	cr_assert(!readable(mailed.fd));
	write_error = 0;

	mailed_schedule(&probes[1]);
	mailed_step();

	cr_assert(readable(mailed.fd));
	assert_u64(mailed_run(0), 2);
}

MailboxTest(mailbox, what_the_loop_was_told_of_is_told_once)
{
	struct probe probes[9] = {{0}};

	for (unsigned i = 0; i < 9; i++) {
		mailed_schedule(&probes[i]);
		mailed_step();
		assert_u64(writes, 1 + i / 3);
		if (i % 3 == 2)
			assert_u64(mailed_run(0), 3);
	}
}

/* One worker is stopped before its write: another's hand-over is told of. */
MailboxTest(mailbox, a_hand_over_does_not_rely_on_one_that_is_stopped)
{
	struct probe probe = {0};

	fixture_open(&overtaker, NULL);
	before_write = overtake_and_look;
	mailed_schedule(&probe);
	mailed_step();
	cr_assert(before_write == NULL);

	assert_ok(hwt_stop(overtaker.timer, NULL));
	assert_u64(mailed_run(0), 2);
	assert_ok(hwt_destroy(overtaker.timer));
}

MailboxTest(mailbox, an_empty_one_starts_nothing)
{
	assert_u64(mailed_run(0), 0);
	assert_u64(mailed_run(7), 0);
	assert_ok(hwt_mailbox_run(mailed.mailbox, 0, NULL));
}

MailboxTest(mailbox, the_count_may_be_not_wanted)
{
	struct probe probe;

	mailed_fill(&probe, 1);

	assert_ok(hwt_mailbox_run(mailed.mailbox, 0, NULL));

	assert_u64(probe.runs, 1);
}

/* Cancelling. */

MailboxTest(mailbox, what_was_cancelled_in_the_mailbox_does_not_run)
{
	struct probe probes[6];

	mailed_fill(probes, 6);
	for (unsigned index = 0; index < 6; index += 2)
		assert_ok(hwt_cancel(manual.timer, probes[index].handle));

	assert_u64(mailed_run(0), 3);

	for (unsigned index = 0; index < 6; index++)
		assert_u64(probes[index].runs, index % 2);
	cr_assert(!readable(mailed.fd));
}

MailboxTest(mailbox, cancelled_ones_do_not_use_up_max)
{
	struct probe probes[20];
	unsigned started = 0;

	mailed_fill(probes, 20);
	for (unsigned index = 0; index < 20; index++)
		if (index % 4 != 1)
			assert_ok(
			    hwt_cancel(manual.timer, probes[index].handle));

	/* A loop that runs one at a time gets all there are. */
	while (readable(mailed.fd))
		started += mailed_run(1);

	assert_u64(started, 5);
	assert_u64(manual.runs, 5);
}

static void
then_cancels(struct probe *probe)
{
	struct probe *victim = probe->data;

	probe->rc = hwt_cancel(manual.timer, victim->handle);
}

MailboxTest(mailbox, a_task_can_cancel_the_next_one_of_the_same_run)
{
	struct probe victim = {0};
	struct probe first = {.then = then_cancels, .data = &victim};

	/* They come in two ticks, and so in this order. */
	mailed_schedule(&first);
	mailed_step();
	mailed_schedule(&victim);
	mailed_step();

	assert_u64(mailed_run(0), 1);

	assert_ok(first.rc);
	assert_u64(victim.runs, 0);
	cr_assert(!readable(mailed.fd));
}

MailboxTest(mailbox, what_it_holds_is_pending_until_it_is_started_or_cancelled)
{
	struct probe probes[3];

	mailed_fill(probes, 3);
	assert_u64(hwt_pending_timeouts(manual.timer), 3);

	assert_ok(hwt_cancel(manual.timer, probes[1].handle));
	assert_u64(hwt_pending_timeouts(manual.timer), 2);
	mailed_run(0);

	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

/* Limits, sharing, lifetime. */

#define CROWD 100000

static void
counting_task(hwt_timeout timeout, void *arg)
{
	uint64_t *count = arg;

	(void)timeout;
	++*count;
}

MailboxTest(mailbox, it_never_refuses)
{
	uint64_t count = 0;

	for (unsigned index = 0; index < CROWD; index++)
		assert_ok(hwt_new_timeout_on(manual.timer,
		    hwt_mailbox_executor(mailed.mailbox), NULL, counting_task,
		    &count, 0));

	/* Nor does it need memory to take them. */
	fault_arm(FAULT_HEAP, FAULT_ALWAYS);
	assert_u64(mailed_step(), 0);
	assert_u64(fault_disarm(), 0);

	assert_u64(manual_stats().executor_refused, 0);
	assert_u64(mailed_run(0), CROWD);
	assert_u64(count, CROWD);
}

MailboxTest(mailbox, several_timers_share_one)
{
	struct fixture fixtures[3] = {0};
	struct probe probes[3] = {0};

	for (unsigned index = 0; index < 3; index++) {
		fixture_open(&fixtures[index], NULL);
		assert_ok(hwt_new_timeout_on(fixtures[index].timer,
		    hwt_mailbox_executor(mailed.mailbox), NULL, probe_task,
		    &probes[index], 0));
		assert_u64(fixture_step(&fixtures[index], FIXTURE_TICK), 0);
	}

	assert_u64(mailed_run(0), 3);

	for (unsigned index = 0; index < 3; index++) {
		assert_u64(probes[index].runs, 1);
		fixture_close(&fixtures[index]);
	}
}

MailboxTest(mailbox, several_mailboxes_share_one_timer)
{
	struct hwt_mailbox *other = NULL;
	struct probe mine = {0}, others = {0};

	assert_ok(hwt_mailbox_create(&other));
	mailed_schedule(&mine);
	assert_ok(hwt_new_timeout_on(manual.timer, hwt_mailbox_executor(other),
	    NULL, probe_task, &others, 0));
	mailed_step();

	assert_u64(mailed_run(0), 1);
	assert_u64(mine.runs, 1);
	assert_u64(others.runs, 0);
	cr_assert(!readable(mailed.fd) && readable(hwt_mailbox_fd(other)));
	assert_ok(hwt_mailbox_run(other, 0, NULL));
	assert_u64(others.runs, 1);

	assert_ok(hwt_mailbox_destroy(other));
}

MailboxTest(mailbox, what_it_holds_may_run_after_stop)
{
	struct hwt_unprocessed unprocessed;
	struct probe probe;

	mailed_fill(&probe, 1);
	assert_ok(hwt_stop(manual.timer, &unprocessed));

	assert_u64(unprocessed.count, 0);
	assert_rc(hwt_destroy(manual.timer), -EBUSY);
	cr_assert(readable(mailed.fd));
	assert_u64(mailed_run(0), 1);

	assert_u64(probe.runs, 1);
}

static void
then_stops_the_timer(struct probe *probe)
{
	probe->rc = hwt_stop(manual.timer, NULL);
}

MailboxTest(mailbox, its_tasks_cannot_stop_their_timer)
{
	struct probe probe = {.then = then_stops_the_timer};

	mailed_schedule(&probe);
	mailed_step();

	assert_u64(mailed_run(0), 1);

	assert_rc(probe.rc, -EDEADLK);
}

MailboxTest(mailbox, a_periodic_timeout_comes_again_after_it_was_run)
{
	struct probe probe = {0};
	struct hwt_spec spec = {.task = probe_task,
	    .arg = &probe,
	    .delay_ns = FIXTURE_TICK,
	    .period_ns = FIXTURE_TICK};

	spec.executor = hwt_mailbox_executor(mailed.mailbox);
	assert_ok(hwt_new_timeouts(manual.timer, 1, &spec, NULL));

	/* The loop is slow: three ticks are one run. */
	for (unsigned turn = 1; turn <= 5; turn++) {
		mailed_step();
		mailed_step();
		mailed_step();
		assert_u64(mailed_run(0), 1);
		assert_u64(mailed_run(0), 0);
	}

	assert_u64(probe.runs, 5);
}

MailboxTest(mailbox, destroy_is_refused_while_it_holds_timeouts)
{
	struct probe probes[2];

	mailed_fill(probes, 2);
	assert_rc(hwt_mailbox_destroy(mailed.mailbox), -EBUSY);
	assert_u64(mailed_run(1), 1);
	assert_rc(hwt_mailbox_destroy(mailed.mailbox), -EBUSY);

	assert_u64(mailed_run(1), 1);
}

MailboxTest(mailbox, destroy_is_refused_while_it_holds_cancelled_ones)
{
	struct probe probe;

	mailed_fill(&probe, 1);
	assert_ok(hwt_cancel(manual.timer, probe.handle));
	assert_rc(hwt_mailbox_destroy(mailed.mailbox), -EBUSY);

	/* One more run releases them. */
	assert_u64(mailed_run(0), 0);

	assert_u64(probe.runs, 0);
}

static void
then_destroys_the_mailbox(struct probe *probe)
{
	probe->rc = hwt_mailbox_destroy(probe->data);
}

MailboxTest(mailbox, destroy_from_its_own_task_is_refused)
{
	struct probe probe = {.then = then_destroys_the_mailbox};

	probe.data = mailed.mailbox;
	mailed_schedule(&probe);
	mailed_step();

	assert_u64(mailed_run(0), 1);

	assert_rc(probe.rc, -EBUSY);
}

Test(mailbox, destroy_closes_its_fd)
{
	mailed_open();
	cr_assert(fcntl(mailed.fd, F_GETFD) >= 0);

	mailed_close();

	cr_assert(fcntl(mailed.fd, F_GETFD) < 0 && errno == EBADF);
}

MailboxTest(mailbox, its_executor_is_one_and_stays)
{
	const struct hwt_executor *executor;

	executor = hwt_mailbox_executor(mailed.mailbox);

	cr_assert(executor != NULL && executor->execute != NULL);
	cr_assert(hwt_mailbox_executor(mailed.mailbox) == executor);
	assert_u64(
	    (uint64_t)hwt_mailbox_fd(mailed.mailbox), (uint64_t)mailed.fd);
}

Test(mailbox, null_is_refused)
{
	size_t tasks_started = 5;

	assert_rc(hwt_mailbox_create(NULL), -EINVAL);
	assert_rc(hwt_mailbox_fd(NULL), -EINVAL);
	assert_rc(hwt_mailbox_run(NULL, 0, &tasks_started), -EINVAL);
	assert_u64(tasks_started, 5);
	cr_assert(hwt_mailbox_executor(NULL) == NULL);
	assert_ok(hwt_mailbox_destroy(NULL));
}

Test(mailbox, without_a_file_descriptor_none_is_made)
{
	struct hwt_mailbox *mailbox = NULL;

	fault_arm_eventfd(EMFILE);
	assert_rc(hwt_mailbox_create(&mailbox), -EMFILE);
	fault_arm_eventfd(ENFILE);
	assert_rc(hwt_mailbox_create(&mailbox), -ENFILE);
	fault_arm_eventfd(ENOMEM);
	assert_rc(hwt_mailbox_create(&mailbox), -ENOMEM);
	fault_disarm();

	cr_assert(mailbox == NULL);
}

Test(mailbox, without_memory_none_is_made)
{
	struct hwt_mailbox *mailbox = NULL;
	uint64_t calls;
	int next_fd = dup(STDERR_FILENO);

	fault_arm(FAULT_MEMORY, FAULT_COUNT);
	assert_ok(hwt_mailbox_create(&mailbox));
	calls = fault_disarm();
	assert_ok(hwt_mailbox_destroy(mailbox));
	cr_assert(calls > 0);

	mailbox = NULL;
	close(next_fd);
	for (uint64_t nth = 1; nth <= calls; nth++) {
		fault_arm(FAULT_MEMORY, nth);
		assert_rc(hwt_mailbox_create(&mailbox), -ENOMEM);
		fault_disarm();
		cr_assert(mailbox == NULL);
	}
	cr_assert(dup(STDERR_FILENO) == next_fd, "a descriptor was left");
}

/* With a real worker. */

struct loop {
	struct hwt_mailbox *mailbox;
	uint64_t count;
	uint64_t foreign;
	pthread_t thread;
};

static void
loop_task(hwt_timeout timeout, void *arg)
{
	struct loop *loop = arg;

	(void)timeout;
	loop->count++;
	if (!pthread_equal(loop->thread, pthread_self()))
		loop->foreign++;
}

/* Waits for the fd as an event loop does, without a time limit of its own. */
static void
loop_turn(struct loop *loop, size_t max)
{
	struct pollfd poll_fd = {
	    .fd = hwt_mailbox_fd(loop->mailbox), .events = POLLIN};

	if (poll(&poll_fd, 1, 30000) != 1)
		abort();
	if (hwt_mailbox_run(loop->mailbox, max, NULL) != 0)
		abort();
}

#define LOOP_TIMEOUTS 5000

static void
loop_body(unsigned index, void *arg)
{
	struct loop *loop = &((struct loop *)arg)[index];
	struct rng rng = {.state = index};
	unsigned turn;

	loop->thread = pthread_self();
	if (hwt_mailbox_create(&loop->mailbox) != 0)
		abort();
	for (turn = 0; turn < LOOP_TIMEOUTS; turn++) {
		if (hwt_new_timeout_on(live.timer,
			hwt_mailbox_executor(loop->mailbox), NULL, loop_task,
			loop, rng_below(&rng, HWT_MS(20))) != 0)
			abort();
		while (turn % 3 == 0 && readable(hwt_mailbox_fd(loop->mailbox)))
			loop_turn(loop, 2);
	}
	while (loop->count < LOOP_TIMEOUTS)
		loop_turn(loop, turn++ % 3);
}

Test(mailbox, tasks_run_on_the_loops_own_thread_and_none_is_missed)
{
	struct loop loops[3] = {{0}};

	live_open(NULL);

	in_parallel(3, loop_body, loops);

	assert_u64(hwt_pending_timeouts(live.timer), 0);
	live_close();
	for (unsigned index = 0; index < 3; index++) {
		assert_u64(loops[index].count, LOOP_TIMEOUTS);
		assert_u64(loops[index].foreign, 0);
		assert_ok(hwt_mailbox_destroy(loops[index].mailbox));
	}
}

Test(mailbox, what_was_cancelled_on_the_loops_thread_never_runs)
{
	struct loop loop = {.thread = pthread_self()};
	uint64_t cancelled = 0;

	/* The cancel comes anywhere between the hand-over and the run. */
	live_open(&(struct hwt_options){.tick_ns = HWT_US(100)});
	assert_ok(hwt_mailbox_create(&loop.mailbox));
	for (uint64_t turn = 0; turn < 2000; turn++) {
		uint64_t before = loop.count;
		hwt_timeout timeout;

		assert_ok(hwt_new_timeout_on(live.timer,
		    hwt_mailbox_executor(loop.mailbox), &timeout, loop_task,
		    &loop, 0));
		sleep_ns(turn % 4 * HWT_US(60));
		assert_ok(hwt_cancel(live.timer, timeout));
		cancelled++;
		assert_ok(hwt_mailbox_run(loop.mailbox, 0, NULL));
		assert_u64(loop.count, before);
	}

	assert_u64(live_stats().cancelled, cancelled);
	/* The last one may have come after the last run. */
	assert_ok(hwt_stop(live.timer, NULL));
	assert_ok(hwt_mailbox_run(loop.mailbox, 0, NULL));
	assert_u64(loop.count, 0);
	assert_ok(hwt_destroy(live.timer));
	assert_ok(hwt_mailbox_destroy(loop.mailbox));
}

/* Epoll with EPOLLET tells once, until the loop has looked. */

static int
edges_await(int epoll)
{
	struct epoll_event event;

	return epoll_wait(epoll, &event, 1, 0);
}

MailboxTest(
    mailbox, one_run_per_event_is_enough_where_epoll_tells_of_edges_alone)
{
	struct probe probes[4] = {0};
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	cr_assert(epoll_ctl(epoll, EPOLL_CTL_ADD,
		      hwt_mailbox_fd(mailed.mailbox), &event) == 0);
	for (unsigned index = 0; index < 3; index++)
		mailed_schedule(&probes[index]);
	mailed_step();
	assert_u64((uint64_t)edges_await(epoll), 1);
	assert_u64((uint64_t)edges_await(epoll), 0);

	/* It leaves two over, and says so. */
	assert_ok(hwt_mailbox_run(mailed.mailbox, 1, NULL));
	assert_u64((uint64_t)edges_await(epoll), 1);
	assert_ok(hwt_mailbox_run(mailed.mailbox, 0, NULL));
	assert_u64((uint64_t)edges_await(epoll), 0);
	mailed_schedule(&probes[3]);
	mailed_step();
	assert_u64((uint64_t)edges_await(epoll), 1);

	assert_ok(hwt_mailbox_run(mailed.mailbox, 0, NULL));
	for (unsigned index = 0; index < 4; index++)
		assert_u64(probes[index].runs, 1);
	close(epoll);
}
