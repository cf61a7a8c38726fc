/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls against the worker, which is a thread that turns a manual timer: its
 * take of what was pushed, its expiry of what has an entry, and its removal of
 * entries that are stale.
 */
#include "program.h"

#include <errno.h>

/* A timer, and caches for three threads; the last one turns the wheel. */
static void
begin_empty(void)
{
	timer_make(HWT_MANUAL, NULL);
	threads_prepare(2, 2, 0);
}

/* One that is queued. */
static void
begin_queued(void)
{
	begin_empty();
	explore_check(schedule(0, 2 * TICK_NS) == 0);
}

/* One that is placed, and its tick has come. */
static void
begin_due(void)
{
	begin_empty();
	explore_check(schedule(0, TICK_NS) == 0);
	make_due();
}

/* One that is placed for later, while another one is due. */
static void
begin_placed(void)
{
	begin_empty();
	explore_check(schedule(0, 3 * TICK_NS) == 0);
	explore_check(schedule(7, TICK_NS) == 0);
	make_due();
}

static void
begin_contested_queued(void)
{
	begin_queued();
	subject[0].contested = true;
}

/* One that was placed, and was cancelled: its record has HAS_ENTRY, and is the
 * first that the first thread takes. */
static void
begin_with_entry_for(uint64_t delay_ns)
{
	timer_make(HWT_MANUAL, NULL);
	threads_prepare(0, 0, 0);
	explore_check(schedule(0, delay_ns) == 0);
	(void)advance(0);
	explore_check(cancel(0) == 0);
	cache_flush(timer, cache_of(timer));
	sim_clock_add(TICK_NS);
}

static void
begin_with_entry(void)
{
	begin_with_entry_for(TICK_NS);
}

static void
begin_with_entry_far(void)
{
	begin_with_entry_for(3 * TICK_NS);
}

/* In the end, time goes on until all are due: what is lost shows. */
static void
end_all_due(void)
{
	uint64_t pending = hwt_pending_timeouts(timer);
	unsigned i;

	verify_entries();
	verify_records();
	sim_settings.clock_moves = false;
	for (i = 0; i < 4; i++)
		pending -= advance(1);
	explore_check(pending == 0);
	for (i = 0; i < SUBJECTS; i++)
		explore_check(subject[i].returned == 0);
}

static void
schedule_one(void)
{
	explore_check(schedule(1, TICK_NS) == 0);
}

static void
schedule_two(void)
{
	explore_check(schedule(2, TICK_NS) == 0);
	explore_check(schedule(3, 0) == 0);
}

static bool
same_record(unsigned a, unsigned b)
{
	return index_of(a) == index_of(b);
}

/* By the entry that is there; then not, for it would come too late. */
static void
use_again(void)
{
	explore_check(schedule(1, 2 * TICK_NS) == 0);
	explore_check(same_record(0, 1));
}

static void
use_again_and_cancel(void)
{
	explore_check(schedule(1, 3 * TICK_NS) == 0);
	(void)cancel(1);
	explore_check(schedule(2, TICK_NS) == 0);
}

static void
use_again_and_pull_in(void)
{
	explore_check(schedule(1, 3 * TICK_NS) == 0);
	(void)reschedule(1, TICK_NS);
}

static void
use_again_and_push_out(void)
{
	subject[1].contested = true;
	explore_check(schedule(1, 2 * TICK_NS) == 0);
	(void)reschedule(1, 3 * TICK_NS);
}

/* As a worker does that is about to sleep: the first entry is live then. */
static void
drop_stale_and_turn(void)
{
	uint64_t tick;

	while (worker_drop_stale(timer, &tick))
		continue;
	(void)advance(0);
}

static void
cancel_it_second(void)
{
	(void)cancel(0);
	/* Whoever won: it is over. */
	explore_check(cancel(0) == -ENOENT);
}

static void
reschedule_earlier(void)
{
	(void)reschedule(0, TICK_NS);
}

static void
reschedule_later(void)
{
	(void)reschedule(0, 3 * TICK_NS);
}

