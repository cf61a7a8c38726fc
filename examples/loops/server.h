/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An echo server that closes idle clients, for any event loop, which watches
 * the mailbox's descriptor as it watches a socket. Several loops, in threads,
 * can share one timer: a mailbox for each of them.
 *
 * A file that includes this one has the loop's four functions. Its program runs
 * the server with clients in another thread: some talk for longer than a client
 * may be idle and hang up, the others wait until the server closes them.
 */
#ifndef LOOPS_SERVER_H
#define LOOPS_SERVER_H

#include <errno.h>
#include <hwt.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../must.h"

#define CLIENTS 8
#define TALKERS 4
#define ROUNDS 10
#define PAUSE_NS HWT_MS(20)
#define IDLE_NS HWT_MS(150)

/* Calls ready(arg) whenever fd is readable. */
static void *loop_watch(int fd, void (*ready)(void *arg), void *arg);
/* Also from ready; then the watch and arg are not used any more. */
static void loop_unwatch(void *watch);
static void loop_run(void); /* until loop_end is called */
static void loop_end(void);

struct connection {
	int fd;
	void *watch;
	hwt_timeout idle;
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static unsigned open_count, hung_up, timed_out;

/* On the loop's thread hwt_cancel of a timeout in the mailbox wins: the memory
 * is ours. In the timeout's own task it has no effect. */
static void
connection_close(struct connection *connection)
{
	(void)!hwt_cancel(timer, connection->idle);
	loop_unwatch(connection->watch);
	close(connection->fd);
	free(connection);
	if (--open_count == 0)
		loop_end();
}

static void
idle(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	timed_out++;
	connection_close(arg);
}

static void
idle_restart(struct connection *connection)
{
	must(hwt_touch(timer, hwt_mailbox_executor(mailbox), &connection->idle,
		 idle, connection, IDLE_NS) == 0);
}

static void
connection_ready(void *arg)
{
	struct connection *connection = arg;
	char bytes[512];
	ssize_t count =
	    recv(connection->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (count < 0 && errno == EAGAIN)
		return;
	if (count <= 0 ||
	    send(connection->fd, bytes, (size_t)count, MSG_NOSIGNAL) < 0) {
		hung_up++;
		connection_close(connection);
		return;
	}
	idle_restart(connection);
}

static void
connection_open(int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	must(connection != NULL);
	connection->fd = fd;
	connection->watch = loop_watch(fd, connection_ready, connection);
	idle_restart(connection);
	open_count++;
}

static void
mailbox_ready(void *unused)
{
	(void)unused;
	must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
}

static uint64_t
clock_ns(void)
{
	struct timespec now;

	must(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return HWT_SEC(now.tv_sec) + (uint64_t)now.tv_nsec;
}

/* No client is closed before it was silent for so long; on a slow machine that
 * may happen to one that talks. */
static void *
clients_main(void *arg)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	uint64_t last_ns[CLIENTS], now_ns = clock_ns();
	int *fds = arg, round, i;
	char byte = 'x';

	for (i = 0; i < CLIENTS; i++)
		last_ns[i] = now_ns;
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < TALKERS; i++) {
			now_ns = clock_ns();
			if (send(fds[i], &byte, 1, MSG_NOSIGNAL) == 1 &&
			    recv(fds[i], &byte, 1, 0) == 1)
				last_ns[i] = now_ns;
			else
				must(clock_ns() - last_ns[i] >= IDLE_NS);
		}
		nanosleep(&pause, NULL);
	}
	for (i = 0; i < TALKERS; i++)
		close(fds[i]);
	for (; i < CLIENTS; i++) {
		must(recv(fds[i], &byte, 1, 0) == 0);
		must(clock_ns() - last_ns[i] >= IDLE_NS);
		close(fds[i]);
	}
	return NULL;
}

static int
serve(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(10)};
	int clients[CLIENTS], ends[2], i;
	pthread_t thread;
	void *watch;

	must(hwt_create(&timer, &options) == 0);
	must(hwt_mailbox_create(&mailbox) == 0);
	watch = loop_watch(hwt_mailbox_fd(mailbox), mailbox_ready, NULL);
	for (i = 0; i < CLIENTS; i++) {
		must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) ==
		    0);
		clients[i] = ends[0];
		connection_open(ends[1]);
	}
	must(pthread_create(&thread, NULL, clients_main, clients) == 0);
	loop_run();
	must(pthread_join(thread, NULL) == 0);
	must(hung_up + timed_out == CLIENTS && timed_out >= CLIENTS - TALKERS);
	must(hwt_pending_timeouts(timer) == 0);

	/* One more run releases what was cancelled in the mailbox. */
	loop_unwatch(watch);
	must(hwt_stop(timer, NULL) == 0);
	while (hwt_mailbox_destroy(mailbox) == -EBUSY)
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	must(hwt_destroy(timer) == 0);
	printf(
	    "%u clients hung up, %u were closed as idle\n", hung_up, timed_out);
	return 0;
}

#endif
