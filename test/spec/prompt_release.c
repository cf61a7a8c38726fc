/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompt-release: the record of a cancelled timeout serves another as soon as
 * hwt_cancel has returned 0. memory_bytes shows it: it stands still when
 * nothing new was needed. The memory of a peak returns to the system before a
 * long sleep, or when it was spare for a quarter of a second.
 */
#include "test/spec/support.h"

#include "core/timer.h"

SUITE(prompt_release);

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

/* After a peak. */

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

/* A thread schedules, and another one cancels. */
static void
schedule_or_cancel(unsigned index, void *cancels)
{
	if (index == 0 && cancels != NULL)
		cancel_many(manual.timer, PEAK);
	else if (index == 0)
		schedule_many(manual.timer, PEAK);
}

ManualTest(prompt_release, memory_does_not_grow_when_another_thread_cancels)
{
	uint64_t bytes = 0;

	for (unsigned turn = 0; turn < 20; turn++) {
		in_parallel(1, schedule_or_cancel, NULL);
		in_parallel(1, schedule_or_cancel, timeouts);
		if (turn == 0)
			bytes = memory();
	}

	cr_assert(memory() <= bytes + (1 << 20));
}
