/* SPDX-License-Identifier: Apache-2.0 */
/*
 * THREADS. Those of libmicrohttpd, a few: each has its connections, and runs
 * the commands of their requests itself, one request at a time. They share the
 * options, which do not change, and the handle of the client.
 */
#define _GNU_SOURCE
#include "modules/durable/server/http.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "modules/durable/server/request.h"

#define THREADS 4u
#define CONNECTIONS_MAX 128u
#define IDLE_S 15u
#define HEAD_MAX ((size_t)32768)

#define PAGE_FILE "modules/durable/server/page.html"
__asm__(".pushsection .rodata\n"
	".globl page_begin, page_end\n"
	".hidden page_begin, page_end\n"
	"page_begin: .incbin \"" PAGE_FILE "\"\n"
	"page_end: .popsection");
extern const char page_begin[], page_end[];

static struct {
	struct http_options options;
	struct MHD_Daemon *daemon;
} http;

static void
answer_page(struct http_request *request)
{
	request->type = "text/html; charset=utf-8";
	(void)fwrite(
	    page_begin, 1, (size_t)(page_end - page_begin), request->out);
}

static const struct route routes[] = {
    {"GET", "/", "", answer_page, NULL, NULL},
    {"GET", "/metrics", "", answer_metrics, NULL, NULL},
    {"GET", "/health", "", answer_health, NULL, NULL},
    {"GET", "/queues", " after count ", answer_queues, NULL, NULL},
    {"GET", "/queues/Q/tasks", " state cursor count ", answer_list, NULL, NULL},
    {"GET", "/queues/Q/tasks/#", "", answer_get, NULL, NULL},
    {"PUT", "/queues/Q/tasks/#", " in due attempts retry expires result ",
	answer_add, NULL, NULL},
    {"DELETE", "/queues/Q/tasks/#", "", answer_change, "HWT.CANCEL", NULL},
    {"GET", "/queues/Q/dead", " cursor count ", answer_list, NULL, "dead"},
    {"PUT", "/queues/Q/dead/#", "", answer_change, "HWT.DEAD", "REPLAY"},
    {"DELETE", "/queues/Q/dead/#", "", answer_change, "HWT.DEAD", "DROP"},
};
#define ROUTES (sizeof(routes) / sizeof(*routes))

void
request_fail(struct http_request *request, unsigned status, const char *text)
{
	request->status = status;
	(void)fseek(request->out, 0, SEEK_SET);
	write_error(request->out, text);
}

const char *
request_parameter(
    const struct http_request *request, const char *name, const char *otherwise)
{
	const char *value = MHD_lookup_connection_value(
	    request->connection, MHD_GET_ARGUMENT_KIND, name);

	return value != NULL ? value : otherwise;
}

static enum MHD_Result
check_parameter(
    void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct http_request *request = ctx;
	char word[64];

	(void)kind;
	if (value != NULL && strchr(name, ' ') == NULL &&
	    snprintf(word, sizeof(word), " %s ", name) < (int)sizeof(word) &&
	    strstr(request->route->parameters, word) != NULL)
		return MHD_YES;
	(void)snprintf(word, sizeof(word), "ARG parameters here are:%s",
	    request->route->parameters);
	request_fail(request, MHD_HTTP_BAD_REQUEST, word);
	request->route = NULL;
	return MHD_NO;
}

/* An address, or localhost, with any port: it may be that of a tunnel. Any
 * other name could be made to lead here by those who own it. */
static bool
names_an_address(const char *host)
{
	char name[INET6_ADDRSTRLEN] = "";
	unsigned char address[16];
	bool six = host[0] == '[';
	int end = 0;

	(void)sscanf(host, six ? "[%45[^]]]%n" : "%45[^:]%n", name, &end);
	return host[end + strspn(host + end, ":0123456789")] == '\0' &&
	    (inet_pton(six ? AF_INET6 : AF_INET, name, address) == 1 ||
		(!six && strcasecmp(name, "localhost") == 0));
}

/* False: it was answered. */
static bool
is_admitted(struct http_request *request)
{
	const char *host = MHD_lookup_connection_value(
	    request->connection, MHD_HEADER_KIND, "Host");
	char *user, *given = NULL;
	bool right;

	if (http.options.password[0] == '\0') {
		if (host != NULL && names_an_address(host))
			return true;
		request_fail(request, MHD_HTTP_FORBIDDEN,
		    "without a password, Host is an address or localhost");
		return false;
	}
	user =
	    MHD_basic_auth_get_username_password(request->connection, &given);
	right = given != NULL &&
	    secret_is(http.options.password, given, strlen(given));
	free(user);
	free(given);
	if (!right)
		request_fail(request, MHD_HTTP_UNAUTHORIZED,
		    "the password of --password-file is needed");
	return right;
}

/* Decodes the bytes of a path up to a slash, and moves on behind them. Returns
 * how many there are; 0: none, more than most, or a % without two digits. */
static size_t
read_part(const char **path, char *to, size_t most)
{
	const char *at = *path;
	char hex[3] = "";
	size_t length;

	for (length = 0; *at != '\0' && *at != '/'; length++) {
		if (length == most)
			return 0;
		to[length] = *at++;
		if (to[length] != '%')
			continue;
		if (!isxdigit((unsigned char)at[0]) ||
		    !isxdigit((unsigned char)at[1]))
			return 0;
		memcpy(hex, at, 2);
		to[length] = (char)strtoul(hex, NULL, 16);
		at += 2;
	}
	*path = at;
	return length;
}

