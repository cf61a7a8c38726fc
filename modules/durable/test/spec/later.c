/* SPDX-License-Identifier: Apache-2.0 */
/*
 * later: attempts that callbacks answer HWT_DURABLE_LATER, and
 * hwt_durable_finish ends.
 */
#include "modules/durable/test/spec/durable.h"

#include <pthread.h>
#include <string.h>

SUITE(later);

#define CALLS_MAX 128

/* What callbacks saw, and what they are to answer. */
static _Atomic uint64_t calls;
static struct hwt_durable_token token[CALLS_MAX];
static uint32_t attempt[CALLS_MAX];
static int answer = HWT_DURABLE_LATER;
/* What the callback does with its token before it returns, and what came of
 * that. */
static int finishes_first = -1, finished;
static _Atomic bool holds; /* callbacks */
static const char *says; /* with hwt_durable_set_error */
static bool is_slow; /* so that nothing is taken ahead */

static int
callback(void *ctx, const struct hwt_durable_delivery *delivery)
{
	uint64_t call = atomic_load(&calls);

	(void)ctx;
	cr_assert(call < CALLS_MAX);
	token[call] = delivery->token;
	attempt[call] = delivery->attempt;
	if (says != NULL)
		assert_ok(hwt_durable_set_error(delivery, says, strlen(says)));
	if (finishes_first >= 0) {
		*delivery->retry_delay_ns = HWT_SEC(3600);
		finished =
		    hwt_durable_finish(delivery->token, finishes_first, 0);
	}
	atomic_store(&calls, call + 1);
	while (atomic_load(&holds))
		sleep_ns(HWT_MS(1));
	if (is_slow)
		sleep_ns(HWT_MS(30));
	return answer;
}

/* A server, a scheduler, and a worker with more options than these. */
#define yard_open(...)                                            \
	open_and_work(&(const struct hwt_durable_worker_options){ \
	    .queue = "q", .callback = callback, __VA_ARGS__})

static void
open_and_work(const struct hwt_durable_worker_options *options)
{
	place_open(NULL);
	place_schedule();
	place_work(options);
}

/* The same, and a task whose callback has answered, or holds. */
#define begin(...)                       \
	do {                             \
		yard_open(__VA_ARGS__);  \
		assert_ok(add_one("a")); \
		wait_for(&calls, 1);     \
	} while (0)

/* A test of what has begun so. */
#define LaterTest(suite, name, ...) \
	TestBetween(begin(__VA_ARGS__), place_close(), suite, name)

LaterTest(later, a_task_runs_until_finish_gives_its_outcome)
{
	cr_assert(state_of("a") == HWT_DURABLE_RUNNING);
	assert_ok(hwt_durable_finish(token[0], 0, 0));
	await_state("a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 1);
}

LaterTest(later, FAIL_is_a_dead_letter)
{
	assert_ok(hwt_durable_finish(token[0], HWT_DURABLE_FAIL, 0));
	await_state("a", HWT_DURABLE_FAILED);
}

LaterTest(later, RETRY_executes_again_after_its_delay)
{
	struct hwt_durable_info info;

	assert_ok(hwt_durable_finish(token[0], HWT_DURABLE_RETRY, 0));
	wait_for(&calls, 2);
	assert_u64(attempt[1], 2);
	cr_assert(token[1].number != token[0].number);
	assert_ok(
	    hwt_durable_finish(token[1], HWT_DURABLE_RETRY, HWT_SEC(3600)));
	await_state("a", HWT_DURABLE_PENDING);
	info = info_of("a");
	cr_assert(info.due_unix_ns - info.changed_unix_ns > HWT_SEC(3000));
}

LaterTest(later, RETRY_without_a_delay_backs_off)
{
	assert_ok(hwt_durable_finish(token[0], HWT_DURABLE_RETRY, HWT_NEVER));
	wait_for(&calls, 2);
	assert_u64(info_of("a").attempts, 2);
	assert_ok(hwt_durable_finish(token[1], 0, 0));
}

LaterTest(later, arguments_outside_their_range_are_EINVAL_and_finish_nothing)
{
	struct hwt_durable_token none = {0};

	assert_rc(hwt_durable_finish(none, 0, 0), -EINVAL);
	assert_rc(hwt_durable_finish(token[0], -1, 0), -EINVAL);
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_LATER, 0), -EINVAL);
	assert_rc(
	    hwt_durable_finish(token[0], HWT_DURABLE_RELEASE + 1, 0), -EINVAL);
	assert_rc(hwt_durable_finish(
		      token[0], HWT_DURABLE_RETRY, HWT_DURABLE_DELAY_MAX + 1),
	    -EINVAL);
	assert_ok(hwt_durable_finish(token[0], 0, 0));
	await_state("a", HWT_DURABLE_SUCCEEDED);
}

