/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats: exact counts.
 */
#include "modules/purgatory/test/spec/purgatory.h"
#include "test/spec/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SUITE(stats);

static struct yard yard;

YardTest(stats, each_end_is_counted_once)
{
	struct operation operation[6];
	struct hwt_purgatory_stats now;
	unsigned i;

	for (i = 0; i < 6; i++) {
		operation[i] = (struct operation){.yard = &yard};
		assert_rc(watch_key(&operation[i], KEY(i), HWT_SEC(1 + i)), 0);
	}
	assert_u64(yard_stats(&yard).tried, 6);
	operation[5].holds = 1;
	assert_u64(check(&yard, KEY(5)), 1);
	assert_u64(check(&yard, KEY(4)), 0);
	assert_u64(cancel_key(&yard, KEY(4)), 1);
	assert_rc(
	    hwt_operation_complete(yard.purgatory, operation[3].handle), 0);
	(void)fixture_step(&yard.fixture, HWT_MS(1001));
	now = yard_stats(&yard);
	assert_u64(now.pending, 2);
	assert_u64(now.links, 2);
	assert_u64(now.keys, 2);
	assert_u64(now.completed, 2);
	assert_u64(now.expired, 1);
	assert_u64(now.cancelled, 1);
	assert_u64(now.shut_down, 0);
	assert_u64(now.tried, 8);
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
	assert_u64(yard_stats(&yard).shut_down, 2);
	for (i = 0; i < sizeof(now.reserved) / sizeof(now.reserved[0]); i++)
		assert_u64(now.reserved[i], 0);
}

static void
count_itself(struct operation *operation)
{
	*(uint64_t *)operation->data = yard_stats(operation->yard).tried;
}

/* Where a call has not ended, its own thread's count is right, too: in a
 * predicate of watch and of check, and in done. */
YardTest(stats, a_predicate_is_counted_when_it_is_called)
{
	uint64_t tried = 0;

	party_make(&yard);
	party[0].in_try = count_itself;
	party[0].in_done = count_itself;
	party[0].data = &tried;
	play("watch-ms 0 1 1000");
	assert_u64(tried, 1);
	play("check 1 0");
	assert_u64(tried, 2);
	assert_u64(yard_stats(&yard).tried, 2);
	party[0].in_try = NULL;
	play("holds 0, check 1 1");
	assert_u64(tried, 3);
}

YardTestWith(stats, memory_does_not_grow_with_the_rate_of_calls, .shards = 1)
{
	static struct operation operation;
	uint64_t bytes = 0;
	unsigned i;

	for (i = 0; i < 20000; i++) {
		operation = (struct operation){.yard = &yard};
		assert_rc(watch_key(&operation, KEY(i % 3), HWT_MS(1)), 0);
		if (i % 2 == 0)
			assert_u64(cancel_key(&yard, KEY(i % 3)), 1);
		else
			(void)fixture_step(&yard.fixture, HWT_MS(3));
		assert_u64(operation.dones, 1);
		if (i == 10)
			bytes = yard_stats(&yard).memory_bytes;
	}
	assert_u64(yard_stats(&yard).memory_bytes, bytes);
}

/* At 3 keys, with the timer's record and the keys' part where each key has many
 * operations: at most 250 bytes each. */
YardTestWith(
    stats, an_operation_on_three_keys_takes_at_most_250_bytes, .shards = 1)
{
	static struct operation operation[50000];
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(3)};
	uint64_t before, after;
	unsigned i;

	before = yard_stats(&yard).memory_bytes +
	    fixture_stats(&yard.fixture).memory_bytes;
	for (i = 0; i < 50000; i++) {
		operation[i].yard = &yard;
		operation[i].holds = 0;
		assert_rc(watch_keys(&operation[i], keys, 3, HWT_SEC(1)), 0);
	}
	after = yard_stats(&yard).memory_bytes +
	    fixture_stats(&yard.fixture).memory_bytes;
	cr_assert((after - before) / 50000 <= 250, "%u bytes",
	    (unsigned)((after - before) / 50000));
}

/* As text. */

#define COUNTERS                                   \
	((sizeof(struct hwt_purgatory_stats) -     \
	     sizeof(yard_stats(&yard).reserved)) / \
	    sizeof(uint64_t))

/* Serial numbers begin at 1, and each test has a process of its own; the caller
 * frees it. */
static char *
text_of(struct yard *of, enum hwt_format format)
{
	return TEXT_OF(hwt_purgatory_stats_write(of->purgatory, file, format));
}

