/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection is closed when no request came for a while: each request pushes
 * the deadline out. That is one atomic update, and the worker does not wake up
 * for it. The task runs on the loop's thread, by a mailbox.
 */
#include "by_hand.h"

#define IDLE_NS HWT_MS(100)

struct connection {
	hwt_timeout idle;
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static unsigned closed;

static void
connection_close(struct connection *connection)
{
	(void)!hwt_cancel(timer, connection->idle);
	free(connection);
	closed++;
}

static void
idle(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;

	must(timeout.id == connection->idle.id);
	connection_close(connection);
}

/* Also makes the first one, since {0} is no timeout. One that is due and lies
 * in the mailbox cannot be moved: it is replaced, and does not run. */
static void
idle_restart(struct connection *connection)
{
	must(hwt_touch(timer, hwt_mailbox_executor(mailbox), &connection->idle,
		 idle, connection, IDLE_NS) == 0);
}

static struct connection *
connection_open(void)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	must(connection != NULL);
	idle_restart(connection);
	return connection;
}

/* What the loop does when the mailbox's descriptor is readable. */
static void
run_due(void)
{
	must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
}

static void
serve_often(struct connection *connection)
{
	struct hwt_stats stats;
	int i;

	for (i = 0; i < 10; i++) {
		pass(timer, HWT_MS(90));
		run_due();
		idle_restart(connection);
	}
	/* One timeout for all of them. */
	must(hwt_read_stats(timer, &stats) == 0);
	must(stats.scheduled == 1 && stats.rescheduled == 10);
	must(closed == 0);
}

int
main(void)
{
	struct connection *connection;

	timer = by_hand_create();
	must(hwt_mailbox_create(&mailbox) == 0);
	connection = connection_open();
	serve_often(connection);

	/* It is due, and in the same turn of the loop a request comes first. */
	pass(timer, IDLE_NS);
	idle_restart(connection);
	run_due();
	must(closed == 0);

	/* The same, and then the client hangs up. */
	pass(timer, IDLE_NS);
	idle_restart(connection);
	connection_close(connection);
	run_due();
	must(closed == 1 && hwt_pending_timeouts(timer) == 0);

	/* Nothing comes. */
	connection = connection_open();
	must(connection->idle.id != 0);
	pass(timer, IDLE_NS);
	run_due();
	must(closed == 2);
	by_hand_destroy(timer, mailbox);
	printf("%u connections closed, one of them as idle\n", closed);
	return 0;
}
