/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reached: what a raise has reached is decided, also while a done of the same
 * raise takes its time.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(reached);

static struct yard yard;
static struct gate gate;

static void
pass(struct operation *operation)
{
	(void)operation;
	gate_pass(&gate);
}

static void *
raise_to_two(void *arg)
{
	*(size_t *)arg = raise_to(&yard, KEY(1), 2);
	return NULL;
}

static void
watch_due(struct operation *operation, uint64_t at_least)
{
	const struct hwt_key key = KEY(1);
	struct hwt_operation_spec spec =
	    operation_spec(operation, &key, 1, HWT_MS(5));

	spec.try_complete = NULL;
	spec.at_least = at_least;
	assert_rc(
	    hwt_purgatory_watch(yard.purgatory, &operation->handle, &spec), 0);
}

YardTest(reached, it_does_not_expire_behind_another_ones_done)
{
	size_t completed = 99;
	pthread_t thread;

	party_make(&yard);
	party[0].in_done = pass;
	gate_init(&gate);
	watch_due(&party[0], 1);
	watch_due(&party[1], 2);
	assert_rc(pthread_create(&thread, NULL, raise_to_two, &completed), 0);
	gate_await(&gate);
	play("raise 1 5 0, cancel-key 1 0");
	assert_rc(
	    hwt_operation_cancel(yard.purgatory, party[1].handle), -ENOENT);
	play("pass 10");
	gate_open(&gate);
	assert_rc(pthread_join(thread, NULL), 0);
	assert_u64(completed, 2);
	play("completed 0, completed 1");
	assert_u64(yard_stats(&yard).expired, 0);
}
