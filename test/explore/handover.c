/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executors: a box from which another thread runs what was handed over, one
 * that refuses, the mailbox and the pool.
 */
#include "program.h"

#include <errno.h>

/* The box: what was handed over, and whether that is all. */
static struct box {
	_Alignas(8) uint32_t count;
	uint32_t closed;
	hwt_timeout timeout[SUBJECTS];
	uint32_t taken;
} box;

static int
box_execute(void *ctx, struct hwt *from, hwt_timeout timeout)
{
	(void)ctx;
	explore_check(from == timer);
	explore_modify(&box.count, 8);
	box.timeout[box.count++] = timeout;
	return 0;
}

static int
refuse(void *ctx, struct hwt *from, hwt_timeout timeout)
{
	(void)ctx;
	(void)timeout;
	explore_check(from == timer);
	return EBUSY;
}

static const struct hwt_executor box_executor = {.execute = box_execute};
static const struct hwt_executor refuser = {.execute = refuse};

static void
box_close(void)
{
	explore_modify(&box.count, 8);
	box.closed = 1;
}

static bool
box_ready(const void *context)
{
	(void)context;
	return box.closed || box.count > box.taken;
}

/* Runs what comes, until the box is closed. */
static void
run_box(void)
{
	for (;;) {
		hwt_timeout timeout;
		int result;

		explore_await(&box.count, 8, box_ready, NULL);
		if (box.count == box.taken)
			return;
		timeout = box.timeout[box.taken++];
		result = hwt_run(timer, timeout);
		explore_check(result == 0 || result == -ENOENT);
	}
}

static void
make(uint32_t flags, const struct hwt_executor *executor)
{
	box = (struct box){0};
	timer_make(flags, executor);
	threads_prepare(1, 1, 0);
}

static void
quiet_write(void *ctx, int level, const char *message)
{
	(void)ctx;
	(void)level;
	(void)message;
}

/* One that is due, and one that is due with it. */
static void
schedule_two_due(void)
{
	explore_check(schedule(0, TICK_NS) == 0);
	explore_check(schedule(1, TICK_NS) == 0);
	make_due();
}

static void
begin_box(void)
{
	make(HWT_MANUAL, &box_executor);
	schedule_two_due();
}

static void
begin_refuser(void)
{
	static const struct hwt_log quiet = {.write = quiet_write};

	timer_make_with(&(struct hwt_options){
	    .flags = HWT_MANUAL, .executor = &refuser, .log = &quiet});
	thread_prepare(0, 1);
	thread_prepare(1, 0);
	schedule_two_due();
}

static void
cancel_first(void)
{
	(void)cancel(0);
}

static void
cancel_and_reuse(void)
{
	if (cancel(0) == 0)
		explore_check(schedule(2, TICK_NS) == 0);
}

static void
reschedule_first(void)
{
	int result = reschedule(0, 2 * TICK_NS);

	explore_check(subject[0].started == 0 || result != 0);
}

static void
turn_and_close(void)
{
	(void)advance(0);
	box_close();
}

/* What was rescheduled or reused is handed over in the end. */
static void
end_box(void)
{
	unsigned i;

	for (i = 0; i < 3; i++) {
		(void)advance(1);
		run_box();
	}
	explore_check(hwt_pending_timeouts(timer) == 0);
	explore_check(timer_dispatched(timer) == 0);
}

static void
end_refuser(void)
{
	(void)advance(1);
	(void)advance(1);
	explore_check(hwt_pending_timeouts(timer) == 0);
	explore_check(timer_dispatched(timer) == 0);
}

/* Both are in the box; one thread runs them, another one stops and destroys
 * the timer as soon as it may. */
static void
begin_handed(void)
{
	begin_box();
	(void)advance(0);
	box_close();
}

static void
stop_and_destroy(void)
{
	int error;

	stop();
	while ((error = hwt_destroy(timer)) == -EBUSY)
		explore_yield();
	explore_check(error == 0);
	timer = NULL;
}

/* Threads without a cache: a record that is freed may be another thread's at
 * once. */
static void
begin_handed_without_caches(void)
{
	box = (struct box){0};
	timer_make(HWT_MANUAL, &box_executor);
	while (cache_claim(timer) != NULL)
		continue;
	schedule_two_due();
	(void)advance(0);
	box_close();
}

static void
schedule_third(void)
{
	explore_check(schedule(2, TICK_NS) == 0);
}

