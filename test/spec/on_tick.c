/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on-tick: a timeout is handed over on its tick; later only by what tasks
 * before it took, by the machine, and by housekeeping of bounded pieces. There
 * is no cap per tick. Which tick is
 * its own is the grid's matter, and the second half of this suite.
 */
#include "test/spec/support_promises.h"

#include <stdlib.h>

SUITE(on_tick);

ManualTest(on_tick, a_timeout_is_handed_over_on_its_tick)
{
	static struct probe probes[3 * FIXTURE_WHEEL];

	for (uint64_t index = 0; index < 3 * FIXTURE_WHEEL; index++) {
		probe_schedule(&probes[index], (index + 1) * FIXTURE_TICK);
	}

	for (uint64_t index = 0; index < 3 * FIXTURE_WHEEL; index++) {
		assert_u64(manual_tick(index + 1), 1);
		assert_u64(probes[index].runs, 1);
	}
}

#define MILLION 1000000

static void
then_counts_what_waits(struct probe *probe)
{
	uint64_t *waiting = probe->data;

	*waiting = queued_in(probe->fixture->timer);
}

static hwt_timeout *
schedule_a_million(uint64_t delay_ns)
{
	hwt_timeout *timeouts = calloc(MILLION, sizeof(*timeouts));

	cr_assert_not_null(timeouts);
	for (unsigned index = 0; index < MILLION; index++)
		timeouts[index] =
		    schedule_task(manual.timer, idle_task, delay_ns);
	return timeouts;
}

static void
pull_a_million_in(const hwt_timeout *timeouts, uint64_t delay_ns)
{
	for (unsigned index = 0; index < MILLION; index++)
		assert_ok(
		    hwt_reschedule(manual.timer, timeouts[index], delay_ns));
}

/* Neither when they are due soon after it, nor when the wheel was not turned
 * for long. */
Test(on_tick, what_is_due_does_not_wait_for_a_million_that_were_pulled_in)
{
	static const struct {
		uint64_t due_ns, pulled_in_ns;
	} cases[] = {
	    {FIXTURE_TICK, FIXTURE_TICK + 1},
	    {FIXTURE_TICK, HWT_MS(300)},
	    {FIXTURE_TICK, HWT_SEC(3600)},
	    {HWT_SEC(5), HWT_SEC(3600)},
	};

	for (unsigned i = 0; i < 4; i++) {
		uint64_t waiting = 0;
		struct probe probe = {
		    .then = then_counts_what_waits, .data = &waiting};
		hwt_timeout *timeouts;

		manual_open(NULL);
		timeouts = schedule_a_million(HWT_SEC(7200));
		manual_step(0);
		assert_u64(queued_in(manual.timer), 0);
		probe_schedule(&probe, cases[i].due_ns);
		assert_u64(manual_wait(), cases[i].due_ns);
		pull_a_million_in(timeouts, cases[i].pulled_in_ns);

		assert_u64(manual_step(cases[i].due_ns), 1);

		/* None of them was taken over before it. */
		assert_u64(waiting, MILLION);
		assert_u64(queued_in(manual.timer), 0);
		manual_close();
		free(timeouts);
	}
}

/* Its call read the clock long before its entry was queued: here, the clock
 * goes back for it. */
ManualTest(on_tick, what_comes_late_for_its_tick_is_handed_over_on_the_next)
{
	struct probe probe = {0};

	assert_u64(manual_tick(3 * FIXTURE_WHEEL), 0);
	manual.now_ns = FIXTURE_START + 2 * FIXTURE_TICK;
	probe_schedule(&probe, FIXTURE_TICK);

	assert_u64(manual_tick(3 * FIXTURE_WHEEL + 1), 1);
}

/* Counts the runs of a task that has no probe of its own. */
static void
counting_task(hwt_timeout timeout, void *arg)
{
	uint64_t *count = arg;

	(void)timeout;
	++*count;
}

#define MANY 150000

ManualTest(on_tick, there_is_no_cap_per_tick)
{
	struct probe innocent = {0};
	uint64_t count = 0;

	for (uint64_t index = 0; index < MANY; index++)
		assert_ok(hwt_new_timeout(
		    manual.timer, NULL, counting_task, &count, FIXTURE_TICK));
	probe_schedule(&innocent, FIXTURE_TICK);

	assert_u64(manual_tick(1), MANY + 1);

	assert_u64(count, MANY);
	assert_u64(innocent.runs, 1);
}

