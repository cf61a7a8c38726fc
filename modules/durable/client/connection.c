/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and connections. All on the loop.
 *
 *   closed --connection_open--> greeting --message_end--> ready
 *     ^------------------connection_fail------------------'
 *
 * A MESSAGE is what is sent at once, and connection->place are the replies that
 * are to come, in their order. The first message of a connection asks who the
 * server is: AUTH and ROLE. Each other one has commands, of which adds that
 * begin alike are one; and with options.replicas WAIT and ROLE. It ends when
 * all is answered; then its requests are done. If the connection is lost
 * before, what was sent is uncertain. A request that has no more time leaves
 * its place empty, so that the answers of others are still theirs.
 *
 * REPLICAS. All that are connected must have what is acknowledged, since each
 * may become the next master. While there are more than are waited for, or
 * never were as many, nothing is written. While there are fewer than before,
 * one of them may be the master already: what is acknowledged then, or soon
 * after, may be known to nobody but a master that is about to lose it.
 */
#include "modules/durable/client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Of an answer. The longest one is that of a take of 240 payloads; its elements
 * are read one after the other, and are no longer than a payload. */
#define ANSWER_MAX ((size_t)256 << 20)
#define ELEMENT_MAX ((size_t)HWT_DURABLE_PAYLOAD_MAX + 65536)
#define BYTES_MAX ((size_t)32 << 20) /* of a message, and of a command */
#define PAUSE_NS (50 * MS_NS)
#define FALL_NS HWT_SEC(10)

static void connection_fail(struct connection *connection, int error);

void
connection_create(struct connection *connection, struct hwt_durable *durable,
    struct node *node)
{
	*connection = (struct connection){.durable = durable,
	    .link = durable->connections,
	    .node = node,
	    .last = &connection->first};
	durable->connections = connection;
}

void
connection_destroy(struct connection *connection)
{
	struct connection **at = &connection->durable->connections;

	connection_close(connection);
	while (*at != connection)
		at = &(*at)->link;
	*at = connection->link;
}

/*
 * Requests.
 */

static struct request *
queue_remove(struct connection *connection, struct request **at)
{
	struct request *request = *at;

	*at = request->next;
	if (connection->last == &request->next)
		connection->last = at;
	return request;
}

static void
request_route(struct request *request)
{
	struct connection *connection = node_route(request);

	request->connection = connection;
	request->next = NULL;
	*connection->last = request;
	connection->last = &request->next;
	connection->durable->flush = true;
}

static void
request_end(struct request *request, int error)
{
	struct hwt_durable *durable = request->durable;

	(void)!hwt_cancel(durable->timer, request->timeout);
	request->error = error;
	request->next = durable->ended;
	durable->ended = request;
	durable->flush = true;
}

/*
 * The end of a message or of a connection.
 */

/* error: of what is not answered. */
static void
message_end(struct connection *connection, int error)
{
	struct place *place = connection->place;
	struct request *request;

	for (; place < connection->place + connection->sent; place++) {
		request = place->request;
		if (request == NULL)
			continue;
		if (place->answered && request->error == 0 && request->writes &&
		    !connection->certain) {
			freeReplyObject(request->reply);
			request->reply = NULL;
			request->error = -ETIMEDOUT;
		}
		request_end(request, place->answered ? request->error : error);
	}
	connection->sent = connection->answered = 0;
}

void
connection_close(struct connection *connection)
{
	struct hwt_durable *durable = connection->durable;

	durable->flush = true;
	(void)!hwt_cancel(durable->timer, connection->timer);
	/* A forked child may keep the socket open, and epoll watch it then. */
	if (connection->context != NULL)
		(void)epoll_ctl(durable->epoll, EPOLL_CTL_DEL,
		    connection->context->fd, NULL);
	if (connection->context != NULL)
		redisFree(connection->context);
	connection->context = NULL;
	connection->ready = connection->paused = connection->stale = false;
	connection->sent = connection->answered = 0;
}

/* To one of several servers, which stand in for each other. */
static bool
is_of_many(const struct connection *connection)
{
	return connection->durable->servers.kind >= SERVER_SENTINEL &&
	    !connection->node->is_sentinel;
}

