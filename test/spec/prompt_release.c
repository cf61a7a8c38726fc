/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompt-release: the record of a cancelled timeout can be used for another one
 * as soon as hwt_cancel has returned 0, in a long sleep of the worker too.
 * Whether a record serves again is seen by memory_bytes: it stands still when
 * nothing new was needed. What a peak took goes back to the system before a
 * long sleep, or when it was spare for a quarter of a second.
 */
#include "test/spec/support_promises.h"

SUITE(prompt_release);

static struct recording_executor executor;

#define CROWD 20000
#define FAR HWT_SEC(3600)

static uint64_t
memory(void)
{
	return manual_stats().memory_bytes;
}

/* What a test does again and again needs no more memory than it did the first
 * time, give or take a twentieth for chunks of the wheel; and from its tenth
 * time on, none at all. */
struct flat {
	uint64_t times;
	uint64_t first_bytes;
	uint64_t tenth_bytes;
};

static void
assert_flat(struct flat *flat, uint64_t bytes)
{
	flat->times++;
	if (flat->times == 1)
		flat->first_bytes = bytes;
	if (flat->times <= 10)
		flat->tenth_bytes = bytes;
	cr_assert(bytes <= flat->first_bytes + flat->first_bytes / 20);
	assert_u64(bytes, flat->tenth_bytes);
}

static hwt_timeout crowd[CROWD];

static void
schedule_crowd(void)
{
	for (unsigned index = 0; index < CROWD; index++)
		crowd[index] = schedule_task(manual.timer, forbidden_task, FAR);
}

static void
cancel_crowd(void)
{
	for (unsigned index = 0; index < CROWD; index++)
		assert_ok(hwt_cancel(manual.timer, crowd[index]));
}

ManualTest(prompt_release, more_live_timeouts_take_more_memory)
{
	/* All other tests of this suite lean on this. */
	uint64_t before = memory();

	schedule_crowd();

	cr_assert(memory() >= before + CROWD * 64);
}

ManualTest(prompt_release, what_is_not_placed_yet_serves_another_at_once)
{
	hwt_timeout timeout;
	uint64_t after_first;

	timeout = schedule_task(manual.timer, forbidden_task, FAR);
	assert_ok(hwt_cancel(manual.timer, timeout));
	after_first = memory();

	for (unsigned turn = 0; turn < 2000000; turn++) {
		timeout = schedule_task(manual.timer, forbidden_task, FAR);
		assert_ok(hwt_cancel(manual.timer, timeout));
	}

	assert_u64(memory(), after_first);
}

ManualTest(prompt_release, what_is_placed_serves_another_one_tick_later)
{
	struct flat flat = {0};

	for (unsigned turn = 0; turn < 50; turn++) {
		schedule_crowd();
		manual_step(FIXTURE_TICK);
		assert_flat(&flat, memory());
		cancel_crowd();
		manual_step(FIXTURE_TICK);
	}
}

ManualTest(prompt_release, started_timeouts_serve_others_in_the_next_tick)
{
	struct flat flat = {0};

	for (unsigned turn = 0; turn < 50; turn++) {
		for (unsigned index = 0; index < CROWD; index++)
			assert_ok(hwt_new_timeout(
			    manual.timer, NULL, idle_task, NULL, FIXTURE_TICK));
		assert_u64(manual_step(FIXTURE_TICK), CROWD);
		assert_flat(&flat, memory());
	}
}

ManualTest(prompt_release, what_was_cancelled_in_a_long_sleep_serves_at_once)
{
	hwt_timeout timeout;
	uint64_t first_bytes;

	timeout = schedule_task(manual.timer, forbidden_task, FAR);
	assert_u64(manual_wait(), FAR);
	first_bytes = memory();

	for (unsigned turn = 0; turn < CROWD; turn++) {
		assert_ok(hwt_cancel(manual.timer, timeout));
		timeout = schedule_task(manual.timer, forbidden_task, FAR);
	}

	assert_u64(memory(), first_bytes);
	assert_u64(manual.wakes, 0);
	assert_u64(manual_wait(), FAR);
}

