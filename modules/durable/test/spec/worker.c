/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker: what its callbacks get and answer, and its life; and the promises
 * at_least_once, fenced and cancelled.
 */
#include "modules/durable/test/spec/durable.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SUITE(worker);
SUITE(at_least_once);
SUITE(fenced);
SUITE(cancelled);

static struct place place;

/* That a proxy has kept, or counted. */
static _Atomic uint64_t outcomes, polls;

/* What a callback saw, and what it is to do. */
static struct seen {
	_Atomic uint64_t calls, inside, inside_max;
	_Atomic uint64_t answer; /* of the callback */
	_Atomic uint64_t delay_ns; /* of a retry; 0: as it is */
	struct gate gate;
	bool gated;
	pthread_mutex_t lock;
	uint32_t attempt, generation, max_attempts;
	uint64_t due_unix_ns, delay_given_ns, fence;
	char id[80], queue[80], payload[80];
	size_t payload_length;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
note(struct seen *noted, const struct hwt_durable_delivery *delivery)
{
	(void)pthread_mutex_lock(&noted->lock);
	noted->attempt = delivery->attempt;
	noted->generation = delivery->generation;
	noted->max_attempts = delivery->max_attempts;
	noted->due_unix_ns = delivery->due_unix_ns;
	noted->fence = delivery->fence;
	noted->delay_given_ns = *delivery->retry_delay_ns;
	(void)snprintf(noted->id, sizeof(noted->id), "%s", delivery->id);
	(void)snprintf(
	    noted->queue, sizeof(noted->queue), "%s", delivery->queue);
	noted->payload_length = delivery->payload_length;
	if (delivery->payload_length < sizeof(noted->payload))
		memcpy(noted->payload, delivery->payload,
		    delivery->payload_length);
	(void)pthread_mutex_unlock(&noted->lock);
}

static int
callback(void *ctx, const struct hwt_durable_delivery *delivery)
{
	struct seen *noted = ctx;
	uint64_t inside = atomic_fetch_add(&noted->inside, 1) + 1;

	if (inside > atomic_load(&noted->inside_max))
		atomic_store(&noted->inside_max, inside);
	note(noted, delivery);
	if (atomic_load(&noted->delay_ns) != 0)
		*delivery->retry_delay_ns = atomic_load(&noted->delay_ns);
	(void)atomic_fetch_add(&noted->calls, 1);
	if (noted->gated)
		gate_pass(&noted->gate);
	(void)atomic_fetch_sub(&noted->inside, 1);
	return (int)atomic_load(&noted->answer);
}

static struct hwt_durable_worker_options
work(void)
{
	return (struct hwt_durable_worker_options){
	    .queue = "q", .callback = callback, .ctx = &seen};
}

/* NULL: without a worker. */
static void
yard_open_with(const struct hwt_durable_worker_options *options)
{
	gate_init(&seen.gate);
	place_open(&place, NULL);
	place_schedule(&place);
	if (options != NULL)
		place_work(&place, options);
}

static void
yard_open(void)
{
	struct hwt_durable_worker_options options = work();

	yard_open_with(&options);
}

Test(worker, options_outside_their_range_are_EINVAL)
{
	struct hwt_durable_worker_options bad[9];
	size_t i;

	for (i = 0; i < 9; i++)
		bad[i] = work();
	bad[0].queue = NULL;
	bad[1].queue = "";
	bad[2].queue = "a b";
	bad[3].callback = NULL;
	bad[4].threads = 1025;
	bad[5].flags = 1;
	bad[6].visibility_ns = HWT_MS(999);
	bad[7].visibility_ns = HWT_SEC(86401);
	bad[8].reserved[0] = 1;
	place_open(&place, NULL);
	for (i = 0; i < 9; i++)
		cr_expect(hwt_durable_worker_start(
			      &place.worker, place.durable, &bad[i]) == -EINVAL,
		    "options %zu", i);
	assert_rc(hwt_durable_worker_start(&place.worker, place.durable, NULL),
	    -EINVAL);
	bad[0] = work();
	assert_rc(hwt_durable_worker_start(NULL, place.durable, bad), -EINVAL);
	assert_rc(hwt_durable_worker_start(&place.worker, NULL, bad), -EINVAL);
	assert_rc(hwt_durable_worker_stop(NULL, 0), 0);
	place_close(&place);
}

Test(worker, a_callback_gets_what_was_added)
{
	struct hwt_durable_task task = task_of("some id");
	struct hwt_durable_info info;

	yard_open();
	task.payload = "pay\0load";
	task.payload_length = 8;
	task.max_attempts = 3;
	assert_rc(hwt_durable_add(place.durable, 1, &task, NULL), 0);
	await_state(&place, "some id", HWT_DURABLE_SUCCEEDED);
	info = info_of(&place, "some id");
	assert_u64(seen.attempt, 1);
	assert_u64(seen.generation, 1);
	assert_u64(seen.max_attempts, 3);
	assert_u64(seen.delay_given_ns, HWT_NEVER);
	assert_u64(seen.due_unix_ns, info.due_unix_ns);
	assert_u64(seen.payload_length, 8);
	cr_assert(memcmp(seen.payload, "pay\0load", 8) == 0);
	cr_assert_str_eq(seen.id, "some id");
	cr_assert_str_eq(seen.queue, "q");
	assert_u64(seen.calls, 1);
	assert_u64(info.payload_length, 0);
	assert_rc(hwt_durable_cancel(place.durable, "some id", 7), -EALREADY);
	assert_rc(hwt_durable_reschedule(place.durable, "some id", 7, 0, 0),
	    -EALREADY);
	place_close(&place);
}

Test(worker, FAIL_and_what_is_not_known_is_a_dead_letter)
{
	struct hwt_durable_info info;
	char payload[8];
	struct hwt_durable_task task = task_of("b");

	yard_open();
	atomic_store(&seen.answer, HWT_DURABLE_FAIL);
	assert_rc(add_one(&place, "a"), 0);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	atomic_store(&seen.answer, 77);
	task.payload = "load";
	task.payload_length = 4;
	assert_rc(hwt_durable_add(place.durable, 1, &task, NULL), 0);
	await_state(&place, "b", HWT_DURABLE_FAILED);
	assert_rc(hwt_durable_get(place.durable, "b", 1, &info, payload, 8), 0);
	assert_u64(info.payload_length, 4);
	assert_u64(stats_of(&place).dead, 2);
	assert_rc(hwt_durable_cancel(place.durable, "a", 1), -EALREADY);
	place_close(&place);
}

static int
fail_with_a_text(void *ctx, const struct hwt_durable_delivery *delivery)
{
	static const char text[HWT_DURABLE_ERROR_MAX + 1];

	(void)ctx;
	assert_rc(hwt_durable_set_error(NULL, text, 1), -EINVAL);
	assert_rc(hwt_durable_set_error(delivery, NULL, 0), -EINVAL);
	assert_rc(hwt_durable_set_error(delivery, text, sizeof(text)), -EINVAL);
	assert_rc(hwt_durable_set_error(delivery, text, sizeof(text) - 1), 0);
	assert_rc(hwt_durable_set_error(delivery, "no \0 card", 9), 0);
	return delivery->attempt < 2 ? HWT_DURABLE_RETRY : HWT_DURABLE_FAIL;
}

Test(worker, what_a_callback_says_is_kept_with_the_dead_letter)
{
	struct hwt_durable_worker_options options = work();
	char said[SAID_MAX], key[ENGINE_KEY_MAX];

	options.callback = fail_with_a_text;
	yard_open_with(&options);
	assert_rc(add_one(&place, "a"), 0);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	engine_key(durable_engine(place.durable), key,
	    durable_shard_of(place.durable, "a", 1), "e:a");
	(void)server_ask(&place.server, said, "EVAL %s 1 %s",
	    "return(redis.call('GET',KEYS[1]):gsub('%z','0'))", key);
	cr_assert(strstr(said, " no 0 card") != NULL, "%s", said);
	place_close(&place);
}

Test(worker, RETRY_executes_again_after_its_delay)
{
	struct hwt_durable_task task = task_of("a");

	yard_open();
	atomic_store(&seen.answer, HWT_DURABLE_RETRY);
	atomic_store(&seen.delay_ns, HWT_MS(30));
	task.max_attempts = 3;
	assert_rc(hwt_durable_add(place.durable, 1, &task, NULL), 0);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_u64(seen.calls, 3);
	assert_u64(seen.attempt, 3);
	assert_u64(info_of(&place, "a").attempts, 3);
	assert_u64(stats_of(&place).retried, 3);
	place_close(&place);
}

Test(worker, RETRY_without_a_delay_backs_off_for_at_most_a_second_at_first)
{
	struct hwt_durable_task task = task_of("a");
	uint64_t from = monotonic_ns();

	yard_open();
	atomic_store(&seen.answer, HWT_DURABLE_RETRY);
	task.max_attempts = 2;
	assert_rc(hwt_durable_add(place.durable, 1, &task, NULL), 0);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_u64(seen.calls, 2);
	cr_assert(monotonic_ns() - from < HWT_SEC(30));
	place_close(&place);
}

Test(worker, no_more_threads_call_back_than_were_asked_for)
{
	struct hwt_durable_worker_options options = work();
	int i;

	options.threads = 3;
	seen.gated = true;
	yard_open_with(&options);
	add_many(&place, "t", 20, NULL);
	for (i = 0; i < 3; i++)
		gate_await(&seen.gate);
	assert_u64(seen.inside_max, 3);
	/* Nothing is taken ahead of callbacks that take long. */
	assert_u64(stats_of(&place).running, 3);
	for (i = 0; i < 20; i++)
		gate_open(&seen.gate);
	await_succeeded(&place, 20);
	assert_u64(seen.calls, 20);
	assert_u64(seen.inside_max, 3);
	place_close(&place);
}

Test(worker, many_short_tasks_are_all_executed_once)
{
	struct hwt_durable_worker_options options = work();
	struct hwt_durable_stats stats;

	options.threads = 2;
	yard_open_with(&options);
	add_many(&place, "", 4 * HWT_DURABLE_BATCH_MAX, NULL);
	await_succeeded(&place, 4 * HWT_DURABLE_BATCH_MAX);
	stats = stats_of(&place);
	assert_u64(seen.calls, stats.begun);
	assert_u64(stats.running + stats.delivered + stats.pending, 0);
	place_close(&place);
}

/* A take of theirs is more than one script. */
Test(worker, the_longest_payloads_are_all_taken)
{
	static char payload[HWT_DURABLE_PAYLOAD_MAX];
	struct hwt_durable_worker_options options = work();
	struct hwt_durable_task task = task_of("");

	yard_open_with(NULL);
	task.payload = payload;
	task.payload_length = sizeof(payload);
	add_many(&place, "t", 200, &task);
	options.threads = 200;
	place_work(&place, &options);
	await_succeeded(&place, 200);
	assert_u64(seen.calls, 200);
	place_close(&place);
}

Test(worker, a_lease_is_extended_while_a_callback_runs)
{
	struct hwt_durable_worker_options options = work();

	options.visibility_ns = HWT_SEC(5);
	seen.gated = true;
	yard_open_with(&options);
	assert_rc(add_one(&place, "a"), 0);
	gate_await(&seen.gate);
	sleep_ns(HWT_SEC(17.5));
	cr_assert(state_of(&place, "a") == HWT_DURABLE_RUNNING);
	assert_u64(stats_of(&place).expired_leases, 0);
	gate_open(&seen.gate);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(seen.calls, 1);
	place_close(&place);
}

/* It was taken, and waits for the thread; another worker may have it by now. */
Test(fenced, what_was_not_begun_before_a_suspension_is_not_begun_after_it)
{
	struct hwt_durable_worker_options options = work();
	char id[8];
	int i;

	options.visibility_ns = HWT_SEC(3);
	yard_open_with(&options);
	/* They are quick, so that the next ones are taken ahead. */
	for (i = 0; i < 20; i++) {
		(void)snprintf(id, sizeof(id), "t%d", i);
		assert_rc(add_one(&place, id), 0);
		await_state(&place, id, HWT_DURABLE_SUCCEEDED);
	}
	seen.gated = true;
	assert_rc(add_one(&place, "a"), 0);
	gate_await(&seen.gate);
	assert_rc(add_one(&place, "b"), 0);
	await_state(&place, "b", HWT_DURABLE_RUNNING);
	suspend(HWT_SEC(3600));
	gate_open(&seen.gate);
	gate_await(&seen.gate);
	cr_assert_str_eq(seen.id, "b");
	/* The one that it did not begin does not count. */
	assert_u64(seen.attempt, 1);
	assert_u64(stats_of(&place).given_back, 1);
	gate_open(&seen.gate);
	await_state(&place, "b", HWT_DURABLE_SUCCEEDED);
	place_close(&place);
}

/* timer: the caller's; NULL: the shared one. */
static void
run_too_long(struct hwt *timer, bool stops)
{
	struct hwt_durable_worker_options options = work();
	struct hwt_durable_task task = task_of("a");
	struct hwt_durable_options with;
	struct hwt_durable *durable;

	options.run_limit_ns = HWT_MS(50);
	options.threads = 2;
	seen.gated = true;
	yard_open_with(NULL);
	with = place_options(&place);
	with.timer = timer;
	assert_rc(hwt_durable_open(&durable, &with), 0);
	assert_rc(
	    hwt_durable_worker_start(&place.worker, durable, &options), 0);
	if (stops)
		assert_rc(hwt_stop(timer, NULL), 0);
	task.max_attempts = 2;
	assert_rc(hwt_durable_add(place.durable, 1, &task, NULL), 0);
	gate_await(&seen.gate);
	gate_await(&seen.gate);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_u64(seen.calls, 2);
	gate_open(&seen.gate);
	gate_open(&seen.gate);
	place_unwork(&place);
	/* What they returned had no effect. */
	cr_assert(state_of(&place, "a") == HWT_DURABLE_FAILED);
	cr_assert(log_has(&place.log, "takes longer than run_limit_ns"));
	assert_rc(hwt_durable_close(durable), 0);
	place_close(&place);
}

Test(worker, a_callback_that_runs_for_too_long_is_executed_again)
{
	run_too_long(NULL, false);
}

/* It looks once a second at what the timer refuses. */
Test(worker, a_timer_that_is_stopped_under_it_makes_it_late_not_dead)
{
	struct hwt *timer = worker_timer_open(HWT_MS(1));

	run_too_long(timer, true);
	assert_rc(hwt_destroy(timer), 0);
}

Test(worker, a_stop_gives_back_what_no_callback_was_called_for)
{
	struct hwt_durable_stats stats;
	struct hwt_durable_info info;
	char id[8];
	int i;

	seen.gated = true;
	yard_open();
	assert_rc(add_one(&place, "a"), 0);
	gate_await(&seen.gate);
	for (i = 0; i < 10; i++) {
		(void)snprintf(id, sizeof(id), "t%d", i);
		assert_rc(add_one(&place, id), 0);
		await_state(&place, id, HWT_DURABLE_DELIVERED);
	}
	assert_rc(hwt_durable_worker_stop(place.worker, HWT_MS(50)), -EBUSY);
	gate_open(&seen.gate);
	place_unwork(&place);
	cr_assert(state_of(&place, "a") == HWT_DURABLE_SUCCEEDED);
	assert_u64(seen.calls, 1);
	for (i = 0; i < 10; i++) {
		(void)snprintf(id, sizeof(id), "t%d", i);
		info = info_of(&place, id);
		cr_assert(info.state == HWT_DURABLE_PENDING ||
		    info.state == HWT_DURABLE_DELIVERED);
		assert_u64(info.attempts, 0);
	}
	stats = stats_of(&place);
	assert_u64(stats.running, 0);
	assert_u64(stats.begun, 1 + stats.given_back);
	(void)server_ask(
	    &place.server, NULL, "HINCRBY {hwt:0}:meta given_back 5");
	assert_u64(stats_of(&place).given_back, stats.given_back + 5);
	place_close(&place);
}

static int
stop_inside(void *ctx, const struct hwt_durable_delivery *delivery)
{
	struct seen *noted = ctx;

	(void)delivery;
	atomic_store(&noted->calls,
	    (uint64_t)-hwt_durable_worker_stop(place.worker, HWT_SEC(1)));
	return 0;
}

Test(worker, a_stop_in_its_own_callback_is_EDEADLK)
{
	struct hwt_durable_worker_options options = work();

	options.callback = stop_inside;
	yard_open_with(&options);
	assert_rc(add_one(&place, "a"), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	/* What hwt_durable_worker_stop said. */
	assert_u64(seen.calls, EDEADLK);
	place_close(&place);
}

static int
add_inside(void *ctx, const struct hwt_durable_delivery *delivery)
{
	struct hwt_durable_task task = task_of("next");

	(void)ctx;
	if (strcmp(delivery->id, "next") == 0)
		return 0;
	return hwt_durable_add(place.durable, 1, &task, NULL) == 0
	    ? 0
	    : HWT_DURABLE_FAIL;
}

Test(worker, a_callback_may_add)
{
	struct hwt_durable_worker_options options = work();

	options.callback = add_inside;
	yard_open_with(&options);
	assert_rc(add_one(&place, "a"), 0);
	await_state(&place, "next", HWT_DURABLE_SUCCEEDED);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	place_close(&place);
}

static void
stop_without_engine(uint64_t within_ns)
{
	struct hwt_durable_options options;
	struct hwt_durable_worker_options how = work();
	struct hwt_durable *durable;

	seen.gated = true;
	yard_open_with(NULL);
	options = place_options(&place);
	options.timeout_ns = HWT_SEC(2);
	assert_rc(hwt_durable_open(&durable, &options), 0);
	assert_rc(hwt_durable_worker_start(&place.worker, durable, &how), 0);
	assert_rc(add_one(&place, "a"), 0);
	gate_await(&seen.gate);
	server_kill(&place.server);
	gate_open(&seen.gate);
	assert_rc(hwt_durable_worker_stop(place.worker, within_ns), 0);
	place.worker = NULL;
	assert_rc(hwt_durable_close(durable), 0);
	server_again(&place.server);
	cr_assert(state_of(&place, "a") == HWT_DURABLE_RUNNING);
	place_close(&place);
}

Test(worker, a_stop_is_not_held_up_by_an_engine_that_is_gone)
{
	stop_without_engine(HWT_SEC(1));
}

Test(worker, nor_is_a_stop_that_waits_for_ever)
{
	stop_without_engine(HWT_NEVER);
}

Test(worker, an_outcome_is_told_when_the_engine_is_back)
{
	seen.gated = true;
	yard_open();
	assert_rc(add_one(&place, "a"), 0);
	gate_await(&seen.gate);
	server_kill(&place.server);
	gate_open(&seen.gate);
	sleep_ns(HWT_MS(300));
	server_again(&place.server);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(seen.calls, 1);
	place_close(&place);
}

/* A MiB for each of twenty takes, which stop there. */
static void
add_expired(void)
{
	static char payload[HWT_DURABLE_PAYLOAD_MAX];
	struct hwt_durable_task task = task_of("");

	task.expires_ns = HWT_MS(1);
	task.payload = payload;
	task.payload_length = sizeof(payload);
	add_many(&place, "", 20 * 16, &task);
}

static enum proxied
judge_polls(struct proxy *judged, const char *name, const redisReply *command,
    uint64_t count)
{
	(void)judged;
	(void)command;
	if (strcmp(name, "SET") == 0)
		atomic_store(&polls, count + 1);
	return PROXY_PASS;
}

Test(worker, what_has_expired_does_not_wait_for_a_poll)
{
	static struct proxy proxy = {.judge = judge_polls};
	struct hwt_durable_worker_options how = work();
	struct hwt_durable_options options;
	struct hwt_durable *durable;

	place_open(&place, one_shard);
	add_expired();
	assert_rc(add_one(&place, "live"), 0);
	/* A pump or two for all: there are few hints then. */
	place_schedule(&place);
	await_state(&place, "live", HWT_DURABLE_DELIVERED);
	place_unschedule(&place);
	options = place_behind(&place, &proxy);
	options.shards = 1;
	how.threads = 4;
	assert_rc(hwt_durable_open(&durable, &options), 0);
	assert_rc(hwt_durable_worker_start(&place.worker, durable, &how), 0);
	await_state(&place, "live", HWT_DURABLE_SUCCEEDED);
	cr_assert(polls < 15);
	place_unwork(&place);
	assert_rc(hwt_durable_close(durable), 0);
	proxy_stop(&proxy);
	place_close(&place);
}

/* Outcomes, while data is not NULL. */
static enum proxied
judge_outcomes(struct proxy *judged, const char *name,
    const redisReply *command, uint64_t count)
{
	size_t i;

	(void)name;
	(void)count;
	for (i = 0; i < command->elements && judged->data != NULL; i++) {
		if (strcmp(command->element[i]->str, "done") == 0) {
			(void)atomic_fetch_add(&outcomes, 1);
			return PROXY_KEEP;
		}
	}
	return PROXY_PASS;
}

/* No janitor ends it meanwhile. */
Test(worker, an_outcome_without_an_answer_is_told_after_its_lease_too)
{
	static struct proxy proxy = {
	    .judge = judge_outcomes, .data = &outcomes};
	struct hwt_durable_worker_options how = work();
	struct hwt_durable_options options;
	struct hwt_durable *durable;

	yard_open_with(NULL);
	options = place_behind(&place, &proxy);
	options.timeout_ns = HWT_MS(200);
	assert_rc(hwt_durable_open(&durable, &options), 0);
	how.visibility_ns = HWT_SEC(3);
	assert_rc(hwt_durable_worker_start(&place.worker, durable, &how), 0);
	assert_rc(add_one(&place, "a"), 0);
	wait_for(&outcomes, 1);
	place_unschedule(&place);
	cr_assert(state_of(&place, "a") == HWT_DURABLE_RUNNING);
	sleep_ns(HWT_SEC(4));
	proxy.data = NULL;
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(seen.calls, 1);
	place_unwork(&place);
	assert_rc(hwt_durable_close(durable), 0);
	proxy_stop(&proxy);
	place_close(&place);
}

Test(worker, without_threads_or_memory_nothing_is_left_behind)
{
	/* The shared timer's own thread comes first, once. */
	static const struct {
		unsigned fault;
		int error;
	} rows[] = {{FAULT_THREAD, -EAGAIN}, {FAULT_HEAP, -ENOMEM}};
	struct hwt_durable_worker_options options = work();
	struct hwt_durable_worker *worker;
	uint64_t i;
	int error;

	options.threads = 3;
	place_open(&place, NULL);
	for (i = 0; i < 8; i++) {
		fault_arm(rows[i / 4].fault, 1 + i % 4);
		error =
		    hwt_durable_worker_start(&worker, place.durable, &options);
		(void)fault_disarm();
		cr_expect(error == rows[i / 4].error, "call %d: %s",
		    (int)(1 + i % 4), rc_name(error));
		if (error == 0)
			assert_rc(
			    hwt_durable_worker_stop(worker, HWT_SEC(60)), 0);
	}
	fault_arm_eventfd(EMFILE);
	error = hwt_durable_worker_start(&worker, place.durable, &options);
	(void)fault_disarm();
	assert_rc(error, -EMFILE);
	place_close(&place);
}

/* A child takes a task, and is killed. */
Test(at_least_once, what_a_killed_worker_held_is_executed_by_another)
{
	struct engine_argument argument[6] = {
	    {"q", 1}, {"dead", 4}, {"1", 1}, {"0", 1}, {"1", 1}, {"300", 3}};
	struct engine_call call = {
	    .script = SCRIPT_TAKE, .count = 6, .arg = argument};
	struct hwt_durable_worker_options options = work();

	yard_open_with(NULL);
	assert_rc(add_one(&place, "a"), 0);
	await_state(&place, "a", HWT_DURABLE_DELIVERED);
	/* One that takes it and is never heard of again. */
	call.shard = durable_shard_of(place.durable, "a", 1);
	assert_rc(
	    engine_call(durable_engine(place.durable), &call, 1, NULL), 0);
	cr_assert(call.reply->elements == 1);
	engine_call_free(&call, 1);
	assert_rc(hwt_durable_cancel(place.durable, "a", 1), -EINPROGRESS);
	assert_rc(
	    hwt_durable_reschedule(place.durable, "a", 1, 0, 0), -EINPROGRESS);
	place_work(&place, &options);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(info_of(&place, "a").attempts, 2);
	assert_u64(seen.calls, 1);
	assert_u64(stats_of(&place).expired_leases, 1);
	place_close(&place);
}

/* The lease is taken away under the callback. */
Test(fenced, the_outcome_of_an_attempt_that_was_given_up_has_no_effect)
{
	char score[SAID_MAX];
	uint32_t shard;

	seen.gated = true;
	yard_open();
	atomic_store(&seen.answer, HWT_DURABLE_FAIL);
	assert_rc(add_one(&place, "a"), 0);
	gate_await(&seen.gate);
	shard = durable_shard_of(place.durable, "a", 1);
	(void)server_ask(&place.server, score, "ZADD {hwt:%u}:fly 1 a", shard);
	AWAIT(stats_of(&place).expired_leases > 0);
	gate_open(&seen.gate);
	gate_await(&seen.gate);
	/* The second attempt is under way; the first did not fail it. */
	cr_assert(state_of(&place, "a") == HWT_DURABLE_RUNNING);
	assert_u64(stats_of(&place).failed, 0);
	atomic_store(&seen.answer, 0);
	gate_open(&seen.gate);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(seen.calls, 2);
	cr_assert(log_has(&place.log, "its outcome has no effect"));
	place_close(&place);
}

/* As if the lease was over, and the dead letter dropped. */
static void
lose_task(const char *id)
{
	char said[SAID_MAX];
	uint32_t shard = durable_shard_of(place.durable, id, strlen(id));

	(void)server_ask(
	    &place.server, said, "ZADD {hwt:%u}:fly 1 %s", shard, id);
	await_state(&place, id, HWT_DURABLE_FAILED);
	(void)server_ask(&place.server, said, "DEL {hwt:%u}:r:%s", shard, id);
	(void)server_ask(
	    &place.server, said, "ZREM {hwt:%u}:dead %s", shard, id);
}

Test(fenced, a_task_that_is_added_again_does_not_end_by_an_outcome_of_the_first)
{
	static struct seen other = {.gated = true,
	    .answer = HWT_DURABLE_FAIL,
	    .lock = PTHREAD_MUTEX_INITIALIZER};
	struct hwt_durable_worker_options options = work();
	struct hwt_durable_task task = task_of("a");
	struct hwt_durable_worker *second;

	seen.gated = true;
	yard_open();
	task.max_attempts = 1;
	assert_rc(hwt_durable_add(place.durable, 1, &task, NULL), 0);
	gate_await(&seen.gate);
	lose_task("a");
	options.ctx = &other;
	gate_init(&other.gate);
	assert_rc(
	    hwt_durable_worker_start(&second, place.durable, &options), 0);
	assert_rc(hwt_durable_add(place.durable, 1, &task, NULL), 0);
	gate_await(&other.gate);
	assert_u64(other.generation, seen.generation);
	assert_u64(other.attempt, seen.attempt);
	cr_assert(other.fence > seen.fence);
	gate_open(&seen.gate);
	AWAIT(log_has(&place.log, "its outcome has no effect"));
	cr_assert(state_of(&place, "a") == HWT_DURABLE_RUNNING);
	gate_open(&other.gate);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_rc(hwt_durable_worker_stop(second, HWT_SEC(60)), 0);
	place_close(&place);
}

Test(cancelled, nothing_begins_after_a_cancel_that_returned_0)
{
	static char id[200][8];
	static int answer[200];
	uint64_t cancelled = 0;
	int i;

	yard_open();
	for (i = 0; i < 200; i++) {
		(void)snprintf(id[i], sizeof(id[i]), "t%d", i);
		assert_rc(add_one(&place, id[i]), 0);
		answer[i] =
		    hwt_durable_cancel(place.durable, id[i], strlen(id[i]));
		cr_assert(answer[i] == 0 || answer[i] == -EALREADY ||
		    answer[i] == -EINPROGRESS);
		cancelled += answer[i] == 0;
	}
	for (i = 0; i < 200; i++)
		await_state(&place, id[i],
		    answer[i] == 0 ? HWT_DURABLE_CANCELLED
				   : HWT_DURABLE_SUCCEEDED);
	assert_u64(seen.calls, 200 - cancelled);
	place_close(&place);
}

/* A task at a time; how many takes that took, of so many workers, by what a
 * take reads. */
static uint64_t
count_takes_of(uint32_t count)
{
	struct hwt_durable_worker *many[16];
	struct hwt_durable_worker_options options = work();
	uint64_t before;
	char id[16];
	uint32_t i;

	for (i = 0; i < count; i++)
		assert_rc(
		    hwt_durable_worker_start(&many[i], place.durable, &options),
		    0);
	/* They have looked everywhere, and wait. */
	for (i = 0; i < 3; i++) {
		sleep_ns(HWT_MS(200));
		before = calls_of(&place, "lrange");
	}
	for (i = 0; i < 60; i++) {
		(void)snprintf(id, sizeof(id), "%u.%u", count, i);
		assert_rc(add_one(&place, id), 0);
		await_state(&place, id, HWT_DURABLE_SUCCEEDED);
	}
	before = calls_of(&place, "lrange") - before;
	for (i = 0; i < count; i++)
		assert_rc(hwt_durable_worker_stop(many[i], HWT_SEC(60)), 0);
	return before;
}

Test(worker, of_many_that_wait_one_is_told)
{
	uint64_t one, many;

	yard_open_with(NULL);
	one = count_takes_of(1);
	many = count_takes_of(16);
	/* The polls of some seconds; with each of them told it is 16 times. */
	cr_assert(many < 4 * one, "%llu takes, and %llu of one",
	    (unsigned long long)many, (unsigned long long)one);
	place_close(&place);
}
