/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scheduler: what it moves, and its life; never_early: not before its time.
 */
#include "modules/durable/test/spec/durable.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SUITE(scheduler);
SUITE(never_early);

PlaceTest(scheduler, options_outside_their_range_are_EINVAL)
{
	const struct hwt_durable_scheduler_options bad[] = {
	    {.first_shard = 1, .last_shard = 0},
	    {.first_shard = 0, .last_shard = 2},
	    {.flags = 1},
	    {.name = ""},
	    {.name = "a b"},
	    {.name = "1234567890123456789012345678901234567890123456789"},
	    {.reserved = {1}},
	};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_expect(hwt_durable_scheduler_start(&place.scheduler,
			      place.durable, &bad[i]) == -EINVAL,
		    "options %zu", i);
	assert_rc(
	    hwt_durable_scheduler_start(NULL, place.durable, NULL), -EINVAL);
	assert_rc(
	    hwt_durable_scheduler_start(&place.scheduler, NULL, NULL), -EINVAL);
	assert_ok(hwt_durable_scheduler_stop(NULL));
}

SchedulerTest(scheduler, what_is_due_is_delivered)
{
	assert_ok(add_one("a"));
	assert_ok(add_one("b"));
	await_state("a", HWT_DURABLE_DELIVERED);
	await_state("b", HWT_DURABLE_DELIVERED);
	assert_ok(cancel_one("a"));
}

PlaceTest(scheduler, more_than_one_pump_takes_is_delivered)
{
	add_many("", 4 * HWT_DURABLE_BATCH_MAX, NULL);
	place_schedule();
	AWAIT(stats_now().delivered == 4 * HWT_DURABLE_BATCH_MAX);
}

SchedulerTest(scheduler, two_share_the_shards_and_the_rest_goes_on_without_one)
{
	const struct hwt_durable_scheduler_options options = {.name = "other"};
	struct hwt_durable_scheduler *other;

	assert_ok(hwt_durable_scheduler_start(&other, place.durable, &options));
	AWAIT(ask("ZCARD {hwt}:hosts") == 2);
	assert_ok(add_one("a"));
	await_state("a", HWT_DURABLE_DELIVERED);
	assert_ok(hwt_durable_scheduler_stop(other));
	assert_i64(ask("ZCARD {hwt}:hosts"), 1);
	assert_ok(add_one("b"));
	await_state("b", HWT_DURABLE_DELIVERED);
	place_unschedule();
	assert_i64(ask("ZCARD {hwt}:hosts"), 0);
}

PlaceTest(scheduler, one_of_some_shards_leaves_the_others_alone)
{
	const struct hwt_durable_scheduler_options options = {
	    .first_shard = 1, .last_shard = 1};
	bool first;

	first = durable_shard_of(place.durable, "a", 1) == 1;
	assert_ok(hwt_durable_scheduler_start(
	    &place.scheduler, place.durable, &options));
	assert_ok(add_one("a"));
	assert_ok(add_one("b"));
	await_state(first ? "a" : "b", HWT_DURABLE_DELIVERED);
	cr_assert(state_of(first ? "b" : "a") == HWT_DURABLE_PENDING);
}

SchedulerTest(scheduler, it_goes_on_when_the_engine_is_back)
{
	assert_ok(add_one("a"));
	await_state("a", HWT_DURABLE_DELIVERED);
	server_kill(&place.server);
	sleep_ns(HWT_MS(300));
	server_again(&place.server);
	assert_ok(add_one("b"));
	await_state("b", HWT_DURABLE_DELIVERED);
}

PlaceTest(scheduler, a_paused_shard_holds_up_no_other)
{
	bool first;

	first = durable_shard_of(place.durable, "a", 1) == 0;
	place_call(SCRIPT_PAUSE, 0);
	place_schedule();
	assert_ok(add_one(first ? "b" : "a"));
	await_state(first ? "b" : "a", HWT_DURABLE_DELIVERED);
	place_call(SCRIPT_RESUME, 0);
	assert_ok(add_one(first ? "a" : "b"));
	await_state(first ? "a" : "b", HWT_DURABLE_DELIVERED);
}

