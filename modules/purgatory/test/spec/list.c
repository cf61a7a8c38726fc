/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list: hwt_purgatory_count_key and hwt_purgatory_list_key. What waits under a
 * key throughout a listing is seen once.
 */
#include "modules/purgatory/test/spec/purgatory.h"

#include <string.h>

SUITE(list);

#define MANY 100 /* batches of 32 */

static struct yard yard;
static struct operation operation[MANY];

static struct {
	unsigned seen[MANY];
	unsigned order[MANY];
	unsigned count;
	void (*then)(struct operation *operation);
	bool stop;
} listed;

static bool
visit(hwt_operation handle, void *arg, void *ctx)
{
	struct operation *at = arg;
	unsigned i = (unsigned)(at - operation);

	assert_u64(handle.id, at->handle.id);
	assert_u64(at->dones, 0);
	cr_assert(ctx == &listed);
	listed.seen[i]++;
	listed.order[listed.count++ % MANY] = i;
	if (listed.then != NULL)
		listed.then(at);
	assert_u64(at->dones, 0);
	return !listed.stop;
}

static size_t
list(struct hwt_key key)
{
	size_t visited = 99;

	memset(listed.seen, 0, sizeof(listed.seen));
	listed.count = 0;
	assert_rc(hwt_purgatory_list_key(
		      yard.purgatory, key, visit, &listed, &visited),
	    0);
	assert_u64(visited, listed.count);
	return visited;
}

static size_t
count_of(struct hwt_key key)
{
	size_t count = 99;

	assert_rc(hwt_purgatory_count_key(yard.purgatory, key, &count), 0);
	return count;
}

static void
watch_many(unsigned count)
{
	unsigned i;

	for (i = 0; i < count; i++) {
		operation[i] = (struct operation){.yard = &yard};
		assert_rc(watch_key(&operation[i], KEY(1), HWT_NEVER), 0);
	}
}

YardTest(list, in_order_of_arrival_then_by_value)
{
	static const unsigned expected[] = {0, 2, 4, 3, 1};
	unsigned i;

	watch_many(1);
	for (i = 1; i < 5; i++) {
		operation[i] = (struct operation){.yard = &yard};
		assert_rc(i % 2 == 0
			? watch_key(&operation[i], KEY(1), HWT_NEVER)
			: watch_value(&operation[i], KEY(1), 10 - i),
		    0);
	}
	assert_u64(list(KEY(1)), 5);
	for (i = 0; i < 5; i++)
		assert_u64(listed.order[i], expected[i]);
	assert_u64(count_of(KEY(1)), 5);
	assert_u64(raise_to(&yard, KEY(1), 7), 1);
	assert_u64(count_of(KEY(1)), 4);
	assert_u64(list(KEY(1)), 4);
	assert_u64(listed.seen[3], 0);
}

YardTest(list, a_key_without_operations_has_none)
{
	const struct hwt_key keys[] = {KEY(1), KEY(2)};

	assert_u64(list(KEY(1)), 0);
	assert_u64(count_of(KEY(1)), 0);
	operation[0] = (struct operation){.yard = &yard};
	assert_rc(watch_keys(&operation[0], keys, 2, HWT_NEVER), 0);
	assert_u64(count_of(KEY(1)), 1);
	assert_u64(count_of(KEY(2)), 1);
	assert_u64(cancel_key(&yard, KEY(2)), 1);
	assert_u64(list(KEY(1)), 0);
	assert_u64(count_of(KEY(1)), 0);
}

static struct operation later[2 * MANY];

/* Each visit watches another one, without a value and with one. */
static void
watch_another(struct operation *at)
{
	struct operation *next = &later[2 * (at - operation)];

	next[0] = (struct operation){.yard = &yard};
	next[1] = (struct operation){.yard = &yard};
	assert_rc(watch_key(&next[0], KEY(1), HWT_NEVER), 0);
	assert_rc(watch_value(&next[1], KEY(1), 9), 0);
}

YardTest(list, what_is_watched_meanwhile_is_not_seen)
{
	unsigned i;

	watch_many(MANY);
	listed.then = watch_another;
	assert_u64(list(KEY(1)), MANY);
	for (i = 0; i < MANY; i++)
		assert_u64(listed.seen[i], 1);
	assert_u64(count_of(KEY(1)), 3 * MANY);
}

/* The visits of 0, 1, 2 and so on end 0, 9, 3, 6 and so on; each done comes
 * when visit has returned. */
static void
cancel_some(struct operation *at)
{
	size_t i = (size_t)(at - operation);

	if (i % 3 == 0)
		assert_rc(hwt_operation_cancel(yard.purgatory, at->handle), 0);
	else if (i % 3 == 1 && i + 20 < MANY)
		assert_rc(hwt_operation_cancel(
			      yard.purgatory, operation[i + 20].handle),
		    listed.seen[i] == 1 && operation[i + 20].dones == 0
			? 0
			: -ENOENT);
}

YardTest(list, what_ends_meanwhile_is_seen_at_most_once)
{
	unsigned i;

	watch_many(MANY);
	listed.then = cancel_some;
	(void)list(KEY(1));
	for (i = 0; i < MANY; i++) {
		if (operation[i].dones == 0)
			assert_u64(listed.seen[i], 1);
		cr_assert(listed.seen[i] <= 1);
	}
	cr_assert(listed.count < MANY && listed.count > MANY / 2);
	listed.then = NULL;
	assert_u64(list(KEY(1)), count_of(KEY(1)));
}

YardTest(list, false_ends_it)
{
	watch_many(MANY);
	listed.stop = true;
	assert_u64(list(KEY(1)), 1);
	listed.stop = false;
	assert_u64(list(KEY(1)), MANY);
	assert_u64(cancel_key(&yard, KEY(1)), MANY);
	assert_stats(&yard, 0, 0, 0);
}

static void
call_others(struct operation *at)
{
	at->holds = 1;
	assert_u64(check(&yard, KEY(1)), 1);
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), -EDEADLK);
	assert_rc(hwt_purgatory_destroy(yard.purgatory), -EDEADLK);
}

YardTest(list, visit_may_check_but_not_shut_down)
{
	watch_many(3);
	listed.then = call_others;
	assert_u64(list(KEY(1)), 3);
	assert_ended(&operation[0], HWT_COMPLETED);
	assert_ended(&operation[2], HWT_COMPLETED);
	assert_stats(&yard, 0, 0, 0);
}

static void
list_inside(struct operation *at)
{
	at->count = list(KEY(1));
}

YardTest(list, callbacks_may_list)
{
	watch_many(40);
	operation[7].in_try = list_inside;
	operation[9].in_done = list_inside;
	operation[9].holds = 1;
	assert_u64(check(&yard, KEY(1)), 1);
	assert_u64(operation[7].count, 40);
	assert_u64(operation[9].count, 39);
}

YardTest(list, null_is_EINVAL)
{
	size_t count = 99;

	assert_rc(
	    hwt_purgatory_list_key(NULL, KEY(1), visit, NULL, &count), -EINVAL);
	assert_u64(count, 0);
	assert_rc(
	    hwt_purgatory_list_key(yard.purgatory, KEY(1), NULL, NULL, NULL),
	    -EINVAL);
	assert_rc(hwt_purgatory_count_key(NULL, KEY(1), &count), -EINVAL);
	assert_rc(
	    hwt_purgatory_count_key(yard.purgatory, KEY(1), NULL), -EINVAL);
}
