/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory-order: what a thread wrote before scheduling, the task reads; what
 * the task wrote is seen by whoever got -ENOENT for it, or 0 from
 * hwt_cancel_wait. All payloads here are plain memory, and many words long, so
 * that no single store carries them over by luck.
 */
#include "test/spec/support_promises.h"

#include <stdlib.h>

SUITE(memory_order);

#define WORDS 64
#define TURNS 2000

struct letter {
	uint64_t question[WORDS];
	uint64_t answer[WORDS];
	uint64_t wrong;
	hwt_timeout timeout;
};

static void
letter_write(struct letter *letter, uint64_t word)
{
	unsigned index;

	for (index = 0; index < WORDS; index++)
		letter->question[index] = word + index;
}

static bool
letter_is_answered(const struct letter *letter, uint64_t word)
{
	unsigned index;

	for (index = 0; index < WORDS; index++)
		if (letter->answer[index] != 3 * (word + index))
			return false;
	return letter->wrong == 0;
}

static void
letter_task(hwt_timeout timeout, void *arg)
{
	struct letter *letter = arg;
	unsigned index;

	if (timeout.id == 0)
		letter->wrong++;
	for (index = 0; index < WORDS; index++) {
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

static void
exchange_letters(struct live *live, const struct hwt_executor *executor)
{
	struct letter *letter = calloc(1, sizeof(*letter));
	uint64_t turn;

	for (turn = 1; turn <= TURNS / 10; turn++) {
		letter_write(letter, turn << 32);
		assert_rc(hwt_new_timeout_on(live->timer, executor,
			      &letter->timeout, letter_task, letter, 0),
		    0);
		await_end(live->timer, letter->timeout);
		cr_assert(letter_is_answered(letter, turn << 32));
	}
	free(letter);
}

Test(memory_order, the_task_reads_what_was_written_and_its_answer_is_seen)
{
	struct live live = {0};

	live_open(&live, NULL);
	exchange_letters(&live, NULL);
	live_close(&live);
}

Test(memory_order, the_task_reads_what_was_written_before_a_reschedule)
{
	struct letter *letter = calloc(1, sizeof(*letter));
	struct live live = {0};
	uint64_t turn;

	live_open(&live, NULL);
	for (turn = 1; turn <= TURNS / 10; turn++) {
		assert_rc(hwt_new_timeout(live.timer, &letter->timeout,
			      letter_task, letter, HWT_MIN(1)),
		    0);
		letter_write(letter, turn << 32);
		/* Out, and in. */
		assert_rc(
		    hwt_reschedule(live.timer, letter->timeout, HWT_MIN(2)), 0);
		letter_write(letter, turn << 33);
		assert_rc(hwt_reschedule(live.timer, letter->timeout, 0), 0);
		await_end(live.timer, letter->timeout);
		cr_assert(letter_is_answered(letter, turn << 33));
	}
	live_close(&live);
	free(letter);
}

Test(memory_order, the_same_through_a_pool)
{
	struct live live = {0};
	struct hwt_pool *pool;

	live_open(&live, NULL);
	assert_rc(hwt_pool_create(&pool, 2, 0), 0);
	exchange_letters(&live, hwt_pool_executor(pool));
	/* A pool thread may still be on its way out of hwt_run. */
	assert_rc(hwt_stop(live.timer, NULL), 0);
	assert_rc(hwt_pool_destroy(pool), 0);
	live_close(&live);
}

/* Many timeouts at once, so that cancels meet tasks in every stage. */
static void
cancel_letters(int (*cancel)(struct hwt *, hwt_timeout), uint64_t delay_ns)
{
	struct letter *letters = calloc(TURNS, sizeof(*letters));
	struct live live = {0};
	unsigned turn;

	live_open(&live, NULL);
	for (turn = 0; turn < TURNS; turn++) {
		letter_write(&letters[turn], turn);
		assert_rc(hwt_new_timeout(live.timer, &letters[turn].timeout,
			      letter_task, &letters[turn], turn % 8 * delay_ns),
		    0);
	}
	for (turn = 0; turn < TURNS; turn++) {
		int rc = cancel(live.timer, letters[turn].timeout);

		if (rc == -ENOENT)
			cr_assert(letter_is_answered(&letters[turn], turn));
		else if (rc == 0)
			cr_assert(letters[turn].answer[0] == 0);
		else
			assert_rc(rc, -EINPROGRESS);
	}
	live_close(&live);
	free(letters);
}

Test(memory_order, whoever_got_enoent_from_cancel_sees_what_the_task_wrote)
{
	cancel_letters(hwt_cancel, HWT_US(100));
	cancel_letters(hwt_cancel, HWT_MS(1));
}

Test(memory_order, whoever_got_enoent_from_cancel_wait_sees_it_too)
{
	cancel_letters(hwt_cancel_wait, HWT_US(100));
	cancel_letters(hwt_cancel_wait, HWT_MS(1));
}

struct accumulator {
	uint64_t words[WORDS];
	_Atomic uint64_t runs;
};

static void
accumulate_task(hwt_timeout timeout, void *arg)
{
	struct accumulator *sum = arg;
	unsigned index;

	(void)timeout;
	sum->runs++;
	for (index = 0; index < WORDS; index++)
		sum->words[index]++;
}

Test(memory_order, whoever_got_0_from_cancel_wait_sees_all_runs)
{
	struct accumulator *sum = calloc(1, sizeof(*sum));
	struct hwt_spec spec = {
	    .task = accumulate_task, .arg = sum, .period_ns = HWT_US(10)};
	struct live live = {0};
	hwt_timeout timeout;
	unsigned turn;
	unsigned index;

	live_open(&live, &(struct hwt_options){.tick_ns = HWT_US(100)});
	for (turn = 0; turn < 100; turn++) {
		uint64_t runs = sum->runs;

		assert_rc(hwt_new_timeouts(live.timer, 1, &spec, &timeout), 0);
		wait_for(&sum->runs, runs + 1);
		assert_rc(hwt_cancel_wait(live.timer, timeout), 0);
		for (index = 0; index < WORDS; index++)
			assert_u64(sum->words[index], sum->runs);
	}
	live_close(&live);
	free(sum);
}

Test(memory_order, runs_of_one_periodic_timeout_see_each_other)
{
	struct accumulator *sum = calloc(1, sizeof(*sum));
	struct hwt_spec spec = {
	    .task = accumulate_task, .arg = sum, .period_ns = HWT_US(10)};
	struct live live = {0};
	struct hwt_pool *pool;
	hwt_timeout timeout;
	unsigned index;

	/* Four threads take turns; the plain counts must come out even. */
	live_open(&live, &(struct hwt_options){.tick_ns = HWT_US(100)});
	assert_rc(hwt_pool_create(&pool, 4, 0), 0);
	spec.executor = hwt_pool_executor(pool);
	assert_rc(hwt_new_timeouts(live.timer, 1, &spec, &timeout), 0);
	wait_for(&sum->runs, 500);
	assert_rc(hwt_cancel_wait(live.timer, timeout), 0);

	for (index = 0; index < WORDS; index++)
		assert_u64(sum->words[index], sum->runs);
	/* A pool thread may still be on its way out of hwt_run. */
	assert_rc(hwt_stop(live.timer, NULL), 0);
	assert_rc(hwt_pool_destroy(pool), 0);
	live_close(&live);
	free(sum);
}

Test(memory_order, when_stop_returns_all_that_tasks_wrote_is_seen)
{
	struct accumulator *sum = calloc(1, sizeof(*sum));
	struct hwt_spec spec = {
	    .task = accumulate_task, .arg = sum, .period_ns = HWT_US(10)};
	struct live live = {0};
	unsigned turn;
	unsigned index;

	for (turn = 0; turn < 50; turn++) {
		live_open(&live, &(struct hwt_options){.tick_ns = HWT_US(50)});
		assert_rc(hwt_new_timeouts(live.timer, 1, &spec, NULL), 0);
		wait_for(&sum->runs, sum->runs + 1);
		assert_rc(hwt_stop(live.timer, NULL), 0);
		for (index = 0; index < WORDS; index++)
			assert_u64(sum->words[index], sum->runs);
		assert_rc(hwt_destroy(live.timer), 0);
	}
	free(sum);
}
