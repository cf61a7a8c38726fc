/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An idle timeout that costs a request no call at all: a request only notes the
 * time, which a loop has read anyway. The task looks at it and, when there was
 * activity, moves itself to where the connection would be idle. One run per
 * idle period, however many requests there are.
 *
 * The timeout is periodic, since only a periodic task may move itself: see
 * rearm.c. Where tasks run in another thread, last_ns is atomic.
 */
#include "by_hand.h"

#include <errno.h>

#define IDLE_NS HWT_SEC(1)

struct connection {
	hwt_timeout idle;
	uint64_t last_ns;
	unsigned looks;
	bool is_open;
};

static struct hwt *timer;

static void
idle(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;
	int error;

	connection->looks++;
	if (now_ns - connection->last_ns < IDLE_NS) {
		error = hwt_reschedule_at(
		    timer, timeout, connection->last_ns + IDLE_NS);
		/* It was cancelled, or the timer is being stopped. */
		must(error == 0 || error == -ENOENT);
		return;
	}
	/* This run is its last. */
	must(hwt_cancel(timer, timeout) == -EINPROGRESS);
	connection->is_open = false;
}

static void
connection_open(struct connection *connection)
{
	*connection = (struct connection){.last_ns = now_ns, .is_open = true};
	must(hwt_new_periodic(timer, NULL, &connection->idle, idle, connection,
		 IDLE_NS, IDLE_NS) == 0);
}

static void
request(struct connection *connection)
{
	connection->last_ns = now_ns;
}

int
main(void)
{
	struct connection connection;
	struct hwt_stats stats;
	int i;

	timer = by_hand_create();
	connection_open(&connection);
	for (i = 0; i < 1000; i++) {
		pass(timer, HWT_MS(10));
		request(&connection);
	}
	must(hwt_read_stats(timer, &stats) == 0);
	must(stats.scheduled == 1 && stats.rescheduled == connection.looks);
	must(connection.looks >= 9 && connection.looks <= 11);

	pass(timer, IDLE_NS - HWT_MS(10));
	must(connection.is_open);
	pass(timer, HWT_MS(10));
	must(!connection.is_open);
	by_hand_destroy(timer, NULL);
	printf("1000 requests, %u looks\n", connection.looks);
	return 0;
}
