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
