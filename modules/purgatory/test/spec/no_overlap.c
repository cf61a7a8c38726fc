/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no-overlap: try_complete of one operation never runs twice at once, never
 * beside its done, never after it. operation_enter of purgatory.c fails any
 * test in which it does.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <stdlib.h>

SUITE(no_overlap);

static struct yard yard;

Test(no_overlap, events_during_a_predicate_are_not_predicates)
{
	struct operation operation = {.counts = true, .holds = UINT64_MAX};
	pthread_t thread = hold_predicate(&yard, &operation, HWT_MS(5));
	unsigned i;

	for (i = 0; i < 5; i++)
		assert_u64(check(&yard, KEY(1)), 0);
	assert_u64(operation.tries, 1);
	let_go(thread);
	assert_u64(operation.tries, 3);
	yard_close(&yard);
}

Test(no_overlap, a_cancel_during_a_predicate_is_carried_out_after_it)
{
	struct operation operation = {.holds = 0};
	pthread_t thread = hold_predicate(&yard, &operation, HWT_MS(5));

	assert_rc(hwt_operation_cancel(yard.purgatory, operation.handle), 0);
	assert_rc(
	    hwt_operation_complete(yard.purgatory, operation.handle), -ENOENT);
	assert_pending(&operation);
	let_go(thread);
	assert_ended(&operation, HWT_CANCELLED);
	cr_assert(pthread_equal(operation.thread, thread));
	yard_close(&yard);
}

/* Although the predicate answers true. */
static void
holds_now(struct operation *operation)
{
	pass_gate_once(operation);
}

Test(no_overlap, a_cancel_wins_over_an_answer_that_comes_later)
{
	struct operation operation = {.counts = true, .holds = 2};
	pthread_t thread = hold_predicate(&yard, &operation, HWT_MS(5));

	operation.in_try = holds_now;
	assert_rc(hwt_operation_cancel(yard.purgatory, operation.handle), 0);
	let_go(thread);
	assert_ended(&operation, HWT_CANCELLED);
	assert_u64(operation.count, 0);
	assert_u64(operation.tries, 2);
	yard_close(&yard);
}

Test(no_overlap, the_runner_takes_an_expiry_over)
{
	struct operation operation = {.holds = 0};
	pthread_t thread = hold_predicate(&yard, &operation, HWT_MS(5));

	assert_u64(fixture_step(&yard.fixture, HWT_MS(10)), 1);
	assert_pending(&operation);
	let_go(thread);
	assert_ended(&operation, HWT_EXPIRED);
	cr_assert(pthread_equal(operation.thread, thread));
	yard_close(&yard);
}

/* Its memory is the user's again when done has returned; that holds beside
 * checks on its other keys. */
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
		*(_Atomic uint64_t *)arg += check(&yard, KEY(index));
}

YardTest(no_overlap, the_payload_is_freed_in_done)
{
	const struct hwt_key keys[] = {KEY(0), KEY(1), KEY(2), KEY(3), KEY(4)};
	_Atomic uint64_t completed = 0;
	struct operation *operation;
	unsigned i;

	for (i = 0; i < PAYLOADS; i++) {
		operation = calloc(1, sizeof(*operation));
		operation->yard = &yard;
		operation->counts = true;
		operation->holds = 3 + i % 5;
		operation->in_done = free_payload;
		assert_rc(watch_keys(operation, keys, 5, HWT_SEC(1)), 0);
	}
	in_parallel(5, payload_body, &completed);
	for (i = 0; i < 10; i++)
		completed += check(&yard, KEY(0));
	assert_u64(completed, PAYLOADS);
	assert_stats(&yard, 0, 0, 0);
}
