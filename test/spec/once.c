/* SPDX-License-Identifier: Apache-2.0 */
/*
 * once: every accepted timeout ends exactly once: started, cancelled, or given
 * back by stop; also when all calls race. The first half moves time by hand
 * and takes one end after the other; the second lets threads race and counts
 * the ends of each timeout.
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

ManualTest(once, what_was_started_is_not_given_back_by_stop)
{
	struct hwt_unprocessed unprocessed;
	struct probe probe = {0};

	probe_schedule(&probe, FIXTURE_TICK);
	manual_tick(1);

	assert_ok(hwt_stop(manual.timer, &unprocessed));

	assert_u64(unprocessed.count, 0);
	assert_u64(probe.runs, 1);
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

ManualTest(once, the_counters_agree_when_all_have_ended)
{
	struct hwt_unprocessed unprocessed;
	hwt_timeout timeouts[30];
	struct hwt_stats stats;

	/* Ten become due, ten are cancelled, ten are left. */
	for (unsigned index = 0; index < 30; index++)
		timeouts[index] = schedule_task(manual.timer, idle_task,
		    index < 10 ? FIXTURE_TICK : 9 * FIXTURE_TICK);
	for (unsigned index = 10; index < 20; index++)
		assert_ok(hwt_cancel(manual.timer, timeouts[index]));
	assert_u64(hwt_pending_timeouts(manual.timer), 20);
	assert_u64(manual_tick(1), 10);
	assert_u64(hwt_pending_timeouts(manual.timer), 10);

	assert_ok(hwt_stop(manual.timer, &unprocessed));

	stats = manual_stats();
	assert_u64(stats.scheduled, 30);
	assert_u64(stats.started, 10);
	assert_u64(stats.cancelled, 10);
	assert_u64(unprocessed.count, 10);
	assert_u64(stats.pending, 0);
}

/* Races. One struct run per timeout counts its ends. */

#define RACERS 4
#define RACE_RUNS 4000
#define RACE_ALL (RACERS * RACE_RUNS)

struct race_run {
	_Atomic uint64_t id;
	_Atomic uint64_t ends;
	_Atomic uint64_t starts;
};

struct race {
	struct hwt_executor executor;
	struct race_run runs[RACE_ALL];
};

static void
race_task(hwt_timeout timeout, void *arg)
{
	struct race_run *run = arg;

	(void)timeout;
	run->starts++;
	run->ends++;
}

static void
race_cancel(struct race_run *run, bool wait)
{
	hwt_timeout timeout = {.id = run->id};
	int rc = wait ? hwt_cancel_wait(live.timer, timeout)
		      : hwt_cancel(live.timer, timeout);

	if (rc == 0)
		run->ends++;
	else if (rc != -ENOENT && rc != -EINPROGRESS)
		abort();
}

static void
race_any(struct race *race, struct rng *rng)
{
	struct race_run *run = &race->runs[rng_below(rng, RACE_ALL)];
	hwt_timeout timeout = {.id = run->id};

	switch (rng_below(rng, 4)) {
	case 0:
		race_cancel(run, false);
		break;
	case 1:
		race_cancel(run, true);
		break;
	default:
		hwt_reschedule(live.timer, timeout, rng_below(rng, HWT_MS(4)));
	}
}

static void
race_body(unsigned index, void *arg)
{
	struct race *race = arg;
	struct rng rng = {.state = index};

	for (unsigned turn = 0; turn < RACE_RUNS; turn++) {
		struct race_run *run = &race->runs[index * RACE_RUNS + turn];
		hwt_timeout timeout;

		if (hwt_new_timeout_on(live.timer, &race->executor, &timeout,
			race_task, run, rng_below(&rng, HWT_MS(4))) != 0)
			abort();
		run->id = timeout.id;
		race_any(race, &rng);
		if (turn % 2 == 0)
			race_cancel(run, false);
	}
}

/* Stops the timer and counts what it gives back as ended. */
static void
race_stop(void)
{
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	uint64_t unprocessed_count = 0;

	assert_ok(hwt_stop(live.timer, &unprocessed));
	while (hwt_unprocessed_next(&unprocessed, &info)) {
		struct race_run *run = info.arg;

		assert_u64(info.timeout.id, run->id);
		run->ends++;
		unprocessed_count++;
	}
	assert_u64(unprocessed.count, unprocessed_count);
}

static void
race_judge(struct race *race)
{
	for (unsigned index = 0; index < RACE_ALL; index++) {
		cr_assert(race->runs[index].ends == 1, "%u ended %u times",
		    index, (unsigned)race->runs[index].ends);
		cr_assert(race->runs[index].starts <= 1);
	}
	assert_u64(hwt_pending_timeouts(live.timer), 0);
	assert_u64(live_stats().scheduled, RACE_ALL);
}