static void
run_first_twice(void)
{
	int result = hwt_run(timer, subject[0].handle);

	explore_check(result == 0 || result == -ENOENT);
}

static void
end_handed_twice(void)
{
	explore_check(subject[0].started + subject[0].cancelled == 1);
	explore_check(hwt_run(timer, subject[1].handle) == 0);
	explore_check(timer_dispatched(timer) == 0);
}

/* The mailbox. */
static struct hwt_mailbox *mailbox;

static void
begin_mailbox(void)
{
	explore_check(hwt_mailbox_create(&mailbox) == 0);
	make(HWT_MANUAL, hwt_mailbox_executor(mailbox));
	schedule_two_due();
}

static void
run_mailbox(void)
{
	explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
}

/* When the loop has cancelled one, it does not run, wherever it was. */
static void
run_mailbox_and_cancel(void)
{
	unsigned started;
	int result;

	explore_check(hwt_mailbox_run(mailbox, 1, NULL) == 0);
	result = cancel(0);
	started = subject[0].started;
	explore_check(hwt_mailbox_run(mailbox, 1, NULL) == 0);
	explore_check(result != 0 || subject[0].started == started);
}

/* What the loop was not told of is not there. */
static void
end_mailbox(void)
{
	size_t started = 0;

	if (mailbox == NULL)
		return;
	if (sim_eventfd_count(hwt_mailbox_fd(mailbox)) == 0) {
		explore_check(hwt_mailbox_run(mailbox, 0, &started) == 0);
		explore_check(started == 0);
	}
	explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	explore_check(hwt_pending_timeouts(timer) == 0);
	explore_check(timer_dispatched(timer) == 0);
	explore_check(hwt_mailbox_destroy(mailbox) == 0);
}

/* The mailbox goes as soon as its timeouts have ended, while a worker may still
 * be handing one over. */
static void
begin_mailbox_of_one(void)
{
	explore_check(hwt_mailbox_create(&mailbox) == 0);
	make(HWT_MANUAL, NULL);
	explore_check(
	    schedule_on(0, hwt_mailbox_executor(mailbox), TICK_NS) == 0);
	make_due();
}

static void
begin_mailbox_for_all(void)
{
	explore_check(hwt_mailbox_create(&mailbox) == 0);
	make(HWT_MANUAL, hwt_mailbox_executor(mailbox));
	explore_check(schedule(0, TICK_NS) == 0);
	make_due();
}

static void
cancel_and_destroy_mailbox(void)
{
	int error;

	if (cancel(0) != 0)
		explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	if (subject[0].started + subject[0].cancelled == 0)
		return;
	error = hwt_mailbox_destroy(mailbox);
	if (error == -EBUSY) {
		explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
		error = hwt_mailbox_destroy(mailbox);
	}
	explore_check(error == 0);
	mailbox = NULL;
}

/* The pool: one thread, made by the program's first. */
static void
begin_for_pool(void)
{
	make(HWT_MANUAL, NULL);
}

static void
use_pool(void)
{
	struct hwt_pool *pool;

	explore_check(hwt_pool_create(&pool, 1, 1) == 0);
	explore_check(schedule_on(0, hwt_pool_executor(pool), TICK_NS) == 0);
	(void)advance(0);
	flag_set(0);
	(void)advance(1);
	explore_check(hwt_pool_destroy(pool) == 0);
	explore_check(timer_dispatched(timer) == 0);
}

static void
cancel_in_pool(void)
{
	flag_await(0);
	(void)cancel(0);
}

/* It goes as soon as its timeout has ended, while a worker may still be handing
 * that over. */
static struct hwt_pool *pool_of_one;

static void
begin_pool_of_one(void)
{
	begin_for_pool();
	explore_check(hwt_pool_create(&pool_of_one, 1, 0) == 0);
	explore_check(
	    schedule_on(0, hwt_pool_executor(pool_of_one), TICK_NS) == 0);
	make_due();
}

static void
cancel_and_destroy_pool(void)
{
	(void)cancel(0);
	explore_check(hwt_pool_destroy(pool_of_one) == 0);
	explore_check(subject[0].started + subject[0].cancelled == 1);
}

static void
end_pool(void)
{
	explore_check(timer_dispatched(timer) == 0);
}

/* Two threads of the pool, and nobody who calls again: what was handed over is
 * awaited before the pool ends, which would wake all. */
