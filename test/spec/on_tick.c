/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on-tick: a timeout is handed over on its tick: the first boundary at or after
 * its deadline that has not been begun. Boundaries are the clock at hwt_create
 * plus whole ticks. There is no cap per tick.
 */
#include "test/spec/support.h"

#include "core/timer.h"

SUITE(on_tick);

/* The wheel is turned to turned_ns, and the clock goes on to called_ns. */
static const struct {
	const char *what;
	uint64_t turned_ns, called_ns, delay_ns, tick;
} calls[] = {
    {"a deadline on a boundary", TICKS(3) / 4, TICKS(3) / 4, TICKS(1) / 4, 1},
    {"0 at creation", 0, 0, 0, 1},
    {"0 on a boundary that was begun", TICKS(2), TICKS(2), 0, 3},
    {"0 on a boundary that was not begun", 0, TICKS(2), 0, 3},
    {"0 between boundaries", TICKS(2) + 1, TICKS(2) + 1, 0, 3},
    {"the first of all, late", 0, TICKS(3) + 7, 1, 4},
};

Test(on_tick, timeout_belongs_to_the_first_boundary_at_or_after_its_deadline)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct probe probe = {0};

		manual_open(NULL);
		if (calls[i].turned_ns > 0)
			manual_step(calls[i].turned_ns);
		manual.now_ns = manual.start_ns + calls[i].called_ns;
		probe_schedule(&probe, calls[i].delay_ns);
		manual_step(0);

		manual_step(
		    manual.start_ns + TICKS(calls[i].tick) - 1 - manual.now_ns);
		cr_assert(probe.runs == 0, "%s: early", calls[i].what);
		manual_step(1);
		cr_assert(probe.runs == 1, "%s: late", calls[i].what);
		manual_close();
	}
}

Test(on_tick, boundaries_are_the_clock_at_create_plus_whole_ticks)
{
	static const uint64_t starts[] = {
	    1, FIXTURE_TICK - 1, FIXTURE_TICK, UINT64_C(1) << 62};

	for (size_t i = 0; i < 4; i++) {
		struct fixture fixture = {.start_ns = starts[i]};
		struct probe probe = {.fixture = &fixture};

		fixture_open(&fixture, NULL);
		probe_schedule(&probe, 1);
		assert_u64(fixture_step(&fixture, FIXTURE_TICK - 1), 0);
		assert_u64(fixture_step(&fixture, 1), 1);
		fixture_close(&fixture);
	}
}

#define MANY 150000

/* From inside: how many records wait in the queue. */
static uint64_t
queued(void)
{
	const struct record_store *store = &manual.timer->store;
	uint64_t count = 0;

	for (uint32_t slab = 0; slab < store_limit(store); slab++)
		for (uint32_t page = 0; page < SLAB_PAGES; page++)
			count +=
			    (uint64_t)__builtin_popcountll(a64_load_acquire(
				&slab_at(store, slab)->queued[page].bits));
	return count;
}

static void
then_count_queued(struct probe *probe)
{
	*(uint64_t *)probe->data = queued();
}

#define MILLION 1000000

/* They are pulled in to soon after what is due, or to much later. */
Test(on_tick, due_timeout_does_not_wait_for_a_million_that_were_pulled_in)
{
	static const uint64_t pulled_in_ns[] = {TICKS(1) + 1, HWT_SEC(3600)};
	static hwt_timeout timeouts[MILLION];

	for (unsigned i = 0; i < 2; i++) {
		uint64_t waiting = 0;
		struct probe probe = {
		    .then = then_count_queued, .data = &waiting};

		manual_open(NULL);
		for (unsigned k = 0; k < MILLION; k++)
			timeouts[k] = schedule_task(
			    manual.timer, idle_task, HWT_SEC(7200));
		manual_step(0);
		probe_schedule(&probe, TICKS(1));
		assert_u64(manual_wait(), TICKS(1));
		for (unsigned k = 0; k < MILLION; k++)
			assert_ok(hwt_reschedule(
			    manual.timer, timeouts[k], pulled_in_ns[i]));

		assert_u64(manual_step(TICKS(1)), 1);

		assert_u64(waiting, MILLION);
		assert_u64(queued(), 0);
		manual_close();
	}
}
