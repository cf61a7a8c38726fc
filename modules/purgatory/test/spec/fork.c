/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork: in a child, what the parent made answers -EOWNERDEAD, and is freed by
 * destroy.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <unistd.h>

SUITE(fork);

static struct operation operation = {0};

static void
child_calls(void *arg)
{
	struct hwt_purgatory *made = NULL;
	struct hwt_purgatory_stats stats;
	struct hwt_key key = KEY(1);
	struct hwt_operation_spec spec =
	    operation_spec(&operation, &key, 1, HWT_SEC(1));
	hwt_operation handle = operation.handle;
	size_t count;

	(void)arg;
	child_rc(hwt_purgatory_create(&made, manual.timer, NULL), -EOWNERDEAD);
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
	child_rc(hwt_destroy(manual.timer), 0);
	child_check(operation.dones == 0);
}

Test(fork, a_child_is_told_EOWNERDEAD_and_frees)
{
	struct hwt_key keys[10];
	unsigned i;

	purgatory_open(NULL);
	for (i = 0; i < 10; i++)
		keys[i] = KEY(i);
	assert_rc(watch_key(&operation, KEY(1), HWT_SEC(1)), 0);
	assert_rc(watch_keys(&party[0], keys, 10, HWT_SEC(1)), 0);
	in_child(child_calls, NULL);
	play("stats 2 11 10");
	purgatory_close();
}
