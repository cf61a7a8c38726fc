/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs that make a timer, of executors and posts, of the process-wide
 * timer, of waiting for the worker, and what a program expects in the end.
 */
#include "program.h"

#include <errno.h>

/* Making the timer: what comes before manual or worker is an option of it. */

static struct hwt_options options;
static struct hwt_mailbox *mailbox;
static struct hwt_pool *pool;
static unsigned woken;
static uint64_t wait_ns;

static void
wake(void *ctx)
{
	(void)ctx;
	explore_modify(&woken, 4);
	woken++;
}

static void
log_write(void *ctx, int level, const char *message)
{
	(void)ctx;
	(void)level;
	(void)message;
}

static const struct hwt_wake waker = {.wake = wake};
static const struct hwt_log quiet = {.write = log_write};

OF("limit", max_pending, options.max_pending = max_pending)

VERB0("manual", manual)
{
	options.flags = HWT_MANUAL;
	options.wake = &waker;
	timer_make(&options);
}

VERB3("caches", caches, first, second, third)
{
	thread_prepare(0, first);
	thread_prepare(1, second);
	thread_prepare(2, third);
}

VERB3("callers", callers, first, second, third)
{
	manual();
	caches(first, second, third);
}

ALONE("worker", timer_make(&options))

/* All but so many caches belong to threads that do nothing. */
VERB1("caches-left", caches_left, count)
{
	unsigned i;

	for (i = count; i < CACHES_MAX; i++)
		explore_check(cache_claim(timer) != NULL);
}

ALONE("flush", cache_flush(timer, cache_of(timer)))

/* A thread cannot be had, once. */
ALONE("thread-fails", sim_settings.thread_fails = true)

/* The system takes so many pages back, and then none. */
OF("releases", count, sim_settings.releases_max = count)
ALONE("memory-recurs", sim_settings.memory_recurs = true)
ALONE("early-handles", handles_early = true)
ALONE("clock-moves", sim_settings.clock_moves = true)

VERB0("start", start)
{
	int error = hwt_start(timer);

	explore_check(error == 0 || error == -ESHUTDOWN ||
	    (error == -EAGAIN && sim_settings.thread_fails));
}

VERB0("ask-wakeup", ask_wakeup)
{
	explore_check(hwt_next_wakeup(timer, &wait_ns) == 0);
	if (explore_self() == EXPLORE_THREADS_MAX)
		woken = 0;
}

/* Executors. The box keeps what it gets for whoever runs it. */

