/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After fork. The child has no worker and no thread of a pool: what its parent
 * made is inert there, says -EOWNERDEAD, and never runs. The child frees it and
 * makes what it needs for itself; asking for the shared timer again gives it a
 * new one. The parent notices nothing.
 *
 * A server that forks its workers makes timers after the fork.
 */
#include <errno.h>
#include <hwt.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../must.h"

static struct hwt *timer, *shared;
static struct hwt_pool *pool;
static hwt_timeout timeout;
static sem_t has_run;

static void
task(hwt_timeout of, void *arg)
{
	(void)of;
	must(*(pid_t *)arg == getpid());
	sem_post(&has_run);
}

static void
make(void)
{
	must(hwt_create(&timer, NULL) == 0);
	must(hwt_pool_create(&pool, 1, 0) == 0);
	must(hwt_shared(&shared) == 0);
}

/* The pool may still be about to leave the last task: it comes before the timer
 * that the task belongs to. */
static void
unmake(void)
{
	must(hwt_stop(timer, NULL) == 0);
	must(hwt_pool_destroy(pool) == 0);
	must(hwt_destroy(timer) == 0);
}

static void
schedule_and_wait(pid_t *self)
{
	must(hwt_new_timeout_on(
		 timer, hwt_pool_executor(pool), NULL, task, self, 0) == 0);
	sem_wait(&has_run);
	must(hwt_new_timeout(shared, NULL, task, self, 0) == 0);
	sem_wait(&has_run);
}

static void
child(void)
{
	struct hwt *parents_shared = shared;
	pid_t self = getpid();

	/* The parent's timeout is no business of ours. Its arg is our copy,
	 * which nothing uses: free it as any other memory of the parent's. */
	must(hwt_cancel(timer, timeout) == -EOWNERDEAD);
	must(hwt_new_timeout(timer, NULL, task, &self, 0) == -EOWNERDEAD);
	must(hwt_pending_timeouts(timer) == 0);

	/* No stop before: there is nothing to stop. */
	must(hwt_pool_destroy(pool) == 0 && hwt_destroy(timer) == 0);
	make();
	must(hwt_destroy(parents_shared) == 0);
	schedule_and_wait(&self);
	unmake();
	_exit(0);
}

int
main(void)
{
	pid_t self = getpid(), pid;
	int status;

	sem_init(&has_run, 0, 0);
	make();
	schedule_and_wait(&self);
	must(hwt_new_timeout(timer, &timeout, task, &self, HWT_MIN(1)) == 0);
	pid = fork();
	must(pid >= 0);
	if (pid == 0)
		child();
	schedule_and_wait(&self);
	must(waitpid(pid, &status, 0) == pid);
	must(WIFEXITED(status) && WEXITSTATUS(status) == 0);

	must(hwt_cancel(timer, timeout) == 0);
	unmake();
	printf("parent and child, each with timers of its own\n");
	return 0;
}
