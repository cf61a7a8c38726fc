/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory-order: what a thread wrote before scheduling, the task reads; what
 * the task wrote is seen by whoever got -ENOENT for it, or 0 from
 * hwt_cancel_wait. All payloads here are plain memory, and many words long, so
 * that no single store carries them over by luck. ThreadSanitizer judges the
 * same of every call: test/check/watched.c.
 */
#include "test/spec/support_promises.h"

#include <stdlib.h>

SUITE(memory_order);

#define WORDS 64
#define TURNS 200

struct letter {
	uint64_t question[WORDS];
	uint64_t answer[WORDS];
	uint64_t wrong;
	hwt_timeout timeout;
};

static void
letter_write(struct letter *letter, uint64_t word)
{
	for (unsigned index = 0; index < WORDS; index++)
		letter->question[index] = word + index;
}

static bool
letter_is_answered(const struct letter *letter, uint64_t word)
{
	for (unsigned index = 0; index < WORDS; index++)
		if (letter->answer[index] != 3 * (word + index))
			return false;
	return letter->wrong == 0;
}

static void
letter_task(hwt_timeout timeout, void *arg)
{
	struct letter *letter = arg;

	if (timeout.id == 0)
		letter->wrong++;
	for (unsigned index = 0; index < WORDS; index++) {
		if (letter->question[index] != letter->question[0] + index)
			letter->wrong++;
		letter->answer[index] = 3 * letter->question[index];
	}
}

/* Polls cancel too late until the task has ended. */
static void
await_end(struct hwt *timer, hwt_timeout timeout)
{
	uint64_t limit_ns = monotonic_ns() + HWT_SEC(30);
	int64_t remaining_ns;

	while (hwt_remaining(timer, timeout, &remaining_ns) != -ENOENT)
		cr_assert(monotonic_ns() < limit_ns, "it never ends");
}

WorkerTest(memory_order, the_task_reads_what_was_written_and_its_answer_is_seen)
{
	struct letter *letter = calloc(1, sizeof(*letter));

	for (uint64_t turn = 1; turn <= TURNS; turn++) {
		letter_write(letter, turn << 32);
		assert_ok(hwt_new_timeout(
		    live.timer, &letter->timeout, letter_task, letter, 0));
		await_end(live.timer, letter->timeout);
		cr_assert(letter_is_answered(letter, turn << 32));
	}
	free(letter);
}

struct accumulator {
	uint64_t words[WORDS];
	_Atomic uint64_t runs;
};

static void
accumulate_task(hwt_timeout timeout, void *arg)
{
	struct accumulator *sum = arg;

	(void)timeout;
	sum->runs++;
	for (unsigned index = 0; index < WORDS; index++)
		sum->words[index]++;
}

Test(memory_order, whoever_got_0_from_cancel_wait_sees_all_runs)
{
	struct accumulator *sum = calloc(1, sizeof(*sum));
	struct hwt_spec spec = {
	    .task = accumulate_task, .arg = sum, .period_ns = HWT_US(10)};
	hwt_timeout timeout;

	live_open(&(struct hwt_options){.tick_ns = HWT_US(100)});
	for (unsigned turn = 0; turn < 100; turn++) {
		uint64_t runs = sum->runs;

		assert_ok(hwt_new_timeouts(live.timer, 1, &spec, &timeout));
		wait_for(&sum->runs, runs + 1);
		assert_ok(hwt_cancel_wait(live.timer, timeout));
		for (unsigned index = 0; index < WORDS; index++)
			assert_u64(sum->words[index], sum->runs);
	}
	live_close();
	free(sum);
}

Test(memory_order, runs_of_one_periodic_timeout_see_each_other)
{
	struct accumulator *sum = calloc(1, sizeof(*sum));
	struct hwt_spec spec = {
	    .task = accumulate_task, .arg = sum, .period_ns = HWT_US(10)};
	struct hwt_pool *pool;
	hwt_timeout timeout;

	/* Four threads take turns; the plain counts must come out even. */
	live_open(&(struct hwt_options){.tick_ns = HWT_US(100)});
	assert_ok(hwt_pool_create(&pool, 4, 0));
	spec.executor = hwt_pool_executor(pool);
	assert_ok(hwt_new_timeouts(live.timer, 1, &spec, &timeout));
	wait_for(&sum->runs, 500);
	assert_ok(hwt_cancel_wait(live.timer, timeout));

	for (unsigned index = 0; index < WORDS; index++)
		assert_u64(sum->words[index], sum->runs);
	/* A pool thread may still be on its way out of hwt_run. */
	assert_ok(hwt_stop(live.timer, NULL));
	assert_ok(hwt_pool_destroy(pool));
	live_close();
	free(sum);
}

Test(memory_order, when_stop_returns_all_that_tasks_wrote_is_seen)
{
	struct accumulator *sum = calloc(1, sizeof(*sum));
	struct hwt_spec spec = {
	    .task = accumulate_task, .arg = sum, .period_ns = HWT_US(10)};

	for (unsigned turn = 0; turn < 50; turn++) {
		live_open(&(struct hwt_options){.tick_ns = HWT_US(50)});
		assert_ok(hwt_new_timeouts(live.timer, 1, &spec, NULL));
		wait_for(&sum->runs, sum->runs + 1);
		assert_ok(hwt_stop(live.timer, NULL));
		for (unsigned index = 0; index < WORDS; index++)
			assert_u64(sum->words[index], sum->runs);
		assert_ok(hwt_destroy(live.timer));
	}
	free(sum);
}
