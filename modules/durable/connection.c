/* SPDX-License-Identifier: Apache-2.0 */
/* A socket with a deadline: see connection.h. */
#define _GNU_SOURCE
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
#include <time.h>
#include <unistd.h>

#include "connection.h"

#define READ_SIZE 16384

static uint64_t
clock_read_ns(clockid_t clock)
{
	struct timespec now = {0};

	(void)clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t
limit_now_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t
boot_now_ns(void)
{
	return clock_read_ns(CLOCK_BOOTTIME);
}

uint64_t
unix_now_ns(void)
{
	return clock_read_ns(CLOCK_REALTIME);
}

/* Milliseconds until the deadline, rounded up, for poll. */
static int
limit_left_ms(const struct limit *limit)
{
	uint64_t now = limit_now_ns();
	uint64_t left;

	if (now >= limit->deadline_ns)
		return 0;
	left = (limit->deadline_ns - now + 999999) / 1000000;
	return left > 3600000 ? 3600000 : (int)left;
}

int
limit_wait(const struct limit *limit, int fd, short events)
{
	struct pollfd polled[2] = {
	    {.fd = limit->stop_fd, .events = POLLIN},
	    {.fd = fd, .events = events},
	};
	int count, left;

	for (;;) {
		left = limit_left_ms(limit);
		count = poll(polled, 2, left);
		if (count < 0 && errno != EINTR)
			return -ENOMEM;
		if (count > 0)
			return polled[0].revents != 0 ? -ECANCELED : 0;
		if (count == 0 && limit_left_ms(limit) == 0)
			return -ETIMEDOUT;
	}
}

/* Commands. */

void
buffer_add(struct buffer *buffer, const void *data, size_t length)
{
	size_t size = buffer->size;
	char *grown;

	if (buffer->failed || length == 0)
		return;
	if (length > size - buffer->length) {
		while (length > size - buffer->length)
			size = size == 0 ? 1024 : size * 2;
		grown = realloc(buffer->data, size);
		if (grown == NULL) {
			buffer->failed = true;
			return;
		}
		buffer->data = grown;
		buffer->size = size;
	}
	memcpy(buffer->data + buffer->length, data, length);
	buffer->length += length;
}

static void
buffer_head(struct buffer *buffer, char kind, size_t number)
{
	char head[32];
	int length = snprintf(head, sizeof(head), "%c%zu\r\n", kind, number);

	buffer_add(buffer, head, (size_t)length);
}

void
buffer_command(struct buffer *buffer, size_t count)
{
	buffer_head(buffer, '*', count);
}

void
buffer_word(struct buffer *buffer, const void *data, size_t length)
{
	buffer_head(buffer, '$', length);
	buffer_add(buffer, data, length);
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
	free(buffer->data);
	memset(buffer, 0, sizeof(*buffer));
}

/* Connecting. */

static int
socket_connect(int fd, const struct sockaddr *address, socklen_t length,
    const struct limit *limit)
{
	int failure = 0;
	socklen_t size = sizeof(failure);
	int error;

	if (connect(fd, address, length) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return -ECONNREFUSED;
	error = limit_wait(limit, fd, POLLOUT);
	if (error != 0)
		return error == -ETIMEDOUT ? -ECONNREFUSED : error;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) != 0 ||
	    failure != 0)
		return -ECONNREFUSED;
	return 0;
}

/* What waits to be sent when it is closed is thrown away: nobody is to execute
 * it later than the repetition. */
static void
socket_set(int fd, bool is_tcp)
{
	const struct linger discard = {.l_onoff = 1};
	const int on = 1;

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &discard, sizeof(discard));
	if (!is_tcp)
		return;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

