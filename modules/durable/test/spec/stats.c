/* SPDX-License-Identifier: Apache-2.0 */
/* stats: what a worker has measured, as text. */
#include "modules/durable/test/spec/durable.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "modules/durable/connection.h"

SUITE(stats);

static struct hwt_durable_token token;
static _Atomic uint64_t calls;
static _Atomic bool released; /* what is taken now is not left for later */

/* The payload says how the attempt ends. */
static int
callback(void *ctx, const struct hwt_durable_delivery *delivery)
{
	const char *payload = delivery->payload;

	(void)ctx;
	if (*payload == 's')
		sleep_ns(HWT_MS(300));
	token = delivery->token;
	(void)atomic_fetch_add(&calls, 1);
	*delivery->retry_delay_ns = HWT_SEC(3600);
	return *payload == 'r'                           ? HWT_DURABLE_RETRY
	    : *payload == 'f'                            ? HWT_DURABLE_FAIL
	    : *payload == 'l' && !atomic_load(&released) ? HWT_DURABLE_LATER
							 : 0;
}

static void
yard_open(void)
{
	const struct hwt_durable_worker_options options = {
	    .queue = "q", .callback = callback};

	place_open(NULL);
	place_schedule();
	place_work(&options);
}

/* A test of such a worker. */
#define YardTest(suite, name) \
	TestBetween(yard_open(), place_close(), suite, name)

static void
add(const char *id, const char *payload, uint64_t due_unix_ns)
{
	struct hwt_durable_task task = task_of(id);

	task.payload = payload;
	task.payload_length = strlen(payload);
	if (due_unix_ns != 0) {
		task.due_unix_ns = due_unix_ns;
		task.flags = HWT_DURABLE_AT;
	}
	add_task(&task);
}

static char *
text_of(enum hwt_format format)
{
	char *text;
	size_t length;
	FILE *file = open_memstream(&text, &length);

	cr_assert(file != NULL);
	assert_ok(hwt_durable_worker_stats_write(place.worker, file, format));
	(void)fclose(file);
	return text;
}

/* Of hwt_durable_worker_NAME; more: labels. */
static uint64_t
sample(const char *name, const char *more)
{
	char begin[160], *text = text_of(HWT_PROMETHEUS_SAMPLES), *found;
	uint64_t value;

	(void)snprintf(begin, sizeof(begin),
	    "hwt_durable_worker_%s{queue=\"q\",serial=\"1\",space=\"hwt\"%s} ",
	    name, more);
	found = strstr(text, begin);
	cr_assert(found != NULL, "no %s in %s", begin, text);
	value = strtoull(found + strlen(begin), NULL, 10);
	free(text);
	return value;
}

YardTest(stats, lateness_counts_from_the_due_time_to_the_begin)
{
	add("a", "d", unix_now_ns() - HWT_SEC(10));
	await_state("a", HWT_DURABLE_SUCCEEDED);
	assert_u64(sample("lateness_seconds_bucket", ",le=\"8.589934591\""), 0);
	assert_u64(sample("lateness_seconds_bucket", ",le=\"+Inf\""), 1);
	assert_u64(sample("lateness_seconds_count", ""), 1);
	cr_assert(sample("lateness_seconds_sum", "") >= 10);
}

YardTest(stats, the_sum_of_tasks_that_are_due_since_1970_does_not_wrap)
{
	char id[] = "a";

	for (; id[0] <= 'l'; id[0]++) {
		add(id, "d", 1);
		await_state(id, HWT_DURABLE_SUCCEEDED);
	}
	assert_u64(sample("lateness_seconds_count", ""), 12);
	assert_u64(sample("lateness_seconds_sum", ""), UINT64_MAX / HWT_SEC(1));
}

YardTest(stats, execution_counts_from_the_begin_to_the_return)
{
	add("a", "sleeps", 0);
	await_state("a", HWT_DURABLE_SUCCEEDED);
	assert_u64(
	    sample("execution_seconds_bucket", ",le=\"0.268435455\""), 0);
	assert_u64(sample("execution_seconds_bucket", ",le=\"+Inf\""), 1);
}

