/* SPDX-License-Identifier: Apache-2.0 */
/* produce: add, cancel, reschedule, get, stats; and their limits. */
#include "modules/durable/test/spec/durable.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

SUITE(produce);
SUITE(whole);

static uint64_t
unix_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return HWT_SEC(now.tv_sec) + (uint64_t)now.tv_nsec;
}

PlaceTest(produce, what_was_added_can_be_got)
{
	struct hwt_durable_task task = task_of("id \0\xff");
	struct hwt_durable_info info;
	uint64_t before, after;
	char payload[8] = "";

	task.id_length = 5;
	task.queue = "some.queue-1_A";
	task.delay_ns = HWT_SEC(100) + 1;
	task.max_attempts = 7;
	task.payload = "pay\0load";
	task.payload_length = 8;
	before = unix_ns();
	add_task(&task);
	after = unix_ns();
	assert_ok(hwt_durable_get(
	    place.durable, task.id, 5, &info, payload, sizeof(payload)));
	cr_assert(info.state == HWT_DURABLE_PENDING);
	assert_u64(info.attempts, 0);
	assert_u64(info.max_attempts, 7);
	assert_u64(info.generation, 1);
	assert_u64(info.payload_length, 8);
	cr_assert_str_eq(info.queue, task.queue);
	cr_assert(memcmp(payload, "pay\0load", 8) == 0);
	cr_assert(info.due_unix_ns >= before + task.delay_ns);
	cr_assert(info.due_unix_ns <= after + task.delay_ns + HWT_MS(2));
}

PlaceTest(produce, a_due_time_is_rounded_up_to_a_millisecond)
{
	add_with("a", .flags = HWT_DURABLE_AT,
	    .due_unix_ns = HWT_MS(1700000000123) + 1);
	assert_u64(info_of("a").due_unix_ns, HWT_MS(1700000000124));
}

PlaceTest(produce, a_default_task_has_20_attempts)
{
	assert_ok(add_one("a"));
	assert_u64(info_of("a").max_attempts, 20);
}

PlaceTest(produce, adding_again_changes_nothing_and_answers_1)
{
	struct hwt_durable_task task = task_of("a");
	int result = -1;

	task.delay_ns = HWT_SEC(50);
	assert_ok(hwt_durable_add(place.durable, 1, &task, &result));
	assert_ok(result);
	task.queue = "other";
	assert_ok(hwt_durable_add(place.durable, 1, &task, &result));
	assert_rc(result, 1);
	cr_assert_str_eq(info_of("a").queue, "q");
	assert_u64(stats_now().added, 1);
}

PlaceTest(produce, adding_what_has_ended_answers_its_state_or_takes_its_place)
{
	struct hwt_durable_task task = task_of("a");
	struct hwt_durable_info info;
	int result = -1;

	assert_ok(hwt_durable_add(place.durable, 1, &task, &result));
	assert_ok(cancel_one("a"));
	assert_ok(hwt_durable_add(place.durable, 1, &task, &result));
	assert_rc(result, HWT_DURABLE_CANCELLED);
	task.flags = HWT_DURABLE_REPLACE | HWT_DURABLE_AT;
	task.due_unix_ns = unix_ns() + HWT_SEC(60);
	assert_ok(hwt_durable_add(place.durable, 1, &task, &result));
	assert_ok(result);
	info = info_of("a");
	cr_assert(info.state == HWT_DURABLE_PENDING);
	assert_u64(info.generation, 2);
	assert_ok(hwt_durable_add(place.durable, 1, &task, &result));
	assert_rc(result, HWT_DURABLE_PENDING);
}

PlaceTest(produce, a_full_batch_is_stored_over_all_shards)
{
	static struct hwt_durable_task tasks[HWT_DURABLE_BATCH_MAX + 1];
	static char ids[HWT_DURABLE_BATCH_MAX + 1][8];
	static int results[HWT_DURABLE_BATCH_MAX];
	size_t i;

	for (i = 0; i <= HWT_DURABLE_BATCH_MAX; i++) {
		(void)snprintf(ids[i], sizeof(ids[i]), "t%zu", i);
		tasks[i] = task_of(ids[i]);
	}
	assert_rc(hwt_durable_add(
		      place.durable, HWT_DURABLE_BATCH_MAX + 1, tasks, results),
	    -EINVAL);
	assert_u64(stats_now().added, 0);
	assert_ok(hwt_durable_add(
	    place.durable, HWT_DURABLE_BATCH_MAX, tasks, results));
	for (i = 0; i < HWT_DURABLE_BATCH_MAX; i++)
		cr_assert(results[i] == 0);
	assert_u64(stats_now().added, HWT_DURABLE_BATCH_MAX);
	assert_u64(stats_now().pending, HWT_DURABLE_BATCH_MAX);
	assert_ok(hwt_durable_add(place.durable, 0, NULL, NULL));
	assert_rc(hwt_durable_add(place.durable, 1, NULL, NULL), -EINVAL);
}