/* A number of its own in each counter; 7 are pending. */
static void
move_each_counter(void)
{
	static struct operation operation[20];
	const struct hwt_key keys[] = {KEY(1), KEY(2), KEY(3), KEY(4)};
	unsigned i;

	for (i = 0; i < 20; i++) {
		operation[i] = (struct operation){.yard = &yard};
		assert_rc(watch_keys(&operation[i], keys, i == 19 ? 4 : 1,
			      i < 8 ? HWT_MS(1) : HWT_NEVER),
		    0);
	}
	(void)fixture_step(&yard.fixture, HWT_MS(2));
	operation[8].holds = 1;
	operation[9].holds = 1;
	assert_u64(check(&yard, KEY(1)), 2);
	for (i = 10; i < 13; i++)
		assert_rc(
		    hwt_operation_cancel(yard.purgatory, operation[i].handle),
		    0);
}

/* Returns which counters are not 0. */
static unsigned
assert_each_is_written(void)
{
	static const char *const names[][2] = {
	    {"pending", "operations_pending"},
	    {"links", "links"},
	    {"keys", "keys"},
	    {"completed", "operations_completed_total"},
	    {"expired", "operations_expired_total"},
	    {"cancelled", "operations_cancelled_total"},
	    {"shut_down", "operations_shut_down_total"},
	    {"tried", "predicates_called_total"},
	    {"memory_bytes", "memory_bytes"},
	};
	const struct hwt_purgatory_stats stats = yard_stats(&yard);
	char *json = text_of(&yard, HWT_JSON);
	char *page = text_of(&yard, HWT_PROMETHEUS);
	uint64_t counter[COUNTERS];
	char expected[256];
	unsigned moved = 0;
	size_t i;

	assert_u64(COUNTERS, sizeof(names) / sizeof(names[0]));
	memcpy(counter, &stats, sizeof(counter));
	for (i = 0; i < COUNTERS; i++) {
		snprintf(expected, sizeof(expected), ",\"%s\":%" PRIu64,
		    names[i][0], counter[i]);
		cr_assert(strstr(json, expected), "%s in %s", expected, json);
		snprintf(expected, sizeof(expected),
		    "\nhwt_purgatory_%s{purgatory=\"writes\",serial=\"1\"} "
		    "%" PRIu64 "\n",
		    names[i][1], counter[i]);
		cr_assert(strstr(page, expected), "%s in %s", expected, page);
		moved |= (unsigned)(counter[i] != 0) << i;
	}
	assert_u64(count_of(json, ",\""), COUNTERS + 1);
	assert_u64(count_of(page, "# TYPE"), COUNTERS);
	free(json);
	free(page);
	return moved;
}

YardTestWith(
    stats, each_counter_moves_and_is_written_in_both_formats, .name = "writes")
{
	unsigned moved;

	(void)assert_each_is_written();
	move_each_counter();
	moved = assert_each_is_written();
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
	moved |= assert_each_is_written();
	assert_u64(moved, (1u << COUNTERS) - 1);
}

YardTest(stats, text_names_the_purgatory_and_comments_stand_once)
{
	struct yard second;
	char *text;

	yard_open(&second, NULL);
	text = text_of(&second, HWT_PROMETHEUS_SAMPLES);
	assert_u64(count_of(text, "{purgatory=\"purgatory\",serial=\"2\"} "),
	    COUNTERS);
	assert_u64(count_of(text, "\n"), COUNTERS);
	free(text);
	text = text_of(&second, HWT_JSON);
	cr_assert(
	    strstr(text, "{\"purgatory\":\"purgatory\",\"serial\":2,") == text);
	cr_assert(strstr(text, "}\n") == text + strlen(text) - 2);
	free(text);
	yard_close(&second);
}

YardTest(stats, what_cannot_be_written_is_an_error)
{
	FILE *file = fopen("/dev/full", "we");

	cr_assert(file != NULL);
	assert_rc(hwt_purgatory_stats_write(NULL, file, HWT_JSON), -EINVAL);
	assert_rc(
	    hwt_purgatory_stats_write(yard.purgatory, NULL, HWT_JSON), -EINVAL);
	assert_rc(hwt_purgatory_stats_write(yard.purgatory, file,
		      (enum hwt_format)(HWT_PROMETHEUS_SAMPLES + 1)),
	    -EINVAL);
	assert_rc(hwt_purgatory_stats_write(
		      yard.purgatory, file, (enum hwt_format) - 1),
	    -EINVAL);
	assert_rc(
	    hwt_purgatory_stats_write(yard.purgatory, file, HWT_JSON), -ENOSPC);
	assert_rc(
	    hwt_purgatory_stats_write(yard.purgatory, file, HWT_PROMETHEUS),
	    -ENOSPC);
	fclose(file);
	file = file_that_takes(0);
	assert_rc(
	    hwt_purgatory_stats_write(yard.purgatory, file, HWT_JSON), -EIO);
	fclose(file);
}
