/* SPDX-License-Identifier: Apache-2.0 */
/*
 * THREADS. Those of libmicrohttpd, a few: each has its connections, and runs
 * the commands of their requests itself, one request at a time. They share the
 * options, which do not change, and the engine.
 */
#define _GNU_SOURCE
#include "modules/durable/server/http.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "modules/durable/server/json.h"

#define THREADS 4
#define CONNECTIONS_MAX 128
#define IDLE_S 15
#define HEAD_MAX 32768

#define PAGE_FILE "modules/durable/server/page.html"
__asm__(".pushsection .rodata\n"
	".globl page_begin, page_end\n"
	".hidden page_begin, page_end\n"
	"page_begin: .incbin \"" PAGE_FILE "\"\n"
	"page_end: .popsection");
extern const char page_begin[], page_end[];

struct http {
	struct http_options options;
	char host[64]; /* that is listened on, with brackets if it has any */
	struct MHD_Daemon *daemon;
};

void
request_fail(struct request *request, unsigned status, const char *text)
{
	request->status = status;
	request->type = "application/json";
	(void)fseek(request->out, 0, SEEK_SET);
	(void)fputs("{\"error\":", request->out);
	json_text(request->out, text, strlen(text));
	(void)fputs("}\n", request->out);
}

const char *
request_parameter(const struct request *request, const char *name)
{
	return MHD_lookup_connection_value(
	    request->connection, MHD_GET_ARGUMENT_KIND, name);
}

struct parameters {
	const char *known;
	bool wrong;
};

static enum MHD_Result
check_parameter(
    void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct parameters *parameters = ctx;
	const char *at = parameters->known;
	size_t length;

	(void)kind;
	for (; *at != '\0'; at += length, at += strspn(at, " ")) {
		length = strcspn(at, " ");
		if (strlen(name) == length && memcmp(at, name, length) == 0 &&
		    value != NULL)
			return MHD_YES;
	}
	parameters->wrong = true;
	return MHD_NO;
}

/* False: others are given than these, which are separated by blanks. */
static bool
has_only(struct request *request, const char *names)
{
	struct parameters parameters = {names, false};
	char text[128];

	(void)MHD_get_connection_values(request->connection,
	    MHD_GET_ARGUMENT_KIND, check_parameter, &parameters);
	(void)snprintf(text, sizeof(text),
	    names[0] != '\0' ? "ARG the parameters here are NAME=VALUE of: %s"
			     : "ARG there are no parameters here",
	    names);
	if (parameters.wrong)
		request_fail(request, MHD_HTTP_BAD_REQUEST, text);
	return !parameters.wrong;
}

static const char *
header(const struct request *request, const char *name)
{
	return MHD_lookup_connection_value(
	    request->connection, MHD_HEADER_KIND, name);
}

/* In a time that does not depend on where they differ. */
static bool
has_token(const struct request *request, const char *token)
{
	const char *given = header(request, "Authorization");
	size_t length = strlen(token), i;
	unsigned char differ;

	if (given == NULL || strncasecmp(given, "Bearer ", 7) != 0)
		return false;
	given += 7;
	differ = strlen(given) != length;
	for (i = 0; given[i] != '\0'; i++)
		differ |= (unsigned char)(given[i] ^ token[i % length]);
	return !differ;
}

/* With any port: it may be that of a tunnel. */
static bool
names_this_host(const struct request *request, const char *own)
{
	const char *host = header(request, "Host");
	const char *colon = host != NULL ? strrchr(host, ':') : NULL;
	size_t length;

	if (host == NULL)
		return false;
	length = strlen(host);
	if (colon != NULL &&
	    strspn(colon + 1, "0123456789") == strlen(colon + 1))
		length = (size_t)(colon - host);
	return (length == strlen(own) && strncasecmp(host, own, length) == 0) ||
	    (length == 9 && strncasecmp(host, "localhost", 9) == 0);
}

