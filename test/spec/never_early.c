/* SPDX-License-Identifier: Apache-2.0 */
/*
 * never-early: a task never starts before its delay has passed since the call,
 * by the timer's clock.
 */
#include "test/spec/support_promises.h"

SUITE(never_early);

Test(never_early, a_task_does_not_start_before_its_delay_has_passed)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	probe_schedule(&probe, 3 * FIXTURE_TICK);

	assert_u64(fixture_step(&fixture, 3 * FIXTURE_TICK - 1), 0);
	assert_u64(fixture_step(&fixture, 1), 1);

	assert_u64(probe.runs, 1);
	assert_u64(probe.started_ns, FIXTURE_START + 3 * FIXTURE_TICK);
	fixture_close(&fixture);
}

Test(never_early, a_deadline_between_two_ticks_waits_for_the_later_one)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	probe_schedule(&probe, FIXTURE_TICK + 1);

	assert_u64(fixture_tick(&fixture, 1), 0);
	assert_u64(fixture_step(&fixture, FIXTURE_TICK - 1), 0);
	assert_u64(fixture_tick(&fixture, 2), 1);

	fixture_close(&fixture);
}

Test(never_early, a_delay_counts_from_the_call_not_from_the_last_tick)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	fixture_step(&fixture, 1);
	probe_schedule(&probe, FIXTURE_TICK);

	assert_u64(fixture_tick(&fixture, 1), 0);
	assert_u64(fixture_tick(&fixture, 2), 1);

	fixture_close(&fixture);
}

Test(never_early, a_delay_counts_from_the_call_not_from_the_last_advance)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	fixture_tick(&fixture, 1);

	/* Nobody has advanced since tick 1 when tick 7 and a half comes. */
	fixture.now_ns += 6 * FIXTURE_TICK + FIXTURE_TICK / 2;
	probe_schedule(&probe, 2 * FIXTURE_TICK);

	assert_u64(fixture_tick(&fixture, 8), 0);
	assert_u64(fixture_tick(&fixture, 9), 0);
	assert_u64(fixture_tick(&fixture, 10), 1);

	fixture_close(&fixture);
}

Test(never_early, a_clock_that_stands_still_starts_nothing)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};
	unsigned call;

	fixture_open(&fixture, NULL);
	probe_schedule(&probe, 0);

	for (call = 0; call < 100; call++)
		assert_u64(fixture_step(&fixture, 0), 0);

	assert_u64(probe.runs, 0);
	fixture_close(&fixture);
}

Test(never_early, a_clock_before_the_timers_beginning_starts_nothing)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	probe_schedule(&probe, HWT_MIN(1));

	fixture.now_ns = FIXTURE_START - FIXTURE_TICK;
	assert_u64(fixture_step(&fixture, 0), 0);

	assert_u64(probe.runs, 0);
	fixture_close(&fixture);
}

/* Schedules at phase, turns the wheel in steps of a tenth of a tick, and
 * returns the boundary at which the task started. */
static uint64_t
started_at(uint32_t wheel, uint64_t phase_ns, uint64_t delay_ns)
{
	struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = wheel};
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};
	uint64_t called_ns;
	uint64_t steps = 0;

	fixture_open(&fixture, &options);
	fixture_step(&fixture, phase_ns);
	called_ns = fixture.now_ns;
	probe_schedule(&probe, delay_ns);
	while (fixture_step(&fixture, FIXTURE_TICK / 10) == 0)
		cr_assert(steps++ < 10 * 4 * (wheel + 2), "it never starts");
	cr_assert(probe.started_ns - called_ns >= delay_ns);
	fixture_close(&fixture);
	cr_assert((probe.started_ns - FIXTURE_START) % FIXTURE_TICK == 0);
	return (probe.started_ns - FIXTURE_START) / FIXTURE_TICK;
}

Test(never_early, every_delay_at_every_phase_of_the_tick_is_waited_for)
{
	static const uint32_t wheels[] = {1, 2, 8};
	const uint64_t step_ns = FIXTURE_TICK / 5;
	size_t index;

	for (index = 0; index < 3; index++) {
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

Test(never_early, a_rescheduled_timeout_waits_its_new_delay_from_that_call)
{
	struct fixture fixture = {0};
	struct probe later = {.fixture = &fixture};
	struct probe earlier = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	probe_schedule(&later, 2 * FIXTURE_TICK);
	probe_schedule(&earlier, 20 * FIXTURE_TICK);
	fixture_step(&fixture, FIXTURE_TICK + 1);

	assert_rc(
	    hwt_reschedule(fixture.timer, later.handle, 3 * FIXTURE_TICK), 0);
	assert_rc(
	    hwt_reschedule(fixture.timer, earlier.handle, 2 * FIXTURE_TICK), 0);

	assert_u64(fixture_tick(&fixture, 3), 0);
	assert_u64(fixture_tick(&fixture, 4), 1);
	assert_u64(earlier.runs, 1);
	assert_u64(fixture_tick(&fixture, 5), 1);
	assert_u64(later.runs, 1);
	fixture_close(&fixture);
}

Test(never_early, one_reading_of_the_clock_serves_a_batch)
{
	struct fixture fixture = {0};
	struct probe probes[2] = {{.fixture = &fixture}, {.fixture = &fixture}};
	struct hwt_spec specs[2] = {
	    {.task = probe_task, .arg = &probes[0], .delay_ns = FIXTURE_TICK},
	    {.task = probe_task, .arg = &probes[1], .delay_ns = 1}};
	uint64_t reads;

	fixture_open(&fixture, NULL);
	fixture_step(&fixture, FIXTURE_TICK / 2);
	reads = fixture.clock_reads;

	assert_rc(hwt_new_timeouts(fixture.timer, 2, specs, NULL), 0);

	assert_u64(fixture.clock_reads - reads, 1);
	assert_u64(fixture_tick(&fixture, 1), 1);
	assert_u64(probes[1].runs, 1);
	assert_u64(fixture_tick(&fixture, 2), 1);
	assert_u64(probes[0].runs, 1);
	fixture_close(&fixture);
}

Test(never_early, a_periodic_run_does_not_come_before_its_grid_point)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};
	/* Every deadline n * 2.5 ticks waits for its boundary. */
	static const uint64_t boundaries[] = {3, 5, 8, 10, 13, 15};
	const uint64_t period_ns = 5 * FIXTURE_TICK / 2;
	uint64_t run;

	fixture_open(&fixture, NULL);
	probe_schedule_periodic(&probe, period_ns, period_ns);

	for (run = 0; run < 6; run++) {
		fixture.now_ns = FIXTURE_START + boundaries[run] * FIXTURE_TICK;
		fixture.now_ns--;
		assert_u64(fixture_step(&fixture, 0), 0);
		assert_u64(fixture_step(&fixture, 1), 1);
		assert_u64(probe.runs, run + 1);
	}

	fixture_close(&fixture);
}

