/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory-order: a task reads what was written before scheduling; who got
 * -ENOENT for a timeout, or 0 from hwt_cancel_wait, sees what its task wrote.
 * Payloads are plain memory of many words; ThreadSanitizer judges the same of
 * every call in test/check/watched.c.
 */
#include "test/spec/support.h"

SUITE(memory_order);

#define WORDS 64

struct letter {
	uint64_t question[WORDS], answer[WORDS];
	hwt_timeout timeout;
};

static void
answer_task(hwt_timeout timeout, void *arg)
{
	struct letter *letter = arg;

	(void)timeout;
	for (unsigned i = 0; i < WORDS; i++)
		letter->answer[i] = 3 * letter->question[i];
}

WorkerTest(memory_order, task_reads_the_question_and_enoent_shows_the_answer)
{
	static struct letter letter;
	int64_t remaining_ns;

	for (uint64_t turn = 1; turn <= 200; turn++) {
		for (unsigned i = 0; i < WORDS; i++)
			letter.question[i] = (turn << 32) + i;
		assert_ok(hwt_new_timeout(
		    live.timer, &letter.timeout, answer_task, &letter, 0));
		while (hwt_remaining(live.timer, letter.timeout,
			   &remaining_ns) != -ENOENT)
			continue;
		for (unsigned i = 0; i < WORDS; i++)
			assert_u64(letter.answer[i], 3 * ((turn << 32) + i));
	}
}

static _Atomic uint64_t sums;

static void
sum_task(hwt_timeout timeout, void *arg)
{
	uint64_t *sum = arg;

	(void)timeout;
	sums++;
	for (unsigned i = 0; i < WORDS; i++)
		sum[i]++;
}

WorkerTest(memory_order, who_gets_0_from_cancel_wait_sees_all_runs)
{
	static uint64_t sum[WORDS];
	hwt_timeout timeout;

	for (uint64_t turn = 1; turn <= 50; turn++) {
		assert_ok(hwt_new_periodic(
		    live.timer, NULL, &timeout, sum_task, sum, 0, 1));
		wait_for(&sums, turn);
		assert_ok(hwt_cancel_wait(live.timer, timeout));
		for (unsigned i = 0; i < WORDS; i++)
			assert_u64(sum[i], sums);
	}
}
