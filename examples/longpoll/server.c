/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: one thread, an event loop on epoll. A request that has to wait is
 * an operation with at_least under its topic's key; a post raises the key. The
 * operation's done, which the timer's thread may call, posts the connection to
 * the loop's mailbox, whose descriptor is in the same epoll, so that
 * connections belong to the loop alone.
 *
 * A client that vanishes cancels its operation. The connection is freed when it
 * comes out of the mailbox, which it does in any case.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hwt_purgatory.h>

#include "longpoll.h"

#define EVENTS 256

struct topic {
	char name[32];
	uint64_t messages;
	char last[MESSAGE_MAX];
};

struct connection {
	LIST_ENTRY(connection) entry;
	struct server *server;
	int fd;
	bool waiting; /* for the mailbox to bring it */
	bool gone; /* the client has vanished */
	hwt_operation operation;
	struct hwt_post post;
	enum hwt_outcome outcome; /* written before it is posted */
	struct topic *topic;
	size_t used;
	char request[REQUEST_MAX];
};

struct server {
	int listener, epoll;
	struct hwt *timer;
	struct hwt_purgatory *purgatory;
	struct hwt_mailbox *mailbox;
	struct topic topic[TOPICS];
	LIST_HEAD(, connection) connections;
	uint64_t waits;
};

static struct topic *
topic_of(struct server *server, const char *name)
{
	unsigned hash = 5381, i;
	const char *c;
	struct topic *topic;

	for (c = name; *c != '\0'; c++)
		hash = hash * 33 + (unsigned char)*c;
	for (i = 0; i < TOPICS; i++) {
		topic = &server->topic[(hash + i) % TOPICS];
		if (topic->name[0] == '\0')
			(void)snprintf(
			    topic->name, sizeof(topic->name), "%s", name);
		if (strcmp(topic->name, name) == 0)
			return topic;
	}
	return NULL;
}

static struct hwt_key
key_of(const struct server *server, const struct topic *topic)
{
	return (struct hwt_key){1, (uint64_t)(topic - server->topic)};
}

static void
connection_free(struct connection *connection)
{
	if (connection->fd >= 0)
		(void)close(connection->fd);
	LIST_REMOVE(connection, entry);
	free(connection);
}

/* The client has gone, or cannot be understood. */
static void
connection_drop(struct connection *connection)
{
	(void)close(connection->fd);
	connection->fd = -1;
	connection->gone = true;
	if (!connection->waiting)
		connection_free(connection);
	else
		/* -ENOENT: its end is in the mailbox already. */
		(void)hwt_operation_cancel(
		    connection->server->purgatory, connection->operation);
}

/* An answer fits into the socket's buffer, unless the client does not read. */
static void
answer(struct connection *connection, const char *status, const char *body)
{
	char text[1024];
	int length = snprintf(text, sizeof(text),
	    "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", status,
	    strlen(body), body);

	if (send(connection->fd, text, (size_t)length, MSG_NOSIGNAL) != length)
		(void)shutdown(connection->fd, SHUT_RDWR);
}

static void
answer_topic(struct connection *connection)
{
	const struct topic *topic = connection->topic;
	char body[MESSAGE_MAX + 32];

	(void)snprintf(body, sizeof(body), "%llu %s\n",
	    (unsigned long long)topic->messages, topic->last);
	answer(connection, "200 OK", body);
}

static void connection_requests(struct connection *connection);

/* On the loop's thread. */
static void
ended(struct hwt_post *post)
{
	struct connection *connection =
	    (void *)((char *)post - offsetof(struct connection, post));

	connection->waiting = false;
	if (connection->gone) {
		connection_free(connection);
		return;
	}
	if (connection->outcome == HWT_COMPLETED)
		answer_topic(connection);
	else if (connection->outcome == HWT_EXPIRED)
		answer(connection, "204 No Content", "");
	else
		answer(connection, "503 Service Unavailable", "");
	connection_requests(connection);
}

/* On the thread that decides: the loop's, or the timer's. */
static void
done(hwt_operation operation, void *arg, enum hwt_outcome outcome)
{
	struct connection *connection = arg;

	(void)operation;
	connection->outcome = outcome;
	(void)hwt_mailbox_post(
	    connection->server->mailbox, &connection->post, ended);
}

