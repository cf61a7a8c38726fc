/* SPDX-License-Identifier: Apache-2.0 */
/*
 * THREADS. libmicrohttpd's thread owns the connections: it makes and frees a
 * client for each, collects requests, and sends answers. A request that is
 * whole is suspended and put into the queue under the lock; from then on it
 * belongs to the thread of the pool that takes it, until that resumes its
 * connection. A client's timeout runs on the timer's worker and touches the
 * descriptor alone, which stays open until hwt_cancel_wait has returned.
 */
#define _GNU_SOURCE
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <hwt.h>

#include "text.h"
#include "wait.h"

#define LIMIT_NS HWT_SEC(10)
/* When the server ends: for handlers that run, and for answers to be sent. */
#define HANDLERS_SECONDS 10
#define STOP_SECONDS 1

enum {
	THREADS_MAX = 64,
	CONNECTIONS_MAX = 32768,
	DESCRIPTORS_KEPT = 256, /* for the engine and the rest */
	HEAD_MAX = 16384, /* bytes of a request's head */
	FIELDS_MAX = 200, /* of it */
	/* With what is made of it, and the answer's head. */
	POOL_MAX = 2 * HEAD_MAX,
	TEXTS_MAX = 64 << 20, /* bytes of bodies and answers that are kept */
	/* Of what is answered to another method than GET: 512 results, each
	 * with an id of 64 bytes that has six characters a byte, and a sentence
	 * about an error. */
	CHANGED_MAX = 512 << 10
};

union address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

struct client {
	struct http *http;
	int fd;
	hwt_timeout timeout;
};

/* A request, from its head to the end of its answer. */
struct exchange {
	struct http *http;
	struct MHD_Connection *connection;
	struct exchange *next; /* in the queue */
	char *method, *path, *body;
	size_t length, capacity; /* of body */
	unsigned refused; /* as http_request has it */
	int64_t since_ms; /* in the queue */
	bool handed_over; /* and counted in under_way */
	bool answered; /* answer and text are what the client gets */
	struct http_answer answer;
	char *text;
	size_t text_length;
	size_t room; /* that it has of all texts */
};

struct http {
	struct MHD_Daemon *daemon;
	struct hwt *timer;
	struct http_options options;
	uint32_t threads;
	pthread_t thread[THREADS_MAX];
	pthread_mutex_t lock; /* over what follows */
	size_t texts; /* what bodies and answers have, up to TEXTS_MAX */
	pthread_cond_t filled;
	struct exchange *first, **last;
	uint32_t under_way; /* from the queue until the answer is sent */
	pthread_cond_t sent; /* it is 0 */
	bool stopping;
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

static bool
is_loopback(const union address *address)
{
	if (address->any.sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&address->six.sin6_addr);
	return ntohl(address->four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
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
http_listen(const char *address, bool loopback, char where[64])
{
	union address own;
	socklen_t length = address_read(&own, address);
	int yes = 1, error, fd;

	if (length == 0)
		return -EINVAL;
	if (loopback && !is_loopback(&own))
		return -EPERM;
	fd = socket(
	    own.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(fd, &own.any, length) != 0 || listen(fd, SOMAXCONN) != 0 ||
	    getsockname(fd, &own.any, &length) != 0) {
		error = -errno;
		(void)close(fd);
		return error;
	}
	address_write(&own, where);
	return fd;
}

/* The time that a client has. */

static void
client_cut(hwt_timeout timeout, void *arg)
{
	const struct client *client = arg;

	(void)timeout;
	(void)shutdown(client->fd, SHUT_RDWR);
}

/* HWT_NEVER: while the handler has its turn. One that has been cut already
 * stays so. */
static void
client_set_limit(struct MHD_Connection *connection, uint64_t ns)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
	    connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	const struct client *client =
	    info != NULL ? info->socket_context : NULL;

	if (client != NULL)
		(void)hwt_reschedule(client->http->timer, client->timeout, ns);
}

static void
connection_begins(
    struct http *http, struct MHD_Connection *connection, void **context)
{
	int fd = MHD_get_connection_info(
	    connection, MHD_CONNECTION_INFO_CONNECTION_FD)
		     ->connect_fd;
	struct client *client = calloc(1, sizeof(*client));

	if (client != NULL) {
		client->http = http;
		client->fd = fd;
		if (hwt_new_timeout(http->timer, &client->timeout, client_cut,
			client, LIMIT_NS) == 0) {
			*context = client;
			return;
		}
		free(client);
	}
	/* Without a limit of time it would have the descriptor for ever. */
	(void)shutdown(fd, SHUT_RDWR);
}

static void
notice_connection(void *cls, struct MHD_Connection *connection, void **context,
    enum MHD_ConnectionNotificationCode code)
{
	struct http *http = cls;
	struct client *client = *context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		connection_begins(http, connection, context);
		return;
	}
	if (client == NULL)
		return;
	(void)!hwt_cancel_wait(http->timer, client->timeout);
	free(client);
	*context = NULL;
}

/* Requests. */

const char *
http_header(const struct http_request *request, const char *name)
{
	return MHD_lookup_connection_value(
	    request->connection, MHD_HEADER_KIND, name);
}

const char *
http_query(const struct http_request *request, const char *name)
{
	return MHD_lookup_connection_value(
	    request->connection, MHD_GET_ARGUMENT_KIND, name);
}

void
http_answer_header(
    struct http_answer *answer, const char *name, const char *value)
{
	size_t i = answer->headers;

