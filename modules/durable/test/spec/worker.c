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

/* Options of a worker that calls that; there may be more. */
#define calling(called, ...)                   \
	(&(struct hwt_durable_worker_options){ \
	    .queue = "q", .callback = called, .ctx = &seen, __VA_ARGS__})
#define work(...) calling(callback, __VA_ARGS__)

/* A server and a scheduler, and a worker unless options is NULL. */
static void
yard_open(const struct hwt_durable_worker_options *options)
{
	gate_init(&seen.gate);
	place_open(NULL);
	place_schedule();
	if (options != NULL)
		place_work(options);
}

/* A test in a yard, which is closed after it. */
#define YardTest(suite, name, options) \
	TestBetween(yard_open(options), place_close(), suite, name)

PlaceTest(worker, options_outside_their_range_are_EINVAL)
{
	const struct hwt_durable_worker_options bad[] = {
	    {.callback = callback},
	    {.callback = callback, .queue = ""},
	    {.callback = callback, .queue = "a b"},
	    {.queue = "q"},
	    *work(.threads = 1025),
	    *work(.flags = 1),
	    *work(.visibility_ns = HWT_MS(999)),
	    *work(.visibility_ns = HWT_SEC(86401)),
	    *work(.reserved = {1}),
	};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_expect(hwt_durable_worker_start(
			      &place.worker, place.durable, &bad[i]) == -EINVAL,
		    "options %zu", i);
	assert_rc(hwt_durable_worker_start(&place.worker, place.durable, NULL),
	    -EINVAL);
	assert_rc(
	    hwt_durable_worker_start(NULL, place.durable, work()), -EINVAL);
	assert_rc(
	    hwt_durable_worker_start(&place.worker, NULL, work()), -EINVAL);
	assert_ok(hwt_durable_worker_stop(NULL, 0));
}

YardTest(worker, a_callback_gets_what_was_added, work())
{
	struct hwt_durable_task task = task_of("some id");
	struct hwt_durable_info info;

	task.payload = "pay\0load";
	task.payload_length = 8;
	task.max_attempts = 3;
	add_task(&task);
	await_state("some id", HWT_DURABLE_SUCCEEDED);
	info = info_of("some id");
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
	assert_rc(cancel_one("some id"), -EALREADY);
	assert_rc(reschedule_one("some id", 0), -EALREADY);
}

YardTest(worker, FAIL_and_what_is_not_known_is_a_dead_letter, work())
{
	struct hwt_durable_info info;
	char payload[8];

	atomic_store(&seen.answer, HWT_DURABLE_FAIL);
	assert_ok(add_one("a"));
	await_state("a", HWT_DURABLE_FAILED);
	atomic_store(&seen.answer, 77);
	add_with("b", .payload = "load", .payload_length = 4);
	await_state("b", HWT_DURABLE_FAILED);
	assert_ok(hwt_durable_get(place.durable, "b", 1, &info, payload, 8));
	assert_u64(info.payload_length, 4);
	assert_u64(stats_now().dead, 2);
	assert_rc(cancel_one("a"), -EALREADY);
}

static int
fail_with_a_text(void *ctx, const struct hwt_durable_delivery *delivery)
{
	static const char text[HWT_DURABLE_ERROR_MAX + 1];

	(void)ctx;
	assert_rc(hwt_durable_set_error(NULL, text, 1), -EINVAL);
	assert_rc(hwt_durable_set_error(delivery, NULL, 0), -EINVAL);
	assert_rc(hwt_durable_set_error(delivery, text, sizeof(text)), -EINVAL);
	assert_ok(hwt_durable_set_error(delivery, text, sizeof(text) - 1));
	assert_ok(hwt_durable_set_error(delivery, "no \0 card", 9));
	return delivery->attempt < 2 ? HWT_DURABLE_RETRY : HWT_DURABLE_FAIL;
}

YardTest(worker, what_a_callback_says_is_kept_with_the_dead_letter,
    calling(fail_with_a_text))
{
	char said[SAID_MAX], key[ENGINE_KEY_MAX];

	assert_ok(add_one("a"));
	await_state("a", HWT_DURABLE_FAILED);
	engine_key(durable_engine(place.durable), key,
	    durable_shard_of(place.durable, "a", 1), "e:a");
	(void)server_ask(&place.server, said, "EVAL %s 1 %s",
	    "return(redis.call('GET',KEYS[1]):gsub('%z','0'))", key);
	cr_assert(strstr(said, " no 0 card") != NULL, "%s", said);
}

