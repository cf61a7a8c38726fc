/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a run: cancel_wait, and periodic timeouts that are armed again
 * while others cancel, stop or move them.
 */
#include "program.h"

#include <errno.h>

static void
begin_manual(void)
{
	timer_make(HWT_MANUAL, NULL);
	threads_prepare(1, 0, 0);
}

static void
begin_once(void)
{
	begin_manual();
	explore_check(schedule(0, TICK_NS) == 0);
	make_due();
}

static void
begin_periodic(void)
{
	begin_manual();
	explore_check(schedule_periodic(0, TICK_NS, TICK_NS) == 0);
	make_due();
}

static void
begin_moving(void)
{
	begin_periodic();
	subject[0].moves = true;
}

/* Two runs. */
static void
turn_on(void)
{
	(void)advance(0);
	(void)advance(1);
}

static void
cancel_it_waiting(void)
{
	(void)cancel_wait(0);
	explore_check(cancel(0) == -ENOENT);
}

/* What tasks tell is a store like any other. */
static void
begin_telling(void)
{
	begin_once();
	subject[0].tells = true;
}

static void
begin_periodic_telling(void)
{
	begin_periodic();
	subject[0].tells = true;
}

static void
see_end(void)
{
	(void)cancel_wait(0);
	see_told(0);
}

/* The one who has ended it between two runs. */
static void
cancel_it_told(void)
{
	if (cancel(0) == 0)
		see_told(0);
}

static void
reschedule_it(void)
{
	(void)reschedule(0, 3 * TICK_NS);
}

/* Its record serves the next one, which runs, while somebody waits. What was
 * scheduled last expires first. */
static void
begin_reused_by_task(void)
{
	begin_manual();
	explore_check(schedule(7, TICK_NS) == 0);
	explore_check(schedule(0, TICK_NS) == 0);
	subject[7].schedules = 1;
	make_due();
}

static void
end_reused(void)
{
	explore_check(index_of(0) == index_of(1) || subject[0].cancelled);
	explore_check(subject[1].started == 1);
}

/* Of those who waited, one owns arg. */
static void
end_owned(void)
{
	explore_check(subject[0].cancelled == 1);
	explore_check(hwt_pending_timeouts(timer) == 0);
}

static void
end_nothing_pending(void)
{
	explore_check(hwt_pending_timeouts(timer) ==
	    subject[1].accepted - subject[1].started);
}

/* A periodic timeout that goes on is the only one left. */
static void
end_goes_on(void)
{
	unsigned started = subject[0].started;

	if (subject[0].cancelled > 0 || subject[0].ending) {
		explore_check(hwt_pending_timeouts(timer) == 0);
		return;
	}
	explore_check(hwt_pending_timeouts(timer) == 1);
	(void)advance(4);
	explore_check(subject[0].started > started);
}

/* A periodic one in the hands of another thread, which arms it again. */
static _Alignas(8) uint32_t handed[2]; /* count, closed */
static hwt_timeout timeout_handed;
static uint32_t run_count;

static int
hand(void *ctx, struct hwt *from, hwt_timeout timeout)
{
	(void)ctx;
	(void)from;
	explore_modify(handed, 8);
	timeout_handed = timeout;
	handed[0]++;
	return 0;
}

static const struct hwt_executor executor = {.execute = hand};

static bool
handed_ready(const void *context)
{
	(void)context;
	return handed[1] != 0 || handed[0] > run_count;
}

static void
run_handed(void)
{
	int result;

	for (;;) {
		explore_await(handed, 8, handed_ready, NULL);
		if (handed[0] == run_count)
			return;
		run_count++;
		result = hwt_run(timer, timeout_handed);
		explore_check(result == 0 || result == -ENOENT);
	}
}

static void
begin_handed(void)
{
	handed[0] = handed[1] = run_count = 0;
	timer_make(HWT_MANUAL, &executor);
	threads_prepare(0, 0, 0);
	explore_check(schedule_periodic(0, TICK_NS, TICK_NS) == 0);
	make_due();
}

static void
begin_in_hand(void)
{
	begin_handed();
	(void)advance(0);
	handed[1] = 1;
}

