/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompt-release: the record of a cancelled timeout serves another at the
 * latest one tick later, and at once when the worker has not placed it yet.
 * Whether a record serves again is seen by memory_bytes: it is the memory at
 * its highest so far, so it stands still when nothing new was needed.
 */
#include "test/support_promises.h"

#include <stdlib.h>

SUITE(prompt_release);

#define CROWD 20000
#define FAR HWT_SEC(3600)

static uint64_t
memory(struct fixture *fixture)
{
	return fixture_stats(fixture).memory_bytes;
}

/* What a test does again and again needs no more memory than it did the first
 * time, give or take a twentieth for what the queues hold; and from its tenth
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
schedule_crowd(struct fixture *fixture, hwt_timeout *timeouts)
{
	unsigned index;

	for (index = 0; index < CROWD; index++)
		assert_rc(hwt_new_timeout(fixture->timer, &timeouts[index],
			      forbidden_task, NULL, FAR),
		    0);
}

static void
cancel_crowd(struct fixture *fixture, const hwt_timeout *timeouts)
{
	unsigned index;

	for (index = 0; index < CROWD; index++)
		assert_rc(hwt_cancel(fixture->timer, timeouts[index]), 0);
}

Test(prompt_release, more_live_timeouts_take_more_memory)
{
	hwt_timeout *timeouts = calloc(CROWD, sizeof(*timeouts));
	struct fixture fixture = {0};
	uint64_t before;

	/* All other tests of this suite lean on this. */
	fixture_open(&fixture, NULL);
	before = memory(&fixture);
	schedule_crowd(&fixture, timeouts);

	cr_assert(memory(&fixture) >= before + CROWD * 64);

	fixture_close(&fixture);
	free(timeouts);
}

Test(prompt_release, what_is_not_placed_yet_serves_another_at_once)
{
	struct fixture fixture = {0};
	hwt_timeout timeout;
	uint64_t after_first;
	unsigned turn;

	fixture_open(&fixture, NULL);
	assert_rc(
	    hwt_new_timeout(fixture.timer, &timeout, forbidden_task, NULL, FAR),
	    0);
	assert_rc(hwt_cancel(fixture.timer, timeout), 0);
	after_first = memory(&fixture);

	for (turn = 0; turn < 2000000; turn++) {
		assert_rc(hwt_new_timeout(fixture.timer, &timeout,
			      forbidden_task, NULL, FAR),
		    0);
		assert_rc(hwt_cancel(fixture.timer, timeout), 0);
	}

	assert_u64(memory(&fixture), after_first);
	fixture_close(&fixture);
}

Test(prompt_release, a_crowd_that_is_not_placed_yet_serves_another_at_once)
{
	hwt_timeout *timeouts = calloc(CROWD, sizeof(*timeouts));
	struct fixture fixture = {0};
	uint64_t after_first;
	unsigned turn;

	fixture_open(&fixture, NULL);
	schedule_crowd(&fixture, timeouts);
	after_first = memory(&fixture);

	for (turn = 0; turn < 50; turn++) {
		cancel_crowd(&fixture, timeouts);
		schedule_crowd(&fixture, timeouts);
	}

	assert_u64(memory(&fixture), after_first);
	fixture_close(&fixture);
	free(timeouts);
}

Test(prompt_release, what_is_placed_serves_another_one_tick_later)
{
	hwt_timeout *timeouts = calloc(CROWD, sizeof(*timeouts));
	struct fixture fixture = {0};
	struct flat flat = {0};
	unsigned turn;

	fixture_open(&fixture, NULL);
	for (turn = 0; turn < 50; turn++) {
		schedule_crowd(&fixture, timeouts);
		fixture_step(&fixture, FIXTURE_TICK);
		assert_flat(&flat, memory(&fixture));
		cancel_crowd(&fixture, timeouts);
		fixture_step(&fixture, FIXTURE_TICK);
	}

	fixture_close(&fixture);
	free(timeouts);
}

Test(prompt_release, started_timeouts_serve_others_in_the_next_tick)
{
	struct fixture fixture = {0};
	struct flat flat = {0};
	unsigned turn;
	unsigned index;

	fixture_open(&fixture, NULL);
	for (turn = 0; turn < 50; turn++) {
		for (index = 0; index < CROWD; index++)
			assert_rc(hwt_new_timeout(fixture.timer, NULL,
				      idle_task, NULL, FIXTURE_TICK),
			    0);
		assert_u64(fixture_step(&fixture, FIXTURE_TICK), CROWD);
		assert_flat(&flat, memory(&fixture));
	}

	fixture_close(&fixture);
}

Test(prompt_release, a_timeout_cancelled_in_a_long_sleep_ends_the_sleep)
{
	struct fixture fixture = {0};
	hwt_timeout timeout;

	fixture_open(&fixture, NULL);
	assert_rc(
	    hwt_new_timeout(fixture.timer, &timeout, forbidden_task, NULL, FAR),
	    0);
	assert_u64(fixture_wait(&fixture), FAR);

	assert_rc(hwt_cancel(fixture.timer, timeout), 0);

	assert_u64(fixture.wakes, 1);
	assert_u64(fixture_wait(&fixture), HWT_NEVER);
	fixture_close(&fixture);
}