/* The record is used again while its index is queued, or it has an entry. */
static void
cancel_and_schedule(void)
{
	(void)cancel(0);
	explore_check(schedule(1, TICK_NS) == 0);
}

static void
cancel_and_schedule_twice(void)
{
	(void)cancel(0);
	explore_check(schedule(1, 3 * TICK_NS) == 0);
	if (cancel(1) == 0)
		explore_check(schedule(2, 0) == 0);
}

/* The handle of a record that has another use by then. */
static void
use_stale(void)
{
	(void)reschedule(0, 3 * TICK_NS);
	(void)cancel(0);
}

/* A deadline that is read is one that was set. */
static void
read_remaining(void)
{
	int64_t remaining_ns = (int64_t)TICK_NS;
	int result = hwt_remaining(timer, subject[0].handle, &remaining_ns);

	explore_check(
	    result == 0 || result == -ENOENT || result == -EINPROGRESS);
	if (result == 0)
		explore_check(remaining_ns == (int64_t)(2 * TICK_NS) ||
		    remaining_ns == (int64_t)(3 * TICK_NS) ||
		    remaining_ns == 1);
}

static void
reschedule_back_and_forth(void)
{
	(void)reschedule(0, 3 * TICK_NS);
	(void)reschedule(0, 0);
}

/* The same, where the record may serve another by then. */
static void
read_remaining_once(void)
{
	int64_t remaining_ns = 0;

	if (hwt_remaining(timer, subject[0].handle, &remaining_ns) == 0)
		explore_check(remaining_ns == (int64_t)(2 * TICK_NS));
}

static void
cancel_and_schedule_far(void)
{
	(void)cancel(0);
	explore_check(schedule(1, 3 * TICK_NS) == 0);
}

/* One that is placed, far ahead. */
static void
begin_placed_far(void)
{
	begin_empty();
	explore_check(schedule(0, 3 * TICK_NS) == 0);
	(void)advance(0);
}

/* Earlier than the entry that it finds, and then not before that. */
static void
cancel_and_schedule_near_then_far(void)
{
	(void)cancel(0);
	explore_check(schedule(1, TICK_NS) == 0);
	(void)reschedule(1, 3 * TICK_NS);
}

/* The task of one uses the record of the other, which has just ended: what was
 * scheduled last expires first. */
static void
begin_reused_by_task(void)
{
	begin_empty();
	explore_check(schedule(7, TICK_NS) == 0);
	explore_check(schedule(0, TICK_NS) == 0);
	subject[7].schedules = 1;
	make_due();
}

static void
end_reused_by_task(void)
{
	explore_check(subject[0].started == 0 || same_record(0, 1));
	end_all_due();
}

/* One that ends before it is counted as accepted. The first thread uses a
 * record that waits in the queue already, so that the worker need not be
 * told. */
static void
begin_pushed_with_clock(void)
{
	timer_make(HWT_MANUAL, NULL);
	threads_prepare(0, 0, 0);
	explore_check(schedule(0, TICK_NS) == 0);
	explore_check(cancel(0) == 0);
	cache_flush(timer, cache_of(timer));
	sim_settings.clock_moves = true;
}

static void
turn_past_it(void)
{
	make_due();
	(void)advance(0);
}

static void
end_all_due_late(void)
{
	subject[1].not_after_ns = UINT64_MAX;
	end_all_due();
}

static void
read_pending_once(void)
{
	explore_check(hwt_pending_timeouts(timer) <= 1);
}

/* At every moment, one or two are pending. */
static void
schedule_and_cancel(void)
{
	explore_check(schedule(1, TICK_NS) == 0);
	explore_check(cancel(0) == 0);
}

static void
read_one_or_two(void)
{
	uint64_t pending = hwt_pending_timeouts(timer);

	explore_check(pending == 1 || pending == 2);
}

/* Relaxed: the delay counts from when it is taken. */
static void
begin_relaxed(void)
{
	timer_make(HWT_MANUAL | HWT_RELAXED, NULL);
	threads_prepare(2, 2, 0);
	sim_settings.clock_moves = true;
	explore_check(schedule(0, TICK_NS) == 0);
}

