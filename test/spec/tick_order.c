/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tick-order: tasks of an earlier tick are handed over before those of a later
 * one; inside one tick there is no order. A task that re-arms with delay 0
 * does not hold the tick.
 */
#include "test/spec/support_promises.h"

#include <stdlib.h>

SUITE(tick_order);

static struct recording_executor executor;

/* Where tasks write down their ticks as they start. */
#define JOURNAL 4096

struct journal {
	struct fixture fixture;
	uint64_t count;
	uint64_t ticks[JOURNAL];
};

struct entry {
	struct journal *journal;
	uint64_t tick;
};

static void
journal_task(hwt_timeout timeout, void *arg)
{
	struct entry *entry = arg;
	struct journal *journal = entry->journal;

	(void)timeout;
	journal->ticks[journal->count++] = entry->tick;
}

static void
assert_journal_rises(const struct journal *journal)
{
	for (uint64_t index = 1; index < journal->count; index++)
		cr_assert(journal->ticks[index - 1] <= journal->ticks[index]);
}

Test(tick_order, tasks_of_an_earlier_tick_start_before_those_of_a_later)
{
	static struct journal journal;
	static struct entry entries[JOURNAL];
	struct rng rng = {.state = 5};

	fixture_open(&journal.fixture, NULL);
	for (unsigned index = 0; index < JOURNAL; index++) {
		uint64_t delay_ns = rng_below(&rng, 100 * FIXTURE_TICK);

		entries[index].journal = &journal;
		entries[index].tick = grid_tick(FIXTURE_TICK, 0, delay_ns);
		assert_ok(hwt_new_timeout(journal.fixture.timer, NULL,
		    journal_task, &entries[index], delay_ns));
	}

	/* In two stalls. */
	assert_u64(fixture_tick(&journal.fixture, 60), journal.count);
	assert_u64(journal.ticks[journal.count - 1], 60);
	fixture_tick(&journal.fixture, 100);

	assert_u64(journal.count, JOURNAL);
	assert_journal_rises(&journal);
	fixture_close(&journal.fixture);
}

Test(tick_order, timeouts_moved_about_start_in_the_order_of_their_ticks)
{
	static struct journal journal;
	static struct entry entries[JOURNAL];
	static hwt_timeout timeouts[JOURNAL];
	struct rng rng = {.state = 6};

	fixture_open(&journal.fixture, NULL);
	for (unsigned index = 0; index < JOURNAL; index++) {
		entries[index].journal = &journal;
		assert_ok(hwt_new_timeout(journal.fixture.timer,
		    &timeouts[index], journal_task, &entries[index],
		    rng_below(&rng, 100 * FIXTURE_TICK)));
	}
	for (unsigned turn = 0; turn < 5; turn++) {
		/* Every other turn they are placed when they move. */
		if (turn % 2 == 0)
			fixture_step(&journal.fixture, 0);
		for (unsigned index = 0; index < JOURNAL; index++) {
			uint64_t delay_ns = rng_below(&rng, HWT_MS(100));

			entries[index].tick =
			    grid_tick(FIXTURE_TICK, 0, delay_ns);
			assert_ok(hwt_reschedule(
			    journal.fixture.timer, timeouts[index], delay_ns));
		}
	}

	assert_u64(fixture_tick(&journal.fixture, 100), JOURNAL);

	assert_journal_rises(&journal);
	fixture_close(&journal.fixture);
}