ManualTest(prompt_release, next_wakeup_releases_what_was_cancelled)
{
	struct flat flat = {0};

	/* The clock stands still: nobody owes an advance. */
	for (unsigned turn = 0; turn < 20; turn++) {
		schedule_crowd();
		assert_u64(manual_wait(), FAR);
		assert_flat(&flat, memory());
		cancel_crowd();
		assert_u64(manual_wait(), HWT_NEVER);
	}
}

static void
counted_task(hwt_timeout timeout, void *arg)
{
	_Atomic unsigned *runs = arg;

	(void)timeout;
	++*runs;
}

ManualTest(prompt_release, records_come_back_from_an_executor)
{
	struct flat flat = {0};

	for (unsigned turn = 0; turn < 200; turn++) {
		executor_init(&executor, EXECUTOR_HOLDS);
		for (unsigned index = 0; index < EXECUTOR_PLACES; index++)
			assert_ok(hwt_new_timeout_on(manual.timer,
			    &executor.hook, NULL, idle_task, NULL, 0));
		manual_step(FIXTURE_TICK);
		/* Every other one is cancelled where it waits. */
		for (unsigned index = 0; index < EXECUTOR_PLACES; index += 2)
			assert_ok(hwt_cancel(
			    manual.timer, executor.calls[index].timeout));
		for (unsigned index = 0; index < EXECUTOR_PLACES; index++)
			assert_rc(executor_run(&executor, index),
			    index % 2 == 0 ? -ENOENT : 0);
		assert_flat(&flat, memory());
	}
}

/* Entries in the wheel outlive what they were made for, but not in numbers. */

/* Each is pulled in to the next tick and pushed out again to the same last one,
 * in every tick: its entry there is one, in the end. */
#define SWAYING 3000

/* Returns how much memory it took. */
static uint64_t
sway(unsigned count, unsigned turns, uint64_t delay_ns, bool waits)
{
	static hwt_timeout swaying[SWAYING];
	uint64_t last_ns, bytes;

	manual_open(NULL);
	last_ns = manual.now_ns + delay_ns;
	for (unsigned index = 0; index < count; index++)
		swaying[index] =
		    schedule_task(manual.timer, idle_task, delay_ns);
	for (unsigned turn = 0; turn < turns; turn++) {
		(void)manual_step(0);
		for (unsigned index = 0; index < count; index++)
			assert_ok(hwt_reschedule(
			    manual.timer, swaying[index], FIXTURE_TICK));
		(void)manual_step(0);
		for (unsigned index = 0; index < count; index++)
			assert_ok(hwt_reschedule(manual.timer, swaying[index],
			    last_ns - manual.now_ns));
		assert_u64(manual_step(FIXTURE_TICK), 0);
		if (waits)
			(void)manual_wait();
	}

	bytes = memory();
	assert_u64(manual_step(last_ns - manual.now_ns), count);
	manual_close();
	return bytes;
}

Test(prompt_release, entries_of_one_timeout_at_one_tick_are_kept_once)
{
	uint64_t bytes = sway(SWAYING, 40, HWT_SEC(1000), false);

	cr_assert(bytes < SWAYING * (64 + 9) + 65536);
}

/* Half a tick's number does not tell it. */
Test(prompt_release, and_so_they_are_more_than_2_to_the_31_ticks_away)
{
	const uint64_t far_ns = (UINT64_C(5) << 30) * FIXTURE_TICK;

	cr_assert(sway(1000, 40, far_ns, true) <= sway(1000, 4, far_ns, true));
}

/* After a peak. */

#define PEAK 100000
#define STRIDE 50

static hwt_timeout timeouts[PEAK];

static void
schedule_peak(struct hwt *timer)
{
	for (unsigned index = 0; index < PEAK; index++)
		timeouts[index] = schedule_task(timer, forbidden_task, FAR);
}

/* Returns how much memory it takes. */
static uint64_t
manual_peak(void)
{
	schedule_peak(manual.timer);
	manual_step(FIXTURE_TICK);
	return memory();
}

static void
cancel_peak(struct hwt *timer)
{
	for (unsigned index = 0; index < PEAK; index++)
		assert_ok(hwt_cancel(timer, timeouts[index]));
}

/* The worker sees what was freed, and then it is time to release that. */
static void
step_to_release(void)
{
	manual_step(HWT_MS(50));
	manual_step(HWT_MS(250));
}

