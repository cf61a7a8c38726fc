/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many loops on one timer: each thread has an epoll and a mailbox of its own,
 * and all share the process's timer, with one worker thread. epoll.c has the
 * same server with one loop, and says why it is made like this.
 */
#include <errno.h>
#include <sys/epoll.h>

#include "clients.h"

#define LOOPS 3

/* What belongs to one thread alone. */
struct loop {
	struct hwt_mailbox *mailbox;
	int epoll_fd;
	int fds[CLIENTS];
	struct tally tally;
	struct clients clients;
	pthread_t thread;
};

struct connection {
	struct loop *loop;
	int fd;
	hwt_timeout idle;
};

static struct hwt *timer;

static void
connection_close(struct connection *connection)
{
	(void)!hwt_cancel(timer, connection->idle);
	close(connection->fd);
	connection->loop->tally.open--;
	free(connection);
}

static void
idle(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;

	(void)timeout;
	connection->loop->tally.idle++;
	connection_close(connection);
}

static void
idle_restart(struct connection *connection)
{
	must(hwt_touch(timer, hwt_mailbox_executor(connection->loop->mailbox),
		 &connection->idle, idle, connection, IDLE_NS) == 0);
}

static void
connection_ready(struct connection *connection)
{
	char bytes[512];
	ssize_t count = recv(connection->fd, bytes, sizeof(bytes), 0);

	if (count <= 0 ||
	    send(connection->fd, bytes, (size_t)count, MSG_NOSIGNAL) < 0) {
		connection->loop->tally.hung_up++;
		connection_close(connection);
		return;
	}
	idle_restart(connection);
}

static void
watch(const struct loop *loop, int fd, void *source)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

	must(epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void
connection_open(struct loop *loop, int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	must(connection != NULL);
	connection->loop = loop;
	connection->fd = fd;
	idle_restart(connection);
	watch(loop, fd, connection);
	loop->tally.open++;
}

static void
turn(struct loop *loop)
{
	struct epoll_event events[16];
	int count = epoll_wait(loop->epoll_fd, events, 16, -1);
	int i;

	for (i = 0; i < count; i++) {
		if (events[i].data.ptr != loop)
			connection_ready(events[i].data.ptr);
	}
	must(hwt_mailbox_run(loop->mailbox, 0, NULL) == 0);
}

static void *
loop_main(void *arg)
{
	struct loop *loop = arg;
	int i;

	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	must(loop->epoll_fd >= 0);
	must(hwt_mailbox_create(&loop->mailbox) == 0);
	watch(loop, hwt_mailbox_fd(loop->mailbox), loop);
	for (i = 0; i < CLIENTS; i++)
		connection_open(loop, loop->fds[i]);
	while (loop->tally.open > 0)
		turn(loop);

	/* The timer lives on. What was cancelled while the worker was handing
	 * it over still comes, and is let go by a run. */
	while (hwt_mailbox_destroy(loop->mailbox) == -EBUSY)
		must(hwt_mailbox_run(loop->mailbox, 0, NULL) == 0);
	close(loop->epoll_fd);
	return NULL;
}

int
main(void)
{
	static struct loop loops[LOOPS];
	int i;

	must(hwt_shared(&timer) == 0);
	for (i = 0; i < LOOPS; i++) {
		clients_start(&loops[i].clients, loops[i].fds);
		must(pthread_create(
			 &loops[i].thread, NULL, loop_main, &loops[i]) == 0);
	}
	for (i = 0; i < LOOPS; i++) {
		must(pthread_join(loops[i].thread, NULL) == 0);
		clients_join(&loops[i].clients, &loops[i].tally);
	}
	must(hwt_pending_timeouts(timer) == 0);
	must(hwt_shared_shutdown(NULL) == 0);
	return 0;
}