/* The engine neither answers nor ends. */
SchedulerTest(scheduler, a_stop_does_not_wait_for_an_engine_that_is_stuck)
{
	uint64_t from;

	assert_ok(add_one("a"));
	await_state("a", HWT_DURABLE_DELIVERED);
	(void)kill(place.server.pid, SIGSTOP);
	sleep_ns(HWT_MS(1200));
	from = monotonic_ns();
	place_unschedule();
	/* timeout_ns is 20 s. */
	cr_assert(monotonic_ns() - from < HWT_SEC(15));
	(void)kill(place.server.pid, SIGCONT);
}

static void
short_retention(struct hwt_durable_options *options)
{
	options->retention_ns = HWT_MS(100);
}

Test(scheduler, what_has_ended_is_removed_after_its_retention)
{
	struct hwt_durable_info info;

	place_open(short_retention);
	place_schedule();
	assert_ok(add_one("a"));
	assert_ok(cancel_one("a"));
	AWAIT(
	    hwt_durable_get(place.durable, "a", 1, &info, NULL, 0) == -ENOENT);
	place_close();
}

/* The shared one's ticks are 10 ms: all would be late by that. */
Test(scheduler, a_handle_without_a_timer_has_one_of_its_own)
{
	struct hwt_stats before, after;
	struct hwt *shared;

	assert_ok(hwt_shared(&shared));
	assert_ok(hwt_read_stats(shared, &before));
	place_open(NULL);
	place_schedule();
	assert_ok(add_one("a"));
	await_state("a", HWT_DURABLE_DELIVERED);
	place_unschedule();
	assert_ok(hwt_read_stats(shared, &after));
	cr_expect(after.scheduled == before.scheduled);
	place_close();
}

/* With a timer that does nothing by itself: until what becomes due is not
 * pumped. Its id is in id then. */
static void
await_rest(char id[16])
{
	const struct timespec pause = {.tv_nsec = 50000000};
	int tries;

	for (tries = 0; tries < 50; tries++) {
		(void)snprintf(id, 16, "%d", tries);
		assert_ok(add_one(id));
		(void)nanosleep(&pause, NULL);
		if (state_of(id) != HWT_DURABLE_DELIVERED)
			return;
	}
	cr_assert_fail("it never rests");
}

static struct hwt *timer;

static void
with_timer(struct hwt_durable_options *options)
{
	options->timer = timer;
}

static void
rest_and(int (*then)(void))
{
	struct hwt_options timing = {.flags = HWT_MANUAL, .tick_ns = HWT_MS(1)};
	char id[16];

	assert_ok(hwt_create(&timer, &timing));
	place_open(with_timer);
	place_schedule();
	await_rest(id);
	assert_ok(then());
	await_state(id, HWT_DURABLE_DELIVERED);
	place_close();
	(void)!hwt_stop(timer, NULL);
	assert_ok(hwt_destroy(timer));
}

static int
advance(void)
{
	return hwt_advance(timer, NULL);
}

static int
end_timer(void)
{
	return hwt_stop(timer, NULL);
}

Test(scheduler, after_a_batch_it_rests_until_the_timer_says)
{
	rest_and(advance);
}

Test(scheduler, it_does_not_rest_for_ever_when_the_timer_is_stopped)
{
	rest_and(end_timer);
}

Test(scheduler, a_stopped_timer_is_ESHUTDOWN)
{
	const struct hwt_durable_worker_options work = {
	    .queue = "q", .callback = (hwt_durable_callback *)abort};

	timer = worker_timer_open(HWT_MS(1));
	place_open(with_timer);
	assert_ok(hwt_stop(timer, NULL));
	assert_rc(
	    hwt_durable_scheduler_start(&place.scheduler, place.durable, NULL),
	    -ESHUTDOWN);
	assert_rc(hwt_durable_worker_start(&place.worker, place.durable, &work),
	    -ESHUTDOWN);
	place_close();
	assert_ok(hwt_destroy(timer));
}

