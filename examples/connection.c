/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection: what it reads and writes, and the four timeouts on it.
 *
 *            first byte           whole header         whole body
 *   IDLE ------------------> HEADER ----------> BODY ----------> RESPONSE
 *     ^    arm header, request    cancel header                   |   |
 *     |                                                           |   |
 *     +-----------------------------------------------------------+   |
 *          cancel read and request, reschedule idle                   v
 *                                                  the same, then DRAIN
 *
 *   header   lives in HEADER
 *   request  lives in HEADER, BODY and RESPONSE
 *   read     lives in RESPONSE, from the first write that the socket does not
 *            take whole; each further byte that it takes reschedules it
 *   idle     lives as long as the connection. It is rescheduled at the end of
 *            each request, which is one atomic update and leaves the worker
 *            alone; a request that is under way when it comes due arms it anew
 *
 * Almost none of them ever comes due. That is the load that a wheel is made
 * for, so each simply lives as long as its phase.
 *
 * WHO OWNS A CONNECTION. A timeout's arg is part of the connection, so the
 * connection must outlive each of its timeouts, and a timeout ends in one of
 * three ways:
 *
 *   its task starts     on the loop's thread, in hwt_mailbox_run; its first
 *                       act is to forget the handle
 *   hwt_cancel gave 0   on the loop's thread too, so that nothing can come
 *                       between: even if the worker has already put the
 *                       timeout into the mailbox, it does not run, and arg is
 *                       ours again
 *   stop returned it   when the loops have ended
 *
 * So connection_close cancels what is armed, each cancel must win, and then
 * the memory is free to go. No reference count, no lock.
 */
#define _GNU_SOURCE
#include "connection.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"
#include "watch.h"

/* What one connection may write before the others have their turn. */
#define WRITE_BYTES_PER_TURN (UINT64_C(512) << 10)
#define WRITE_PARTS 4

/* What became of a step in a connection's life. */
enum step {
	STEP_NEXT, /* done: the next phase may go on at once */
	STEP_WAIT, /* more when the socket is ready */
	STEP_CLOSE
};

static hwt_task deadline_due;

static bool
deadline_is_armed(const struct deadline *deadline)
{
	return deadline->timeout.id != 0;
}

/*
 * Arms some of a connection's deadlines; one reading of the clock serves all.
 * False when there is no memory: a connection that cannot be guarded is not
 * served.
 */
static bool
deadlines_arm(
    struct connection *connection, size_t count, const enum limit *limits)
{
	struct loop *loop = connection->loop;
	struct hwt_spec specs[LIMITS];
	hwt_timeout timeouts[LIMITS];
	uint64_t now_ns = clock_now_ns();
	size_t i;

	for (i = 0; i < count; i++) {
		struct deadline *deadline = &connection->deadlines[limits[i]];

		assert(!deadline_is_armed(deadline));
		deadline->due_ns = now_ns + loop->limits_ns[limits[i]];
		deadline->is_moved = false;
		specs[i] = (struct hwt_spec){
		    .task = deadline_due,
		    .arg = deadline,
		    .delay_ns = loop->limits_ns[limits[i]],
		    .executor = hwt_mailbox_executor(loop->mailbox),
		};
	}
	if (hwt_new_timeouts(loop->timer, count, specs, timeouts) != 0)
		return false;
	/* The tasks cannot have started: they run on this thread. */
	for (i = 0; i < count; i++)
		connection->deadlines[limits[i]].timeout = timeouts[i];
	tally_add(&loop->tally.scheduled, count);
	return true;
}

/* Arms a deadline, or moves it if it is armed. */
static bool
deadline_restart(struct connection *connection, enum limit limit)
{
	struct deadline *deadline = &connection->deadlines[limit];
	struct loop *loop = connection->loop;
	int error;

	if (!deadline_is_armed(deadline))
		return deadlines_arm(connection, 1, &limit);
	deadline->due_ns = clock_now_ns() + loop->limits_ns[limit];
	error = hwt_reschedule(
	    loop->timer, deadline->timeout, loop->limits_ns[limit]);
	/* In the mailbox already: its task will see that it was moved. */
	assert(error == 0 || error == -EINPROGRESS);
	deadline->is_moved = error != 0;
	tally_add(&loop->tally.rescheduled, error == 0);
	return true;
}

static void
deadline_disarm(struct connection *connection, enum limit limit)
{
	struct deadline *deadline = &connection->deadlines[limit];
	struct loop *loop = connection->loop;
	int error;

	if (!deadline_is_armed(deadline))
		return;
	error = hwt_cancel(loop->timer, deadline->timeout);
	assert(error == 0);
	(void)error;
	deadline->timeout = (hwt_timeout){0};
	tally_add(&loop->tally.cancelled, 1);
}

/* Frees the connection, whose timeouts have ended. */
static void
connection_free(struct connection *connection)
{
	*connection->link = connection->next;
	if (connection->next != NULL)
		connection->next->link = connection->link;
	tally_add(&connection->loop->tally.open, (uint64_t)-1);
	http_answer_clear(&connection->answer);
	close(connection->fd);
	free(connection);
}