/* Each is one bad task among good ones. */
static void
assert_refused(struct hwt_durable_task bad, const char *which)
{
	struct hwt_durable_task tasks[] = {
	    task_of("1"), task_of("2"), bad, task_of("3"), task_of("4")};
	int results[5];

	cr_expect(hwt_durable_add(place.durable, 5, tasks, results) == -EINVAL,
	    "%s", which);
	cr_expect(results[0] == -ECANCELED && results[1] == -ECANCELED &&
		results[2] == -EINVAL && results[3] == -ECANCELED &&
		results[4] == -ECANCELED,
	    "%s", which);
}

#define WITH(field, value)                                  \
	do {                                                \
		struct hwt_durable_task bad = task_of("b"); \
		bad.field = value;                          \
		assert_refused(bad, #field " = " #value);   \
	} while (0)

PlaceTest(whole, one_bad_task_among_good_ones_stores_nothing)
{
	static const char long_queue[] =
	    "12345678901234567890123456789012345678901234567890123456789012345";
	static char payload[HWT_DURABLE_PAYLOAD_MAX + 1];
	struct hwt_durable_task task = task_of("b");

	WITH(id, NULL);
	WITH(id_length, 0);
	WITH(id_length, HWT_DURABLE_ID_MAX + 1);
	WITH(queue, NULL);
	WITH(queue, "");
	WITH(queue, "a b");
	WITH(queue, "a:b");
	WITH(queue, "\xc3\xa4");
	WITH(queue, long_queue);
	WITH(delay_ns, HWT_DURABLE_DELAY_MAX + 1);
	WITH(delay_ns, HWT_SEC(-1));
	WITH(delay_ns, HWT_NEVER);
	WITH(max_attempts, HWT_DURABLE_ATTEMPTS_MAX + 1);
	WITH(flags, 32);
	WITH(flags, HWT_DURABLE_HIGH | HWT_DURABLE_LOW);
	WITH(payload_length, 1);
	WITH(reserved[2], 1);
	WITH(flags, HWT_DURABLE_EXPIRES_AT); /* and no time */
	WITH(expires_ns, HWT_DURABLE_DELAY_MAX + 1);
	WITH(expires_ns, HWT_NEVER);
	WITH(retry_first_ns, HWT_DURABLE_DELAY_MAX + 1);
	WITH(retry_most_ns, HWT_NEVER);
	WITH(retry_most_ns, HWT_MS(999)); /* less than the first */
	WITH(retry_factor, 0.999);
	WITH(retry_factor, 1000.1);
	WITH(retry_factor, -2);
	WITH(retry_factor, (double)NAN);
	task.payload = payload;
	task.payload_length = sizeof(payload);
	assert_refused(task, "payload_length");
	task = task_of("b");
	task.delay_ns = HWT_MS(2);
	task.expires_ns = HWT_MS(1);
	assert_refused(task, "expires_ns");
	task = task_of("b");
	task.flags = HWT_DURABLE_AT;
	task.due_unix_ns = unix_ns() + HWT_DURABLE_DELAY_MAX + HWT_SEC(60);
	assert_refused(task, "due_unix_ns");
	task.due_unix_ns = unix_ns();
	task.flags |= HWT_DURABLE_EXPIRES_AT;
	task.expires_unix_ns = task.due_unix_ns - 1;
	assert_refused(task, "expires_unix_ns");
	assert_u64(stats_now().added, 0);
}

PlaceTest(produce, what_a_task_says_of_itself_can_be_got)
{
	struct hwt_durable_task task = task_of("a");
	struct hwt_durable_info info;
	uint64_t now = unix_ns();

	task.payload = "pay";
	task.payload_length = 3;
	task.flags = HWT_DURABLE_EXPIRES_AT | HWT_DURABLE_REPLACE;
	task.expires_unix_ns = HWT_MS(now / HWT_MS(1) + 60000) - 1;
	add_task(&task);
	info = info_of("a");
	assert_u64(info.expires_unix_ns, task.expires_unix_ns + 1);
	assert_u64(info.payload_length, 3);
	cr_assert_str_eq(info.queue, "q");
	assert_rc(reschedule_one("a", HWT_SEC(70)), -EINVAL);
	task.id = "b";
	task.flags = HWT_DURABLE_AT;
	task.due_unix_ns = now + HWT_SEC(600);
	task.expires_ns = HWT_SEC(60);
	/* Clocks may differ, so that this is for the engine to find out. */
	add_task(&task);
	cr_assert(info_of("b").expires_unix_ns >= now + HWT_SEC(60));
	assert_ok(add_one("c"));
	info = info_of("c");
	assert_u64(info.expires_unix_ns, 0);
	assert_u64(info.retry_first_ns, 0);
}

PlaceTest(produce, the_priority_of_a_task_can_be_got)
{
	static const uint32_t flags[] = {0, HWT_DURABLE_HIGH, HWT_DURABLE_LOW};
	struct hwt_durable_task task = task_of("a");
	size_t i;

	for (i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		task.flags = flags[i] | HWT_DURABLE_REPLACE;
		add_task(&task);
		assert_u64(info_of("a").flags, flags[i]);
		assert_ok(cancel_one("a"));
	}
}

PlaceTest(produce, how_a_task_is_retried_can_be_got)
{
	static const struct {
		double factor, told;
		uint64_t first_ns, most_ns, first_ms, most_ms;
	} rows[] = {
	    {0, 2, HWT_MS(7), 0, 7, 600000},
	    {1.5006, 1.501, 0, 0, 1000, 600000},
	    {1000, 1000, 0, HWT_SEC(1) + 1, 1000, 1001},
	    {1, 1, HWT_DURABLE_DELAY_MAX, 0, 315360000000, 315360000000},
	};
	struct hwt_durable_task task = task_of("a");
	struct hwt_durable_info info;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		task.id = &"abcd"[i];
		task.id_length = 1;
		task.retry_factor = rows[i].factor;
		task.retry_first_ns = rows[i].first_ns;
		task.retry_most_ns = rows[i].most_ns;
		add_task(&task);
		assert_ok(
		    hwt_durable_get(place.durable, task.id, 1, &info, NULL, 0));
		cr_assert(info.retry_factor == rows[i].told);
		assert_u64(info.retry_first_ns, HWT_MS(rows[i].first_ms));
		assert_u64(info.retry_most_ns, HWT_MS(rows[i].most_ms));
	}
}

