/* SPDX-License-Identifier: Apache-2.0 */
/*
 * later: attempts that callbacks answer HWT_DURABLE_LATER, and
 * hwt_durable_finish ends.
 */
#include "modules/durable/test/spec/durable.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SUITE(later);

#define CALLS_MAX 128

static struct place place;
static struct hwt_durable_scheduler *scheduler;
static struct hwt_durable_worker *worker;

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
yard_open_with(const struct hwt_durable_worker_options *options,
    void (*change)(struct hwt_durable_options *options))
{
	place_open(&place, change);
	assert_rc(
	    hwt_durable_scheduler_start(&scheduler, place.durable, NULL), 0);
	assert_rc(hwt_durable_worker_start(&worker, place.durable, options), 0);
}

static void
yard_open(const struct hwt_durable_worker_options *options)
{
	yard_open_with(options, NULL);
}

static void
yard_close(void)
{
	if (worker != NULL)
		assert_rc(hwt_durable_worker_stop(worker, HWT_SEC(60)), 0);
	assert_rc(hwt_durable_scheduler_stop(scheduler), 0);
	place_close(&place);
}

static void
await_calls(uint64_t count)
{
	uint64_t until = monotonic_ns() + HWT_SEC(60);

	while (atomic_load(&calls) < count) {
		cr_assert(monotonic_ns() < until, "%llu calls",
		    (unsigned long long)atomic_load(&calls));
		sleep_ns(HWT_MS(2));
	}
}

/* A task whose callback has answered. */
static void
begin(const char *id)
{
	struct hwt_durable_worker_options options = work();

	yard_open(&options);
	assert_rc(add_one(&place, id), 0);
	await_calls(1);
}

Test(later, a_task_runs_until_finish_gives_its_outcome)
{
	begin("a");
	cr_assert(state_of(&place, "a") == HWT_DURABLE_RUNNING);
	assert_rc(hwt_durable_finish(token[0], 0, 0), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 1);
	yard_close();
}

Test(later, FAIL_is_a_dead_letter)
{
	begin("a");
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_FAIL, 0), 0);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	yard_close();
}

Test(later, RETRY_executes_again_after_its_delay)
{
	struct hwt_durable_info info;

	begin("a");
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_RETRY, 0), 0);
	await_calls(2);
	assert_u64(attempt[1], 2);
	cr_assert(token[1].number != token[0].number);
	assert_rc(
	    hwt_durable_finish(token[1], HWT_DURABLE_RETRY, HWT_SEC(3600)), 0);
	await_state(&place, "a", HWT_DURABLE_PENDING);
	assert_rc(hwt_durable_get(place.durable, "a", 1, &info, NULL, 0), 0);
	cr_assert(info.due_unix_ns - info.changed_unix_ns > HWT_SEC(3000));
	yard_close();
}

Test(later, RETRY_without_a_delay_backs_off)
{
	struct hwt_durable_info info;

	begin("a");
	assert_rc(
	    hwt_durable_finish(token[0], HWT_DURABLE_RETRY, HWT_NEVER), 0);
	await_calls(2);
	assert_rc(hwt_durable_get(place.durable, "a", 1, &info, NULL, 0), 0);
	assert_u64(info.attempts, 2);
	assert_rc(hwt_durable_finish(token[1], 0, 0), 0);
	yard_close();
}

Test(later, arguments_outside_their_range_are_EINVAL_and_finish_nothing)
{
	struct hwt_durable_token none = {0};

	begin("a");
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
	yard_close();
}

static void
assert_why(const char *id, const char *why)
{
	char said[SAID_MAX], key[ENGINE_KEY_MAX], rest[8];

	(void)snprintf(rest, sizeof(rest), "e:%s", id);
	engine_key(durable_engine(place.durable), key,
	    durable_shard_of(place.durable, id, strlen(id)), rest);
	(void)server_ask(&place.server, said, "GET %s", key);
	cr_assert(strstr(said, why) != NULL, "%s", said);
}

Test(later, what_finish_error_says_is_kept_with_the_dead_letter)
{
	char text[HWT_DURABLE_ERROR_MAX];

	memset(text, 'x', sizeof(text));
	says = "not this";
	begin("a");
	assert_rc(hwt_durable_finish_error(
		      token[0], HWT_DURABLE_FAIL, 0, text, sizeof(text)),
	    0);
	assert_rc(hwt_durable_finish_error(
		      token[0], HWT_DURABLE_FAIL, 0, "nor this", 8),
	    -ESTALE);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_why("a", " xxxxxxxx");
	yard_close();
}

Test(later, what_the_callback_says_is_kept_if_finish_says_nothing)
{
	says = "this";
	begin("a");
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_FAIL, 0), 0);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_why("a", " this");
	yard_close();
}

