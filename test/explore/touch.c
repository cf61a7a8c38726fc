/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_touch, hwt_state and deadlines on the clock against what ends a timeout.
 *
 * The timeout that is touched is subject 0; the variable is subject 1's handle,
 * which is also the arg of a new one. So the task of a new one finds its own
 * handle in the variable (subject_task compares them), and each of the two runs
 * once, or not at all, as the answers say.
 */
#include "program.h"

#include <errno.h>

static struct hwt_mailbox *mailbox;

static void
begin_with(const struct hwt_options *options)
{
	mailbox = NULL;
	timer_make_with(options);
	threads_prepare(2, 0, 0);
}

static void
schedule_due(void)
{
	explore_check(schedule(0, TICK_NS) == 0);
	make_due();
}

static void
begin_due(void)
{
	begin_with(&(struct hwt_options){.flags = HWT_MANUAL});
	schedule_due();
}

static void
begin_contested(void)
{
	begin_due();
	subject[0].contested = true;
}

static void
begin_mailbox_with(uint64_t max_pending)
{
	struct hwt_mailbox *made;

	explore_check(hwt_mailbox_create(&made) == 0);
	begin_with(&(struct hwt_options){.flags = HWT_MANUAL,
	    .max_pending = max_pending,
	    .executor = hwt_mailbox_executor(made)});
	mailbox = made;
	schedule_due();
}

static void
begin_mailbox(void)
{
	begin_mailbox_with(0);
}

/* One place, which what is in the mailbox holds. */
static void
begin_mailbox_full(void)
{
	begin_mailbox_with(1);
	(void)advance(0);
}

static void
begin_in_mailbox(void)
{
	begin_mailbox();
	(void)advance(0);
}

static void
begin_periodic(void)
{
	begin_with(&(struct hwt_options){.flags = HWT_MANUAL});
	explore_check(schedule_periodic(0, TICK_NS, TICK_NS) == 0);
	make_due();
}

/* Moved: it has not started, and its time has not come. New: the old one has
 * begun to end. */
static void
touch_it(void)
{
	int result = touch(0, 1, 2 * TICK_NS);

	explore_check(result == 0);
	explore_check(is_touched(0, 1) || subject[0].started == 0);
}

static void
touch_full(void)
{
	int result = touch(0, 1, 2 * TICK_NS);

	explore_check(result == 0 || result == -ENOBUFS);
	explore_check(
	    result == 0 || subject[1].handle.id == subject[0].handle.id);
}

static void
touch_periodic(void)
{
	int result = touch(0, 1, 3 * TICK_NS);

	explore_check(result == 0 || result == -EINPROGRESS);
	explore_check(subject[1].handle.id == subject[0].handle.id);
}

/* Once it was cancelled, it is replaced; its last run may be under way. */
static void
touch_periodic_cancelled(void)
{
	int result = touch(0, 1, 3 * TICK_NS);

	explore_check(result == 0 || result == -EINPROGRESS);
	explore_check(result == 0 || !is_touched(0, 1));
}

static void
touch_stopping(void)
{
	int result = touch(0, 1, 2 * TICK_NS);

	explore_check(result == 0 || result == -ESHUTDOWN);
	explore_check(
	    result == 0 || subject[1].handle.id == subject[0].handle.id);
}

/* On the loop's thread, between two looks into the mailbox. */
static void
run_mailbox_and_touch(void)
{
	unsigned started;

	explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	started = subject[0].started;
	touch_it();
	explore_check(started == 0 || is_touched(0, 1));
	explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
}

static void
run_mailbox(void)
{
	explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
}

/* The record of what has run serves a periodic one. */
static void
turn_and_reuse(void)
{
	(void)advance(0);
	explore_check(schedule_periodic(3, HWT_NEVER, TICK_NS) == 0);
}

/* A second thread with a variable of its own. */
static void
touch_it_too(void)
{
	explore_check(touch(0, 2, 3 * TICK_NS) == 0);
}

static void
turn_until_all_ran(void)
{
	unsigned i;

	for (i = 0; i < 5; i++) {
		if (mailbox != NULL)
			run_mailbox();
		(void)advance(1);
	}
	explore_check(hwt_pending_timeouts(timer) == 0);
	explore_check(timer_dispatched(timer) == 0);
	if (mailbox == NULL)
		return;
	explore_check(hwt_mailbox_destroy(mailbox) == 0);
}

static void
end_stopped(void)
{
	if (mailbox == NULL)
		return;
	run_mailbox();
	explore_check(hwt_mailbox_destroy(mailbox) == 0);
}