Test(scheduler, it_looks_once_a_second_when_the_timer_is_stopped_under_it)
{
	timer = worker_timer_open(HWT_MS(1));
	place_open(with_timer);
	place_schedule();
	assert_ok(hwt_stop(timer, NULL));
	add_with("a", .delay_ns = HWT_MS(300));
	await_state("a", HWT_DURABLE_DELIVERED);
	place_close();
	assert_ok(hwt_destroy(timer));
}

PlaceTest(scheduler, without_memory_or_threads_nothing_is_left_behind)
{
	struct hwt_durable_scheduler *scheduler;
	uint64_t i, count;
	int error;

	place_schedule();
	place_unschedule();
	fault_arm(FAULT_HEAP, FAULT_COUNT);
	error = hwt_durable_scheduler_start(&scheduler, place.durable, NULL);
	count = fault_disarm();
	assert_ok(error);
	assert_ok(hwt_durable_scheduler_stop(scheduler));
	for (i = 1; i <= (count < 4 ? count : 4); i++) {
		fault_arm(FAULT_HEAP, i);
		error = hwt_durable_scheduler_start(
		    &scheduler, place.durable, NULL);
		(void)fault_disarm();
		cr_expect(error == -ENOMEM || error == 0, "%s", rc_name(error));
		if (error == 0)
			assert_ok(hwt_durable_scheduler_stop(scheduler));
	}
	fault_arm_thread(EAGAIN);
	error = hwt_durable_scheduler_start(&scheduler, place.durable, NULL);
	(void)fault_disarm();
	assert_rc(error, -EAGAIN);
	fault_arm_eventfd(EMFILE);
	error = hwt_durable_scheduler_start(&scheduler, place.durable, NULL);
	(void)fault_disarm();
	assert_rc(error, -EMFILE);
}

/* What is in a shard's queue, and the engine's clock then, in ms. */
#define LIST                                              \
	"local t = redis.call('TIME') "                   \
	"return {t[1] * 1000 + math.floor(t[2] / 1000), " \
	"redis.call('LRANGE', KEYS[1], 0, -1)}"

/* How many of the tasks t0, t1 and so on are in a shard's queue, none of them
 * before it is due. */
static size_t
count_delivered(uint32_t shard, const uint64_t *due_ms)
{
	redisReply *reply = redisCommand(
	    place.server.context, "EVAL %s 1 {hwt:%u}:q:q", LIST, shard);
	const redisReply *ids;
	size_t i, count;

	cr_assert(reply != NULL && reply->type == REDIS_REPLY_ARRAY);
	ids = reply->element[1];
	count = ids->elements;
	for (i = 0; i < count; i++)
		cr_assert(reply->element[0]->integer >=
		    (long long)
			due_ms[strtoul(ids->element[i]->str + 1, NULL, 10)]);
	freeReplyObject(reply);
	return count;
}

/* By the engine's clock. */
SchedulerTest(never_early, nothing_is_delivered_before_it_is_due)
{
	struct hwt_durable_task task;
	uint64_t due_ms[40];
	size_t i, count = 0;
	uint32_t shard;
	char id[8];

	for (i = 0; i < 40; i++) {
		(void)snprintf(id, sizeof(id), "t%zu", i);
		task = task_of(id);
		task.delay_ns = HWT_MS(300) + HWT_MS(7) * i;
		add_task(&task);
		due_ms[i] = info_of(id).due_unix_ns / HWT_MS(1);
	}
	while (count < 40) {
		count = 0;
		for (shard = 0; shard < durable_shards(place.durable); shard++)
			count += count_delivered(shard, due_ms);
	}
	assert_u64(stats_now().missed, 0);
}