/* The grid. */

Test(on_tick, tick_boundaries_are_the_clock_at_creation_plus_whole_ticks)
{
	static const uint64_t starts[] = {
	    1, FIXTURE_TICK - 1, FIXTURE_TICK, UINT64_C(1) << 62};

	for (size_t index = 0; index < 4; index++) {
		struct fixture fixture = {.start_ns = starts[index]};
		struct probe probe = {.fixture = &fixture};

		fixture_open(&fixture, NULL);
		probe_schedule(&probe, 1);
		assert_u64(fixture_step(&fixture, FIXTURE_TICK - 1), 0);
		assert_u64(fixture_step(&fixture, 1), 1);
		fixture_close(&fixture);
	}
}

ManualTest(on_tick, advances_between_boundaries_do_not_move_the_grid)
{
	struct probe probe = {0};

	probe_schedule(&probe, 7 * FIXTURE_TICK);

	/* Ten steps of seven tenths of a tick make the seven ticks. */
	for (unsigned step = 0; step < 9; step++)
		assert_u64(manual_step(7 * FIXTURE_TICK / 10), 0);
	assert_u64(manual_step(7 * FIXTURE_TICK / 10), 1);
}

/* The wheel is turned up to turned_ns, the clock goes on to called_ns. */
static const struct {
	const char *what;
	uint64_t turned_ns, called_ns, delay_ns;
	uint64_t due;
} calls[] = {
    {"a deadline on a boundary", 3 * FIXTURE_TICK / 4, 3 * FIXTURE_TICK / 4,
	FIXTURE_TICK / 4, 1},
    {"0 at creation", 0, 0, 0, 1},
    {"0 on a begun boundary", 2 * FIXTURE_TICK, 2 * FIXTURE_TICK, 0, 3},
    {"0 on a boundary that is not begun", 0, 2 * FIXTURE_TICK, 0, 3},
    {"0 between two boundaries", 2 * FIXTURE_TICK + 1, 2 * FIXTURE_TICK + 1, 0,
	3},
    {"the first of all, late", 0, 3 * FIXTURE_TICK + 7, 1, 4},
};

Test(on_tick, a_timeout_belongs_to_the_first_boundary_at_or_after_its_deadline)
{
	for (size_t index = 0; index < sizeof(calls) / sizeof(calls[0]);
	     index++) {
		struct probe probe = {0};
		uint64_t due_ns;

		manual_open(NULL);
		if (calls[index].turned_ns > 0)
			manual_step(calls[index].turned_ns);
		manual.now_ns = manual.start_ns + calls[index].called_ns;
		due_ns = manual.start_ns + calls[index].due * FIXTURE_TICK;

		probe_schedule(&probe, calls[index].delay_ns);

		manual_step(0);
		manual_step(due_ns - 1 - manual.now_ns);
		cr_assert(probe.runs == 0, "%s: early", calls[index].what);
		manual_step(1);
		cr_assert(probe.runs == 1, "%s: late", calls[index].what);
		manual_close();
	}
}

static void
then_schedules_with_delay_0(struct probe *probe)
{
	struct probe *next = probe->data;

	probe->rc = hwt_new_timeout(
	    probe->fixture->timer, &next->handle, probe_task, next, 0);
}

ManualTest(on_tick, a_task_that_is_late_itself_schedules_from_now_on)
{
	struct probe next = {0};
	struct probe first = {
	    .then = then_schedules_with_delay_0, .data = &next};

	probe_schedule(&first, FIXTURE_TICK);

	/* Tick 1 is begun in the middle of the eleventh. */
	assert_u64(manual_step(21 * FIXTURE_TICK / 2), 1);
	assert_u64(manual_tick(11), 1);
}

ManualTestWith(on_tick, the_default_tick_is_100_ms, 0)
{
	struct probe probe = {0};

	probe_schedule(&probe, 1);

	assert_u64(manual_step(HWT_MS(100) - 1), 0);
	assert_u64(manual_step(1), 1);
}

ManualTestWith(on_tick, a_tick_that_is_no_round_number_keeps_its_own_grid,
    .tick_ns = 1234567)
{
	struct probe probe = {0};

	probe_schedule(&probe, UINT64_C(1000) * 1234567 + 1);

	assert_u64(manual_tick(1000), 0);
	assert_u64(manual_step(1234566), 0);
	assert_u64(manual_tick(1001), 1);
}
