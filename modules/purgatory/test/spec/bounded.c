/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounded: no expiry is delayed by a walk or by another's predicate, and one
 * check visits an operation once, also if it is watched again meanwhile.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <stdlib.h>

SUITE(bounded);

#define WAITERS 1000

static struct yard yard;
static struct gate gate;

static void *
walk(void *arg)
{
	*(size_t *)arg = check(&yard, KEY(1));
	return NULL;
}

/* The walk stands in the middle of a long list, in a predicate that takes its
 * time: others expire, are cancelled and are watched under the same key. */
YardTest(bounded, a_predicate_that_takes_long_holds_up_its_own_operation_only)
{
	static struct operation operation[WAITERS];
	struct operation other = {.yard = &yard, .holds = 1};
	size_t completed = 99;
	pthread_t thread;
	unsigned i;

	gate_init(&gate);
	for (i = 0; i < WAITERS; i++) {
		operation[i].yard = &yard;
		operation[i].in_try = pass_gate_once;
		assert_rc(watch_key(&operation[i], KEY(1),
			      i % 2 == 0 ? HWT_MS(5) : HWT_NEVER),
		    0);
	}
	operation[WAITERS / 2].data = &gate;
	assert_rc(pthread_create(&thread, NULL, walk, &completed), 0);
	gate_await(&gate);
	assert_u64(fixture_step(&yard.fixture, HWT_MS(10)), WAITERS / 2);
	for (i = 0; i < WAITERS; i += 2)
		assert_u64(operation[i].dones, i != WAITERS / 2);
	assert_rc(watch_key(&other, KEY(1), HWT_SEC(1)), 1);
	assert_u64(cancel_key(&yard, KEY(1)), WAITERS / 2);
	assert_stats(&yard, 1, 1, 1);
	gate_open(&gate);
	assert_rc(pthread_join(thread, NULL), 0);
	assert_u64(completed, 0);
	for (i = 0; i < WAITERS; i++)
		assert_ended(
		    &operation[i], i % 2 == 0 ? HWT_EXPIRED : HWT_CANCELLED);
}

/* Each that completes is watched again at once, under the same key. */
static void
watch_again(struct operation *operation)
{
	if (operation->outcome == HWT_SHUT_DOWN)
		return;
	operation->dones = 0;
	operation->count++;
	operation->counts = true;
	operation->holds = operation->tries + 2;
	assert_rc(watch_key(operation, KEY(1), HWT_NEVER), 0);
}

Test(bounded, what_is_watched_again_is_not_visited_twice)
{
	static struct operation operation[WAITERS];
	unsigned sizes[] = {1, 31, 32, 33, 64, 65, WAITERS};
	unsigned size, i;

	for (size = 0; size < sizeof(sizes) / sizeof(sizes[0]); size++) {
		yard_open(&yard, NULL);
		for (i = 0; i < sizes[size]; i++) {
			operation[i] = (struct operation){.yard = &yard,
			    .in_done = watch_again,
			    .counts = true,
			    .holds = 2};
			assert_rc(
			    watch_key(&operation[i], KEY(1), HWT_NEVER), 0);
		}
		assert_u64(check(&yard, KEY(1)), sizes[size]);
		for (i = 0; i < sizes[size]; i++)
			assert_u64(operation[i].count, 1);
		assert_u64(cancel_key(&yard, KEY(1)), sizes[size]);
		for (i = 0; i < sizes[size]; i++)
			assert_u64(operation[i].count, 2);
		yard_close(&yard);
	}
}

static void
watch_value_again(struct operation *operation)
{
	if (operation->outcome == HWT_SHUT_DOWN)
		return;
	operation->dones = 0;
	operation->count++;
	assert_rc(watch_value(operation, KEY(1), 1000 + operation->count), 0);
}

YardTest(bounded, nor_are_values_when_a_key_is_cancelled)
{
	static struct operation operation[WAITERS];
	unsigned i;

	for (i = 0; i < WAITERS; i++) {
		operation[i] = (struct operation){
		    .yard = &yard, .in_done = watch_value_again};
		assert_rc(watch_value(&operation[i], KEY(1), 1 + i), 0);
	}
	assert_u64(cancel_key(&yard, KEY(1)), WAITERS);
	for (i = 0; i < WAITERS; i++)
		assert_u64(operation[i].count, 1);
	assert_stats(&yard, WAITERS, WAITERS, 1);
}

/* Several walks at once, of which the first stands still. */
YardTest(bounded, walks_pass_each_other)
{
	static struct operation operation[WAITERS];
	size_t completed = 0;
	pthread_t thread;
	unsigned i;

	gate_init(&gate);
	for (i = 0; i < WAITERS; i++) {
		operation[i] = (struct operation){.yard = &yard,
		    .in_try = pass_gate_once,
		    .counts = true,
		    .holds = 3};
		assert_rc(watch_key(&operation[i], KEY(1), HWT_NEVER), 0);
	}
	operation[100].data = &gate;
	assert_rc(pthread_create(&thread, NULL, walk, &completed), 0);
	gate_await(&gate);
	/* Those before it were tried by the first walk already. */
	assert_u64(check(&yard, KEY(1)), 100);
	assert_stats(&yard, WAITERS - 100, WAITERS - 100, 1);
	gate_open(&gate);
	assert_rc(pthread_join(thread, NULL), 0);
	assert_u64(completed, WAITERS - 100);
	assert_stats(&yard, 0, 0, 0);
}