Test(never_early, an_executor_does_not_get_a_timeout_before_its_delay)
{
	static struct recording_executor executor;
	struct fixture fixture = {0};

	fixture_open(&fixture, NULL);
	executor_init(&executor, EXECUTOR_RUNS);
	assert_rc(hwt_new_timeout_on(fixture.timer, &executor.hook, NULL,
		      idle_task, NULL, 2 * FIXTURE_TICK),
	    0);

	fixture_step(&fixture, 2 * FIXTURE_TICK - 1);
	assert_u64(executor.count, 0);
	fixture_step(&fixture, 1);
	assert_u64(executor.count, 1);

	fixture_close(&fixture);
}

static void
then_takes_almost_half_a_tick(struct probe *probe)
{
	probe->fixture->now_ns += FIXTURE_TICK / 2 - 1;
}

Test(never_early, a_task_that_takes_its_time_brings_no_other_forward)
{
	struct fixture fixture = {0};
	struct probe first = {
	    .fixture = &fixture, .then = then_takes_almost_half_a_tick};
	struct probe second = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	probe_schedule(&first, FIXTURE_TICK);
	probe_schedule(&second, FIXTURE_TICK + FIXTURE_TICK / 2);

	assert_u64(fixture_tick(&fixture, 1), 1);
	assert_u64(fixture_step(&fixture, 0), 0);
	assert_u64(fixture_tick(&fixture, 2), 1);

	assert_u64(second.runs, 1);
	fixture_close(&fixture);
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

Test(never_early, no_task_of_a_real_worker_starts_before_its_delay)
{
	static struct real_probe probes[REAL_PROBES];
	static _Atomic uint64_t runs;
	struct live live = {0};
	struct rng rng = {.state = 1};
	unsigned index;

	live_open(&live, NULL);
	for (index = 0; index < REAL_PROBES; index++) {
		probes[index].runs = &runs;
		probes[index].delay_ns = rng_below(&rng, HWT_MS(100));
		probes[index].called_ns = monotonic_ns();
		assert_rc(hwt_new_timeout(live.timer, NULL, real_task,
			      &probes[index], probes[index].delay_ns),
		    0);
	}
	wait_for(&runs, REAL_PROBES);

	for (index = 0; index < REAL_PROBES; index++)
		cr_assert(probes[index].started_ns >=
			probes[index].called_ns + probes[index].delay_ns,
		    "number %u started early", index);
	live_close(&live);
}

/* A clock of one's own may step. */

Test(never_early,
    a_clock_that_steps_back_before_the_timers_making_starts_nothing)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	fixture.now_ns = FIXTURE_START - 10 * FIXTURE_TICK;
	probe_schedule(&probe, FIXTURE_TICK);

	assert_u64(fixture_step(&fixture, 5 * FIXTURE_TICK), 0);
	assert_u64(fixture_step(&fixture, 5 * FIXTURE_TICK), 0);
	assert_u64(fixture_step(&fixture, FIXTURE_TICK), 1);

	fixture_close(&fixture);
}

static void
then_steps_back(struct probe *probe)
{
	if (probe->runs == 0)
		probe->fixture->now_ns -= 3 * FIXTURE_TICK;
}

Test(never_early, a_clock_that_steps_back_in_a_run_repeats_no_grid_point)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture, .then = then_steps_back};

	fixture_open(&fixture, NULL);
	probe_schedule_periodic(&probe, 5 * FIXTURE_TICK, 5 * FIXTURE_TICK);
	assert_u64(fixture_tick(&fixture, 5), 1);

	assert_u64(fixture_tick(&fixture, 9), 0);
	assert_u64(fixture_tick(&fixture, 10), 1);

	fixture_close(&fixture);
}

Test(never_early, on_a_clock_that_has_come_to_its_end_nothing_is_ever_due)
{
	struct fixture fixture = {0};
	hwt_timeout timeout;

	fixture_open(&fixture, NULL);
	fixture.now_ns = INT64_MAX;
	timeout = schedule_task(fixture.timer, forbidden_task, 0);

	fixture_step(&fixture, FIXTURE_TICK);

	assert_i64(fixture_remaining(&fixture, timeout), INT64_MAX);
	assert_u64(hwt_pending_timeouts(fixture.timer), 1);
	fixture_close(&fixture);
}