YardTest(stats, a_later_attempt_is_executed_until_finish)
{
	add("a", "later", 0);
	wait_for(&calls, 1);
	sleep_ns(HWT_MS(300));
	assert_u64(sample("running", ""), 1);
	assert_u64(sample("execution_seconds_count", ""), 0);
	assert_ok(hwt_durable_finish(token, 0, 0));
	assert_u64(sample("running", ""), 0);
	assert_u64(
	    sample("execution_seconds_bucket", ",le=\"0.268435455\""), 0);
	assert_u64(sample("execution_seconds_count", ""), 1);
	await_state("a", HWT_DURABLE_SUCCEEDED);
}

YardTest(stats, outcomes_are_counted)
{
	static const struct {
		const char *id, *payload;
		enum hwt_durable_state state;
	} row[] = {
	    {"a", "done", HWT_DURABLE_SUCCEEDED},
	    {"b", "done", HWT_DURABLE_SUCCEEDED},
	    {"c", "done", HWT_DURABLE_SUCCEEDED},
	    {"d", "fail", HWT_DURABLE_FAILED},
	    {"e", "fail", HWT_DURABLE_FAILED},
	    {"f", "retry", HWT_DURABLE_PENDING},
	    {"g", "later", HWT_DURABLE_SUCCEEDED},
	};
	size_t i;

	for (i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		add(row[i].id, row[i].payload, 0);
		wait_for(&calls, i + 1);
		if (row[i].payload[0] == 'l') {
			atomic_store(&released, true);
			assert_ok(
			    hwt_durable_finish(token, HWT_DURABLE_RELEASE, 0));
		}
		await_state(row[i].id, row[i].state);
	}
	assert_u64(sample("released_total", ""), 1);
	assert_u64(sample("done_total", ""), 4);
	assert_u64(sample("failed_total", ""), 2);
	assert_u64(sample("retried_total", ""), 1);
}

YardTest(stats, formats)
{
	char *text;

	text = text_of(HWT_PROMETHEUS);
	cr_assert(strstr(text,
		      "# TYPE hwt_durable_worker_execution_seconds "
		      "histogram\n") != NULL);
	free(text);
	text = text_of(HWT_PROMETHEUS_SAMPLES);
	cr_assert(strchr(text, '#') == NULL);
	free(text);
	text = text_of(HWT_JSON);
	cr_assert(strncmp(text, "{\"queue\":\"q\",\"serial\":1,", 24) == 0);
	cr_assert(
	    strstr(text, ",\"space\":\"hwt\",\"lateness_ns_sum\":0,") != NULL);
	cr_assert(strstr(text, ",\"execution_ns_histogram\":[0,0,") != NULL);
	cr_assert_str_eq(text + strlen(text) - 3, "]}\n");
	free(text);
}

YardTest(stats, arguments_outside_their_range_are_EINVAL)
{
	assert_rc(
	    hwt_durable_worker_stats_write(NULL, stdout, HWT_JSON), -EINVAL);
	assert_rc(hwt_durable_worker_stats_write(place.worker, NULL, HWT_JSON),
	    -EINVAL);
	assert_rc(hwt_durable_worker_stats_write(
		      place.worker, stdout, (enum hwt_format)(HWT_JSON + 100)),
	    -EINVAL);
}

PlaceTest(stats, the_queues_of_a_worker_are_one_label_however_long)
{
	char queue[16 * 65], begin[16 * 65 + 64], *text;
	const struct hwt_durable_worker_options options = {
	    .queue = queue, .callback = callback};
	size_t i;

	for (i = 0; i < 16; i++)
		(void)snprintf(queue + 65 * i, sizeof(queue) - 65 * i,
		    "q%063zu%s", i, i < 15 ? "," : "");
	place_work(&options);
	(void)snprintf(
	    begin, sizeof(begin), "{\"queue\":\"%s\",\"serial\":1,", queue);
	text = text_of(HWT_JSON);
	cr_assert(strncmp(text, begin, strlen(begin)) == 0, "%s", text);
	free(text);
}

YardTest(stats, what_fails_a_write_is_returned)
{
	FILE *full = fopen("/dev/full", "w");

	assert_rc(hwt_durable_worker_stats_write(place.worker, full, HWT_JSON),
	    -ENOSPC);
	(void)fclose(full);
}
