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
	uint64_t turns;

	/* Asked for on a boundary, between two, and just before one. */
	for (turns = 1; turns <= 3; turns++) {
		struct fixture fixture = {0};
		struct probe probes[3] = {{.fixture = &fixture},
		    {.fixture = &fixture}, {.fixture = &fixture}};

		fixture_open(&fixture, NULL);
		fixture_tick(&fixture, 5);
		probe_schedule(&probes[0], turns * TURN);
		fixture_step(&fixture, FIXTURE_TICK / 2);
		probe_schedule(&probes[1], turns * TURN);
		fixture_step(&fixture, FIXTURE_TICK / 2 - 1);
		probe_schedule(&probes[2], turns * TURN);

		assert_u64(
		    fixture_tick(&fixture, 4 + turns * FIXTURE_WHEEL), 0);
		assert_u64(
		    fixture_tick(&fixture, 5 + turns * FIXTURE_WHEEL), 1);
		assert_u64(probes[0].runs, 1);
		assert_u64(
		    fixture_tick(&fixture, 6 + turns * FIXTURE_WHEEL), 2);
		fixture_close(&fixture);
	}
}

Test(wrong_wheels, a_delay_of_a_turn_when_the_worker_lags_is_not_a_round_off)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};

	/* It is scheduled ten ticks after the last tick that was begun. */
	fixture_open(&fixture, NULL);
	fixture_tick(&fixture, 3);
	fixture.now_ns += 10 * FIXTURE_TICK;
	probe_schedule(&probe, TURN);

	assert_u64(fixture_tick(&fixture, 13 + FIXTURE_WHEEL - 1), 0);
	assert_u64(fixture_tick(&fixture, 13 + FIXTURE_WHEEL), 1);

	fixture_close(&fixture);
}

Test(wrong_wheels, the_shortest_and_the_longest_delay_side_by_side)
{
	struct fixture fixture = {0};
	struct probe none = {.fixture = &fixture};
	struct probe tick = {.fixture = &fixture};
	struct probe never = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	probe_schedule(&never, UINT64_MAX);
	probe_schedule(&tick, FIXTURE_TICK);
	probe_schedule(&none, 0);

	assert_u64(fixture_step(&fixture, 0), 0);
	assert_u64(fixture_tick(&fixture, 1), 2);
	assert_u64(none.runs, 1);
	assert_u64(tick.runs, 1);
	assert_u64(fixture_step(&fixture, UINT64_C(1) << 61), 0);

	assert_u64(hwt_pending_timeouts(fixture.timer), 1);
	assert_rc(hwt_cancel(fixture.timer, never.handle), 0);
	assert_u64(hwt_pending_timeouts(fixture.timer), 0);
	fixture_close(&fixture);
}