YardTest(worker, RETRY_executes_again_after_its_delay, work())
{
	atomic_store(&seen.answer, HWT_DURABLE_RETRY);
	atomic_store(&seen.delay_ns, HWT_MS(30));
	add_with("a", .max_attempts = 3);
	await_state("a", HWT_DURABLE_FAILED);
	assert_u64(seen.calls, 3);
	assert_u64(seen.attempt, 3);
	assert_u64(info_of("a").attempts, 3);
	assert_u64(stats_now().retried, 3);
}

YardTest(worker, RETRY_without_a_delay_backs_off_for_at_most_a_second_at_first,
    work())
{
	uint64_t from = monotonic_ns();

	atomic_store(&seen.answer, HWT_DURABLE_RETRY);
	add_with("a", .max_attempts = 2);
	await_state("a", HWT_DURABLE_FAILED);
	assert_u64(seen.calls, 2);
	cr_assert(monotonic_ns() - from < HWT_SEC(30));
}

YardTest(
    worker, no_more_threads_call_back_than_were_asked_for, work(.threads = 3))
{
	int i;

	seen.gated = true;
	add_many("t", 20, NULL);
	for (i = 0; i < 3; i++)
		gate_await(&seen.gate);
	assert_u64(seen.inside_max, 3);
	/* Nothing is taken ahead of callbacks that take long. */
	assert_u64(stats_now().running, 3);
	for (i = 0; i < 20; i++)
		gate_open(&seen.gate);
	await_succeeded(20);
	assert_u64(seen.calls, 20);
	assert_u64(seen.inside_max, 3);
}

YardTest(worker, many_short_tasks_are_all_executed_once, work(.threads = 2))
{
	struct hwt_durable_stats stats;

	add_many("", 4 * HWT_DURABLE_BATCH_MAX, NULL);
	await_succeeded(4 * HWT_DURABLE_BATCH_MAX);
	stats = stats_now();
	assert_u64(seen.calls, stats.begun);
	assert_u64(stats.running + stats.delivered + stats.pending, 0);
}

/* A take of theirs is more than one script. */
YardTest(worker, the_longest_payloads_are_all_taken, NULL)
{
	static char payload[HWT_DURABLE_PAYLOAD_MAX];
	struct hwt_durable_task task = task_of("");

	task.payload = payload;
	task.payload_length = sizeof(payload);
	add_many("t", 200, &task);
	place_work(work(.threads = 200));
	await_succeeded(200);
	assert_u64(seen.calls, 200);
}

YardTest(worker, a_lease_is_extended_while_a_callback_runs,
    work(.visibility_ns = HWT_SEC(5)))
{
	seen.gated = true;
	assert_ok(add_one("a"));
	gate_await(&seen.gate);
	sleep_ns(HWT_SEC(17.5));
	cr_assert(state_of("a") == HWT_DURABLE_RUNNING);
	assert_u64(stats_now().expired_leases, 0);
	gate_open(&seen.gate);
	await_state("a", HWT_DURABLE_SUCCEEDED);
	assert_u64(seen.calls, 1);
}

/* It was taken, and waits for the thread; another worker may have it by now. */
YardTest(fenced, what_was_not_begun_before_a_suspension_is_not_begun_after_it,
    work(.visibility_ns = HWT_SEC(3)))
{
	char id[8];
	int i;

	/* They are quick, so that the next ones are taken ahead. */
	for (i = 0; i < 20; i++) {
		(void)snprintf(id, sizeof(id), "t%d", i);
		assert_ok(add_one(id));
		await_state(id, HWT_DURABLE_SUCCEEDED);
	}
	seen.gated = true;
	assert_ok(add_one("a"));
	gate_await(&seen.gate);
	assert_ok(add_one("b"));
	await_state("b", HWT_DURABLE_RUNNING);
	suspend(HWT_SEC(3600));
	gate_open(&seen.gate);
	gate_await(&seen.gate);
	cr_assert_str_eq(seen.id, "b");
	/* The one that it did not begin does not count. */
	assert_u64(seen.attempt, 1);
	assert_u64(stats_now().given_back, 1);
	gate_open(&seen.gate);
	await_state("b", HWT_DURABLE_SUCCEEDED);
}

