/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other wheels got wrong: each test is a defect that timer wheels in use
 * have had, or have. On manual timers, but where the defect was a race.
 */
#include "test/spec/support_promises.h"

#include <stdlib.h>

SUITE(wrong_wheels);

#define TURN (FIXTURE_WHEEL * FIXTURE_TICK)
#define HOUR HWT_SEC(3600)

Test(wrong_wheels, delays_of_exactly_so_many_turns_are_not_a_round_off)
{
	/* Asked for on a boundary, between two, and just before one. */
	for (uint64_t turns = 1; turns <= 3; turns++) {
		struct probe probes[3] = {{0}};

		manual_open(NULL);
		manual_tick(5);
		probe_schedule(&probes[0], turns * TURN);
		manual_step(FIXTURE_TICK / 2);
		probe_schedule(&probes[1], turns * TURN);
		manual_step(FIXTURE_TICK / 2 - 1);
		probe_schedule(&probes[2], turns * TURN);

		assert_u64(manual_tick(4 + turns * FIXTURE_WHEEL), 0);
		assert_u64(manual_tick(5 + turns * FIXTURE_WHEEL), 1);
		assert_u64(probes[0].runs, 1);
		assert_u64(manual_tick(6 + turns * FIXTURE_WHEEL), 2);
		manual_close();
	}
}

ManualTest(
    wrong_wheels, a_delay_of_a_turn_when_the_worker_lags_is_not_a_round_off)
{
	struct probe probe = {0};

	/* It is scheduled ten ticks after the last tick that was begun. */
	manual_tick(3);
	manual.now_ns += 10 * FIXTURE_TICK;
	probe_schedule(&probe, TURN);

	assert_u64(manual_tick(13 + FIXTURE_WHEEL - 1), 0);
	assert_u64(manual_tick(13 + FIXTURE_WHEEL), 1);
}

ManualTest(wrong_wheels, the_shortest_and_the_longest_delay_side_by_side)
{
	struct probe none = {0}, tick = {0}, never = {0};

	probe_schedule(&never, UINT64_MAX);
	probe_schedule(&tick, FIXTURE_TICK);
	probe_schedule(&none, 0);

	assert_u64(manual_step(0), 0);
	assert_u64(manual_tick(1), 2);
	assert_u64(none.runs, 1);
	assert_u64(tick.runs, 1);
	assert_u64(manual_step(UINT64_C(1) << 61), 0);

	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	assert_ok(hwt_cancel(manual.timer, never.handle));
	assert_u64(hwt_pending_timeouts(manual.timer), 0);
}

ManualTest(wrong_wheels, a_deadline_that_would_overflow_is_not_due_at_once)
{
	static const uint64_t delays[] = {(UINT64_C(1) << 63) - 1,
	    (UINT64_C(1) << 63) - 1 - FIXTURE_START, UINT64_MAX};

	for (unsigned index = 0; index < 3; index++)
		assert_ok(hwt_new_timeout(
		    manual.timer, NULL, forbidden_task, NULL, delays[index]));

	assert_u64(manual_tick(1), 0);
	assert_u64(manual_step(HOUR), 0);

	assert_u64(hwt_pending_timeouts(manual.timer), 3);
}

struct scheduling {
	struct probe *next;
	uint64_t delay_ns;
};

static void
then_schedules(struct probe *probe)
{
	struct scheduling *scheduling = probe->data;
	struct probe *next = scheduling->next;

	probe->rc = hwt_new_timeout(probe->fixture->timer, &next->handle,
	    probe_task, next, scheduling->delay_ns);
}

Test(wrong_wheels, a_task_schedules_into_the_bucket_that_is_being_expired)
{
	static const uint64_t turns[] = {1, 2, 7};

	/* In the middle of others of that bucket. */
	for (unsigned index = 0; index < 3; index++) {
		struct probe next = {0};
		struct scheduling scheduling = {
		    .next = &next, .delay_ns = turns[index] * TURN};
		struct probe first = {
		    .then = then_schedules, .data = &scheduling};
		struct probe others[20];
		unsigned other;
		uint64_t due = 3 + turns[index] * FIXTURE_WHEEL;

		manual_open(NULL);
		for (other = 0; other < 20; other++) {
			others[other] = (struct probe){0};
			probe_schedule(&others[other], 3 * FIXTURE_TICK);
			if (other == 10)
				probe_schedule(&first, 3 * FIXTURE_TICK);
		}
		assert_u64(manual_tick(3), 21);
		assert_ok(first.rc);

		assert_u64(manual_tick(due - 1), 0);
		assert_u64(manual_tick(due), 1);
		assert_u64(next.runs, 1);
		manual_close();
	}
}