/* Of a pause: what waits is routed anew. Otherwise of an opening. */
static void
timer_ends(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;
	struct request *request = connection->first, *next;

	(void)timeout;
	if (!connection->paused) {
		connection_fail(connection, -ECONNREFUSED);
		return;
	}
	connection->paused = false;
	connection->first = NULL;
	connection->last = &connection->first;
	for (; request != NULL; request = next) {
		next = request->next;
		request_route(request);
	}
}

static int
timer_start(struct connection *connection, uint64_t delay_ns)
{
	struct hwt_durable *durable = connection->durable;

	return hwt_new_timeout_on(durable->timer,
	    hwt_mailbox_executor(durable->mailbox), &connection->timer,
	    timer_ends, connection, delay_ns);
}

/* What waits for a server that cannot be used. An error that may pass is waited
 * for, but not by the finder, which asks the next one. */
static void
queue_refuse(struct connection *connection, int error)
{
	struct request **at = &connection->first;

	connection->paused =
	    (error == -EAGAIN ||
		(error == -ECONNREFUSED && is_of_many(connection))) &&
	    timer_start(connection, PAUSE_NS) == 0;
	while (*at != NULL) {
		(*at)->error = error;
		if (connection->paused &&
		    *at != &connection->durable->finder.request)
			at = &(*at)->next;
		else
			request_end(queue_remove(connection, at), error);
	}
}

/* What was sent is uncertain. If the server cannot serve, or was not reached,
 * nothing has happened to what waits. */
static void
connection_fail(struct connection *connection, int error)
{
	bool ready = connection->ready;

	if (!ready && error == -ETIMEDOUT)
		error = -ECONNREFUSED;
	message_end(connection, error == -EPROTO ? -ETIMEDOUT : error);
	connection_close(connection);
	node_lost(connection->node);
	if (!ready || error == -EAGAIN)
		queue_refuse(connection, error);
}

/* What was sent may have been executed, and what was not is told by what has
 * kept it from that. A server that is silent is left. */
static void
request_late(hwt_timeout timeout, void *arg)
{
	struct request *request = arg;
	struct connection *connection = request->connection;
	struct request **at = &connection->first;
	int error = request->error != 0 ? request->error : -ECONNREFUSED;
	unsigned i;

	(void)timeout;
	while (*at != NULL && *at != request)
		at = &(*at)->next;
	if (*at != NULL)
		(void)queue_remove(connection, at);
	for (i = 0; i < connection->sent; i++) {
		if (connection->place[i].request == request) {
			connection->place[i].request = NULL;
			error = -ETIMEDOUT;
		}
	}
	freeReplyObject(request->reply); /* WAIT was not answered */
	request->reply = NULL;
	request_end(request, error);
	if (connection->sent > 0 &&
	    now_ns() - connection->heard_ns >= request->durable->timeout_ns)
		connection_fail(connection, -ETIMEDOUT);
}

void
request_start(struct hwt_durable *durable, struct request *request)
{
	int error;

	request->durable = durable;
	request->timeout = (hwt_timeout){0};
	request->error = 0;
	request->reply = NULL;
	error = hwt_new_timeout_on(durable->timer,
	    hwt_mailbox_executor(durable->mailbox), &request->timeout,
	    request_late, request,
	    request->timeout_ns != 0 ? request->timeout_ns
				     : durable->timeout_ns);
	if (error != 0)
		request_end(request, error);
	else
		request_route(request);
}

/*
 * Sending.
 */

static void
place_add(struct connection *connection, int kind, struct request *request)
{
	connection->place[connection->sent++] = (struct place){.kind = kind,
	    .request = request,
	    .tasks = request != NULL ? request->tasks : 0};
}

/* A command of the connection's own. */
static void
connection_ask(struct connection *connection, int kind, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	(void)redisvAppendCommand(connection->context, format, list);
	va_end(list);
	place_add(connection, kind, NULL);
}

/* Sends what is to be sent, and has epoll say when there is room for the rest.
 */
