/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompt-release: the record of a cancelled timeout can be used for another one
 * as soon as hwt_cancel has returned 0, in a long sleep of the worker too.
 * Whether a record serves again is seen by memory_bytes: it stands still when
 * nothing new was needed. What a peak took goes back to the system before a
 * long sleep, or when it was spare for a quarter of a second.
 */
#include "test/rng.h"
#include "test/spec/support_promises.h"

#include <stdlib.h>
#include <sys/mman.h>

SUITE(prompt_release);

static struct recording_executor executor;

#define CROWD 20000
#define FAR HWT_SEC(3600)

static uint64_t
memory(struct fixture *fixture)
{
	return fixture_stats(fixture).memory_bytes;
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

static void
schedule_crowd(hwt_timeout *timeouts)
{
	for (unsigned index = 0; index < CROWD; index++)
		timeouts[index] =
		    schedule_task(manual.timer, forbidden_task, FAR);
}

static void
cancel_crowd(const hwt_timeout *timeouts)
{
	for (unsigned index = 0; index < CROWD; index++)
		assert_ok(hwt_cancel(manual.timer, timeouts[index]));
}

ManualTest(prompt_release, more_live_timeouts_take_more_memory)
{
	hwt_timeout *timeouts = calloc(CROWD, sizeof(*timeouts));
	uint64_t before;

	/* All other tests of this suite lean on this. */
	before = memory(&manual);
	schedule_crowd(timeouts);

	cr_assert(memory(&manual) >= before + CROWD * 64);
	free(timeouts);
}

ManualTest(prompt_release, what_is_not_placed_yet_serves_another_at_once)
{
	hwt_timeout timeout;
	uint64_t after_first;

	timeout = schedule_task(manual.timer, forbidden_task, FAR);
	assert_ok(hwt_cancel(manual.timer, timeout));
	after_first = memory(&manual);

	for (unsigned turn = 0; turn < 2000000; turn++) {
		timeout = schedule_task(manual.timer, forbidden_task, FAR);
		assert_ok(hwt_cancel(manual.timer, timeout));
	}

	assert_u64(memory(&manual), after_first);
}

ManualTest(prompt_release, what_is_placed_serves_another_one_tick_later)
{
	hwt_timeout *timeouts = calloc(CROWD, sizeof(*timeouts));
	struct flat flat = {0};

	for (unsigned turn = 0; turn < 50; turn++) {
		schedule_crowd(timeouts);
		manual_step(FIXTURE_TICK);
		assert_flat(&flat, memory(&manual));
		cancel_crowd(timeouts);
		manual_step(FIXTURE_TICK);
	}
	free(timeouts);
}

ManualTest(prompt_release, started_timeouts_serve_others_in_the_next_tick)
{
	struct flat flat = {0};

	for (unsigned turn = 0; turn < 50; turn++) {
		for (unsigned index = 0; index < CROWD; index++)
			assert_ok(hwt_new_timeout(
			    manual.timer, NULL, idle_task, NULL, FIXTURE_TICK));
		assert_u64(manual_step(FIXTURE_TICK), CROWD);
		assert_flat(&flat, memory(&manual));
	}
}

ManualTest(prompt_release, what_was_cancelled_in_a_long_sleep_serves_at_once)
{
	hwt_timeout timeout;
	uint64_t first_bytes;

	timeout = schedule_task(manual.timer, forbidden_task, FAR);
	assert_u64(manual_wait(), FAR);
	first_bytes = memory(&manual);

	for (unsigned turn = 0; turn < CROWD; turn++) {
		assert_ok(hwt_cancel(manual.timer, timeout));
		timeout = schedule_task(manual.timer, forbidden_task, FAR);
	}

	assert_u64(memory(&manual), first_bytes);
	assert_u64(manual.wakes, 0);
	assert_u64(manual_wait(), FAR);
}

ManualTest(prompt_release, next_wakeup_releases_what_was_cancelled)
{
	hwt_timeout *timeouts = calloc(CROWD, sizeof(*timeouts));
	struct flat flat = {0};

	/* The clock stands still: nobody owes an advance. */
	for (unsigned turn = 0; turn < 20; turn++) {
		schedule_crowd(timeouts);
		assert_u64(manual_wait(), FAR);
		assert_flat(&flat, memory(&manual));
		cancel_crowd(timeouts);
		assert_u64(manual_wait(), HWT_NEVER);
	}
	free(timeouts);
}

WorkerTest(prompt_release, a_real_worker_sleeps_on_while_records_serve_again)
{
	hwt_timeout timeout;
	uint64_t wakeups, first_bytes;

	timeout = schedule_task(live.timer, forbidden_task, FAR);
	live_settle(thread_await("hwt-worker"));
	wakeups = live_stats().wakeups;
	first_bytes = live_stats().memory_bytes;

	for (unsigned turn = 0; turn < CROWD; turn++) {
		assert_ok(hwt_cancel(live.timer, timeout));
		timeout = schedule_task(live.timer, forbidden_task, FAR);
	}

	assert_u64(live_stats().wakeups, wakeups);
	assert_u64(live_stats().memory_bytes, first_bytes);
}

/* So few that neither their records nor their entries in the queue fill what
 * was taken for the first of them; and never due, so that it does not count
 * over how many buckets they are spread. */
#define FEW 40

WorkerTest(
    prompt_release, a_few_that_a_real_worker_released_serve_another_thread)
{
	hwt_timeout timeouts[FEW];
	uint64_t first_bytes = 0;

	for (unsigned turn = 0; turn < 10; turn++) {
		for (unsigned index = 0; index < FEW; index++)
			timeouts[index] = schedule_task(
			    live.timer, forbidden_task, HWT_NEVER);
		live_pass_tick();
		for (unsigned index = 0; index < FEW; index++)
			assert_ok(hwt_cancel(live.timer, timeouts[index]));
		live_settle(thread_await("hwt-worker"));
		if (turn == 0)
			first_bytes = live_stats().memory_bytes;
	}

	assert_u64(live_stats().memory_bytes, first_bytes);
}

static void
counted_task(hwt_timeout timeout, void *arg)
{
	_Atomic unsigned *runs = arg;

	(void)timeout;
	++*runs;
}

WorkerTest(prompt_release, a_few_that_a_real_worker_ran_serve_another_thread)
{
	struct hwt_spec specs[FEW];
	_Atomic unsigned runs = 0;
	uint64_t most_bytes = 0;
	unsigned turn;
	unsigned enough = 0;

	/* Until ten turns in a row have wanted no more than the first of them.
	 * When this thread is held up in a call, some are gone before others
	 * come, and a later turn is the first in which all are there. */
	for (turn = 1; turn <= 100 && enough < 10; turn++, enough++) {
		for (unsigned index = 0; index < FEW; index++)
			specs[index] = (struct hwt_spec){.task = counted_task,
			    .arg = &runs,
			    .delay_ns = HWT_MS(50)};
		assert_ok(hwt_new_timeouts(live.timer, FEW, specs, NULL));
		while (runs < turn * FEW)
			sleep_ns(HWT_MS(1));
		live_settle(thread_await("hwt-worker"));
		if (live_stats().memory_bytes > most_bytes) {
			most_bytes = live_stats().memory_bytes;
			enough = 0;
		}
	}

	assert_u64(enough, 10);
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
		assert_flat(&flat, memory(&manual));
	}
}

