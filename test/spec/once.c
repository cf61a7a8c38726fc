/* SPDX-License-Identifier: Apache-2.0 */
/*
 * once: every accepted timeout ends exactly once: started, cancelled, or given
 * back by stop; also when all calls race.
 */
#include "test/spec/support.h"

#include "test/rng.h"

SUITE(once);

static void
assert_ended(hwt_timeout timeout)
{
	int64_t remaining_ns;

	assert_rc(hwt_cancel(manual.timer, timeout), -ENOENT);
	assert_rc(hwt_cancel_wait(manual.timer, timeout), -ENOENT);
	assert_rc(hwt_reschedule(manual.timer, timeout, 0), -ENOENT);
	assert_rc(hwt_remaining(manual.timer, timeout, &remaining_ns), -ENOENT);
	assert_rc(hwt_run(manual.timer, timeout), -ENOENT);
	assert_rc(manual_state(timeout), -ENOENT);
}

static uint64_t
stop_and_count(void)
{
	struct hwt_unprocessed unprocessed;

	assert_ok(hwt_stop(manual.timer, &unprocessed));
	return unprocessed.count;
}

ManualTest(once, cancelled_timeout_has_ended)
{
	hwt_timeout timeout = schedule_forbidden(TICKS(3));

	manual_tick(1);
	assert_ok(hwt_cancel(manual.timer, timeout));

	assert_ended(timeout);
	assert_u64(manual_tick(20), 0);
	assert_u64(stop_and_count(), 0);
}

ManualTest(once, timeout_given_back_by_stop_has_ended)
{
	hwt_timeout timeout = schedule_forbidden(TICKS(1));

	assert_u64(stop_and_count(), 1);

	assert_ended(timeout);
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

struct race {
	_Atomic uint64_t accepted, refused, started, cancelled, shrunk;
	struct hwt_unprocessed unprocessed;
};

static void
race_task(hwt_timeout timeout, void *arg)
{
	struct race *race = arg;

	(void)timeout;
	race->started++;
}

static void
schedule_until_stopped(struct race *race, struct rng *rng)
{
	hwt_timeout timeout;
	int rc;

	while ((rc = hwt_new_timeout(live.timer, &timeout, race_task, race,
		    rng_below(rng, HWT_MS(3)))) == 0) {
		race->accepted++;
		if (rng_below(rng, 2) == 0)
			race->cancelled += hwt_cancel(live.timer, timeout) == 0;
	}
	assert_rc(rc, -ESHUTDOWN);
	race->refused++;
}

/* One stops, one reads the counters, two schedule and cancel. */
static void
race_body(unsigned index, void *arg)
{
	struct race *race = arg;
	struct rng rng = {.state = index};
	uint64_t scheduled = 0;

	if (index == 0) {
		sleep_ns(rng_below(&rng, HWT_MS(2)));
		assert_ok(hwt_stop(live.timer, &race->unprocessed));
	} else if (index == 1) {
		while (race->refused < 2) {
			uint64_t now = live_stats().scheduled;

			race->shrunk += now < scheduled;
			scheduled = now;
		}
	} else {
		schedule_until_stopped(race, &rng);
	}
}

Test(once, each_timeout_ends_once_in_a_race_with_stop)
{
	for (unsigned turn = 0; turn < 30; turn++) {
		struct race race = {0};

		live_open(NULL);
		in_parallel(4, race_body, &race);

		assert_u64(
		    race.started + race.cancelled + race.unprocessed.count,
		    race.accepted);
		assert_u64(live_stats().scheduled, race.accepted);
		assert_u64(race.shrunk, 0);
		live_close();
	}
}