#define NEIGHBOURS 100

struct neighbourhood {
	struct fixture fixture;
	struct probe probes[NEIGHBOURS];
	/* Answers to the cancels of those that had not started, and others. */
	uint64_t won;
	uint64_t wrong;
};

/* Cancels all that have not started, itself and those that have included. */
static void
then_cancels_the_neighbours(struct probe *probe)
{
	struct neighbourhood *all = probe->data;
	int rc;

	for (unsigned index = 0; index < NEIGHBOURS; index++) {
		struct probe *other = &all->probes[index];

		rc = hwt_cancel(all->fixture.timer, other->handle);
		if (rc == 0 && other != probe && other->runs == 0)
			all->won++;
		else if (rc != (other == probe ? -EINPROGRESS : -ENOENT))
			all->wrong++;
	}
}

Test(wrong_wheels, a_task_cancels_the_next_ones_of_its_bucket)
{
	static struct neighbourhood all;

	/* Whichever runs first ends them all; a hundred fill many chunks. */
	fixture_open(&all.fixture, NULL);
	for (unsigned index = 0; index < NEIGHBOURS; index++) {
		all.probes[index] = (struct probe){.fixture = &all.fixture,
		    .then = then_cancels_the_neighbours,
		    .data = &all};
		probe_schedule(
		    &all.probes[index], FIXTURE_TICK + index % 2 * 2 * TURN);
	}

	assert_u64(fixture_tick(&all.fixture, 1), 1);

	assert_u64(all.won, NEIGHBOURS - 1);
	assert_u64(all.wrong, 0);
	assert_u64(hwt_pending_timeouts(all.fixture.timer), 0);
	assert_u64(fixture_tick(&all.fixture, 5 * FIXTURE_WHEEL), 0);
	fixture_close(&all.fixture);
}

ManualTest(
    wrong_wheels, what_is_still_queued_is_cancelled_and_its_record_reused)
{
	struct probe probe = {0};
	hwt_timeout stale;

	/* The queue still holds the first one's entry when the next takes its
	 * record: the entry must not start it early, nor the stale handle name
	 * it. */
	stale = schedule_task(manual.timer, forbidden_task, FIXTURE_TICK);
	for (unsigned turn = 0; turn < 1000; turn++) {
		hwt_timeout next;

		assert_ok(hwt_cancel(manual.timer, stale));
		next =
		    schedule_task(manual.timer, forbidden_task, FIXTURE_TICK);
		assert_rc(hwt_cancel(manual.timer, stale), -ENOENT);
		assert_rc(hwt_reschedule(manual.timer, stale, 0), -ENOENT);
		cr_assert(next.id != stale.id);
		stale = next;
	}
	assert_ok(hwt_cancel(manual.timer, stale));
	probe_schedule(&probe, 3 * FIXTURE_TICK);

	assert_u64(manual_tick(2), 0);
	assert_u64(manual_tick(3), 1);
	assert_u64(probe.runs, 1);
}

ManualTest(wrong_wheels, a_cancel_after_expiry_does_not_count_down_again)
{
	struct probe probe = {0}, other = {0};

	probe_schedule(&probe, FIXTURE_TICK);
	probe_schedule(&other, HOUR);
	manual_tick(1);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);

	assert_rc(hwt_cancel(manual.timer, probe.handle), -ENOENT);
	assert_rc(hwt_cancel_wait(manual.timer, probe.handle), -ENOENT);

	manual_tick(20);
	assert_u64(hwt_pending_timeouts(manual.timer), 1);
	assert_u64(manual_stats().cancelled, 0);
}