static void
get(struct connection *connection, uint64_t after, uint64_t wait_ms)
{
	struct server *server = connection->server;
	const struct hwt_key key = key_of(server, connection->topic);
	const struct hwt_operation_spec spec = {
	    .done = done,
	    .arg = connection,
	    .keys = &key,
	    .key_count = 1,
	    .at_least = after + 1,
	    .delay_ns = HWT_MS(wait_ms),
	};

	if (connection->topic->messages > after) {
		answer_topic(connection);
		return;
	}
	connection->waiting = true;
	if (hwt_purgatory_watch(
		server->purgatory, &connection->operation, &spec) < 0) {
		connection->waiting = false;
		answer(connection, "503 Service Unavailable", "");
		return;
	}
	/* Posts come from this thread alone: none has come since. */
	server->waits++;
}

static void
post(struct connection *connection, const char *body, size_t length)
{
	struct server *server = connection->server;
	struct topic *topic = connection->topic;

	topic->messages++;
	(void)snprintf(
	    topic->last, sizeof(topic->last), "%.*s", (int)length, body);
	(void)hwt_purgatory_raise(
	    server->purgatory, key_of(server, topic), topic->messages, NULL);
	answer_topic(connection);
}

static void
tell_stats(struct connection *connection)
{
	const struct server *server = connection->server;
	struct hwt_purgatory_stats stats;
	unsigned long long size = 0, resident = 0;
	FILE *statm = fopen("/proc/self/statm", "r");
	char body[400];

	if (statm != NULL) {
		if (fscanf(statm, "%llu %llu", &size, &resident) != 2)
			resident = 0;
		(void)fclose(statm);
	}
	(void)hwt_purgatory_read_stats(server->purgatory, &stats);
	(void)snprintf(body, sizeof(body),
	    "waits %llu pending %llu links %llu keys %llu completed %llu "
	    "expired %llu cancelled %llu rss %llu\n",
	    (unsigned long long)server->waits,
	    (unsigned long long)stats.pending, (unsigned long long)stats.links,
	    (unsigned long long)stats.keys, (unsigned long long)stats.completed,
	    (unsigned long long)stats.expired,
	    (unsigned long long)stats.cancelled,
	    resident * (unsigned long long)sysconf(_SC_PAGESIZE));
	answer(connection, "200 OK", body);
}

static uint64_t
parameter(const char *query, const char *name, uint64_t otherwise)
{
	const char *at = strstr(query, name);

	return at != NULL ? strtoull(at + strlen(name), NULL, 10) : otherwise;
}

/* One whole request; head is the text up to the empty line. */
static void
serve(
    struct connection *connection, char *head, const char *body, size_t length)
{
	char method[8], target[128];
	char *query;

	if (sscanf(head, "%7s /%127s", method, target) != 2) {
		answer(connection, "400 Bad Request", "");
		return;
	}
	if (strcmp(target, "_stats") == 0) {
		tell_stats(connection);
		return;
	}
	query = strchr(target, '?');
	if (query != NULL)
		*query++ = '\0';
	connection->topic = strlen(target) < sizeof(connection->topic->name)
	    ? topic_of(connection->server, target)
	    : NULL;
	if (connection->topic == NULL)
		answer(connection, "404 Not Found", "");
	else if (strcmp(method, "POST") == 0)
		post(connection, body, length);
	else if (strcmp(method, "GET") == 0)
		get(connection,
		    parameter(query != NULL ? query : "", "after=", 0),
		    parameter(query != NULL ? query : "", "wait_ms=", 30000));
	else
		answer(connection, "405 Method Not Allowed", "");
}

/* What has been read, up to a request that waits. */
static void
connection_requests(struct connection *connection)
{
	char *text = connection->request;
	char *end, *field;
	size_t length, whole;

	while (!connection->waiting) {
		text[connection->used] = '\0';
		end = strstr(text, "\r\n\r\n");
		if (end == NULL)
			return;
		*end = '\0';
		field = strcasestr(text, "\r\nContent-Length:");
		length = field != NULL ? strtoul(field + 17, NULL, 10) : 0;
		whole = (size_t)(end + 4 - text) + length;
		if (length >= REQUEST_MAX || whole > connection->used) {
			*end = '\r';
			return;
		}
		serve(connection, text, end + 4, length);
		connection->used -= whole;
		memmove(text, text + whole, connection->used);
	}
}