static int
socket_open(int *opened, const struct sockaddr *address, socklen_t length,
    const struct limit *limit)
{
	int fd = socket(
	    address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int error;

	if (fd < 0)
		return errno == EAFNOSUPPORT ? -ECONNREFUSED : -ENOMEM;
	socket_set(fd, address->sa_family != AF_UNIX);
	error = socket_connect(fd, address, length, limit);
	if (error != 0) {
		(void)close(fd);
		return error;
	}
	*opened = fd;
	return 0;
}

static int
open_unix(int *fd, const char *path, const struct limit *limit)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(address.sun_path))
		return -ECONNREFUSED;
	memcpy(address.sun_path, path, strlen(path));
	return socket_open(
	    fd, (const struct sockaddr *)&address, sizeof(address), limit);
}

static int
open_tcp(
    int *fd, const struct route_address *address, const struct limit *limit)
{
	const struct addrinfo hints = {
	    .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *found, *each;
	char port[8];
	int error = -ECONNREFUSED;

	(void)snprintf(port, sizeof(port), "%u", address->port);
	if (getaddrinfo(address->host, port, &hints, &found) != 0)
		return -ECONNREFUSED;
	for (each = found; each != NULL && error == -ECONNREFUSED;
	     each = each->ai_next)
		error = socket_open(fd, each->ai_addr, each->ai_addrlen, limit);
	freeaddrinfo(found);
	return error;
}

int
connection_open(struct connection **connection,
    const struct route_address *address, const struct limit *limit)
{
	struct connection *made = calloc(1, sizeof(*made));
	int error;

	if (made == NULL)
		return -ENOMEM;
	made->reader = route_reader(&made->functions, &made->excess);
	error = made->reader == NULL ? -ENOMEM
	    : address->port == 0 ? open_unix(&made->fd, address->host, limit)
				 : open_tcp(&made->fd, address, limit);
	if (error != 0) {
		if (made->reader != NULL)
			redisReaderFree(made->reader);
		free(made);
		return error;
	}
	made->address = *address;
	*connection = made;
	return 0;
}

void
connection_close(struct connection *connection)
{
	if (connection == NULL)
		return;
	(void)close(connection->fd);
	redisReaderFree(connection->reader);
	free(connection);
}

/* Talking. */

int
connection_send(struct connection *connection, const struct buffer *buffer,
    const struct limit *limit)
{
	size_t sent = 0;
	ssize_t count;
	int error;

	if (buffer->failed)
		return -ENOMEM;
	while (sent < buffer->length) {
		count = send(connection->fd, buffer->data + sent,
		    buffer->length - sent, MSG_NOSIGNAL);
		if (count >= 0) {
			sent += (size_t)count;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -ECONNRESET;
		error = limit_wait(limit, connection->fd, POLLOUT);
		if (error != 0)
			return error;
	}
	return 0;
}

/* A reply that is there already. */
static int
reader_take(struct connection *connection, redisReply **reply)
{
	redisReader *reader = connection->reader;
	void *taken = NULL;

	if (redisReaderGetReply(reader, &taken) != REDIS_OK)
		return reader->err == REDIS_ERR_OOM && !connection->excess
		    ? -ENOMEM
		    : -EPROTO;
	*reply = taken;
	return 0;
}

int
connection_poll(struct connection *connection, redisReply **reply)
{
	char bytes[READ_SIZE];
	ssize_t count;
	int error;

	*reply = NULL;
	for (;;) {
		error = reader_take(connection, reply);
		if (error != 0 || *reply != NULL)
			return error;
		count = recv(connection->fd, bytes, sizeof(bytes), 0);
		if (count == 0)
			return -ECONNRESET;
		if (count > 0)
			error = redisReaderFeed(
			    connection->reader, bytes, (size_t)count);
		else if (errno == EAGAIN)
			return 0;
		else if (errno != EINTR)
			return -ECONNRESET;
		if (error != 0)
			return -ENOMEM;
	}
}

int
connection_receive(struct connection *connection, redisReply **reply,
    const struct limit *limit)
{
	int error = connection_poll(connection, reply);

	while (error == 0 && *reply == NULL) {
		error = limit_wait(limit, connection->fd, POLLIN);
		if (error == 0)
			error = connection_poll(connection, reply);
	}
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
