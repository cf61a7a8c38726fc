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
#include <inttypes.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hwt_purgatory.h>

#include "../must.h"
#include "longpoll.h"

enum {
	EVENTS = 256,
	TOPICS = 1024,
	MESSAGE_MAX = 200,
	REQUEST_MAX = 1024
};

struct topic {
	char name[32];
	uint64_t messages;
	char last[MESSAGE_MAX];
};

struct connection {
	LIST_ENTRY(connection) entry;
	int fd; /* -1: the client has vanished */
	bool waiting; /* for the mailbox to bring it */
	hwt_operation operation;
	struct hwt_post post;
	enum hwt_outcome outcome; /* written before it is posted */
	struct topic *topic;
	size_t used;
	char request[REQUEST_MAX];
};

static int listener, epoll, until;
static struct hwt *timer;
static struct hwt_purgatory *purgatory;
static struct hwt_mailbox *mailbox;
static struct topic topics[TOPICS];
static LIST_HEAD(, connection) connections;
static uint64_t waits;

static void serve_requests(struct connection *connection);

static struct topic *
topic_of(const char *name)
{
	struct topic *topic;

	if (strlen(name) >= sizeof(topic->name))
		return NULL;
	for (topic = topics; topic < topics + TOPICS; topic++) {
		if (topic->name[0] == '\0')
			(void)strcpy(topic->name, name);
		if (strcmp(topic->name, name) == 0)
			return topic;
	}
	return NULL;
}

static struct hwt_key
key_of(const struct topic *topic)
{
	return (struct hwt_key){1, (uint64_t)(topic - topics)};
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
	if (!connection->waiting)
		connection_free(connection);
	else
		/* -ENOENT: it is in the mailbox already. */
		(void)hwt_operation_cancel(purgatory, connection->operation);
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

static const char *
stats_text(void)
{
	static char text[400];
	struct hwt_purgatory_stats stats;

	(void)hwt_purgatory_read_stats(purgatory, &stats);
	(void)snprintf(text, sizeof(text),
	    "waits %" PRIu64 " pending %" PRIu64 " links %" PRIu64
	    " keys %" PRIu64 " completed %" PRIu64 " expired %" PRIu64
	    " cancelled %" PRIu64 "\n",
	    waits, stats.pending, stats.links, stats.keys, stats.completed,
	    stats.expired, stats.cancelled);
	return text;
}

/* On the loop's thread. */
static void
ended(struct hwt_post *post)
{
	struct connection *connection =
	    (void *)((char *)post - offsetof(struct connection, post));

	connection->waiting = false;
	if (connection->fd < 0) {
		connection_free(connection);
		return;
	}
	if (connection->outcome == HWT_COMPLETED)
		answer_topic(connection);
	else if (connection->outcome == HWT_EXPIRED)
		answer(connection, "204 No Content", "");
	else
		answer(connection, "503 Service Unavailable", "");
	serve_requests(connection);
}

/* On the thread that decides: the loop's, or the timer's. */
static void
done(hwt_operation operation, void *arg, enum hwt_outcome outcome)
{
	struct connection *connection = arg;

	(void)operation;
	connection->outcome = outcome;
	(void)hwt_mailbox_post(mailbox, &connection->post, ended);
}

static void
serve_get(struct connection *connection, uint64_t after, uint64_t wait_ms)
{
	const struct hwt_key key = key_of(connection->topic);
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
	/* Posts come from this thread alone: none comes meanwhile. */
	if (hwt_purgatory_watch(purgatory, &connection->operation, &spec) < 0) {
		answer(connection, "503 Service Unavailable", "");
		return;
	}
	connection->waiting = true;
	waits++;
}

static void
serve_post(struct connection *connection, const char *body, size_t length)
{
	struct topic *topic = connection->topic;

	topic->messages++;
	(void)snprintf(
	    topic->last, sizeof(topic->last), "%.*s", (int)length, body);
	(void)hwt_purgatory_raise(
	    purgatory, key_of(topic), topic->messages, NULL);
	answer_topic(connection);
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
	char method[8], target[128], query[128] = "";

	if (sscanf(head, "%7s /%127[^? ]%127s", method, target, query) < 2)
		answer(connection, "400 Bad Request", "");
	else if (strcmp(target, "_stats") == 0)
		answer(connection, "200 OK", stats_text());
	else if ((connection->topic = topic_of(target)) == NULL)
		answer(connection, "404 Not Found", "");
	else if (strcmp(method, "POST") == 0)
		serve_post(connection, body, length);
	else if (strcmp(method, "GET") == 0)
		serve_get(connection, parameter(query, "after=", 0),
		    parameter(query, "wait_ms=", 30000));
	else
		answer(connection, "405 Method Not Allowed", "");
}

/* Those that have been read, up to one that waits. */
static void
serve_requests(struct connection *connection)
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
	ssize_t count = recv(
	    connection->fd, connection->request + connection->used, space, 0);

	/* End, error, or a request that is too long. */
	if (count <= 0) {
		connection_drop(connection);
		return;
	}
	connection->used += (size_t)count;
	serve_requests(connection);
}