Test(wrong_wheels, a_deadline_that_would_overflow_is_not_due_at_once)
{
	static const uint64_t delays[] = {(UINT64_C(1) << 63) - 1,
	    (UINT64_C(1) << 63) - 1 - FIXTURE_START, UINT64_MAX};
	struct fixture fixture = {0};
	unsigned index;

	fixture_open(&fixture, NULL);
	for (index = 0; index < 3; index++)
		assert_rc(hwt_new_timeout(fixture.timer, NULL, forbidden_task,
			      NULL, delays[index]),
		    0);

	assert_u64(fixture_tick(&fixture, 1), 0);
	assert_u64(fixture_step(&fixture, HOUR), 0);

	assert_u64(hwt_pending_timeouts(fixture.timer), 3);
	fixture_close(&fixture);
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
	unsigned index;

	/* In the middle of others of that bucket. */
	for (index = 0; index < 3; index++) {
		struct fixture fixture = {0};
		struct probe next = {.fixture = &fixture};
		struct scheduling scheduling = {
		    .next = &next, .delay_ns = turns[index] * TURN};
		struct probe first = {.fixture = &fixture,
		    .then = then_schedules,
		    .data = &scheduling};
		struct probe others[20];
		unsigned other;
		uint64_t due = 3 + turns[index] * FIXTURE_WHEEL;

		fixture_open(&fixture, NULL);
		for (other = 0; other < 20; other++) {
			others[other] = (struct probe){.fixture = &fixture};
			probe_schedule(&others[other], 3 * FIXTURE_TICK);
			if (other == 10)
				probe_schedule(&first, 3 * FIXTURE_TICK);
		}
		assert_u64(fixture_tick(&fixture, 3), 21);
		assert_rc(first.rc, 0);

		assert_u64(fixture_tick(&fixture, due - 1), 0);
		assert_u64(fixture_tick(&fixture, due), 1);
		assert_u64(next.runs, 1);
		fixture_close(&fixture);
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
	unsigned index;
	int rc;

	for (index = 0; index < NEIGHBOURS; index++) {
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
	unsigned index;

	/* Whichever runs first ends them all; a hundred fill many chunks. */
	fixture_open(&all.fixture, NULL);
	for (index = 0; index < NEIGHBOURS; index++) {
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

Test(wrong_wheels, what_is_still_queued_is_cancelled_and_its_record_reused)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};
	hwt_timeout stale;
	unsigned turn;

	/* The queue still holds the first one's entry when the next takes its
	 * record: the entry must not start it early, nor the stale handle name
	 * it. */
	fixture_open(&fixture, NULL);
	stale = schedule_task(fixture.timer, forbidden_task, FIXTURE_TICK);
	for (turn = 0; turn < 1000; turn++) {
		hwt_timeout next;

		assert_rc(hwt_cancel(fixture.timer, stale), 0);
		next =
		    schedule_task(fixture.timer, forbidden_task, FIXTURE_TICK);
		assert_rc(hwt_cancel(fixture.timer, stale), -ENOENT);
		assert_rc(hwt_reschedule(fixture.timer, stale, 0), -ENOENT);
		cr_assert(next.id != stale.id);
		stale = next;
	}
	assert_rc(hwt_cancel(fixture.timer, stale), 0);
	probe_schedule(&probe, 3 * FIXTURE_TICK);

	assert_u64(fixture_tick(&fixture, 2), 0);
	assert_u64(fixture_tick(&fixture, 3), 1);
	assert_u64(probe.runs, 1);
	fixture_close(&fixture);
}

Test(wrong_wheels, a_cancel_after_expiry_does_not_count_down_again)
{
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};
	struct probe other = {.fixture = &fixture};

	fixture_open(&fixture, NULL);
	probe_schedule(&probe, FIXTURE_TICK);
	probe_schedule(&other, HOUR);
	fixture_tick(&fixture, 1);
	assert_u64(hwt_pending_timeouts(fixture.timer), 1);

	assert_rc(hwt_cancel(fixture.timer, probe.handle), -ENOENT);
	assert_rc(hwt_cancel_wait(fixture.timer, probe.handle), -ENOENT);

	fixture_tick(&fixture, 20);
	assert_u64(hwt_pending_timeouts(fixture.timer), 1);
	assert_u64(fixture_stats(&fixture).cancelled, 0);
	fixture_close(&fixture);
}

Test(wrong_wheels, cancelled_within_their_own_tick_they_count_down_once)
{
	struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .max_pending = 10};
	struct fixture fixture = {0};
	hwt_timeout timeouts[10];
	uint64_t turn;
	unsigned index;

	/* Placed in the bucket that comes next; the limit would tell. */
	fixture_open(&fixture, &options);
	for (turn = 1; turn <= 50; turn++) {
		for (index = 0; index < 10; index++)
			timeouts[index] = schedule_task(
			    fixture.timer, forbidden_task, FIXTURE_TICK);
		assert_rc(hwt_new_timeout(
			      fixture.timer, NULL, forbidden_task, NULL, 0),
		    -ENOBUFS);
		fixture_step(&fixture, 0);
		for (index = 0; index < 10; index++)
			assert_rc(
			    hwt_cancel(fixture.timer, timeouts[index]), 0);
		assert_u64(hwt_pending_timeouts(fixture.timer), 0);
		assert_u64(fixture_tick(&fixture, turn), 0);
	}

	assert_u64(hwt_pending_timeouts(fixture.timer), 0);
	fixture_close(&fixture);
}

Test(wrong_wheels, rounds_inserted_in_falling_order_are_not_skipped)
{
	static struct probe probes[200];
	struct fixture fixture = {0};
	unsigned round;

	/* Whoever stops looking at the first later round misses the others. */
	fixture_open(&fixture, NULL);
	for (round = 200; round-- > 0;) {
		probes[round].fixture = &fixture;
		probe_schedule(
		    &probes[round], FIXTURE_TICK + round % 20 * TURN);
	}

	for (round = 0; round < 20; round++)
		assert_u64(
		    fixture_tick(&fixture, 1 + round * FIXTURE_WHEEL), 10);
	fixture_close(&fixture);
}

static void
counting_task(hwt_timeout timeout, void *arg)
{
	uint64_t *count = arg;

	(void)timeout;
	++*count;
}

