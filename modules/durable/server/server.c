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
 *   4. Commit. If that fails, the replies of this round become errors.
 *   5. Send.
 *
 * A connection that waits keeps its request at the beginning of its input, and
 * runs nothing else until that is answered.
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
#define READ_BYTES 262144
#define TIDY_NS UINT64_C(1000000000)
/* A client that does not read its answers. */
#define OUTPUT_MAX ((size_t)256 << 20)
#define BUFFER_KEPT 65536 /* of an empty one */
#define PAYLOAD_DEFAULT 65536
#define LISTENERS_MAX 8
#define WAKE_STOP (-1)

struct buffer {
	char *bytes;
	size_t begin, end, room;
};

enum source_kind {
	SOURCE_WAKE,
	SOURCE_LISTENER,
	SOURCE_CONNECTION
};

/* What epoll tells of. */
struct source {
	enum source_kind kind;
	int fd;
};

struct connection {
	struct source source; /* first */
	struct connection *next, *prev; /* all */
	struct connection *touched_next;
	struct buffer in, out;
	/* Of out, what may be sent; and how many replies follow. */
	size_t committed;
	size_t replies;
	bool touched; /* in this round */
	bool closing; /* after what is to be sent */
	bool failed; /* at once */
	bool authenticated;
	bool sees_output; /* epoll waits until it can be sent to */
	/* While it waits in a take: */
	struct queue *waits_for;
	struct connection *wait_next, *wait_prev;
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
	bool broken; /* the store; nothing is sent any more */
	struct connection *first, *touched;
	struct queue *waited; /* all that somebody waits for */
	uint64_t tidy_ns; /* when it was done last */
	struct request request; /* the one that is being run */
};