ManualTest(tick_order, executors_get_timeouts_in_the_order_of_their_ticks)
{
	static uint64_t ticks[EXECUTOR_PLACES];
	static hwt_timeout timeouts[EXECUTOR_PLACES];
	unsigned other;
	uint64_t last = 0;

	/* 389 is prime: each tick of 1 .. 256 four times, in no order. */
	executor_init(&executor, EXECUTOR_HOLDS);
	for (unsigned index = 0; index < EXECUTOR_PLACES; index++) {
		ticks[index] = 1 + index * 389 % 256;
		assert_ok(hwt_new_timeout_on(manual.timer, &executor.hook,
		    &timeouts[index], idle_task, NULL,
		    ticks[index] * FIXTURE_TICK));
	}

	assert_u64(manual_tick(300), 0);

	assert_u64(executor.count, EXECUTOR_PLACES);
	for (unsigned index = 0; index < EXECUTOR_PLACES; index++) {
		for (other = 0; other < EXECUTOR_PLACES; other++)
			if (timeouts[other].id ==
			    executor.calls[index].timeout.id)
				break;
		cr_assert(other < EXECUTOR_PLACES && ticks[other] >= last);
		last = ticks[other];
		assert_ok(executor_run(&executor, index));
	}
}

static void
then_rearms_with_delay_0(struct probe *probe)
{
	probe->rc = hwt_new_timeout(
	    probe->fixture->timer, &probe->handle, probe_task, probe, 0);
}

ManualTest(tick_order, a_task_that_re_arms_with_delay_0_does_not_hold_the_tick)
{
	struct probe again = {.then = then_rearms_with_delay_0};
	struct probe beside = {0};
	uint64_t tick;

	probe_schedule(&again, 0);
	probe_schedule(&beside, 5 * FIXTURE_TICK);

	/* One run per tick, and the others have their turn. */
	for (tick = 1; tick <= 3 * FIXTURE_WHEEL; tick++) {
		assert_u64(manual_tick(tick), tick == 5 ? 2 : 1);
		assert_ok(again.rc);
		assert_u64(again.runs, tick);
	}

	assert_u64(beside.runs, 1);
}

ManualTest(tick_order, re_arming_with_delay_0_does_not_hold_a_catch_up_either)
{
	struct probe again = {.then = then_rearms_with_delay_0};
	struct probe last = {0};

	probe_schedule(&again, 0);
	probe_schedule(&last, 70 * FIXTURE_TICK);

	assert_u64(manual_tick(70), 2);
	assert_u64(again.runs, 1);
	assert_u64(manual_tick(71), 1);

	assert_u64(again.runs, 2);
}

static void
then_reschedules_itself_with_delay_0(struct probe *probe)
{
	probe->rc = hwt_reschedule(probe->fixture->timer, probe->timeout, 0);
}

ManualTest(
    tick_order, a_periodic_task_that_pulls_itself_in_does_not_hold_the_tick)
{
	struct probe probe = {.then = then_reschedules_itself_with_delay_0};

	probe_schedule_periodic(&probe, 0, HWT_SEC(3600));

	assert_u64(manual_tick(1), 1);
	assert_ok(probe.rc);
	assert_u64(manual_step(0), 0);
	assert_u64(manual_tick(2), 1);

	assert_u64(probe.runs, 2);
}

ManualTest(tick_order, a_period_of_a_nanosecond_does_not_hold_the_tick)
{
	struct probe probe = {0};

	probe_schedule_periodic(&probe, 0, 1);

	for (uint64_t tick = 1; tick <= 20; tick++)
		assert_u64(manual_tick(tick), 1);

	assert_u64(probe.runs, 20);
}

static void
then_pulls_in(struct probe *probe)
{
	const struct probe *other = probe->data;

	probe->rc = hwt_reschedule(probe->fixture->timer, other->handle, 0);
}

ManualTest(tick_order, what_a_task_pulls_in_comes_in_a_later_tick_than_its_own)
{
	struct probe pulled = {0};
	struct probe puller = {.then = then_pulls_in, .data = &pulled};

	probe_schedule(&puller, FIXTURE_TICK);
	probe_schedule(&pulled, 20 * FIXTURE_TICK);

	assert_u64(manual_tick(1), 1);
	assert_ok(puller.rc);
	assert_u64(manual_tick(2), 1);

	assert_u64(pulled.runs, 1);
}

