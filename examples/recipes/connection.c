/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a connection whose timeout runs in another thread: here each
 * connection has a thread that reads, and its idle task runs in the worker.
 *
 * One thread owns the connection: the reader. The task frees nothing, it only
 * makes the read end; the owner then ends the timeout, and after that closes
 * the descriptor and frees the memory. hwt_cancel would not do: its answer
 * -EINPROGRESS means that the task is using the connection right now
 * (cancel_running.c).
 */
#include <errno.h>
#include <hwt.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../must.h"

#define IDLE_NS HWT_MS(50)
#define CLIENTS 16

struct connection {
	int fd;
	hwt_timeout idle;
};

static struct hwt *timer;
static atomic_uint timed_out, closed;

/* In the worker. fd is open and the memory is there: the owner closes and frees
 * after hwt_cancel_wait alone. */
static void
idle(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;

	(void)timeout;
	atomic_fetch_add(&timed_out, 1);
	shutdown(connection->fd, SHUT_RDWR);
}

static struct connection *
connection_open(int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	must(connection != NULL);
	connection->fd = fd;
	must(hwt_new_timeout(
		 timer, &connection->idle, idle, connection, IDLE_NS) == 0);
	return connection;
}

/* Whatever hwt_cancel_wait answers, the task is not running any more and will
 * not start: only now may the descriptor and the memory serve others. */
static void
connection_close(struct connection *connection)
{
	int error = hwt_cancel_wait(timer, connection->idle);

	must(error == 0 || error == -ENOENT);
	close(connection->fd);
	free(connection);
	atomic_fetch_add(&closed, 1);
}

static void *
serve(void *arg)
{
	struct connection *connection = arg;
	char byte;

	while (read(connection->fd, &byte, 1) == 1) {
		/* If the task came first, the next read ends. */
		hwt_reschedule(timer, connection->idle, IDLE_NS);
		if (send(connection->fd, &byte, 1, MSG_NOSIGNAL) != 1)
			break;
	}
	connection_close(connection);
	return NULL;
}

/* Some clients hang up in the moment in which the timeout is due, others never
 * do. Every connection is closed once, by its owner. */
static void
serve_clients(void)
{
	pthread_t threads[CLIENTS];
	int ends[2], clients[CLIENTS], i;
	char byte = 'x';

	for (i = 0; i < CLIENTS; i++) {
		must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
		clients[i] = ends[0];
		must(pthread_create(&threads[i], NULL, serve,
			 connection_open(ends[1])) == 0);
		send(clients[i], &byte, 1, MSG_NOSIGNAL);
	}
	usleep(50000);
	for (i = 0; i < CLIENTS / 2; i++)
		close(clients[i]);
	for (i = 0; i < CLIENTS; i++)
		pthread_join(threads[i], NULL);
	for (i = CLIENTS / 2; i < CLIENTS; i++)
		close(clients[i]);
	must(closed == CLIENTS && timed_out >= CLIENTS / 2);
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};

	must(hwt_create(&timer, &options) == 0);
	serve_clients();
	must(hwt_stop(timer, NULL) == 0 && hwt_destroy(timer) == 0);
	printf(
	    "%u connections closed, %u of them timed out\n", closed, timed_out);
	return 0;
}
