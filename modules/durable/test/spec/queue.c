/* SPDX-License-Identifier: Apache-2.0 */
/* queue: pause, resume, limits. */
#include "modules/durable/test/spec/durable.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

SUITE(queue);

/* What a worker or a resume leaves in the engine: number of the reply. */
static void
await_reply(const char *command, long long number)
{
	while (ask(command) != number)
		(void)usleep(1000);
}

PlaceTest(queue, nothing_begins_until_the_resume)
{
	const struct hwt_durable_worker_options options = {
	    .queue = "q", .callback = done};

	assert_ok(hwt_durable_pause(place.durable, "q"));
	assert_ok(hwt_durable_pause(place.durable, "q"));
	place_schedule();
	place_work(&options);
	/* In another shard each. */
	assert_ok(add_one("a"));
	assert_ok(add_one("b"));
	await_state("a", HWT_DURABLE_DELIVERED);
	await_state("b", HWT_DURABLE_DELIVERED);

	/* It has asked all shards once, and will again. */
	await_reply("EXISTS {hwt}:p:q", 1);
	await_reply("EXISTS {hwt}:p:q", 0);
	await_reply("EXISTS {hwt}:p:q", 1);
	assert_u64(stats_now().begun, 0);

	assert_ok(hwt_durable_resume(place.durable, "q"));
	await_state("a", HWT_DURABLE_SUCCEEDED);
	await_state("b", HWT_DURABLE_SUCCEEDED);
}

PlaceTest(queue, a_resume_tells_one_of_those_that_wait_of_all_shards)
{
	char hint[SAID_MAX];

	assert_ok(hwt_durable_pause(place.durable, "q"));
	assert_ok(hwt_durable_resume(place.durable, "q"));
	(void)server_ask(&place.server, hint, "LPOP {hwt}:k:q");
	cr_assert_str_eq(hint, "*");
	assert_u64(ask("EXISTS {hwt}:k:q"), 0);
}

/* It is in the engine all the same, and can be repeated. */
PlaceTest(queue, a_pause_that_too_few_replicas_have_is_ETIMEDOUT)
{
	struct hwt_durable_options options = place_options();

	options.level = HWT_DURABLE_REPLICATED;
	options.timeout_ns = HWT_SEC(1);
	place_open_other(&options);
	assert_rc(hwt_durable_pause(place.other, "q"), -ETIMEDOUT);
	assert_u64(ask("ZCARD {hwt:0}:paused"), 1);
}

PlaceTest(queue, names_outside_their_range_are_EINVAL)
{
	assert_rc(hwt_durable_pause(place.durable, NULL), -EINVAL);
	assert_rc(hwt_durable_pause(place.durable, ""), -EINVAL);
	assert_rc(hwt_durable_pause(place.durable, "a b"), -EINVAL);
	assert_rc(hwt_durable_pause(NULL, "q"), -EINVAL);
	assert_rc(hwt_durable_resume(place.durable, NULL), -EINVAL);
	assert_rc(hwt_durable_resume(place.durable, "a b"), -EINVAL);
	assert_rc(hwt_durable_resume(NULL, "q"), -EINVAL);
}

PlaceTest(queue, limits_outside_their_range_are_EINVAL)
{
	static const struct hwt_durable_limits bad[] = {
	    {.at_once = 1}, /* there are two shards or more */
	    {.at_once = HWT_NEVER},
	    {.rate = -1},
	    {.rate = 0.0009},
	    {.rate = 1000001},
	    {.rate = (double)NAN},
	    {.at_once = 64, .reserved = {[3] = 1}},
	};
	const struct hwt_durable_limits good = {.at_once = 64, .rate = 0.001};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_rc(
		    hwt_durable_limit(place.durable, "q", &bad[i]), -EINVAL);
	assert_rc(hwt_durable_limit(place.durable, "q", NULL), -EINVAL);
	assert_rc(hwt_durable_limit(place.durable, NULL, &good), -EINVAL);
	assert_rc(hwt_durable_limit(place.durable, "a b", &good), -EINVAL);
	assert_rc(hwt_durable_limit(NULL, "q", &good), -EINVAL);
	assert_ok(hwt_durable_limit(place.durable, "q", &good));
}

/* What runs, and the most that did. */
struct load {
	atomic_int now, most;
};

static int
load_count(void *ctx, const struct hwt_durable_delivery *delivery)
{
	struct load *load = ctx;
	int now = atomic_fetch_add(&load->now, 1) + 1;
	int most = atomic_load(&load->most);

	(void)delivery;
	while (now > most &&
	    !atomic_compare_exchange_weak(&load->most, &most, now))
		;
	(void)usleep(2000);
	(void)atomic_fetch_sub(&load->now, 1);
	return 0;
}

/* By two workers, which never poll, as if others did: so what they are not told
 * of would wait for ever. Returns how long that took. */
static uint64_t
execute_within(
    const struct hwt_durable_limits *limits, uint64_t tasks, struct load *load)
{
	const struct hwt_durable_worker_options options = {
	    .queue = "q", .callback = load_count, .ctx = load, .threads = 8};
	struct hwt_durable_worker *other;
	uint64_t begun_ns, took_ns;

	(void)ask("SET {hwt}:p:q other");
	assert_ok(hwt_durable_limit(place.durable, "q", limits));
	add_many("", tasks, NULL);
	begun_ns = monotonic_ns();
	place_work(&options);
	assert_ok(hwt_durable_worker_start(&other, place.durable, &options));
	place_schedule();
	await_succeeded(tasks);
	took_ns = monotonic_ns() - begun_ns;
	assert_ok(hwt_durable_worker_stop(other, HWT_SEC(60)));
	return took_ns;
}

PlaceTest(queue, so_many_tasks_run_at_a_time_and_an_end_lets_the_next_begin)
{
	const struct hwt_durable_limits limits = {.at_once = 4};
	struct load load = {0};

	(void)execute_within(&limits, 400, &load);
	cr_assert(load.most <= 4, "%d at a time", load.most);
}

PlaceTest(queue, so_many_attempts_begin_in_a_second)
{
	const struct hwt_durable_limits limits = {.rate = 40};
	struct load load = {0};
	uint64_t took_ns;

	took_ns = execute_within(&limits, 80, &load);
	/* 40 are in the buckets at first. */
	cr_assert(took_ns >= HWT_MS(950), "%" PRIu64, took_ns);
}
