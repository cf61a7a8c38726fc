/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory-order: a task reads what was written before scheduling; who got
 * -ENOENT for a timeout sees what its task wrote. ThreadSanitizer judges the
 * same of every call in test/check/watched.c.
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
