/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections. All on the loop.
 *
 *   closed --open--> opening --ROLE is answered--> ready
 *
 * connection_lose closes one that was ready: what was sent is uncertain.
 * connection_refuse closes another: nothing has happened to what waits.
 *
 * A MESSAGE is what is sent at once: commands, of which each has one place, or
 * for adds that begin alike several; and with options.replicas WAIT and ROLE.
 * It ends when all is answered, or the connection is lost; then each request
 * gets its part. A request that has no more time leaves its place empty, so
 * that the answers of others are still theirs.
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Of an answer. The longest one is that of a take of 240 payloads; its elements
 * are read one after the other, and are no longer than a payload. The most
 * elements has that of a cluster that names its slots. */
#define ANSWER_MAX ((size_t)256 << 20)
#define ELEMENT_MAX ((size_t)HWT_DURABLE_PAYLOAD_MAX + 65536)
#define ELEMENTS_MAX (1 << 20)
#define DEPTH_MAX 7 /* of arrays in arrays */
#define BYTES_MAX ((size_t)32 << 20) /* of a message, and of a command */
#define PAUSE_NS (50 * MS_NS)
#define FALL_NS HWT_SEC(10)

static void message_end(struct connection *connection, int error);

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

void
connection_close(struct connection *connection)
{
	unsigned i;

	connection->durable->flush = true;
	(void)!hwt_cancel(connection->durable->timer, connection->timer);
	connection->paused = false;
	/* A forked child may keep the socket open, and epoll watch it then. */
	if (connection->context != NULL)
		(void)epoll_ctl(connection->durable->epoll, EPOLL_CTL_DEL,
		    connection->context->fd, NULL);
	if (connection->context != NULL)
		redisFree(connection->context);
	connection->context = NULL;
	connection->ready = false;
	connection->auth = connection->role = connection->wait = false;
	connection->stale = false;
	for (i = 0; i < connection->sent; i++)
		freeReplyObject(connection->place[i].reply);
	connection->sent = connection->answered = 0;
}

/*
 * The queue.
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

void
connection_queue(struct connection *connection, struct request *request)
{
	request->connection = connection;
	request->next = NULL;
	*connection->last = request;
	connection->last = &request->next;
	connection->durable->flush = true;
}

/*
 * Ends, and pauses.
 */

/* To one of several servers, which stand in for each other. */
static bool
is_of_many(const struct connection *connection)
{
	const struct hwt_durable *durable = connection->durable;

	return durable->servers.kind >= SERVER_SENTINEL &&
	    connection->node != durable->finder.sentinel;
}

/* It cannot be used. An error that may pass is waited for. */
static void
connection_refuse(struct connection *connection, int error)
{
	bool passes = error == -EAGAIN ||
	    (error == -ECONNREFUSED && is_of_many(connection));
	struct request **at = &connection->first;

	connection_close(connection);
	node_lost(connection);
	passes = passes && connection_pause(connection);
	while (*at != NULL) {
		(*at)->error = error;
		if (passes && (*at)->node == NULL)
			at = &(*at)->next;
		else
			request_end(queue_remove(connection, at), error, NULL);
	}
}

/* error: of what was sent and is not answered. If what came is no answer, it
 * may have taken effect. */
static void
connection_lose(struct connection *connection, int error)
{
	if (connection->ready) {
		connection->stale = false;
		message_end(connection, error == -EPROTO ? -ETIMEDOUT : error);
		connection_close(connection);
		node_lost(connection);
	} else {
		connection_refuse(
		    connection, error == -ETIMEDOUT ? -ECONNREFUSED : error);
	}
}

bool
connection_forget(struct connection *connection, const struct request *request)
{
	const struct hwt_durable *durable = connection->durable;
	struct request **at = &connection->first;
	bool sent = false;
	unsigned i;

	for (i = 0; i < connection->sent; i++) {
		if (connection->place[i].request == request) {
			connection->place[i].request = NULL;
			sent = true;
		}
	}
	while (*at != NULL && *at != request)
		at = &(*at)->next;
	if (*at != NULL)
		(void)queue_remove(connection, at);
	if ((connection->sent > 0 || connection->role) &&
	    durable_now_ns(durable) - connection->heard_ns >=
		durable->timeout_ns)
		connection_lose(connection, -ETIMEDOUT);
	return sent;
}

