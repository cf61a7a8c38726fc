/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_mailbox: an executor for an event loop. The test is both the worker, on a
 * manual timer, and the loop, so that it sees the file descriptor at every
 * step. With real workers and loops, test/stress/race_all does the same.
 */
#include "test/spec/support_promises.h"

#include <fcntl.h>
#include <stdlib.h>
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

/* Cancelling. */

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

Test(mailbox, null_is_refused)
{
	size_t tasks_started = 5;

	assert_rc(hwt_mailbox_create(NULL), -EINVAL);
	assert_rc(hwt_mailbox_fd(NULL), -EINVAL);
	assert_rc(hwt_mailbox_run(NULL, 0, &tasks_started), -EINVAL);
	assert_u64(tasks_started, 5);
	assert_rc(hwt_mailbox_post(NULL, NULL, NULL), -EINVAL);
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

/* Posts: functions that run in hwt_mailbox_run. */

struct letter {
	struct hwt_post post;
	uint64_t *order; /* what ran, in digits */
	uint64_t digit;
	unsigned again; /* posts itself so often */
};

static void
letter_read(struct hwt_post *post)
{
	struct letter *letter = (struct letter *)post;

	*letter->order = *letter->order * 10 + letter->digit;
	if (letter->again-- > 0)
		assert_ok(hwt_mailbox_post(mailed.mailbox, post, letter_read));
}

static void
letter_free(struct hwt_post *post)
{
	free(post);
}

MailboxTest(mailbox, a_post_makes_the_fd_readable_and_runs_in_the_loop)
{
	uint64_t order = 0;
	struct letter letter = {.order = &order, .digit = 1};

	assert_ok(hwt_mailbox_post(mailed.mailbox, &letter.post, letter_read));
	cr_assert(readable(mailed.fd));
	assert_u64(order, 0);

	assert_u64(mailed_run(0), 0);

	assert_u64(order, 1);
	cr_assert(!readable(mailed.fd));
}

static void
then_append_0(struct probe *probe)
{
	uint64_t *order = probe->data;

	*order *= 10;
}

MailboxTest(mailbox, posts_and_tasks_run_in_the_order_of_their_arrival)
{
	uint64_t order = 0;
	struct letter letters[3];
	struct probe probe = {.then = then_append_0, .data = &order};

	for (unsigned i = 0; i < 3; i++) {
		letters[i] = (struct letter){.order = &order, .digit = i + 1};
		assert_ok(hwt_mailbox_post(
		    mailed.mailbox, &letters[i].post, letter_read));
		if (i == 1) {
			mailed_schedule(&probe);
			mailed_step();
		}
	}

	assert_u64(mailed_run(0), 1);

	assert_u64(order, 1203);
}

MailboxTest(mailbox, max_counts_posts_and_tasks_started_does_not)
{
	uint64_t order = 0;
	struct letter first = {.order = &order, .digit = 1};
	struct letter last = {.order = &order, .digit = 2};
	struct probe probe = {0};

	assert_ok(hwt_mailbox_post(mailed.mailbox, &first.post, letter_read));
	mailed_schedule(&probe);
	mailed_step();
	assert_ok(hwt_mailbox_post(mailed.mailbox, &last.post, letter_read));

	assert_u64(mailed_run(1), 0);
	assert_u64(order, 1);
	assert_u64(probe.runs, 0);
	assert_u64(mailed_run(2), 1);
	assert_u64(order, 12);
	assert_u64(probe.runs, 1);
}

MailboxTest(mailbox, a_function_may_post_itself_for_the_next_run)
{
	uint64_t order = 0;
	struct letter letter = {.order = &order, .digit = 1, .again = 1};

	assert_ok(hwt_mailbox_post(mailed.mailbox, &letter.post, letter_read));

	assert_u64(mailed_run(0), 0);
	assert_u64(order, 1);
	cr_assert(readable(mailed.fd));
	assert_u64(mailed_run(0), 0);
	assert_u64(order, 11);
	cr_assert(!readable(mailed.fd));
}

/* AddressSanitizer finds a use after it. */
MailboxTest(mailbox, a_function_may_free_its_post)
{
	for (unsigned i = 0; i < 3; i++) {
		struct hwt_post *post = malloc(sizeof(*post));

		cr_assert(post != NULL);
		assert_ok(hwt_mailbox_post(mailed.mailbox, post, letter_free));
	}

	assert_u64(mailed_run(0), 0);

	cr_assert(!readable(mailed.fd));
}

Test(mailbox, destroy_is_refused_while_it_holds_a_post)
{
	uint64_t order = 0;
	struct letter letter = {.order = &order, .digit = 1};
	struct hwt_mailbox *mailbox;

	assert_ok(hwt_mailbox_create(&mailbox));
	assert_rc(hwt_mailbox_post(mailbox, NULL, letter_read), -EINVAL);
	assert_rc(hwt_mailbox_post(mailbox, &letter.post, NULL), -EINVAL);
	assert_ok(hwt_mailbox_post(mailbox, &letter.post, letter_read));

	assert_rc(hwt_mailbox_destroy(mailbox), -EBUSY);

	assert_ok(hwt_mailbox_run(mailbox, 0, NULL));
	assert_u64(order, 1);
	assert_ok(hwt_mailbox_destroy(mailbox));
}

#define POSTERS 4u
#define POSTS_EACH 500u

static struct numbered {
	struct hwt_post post;
	unsigned thread, number;
} numbered[POSTERS][POSTS_EACH];
static unsigned numbered_next[POSTERS];

static void
numbered_read(struct hwt_post *post)
{
	const struct numbered *this = (struct numbered *)post;

	if (this->number != numbered_next[this->thread]++)
		abort();
}

/* The last one is the loop. */
static void
post_numbered(unsigned thread, void *arg)
{
	unsigned i = 0;

	while (thread == POSTERS && i < POSTERS) {
		if (hwt_mailbox_run(arg, 7, NULL) != 0)
			abort();
		i += numbered_next[i] == POSTS_EACH;
	}
	for (; thread < POSTERS && i < POSTS_EACH; i++) {
		struct numbered *this = &numbered[thread][i];

		this->thread = thread;
		this->number = i;
		if (hwt_mailbox_post(arg, &this->post, numbered_read) != 0)
			abort();
	}
}

MailboxTest(mailbox, posts_of_each_thread_run_once_and_in_its_order)
{
	in_parallel(POSTERS + 1, post_numbered, mailed.mailbox);
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