ManualTest(prompt_release, memory_does_not_follow_the_rate_of_reschedules)
{
	hwt_timeout timeout;
	uint64_t first_bytes;

	/* Pulled in each time, so that each is news for the worker; a tick
	 * comes by now and then, and at first not at all. */
	timeout = schedule_task(manual.timer, forbidden_task, 2 * FAR);
	manual_step(FIXTURE_TICK);
	first_bytes = memory(&manual);
	for (uint64_t turn = 0; turn < 1000000; turn++) {
		assert_ok(
		    hwt_reschedule(manual.timer, timeout, 2 * FAR - 1 - turn));
		if (turn > 500000 && turn % 100 == 0)
			manual_step(FIXTURE_TICK);
	}

	/* A million entries would be hundreds of times that. */
	cr_assert(memory(&manual) <= 2 * first_bytes);
}

ManualTest(prompt_release, memory_does_not_follow_the_rate_of_pulls_and_pushes)
{
	hwt_timeout *timeouts = calloc(CROWD, sizeof(*timeouts));
	struct rng rng = {.state = 3};
	uint64_t tenth_bytes = 0;

	schedule_crowd(timeouts);
	for (unsigned turn = 0; turn < 50; turn++) {
		for (unsigned index = 0; index < CROWD; index++)
			assert_ok(hwt_reschedule(manual.timer, timeouts[index],
			    FIXTURE_TICK * 100 + rng_below(&rng, FAR)));
		assert_u64(manual_step(FIXTURE_TICK), 0);
		if (turn == 10)
			tenth_bytes = memory(&manual);
	}

	/* Buckets fill by chance: a chunk more for each is no leak. A leaked
	 * entry per call would be a multiple of all. */
	cr_assert(memory(&manual) < tenth_bytes + tenth_bytes / 4);
	free(timeouts);
}