Test(later, what_finish_error_says_of_a_retry_is_kept_if_none_is_left)
{
	struct hwt_durable_worker_options options = work();
	struct hwt_durable_task task = task_of("a");

	task.max_attempts = 1;
	yard_open(&options);
	assert_rc(hwt_durable_add(place.durable, 1, &task, NULL), 0);
	await_calls(1);
	assert_rc(
	    hwt_durable_finish_error(token[0], HWT_DURABLE_RETRY, 0, "busy", 4),
	    0);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_why("a", " busy");
	yard_close();
}

Test(later, a_text_that_is_too_long_or_NULL_is_EINVAL_and_finishes_nothing)
{
	static const char text[HWT_DURABLE_ERROR_MAX + 1];

	begin("a");
	assert_rc(hwt_durable_finish_error(
		      token[0], HWT_DURABLE_FAIL, 0, text, sizeof(text)),
	    -EINVAL);
	assert_rc(
	    hwt_durable_finish_error(token[0], HWT_DURABLE_FAIL, 0, NULL, 0),
	    -EINVAL);
	assert_rc(hwt_durable_finish_error(token[0], 0, 0, "", 0), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	yard_close();
}

Test(later, RELEASE_executes_again_and_the_attempt_does_not_count)
{
	begin("a");
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_RELEASE, 0), 0);
	await_calls(2);
	assert_u64(attempt[1], 1);
	assert_u64(stats_of(&place).given_back, 1);
	assert_rc(hwt_durable_finish(token[1], 0, 0), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	yard_close();
}

Test(later, the_first_finish_counts_and_the_next_is_ESTALE)
{
	begin("a");
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_FAIL, 0), 0);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	yard_close();
}

/* With one at a time, all tokens have the same bucket. */
Test(later, a_token_is_of_one_attempt_alone)
{
	struct hwt_durable_worker_options options = work();

	options.outstanding_max = 1;
	yard_open(&options);
	assert_rc(add_one(&place, "a"), 0);
	await_calls(1);
	assert_rc(hwt_durable_finish(token[0], HWT_DURABLE_RETRY, 0), 0);
	await_calls(2);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	cr_assert(state_of(&place, "a") == HWT_DURABLE_RUNNING);
	assert_rc(hwt_durable_finish(token[1], 0, 0), 0);
	yard_close();
}

Test(later, an_attempt_whose_callback_gave_the_outcome_is_ESTALE)
{
	answer = HWT_DURABLE_FAIL;
	begin("a");
	await_state(&place, "a", HWT_DURABLE_FAILED);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	yard_close();
}

Test(later, finish_may_come_before_the_callback_returns)
{
	finishes_first = 0;
	begin("a");
	assert_rc(finished, 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	yard_close();
}

Test(later, after_that_what_the_callback_returns_has_no_effect)
{
	finishes_first = HWT_DURABLE_RETRY;
	answer = HWT_DURABLE_FAIL;
	begin("a");
	finishes_first = 0;
	/* Its delay was an hour; that of finish is 0. */
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 2);
	yard_close();
}

Test(later, the_lease_is_extended_until_finish)
{
	struct hwt_durable_worker_options options = work();

	options.visibility_ns = HWT_SEC(1);
	yard_open(&options);
	assert_rc(add_one(&place, "a"), 0);
	await_calls(1);
	sleep_ns(HWT_MS(2500));
	assert_u64(stats_of(&place).expired_leases, 0);
	assert_rc(hwt_durable_finish(token[0], 0, 0), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 1);
	yard_close();
}

Test(later, after_its_lease_was_lost_it_is_ESTALE)
{
	struct hwt_durable_worker_options options = work();
	char said[SAID_MAX];

	options.visibility_ns = HWT_SEC(1);
	yard_open(&options);
	assert_rc(add_one(&place, "a"), 0);
	await_calls(1);
	while (stats_of(&place).expired_leases == 0) {
		(void)server_ask(&place.server, said,
		    "ZADD {hwt:%u}:fly XX 1 a",
		    durable_shard_of(place.durable, "a", 1));
		sleep_ns(HWT_MS(20));
	}
	await_calls(2);
	while (!log_has(&place.log, "is over before it was finished"))
		sleep_ns(HWT_MS(5));
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	assert_rc(hwt_durable_finish(token[1], 0, 0), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	yard_close();
}

Test(later, after_run_limit_ns_it_is_ESTALE_and_executed_again)
{
	struct hwt_durable_worker_options options = work();

	options.run_limit_ns = HWT_MS(50);
	yard_open(&options);
	assert_rc(add_one(&place, "a"), 0);
	await_calls(1);
	while (!log_has(&place.log, "takes longer than run_limit_ns"))
		sleep_ns(HWT_MS(5));
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	answer = 0;
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	yard_close();
}

Test(later, after_run_limit_ns_a_callback_that_runs_cannot_be_finished)
{
	struct hwt_durable_worker_options options = work();

	atomic_store(&holds, true);
	options.run_limit_ns = HWT_MS(50);
	yard_open(&options);
	assert_rc(add_one(&place, "a"), 0);
	await_calls(1);
	while (!log_has(&place.log, "takes longer than run_limit_ns"))
		sleep_ns(HWT_MS(5));
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	answer = 0;
	atomic_store(&holds, false);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 2);
	yard_close();
}

