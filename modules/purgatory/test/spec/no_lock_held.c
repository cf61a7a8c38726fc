/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no-lock-held: callbacks may call everything here, for the same key too, and a
 * chain of completions takes no stack.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <stdlib.h>

SUITE(no_lock_held);

static struct yard yard;

/* Everything that there is, from inside of a callback. */
static struct operation inner[4];

static void
call_everything(struct operation *operation)
{
	struct hwt_purgatory_stats stats;

	if (operation->data == NULL)
		return;
	operation->data = NULL;
	assert_rc(watch_key(&inner[0], KEY(1), HWT_SEC(1)), 0);
	assert_rc(watch_key(&inner[1], KEY(2), HWT_SEC(1)), 0);
	assert_rc(watch_value(&inner[2], KEY(1), 5), 0);
	(void)check(&yard, KEY(1));
	(void)raise_to(&yard, KEY(1), 5);
	assert_rc(hwt_operation_cancel(yard.purgatory, inner[0].handle), 0);
	assert_rc(hwt_operation_complete(yard.purgatory, inner[1].handle), 0);
	assert_rc(hwt_purgatory_read_stats(yard.purgatory, &stats), 0);
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), -EDEADLK);
	assert_rc(hwt_purgatory_destroy(yard.purgatory), -EDEADLK);
	(void)cancel_key(&yard, KEY(3));
}

static void
open_inner(void)
{
	unsigned i;

	yard_open(&yard, NULL);
	for (i = 0; i < 4; i++)
		inner[i].yard = &yard;
}

static void
close_inner(void)
{
	assert_ended(&inner[0], HWT_CANCELLED);
	assert_ended(&inner[1], HWT_COMPLETED);
	assert_ended(&inner[2], HWT_COMPLETED);
	yard_close(&yard);
}

Test(no_lock_held, from_a_predicate)
{
	party_make(&yard);
	party[0].in_try = call_everything;
	open_inner();
	play("watch-ms 0 1 1000");
	party[0].data = &yard;
	play("holds 0, check 1 1, completed 0");
	close_inner();
}

Test(no_lock_held, from_done)
{
	party_make(&yard);
	party[0].in_done = call_everything;
	party[0].data = &yard;
	open_inner();
	play("watch-ms 0 1 1000, complete 0");
	close_inner();
}

Test(no_lock_held, from_done_of_an_expiry)
{
	party_make(&yard);
	party[0].in_done = call_everything;
	party[0].data = &yard;
	open_inner();
	play("watch-ms 0 1 1, pass 3, expired 0");
	close_inner();
}

/* A chain: done of each checks the key of the next one. */
#define CHAIN (WITH_ASAN ? 100000 : 1000000)

struct chain {
	hwt_operation handle;
	uint64_t number;
	uintptr_t deepest, *top;
	uint64_t *ended;
};

static bool
chain_try(hwt_operation operation, void *arg)
{
	struct chain *link = arg;

	(void)operation;
	return *link->ended >= link->number;
}

static void
note_depth(struct chain *link)
{
	char here;
	uintptr_t depth = *link->top - (uintptr_t)&here;

	if (depth > link->deepest)
		link->deepest = depth;
}

static void
chain_done(hwt_operation operation, void *arg, enum hwt_outcome outcome)
{
	struct chain *link = arg;

	(void)operation;
	(void)outcome;
	note_depth(link);
	++*link->ended;
	(void)check(&yard, KEY(link->number + 1));
}

Test(no_lock_held, a_chain_of_a_million_completions_takes_no_stack)
{
	struct chain *chain = calloc(CHAIN, sizeof(*chain));
	struct hwt_key key;
	struct hwt_operation_spec spec = {.try_complete = chain_try,
	    .done = chain_done,
	    .keys = &key,
	    .key_count = 1,
	    .delay_ns = HWT_NEVER};
	uintptr_t top = (uintptr_t)&key;
	uint64_t ended = 0;
	unsigned i;

	yard_open(&yard, NULL);
	for (i = 0; i < CHAIN; i++) {
		chain[i] = (struct chain){
		    .number = i + 1, .top = &top, .ended = &ended};
		key = KEY(i + 1);
		spec.arg = &chain[i];
		assert_rc(hwt_purgatory_watch(
			      yard.purgatory, &chain[i].handle, &spec),
		    0);
	}
	ended = 1;
	assert_u64(check(&yard, KEY(1)), 1);
	assert_u64(ended, CHAIN + 1);
	for (i = 0; i < CHAIN; i++)
		cr_assert(chain[i].deepest < 65536, "%u", i);
	assert_stats(&yard, 0, 0, 0);
	yard_close(&yard);
	free(chain);
}

/* A consumer: done takes one of a million items, and watches again, which
 * completes at once. */
static uint64_t items;
static struct chain consumer;

static bool
consumer_try(hwt_operation operation, void *arg)
{
	(void)operation;
	(void)arg;
	return items > 0;
}

static int consumer_watch(void);

static void
consumer_done(hwt_operation operation, void *arg, enum hwt_outcome outcome)
{
	(void)operation;
	(void)arg;
	note_depth(&consumer);
	if (outcome != HWT_COMPLETED)
		return;
	items--;
	consumer.number++;
	(void)consumer_watch();
}

static int
consumer_watch(void)
{
	struct hwt_key key = KEY(1);
	struct hwt_operation_spec spec = {.try_complete = consumer_try,
	    .done = consumer_done,
	    .keys = &key,
	    .key_count = 1,
	    .delay_ns = HWT_SEC(1)};

	return hwt_purgatory_watch(yard.purgatory, NULL, &spec);
}

Test(no_lock_held, a_million_watches_in_done_that_complete_take_no_stack)
{
	uintptr_t top = (uintptr_t)&top;

	consumer.top = &top;
	yard_open(&yard, NULL);
	items = CHAIN;
	assert_rc(consumer_watch(), 1);
	assert_u64(consumer.number, CHAIN);
	cr_assert(consumer.deepest < 65536);
	assert_stats(&yard, 1, 1, 1);
	items = 10;
	assert_u64(check(&yard, KEY(1)), 1);
	assert_u64(consumer.number, CHAIN + 10);
	yard_close(&yard);
}

/* Predicates that check: each begins when the one before has returned, also
 * when there is no memory to remember it. */
static struct operation tower[50];

static void
check_next(struct operation *operation)
{
	size_t i = (size_t)(operation - tower);

	operation->count = 0;
	if (i + 1 < 50 && operation->data != NULL)
		operation->count = check(&yard, KEY(i + 1));
}

static void
build_tower(void)
{
	unsigned i;

	yard_open(&yard, NULL);
	for (i = 0; i < 50; i++) {
		tower[i].yard = &yard;
		tower[i].in_try = check_next;
		assert_rc(watch_key(&tower[i], KEY(i), HWT_NEVER), 0);
		tower[i].data = &yard;
		tower[i].holds = 1;
	}
}

Test(no_lock_held, checks_in_predicates_begin_later)
{
	unsigned i;

	build_tower();
	assert_u64(check(&yard, KEY(0)), 1);
	for (i = 0; i < 50; i++) {
		assert_ended(&tower[i], HWT_COMPLETED);
		assert_u64(tower[i].count, 0);
	}
	yard_close(&yard);
}