/* Not before a whole delay after this. */
static void
reuse_later(void)
{
	(void)cancel(0);
	sim_clock_add(TICK_NS / 2);
	explore_check(schedule(1, TICK_NS) == 0);
}

static void
turn_on(void)
{
	(void)advance(1);
	sim_clock_add(TICK_NS / 2);
	(void)advance(0);
}

/* max_pending of one. */
static void
begin_limited(void)
{
	timer_make_with(
	    &(struct hwt_options){.flags = HWT_MANUAL, .max_pending = 1});
	threads_prepare(2, 2, 0);
	explore_check(schedule(0, 2 * TICK_NS) == 0);
}

static void
cancel_and_take_place(void)
{
	int error;

	explore_check(cancel(0) == 0);
	error = schedule(1, TICK_NS);
	explore_check(error == 0 || error == -ENOBUFS);
	flag_set(0);
	if (error == 0)
		explore_check(cancel(1) == 0);
}

static void
take_place(void)
{
	int error = schedule(2, TICK_NS);

	explore_check(error == 0 || error == -ENOBUFS);
	explore_check(timer->permits <= 1);
}

/* Who has its place counts it no longer. */
static void
take_its_place(void)
{
	if (schedule(1, TICK_NS) == 0)
		explore_check(hwt_pending_timeouts(timer) == 1);
}

static void
end_limited(void)
{
	explore_check(subject[1].accepted + subject[2].accepted > 0);
	end_all_due();
}

/* max_pending of two, of which one is taken: a place that is left, beside two
 * that are taken. At the end, permits are what is pending. */
static void
begin_one_of_two(void)
{
	timer_make_with(
	    &(struct hwt_options){.flags = HWT_MANUAL, .max_pending = 2});
	threads_prepare(1, 2, 0);
	explore_check(schedule(0, TICK_NS) == 0);
}

static void
leave_and_take_place(void)
{
	int error;

	explore_check(cancel(0) == 0);
	error = schedule(1, TICK_NS);
	explore_check(error == 0 || error == -ENOBUFS);
}

static void
take_two_places(void)
{
	explore_check(schedule(2, TICK_NS) == 0);
	(void)schedule(3, TICK_NS);
	explore_check(timer->permits <= 2);
}

/* Callers of one page, beside the turn of a tick: what is due in the next tick,
 * and what is due later and is pulled in. Whatever the turn has seen, the next
 * one has all that is due. */
static void
begin_one_page(void)
{
	timer_make(HWT_MANUAL, NULL);
	threads_prepare(1, 1, 0);
	explore_check(timer->store.caches[0].slot[0] / PAGE_RECORDS ==
	    timer->store.caches[1].slot[0] / PAGE_RECORDS);
	sim_now_ns = timer->origin_ns + TICK_NS;
}

static void
schedule_next_tick(void)
{
	explore_check(schedule(1, TICK_NS) == 0);
}

static void
schedule_far_and_pull_in(void)
{
	explore_check(schedule(0, HWT_SEC(3)) == 0);
	(void)reschedule(0, TICK_NS);
}

static void
end_one_page(void)
{
	verify_entries();
	(void)advance(1);
	explore_check(subject[0].started == 1 && subject[1].started == 1);
}