Test(wrong_wheels, cancelled_within_their_own_tick_they_count_down_once)
{
	struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .max_pending = 10};
	hwt_timeout timeouts[10];

	/* Placed in the bucket that comes next; the limit would tell. */
	manual_open(&options);
	for (uint64_t turn = 1; turn <= 50; turn++) {
		for (unsigned index = 0; index < 10; index++)
			timeouts[index] = schedule_task(
			    manual.timer, forbidden_task, FIXTURE_TICK);
		assert_rc(hwt_new_timeout(
			      manual.timer, NULL, forbidden_task, NULL, 0),
		    -ENOBUFS);
		manual_step(0);
		for (unsigned index = 0; index < 10; index++)
			assert_ok(hwt_cancel(manual.timer, timeouts[index]));
		assert_u64(hwt_pending_timeouts(manual.timer), 0);
		assert_u64(manual_tick(turn), 0);
	}

	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	manual_close();
}

ManualTest(wrong_wheels, rounds_inserted_in_falling_order_are_not_skipped)
{
	static struct probe probes[200];
	unsigned round;

	/* Whoever stops looking at the first later round misses the others. */
	for (round = 200; round-- > 0;) {
		probe_schedule(
		    &probes[round], FIXTURE_TICK + round % 20 * TURN);
	}

	for (round = 0; round < 20; round++)
		assert_u64(manual_tick(1 + round * FIXTURE_WHEEL), 10);
}

static void
counting_task(hwt_timeout timeout, void *arg)
{
	uint64_t *count = arg;

	(void)timeout;
	++*count;
}

ManualTest(
    wrong_wheels, a_quarter_of_a_million_queued_in_one_tick_are_all_on_time)
{
	uint64_t count = 0;

	for (uint64_t index = 0; index < 250000; index++)
		assert_ok(hwt_new_timeout(manual.timer, NULL, counting_task,
		    &count, index % 3 * FIXTURE_TICK));

	/* Delays of 0 and of one tick are both due at tick 1. */
	assert_u64(manual_tick(1), 166667);
	assert_u64(manual_tick(2), 83333);

	assert_u64(count, 250000);
}

ManualTest(wrong_wheels, a_load_that_is_all_cancelled_does_not_hold_a_probe_up)
{
	unsigned index;

	for (uint64_t tick = 1; tick <= 20; tick++) {
		struct probe probe = {0};
		hwt_timeout timeouts[1000];

		probe_schedule(&probe, FIXTURE_TICK);
		for (index = 0; index < 1000; index++)
			timeouts[index] = schedule_task(
			    manual.timer, forbidden_task, index * HWT_US(10));
		/* Half are placed when they are cancelled. */
		manual_step(0);
		for (index = 0; index < 500; index++)
			assert_ok(hwt_cancel(manual.timer, timeouts[index]));
		for (; index < 1000; index++)
			assert_ok(hwt_cancel(manual.timer, timeouts[index]));

		assert_u64(manual_tick(tick), 1);
		assert_u64(probe.runs, 1);
	}
}

/* A task that lets the test go and then spins a little, so that what the test
 * does next meets the worker at any moment on its way to sleep: there, a
 * wake-up that is lost is lost for an hour. */
struct drowsy {
	struct rng rng;
	_Atomic uint64_t go;
	uint64_t spins;
};

static void
spin(uint64_t turns)
{
	while (turns-- > 0)
		__asm__ volatile("" ::: "memory");
}

static void
then_lets_go(struct probe *probe)
{
	struct drowsy *drowsy = probe->data;

	drowsy->go = 1;
	spin(drowsy->spins);
}

static void
drowsy_open(void)
{
	live_open(&(struct hwt_options){.tick_ns = HWT_US(100)});
	assert_ok(
	    hwt_new_timeout(live.timer, NULL, forbidden_task, NULL, HOUR));
}

/* Returns while the worker falls asleep. */
static void
drowsy_turn(struct drowsy *drowsy, struct probe *probe)
{
	uint64_t turn = 0;

	*probe = (struct probe){.then = then_lets_go, .data = drowsy};
	drowsy->go = 0;
	drowsy->spins = rng_below(&drowsy->rng, 8000);
	assert_ok(hwt_new_timeout(live.timer, NULL, probe_task, probe, 0));
	while (drowsy->go == 0)
		if (++turn % 4096 == 0)
			sched_yield();
}

