/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no-lost-event: who changes the state and then checks completes what holds by
 * then, also while the operation is being watched or its predicate is running.
 * Nobody waits.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <stdlib.h>

SUITE(no_lost_event);

static struct yard yard;
static struct gate gate;

/* Looks at the state, and then takes its time. */
static bool
slow_try(hwt_operation handle, void *arg)
{
	struct operation *operation = arg;
	bool holds = operation->holds != 0;

	(void)handle;
	if (operation->tries++ == 0)
		gate_pass(&gate);
	return holds;
}

static void *
watch_slowly(void *arg)
{
	struct operation *operation = arg;
	struct hwt_key key = KEY(1);
	struct hwt_operation_spec spec =
	    operation_spec(operation, &key, 1, HWT_SEC(1));

	spec.try_complete = slow_try;
	operation->rc =
	    hwt_purgatory_watch(yard.purgatory, &operation->handle, &spec);
	return NULL;
}

YardTest(no_lost_event, an_event_while_it_is_being_watched)
{
	pthread_t thread;

	party_make(&yard);
	gate_init(&gate);
	assert_rc(pthread_create(&thread, NULL, watch_slowly, &party[0]), 0);
	gate_await(&gate);
	play("holds 0, check 1 0");
	gate_open(&gate);
	assert_rc(pthread_join(thread, NULL), 0);
	assert_rc(party[0].rc, 1);
	play("completed 0, tries 0 2");
}

static void *
check_first(void *arg)
{
	*(size_t *)arg = check(&yard, KEY(1));
	return NULL;
}

YardTest(no_lost_event, an_event_while_its_predicate_runs_on_another_thread)
{
	struct operation operation = {.yard = &yard, .tries = 1};
	size_t completed = 0;
	pthread_t thread;

	gate_init(&gate);
	(void)watch_slowly(&operation);
	assert_rc(operation.rc, 0);
	operation.tries = 0;
	assert_rc(pthread_create(&thread, NULL, check_first, &completed), 0);
	gate_await(&gate);
	operation.holds = 1;
	assert_u64(check(&yard, KEY(1)), 0);
	gate_open(&gate);
	assert_rc(pthread_join(thread, NULL), 0);
	assert_u64(completed, 1);
	assert_ended(&operation, HWT_COMPLETED);
}

/* KAFKA-8334: the predicate needs a lock that whoever checks holds. */
static pthread_mutex_t user_lock = PTHREAD_MUTEX_INITIALIZER;

static bool
locking_try(hwt_operation handle, void *arg)
{
	struct operation *operation = arg;
	bool holds;

	(void)handle;
	if (pthread_mutex_trylock(&user_lock) != 0) {
		operation->tries++;
		return false;
	}
	holds = operation->holds != 0;
	(void)pthread_mutex_unlock(&user_lock);
	return holds;
}

YardTest(
    no_lost_event, a_predicate_that_could_not_look_is_asked_by_the_next_check)
{
	struct operation operation = {.yard = &yard};
	struct hwt_key key = KEY(1);
	struct hwt_operation_spec spec =
	    operation_spec(&operation, &key, 1, HWT_SEC(1));

	spec.try_complete = locking_try;
	assert_rc(
	    hwt_purgatory_watch(yard.purgatory, &operation.handle, &spec), 0);
	(void)pthread_mutex_lock(&user_lock);
	operation.holds = 1;
	assert_u64(check(&yard, key), 0);
	assert_u64(operation.tries, 1);
	(void)pthread_mutex_unlock(&user_lock);
	assert_u64(check(&yard, key), 1);
	assert_ended(&operation, HWT_COMPLETED);
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
		(void)check(&yard, KEY(i));
	}
}

YardTest(no_lost_event, a_hundred_operations_under_twenty_threads)
{
	static struct operation operation[MANY];
	unsigned i;

	for (i = 0; i < MANY; i++) {
		operation[i].yard = &yard;
		operation[i].in_try = yields;
		assert_rc(watch_key(&operation[i], KEY(i), HWT_NEVER), 0);
	}
	in_parallel(CHECKERS, check_all, operation);
	for (i = 0; i < MANY; i++)
		assert_ended(&operation[i], HWT_COMPLETED);
	assert_u64(yard_stats(&yard).completed, MANY);
}

/* Watchers against an event, at the same moment. */
#define MOMENTS 500

struct moment {
	struct operation operation[2];
	_Atomic uint64_t state;
};

static bool
moment_try(hwt_operation handle, void *arg)
{
	(void)handle;
	return ((struct moment *)((struct operation *)arg)->data)->state != 0;
}

static void
moment_body(unsigned index, void *arg)
{
	struct moment *moment = arg;
	struct hwt_key keys[] = {KEY(1), KEY(2)};
	struct operation *operation;
	struct hwt_operation_spec spec;

	if (index == 2) {
		moment->state = 1;
		(void)check(&yard, KEY(2));
		return;
	}
	operation = &moment->operation[index];
	operation->yard = &yard;
	operation->data = moment;
	spec = operation_spec(operation, keys, 2, HWT_SEC(1));
	spec.try_complete = moment_try;
	(void)!hwt_purgatory_watch(yard.purgatory, &operation->handle, &spec);
}

Test(no_lost_event, watchers_against_an_event)
{
	struct moment *moment = calloc(MOMENTS, sizeof(*moment));
	unsigned i;

	yard_open(&yard, NULL);
	for (i = 0; i < MOMENTS; i++) {
		in_parallel(3, moment_body, &moment[i]);
		assert_ended(&moment[i].operation[0], HWT_COMPLETED);
		assert_ended(&moment[i].operation[1], HWT_COMPLETED);
	}
	yard_close(&yard);
	free(moment);
}