/* Events of others, one during each call of the predicate. */

#define AGAIN_MAX 16u

static unsigned marks; /* to come */

static void *
check_beside(void *arg)
{
	(void)arg;
	assert_u64(check(&yard, KEY(1)), 0);
	return NULL;
}

static void
let_another_check(struct operation *operation)
{
	pthread_t thread;

	(void)operation;
	if (marks == 0)
		return;
	marks--;
	cr_assert(pthread_create(&thread, NULL, check_beside, NULL) == 0);
	cr_assert(pthread_join(thread, NULL) == 0);
}

/* One call that has served others so often has ended, and an event is left. */
static void
leave_one(struct operation *operation, uint64_t delay_ns)
{
	*operation = (struct operation){.yard = &yard};
	assert_rc(watch_key(operation, KEY(1), delay_ns), 0);
	operation->in_try = let_another_check;
	operation->tries = 0;
	marks = 1000;
	assert_u64(check(&yard, KEY(1)), 0);
	assert_u64(operation->tries, 1 + AGAIN_MAX);
	assert_pending(operation);
}

Test(bounded, a_call_calls_no_more_than_16_predicates_for_events_of_others)
{
	struct operation operation;

	yard_open(&yard, NULL);
	leave_one(&operation, HWT_SEC(1));
	yard_close(&yard);
	assert_ended(&operation, HWT_SHUT_DOWN);
}

/* No event is lost by that, though no other comes. */
YardTest(bounded, what_it_leaves_a_task_of_the_timer_does_at_the_next_tick)
{
	struct operation operation;

	leave_one(&operation, HWT_NEVER);
	(void)fixture_tick(&yard.fixture, 1);
	assert_u64(operation.tries, 2 + AGAIN_MAX);
	marks = 0;
	operation.holds = 1;
	(void)fixture_tick(&yard.fixture, 2);
	assert_u64(operation.tries, 3 + AGAIN_MAX);
	assert_ended(&operation, HWT_COMPLETED);
	(void)fixture_tick(&yard.fixture, 3);
	assert_u64(hwt_pending_timeouts(yard.fixture.timer), 0);
}

YardTest(bounded, or_the_next_event_does)
{
	struct operation operation;

	leave_one(&operation, HWT_SEC(1));
	marks = 0;
	assert_u64(check(&yard, KEY(1)), 0);
	assert_u64(operation.tries, 2 + AGAIN_MAX);
	(void)fixture_tick(&yard.fixture, 1);
	assert_u64(operation.tries, 2 + AGAIN_MAX);
	operation.holds = 1;
	assert_u64(check(&yard, KEY(1)), 1);
	assert_ended(&operation, HWT_COMPLETED);
}

YardTest(bounded, what_is_left_can_be_cancelled_and_its_record_serves_another)
{
	static struct operation operation;
	static struct operation other;
	bool reused;

	leave_one(&operation, HWT_SEC(1));
	assert_rc(hwt_operation_cancel(yard.purgatory, operation.handle), 0);
	assert_ended(&operation, HWT_CANCELLED);
	do {
		other = (struct operation){.yard = &yard};
		assert_rc(watch_key(&other, KEY(2), HWT_SEC(1)), 0);
		reused =
		    ((other.handle.id ^ operation.handle.id) & 0xfffffff) == 0;
		if (!reused)
			assert_u64(cancel_key(&yard, KEY(2)), 1);
	} while (!reused);
	other.tries = 0;
	(void)fixture_tick(&yard.fixture, 1);
	assert_u64(other.tries, 0);
}

Test(bounded, what_was_left_may_be_gone_when_the_purgatory_is_destroyed)
{
	struct operation operation;

	yard_open(&yard, NULL);
	leave_one(&operation, HWT_SEC(1));
	assert_rc(hwt_operation_cancel(yard.purgatory, operation.handle), 0);
	assert_u64(hwt_pending_timeouts(yard.fixture.timer), 1);
	assert_rc(hwt_purgatory_destroy(yard.purgatory), 0);
	assert_u64(hwt_pending_timeouts(yard.fixture.timer), 0);
	fixture_close(&yard.fixture);
}

Test(bounded, a_timer_that_was_stopped_holds_up_no_shutdown)
{
	struct operation operation;

	yard_open(&yard, NULL);
	leave_one(&operation, HWT_NEVER);
	assert_rc(hwt_stop(yard.fixture.timer, NULL), 0);
	yard_close(&yard);
	assert_ended(&operation, HWT_SHUT_DOWN);
}

/* Then it can leave nothing, and loses nothing either. */
Test(bounded, without_a_timeout_or_memory_a_call_goes_on)
{
	struct operation operation = {.yard = &yard};
	unsigned faults;

	for (faults = 0; faults < 2; faults++) {
		operation = (struct operation){.yard = &yard};
		yard_open(&yard, NULL);
		assert_rc(watch_key(&operation, KEY(1), HWT_NEVER), 0);
		operation.in_try = let_another_check;
		operation.tries = 0;
		marks = 3 * AGAIN_MAX;
		if (faults == 0)
			assert_rc(hwt_stop(yard.fixture.timer, NULL), 0);
		else
			fault_arm(FAULT_HEAP, FAULT_ALWAYS);
		assert_u64(check(&yard, KEY(1)), 0);
		(void)fault_disarm();
		assert_u64(operation.tries, 1 + 3 * AGAIN_MAX);
		yard_close(&yard);
	}
}