static bool
is_admitted(struct request *request)
{
	const struct http *http = request->http;

	if (request->place == PLACE_PAGE)
		return true;
	if (http->options.token != NULL) {
		if (has_token(request, http->options.token))
			return true;
		request_fail(request, MHD_HTTP_UNAUTHORIZED,
		    "Authorization: Bearer TOKEN, with that of --token-file");
		return false;
	}
	if (names_this_host(request, http->host))
		return true;
	request_fail(request, MHD_HTTP_FORBIDDEN,
	    "Host is not localhost or the address that is listened on");
	return false;
}

/* False: no percent-encoded text of 1 to 64 bytes. */
static bool
read_id(struct request *request, const char *text)
{
	char byte, hex[3] = "";

	for (; *text != '\0'; text++) {
		byte = *text;
		if (byte == '%') {
			hex[0] = *++text;
			if (!isxdigit((unsigned char)hex[0]))
				return false;
			hex[1] = *++text;
			if (!isxdigit((unsigned char)hex[1]))
				return false;
			byte = (char)strtoul(hex, NULL, 16);
		}
		if (request->id_length == HTTP_ID_MAX)
			return false;
		request->id[request->id_length++] = byte;
	}
	return request->id_length > 0;
}

/* QUEUE/tasks, QUEUE/dead, and each with /ID. PLACES: none of these. */
static enum place
read_queue_path(struct request *request, const char *path)
{
	size_t length = strcspn(path, "/");
	enum place place = PLACES;

	if (length > ENGINE_NAME_MAX)
		return PLACES;
	memcpy(request->queue, path, length);
	path += length;
	if (!queue_name_is_valid(request->queue))
		return PLACES;
	if (strncmp(path, "/tasks", 6) == 0) {
		place = PLACE_TASKS;
		path += 6;
	} else if (strncmp(path, "/dead", 5) == 0) {
		place = PLACE_DEAD;
		path += 5;
	}
	if (place == PLACES || *path == '\0')
		return place;
	if (*path != '/' || !read_id(request, path + 1))
		return PLACES;
	return place == PLACE_TASKS ? PLACE_TASK : PLACE_LETTER;
}

static enum place
read_path(struct request *request, const char *path)
{
	static const char *const paths[] = {
	    [PLACE_PAGE] = "/",
	    [PLACE_METRICS] = "/metrics",
	    [PLACE_HEALTH] = "/health",
	    [PLACE_QUEUES] = "/queues",
	};
	size_t i;

	for (i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		if (strcmp(path, paths[i]) == 0)
			return (enum place)i;
	}
	return strncmp(path, "/queues/", 8) == 0
	    ? read_queue_path(request, path + 8)
	    : PLACES;
}

static void
answer_page(struct request *request, redisContext *context)
{
	(void)context;
	request->type = "text/html; charset=utf-8";
	(void)fwrite(
	    page_begin, 1, (size_t)(page_end - page_begin), request->out);
}

static const struct route {
	enum place place;
	const char *method, *parameters;
	request_function *function;
} routes[] = {
    {PLACE_PAGE, "GET", "", answer_page},
    {PLACE_METRICS, "GET", "", metrics_answer},
    {PLACE_HEALTH, "GET", "", api_health},
    {PLACE_QUEUES, "GET", "after count", api_queues},
    {PLACE_TASKS, "GET", "state cursor count", api_tasks},
    {PLACE_TASK, "GET", "", api_get},
    {PLACE_TASK, "PUT", "in due attempts retry expires result", api_add},
    {PLACE_TASK, "DELETE", "", api_cancel},
    {PLACE_DEAD, "GET", "cursor count", api_dead},
    {PLACE_LETTER, "PUT", "", api_replay},
    {PLACE_LETTER, "DELETE", "", api_drop},
};

static const char *const allowed[PLACES] = {"GET", "GET", "GET", "GET", "GET",
    "GET, PUT, DELETE", "GET", "PUT, DELETE"};

