/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ONE ROUND of the loop, in this order and for these reasons:
 *
 *   1. Wait for sockets, or until a queue that somebody waits for may have
 *      something.
 *   2. Read from all sockets that are ready, and run every whole request. Their
 *      replies stay in the connections' buffers.
 *   3. Try the takes that wait on queues that have changed or whose time has
 *      come: what has just been added is taken in the same transaction.
 *   4. Commit. If that fails, the replies of this round that depend on it
 *      become errors.
 *   5. Send.
 *
 * A connection that waits keeps its request at the beginning of its input, and
 * runs nothing else until that is answered. One whose answers are not read runs
 * nothing until they are, and is closed after a while.
 */
#include "modules/durable/server/server.h"

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hwt.h"
#include "modules/durable/server/queues.h"
#include "modules/durable/server/request.h"

#define EVENTS_MAX 256
#define READ_BYTES 65536
#define TIDY_NS (1000 * CLOCK_MS_NS)
#define OUTPUT_MAX ((size_t)64 << 20) /* and one answer */
#define OUTPUT_NS (10000 * CLOCK_MS_NS) /* in which some of it is read */
#define INPUT_UNKNOWN_MAX 4096 /* of a client before AUTH */
#define BUFFER_KEPT 65536 /* of an empty one */
#define PAYLOAD_DEFAULT 65536
#define LISTENERS_MAX 8
#define WAKE_STOP (-1)

struct buffer {
	char *bytes;
	size_t begin, end, room;
};

/* What epoll tells of. */
struct source {
	enum {
		SOURCE_WAKE,
		SOURCE_LISTENER,
		SOURCE_CONNECTION
	} kind;
	int fd;
};

struct connection {
	struct source source; /* first */
	struct link link; /* of all */
	struct connection *touched_next;
	struct buffer in, out;
	size_t need; /* so many bytes of input make a request, at least */
	/* Of out, what may be sent, whether the round commits or not; and how
	 * many replies follow. */
	size_t committed;
	size_t replies;
	uint64_t sent_ns; /* when some was sent, or it began to wait */
	uint32_t events; /* that epoll tells of */
	bool touched; /* in this round */
	bool held; /* requests wait until output was sent */
	bool closing; /* after what is to be sent */
	bool failed; /* at once */
	bool authenticated;
	/* While it waits in a take: */
	struct queue *waits_for;
	struct link wait;
	uint64_t wait_until_ns;
};

struct server {
	struct queues queues;
	char *password;
	size_t payload_max;
	int epoll;
	/* A pipe of numbers: descriptors to connect, or WAKE_STOP. Any thread
	 * writes to it, a signal handler too. */
	struct source wake;
	int wake_write;
	struct source listeners[LISTENERS_MAX];
	size_t listener_count;
	bool stopping; /* by the thread that runs it */
	bool uncertain; /* what the last command saw may yet be undone */
	bool broken; /* the store; nothing is sent any more */
	struct link all; /* connections */
	struct connection *touched;
	unsigned long connections;
	struct link awaited; /* queues that connections wait for */
	uint64_t tidy_ns; /* when it was done last */
	struct request request; /* the one that is being run */
};

/*
 * Buffers.
 */

static size_t
buffer_length(const struct buffer *buffer)
{
	return buffer->end - buffer->begin;
}

/* False: no memory. */
static bool
buffer_prepare(struct buffer *buffer, size_t more)
{
	size_t length = buffer_length(buffer);
	size_t room = 2 * (length + more);
	char *bytes = buffer->bytes;

	if (buffer->room - buffer->end >= more)
		return true;
	if (buffer->begin < more || buffer->begin < length)
		bytes = malloc(room);
	if (bytes == NULL)
		return false;
	if (length > 0)
		memmove(bytes, buffer->bytes + buffer->begin, length);
	if (bytes != buffer->bytes) {
		free(buffer->bytes);
		buffer->bytes = bytes;
		buffer->room = room;
	}
	buffer->begin = 0;
	buffer->end = length;
	return true;
}

static void
buffer_consume(struct buffer *buffer, size_t length)
{
	buffer->begin += length;
	if (buffer->begin < buffer->end)
		return;
	buffer->begin = buffer->end = 0;
	if (buffer->room > BUFFER_KEPT) {
		free(buffer->bytes);
		*buffer = (struct buffer){0};
	}
}

