/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An echo server on io_uring that closes idle clients: a poll request watches
 * the mailbox, and the tasks run on the thread that takes completions.
 *
 * A connection always has one request under way, recv or send, and the kernel
 * writes into its memory. So a task does not free it: it shuts the socket down,
 * the request completes, and then the connection is closed.
 *
 * Where the kernel does not let us use io_uring, the exit status is 77.
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>

#include "clients.h"

struct connection {
	int fd;
	hwt_timeout idle;
	bool is_sending, is_idle;
	char bytes[512];
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static struct io_uring ring;
static struct tally tally;

static void
submit(struct io_uring_sqe *sqe, void *source)
{
	io_uring_sqe_set_data(sqe, source);
	must(io_uring_submit(&ring) == 1);
}

static void
mailbox_watch(void)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

	io_uring_prep_poll_add(sqe, hwt_mailbox_fd(mailbox), POLLIN);
	submit(sqe, mailbox);
}

static void
connection_receive(struct connection *connection)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

	connection->is_sending = false;
	io_uring_prep_recv(sqe, connection->fd, connection->bytes,
	    sizeof(connection->bytes), 0);
	submit(sqe, connection);
}

static void
connection_send(struct connection *connection, size_t count)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

	connection->is_sending = true;
	io_uring_prep_send(
	    sqe, connection->fd, connection->bytes, count, MSG_NOSIGNAL);
	submit(sqe, connection);
}

static void
idle(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;

	(void)timeout;
	connection->is_idle = true;
	shutdown(connection->fd, SHUT_RDWR);
}

/* Moves the deadline, or makes the first one. What is due and in the mailbox is
 * replaced, and does not run. */
static void
idle_restart(struct connection *connection)
{
	must(hwt_touch(timer, hwt_mailbox_executor(mailbox), &connection->idle,
		 idle, connection, IDLE_NS) == 0);
}

/* No request of it is under way. */
static void
connection_close(struct connection *connection)
{
	if (connection->is_idle)
		tally.idle++;
	else
		tally.hung_up++;
	(void)!hwt_cancel(timer, connection->idle);
	close(connection->fd);
	free(connection);
	tally.open--;
}

static void
connection_complete(struct connection *connection, int result)
{
	if (result <= 0 || connection->is_idle) {
		connection_close(connection);
	} else if (connection->is_sending) {
		connection_receive(connection);
	} else {
		idle_restart(connection);
		connection_send(connection, (size_t)result);
	}
}

static void
connection_open(int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	must(connection != NULL);
	connection->fd = fd;
	idle_restart(connection);
	connection_receive(connection);
	tally.open++;
}

static void
turn(void)
{
	struct io_uring_cqe *cqe;
	void *source;
	int result;

	must(io_uring_wait_cqe(&ring, &cqe) == 0);
	source = io_uring_cqe_get_data(cqe);
	result = cqe->res;
	io_uring_cqe_seen(&ring, cqe);
	if (source != mailbox) {
		connection_complete(source, result);
		return;
	}
	must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	mailbox_watch();
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(10)};
	int error = io_uring_queue_init(64, &ring, 0);
	struct clients clients;
	int fds[CLIENTS], i;

	if (error == -ENOSYS || error == -EPERM || error == -EACCES) {
		printf("the kernel does not allow io_uring\n");
		return 77;
	}
	must(error == 0);
	must(hwt_create(&timer, &options) == 0);
	must(hwt_mailbox_create(&mailbox) == 0);
	mailbox_watch();

	clients_start(&clients, fds);
	for (i = 0; i < CLIENTS; i++)
		connection_open(fds[i]);
	while (tally.open > 0)
		turn();
	clients_join(&clients, &tally);
	must(hwt_pending_timeouts(timer) == 0);

	/* The request that watches the mailbox's descriptor ends with the
	 * ring. What was cancelled in the mailbox is let go by one more run. */
	io_uring_queue_exit(&ring);
	must(hwt_stop(timer, NULL) == 0);
	while (hwt_mailbox_destroy(mailbox) == -EBUSY)
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	must(hwt_destroy(timer) == 0);
	return 0;
}