static const struct route *
find_route(enum place place, const char *method)
{
	size_t i;

	if (strcmp(method, "HEAD") == 0)
		method = "GET";
	for (i = 0; i < sizeof(routes) / sizeof(*routes); i++) {
		if (routes[i].place == place &&
		    strcmp(routes[i].method, method) == 0)
			return &routes[i];
	}
	return NULL;
}

/* A page of the server, without any other's content, in no frame. */
static const char page_policy[] =
    "default-src 'none'; script-src 'unsafe-inline'; connect-src 'self'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

static enum MHD_Result
request_respond(struct request *request)
{
	struct MHD_Response *response;
	enum MHD_Result sent;

	(void)fclose(request->out);
	request->out = NULL;
	response = MHD_create_response_from_buffer(
	    request->text_length, request->text, MHD_RESPMEM_MUST_COPY);
	if (response == NULL)
		return MHD_NO;
	(void)MHD_add_response_header(response, "Content-Type", request->type);
	(void)MHD_add_response_header(response, "Cache-Control", "no-store");
	(void)MHD_add_response_header(
	    response, "X-Content-Type-Options", "nosniff");
	if (request->status == MHD_HTTP_UNAUTHORIZED)
		(void)MHD_add_response_header(
		    response, "WWW-Authenticate", "Bearer");
	if (request->status == MHD_HTTP_METHOD_NOT_ALLOWED)
		(void)MHD_add_response_header(
		    response, "Allow", allowed[request->place]);
	if (request->place == PLACE_PAGE)
		(void)MHD_add_response_header(
		    response, "Content-Security-Policy", page_policy);
	sent =
	    MHD_queue_response(request->connection, request->status, response);
	MHD_destroy_response(response);
	return sent;
}

static bool
body_is_too_long(const struct request *request)
{
	const char *length = header(request, "Content-Length");

	return length != NULL &&
	    strtoull(length, NULL, 10) > request->http->options.payload_max;
}

/* Its head is here. False: it was answered. */
static bool
request_begin(struct request *request, const char *path, const char *method)
{
	const struct route *route;

	request->place = read_path(request, path);
	if (!is_admitted(request))
		return false;
	route = find_route(request->place, method);
	if (request->place == PLACES)
		request_fail(request, MHD_HTTP_NOT_FOUND,
		    "there is no such path: see man hwtd");
	else if (route == NULL)
		request_fail(request, MHD_HTTP_METHOD_NOT_ALLOWED,
		    "another method is needed here: see Allow");
	else if (body_is_too_long(request))
		request_fail(request, MHD_HTTP_CONTENT_TOO_LARGE,
		    "ARG the payload is too long");
	else if (has_only(request, route->parameters))
		request->function = route->function;
	return request->function != NULL;
}

/* What is too long is read, and not kept. */
static void
request_keep(struct request *request, const char *bytes, size_t length)
{
	size_t most = request->http->options.payload_max;
	size_t room = 2 * (request->body_length + length);
	char *body;

	if (request->too_long || request->body_length + length > most) {
		request->too_long = true;
		return;
	}
	if (request->body_length + length > request->body_room) {
		body = realloc(request->body, room);
		if (body == NULL) {
			request->too_long = true;
			return;
		}
		request->body = body;
		request->body_room = room;
	}
	memcpy(request->body + request->body_length, bytes, length);
	request->body_length += length;
}

/* It is whole. */
static void
request_run(struct request *request)
{
	struct engine *engine = request->engine;
	char why[ENGINE_WHY];
	redisContext *context = NULL;

	if (request->too_long) {
		request_fail(request, MHD_HTTP_CONTENT_TOO_LARGE,
		    "ARG the payload is too long");
		return;
	}
	if (request->place != PLACE_PAGE) {
		context = engine_take(engine, why);
		if (context == NULL) {
			request_fail(
			    request, MHD_HTTP_SERVICE_UNAVAILABLE, why);
			return;
		}
	}
	request->function(request, context);
	if (context != NULL)
		engine_put(engine, context);
}