static void
connection_write(struct connection *connection)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
	redisContext *context = connection->context;
	int done = 0;

	if (context->err != 0 || redisBufferWrite(context, &done) != REDIS_OK) {
		connection_fail(connection,
		    context->err == REDIS_ERR_OOM ? -ENOMEM : -ETIMEDOUT);
	} else if (connection->writing != !done) {
		connection->writing = !done;
		event.events |= done ? 0 : EPOLLOUT;
		(void)epoll_ctl(connection->durable->epoll, EPOLL_CTL_MOD,
		    context->fd, &event);
	}
}

/* NULL, or one that may have failed: then errno says why. */
static redisContext *
context_create(const struct connection *connection)
{
	const struct address *address = &connection->node->address;
	redisContext *context;
	int fd;

	errno = ENOMEM;
	if (connection->durable->servers.kind != SERVER_FILE)
		return address->port == 0
		    ? redisConnectUnixNonBlock(address->host)
		    : redisConnectNonBlock(address->host, address->port);
	fd = embedded_connect(connection->durable->embedded);
	context = fd >= 0 ? redisConnectFd(fd) : NULL;
	if (context != NULL)
		context->flags &= ~REDIS_BLOCK;
	else if (fd >= 0)
		(void)close(fd);
	else
		errno = -fd;
	return context;
}

/* What waits to be sent when it is closed is thrown away: nobody is to execute
 * it later than its repetition. Commands wait until ROLE is answered: so one
 * that is not has not been sent to a server that was going away. */
static void
connection_open(struct connection *connection)
{
	struct hwt_durable *durable = connection->durable;
	const struct linger discard = {.l_onoff = 1};
	struct epoll_event event = {
	    .events = EPOLLIN | EPOLLOUT, .data.ptr = connection};
	const char *user = durable->user, *password = durable->password;
	redisContext *context;

	if (!node_is_known(connection->node)) {
		queue_refuse(connection, -ECONNREFUSED);
		return;
	}
	context = connection->context = context_create(connection);
	if (context == NULL || context->err != 0 ||
	    epoll_ctl(durable->epoll, EPOLL_CTL_ADD, context->fd, &event) !=
		0) {
		connection_fail(connection,
		    context == NULL || errno == EMFILE ? -errno
						       : -ECONNREFUSED);
		return;
	}
	(void)fcntl(context->fd, F_SETFD, FD_CLOEXEC);
	(void)setsockopt(
	    context->fd, SOL_SOCKET, SO_LINGER, &discard, sizeof(discard));
	connection->writing = true;
	connection->bytes = 0;
	if (user != NULL && !connection->node->is_sentinel)
		connection_ask(
		    connection, PLACE_AUTH, "AUTH %s %s", user, password);
	else if (password[0] != '\0' && !connection->node->is_sentinel)
		connection_ask(connection, PLACE_AUTH, "AUTH %s", password);
	connection_ask(connection, PLACE_ROLE, "ROLE");
	connection->heard_ns = now_ns();
	/* So that there is time for another one. */
	(void)timer_start(connection,
	    is_of_many(connection) ? durable->timeout_ns / 3
				   : durable->timeout_ns);
}

static bool
may_join(const struct request *command, const struct request *request)
{
	return command->tasks > 0 && request->tasks > 0 &&
	    !request->buffer.failed && !command->alone && !request->alone &&
	    !command->asking && !request->asking &&
	    command->body_at == request->body_at &&
	    memcmp(command->buffer.bytes, request->buffer.bytes,
		request->body_at) == 0;
}

/* A command of one request, and of what can join it. Returns its length. */
static size_t
command_build(struct connection *connection, struct request *request)
{
	struct request **at = &connection->first, *other;
	redisContext *context = connection->context;
	size_t words = request->buffer.words, tasks = request->tasks;
	size_t bytes = request->buffer.length;
	char head[24];
	unsigned i;
	int length;

	if (request->asking)
		connection_ask(connection, PLACE_OTHER, "ASKING");
	place_add(connection, PLACE_COMMAND, request);
	i = connection->sent;
	while ((other = *at) != NULL && connection->sent < PLACES_MAX) {
		if (!may_join(request, other) ||
		    tasks + other->tasks > HWT_DURABLE_BATCH_MAX ||
		    bytes + other->buffer.length > BYTES_MAX) {
			at = &other->next;
			continue;
		}
		place_add(
		    connection, PLACE_JOINED, queue_remove(connection, at));
		words += other->buffer.words - other->head_words;
		tasks += other->tasks;
		bytes += other->buffer.length;
	}
	request->asking = false;
	length = snprintf(head, sizeof(head), "*%zu\r\n", words);
	(void)redisAppendFormattedCommand(context, head, (size_t)length);
	(void)redisAppendFormattedCommand(
	    context, request->buffer.bytes, request->buffer.length);
	for (; i < connection->sent; i++) {
		other = connection->place[i].request;
		(void)redisAppendFormattedCommand(context,
		    other->buffer.bytes + other->body_at,
		    other->buffer.length - other->body_at);
	}
	return bytes;
}

