/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which timer, mailboxes and pools go. When hwt_stop returns, each
 * timeout is in one of four places, and each place returns its args:
 *
 *   the list of hwt_stop    never started: free it
 *   the worker              nothing: hwt_stop has waited for it
 *   a pool                  waits or runs: hwt_pool_destroy runs it to the end
 *   a mailbox               waits: hwt_mailbox_run, on the loop's thread, until
 *                           hwt_mailbox_destroy answers 0
 *
 * hwt_destroy answers -EBUSY until the executors hold nothing, so that a wrong
 * order is seen. The timer goes last: what still runs may ask it.
 */
#include <errno.h>
#include <hwt.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "../must.h"

static struct hwt *timer;
static atomic_uint done;
static sem_t is_running, may_end;

static void
finish(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	free(arg);
	atomic_fetch_add(&done, 1);
}

/* In the pool. It may try to schedule more work: it is told to leave it. */
static void
finish_slowly(hwt_timeout timeout, void *arg)
{
	sem_post(&is_running);
	sem_wait(&may_end);
	must(hwt_new_timeout(timer, NULL, finish, arg, 0) == -ESHUTDOWN);
	finish(timeout, arg);
}

static void
schedule(const struct hwt_executor *executor, hwt_task *task, uint64_t delay_ns)
{
	void *arg = malloc(16);

	must(arg != NULL);
	must(hwt_new_timeout_on(timer, executor, NULL, task, arg, delay_ns) ==
	    0);
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	struct hwt_mailbox *mailbox;
	struct hwt_pool *pool;
	struct pollfd due = {.events = POLLIN};
	int i;

	sem_init(&is_running, 0, 0);
	sem_init(&may_end, 0, 0);
	must(hwt_create(&timer, &options) == 0);
	must(hwt_pool_create(&pool, 1, 0) == 0);
	must(hwt_mailbox_create(&mailbox) == 0);
	due.fd = hwt_mailbox_fd(mailbox);

	/* One in the pool, one in the mailbox, three in the wheel. */
	schedule(hwt_pool_executor(pool), finish_slowly, 0);
	schedule(hwt_mailbox_executor(mailbox), finish, 0);
	for (i = 0; i < 3; i++)
		schedule(NULL, finish, HWT_MIN(1));
	sem_wait(&is_running);
	must(poll(&due, 1, -1) == 1);

	/* 1. Nothing new: the timer stops. Its list is freed. */
	must(hwt_stop(timer, &unprocessed) == 0);
	must(unprocessed.count == 3);
	while (hwt_unprocessed_next(&unprocessed, &info))
		finish(info.timeout, info.arg);
	must(done == 3 && hwt_destroy(timer) == -EBUSY);

	/* 2. What executors hold ends. */
	sem_post(&may_end);
	must(hwt_pool_destroy(pool) == 0);
	must(done == 4 && hwt_destroy(timer) == -EBUSY);
	while (hwt_mailbox_destroy(mailbox) == -EBUSY)
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	must(done == 5);

	/* 3. The timer. */
	must(hwt_destroy(timer) == 0);
	printf("all %u args came back\n", done);
	return 0;
}