Test(tick_order, a_timeout_moved_back_and_forth_in_one_tick_has_one_place)
{
	/* In ticks from tick 1; the last is the one that counts. */
	static const uint64_t moves[][3] = {{2, 9, 4}, {9, 2, 4}, {4, 2, 9},
	    {1, 8, 1}, {8, 16, 8}, {16, 8, 24}, {9, 17, 1}};

	for (unsigned index = 0; index < 7; index++) {
		struct probe probe = {0};
		uint64_t due = 1 + moves[index][2];

		manual_open(NULL);
		probe_schedule(&probe, 6 * FIXTURE_TICK);
		manual_tick(1);
		for (unsigned move = 0; move < 3; move++)
			assert_ok(hwt_reschedule(manual.timer, probe.handle,
			    moves[index][move] * FIXTURE_TICK));

		if (due > 2)
			assert_u64(manual_tick(due - 1), 0);
		assert_u64(manual_tick(due), 1);
		assert_u64(manual_tick(100), 0);
		manual_close();
	}
}

ManualTest(
    tick_order, pushes_and_pulls_over_many_turns_come_due_at_the_last_word)
{
	struct probe probe = {0};
	struct rng rng = {.state = 8};
	uint64_t due = 500;
	uint64_t tick;

	/* Moved before each tick to somewhere after the next one. */
	probe_schedule(&probe, due * FIXTURE_TICK);
	for (tick = 1; tick <= 300; tick++) {
		uint64_t ahead = 2 + rng_below(&rng, 5 * FIXTURE_WHEEL);

		assert_ok(hwt_reschedule(
		    manual.timer, probe.handle, ahead * FIXTURE_TICK));
		due = tick - 1 + ahead;
		assert_u64(manual_tick(tick), 0);
	}

	if (due > 301)
		assert_u64(manual_tick(due - 1), 0);
	assert_u64(manual_tick(due), 1);
}

/* A clock that stands still until its thread is preempted in the middle of
 * reading it: then another thread schedules, and much time passes. */
struct preempted {
	struct journal journal;
	struct entry latecomer;
	bool armed;
};

static void
schedule_latecomer(unsigned index, void *arg)
{
	struct preempted *preempted = arg;

	(void)index;
	if (hwt_new_timeout(preempted->journal.fixture.timer, NULL,
		journal_task, &preempted->latecomer, FIXTURE_TICK / 20) != 0)
		abort();
}

static uint64_t
preempted_clock(void *ctx)
{
	struct preempted *preempted = ctx;
	struct fixture *fixture = &preempted->journal.fixture;

	if (preempted->armed) {
		preempted->armed = false;
		in_parallel(1, schedule_latecomer, preempted);
		fixture->now_ns += FIXTURE_TICK * 22 / 10;
	}
	return fixture->now_ns;
}

Test(tick_order, what_came_while_the_clock_was_read_is_not_overtaken)
{
	static struct preempted preempted;
	struct hwt_clock clock = {.now_ns = preempted_clock, .ctx = &preempted};
	struct fixture *fixture = &preempted.journal.fixture;
	struct entry early = {.journal = &preempted.journal, .tick = 7};

	fixture_open(fixture,
	    &(struct hwt_options){.tick_ns = FIXTURE_TICK,
		.ticks_per_wheel = FIXTURE_WHEEL,
		.clock = &clock});
	assert_ok(hwt_new_timeout(
	    fixture->timer, NULL, journal_task, &early, 7 * FIXTURE_TICK));
	fixture_step(fixture, FIXTURE_TICK * 49 / 10);
	preempted.latecomer =
	    (struct entry){.journal = &preempted.journal, .tick = 5};

	/* From tick 4.9 to 7.1. */
	preempted.armed = true;
	fixture_step(fixture, 0);
	fixture_step(fixture, 0);

	assert_u64(preempted.journal.count, 2);
	assert_journal_rises(&preempted.journal);
	fixture_close(fixture);
}
