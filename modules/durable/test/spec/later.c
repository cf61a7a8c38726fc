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

static struct place place;

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

static int
callback(void *ctx, const struct hwt_durable_delivery *delivery)
{
	uint64_t call = atomic_load(&calls);

	(void)ctx;
	cr_assert(call < CALLS_MAX);
	token[call] = delivery->token;
	attempt[call] = delivery->attempt;
	if (says != NULL)
		assert_rc(
		    hwt_durable_set_error(delivery, says, strlen(says)), 0);
	if (finishes_first >= 0) {
		*delivery->retry_delay_ns = HWT_SEC(3600);
		finished =
		    hwt_durable_finish(delivery->token, finishes_first, 0);
	}
	atomic_store(&calls, call + 1);
	while (atomic_load(&holds))
		sleep_ns(HWT_MS(1));
	return answer;
}

static struct hwt_durable_worker_options
work(void)
{
	return (struct hwt_durable_worker_options){
	    .queue = "q", .callback = callback};
}

static void
yard_open(const struct hwt_durable_worker_options *options)
{
	place_open(&place, NULL);
	place_schedule(&place);
	place_work(&place, options);
}

/* A task whose callback has answered, or holds. */
static void
begin_with(const struct hwt_durable_worker_options *options)
{
	yard_open(options);
	assert_rc(add_one(&place, "a"), 0);
	wait_for(&calls, 1);
}

static void
begin(void)
{
	struct hwt_durable_worker_options options = work();

	begin_with(&options);
}

Test(later, a_task_runs_until_finish_gives_its_outcome)
{
	begin();
	cr_assert(state_of(&place, "a") == HWT_DURABLE_RUNNING);
	assert_rc(hwt_durable_finish(token[0], 0, 0), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 1);
	place_close(&place);
}

Test(later, FAIL_is_a_dead_letter)
{
	begin();
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_FAIL, 0), 0);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	place_close(&place);
}

Test(later, RETRY_executes_again_after_its_delay)
{
	struct hwt_durable_info info;

	begin();
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_RETRY, 0), 0);
	wait_for(&calls, 2);
	assert_u64(attempt[1], 2);
	cr_assert(token[1].number != token[0].number);
	assert_rc(
	    hwt_durable_finish(token[1], HWT_DURABLE_RETRY, HWT_SEC(3600)), 0);
	await_state(&place, "a", HWT_DURABLE_PENDING);
	info = info_of(&place, "a");
	cr_assert(info.due_unix_ns - info.changed_unix_ns > HWT_SEC(3000));
	place_close(&place);
}

Test(later, RETRY_without_a_delay_backs_off)
{
	begin();
	assert_rc(
	    hwt_durable_finish(token[0], HWT_DURABLE_RETRY, HWT_NEVER), 0);
	wait_for(&calls, 2);
	assert_u64(info_of(&place, "a").attempts, 2);
	assert_rc(hwt_durable_finish(token[1], 0, 0), 0);
	place_close(&place);
}

Test(later, arguments_outside_their_range_are_EINVAL_and_finish_nothing)
{
	struct hwt_durable_token none = {0};

	begin();
	assert_rc(hwt_durable_finish(none, 0, 0), -EINVAL);
	assert_rc(hwt_durable_finish(token[0], -1, 0), -EINVAL);
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_LATER, 0), -EINVAL);
	assert_rc(
	    hwt_durable_finish(token[0], HWT_DURABLE_RELEASE + 1, 0), -EINVAL);
	assert_rc(hwt_durable_finish(
		      token[0], HWT_DURABLE_RETRY, HWT_DURABLE_DELAY_MAX + 1),
	    -EINVAL);
	assert_rc(hwt_durable_finish(token[0], 0, 0), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	place_close(&place);
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
	assert_rc(hwt_durable_finish_error(
		      token[0], HWT_DURABLE_FAIL, 0, text, sizeof(text)),
	    0);
	assert_rc(hwt_durable_finish_error(
		      token[0], HWT_DURABLE_FAIL, 0, "nor this", 8),
	    -ESTALE);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_why(" xxxxxxxx");
	place_close(&place);
}

Test(later, what_the_callback_says_is_kept_if_finish_says_nothing)
{
	says = "this";
	begin();
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_FAIL, 0), 0);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_why(" this");
	place_close(&place);
}