static bool
memory_is_of_few(void)
{
	return memory() <= PEAK * 64 / 10;
}

/* What a thread's cache and the queues keep. */
static void
await_memory_of_few(void)
{
	/* Less than a megabyte of free pages may stay; a page for each record
	 * in the cache of the thread that has cancelled, 128; what few need. */
	uint64_t most = (1 << 20) + 128 * 4096 + PEAK * 64 / 20;

	while (live_stats().memory_bytes > most)
		sleep_ns(HWT_MS(1));
}

/* Which calls fail: each, every other one, none. */
static unsigned madvise_fails;
static unsigned madvise_calls;
static _Atomic unsigned madvise_all;
/* Calls wait meanwhile, and one does. */
static _Atomic bool madvise_waits, madvise_is_waiting;

int __real_madvise(void *memory, size_t bytes, int advice);
int __wrap_madvise(void *memory, size_t bytes, int advice);

int
__wrap_madvise(void *memory, size_t bytes, int advice)
{
	madvise_all++;
	while (madvise_waits) {
		madvise_is_waiting = true;
		sleep_ns(HWT_MS(1));
	}
	if (madvise_fails != 0 && madvise_calls++ % madvise_fails == 0) {
		errno = EINVAL;
		return -1;
	}
	return __real_madvise(memory, bytes, advice);
}

/* The next call waits, until madvise_waits is false again. */
static void
await_madvise(void)
{
	while (!madvise_is_waiting)
		sleep_ns(HWT_MS(1));
}

/* So that no page is complete before nearly all records are collected. */
static void
cancel_peak_in_strides(struct hwt *timer)
{
	for (unsigned first = 0; first < STRIDE; first++) {
		for (unsigned index = first; index < PEAK; index += STRIDE)
			assert_ok(hwt_cancel(timer, timeouts[index]));
	}
}

/* A worker that is slow, in the middle of releasing. */
WorkerTest(prompt_release, what_the_worker_holds_serves_others)
{
	uint64_t peak_bytes;

	schedule_peak(live.timer);
	peak_bytes = live_stats().memory_bytes;
	madvise_waits = true;
	cancel_peak_in_strides(live.timer);
	await_madvise();

	schedule_peak(live.timer);
	cr_assert(live_stats().memory_bytes <= peak_bytes + peak_bytes / 4);

	madvise_waits = false;
	cancel_peak(live.timer);
	await_memory_of_few();
}

static void *
advance_far(void *argument)
{
	(void)argument;
	manual.now_ns += HWT_MS(250);
	(void)hwt_advance(manual.timer, NULL);
	return NULL;
}

/* A thread that is in the middle of releasing a peak. */
static pthread_t
begin_release(void)
{
	pthread_t thread;

	cancel_peak_in_strides(manual.timer);
	manual_step(HWT_MS(50));
	madvise_waits = true;
	cr_assert(pthread_create(&thread, NULL, advance_far, NULL) == 0);
	await_madvise();
	return thread;
}

/* Who turns a timer by hand releases its memory at once, but not any more
 * when somebody wants to stop it. */
ManualTest(prompt_release, a_stop_does_not_wait_for_memory_to_go_back)
{
	pthread_t thread;
	unsigned calls;

	schedule_peak(manual.timer);
	thread = begin_release();
	assert_rc(hwt_stop_within(manual.timer, HWT_MS(1), NULL), -ETIMEDOUT);
	calls = madvise_all;
	madvise_waits = false;
	assert_ok(hwt_stop(manual.timer, NULL));
	cr_assert(pthread_join(thread, NULL) == 0);

	/* A piece: 64 pages. */
	cr_assert(madvise_all <= calls + 64);
}

/* And so it does when something is due meanwhile, but for the rest. */
ManualTest(prompt_release, what_is_due_does_not_wait_for_memory_to_go_back)
{
	struct probe probe = {0};
	pthread_t thread;
	unsigned calls;

	schedule_peak(manual.timer);
	probe_schedule(&probe, HWT_MS(350));
	thread = begin_release();
	manual.now_ns += HWT_MS(50);
	calls = madvise_all;
	madvise_waits = false;
	cr_assert(pthread_join(thread, NULL) == 0);

	cr_assert(madvise_all <= calls + 64);
	assert_u64(probe.runs, 0);
	assert_u64(manual_wait(), 0);
	assert_u64(manual_step(0), 1);
	cr_assert(memory_is_of_few());
}

