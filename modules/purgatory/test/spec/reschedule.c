/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_operation_reschedule: an operation expires at the deadline that was set
 * last, not before it; whether a call has set one is answered exactly.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(reschedule);

static struct yard yard;

static int
move(const struct operation *operation, uint64_t delay_ns)
{
	return hwt_operation_reschedule(
	    operation->yard->purgatory, operation->handle, delay_ns);
}

/* Pending until then, from now on. */
static void
assert_expires_in(struct operation *operation, uint64_t delay_ns)
{
	(void)fixture_step(&operation->yard->fixture, delay_ns - FIXTURE_TICK);
	assert_pending(operation);
	(void)fixture_step(&operation->yard->fixture, 2 * FIXTURE_TICK);
	assert_ended(operation, HWT_EXPIRED);
}

YardTest(reschedule, later)
{
	party_make(&yard);
	play("watch-ms 0 1 20, pass 10");
	assert_rc(move(&party[0], HWT_MS(50)), 0);
	assert_expires_in(&party[0], HWT_MS(50));
	play("timeouts 0");
}

YardTest(reschedule, delay_0_expires_at_the_next_tick)
{
	party_make(&yard);
	play("watch-ms 0 1 100000");
	assert_rc(move(&party[0], 0), 0);
	play("runs 0 0, runs 1 1, expired 0");
}

YardTest(reschedule, never_and_back)
{
	party_make(&yard);
	play("watch-ms 0 1 20");
	assert_rc(move(&party[0], HWT_NEVER), 0);
	play("pass 1000000000, pending 0");
	assert_rc(move(&party[0], HWT_MS(7)), 0);
	assert_expires_in(&party[0], HWT_MS(7));
}

YardTest(reschedule, one_without_a_deadline_gets_one)
{
	party_make(&yard);
	play("watch 0 1");
	assert_rc(move(&party[0], HWT_NEVER), 0);
	assert_rc(move(&party[0], HWT_MS(9)), 0);
	assert_rc(move(&party[0], HWT_MS(7)), 0);
	play("timeouts 1");
	assert_expires_in(&party[0], HWT_MS(7));
}

YardTest(reschedule, hwt_operation_reschedule_ENOENT_of_what_has_ended)
{
	const struct operation none = {.yard = &yard};

	party_make(&yard);
	play("watch-ms 0 1 1, cancel-key 1 1");
	assert_rc(move(&party[0], HWT_MS(1)), -ENOENT);
	assert_rc(move(&party[0], HWT_NEVER), -ENOENT);
	assert_rc(move(&none, HWT_MS(1)), -ENOENT);
	/* The next one has its record, and its deadline stays. */
	play("watch-ms 1 1 50");
	assert_rc(move(&party[0], HWT_MS(1)), -ENOENT);
	assert_expires_in(&party[1], HWT_MS(50));
	assert_rc(move(&party[1], HWT_MS(50)), -ENOENT);
}

/* A predicate that runs on another thread. */

static void
moved_while_its_predicate_runs(uint64_t delay_ns)
{
	struct operation operation = {.holds = 0};
	pthread_t thread = hold_predicate(&yard, &operation, delay_ns);

	assert_rc(move(&operation, HWT_MS(40)), 0);
	(void)fixture_step(&yard.fixture, HWT_MS(10));
	let_go(thread);
	assert_expires_in(&operation, HWT_MS(30));
	yard_close(&yard);
}

Test(reschedule, one_whose_predicate_runs_is_moved_at_once)
{
	moved_while_its_predicate_runs(HWT_MS(5));
	moved_while_its_predicate_runs(HWT_NEVER);
}

Test(reschedule, an_expiry_that_its_runner_has_taken_over_is_ENOENT)
{
	struct operation operation = {.holds = 0};
	pthread_t thread = hold_predicate(&yard, &operation, HWT_MS(5));

	assert_u64(fixture_step(&yard.fixture, HWT_MS(10)), 1);
	assert_rc(move(&operation, HWT_MS(40)), -ENOENT);
	let_go(thread);
	assert_ended(&operation, HWT_EXPIRED);
	yard_close(&yard);
}

/* What is refused changes nothing. */

YardTest(reschedule, hwt_operation_reschedule_EINVAL_changes_nothing)
{
	party_make(&yard);
	play("watch-ms 0 1 5");
	assert_rc(hwt_operation_reschedule(NULL, party[0].handle, 1), -EINVAL);
	assert_rc(move(&party[0], UINT64_C(1) << 63), -EINVAL);
	assert_rc(move(&party[0], HWT_NEVER - 1), -EINVAL);
	assert_expires_in(&party[0], HWT_MS(5));
}
