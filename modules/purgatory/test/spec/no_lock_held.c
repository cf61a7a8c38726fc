/* SPDX-License-Identifier: Apache-2.0 */
/*
 * no-lock-held: callbacks may call everything here, for the same key too, and a
 * chain of completions takes no stack.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <stdlib.h>

SUITE(no_lock_held);

/* Everything that there is, from inside of a callback. */
static void
call_everything(struct operation *operation)
{
	struct hwt_purgatory_stats stats;

	if (operation->data == NULL)
		return;
	operation->data = NULL;
	play("watch-ms 1 1 1000, watch-ms 2 2 1000, value 3 1 5");
	operation->count = check(KEY(1));
	(void)raise_to(KEY(1), 5);
	play("cancel 1, complete 2");
	assert_rc(hwt_purgatory_read_stats(purgatory, &stats), 0);
	assert_rc(hwt_purgatory_shutdown(purgatory), -EDEADLK);
	assert_rc(hwt_purgatory_destroy(purgatory), -EDEADLK);
	(void)cancel_key(KEY(3));
}

static void
assert_all_ended(void)
{
	play("cancelled 1, completed 2, completed 3");
}

PurgatoryTest(no_lock_held, from_a_predicate)
{
	party[0].in_try = call_everything;
	play("watch-ms 0 1 1000, holds 0");
	party[0].data = party;
	play("check 1 1, completed 0");
	/* It began when the predicate had returned. */
	assert_u64(party[0].count, 0);
	assert_all_ended();
}

PurgatoryTest(no_lock_held, from_done)
{
	party[0].in_done = call_everything;
	party[0].data = party;
	play("watch-ms 0 1 1000, complete 0");
	assert_all_ended();
}

PurgatoryTest(no_lock_held, from_done_of_an_expiry)
{
	party[0].in_done = call_everything;
	party[0].data = party;
	play("watch-ms 0 1 1, pass 3, expired 0");
	assert_all_ended();
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
	(void)check(KEY(link->number + 1));
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

	purgatory_open(NULL);
	for (i = 0; i < CHAIN; i++) {
		chain[i] = (struct chain){
		    .number = i + 1, .top = &top, .ended = &ended};
		key = KEY(i + 1);
		spec.arg = &chain[i];
		assert_rc(
		    hwt_purgatory_watch(purgatory, &chain[i].handle, &spec), 0);
	}
	ended = 1;
	assert_u64(check(KEY(1)), 1);
	assert_u64(ended, CHAIN + 1);
	for (i = 0; i < CHAIN; i++)
		cr_assert(chain[i].deepest < 65536, "%u", i);
	assert_stats(0, 0, 0);
	purgatory_close();
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

	return hwt_purgatory_watch(purgatory, NULL, &spec);
}

Test(no_lock_held, a_million_watches_in_done_that_complete_take_no_stack)
{
	uintptr_t top = (uintptr_t)&top;

	consumer.top = &top;
	purgatory_open(NULL);
	items = CHAIN;
	assert_rc(consumer_watch(), 1);
	assert_u64(consumer.number, CHAIN);
	cr_assert(consumer.deepest < 65536);
	assert_stats(1, 1, 1);
	items = 10;
	assert_u64(check(KEY(1)), 1);
	assert_u64(consumer.number, CHAIN + 10);
	purgatory_close();
}