static void
use_pool_of_two(void)
{
	struct hwt_pool *pool;
	unsigned i;

	explore_check(hwt_pool_create(&pool, 2, 0) == 0);
	for (i = 0; i < 2; i++)
		explore_check(
		    schedule_on(i, hwt_pool_executor(pool), TICK_NS) == 0);
	(void)advance(0);
	(void)advance(1);
	await_started(0);
	await_started(1);
	explore_check(hwt_pool_destroy(pool) == 0);
	explore_check(timer_dispatched(timer) == 0);
}

/* A second timer, whose worker hands over to the same mailbox. */
static struct hwt *second;
static uint32_t second_runs;

static void
second_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	explore_modify(&second_runs, 4);
	second_runs++;
	flag_set(2);
}

/* Two workers hand over to a mailbox that has one already and whose loop runs
 * it meanwhile: what is handed over is announced, or taken by a run, whoever
 * else is stopped. */
static uint32_t in_run;

static void
begin_mailbox_of_two(void)
{
	const struct hwt_options options = {
	    .flags = HWT_MANUAL, .tick_ns = TICK_NS, .ticks_per_wheel = 8};

	explore_check(hwt_mailbox_create(&mailbox) == 0);
	make(HWT_MANUAL, hwt_mailbox_executor(mailbox));
	explore_check(schedule(1, TICK_NS) == 0);
	make_due();
	(void)advance(0);
	sim_settings.clock_moves = true;
	explore_check(schedule(0, TICK_NS) == 0);
	second_runs = 0;
	in_run = 0;
	explore_check(hwt_create(&second, &options) == 0);
	explore_check(hwt_new_timeout_on(second, hwt_mailbox_executor(mailbox),
			  NULL, second_task, NULL, TICK_NS) == 0);
	make_due();
}

static void
run_mailbox_twice(void)
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		explore_modify(&in_run, 4);
		in_run = 1;
		explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
		explore_modify(&in_run, 4);
		in_run = 0;
	}
}

static void
turn_second_and_look(void)
{
	bool told;

	explore_check(hwt_advance(second, NULL) == 0);
	told = sim_eventfd_count(hwt_mailbox_fd(mailbox)) != 0;
	told |= explore_load(&in_run, 4) != 0;
	explore_check(told || explore_load(&second_runs, 4) == 1);
}

static void
end_mailbox_of_two(void)
{
	end_mailbox();
	explore_check(second_runs == 1 && timer_dispatched(second) == 0);
	explore_check(hwt_stop(second, NULL) == 0);
	explore_check(hwt_destroy(second) == 0);
}

/* Posts: two threads to one mailbox that also gets a timeout, each post twice,
 * the second time as soon as its function has begun. */
static struct letter {
	struct hwt_post post;
	uint32_t runs;
} letter[2];
static uint32_t letters_read;

static void
letter_read(struct hwt_post *post)
{
	struct letter *this = (struct letter *)post;

	explore_modify(&this->runs, 4);
	this->runs++;
	letters_read = letters_read * 4 + (uint32_t)(this - letter) + 1;
}

static void
begin_posts(void)
{
	letter[0] = letter[1] = (struct letter){0};
	letters_read = 0;
	begin_mailbox_for_all();
}

static void
post_both(void)
{
	explore_check(
	    hwt_mailbox_post(mailbox, &letter[0].post, letter_read) == 0);
	explore_check(
	    hwt_mailbox_post(mailbox, &letter[1].post, letter_read) == 0);
}

static void
run_one_then_all(void)
{
	size_t started;

	explore_check(hwt_mailbox_run(mailbox, 1, &started) == 0);
	explore_check(started + letter[0].runs + letter[1].runs <= 1);
	explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
}

/* Each has run once, the first before the second. */
static void
end_posts(void)
{
	end_mailbox();
	explore_check(letter[0].runs == 1 && letter[1].runs == 1);
	explore_check(letters_read == 1 * 4 + 2);
}

/* A post is the caller's again once its function has begun. */
static void
letter_read_again(struct hwt_post *post)
{
	struct letter *this = (struct letter *)post;

	explore_modify(&this->runs, 4);
	if (this->runs++ == 0)
		explore_check(
		    hwt_mailbox_post(mailbox, post, letter_read_again) == 0);
	else
		post->private_words[0] = post->private_words[1] = 1;
}

static void
begin_posts_alone(void)
{
	letter[0] = letter[1] = (struct letter){0};
	explore_check(hwt_mailbox_create(&mailbox) == 0);
	make(HWT_MANUAL, NULL);
}

