/* SPDX-License-Identifier: Apache-2.0 */
/*
 * once: every accepted timeout ends exactly once: started, cancelled, or given
 * back by stop; also when all calls race. Here time is moved by hand, and one
 * end is taken after the other; but for a race with stop, all races are in
 * test/stress/race_all.c.
 */
#include "test/spec/support_promises.h"

#include <stdlib.h>

SUITE(once);

static struct recording_executor executor;

/* Each end excludes the others. */
static void
assert_ended(hwt_timeout timeout)
{
	int64_t remaining_ns;

	assert_rc(hwt_cancel(manual.timer, timeout), -ENOENT);
	assert_rc(hwt_cancel_wait(manual.timer, timeout), -ENOENT);
	assert_rc(hwt_reschedule(manual.timer, timeout, 0), -ENOENT);
	assert_rc(hwt_remaining(manual.timer, timeout, &remaining_ns), -ENOENT);
	assert_rc(hwt_run(manual.timer, timeout), -ENOENT);
}

ManualTest(once, what_was_started_is_not_started_again)
{
	struct probe probe = {0};

	probe_schedule(&probe, FIXTURE_TICK);
	assert_u64(manual_tick(1), 1);

	for (uint64_t tick = 2; tick <= 5 * FIXTURE_WHEEL; tick++)
		assert_u64(manual_tick(tick), 0);

	assert_u64(probe.runs, 1);
	assert_ended(probe.handle);
}

ManualTest(once, what_was_cancelled_is_neither_started_nor_given_back)
{
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	hwt_timeout queued;
	hwt_timeout placed;

	placed = schedule_task(manual.timer, forbidden_task, 3 * FIXTURE_TICK);
	manual_tick(1);
	queued = schedule_task(manual.timer, forbidden_task, 3 * FIXTURE_TICK);

	assert_ok(hwt_cancel(manual.timer, placed));
	assert_ok(hwt_cancel(manual.timer, queued));

	assert_ended(placed);
	assert_ended(queued);
	assert_u64(manual_tick(20), 0);
	assert_ok(hwt_stop(manual.timer, &unprocessed));
	assert_u64(unprocessed.count, 0);
	cr_assert(!hwt_unprocessed_next(&unprocessed, &info));
}

ManualTest(once, what_stop_gave_back_has_ended)
{
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	hwt_timeout timeout;

	timeout = schedule_task(manual.timer, forbidden_task, FIXTURE_TICK);

	assert_ok(hwt_stop(manual.timer, &unprocessed));

	assert_u64(unprocessed.count, 1);
	cr_assert(hwt_unprocessed_next(&unprocessed, &info));
	assert_u64(info.timeout.id, timeout.id);
	cr_assert(!hwt_unprocessed_next(&unprocessed, &info));
	assert_ended(timeout);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

ManualTest(once, what_an_executor_holds_is_not_given_back_and_starts_once)
{
	struct hwt_unprocessed unprocessed;
	struct probe probe = {0};

	executor_init(&executor, EXECUTOR_HOLDS);
	assert_ok(hwt_new_timeout_on(manual.timer, &executor.hook,
	    &probe.handle, probe_task, &probe, FIXTURE_TICK));
	manual_tick(1);

	assert_ok(hwt_stop(manual.timer, &unprocessed));

	assert_u64(unprocessed.count, 0);
	assert_ok(executor_run(&executor, 0));
	assert_u64(probe.runs, 1);
	assert_rc(executor_run(&executor, 0), -ENOENT);
	assert_u64(probe.runs, 1);
}

ManualTest(once, a_periodic_timeout_ends_once)
{
	struct hwt_unprocessed unprocessed;
	struct probe probe = {0};

	probe_schedule_periodic(&probe, FIXTURE_TICK, FIXTURE_TICK);
	manual_tick(1);
	manual_tick(2);

	assert_ok(hwt_cancel(manual.timer, probe.handle));

	assert_ended(probe.handle);
	assert_u64(manual_tick(3), 0);
	assert_u64(probe.runs, 2);
	assert_ok(hwt_stop(manual.timer, &unprocessed));
	assert_u64(unprocessed.count, 0);
}

struct stop_race {
	_Atomic uint64_t accepted;
	_Atomic uint64_t refused;
	_Atomic uint64_t started;
	_Atomic uint64_t cancelled;
	struct hwt_unprocessed unprocessed;
};

static void
stop_race_task(hwt_timeout timeout, void *arg)
{
	struct stop_race *race = arg;

	(void)timeout;
	race->started++;
}

static void
stop_race_body(unsigned index, void *arg)
{
	struct stop_race *race = arg;
	struct rng rng = {.state = index};
	hwt_timeout timeout;
	int rc;

	if (index == 0) {
		sleep_ns(rng_below(&rng, HWT_MS(2)));
		if (hwt_stop(live.timer, &race->unprocessed) != 0)
			abort();
		return;
	}
	for (;;) {
		rc = hwt_new_timeout(live.timer, &timeout, stop_race_task, race,
		    rng_below(&rng, HWT_MS(3)));
		if (rc == -ESHUTDOWN)
			break;
		if (rc != 0)
			abort();
		race->accepted++;
		if (rng_below(&rng, 2) == 0)
			race->cancelled += hwt_cancel(live.timer, timeout) == 0;
	}
	race->refused++;
}

/* One looks on, two schedule, one stops. */
struct watched {
	struct stop_race race;
	_Atomic uint64_t shrunk;
};

static void
watch_body(unsigned index, void *arg)
{
	struct watched *watched = arg;
	struct hwt_stats stats;
	uint64_t scheduled = 0;

	if (index < 3) {
		stop_race_body(index, &watched->race);
		return;
	}
	while (watched->race.refused < 2) {
		if (hwt_read_stats(live.timer, &stats) != 0)
			abort();
		watched->shrunk += stats.scheduled < scheduled;
		scheduled = stats.scheduled;
	}
}

Test(once, in_a_race_with_stop_each_ends_once_and_scheduled_never_falls)
{
	for (unsigned turn = 0; turn < 50; turn++) {
		struct watched watched = {0};

		live_open(NULL);
		in_parallel(4, watch_body, &watched);

		assert_u64(watched.shrunk, 0);
		assert_u64(watched.race.started + watched.race.cancelled +
			watched.race.unprocessed.count,
		    watched.race.accepted);
		assert_u64(live_stats().scheduled, watched.race.accepted);
		live_close();
	}
}
