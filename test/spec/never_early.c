/* SPDX-License-Identifier: Apache-2.0 */
/*
 * never-early: a task never starts before its delay has passed since the call,
 * by the timer's clock.
 */
#include "test/spec/support_promises.h"

SUITE(never_early);

ManualTest(never_early, a_task_does_not_start_before_its_delay_has_passed)
{
	struct probe probe = {0};

	probe_schedule(&probe, 3 * FIXTURE_TICK);

	assert_u64(manual_step(3 * FIXTURE_TICK - 1), 0);
	assert_u64(manual_step(1), 1);

	assert_u64(probe.runs, 1);
	assert_u64(probe.started_ns, FIXTURE_START + 3 * FIXTURE_TICK);
}

ManualTest(never_early, a_delay_counts_from_the_call_not_from_the_last_advance)
{
	struct probe probe = {0};

	manual_tick(1);

	/* Nobody has advanced since tick 1 when tick 7 and a half comes. */
	manual.now_ns += 6 * FIXTURE_TICK + FIXTURE_TICK / 2;
	probe_schedule(&probe, 2 * FIXTURE_TICK);

	assert_u64(manual_tick(8), 0);
	assert_u64(manual_tick(9), 0);
	assert_u64(manual_tick(10), 1);
}

ManualTest(never_early, a_clock_that_stands_still_starts_nothing)
{
	struct probe probe = {0};

	probe_schedule(&probe, 0);

	for (unsigned call = 0; call < 100; call++)
		assert_u64(manual_step(0), 0);

	assert_u64(probe.runs, 0);
}

ManualTest(never_early, a_clock_before_the_timers_beginning_starts_nothing)
{
	struct probe probe = {0};

	probe_schedule(&probe, HWT_MIN(1));

	manual.now_ns = FIXTURE_START - FIXTURE_TICK;
	assert_u64(manual_step(0), 0);

	assert_u64(probe.runs, 0);
}

/* Schedules at phase, turns the wheel in steps of a tenth of a tick, and
 * returns the boundary at which the task started. */
static uint64_t
started_at(uint32_t wheel, uint64_t phase_ns, uint64_t delay_ns)
{
	struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = wheel};
	struct probe probe = {0};
	uint64_t called_ns;
	uint64_t steps = 0;

	manual_open(&options);
	manual_step(phase_ns);
	called_ns = manual.now_ns;
	probe_schedule(&probe, delay_ns);
	while (manual_step(FIXTURE_TICK / 10) == 0)
		cr_assert(steps++ < 10 * 4 * (wheel + 2), "it never starts");
	cr_assert(probe.started_ns - called_ns >= delay_ns);
	manual_close();
	cr_assert((probe.started_ns - FIXTURE_START) % FIXTURE_TICK == 0);
	return (probe.started_ns - FIXTURE_START) / FIXTURE_TICK;
}

Test(never_early, every_delay_at_every_phase_of_the_tick_is_waited_for)
{
	static const uint32_t wheels[] = {1, 2, 8};
	const uint64_t step_ns = FIXTURE_TICK / 5;

	for (size_t index = 0; index < 3; index++) {
		uint64_t longest_ns = 3 * wheels[index] * FIXTURE_TICK;
		uint64_t phase_ns;
		uint64_t delay_ns;

		for (phase_ns = 0; phase_ns < FIXTURE_TICK; phase_ns += step_ns)
			for (delay_ns = 0; delay_ns <= longest_ns;
			     delay_ns += step_ns)
				assert_u64(started_at(wheels[index], phase_ns,
					       delay_ns),
				    grid_tick(
					FIXTURE_TICK, phase_ns, delay_ns));
	}
}

