/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompt-release: the record of a cancelled timeout serves another as soon as
 * hwt_cancel has returned 0. memory_bytes shows it: it stands still when
 * nothing new was needed. What a peak took goes back to the system before a
 * long sleep, or when it was spare for a quarter of a second.
 */
#include "test/spec/support.h"

#include "core/timer.h"

SUITE(prompt_release);

#define CROWD 20000
#define PEAK 100000
#define FAR HWT_SEC(3600)

static hwt_timeout timeouts[PEAK];

static uint64_t
memory(void)
{
	return manual_stats().memory_bytes;
}

static void
schedule_many(struct hwt *timer, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		timeouts[i] = schedule_task(timer, forbidden_task, FAR);
}

static void
cancel_many(struct hwt *timer, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		assert_ok(hwt_cancel(timer, timeouts[i]));
}

/* In a long sleep, too: after manual_wait. */
ManualTest(prompt_release, cancelled_record_serves_another_at_once)
{
	uint64_t bytes;

	schedule_many(manual.timer, 1);
	assert_u64(manual_wait(), FAR);
	bytes = memory();

	for (unsigned turn = 0; turn < 1000000; turn++) {
		cancel_many(manual.timer, 1);
		schedule_many(manual.timer, 1);
	}

	assert_u64(memory(), bytes);
	assert_u64(manual.wakes, 0);
}

/* A twentieth more for chunks of the wheel, and from the tenth turn on none. */
static void
assert_flat(void (*turn)(void))
{
	uint64_t first_bytes = 0, tenth_bytes = 0;

	for (unsigned i = 1; i <= 50; i++) {
		turn();
		if (i == 1)
			first_bytes = memory();
		if (i <= 10)
			tenth_bytes = memory();
		cr_assert(memory() <= first_bytes + first_bytes / 20);
		assert_u64(memory(), tenth_bytes);
	}
}

static void
start_many(void)
{
	for (unsigned i = 0; i < CROWD; i++)
		schedule_task(manual.timer, idle_task, FIXTURE_TICK);
	assert_u64(manual_step(FIXTURE_TICK), CROWD);
}

ManualTest(prompt_release, started_records_serve_in_the_next_tick)
{
	assert_flat(start_many);
}

/* After a peak. */

static bool madvise_fails;
static unsigned madvise_calls;

int __real_madvise(void *memory, size_t bytes, int advice);
int __wrap_madvise(void *memory, size_t bytes, int advice);

int
__wrap_madvise(void *address, size_t bytes, int advice)
{
	if (!madvise_fails)
		return __real_madvise(address, bytes, advice);
	madvise_calls++;
	errno = EINVAL;
	return -1;
}

ManualTest(prompt_release, memory_of_a_peak_goes_after_a_quarter_of_a_second)
{
	uint64_t bytes;

	schedule_many(manual.timer, PEAK);
	manual_step(HWT_MS(100));
	bytes = memory();
	cancel_many(manual.timer, PEAK);
	manual_step(HWT_MS(100));
	manual_step(HWT_MS(240));
	assert_u64(memory(), bytes);

	manual_step(HWT_MS(20));

	cr_assert(memory() <= bytes / 10);
}

/* As where memory is locked. */
ManualTest(prompt_release, memory_that_cannot_go_is_tried_once_for_each_peak)
{
	uint64_t bytes;

	madvise_fails = true;
	schedule_many(manual.timer, PEAK);
	manual_step(0);
	bytes = memory();
	cancel_many(manual.timer, PEAK);
	manual_step(HWT_MS(50));
	manual_step(HWT_MS(250));
	assert_u64(madvise_calls, 2); /* records, and chunks of the wheel */
	manual_step(HWT_MS(250));
	(void)manual_wait();
	assert_u64(madvise_calls, 2);

	madvise_fails = false;
	schedule_many(manual.timer, PEAK);
	cancel_many(manual.timer, PEAK);
	manual_step(HWT_MS(50));
	manual_step(HWT_MS(250));

	cr_assert(memory() < bytes / 2);
}

/* Less than a megabyte of free pages may stay, and a page for each record in
 * the cache of this thread. */
WorkerTest(prompt_release, worker_returns_memory_before_a_long_sleep)
{
	uint64_t most = (1 << 20) + 128 * 4096 + PEAK * 64 / 20;

	schedule_many(live.timer, PEAK);
	for (unsigned turn = 0; turn < 3; turn++) {
		live_pass_tick();
		cancel_many(live.timer, PEAK);
		while (live_stats().memory_bytes > most)
			sleep_ns(HWT_MS(1));
		live_settle();
		fault_arm(FAULT_MMAP, FAULT_ALWAYS);
		schedule_many(live.timer, PEAK);
		assert_u64(fault_disarm(), 0);
	}
}

static void
schedule_one(unsigned index, void *arg)
{
	(void)index;
	(void)arg;
	schedule_forbidden(FAR);
}

/* Each finds no record at first. */
Test(prompt_release, threads_that_begin_together_share_the_first_slab)
{
	for (unsigned turn = 0; turn < 200; turn++) {
		manual_open(NULL);
		in_parallel(4, schedule_one, NULL);
		assert_u64(store_limit(&manual.timer->store), 1);
		manual_close();
	}
}