void
connection_flush(struct connection *connection)
{
	const struct node *node = connection->node;
	int wanted = connection->durable->replicas_wanted;
	/* WAIT ends well before the requests do; if there are too few replicas,
	 * at once. */
	uint64_t wait_ms = node != NULL && node->replicas == wanted
	    ? connection->durable->timeout_ns / MS_NS / 2 + 1
	    : 1;
	struct request *request;
	bool writes = false, refused = false;
	size_t bytes = 0;

	if (connection->first == NULL || connection->paused ||
	    connection->sent > 0)
		return;
	if (connection->context == NULL) {
		connection_open(connection);
		return;
	}
	connection->heard_ns = now_ns();
	while (connection->first != NULL && bytes < BYTES_MAX &&
	    connection->sent < PLACES_MAX) {
		request = queue_remove(connection, &connection->first);
		if (request->buffer.failed) {
			request_end(request, -ENOMEM);
		} else if (request->writes && wanted > 0 &&
		    (!node->reached || node->replicas > wanted)) {
			request_end(request, -EOPNOTSUPP);
			refused = true;
		} else {
			writes |= request->writes;
			bytes += command_build(connection, request);
		}
	}
	writes &= wanted > 0;
	connection->certain = !writes;
	if (writes)
		connection_ask(connection, PLACE_WAIT, "WAIT %d %llu", wanted,
		    (unsigned long long)wait_ms);
	if (writes || refused)
		connection_ask(connection, PLACE_ROLE, "ROLE");
	connection_write(connection);
}

/*
 * Answers.
 */

/* How many replicas an answer to ROLE names; -1: it is not a master's. */
static int
read_replicas(const redisReply *reply)
{
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 ||
	    reply->element[0]->type != REDIS_REPLY_STRING ||
	    strcmp(reply->element[0]->str, "master") != 0 ||
	    reply->element[2]->type != REDIS_REPLY_ARRAY)
		return -1;
	return (int)reply->element[2]->elements;
}

/* The number of replicas is noted. At first, one that a Sentinel still calls
 * the master may be none any more; others need not know ROLE. */
static int
role_answer(struct connection *connection, const redisReply *reply)
{
	const struct hwt_durable *durable = connection->durable;
	struct node *node = connection->node;
	int wanted = durable->replicas_wanted;
	uint64_t now = now_ns();

	node->replicas = read_replicas(reply);
	if (node->replicas == wanted)
		node->reached = true;
	if (node->replicas < wanted && node->reached)
		node->fell_ns = now;
	connection->certain &= node->replicas == wanted &&
	    (node->fell_ns == 0 || now - node->fell_ns >= FALL_NS);
	if (connection->ready)
		return 0;
	return reply_error(reply) == -EAGAIN ||
		(node->replicas < 0 && node->is_master)
	    ? -EAGAIN
	    : 0;
}

/* A part of an answer to adds, of which so many elements are others'. False: it
 * is none. */
static bool
read_results(const redisReply *reply, size_t at, const struct request *request)
{
	const redisReply *element;
	size_t i;

	for (i = 0; i < request->tasks; i++) {
		element = reply->element[at + i];
		if (element->type != REDIS_REPLY_INTEGER ||
		    element->integer < 0 ||
		    element->integer > HWT_DURABLE_CANCELLED)
			return false;
		request->results[i] = (unsigned char)element->integer;
	}
	return true;
}