ManualTest(never_early, one_reading_of_the_clock_serves_a_batch)
{
	struct probe probes[2] = {{0}};
	struct hwt_spec specs[2] = {
	    {.task = probe_task, .arg = &probes[0], .delay_ns = FIXTURE_TICK},
	    {.task = probe_task, .arg = &probes[1], .delay_ns = 1}};
	uint64_t reads;

	manual_step(FIXTURE_TICK / 2);
	reads = manual.clock_reads;

	assert_ok(hwt_new_timeouts(manual.timer, 2, specs, NULL));

	assert_u64(manual.clock_reads - reads, 1);
	assert_u64(manual_tick(1), 1);
	assert_u64(probes[1].runs, 1);
	assert_u64(manual_tick(2), 1);
	assert_u64(probes[0].runs, 1);
}

static void
then_takes_almost_half_a_tick(struct probe *probe)
{
	(void)probe;
	manual.now_ns += FIXTURE_TICK / 2 - 1;
}

ManualTest(never_early, a_task_that_takes_its_time_brings_no_other_forward)
{
	struct probe first = {.then = then_takes_almost_half_a_tick};
	struct probe second = {0};

	probe_schedule(&first, FIXTURE_TICK);
	probe_schedule(&second, FIXTURE_TICK + FIXTURE_TICK / 2);

	assert_u64(manual_tick(1), 1);
	assert_u64(manual_step(0), 0);
	assert_u64(manual_tick(2), 1);

	assert_u64(second.runs, 1);
}

/* By a real clock: whatever the machine does, a start that is late enough is
 * late enough. */
struct real_probe {
	uint64_t called_ns;
	uint64_t delay_ns;
	uint64_t started_ns;
	_Atomic uint64_t *runs;
};

static void
real_task(hwt_timeout timeout, void *arg)
{
	struct real_probe *probe = arg;

	(void)timeout;
	probe->started_ns = monotonic_ns();
	++*probe->runs;
}

#define REAL_PROBES 2000

WorkerTest(never_early, no_task_of_a_real_worker_starts_before_its_delay)
{
	static struct real_probe probes[REAL_PROBES];
	static _Atomic uint64_t runs;
	struct rng rng = {.state = 1};

	for (unsigned index = 0; index < REAL_PROBES; index++) {
		probes[index].runs = &runs;
		probes[index].delay_ns = rng_below(&rng, HWT_MS(100));
		probes[index].called_ns = monotonic_ns();
		assert_ok(hwt_new_timeout(live.timer, NULL, real_task,
		    &probes[index], probes[index].delay_ns));
	}
	wait_for(&runs, REAL_PROBES);

	for (unsigned index = 0; index < REAL_PROBES; index++)
		cr_assert(probes[index].started_ns >=
			probes[index].called_ns + probes[index].delay_ns,
		    "number %u started early", index);
}

/* A clock of one's own may step. */

ManualTest(never_early,
    a_clock_that_steps_back_before_the_timers_making_starts_nothing)
{
	struct probe probe = {0};

	manual.now_ns = FIXTURE_START - 10 * FIXTURE_TICK;
	probe_schedule(&probe, FIXTURE_TICK);

	assert_u64(manual_step(5 * FIXTURE_TICK), 0);
	assert_u64(manual_step(5 * FIXTURE_TICK), 0);
	assert_u64(manual_step(FIXTURE_TICK), 1);
}

static void
then_steps_back(struct probe *probe)
{
	if (probe->runs == 0)
		manual.now_ns -= 3 * FIXTURE_TICK;
}

ManualTest(never_early, a_clock_that_steps_back_in_a_run_repeats_no_grid_point)
{
	struct probe probe = {.then = then_steps_back};

	probe_schedule_periodic(&probe, 5 * FIXTURE_TICK, 5 * FIXTURE_TICK);
	assert_u64(manual_tick(5), 1);

	assert_u64(manual_tick(9), 0);
	assert_u64(manual_tick(10), 1);
}

ManualTest(never_early, on_a_clock_that_has_come_to_its_end_nothing_is_ever_due)
{
	hwt_timeout timeout;

	manual.now_ns = INT64_MAX;
	timeout = schedule_task(manual.timer, forbidden_task, 0);

	manual_step(FIXTURE_TICK);

	assert_i64(manual_remaining(timeout), INT64_MAX);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
}