/* One record of each page, as far as pages have one number in 64 each. */
static bool
pins_a_page(hwt_timeout timeout)
{
	return timeout.id % 64 == 5;
}

static void
cancel_pins(bool pins)
{
	for (unsigned index = 0; index < PEAK; index++) {
		if (pins_a_page(timeouts[index]) == pins)
			assert_ok(hwt_cancel(manual.timer, timeouts[index]));
	}
}

/* One that is live holds a page, and there is nothing to be tried. */
ManualTest(prompt_release, pages_with_one_that_is_live_stay_until_it_ends)
{
	uint64_t peak_bytes = manual_peak();
	unsigned calls = madvise_all;

	cancel_pins(false);
	step_to_release();
	(void)manual_wait();
	assert_u64(madvise_all, calls);
	assert_u64(memory(), peak_bytes);

	cancel_pins(true);
	step_to_release();
	cr_assert(memory_is_of_few());
}

/* More slabs than the worker visits in one piece. */
#define SLABS 70

ManualTest(prompt_release, what_ends_below_many_slabs_in_use_goes_back)
{
	static hwt_timeout many[SLABS * 3968];
	uint64_t peak_bytes;

	for (unsigned index = 0; index < SLABS * 3968; index++)
		many[index] = schedule_task(manual.timer, forbidden_task, FAR);
	manual_step(0);
	peak_bytes = memory();

	for (unsigned index = 0; index < 5 * 3968; index++)
		assert_ok(hwt_cancel(manual.timer, many[index]));
	manual_step(FIXTURE_TICK);
	manual_step(HWT_MS(250));

	cr_assert(memory() + (1 << 20) <= peak_bytes);
}

/* All pages below these numbers are 255, and 256: the first two of each 64 are
 * a slab's own. */
#define PAGES_OF_LESS 265
#define PAGES_OF_A_MEGABYTE 266

static void
cancel_pages(uint64_t from, uint64_t end)
{
	for (unsigned index = 0; index < PEAK; index++) {
		uint64_t page = (timeouts[index].id & ((1u << 28) - 1)) / 64;

		if (page >= from && page < end)
			assert_ok(hwt_cancel(manual.timer, timeouts[index]));
	}
}

ManualTest(prompt_release, less_than_a_megabyte_is_left_to_serve_again)
{
	uint64_t peak_bytes = manual_peak();
	unsigned calls = madvise_all;

	cancel_pages(0, PAGES_OF_LESS);
	step_to_release();
	(void)manual_wait();
	assert_u64(madvise_all, calls);
	assert_u64(memory(), peak_bytes);

	cancel_pages(PAGES_OF_LESS, PAGES_OF_A_MEGABYTE);
	manual_step(HWT_MS(50));
	assert_u64(memory(), peak_bytes);
	manual_step(HWT_MS(250));
	cr_assert(memory() <= peak_bytes - (1 << 20));
}

WorkerTest(prompt_release, what_a_batch_took_in_vain_goes_back)
{
	static struct hwt_spec specs[PEAK];

	assert_ok(hwt_start(live.timer));
	live_settle(thread_await("hwt-worker"));
	for (unsigned index = 0; index < PEAK; index++)
		specs[index] =
		    (struct hwt_spec){.task = forbidden_task, .delay_ns = FAR};
	fault_arm(FAULT_MMAP, 20);
	assert_rc(hwt_new_timeouts(live.timer, PEAK, specs, NULL), -ENOMEM);
	(void)fault_disarm();

	await_memory_of_few();
}

/* As where memory is locked: not tried again, before there was less. */
ManualTest(prompt_release, what_cannot_go_back_is_tried_once_for_each_peak)
{
	uint64_t peak_bytes;
	unsigned calls;

	madvise_fails = 1;
	schedule_peak(manual.timer);
	manual_step(0);
	peak_bytes = memory();
	cancel_peak(manual.timer);
	step_to_release();
	calls = madvise_calls;
	/* Records, and chunks. */
	assert_u64(calls, 2);
	manual_step(HWT_MS(250));
	manual_step(HWT_MS(250));
	(void)manual_wait();
	assert_u64(madvise_calls, calls);
	assert_u64(memory(), peak_bytes);

	/* Also if the worker has not looked while there was less. */
	madvise_fails = 0;
	schedule_peak(manual.timer);
	cancel_peak(manual.timer);
	step_to_release();
	cr_assert(memory() < PEAK * 64 / 2);
}

