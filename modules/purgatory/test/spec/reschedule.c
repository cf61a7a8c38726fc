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

YardTest(reschedule, sooner)
{
	party_make(&yard);
	play("watch-ms 0 1 100000");
	assert_rc(move(&party[0], HWT_MS(5)), 0);
	assert_expires_in(&party[0], HWT_MS(5));
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
	play("timeouts 0");
	assert_rc(move(&party[0], HWT_MS(9)), 0);
	assert_rc(move(&party[0], HWT_MS(7)), 0);
	play("timeouts 1");
	assert_expires_in(&party[0], HWT_MS(7));
}

/* Whatever ends it, its timeout has gone then. */
YardTest(reschedule, a_deadline_that_was_added_goes_with_its_operation)
{
	struct operation operation[3] = {{.yard = &yard},
	    {.yard = &yard, .holds = 2, .counts = true}, {.yard = &yard}};
	unsigned i;

	for (i = 0; i < 3; i++) {
		assert_rc(watch_key(&operation[i], KEY(i), HWT_NEVER), 0);
		assert_rc(move(&operation[i], HWT_SEC(1)), 0);
	}
	assert_rc(hwt_operation_cancel(yard.purgatory, operation[0].handle), 0);
	assert_u64(check(&yard, KEY(1)), 1);
	assert_u64(cancel_key(&yard, KEY(2)), 1);
	assert_u64(hwt_pending_timeouts(yard.fixture.timer), 0);
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

static void
move_itself(struct operation *operation)
{
	operation->rc = move(operation, HWT_MS(30));
}

static void
moves_itself_in_its_predicate(uint64_t delay_ns)
{
	struct operation operation = {.yard = &yard, .in_try = move_itself};

	yard_open(&yard, NULL);
	assert_rc(watch_key(&operation, KEY(1), delay_ns), 0);
	assert_rc(operation.rc, 0);
	assert_expires_in(&operation, HWT_MS(30));
	yard_close(&yard);
}

Test(reschedule, a_predicate_moves_its_own_operation)
{
	moves_itself_in_its_predicate(HWT_MS(5));
	moves_itself_in_its_predicate(HWT_NEVER);
}

YardTest(reschedule, in_done_it_has_ended)
{
	party_make(&yard);
	party[0].in_done = move_itself;
	play("watch-ms 0 1 5, pass 6, expired 0");
	assert_rc(party[0].rc, -ENOENT);
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

/* The timer's executor holds the timeout: the deadline has come. Another call
 * may still decide. */
Test(reschedule, an_expiry_that_is_handed_over_is_ENOENT)
{
	static struct recording_executor executor;
	const struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .executor = &executor.hook};

	party_make(&yard);
	executor_init(&executor, EXECUTOR_HOLDS);
	fixture_open(&yard.fixture, &options);
	assert_rc(
	    hwt_purgatory_create(&yard.purgatory, yard.fixture.timer, NULL), 0);
	play("watch-ms 0 1 5, pass 10, pending 0");
	assert_rc(move(&party[0], HWT_MS(40)), -ENOENT);
	assert_rc(move(&party[0], HWT_NEVER), -ENOENT);
	play("complete 0, completed 0");
	assert_rc(executor_run(&executor, 0), -ENOENT);
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

Test(reschedule, hwt_operation_reschedule_ENOBUFS_of_the_timer)
{
	const struct hwt_options options = {
	    .tick_ns = FIXTURE_TICK, .max_pending = 1};

	party_make(&yard);
	fixture_open(&yard.fixture, &options);
	assert_rc(
	    hwt_purgatory_create(&yard.purgatory, yard.fixture.timer, NULL), 0);
	play("watch 0 1, watch-ms 1 1 5");
	assert_rc(hwt_operation_reschedule(
		      yard.purgatory, party[0].handle, HWT_MS(5)),
	    -ENOBUFS);
	assert_rc(move(&party[1], HWT_MS(9)), 0);
	play("pass 11, expired 1, pending 0");
	assert_rc(move(&party[0], HWT_MS(5)), 0);
	assert_expires_in(&party[0], HWT_MS(5));
	yard_close(&yard);
}

Test(reschedule, hwt_operation_reschedule_ESHUTDOWN_of_the_timer)
{
	static struct operation one, two;

	yard_open(&yard, NULL);
	one.yard = two.yard = &yard;
	assert_rc(watch_key(&one, KEY(1), HWT_NEVER), 0);
	assert_rc(watch_key(&two, KEY(1), HWT_MS(5)), 0);
	assert_rc(hwt_stop(yard.fixture.timer, NULL), 0);
	assert_rc(
	    hwt_operation_reschedule(yard.purgatory, one.handle, HWT_MS(5)),
	    -ESHUTDOWN);
	assert_rc(move(&two, HWT_MS(9)), -ESHUTDOWN);
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
	assert_rc(move(&two, HWT_MS(9)), -ENOENT);
	assert_ended(&one, HWT_SHUT_DOWN);
	assert_ended(&two, HWT_SHUT_DOWN);
	assert_rc(hwt_purgatory_destroy(yard.purgatory), 0);
	assert_rc(hwt_destroy(yard.fixture.timer), 0);
}

YardTest(reschedule, hwt_operation_reschedule_ENOMEM_changes_nothing)
{
	struct operation operation = {.yard = &yard};
	uint64_t nth;
	int rc = 1;

	assert_rc(watch_key(&operation, KEY(1), HWT_NEVER), 0);
	for (nth = 1; rc != 0; nth++) {
		fault_arm(FAULT_MEMORY, nth);
		rc = hwt_operation_reschedule(
		    yard.purgatory, operation.handle, HWT_MS(5));
		(void)fault_disarm();
		assert_rc(rc, rc != 0 ? -ENOMEM : 0);
	}
	cr_assert(nth > 2);
	assert_expires_in(&operation, HWT_MS(5));
}

Test(reschedule, hwt_operation_reschedule_EAGAIN_when_no_thread_can_be_had)
{
	static struct operation operation;
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};

	assert_rc(hwt_create(&yard.fixture.timer, &options), 0);
	assert_rc(
	    hwt_purgatory_create(&yard.purgatory, yard.fixture.timer, NULL), 0);
	operation.yard = &yard;
	assert_rc(watch_key(&operation, KEY(1), HWT_NEVER), 0);
	fault_arm_thread(EAGAIN);
	assert_rc(hwt_operation_reschedule(
		      yard.purgatory, operation.handle, HWT_SEC(1)),
	    -EAGAIN);
	(void)fault_disarm();
	assert_pending(&operation);
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
	assert_ended(&operation, HWT_SHUT_DOWN);
	assert_rc(hwt_purgatory_destroy(yard.purgatory), 0);
	assert_rc(hwt_stop(yard.fixture.timer, NULL), 0);
	assert_rc(hwt_destroy(yard.fixture.timer), 0);
}
