/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no-overlap: try_complete of one operation never runs twice at once, never
 * beside its done, never after it. operation_enter of purgatory.c fails any
 * test in which it does.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <stdlib.h>

SUITE(no_overlap);

Test(no_overlap, events_during_a_predicate_make_it_run_once_more)
{
	struct operation operation = {.counts = true, .holds = UINT64_MAX};
	pthread_t thread = hold_predicate(&operation, HWT_MS(5));

	play("check 1 0, check 1 0, check 1 0");
	assert_u64(operation.tries, 1);
	let_go(thread);
	assert_u64(operation.tries, 3);
	purgatory_close();
}

/* Although the predicate answers true. */
Test(no_overlap, a_cancel_wins_over_an_answer_that_comes_later)
{
	struct operation operation = {.counts = true, .holds = 2};
	pthread_t thread = hold_predicate(&operation, HWT_MS(5));

	assert_rc(hwt_operation_cancel(purgatory, operation.handle), 0);
	assert_rc(hwt_operation_complete(purgatory, operation.handle), -ENOENT);
	assert_pending(&operation);
	let_go(thread);
	assert_ended(&operation, HWT_CANCELLED);
	assert_u64(operation.count, 0);
	cr_assert(pthread_equal(operation.thread, thread));
	purgatory_close();
}

Test(no_overlap, the_runner_takes_an_expiry_over)
{
	struct operation operation = {.holds = 0};
	pthread_t thread = hold_predicate(&operation, HWT_MS(5));

	play("runs 10 1");
	assert_pending(&operation);
	assert_rc(
	    hwt_operation_reschedule(purgatory, operation.handle, 1), -ENOENT);
	let_go(thread);
	assert_ended(&operation, HWT_EXPIRED);
	cr_assert(pthread_equal(operation.thread, thread));
	purgatory_close();
}

/* Its memory is the user's again when done has returned, also beside checks on
 * its other keys. */
#define PAYLOADS 500

static void
free_payload(struct operation *operation)
{
	free(operation);
}

static void
payload_body(unsigned index, void *arg)
{
	unsigned i;

	for (i = 0; i < PAYLOADS; i++)
		*(_Atomic uint64_t *)arg += check(KEY(index));
}

PurgatoryTest(no_overlap, the_payload_is_freed_in_done)
{
	const struct hwt_key keys[] = {KEY(0), KEY(1), KEY(2), KEY(3), KEY(4)};
	_Atomic uint64_t completed = 0;
	struct operation *operation;
	unsigned i;

	for (i = 0; i < PAYLOADS; i++) {
		operation = calloc(1, sizeof(*operation));
		operation->counts = true;
		operation->holds = 3 + i % 5;
		operation->in_done = free_payload;
		assert_rc(watch_keys(operation, keys, 5, HWT_SEC(1)), 0);
	}
	in_parallel(5, payload_body, &completed);
	for (i = 0; i < 10; i++)
		completed += check(KEY(0));
	assert_u64(completed, PAYLOADS);
	assert_stats(0, 0, 0);
}