Test(wrong_wheels, a_quarter_of_a_million_queued_in_one_tick_are_all_on_time)
{
	struct fixture fixture = {0};
	uint64_t count = 0;
	uint64_t index;

	fixture_open(&fixture, NULL);
	for (index = 0; index < 250000; index++)
		assert_rc(hwt_new_timeout(fixture.timer, NULL, counting_task,
			      &count, index % 3 * FIXTURE_TICK),
		    0);

	/* Delays of 0 and of one tick are both due at tick 1. */
	assert_u64(fixture_tick(&fixture, 1), 166667);
	assert_u64(fixture_tick(&fixture, 2), 83333);

	assert_u64(count, 250000);
	fixture_close(&fixture);
}

Test(wrong_wheels, a_load_that_is_all_cancelled_does_not_hold_a_probe_up)
{
	struct fixture fixture = {0};
	uint64_t tick;
	unsigned index;

	fixture_open(&fixture, NULL);
	for (tick = 1; tick <= 20; tick++) {
		struct probe probe = {.fixture = &fixture};
		hwt_timeout timeouts[1000];

		probe_schedule(&probe, FIXTURE_TICK);
		for (index = 0; index < 1000; index++)
			timeouts[index] = schedule_task(
			    fixture.timer, forbidden_task, index * HWT_US(10));
		/* Half are placed when they are cancelled. */
		fixture_step(&fixture, 0);
		for (index = 0; index < 500; index++)
			assert_rc(
			    hwt_cancel(fixture.timer, timeouts[index]), 0);
		for (; index < 1000; index++)
			assert_rc(
			    hwt_cancel(fixture.timer, timeouts[index]), 0);

		assert_u64(fixture_tick(&fixture, tick), 1);
		assert_u64(probe.runs, 1);
	}
	fixture_close(&fixture);
}

/* A task that lets the test go and then spins a little, so that what the test
 * does next meets the worker at any moment on its way to sleep: there, a
 * wake-up that is lost is lost for an hour. */