	if (i == HTTP_HEADERS_MAX)
		abort();
	answer->header[i].name = name;
	(void)snprintf(answer->header[i].value, sizeof(answer->header[i].value),
	    "%s", value);
	answer->headers++;
}

static struct http_request
exchange_request(const struct exchange *exchange)
{
	return (struct http_request){.method = exchange->method,
	    .path = exchange->path,
	    .body = exchange->body,
	    .length = exchange->length,
	    .refused = exchange->refused,
	    .connection = exchange->connection};
}

/* Room for so much more text. False: there is none. */
static bool
texts_take(struct http *http, size_t length)
{
	bool fits;

	(void)pthread_mutex_lock(&http->lock);
	fits = length <= TEXTS_MAX - http->texts;
	if (fits)
		http->texts += length;
	(void)pthread_mutex_unlock(&http->lock);
	return fits;
}

static void
texts_give_back(struct http *http, size_t length)
{
	(void)pthread_mutex_lock(&http->lock);
	http->texts -= length;
	(void)pthread_mutex_unlock(&http->lock);
}

static void
exchange_free(struct exchange *exchange)
{
	free(exchange->method);
	free(exchange->path);
	free(exchange->body);
	free(exchange);
}

static void
exchange_free_body(struct exchange *exchange)
{
	free(exchange->body);
	exchange->body = NULL;
	exchange->length = 0;
	exchange->capacity = 0;
}

/* On libmicrohttpd's thread. */
static void
exchange_drop_body(struct exchange *exchange)
{
	texts_give_back(exchange->http, exchange->capacity);
	exchange_free_body(exchange);
}

static void
exchange_drop_text(struct exchange *exchange)
{
	texts_give_back(exchange->http, exchange->room);
	free(exchange->text);
	exchange->text = NULL;
	exchange->text_length = 0;
	exchange->room = 0;
}

static void
exchange_ends(struct exchange *exchange)
{
	struct http *http = exchange->http;

	if (!exchange->handed_over)
		return;
	(void)pthread_mutex_lock(&http->lock);
	if (--http->under_way == 0)
		(void)pthread_cond_signal(&http->sent);
	(void)pthread_mutex_unlock(&http->lock);
}

static void
notice_completed(void *cls, struct MHD_Connection *connection, void **context,
    enum MHD_RequestTerminationCode code)
{
	(void)cls;
	(void)code;
	if (*context == NULL)
		return;
	exchange_ends(*context);
	exchange_drop_body(*context);
	exchange_drop_text(*context);
	exchange_free(*context);
	*context = NULL;
	client_set_limit(connection, LIMIT_NS);
}

/* A head that all but fills its pool leaves libmicrohttpd no memory for an
 * answer, and it would close the connection without one. */
static bool
head_is_too_long(struct MHD_Connection *connection)
{
	static const char answer[] =
	    "HTTP/1.1 431 Request Header Fields Too Large\r\n"
	    "Content-Length: 0\r\nConnection: close\r\n\r\n";
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
	    connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

	if (info != NULL && info->header_size <= HEAD_MAX &&
	    MHD_get_connection_values(
		connection, MHD_HEADER_KIND, NULL, NULL) <= FIELDS_MAX)
		return false;
	info = MHD_get_connection_info(
	    connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	(void)!send(info->connect_fd, answer, sizeof(answer) - 1,
	    MSG_NOSIGNAL | MSG_DONTWAIT);
	return true;
}

static struct exchange *
exchange_make(struct http *http, struct MHD_Connection *connection,
    const char *path, const char *method)
{
	struct exchange *exchange = calloc(1, sizeof(*exchange));
	struct http_request request;

	if (exchange == NULL)
		return NULL;
	exchange->http = http;
	exchange->connection = connection;
	exchange->method =
	    strdup(strcmp(method, MHD_HTTP_METHOD_HEAD) == 0 ? "GET" : method);
	exchange->path = strdup(path);
	if (exchange->method != NULL && exchange->path != NULL) {
		if (http->options.admit != NULL) {
			request = exchange_request(exchange);
			exchange->refused =
			    http->options.admit(http->options.ctx, &request);
		}
		return exchange;
	}
	exchange_free(exchange);
	return NULL;
}

static void
exchange_refuse(struct exchange *exchange, unsigned status)
{
	exchange->refused = status;
	exchange_drop_body(exchange);
}

/* Makes room for this much more, or for twice as much as there was. */
static bool
exchange_grow(struct exchange *exchange, size_t length)
{
	struct http *http = exchange->http;
	size_t need = exchange->length + length;
	size_t capacity = 2 * exchange->capacity;
	char *body;

	if (need <= exchange->capacity)
		return true;
	capacity = capacity < need ? need : capacity;
	capacity = capacity > HTTP_BODY_MAX ? HTTP_BODY_MAX : capacity;
	if (!texts_take(http, capacity - exchange->capacity))
		return false;
	body = realloc(exchange->body, capacity);
	if (body == NULL) {
		texts_give_back(http, capacity - exchange->capacity);
		return false;
	}
	exchange->body = body;
	exchange->capacity = capacity;
	return true;
}

/* What is too much is read, so that the client reads the answer, and let go. */
static void
exchange_read(struct exchange *exchange, const char *data, size_t length)
{
	if (exchange->refused != 0)
		return;
	if (length > HTTP_BODY_MAX - exchange->length) {
		exchange_refuse(exchange, MHD_HTTP_CONTENT_TOO_LARGE);
		return;
	}
	if (!exchange_grow(exchange, length)) {
		exchange_refuse(exchange, MHD_HTTP_SERVICE_UNAVAILABLE);
		return;
	}
	memcpy(exchange->body + exchange->length, data, length);
	exchange->length += length;
}

/* Runs on a thread of the pool, or on libmicrohttpd's if the request was
 * refused. */
static void
exchange_answer(struct exchange *exchange)
{
	const struct http_request request = exchange_request(exchange);
	const struct http_options *options = &exchange->http->options;
	struct http_answer *answer = &exchange->answer;

	*answer = (struct http_answer){
	    .status = request.refused != 0 ? request.refused : MHD_HTTP_OK,
	    .type = "text/plain; charset=utf-8"};
	exchange->answered = true;
	answer->body = open_memstream(&exchange->text, &exchange->text_length);
	if (answer->body == NULL) {
		answer->status = MHD_HTTP_SERVICE_UNAVAILABLE;
		return;
	}
	options->handler(options->ctx, &request, answer);
	if (ftell(answer->body) == 0)
		(void)fprintf(answer->body, "%s\n",
		    MHD_get_reason_phrase_for(answer->status));
	if (fclose(answer->body) != 0) {
		free(exchange->text);
		exchange->text = NULL;
		exchange->text_length = 0;
		answer->status = MHD_HTTP_SERVICE_UNAVAILABLE;
	}
}

/* What says this is short, and counts as a part of the connection. */
static void
exchange_answer_refused(struct exchange *exchange, unsigned status)
{
	exchange->refused = status;
	exchange_answer(exchange);
}

/* The body is needed no more: what it had is the answer's. */
static void
exchange_reuse_body_room(struct exchange *exchange)
{
	exchange->room += exchange->capacity;
	exchange_free_body(exchange);
}

/* The answer gets as much room as it needs. False: there is none. */
static bool
exchange_fit_room(struct exchange *exchange)
{
	size_t length = exchange->text_length;

	if (length <= exchange->room)
		texts_give_back(exchange->http, exchange->room - length);
	else if (!texts_take(exchange->http, length - exchange->room))
		return false;
	exchange->room = length;
	return true;
}

/* On a thread of the pool. What changes something has room for its answer
 * beforehand, since it cannot be refused afterwards. */
static void
exchange_handle(struct exchange *exchange)
{
	bool reads = strcmp(exchange->method, MHD_HTTP_METHOD_GET) == 0;
	size_t more = reads || exchange->capacity >= CHANGED_MAX
	    ? 0
	    : CHANGED_MAX - exchange->capacity;

	if (!texts_take(exchange->http, more)) {
		exchange_answer_refused(exchange, MHD_HTTP_SERVICE_UNAVAILABLE);
		return;
	}
	exchange->room = more;
	exchange_answer(exchange);
	exchange_reuse_body_room(exchange);
	if (exchange_fit_room(exchange) || !reads)
		return;
	exchange_drop_text(exchange);
	exchange_answer_refused(exchange, MHD_HTTP_SERVICE_UNAVAILABLE);
}

/* Sends what there is to say. The client may take its time to read that: the
 * body is needed no more. */
static enum MHD_Result
exchange_send(struct exchange *exchange, struct MHD_Connection *connection)
{
	const struct http_answer *answer = &exchange->answer;
	struct MHD_Response *response = MHD_create_response_from_buffer(
	    exchange->text_length, exchange->text, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result result;
	size_t i;

	exchange_drop_body(exchange);
	if (response == NULL)
		return MHD_NO;
	result = MHD_add_response_header(
	    response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
	for (i = 0; i < answer->headers && result == MHD_YES; i++)
		result = MHD_add_response_header(
		    response, answer->header[i].name, answer->header[i].value);
	if (result == MHD_YES)
		result =
		    MHD_queue_response(connection, answer->status, response);
	MHD_destroy_response(response);
	client_set_limit(connection, LIMIT_NS);
	return result;
}

/* To the pool; false: there is none any more. */
static bool
exchange_hand_over(struct exchange *exchange)
{
	struct http *http = exchange->http;
	bool stopping;

	(void)pthread_mutex_lock(&http->lock);
	stopping = http->stopping;
	if (!stopping) {
		client_set_limit(exchange->connection, HWT_NEVER);
		exchange->since_ms = wait_now_ms();
		exchange->handed_over = true;
		http->under_way++;
		MHD_suspend_connection(exchange->connection);
		*http->last = exchange;
		http->last = &exchange->next;
		(void)pthread_cond_signal(&http->filled);
	}
	(void)pthread_mutex_unlock(&http->lock);
	return !stopping;
}

/* Called for the head of a request, for each part of its body, at its end, and
 * again once it has been answered. */
static enum MHD_Result
notice_request(void *cls, struct MHD_Connection *connection, const char *path,
    const char *method, const char *version, const char *data, size_t *length,
    void **context)
{
	struct exchange *exchange = *context;

	(void)version;
	if (exchange == NULL) {
		if (head_is_too_long(connection))
			return MHD_NO;
		exchange = exchange_make(cls, connection, path, method);
		*context = exchange;
		return exchange != NULL ? MHD_YES : MHD_NO;
	}
	if (*length > 0) {
		exchange_read(exchange, data, *length);
		*length = 0;
		return MHD_YES;
	}
	if (exchange->answered)
		return exchange_send(exchange, connection);
	if (exchange->refused != 0)
		exchange_answer(exchange);
	else if (exchange_hand_over(exchange))
		return MHD_YES;
	else
		exchange_answer_refused(exchange, MHD_HTTP_SERVICE_UNAVAILABLE);
	return exchange_send(exchange, connection);
}

/* The pool. */

/* NULL: it is time to end. */
static struct exchange *
exchange_take(struct http *http)
{
	struct exchange *exchange;

	(void)pthread_mutex_lock(&http->lock);
	while (http->first == NULL && !http->stopping)
		(void)pthread_cond_wait(&http->filled, &http->lock);
	exchange = http->stopping ? NULL : http->first;
	if (exchange != NULL) {
		http->first = exchange->next;
		if (http->first == NULL)
			http->last = &http->first;
	}
	(void)pthread_mutex_unlock(&http->lock);
	return exchange;
}

/* When the engine hangs, requests wait for a thread for longer than their
 * clients wait for the answer. */
static bool
waited_too_long(const struct http *http, const struct exchange *exchange)
{
	int64_t ms = wait_now_ms() - exchange->since_ms;

	return http->options.wait_ns != 0 &&
	    HWT_MS((uint64_t)ms) > http->options.wait_ns;
}

static void *
pool_run(void *arg)
{
	struct http *http = arg;
	struct exchange *exchange;

	while ((exchange = exchange_take(http)) != NULL) {
		if (waited_too_long(http, exchange))
			exchange_answer_refused(
			    exchange, MHD_HTTP_SERVICE_UNAVAILABLE);
		else
			exchange_handle(exchange);
		MHD_resume_connection(exchange->connection);
	}
	return NULL;
}

static struct timespec
seconds_from_now(time_t seconds)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += seconds;
	return until;
}

/* Ends the pool. What nobody has taken is answered here: a connection that is
 * suspended cannot be closed. That comes first, as a handler may take long.
 * False: one takes longer. */
static bool
pool_stop(struct http *http)
{
	struct exchange *exchange, *next;
	struct timespec until;

	(void)pthread_mutex_lock(&http->lock);
	http->stopping = true;
	exchange = http->first;
	(void)pthread_cond_broadcast(&http->filled);
	(void)pthread_mutex_unlock(&http->lock);
	for (; exchange != NULL; exchange = next) {
		next = exchange->next;
		exchange_answer_refused(exchange, MHD_HTTP_SERVICE_UNAVAILABLE);
		MHD_resume_connection(exchange->connection);
	}
	until = seconds_from_now(HANDLERS_SECONDS);
	for (; http->threads > 0; http->threads--) {
		if (pthread_clockjoin_np(http->thread[http->threads - 1], NULL,
			CLOCK_MONOTONIC, &until) != 0)
			return false;
	}
	return true;
}

/* Who has asked learns what has happened, unless it reads too slowly. */
static void
answers_await(struct http *http)
{
	const struct timespec until = seconds_from_now(STOP_SECONDS);

	(void)pthread_mutex_lock(&http->lock);
	while (http->under_way > 0 &&
	    pthread_cond_timedwait(&http->sent, &http->lock, &until) == 0)
		;
	(void)pthread_mutex_unlock(&http->lock);
}

static int
pool_start(struct http *http, uint32_t threads)
{
	int error;

	for (; http->threads < threads; http->threads++) {
		error = pthread_create(
		    &http->thread[http->threads], NULL, pool_run, http);
		if (error != 0)
			return -error;
	}
	return 0;
}

/* Starting and stopping. */

/* As many as the descriptors suffice for, which are made as many as we may
 * have. */
static unsigned
connections_max(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return DESCRIPTORS_KEPT;
	if (limit.rlim_cur < limit.rlim_max &&
	    limit.rlim_cur < CONNECTIONS_MAX + DESCRIPTORS_KEPT) {
		limit.rlim_cur =
		    limit.rlim_max < CONNECTIONS_MAX + DESCRIPTORS_KEPT
		    ? limit.rlim_max
		    : CONNECTIONS_MAX + DESCRIPTORS_KEPT;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
		(void)getrlimit(RLIMIT_NOFILE, &limit);
	}
	if (limit.rlim_cur < 2 * DESCRIPTORS_KEPT)
		return (unsigned)limit.rlim_cur / 2;
	if (limit.rlim_cur > CONNECTIONS_MAX + DESCRIPTORS_KEPT)
		return CONNECTIONS_MAX;
	return (unsigned)limit.rlim_cur - DESCRIPTORS_KEPT;
}

/* A path's segments are decoded by who splits it, and may have zero bytes. */
static size_t
leave_escaped(void *cls, struct MHD_Connection *connection, char *text)
{
	(void)cls;
	(void)connection;
	return strlen(text);
}

static int
daemon_start(struct http *http, int listener)
{
	errno = 0;
	http->daemon = MHD_start_daemon(
	    MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_SUSPEND_RESUME, 0, NULL,
	    NULL, notice_request, http, MHD_OPTION_LISTEN_SOCKET, listener,
	    MHD_OPTION_CONNECTION_LIMIT,
	    http->options.connections != 0
		? http->options.connections
		: connections_max() / http->options.servers,
	    MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_MAX,
	    MHD_OPTION_NOTIFY_CONNECTION, notice_connection, http,
	    MHD_OPTION_NOTIFY_COMPLETED, notice_completed, http,
	    MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL,
	    MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
	if (http->daemon != NULL)
		return 0;
	return errno != 0 ? -errno : -EAGAIN;
}

int
http_start(struct http **http, int listener, const struct http_options *options)
{
	struct http *made = calloc(1, sizeof(*made));
	pthread_condattr_t monotonic;
	sigset_t all, before;
	int error;

	if (made == NULL)
		return -ENOMEM;
	made->options = *options;
	made->last = &made->first;
	(void)pthread_mutex_init(&made->lock, NULL);
	(void)pthread_cond_init(&made->filled, NULL);
	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&made->sent, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	error = hwt_shared(&made->timer);
	if (error == 0)
		error = pool_start(made,
		    options->threads < THREADS_MAX ? options->threads
						   : THREADS_MAX);
	if (error == 0)
		error = daemon_start(made, listener);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error != 0)
		(void)http_stop(made);
	else
		*http = made;
	return error;
}

bool
http_stop(struct http *http)
{
	bool stopped;

	if (http == NULL)
		return true;
	stopped = pool_stop(http);
	answers_await(http);
	if (!stopped)
		return false;
	if (http->daemon != NULL)
		MHD_stop_daemon(http->daemon);
	(void)pthread_cond_destroy(&http->sent);
	(void)pthread_cond_destroy(&http->filled);
	(void)pthread_mutex_destroy(&http->lock);
	free(http);
	return true;
}