/*
 * Answers.
 */

static void
out_bytes(struct connection *connection, const void *bytes, size_t length)
{
	struct buffer *out = &connection->out;

	connection->failed |= !buffer_prepare(out, length);
	if (connection->failed)
		return;
	memcpy(out->bytes + out->end, bytes, length);
	out->end += length;
}

static void
answer_number(void *ctx, char mark, uint64_t number)
{
	char text[24], *at = text + sizeof(text);

	*--at = '\n';
	*--at = '\r';
	do
		*--at = (char)('0' + number % 10);
	while ((number /= 10) > 0);
	*--at = mark;
	out_bytes(ctx, at, (size_t)(text + sizeof(text) - at));
}

static void
answer_bytes(void *ctx, const void *bytes, size_t length)
{
	if (bytes == NULL) {
		out_bytes(ctx, "$-1\r\n", 5);
		return;
	}
	answer_number(ctx, '$', length);
	out_bytes(ctx, bytes, length);
	out_bytes(ctx, "\r\n", 2);
}

static void
answer_line(struct connection *connection, char mark, const char *text)
{
	out_bytes(connection, &mark, 1);
	out_bytes(connection, text, strlen(text));
	out_bytes(connection, "\r\n", 2);
}

static void
answer_error(void *ctx, const char *text)
{
	answer_line(ctx, '-', text);
}

static void
touch(struct server *server, struct connection *connection)
{
	if (connection->touched)
		return;
	connection->touched = true;
	connection->touched_next = server->touched;
	server->touched = connection;
}

/* The transaction of the round did not commit. */
static void
replace_replies(struct connection *connection)
{
	connection->out.end = connection->out.begin + connection->committed;
	for (; connection->replies > 0; connection->replies--)
		answer_error(connection, "FULL the disk is full");
}

/* The reply to a command is in the buffer. */
static void
count_reply(const struct server *server, struct connection *connection)
{
	if (connection->replies > 0 || server->uncertain)
		connection->replies++;
	else
		connection->committed = buffer_length(&connection->out);
}

/* Stores what has changed. All replies so far may be sent then, unless the
 * store is broken. */
static void
commit(struct server *server)
{
	enum store_error error;
	struct connection *each;

	if (server->broken)
		return;
	error = queues_commit(&server->queues);
	server->broken = error == STORE_BROKEN;
	for (each = server->touched; each; each = each->touched_next) {
		if (error == STORE_FULL)
			replace_replies(each);
		each->replies = 0;
		each->committed = buffer_length(&each->out);
	}
}

/*
 * Commands on a queue.
 */

static void
wait_begin(struct server *server, struct connection *connection,
    struct queue *queue, uint64_t block_ms)
{
	connection->waits_for = queue;
	if (list_is_empty(&queue->waiting))
		list_insert(&server->awaited, &queue->awaited);
	list_insert(&queue->waiting, &connection->wait);
	connection->wait_until_ns = block_ms == 0
	    ? UINT64_MAX
	    : clock_steady_ns() + block_ms * CLOCK_MS_NS;
}

static void
wait_end(struct server *server, struct connection *connection)
{
	struct queue *queue = connection->waits_for;

	list_remove(&connection->wait);
	if (list_is_empty(&queue->waiting))
		list_remove(&queue->awaited);
	connection->waits_for = NULL;
	queues_drop_unused(&server->queues, queue);
}

/* True: it was answered; false: it waits. */
static bool
run_on_queue(struct server *server, struct connection *connection,
    const struct command *command, bool final)
{
	const struct request *request = &server->request;
	const struct reply reply = {
	    connection, answer_number, answer_bytes, answer_error};
	struct call call = {
	    .argc = request->count - 2,
	    .argv = request->word + 2,
	    .reply = &reply,
	    .payload_max = server->payload_max,
	    .final = final,
	};
	const struct argument *name = &request->word[1];
	struct queue *queue;

	if (name->length == 0 || name->length > QUEUE_NAME_MAX) {
		answer_error(connection, "ARG a key has 1 to 130 bytes");
		return true;
	}
	queue = queues_get(&server->queues, name->bytes, name->length);
	if (queue == NULL) {
		answer_error(connection, "OOM no memory");
		return true;
	}
	queues_run(&server->queues, queue, command, &call);
	server->uncertain = queue->dirty;
	if (call.blocked && connection->waits_for == NULL)
		wait_begin(server, connection, queue, call.block_ms);
	queues_drop_unused(&server->queues, queue);
	return !call.blocked;
}