struct drowsy {
	struct live live;
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
drowsy_open(struct drowsy *drowsy)
{
	live_open(&drowsy->live, &(struct hwt_options){.tick_ns = HWT_US(100)});
	assert_rc(hwt_new_timeout(
		      drowsy->live.timer, NULL, forbidden_task, NULL, HOUR),
	    0);
}

/* Returns while the worker falls asleep. */
static void
drowsy_turn(struct drowsy *drowsy, struct probe *probe)
{
	uint64_t turn = 0;

	*probe = (struct probe){.then = then_lets_go, .data = drowsy};
	drowsy->go = 0;
	drowsy->spins = rng_below(&drowsy->rng, 8000);
	assert_rc(
	    hwt_new_timeout(drowsy->live.timer, NULL, probe_task, probe, 0), 0);
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
	unsigned turn;

	drowsy_open(&drowsy);
	for (turn = 0; turn < 3000; turn++) {
		struct probe first;
		struct probe second = {0};

		drowsy_turn(&drowsy, &first);
		assert_rc(hwt_new_timeout(
			      drowsy.live.timer, NULL, probe_task, &second, 0),
		    0);
		await_run(&second);
		await_run(&first);
	}
	live_close(&drowsy.live);
}

Test(wrong_wheels, a_deadline_pulled_in_while_the_worker_falls_asleep)
{
	static struct drowsy drowsy;
	unsigned turn;

	drowsy_open(&drowsy);
	for (turn = 0; turn < 3000; turn++) {
		struct probe first;
		struct probe second = {0};
		hwt_timeout timeout;

		assert_rc(hwt_new_timeout(drowsy.live.timer, &timeout,
			      probe_task, &second, HOUR),
		    0);
		drowsy_turn(&drowsy, &first);
		assert_rc(hwt_reschedule(drowsy.live.timer, timeout, 0), 0);
		await_run(&second);
		await_run(&first);
	}
	live_close(&drowsy.live);
}

Test(wrong_wheels, after_hours_of_stall_the_next_tick_is_the_next_tick)
{
	static const uint64_t stalls[] = {HWT_SEC(3600) - 1, HWT_SEC(3600),
	    HWT_SEC(3600) + 1, HWT_SEC(86400) + 500};
	unsigned index;

	for (index = 0; index < 4; index++) {
		struct fixture fixture = {0};
		struct probe probe = {.fixture = &fixture};
		uint64_t next;

		fixture_open(&fixture, NULL);
		fixture_step(&fixture, stalls[index]);
		next = grid_tick(FIXTURE_TICK, stalls[index], 0);
		probe_schedule(&probe, 0);

		fixture.now_ns = FIXTURE_START + next * FIXTURE_TICK - 1;
		assert_u64(fixture_step(&fixture, 0), 0);
		assert_u64(fixture_tick(&fixture, next), 1);
		fixture_close(&fixture);
	}
}

Test(wrong_wheels, after_2_32_ticks_of_uptime_a_delay_is_still_that_delay)
{
	struct hwt_options options = {
	    .tick_ns = HWT_US(10), .ticks_per_wheel = 512};
	struct fixture fixture = {0};
	struct probe probe = {.fixture = &fixture};
	const uint64_t mark = UINT64_C(1) << 32;

	/* Scheduled before the count of ticks outgrows 32 bits, due after. */
	fixture_open(&fixture, &options);
	fixture_tick(&fixture, mark - 1000);
	probe_schedule(&probe, 2000 * HWT_US(10));
	assert_u64(fixture_tick(&fixture, mark - 1), 0);
	assert_u64(fixture_tick(&fixture, mark), 0);
	assert_u64(fixture_tick(&fixture, mark + 999), 0);
	assert_u64(fixture_tick(&fixture, mark + 1000), 1);
	fixture_close(&fixture);
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

Test(wrong_wheels, re_arming_with_delay_0_does_not_hold_a_tick_for_ever)
{
	struct fixture fixture = {0};
	struct probe probes[5];
	unsigned index;
	uint64_t tick;

	fixture_open(&fixture, NULL);
	for (index = 0; index < 5; index++) {
		probes[index] = (struct probe){
		    .fixture = &fixture, .then = then_rearms_with_delay_0};
		probe_schedule(&probes[index], 0);
	}

	for (tick = 1; tick <= 10; tick++)
		assert_u64(fixture_tick(&fixture, tick), 5);
	fixture_close(&fixture);
}

/* Counting and stopping. */

Test(wrong_wheels, refused_calls_leave_the_count_alone)
{
	struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .max_pending = 2};
	struct fixture fixture = {0};
	unsigned turn;

	fixture_open(&fixture, &options);
	for (turn = 0; turn < 2; turn++)
		assert_rc(hwt_new_timeout(
			      fixture.timer, NULL, forbidden_task, NULL, HOUR),
		    0);
	for (turn = 0; turn < 100; turn++)
		assert_rc(hwt_new_timeout(
			      fixture.timer, NULL, forbidden_task, NULL, HOUR),
		    -ENOBUFS);
	assert_u64(hwt_pending_timeouts(fixture.timer), 2);
	assert_rc(hwt_stop(fixture.timer, NULL), 0);
	for (turn = 0; turn < 100; turn++)
		assert_rc(hwt_new_timeout(
			      fixture.timer, NULL, forbidden_task, NULL, HOUR),
		    -ESHUTDOWN);

	assert_u64(hwt_pending_timeouts(fixture.timer), 0);
	fixture_close(&fixture);
}

Test(wrong_wheels, after_stop_nothing_is_pending_and_nothing_runs)
{
	struct live live = {0};
	unsigned index;

	live_open(&live, NULL);
	for (index = 0; index < 1000; index++)
		assert_rc(hwt_new_timeout(live.timer, NULL, forbidden_task,
			      NULL, HWT_SEC(60) + index),
		    0);

	assert_rc(hwt_stop(live.timer, NULL), 0);

	assert_u64(hwt_pending_timeouts(live.timer), 0);
	assert_u64(live_stats(&live).started, 0);
	live_close(&live);
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
	unsigned turn;

	/* A fresh timer each time: the start of its worker is in the race. */
	for (turn = 0; turn < 500; turn++) {
		struct hwt_options options = {.tick_ns = HWT_US(10)};
		struct start_stop race = {0};

		assert_rc(hwt_create(&race.timer, &options), 0);
		in_parallel(2, start_stop_body, &race);

		assert_u64(race.after_stop, 0);
		assert_u64(race.ended, race.accepted);
		assert_u64(hwt_pending_timeouts(race.timer), 0);
		assert_rc(hwt_destroy(race.timer), 0);
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
	assert_rc(hwt_create(&stops.timer, &options), 0);
	assert_rc(hwt_new_timeout(stops.timer, NULL, probe_task, &probe, 0), 0);
	gate_await(&stops.gate);

	in_parallel(3, two_stops_body, &stops);

	assert_u64(stops.too_early, 0);
	assert_u64(stops.stopped, 2);
	assert_u64(probe.runs, 1);
	assert_rc(hwt_destroy(stops.timer), 0);
}
