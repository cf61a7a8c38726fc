/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start and stop: against each other, against callers and the worker, and the
 * process-wide timer. Where the worker is a thread, it runs worker_main.
 */
#include "program.h"

#include <errno.h>

static void
begin_manual(void)
{
	timer_make(HWT_MANUAL, NULL);
	threads_prepare(2, 2, 0);
}

static void
begin_queued(void)
{
	begin_manual();
	explore_check(schedule(0, TICK_NS) == 0);
}

static void
begin_due(void)
{
	begin_queued();
	make_due();
}

static void
begin_new(void)
{
	timer_make(0, NULL);
	thread_prepare(0, 1);
	thread_prepare(1, 1);
}

static void
begin_new_failing(void)
{
	begin_new();
	sim_failures[SIM_THREAD] =
	    (struct sim_failure){.count = 1, .may = true};
}

/* Accepted, or refused because it stops. */
static int
schedule_or_refused(unsigned i, uint64_t delay_ns)
{
	int error = schedule(i, delay_ns);

	explore_check(error == 0 || error == -ESHUTDOWN);
	explore_check(error == 0 || subject[i].handle.id == 0);
	return error;
}

static void
schedule_two(void)
{
	if (schedule_or_refused(1, TICK_NS) == -ESHUTDOWN)
		explore_check(schedule(2, 0) == -ESHUTDOWN);
	else
		(void)schedule_or_refused(2, 0);
}

static void
schedule_one(void)
{
	(void)schedule_or_refused(3, TICK_NS);
}

/* The record waits in the queue already. */
static void
cancel_and_schedule(void)
{
	(void)cancel(0);
	(void)schedule_or_refused(1, TICK_NS);
}

/* Its record has an entry, so that the next use of it has HAS_ENTRY at once. */
static void
begin_with_entry(void)
{
	begin_manual();
	explore_check(schedule(0, TICK_NS) == 0);
	(void)advance(0);
}

static void
use_with_entry(void)
{
	(void)cancel(0);
	(void)schedule_or_refused(1, 2 * TICK_NS);
}

static void
cancel_and_reschedule(void)
{
	(void)reschedule(0, 0);
	(void)cancel(0);
}

static void
begin_limited(void)
{
	timer_make_with(
	    &(struct hwt_options){.flags = HWT_MANUAL, .max_pending = 2});
	thread_prepare(0, 2);
	thread_prepare(1, 2);
	explore_check(schedule(0, TICK_NS) == 0);
}

static void
end_limited(void)
{
	explore_check(timer->permits == 0);
}

/* No page is committed: whoever schedules commits one while it stops. */
static void
begin_uncommitted(void)
{
	timer_make(HWT_MANUAL, NULL);
	threads_prepare(0, 0, 1);
	cache_flush(timer, &timer->store.caches[2]);
	trim_all();
	explore_check(timer->store.idle[0] == 1);
}

/* All of a batch, or none. */
static void
schedule_batch(void)
{
	struct hwt_spec spec[2];
	hwt_timeout handle[2];
	unsigned i;
	int error;

	memset(spec, 0, sizeof(spec));
	for (i = 0; i < 2; i++) {
		spec[i].task = subject_task;
		spec[i].arg = &subject[i + 1];
		spec[i].delay_ns = TICK_NS;
		subject[i + 1].not_after_ns = UINT64_MAX;
	}
	error = hwt_new_timeouts(timer, 2, spec, handle);
	explore_check(error == 0 || error == -ESHUTDOWN);
	for (i = 0; i < 2; i++) {
		subject[i + 1].handle = handle[i];
		subject[i + 1].accepted = error == 0;
		explore_check((error == 0) == (handle[i].id != 0));
	}
}

/* The first record of the batch waits in the queue already. */
static void
cancel_and_schedule_batch(void)
{
	(void)cancel(0);
	schedule_batch();
}

static void
end_batch(void)
{
	explore_check(subject[1].returned == subject[2].returned);
}

/* Starting. */
static int
start_failing(void)
{
	int error = hwt_start(timer);

	explore_check(error == 0 || error == -EAGAIN || error == -ESHUTDOWN);
	return error;
}

/* A thread could not be had once: the next attempt succeeds. */
static void
start_then_schedule(void)
{
	if (start_failing() == -EAGAIN)
		explore_check(start_failing() == 0);
	await_thread(1);
	explore_check(schedule(0, 0) == 0);
	await_started(0);
	stop();
}

