/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "text.h"
#include "wait.h"

enum {
	LIMIT_MS = 1000, /* for the request, the answer, the end: for each */
	REQUEST_MAX = 4096
};

union address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

/* HOST is a number, IPv6 in brackets: no name is looked up. */
static socklen_t
address_read(union address *to, const char *text)
{
	const char *colon = strrchr(text, ':');
	const char *port = colon != NULL ? colon + 1 : text;
	char host[64] = "127.0.0.1";
	size_t length = colon != NULL ? (size_t)(colon - text) : 0;
	uint64_t number;

	if (!text_number(port, 0, 65535, &number) || length >= sizeof(host))
		return 0;
	if (length > 0) {
		memcpy(host, text, length);
		host[length] = '\0';
	}
	memset(to, 0, sizeof(*to));
	if (host[0] == '[' && host[strlen(host) - 1] == ']') {
		host[strlen(host) - 1] = '\0';
		to->six.sin6_family = AF_INET6;
		to->six.sin6_port = htons((uint16_t)number);
		return inet_pton(AF_INET6, host + 1, &to->six.sin6_addr) == 1
		    ? sizeof(to->six)
		    : 0;
	}
	to->four.sin_family = AF_INET;
	to->four.sin_port = htons((uint16_t)number);
	return inet_pton(AF_INET, host, &to->four.sin_addr) == 1
	    ? sizeof(to->four)
	    : 0;
}

static void
address_write(const union address *address, char where[64])
{
	char host[INET6_ADDRSTRLEN] = "";

	if (address->any.sa_family == AF_INET6) {
		(void)inet_ntop(
		    AF_INET6, &address->six.sin6_addr, host, sizeof(host));
		(void)snprintf(
		    where, 64, "[%s]:%u", host, ntohs(address->six.sin6_port));
		return;
	}
	(void)inet_ntop(AF_INET, &address->four.sin_addr, host, sizeof(host));
	(void)snprintf(where, 64, "%s:%u", host, ntohs(address->four.sin_port));
}

int
http_listen(const char *address, char where[64])
{
	union address own;
	socklen_t length = address_read(&own, address);
	int yes = 1, error, fd;

	if (length == 0)
		return -EINVAL;
	fd = socket(
	    own.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(fd, &own.any, length) != 0 || listen(fd, 16) != 0 ||
	    getsockname(fd, &own.any, &length) != 0) {
		error = -errno;
		(void)close(fd);
		return error;
	}
	address_write(&own, where);
	return fd;
}

/* Reads up to the blank line after the header, into text, or as much of it as
 * has room: its first line is all that counts. */
static bool
request_read(int fd, char text[REQUEST_MAX + 1])
{
	int64_t until_ms = wait_now_ms() + LIMIT_MS;
	size_t length = 0;
	ssize_t count;

	while (wait_for(fd, POLLIN, until_ms)) {
		count = recv(fd, text + length, REQUEST_MAX - length, 0);
		if (count <= 0)
			return false;
		length += (size_t)count;
		text[length] = '\0';
		if (strstr(text, "\r\n\r\n") != NULL ||
		    strstr(text, "\n\n") != NULL || length == REQUEST_MAX)
			return true;
	}
	return false;
}

static void
send_all(int fd, const char *text, size_t length)
{
	int64_t until_ms = wait_now_ms() + LIMIT_MS;
	ssize_t count;

	while (length > 0 && wait_for(fd, POLLOUT, until_ms)) {
		count = send(fd, text, length, MSG_NOSIGNAL);
		if (count <= 0)
			return;
		text += count;
		length -= (size_t)count;
	}
}

static const char *
reason(int status)
{
	return status == 200 ? "OK"
	    : status == 404  ? "Not Found"
	    : status == 405  ? "Method Not Allowed"
			     : "Service Unavailable";
}

/* The path of a GET; NULL: it is another method, or no request. */
static const char *
request_path(char *text)
{
	char *path, *end;

	if (strncmp(text, "GET ", 4) != 0)
		return NULL;
	path = text + 4;
	end = path + strcspn(path, " ?\r\n");
	*end = '\0';
	return path;
}

static void
answer_request(int fd, char *request, http_answer *answer, void *ctx)
{
	const char *path = request_path(request);
	char *body = NULL, head[160];
	size_t length = 0;
	int status, count;
	FILE *file = open_memstream(&body, &length);

	if (file == NULL)
		return;
	status = path == NULL ? 405 : answer(ctx, path, file);
	if (status != 200 && ftell(file) == 0)
		(void)fprintf(file, "%s\n", reason(status));
	if (fclose(file) == 0) {
		count = snprintf(head, sizeof(head),
		    "HTTP/1.0 %d %s\r\n"
		    "Content-Type: text/plain; version=0.0.4\r\n"
		    "Content-Length: %zu\r\nConnection: close\r\n\r\n",
		    status, reason(status), length);
		send_all(fd, head, (size_t)count);
		send_all(fd, body, length);
	}
	free(body);
}

/* A close with unread bytes would be a reset, which may take the answer away
 * from the client: the end is told, and awaited. */
static void
connection_end(int fd)
{
	int64_t until_ms = wait_now_ms() + LIMIT_MS;
	char rest[REQUEST_MAX];

	if (shutdown(fd, SHUT_WR) != 0)
		return;
	while (wait_for(fd, POLLIN, until_ms) &&
	    recv(fd, rest, sizeof(rest), 0) > 0)
		;
}

void
http_serve(int listener, http_answer *answer, void *ctx)
{
	char request[REQUEST_MAX + 1];
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	/* Without a free descriptor it stays readable: that must not become a
	 * busy loop. */
	if (fd < 0) {
		(void)poll(NULL, 0, 50);
		return;
	}
	if (request_read(fd, request)) {
		answer_request(fd, request, answer, ctx);
		connection_end(fd);
	}
	(void)close(fd);
}