static void
await_run(const struct probe *probe)
{
	uint64_t limit_ns = monotonic_ns() + HWT_SEC(20);

	while (probe->runs == 0) {
		cr_assert(monotonic_ns() < limit_ns, "a wake-up was lost");
		sched_yield();
	}
}

Test(wrong_wheels, a_new_earliest_deadline_while_the_worker_falls_asleep)
{
	static struct drowsy drowsy;

	drowsy_open();
	for (unsigned turn = 0; turn < 3000; turn++) {
		struct probe first;
		struct probe second = {0};

		drowsy_turn(&drowsy, &first);
		assert_ok(
		    hwt_new_timeout(live.timer, NULL, probe_task, &second, 0));
		await_run(&second);
		await_run(&first);
	}
	live_close();
}

Test(wrong_wheels, a_deadline_pulled_in_while_the_worker_falls_asleep)
{
	static struct drowsy drowsy;

	drowsy_open();
	for (unsigned turn = 0; turn < 3000; turn++) {
		struct probe first;
		struct probe second = {0};
		hwt_timeout timeout;

		assert_ok(hwt_new_timeout(
		    live.timer, &timeout, probe_task, &second, HOUR));
		drowsy_turn(&drowsy, &first);
		assert_ok(hwt_reschedule(live.timer, timeout, 0));
		await_run(&second);
		await_run(&first);
	}
	live_close();
}

Test(wrong_wheels, after_hours_of_stall_the_next_tick_is_the_next_tick)
{
	static const uint64_t stalls[] = {HWT_SEC(3600) - 1, HWT_SEC(3600),
	    HWT_SEC(3600) + 1, HWT_SEC(86400) + 500};

	for (unsigned index = 0; index < 4; index++) {
		struct probe probe = {0};
		uint64_t next;

		manual_open(NULL);
		manual_step(stalls[index]);
		next = grid_tick(FIXTURE_TICK, stalls[index], 0);
		probe_schedule(&probe, 0);

		manual.now_ns = FIXTURE_START + next * FIXTURE_TICK - 1;
		assert_u64(manual_step(0), 0);
		assert_u64(manual_tick(next), 1);
		manual_close();
	}
}

Test(wrong_wheels, after_2_32_ticks_of_uptime_a_delay_is_still_that_delay)
{
	struct hwt_options options = {
	    .tick_ns = HWT_US(10), .ticks_per_wheel = 512};
	struct probe probe = {0};
	const uint64_t mark = UINT64_C(1) << 32;

	/* Scheduled before the count of ticks outgrows 32 bits, due after. */
	manual_open(&options);
	manual_tick(mark - 1000);
	probe_schedule(&probe, 2000 * HWT_US(10));
	assert_u64(manual_tick(mark - 1), 0);
	assert_u64(manual_tick(mark), 0);
	assert_u64(manual_tick(mark + 999), 0);
	assert_u64(manual_tick(mark + 1000), 1);
	manual_close();
}

static void
then_rearms_with_delay_0(struct probe *probe)
{
	/* Far more often than there are ticks, if it held one. */
	if (probe->order > 1000)
		return;
	probe->rc =
	    hwt_new_timeout(probe->fixture->timer, NULL, probe_task, probe, 0);
}

ManualTest(wrong_wheels, re_arming_with_delay_0_does_not_hold_a_tick_for_ever)
{
	struct probe probes[5];

	for (unsigned index = 0; index < 5; index++) {
		probes[index] =
		    (struct probe){.then = then_rearms_with_delay_0};
		probe_schedule(&probes[index], 0);
	}

	for (uint64_t tick = 1; tick <= 10; tick++)
		assert_u64(manual_tick(tick), 5);
}

/* Counting and stopping. */

