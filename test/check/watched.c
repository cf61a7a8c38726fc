/* SPDX-License-Identifier: Apache-2.0 */
/* A program that ThreadSanitizer watches, with a library that it does not. Its
 * threads share plain words, ordered by the promises of hwt.h alone. With an
 * argument, it has a race of its own. */
#include "hwt.h"
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define ROUNDS 240
#define POST sizeof(struct hwt_post)
#define relaxed_load(p) atomic_load_explicit(p, memory_order_relaxed)
#define relaxed_store(p, v) atomic_store_explicit(p, v, memory_order_relaxed)

static const struct hwt_options fast = {.tick_ns = HWT_US(100)};
static struct hwt *timer;
static const struct hwt_executor *executor;

static void
run(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	assert(*(int *)arg > 0);
	++*(int *)arg;
}

static int *
work_new(void)
{
	int *work = malloc(sizeof(*work));

	assert(work != NULL);
	*work = 1;
	return work;
}

static void
work_free(int *work)
{
	*work = 0;
	free(work);
}

static hwt_timeout
schedule(int *work, uint64_t delay_ns)
{
	hwt_timeout timeout;

	assert(hwt_new_timeout_on(
		   timer, executor, &timeout, run, work, delay_ns) == 0);
	return timeout;
}

/* A task sees what was written before its timeout was scheduled or moved. Each
 * call that says that it has ended hands over what the task wrote. */
static void
once(int round)
{
	int *work = work_new(), result;
	hwt_timeout timeout;
	int64_t remaining_ns;

	*work = round & 1;
	timeout =
	    schedule(work, round & 1 ? HWT_US(50) * (round % 8) : HWT_MIN(1));
	if (!(round & 1)) {
		*work = 1;
		assert(hwt_reschedule(timer, timeout, 0) == 0);
	}
	do {
		sched_yield();
		if (round % 5 == 0)
			result = hwt_remaining(timer, timeout, &remaining_ns);
		else if (round % 5 == 1)
			result = hwt_state(timer, timeout, NULL);
		else if (round % 5 == 2)
			result = hwt_reschedule(timer, timeout, 0);
		else if (round % 5 == 3)
			result = hwt_cancel(timer, timeout);
		else
			result = hwt_cancel_wait(timer, timeout);
	} while (result != -ENOENT && (round % 5 < 3 || result != 0));
	work_free(work);
}

/* Runs of a periodic timeout follow each other, and its end the last. */
static void
repeated(void)
{
	int *work = work_new();
	hwt_timeout timeout;

	assert(hwt_new_periodic(
		   timer, executor, &timeout, run, work, 0, HWT_US(100)) == 0);
	usleep(500);
	assert(hwt_cancel_wait(timer, timeout) == 0);
	work_free(work);
}

/* A posted function sees what was done before the post. */
static void
posted(struct hwt_post *post)
{
	free(post);
}

static void *
use(void *pool)
{
	int round;

	for (round = 0; round < ROUNDS; round++) {
		once(round);
		assert(pool == NULL ||
		    hwt_pool_post(pool, malloc(POST), posted) == 0);
		if (round % 8 == 0)
			repeated();
	}
	return NULL;
}

static void
use_with(struct hwt_pool *pool)
{
	pthread_t thread[2];
	int i;

	assert(hwt_create(&timer, &fast) == 0);
	executor = hwt_pool_executor(pool);
	for (i = 0; i < 2; i++)
		assert(pthread_create(&thread[i], NULL, use, pool) == 0);
	for (i = 0; i < 2; i++)
		assert(pthread_join(thread[i], NULL) == 0);
	assert(hwt_stop(timer, NULL) == 0);
	assert(pool == NULL || hwt_pool_destroy(pool) == 0);
	assert(hwt_destroy(timer) == 0);
	executor = NULL;
}

/* Cancel and stop hand over what a thread wrote that has scheduled and goes on.
 * Nothing else orders what is passed here. */
static atomic_uint_fast64_t handles[ROUNDS];
static _Atomic(int *) works[ROUNDS];
static atomic_bool done;

static void *
schedule_and_stay(void *mailbox)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		int *work = work_new();

		assert(hwt_mailbox_post(mailbox, malloc(POST), posted) == 0);
		relaxed_store(&works[i], work);
		relaxed_store(&handles[i], schedule(work, HWT_MIN(1)).id);
	}
	while (!relaxed_load(&done))
		sched_yield();
	return NULL;
}

static void
end_of_anothers(void)
{
	struct hwt_unprocessed list;
	struct hwt_timeout_info info;
	struct hwt_mailbox *mailbox;
	pthread_t thread;
	hwt_timeout timeout;
	int i;

	assert(hwt_create(&timer, &fast) == 0);
	assert(hwt_mailbox_create(&mailbox) == 0);
	assert(pthread_create(&thread, NULL, schedule_and_stay, mailbox) == 0);
	for (i = 0; i < ROUNDS; i += 2) {
		while ((timeout.id = relaxed_load(&handles[i])) == 0)
			sched_yield();
		assert(hwt_cancel(timer, timeout) == 0);
		work_free(relaxed_load(&works[i]));
	}
	while (relaxed_load(&handles[ROUNDS - 1]) == 0)
		sched_yield();
	assert(hwt_stop(timer, &list) == 0 && list.count == ROUNDS / 2);
	while (hwt_unprocessed_next(&list, &info))
		work_free(info.arg);
	assert(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	assert(hwt_mailbox_destroy(mailbox) == 0);
	relaxed_store(&done, true);
	assert(pthread_join(thread, NULL) == 0 && hwt_destroy(timer) == 0);
}

int
main(int argc, char **argv)
{
	struct hwt_pool *pool;
	int *work = work_new();

	(void)argv;
	if (argc > 1) {
		assert(hwt_create(&timer, NULL) == 0);
		(void)schedule(work, 0);
		for (;;) {
			++*work;
			usleep(1000);
		}
	}
	work_free(work);
	use_with(NULL);
	assert(hwt_pool_create(&pool, 2, 0) == 0);
	use_with(pool);
	end_of_anothers();
	return 0;
}
