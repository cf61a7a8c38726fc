/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no-lost-event: who changes the state and then checks completes what holds by
 * then, also while the operation is being watched or its predicate is running.
 * Nobody waits.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(no_lost_event);

static struct gate gate;

static void *
watch_slowly(void *operation)
{
	party[0].rc = watch_key(operation, KEY(1), HWT_SEC(1));
	return NULL;
}

/* The predicate looks at the state, and then takes its time. */
PurgatoryTest(no_lost_event, an_event_while_it_is_being_watched)
{
	pthread_t thread;

	gate_init(&gate);
	party[0].in_try = pass_gate_once;
	party[0].data = &gate;
	assert_rc(pthread_create(&thread, NULL, watch_slowly, &party[0]), 0);
	gate_await(&gate);
	play("holds 0, check 1 0");
	gate_open(&gate);
	assert_rc(pthread_join(thread, NULL), 0);
	assert_rc(party[0].rc, 1);
	play("completed 0, tries 0 2");
}

/* Kafka's testDelayedOperationLock: 100 operations with keys of their own, and
 * 20 threads that check each while the predicates take their time. */
#define MANY 100
#define CHECKERS 20

static void
yields(struct operation *operation)
{
	(void)operation;
	(void)sched_yield();
}

static void
check_all(unsigned index, void *arg)
{
	struct operation *operation = arg;
	unsigned i;

	for (i = 0; i < MANY; i++) {
		if (index == i % CHECKERS)
			operation[i].holds = 1;
		(void)check(KEY(i));
	}
}

PurgatoryTest(no_lost_event, a_hundred_operations_under_twenty_threads)
{
	static struct operation operation[MANY];
	unsigned i;

	for (i = 0; i < MANY; i++) {
		operation[i].in_try = yields;
		assert_rc(watch_key(&operation[i], KEY(i), HWT_NEVER), 0);
	}
	in_parallel(CHECKERS, check_all, operation);
	for (i = 0; i < MANY; i++)
		assert_ended(&operation[i], HWT_COMPLETED);
	assert_u64(stats_now().completed, MANY);
}