static void
schedule_first(void)
{
	int error = schedule(1, 0);

	explore_check(error == 0 || error == -EAGAIN);
	explore_check(error == 0 || subject[1].handle.id == 0);
}

static void
start_against_stop(void)
{
	int error = schedule(1, 0);

	explore_check(error == 0 || error == -EAGAIN || error == -ESHUTDOWN);
	if (error == -ESHUTDOWN)
		explore_check(hwt_start(timer) == -ESHUTDOWN);
}

static void
start_alone(void)
{
	(void)start_failing();
}

static void
schedule_and_stop(void)
{
	(void)schedule_or_refused(0, TICK_NS);
	stop();
}

/* The process-wide timer. */
static void
begin_nothing(void)
{
}

/* A child whose parent has refused to have one. */
static void
begin_child(void)
{
	explore_check(hwt_shared_shutdown(NULL) == 0);
	a64_store_relaxed(process_epoch_at.word, 0);
}

static struct hwt *found[2];

static void
find_shared(unsigned i)
{
	int error = hwt_shared(&found[i]);

	explore_check(error == 0 || error == -ESHUTDOWN);
	if (error != 0)
		found[i] = NULL;
}

static void
find_and_shut_down(void)
{
	find_shared(0);
	await_thread(1);
	explore_check(found[0] != NULL && found[0] == found[1]);
	explore_check(hwt_shared_shutdown(NULL) == 0);
	explore_check(hwt_shared(&found[0]) == -ESHUTDOWN);
}

static void
find_second(void)
{
	find_shared(1);
}

static void
find_first(void)
{
	find_shared(0);
}

static void
shut_down(void)
{
	explore_check(hwt_shared_shutdown(NULL) == 0);
	explore_check(hwt_shared(&found[1]) == -ESHUTDOWN);
}

/* It stays in place after its shutdown. */
static void
end_shared(void)
{
	sim_forget();
}

const struct program lifecycle_programs[] = {
    {
	.name = "stop/schedule",
	.begin = begin_manual,
	.thread = {schedule_two, stop, turn},
    },
    {
	.name = "stop/uncommitted",
	.begin = begin_uncommitted,
	.thread = {schedule_two, schedule_one, stop},
    },
    {
	.name = "stop/schedule-reused",
	.begin = begin_queued,
	.thread = {cancel_and_schedule, stop, turn},
    },
    {
	.name = "stop/schedule-limited",
	.begin = begin_limited,
	.thread = {cancel_and_schedule, stop},
	.end = end_limited,
    },
    {
	.name = "stop/cancel-reschedule",
	.begin = begin_due,
	.thread = {cancel_and_reschedule, stop, turn},
    },
    {
	.name = "stop/batch",
	.begin = begin_manual,
	.thread = {schedule_batch, stop},
	.end = end_batch,
    },
    {
	.name = "stop/batch-reused",
	.begin = begin_queued,
	.thread = {cancel_and_schedule_batch, stop},
	.end = end_batch,
    },
    {
	.name = "stop/has-entry",
	.begin = begin_with_entry,
	.thread = {use_with_entry, stop, turn},
    },
    {
	.name = "stop/two-stops",
	.begin = begin_due,
	.thread = {stop, stop, turn},
    },
    {
	.name = "stop/two-stops-schedule",
	.begin = begin_manual,
	.thread = {schedule_one, stop, stop},
    },
    {
	.name = "start/two-failing",
	.begin = begin_new_failing,
	.thread = {start_then_schedule, schedule_first},
    },
    {
	.name = "start/stop",
	.begin = begin_new,
	.thread = {start_against_stop, stop},
    },
    {
	.name = "start/stop-failing",
	.begin = begin_new_failing,
	.thread = {start_against_stop, start_alone, stop},
    },
    {
	.name = "worker/stop",
	.begin = begin_new,
	.thread = {schedule_and_stop},
    },
    {
	.name = "worker/two-stops",
	.begin = begin_new,
	.thread = {schedule_and_stop, stop},
    },
    {0},
};

const struct program shared_programs[] = {
    {
	.name = "shared/two-callers",
	.begin = begin_nothing,
	.thread = {find_and_shut_down, find_second},
	.end = end_shared,
	.pso = true,
    },
    {
	.name = "shared/two-callers-in-a-child",
	.begin = begin_child,
	.thread = {find_and_shut_down, find_second},
	.end = end_shared,
    },
    {
	.name = "shared/shutdown",
	.begin = begin_nothing,
	.thread = {find_first, shut_down},
	.end = end_shared,
    },
    {0},
};