static enum MHD_Result
take_request(void *ctx, struct MHD_Connection *connection, const char *path,
    const char *method, const char *version, const char *bytes, size_t *length,
    void **slot)
{
	struct http *http = ctx;
	struct request *request = *slot;

	(void)version;
	if (request != NULL && *length > 0) {
		request_keep(request, bytes, *length);
		*length = 0;
		return MHD_YES;
	}
	if (request != NULL) {
		request_run(request);
		return request_respond(request);
	}
	request = calloc(1, sizeof(*request));
	if (request == NULL)
		return MHD_NO;
	*slot = request;
	request->http = http;
	request->engine = http->options.engine;
	request->space = engine_space(request->engine);
	request->connection = connection;
	request->status = MHD_HTTP_OK;
	request->type = "application/json";
	request->out = open_memstream(&request->text, &request->text_length);
	if (request->out == NULL)
		return MHD_NO;
	return request_begin(request, path, method) ? MHD_YES
						    : request_respond(request);
}

static void
request_end(void *ctx, struct MHD_Connection *connection, void **slot,
    enum MHD_RequestTerminationCode code)
{
	struct request *request = *slot;

	(void)ctx;
	(void)connection;
	(void)code;
	if (request == NULL)
		return;
	if (request->out != NULL)
		(void)fclose(request->out);
	free(request->text);
	free(request->body);
	free(request);
}

/* Paths stay as they were sent: an id may have any bytes. */
static size_t
leave_escaped(void *ctx, struct MHD_Connection *connection, char *text)
{
	(void)ctx;
	(void)connection;
	return strlen(text);
}

/* What the socket listens on. False: others reach it, and need a token. */
static bool
read_address(struct http *http)
{
	union {
		struct sockaddr any;
		struct sockaddr_in four;
		struct sockaddr_in6 six;
	} own = {.any.sa_family = AF_UNSPEC};
	socklen_t length = sizeof(own);
	char text[INET6_ADDRSTRLEN] = "";
	bool loopback;

	(void)getsockname(http->options.fd, &own.any, &length);
	if (own.any.sa_family == AF_INET6) {
		loopback = IN6_IS_ADDR_LOOPBACK(&own.six.sin6_addr);
		(void)inet_ntop(
		    AF_INET6, &own.six.sin6_addr, text, sizeof(text));
		(void)snprintf(http->host, sizeof(http->host), "[%s]", text);
	} else {
		loopback =
		    ntohl(own.four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
		(void)inet_ntop(AF_INET, &own.four.sin_addr, http->host,
		    sizeof(http->host));
	}
	return loopback || http->options.token != NULL;
}

int
http_start(struct http **started, const struct http_options *options,
    char why[ENGINE_WHY])
{
	struct http *http = calloc(1, sizeof(*http));

	if (http == NULL)
		return -ENOMEM;
	http->options = *options;
	(void)snprintf(why, ENGINE_WHY,
	    "--http: an address that others reach needs --token-file");
	if (read_address(http)) {
		(void)snprintf(why, ENGINE_WHY, "--http: no thread");
		http->daemon = MHD_start_daemon(
		    MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, 0, NULL,
		    NULL, take_request, http, MHD_OPTION_LISTEN_SOCKET,
		    options->fd, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS,
		    MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
		    MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
		    MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_MAX,
		    MHD_OPTION_NOTIFY_COMPLETED, request_end, NULL,
		    MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL,
		    MHD_OPTION_END);
	}
	*started = http;
	if (http->daemon != NULL)
		return 0;
	free(http);
	return -EINVAL;
}

void
http_stop(struct http *http)
{
	MHD_stop_daemon(http->daemon);
	free(http);
}