static struct box {
	_Alignas(8) uint32_t count;
	uint32_t closed;
	hwt_timeout timeout[8 * SUBJECTS];
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

ALONE("box", options.executor = &box_executor)

VERB0("refuser", use_refuser)
{
	options.executor = &refuser;
	options.log = &quiet;
}

VERB0("box-close", box_close)
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

static void
run_handle(hwt_timeout timeout)
{
	int result;

	note_call();
	result = hwt_run(timer, timeout);
	explore_check(result == 0 || result == -ENOENT);
}

/* Whether there was one. */
static bool
box_take(void)
{
	if (box.count == box.taken)
		return false;
	run_handle(box.timeout[box.taken++]);
	return true;
}

/* Runs what comes, until the box is closed. */
VERB0("box-serve", box_serve)
{
	do
		explore_await(&box.count, 8, box_ready, NULL);
	while (box_take());
}

VERB0("box-run", box_run)
{
	do
		explore_modify(&box.count, 8);
	while (box_take());
}

OF("run", i, run_handle(subject[i].known))

VERB0("mailbox-make", mailbox_make)
{
	explore_check(hwt_mailbox_create(&mailbox) == 0);
}

VERB0("mailbox", use_mailbox)
{
	mailbox_make();
	options.executor = hwt_mailbox_executor(mailbox);
}

TWO("new-in-mailbox", i, ticks,
    (void)schedule_on(i, hwt_mailbox_executor(mailbox), ticks *TICK_NS))

/* Posts. One thread's arrive in their order, and each runs as often as it was
 * accepted. */
static struct letter {
	struct hwt_post post;
	unsigned owed, runs, thread, number;
	bool again; /* its function posts it once more */
} letter[2];
static unsigned letters, letters_run;

static void letter_read(struct hwt_post *post);

static void
posted(struct letter *l, int error)
{
	explore_modify(&l->owed, 4);
	l->owed += error == 0;
}

static void
post_letter(struct letter *l)
{
	l->thread = explore_self();
	l->number = ++letters;
	posted(l, hwt_mailbox_post(mailbox, &l->post, letter_read));
}

static void
letter_read(struct hwt_post *post)
{
	struct letter *l = (struct letter *)post;
	const struct letter *other = l == letter ? &letter[1] : letter;

	explore_modify(&l->runs, 4);
	l->runs++;
	letters_run++;
	explore_check(other->number == 0 || other->thread != l->thread ||
	    other->number > l->number || other->runs > 0);
	if (l->again && l->runs == 1)
		post_letter(l);
	else
		memset(post, 1, sizeof(*post));
}

OF("post", i, post_letter(&letter[i]))

VERB1("post-again", post_again, i)
{
	letter[i].again = true;
	post_letter(&letter[i]);
}

VERB1("pool-post", pool_post, i)
{
	int error = hwt_pool_post(pool, &letter[i].post, letter_read);

	explore_check(error == 0 || error == -EAGAIN);
	posted(&letter[i], error);
}

VERB1("posts", posts, least)
{
	explore_check(letters_run >= least);
	explore_check(letter[0].runs == letter[0].owed);
	explore_check(letter[1].runs == letter[1].owed);
}

VERB1("mailbox-run", mailbox_run, max)
{
	unsigned letters_before = letters_run;
	bool told = sim_eventfd_count(hwt_mailbox_fd(mailbox)) != 0;
	size_t begun = 0;

	note_call();
	explore_check(hwt_mailbox_run(mailbox, max, &begun) == 0);
	begun += letters_run - letters_before;
	explore_check(max == 0 || begun <= max);
	/* In the end: what the loop was not told of is not there. */
	explore_check(
	    explore_self() != EXPLORE_THREADS_MAX || told || begun == 0);
}

/* As soon as it holds nothing. */
static void
mailbox_destroy(void)
{
	int error = hwt_mailbox_destroy(mailbox);

	while (error == -EBUSY) {
		explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
		error = hwt_mailbox_destroy(mailbox);
	}
	explore_check(error == 0);
	mailbox = NULL;
}

/* On the loop's thread: what it has cancelled does not run. */
VERB1("mailbox-cancel", mailbox_cancel, i)
{
	int result = cancel(i);
	unsigned started = subject[i].started;

	explore_check(hwt_mailbox_run(mailbox, 1, NULL) == 0);
	explore_check(result != 0 || subject[i].started == started);
}

/* When its timeout has ended, if only that was handed over. */
VERB1("mailbox-end", mailbox_end, i)
{
	if (cancel(i) != 0)
		explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	if (subject[i].started + subject[i].cancelled > 0)
		mailbox_destroy();
}

TWO("pool", threads, queue,
    explore_check(hwt_pool_create(&pool, threads, queue) == 0))
TWO("new-in-pool", i, ticks,
    (void)schedule_on(i, hwt_pool_executor(pool), ticks *TICK_NS))

ALONE("pool-destroy", explore_check(hwt_pool_destroy(pool) == 0))

/* The process-wide timer. */

static struct hwt *found[2];

VERB1("shared", find_shared, i)
{
	int error = hwt_shared(&found[i]);

	explore_check(error == 0 || error == -ESHUTDOWN);
}

VERB0("shut-down", shut_down)
{
	explore_check(hwt_shared_shutdown(NULL) == 0);
	explore_check(hwt_shared(&found[1]) == -ESHUTDOWN);
}

ALONE("shared-same", explore_check(found[0] != NULL && found[0] == found[1]))

/* A child whose parent has refused to have one. */
VERB0("child", child)
{
	explore_check(hwt_shared_shutdown(NULL) == 0);
	a64_store_relaxed(&process_epoch_at.word, 0);
}

/* Waiting for others. */

static bool
worker_sleeps(const void *word)
{
	return timer->wake_before != 0 && sim_sleeps_on(word);
}

/* In a long sleep. */
ALONE("await-sleep",
    explore_await(
	&timer->wake_sequence, 4, worker_sleeps, &timer->wake_sequence))

static bool
is_announced(const void *context)
{
	(void)context;
	return timer->wake_before != 0;
}

/* It has said that it is about to sleep. */
ALONE("await-announced",
    explore_await(&timer->wake_before, 8, is_announced, NULL))

static bool
is_taken(const void *word)
{
	const uint64_t mask = STATE_MASK | FLAG_HAS_ENTRY;

	return (*(const uint64_t *)word & mask) ==
	    (STATE_PENDING | FLAG_HAS_ENTRY);
}

/* The worker has placed it. */
VERB1("await-taken", await_taken, i)
{
	const void *word = record_at(&timer->store, index_of(i));

	explore_await(word, 8, is_taken, word);
}

/* All that is due some time has started. */
VERB0("await-all", await_all)
{
	const struct subject *e;

	for (e = subject; e < subject + SUBJECTS; e++) {
		if (e->accepted > e->cancelled && !e->never && !e->periodic)
			word_await(&e->started);
	}
}

/* Expectations of a program at its end. */

TWO("started", i, count, explore_check(subject[i].started == count))

VERB2("same-record", same_record, i, j)
{
	explore_check(subject[i].handle.id != subject[j].handle.id);
	explore_check(index_of(i) == index_of(j));
}

OF("woken", times, explore_check(woken == times))

/* Who asked is told of the next tick, or is woken. */
VERB0("woken-or-told", woken_or_told)
{
	explore_check(woken <= 1);
	explore_check(woken > 0 || wait_ns <= TICK_NS);
}

static void
executors_run(void)
{
	box_run();
	if (mailbox != NULL)
		mailbox_run(0);
}

/* Time advances until all are due: a lost one shows. */
VERB0("drain", drain)
{
	uint64_t left = 0;
	unsigned i;

	if (timer_stopped) {
		executors_run();
		return;
	}
	verify_inside();
	sim_settings.clock_moves = false;
	if (wheel_is_behind())
		advance(0);
	for (i = 0; i < 5; i++) {
		executors_run();
		advance(1);
	}
	executors_run();
	for (i = 0; i < SUBJECTS; i++)
		left += subject[i].periodic || subject[i].never;
	explore_check(hwt_pending_timeouts(timer) <= left);
	explore_check(timer_dispatched(timer) == 0);
}

/* It runs on, unless somebody has ended it. */
VERB1("goes-on", goes_on, i)
{
	unsigned count = subject[i].started;

	if (hwt_pending_timeouts(timer) == 0)
		return;
	advance(4);
	executors_run();
	explore_check(subject[i].started > count);
}

/* Executors are emptied before the timer is destroyed. */
void
verbs_finish(void)
{
	if (mailbox == NULL)
		return;
	executors_run();
	mailbox_destroy();
}

ALONE("forget", sim_held = 0) /* the shared timer stays */