/* The wheel has forgotten its records, and so the next timeouts must not rely
 * on entries that the last ones had. */
ManualTest(prompt_release, what_serves_again_after_a_refusal_is_not_lost)
{
	_Atomic unsigned started = 0;

	madvise_fails = 1;
	schedule_peak(manual.timer);
	manual_step(HWT_MS(50));
	cancel_peak(manual.timer);
	step_to_release();
	cr_assert(madvise_calls > 0);

	for (unsigned index = 0; index < PEAK; index++)
		assert_ok(hwt_new_timeout(manual.timer, &timeouts[index],
		    counted_task, &started, FAR + HWT_SEC(1)));
	manual_step(0);
	manual_step(FAR + HWT_SEC(2));
	assert_u64(started, PEAK);
}

/* Whole slabs go, and come again where they were. While the worker gives a
 * slab's pages back, they are not there for others: hence live_settle. */
WorkerTest(prompt_release, memory_goes_and_comes_without_new_mappings)
{
	pid_t worker;

	schedule_peak(live.timer);
	worker = thread_await("hwt-worker");
	fault_arm(FAULT_MMAP, FAULT_ALWAYS);
	for (unsigned turn = 0; turn < 3; turn++) {
		live_pass_tick();
		cancel_peak(live.timer);
		await_memory_of_few();
		live_settle(worker);
		schedule_peak(live.timer);
	}
	assert_u64(fault_disarm(), 0);
}

static void
then_cancels_the_peak(struct probe *probe)
{
	cancel_peak(probe->data);
}

/* It is the worker that makes the memory spare, and nothing else is to be done
 * after that: no wake-up but that for the call, and that for the tick. */
WorkerTest(prompt_release, memory_goes_back_before_a_long_sleep)
{
	static struct probe probe = {.then = then_cancels_the_peak};
	pid_t worker;
	uint64_t wakeups;

	probe.data = live.timer;
	schedule_peak(live.timer);
	live_pass_tick();
	worker = thread_await("hwt-worker");
	live_settle(worker);
	wakeups = live_stats().wakeups;

	assert_ok(hwt_new_timeout(live.timer, NULL, probe_task, &probe, 0));
	await_memory_of_few();
	live_settle(worker);
	sleep_ns(HWT_MS(400));

	cr_assert(live_stats().wakeups - wakeups <= 2);
}

ManualTest(prompt_release,
    who_turns_a_manual_timer_gives_back_when_asking_for_the_wait)
{
	struct probe probe = {0};
	uint64_t peak_bytes;

	schedule_peak(manual.timer);
	manual_step(0);
	probe_schedule(&probe, FIXTURE_TICK);
	manual_step(0);
	peak_bytes = memory();
	cancel_peak(manual.timer);
	manual_step(0);
	assert_u64(memory(), peak_bytes);

	/* Up to the next boundary: a piece takes so long here. */
	manual.reading_ns = HWT_US(300);
	(void)manual_wait();
	cr_assert(memory() > peak_bytes / 2);
	cr_assert(memory() < peak_bytes);
	manual.reading_ns = 0;
	assert_u64(manual_step(0), 1);

	assert_u64(manual_wait(), HWT_NEVER);
	cr_assert(memory_is_of_few());
}

/* The same by a clock that the test moves. */

ManualTest(prompt_release, after_a_peak_memory_stays_for_a_quarter_of_a_second)
{
	uint64_t peak_bytes;

	for (unsigned turn = 0; turn < 3; turn++) {
		schedule_peak(manual.timer);
		(void)manual_step(HWT_MS(100));
		peak_bytes = memory();
		cancel_peak(manual.timer);
		(void)manual_step(HWT_MS(100));

		(void)manual_step(HWT_MS(100));
		(void)manual_step(HWT_MS(140));
		assert_u64(memory(), peak_bytes);

		(void)manual_step(HWT_MS(20));
		cr_assert(memory_is_of_few());
	}
}