/*
 * The server's own commands.
 */

static bool
word_is(const struct server *server, size_t at, const char *word)
{
	return at < server->request.count &&
	    argument_is(&server->request.word[at], word);
}

static void
run_auth(struct server *server, struct connection *connection)
{
	const struct request *request = &server->request;
	const struct argument *given = &request->word[request->count - 1];

	if (request->count < 2 || request->count > 3)
		answer_error(connection, "ARG AUTH password");
	else if (server->password == NULL)
		answer_error(connection, "ERR no password is set");
	else if (!secret_is(server->password, given->bytes, given->length))
		answer_error(connection, "WRONGPASS the password is wrong");
	else {
		connection->authenticated = true;
		answer_line(connection, '+', "OK");
	}
}

static void
run_info(struct server *server, struct connection *connection)
{
	char text[200];
	int length = snprintf(text, sizeof(text),
	    "# Server\r\nhwtd_version:%s\r\nloading:0\r\n"
	    "# Clients\r\nconnected_clients:%lu\r\n"
	    "# Queues\r\nqueues:%zu\r\ndisk_full:%d\r\n",
	    hwt_version(), server->connections, server->queues.names.count,
	    server->queues.disk_full);

	answer_bytes(connection, text, (size_t)length);
}

/* HWT.QUEUES cursor count: [cursor, [name, ...]], all at once. Those that have
 * no rows may yet be undone. */
static void
run_queues(struct server *server, struct connection *connection)
{
	const struct request *request = &server->request;
	const struct queue *queue = NULL;
	uint64_t count;

	if (request->count != 3 || !word_is(server, 1, "0") ||
	    !argument_number(&request->word[2], 1, INT64_MAX, &count)) {
		answer_error(connection, "ARG HWT.QUEUES 0 count");
		return;
	}
	count = 0;
	while ((queue = queues_next(&server->queues, queue)) != NULL)
		count += queue->newest != 0;
	answer_number(connection, '*', 2);
	answer_bytes(connection, "0", 1);
	answer_number(connection, '*', count);
	while ((queue = queues_next(&server->queues, queue)) != NULL) {
		if (queue->newest != 0)
			answer_bytes(
			    connection, queue->name, queue->name_length);
	}
}

static void
run_backup(struct server *server, struct connection *connection)
{
	const struct argument *path = &server->request.word[1];
	struct store *store = server->queues.store;
	char text[200] = "ARG HWT.BACKUP path";

	if (server->request.count == 2) {
		/* What was answered must be in the copy. */
		commit(server);
		if (!server->broken &&
		    store_backup(store, path->bytes, path->length)) {
			answer_line(connection, '+', "OK");
			return;
		}
		(void)snprintf(text, sizeof(text), "ERR the copy: %s",
		    store_message(store));
	}
	answer_error(connection, text);
}

static void
run_own(struct server *server, struct connection *connection)
{
	const struct request *request = &server->request;

	if (word_is(server, 0, "HWT.QUEUES"))
		run_queues(server, connection);
	else if (word_is(server, 0, "HWT.BACKUP"))
		run_backup(server, connection);
	else if (word_is(server, 0, "INFO"))
		run_info(server, connection);
	else if (request->count > 1 &&
	    (word_is(server, 0, "PING") || word_is(server, 0, "ECHO")))
		answer_bytes(connection, request->word[1].bytes,
		    request->word[1].length);
	else if (word_is(server, 0, "PING"))
		answer_line(connection, '+', "PONG");
	else if (word_is(server, 0, "SELECT") && word_is(server, 1, "0"))
		answer_line(connection, '+', "OK");
	else if (word_is(server, 0, "SELECT"))
		answer_error(connection, "ARG there is database 0");
	else if ((connection->closing = word_is(server, 0, "QUIT")))
		answer_line(connection, '+', "OK");
	else
		answer_error(connection, "ERR unknown command");
}

/*
 * Requests.
 */