static void
connection_close(struct connection *connection)
{
	enum limit limit;

	for (limit = 0; limit < LIMITS; limit++)
		deadline_disarm(connection, limit);
	connection_free(connection);
}

/*
 * Ends a connection whose client exceeded a limit. One that waits for our
 * answer is told why, if the socket takes it; one that does not read gets a
 * reset, for otherwise the kernel would keep for it what it has not read.
 */
static void
connection_cut(struct connection *connection, enum limit limit)
{
	const struct linger reset = {.l_onoff = 1, .l_linger = 0};
	struct http_answer *answer = &connection->answer;

	if (connection->phase == PHASE_RESPONSE) {
		setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &reset,
		    sizeof(reset));
	} else if (limit != LIMIT_IDLE) {
		http_answer_error(answer, 408);
		send(connection->fd, answer->text, answer->text_length,
		    MSG_NOSIGNAL);
	}
	tally_add(&connection->loop->tally.cut[limit], 1);
	connection_close(connection);
}

/*
 * The task of all four timeouts. Two kinds come for nothing: one that was to
 * be moved when it lay in the mailbox, and idle during a request. They are
 * armed anew; what has started cannot be rescheduled.
 */
static void
deadline_due(hwt_timeout timeout, void *arg)
{
	struct deadline *deadline = arg;
	struct connection *connection = deadline->connection;
	enum limit limit = (enum limit)(deadline - connection->deadlines);
	struct tally *tally = &connection->loop->tally;
	uint64_t now_ns = clock_now_ns();
	bool is_for_nothing;

	assert(timeout.id == deadline->timeout.id);
	(void)timeout;
	deadline->timeout = (hwt_timeout){0};
	tally_add(&tally->started, 1);
	is_for_nothing = deadline->is_moved ||
	    (limit == LIMIT_IDLE && connection->phase != PHASE_IDLE &&
		connection->phase != PHASE_DRAIN);
	if (is_for_nothing) {
		tally_add(&tally->spared, 1);
		if (!deadline_restart(connection, limit))
			connection_close(connection);
		return;
	}
	lateness_add(
	    &tally->lateness[limit], (int64_t)(now_ns - deadline->due_ns));
	connection_cut(connection, limit);
}

static void
input_drop(struct connection *connection, size_t length)
{
	connection->input_length -= length;
	memmove(connection->input, connection->input + length,
	    connection->input_length);
	connection->input_known = 0;
}

static enum step
step_idle(struct connection *connection)
{
	static const enum limit limits[] = {LIMIT_HEADER, LIMIT_REQUEST};

	if (connection->input_length == 0)
		return STEP_WAIT;
	if (!deadlines_arm(connection, 2, limits))
		return STEP_CLOSE;
	connection->phase = PHASE_HEADER;
	return STEP_NEXT;
}

static enum step
answer_begin(struct connection *connection, bool keep_alive)
{
	deadline_disarm(connection, LIMIT_HEADER);
	connection->keep_alive = keep_alive;
	connection->sent = 0;
	connection->phase = PHASE_BODY;
	return STEP_NEXT;
}

static enum step
answer_error(struct connection *connection, int status)
{
	/* Where the next request would begin is unknown. */
	input_drop(connection, connection->input_length);
	connection->body_left = 0;
	http_answer_error(&connection->answer, status);
	return answer_begin(connection, false);
}

static enum step
step_header(struct connection *connection)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct http_request request;
	size_t length;
	int status;

	length = http_head_length(connection->input, connection->input_length,
	    connection->input_known);
	connection->input_known = connection->input_length;
	if (length == 0 &&
	    connection->input_length == sizeof(connection->input))
		return answer_error(connection, 431);
	if (length == 0)
		return STEP_WAIT;
	status = http_parse(connection->input, length, &request);
	if (status != 0)
		return answer_error(connection, status);
	if (!watch_answer(
		&connection->answer, &request, connection->loop->timer))
		http_answer_request(&connection->answer, &request);
	input_drop(connection, length);
	connection->body_left = request.body_length;
	/* Nothing was sent since the last answer was out, so that it fits. */
	if (request.expects_continue && connection->body_left > 0 &&
	    connection->input_length == 0)
		send(connection->fd, go_on, sizeof(go_on) - 1, MSG_NOSIGNAL);
	return answer_begin(connection, request.keep_alive);
}

static enum step
step_body(struct connection *connection)
{
	size_t length = connection->input_length;

	if (length > connection->body_left)
		length = (size_t)connection->body_left;
	connection->body_left -= length;
	input_drop(connection, length);
	if (connection->body_left > 0)
		return STEP_WAIT;
	connection->phase = PHASE_RESPONSE;
	return STEP_NEXT;
}