static void
assert_why(const char *why)
{
	char said[SAID_MAX], key[ENGINE_KEY_MAX];

	engine_key(durable_engine(place.durable), key,
	    durable_shard_of(place.durable, "a", 1), "e:a");
	(void)server_ask(&place.server, said, "GET %s", key);
	cr_assert(strstr(said, why) != NULL, "%s", said);
}

Test(later, what_finish_error_says_is_kept_with_the_dead_letter)
{
	char text[HWT_DURABLE_ERROR_MAX];

	memset(text, 'x', sizeof(text));
	says = "not this";
	begin();
	assert_ok(hwt_durable_finish_error(
	    token[0], HWT_DURABLE_FAIL, 0, text, sizeof(text)));
	assert_rc(hwt_durable_finish_error(
		      token[0], HWT_DURABLE_FAIL, 0, "nor this", 8),
	    -ESTALE);
	await_state("a", HWT_DURABLE_FAILED);
	assert_why(" xxxxxxxx");
	place_close();
}

Test(later, what_the_callback_says_is_kept_if_finish_says_nothing)
{
	says = "this";
	begin();
	assert_ok(hwt_durable_finish(token[0], HWT_DURABLE_FAIL, 0));
	await_state("a", HWT_DURABLE_FAILED);
	assert_why(" this");
	place_close();
}

Test(later, what_finish_error_says_of_a_retry_is_kept_if_none_is_left)
{
	yard_open();
	add_with("a", .max_attempts = 1);
	wait_for(&calls, 1);
	assert_ok(hwt_durable_finish_error(
	    token[0], HWT_DURABLE_RETRY, 0, "busy", 4));
	await_state("a", HWT_DURABLE_FAILED);
	assert_why(" busy");
	place_close();
}

LaterTest(later, a_text_that_is_too_long_or_NULL_is_EINVAL_and_finishes_nothing)
{
	static const char text[HWT_DURABLE_ERROR_MAX + 1];

	assert_rc(hwt_durable_finish_error(
		      token[0], HWT_DURABLE_FAIL, 0, text, sizeof(text)),
	    -EINVAL);
	assert_rc(
	    hwt_durable_finish_error(token[0], HWT_DURABLE_FAIL, 0, NULL, 0),
	    -EINVAL);
	assert_ok(hwt_durable_finish_error(token[0], 0, 0, "", 0));
	await_state("a", HWT_DURABLE_SUCCEEDED);
}

LaterTest(later, RELEASE_executes_again_and_the_attempt_does_not_count)
{
	assert_ok(hwt_durable_finish(token[0], HWT_DURABLE_RELEASE, 0));
	wait_for(&calls, 2);
	assert_u64(attempt[1], 1);
	assert_u64(stats_now().given_back, 1);
	assert_ok(hwt_durable_finish(token[1], 0, 0));
	await_state("a", HWT_DURABLE_SUCCEEDED);
}

LaterTest(later, the_first_finish_counts_and_the_next_is_ESTALE)
{
	assert_ok(hwt_durable_finish(token[0], HWT_DURABLE_FAIL, 0));
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	await_state("a", HWT_DURABLE_FAILED);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
}

/* With one at a time, all tokens have the same bucket. */
LaterTest(later, a_token_is_of_one_attempt_alone, .outstanding_max = 1)
{
	assert_ok(hwt_durable_finish(token[0], HWT_DURABLE_RETRY, 0));
	wait_for(&calls, 2);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	cr_assert(state_of("a") == HWT_DURABLE_RUNNING);
	assert_ok(hwt_durable_finish(token[1], 0, 0));
}

Test(later, an_attempt_whose_callback_gave_the_outcome_is_ESTALE)
{
	answer = HWT_DURABLE_FAIL;
	begin();
	await_state("a", HWT_DURABLE_FAILED);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	place_close();
}

Test(later, finish_may_come_before_the_callback_returns)
{
	finishes_first = 0;
	begin();
	assert_ok(finished);
	await_state("a", HWT_DURABLE_SUCCEEDED);
	place_close();
}