/* The limit holds, and what was refused has changed nothing. */
static void
end_full(void)
{
	explore_check(subject[0].started + subject[0].cancelled == 1);
	turn_until_all_ran();
}

static void
end_periodic(void)
{
	unsigned started = subject[0].started;

	explore_check(hwt_pending_timeouts(timer) == 1);
	(void)advance(4);
	explore_check(subject[0].started > started);
}

/* hwt_state beside the end of a timeout and the next use of its record. */
static void
begin_pending(void)
{
	begin_with(&(struct hwt_options){.flags = HWT_MANUAL});
	explore_check(schedule(0, TICK_NS) == 0);
}

static void
cancel_and_reuse(void)
{
	explore_check(cancel(0) == 0);
	explore_check(schedule(1, TICK_NS) == 0);
	explore_check(index_of(0) == index_of(1));
}

static void
ask(void)
{
	void *arg = &mailbox;
	int state = hwt_state(timer, subject[0].handle, &arg);

	explore_check(state == -ENOENT || state > 0);
	explore_check(
	    arg == (state > 0 ? (void *)&subject[0] : (void *)&mailbox));
}

static void
ask_twice(void)
{
	ask();
	ask();
}

/* A deadline that has passed, beside a turn of several ticks and a worker that
 * falls asleep. */
static void
begin_behind(void)
{
	begin_with(&(struct hwt_options){.flags = HWT_MANUAL});
	explore_check(schedule(2, TICK_NS) == 0);
	explore_check(schedule(3, 3 * TICK_NS) == 0);
	subject[2].not_after_ns = UINT64_MAX; /* the wheel stands still */
	(void)advance(0);
	sim_clock_add(3 * TICK_NS);
}

static void
schedule_passed(void)
{
	explore_check(schedule_at(0, timer->origin_ns + 2 * TICK_NS) == 0);
}

static void
end_behind(void)
{
	(void)advance(1);
	explore_check(subject[0].started == 1);
	explore_check(hwt_pending_timeouts(timer) == 0);
}

static void
begin_worker(void)
{
	timer_make(0, NULL);
	thread_prepare(0, 2);
	explore_check(hwt_start(timer) == 0);
}

static void
pull_in_to_passed(void)
{
	explore_check(schedule(0, 9 * TICK_NS) == 0);
	explore_check(reschedule_at(0, 1) == 0);
	await_started(0);
	stop();
}

const struct program touch_programs[] = {
    {
	.name = "touch/expiry",
	.begin = begin_due,
	.thread = {touch_it, turn},
	.end = turn_until_all_ran,
    },
    {
	.name = "touch/expiry-touch",
	.begin = begin_contested,
	.thread = {touch_it, turn, touch_it_too},
	.end = turn_until_all_ran,
    },
    {
	.name = "touch/expiry-reuse",
	.begin = begin_due,
	.thread = {touch_it, turn_and_reuse},
    },
    {
	.name = "touch/cancel",
	.begin = begin_due,
	.thread = {touch_it, cancel_it, turn},
	.end = turn_until_all_ran,
    },
    {
	.name = "touch/stop",
	.begin = begin_due,
	.thread = {touch_stopping, stop},
	.end = end_stopped,
    },
    {
	.name = "touch/mailbox-loop",
	.begin = begin_mailbox,
	.thread = {run_mailbox_and_touch, turn},
	.end = turn_until_all_ran,
    },
    {
	.name = "touch/mailbox-run",
	.begin = begin_in_mailbox,
	.thread = {touch_it, run_mailbox},
	.end = turn_until_all_ran,
    },
    {
	.name = "touch/mailbox-limit",
	.begin = begin_mailbox_full,
	.thread = {touch_full, run_mailbox},
	.end = end_full,
    },
    {
	.name = "touch/periodic",
	.begin = begin_periodic,
	.thread = {touch_periodic, turn},
	.end = end_periodic,
    },
    {
	.name = "touch/periodic-cancel",
	.begin = begin_periodic,
	.thread = {touch_periodic_cancelled, cancel_it, turn},
	.end = turn_until_all_ran,
    },
    {
	.name = "state/reuse",
	.begin = begin_pending,
	.thread = {cancel_and_reuse, ask_twice},
    },
    {
	.name = "deadline/passed-turn",
	.begin = begin_behind,
	.thread = {schedule_passed, turn},
	.end = end_behind,
    },
    {
	.name = "deadline/pulled-in-asleep",
	.begin = begin_worker,
	.thread = {pull_in_to_passed},
    },
    {0},
};