/* Whether it is that of a route; reads its queue and its id. */
static bool
path_matches(
    struct http_request *request, const char *pattern, const char *path)
{
	size_t length;

	for (; *pattern != '\0'; pattern++) {
		if (*pattern == 'Q') {
			length = read_part(
			    &path, request->queue, HWT_DURABLE_QUEUE_MAX);
			request->queue[length] = '\0';
			if (strlen(request->queue) != length)
				return false;
		} else if (*pattern == '#') {
			length = request->id_length =
			    read_part(&path, request->id, sizeof(request->id));
		} else {
			length = *path++ == *pattern;
		}
		if (length == 0)
			return false;
	}
	return *path == '\0';
}

static void
find_route(struct http_request *request, const char *path, const char *method)
{
	size_t i;

	if (strcmp(method, "HEAD") == 0)
		method = "GET";
	for (i = 0; i < ROUTES && request->route == NULL; i++) {
		if (!path_matches(request, routes[i].path, path))
			continue;
		if (strcmp(routes[i].method, method) == 0)
			request->route = &routes[i];
		(void)strcat(request->allow, ", ");
		(void)strcat(request->allow, routes[i].method);
	}
	if (request->allow[0] == '\0')
		request_fail(request, MHD_HTTP_NOT_FOUND,
		    "there is no such path: see man hwtd");
	else if (request->route == NULL)
		request_fail(request, MHD_HTTP_METHOD_NOT_ALLOWED,
		    "another method is needed here: see Allow");
}

/* A page of the server, without any other's content, in no frame. */
static const char page_policy[] =
    "default-src 'none'; script-src 'unsafe-inline'; connect-src 'self'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

static enum MHD_Result
request_respond(struct http_request *request)
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
	(void)MHD_add_response_header(
	    response, "Content-Security-Policy", page_policy);
	if (request->status == MHD_HTTP_UNAUTHORIZED)
		(void)MHD_add_response_header(
		    response, "WWW-Authenticate", "Basic realm=\"hwtd\"");
	if (request->status == MHD_HTTP_METHOD_NOT_ALLOWED)
		(void)MHD_add_response_header(
		    response, "Allow", request->allow + 2);
	sent =
	    MHD_queue_response(request->connection, request->status, response);
	MHD_destroy_response(response);
	return sent;
}

/* The payload is kept up to its bound, and one byte more. */
static void
request_keep(struct http_request *request, const char *bytes, size_t length)
{
	size_t most = http.options.payload_max + 1;

	if (request->body == NULL)
		request->body = malloc(most);
	if (request->body == NULL || length > most - request->body_length)
		length = most - request->body_length;
	if (request->body != NULL)
		memcpy(request->body + request->body_length, bytes, length);
	request->body_length += length;
}

/* Its head is here. False: it was answered. */
static bool
request_begin(
    struct http_request *request, const char *path, const char *method)
{
	if (!is_admitted(request))
		return false;
	find_route(request, path, method);
	if (request->route != NULL)
		(void)MHD_get_connection_values(request->connection,
		    MHD_GET_ARGUMENT_KIND, check_parameter, request);
	return request->route != NULL;
}

static enum MHD_Result
take_request(void *ctx, struct MHD_Connection *connection, const char *path,
    const char *method, const char *version, const char *bytes, size_t *length,
    void **slot)
{
	struct http_request *request = *slot;

	(void)ctx;
	(void)version;
	if (request == NULL) {
		request = calloc(1, sizeof(*request));
		if (request == NULL)
			return MHD_NO;
		*slot = request;
		request->options = &http.options;
		request->connection = connection;
		request->status = MHD_HTTP_OK;
		request->type = "application/json";
		request->out =
		    open_memstream(&request->text, &request->text_length);
		if (request->out == NULL)
			return MHD_NO;
		return request_begin(request, path, method)
		    ? MHD_YES
		    : request_respond(request);
	}
	if (*length > 0) {
		request_keep(request, bytes, *length);
		*length = 0;
		return MHD_YES;
	}
	if (request->body_length > http.options.payload_max)
		request_fail(request, MHD_HTTP_CONTENT_TOO_LARGE,
		    "ARG the payload is too long");
	else
		request->route->answer(request);
	return request_respond(request);
}

static void
request_end(void *ctx, struct MHD_Connection *connection, void **slot,
    enum MHD_RequestTerminationCode code)
{
	struct http_request *request = *slot;

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

/* Whether processes of this machine alone reach a socket that listens. */
static bool
is_local(int fd)
{
	struct sockaddr_storage own;
	socklen_t length = sizeof(own);
	char host[64] = "";

	(void)getsockname(fd, (struct sockaddr *)&own, &length);
	(void)getnameinfo((struct sockaddr *)&own, length, host, sizeof(host),
	    NULL, 0, NI_NUMERICHOST);
	return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

const char *
http_start(const struct http_options *options)
{
	http.options = *options;
	if (options->password[0] == '\0' && !is_local(options->fd))
		return "an address that others reach needs --password-file";
	http.daemon = MHD_start_daemon(
	    MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, 0, NULL, NULL,
	    take_request, NULL, MHD_OPTION_LISTEN_SOCKET, options->fd,
	    MHD_OPTION_THREAD_POOL_SIZE, THREADS, MHD_OPTION_CONNECTION_LIMIT,
	    CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S,
	    MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEAD_MAX,
	    MHD_OPTION_NOTIFY_COMPLETED, request_end, NULL,
	    MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL, MHD_OPTION_END);
	return http.daemon != NULL ? NULL : "no memory or no thread";
}

void
http_stop(void)
{
	MHD_stop_daemon(http.daemon);
}
