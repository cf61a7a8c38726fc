/* SPDX-License-Identifier: Apache-2.0 */
/*
 * on-tick: a timeout is handed over on its tick: the first boundary at or after
 * its deadline that has not been begun. Boundaries are the clock at hwt_create
 * plus whole ticks. There is no cap per tick.
 */
#include "test/spec/support.h"

#include "core/timer.h"

SUITE(on_tick);

ManualTest(
    on_tick, timeout_belongs_to_the_first_boundary_at_or_after_its_deadline)
{
	struct probe before = {0}, on = {0}, after = {0};

	manual_step(TICKS(3) / 4);
	probe_schedule(&before, TICKS(1) / 4);
	probe_schedule(&on, TICKS(5) / 4);
	probe_schedule(&after, TICKS(5) / 4 + 1);

	assert_u64(manual_tick(1), 1);
	assert_u64(manual_tick(2), 1);
	assert_u64(manual_tick(3), 1);
	cr_assert(before.order == 1 && on.order == 2 && after.order == 3);
}

/* Delay 0 is due at the next boundary, never inline. */
ManualTest(on_tick, delay_0_is_due_at_the_next_boundary)
{
	struct probe probe = {0};

	manual_tick(2);
	probe_schedule(&probe, 0);
	assert_u64(manual_step(0), 0);

	assert_u64(manual_step(FIXTURE_TICK - 1), 0);
	assert_u64(manual_step(1), 1);
}

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
