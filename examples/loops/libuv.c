/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An echo server on libuv that closes idle clients: a uv_poll_t watches the
 * mailbox, and the tasks run on the loop's thread. Several loops, in threads,
 * can share one timer: a mailbox for each of them.
 *
 * uv_close ends later, in on_closed. Until then no task may come: the timeout
 * is cancelled first.
 */
#include <errno.h>
#include <uv.h>

#include "clients.h"

struct connection {
	uv_pipe_t pipe;
	hwt_timeout idle;
	char bytes[512];
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static uv_poll_t due;
static struct tally tally;

static void
on_closed(uv_handle_t *handle)
{
	free(handle->data);
	/* With nothing left to watch, uv_run returns. */
	if (--tally.open == 0)
		uv_close((uv_handle_t *)&due, NULL);
}

static void
connection_close(struct connection *connection)
{
	if (uv_is_closing((uv_handle_t *)&connection->pipe))
		return;
	(void)!hwt_cancel(timer, connection->idle);
	uv_close((uv_handle_t *)&connection->pipe, on_closed);
}

static void
idle(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;

	(void)timeout;
	tally.idle++;
	connection_close(connection);
}

/* Moves the deadline, or makes the first one. What is due and in the mailbox is
 * replaced, and does not run. */
static void
idle_restart(struct connection *connection)
{
	must(hwt_touch(timer, hwt_mailbox_executor(mailbox), &connection->idle,
		 idle, connection, IDLE_NS) == 0);
}

static void
on_due(uv_poll_t *handle, int status, int events)
{
	(void)handle;
	(void)events;
	must(status == 0);
	must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
}

static void
on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
	struct connection *connection = handle->data;

	(void)suggested;
	*buffer = uv_buf_init(connection->bytes, sizeof(connection->bytes));
}

static void
on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
	struct connection *connection = stream->data;
	uv_buf_t echo;

	if (count == 0)
		return;
	if (count > 0) {
		echo = uv_buf_init(buffer->base, (unsigned)count);
		idle_restart(connection);
		count = uv_try_write(stream, &echo, 1);
	}
	if (count < 0) {
		tally.hung_up++;
		connection_close(connection);
	}
}

static void
connection_open(int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));
	uv_stream_t *stream;

	must(connection != NULL);
	stream = (uv_stream_t *)&connection->pipe;
	must(uv_pipe_init(uv_default_loop(), &connection->pipe, 0) == 0);
	must(uv_pipe_open(&connection->pipe, fd) == 0);
	connection->pipe.data = connection;
	idle_restart(connection);
	must(uv_read_start(stream, on_room, on_read) == 0);
	tally.open++;
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(10)};
	uv_loop_t *loop = uv_default_loop();
	struct clients clients;
	int fds[CLIENTS], i;

	must(hwt_create(&timer, &options) == 0);
	must(hwt_mailbox_create(&mailbox) == 0);
	must(uv_poll_init(loop, &due, hwt_mailbox_fd(mailbox)) == 0);
	must(uv_poll_start(&due, UV_READABLE, on_due) == 0);

	clients_start(&clients, fds);
	for (i = 0; i < CLIENTS; i++)
		connection_open(fds[i]);
	must(uv_run(loop, UV_RUN_DEFAULT) == 0);
	clients_join(&clients, &tally);
	must(hwt_pending_timeouts(timer) == 0);

	/* What was cancelled in the mailbox is let go by one more run. */
	must(hwt_stop(timer, NULL) == 0);
	while (hwt_mailbox_destroy(mailbox) == -EBUSY)
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	must(hwt_destroy(timer) == 0);
	must(uv_loop_close(loop) == 0);
	return 0;
}