static int
refuse(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	(void)ctx;
	(void)timer;
	(void)timeout;
	return -EAGAIN;
}

WorkerTest(once, schedule_cancel_reschedule_and_expiry_race_to_one_end)
{
	static struct race race;

	race.executor.execute = refuse;

	in_parallel(RACERS, race_body, &race);

	race_stop();
	race_judge(&race);
}

WorkerTest(once, the_same_race_with_a_pool_has_one_end)
{
	static struct race race;
	struct hwt_pool *pool;

	assert_ok(hwt_pool_create(&pool, 2, 16));
	race.executor = *hwt_pool_executor(pool);

	in_parallel(RACERS, race_body, &race);

	/* What the pool holds when the timer stops is ended by the pool. */
	race_stop();
	assert_ok(hwt_pool_destroy(pool));
	race_judge(&race);
}

struct duel {
	hwt_timeout timeout;
	_Atomic uint64_t winners;
	_Atomic uint64_t losers;
};

static void
duel_body(unsigned index, void *arg)
{
	struct duel *duel = arg;
	int rc = index % 2 == 0 ? hwt_cancel(manual.timer, duel->timeout)
				: hwt_cancel_wait(manual.timer, duel->timeout);

	if (rc == 0)
		duel->winners++;
	else if (rc == -ENOENT)
		duel->losers++;
	else
		abort();
}

ManualTest(once, of_many_cancels_one_wins)
{
	struct duel duel = {0};

	for (unsigned turn = 0; turn < 200; turn++) {
		duel.winners = 0;
		duel.losers = 0;
		duel.timeout =
		    schedule_task(manual.timer, forbidden_task, FIXTURE_TICK);
		/* Every other one is placed when the cancels come. */
		if (turn % 2 == 0)
			manual_step(0);
		in_parallel(4, duel_body, &duel);
		assert_u64(duel.winners, 1);
		assert_u64(duel.losers, 3);
	}

	assert_u64(manual_step(FIXTURE_TICK), 0);
}

struct run_duel {
	struct recording_executor *executor;
	uint64_t index;
	_Atomic uint64_t started;
	_Atomic uint64_t cancelled;
	_Atomic uint64_t ran;
};

static void
run_duel_task(hwt_timeout timeout, void *arg)
{
	struct run_duel *duel = arg;

	(void)timeout;
	duel->ran++;
}

static void
run_duel_body(unsigned index, void *arg)
{
	struct run_duel *duel = arg;
	struct hwt *timer = duel->executor->calls[duel->index].timer;
	hwt_timeout timeout = duel->executor->calls[duel->index].timeout;

	if (index == 0)
		duel->started += hwt_run(timer, timeout) == 0;
	else
		duel->cancelled += hwt_cancel(timer, timeout) == 0;
}

ManualTest(once, hwt_run_and_cancel_race_to_one_end)
{
	struct run_duel duel = {.executor = &executor};

	executor_init(&executor, EXECUTOR_HOLDS);
	for (duel.index = 0; duel.index < 300; duel.index++) {
		duel.started = 0;
		duel.cancelled = 0;
		duel.ran = 0;
		assert_ok(hwt_new_timeout_on(manual.timer, &executor.hook, NULL,
		    run_duel_task, &duel, 0));
		manual_step(FIXTURE_TICK);
		in_parallel(2, run_duel_body, &duel);
		assert_u64(duel.started + duel.cancelled, 1);
		assert_u64(duel.ran, duel.started);
	}
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

Test(once, a_stop_in_the_middle_of_it_all_gives_back_exactly_the_rest)
{
	for (unsigned turn = 0; turn < 100; turn++) {
		struct stop_race race = {0};

		live_open(NULL);
		in_parallel(3, stop_race_body, &race);

		assert_u64(race.refused, 2);
		assert_u64(
		    race.started + race.cancelled + race.unprocessed.count,
		    race.accepted);
		assert_u64(hwt_pending_timeouts(live.timer), 0);
		live_close();
	}
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

Test(once, what_was_counted_as_scheduled_is_never_taken_back)
{
	for (unsigned turn = 0; turn < 200; turn++) {
		struct watched watched = {0};

		live_open(NULL);
		in_parallel(4, watch_body, &watched);

		assert_u64(watched.shrunk, 0);
		assert_u64(live_stats().scheduled, watched.race.accepted);
		live_close();
	}
}
