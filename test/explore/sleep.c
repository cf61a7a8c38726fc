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

/* The worker has taken it over. */
static void
await_taken(unsigned i)
{
	await_word(index_of(i), STATE_MASK | FLAG_HAS_ENTRY,
	    STATE_PENDING | FLAG_HAS_ENTRY);
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
	await_taken(7);
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

/* A timeout that is placed far away, while the worker goes to sleep. */
static void
place_far(void)
{
	explore_check(schedule(0, FAR) == 0);
	await_taken(0);
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
	await_taken(7);
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

/* The first thread is stopped somewhere in its push, until the task has run
 * that another one has pushed the same index for, with an earlier deadline. So
 * if that depended on the first, nobody could go on. */
static uint32_t next_index;
static const void *stop_word;

static void
begin_to_stop(void)
{
	begin_worker();
	next_index = timer->store.caches[0].slot[1];
	subject[0].contested = true;
	stop_word = &queued_of(next_index)->bits;
}

static void
begin_to_stop_at_page(void)
{
	begin_to_stop();
	stop_word = &queued_of(next_index)->urgency;
}

static void
begin_to_stop_before_wake(void)
{
	begin_to_stop();
	stop_word = &timer->wake_before;
}

static void
begin_to_stop_in_wake(void)
{
	begin_to_stop();
	stop_word = &timer->wake_sequence;
}

static void
schedule_and_be_stopped(void)
{
	thread_stop_at(0, stop_word);
	explore_check(schedule(0, FAR) == 0);
	explore_check(subject[1].started == 1);
	stop();
}

/* While it is about to wake the worker: then another thread does. */
static void
schedule_asleep_and_be_stopped(void)
{
	await_worker_sleeps();
	schedule_and_be_stopped();
}

static void
reuse_of_stopped(void)
{
	await_stopped();
	subject[1].releases = true;
	explore_check(cancel(0) == 0);
	explore_check(schedule(1, TICK_NS) == 0);
	explore_check(index_of(0) == index_of(1));
}

static void
pull_in_and_be_stopped(void)
{
	place_far();
	subject[0].releases = true;
	thread_stop_at(0, stop_word);
	explore_check(reschedule(0, 5 * TICK_NS) == 0);
	explore_check(subject[0].started == 1);
	stop();
}

static void
pull_in_of_stopped(void)
{
	await_stopped();
	explore_check(reschedule(0, TICK_NS) == 0);
	subject[0].not_after_ns = sim_now_ns + TICK_NS;
}

/* Who has scheduled one stays stopped, and another one puts it off. */
static void
schedule_to_be_put_off_stopped(void)
{
	subject[0].releases = true;
	thread_stop_at(0, stop_word);
	explore_check(schedule(0, TICK_NS) == 0);
	explore_check(subject[0].started == 1);
	stop();
}

static void
put_off_of_stopped(void)
{
	await_stopped();
	explore_check(reschedule(0, 2 * TICK_NS) == 0);
}

/* Who puts off what the worker is about to take over is stopped before its
 * push. */
static void
begin_to_stop_second(void)
{
	begin_to_stop();
	thread_stop_at(1, stop_word);
}

static void
schedule_and_await(void)
{
	subject[0].releases = true;
	explore_check(schedule(0, TICK_NS) == 0);
	flag_set(1);
	await_started(0);
	await_thread(1);
	stop();
}

static void
put_off_and_be_stopped(void)
{
	flag_await(1);
	(void)reschedule(0, 2 * TICK_NS);
}

/* What runs is not put off. */
static void
put_off_running(void)
{
	subject[0].waits = 1;
	explore_check(schedule(0, TICK_NS) == 0);
	await_started(0);
	explore_check(reschedule(0, 3 * TICK_NS) == -EINPROGRESS);
	flag_set(1);
	stop();
}

/* Who is late for one sleep ends the next one, or the same thread ends it
 * later. */
static void
schedule_for_two_sleeps(void)
{
	await_asleep();
	explore_check(schedule(0, FAR) == 0);
	await_asleep();
	explore_check(schedule(2, TICK_NS) == 0);
	await_started(2);
	await_thread(1);
	stop();
}

static void
schedule_in_first_sleep(void)
{
	await_asleep();
	explore_check(schedule(1, FAR) == 0);
}

/* Nobody ends the same sleep twice, however slowly the worker wakes. */
static void
schedule_twice_in_one_sleep(void)
{
	uint64_t first;

	await_worker_sleeps();
	first = timer->announced_sequence;
	explore_check(schedule(0, 2 * TICK_NS) == 0);
	explore_check(schedule(1, TICK_NS) == 0);
	explore_check(sim_wakes() <= timer->announced_sequence - first + 1);
	await_started(0);
	await_started(1);
	stop();
}

/* What comes while it falls asleep may be due by then: it is not to be woken
 * for a sleep that has not begun. */
static void
begin_clock_moves(void)
{
	begin_worker();
	sim_settings.clock_moves = true;
}

static void
schedule_and_let_pass(void)
{
	subject[0].awake = true;
	explore_check(schedule(0, TICK_NS) == 0);
	sim_clock_add(TICK_NS);
	await_started(0);
	stop();
}

/* When one of a tick has begun, the next one may be about to: it is put off, or
 * not, and no other one that has its record by then. What was scheduled last
 * expires first. */
static void
begin_tick_of_three(void)
{
	begin_worker();
	subject[7].schedules = 1;
	explore_check(schedule(7, TICK_NS) == 0);
	explore_check(schedule(0, TICK_NS) == 0);
	explore_check(schedule(6, TICK_NS) == 0);
}

static void
put_off_when_due(void)
{
	await_started(6);
	if (reschedule(0, 3 * TICK_NS) == 0) {
		await_started(0);
		explore_check(sim_now_ns >= subject[0].not_before_ns);
	} else {
		await_started(1);
		explore_check(index_of(0) == index_of(1));
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

/* Its record has an entry at the end of the sleep; what uses it next is due
 * earlier. */
static void
use_with_entry_earlier(void)
{
	explore_check(schedule(0, 3 * TICK_NS) == 0);
	await_taken(0);
	explore_check(cancel(0) == 0);
	explore_check(schedule(1, TICK_NS) == 0);
	await_started(1);
	stop();
}

/* Far timeouts that make many pages wait: the worker is woken for them,
 * or looks at the next boundary. */
static void
begin_two_pages(void)
{
	timer_make(0, NULL);
	thread_prepare(0, 4);
	explore_check(hwt_start(timer) == 0);
}

static void
fill_two_pages(void)
{
	place_near();
	await_worker_sleeps();
	explore_check(schedule(0, FAR) == 0);
	explore_check(schedule(1, FAR) == 0);
	explore_check(index_of(0) / PAGE_RECORDS != index_of(1) / PAGE_RECORDS);
	await_taken(1);
	explore_check(sim_now_ns <= timer->origin_ns + TICK_NS);
	stop();
}

/* What is due long after, and what is due soon. */
static void
schedule_long_after(void)
{
	explore_check(schedule(0, HWT_SEC(2)) == 0);
	await_thread(1);
	await_started(1);
	await_started(0);
	stop();
}

/* Stop, while it falls asleep or sleeps with a deadline. */
static void
stop_at_once(void)
{
	stop();
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

	woken = 0;
	wait_ns = 0;
	timer_make_with(
	    &(struct hwt_options){.flags = HWT_MANUAL, .wake = &waker});
	threads_prepare(2, 2, 0);
}

static void
ask_next_wakeup(void)
{
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

/* Who sleeps has asked: until the far one. */
static void
begin_manual_asked(void)
{
	begin_manual();
	explore_check(schedule(0, FAR) == 0);
	(void)advance(0);
	ask_next_wakeup();
	woken = 0;
}

static void
end_woken_once(void)
{
	explore_check(woken == 1);
}

/* Who asked is told of the next tick, or is woken. */
static void
end_woken(void)
{
	explore_check(woken <= 1);
	explore_check(woken > 0 || wait_ns <= TICK_NS);
}

const struct program sleep_programs[] = {
    {
	.name = "sleep/schedule",
	.begin = begin_worker,
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
	.name = "sleep/long-after",
	.begin = begin_worker,
	.thread = {schedule_long_after, schedule_second_of_two},
    },
    {
	.name = "sleep/many-pages",
	.begin = begin_two_pages,
	.thread = {fill_two_pages},
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
	.name = "sleep/pulled-in-stopped-before-push",
	.begin = begin_to_stop,
	.thread = {pull_in_and_be_stopped, pull_in_of_stopped},
    },
    {
	.name = "sleep/reused-stopped-at-page",
	.begin = begin_to_stop_at_page,
	.thread = {schedule_and_be_stopped, reuse_of_stopped},
    },
    {
	.name = "sleep/pulled-in-stopped-at-page",
	.begin = begin_to_stop_at_page,
	.thread = {pull_in_and_be_stopped, pull_in_of_stopped},
    },
    {
	.name = "sleep/reused-stopped-before-wake",
	.begin = begin_to_stop_before_wake,
	.thread = {schedule_and_be_stopped, reuse_of_stopped},
    },
    {
	.name = "sleep/reused-stopped-in-wake",
	.begin = begin_to_stop_in_wake,
	.thread = {schedule_asleep_and_be_stopped, reuse_of_stopped},
    },
    {
	.name = "sleep/late-for-one-sleep",
	.begin = begin_worker,
	.thread = {schedule_for_two_sleeps, schedule_in_first_sleep},
    },
    {
	.name = "sleep/twice-in-one-sleep",
	.begin = begin_worker,
	.thread = {schedule_twice_in_one_sleep},
    },
    {
	.name = "sleep/not-begun",
	.begin = begin_clock_moves,
	.thread = {schedule_and_let_pass},
    },
    {
	.name = "sleep/put-off-stopped-before-push",
	.begin = begin_to_stop,
	.thread = {schedule_to_be_put_off_stopped, put_off_of_stopped},
    },
    {
	.name = "sleep/put-off-stopped-before-wake",
	.begin = begin_to_stop_before_wake,
	.thread = {schedule_to_be_put_off_stopped, put_off_of_stopped},
    },
    {
	.name = "sleep/put-off-stopped-when-taken",
	.begin = begin_to_stop_second,
	.thread = {schedule_and_await, put_off_and_be_stopped},
    },
    {
	.name = "sleep/put-off-running",
	.begin = begin_worker,
	.thread = {put_off_running},
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
	.name = "sleep/has-entry-earlier",
	.begin = begin_worker,
	.thread = {use_with_entry_earlier},
    },
    {
	.name = "sleep/stop",
	.begin = begin_worker,
	.thread = {stop_at_once},
    },
    {
	.name = "sleep/manual",
	.begin = begin_manual,
	.thread = {schedule_for_manual, ask_next_wakeup},
	.end = end_woken,
    },
    {
	.name = "sleep/manual-two-at-once",
	.begin = begin_manual_asked,
	.thread = {schedule_second_for_manual, schedule_for_manual_later},
	.end = end_woken_once,
    },
    {0},
};
