/* SPDX-License-Identifier: Apache-2.0 */
/*
 * never-early: a task never starts before its delay has passed since the call,
 * by the timer's clock.
 */
#include "test/spec/support.h"

#include "test/rng.h"

SUITE(never_early);

ManualTest(never_early, task_starts_when_its_delay_has_passed_and_not_before)
{
	struct probe probe = {0};

	probe_schedule(&probe, TICKS(3));

	assert_u64(manual_step(TICKS(3) - 1), 0);
	assert_u64(manual_step(1), 1);

	assert_u64(probe.started_ns, FIXTURE_START + TICKS(3));
}

ManualTest(never_early, delay_counts_from_the_call_not_from_the_last_advance)
{
	struct probe probe = {0};

	manual_tick(1);
	manual.now_ns += TICKS(6) + FIXTURE_TICK / 2;
	probe_schedule(&probe, TICKS(2));

	assert_u64(ticks_of_runs(&probe, 8, 12), ON(10));
}

/* Schedules at an offset from the grid; returns the tick of the run. */
static uint64_t
tick_of_delay(uint32_t wheel, uint64_t offset_ns, uint64_t delay_ns)
{
	struct probe probe = {0};

	manual_open(&(struct hwt_options){
	    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = wheel});
	manual_step(offset_ns);
	probe_schedule(&probe, delay_ns);
	while (manual_step(FIXTURE_TICK / 10) == 0)
		continue;
	cr_assert(probe.started_ns - FIXTURE_START >= offset_ns + delay_ns);
	manual_close();
	return (probe.started_ns - FIXTURE_START) / FIXTURE_TICK;
}

Test(never_early, each_delay_is_waited_for_at_each_offset_from_the_grid)
{
	const uint64_t step_ns = FIXTURE_TICK / 5;

	for (uint32_t wheel = 1; wheel <= 4; wheel *= 2)
		for (uint64_t at = 0; at < FIXTURE_TICK; at += step_ns)
			for (uint64_t delay_ns = step_ns; delay_ns <= TICKS(9);
			     delay_ns += step_ns)
				assert_u64(tick_of_delay(wheel, at, delay_ns),
				    (at + delay_ns + FIXTURE_TICK - 1) /
					FIXTURE_TICK);
}

/* A clock of the application's own may misbehave. */

ManualTest(never_early, clock_that_goes_back_before_create_starts_nothing)
{
	struct probe probe = {0};

	manual.now_ns = FIXTURE_START - TICKS(10);
	probe_schedule(&probe, FIXTURE_TICK);

	assert_u64(manual_step(TICKS(5)), 0);
	assert_u64(manual_step(TICKS(5)), 0);
	assert_u64(manual_step(TICKS(1)), 1);
}

/* With a real clock: a start that is late enough is right on any machine. */

#define REAL_PROBES 1000

struct real_probe {
	uint64_t called_ns, delay_ns, started_ns;
};

static _Atomic uint64_t real_runs;

static void
real_task(hwt_timeout timeout, void *arg)
{
	struct real_probe *probe = arg;

	(void)timeout;
	probe->started_ns = monotonic_ns();
	real_runs++;
}

WorkerTest(never_early, worker_starts_no_task_before_its_delay_has_passed)
{
	static struct real_probe probes[REAL_PROBES];
	struct rng rng = {.state = 1};

	for (unsigned i = 0; i < REAL_PROBES; i++) {
		probes[i].delay_ns = rng_below(&rng, HWT_MS(100));
		probes[i].called_ns = monotonic_ns();
		assert_ok(hwt_new_timeout(live.timer, NULL, real_task,
		    &probes[i], probes[i].delay_ns));
	}
	wait_for(&real_runs, REAL_PROBES);

	for (unsigned i = 0; i < REAL_PROBES; i++)
		cr_assert(probes[i].started_ns >=
			probes[i].called_ns + probes[i].delay_ns,
		    "number %u started early", i);
}
