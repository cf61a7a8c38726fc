/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An echo server on epoll that closes idle clients. The mailbox is the timer's
 * post for this loop: its descriptor is readable when a timeout is due, and the
 * tasks run where hwt_mailbox_run is called, on the loop's own thread. So a
 * task may close and free a connection, and no lock is needed.
 *
 * In each turn the sockets come first and the mailbox last: a task may free a
 * connection, whose event could otherwise stand further down in the same batch.
 */
#include <errno.h>
#include <sys/epoll.h>

#include "clients.h"

struct connection {
	int fd;
	hwt_timeout idle;
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static int epoll_fd;
static struct tally tally;

/* On the loop's thread hwt_cancel always wins against the mailbox, so that the
 * memory is ours. In the task itself it has no effect. */
static void
connection_close(struct connection *connection)
{
	(void)!hwt_cancel(timer, connection->idle);
	close(connection->fd);
	free(connection);
	tally.open--;
}

static void
idle(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;

	(void)timeout;
	tally.idle++;
	connection_close(connection);
}

/* Moves the deadline, or makes the first one. What is due and in the mailbox is
 * replaced, and does not run. */
static void
idle_restart(struct connection *connection)
{
	must(hwt_touch(timer, hwt_mailbox_executor(mailbox), &connection->idle,
		 idle, connection, IDLE_NS) == 0);
}

static void
connection_ready(struct connection *connection)
{
	char bytes[512];
	ssize_t count = recv(connection->fd, bytes, sizeof(bytes), 0);

	if (count <= 0 ||
	    send(connection->fd, bytes, (size_t)count, MSG_NOSIGNAL) < 0) {
		tally.hung_up++;
		connection_close(connection);
		return;
	}
	idle_restart(connection);
}

static void
watch(int fd, void *source)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

	must(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void
connection_open(int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	must(connection != NULL);
	connection->fd = fd;
	idle_restart(connection);
	watch(fd, connection);
	tally.open++;
}

static void
turn(void)
{
	struct epoll_event events[16];
	int count = epoll_wait(epoll_fd, events, 16, -1);
	int i;

	for (i = 0; i < count; i++) {
		if (events[i].data.ptr != mailbox)
			connection_ready(events[i].data.ptr);
	}
	must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(10)};
	struct clients clients;
	int fds[CLIENTS], i;

	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	must(epoll_fd >= 0);
	must(hwt_create(&timer, &options) == 0);
	must(hwt_mailbox_create(&mailbox) == 0);
	watch(hwt_mailbox_fd(mailbox), mailbox);

	clients_start(&clients, fds);
	for (i = 0; i < CLIENTS; i++)
		connection_open(fds[i]);
	while (tally.open > 0)
		turn();
	clients_join(&clients, &tally);
	must(hwt_pending_timeouts(timer) == 0);

	/* What was cancelled in the mailbox is let go by one more run. */
	must(hwt_stop(timer, NULL) == 0);
	while (hwt_mailbox_destroy(mailbox) == -EBUSY)
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	must(hwt_destroy(timer) == 0);
	close(epoll_fd);
	return 0;
}