static void
connection_readable(struct connection *connection)
{
	size_t space = REQUEST_MAX - 1 - connection->used;
	ssize_t count = recv(connection->fd,
	    connection->request + connection->used, space, MSG_DONTWAIT);

	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* End, error, or a request that is too long. */
	if (count <= 0) {
		connection_drop(connection);
		return;
	}
	connection->used += (size_t)count;
	connection_requests(connection);
}

static void
server_accept(struct server *server)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
	struct connection *connection;
	int fd, on = 1;

	while ((fd = accept4(server->listener, NULL, NULL,
		    SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		connection = calloc(1, sizeof(*connection));
		if (connection == NULL) {
			(void)close(fd);
			return;
		}
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		connection->server = server;
		connection->fd = fd;
		LIST_INSERT_HEAD(&server->connections, connection, entry);
		event.data.ptr = connection;
		if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
			connection_free(connection);
	}
}

static bool
server_add(struct server *server, int fd, const void *as)
{
	struct epoll_event event = {
	    .events = EPOLLIN, .data.ptr = (void *)(uintptr_t)as};

	return epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static bool
server_listen(struct server *server, uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	    .sin_port = htons(port),
	    .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int on = 1;

	server->listener =
	    socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	return server->listener >= 0 &&
	    setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &on,
		sizeof(on)) == 0 &&
	    bind(server->listener, (struct sockaddr *)&address,
		sizeof(address)) == 0 &&
	    listen(server->listener, 4096) == 0;
}

struct server *
server_open(uint16_t port)
{
	const struct hwt_options ticks = {.tick_ns = HWT_MS(1)};
	struct server *server = calloc(1, sizeof(*server));

	if (server == NULL || !server_listen(server, port))
		return NULL;
	server->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (hwt_create(&server->timer, &ticks) != 0 ||
	    hwt_mailbox_create(&server->mailbox) != 0 ||
	    hwt_purgatory_create(&server->purgatory, server->timer, NULL) !=
		0 ||
	    !server_add(server, server->listener, &server->listener) ||
	    !server_add(
		server, hwt_mailbox_fd(server->mailbox), &server->mailbox))
		return NULL;
	return server;
}

uint16_t
server_port(const struct server *server)
{
	struct sockaddr_in address;
	socklen_t size = sizeof(address);

	if (getsockname(server->listener, (struct sockaddr *)&address, &size) !=
	    0)
		return 0;
	return ntohs(address.sin_port);
}

/* What is there then is served, and no more. */
static bool
server_over(struct server *server, int until_fd)
{
	(void)epoll_ctl(server->epoll, EPOLL_CTL_DEL, until_fd, NULL);
	return true;
}

/* The mailbox comes last: it frees connections, of which there may be events
 * in the same batch. */
void
server_run(struct server *server, int until_fd)
{
	struct epoll_event event[EVENTS];
	bool over = false, mail;
	int count, i;

	(void)server_add(server, until_fd, &server->purgatory);
	do {
		mail = false;
		count = epoll_wait(server->epoll, event, EVENTS, over ? 0 : -1);
		for (i = 0; i < count; i++) {
			if (event[i].data.ptr == &server->listener)
				server_accept(server);
			else if (event[i].data.ptr == &server->mailbox)
				mail = true;
			else if (event[i].data.ptr == &server->purgatory)
				over = server_over(server, until_fd);
			else
				connection_readable(event[i].data.ptr);
		}
		if (mail)
			(void)hwt_mailbox_run(server->mailbox, 0, NULL);
	} while (!over || count > 0);
}

bool
server_close(struct server *server)
{
	struct hwt_purgatory_stats stats;
	bool good;

	(void)!hwt_purgatory_shutdown(server->purgatory);
	(void)hwt_mailbox_run(server->mailbox, 0, NULL);
	/* None of them waits any more. */
	while (!LIST_EMPTY(&server->connections))
		connection_free(LIST_FIRST(&server->connections));
	(void)hwt_purgatory_read_stats(server->purgatory, &stats);
	good = stats.pending == 0 && stats.links == 0 && stats.keys == 0 &&
	    stats.completed + stats.expired + stats.cancelled +
		    stats.shut_down ==
		server->waits;
	good = hwt_purgatory_destroy(server->purgatory) == 0 && good;
	good = hwt_mailbox_destroy(server->mailbox) == 0 && good;
	good = hwt_stop(server->timer, NULL) == 0 && good;
	good = hwt_destroy(server->timer) == 0 && good;
	(void)close(server->listener);
	(void)close(server->epoll);
	free(server);
	return good;
}
