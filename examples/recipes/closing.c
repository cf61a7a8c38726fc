/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closing a connection from another thread than its loop's. The other thread
 * must not touch the connection: the loop may be freeing it. It has no pointer
 * at all, only the handle of a timeout that each connection has for this
 * purpose and that never comes due by itself. To pull it in is to ask the loop
 * to close; -ENOENT says that the connection has gone already, and -EINPROGRESS
 * that somebody else has asked. A handle is safe to use however old it is.
 *
 * hwt_cancel_wait of a timeout of the loop would not do in the other thread:
 * the answer 0 gives it arg, but the loop knows nothing of that.
 */
#include <errno.h>
#include <hwt.h>
#include <poll.h>
#include <unistd.h>
#include <stdlib.h>

#include "../must.h"

#define CONNECTIONS 1000
#define KICKERS 2

struct connection {
	hwt_timeout kick;
	struct connection **place;
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static struct connection *connections[CONNECTIONS];
static hwt_timeout kicks[CONNECTIONS];
static unsigned kicked, hung_up;

/* On the loop's thread, as everything that touches a connection. The kick may
 * have been asked for already and lie in the mailbox: it is cancelled too. */
static void
connection_close(struct connection *connection)
{
	int error = hwt_cancel(timer, connection->kick);

	must(error == 0 || error == -EINPROGRESS);
	*connection->place = NULL;
	free(connection);
}

/* It is closed inside this task, for which hwt_cancel answers -EINPROGRESS: a
 * task may free its arg when nobody else waits for it. */
static void
kick_out(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;

	must(timeout.id == connection->kick.id);
	kicked++;
	connection_close(connection);
}

static void
connection_open(int index)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	must(connection != NULL);
	connection->place = &connections[index];
	connections[index] = connection;
	must(hwt_new_timeout_on(timer, hwt_mailbox_executor(mailbox),
		 &connection->kick, kick_out, connection, HWT_NEVER) == 0);
	kicks[index] = connection->kick;
}

/* Another thread, which knows handles alone. */
static void *
kick_all(void *arg)
{
	int i, error;

	(void)arg;
	for (i = 0; i < CONNECTIONS; i++) {
		/* Faster than the loop closes others: they meet. */
		if (i % 100 == 0)
			usleep(1000);
		error = hwt_reschedule(timer, kicks[i], 0);
		must(error == 0 || error == -EINPROGRESS || error == -ENOENT);
	}
	return NULL;
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct pollfd due = {.events = POLLIN};
	pthread_t kickers[KICKERS];
	int i;

	must(hwt_create(&timer, &options) == 0);
	must(hwt_mailbox_create(&mailbox) == 0);
	due.fd = hwt_mailbox_fd(mailbox);
	for (i = 0; i < CONNECTIONS; i++)
		connection_open(i);
	for (i = 0; i < KICKERS; i++)
		must(pthread_create(&kickers[i], NULL, kick_all, NULL) == 0);
	/* The loop. Every third peer hangs up by itself. */
	for (i = 0; kicked + hung_up < CONNECTIONS; i++) {
		if (i < CONNECTIONS && i % 3 == 0 && connections[i] != NULL) {
			connection_close(connections[i]);
			hung_up++;
		}
		/* Now and then it waits: for a moment, and in the end. */
		poll(&due, 1, i < CONNECTIONS ? i % 50 == 0 : -1);
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	}
	for (i = 0; i < KICKERS; i++)
		pthread_join(kickers[i], NULL);
	for (i = 0; i < CONNECTIONS; i++)
		must(connections[i] == NULL);
	must(kicked >= CONNECTIONS / 3 * 2);
	must(hwt_pending_timeouts(timer) == 0);
	must(hwt_stop(timer, NULL) == 0);
	while (hwt_mailbox_destroy(mailbox) == -EBUSY)
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	must(hwt_destroy(timer) == 0);
	printf("%u closed for another thread, %u hung up\n", kicked, hung_up);
	return 0;
}