static void
timer_ends(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;
	struct request *request = connection->first, *next;

	(void)timeout;
	if (!connection->paused) {
		connection_refuse(connection, -ECONNREFUSED);
		return;
	}
	connection->paused = false;
	connection->first = NULL;
	connection->last = &connection->first;
	for (; request != NULL; request = next) {
		next = request->next;
		connection_queue(node_route(request), request);
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

bool
connection_pause(struct connection *connection)
{
	bool opening = connection->context != NULL && !connection->ready;

	if (!connection->paused && !opening)
		connection->paused = timer_start(connection, PAUSE_NS) == 0;
	return connection->paused || opening;
}

/*
 * Opening.
 */

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

/* hiredis would allocate for any length at once, and some version of it has no
 * limit of depth. */
static void *
array_create(const redisReadTask *task, element_count elements)
{
	struct connection *connection = task->privdata;
	const redisReadTask *parent = task->parent;
	unsigned depth = 0;

	for (; parent != NULL; parent = parent->parent)
		depth++;
	connection->elements += (size_t)elements;
	return connection->elements > ELEMENTS_MAX || depth > DEPTH_MAX
	    ? NULL
	    : connection->create_array(task, elements);
}

/* NULL, or one that may have failed: then errno says why. */
static redisContext *
context_create(const struct connection *connection)
{
	const struct address *address = &connection->node->address;
	redisContext *context;
	int fd, error;

	errno = ENOMEM;
	if (connection->durable->servers.kind == SERVER_FILE) {
		error = embedded_connect(connection->durable, &fd);
		if (error != 0) {
			errno = -error;
			return NULL;
		}
		context = redisConnectFd(fd);
		if (context == NULL)
			(void)close(fd);
		else
			context->flags &= ~REDIS_BLOCK;
		return context;
	}
	return address->port == 0
	    ? redisConnectUnixNonBlock(address->host)
	    : redisConnectNonBlock(address->host, address->port);
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
	redisContext *context;

	if (!node_is_known(connection)) {
		(void)connection_pause(connection);
		return;
	}
	context = connection->context = context_create(connection);
	if (context == NULL || context->err != 0 ||
	    epoll_ctl(durable->epoll, EPOLL_CTL_ADD, context->fd, &event) !=
		0) {
		connection_refuse(connection,
		    context == NULL || errno == EMFILE ? -errno
						       : -ECONNREFUSED);
		return;
	}
	connection->functions = *context->reader->fn;
	connection->create_array = connection->functions.createArray;
	connection->functions.createArray = array_create;
	context->reader->fn = &connection->functions;
	context->reader->privdata = connection;
	connection->bytes = connection->elements = 0;
	(void)fcntl(context->fd, F_SETFD, FD_CLOEXEC);
	(void)setsockopt(
	    context->fd, SOL_SOCKET, SO_LINGER, &discard, sizeof(discard));
	connection->writing = connection->role = true;
	connection->auth = connection->node != durable->finder.sentinel &&
	    (durable->password != NULL || durable->user != NULL);
	if (connection->auth && durable->user != NULL)
		(void)redisAppendCommand(context, "AUTH %s %s", durable->user,
		    durable->password != NULL ? durable->password : "");
	else if (connection->auth)
		(void)redisAppendCommand(context, "AUTH %s", durable->password);
	(void)redisAppendCommand(context, "ROLE");
	connection->heard_ns = durable_now_ns(durable);
	/* So that there is time for another one. */
	(void)timer_start(connection,
	    is_of_many(connection) ? durable->timeout_ns / 3
				   : durable->timeout_ns);
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
		connection_lose(connection,
		    context->err == REDIS_ERR_OOM ? -ENOMEM : -ETIMEDOUT);
	} else if (connection->writing != !done) {
		connection->writing = !done;
		event.events |= done ? 0 : EPOLLOUT;
		(void)epoll_ctl(connection->durable->epoll, EPOLL_CTL_MOD,
		    context->fd, &event);
	}
}

/*
 * Replicas.
 */

/* How many an answer to ROLE names; -1: it is not a master's. */
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

static void
replicas_note(struct connection *connection, const redisReply *reply)
{
	struct node *node = connection->node;
	int wanted = connection->durable->replicas_wanted;
	uint64_t now_ns = durable_now_ns(connection->durable);

	node->replicas = read_replicas(reply);
	if (node->replicas == wanted)
		node->reached = true;
	if (node->replicas < wanted && node->reached)
		node->fell_ns = now_ns;
	connection->certain &= node->replicas == wanted &&
	    (node->fell_ns == 0 || now_ns - node->fell_ns >= FALL_NS);
}

/* One that a Sentinel still calls the master may be none any more. Others need
 * not know ROLE. */
static void
greeting_reply(struct connection *connection, redisReply *reply)
{
	const struct node *node = connection->node;
	const struct node *sentinel = connection->durable->finder.sentinel;
	int error = reply_judge(reply)->error;

	if (connection->auth) {
		connection->auth = false;
		if (error != 0 && error != -EAGAIN)
			error = -EACCES;
	} else {
		replicas_note(connection, reply);
		if (sentinel != NULL && node != sentinel && node->replicas < 0)
			error = -EAGAIN;
		else if (error != -EAGAIN)
			error = 0;
		connection->role = false;
		connection->ready = true;
		(void)!hwt_cancel(
		    connection->durable->timer, connection->timer);
	}
	freeReplyObject(reply);
	if (error != 0)
		connection_refuse(connection, error);
}

/*
 * Sending.
 */

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

static void
place_add(struct connection *connection, struct request *request, bool first)
{
	connection->place[connection->sent++] =
	    (struct place){.request = request,
		.tasks = request->tasks,
		.writes = request->writes,
		.asking = request->asking,
		.first = first};
	request->asking = false;
}

/* A command of one request, and of what can join it. Returns its length. */
static size_t
command_build(struct connection *connection, struct request *request)
{
	struct request **at = &connection->first, *other;
	redisContext *context = connection->context;
	unsigned i = connection->sent;
	size_t words = request->buffer.words, tasks = request->tasks;
	size_t bytes = request->buffer.length;
	char head[48];
	int length;

	length = snprintf(head, sizeof(head), "%s",
	    request->asking ? "*1\r\n$6\r\nASKING\r\n" : "");
	place_add(connection, request, true);
	while ((other = *at) != NULL && connection->sent < PLACES_MAX) {
		if (!may_join(request, other) ||
		    tasks + other->tasks > HWT_DURABLE_BATCH_MAX ||
		    bytes + other->buffer.length > BYTES_MAX) {
			at = &other->next;
			continue;
		}
		place_add(connection, queue_remove(connection, at), false);
		words += other->buffer.words - other->head_words;
		tasks += other->tasks;
		bytes += other->buffer.length;
	}
	length += snprintf(
	    head + length, sizeof(head) - (size_t)length, "*%zu\r\n", words);
	(void)redisAppendFormattedCommand(context, head, (size_t)length);
	(void)redisAppendFormattedCommand(
	    context, request->buffer.bytes, request->buffer.length);
	while (++i < connection->sent) {
		other = connection->place[i].request;
		(void)redisAppendFormattedCommand(context,
		    other->buffer.bytes + other->body_at,
		    other->buffer.length - other->body_at);
	}
	return bytes;
}

/* WAIT and ROLE behind what writes: WAIT ends well before the requests do; if
 * there are too few replicas, at once. ROLE alone, if writes were refused. */
static void
replicas_ask(struct connection *connection, bool refused)
{
	const struct hwt_durable *durable = connection->durable;
	uint64_t wait_ms = durable->timeout_ns / MS_NS / 2 + 1;
	unsigned i = 0;

	while (i < connection->sent && !connection->place[i].writes)
		i++;
	connection->wait = i < connection->sent && durable->replicas_wanted > 0;
	connection->role = connection->wait || refused;
	connection->certain = !connection->wait;
	if (connection->node->replicas != durable->replicas_wanted)
		wait_ms = 1;
	if (connection->wait)
		(void)redisAppendCommand(connection->context, "WAIT %d %llu",
		    durable->replicas_wanted, (unsigned long long)wait_ms);
	if (connection->role)
		(void)redisAppendCommand(connection->context, "ROLE");
}

void
connection_flush(struct connection *connection)
{
	const struct node *node = connection->node;
	int wanted = connection->durable->replicas_wanted;
	struct request *request;
	bool refused = false;
	size_t bytes = 0;

	if (connection->first == NULL || connection->paused ||
	    connection->sent > 0 || connection->role)
		return;
	if (connection->context == NULL)
		connection_open(connection);
	if (!connection->ready)
		return;
	connection->heard_ns = durable_now_ns(connection->durable);
	while (connection->first != NULL && connection->sent < PLACES_MAX &&
	    bytes < BYTES_MAX) {
		request = queue_remove(connection, &connection->first);
		if (request->buffer.failed) {
			request_end(request, -ENOMEM, NULL);
		} else if (request->writes && wanted > 0 &&
		    (!node->reached || node->replicas > wanted)) {
			request_end(request, -EOPNOTSUPP, NULL);
			refused = true;
		} else {
			bytes += command_build(connection, request);
		}
	}
	replicas_ask(connection, refused);
	connection_write(connection);
}

/*
 * Answers.
 */

/* A part of an answer to an add. False: it is none. */
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

/* A refusal may be about one of several requests alone: each is sent again by
 * itself. */
static void
command_end(
    struct connection *connection, unsigned first, unsigned end, int error)
{
	struct place *place = &connection->place[first];
	struct request *request = place->request;
	redisReply *reply = place->reply;
	bool refused = reply != NULL && reply->type == REDIS_REPLY_ERROR;
	size_t at = 0, tasks = 0;
	unsigned i;

	place->reply = NULL;
	if (reply != NULL && !refused && place->writes &&
	    !connection->certain) {
		freeReplyObject(reply);
		reply = NULL;
		error = -ETIMEDOUT;
	}
	if (reply != NULL && request != NULL && end == first + 1 &&
	    (refused || request->tasks == 0)) {
		request_answer(request, reply);
		return;
	}
	for (i = first; i < end; i++)
		tasks += connection->place[i].tasks;
	if (reply != NULL)
		error =
		    reply->type == REDIS_REPLY_ARRAY && reply->elements == tasks
		    ? 0
		    : -EPROTO;
	for (i = first; i < end; at += connection->place[i++].tasks) {
		request = connection->place[i].request;
		if (request == NULL)
			continue;
		request->alone = refused;
		if (refused)
			connection_queue(node_route(request), request);
		else if (error == 0 && !read_results(reply, at, request))
			request_end(request, -EPROTO, NULL);
		else
			request_end(request, error, NULL);
	}
	freeReplyObject(reply);
}

/* error: of what is not answered. */
static void
message_end(struct connection *connection, int error)
{
	unsigned first, end, count = connection->sent;

	for (first = 0; first < count; first = end) {
		end = first + 1;
		while (end < count && !connection->place[end].first)
			end++;
		command_end(connection, first, end, error);
	}
	connection->sent = connection->answered = 0;
	if (connection->stale)
		connection_refuse(connection, -EAGAIN);
}

static void
connection_reply(struct connection *connection, redisReply *reply)
{
	struct place *place = &connection->place[connection->answered];

	if (connection->answered < connection->sent && !place->asking) {
		place->reply = reply;
		reply = NULL;
		do
			connection->answered++;
		while (connection->answered < connection->sent &&
		    !connection->place[connection->answered].first);
	} else if (connection->answered < connection->sent) {
		place->asking = false;
	} else if (connection->wait) {
		connection->wait = false;
		connection->certain = reply->type == REDIS_REPLY_INTEGER &&
		    reply->integer >= connection->durable->replicas_wanted;
	} else if (connection->role) {
		connection->role = false;
		replicas_note(connection, reply);
	} else {
		/* Nobody has asked for it. */
		connection_lose(connection, -EPROTO);
	}
	freeReplyObject(reply);
	if (connection->sent > 0 && connection->answered == connection->sent &&
	    !connection->wait && !connection->role)
		message_end(connection, 0);
}

static void
connection_read(struct connection *connection)
{
	redisContext *context = connection->context;
	const redisReader *reader = context->reader;
	size_t before = reader->len;
	void *reply;

	if (redisBufferRead(context) != REDIS_OK) {
		connection_lose(connection, -ETIMEDOUT);
		return;
	}
	connection->bytes += reader->len - before;
	connection->heard_ns = durable_now_ns(connection->durable);
	while (connection->context == context) {
		if (redisGetReplyFromReader(context, &reply) != REDIS_OK ||
		    (reply == NULL &&
			(connection->bytes > ANSWER_MAX ||
			    reader->len - reader->pos > ELEMENT_MAX))) {
			connection_lose(connection, -EPROTO);
			return;
		}
		if (reply == NULL)
			return;
		connection->bytes = connection->elements = 0;
		if (!connection->ready)
			greeting_reply(connection, reply);
		else
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