static void
post_first(void)
{
	explore_check(
	    hwt_mailbox_post(mailbox, &letter[0].post, letter_read_again) == 0);
}

static void
post_second(void)
{
	explore_check(
	    hwt_mailbox_post(mailbox, &letter[1].post, letter_read_again) == 0);
}

static void
end_posts_again(void)
{
	explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	end_mailbox();
	explore_check(letter[0].runs == 2 && letter[1].runs == 2);
}

/* The pool's place is one: whoever finds it full is told so. */
static uint32_t posts_accepted;

static void
begin_pool_posts(void)
{
	letter[0] = letter[1] = (struct letter){0};
	posts_accepted = 0;
	begin_for_pool();
	explore_check(hwt_pool_create(&pool_of_one, 1, 1) == 0);
}

static void
post_to_pool(unsigned i)
{
	int result = hwt_pool_post(pool_of_one, &letter[i].post, letter_read);

	explore_check(result == 0 || result == -EAGAIN);
	explore_modify(&posts_accepted, 4);
	posts_accepted += result == 0;
}

static void
post_first_to_pool(void)
{
	post_to_pool(0);
}

static void
post_second_to_pool_and_end(void)
{
	post_to_pool(1);
	await_thread(0);
	explore_check(hwt_pool_destroy(pool_of_one) == 0);
	explore_check(posts_accepted >= 1);
	explore_check(letter[0].runs + letter[1].runs == posts_accepted);
}

const struct program handover_programs[] = {
    {
	.name = "handover/cancel-run",
	.begin = begin_box,
	.thread = {cancel_and_reuse, turn_and_close, run_box},
	.end = end_box,
    },
    {
	.name = "handover/reschedule-run",
	.begin = begin_box,
	.thread = {reschedule_first, turn_and_close, run_box},
	.end = end_box,
    },
    {
	.name = "handover/run-run-cancel",
	.begin = begin_handed,
	.thread = {run_first_twice, run_first_twice, cancel_first},
	.end = end_handed_twice,
    },
    {
	.name = "handover/run-reuse",
	.begin = begin_handed_without_caches,
	.thread = {run_box, schedule_third},
	.end = end_box,
    },
    {
	.name = "handover/run-destroy",
	.begin = begin_handed,
	.thread = {run_box, stop_and_destroy},
    },
    {
	.name = "handover/refused-cancel",
	.begin = begin_refuser,
	.thread = {cancel_and_reuse, turn},
	.end = end_refuser,
    },
    {
	.name = "handover/mailbox-run",
	.begin = begin_mailbox,
	.thread = {run_mailbox, turn},
	.end = end_mailbox,
	.pso = true,
    },
    {
	.name = "handover/mailbox-cancel",
	.begin = begin_mailbox,
	.thread = {run_mailbox_and_cancel, turn, cancel_first},
	.end = end_mailbox,
    },
    {
	.name = "handover/mailbox-destroy",
	.begin = begin_mailbox_of_one,
	.thread = {cancel_and_destroy_mailbox, turn},
	.end = end_mailbox,
	.pso = true,
    },
    {
	.name = "handover/mailbox-destroy-timers-own",
	.begin = begin_mailbox_for_all,
	.thread = {cancel_and_destroy_mailbox, turn},
	.end = end_mailbox,
    },
    {
	.name = "handover/mailbox-of-two-timers",
	.begin = begin_mailbox_of_two,
	.thread = {run_mailbox_twice, turn, turn_second_and_look},
	.end = end_mailbox_of_two,
    },
    {
	.name = "handover/pool",
	.begin = begin_for_pool,
	.thread = {use_pool, cancel_in_pool},
    },
    {
	.name = "handover/pool-destroy",
	.begin = begin_pool_of_one,
	.thread = {cancel_and_destroy_pool, turn},
	.end = end_pool,
    },
    {
	.name = "handover/pool-of-two",
	.begin = begin_for_pool,
	.thread = {use_pool_of_two},
    },
    {
	.name = "handover/mailbox-posts",
	.begin = begin_posts,
	.thread = {run_one_then_all, turn, post_both},
	.end = end_posts,
    },
    {
	.name = "handover/mailbox-posts-again",
	.begin = begin_posts_alone,
	.thread = {run_mailbox, post_first, post_second},
	.end = end_posts_again,
    },
    {
	.name = "handover/pool-posts",
	.begin = begin_pool_posts,
	.thread = {post_first_to_pool, post_second_to_pool_and_end},
    },
    {0},
};