static void
listen_to(int fd, void *as)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = as};

	must(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void
accept_all(void)
{
	struct connection *connection;
	int fd;

	while ((fd = accept4(
		    listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		connection = calloc(1, sizeof(*connection));
		must(connection != NULL);
		connection->fd = fd;
		LIST_INSERT_HEAD(&connections, connection, entry);
		listen_to(fd, connection);
	}
}

uint16_t
server_open(uint16_t port)
{
	const struct hwt_options ticks = {.tick_ns = HWT_MS(1)};
	struct sockaddr_in address = {.sin_family = AF_INET,
	    .sin_port = htons(port),
	    .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t size = sizeof(address);
	int on = 1;

	listener =
	    socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	(void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	must(bind(listener, (struct sockaddr *)&address, size) == 0);
	must(listen(listener, 4096) == 0);
	must(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	must(hwt_create(&timer, &ticks) == 0);
	must(hwt_mailbox_create(&mailbox) == 0);
	must(hwt_purgatory_create(&purgatory, timer, NULL) == 0);
	listen_to(listener, &listener);
	listen_to(hwt_mailbox_fd(mailbox), &mailbox);
	return ntohs(address.sin_port);
}

/* Requests that are there when the end comes are still served: until nothing
 * else is ready. The mailbox is last: it frees connections, which may have
 * events in the same batch. */
void
server_run(int until_fd)
{
	struct epoll_event event[EVENTS];
	bool over = false;
	int count, i;

	listen_to(until_fd, &until);
	do {
		count = epoll_wait(epoll, event, EVENTS, -1);
		for (i = 0; i < count; i++) {
			if (event[i].data.ptr == &listener)
				accept_all();
			else if (event[i].data.ptr == &until)
				over = true;
			else if (event[i].data.ptr != &mailbox)
				connection_readable(event[i].data.ptr);
		}
		(void)hwt_mailbox_run(mailbox, 0, NULL);
	} while (!over || count > 1);
}

bool
server_close(void)
{
	struct hwt_purgatory_stats stats;
	uint64_t sum;

	must(hwt_purgatory_shutdown(purgatory) == 0);
	(void)hwt_mailbox_run(mailbox, 0, NULL);
	/* None of them waits any more. */
	while (!LIST_EMPTY(&connections))
		connection_free(LIST_FIRST(&connections));
	(void)hwt_purgatory_read_stats(purgatory, &stats);
	must(hwt_purgatory_destroy(purgatory) == 0);
	must(hwt_stop(timer, NULL) == 0);
	must(hwt_mailbox_destroy(mailbox) == 0);
	must(hwt_destroy(timer) == 0);
	sum =
	    stats.completed + stats.expired + stats.cancelled + stats.shut_down;
	return stats.pending + stats.links + stats.keys == 0 && sum == waits;
}