/* Runs the request that was parsed. False: it waits. */
static bool
run_request(struct server *server, struct connection *connection)
{
	const struct argument *word = &server->request.word[0];
	const struct command *command = NULL;

	server->uncertain = false;
	if (word->length > 4 && strncasecmp(word->bytes, "HWT.", 4) == 0)
		command = command_find(word->bytes + 4, word->length - 4);
	if (word_is(server, 0, "AUTH"))
		run_auth(server, connection);
	else if (word_is(server, 0, "HELLO"))
		/* Clients that begin with RESP3 fall back to RESP2. */
		answer_error(connection, "NOPROTO only RESP2 is spoken");
	else if (!connection->authenticated)
		answer_error(connection, "NOAUTH AUTH first");
	else if (command == NULL)
		run_own(server, connection);
	else if (server->request.count >= 2)
		return run_on_queue(server, connection, command, false);
	else
		answer_error(connection, "ARG a key is missing");
	return true;
}

/* Parses what the input begins with. */
static long
parse(struct server *server, struct connection *connection, const char **error)
{
	size_t given = buffer_length(&connection->in);
	long length;

	if (given < connection->need && given < REQUEST_BYTES_MAX)
		return 0;
	length = request_parse(&server->request,
	    connection->in.bytes + connection->in.begin, given, error);
	connection->need = length == 0 ? server->request.need : 0;
	return length;
}

/* Runs all whole requests of a connection, up to one that waits. */
static void
run_requests(struct server *server, struct connection *connection)
{
	const char *error;
	long length;

	touch(server, connection);
	connection->held = false;
	while (connection->waits_for == NULL && !connection->closing &&
	    !connection->failed) {
		connection->held = buffer_length(&connection->out) > OUTPUT_MAX;
		if (connection->held)
			return;
		length = parse(server, connection, &error);
		if (length == 0)
			return;
		if (length < 0) {
			answer_error(connection, error);
			count_reply(server, connection);
			connection->closing = true;
			return;
		}
		if (server->request.count > 0) {
			if (!run_request(server, connection))
				return;
			count_reply(server, connection);
		}
		buffer_consume(&connection->in, (size_t)length);
	}
}

/* Tries the take that a connection waits in. False: it goes on to wait. */
static bool
wait_try(struct server *server, struct connection *connection, bool final)
{
	const char *error;
	long length = parse(server, connection, &error);

	if (!run_on_queue(server, connection,
		command_find("TAKE", strlen("TAKE")), final))
		return false;
	count_reply(server, connection);
	wait_end(server, connection);
	buffer_consume(&connection->in, (size_t)length);
	run_requests(server, connection);
	return true;
}

static uint64_t
queue_wait_ms(struct queue *queue)
{
	return machine_wait_ms(queue->machine, clock_time(&queue->clock));
}

/* Serving one may put it at the end again, and removes no other. */
static void
serve_queue(struct server *server, struct queue *queue, uint64_t now_ns)
{
	bool ready = queue->changed || queue_wait_ms(queue) == 0;
	struct connection *connection;
	struct link *link, *next;
	bool final;

	queue->changed = false;
	queue->held = true;
	for (link = queue->waiting.next; link != &queue->waiting; link = next) {
		next = link->next;
		connection = container_of(link, struct connection, wait);
		final = connection->wait_until_ns <= now_ns;
		/* If there is nothing for one, there is nothing for those
		 * behind it. */
		if ((ready || final) && !wait_try(server, connection, final))
			ready = false;
	}
	queue->held = false;
	queues_drop_unused(&server->queues, queue);
}

static void
serve_waiting(struct server *server)
{
	uint64_t now_ns = clock_steady_ns();
	struct link *link, *next;

	for (link = server->awaited.next; link != &server->awaited;
	     link = next) {
		next = link->next;
		serve_queue(
		    server, container_of(link, struct queue, awaited), now_ns);
	}
}

/* Until a take that waits may get something, or its time is over, or until the
 * next tidying: for epoll. */
