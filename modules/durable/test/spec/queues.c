/* SPDX-License-Identifier: Apache-2.0 */
/* queues: a worker that serves several. */
#include "modules/durable/test/spec/durable.h"

#include <stdio.h>
#include <string.h>

SUITE(queues);

/* How many callbacks there were, and before the first one of b. */
static _Atomic uint64_t calls, before_b;

static int
count(void *ctx, const struct hwt_durable_delivery *delivery)
{
	uint64_t before = atomic_fetch_add(&calls, 1);
	uint64_t none = UINT64_MAX;

	(void)ctx;
	/* An id begins with the name of its queue. */
	if (delivery->id[0] != delivery->queue[0])
		return HWT_DURABLE_FAIL;
	if (strcmp(delivery->queue, "b") == 0)
		(void)atomic_compare_exchange_strong(&before_b, &none, before);
	return 0;
}

static void
start(const char *list, uint64_t outstanding_max)
{
	const struct hwt_durable_worker_options options = {.queue = list,
	    .callback = count,
	    .outstanding_max = outstanding_max};

	atomic_store(&before_b, UINT64_MAX);
	place_work(&options);
}

static void
add(const char *queue, uint32_t number)
{
	char id[32];
	struct hwt_durable_task task = {.id = id, .queue = queue};

	task.id_length =
	    (size_t)snprintf(id, sizeof(id), "%s-%u", queue, number);
	add_task(&task);
}

/* Another worker seems to poll, so nothing but hints tells it. */
SchedulerTest(queues, a_worker_is_told_of_each_of_its_queues)
{
	(void)ask("SET {hwt}:p:a other");
	(void)ask("SET {hwt}:p:b other");
	(void)ask("SET {hwt}:p:c other");
	start("a,b,c", 0);
	add("b", 1);
	await_succeeded(1);
	add("c", 1);
	await_succeeded(2);
	add("a", 1);
	add("b", 2);
	add("c", 2);
	await_succeeded(5);
}

/* It takes one task at a time. */
SchedulerTest(queues, a_backlog_of_one_does_not_delay_the_others)
{
	const struct hwt_durable_task task = {.queue = "a"};

	add_many("a-", 100, &task);
	add("b", 1);
	AWAIT(stats_now().delivered == 101);
	start("a,b", 1);
	await_succeeded(101);
	cr_assert(atomic_load(&before_b) < 50);
}

static void
add_backlog(uint32_t number)
{
	const struct hwt_durable_task task = {.queue = "a"};
	char prefix[8];

	(void)snprintf(prefix, sizeof(prefix), "a%u-", number);
	add_many(prefix, 512, &task);
}

/* Another worker seems to poll. */
SchedulerTest(queues, a_hint_is_heard_while_another_queue_has_a_backlog)
{
	uint32_t i;

	(void)ask("SET {hwt}:p:b other");
	for (i = 0; i < 8; i++)
		add_backlog(i);
	start("a,b", 0);
	wait_for(&calls, 500);
	add("b", 1);
	for (; i < 200 && atomic_load(&before_b) == UINT64_MAX; i++)
		add_backlog(i);
	cr_assert(atomic_load(&before_b) != UINT64_MAX);
}

PlaceTest(queues, a_list_that_is_none_is_EINVAL)
{
	static const char *const bad[] = {"", ",", "a,", ",a", "a,,b", "a,a",
	    "a, b", "a,b/c", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
	    ("a,b1234567890123456789012345678901234567890123456789012345678901"
	     "2345")};
	struct hwt_durable_worker_options options = {.callback = count};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		options.queue = bad[i];
		assert_rc(hwt_durable_worker_start(
			      &place.worker, place.durable, &options),
		    -EINVAL);
	}
	options.queue = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16";
	place_work(&options);
}