Test(prompt_release, next_wakeup_releases_what_was_cancelled)
{
	hwt_timeout *timeouts = calloc(CROWD, sizeof(*timeouts));
	struct fixture fixture = {0};
	struct flat flat = {0};
	unsigned turn;

	/* The clock stands still: nobody owes an advance. */
	fixture_open(&fixture, NULL);
	for (turn = 0; turn < 20; turn++) {
		schedule_crowd(&fixture, timeouts);
		assert_u64(fixture_wait(&fixture), FAR);
		assert_flat(&flat, memory(&fixture));
		cancel_crowd(&fixture, timeouts);
		assert_u64(fixture_wait(&fixture), HWT_NEVER);
	}

	fixture_close(&fixture);
	free(timeouts);
}

Test(prompt_release, a_real_worker_wakes_from_a_long_sleep_to_release)
{
	struct live live = {0};
	hwt_timeout timeout;
	uint64_t limit_ns = monotonic_ns() + HWT_SEC(30);
	uint64_t wakeups;

	live_open(&live, NULL);
	assert_rc(
	    hwt_new_timeout(live.timer, &timeout, forbidden_task, NULL, FAR),
	    0);
	live_settle(&live, thread_await("hwt-worker"));
	wakeups = live_stats(&live).wakeups;

	assert_rc(hwt_cancel(live.timer, timeout), 0);

	while (live_stats(&live).wakeups == wakeups)
		cr_assert(monotonic_ns() < limit_ns, "the worker sleeps on");
	live_close(&live);
}

/* So few that neither their records nor their entries in the queue fill what
 * was taken for the first of them; and never due, so that it does not count
 * over how many buckets they are spread. */
#define FEW 40

Test(prompt_release, a_few_that_a_real_worker_released_serve_another_thread)
{
	struct live live = {0};
	hwt_timeout timeouts[FEW];
	uint64_t first_bytes = 0;
	unsigned turn;
	unsigned index;

	live_open(&live, NULL);
	for (turn = 0; turn < 10; turn++) {
		for (index = 0; index < FEW; index++)
			assert_rc(hwt_new_timeout(live.timer, &timeouts[index],
				      forbidden_task, NULL, HWT_NEVER),
			    0);
		live_pass_tick(&live);
		for (index = 0; index < FEW; index++)
			assert_rc(hwt_cancel(live.timer, timeouts[index]), 0);
		live_settle(&live, thread_await("hwt-worker"));
		if (turn == 0)
			first_bytes = live_stats(&live).memory_bytes;
	}

	assert_u64(live_stats(&live).memory_bytes, first_bytes);
	live_close(&live);
}

Test(prompt_release, what_waits_in_an_executor_is_released_by_hwt_run)
{
	static struct recording_executor executor;
	struct fixture fixture = {0};
	hwt_timeout timeout;

	fixture_open(&fixture, NULL);
	executor_init(&executor, EXECUTOR_HOLDS);
	assert_rc(hwt_new_timeout_on(fixture.timer, &executor.hook, &timeout,
		      forbidden_task, NULL, FIXTURE_TICK),
	    0);
	fixture_tick(&fixture, 1);
	assert_rc(hwt_cancel(fixture.timer, timeout), 0);
	assert_rc(hwt_stop(fixture.timer, NULL), 0);

	assert_rc(hwt_destroy(fixture.timer), -EBUSY);
	assert_rc(executor_run(&executor, 0), -ENOENT);

	assert_rc(hwt_destroy(fixture.timer), 0);
}

Test(prompt_release, records_come_back_from_an_executor)
{
	static struct recording_executor executor;
	struct fixture fixture = {0};
	struct flat flat = {0};
	unsigned turn;
	unsigned index;

	fixture_open(&fixture, NULL);
	for (turn = 0; turn < 200; turn++) {
		executor_init(&executor, EXECUTOR_HOLDS);
		for (index = 0; index < EXECUTOR_PLACES; index++)
			assert_rc(hwt_new_timeout_on(fixture.timer,
				      &executor.hook, NULL, idle_task, NULL, 0),
			    0);
		fixture_step(&fixture, FIXTURE_TICK);
		/* Every other one is cancelled where it waits. */
		for (index = 0; index < EXECUTOR_PLACES; index += 2)
			assert_rc(hwt_cancel(fixture.timer,
				      executor.calls[index].timeout),
			    0);
		for (index = 0; index < EXECUTOR_PLACES; index++)
			assert_rc(executor_run(&executor, index),
			    index % 2 == 0 ? -ENOENT : 0);
		assert_flat(&flat, memory(&fixture));
	}

	fixture_close(&fixture);
}

