/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounded: no expiry is delayed by a walk or by another's predicate, and one
 * check visits an operation once, also if it is watched again meanwhile.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(bounded);

#define WAITERS 1000

static struct gate gate;

static void *
walk(void *arg)
{
	*(size_t *)arg = check(KEY(1));
	return NULL;
}

/* The walk stands in the middle of a long list, in a predicate that takes its
 * time: others expire, are cancelled and are watched under the same key. */
PurgatoryTest(
    bounded, a_predicate_that_takes_long_holds_up_its_own_operation_only)
{
	static struct operation operation[WAITERS];
	struct operation other = {.holds = 1};
	size_t completed = 99;
	pthread_t thread;
	unsigned i;

	gate_init(&gate);
	for (i = 0; i < WAITERS; i++) {
		operation[i].in_try = pass_gate_once;
		assert_rc(watch_key(&operation[i], KEY(1),
			      i % 2 == 0 ? HWT_MS(5) : HWT_NEVER),
		    0);
	}
	operation[WAITERS / 2].data = &gate;
	assert_rc(pthread_create(&thread, NULL, walk, &completed), 0);
	gate_await(&gate);
	assert_u64(fixture_step(&manual, HWT_MS(10)), WAITERS / 2);
	for (i = 0; i < WAITERS; i += 2)
		assert_u64(operation[i].dones, i != WAITERS / 2);
	assert_rc(watch_key(&other, KEY(1), HWT_SEC(1)), 1);
	assert_u64(cancel_key(KEY(1)), WAITERS / 2);
	assert_stats(1, 1, 1);
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
		purgatory_open(NULL);
		for (i = 0; i < sizes[size]; i++) {
			operation[i] = (struct operation){
			    .in_done = watch_again, .counts = true, .holds = 2};
			assert_rc(
			    watch_key(&operation[i], KEY(1), HWT_NEVER), 0);
		}
		assert_u64(check(KEY(1)), sizes[size]);
		for (i = 0; i < sizes[size]; i++)
			assert_u64(operation[i].count, 1);
		assert_u64(cancel_key(KEY(1)), sizes[size]);
		for (i = 0; i < sizes[size]; i++)
			assert_u64(operation[i].count, 2);
		purgatory_close();
	}
}

static void
count_pending(struct operation *operation)
{
	operation->count = stats_now().pending;
}

PurgatoryTest(bounded, a_walk_holds_the_lock_for_32_operations)
{
	static struct operation operation[100];
	unsigned i;

	for (i = 0; i < 100; i++) {
		operation[i].in_done = count_pending;
		assert_rc(watch_key(&operation[i], KEY(1), HWT_NEVER), 0);
	}
	assert_u64(cancel_key(KEY(1)), 100);
	assert_u64(operation[0].count, 68);
	assert_u64(operation[99].count, 0);
}
