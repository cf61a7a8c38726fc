/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An echo server on libevent that closes idle clients: a persistent event
 * watches the mailbox, and the tasks run on the loop's thread.
 */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>

#include "clients.h"

struct connection {
	struct bufferevent *stream;
	hwt_timeout idle;
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static struct event_base *base;
static struct event *due;
static struct tally tally;

/* On the loop's thread hwt_cancel always wins against the mailbox, so that the
 * memory is ours. In the task itself it has no effect. */
static void
connection_close(struct connection *connection)
{
	(void)!hwt_cancel(timer, connection->idle);
	bufferevent_free(connection->stream);
	free(connection);
	/* With nothing left to watch, the loop ends. */
	if (--tally.open == 0)
		must(event_del(due) == 0);
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
on_due(evutil_socket_t fd, short events, void *arg)
{
	(void)fd;
	(void)events;
	must(hwt_mailbox_run(arg, 0, NULL) == 0);
}

static void
on_read(struct bufferevent *stream, void *arg)
{
	idle_restart(arg);
	bufferevent_write_buffer(stream, bufferevent_get_input(stream));
}

static void
on_end(struct bufferevent *stream, short what, void *arg)
{
	(void)stream;
	(void)what;
	tally.hung_up++;
	connection_close(arg);
}

static void
connection_open(int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	must(connection != NULL && evutil_make_socket_nonblocking(fd) == 0);
	connection->stream =
	    bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
	must(connection->stream != NULL);
	bufferevent_setcb(
	    connection->stream, on_read, NULL, on_end, connection);
	idle_restart(connection);
	must(bufferevent_enable(connection->stream, EV_READ) == 0);
	tally.open++;
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(10)};
	struct clients clients;
	int fds[CLIENTS], i;

	base = event_base_new();
	must(base != NULL);
	must(hwt_create(&timer, &options) == 0);
	must(hwt_mailbox_create(&mailbox) == 0);
	due = event_new(base, hwt_mailbox_fd(mailbox), EV_READ | EV_PERSIST,
	    on_due, mailbox);
	must(due != NULL && event_add(due, NULL) == 0);

	clients_start(&clients, fds);
	for (i = 0; i < CLIENTS; i++)
		connection_open(fds[i]);
	must(event_base_dispatch(base) == 1);
	clients_join(&clients, &tally);
	must(hwt_pending_timeouts(timer) == 0);

	/* What was cancelled in the mailbox is let go by one more run. */
	event_free(due);
	must(hwt_stop(timer, NULL) == 0);
	while (hwt_mailbox_destroy(mailbox) == -EBUSY)
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	must(hwt_destroy(timer) == 0);
	event_base_free(base);
	return 0;
}