/* timer: the caller's; NULL: the shared one. */
static void
run_too_long(struct hwt *timer, bool stops)
{
	struct hwt_durable_options with;

	seen.gated = true;
	yard_open(NULL);
	with = place_options();
	with.timer = timer;
	place_open_other(&with);
	place_work(work(.run_limit_ns = HWT_MS(50), .threads = 2));
	if (stops)
		assert_ok(hwt_stop(timer, NULL));
	add_with("a", .max_attempts = 2);
	gate_await(&seen.gate);
	gate_await(&seen.gate);
	await_state("a", HWT_DURABLE_FAILED);
	assert_u64(seen.calls, 2);
	gate_open(&seen.gate);
	gate_open(&seen.gate);
	place_unwork();
	/* What they returned had no effect. */
	cr_assert(state_of("a") == HWT_DURABLE_FAILED);
	cr_assert(log_has("takes longer than run_limit_ns"));
	place_close();
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
	assert_ok(hwt_destroy(timer));
}

YardTest(worker, a_stop_gives_back_what_no_callback_was_called_for, work())
{
	struct hwt_durable_stats stats;
	struct hwt_durable_info info;
	char id[8];
	int i;

	seen.gated = true;
	assert_ok(add_one("a"));
	gate_await(&seen.gate);
	for (i = 0; i < 10; i++) {
		(void)snprintf(id, sizeof(id), "t%d", i);
		assert_ok(add_one(id));
		await_state(id, HWT_DURABLE_DELIVERED);
	}
	assert_rc(hwt_durable_worker_stop(place.worker, HWT_MS(50)), -EBUSY);
	gate_open(&seen.gate);
	place_unwork();
	cr_assert(state_of("a") == HWT_DURABLE_SUCCEEDED);
	assert_u64(seen.calls, 1);
	for (i = 0; i < 10; i++) {
		(void)snprintf(id, sizeof(id), "t%d", i);
		info = info_of(id);
		cr_assert(info.state == HWT_DURABLE_PENDING ||
		    info.state == HWT_DURABLE_DELIVERED);
		assert_u64(info.attempts, 0);
	}
	stats = stats_now();
	assert_u64(stats.running, 0);
	assert_u64(stats.begun, 1 + stats.given_back);
	(void)ask("HINCRBY {hwt:0}:meta given_back 5");
	assert_u64(stats_now().given_back, stats.given_back + 5);
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

YardTest(worker, a_stop_in_its_own_callback_is_EDEADLK, calling(stop_inside))
{
	assert_ok(add_one("a"));
	await_state("a", HWT_DURABLE_SUCCEEDED);
	/* What hwt_durable_worker_stop said. */
	assert_u64(seen.calls, EDEADLK);
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

YardTest(worker, a_callback_may_add, calling(add_inside))
{
	assert_ok(add_one("a"));
	await_state("next", HWT_DURABLE_SUCCEEDED);
	await_state("a", HWT_DURABLE_SUCCEEDED);
}

static void
stop_without_engine(uint64_t within_ns)
{
	struct hwt_durable_options options;

	seen.gated = true;
	yard_open(NULL);
	options = place_options();
	options.timeout_ns = HWT_SEC(2);
	place_open_other(&options);
	place_work(work());
	assert_ok(add_one("a"));
	gate_await(&seen.gate);
	server_kill(&place.server);
	gate_open(&seen.gate);
	assert_ok(hwt_durable_worker_stop(place.worker, within_ns));
	place.worker = NULL;
	assert_ok(hwt_durable_close(place.other));
	place.other = NULL;
	server_again(&place.server);
	cr_assert(state_of("a") == HWT_DURABLE_RUNNING);
	place_close();
}

Test(worker, a_stop_is_not_held_up_by_an_engine_that_is_gone)
{
	stop_without_engine(HWT_SEC(1));
}

Test(worker, nor_is_a_stop_that_waits_for_ever)
{
	stop_without_engine(HWT_NEVER);
}

YardTest(worker, an_outcome_is_told_when_the_engine_is_back, work())
{
	seen.gated = true;
	assert_ok(add_one("a"));
	gate_await(&seen.gate);
	server_kill(&place.server);
	gate_open(&seen.gate);
	sleep_ns(HWT_MS(300));
	server_again(&place.server);
	await_state("a", HWT_DURABLE_SUCCEEDED);
	assert_u64(seen.calls, 1);
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
	add_many("", 20 * 16, &task);
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
	struct hwt_durable_options options;

	place_open(one_shard);
	add_expired();
	assert_ok(add_one("live"));
	/* A pump or two for all: there are few hints then. */
	place_schedule();
	await_state("live", HWT_DURABLE_DELIVERED);
	place_unschedule();
	options = place_behind(&proxy);
	options.shards = 1;
	place_open_other(&options);
	place_work(work(.threads = 4));
	await_state("live", HWT_DURABLE_SUCCEEDED);
	cr_assert(polls < 15);
	place_close();
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
YardTest(worker, an_outcome_without_an_answer_is_told_after_its_lease_too, NULL)
{
	static struct proxy proxy = {
	    .judge = judge_outcomes, .data = &outcomes};
	struct hwt_durable_options options = place_behind(&proxy);

	options.timeout_ns = HWT_MS(200);
	place_open_other(&options);
	place_work(work(.visibility_ns = HWT_SEC(3)));
	assert_ok(add_one("a"));
	wait_for(&outcomes, 1);
	place_unschedule();
	cr_assert(state_of("a") == HWT_DURABLE_RUNNING);
	sleep_ns(HWT_SEC(4));
	proxy.data = NULL;
	await_state("a", HWT_DURABLE_SUCCEEDED);
	assert_u64(seen.calls, 1);
}

Test(worker, without_threads_or_memory_nothing_is_left_behind)
{
	/* The shared timer's own thread comes first, once. */
	static const struct {
		unsigned fault;
		int error;
	} rows[] = {{FAULT_THREAD, -EAGAIN}, {FAULT_HEAP, -ENOMEM}};
	struct hwt_durable_worker *worker;
	uint64_t i;
	int error;

	place_open(NULL);
	for (i = 0; i < 8; i++) {
		fault_arm(rows[i / 4].fault, 1 + i % 4);
		error = hwt_durable_worker_start(
		    &worker, place.durable, work(.threads = 3));
		(void)fault_disarm();
		cr_expect(error == rows[i / 4].error, "call %d: %s",
		    (int)(1 + i % 4), rc_name(error));
		if (error == 0)
			assert_ok(hwt_durable_worker_stop(worker, HWT_SEC(60)));
	}
	fault_arm_eventfd(EMFILE);
	error = hwt_durable_worker_start(
	    &worker, place.durable, work(.threads = 3));
	(void)fault_disarm();
	assert_rc(error, -EMFILE);
	place_close();
}

/* A child takes a task, and is killed. */
YardTest(at_least_once, what_a_killed_worker_held_is_executed_by_another, NULL)
{
	struct engine_argument argument[6] = {
	    {"q", 1}, {"dead", 4}, {"1", 1}, {"0", 1}, {"1", 1}, {"300", 3}};
	struct engine_call call = {
	    .script = SCRIPT_TAKE, .count = 6, .arg = argument};

	assert_ok(add_one("a"));
	await_state("a", HWT_DURABLE_DELIVERED);
	/* One that takes it and is never heard of again. */
	call.shard = durable_shard_of(place.durable, "a", 1);
	assert_ok(engine_call(durable_engine(place.durable), &call, 1, NULL));
	cr_assert(call.reply->elements == 1);
	engine_call_free(&call, 1);
	assert_rc(cancel_one("a"), -EINPROGRESS);
	assert_rc(reschedule_one("a", 0), -EINPROGRESS);
	place_work(work());
	await_state("a", HWT_DURABLE_SUCCEEDED);
	assert_u64(info_of("a").attempts, 2);
	assert_u64(seen.calls, 1);
	assert_u64(stats_now().expired_leases, 1);
}

/* The lease is taken away under the callback. */
YardTest(
    fenced, the_outcome_of_an_attempt_that_was_given_up_has_no_effect, work())
{
	uint32_t shard;

	seen.gated = true;
	atomic_store(&seen.answer, HWT_DURABLE_FAIL);
	assert_ok(add_one("a"));
	gate_await(&seen.gate);
	shard = durable_shard_of(place.durable, "a", 1);
	(void)ask("ZADD {hwt:%u}:fly 1 a", shard);
	AWAIT(stats_now().expired_leases > 0);
	gate_open(&seen.gate);
	gate_await(&seen.gate);
	/* The second attempt is under way; the first did not fail it. */
	cr_assert(state_of("a") == HWT_DURABLE_RUNNING);
	assert_u64(stats_now().failed, 0);
	atomic_store(&seen.answer, 0);
	gate_open(&seen.gate);
	await_state("a", HWT_DURABLE_SUCCEEDED);
	assert_u64(seen.calls, 2);
	cr_assert(log_has("its outcome has no effect"));
}

/* As if the lease was over, and the dead letter dropped. */
static void
lose_task(const char *id)
{
	uint32_t shard = durable_shard_of(place.durable, id, strlen(id));

	(void)ask("ZADD {hwt:%u}:fly 1 %s", shard, id);
	await_state(id, HWT_DURABLE_FAILED);
	(void)ask("DEL {hwt:%u}:r:%s", shard, id);
	(void)ask("ZREM {hwt:%u}:dead %s", shard, id);
}

YardTest(fenced,
    a_task_that_is_added_again_does_not_end_by_an_outcome_of_the_first, work())
{
	static struct seen other = {.gated = true,
	    .answer = HWT_DURABLE_FAIL,
	    .lock = PTHREAD_MUTEX_INITIALIZER};
	const struct hwt_durable_worker_options options = {
	    .queue = "q", .callback = callback, .ctx = &other};
	struct hwt_durable_task task = task_of("a");
	struct hwt_durable_worker *second;

	seen.gated = true;
	task.max_attempts = 1;
	add_task(&task);
	gate_await(&seen.gate);
	lose_task("a");
	gate_init(&other.gate);
	assert_ok(hwt_durable_worker_start(&second, place.durable, &options));
	add_task(&task);
	gate_await(&other.gate);
	assert_u64(other.generation, seen.generation);
	assert_u64(other.attempt, seen.attempt);
	cr_assert(other.fence > seen.fence);
	gate_open(&seen.gate);
	AWAIT(log_has("its outcome has no effect"));
	cr_assert(state_of("a") == HWT_DURABLE_RUNNING);
	gate_open(&other.gate);
	await_state("a", HWT_DURABLE_FAILED);
	assert_ok(hwt_durable_worker_stop(second, HWT_SEC(60)));
}

YardTest(cancelled, nothing_begins_after_a_cancel_that_returned_0, work())
{
	static char id[200][8];
	static int answer[200];
	uint64_t cancelled = 0;
	int i;

	for (i = 0; i < 200; i++) {
		(void)snprintf(id[i], sizeof(id[i]), "t%d", i);
		assert_ok(add_one(id[i]));
		answer[i] =
		    hwt_durable_cancel(place.durable, id[i], strlen(id[i]));
		cr_assert(answer[i] == 0 || answer[i] == -EALREADY ||
		    answer[i] == -EINPROGRESS);
		cancelled += answer[i] == 0;
	}
	for (i = 0; i < 200; i++)
		await_state(id[i],
		    answer[i] == 0 ? HWT_DURABLE_CANCELLED
				   : HWT_DURABLE_SUCCEEDED);
	assert_u64(seen.calls, 200 - cancelled);
}

/* A task at a time; how many takes that took, of so many workers, by what a
 * take reads. */
static uint64_t
count_takes_of(uint32_t count)
{
	struct hwt_durable_worker *many[16];
	uint64_t before;
	char id[16];
	uint32_t i;

	for (i = 0; i < count; i++)
		assert_ok(
		    hwt_durable_worker_start(&many[i], place.durable, work()));
	/* They have looked everywhere, and wait. */
	for (i = 0; i < 3; i++) {
		sleep_ns(HWT_MS(200));
		before = calls_of("lrange");
	}
	for (i = 0; i < 60; i++) {
		(void)snprintf(id, sizeof(id), "%u.%u", count, i);
		assert_ok(add_one(id));
		await_state(id, HWT_DURABLE_SUCCEEDED);
	}
	before = calls_of("lrange") - before;
	for (i = 0; i < count; i++)
		assert_ok(hwt_durable_worker_stop(many[i], HWT_SEC(60)));
	return before;
}

YardTest(worker, of_many_that_wait_one_is_told, NULL)
{
	uint64_t one, many;

	one = count_takes_of(1);
	many = count_takes_of(16);
	/* The polls of some seconds; with each of them told it is 16 times. */
	cr_assert(many < 4 * one, "%llu takes, and %llu of one",
	    (unsigned long long)many, (unsigned long long)one);
}
