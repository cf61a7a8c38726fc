/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleep and wake. The worker is a thread that runs worker_main; time moves only
 * when all wait. So a call that the worker misses is a deadlock when it sleeps
 * for ever, or a task that starts after its tick when it has a later deadline,
 * or here and there a state that is reached too late.
 */
#include "program.h"

#include <errno.h>

#define FAR (90 * TICK_NS)

/* A worker that is about to fall asleep for the first time. */
static void
begin_worker_with(uint32_t flags)
{
	timer_make(flags, NULL);
	thread_prepare(0, 2);
	thread_prepare(1, 2);
	if (flags & HWT_MANUAL)
		thread_prepare(2, 0);
	else
		explore_check(hwt_start(timer) == 0);
}

static void
begin_worker(void)
{
	begin_worker_with(0);
}

static void
begin_relaxed(void)
{
	begin_worker_with(HWT_RELAXED);
}

static void
begin_without_segments(void)
{
	begin_worker();
	take_segments();
}

/* Two queues, one for each thread. */
static void
begin_two_queues(void)
{
	model_settings.processors = 2;
	begin_worker();
}

/* What a thread waits for without a call. */
static bool
is_asleep(const void *context)
{
	(void)context;
	return timer->wake_before != 0;
}

static void
await_asleep(void)
{
	explore_await(&timer->wake_before, 8, is_asleep, NULL);
}

struct watch {
	const struct record *record;
	uint64_t mask, value;
};

static bool
watch_ready(const void *context)
{
	const struct watch *watch = context;

	return (watch->record->pair.half[0] & watch->mask) == watch->value;
}

static void
await_word(uint32_t index, uint64_t mask, uint64_t value)
{
	const struct watch watch = {
	    record_at(&timer->store, index), mask, value};

	explore_await(&watch.record->pair, 8, watch_ready, &watch);
}

static uint32_t
index_of(unsigned i)
{
	return (uint32_t)(subject[i].handle.id & INDEX_MASK);
}

static void
await_placed(unsigned i)
{
	await_word(index_of(i), STATE_MASK | FLAG_ENQUEUED, STATE_PLACED);
}

/* Schedules while the worker falls asleep, or sleeps. */
static void
schedule_one(void)
{
	explore_check(schedule(0, TICK_NS) == 0);
	await_started(0);
	stop();
}

/* A delay that is longer than the clock's time counts from the call, too. */
static void
schedule_long_delay(void)
{
	explore_check(schedule(7, 3 * TICK_NS) == 0);
	await_placed(7);
	explore_check(schedule(0, HWT_SEC(2)) == 0);
	await_started(0);
	stop();
}

static void
schedule_first_of_two(void)
{
	explore_check(schedule(0, 2 * TICK_NS) == 0);
	await_thread(1);
	await_started(0);
	await_started(1);
	stop();
}

static void
schedule_second_of_two(void)
{
	explore_check(schedule(1, TICK_NS) == 0);
}

/* Again and again in one tick: after two calls the worker sleeps briefly. */
static void
schedule_thrice(void)
{
	await_asleep();
	explore_check(schedule(0, 3 * TICK_NS) == 0);
	await_asleep();
	explore_check(schedule(1, 2 * TICK_NS) == 0);
	explore_check(schedule(2, TICK_NS) == 0);
	await_started(0);
	await_started(1);
	await_started(2);
	stop();
}

/* A timeout that is placed far away, while the worker goes to sleep. */
static void
place_far(void)
{
	explore_check(schedule(0, FAR) == 0);
	await_placed(0);
}

/* Its record is free within a tick. */
static void
cancel_placed(void)
{
	uint64_t now_ns = model_now_ns;

	place_far();
	explore_check(cancel(0) == 0);
	await_word(index_of(0), STATE_MASK, STATE_FREE);
	explore_check(model_now_ns <= now_ns + TICK_NS);
	stop();
}

static void
reschedule_earlier(void)
{
	place_far();
	explore_check(reschedule(0, TICK_NS) == 0);
	await_started(0);
	stop();
}

/* The worker sleeps until something else is due: only what is due before that
 * is a reason to call it. */
static void
place_near(void)
{
	explore_check(schedule(7, 3 * TICK_NS) == 0);
	await_placed(7);
}

static void
reschedule_queued_earlier(void)
{
	place_near();
	explore_check(schedule(0, FAR) == 0);
	explore_check(reschedule(0, TICK_NS) == 0);
	await_started(0);
	stop();
}

static bool
is_enqueued(uint32_t index)
{
	return pair_word(&record_at(&timer->store, index)->pair) &
	    FLAG_ENQUEUED;
}

/* One has pulled it in and has not pushed its entry; another one pulls it in
 * further, and relies on that push. */
static void
pull_in(void)
{
	place_near();
	place_far();
	subject[0].contested = true;
	await_asleep();
	flag_set(1);
	explore_check(reschedule(0, 5 * TICK_NS) == 0);
	await_thread(1);
	await_started(0);
	stop();
}

