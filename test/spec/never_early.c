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
