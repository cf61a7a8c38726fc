/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An echo server on poll that closes idle clients, with no second thread: the
 * timer is a manual one, the loop sleeps for as long as hwt_next_wakeup says,
 * and hwt_advance runs the tasks.
 *
 * Other threads may schedule all the same. When that makes an earlier wake-up
 * necessary, the timer calls wake, once, and an eventfd ends the sleep. A
 * program whose loop schedules everything itself needs no wake.
 */
#include <poll.h>
#include <sys/eventfd.h>

#include "clients.h"

struct connection {
	int fd;
	hwt_timeout idle;
};

static struct hwt *timer;
static int wake_fd;
static struct connection connections[CLIENTS];
static struct tally tally;
/* The clock is read once in a turn; calls with deadlines read none. */
static uint64_t now_ns;
/* The loop's alone, though another thread schedules what counts it. */
static unsigned notices;

static void
wake(void *ctx)
{
	must(eventfd_write(*(int *)ctx, 1) == 0);
}

/* The descriptor is -1 then, which poll skips. */
static void
connection_close(struct connection *connection)
{
	(void)!hwt_cancel(timer, connection->idle);
	close(connection->fd);
	connection->fd = -1;
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

static void
connection_open(struct connection *connection, int fd)
{
	connection->fd = fd;
	must(hwt_new_timeout_at(timer, NULL, &connection->idle, idle,
		 connection, now_ns + IDLE_NS) == 0);
	tally.open++;
}

/* The tasks run in hwt_advance: outside of it, an open connection's timeout is
 * pending and can be moved. */
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
	must(hwt_reschedule_at(timer, connection->idle, now_ns + IDLE_NS) == 0);
}

/* Milliseconds for poll, rounded up; -1 is without limit. */
static int
wait_ms(void)
{
	uint64_t wait_ns;

	must(hwt_next_wakeup(timer, &wait_ns) == 0);
	if (wait_ns == HWT_NEVER)
		return -1;
	if (wait_ns > HWT_SEC(1000))
		return 1000000;
	return (int)((wait_ns + HWT_MS(1) - 1) / HWT_MS(1));
}

static void
turn(void)
{
	struct pollfd ready[CLIENTS + 1];
	eventfd_t ignored;
	int i;

	for (i = 0; i < CLIENTS; i++)
		ready[i] = (struct pollfd){connections[i].fd, POLLIN, 0};
	ready[CLIENTS] = (struct pollfd){wake_fd, POLLIN, 0};
	poll(ready, CLIENTS + 1, wait_ms());
	must(hwt_now(timer, &now_ns) == 0);
	for (i = 0; i < CLIENTS; i++) {
		if (ready[i].revents != 0)
			connection_ready(&connections[i]);
	}
	if (ready[CLIENTS].revents != 0)
		eventfd_read(wake_fd, &ignored);
	must(hwt_advance(timer, NULL) == 0);
}

static void
notice(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	notices++;
}

static void *
other_thread(void *arg)
{
	must(hwt_new_timeout(timer, NULL, notice, NULL, 0) == 0);
	return arg;
}

int
main(void)
{
	struct hwt_wake waker = {.wake = wake, .ctx = &wake_fd};
	struct hwt_options options = {
	    .flags = HWT_MANUAL, .tick_ns = HWT_MS(10), .wake = &waker};
	struct clients clients;
	pthread_t other;
	int fds[CLIENTS], i;

	wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	must(wake_fd >= 0);
	must(hwt_create(&timer, &options) == 0);
	must(hwt_now(timer, &now_ns) == 0);

	clients_start(&clients, fds);
	for (i = 0; i < CLIENTS; i++)
		connection_open(&connections[i], fds[i]);
	while (tally.open > 0)
		turn();
	clients_join(&clients, &tally);

	/* Nothing is pending, and the loop would sleep for ever. */
	must(wait_ms() == -1);
	must(pthread_create(&other, NULL, other_thread, NULL) == 0);
	while (notices == 0)
		turn();
	pthread_join(other, NULL);

	must(hwt_stop(timer, NULL) == 0 && hwt_destroy(timer) == 0);
	close(wake_fd);
	return 0;
}
