/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hwt_cancel says of a task that is running, and what to do then. The task
 * takes a lock that the caller holds:
 *
 *   hwt_cancel        -EINPROGRESS at once: arg is in use, do not free it
 *   hwt_cancel_wait   would wait for the task, which waits for the lock: never
 *                     call it while holding a lock that the task takes
 */
#include <errno.h>
#include <hwt.h>
#include <semaphore.h>
#include <stdlib.h>

#include "../must.h"

struct session {
	hwt_timeout timeout;
	pthread_mutex_t lock;
	unsigned warnings;
};

static struct hwt *timer;
static sem_t is_running;

static void
warn(hwt_timeout timeout, void *arg)
{
	struct session *session = arg;

	(void)timeout;
	sem_post(&is_running);
	pthread_mutex_lock(&session->lock);
	session->warnings++;
	pthread_mutex_unlock(&session->lock);
}

static struct session *
session_create(void)
{
	struct session *session = calloc(1, sizeof(*session));

	must(session != NULL);
	pthread_mutex_init(&session->lock, NULL);
	return session;
}

static void
session_schedule(struct session *session, uint64_t delay_ns)
{
	must(hwt_new_timeout(
		 timer, &session->timeout, warn, session, delay_ns) == 0);
}

static void
session_free(struct session *session)
{
	pthread_mutex_destroy(&session->lock);
	free(session);
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct session *session;

	must(hwt_create(&timer, &options) == 0);
	sem_init(&is_running, 0, 0);

	/* Not begun: it never will, and the session is ours. */
	session = session_create();
	session_schedule(session, HWT_MIN(1));
	must(hwt_cancel(timer, session->timeout) == 0);
	session_free(session);

	/* It has begun, and wants the lock. To schedule it under the lock is no
	 * danger: that never waits for a task. */
	session = session_create();
	pthread_mutex_lock(&session->lock);
	session_schedule(session, 0);
	sem_wait(&is_running);
	must(hwt_state(timer, session->timeout, NULL) == HWT_STATE_RUNNING);
	must(hwt_cancel(timer, session->timeout) == -EINPROGRESS);
	session->warnings++;
	pthread_mutex_unlock(&session->lock);

	/* Without the lock, it can be waited for. When the answer is there, the
	 * task has returned and what it wrote is seen without the lock. */
	must(hwt_cancel_wait(timer, session->timeout) == -ENOENT);
	must(session->warnings == 2);
	session_free(session);

	must(hwt_stop(timer, NULL) == 0 && hwt_destroy(timer) == 0);
	printf("not freed before its task had returned\n");
	return 0;
}
