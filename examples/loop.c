/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop. One turn of it, in this order:
 *
 *   wait for events   the mailbox's eventfd is one of them: that is all that a
 *                     loop needs to sleep until a timeout is due
 *   sockets           each event touches no connection but its own
 *   mailbox           the tasks that are due run here, on this thread
 *
 * The mailbox comes last for two reasons. A task may close a connection, whose
 * event could otherwise still stand further down in the same batch and would
 * name freed memory. And what a client sent in time should win over a timeout
 * that came due in the same turn.
 *
 * It comes in every turn, whether or not epoll told of it: under load, the
 * eventfd waits in line behind sockets that are ready, and the tasks of a
 * timer are those who must not wait. An empty run costs one system call.
 */
#define _GNU_SOURCE
#include "loop.h"

#include <assert.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connection.h"

#define EVENTS_PER_TURN 64
/* So few that the other loops get their share of a burst. */
#define ACCEPTS_PER_TURN 4
#define PAUSE_NS HWT_MS(100)

static int
loop_watch(struct loop *loop, int fd, uint32_t events, void *source)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		return -errno;
	return 0;
}

/* Exclusive: a new client wakes one loop, not all. */
static int
loop_listen(struct loop *loop)
{
	return loop_watch(
	    loop, loop->listen_fd, EPOLLIN | EPOLLEXCLUSIVE, &loop->listen_fd);
}

static void
loop_resume(hwt_timeout timeout, void *arg)
{
	struct loop *loop = arg;

	assert(timeout.id == loop->pause.id);
	(void)timeout;
	loop->pause = (hwt_timeout){0};
	tally_add(&loop->tally.started, 1);
	loop_listen(loop);
}

/* No descriptor is left, or no memory, and the socket stays readable: looking
 * away for a while keeps the loop from spinning. */
static void
loop_pause(struct loop *loop)
{
	int error =
	    hwt_new_timeout_on(loop->timer, hwt_mailbox_executor(loop->mailbox),
		&loop->pause, loop_resume, loop, PAUSE_NS);

	/* Rather spin than be deaf for ever. */
	if (error != 0)
		return;
	tally_add(&loop->tally.scheduled, 1);
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, loop->listen_fd, NULL);
}

static void
loop_accept(struct loop *loop)
{
	int i;

	for (i = 0; i < ACCEPTS_PER_TURN; i++) {
		int fd = accept4(
		    loop->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno != EAGAIN && errno != ECONNABORTED)
				loop_pause(loop);
			return;
		}
		connection_create(loop, fd);
	}
}

static bool
loop_turn(struct loop *loop)
{
	struct epoll_event events[EVENTS_PER_TURN];
	bool goes_on = true;
	int count, i, error;

	count = epoll_wait(loop->epoll_fd, events, EVENTS_PER_TURN, -1);
	for (i = 0; i < count; i++) {
		void *source = events[i].data.ptr;

		if (source == &loop->stop_fd)
			goes_on = false;
		else if (source == &loop->listen_fd)
			loop_accept(loop);
		else if (source != &loop->mailbox)
			connection_ready(source);
	}
	error = hwt_mailbox_run(loop->mailbox, 0, NULL);
	assert(error == 0);
	(void)error;
	return goes_on;
}

static void *
loop_main(void *arg)
{
	struct loop *loop = arg;

	while (loop_turn(loop))
		continue;
	return NULL;
}

int
loop_start(struct loop *loop)
{
	int error;

	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0)
		return -errno;
	error = hwt_mailbox_create(&loop->mailbox);
	if (error != 0)
		goto close_epoll;
	error = loop_watch(
	    loop, hwt_mailbox_fd(loop->mailbox), EPOLLIN, &loop->mailbox);
	if (error == 0)
		error =
		    loop_watch(loop, loop->stop_fd, EPOLLIN, &loop->stop_fd);
	if (error == 0)
		error = loop_listen(loop);
	if (error == 0)
		error = -pthread_create(&loop->thread, NULL, loop_main, loop);
	if (error == 0)
		return 0;
	(void)!hwt_mailbox_destroy(loop->mailbox);
close_epoll:
	close(loop->epoll_fd);
	return error;
}

void
loop_join(struct loop *loop)
{
	pthread_join(loop->thread, NULL);
}

bool
loop_unprocessed(const struct hwt_timeout_info *info)
{
	struct loop *loop = info->arg;

	if (info->task != loop_resume || info->timeout.id != loop->pause.id)
		return false;
	loop->pause = (hwt_timeout){0};
	return true;
}

void
loop_destroy(struct loop *loop)
{
	int error = hwt_mailbox_destroy(loop->mailbox);

	assert(error == 0);
	(void)error;
	close(loop->epoll_fd);
}