Test(wrong_wheels, refused_calls_leave_the_count_alone)
{
	struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .max_pending = 2};

	manual_open(&options);
	for (unsigned turn = 0; turn < 2; turn++)
		assert_ok(hwt_new_timeout(
		    manual.timer, NULL, forbidden_task, NULL, HOUR));
	for (unsigned turn = 0; turn < 100; turn++)
		assert_rc(hwt_new_timeout(
			      manual.timer, NULL, forbidden_task, NULL, HOUR),
		    -ENOBUFS);
	assert_u64(hwt_pending_timeouts(manual.timer), 2);
	assert_ok(hwt_stop(manual.timer, NULL));
	for (unsigned turn = 0; turn < 100; turn++)
		assert_rc(hwt_new_timeout(
			      manual.timer, NULL, forbidden_task, NULL, HOUR),
		    -ESHUTDOWN);

	assert_u64(hwt_pending_timeouts(manual.timer), 0);
	manual_close();
}

WorkerTest(wrong_wheels, after_stop_nothing_is_pending_and_nothing_runs)
{
	for (unsigned index = 0; index < 1000; index++)
		assert_ok(hwt_new_timeout(live.timer, NULL, forbidden_task,
		    NULL, HWT_SEC(60) + index));

	assert_ok(hwt_stop(live.timer, NULL));

	assert_u64(hwt_pending_timeouts(live.timer), 0);
	assert_u64(live_stats().started, 0);
}

struct start_stop {
	struct hwt *timer;
	_Atomic uint64_t stopped;
	_Atomic uint64_t after_stop;
	_Atomic uint64_t accepted;
	_Atomic uint64_t ended;
};

static void
start_stop_task(hwt_timeout timeout, void *arg)
{
	struct start_stop *race = arg;

	(void)timeout;
	race->after_stop += race->stopped;
	race->ended++;
}

static void
start_stop_body(unsigned index, void *arg)
{
	struct start_stop *race = arg;
	struct hwt_unprocessed unprocessed;
	int rc;

	if (index == 0) {
		if (hwt_stop(race->timer, &unprocessed) != 0)
			abort();
		race->stopped = 1;
		race->ended += unprocessed.count;
		return;
	}
	rc = hwt_new_timeout(race->timer, NULL, start_stop_task, race, 0);
	if (rc == 0)
		race->accepted++;
	else if (rc != -ESHUTDOWN)
		abort();
}

Test(wrong_wheels, the_first_timeout_against_a_stop_neither_hangs_nor_is_lost)
{
	/* A fresh timer each time: the start of its worker is in the race. */
	for (unsigned turn = 0; turn < 500; turn++) {
		struct hwt_options options = {.tick_ns = HWT_US(10)};
		struct start_stop race = {0};

		assert_ok(hwt_create(&race.timer, &options));
		in_parallel(2, start_stop_body, &race);

		assert_u64(race.after_stop, 0);
		assert_u64(race.ended, race.accepted);
		assert_u64(hwt_pending_timeouts(race.timer), 0);
		assert_ok(hwt_destroy(race.timer));
	}
}

struct two_stops {
	struct hwt *timer;
	struct gate gate;
	_Atomic uint64_t stopped;
	_Atomic uint64_t too_early;
};

static void
two_stops_body(unsigned index, void *arg)
{
	struct two_stops *stops = arg;

	if (index < 2) {
		if (hwt_stop(stops->timer, NULL) != 0)
			abort();
		stops->stopped++;
		return;
	}
	/* Time enough for a stop that does not wait to return. */
	while (hwt_new_timeout(stops->timer, NULL, idle_task, NULL, HOUR) == 0)
		sleep_ns(HWT_US(100));
	sleep_ns(HWT_MS(30));
	stops->too_early = stops->stopped;
	gate_open(&stops->gate);
}

Test(wrong_wheels, a_second_stop_waits_for_the_same_end_as_the_first)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct two_stops stops = {0};
	struct probe probe = {.then = probe_then_gate, .data = &stops.gate};

	gate_init(&stops.gate);
	assert_ok(hwt_create(&stops.timer, &options));
	assert_ok(hwt_new_timeout(stops.timer, NULL, probe_task, &probe, 0));
	gate_await(&stops.gate);

	in_parallel(3, two_stops_body, &stops);

	assert_u64(stops.too_early, 0);
	assert_u64(stops.stopped, 2);
	assert_u64(probe.runs, 1);
	assert_ok(hwt_destroy(stops.timer));
}