Test(later, what_was_finished_before_the_limit_stays_so)
{
	struct hwt_durable_worker_options options = work();

	atomic_store(&holds, true);
	finishes_first = 0;
	options.run_limit_ns = HWT_MS(50);
	yard_open(&options);
	assert_rc(add_one(&place, "a"), 0);
	await_calls(1);
	sleep_ns(HWT_MS(200));
	atomic_store(&holds, false);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 1);
	cr_assert(!log_has(&place.log, "takes longer than run_limit_ns"));
	yard_close();
}

static void
one_shard(struct hwt_durable_options *options)
{
	options->shards = 1;
}

/* With a poll each second alone, it takes half a minute. */
Test(later, the_next_is_taken_when_the_callback_has_returned)
{
	struct hwt_durable_worker_options options = work();
	struct hwt_durable_task task[CALLS_MAX];
	char said[SAID_MAX];
	const char *takes;
	char id[CALLS_MAX][4];
	uint64_t from;
	int i;

	for (i = 0; i < CALLS_MAX; i++) {
		(void)snprintf(id[i], sizeof(id[i]), "%d", i);
		task[i] = task_of(id[i]);
	}
	yard_open_with(&options, one_shard);
	from = monotonic_ns();
	assert_rc(hwt_durable_add(place.durable, CALLS_MAX, task, NULL), 0);
	await_calls(CALLS_MAX);
	cr_assert(monotonic_ns() - from < HWT_SEC(15));
	/* Once for each task, if it did not take ahead. */
	(void)server_ask(&place.server, said, "INFO commandstats");
	takes = strstr(said, "cmdstat_lrange:calls=");
	cr_assert(takes != NULL);
	cr_assert(strtoul(takes + strlen("cmdstat_lrange:calls="), NULL, 10) <
		CALLS_MAX / 2,
	    "%.40s", takes);
	for (i = 0; i < CALLS_MAX; i++)
		assert_rc(hwt_durable_finish(token[i], 0, 0), 0);
	yard_close();
}

Test(later, no_more_is_taken_than_outstanding_max)
{
	struct hwt_durable_worker_options options = work();
	char id[8][4];
	int i;

	options.outstanding_max = 3;
	yard_open(&options);
	for (i = 0; i < 8; i++) {
		(void)snprintf(id[i], sizeof(id[i]), "t%d", i);
		assert_rc(add_one(&place, id[i]), 0);
	}
	await_calls(3);
	/* It polls each second. */
	sleep_ns(HWT_MS(1500));
	assert_u64(calls, 3);
	for (i = 0; i < 8; i++) {
		await_calls((uint64_t)i + 1);
		assert_rc(hwt_durable_finish(token[i], 0, 0), 0);
	}
	for (i = 0; i < 8; i++)
		await_state(&place, id[i], HWT_DURABLE_SUCCEEDED);
	assert_u64(calls, 8);
	yard_close();
}

Test(later, outstanding_max_outside_its_range_is_EINVAL)
{
	struct hwt_durable_worker_options options = work();

	place_open(&place, NULL);
	options.threads = 4;
	options.outstanding_max = 3;
	assert_rc(hwt_durable_worker_start(&worker, place.durable, &options),
	    -EINVAL);
	options.outstanding_max = 65537;
	assert_rc(hwt_durable_worker_start(&worker, place.durable, &options),
	    -EINVAL);
	options.outstanding_max = 65536;
	assert_rc(
	    hwt_durable_worker_start(&worker, place.durable, &options), 0);
	assert_rc(hwt_durable_worker_stop(worker, 0), 0);
	place_close(&place);
}

Test(later, a_stop_in_vain_loses_nothing)
{
	begin("a");
	assert_rc(hwt_durable_worker_stop(worker, HWT_MS(20)), 0);
	worker = NULL;
	/* The attempt counts, and the task is executed again. */
	cr_assert(state_of(&place, "a") != HWT_DURABLE_RUNNING);
	assert_u64(stats_of(&place).retried, 1);
	assert_rc(hwt_durable_finish(token[0], 0, 0), -ESTALE);
	yard_close();
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

	begin("a");
	assert_rc(pthread_create(&thread, NULL, finish_soon, NULL), 0);
	assert_rc(hwt_durable_worker_stop(worker, HWT_SEC(60)), 0);
	worker = NULL;
	assert_rc(pthread_join(thread, NULL), 0);
	cr_assert(state_of(&place, "a") == HWT_DURABLE_SUCCEEDED);
	yard_close();
}

Test(later, a_forked_child_cannot_finish)
{
	pid_t child;
	int status;

	begin("a");
	child = fork();
	if (child == 0)
		_exit(-hwt_durable_finish(token[0], 0, 0));
	cr_assert(waitpid(child, &status, 0) == child);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == EOWNERDEAD);
	assert_rc(hwt_durable_finish(token[0], 0, 0), 0);
	await_state(&place, "a", HWT_DURABLE_SUCCEEDED);
	yard_close();
}
