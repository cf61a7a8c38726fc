/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork: in a child, what the parent made answers -EOWNERDEAD, and is freed by
 * destroy, whatever the parent's threads were doing.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <stdlib.h>
#include <unistd.h>

SUITE(fork);

static struct yard yard;
static struct operation operation = {.yard = &yard};

static void
child_calls(void *arg)
{
	struct hwt_purgatory *purgatory = yard.purgatory;
	struct hwt_purgatory *made = NULL;
	struct hwt_purgatory_stats stats;
	struct hwt_key key = KEY(1);
	struct hwt_operation_spec spec =
	    operation_spec(&operation, &key, 1, HWT_SEC(1));
	hwt_operation handle = operation.handle;
	size_t count;

	(void)arg;
	child_rc(
	    hwt_purgatory_create(&made, yard.fixture.timer, NULL), -EOWNERDEAD);
	child_rc(hwt_purgatory_watch(purgatory, &handle, &spec), -EOWNERDEAD);
	handle = operation.handle;
	child_rc(hwt_purgatory_check(purgatory, key, &count), -EOWNERDEAD);
	child_rc(hwt_purgatory_raise(purgatory, key, 1, &count), -EOWNERDEAD);
	child_rc(hwt_purgatory_cancel_key(purgatory, key, &count), -EOWNERDEAD);
	child_rc(hwt_purgatory_count_key(purgatory, key, &count), -EOWNERDEAD);
	child_rc(hwt_purgatory_read_stats(purgatory, &stats), -EOWNERDEAD);
	child_rc(hwt_operation_complete(purgatory, handle), -EOWNERDEAD);
	child_rc(hwt_operation_cancel(purgatory, handle), -EOWNERDEAD);
	child_rc(hwt_operation_reschedule(purgatory, handle, 1), -EOWNERDEAD);
	child_rc(hwt_purgatory_shutdown(purgatory), -EOWNERDEAD);
	child_rc(hwt_purgatory_destroy(purgatory), 0);
	child_rc(hwt_destroy(yard.fixture.timer), 0);
	child_check(operation.dones == 0);
}

Test(fork, a_child_is_told_EOWNERDEAD_and_frees)
{
	struct hwt_key keys[10];
	unsigned i;

	party_make(&yard);
	yard_open(&yard, NULL);
	for (i = 0; i < 10; i++)
		keys[i] = KEY(i);
	assert_rc(watch_key(&operation, KEY(1), HWT_SEC(1)), 0);
	assert_rc(watch_keys(&party[0], keys, 10, HWT_SEC(1)), 0);
	in_child(child_calls, NULL);
	play("stats 2 11 10");
	yard_close(&yard);
}

/* While other threads are everywhere in the library. */
static _Atomic uint64_t stop;

static void
be_busy(unsigned index, void *arg)
{
	struct hwt_key keys[6];
	struct operation *busy = arg;
	unsigned i;

	for (i = 0; i < 6; i++)
		keys[i] = KEY(index * 3 + i);
	while (stop == 0) {
		busy[index] = (struct operation){.yard = &yard};
		assert_rc(watch_keys(&busy[index], keys, 6, HWT_SEC(100)), 0);
		assert_rc(
		    hwt_operation_cancel(yard.purgatory, busy[index].handle),
		    0);
	}
}

static void *
run_busy(void *arg)
{
	in_parallel(3, be_busy, arg);
	return NULL;
}

/* The busy threads allocate, so that a child may inherit a taken lock of
 * AddressSanitizer's allocator (libc's has handlers for that) and wait for
 * ever in its quarantine: in that build the child frees nothing. */
static void
child_destroys(void *arg)
{
	(void)arg;
	child_rc(
	    hwt_purgatory_check(yard.purgatory, KEY(1), NULL), -EOWNERDEAD);
	if (!WITH_ASAN)
		child_rc(hwt_purgatory_destroy(yard.purgatory), 0);
}

YardTest(fork, a_child_of_busy_threads)
{
	static struct operation busy[3];
	pthread_t thread;
	unsigned i;

	assert_rc(pthread_create(&thread, NULL, run_busy, busy), 0);
	for (i = 0; i < 100; i++)
		in_child(child_destroys, NULL);
	stop = 1;
	assert_rc(pthread_join(thread, NULL), 0);
}