const struct program place_programs[] = {
    {
	.name = "place/schedule",
	.begin = begin_empty,
	.thread = {schedule_one, schedule_two, turn_twice},
	.end = end_all_due,
    },
    {
	.name = "place/cancel-expiry",
	.begin = begin_due,
	.thread = {cancel_it, turn_twice},
	.end = end_all_due,
    },
    {
	.name = "place/two-cancels",
	.begin = begin_due,
	.thread = {cancel_it, cancel_it, turn_twice},
	.end = end_all_due,
    },
    {
	.name = "place/two-cancels-queued",
	.begin = begin_queued,
	.thread = {cancel_it, cancel_it_second, turn},
	.end = end_all_due,
    },
    {
	.name = "place/reschedule-queued",
	.begin = begin_queued,
	.thread = {reschedule_earlier, schedule_one, turn_twice},
	.end = end_all_due,
    },
    {
	.name = "place/reschedule-twice-queued",
	.begin = begin_contested_queued,
	.thread = {reschedule_earlier, reschedule_later, turn_twice},
	.end = end_all_due,
    },
    {
	.name = "place/reschedule-later-expiry",
	.begin = begin_due,
	.thread = {reschedule_later, turn_twice},
	.end = end_all_due,
    },
    {
	.name = "place/reschedule-cancel",
	.begin = begin_placed,
	.thread = {reschedule_earlier, cancel_it, turn_twice},
	.end = end_all_due,
    },
    {
	.name = "place/reuse-twice-while-queued",
	.begin = begin_queued,
	.thread = {cancel_and_schedule_twice, cancel_it, turn_twice},
	.end = end_all_due,
    },
    {
	.name = "place/has-entry-earlier",
	.begin = begin_with_entry_far,
	.thread = {use_again_and_cancel, turn_twice},
	.end = end_all_due,
    },
    {
	.name = "place/has-entry-pull-in",
	.begin = begin_with_entry_far,
	.thread = {use_again_and_pull_in, turn_twice},
	.end = end_all_due,
    },
    {
	.name = "place/has-entry-push-out",
	.begin = begin_with_entry,
	.thread = {use_again_and_push_out, turn_twice},
	.end = end_all_due,
    },
    {
	.name = "place/stale-handle",
	.begin = begin_queued,
	.thread = {cancel_and_schedule, use_stale, turn},
	.end = end_all_due,
    },
    {
	.name = "place/reuse-earlier-drop-stale",
	.begin = begin_placed_far,
	.thread = {cancel_and_schedule_near_then_far, drop_stale_and_turn},
	.end = end_all_due,
    },
    {
	.name = "place/remaining",
	.begin = begin_queued,
	.thread = {reschedule_back_and_forth, read_remaining, turn},
	.end = end_all_due,
    },
    {
	.name = "place/pending-ended-uncounted",
	.begin = begin_pushed_with_clock,
	.thread = {schedule_one, turn_past_it, read_pending_once},
	.end = end_all_due_late,
    },
    {
	.name = "place/remaining-reused",
	.begin = begin_queued,
	.thread = {cancel_and_schedule_far, read_remaining_once},
	.end = end_all_due,
    },
    {
	.name = "place/reschedule-reused",
	.begin = begin_reused_by_task,
	.thread = {reschedule_later, turn},
	.end = end_reused_by_task,
    },
    {
	.name = "place/pending-never-less",
	.begin = begin_queued,
	.thread = {schedule_and_cancel, read_one_or_two},
	.end = end_all_due,
    },
    {
	.name = "place/relaxed",
	.begin = begin_relaxed,
	.thread = {reuse_later, turn_on},
	.end = end_all_due,
    },
    {
	.name = "place/max-pending",
	.begin = begin_limited,
	.thread = {cancel_and_take_place, take_place, turn},
	.end = end_limited,
    },
    {
	.name = "place/max-pending-two",
	.begin = begin_one_of_two,
	.thread = {leave_and_take_place, take_two_places},
	.end = end_all_due,
    },
    {
	.name = "place/max-pending-handed-on",
	.begin = begin_limited,
	.thread = {cancel_it, take_its_place},
	.pso = true,
    },
    {
	.name = "place/has-entry-drop-stale-in-time",
	.begin = begin_with_entry_far,
	.thread = {use_again, drop_stale_and_turn},
	.end = end_all_due,
    },
    {
	.name = "place/reschedule-drop-stale",
	.begin = begin_placed_far,
	.thread = {reschedule_earlier, cancel_it, drop_stale_and_turn},
	.end = end_all_due,
    },
    {
	.name = "place/relaxed-reschedule",
	.begin = begin_relaxed,
	.thread = {reschedule_earlier, turn_on},
	.end = end_all_due,
    },
    {
	.name = "place/one-page-pull-in",
	.begin = begin_one_page,
	.thread = {schedule_far_and_pull_in, schedule_next_tick, turn},
	.end = end_one_page,
    },
    {0},
};