static void
pull_in_further(void)
{
	flag_await(1);
	if (!is_enqueued(index_of(0)))
		return;
	subject[0].not_after_ns = model_now_ns + TICK_NS;
	explore_check(reschedule(0, TICK_NS) == 0);
	subject[0].not_after_ns = model_now_ns + TICK_NS;
}

/* One has published its timeout and has not pushed; another one cancels that
 * and uses the record for one that is due earlier. */
static uint32_t next_index;

static void
begin_known_record(void)
{
	const struct cache *cache;

	begin_worker();
	cache = &timer->store.caches[0];
	next_index = cache->slot[cache->count - 2];
}

static void
schedule_far_to_be_reused(void)
{
	place_near();
	explore_check(schedule(0, FAR) == 0);
	await_thread(1);
	if (subject[1].accepted)
		await_started(1);
	stop();
}

static void
cancel_and_reuse(void)
{
	if (is_enqueued(next_index) && cancel(0) == 0)
		explore_check(schedule(1, TICK_NS) == 0);
}

/* What is put off meanwhile is told to nobody. */
static void
put_off(void)
{
	explore_check(schedule(0, 3 * TICK_NS) == 0);
	await_placed(0);
	explore_check(reschedule(0, 5 * TICK_NS) == 0);
	await_started(0);
	stop();
}

/* One has published its timeout and has not pushed; another one puts it off,
 * but not beyond the sleep. */
static void
schedule_to_be_put_off(void)
{
	place_near();
	subject[0].contested = true;
	await_asleep();
	explore_check(schedule(0, TICK_NS) == 0);
	await_thread(1);
	await_started(0);
	stop();
}

static void
put_off_before_push(void)
{
	if (is_enqueued(next_index))
		(void)reschedule(0, 2 * TICK_NS);
}

/* When one of a tick has begun, the next one may be about to: it is put off, or
 * not, and no other one that has its record by then. */
static void
begin_tick_of_three(void)
{
	begin_worker();
	subject[7].schedules = 1;
	explore_check(schedule(6, TICK_NS) == 0);
	explore_check(schedule(0, TICK_NS) == 0);
	explore_check(schedule(7, TICK_NS) == 0);
}

static void
put_off_when_due(void)
{
	await_started(6);
	if (reschedule(0, 3 * TICK_NS) == 0) {
		await_started(0);
		explore_check(model_now_ns >= subject[0].not_before_ns);
	}
	await_started(1);
	stop();
}

/* Not even when its record has another use. */
static void
put_off_stale(void)
{
	explore_check(schedule(0, TICK_NS) == 0);
	explore_check(cancel(0) == 0);
	explore_check(schedule(1, TICK_NS) == 0);
	explore_check(index_of(0) == index_of(1));
	explore_check(reschedule(0, 3 * TICK_NS) == -ENOENT);
	await_started(1);
	stop();
}

/* Its record has an entry at the end of the sleep; what uses it next needs no
 * call, and what is due earlier does. */
static void
use_bucketed(void)
{
	explore_check(schedule(0, 3 * TICK_NS) == 0);
	await_placed(0);
	await_asleep();
	explore_check(cancel(0) == 0);
	explore_check(schedule(1, 4 * TICK_NS) == 0);
	await_started(1);
	stop();
}

static void
use_bucketed_earlier(void)
{
	explore_check(schedule(0, 3 * TICK_NS) == 0);
	await_placed(0);
	explore_check(cancel(0) == 0);
	explore_check(schedule(1, TICK_NS) == 0);
	await_started(1);
	stop();
}

/* Far timeouts that fill a segment during the sleep: the queue is drained. */
static void
fill_segment(void)
{
	unsigned i;

	await_asleep();
	for (i = 0; i < 4; i++)
		explore_check(schedule(i, FAR) == 0);
	await_word(index_of(3), STATE_MASK, STATE_PLACED);
	explore_check(model_now_ns < timer->origin_ns + FAR);
	stop();
}

/* Stop, while it falls asleep or sleeps with a deadline. */
static void
stop_at_once(void)
{
	stop();
}

static void
stop_with_deadline(void)
{
	uint64_t now_ns = model_now_ns;

	explore_check(schedule(0, FAR) == 0);
	stop();
	explore_check(model_now_ns == now_ns);
}

/* Manual timers: somebody else sleeps. */
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
begin_manual(void)
{
	static const struct hwt_wake waker = {.wake = wake};
	unsigned i;

	woken = 0;
	wait_ns = 0;
	timer_make_with(
	    &(struct hwt_options){.flags = HWT_MANUAL, .wake = &waker});
	for (i = 0; i < 3; i++)
		thread_prepare(i, i < 2 ? 2 : 0);
}

static void
ask_next_wakeup(void)
{
	explore_check(hwt_next_wakeup(timer, &wait_ns) == 0);
}

static void
advance_and_ask(void)
{
	(void)advance(0);
	explore_check(hwt_next_wakeup(timer, &wait_ns) == 0);
}

static void
schedule_for_manual(void)
{
	explore_check(schedule(0, TICK_NS) == 0);
}