/* Who pulled it in as its tick was begun has pushed it only now. */
static void
begin_in_hand_pushed(void)
{
	begin_in_hand();
	(void)mpsc_push(&timer->queue, index_of(0), 0);
}

static void
turn_on_and_close(void)
{
	(void)advance(0);
	(void)advance(1);
	explore_modify(handed, 8);
	handed[1] = 1;
}

static void
end_handed(void)
{
	run_handed();
	end_goes_on();
	run_handed();
	explore_check(timer_dispatched(timer) == 0);
}

static void
end_stopped_in_hand(void)
{
	explore_check(timer_dispatched(timer) == 0);
	explore_check(subject[0].started == 1);
	explore_check(hwt_pending_timeouts(timer) == 0);
}

/* A permit is free before the first instruction of a one-shot task. */
static void
begin_with_permit(void)
{
	timer_make_with(
	    &(struct hwt_options){.flags = HWT_MANUAL, .max_pending = 1});
	thread_prepare(0, 1);
	thread_prepare(1, 1);
	explore_check(schedule(0, TICK_NS) == 0);
	subject[0].schedules = 1;
	make_due();
}

static void
end_with_permit(void)
{
	explore_check(subject[0].started == 0 || subject[1].accepted == 1);
	explore_check(timer->permits == subject[1].accepted);
}

const struct program periodic_programs[] = {
    {
	.name = "wait/one-shot",
	.begin = begin_once,
	.thread = {cancel_it_waiting, turn},
	.end = end_nothing_pending,
    },
    {
	.name = "wait/one-shot-next-runs",
	.begin = begin_reused_by_task,
	.thread = {cancel_it_waiting, turn_on},
	.end = end_reused,
    },
    {
	.name = "wait/periodic",
	.begin = begin_periodic,
	.thread = {cancel_it_waiting, turn_twice},
	.end = end_owned,
    },
    {
	.name = "wait/periodic-two-owners",
	.begin = begin_periodic,
	.thread = {cancel_it_waiting, cancel_it_waiting, turn},
	.end = end_owned,
    },
    {
	.name = "wait/periodic-cancel",
	.begin = begin_periodic,
	.thread = {cancel_it_waiting, cancel_it, turn},
    },
    {
	.name = "wait/one-shot-told",
	.begin = begin_telling,
	.thread = {see_end, turn},
	.end = end_nothing_pending,
	.pso = true,
    },
    {
	.name = "periodic/cancel-told",
	.begin = begin_periodic_telling,
	.thread = {cancel_it_told, turn_on},
	.end = end_goes_on,
	.pso = true,
    },
    {
	.name = "periodic/cancel",
	.begin = begin_periodic,
	.thread = {cancel_it, turn_on},
	.end = end_goes_on,
    },
    {
	.name = "periodic/stop",
	.begin = begin_periodic,
	.thread = {stop, turn_on},
    },
    {
	.name = "periodic/stop-cancel",
	.begin = begin_periodic,
	.thread = {stop, cancel_it, turn},
    },
    {
	.name = "periodic/reschedule",
	.begin = begin_periodic,
	.thread = {reschedule_it, turn_on},
	.end = end_goes_on,
    },
    {
	.name = "periodic/moves-itself-cancel",
	.begin = begin_moving,
	.thread = {cancel_it, turn_on},
	.end = end_goes_on,
    },
    {
	.name = "periodic/moves-itself-stop",
	.begin = begin_moving,
	.thread = {stop, turn},
    },
    {
	.name = "periodic/executor-cancel",
	.begin = begin_handed,
	.thread = {cancel_it, turn_on_and_close, run_handed},
	.end = end_handed,
    },
    {
	.name = "periodic/executor-stop",
	.begin = begin_in_hand,
	.thread = {stop, run_handed},
	.end = end_stopped_in_hand,
    },
    {
	.name = "periodic/executor-stop-pushed",
	.begin = begin_in_hand_pushed,
	.thread = {stop, run_handed},
	.end = end_stopped_in_hand,
    },
    {
	.name = "periodic/permit-is-free",
	.begin = begin_with_permit,
	.thread = {cancel_it, turn},
	.end = end_with_permit,
    },
    {0},
};