/* False: no memory. */
static bool
buffer_prepare(struct buffer *buffer, size_t more)
{
	size_t length = buffer->end - buffer->begin;
	size_t room = 2 * (length + more);
	char *bytes;

	if (buffer->room - buffer->end >= more)
		return true;
	if (buffer->begin >= more && buffer->begin >= length) {
		memmove(buffer->bytes, buffer->bytes + buffer->begin, length);
	} else {
		bytes = malloc(room);
		if (bytes == NULL)
			return false;
		if (length > 0)
			memcpy(bytes, buffer->bytes + buffer->begin, length);
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

/* Output is appended behind begin; committed counts from begin. */
static void
out_bytes(struct connection *connection, const void *bytes, size_t length)
{
	struct buffer *out = &connection->out;

	if (connection->failed)
		return;
	if (out->end - out->begin + length > OUTPUT_MAX ||
	    !buffer_prepare(out, length)) {
		connection->failed = true;
		return;
	}
	memcpy(out->bytes + out->end, bytes, length);
	out->end += length;
}

static void
out_number(struct connection *connection, char mark, uint64_t number)
{
	char text[32];
	int length = snprintf(
	    text, sizeof(text), "%c%llu\r\n", mark, (unsigned long long)number);

	out_bytes(connection, text, (size_t)length);
}

static void
answer_array(void *ctx, size_t count)
{
	out_number(ctx, '*', count);
}

static void
answer_number(void *ctx, uint64_t number)
{
	out_number(ctx, ':', number);
}

static void
answer_bytes(void *ctx, const void *bytes, size_t length)
{
	out_number(ctx, '$', length);
	out_bytes(ctx, bytes, length);
	out_bytes(ctx, "\r\n", 2);
}

static void
answer_null(void *ctx)
{
	out_bytes(ctx, "$-1\r\n", 5);
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
answer_text(struct connection *connection, const char *text)
{
	answer_bytes(connection, text, strlen(text));
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

/*
 * Waiting.
 */

static void
wait_begin(struct server *server, struct connection *connection,
    struct queue *queue, uint64_t block_ms)
{
	struct connection *last;

	connection->waits_for = queue;
	connection->wait_next = NULL;
	connection->wait_until_ns = block_ms == 0
	    ? UINT64_MAX
	    : clock_steady_ns() + block_ms * CLOCK_MS_NS;
	if (queue->waiting == NULL) {
		connection->wait_prev = connection;
		queue->waiting = connection;
		queue->waited_prev = NULL;
		queue->waited_next = server->waited;
		if (server->waited != NULL)
			server->waited->waited_prev = queue;
		server->waited = queue;
		return;
	}
	/* The first has the last as its prev. */
	last = queue->waiting->wait_prev;
	last->wait_next = connection;
	connection->wait_prev = last;
	queue->waiting->wait_prev = connection;
}

static void
wait_end(struct server *server, struct connection *connection)
{
	struct queue *queue = connection->waits_for;
	struct connection *after = connection->wait_next;

	if (queue->waiting == connection)
		queue->waiting = after;
	else
		connection->wait_prev->wait_next = after;
	if (after == NULL)
		after = queue->waiting;
	if (after != NULL)
		after->wait_prev = connection->wait_prev;
	connection->waits_for = NULL;
	if (queue->waiting != NULL)
		return;
	if (queue->waited_prev != NULL)
		queue->waited_prev->waited_next = queue->waited_next;
	else
		server->waited = queue->waited_next;
	if (queue->waited_next != NULL)
		queue->waited_next->waited_prev = queue->waited_prev;
}

/*
 * Requests.
 */

static struct reply
reply_to(struct connection *connection)
{
	return (struct reply){connection, answer_array, answer_number,
	    answer_bytes, answer_null, answer_error};
}

/* True: it was answered; false: it waits. */
static bool
run_on_queue(struct server *server, struct connection *connection,
    const struct command *command, bool final)
{
	const struct request *request = &server->request;
	const struct reply reply = reply_to(connection);
	struct call call = {
	    .argc = request->count - 2,
	    .argv = request->word + 2,
	    .reply = &reply,
	    .payload_max = server->payload_max,
	    .final = final,
	};
	const struct argument *name = &request->word[1];
	struct queue *queue;

	if (name->length == 0 || name->length > 130) {
		answer_error(connection, "ARG a key has 1 to 130 bytes");
		return true;
	}
	queue = queues_get(&server->queues, name->bytes, name->length);
	if (queue == NULL) {
		answer_error(connection, "OOM no memory");
		return true;
	}
	queues_run(&server->queues, queue, command, &call);
	if (call.blocked) {
		if (connection->waits_for == NULL)
			wait_begin(server, connection, queue, call.block_ms);
		return false;
	}
	queues_drop_unused(&server->queues, queue);
	return true;
}

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
	const struct connection *of;
	const struct queue *queue;
	unsigned long clients = 0, queues = 0, tasks = 0;
	char text[256];

	for (of = server->first; of != NULL; of = of->next)
		clients++;
	for (queue = server->queues.first; queue; queue = queue->next) {
		queues++;
		tasks += queue->machine->records.count;
	}
	(void)snprintf(text, sizeof(text),
	    "# Server\r\nhwtd_version:%s\r\nloading:0\r\n"
	    "# Clients\r\nconnected_clients:%lu\r\n"
	    "# Queues\r\nqueues:%lu\r\ntasks:%lu\r\ndisk_full:%d\r\n",
	    hwt_version(), clients, queues, tasks, server->queues.disk_full);
	answer_text(connection, text);
}

/* HWT.QUEUES cursor count: all at once, with the cursor 0. */
static void
run_queues(struct server *server, struct connection *connection)
{
	const struct queue *queue;
	size_t count = 0;

	for (queue = server->queues.first; queue; queue = queue->next)
		count += queue->number != 0;
	answer_array(connection, 2);
	answer_text(connection, "0");
	answer_array(connection, count);
	for (queue = server->queues.first; queue; queue = queue->next) {
		if (queue->number != 0)
			answer_bytes(
			    connection, queue->name, queue->name_length);
	}
}

/* The transaction of the round did not commit. */
static void
replace_replies(struct connection *connection)
{
	connection->out.end = connection->out.begin + connection->committed;
	for (; connection->replies > 0; connection->replies--)
		answer_error(connection, "FULL the disk is full");
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
		each->committed = each->out.end - each->out.begin;
	}
}

static void
run_backup(struct server *server, struct connection *connection)
{
	const struct request *request = &server->request;
	char path[4096];
	int error;

	if (request->count != 2 || request->word[1].length >= sizeof(path) ||
	    memchr(request->word[1].bytes, 0, request->word[1].length)) {
		answer_error(connection, "ARG HWT.BACKUP path");
		return;
	}
	memcpy(path, request->word[1].bytes, request->word[1].length);
	path[request->word[1].length] = '\0';
	/* What was answered must be in the copy. */
	commit(server);
	error =
	    server->broken ? -EIO : store_backup(server->queues.store, path);
	if (error == 0)
		answer_line(connection, '+', "OK");
	else
		answer_error(connection,
		    error == -EEXIST ? "ARG the file is there already"
				     : "ERR the copy could not be written");
}

/* What clients of Redis send by themselves. False: it is none of these. */
static bool
run_common(struct server *server, struct connection *connection)
{
	const struct request *request = &server->request;

	if (word_is(server, 0, "PING") || word_is(server, 0, "ECHO")) {
		if (request->count > 1)
			answer_bytes(connection, request->word[1].bytes,
			    request->word[1].length);
		else
			answer_line(connection, '+', "PONG");
	} else if (word_is(server, 0, "INFO")) {
		run_info(server, connection);
	} else if (word_is(server, 0, "SELECT")) {
		if (word_is(server, 1, "0"))
			answer_line(connection, '+', "OK");
		else
			answer_error(connection, "ARG there is database 0");
	} else if (word_is(server, 0, "CLIENT")) {
		answer_line(connection, '+', "OK");
	} else if (word_is(server, 0, "COMMAND")) {
		answer_array(connection, 0);
	} else if (word_is(server, 0, "QUIT")) {
		answer_line(connection, '+', "OK");
		connection->closing = true;
	} else {
		return false;
	}
	return true;
}

static const struct command *
command_of(const struct request *request)
{
	const struct argument *word = &request->word[0];

	if (word->length < 4 || strncasecmp(word->bytes, "HWT.", 4) != 0)
		return NULL;
	return command_find(word->bytes + 4, word->length - 4);
}

/* Runs the request that was parsed. False: it waits. */
static bool
run_request(struct server *server, struct connection *connection)
{
	const struct command *command = command_of(&server->request);

	if (word_is(server, 0, "AUTH"))
		run_auth(server, connection);
	else if (word_is(server, 0, "HELLO"))
		/* Clients that begin with RESP3 fall back to RESP2. */
		answer_error(connection, "NOPROTO only RESP2 is spoken");
	else if (!connection->authenticated)
		answer_error(connection, "NOAUTH AUTH first");
	else if (command != NULL && server->request.count >= 2)
		return run_on_queue(server, connection, command, false);
	else if (command != NULL)
		answer_error(connection, "ARG a key is missing");
	else if (word_is(server, 0, "HWT.QUEUES"))
		run_queues(server, connection);
	else if (word_is(server, 0, "HWT.BACKUP"))
		run_backup(server, connection);
	else if (!run_common(server, connection))
		answer_error(connection, "ERR unknown command");
	return true;
}

/* Runs all whole requests of a connection, up to one that waits. */
static void
run_requests(struct server *server, struct connection *connection)
{
	struct buffer *in = &connection->in;
	const char *error;
	long length;

	touch(server, connection);
	while (connection->waits_for == NULL && !connection->closing &&
	    !connection->failed) {
		length = request_parse(&server->request, in->bytes + in->begin,
		    in->end - in->begin, &error);
		if (length == 0)
			return;
		if (length < 0) {
			answer_error(connection, error);
			connection->replies++;
			connection->closing = true;
			return;
		}
		if (server->request.count > 0) {
			if (!run_request(server, connection))
				return;
			connection->replies++;
		}
		buffer_consume(in, (size_t)length);
	}
}

/* Tries the take that a connection waits in. False: it goes on to wait. */
static bool
wait_try(struct server *server, struct connection *connection, bool final)
{
	struct buffer *in = &connection->in;
	const char *error;
	long length = request_parse(&server->request, in->bytes + in->begin,
	    in->end - in->begin, &error);

	if (!run_on_queue(server, connection,
		command_find("TAKE", strlen("TAKE")), final))
		return false;
	wait_end(server, connection);
	connection->replies++;
	buffer_consume(in, (size_t)length);
	run_requests(server, connection);
	return true;
}

static void
serve_queue(struct server *server, struct queue *queue, uint64_t now_ns)
{
	struct connection *connection, *next;
	bool ready = queue->looked_at ||
	    machine_wait_ms(queue->machine, clock_time(&queue->clock)) == 0;

	queue->looked_at = false;
	while (ready && (connection = queue->waiting) != NULL)
		ready = wait_try(server, connection, false);
	for (connection = queue->waiting; connection; connection = next) {
		next = connection->wait_next;
		if (connection->wait_until_ns <= now_ns)
			(void)wait_try(server, connection, true);
	}
}

static void
serve_waiting(struct server *server)
{
	uint64_t now_ns = clock_steady_ns();
	struct queue *queue, *next;

	/* Serving one may add queues at the front, and removes no other. */
	for (queue = server->waited; queue != NULL; queue = next) {
		next = queue->waited_next;
		/* What follows a take may be a command on the same queue. */
		queue->served = true;
		serve_queue(server, queue, now_ns);
		queue->served = false;
		queues_drop_unused(&server->queues, queue);
	}
}

/* Until a take that waits may get something, or its time is over, or until the
 * next tidying: for epoll. */
static int
wait_ms(const struct server *server)
{
	uint64_t now_ns = clock_steady_ns();
	uint64_t least_ms = TIDY_NS / CLOCK_MS_NS;
	const struct connection *connection;
	struct queue *queue;
	uint64_t ms;

	for (queue = server->waited; queue; queue = queue->waited_next) {
		ms = machine_wait_ms(queue->machine, clock_time(&queue->clock));
		if (ms < least_ms)
			least_ms = ms;
		for (connection = queue->waiting; connection;
		     connection = connection->wait_next) {
			ms = connection->wait_until_ns > now_ns
			    ? (connection->wait_until_ns - now_ns) /
				    CLOCK_MS_NS +
				1
			    : 0;
			if (ms < least_ms)
				least_ms = ms;
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
	struct queue *queue = connection->waits_for;

	if (queue != NULL) {
		wait_end(server, connection);
		queues_drop_unused(&server->queues, queue);
	}
	if (connection->prev != NULL)
		connection->prev->next = connection->next;
	else
		server->first = connection->next;
	if (connection->next != NULL)
		connection->next->prev = connection->prev;
	(void)close(connection->source.fd);
	free(connection->in.bytes);
	free(connection->out.bytes);
	free(connection);
}

/* 0 or -errno. */
static int
watch(struct server *server, struct source *source)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

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
	connection->next = server->first;
	if (server->first != NULL)
		server->first->prev = connection;
	server->first = connection;
	if (watch(server, &connection->source) != 0)
		connection_destroy(server, connection);
}

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
	ssize_t length;

	if (!buffer_prepare(in, READ_BYTES / 4)) {
		connection->failed = true;
		touch(server, connection);
		return;
	}
	length = read(
	    connection->source.fd, in->bytes + in->end, in->room - in->end);
	if (length > 0) {
		in->end += (size_t)length;
		/* One that waits may go on to send, up to the bound. */
		if (in->end - in->begin > REQUEST_BYTES_MAX)
			connection->failed = true;
		run_requests(server, connection);
	} else if (length == 0 || (errno != EAGAIN && errno != EINTR)) {
		connection->failed = true;
		touch(server, connection);
	}
}

static void
connection_send(struct server *server, struct connection *connection)
{
	struct buffer *out = &connection->out;
	struct epoll_event event = {.data.ptr = connection};
	size_t length = out->end - out->begin;
	ssize_t sent = 0;

	if (length > 0 && !connection->failed)
		sent = send(connection->source.fd, out->bytes + out->begin,
		    length, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent < 0 && errno != EAGAIN && errno != EINTR)
		connection->failed = true;
	if (sent > 0)
		buffer_consume(out, (size_t)sent);
	length = out->end - out->begin;
	if (connection->failed || (connection->closing && length == 0)) {
		connection_destroy(server, connection);
		return;
	}
	connection->committed = length;
	if ((length > 0) == connection->sees_output)
		return;
	connection->sees_output = length > 0;
	event.events = EPOLLIN | (length > 0 ? (uint32_t)EPOLLOUT : 0);
	(void)epoll_ctl(
	    server->epoll, EPOLL_CTL_MOD, connection->source.fd, &event);
}

static int
finish_round(struct server *server, char why[200])
{
	struct connection *connection;

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
	return 0;
}

static void
take_event(struct server *server, const struct epoll_event *event)
{
	struct source *source = event->data.ptr;
	struct connection *connection = event->data.ptr;

	if (source->kind == SOURCE_WAKE) {
		take_wakes(server);
		return;
	}
	if (source->kind == SOURCE_LISTENER) {
		accept_all(server, source);
		return;
	}
	if (event->events & EPOLLOUT)
		touch(server, connection);
	if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		connection_read(server, connection);
}

int
server_run(struct server *server, char why[200])
{
	struct epoll_event events[EVENTS_MAX];
	int i, count, error = 0;

	while (!server->stopping && error == 0) {
		count = epoll_wait(
		    server->epoll, events, EVENTS_MAX, wait_ms(server));
		for (i = 0; i < count; i++)
			take_event(server, &events[i]);
		serve_waiting(server);
		if (clock_steady_ns() - server->tidy_ns >= TIDY_NS) {
			server->tidy_ns = clock_steady_ns();
			queues_tidy(&server->queues);
		}
		error = finish_round(server, why);
	}
	return error;
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
	return watch(server, listener);
}

int
server_create(
    struct server **made, const struct server_options *options, char why[200])
{
	struct server *server = calloc(1, sizeof(*server));
	int error, ends[2] = {-1, -1};

	if (server == NULL)
		return -ENOMEM;
	server->payload_max =
	    options->payload_max != 0 ? options->payload_max : PAYLOAD_DEFAULT;
	error = queues_open(&server->queues, options->folder);
	if (error != 0) {
		(void)snprintf(why, 200, "%s: %s", options->folder,
		    error == -EBUSY        ? "another process has it open"
			: error == -EILSEQ ? "it is damaged"
			: error == -EPROTO
			? "it is of another program or version"
			: strerror(-error));
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
	    watch(server, &server->wake) != 0 ||
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
	while (server->first != NULL)
		connection_destroy(server, server->first);
	queues_close(&server->queues);
	(void)close(server->epoll);
	(void)close(server->wake.fd);
	(void)close(server->wake_write);
	while (server->listener_count > 0)
		(void)close(server->listeners[--server->listener_count].fd);
	free(server->password);
	free(server);
}
