/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection is closed when no request came for a while. Each request pushes
 * the deadline out by hwt_touch, which is one atomic update and does not wake
 * the worker. The task runs on the loop's thread, by a mailbox.
 */
#include "recipe.h"

#define IDLE_NS HWT_MS(100)

struct connection {
	hwt_timeout idle;
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static unsigned closed;

static void
idle(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;

	must(timeout.id == connection->idle.id);
	connection->idle = HWT_CLOSED;
	closed++;
}

/* Also makes the first one, since {0} is no timeout. One that is due and lies
 * in the mailbox is replaced, and does not run. A late request of a connection
 * that was closed makes none. */
static int
request(struct connection *connection)
{
	return hwt_touch(timer, hwt_mailbox_executor(mailbox),
	    &connection->idle, idle, connection, IDLE_NS);
}

static void
run_due(void)
{
	must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
}

int
main(void)
{
	struct connection connection = {.idle = {0}};
	struct hwt_stats stats;
	int i;

	timer = by_hand_create();
	must(hwt_mailbox_create(&mailbox) == 0);
	for (i = 0; i < 10; i++) {
		must(request(&connection) == 0);
		pass(timer, HWT_MS(90));
		run_due();
	}
	/* One timeout for all of them. */
	must(hwt_read_stats(timer, &stats) == 0);
	must(stats.scheduled == 1 && stats.rescheduled == 9 && closed == 0);

	/* It is due, and in the same turn of the loop a request comes first. */
	pass(timer, HWT_MS(10));
	must(request(&connection) == 0);
	run_due();
	must(closed == 0);

	/* Nothing comes, and then something comes too late. */
	pass(timer, IDLE_NS);
	run_due();
	must(closed == 1 && request(&connection) == -ECANCELED);
	must(hwt_pending_timeouts(timer) == 0);
	teardown(timer, mailbox);
	printf("a connection closed as idle after 11 requests\n");
	return 0;
}