/* Of one request, which may have to be sent again. */
static void
request_answer(struct place *place, redisReply *reply)
{
	struct request *request = place->request;

	if (reply_asks_again(request, reply)) {
		freeReplyObject(reply);
		place->request = NULL;
		request_route(request);
		return;
	}
	place->answered = true;
	request->reply = reply;
	if (request->error == 0 && request->finds &&
	    !nodes_take(request, reply))
		request->error = -EPROTO;
}

/* Of adds, from the first one's place to the last one's. A refusal may be about
 * one of them alone: each is sent again by itself. */
static void
adds_answer(struct place *place, const struct place *end, redisReply *reply)
{
	bool refused = reply->type == REDIS_REPLY_ERROR, valid;
	size_t at = 0, tasks = 0;
	struct request *request;
	const struct place *each;

	for (each = place; each < end; each++)
		tasks += each->tasks;
	valid = reply->type == REDIS_REPLY_ARRAY && reply->elements == tasks;
	for (; place < end; at += place++->tasks) {
		request = place->request;
		if (request == NULL)
			continue;
		request->alone = refused;
		place->answered = true;
		if (refused) {
			place->request = NULL;
			request_route(request);
		} else if (!valid || !read_results(reply, at, request)) {
			request->error = -EPROTO;
		} else {
			request->error = 0;
		}
	}
	freeReplyObject(reply);
}

static void
command_answer(struct connection *connection, redisReply *reply)
{
	struct place *place = &connection->place[connection->answered];
	struct place *end = &connection->place[connection->sent];
	struct place *next = place + 1;

	while (next < end && next->kind == PLACE_JOINED)
		next++;
	connection->answered += (unsigned)(next - place) - 1;
	if (next > place + 1 ||
	    (place->tasks > 0 && reply->type != REDIS_REPLY_ERROR))
		adds_answer(place, next, reply);
	else if (place->request != NULL)
		request_answer(place, reply);
	else
		freeReplyObject(reply);
}

static void
connection_reply(struct connection *connection, redisReply *reply)
{
	const struct place *place = &connection->place[connection->answered];
	int error = 0;

	if (connection->sent == 0)
		error = -EPROTO; /* nobody has asked for it */
	else if (place->kind == PLACE_AUTH && reply_error(reply) != 0)
		error = reply_error(reply) == -EAGAIN ? -EAGAIN : -EACCES;
	else if (place->kind == PLACE_ROLE)
		error = role_answer(connection, reply);
	else if (place->kind == PLACE_WAIT)
		connection->certain = reply->type == REDIS_REPLY_INTEGER &&
		    reply->integer >= connection->durable->replicas_wanted;
	if (connection->sent > 0 && place->kind == PLACE_COMMAND)
		command_answer(connection, reply);
	else
		freeReplyObject(reply);
	if (error != 0) {
		connection_fail(connection, error);
		return;
	}
	if (++connection->answered < connection->sent)
		return;
	if (!connection->ready)
		(void)!hwt_cancel(
		    connection->durable->timer, connection->timer);
	connection->ready = true;
	message_end(connection, 0);
	if (connection->stale)
		connection_fail(connection, -EAGAIN);
}

static void
connection_read(struct connection *connection)
{
	redisContext *context = connection->context;
	const redisReader *reader = context->reader;
	size_t before = reader->len;
	void *reply = NULL;

	if (redisBufferRead(context) != REDIS_OK) {
		connection_fail(connection, -ETIMEDOUT);
		return;
	}
	connection->bytes += reader->len - before;
	connection->heard_ns = now_ns();
	while (connection->context != NULL) {
		if (redisGetReplyFromReader(context, &reply) != REDIS_OK ||
		    (reply == NULL &&
			(connection->bytes > ANSWER_MAX ||
			    reader->len - reader->pos > ELEMENT_MAX))) {
			connection_fail(connection, -EPROTO);
			return;
		}
		if (reply == NULL)
			return;
		connection->bytes = 0;
		connection_reply(connection, reply);
	}
}

void
connection_event(struct connection *connection, uint32_t events)
{
	if (connection->context != NULL && (events & EPOLLOUT))
		connection_write(connection);
	if (connection->context != NULL && (events & ~EPOLLOUT))
		connection_read(connection);
}
