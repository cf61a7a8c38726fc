/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop with the list of what had not become due, and go on with it later: jobs
 * that are left when a program ends are saved with the time that they still
 * have, and scheduled again when it starts. Each job runs once.
 */
#include "recipe.h"

#define JOBS 100

struct saved {
	unsigned *runs;
	uint64_t delay_ns;
};

static void
run(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	++*(unsigned *)arg;
}

/* The list is the timer's own memory: it ends with hwt_destroy. */
static unsigned
stop_and_save(struct hwt *timer, struct saved *saved)
{
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	unsigned count = 0;

	must(hwt_stop(timer, &unprocessed) == 0);
	while (hwt_unprocessed_next(&unprocessed, &info)) {
		/* One timer can have tasks of several kinds. */
		must(info.task == run);
		saved[count].runs = info.arg;
		saved[count].delay_ns =
		    info.remaining_ns > 0 ? (uint64_t)info.remaining_ns : 0;
		count++;
	}
	must(hwt_destroy(timer) == 0);
	return count;
}

int
main(void)
{
	struct hwt *timer = by_hand_create();
	unsigned runs[JOBS] = {0}, count, i;
	struct saved saved[JOBS];

	for (i = 0; i < JOBS; i++)
		must(hwt_new_timeout(
			 timer, NULL, run, &runs[i], HWT_SEC(i + 1)) == 0);
	pass(timer, HWT_SEC(40));
	/* Overdue: the program ends before the wheel turns again. */
	now_ns += HWT_SEC(5);
	count = stop_and_save(timer, saved);
	must(count == 60);

	timer = by_hand_create();
	for (i = 0; i < count; i++)
		must(hwt_new_timeout(timer, NULL, run, saved[i].runs,
			 saved[i].delay_ns) == 0);
	pass(timer, TICK_NS);
	must(runs[44] == 1 && runs[45] == 0);
	pass(timer, HWT_SEC(55));
	for (i = 0; i < JOBS; i++)
		must(runs[i] == 1);
	teardown(timer, NULL);
	printf("%u of %d jobs ran after the restart\n", count, JOBS);
	return 0;
}