Test(later, what_finish_error_says_of_a_retry_is_kept_if_none_is_left)
{
	struct hwt_durable_worker_options options = work();
	struct hwt_durable_task task = task_of("a");

	task.max_attempts = 1;
	yard_open(&options);
	assert_rc(hwt_durable_add(place.durable, 1, &task, NULL), 0);
	wait_for(&calls, 1);
	assert_rc(
	    hwt_durable_finish_error(token[0], HWT_DURABLE_RETRY, 0, "busy", 4),
	    0);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_why(" busy");
	place_close(&place);
}

Test(later, a_text_that_is_too_long_or_NULL_is_EINVAL_and_finishes_nothing)
{
	static const char text[HWT_DURABLE_ERROR_MAX + 1];

	begin();
	assert_rc(hwt_durable_finish_error(
		      token[0], HWT_DURABLE_FAIL, 0, text, sizeof(text)),
	    -EINVAL);
	assert_rc(
	    hwt_durable_finish_error(token[0], HWT_DURABLE_FAIL, 0, NULL, 0),
	    -EINVAL);
	assert_rc(hwt_durable_finish_error(token[0], 0, 0, "", 0), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	place_close(&place);
}

Test(later, RELEASE_executes_again_and_the_attempt_does_not_count)
{
	begin();
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_RELEASE, 0), 0);
	wait_for(&calls, 2);
	assert_u64(attempt[1], 1);
	assert_u64(stats_of(&place).given_back, 1);
	assert_rc(hwt_durable_finish(token[1], 0, 0), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	place_close(&place);
}

Test(later, the_first_finish_counts_and_the_next_is_ESTALE)
{
	begin();
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_FAIL, 0), 0);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	place_close(&place);
}

/* With one at a time, all tokens have the same bucket. */
Test(later, a_token_is_of_one_attempt_alone)
{
	struct hwt_durable_worker_options options = work();

	options.outstanding_max = 1;
	begin_with(&options);
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_RETRY, 0), 0);
	wait_for(&calls, 2);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	cr_assert(state_of(&place, "a") == HWT_DURABLE_RUNNING);
	assert_rc(hwt_durable_finish(token[1], 0, 0), 0);
	place_close(&place);
}

Test(later, an_attempt_whose_callback_gave_the_outcome_is_ESTALE)
{
	answer = HWT_DURABLE_FAIL;
	begin();
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	place_close(&place);
}

Test(later, finish_may_come_before_the_callback_returns)
{
	finishes_first = 0;
	begin();
	assert_rc(finished, 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	place_close(&place);
}

Test(later, after_that_what_the_callback_returns_has_no_effect)
{
	finishes_first = HWT_DURABLE_RETRY;
	answer = HWT_DURABLE_FAIL;
	begin();
	finishes_first = 0;
	/* Its delay was an hour; that of finish is 0. */
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 2);
	place_close(&place);
}

Test(later, the_lease_is_extended_until_finish)
{
	struct hwt_durable_worker_options options = work();

	options.visibility_ns = HWT_SEC(1);
	begin_with(&options);
	sleep_ns(HWT_MS(2500));
	assert_u64(stats_of(&place).expired_leases, 0);
	assert_rc(hwt_durable_finish(token[0], 0, 0), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 1);
	place_close(&place);
}

Test(later, after_its_lease_was_lost_it_is_ESTALE)
{
	struct hwt_durable_worker_options options = work();
	char said[SAID_MAX];

	options.visibility_ns = HWT_SEC(1);
	begin_with(&options);
	while (stats_of(&place).expired_leases == 0) {
		(void)server_ask(&place.server, said,
		    "ZADD {hwt:%u}:fly XX 1 a",
		    durable_shard_of(place.durable, "a", 1));
		sleep_ns(HWT_MS(20));
	}
	wait_for(&calls, 2);
	AWAIT(log_has(&place.log, "is over before it was finished"));
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	assert_rc(hwt_durable_finish(token[1], 0, 0), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	place_close(&place);
}

Test(later, after_run_limit_ns_it_is_ESTALE_and_executed_again)
{
	struct hwt_durable_worker_options options = work();

	options.run_limit_ns = HWT_MS(50);
	begin_with(&options);
	AWAIT(log_has(&place.log, "takes longer than run_limit_ns"));
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	answer = 0;
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	place_close(&place);
}

Test(later, after_run_limit_ns_a_callback_that_runs_cannot_be_finished)
{
	struct hwt_durable_worker_options options = work();

	atomic_store(&holds, true);
	options.run_limit_ns = HWT_MS(50);
	begin_with(&options);
	AWAIT(log_has(&place.log, "takes longer than run_limit_ns"));
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	answer = 0;
	atomic_store(&holds, false);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 2);
	place_close(&place);
}