static int
wait_ms(struct server *server)
{
	uint64_t now_ns = clock_steady_ns();
	uint64_t least_ms = TIDY_NS / CLOCK_MS_NS, until_ns;
	struct link *link, *each;
	struct queue *queue;

	for (link = server->awaited.next; link != &server->awaited;
	     link = link->next) {
		queue = container_of(link, struct queue, awaited);
		least_ms = least(least_ms, queue_wait_ms(queue));
		for (each = queue->waiting.next; each != &queue->waiting;
		     each = each->next) {
			until_ns = container_of(each, struct connection, wait)
				       ->wait_until_ns;
			least_ms = least(least_ms,
			    until_ns > now_ns
				? (until_ns - now_ns) / CLOCK_MS_NS + 1
				: 0);
		}
	}
	return (int)least_ms;
}

/*
 * Connections.
 */

static void
connection_destroy(struct server *server, struct connection *connection)
{
	if (connection->waits_for != NULL)
		wait_end(server, connection);
	list_remove(&connection->link);
	server->connections--;
	/* A forked child may keep the socket open, and epoll watch it then. */
	(void)epoll_ctl(
	    server->epoll, EPOLL_CTL_DEL, connection->source.fd, NULL);
	(void)close(connection->source.fd);
	free(connection->in.bytes);
	free(connection->out.bytes);
	free(connection);
}

/* 0 or -errno. */
static int
watch(struct server *server, struct source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	return epoll_ctl(server->epoll, EPOLL_CTL_ADD, source->fd, &event) == 0
	    ? 0
	    : -errno;
}

static void
connection_create(struct server *server, int fd, bool trusted)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	if (connection == NULL) {
		(void)close(fd);
		return;
	}
	connection->source = (struct source){SOURCE_CONNECTION, fd};
	connection->authenticated = trusted || server->password == NULL;
	connection->events = EPOLLIN;
	list_insert(&server->all, &connection->link);
	server->connections++;
	if (watch(server, &connection->source, EPOLLIN) != 0)
		connection_destroy(server, connection);
}

/* Up to the last, since epoll tells only of the next one; and what is left, if
 * there are no descriptors, when the server is tidied. */