static void
schedule_and_leave(unsigned index, void *arg)
{
	struct fixture *fixture = arg;
	hwt_timeout timeout;

	(void)index;
	if (hwt_new_timeout(
		fixture->timer, &timeout, forbidden_task, NULL, FAR) != 0 ||
	    hwt_cancel(fixture->timer, timeout) != 0)
		abort();
}

ManualTest(prompt_release, threads_that_end_leave_no_memory_behind)
{
	uint64_t early_bytes = 0;

	for (unsigned turn = 0; turn < 2000; turn++) {
		in_parallel(1, schedule_and_leave, &manual);
		if (turn == 200)
			early_bytes = memory(&manual);
	}

	assert_u64(memory(&manual), early_bytes);
}

/* Entries in the wheel outlive what they were made for, but not in numbers. */

#define MIXED 1000
#define MIXED_TURNS 300000

ManualTest(prompt_release, memory_follows_live_timeouts_whatever_their_delays)
{
	static const uint64_t delays_ns[] = {
	    HWT_MS(50), HWT_MS(250), HWT_SEC(1), HWT_SEC(30), HWT_SEC(3600)};
	hwt_timeout timeouts[MIXED] = {{0}};
	struct rng rng = {.state = 1};
	uint64_t early_bytes = 0;

	for (unsigned turn = 0; turn < MIXED_TURNS; turn++) {
		hwt_timeout *timeout = &timeouts[rng_below(&rng, MIXED)];

		(void)!hwt_cancel(manual.timer, *timeout);
		*timeout = schedule_task(
		    manual.timer, idle_task, delays_ns[rng_below(&rng, 5)]);
		if (turn % 10 == 0)
			manual_step(FIXTURE_TICK);
		if (turn == MIXED_TURNS / 10)
			early_bytes = memory(&manual);
	}

	cr_assert(memory(&manual) < early_bytes + early_bytes / 2);
}

/* Each is pulled in to the next tick and pushed out again to the same last one,
 * in every tick: its entry there is one, in the end. */
#define SWAYING 3000