PlaceTest(produce, what_is_just_within_the_limits_is_stored)
{
	static char payload[HWT_DURABLE_PAYLOAD_MAX];
	struct hwt_durable_info info;
	struct hwt_durable_task task = {.id = payload,
	    .id_length = HWT_DURABLE_ID_MAX,
	    .queue = "123456789012345678901234567890123456789012345678901234567"
		     "8901234",
	    .delay_ns = HWT_DURABLE_DELAY_MAX,
	    .max_attempts = HWT_DURABLE_ATTEMPTS_MAX,
	    .payload = payload,
	    .payload_length = sizeof(payload)};

	add_task(&task);
	assert_ok(hwt_durable_get(
	    place.durable, payload, HWT_DURABLE_ID_MAX, &info, NULL, 0));
	assert_u64(info.payload_length, sizeof(payload));
	task.id = "past";
	task.id_length = 4;
	task.flags = HWT_DURABLE_AT;
	task.due_unix_ns = 0;
	add_task(&task);
}

/* The engine refuses a script with more than 1 MiB of them. */
PlaceTest(produce, the_longest_payloads_are_split_over_scripts)
{
	static char payload[HWT_DURABLE_PAYLOAD_MAX];
	struct hwt_durable_task task = task_of("");

	task.payload = payload;
	task.payload_length = sizeof(payload);
	assert_ok(add_one("a"));
	assert_ok(add_one("b"));
	(void)ask("CONFIG RESETSTAT");
	add_many("t", HWT_DURABLE_BATCH_MAX, &task);
	cr_assert(calls_of("fcall") >= 32);
	assert_u64(stats_now().added, HWT_DURABLE_BATCH_MAX + 2);
}

