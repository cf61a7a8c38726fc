/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quiet: nothing pending, no wake-up at all. Otherwise none before the
 * earliest deadline, but one per superseded earliest deadline and one per long
 * sleep for the first call that leaves work. A thread that has free records of
 * its own wakes the worker at most once per sleep.
 *
 * On manual timers the sleep is what hwt_next_wakeup tells and the wake-up
 * call is wake. On real ones the kernel counts: a worker that sleeps makes no
 * context switch. There a test watches for a while, in which a timer that is
 * not quiet would be heard many times, on a machine of any speed.
 */
#include "test/spec/support_promises.h"

SUITE(quiet);

#define HOUR HWT_SEC(3600)

ManualTest(quiet, a_timeout_that_is_never_due_is_nothing_to_wait_for)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_NEVER);
	assert_u64(manual_wait(), HWT_NEVER);

	assert_u64(manual_step(HOUR), 0);

	assert_u64(manual_wait(), HWT_NEVER);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
}

#define PUSHED 200000

/* To put them right takes longer than a tick here. So the answer is the next
 * boundary, where an advance finds nothing. */
ManualTest(
    quiet, who_goes_to_sleep_is_held_up_by_a_crowd_to_the_next_boundary_at_most)
{
	static hwt_timeout timeouts[PUSHED];
	uint64_t due_ns = FIXTURE_START + HOUR;
	uint64_t asked_ns;

	for (uint64_t index = 0; index < PUSHED; index++)
		timeouts[index] = schedule_task(
		    manual.timer, idle_task, HWT_MIN(1) + index * HWT_US(3));
	assert_u64(manual_wait(), HWT_MIN(1));
	for (uint64_t index = 0; index < PUSHED; index++)
		assert_ok(hwt_reschedule(manual.timer, timeouts[index], HOUR));

	/* So much time does a reading of the clock take, with what is done
	 * until the next one. */
	manual.reading_ns = HWT_US(1);
	asked_ns = manual.now_ns;
	cr_assert(manual_wait() <= FIXTURE_TICK);
	cr_assert(manual.now_ns - asked_ns <= FIXTURE_TICK + HWT_US(10));

	manual.reading_ns = 0;
	do
		cr_assert(manual_wait() <= due_ns - manual.now_ns);
	while (manual_step(manual_wait()) == 0);
	assert_u64(manual.now_ns, due_ns);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

/* Of three that are far apart in a wide wheel, the first is cancelled, and then
 * one of two that are close. */
ManualTestWith(
    quiet, the_wait_is_exact_in_a_wide_wheel_too, .ticks_per_wheel = 1 << 14)
{
	struct probe probes[4] = {{0}};

	probe_schedule(&probes[0], 100 * manual.tick_ns);
	probe_schedule(&probes[1], 300 * manual.tick_ns);
	probe_schedule(&probes[2], 310 * manual.tick_ns);
	probe_schedule(&probes[3], 9000 * manual.tick_ns);
	assert_u64(manual_wait(), 100 * manual.tick_ns);

	assert_ok(hwt_cancel(manual.timer, probes[0].handle));
	assert_u64(manual_wait(), 300 * manual.tick_ns);
	assert_ok(hwt_cancel(manual.timer, probes[1].handle));
	assert_u64(manual_wait(), 310 * manual.tick_ns);
	assert_ok(hwt_cancel(manual.timer, probes[2].handle));
	assert_u64(manual_wait(), 9000 * manual.tick_ns);

	assert_u64(manual_tick(9000), 1);
}

ManualTest(quiet, a_superseded_earliest_deadline_costs_one_wait_in_vain_at_most)
{
	struct probe early = {0}, late = {0};
	uint64_t in_vain = 0;

	/* Pushed out many times, and yet it is one superseded deadline. */
	probe_schedule(&early, 3 * FIXTURE_TICK);
	probe_schedule(&late, 70 * FIXTURE_TICK);
	assert_u64(manual_wait(), 3 * FIXTURE_TICK);
	for (uint64_t turn = 4; turn <= 80; turn++)
		assert_ok(hwt_reschedule(
		    manual.timer, early.handle, turn * FIXTURE_TICK));

	while (manual_step(manual_wait()) == 0)
		in_vain++;

	cr_assert(in_vain <= 1);
	assert_u64(late.started_ns, FIXTURE_START + 70 * FIXTURE_TICK);
	assert_u64(manual_wait(), 10 * FIXTURE_TICK);
}

ManualTest(quiet, a_manual_timer_has_no_thread_and_makes_no_wake_ups)
{
	struct probe probe = {0};

	probe_schedule(&probe, FIXTURE_TICK);
	manual_tick(1);

	assert_u64(thread_count("hwt-worker"), 0);
	assert_u64(manual_stats().wakeups, 0);
	cr_assert(pthread_equal(probe.thread, pthread_self()));
}

/* Real workers. */

#define WATCH_TURNS 30

/* Watches a worker in its long sleep for so many ticks, but 300 ms at least,
 * and asserts that it has slept through. */
static void
assert_silence(pid_t worker, uint64_t tick_ns)
{
	uint64_t watch_ns = WATCH_TURNS * tick_ns;
	uint64_t switches;
	uint64_t wakeups;

	live_settle(worker);
	wakeups = live_stats().wakeups;
	switches = thread_status(worker, "voluntary_ctxt_switches", 10);

	sleep_ns(watch_ns < HWT_MS(300) ? HWT_MS(300) : watch_ns);

	assert_u64(
	    thread_status(worker, "voluntary_ctxt_switches", 10), switches);
	assert_u64(live_stats().wakeups, wakeups);
}

static const uint64_t ticks[] = {HWT_MS(100), HWT_MS(10), HWT_MS(1)};

Test(quiet, nothing_pending_no_wake_up_at_all)
{
	for (unsigned index = 0; index < 3; index++) {
		struct hwt_options options = {.tick_ns = ticks[index]};

		live_open(&options);
		assert_ok(hwt_start(live.timer));
		assert_silence(thread_await("hwt-worker"), ticks[index]);
		live_close();
	}
}

Test(quiet, with_one_timeout_an_hour_away_no_wake_up_at_all)
{
	for (unsigned index = 0; index < 3; index++) {
		struct hwt_options options = {.tick_ns = ticks[index]};

		live_open(&options);
		assert_ok(hwt_new_timeout(
		    live.timer, NULL, forbidden_task, NULL, HOUR));
		live_pass_tick();
		assert_silence(thread_await("hwt-worker"), ticks[index]);
		live_close();
	}
}

WorkerTest(quiet, pushing_deadlines_out_leaves_the_worker_alone)
{
	hwt_timeout timeout;
	pid_t worker;
	uint64_t wakeups;

	timeout = schedule_task(live.timer, forbidden_task, HOUR);
	live_pass_tick();
	worker = thread_await("hwt-worker");
	live_settle(worker);
	wakeups = live_stats().wakeups;

	for (uint64_t turn = 0; turn < 100000; turn++)
		assert_ok(hwt_reschedule(live.timer, timeout, HOUR + turn));

	live_settle(worker);
	assert_u64(live_stats().wakeups, wakeups);
}

/* A timer whose worker lies in its first long sleep; returns the worker. */
static pid_t
open_asleep(const struct hwt_options *options)
{
	pid_t worker;

	live_open(options);
	assert_ok(hwt_start(live.timer));
	worker = thread_await("hwt-worker");
	live_settle(worker);
	return worker;
}

Test(quiet, calls_in_different_ticks_cost_one_wake_up_each)
{
	uint64_t wakeups;
	pid_t worker;

	worker = open_asleep(NULL);
	wakeups = live_stats().wakeups;

	for (unsigned turn = 0; turn < 5; turn++) {
		(void)schedule_task(
		    live.timer, forbidden_task, HOUR - turn * HWT_SEC(60));
		live_settle(worker);
	}

	assert_u64(live_stats().wakeups - wakeups, 5);
	live_close();
}

/* One wake-up for the first call, one for its deadline, and one for the second
 * call, though it comes in the same tick as the deadline. */
Test(quiet, a_sleep_that_has_lasted_as_long_as_it_should_makes_no_crowd)
{
	struct hwt_options options = {.tick_ns = HWT_MS(100)};
	struct probe probe = {0};
	uint64_t wakeups;
	pid_t worker;

	worker = open_asleep(&options);
	wakeups = live_stats().wakeups;

	assert_ok(
	    hwt_new_timeout(live.timer, NULL, probe_task, &probe, HWT_MS(150)));
	wait_for(&probe.runs, 1);
	sleep_ns(HWT_MS(20));
	(void)schedule_task(live.timer, forbidden_task, HOUR);

	live_settle(worker);
	cr_assert(live_stats().wakeups - wakeups <= 3);
	live_close();
}

/* Each schedule would wake a worker in a long sleep. When two have done so
 * within a tick, the worker sleeps to the boundary. */
Test(quiet, calls_that_go_on_and_on_cost_three_wake_ups_per_tick_at_most)
{
	const uint64_t tick_ns = HWT_MS(20);
	const uint64_t ticks_long = 10;
	struct hwt_options options = {.tick_ns = tick_ns};
	uint64_t began_ns;
	uint64_t wakeups;
	uint64_t delay_ns = HOUR; /* each time, earlier than all before */
	hwt_timeout timeout;
	uint64_t passed;

	live_open(&options);
	began_ns = monotonic_ns();
	while (monotonic_ns() - began_ns < ticks_long * tick_ns) {
		timeout = schedule_task(live.timer, forbidden_task, delay_ns);
		delay_ns -= 2 * tick_ns;
		sleep_ns(HWT_US(50));
		assert_ok(hwt_cancel(live.timer, timeout));
		sleep_ns(HWT_US(50));
	}

	passed = (monotonic_ns() - began_ns) / tick_ns + 1;
	wakeups = live_stats().wakeups;
	cr_assert(wakeups <= 3 * passed + 2,
	    "%" PRIu64 " wake-ups in %" PRIu64 " ticks", wakeups, passed);

	/* And when they end, none. */
	assert_silence(thread_await("hwt-worker"), tick_ns);
	live_close();
}

#define DEAD_MIN 200
#define DEAD_MAX 600

/* However many they are. */
Test(quiet, where_all_were_cancelled_there_is_nothing_to_wait_for)
{
	static hwt_timeout timeouts[DEAD_MAX];

	for (unsigned count = DEAD_MIN; count < DEAD_MAX; count += 8) {

		manual_open(NULL);
		for (unsigned index = 0; index < count; index++)
			timeouts[index] = schedule_task(manual.timer,
			    forbidden_task, (1 + index) * HWT_SEC(1));
		manual_wait();
		for (unsigned index = 0; index < count; index++)
			assert_ok(hwt_cancel(manual.timer, timeouts[index]));
		assert_u64(manual_wait(), HWT_NEVER);
		manual_close();
	}
}

#define BESIDE 200000

/* Those and a crowd of later rounds are in one bucket. */
ManualTestWith(quiet,
    a_crowd_does_not_hide_that_what_was_before_it_is_cancelled,
    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = 1)
{
	static hwt_timeout timeouts[40];
	uint64_t readings;

	for (unsigned index = 0; index < BESIDE; index++)
		assert_ok(hwt_new_timeout(
		    manual.timer, NULL, forbidden_task, NULL, HWT_MS(60)));
	for (unsigned index = 0; index < 40; index++)
		timeouts[index] = schedule_task(
		    manual.timer, forbidden_task, HWT_MS(1 + index));
	manual_wait();
	for (unsigned index = 0; index < 40; index++)
		assert_ok(hwt_cancel(manual.timer, timeouts[index]));

	/* After each pass over the crowd, it looks whether to go on. */
	readings = manual.clock_reads;
	assert_u64(manual_wait(), HWT_MS(60));
	cr_assert(manual.clock_reads - readings >= 40);
}

/* More than one in a tick that comes early, once; then a few that come late. */
Test(quiet, after_a_rush_a_trickle_wakes_seldom)
{
	uint64_t wakeups, began_ns;

	live_open(&(struct hwt_options){.tick_ns = HWT_MS(10)});
	for (unsigned index = 0; index < 8; index++) {
		assert_ok(hwt_new_timeout(live.timer, NULL, forbidden_task,
		    NULL, HOUR - index * HWT_SEC(1)));
		sleep_ns(HWT_US(500));
	}
	wakeups = live_stats().wakeups;
	began_ns = monotonic_ns();
	for (unsigned index = 0; index < 200; index++) {
		assert_ok(hwt_new_timeout(
		    live.timer, NULL, forbidden_task, NULL, HOUR));
		sleep_ns(HWT_MS(8));
	}

	cr_assert(live_stats().wakeups - wakeups <=
	    (monotonic_ns() - began_ns) / HWT_MS(10) / 2);
	live_close();
}

#define FEW 600
#define CROWD 20000

struct canceller {
	struct hwt *timer;
	hwt_timeout timeout;
};

static void *
cancel_one(void *argument)
{
	struct canceller *canceller = argument;

	assert_ok(hwt_cancel(canceller->timer, canceller->timeout));
	return NULL;
}

/* As in a server with a thread for each connection. There is memory to spare,
 * but they do not make it more. */
WorkerTest(quiet, a_few_that_threads_cancel_which_end_then_wake_nobody)
{
	static struct canceller cancellers[FEW];
	pthread_t thread;
	uint64_t wakeups;

	for (unsigned index = 0; index < CROWD; index++) {
		struct canceller *canceller = &cancellers[index % FEW];

		canceller->timer = live.timer;
		canceller->timeout =
		    schedule_task(live.timer, forbidden_task, HOUR);
	}
	live_pass_tick();
	live_settle(thread_await("hwt-worker"));
	wakeups = live_stats().wakeups;
	for (unsigned index = 0; index < FEW; index++) {
		cr_assert(pthread_create(&thread, NULL, cancel_one,
			      &cancellers[index]) == 0);
		cr_assert(pthread_join(thread, NULL) == 0);
	}

	sleep_ns(HWT_MS(100));
	assert_u64(live_stats().wakeups, wakeups);
}

#define CANCELLED 5000

/* Those that live beside them keep their pages, and with these the entries in
 * the wheel. */
static void
schedule_earlier_ones(
    struct hwt *timer, hwt_timeout *timeouts, uint64_t from_ns)
{
	for (unsigned index = 0; index < CANCELLED; index++) {
		timeouts[index] = schedule_task(
		    timer, forbidden_task, from_ns + index * HWT_US(100));
		(void)schedule_task(timer, forbidden_task, HOUR);
	}
}

static void
cancel_earlier_ones(struct hwt *timer, const hwt_timeout *timeouts)
{
	for (unsigned index = 0; index < CANCELLED; index++)
		assert_ok(hwt_cancel(timer, timeouts[index]));
}

ManualTest(
    quiet, however_many_were_cancelled_the_wait_is_to_the_first_that_is_live)
{
	static hwt_timeout timeouts[CANCELLED];
	struct probe probe = {0};

	schedule_earlier_ones(manual.timer, timeouts, HWT_SEC(3));
	probe_schedule(&probe, HWT_SEC(4));
	assert_u64(manual_wait(), HWT_SEC(3));
	cancel_earlier_ones(manual.timer, timeouts);

	assert_u64(manual_wait(), HWT_SEC(4));
	assert_u64(manual.wakes, 0);
}

/* Each wave is more than the thread keeps for itself: records go to all, and
 * come back. No call leaves work while the worker is in a long sleep: a record
 * is used again for a later deadline than the one that the wheel has an entry
 * for, the free records that never had one are of a page or two, and a
 * megabyte of records is never free.
 *
 * Once a sleep ends, that no longer holds: the worker removes the entries of
 * those records that it finds free, and when they are used again they make the
 * queue long, once per sleep. So the waves may begin only in a long sleep. A
 * worker that was woken twice in one tick is in a short one. It looks the same,
 * and on a machine that does not run its processor it may last however long.
 * But a worker that has run a task ticks after the last call has that behind
 * it. */
#define RING 8000
#define WAVE 200

WorkerTest(quiet, what_comes_and_goes_and_leaves_nothing_spare_wakes_nobody)
{
	static hwt_timeout ring[RING];
	static struct probe probe = {0};
	uint64_t before;

	for (unsigned index = 0; index < RING; index++)
		ring[index] =
		    schedule_task(live.timer, forbidden_task, HWT_SEC(300));
	assert_ok(
	    hwt_new_timeout(live.timer, NULL, probe_task, &probe, HWT_MS(20)));
	wait_for(&probe.runs, 1);
	live_settle(thread_await("hwt-worker"));
	before = live_stats().wakeups;
	for (unsigned wave = 0; wave < 2500; wave++) {
		hwt_timeout *timeouts = &ring[wave * WAVE % RING];

		for (unsigned index = 0; index < WAVE; index++)
			assert_ok(hwt_cancel(live.timer, timeouts[index]));
		for (unsigned index = 0; index < WAVE; index++)
			timeouts[index] = schedule_task(
			    live.timer, forbidden_task, HWT_SEC(300));
	}
	live_settle(thread_await("hwt-worker"));

	assert_u64(live_stats().wakeups - before, 0);
}

Test(quiet, what_an_executor_runs_wakes_nobody)
{
	struct hwt_mailbox *mailbox = NULL;
	struct hwt_spec specs[WAVE];
	uint64_t before;
	size_t ran = 0;

	live_open(NULL);
	assert_ok(hwt_mailbox_create(&mailbox));
	/* One deadline: once the worker has seen its tick and sleeps, all are
	 * there. */
	for (unsigned index = 0; index < WAVE; index++)
		specs[index] = (struct hwt_spec){.task = idle_task,
		    .executor = hwt_mailbox_executor(mailbox),
		    .delay_ns = HWT_MS(1)};
	assert_ok(hwt_new_timeouts(live.timer, WAVE, specs, NULL));
	while (live_stats().ticks == 0)
		sleep_ns(HWT_MS(1));
	live_settle(thread_await("hwt-worker"));
	before = live_stats().wakeups;

	assert_ok(hwt_mailbox_run(mailbox, 0, &ran));
	assert_u64(ran, WAVE);
	live_settle(thread_await("hwt-worker"));

	assert_u64(live_stats().wakeups, before);
	live_close();
	assert_ok(hwt_mailbox_destroy(mailbox));
}
