/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After fork. The child has no worker and no thread of a pool: what its parent
 * made is inert there, answers -EOWNERDEAD, and never runs. The child frees it
 * and makes what it needs for itself. The parent notices nothing. A server that
 * forks its workers makes timers after the fork.
 */
#include <errno.h>
#include <hwt.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../must.h"

static struct hwt *timer;
static struct hwt_pool *pool;
static sem_t has_run;

static void
task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	must(*(pid_t *)arg == getpid());
	sem_post(&has_run);
}

/* A timer and a pool, which serve one timeout. */
static void
make_and_use(pid_t *self)
{
	must(hwt_create(&timer, NULL) == 0);
	must(hwt_pool_create(&pool, 1, 0) == 0);
	must(hwt_new_timeout_on(
		 timer, hwt_pool_executor(pool), NULL, task, self, 0) == 0);
	sem_wait(&has_run);
}

static void
child(hwt_timeout timeout)
{
	pid_t self = getpid();

	/* The parent's timeout is no business of ours; its arg is our copy. */
	must(hwt_cancel(timer, timeout) == -EOWNERDEAD);
	/* No stop before: there is nothing to stop. */
	must(hwt_pool_destroy(pool) == 0 && hwt_destroy(timer) == 0);
	make_and_use(&self);
	must(hwt_stop(timer, NULL) == 0 && hwt_pool_destroy(pool) == 0);
	must(hwt_destroy(timer) == 0);
	_exit(0);
}

int
main(void)
{
	pid_t self = getpid(), pid;
	hwt_timeout timeout;
	int status;

	sem_init(&has_run, 0, 0);
	make_and_use(&self);
	must(hwt_new_timeout(timer, &timeout, task, &self, HWT_MIN(1)) == 0);
	pid = fork();
	must(pid >= 0);
	if (pid == 0)
		child(timeout);
	must(waitpid(pid, &status, 0) == pid);
	must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	must(hwt_cancel(timer, timeout) == 0);
	must(hwt_stop(timer, NULL) == 0 && hwt_pool_destroy(pool) == 0);
	must(hwt_destroy(timer) == 0);
	printf("parent and child, each with timers of its own\n");
	return 0;
}