static void
schedule_second_for_manual(void)
{
	explore_check(schedule(2, TICK_NS) == 0);
}

static void
schedule_for_manual_later(void)
{
	explore_check(schedule(1, 2 * TICK_NS) == 0);
}

static void
begin_manual_placed(void)
{
	begin_manual();
	explore_check(schedule(0, FAR) == 0);
	(void)advance(0);
}

/* Who sleeps has asked: until the far one. */
static void
begin_manual_asked(void)
{
	begin_manual_placed();
	ask_next_wakeup();
	woken = 0;
}

static void
end_woken_once(void)
{
	explore_check(woken == 1);
}

static void
cancel_for_manual(void)
{
	(void)cancel(0);
}

/* Who asked is told of the next tick, or is woken: by the first, and by another
 * one if that came while it asked. */
static void
end_woken(void)
{
	explore_check(woken <= 1 + subject[1].accepted);
	explore_check(woken > 0 || wait_ns <= TICK_NS);
}

/* After a cancel it need not look before its deadline, but for the record. */
static void
end_woken_for_record(void)
{
	explore_check(woken <= 1);
	explore_check(subject[0].cancelled == 1);
	explore_check(woken == 1 || wait_ns <= TICK_NS ||
	    word_state(pair_word(
		&record_at(&timer->store, index_of(0))->pair)) == STATE_FREE);
}

const struct program sleep_programs[] = {
    {
	.name = "sleep/schedule",
	.begin = begin_worker,
	.thread = {schedule_one},
    },
    {
	.name = "sleep/schedule-relaxed",
	.begin = begin_relaxed,
	.thread = {schedule_one},
    },
    {
	.name = "sleep/long-delay-relaxed",
	.begin = begin_relaxed,
	.thread = {schedule_long_delay},
    },
    {
	.name = "sleep/two-schedule",
	.begin = begin_worker,
	.thread = {schedule_first_of_two, schedule_second_of_two},
    },
    {
	.name = "sleep/two-queues",
	.begin = begin_two_queues,
	.thread = {schedule_first_of_two, schedule_second_of_two},
    },
    {
	.name = "sleep/overflow",
	.begin = begin_without_segments,
	.thread = {schedule_one},
    },
    {
	.name = "sleep/two-overflow",
	.begin = begin_without_segments,
	.thread = {schedule_first_of_two, schedule_second_of_two},
    },
    {
	.name = "sleep/called-twice",
	.begin = begin_worker,
	.thread = {schedule_thrice},
    },
    {
	.name = "sleep/cancel-placed",
	.begin = begin_worker,
	.thread = {cancel_placed},
    },
    {
	.name = "sleep/reschedule-placed",
	.begin = begin_worker,
	.thread = {reschedule_earlier},
    },
    {
	.name = "sleep/reschedule-queued",
	.begin = begin_worker,
	.thread = {reschedule_queued_earlier},
    },
    {
	.name = "sleep/pulled-in-before-push",
	.begin = begin_worker,
	.thread = {pull_in, pull_in_further},
    },
    {
	.name = "sleep/reused-before-push",
	.begin = begin_known_record,
	.thread = {schedule_far_to_be_reused, cancel_and_reuse},
    },
    {
	.name = "sleep/put-off",
	.begin = begin_worker,
	.thread = {put_off},
    },
    {
	.name = "sleep/put-off-before-push",
	.begin = begin_known_record,
	.thread = {schedule_to_be_put_off, put_off_before_push},
    },
    {
	.name = "sleep/put-off-when-due",
	.begin = begin_tick_of_three,
	.thread = {put_off_when_due},
    },
    {
	.name = "sleep/put-off-stale",
	.begin = begin_worker,
	.thread = {put_off_stale},
    },
    {
	.name = "sleep/bucketed",
	.begin = begin_worker,
	.thread = {use_bucketed},
    },
    {
	.name = "sleep/bucketed-earlier",
	.begin = begin_worker,
	.thread = {use_bucketed_earlier},
    },
    {
	.name = "sleep/full-segment",
	.begin = begin_worker,
	.thread = {fill_segment},
    },
    {
	.name = "sleep/stop",
	.begin = begin_worker,
	.thread = {stop_at_once},
    },
    {
	.name = "sleep/stop-with-deadline",
	.begin = begin_worker,
	.thread = {stop_with_deadline},
    },
    {
	.name = "sleep/manual",
	.begin = begin_manual,
	.thread = {schedule_for_manual, ask_next_wakeup},
	.end = end_woken,
    },
    {
	.name = "sleep/manual-two",
	.begin = begin_manual,
	.thread = {schedule_for_manual, schedule_for_manual_later,
	    advance_and_ask},
	.end = end_woken,
    },
    {
	.name = "sleep/manual-two-at-once",
	.begin = begin_manual_asked,
	.thread = {schedule_second_for_manual, schedule_for_manual_later},
	.end = end_woken_once,
    },
    {
	.name = "sleep/manual-cancel",
	.begin = begin_manual_placed,
	.thread = {cancel_for_manual, advance_and_ask},
	.end = end_woken_for_record,
    },
    {0},
};