PlaceTest(produce, an_id_that_cannot_be_is_EINVAL)
{
	static const char id[HWT_DURABLE_ID_MAX + 1];
	struct hwt_durable_info info;

	assert_rc(hwt_durable_cancel(place.durable, NULL, 1), -EINVAL);
	assert_rc(hwt_durable_cancel(place.durable, "a", 0), -EINVAL);
	assert_rc(hwt_durable_cancel(place.durable, id, sizeof(id)), -EINVAL);
	assert_rc(hwt_durable_reschedule(place.durable, "a", 0, 0, 0), -EINVAL);
	assert_rc(hwt_durable_reschedule(place.durable, "a", 1, 0, 2), -EINVAL);
	assert_rc(reschedule_one("a", HWT_NEVER), -EINVAL);
	assert_rc(
	    hwt_durable_get(place.durable, "a", 0, &info, NULL, 0), -EINVAL);
	assert_rc(
	    hwt_durable_get(place.durable, "a", 1, NULL, NULL, 0), -EINVAL);
	assert_rc(hwt_durable_read_stats(place.durable, NULL), -EINVAL);
	assert_rc(hwt_durable_add(NULL, 0, NULL, NULL), -EINVAL);
	assert_rc(hwt_durable_cancel(NULL, "a", 1), -EINVAL);
}

PlaceTest(produce, an_unknown_id_is_ENOENT)
{
	struct hwt_durable_info info;

	assert_rc(hwt_durable_cancel(place.durable, "a", 1), -ENOENT);
	assert_rc(hwt_durable_reschedule(place.durable, "a", 1, 0, 0), -ENOENT);
	assert_rc(
	    hwt_durable_get(place.durable, "a", 1, &info, NULL, 0), -ENOENT);
}

PlaceTest(produce, a_cancelled_task_can_be_cancelled_again_but_not_rescheduled)
{
	assert_ok(add_one("a"));
	assert_ok(cancel_one("a"));
	assert_ok(cancel_one("a"));
	cr_assert(state_of("a") == HWT_DURABLE_CANCELLED);
	assert_rc(reschedule_one("a", 0), -EALREADY);
	assert_rc(add_one("a"), HWT_DURABLE_CANCELLED);
	assert_u64(stats_now().cancelled, 1);
}

PlaceTest(produce, a_reschedule_makes_a_new_generation)
{
	struct hwt_durable_info info;
	uint64_t due = HWT_MS(1900000000000);

	assert_ok(add_one("a"));
	assert_ok(
	    hwt_durable_reschedule(place.durable, "a", 1, due, HWT_DURABLE_AT));
	info = info_of("a");
	assert_u64(info.generation, 2);
	assert_u64(info.due_unix_ns, due);
}

PlaceTest(produce, an_engine_out_of_memory_refuses_adds_alone)
{
	static char payload[HWT_DURABLE_PAYLOAD_MAX];
	struct hwt_durable_task task;
	char id[16];
	int error = 0, i;

	assert_ok(add_one("a"));
	assert_ok(add_one("b"));
	(void)ask("CONFIG SET maxmemory 8mb");
	for (i = 0; i < 1000 && error == 0; i++) {
		(void)snprintf(id, sizeof(id), "t%d", i);
		task = task_of(id);
		task.payload = payload;
		task.payload_length = sizeof(payload);
		error = hwt_durable_add(place.durable, 1, &task, NULL);
	}
	assert_rc(error, -ENOSPC);
	(void)ask("CONFIG SET maxmemory 1mb");
	assert_rc(add_one("c"), -ENOSPC);
	assert_ok(reschedule_one("b", 0));
	assert_ok(cancel_one("a"));
}

PlaceTest(produce, a_space_that_is_gone_is_ESTALE)
{
	(void)ask("FLUSHALL");
	assert_rc(add_one("a"), -ESTALE);
	assert_rc(cancel_one("a"), -ESTALE);
}

static enum proxied
judge_late(struct proxy *proxy, const char *name, const redisReply *command,
    uint64_t count)
{
	(void)command;
	(void)count;
	(void)snprintf(proxy->say, sizeof(proxy->say),
	    "-ESKEW the clocks are 3600000 ms apart\r\n");
	return strcmp(name, "FCALL") == 0 ? PROXY_SAY : PROXY_PASS;
}

/* The scripts' tests move the engine's clock itself; here, what is made of
 * their answer. */
PlaceTest(produce, clocks_that_are_apart_are_ETIME)
{
	static struct proxy proxy;
	struct hwt_durable_options options = place_behind(&proxy);
	struct hwt_durable_task task = task_of("a");

	place_open_other(&options);
	proxy.judge = judge_late;
	assert_rc(hwt_durable_add(place.other, 1, &task, NULL), -ETIME);
	cr_assert(state_of("a") == 0);
}