/* Returns how much memory it took. */
static uint64_t
sway(unsigned count, unsigned turns, uint64_t delay_ns, bool waits)
{
	static hwt_timeout timeouts[SWAYING];
	uint64_t last_ns, bytes;

	manual_open(NULL);
	last_ns = manual.now_ns + delay_ns;
	for (unsigned index = 0; index < count; index++)
		timeouts[index] =
		    schedule_task(manual.timer, idle_task, delay_ns);
	for (unsigned turn = 0; turn < turns; turn++) {
		(void)manual_step(0);
		for (unsigned index = 0; index < count; index++)
			assert_ok(hwt_reschedule(
			    manual.timer, timeouts[index], FIXTURE_TICK));
		(void)manual_step(0);
		for (unsigned index = 0; index < count; index++)
			assert_ok(hwt_reschedule(manual.timer, timeouts[index],
			    last_ns - manual.now_ns));
		assert_u64(manual_step(FIXTURE_TICK), 0);
		if (waits)
			(void)manual_wait();
	}

	bytes = memory(&manual);
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

#define PULLED 4000
#define PULLS 12

struct pulled {
	struct hwt *timer;
	hwt_timeout timeouts[PULLED];
	uint64_t delay_ns;
};

static void
pull_all_in(hwt_timeout timeout, void *arg)
{
	struct pulled *pulled = arg;

	(void)timeout;
	pulled->delay_ns -= FIXTURE_TICK;
	for (unsigned index = 0; index < PULLED; index++)
		assert_ok(hwt_reschedule(
		    pulled->timer, pulled->timeouts[index], pulled->delay_ns));
}

/* Many ticks in one turn. */
ManualTest(
    prompt_release, pulls_in_every_tick_of_a_stall_leave_no_memory_behind)
{
	static struct pulled pulled;

	pulled.timer = manual.timer;
	pulled.delay_ns = FAR;
	for (unsigned index = 0; index < PULLED; index++)
		pulled.timeouts[index] =
		    schedule_task(manual.timer, idle_task, FAR);
	for (unsigned index = 1; index <= PULLS; index++)
		assert_ok(hwt_new_timeout(manual.timer, NULL, pull_all_in,
		    &pulled, index * FIXTURE_TICK));
	manual_step(FIXTURE_TICK);

	assert_u64(manual_step((PULLS - 1) * FIXTURE_TICK), PULLS - 1);

	cr_assert(memory(&manual) < PULLED * (64 + 9) + 65536);
	assert_u64(manual_step(pulled.delay_ns - FIXTURE_TICK), 0);
	assert_u64(manual_step(FIXTURE_TICK), PULLED);
}

/* After a peak. */

#define PEAK 100000
#define STRIDE 50

static int
compare_ids(const void *left, const void *right)
{
	const hwt_timeout *a = left, *b = right;

	return (a->id > b->id) - (a->id < b->id);
}

static void
schedule_peak(struct hwt *timer, hwt_timeout *timeouts)
{
	for (unsigned index = 0; index < PEAK; index++)
		timeouts[index] = schedule_task(timer, forbidden_task, FAR);
}

static void
cancel_peak(struct hwt *timer, const hwt_timeout *timeouts)
{
	for (unsigned index = 0; index < PEAK; index++)
		assert_ok(hwt_cancel(timer, timeouts[index]));
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

/* So that no page is complete before nearly all records are collected. */
static void
cancel_peak_in_strides(struct hwt *timer, const hwt_timeout *timeouts)
{
	for (unsigned first = 0; first < STRIDE; first++) {
		for (unsigned index = first; index < PEAK; index += STRIDE)
			assert_ok(hwt_cancel(timer, timeouts[index]));
	}
}

/* A worker that is held up, in the middle of giving back. */
WorkerTest(prompt_release, what_the_worker_holds_serves_others)
{
	static hwt_timeout timeouts[PEAK];
	uint64_t peak_bytes;

	schedule_peak(live.timer, timeouts);
	peak_bytes = live_stats().memory_bytes;
	madvise_waits = true;
	cancel_peak_in_strides(live.timer, timeouts);
	while (!madvise_is_waiting)
		sleep_ns(HWT_MS(1));

	schedule_peak(live.timer, timeouts);
	cr_assert(live_stats().memory_bytes <= peak_bytes + peak_bytes / 4);

	madvise_waits = false;
	cancel_peak(live.timer, timeouts);
	await_memory_of_few();
}

/* 15 entries to a chunk, 32 chunks to a page; the first chunk is none. */
#define PAGE_ENTRIES (15 * 32)
#define PAGE_PAIRS 100

/* Pages of entries take turns: every other one is needed still. */
ManualTest(prompt_release, entries_that_are_needed_stay_between_pages_that_go)
{
	static hwt_timeout gone[PAGE_PAIRS * PAGE_ENTRIES];
	struct probe probe = {0};
	unsigned count = 0;

	for (unsigned pair = 0; pair < PAGE_PAIRS; pair++) {
		for (unsigned index = pair == 0 ? 15 : 0; index < PAGE_ENTRIES;
		     index++)
			gone[count++] = schedule_task(manual.timer,
			    forbidden_task, HWT_SEC(100) + FIXTURE_TICK);
		manual_step(0);
		for (unsigned index = 0; index < PAGE_ENTRIES; index++)
			probe_schedule(&probe, HWT_SEC(200));
		manual_step(0);
	}
	while (count > 0)
		assert_ok(hwt_cancel(manual.timer, gone[--count]));
	manual_step(HWT_MS(50));
	manual_step(HWT_MS(250));

	assert_u64(manual_step(HWT_SEC(200)), PAGE_PAIRS * PAGE_ENTRIES);
}

static void *
advance_far(void *argument)
{
	struct fixture *fixture = argument;

	fixture->now_ns += HWT_MS(250);
	(void)hwt_advance(fixture->timer, NULL);
	return NULL;
}

/* Who turns a timer by hand gives its memory back at once, but not any more
 * when somebody wants to stop it. */
ManualTest(prompt_release, a_stop_does_not_wait_for_memory_to_go_back)
{
	static hwt_timeout timeouts[PEAK];
	pthread_t thread;
	unsigned calls;

	schedule_peak(manual.timer, timeouts);
	cancel_peak_in_strides(manual.timer, timeouts);
	manual_step(HWT_MS(50));
	madvise_waits = true;
	cr_assert(pthread_create(&thread, NULL, advance_far, &manual) == 0);
	while (!madvise_is_waiting)
		sleep_ns(HWT_MS(1));
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
	static hwt_timeout timeouts[PEAK];
	struct probe probe = {0};
	pthread_t thread;
	unsigned calls;

	schedule_peak(manual.timer, timeouts);
	cancel_peak_in_strides(manual.timer, timeouts);
	probe_schedule(&probe, HWT_MS(350));
	manual_step(HWT_MS(50));
	madvise_waits = true;
	cr_assert(pthread_create(&thread, NULL, advance_far, &manual) == 0);
	while (!madvise_is_waiting)
		sleep_ns(HWT_MS(1));
	manual.now_ns += HWT_MS(50);
	calls = madvise_all;
	madvise_waits = false;
	cr_assert(pthread_join(thread, NULL) == 0);

	cr_assert(madvise_all <= calls + 64);
	assert_u64(probe.runs, 0);
	assert_u64(manual_wait(), 0);
	assert_u64(manual_step(0), 1);
	cr_assert(memory(&manual) <= PEAK * 64 / 10);
}

/* Threads that keep as many records for themselves as they may. */
#define CREW 300

struct crew {
	struct hwt *timer;
	pthread_t threads[CREW];
	_Atomic unsigned ready;
	_Atomic bool may_go;
};

static void *
fill_cache(void *argument)
{
	struct crew *crew = argument;
	hwt_timeout timeouts[128];

	for (unsigned index = 0; index < 128; index++)
		timeouts[index] =
		    schedule_task(crew->timer, forbidden_task, HWT_NEVER);
	for (unsigned index = 0; index < 128; index++)
		assert_ok(hwt_cancel(crew->timer, timeouts[index]));
	crew->ready++;
	/* 300 that look each millisecond fill an emulated processor. */
	while (!crew->may_go)
		sleep_ns(HWT_MS(50));
	return NULL;
}

static void
crew_start(struct crew *crew, struct hwt *timer)
{
	crew->timer = timer;
	for (unsigned index = 0; index < CREW; index++)
		cr_assert(pthread_create(&crew->threads[index], NULL,
			      fill_cache, crew) == 0);
	while (crew->ready < CREW)
		sleep_ns(HWT_MS(1));
}

static void
crew_leave(struct crew *crew)
{
	crew->may_go = true;
	for (unsigned index = 0; index < CREW; index++)
		cr_assert(pthread_join(crew->threads[index], NULL) == 0);
}

/* What threads keep for themselves cannot go back before they do. */
WorkerTest(prompt_release, what_threads_leave_behind_goes_back)
{
	struct crew crew = {0};

	crew_start(&crew, live.timer);
	sleep_ns(HWT_MS(600));
	cr_assert(live_stats().memory_bytes > CREW * 128 * 64);

	crew_leave(&crew);
	/* But for less than a megabyte, and the caches themselves. */
	while (live_stats().memory_bytes > (1 << 20) + CREW * 1024)
		sleep_ns(HWT_MS(1));
}

/* One record of each page, as far as pages have one number in 64 each. */
static bool
pins_a_page(hwt_timeout timeout)
{
	return timeout.id % 64 == 5;
}

static void
cancel_pins(struct hwt *timer, const hwt_timeout *timeouts, bool pins)
{
	for (unsigned index = 0; index < PEAK; index++) {
		if (pins_a_page(timeouts[index]) == pins)
			assert_ok(hwt_cancel(timer, timeouts[index]));
	}
}

/* Nothing ends any more that would have to be looked at. */
WorkerTest(prompt_release, what_kept_pages_goes_back_when_it_ends)
{
	static hwt_timeout timeouts[PEAK];
	unsigned calls;

	schedule_peak(live.timer, timeouts);
	live_pass_tick();
	cancel_pins(live.timer, timeouts, false);
	calls = madvise_all;
	sleep_ns(HWT_MS(600));
	assert_u64(madvise_all, calls);
	cr_assert(live_stats().memory_bytes > PEAK * 64 / 2);
	live_settle(thread_await("hwt-worker"));

	cancel_pins(live.timer, timeouts, true);

	await_memory_of_few();
}

/* One that is live holds a page, and there is nothing to be tried. */
ManualTest(prompt_release, pages_with_one_that_is_live_stay_until_it_ends)
{
	static hwt_timeout timeouts[PEAK];
	uint64_t peak_bytes;
	unsigned calls;

	schedule_peak(manual.timer, timeouts);
	manual_step(FIXTURE_TICK);
	peak_bytes = memory(&manual);
	calls = madvise_all;
	cancel_pins(manual.timer, timeouts, false);
	manual_step(HWT_MS(50));
	manual_step(HWT_MS(250));
	(void)manual_wait();
	assert_u64(madvise_all, calls);
	assert_u64(memory(&manual), peak_bytes);

	cancel_pins(manual.timer, timeouts, true);
	manual_step(HWT_MS(50));
	manual_step(HWT_MS(250));
	cr_assert(memory(&manual) <= PEAK * 64 / 10);
}

/* More slabs than the worker visits in one piece. */
#define SLABS 70

ManualTest(prompt_release, what_ends_below_many_slabs_in_use_goes_back)
{
	static hwt_timeout timeouts[SLABS * 4032];
	uint64_t peak_bytes;

	for (unsigned index = 0; index < SLABS * 4032; index++)
		timeouts[index] =
		    schedule_task(manual.timer, forbidden_task, FAR);
	manual_step(0);
	peak_bytes = memory(&manual);

	for (unsigned index = 0; index < 5 * 4032; index++)
		assert_ok(hwt_cancel(manual.timer, timeouts[index]));
	manual_step(FIXTURE_TICK);
	manual_step(HWT_MS(250));

	cr_assert(memory(&manual) + (1 << 20) <= peak_bytes);
}

/* All pages below these numbers are 255, and 256: the first of each 64 is a
 * slab's own. */
#define PAGES_OF_LESS 260
#define PAGES_OF_A_MEGABYTE 261

static void
cancel_pages(
    struct hwt *timer, const hwt_timeout *timeouts, uint64_t from, uint64_t end)
{
	for (unsigned index = 0; index < PEAK; index++) {
		uint64_t page = (timeouts[index].id & ((1u << 28) - 1)) / 64;

		if (page >= from && page < end)
			assert_ok(hwt_cancel(timer, timeouts[index]));
	}
}

ManualTest(prompt_release, less_than_a_megabyte_is_left_to_serve_again)
{
	static hwt_timeout timeouts[PEAK];
	uint64_t peak_bytes;
	unsigned calls;

	schedule_peak(manual.timer, timeouts);
	manual_step(FIXTURE_TICK);
	peak_bytes = memory(&manual);
	calls = madvise_all;

	cancel_pages(manual.timer, timeouts, 0, PAGES_OF_LESS);
	manual_step(HWT_MS(50));
	manual_step(HWT_MS(250));
	(void)manual_wait();
	assert_u64(madvise_all, calls);
	assert_u64(memory(&manual), peak_bytes);

	cancel_pages(
	    manual.timer, timeouts, PAGES_OF_LESS, PAGES_OF_A_MEGABYTE);
	manual_step(HWT_MS(50));
	assert_u64(memory(&manual), peak_bytes);
	manual_step(HWT_MS(250));
	cr_assert(memory(&manual) <= peak_bytes - (1 << 20));
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
	static hwt_timeout timeouts[PEAK];
	uint64_t peak_bytes;
	unsigned calls;

	madvise_fails = 1;
	schedule_peak(manual.timer, timeouts);
	manual_step(0);
	peak_bytes = memory(&manual);
	cancel_peak(manual.timer, timeouts);
	manual_step(HWT_MS(50));
	manual_step(HWT_MS(250));
	calls = madvise_calls;
	/* Records, and chunks. */
	assert_u64(calls, 2);
	manual_step(HWT_MS(250));
	manual_step(HWT_MS(250));
	(void)manual_wait();
	assert_u64(madvise_calls, calls);
	assert_u64(memory(&manual), peak_bytes);

	/* Also if the worker has not looked while there was less. */
	madvise_fails = 0;
	schedule_peak(manual.timer, timeouts);
	cancel_peak(manual.timer, timeouts);
	manual_step(HWT_MS(50));
	manual_step(HWT_MS(250));
	cr_assert(memory(&manual) < PEAK * 64 / 2);
}

/* As where memory is locked. */
WorkerTest(prompt_release, memory_that_cannot_go_back_serves_again)
{
	static hwt_timeout timeouts[PEAK];
	uint64_t peak_bytes;

	madvise_fails = 1;
	schedule_peak(live.timer, timeouts);
	peak_bytes = live_stats().memory_bytes;
	cancel_peak(live.timer, timeouts);
	while (madvise_calls == 0)
		sleep_ns(HWT_MS(1));
	cr_assert(live_stats().memory_bytes >= PEAK * 64);

	for (unsigned turn = 0; turn < 3; turn++) {
		madvise_fails = 1 + turn;
		schedule_peak(live.timer, timeouts);
		cr_assert(
		    live_stats().memory_bytes <= peak_bytes + peak_bytes / 4);
		live_pass_tick();
		cancel_peak(live.timer, timeouts);
		sleep_ns(HWT_MS(300));
	}
	madvise_fails = 0;
	schedule_peak(live.timer, timeouts);
	live_pass_tick();
	cancel_peak(live.timer, timeouts);
	await_memory_of_few();
}

static void
count_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	++*(unsigned *)arg;
}

/* The wheel has forgotten its records, and so the next timeouts must not rely
 * on entries that the last ones had. */
ManualTest(prompt_release, what_serves_again_after_a_refusal_is_not_lost)
{
	static hwt_timeout timeouts[PEAK];
	unsigned started = 0;

	madvise_fails = 1;
	schedule_peak(manual.timer, timeouts);
	manual_step(HWT_MS(50));
	cancel_peak(manual.timer, timeouts);
	manual_step(HWT_MS(50));
	manual_step(HWT_MS(250));
	cr_assert(madvise_calls > 0);

	for (unsigned index = 0; index < PEAK; index++)
		assert_ok(hwt_new_timeout(manual.timer, &timeouts[index],
		    count_task, &started, FAR + HWT_SEC(1)));
	manual_step(0);
	manual_step(FAR + HWT_SEC(2));
	assert_u64(started, PEAK);
}

/* Whole slabs go, and come again where they were. While the worker gives a
 * slab's pages back, they are not there for others: hence live_settle. */
WorkerTest(prompt_release, memory_goes_and_comes_without_new_mappings)
{
	static hwt_timeout timeouts[PEAK];
	pid_t worker;

	schedule_peak(live.timer, timeouts);
	worker = thread_await("hwt-worker");
	fault_arm(FAULT_MMAP, FAULT_ALWAYS);
	for (unsigned turn = 0; turn < 3; turn++) {
		live_pass_tick();
		cancel_peak(live.timer, timeouts);
		await_memory_of_few();
		live_settle(worker);
		schedule_peak(live.timer, timeouts);
	}
	assert_u64(fault_disarm(), 0);
}

struct peak {
	struct hwt *timer;
	hwt_timeout timeouts[PEAK];
};

static void
then_cancels_the_peak(struct probe *probe)
{
	struct peak *peak = probe->data;

	cancel_peak(peak->timer, peak->timeouts);
}

/* It is the worker that makes the memory spare, and nothing else is to be done
 * after that: no wake-up but that for the call, and that for the tick. */
WorkerTest(prompt_release, memory_goes_back_before_a_long_sleep)
{
	static struct peak peak;
	static struct probe probe = {
	    .then = then_cancels_the_peak, .data = &peak};
	pid_t worker;
	uint64_t wakeups;

	peak.timer = live.timer;
	schedule_peak(live.timer, peak.timeouts);
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
	static hwt_timeout timeouts[PEAK];
	struct probe probe = {0};
	uint64_t peak_bytes;

	schedule_peak(manual.timer, timeouts);
	manual_step(0);
	probe_schedule(&probe, FIXTURE_TICK);
	manual_step(0);
	peak_bytes = memory(&manual);
	cancel_peak(manual.timer, timeouts);
	manual_step(0);
	assert_u64(memory(&manual), peak_bytes);

	/* Up to the next boundary: a piece takes so long here. */
	manual.reading_ns = HWT_US(300);
	(void)manual_wait();
	cr_assert(memory(&manual) > peak_bytes / 2);
	cr_assert(memory(&manual) < peak_bytes);
	manual.reading_ns = 0;
	assert_u64(manual_step(0), 1);

	assert_u64(manual_wait(), HWT_NEVER);
	cr_assert(memory(&manual) <= PEAK * 64 / 10);
}

WorkerTest(
    prompt_release, no_handle_of_before_is_valid_in_memory_that_went_back)
{
	static hwt_timeout before[PEAK], after[PEAK];

	schedule_peak(live.timer, before);
	cancel_peak(live.timer, before);
	await_memory_of_few();
	schedule_peak(live.timer, after);

	qsort(after, PEAK, sizeof(after[0]), compare_ids);
	for (unsigned index = 0; index < PEAK; index++) {
		cr_assert(bsearch(&before[index], after, PEAK, sizeof(after[0]),
			      compare_ids) == NULL);
		assert_rc(hwt_cancel(live.timer, before[index]), -ENOENT);
	}
	cancel_peak(live.timer, after);
}

/* The same by a clock that the test moves. */

static bool
memory_is_of_few(void)
{
	return memory(&manual) <= PEAK * 64 / 10;
}

ManualTest(prompt_release, after_a_peak_memory_stays_for_a_quarter_of_a_second)
{
	static hwt_timeout timeouts[PEAK];
	uint64_t peak_bytes;

	for (unsigned turn = 0; turn < 3; turn++) {
		schedule_peak(manual.timer, timeouts);
		(void)manual_step(HWT_MS(100));
		peak_bytes = memory(&manual);
		cancel_peak(manual.timer, timeouts);
		(void)manual_step(HWT_MS(100));

		(void)manual_step(HWT_MS(100));
		(void)manual_step(HWT_MS(140));
		assert_u64(memory(&manual), peak_bytes);

		(void)manual_step(HWT_MS(20));
		cr_assert(memory_is_of_few());
	}
}

ManualTest(
    prompt_release, what_is_needed_again_meanwhile_stays_for_another_quarter)
{
	static hwt_timeout timeouts[PEAK];
	uint64_t peak_bytes;

	schedule_peak(manual.timer, timeouts);
	cancel_peak(manual.timer, timeouts);
	(void)manual_step(HWT_MS(100));
	peak_bytes = memory(&manual);
	schedule_peak(manual.timer, timeouts);
	(void)manual_step(HWT_MS(100));
	cancel_peak(manual.timer, timeouts);
	(void)manual_step(HWT_MS(100));

	(void)manual_step(HWT_MS(200));
	cr_assert(memory(&manual) >= peak_bytes);

	(void)manual_step(HWT_MS(100));
	cr_assert(memory_is_of_few());
}

ManualTest(prompt_release, who_turns_a_manual_timer_is_not_called_for_memory)
{
	static hwt_timeout timeouts[PEAK];

	schedule_peak(manual.timer, timeouts);
	manual.wakes = 0;
	assert_u64(manual_wait(), FAR);

	cancel_peak(manual.timer, timeouts);

	assert_u64(manual.wakes, 0);
}

/* So many that the last chunk of their bucket is the last one of an odd page.
 * What is left lies there. */
#define LAST_OF_PAGE (15 * (210 * 32 - 1))

ManualTest(prompt_release, what_is_in_use_runs_after_the_rest_went_back)
{
	static hwt_timeout timeouts[LAST_OF_PAGE];
	static _Atomic unsigned runs[LAST_OF_PAGE];

	for (unsigned index = 0; index < LAST_OF_PAGE; index++)
		assert_ok(hwt_new_timeout(manual.timer, &timeouts[index],
		    counted_task, &runs[index], FAR));
	(void)manual_step(0);
	for (unsigned index = 0; index < LAST_OF_PAGE; index++) {
		if (index % 10000 != 0)
			assert_ok(hwt_cancel(manual.timer, timeouts[index]));
	}
	(void)manual_step(HWT_MS(100));
	(void)manual_step(HWT_MS(300));
	cr_assert(memory_is_of_few());

	(void)manual_step(FAR);

	for (unsigned index = 0; index < LAST_OF_PAGE; index++)
		assert_u64(runs[index], index % 10000 == 0);
}

ManualTest(prompt_release, of_a_crowd_that_was_pushed_out_none_is_lost)
{
	static hwt_timeout timeouts[CROWD];
	static _Atomic unsigned runs;

	for (unsigned index = 0; index < CROWD; index++)
		assert_ok(hwt_new_timeout(manual.timer, &timeouts[index],
		    counted_task, &runs, HWT_SEC(10)));
	(void)manual_step(0);
	for (unsigned index = 0; index < CROWD; index++)
		assert_ok(
		    hwt_reschedule(manual.timer, timeouts[index], HWT_SEC(20)));
	(void)manual_wait();

	assert_u64(manual_step(HWT_SEC(20)), CROWD);
}

/* Half of each page is in use. An entry stays until its tick, and serves the
 * next timeout of its record. */
ManualTest(
    prompt_release, what_cannot_go_back_serves_others_without_more_memory)
{
	static hwt_timeout timeouts[PEAK];
	uint64_t peak_bytes;

	schedule_peak(manual.timer, timeouts);
	(void)manual_step(0);
	peak_bytes = memory(&manual);
	for (unsigned turn = 0; turn < 5; turn++) {
		for (unsigned index = turn % 2; index < PEAK; index += 2)
			assert_ok(hwt_cancel(manual.timer, timeouts[index]));
		(void)manual_step(HWT_MS(100));
		(void)manual_step(HWT_MS(300));
		for (unsigned index = turn % 2; index < PEAK; index += 2)
			timeouts[index] =
			    schedule_task(manual.timer, forbidden_task, FAR);
		(void)manual_step(0);
		assert_u64(memory(&manual), peak_bytes);
	}
}

/* Half of each page is in use, and nothing can go back. */
WorkerTest(prompt_release, what_cannot_go_back_does_not_keep_the_worker_awake)
{
	static hwt_timeout timeouts[PEAK];
	uint64_t wakeups;
	unsigned turn;

	schedule_peak(live.timer, timeouts);
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
	static hwt_timeout timeouts[PEAK];
	struct hwt_mailbox *mailbox = NULL;
	uint64_t started = 0;

	live_open(NULL);
	assert_ok(hwt_mailbox_create(&mailbox));
	schedule_peak(live.timer, timeouts);
	cancel_peak(live.timer, timeouts);
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
