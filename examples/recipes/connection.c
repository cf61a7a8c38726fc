/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection of an event loop. Its timeouts go to the loop's mailbox: tasks
 * run on the loop's thread, where hwt_cancel of a timeout that has not begun
 * always gives 0, also when it lies in the mailbox already. Then the memory is
 * freed at once: no lock, no reference count, no wait.
 *
 * Each connection has two timeouts that are due together. The first that runs
 * closes the connection while the other one is in the mailbox.
 */
#include <poll.h>

#include "recipe.h"

#define CONNECTIONS 100

struct connection {
	hwt_timeout idle, request;
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static unsigned ran, cancelled, closed;

static void
connection_close(struct connection *connection)
{
	cancelled += hwt_cancel(timer, connection->idle) == 0;
	cancelled += hwt_cancel(timer, connection->request) == 0;
	free(connection);
	closed++;
}

/* In its own task hwt_cancel of the timeout has no effect. */
static void
timed_out(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	ran++;
	connection_close(arg);
}

static void
connection_open(void)
{
	const struct hwt_executor *loop = hwt_mailbox_executor(mailbox);
	struct connection *connection = calloc(1, sizeof(*connection));

	must(connection != NULL);
	must(hwt_new_timeout_on(timer, loop, &connection->idle, timed_out,
		 connection, HWT_MS(20)) == 0);
	must(hwt_new_timeout_on(timer, loop, &connection->request, timed_out,
		 connection, HWT_MS(20)) == 0);
}

int
main(void)
{
	struct pollfd due = {.events = POLLIN};
	int i;

	must(hwt_create(&timer, NULL) == 0);
	must(hwt_mailbox_create(&mailbox) == 0);
	due.fd = hwt_mailbox_fd(mailbox);
	for (i = 0; i < CONNECTIONS; i++)
		connection_open();
	while (closed < CONNECTIONS) {
		must(poll(&due, 1, -1) == 1);
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	}
	must(ran == CONNECTIONS && cancelled == CONNECTIONS);

	teardown(timer, mailbox);
	printf("%u connections closed, each once\n", closed);
	return 0;
}