Test(prompt_release, memory_does_not_follow_the_rate_of_reschedules)
{
	struct fixture fixture = {0};
	hwt_timeout timeout;
	uint64_t first_bytes;
	uint64_t turn;

	/* Pulled in each time, so that each is news for the worker; a tick
	 * comes by now and then, and at first not at all. */
	fixture_open(&fixture, NULL);
	assert_rc(hwt_new_timeout(
		      fixture.timer, &timeout, forbidden_task, NULL, 2 * FAR),
	    0);
	fixture_step(&fixture, FIXTURE_TICK);
	first_bytes = memory(&fixture);
	for (turn = 0; turn < 1000000; turn++) {
		assert_rc(
		    hwt_reschedule(fixture.timer, timeout, 2 * FAR - 1 - turn),
		    0);
		if (turn > 500000 && turn % 100 == 0)
			fixture_step(&fixture, FIXTURE_TICK);
	}

	/* A million entries would be hundreds of times that. */
	cr_assert(memory(&fixture) <= 2 * first_bytes);
	fixture_close(&fixture);
}

Test(prompt_release, memory_does_not_follow_the_rate_of_pulls_and_pushes)
{
	hwt_timeout *timeouts = calloc(CROWD, sizeof(*timeouts));
	struct fixture fixture = {0};
	struct rng rng = {.state = 3};
	uint64_t tenth_bytes = 0;
	unsigned turn;
	unsigned index;

	fixture_open(&fixture, NULL);
	schedule_crowd(&fixture, timeouts);
	for (turn = 0; turn < 50; turn++) {
		for (index = 0; index < CROWD; index++)
			assert_rc(
			    hwt_reschedule(fixture.timer, timeouts[index],
				FIXTURE_TICK * 100 + rng_below(&rng, FAR)),
			    0);
		assert_u64(fixture_step(&fixture, FIXTURE_TICK), 0);
		if (turn == 10)
			tenth_bytes = memory(&fixture);
	}

	/* Buckets fill by chance: a chunk more for each is no leak. A leaked
	 * entry per call would be a multiple of all. */
	cr_assert(memory(&fixture) < tenth_bytes + tenth_bytes / 4);
	fixture_close(&fixture);
	free(timeouts);
}

/* One thread schedules, another cancels; at most PASSED are on the way. */
#define PASSED 256
#define PASSES 400000

struct pass {
	struct live live;
	_Atomic uint64_t ids[PASSED];
	uint64_t early_bytes;
};

static void
pass_schedule(struct pass *pass)
{
	unsigned turn;

	for (turn = 0; turn < PASSES; turn++) {
		_Atomic uint64_t *id = &pass->ids[turn % PASSED];
		hwt_timeout timeout;
		struct hwt_stats stats;

		while (*id != 0)
			sched_yield();
		if (hwt_new_timeout(pass->live.timer, &timeout, forbidden_task,
			NULL, FAR) != 0)
			abort();
		*id = timeout.id;
		if (turn == PASSES / 10) {
			hwt_read_stats(pass->live.timer, &stats);
			pass->early_bytes = stats.memory_bytes;
		}
	}
}

static void
pass_cancel(struct pass *pass)
{
	unsigned turn;

	for (turn = 0; turn < PASSES; turn++) {
		_Atomic uint64_t *id = &pass->ids[turn % PASSED];

		while (*id == 0)
			sched_yield();
		if (hwt_cancel(pass->live.timer, (hwt_timeout){*id}) != 0)
			abort();
		*id = 0;
	}
}

static void
pass_body(unsigned index, void *arg)
{
	if (index == 0)
		pass_schedule(arg);
	else
		pass_cancel(arg);
}

Test(prompt_release, one_thread_schedules_another_cancels_and_memory_is_flat)
{
	static struct pass pass;

	/* An hour's tick: the worker never comes by, all is done by hand-over
	 * between the threads. */
	live_open(&pass.live,
	    &(struct hwt_options){.tick_ns = FAR, .ticks_per_wheel = 8});

	in_parallel(2, pass_body, &pass);

	/* A record or an entry for each call would be a hundred times that. */
	cr_assert(live_stats(&pass.live).memory_bytes <= 2 * pass.early_bytes);
	assert_u64(hwt_pending_timeouts(pass.live.timer), 0);
	live_close(&pass.live);
}

Test(prompt_release, the_same_with_a_tick_that_places_them)
{
	static struct pass pass;
	uint64_t live_bytes;

	live_open(&pass.live, NULL);

	in_parallel(2, pass_body, &pass);

	/* What the worker has not released yet is bounded by a tick's calls,
	 * which a slow machine makes many: compare with one record per call. */
	live_bytes = live_stats(&pass.live).memory_bytes;
	cr_assert(live_bytes < PASSES * 64 / 2);
	live_close(&pass.live);
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

Test(prompt_release, threads_that_end_leave_no_memory_behind)
{
	struct fixture fixture = {0};
	uint64_t early_bytes = 0;
	unsigned turn;

	fixture_open(&fixture, NULL);
	for (turn = 0; turn < 2000; turn++) {
		in_parallel(1, schedule_and_leave, &fixture);
		if (turn == 200)
			early_bytes = memory(&fixture);
	}

	assert_u64(memory(&fixture), early_bytes);
	fixture_close(&fixture);
}
