/* SPDX-License-Identifier: Apache-2.0 */
/* A program that has the library as two files, and uses each part of it once.
 * Status 0: all did as they should. */
#include "hwt.h"
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Names that the library has for its own, too. */
int worker_main, record_free, process_lock, thread_state, clock_rate;

static sem_t ran;

static void
task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	++*(int *)arg;
	sem_post(&ran);
}

static int
runs_on(struct hwt *timer, const struct hwt_executor *executor)
{
	static int runs;

	return hwt_new_timeout_on(
		   timer, executor, NULL, task, &runs, HWT_MS(1)) == 0;
}

/* The child's copy is inert; what it makes for itself works. */
static void
in_a_child(struct hwt *timer)
{
	struct hwt *own;
	int status;
	pid_t child = fork();

	if (child == 0) {
		assert(hwt_destroy(timer) == 0 && hwt_shared(&own) == 0);
		assert(runs_on(own, NULL) && sem_wait(&ran) == 0);
		_exit(0);
	}
	assert(waitpid(child, &status, 0) == child && status == 0);
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct hwt_mailbox *mailbox;
	struct hwt_pool *pool;
	struct hwt *timer;
	struct pollfd ready = {.events = POLLIN};
	hwt_timeout timeout;
	int runs = 0;

	assert(sem_init(&ran, 0, 0) == 0 && hwt_create(&timer, &options) == 0);
	assert(runs_on(timer, NULL) && sem_wait(&ran) == 0);
	assert(hwt_pool_create(&pool, 2, 0) == 0);
	assert(runs_on(timer, hwt_pool_executor(pool)) && sem_wait(&ran) == 0);
	assert(hwt_mailbox_create(&mailbox) == 0);
	assert(runs_on(timer, hwt_mailbox_executor(mailbox)));
	ready.fd = hwt_mailbox_fd(mailbox);
	assert(poll(&ready, 1, -1) == 1 &&
	    hwt_mailbox_run(mailbox, 0, NULL) == 0 && sem_wait(&ran) == 0);
	in_a_child(timer);
	assert(hwt_new_timeout(timer, &timeout, task, &runs, HWT_SEC(9)) == 0);
	assert(hwt_reschedule(timer, timeout, HWT_SEC(99)) == 0);
	assert(hwt_cancel(timer, timeout) == 0 && runs == 0);
	assert(hwt_stop(timer, NULL) == 0 && hwt_pool_destroy(pool) == 0);
	assert(hwt_mailbox_destroy(mailbox) == 0 && hwt_destroy(timer) == 0);
	puts(hwt_version());
	return 0;
}
