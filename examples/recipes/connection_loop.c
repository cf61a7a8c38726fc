/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a connection that belongs to an event loop. Its timeouts go to
 * the loop's mailbox, so that their tasks run on the loop's own thread and
 * nothing can come between: there, hwt_cancel of a timeout that has not begun
 * always gives 0, also when it is due and lies in the mailbox already. After
 * that the memory may be freed at once. No lock, no reference count, no wait.
 *
 * Each connection here has two timeouts, which are due together. The first
 * that runs closes the connection while the other one is in the mailbox.
 */
#include <errno.h>
#include <hwt.h>
#include <poll.h>
#include <stdlib.h>

#include "../must.h"

#define CONNECTIONS 100

struct connection {
	hwt_timeout idle, request;
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static unsigned ran, cancelled, closed;

/* On the loop's thread. {0} is no handle: there is nothing to cancel. */
static void
timeout_end(hwt_timeout *timeout)
{
	if (timeout->id != 0) {
		must(hwt_cancel(timer, *timeout) == 0);
		cancelled++;
	}
	*timeout = (hwt_timeout){0};
}

static void
connection_close(struct connection *connection)
{
	timeout_end(&connection->idle);
	timeout_end(&connection->request);
	free(connection);
	closed++;
}

/* The first act of a task is to forget its handle: it has begun, so that it
 * cannot be cancelled. */
static void
idle_out(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;

	must(timeout.id == connection->idle.id);
	connection->idle = (hwt_timeout){0};
	ran++;
	connection_close(connection);
}

static void
request_out(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;

	must(timeout.id == connection->request.id);
	connection->request = (hwt_timeout){0};
	ran++;
	connection_close(connection);
}

static struct connection *
connection_open(void)
{
	const struct hwt_executor *loop = hwt_mailbox_executor(mailbox);
	struct connection *connection = calloc(1, sizeof(*connection));

	must(connection != NULL);
	must(hwt_new_timeout_on(timer, loop, &connection->idle, idle_out,
		 connection, HWT_MS(20)) == 0);
	must(hwt_new_timeout_on(timer, loop, &connection->request, request_out,
		 connection, HWT_MS(20)) == 0);
	return connection;
}

static void
wait_until_due(void)
{
	struct pollfd due = {.fd = hwt_mailbox_fd(mailbox), .events = POLLIN};

	must(poll(&due, 1, -1) == 1);
}

int
main(void)
{
	struct connection *connection;
	int i;

	must(hwt_create(&timer, NULL) == 0);
	must(hwt_mailbox_create(&mailbox) == 0);
	for (i = 0; i < CONNECTIONS; i++)
		connection_open();
	while (closed < CONNECTIONS) {
		wait_until_due();
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	}
	must(ran == CONNECTIONS && cancelled == CONNECTIONS);

	/* The peer hangs up when the timeouts are in the mailbox. */
	connection = connection_open();
	wait_until_due();
	connection_close(connection);
	must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	must(ran == CONNECTIONS && closed == CONNECTIONS + 1);

	must(hwt_stop(timer, NULL) == 0);
	while (hwt_mailbox_destroy(mailbox) == -EBUSY)
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	must(hwt_destroy(timer) == 0);
	printf("%u connections closed, each once\n", closed);
	return 0;
}
