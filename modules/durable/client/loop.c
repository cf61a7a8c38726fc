/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop, and how others reach it.
 *
 * ONE TURN: the events of connections; then requests, attempts and timeouts,
 * which the mailbox has; then requests that have a result are done, workers
 * take a step, and what all of these have put into queues is sent. So adds that
 * arrive together are one command.
 *
 * A caller waits in a structure on its stack. The loop's last access to it is
 * the post of the semaphore.
 */
#include "modules/durable/client/client.h"

#include <errno.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_MAX 64

struct waiter {
	struct hwt_post post; /* first */
	struct hwt_durable *durable;
	sem_t end;
	/* Requests, of which so many are left; or a function. */
	struct request *requests;
	size_t left;
	void (*function)(void *arg);
	void *arg;
};

uint64_t
now_ns(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_BOOTTIME, &now);
	return HWT_SEC(now.tv_sec) + (uint64_t)now.tv_nsec;
}

static void
posted(struct hwt_post *post)
{
	struct waiter *waiter = (struct waiter *)post;
	size_t i, count = waiter->left;

	for (i = 0; i < count; i++)
		request_start(waiter->durable, &waiter->requests[i]);
	if (waiter->function != NULL) {
		waiter->function(waiter->arg);
		(void)sem_post(&waiter->end);
	}
}

static void
waiter_wait(struct waiter *waiter, struct hwt_durable *durable)
{
	waiter->durable = durable;
	(void)sem_init(&waiter->end, 0, 0);
	(void)hwt_mailbox_post(durable->mailbox, &waiter->post, posted);
	while (sem_wait(&waiter->end) != 0)
		;
	(void)sem_destroy(&waiter->end);
}

void
loop_call(struct hwt_durable *durable, void (*function)(void *arg), void *arg)
{
	struct waiter waiter = {.function = function, .arg = arg};

	waiter_wait(&waiter, durable);
}

static void
request_done(struct request *request)
{
	struct waiter *waiter = request->ctx;

	if (--waiter->left == 0)
		(void)sem_post(&waiter->end);
}

void
requests_run(
    struct hwt_durable *durable, struct request *requests, size_t count)
{
	struct waiter waiter = {.requests = requests, .left = count};
	size_t i;

	for (i = 0; i < count; i++) {
		requests[i].done = request_done;
		requests[i].ctx = &waiter;
	}
	waiter_wait(&waiter, durable);
}

static void
settle(struct hwt_durable *durable)
{
	struct connection *connection;
	struct request *request;

	do {
		durable->flush = false;
		while ((request = durable->ended) != NULL) {
			durable->ended = request->next;
			request->done(request);
		}
		workers_step(durable);
		for (connection = durable->connections; connection != NULL;
		     connection = connection->link)
			connection_flush(connection);
	} while (durable->flush);
}

static void
loop_run(struct hwt_post *post)
{
	struct hwt_durable *durable = (struct hwt_durable *)post;
	struct epoll_event events[EVENTS_MAX];
	int count, i;

	for (;;) {
		count = epoll_wait(durable->epoll, events, EVENTS_MAX, -1);
		for (i = 0; i < count; i++) {
			if (events[i].data.ptr != NULL)
				connection_event(
				    events[i].data.ptr, events[i].events);
		}
		(void)hwt_mailbox_run(durable->mailbox, 0, NULL);
		if (durable->over)
			return;
		settle(durable);
	}
}

int
loop_start(struct hwt_durable *durable)
{
	struct epoll_event event = {.events = EPOLLIN};
	int error = hwt_mailbox_create(&durable->mailbox);

	if (error != 0)
		return error;
	durable->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (durable->epoll < 0 ||
	    epoll_ctl(durable->epoll, EPOLL_CTL_ADD,
		hwt_mailbox_fd(durable->mailbox), &event) != 0)
		return errno == ENOMEM ? -ENOMEM : -EMFILE;
	error = hwt_pool_create(&durable->thread, 1, 0);
	if (error == 0)
		(void)!hwt_pool_post(durable->thread, &durable->post, loop_run);
	return error;
}

void
loop_stop(struct hwt_durable *durable)
{
	if (durable->thread != NULL)
		loop_call(durable, nodes_destroy, durable);
	else
		nodes_destroy(durable);
	(void)!hwt_pool_destroy(durable->thread);
	if (durable->epoll >= 0)
		(void)close(durable->epoll);
	while (durable->mailbox != NULL &&
	    hwt_mailbox_destroy(durable->mailbox) == -EBUSY)
		(void)hwt_mailbox_run(durable->mailbox, 0, NULL);
}
