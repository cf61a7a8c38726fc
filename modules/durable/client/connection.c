/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See connection.h.
 *
 * TWO THREADS know a connection: its owner, and the timer's worker, which only
 * calls shutdown on fd, in timed_out. The owner closes fd after
 * hwt_cancel_wait, so that no shutdown can meet another socket of this number.
 * Whether timed_out has run makes no other difference than a broken socket.
 */
#define _GNU_SOURCE
#include "modules/durable/client/connection.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define READ_SIZE 16384
#define REPLY_ELEMENTS_MAX (1 << 20) /* of all its arrays together */
#define REPLY_BYTES_MAX ((size_t)260 << 20)

/* How many elements an array has, as hiredis says it. */
#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

/*
 * Commands.
 */

void
buffer_add(struct buffer *buffer, const void *bytes, size_t length)
{
	size_t size = buffer->size == 0 ? 512 : buffer->size;
	char *grown;

	if (buffer->failed || length == 0)
		return;
	if (length > buffer->size - buffer->length) {
		while (length > size - buffer->length)
			size *= 2;
		grown = realloc(buffer->bytes, size);
		if (grown == NULL) {
			buffer->failed = true;
			return;
		}
		buffer->bytes = grown;
		buffer->size = size;
	}
	memcpy(buffer->bytes + buffer->length, bytes, length);
	buffer->length += length;
}

/* Its mark, the number, and the end of the line. */
static void
buffer_head(struct buffer *buffer, char mark, uint64_t number)
{
	char text[24];
	size_t at = sizeof(text);

	text[--at] = '\n';
	text[--at] = '\r';
	do
		text[--at] = (char)('0' + number % 10);
	while ((number /= 10) != 0);
	text[--at] = mark;
	buffer_add(buffer, text + at, sizeof(text) - at);
}

void
buffer_command(struct buffer *buffer, size_t count)
{
	buffer_head(buffer, '*', count);
}

void
buffer_word(struct buffer *buffer, const void *bytes, size_t length)
{
	buffer_head(buffer, '$', length);
	buffer_add(buffer, bytes, length);
	buffer_add(buffer, "\r\n", 2);
}

void
buffer_text(struct buffer *buffer, const char *text)
{
	buffer_word(buffer, text, strlen(text));
}

void
buffer_number(struct buffer *buffer, uint64_t number)
{
	char text[24];
	int length =
	    snprintf(text, sizeof(text), "%llu", (unsigned long long)number);

	buffer_word(buffer, text, (size_t)length);
}

void
buffer_free(struct buffer *buffer)
{
	free(buffer->bytes);
	*buffer = (struct buffer){0};
}

/*
 * Replies.
 */

/* hiredis' own would believe any length, and allocate for it at once. */
static void *
array_create(const redisReadTask *task, element_count elements)
{
	redisReply *parent = task->parent != NULL ? task->parent->obj : NULL;
	struct connection *connection = task->privdata;
	redisReply *reply;

	if ((size_t)elements > REPLY_ELEMENTS_MAX - connection->elements)
		return NULL;
	reply = calloc(1, sizeof(*reply));
	if (reply == NULL)
		return NULL;
	connection->elements += (size_t)elements;
	reply->type = REDIS_REPLY_ARRAY;
	if (elements > 0)
		reply->element =
		    /* NOLINTNEXTLINE(bugprone-sizeof-expression): pointers */
		    calloc((size_t)elements, sizeof(*reply->element));
	if (elements > 0 && reply->element == NULL) {
		free(reply);
		return NULL;
	}
	reply->elements = (size_t)elements;
	if (parent != NULL)
		parent->element[task->idx] = reply;
	return reply;
}

/*
 * The deadline.
 */

static void
timed_out(hwt_timeout timeout, void *arg)
{
	const struct connection *connection = arg;

	(void)timeout;
	(void)shutdown(connection->fd, SHUT_RDWR);
}

int
connection_limit(struct connection *connection, uint64_t deadline_ns)
{
	return hwt_new_timeout_at(connection->timer, NULL, &connection->timeout,
	    timed_out, connection, deadline_ns);
}

void
connection_rest(struct connection *connection)
{
	if (connection->timeout.id != 0)
		(void)!hwt_cancel_wait(connection->timer, connection->timeout);
	connection->timeout = (hwt_timeout){0};
}

/* Until fd has one of the events, or is broken. */
static void
wait_for(const struct connection *connection, short events)
{
	struct pollfd polled = {.fd = connection->fd, .events = events};

	(void)poll(&polled, 1, -1);
}

/*
 * Connecting.
 */

/* What waits to be sent when it is closed is thrown away: nobody is to execute
 * it later than its repetition. */
static int
socket_create(int family)
{
	const struct linger discard = {.l_onoff = 1};
	const int on = 1;
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &discard, sizeof(discard));
	if (family != AF_UNIX) {
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	}
	return fd;
}

static int
socket_wait(struct connection *connection, uint64_t deadline_ns)
{
	int failure = 0;
	socklen_t size = sizeof(failure);
	int error = connection_limit(connection, deadline_ns);

	if (error != 0)
		return error;
	wait_for(connection, POLLOUT);
	connection_rest(connection);
	if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &failure, &size) !=
		0 ||
	    failure != 0)
		return -ECONNREFUSED;
	return 0;
}

