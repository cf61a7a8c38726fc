/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warnings at a limited rate, from any thread: the first is written at once,
 * those of the next second are counted, and then one line tells how many they
 * were. While nothing is warned of, nothing is pending.
 *
 * The task takes the lock, so that no call under it may wait for the task;
 * hwt_new_timeout never does.
 */
#include "by_hand.h"

#include <stdio.h>
#include <string.h>

#define SECOND_NS HWT_SEC(1)
#define THREADS 4
#define WARNINGS 1000

struct limiter {
	pthread_mutex_t lock;
	bool is_silent;
	uint64_t suppressed;
	/* What would go to the log. */
	unsigned lines;
	char last[80];
};

static struct hwt *timer;
static struct limiter limiter = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
say(struct limiter *to, const char *line)
{
	to->lines++;
	snprintf(to->last, sizeof(to->last), "%s", line);
}

static void
second_is_over(hwt_timeout timeout, void *arg)
{
	struct limiter *of = arg;
	char line[80];

	(void)timeout;
	pthread_mutex_lock(&of->lock);
	of->is_silent = false;
	if (of->suppressed > 0) {
		snprintf(line, sizeof(line), "and %llu more",
		    (unsigned long long)of->suppressed);
		say(of, line);
		of->suppressed = 0;
		of->is_silent = hwt_new_timeout(timer, NULL, second_is_over, of,
				    SECOND_NS) == 0;
	}
	pthread_mutex_unlock(&of->lock);
}

/* Without a timeout every warning is written: none is lost. */
static void
warn(struct limiter *to, const char *line)
{
	pthread_mutex_lock(&to->lock);
	if (to->is_silent) {
		to->suppressed++;
	} else {
		say(to, line);
		to->is_silent = hwt_new_timeout(timer, NULL, second_is_over, to,
				    SECOND_NS) == 0;
	}
	pthread_mutex_unlock(&to->lock);
}

static void *
warn_often(void *arg)
{
	int i;

	(void)arg;
	for (i = 0; i < WARNINGS; i++)
		warn(&limiter, "the disk is full");
	return NULL;
}

int
main(void)
{
	pthread_t threads[THREADS];
	int i;

	timer = by_hand_create();
	for (i = 0; i < THREADS; i++)
		must(pthread_create(&threads[i], NULL, warn_often, NULL) == 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	must(limiter.lines == 1);
	must(strcmp(limiter.last, "the disk is full") == 0);

	pass(timer, SECOND_NS);
	must(limiter.lines == 2);
	must(strcmp(limiter.last, "and 3999 more") == 0);

	pass(timer, SECOND_NS);
	must(limiter.lines == 2 && hwt_pending_timeouts(timer) == 0);
	warn(&limiter, "the disk is full again");
	must(limiter.lines == 3);
	pass(timer, SECOND_NS);
	by_hand_destroy(timer, NULL);
	printf("4001 warnings, %u lines\n", limiter.lines);
	return 0;
}