static void
accept_all(struct server *server, const struct source *listener)
{
	int fd;

	while ((fd = accept4(listener->fd, NULL, NULL,
		    SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
		connection_create(server, fd, false);
}

/* What other threads have written to the pipe. */
static void
take_wakes(struct server *server)
{
	int fd;

	while (read(server->wake.fd, &fd, sizeof(fd)) == sizeof(fd)) {
		if (fd == WAKE_STOP)
			server->stopping = true;
		else
			connection_create(server, fd, true);
	}
}

static void
connection_read(struct server *server, struct connection *connection)
{
	struct buffer *in = &connection->in;
	ssize_t length = 0;

	touch(server, connection);
	if (buffer_prepare(in, READ_BYTES))
		length = read(connection->source.fd, in->bytes + in->end,
		    in->room - in->end);
	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (length > 0)
		in->end += (size_t)length;
	/* One that waits may go on to send, up to the bound. */
	connection->failed |= length <= 0 ||
	    buffer_length(in) > (connection->authenticated ? REQUEST_BYTES_MAX
							   : INPUT_UNKNOWN_MAX);
	run_requests(server, connection);
}

static void
connection_send(struct server *server, struct connection *connection)
{
	struct buffer *out = &connection->out;
	struct epoll_event event = {.data.ptr = connection};
	ssize_t sent = 0;

	if (buffer_length(out) > 0 && !connection->failed)
		sent = send(connection->source.fd, out->bytes + out->begin,
		    buffer_length(out), MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent < 0 && errno != EAGAIN && errno != EINTR)
		connection->failed = true;
	if (sent > 0)
		buffer_consume(out, (size_t)sent);
	connection->committed = buffer_length(out);
	if (sent > 0 || !(connection->events & EPOLLOUT))
		connection->sent_ns = clock_steady_ns();
	if (connection->failed ||
	    (connection->closing && connection->committed == 0)) {
		connection_destroy(server, connection);
		return;
	}
	event.events = connection->held ? EPOLLOUT
	    : connection->committed > 0 ? EPOLLIN | EPOLLOUT
					: EPOLLIN;
	if (event.events == connection->events)
		return;
	connection->events = event.events;
	(void)epoll_ctl(
	    server->epoll, EPOLL_CTL_MOD, connection->source.fd, &event);
}

/*
 * The loop.
 */

static void
take_event(struct server *server, const struct epoll_event *event)
{
	struct source *source = event->data.ptr;
	struct connection *connection = event->data.ptr;

	if (source->kind == SOURCE_WAKE)
		take_wakes(server);
	else if (source->kind == SOURCE_LISTENER)
		accept_all(server, source);
	else if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		connection_read(server, connection);
	else
		run_requests(server, connection);
}

/* Each second. */
static void
tidy(struct server *server)
{
	uint64_t now_ns = clock_steady_ns();
	struct connection *each;
	struct link *link;
	size_t i;

	if (now_ns - server->tidy_ns < TIDY_NS)
		return;
	server->tidy_ns = now_ns;
	queues_tidy(&server->queues);
	for (i = 0; i < server->listener_count; i++)
		accept_all(server, &server->listeners[i]);
	for (link = server->all.next; link != &server->all; link = link->next) {
		each = container_of(link, struct connection, link);
		/* Others got these replies in this round. */
		if (each->committed == 0 || !(each->events & EPOLLOUT) ||
		    now_ns - each->sent_ns < OUTPUT_NS)
			continue;
		each->failed = true;
		touch(server, each);
	}
}

int
server_run(struct server *server, char why[200])
{
	struct epoll_event events[EVENTS_MAX];
	struct connection *connection;
	int i, count;

	while (!server->stopping) {
		count = epoll_wait(
		    server->epoll, events, EVENTS_MAX, wait_ms(server));
		for (i = 0; i < count; i++)
			take_event(server, &events[i]);
		serve_waiting(server);
		tidy(server);
		commit(server);
		if (server->broken) {
			(void)snprintf(why, 200, "the store: %s",
			    store_message(server->queues.store));
			return -EIO;
		}
		while ((connection = server->touched) != NULL) {
			server->touched = connection->touched_next;
			connection->touched = false;
			connection_send(server, connection);
		}
	}
	return 0;
}

/* A pipe takes so few bytes whole, or none. */
static int
wake(const struct server *server, int number)
{
	return write(server->wake_write, &number, sizeof(number)) > 0 ? 0
								      : -errno;
}

void
server_stop(struct server *server)
{
	(void)wake(server, WAKE_STOP);
}

int
server_connect(struct server *server, int fd)
{
	int error = wake(server, fd);

	if (error != 0)
		(void)close(fd);
	return error;
}

int
server_listen(struct server *server, int fd)
{
	struct source *listener = &server->listeners[server->listener_count];

	if (server->listener_count == LISTENERS_MAX) {
		(void)close(fd);
		return -ENOSPC;
	}
	*listener = (struct source){SOURCE_LISTENER, fd};
	server->listener_count++;
	return watch(server, listener, EPOLLIN | EPOLLET);
}

int
server_create(
    struct server **made, const struct server_options *options, char why[200])
{
	struct server *server = calloc(1, sizeof(*server));
	int error, ends[2] = {-1, -1};

	(void)snprintf(why, 200, "no memory or no file descriptor");
	if (server == NULL)
		return -ENOMEM;
	server->payload_max =
	    options->payload_max != 0 ? options->payload_max : PAYLOAD_DEFAULT;
	list_init(&server->all);
	list_init(&server->awaited);
	error = queues_open(&server->queues, options->folder, why);
	if (error != 0) {
		free(server);
		return error;
	}
	server->epoll = epoll_create1(EPOLL_CLOEXEC);
	(void)pipe2(ends, O_CLOEXEC | O_NONBLOCK);
	server->wake = (struct source){SOURCE_WAKE, ends[0]};
	server->wake_write = ends[1];
	server->password =
	    options->password != NULL ? strdup(options->password) : NULL;
	if (server->epoll < 0 || server->wake.fd < 0 ||
	    watch(server, &server->wake, EPOLLIN) != 0 ||
	    (options->password != NULL && server->password == NULL)) {
		server_destroy(server);
		return -ENOMEM;
	}
	*made = server;
	return 0;
}

void
server_destroy(struct server *server)
{
	take_wakes(server);
	while (!list_is_empty(&server->all))
		connection_destroy(server,
		    container_of(server->all.next, struct connection, link));
	queues_close(&server->queues);
	(void)close(server->epoll);
	(void)close(server->wake.fd);
	(void)close(server->wake_write);
	while (server->listener_count > 0)
		(void)close(server->listeners[--server->listener_count].fd);
	free(server->password);
	free(server);
}