Test(later, what_was_finished_before_the_limit_stays_so)
{
	struct hwt_durable_worker_options options = work();

	atomic_store(&holds, true);
	finishes_first = 0;
	options.run_limit_ns = HWT_MS(50);
	begin_with(&options);
	sleep_ns(HWT_MS(200));
	atomic_store(&holds, false);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 1);
	cr_assert(!log_has(&place.log, "takes longer than run_limit_ns"));
	place_close(&place);
}

/* With a poll each second alone, it takes half a minute. */
Test(later, the_next_is_taken_when_the_callback_has_returned)
{
	struct hwt_durable_worker_options options = work();
	uint64_t from, takes;
	int i;

	place_open(&place, one_shard);
	place_schedule(&place);
	place_work(&place, &options);
	from = monotonic_ns();
	add_many(&place, "", CALLS_MAX, NULL);
	wait_for(&calls, CALLS_MAX);
	cr_assert(monotonic_ns() - from < HWT_SEC(15));
	/* Once for each task, if it did not take ahead. */
	takes = calls_of(&place, "lrange");
	cr_assert(takes > 0 && takes < CALLS_MAX / 2, "%" PRIu64, takes);
	for (i = 0; i < CALLS_MAX; i++)
		assert_rc(hwt_durable_finish(token[i], 0, 0), 0);
	place_close(&place);
}

Test(later, no_more_is_taken_than_outstanding_max)
{
	struct hwt_durable_worker_options options = work();
	int i;

	options.outstanding_max = 3;
	yard_open(&options);
	add_many(&place, "t", 8, NULL);
	wait_for(&calls, 3);
	/* It polls each second. */
	sleep_ns(HWT_MS(1500));
	assert_u64(calls, 3);
	for (i = 0; i < 8; i++) {
		wait_for(&calls, (uint64_t)i + 1);
		assert_rc(hwt_durable_finish(token[i], 0, 0), 0);
	}
	await_succeeded(&place, 8);
	assert_u64(calls, 8);
	place_close(&place);
}

Test(later, outstanding_max_outside_its_range_is_EINVAL)
{
	struct hwt_durable_worker_options options = work();

	place_open(&place, NULL);
	options.threads = 4;
	options.outstanding_max = 3;
	assert_rc(
	    hwt_durable_worker_start(&place.worker, place.durable, &options),
	    -EINVAL);
	options.outstanding_max = 65537;
	assert_rc(
	    hwt_durable_worker_start(&place.worker, place.durable, &options),
	    -EINVAL);
	options.outstanding_max = 65536;
	place_work(&place, &options);
	place_close(&place);
}

Test(later, a_stop_in_vain_loses_nothing)
{
	begin();
	assert_rc(hwt_durable_worker_stop(place.worker, HWT_MS(20)), 0);
	place.worker = NULL;
	/* The attempt counts, and the task is executed again. */
	cr_assert(state_of(&place, "a") != HWT_DURABLE_RUNNING);
	assert_u64(stats_of(&place).retried, 1);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	place_close(&place);
}

static void *
finish_soon(void *arg)
{
	(void)arg;
	sleep_ns(HWT_MS(50));
	assert_rc(hwt_durable_finish(token[0], 0, 0), 0);
	return NULL;
}

Test(later, a_stop_waits_for_finish)
{
	pthread_t thread;

	begin();
	assert_rc(pthread_create(&thread, NULL, finish_soon, NULL), 0);
	place_unwork(&place);
	assert_rc(pthread_join(thread, NULL), 0);
	cr_assert(state_of(&place, "a") == HWT_DURABLE_SUCCEEDED);
	place_close(&place);
}