static int
socket_connect(struct connection *connection, const struct sockaddr *address,
    socklen_t length, uint64_t deadline_ns)
{
	int error = 0;

	connection->fd = socket_create(address->sa_family);
	if (connection->fd < 0)
		return errno == EMFILE || errno == ENFILE ? -EMFILE
							  : -ECONNREFUSED;
	if (connect(connection->fd, address, length) != 0)
		error = errno == EINPROGRESS
		    ? socket_wait(connection, deadline_ns)
		    : -ECONNREFUSED;
	if (error != 0) {
		(void)close(connection->fd);
		connection->fd = -1;
	}
	return error;
}

static int
open_unix(struct connection *connection, uint64_t deadline_ns)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = connection->address.host;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ECONNREFUSED;
	memcpy(address.sun_path, path, strlen(path));
	return socket_connect(connection, (const struct sockaddr *)&address,
	    sizeof(address), deadline_ns);
}

static int
open_tcp(struct connection *connection, uint64_t deadline_ns)
{
	const struct addrinfo hints = {
	    .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *found, *each;
	char port[8];
	int error = -ECONNREFUSED;

	(void)snprintf(port, sizeof(port), "%u", connection->address.port);
	if (getaddrinfo(connection->address.host, port, &hints, &found) != 0)
		return -ECONNREFUSED;
	for (each = found; each != NULL && error == -ECONNREFUSED;
	     each = each->ai_next)
		error = socket_connect(
		    connection, each->ai_addr, each->ai_addrlen, deadline_ns);
	freeaddrinfo(found);
	return error;
}

/* Without a socket. */
static struct connection *
connection_create(struct hwt *timer)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	if (connection == NULL)
		return NULL;
	connection->fd = -1;
	connection->timer = timer;
	connection->reader = redisReaderCreate();
	if (connection->reader == NULL) {
		free(connection);
		return NULL;
	}
	connection->functions = *connection->reader->fn;
	connection->functions.createArray = array_create;
	connection->reader->fn = &connection->functions;
	connection->reader->privdata = connection;
	return connection;
}

int
connection_open(struct connection **opened, struct hwt *timer,
    const struct address *address, uint64_t deadline_ns)
{
	struct connection *connection = connection_create(timer);
	int error;

	if (connection == NULL)
		return -ENOMEM;
	connection->address = *address;
	error = address->port == 0 ? open_unix(connection, deadline_ns)
				   : open_tcp(connection, deadline_ns);
	if (error != 0) {
		connection_close(connection);
		return error;
	}
	*opened = connection;
	return 0;
}

int
connection_adopt(struct connection **opened, struct hwt *timer, int fd)
{
	struct connection *connection = connection_create(timer);

	if (connection == NULL) {
		(void)close(fd);
		return -ENOMEM;
	}
	connection->fd = fd;
	*opened = connection;
	return 0;
}

void
connection_close(struct connection *connection)
{
	if (connection == NULL)
		return;
	connection_rest(connection);
	if (connection->fd >= 0)
		(void)close(connection->fd);
	redisReaderFree(connection->reader);
	free(connection);
}

/*
 * Talking.
 */

int
connection_send(
    struct connection *connection, const struct buffer *buffer, size_t *sent)
{
	ssize_t count;

	*sent = 0;
	if (buffer->failed)
		return -ENOMEM;
	while (*sent < buffer->length) {
		count = send(connection->fd, buffer->bytes + *sent,
		    buffer->length - *sent, MSG_NOSIGNAL);
		if (count >= 0)
			*sent += (size_t)count;
		else if (errno == EAGAIN)
			wait_for(connection, POLLOUT);
		else if (errno != EINTR)
			return -ETIMEDOUT;
	}
	return 0;
}

/* Reads what is there, or waits for it. */
static int
receive_more(struct connection *connection)
{
	char bytes[READ_SIZE];
	ssize_t count = recv(connection->fd, bytes, sizeof(bytes), 0);

	if (count > 0) {
		connection->received += (size_t)count;
		if (connection->received > REPLY_BYTES_MAX)
			return -EPROTO;
		return redisReaderFeed(
			   connection->reader, bytes, (size_t)count) == REDIS_OK
		    ? 0
		    : -ENOMEM;
	}
	if (count == 0 || (errno != EAGAIN && errno != EINTR))
		return -ETIMEDOUT;
	wait_for(connection, POLLIN);
	return 0;
}

int
connection_receive(struct connection *connection, redisReply **reply)
{
	void *got = NULL;
	int error;

	connection->elements = connection->received = 0;
	for (;;) {
		if (redisReaderGetReply(connection->reader, &got) != REDIS_OK)
			return -EPROTO;
		if (got != NULL)
			break;
		error = receive_more(connection);
		if (error != 0)
			return error;
	}
	*reply = got;
	return 0;
}

int
connection_ask(struct connection *connection, const struct buffer *command,
    uint64_t deadline_ns, redisReply **reply)
{
	size_t sent;
	int error = connection_limit(connection, deadline_ns);

	*reply = NULL;
	if (error == 0)
		error = connection_send(connection, command, &sent);
	if (error == 0)
		error = connection_receive(connection, reply);
	connection_rest(connection);
	return error;
}

bool
connection_is_usable(const struct connection *connection)
{
	char byte;

	return recv(connection->fd, &byte, 1, MSG_PEEK) < 0 &&
	    errno == EAGAIN &&
	    connection->reader->len == connection->reader->pos;
}