Test(later, after_that_what_the_callback_returns_has_no_effect)
{
	finishes_first = HWT_DURABLE_RETRY;
	answer = HWT_DURABLE_FAIL;
	begin();
	finishes_first = 0;
	/* Its delay was an hour; that of finish is 0. */
	await_state("a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 2);
	place_close();
}

LaterTest(
    later, the_lease_is_extended_until_finish, .visibility_ns = HWT_SEC(1))
{
	sleep_ns(HWT_MS(2500));
	assert_u64(stats_now().expired_leases, 0);
	assert_ok(hwt_durable_finish(token[0], 0, 0));
	await_state("a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 1);
}

LaterTest(
    later, after_its_lease_was_lost_it_is_ESTALE, .visibility_ns = HWT_SEC(1))
{
	char said[SAID_MAX];

	while (stats_now().expired_leases == 0) {
		(void)server_ask(&place.server, said,
		    "ZADD {hwt:%u}:fly XX 1 a",
		    durable_shard_of(place.durable, "a", 1));
		sleep_ns(HWT_MS(20));
	}
	wait_for(&calls, 2);
	AWAIT(log_has("is over before it was finished"));
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	assert_ok(hwt_durable_finish(token[1], 0, 0));
	await_state("a", HWT_DURABLE_SUCCEEDED);
}

LaterTest(later, after_run_limit_ns_it_is_ESTALE_and_executed_again,
    .run_limit_ns = HWT_MS(50))
{
	AWAIT(log_has("takes longer than run_limit_ns"));
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	answer = 0;
	await_state("a", HWT_DURABLE_SUCCEEDED);
}

Test(later, after_run_limit_ns_a_callback_that_runs_cannot_be_finished)
{
	atomic_store(&holds, true);
	begin(.run_limit_ns = HWT_MS(50));
	AWAIT(log_has("takes longer than run_limit_ns"));
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	answer = 0;
	atomic_store(&holds, false);
	await_state("a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 2);
	place_close();
}

Test(later, what_was_finished_before_the_limit_stays_so)
{
	atomic_store(&holds, true);
	finishes_first = 0;
	begin(.run_limit_ns = HWT_MS(50));
	sleep_ns(HWT_MS(200));
	atomic_store(&holds, false);
	await_state("a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 1);
	cr_assert(!log_has("takes longer than run_limit_ns"));
	place_close();
}

/* It does not take once for each task. */
Test(later, tasks_of_fast_callbacks_are_taken_ahead)
{
	const struct hwt_durable_worker_options options = {
	    .queue = "q", .callback = callback};
	uint64_t takes;
	int i;

	place_open(one_shard);
	place_schedule();
	place_work(&options);
	add_many("", CALLS_MAX, NULL);
	wait_for(&calls, CALLS_MAX);
	takes = calls_of("lrange");
	cr_assert(takes > 0 && takes < CALLS_MAX / 2, "%" PRIu64, takes);
	for (i = 0; i < CALLS_MAX; i++)
		assert_ok(hwt_durable_finish(token[i], 0, 0));
	place_close();
}

/* They are taken one by one. With a poll each second alone, it takes 24 s. */
Test(later, the_next_is_taken_when_a_slow_callback_has_returned)
{
	uint64_t from;
	int i;

	is_slow = true;
	yard_open(.outstanding_max = 0);
	from = monotonic_ns();
	add_many("", 24, NULL);
	wait_for(&calls, 24);
	cr_assert(monotonic_ns() - from < HWT_SEC(15));
	for (i = 0; i < 24; i++)
		assert_ok(hwt_durable_finish(token[i], 0, 0));
	place_close();
}

Test(later, no_more_is_taken_than_outstanding_max)
{
	int i;

	yard_open(.outstanding_max = 3);
	add_many("t", 8, NULL);
	wait_for(&calls, 3);
	/* It polls each second. */
	sleep_ns(HWT_MS(1500));
	assert_u64(calls, 3);
	for (i = 0; i < 8; i++) {
		wait_for(&calls, (uint64_t)i + 1);
		assert_ok(hwt_durable_finish(token[i], 0, 0));
	}
	await_succeeded(8);
	assert_u64(calls, 8);
	place_close();
}

PlaceTest(later, outstanding_max_outside_its_range_is_EINVAL)
{
	struct hwt_durable_worker_options options = {.queue = "q",
	    .callback = callback,
	    .threads = 4,
	    .outstanding_max = 3};

	assert_rc(
	    hwt_durable_worker_start(&place.worker, place.durable, &options),
	    -EINVAL);
	options.outstanding_max = 65537;
	assert_rc(
	    hwt_durable_worker_start(&place.worker, place.durable, &options),
	    -EINVAL);
	options.outstanding_max = 65536;
	place_work(&options);
}

LaterTest(later, a_stop_in_vain_loses_nothing)
{
	assert_ok(hwt_durable_worker_stop(place.worker, HWT_MS(20)));
	place.worker = NULL;
	/* The attempt counts, and the task is executed again. */
	cr_assert(state_of("a") != HWT_DURABLE_RUNNING);
	assert_u64(stats_now().retried, 1);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
}

static void *
finish_soon(void *arg)
{
	(void)arg;
	sleep_ns(HWT_MS(50));
	assert_ok(hwt_durable_finish(token[0], 0, 0));
	return NULL;
}

LaterTest(later, a_stop_waits_for_finish)
{
	pthread_t thread;

	assert_ok(pthread_create(&thread, NULL, finish_soon, NULL));
	place_unwork();
	assert_ok(pthread_join(thread, NULL));
	cr_assert(state_of("a") == HWT_DURABLE_SUCCEEDED);
}