ManualTest(
    prompt_release, what_is_needed_again_meanwhile_stays_for_another_quarter)
{
	uint64_t peak_bytes;

	schedule_peak(manual.timer);
	cancel_peak(manual.timer);
	(void)manual_step(HWT_MS(100));
	peak_bytes = memory();
	schedule_peak(manual.timer);
	(void)manual_step(HWT_MS(100));
	cancel_peak(manual.timer);
	(void)manual_step(HWT_MS(100));

	(void)manual_step(HWT_MS(200));
	cr_assert(memory() >= peak_bytes);

	(void)manual_step(HWT_MS(100));
	cr_assert(memory_is_of_few());
}

ManualTest(prompt_release, who_turns_a_manual_timer_is_not_called_for_memory)
{
	schedule_peak(manual.timer);
	manual.wakes = 0;
	assert_u64(manual_wait(), FAR);

	cancel_peak(manual.timer);

	assert_u64(manual.wakes, 0);
}

/* So many that the last chunk of their bucket is the last one of an odd page.
 * What is left lies there. */
#define LAST_OF_PAGE (15 * (210 * 32 - 1))

ManualTest(prompt_release, what_is_in_use_runs_after_the_rest_went_back)
{
	static hwt_timeout many[LAST_OF_PAGE];
	static _Atomic unsigned runs[LAST_OF_PAGE];

	for (unsigned index = 0; index < LAST_OF_PAGE; index++)
		assert_ok(hwt_new_timeout(manual.timer, &many[index],
		    counted_task, &runs[index], FAR));
	(void)manual_step(0);
	for (unsigned index = 0; index < LAST_OF_PAGE; index++) {
		if (index % 10000 != 0)
			assert_ok(hwt_cancel(manual.timer, many[index]));
	}
	(void)manual_step(HWT_MS(100));
	(void)manual_step(HWT_MS(300));
	cr_assert(memory_is_of_few());

	(void)manual_step(FAR);

	for (unsigned index = 0; index < LAST_OF_PAGE; index++)
		assert_u64(runs[index], index % 10000 == 0);
}

/* Half of each page is in use, and nothing can go back. */
WorkerTest(prompt_release, what_cannot_go_back_does_not_keep_the_worker_awake)
{
	uint64_t wakeups;
	unsigned turn;

	schedule_peak(live.timer);
	for (unsigned index = 0; index < PEAK; index += 2)
		assert_ok(hwt_cancel(live.timer, timeouts[index]));

	for (turn = 0; turn < 20; turn++) {
		wakeups = live_stats().wakeups;
		sleep_ns(HWT_MS(600));
		if (live_stats().wakeups == wakeups)
			break;
	}

	cr_assert(turn < 20);
}

/* arg is where the timeout's handle is kept. */
static void
own_handle_task(hwt_timeout timeout, void *arg)
{
	hwt_timeout *own = arg;

	assert_u64(timeout.id, own->id);
	own->id = 0;
}

/* It is the slab of a record that tells an executor whose timeout it is. */
Test(prompt_release, an_executor_is_served_from_memory_that_went_back)
{
	struct hwt_mailbox *mailbox = NULL;
	uint64_t started = 0;

	live_open(NULL);
	assert_ok(hwt_mailbox_create(&mailbox));
	schedule_peak(live.timer);
	cancel_peak(live.timer);
	await_memory_of_few();
	for (unsigned index = 0; index < PEAK; index++)
		assert_ok(hwt_new_timeout_on(live.timer,
		    hwt_mailbox_executor(mailbox), &timeouts[index],
		    own_handle_task, &timeouts[index], HWT_MS(1)));

	while (started < PEAK) {
		size_t now = 0;

		assert_ok(hwt_mailbox_run(mailbox, 0, &now));
		started += now;
		sleep_ns(HWT_MS(1));
	}

	for (unsigned index = 0; index < PEAK; index++)
		assert_u64(timeouts[index].id, 0);
	assert_u64(hwt_pending_timeouts(live.timer), 0);
	live_close();
	assert_ok(hwt_mailbox_destroy(mailbox));
}
