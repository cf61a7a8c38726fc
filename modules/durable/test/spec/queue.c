/* SPDX-License-Identifier: Apache-2.0 */
/* queue: pause and resume. */
#include "modules/durable/test/spec/durable.h"

#include <unistd.h>

SUITE(queue);

static struct place place;
static struct hwt_durable_scheduler *scheduler;
static struct hwt_durable_worker *worker;

static int
done(void *ctx, const struct hwt_durable_delivery *delivery)
{
	(void)ctx;
	(void)delivery;
	return 0;
}

/* What a worker or a resume leaves in the engine: number of the reply. */
static void
await_reply(const char *command, long long number)
{
	while (server_ask(&place.server, NULL, command) != number)
		(void)usleep(1000);
}

Test(queue, nothing_begins_until_the_resume)
{
	const struct hwt_durable_worker_options options = {
	    .queue = "q", .callback = done};

	place_open(&place, NULL);
	assert_rc(hwt_durable_pause(place.durable, "q"), 0);
	assert_rc(hwt_durable_pause(place.durable, "q"), 0);
	assert_rc(
	    hwt_durable_scheduler_start(&scheduler, place.durable, NULL), 0);
	assert_rc(
	    hwt_durable_worker_start(&worker, place.durable, &options), 0);
	/* In another shard each. */
	assert_rc(add_one(&place, "a"), 0);
	assert_rc(add_one(&place, "b"), 0);
	await_state(&place, "a", HWT_DURABLE_DELIVERED);
	await_state(&place, "b", HWT_DURABLE_DELIVERED);

	/* It has asked all shards once, and will again. */
	await_reply("EXISTS {hwt}:p:q", 1);
	await_reply("EXISTS {hwt}:p:q", 0);
	await_reply("EXISTS {hwt}:p:q", 1);
	assert_u64(stats_of(&place).begun, 0);

	assert_rc(hwt_durable_resume(place.durable, "q"), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	await_state(&place, "b", HWT_DURABLE_SUCCEEDED);
	assert_rc(hwt_durable_worker_stop(worker, HWT_SEC(60)), 0);
	assert_rc(hwt_durable_scheduler_stop(scheduler), 0);
	place_close(&place);
}

Test(queue, a_resume_tells_one_of_those_that_wait_of_all_shards)
{
	char hint[SAID_MAX];

	place_open(&place, NULL);
	assert_rc(hwt_durable_pause(place.durable, "q"), 0);
	assert_rc(hwt_durable_resume(place.durable, "q"), 0);
	(void)server_ask(&place.server, hint, "LPOP {hwt}:k:q");
	cr_assert_str_eq(hint, "*");
	assert_u64(server_ask(&place.server, NULL, "EXISTS {hwt}:k:q"), 0);
	place_close(&place);
}

/* It is in the engine all the same, and can be repeated. */
Test(queue, a_pause_that_too_few_replicas_have_is_ETIMEDOUT)
{
	struct hwt_durable_options options;
	struct hwt_durable *durable;

	place_open(&place, NULL);
	options = place_options(&place);
	options.level = HWT_DURABLE_REPLICATED;
	options.timeout_ns = HWT_SEC(1);
	assert_rc(hwt_durable_open(&durable, &options), 0);
	assert_rc(hwt_durable_pause(durable, "q"), -ETIMEDOUT);
	assert_u64(server_ask(&place.server, NULL, "ZCARD {hwt:0}:paused"), 1);
	assert_rc(hwt_durable_close(durable), 0);
	place_close(&place);
}

Test(queue, names_outside_their_range_are_EINVAL)
{
	place_open(&place, NULL);
	assert_rc(hwt_durable_pause(place.durable, NULL), -EINVAL);
	assert_rc(hwt_durable_pause(place.durable, ""), -EINVAL);
	assert_rc(hwt_durable_pause(place.durable, "a b"), -EINVAL);
	assert_rc(hwt_durable_pause(NULL, "q"), -EINVAL);
	assert_rc(hwt_durable_resume(place.durable, NULL), -EINVAL);
	assert_rc(hwt_durable_resume(place.durable, "a b"), -EINVAL);
	assert_rc(hwt_durable_resume(NULL, "q"), -EINVAL);
	place_close(&place);
}