static enum step
request_end(struct connection *connection)
{
	deadline_disarm(connection, LIMIT_READ);
	deadline_disarm(connection, LIMIT_REQUEST);
	if (!deadline_restart(connection, LIMIT_IDLE))
		return STEP_CLOSE;
	tally_add(&connection->loop->tally.requests, 1);
	connection->phase = PHASE_IDLE;
	if (!connection->keep_alive) {
		/* To close at once could reset the connection before the
		 * client has read the answer. Idle bounds the wait. */
		shutdown(connection->fd, SHUT_WR);
		connection->phase = PHASE_DRAIN;
	}
	return STEP_NEXT;
}

static enum step
step_response(struct connection *connection)
{
	uint64_t length = http_answer_length(&connection->answer);
	uint64_t pause = connection->sent + WRITE_BYTES_PER_TURN;
	bool is_new = !deadline_is_armed(&connection->deadlines[LIMIT_READ]);
	bool is_read_on = false;

	while (connection->sent < length && connection->sent < pause) {
		struct iovec parts[WRITE_PARTS];
		struct msghdr message = {.msg_iov = parts};
		ssize_t sent;

		message.msg_iovlen = http_answer_parts(
		    &connection->answer, connection->sent, parts, WRITE_PARTS);
		sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
		if (sent < 0 && errno == EAGAIN)
			break;
		if (sent < 0)
			return STEP_CLOSE;
		connection->sent += (uint64_t)sent;
		is_read_on = true;
	}
	if (connection->sent == length)
		return request_end(connection);
	if ((is_read_on || is_new) && !deadline_restart(connection, LIMIT_READ))
		return STEP_CLOSE;
	return STEP_WAIT;
}

static enum step
step_drain(struct connection *connection)
{
	input_drop(connection, connection->input_length);
	return STEP_WAIT;
}

/* One step at a time, so that requests that came in one packet are answered
 * one after the other; there are at most as many as the input holds. */
static enum step
connection_step(struct connection *connection)
{
	switch (connection->phase) {
	case PHASE_IDLE:
		return step_idle(connection);
	case PHASE_HEADER:
		return step_header(connection);
	case PHASE_BODY:
		return step_body(connection);
	case PHASE_RESPONSE:
		return step_response(connection);
	case PHASE_DRAIN:
		return step_drain(connection);
	}
	return STEP_CLOSE;
}

/* While an answer is written, nothing is read: a client that sends and does
 * not read fills its own buffers, not ours. */
static enum step
connection_receive(struct connection *connection)
{
	size_t room = sizeof(connection->input) - connection->input_length;
	ssize_t received;

	if (connection->phase == PHASE_RESPONSE)
		return STEP_NEXT;
	assert(room > 0);
	received = recv(connection->fd,
	    connection->input + connection->input_length, room, 0);
	if (received > 0)
		connection->input_length += (size_t)received;
	else if (received == 0 || errno != EAGAIN)
		return STEP_CLOSE;
	return STEP_NEXT;
}

static enum step
connection_watch(struct connection *connection)
{
	uint32_t events =
	    connection->phase == PHASE_RESPONSE ? EPOLLOUT : EPOLLIN;
	struct epoll_event event = {.events = events, .data.ptr = connection};
	int operation = connection->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;

	if (events == connection->events)
		return STEP_WAIT;
	connection->events = events;
	if (epoll_ctl(connection->loop->epoll_fd, operation, connection->fd,
		&event) != 0)
		return STEP_CLOSE;
	return STEP_WAIT;
}

void
connection_ready(struct connection *connection)
{
	enum step step = connection_receive(connection);

	while (step == STEP_NEXT)
		step = connection_step(connection);
	if (step == STEP_WAIT)
		step = connection_watch(connection);
	if (step == STEP_CLOSE)
		connection_close(connection);
}

void
connection_create(struct loop *loop, int fd)
{
	static const enum limit first = LIMIT_IDLE;
	struct connection *connection = calloc(1, sizeof(*connection));
	enum limit limit;

	if (connection == NULL) {
		close(fd);
		return;
	}
	connection->loop = loop;
	connection->fd = fd;
	connection->phase = PHASE_IDLE;
	for (limit = 0; limit < LIMITS; limit++)
		connection->deadlines[limit].connection = connection;
	connection->next = loop->connections;
	connection->link = &loop->connections;
	if (connection->next != NULL)
		connection->next->link = &connection->next;
	loop->connections = connection;
	tally_add(&loop->tally.open, 1);
	if (!deadlines_arm(connection, 1, &first) ||
	    connection_watch(connection) == STEP_CLOSE)
		connection_close(connection);
}

bool
connection_unprocessed(const struct hwt_timeout_info *info, enum limit *limit)
{
	struct deadline *deadline = info->arg;

	if (info->task != deadline_due ||
	    info->timeout.id != deadline->timeout.id)
		return false;
	*limit = (enum limit)(deadline - deadline->connection->deadlines);
	deadline->timeout = (hwt_timeout){0};
	return true;
}

unsigned
connection_destroy(struct connection *connection)
{
	unsigned armed = 0;
	enum limit limit;

	for (limit = 0; limit < LIMITS; limit++)
		armed += deadline_is_armed(&connection->deadlines[limit]);
	connection_free(connection);
	return armed;
}
