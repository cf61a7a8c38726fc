/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "hwtd-serve.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "hwtd-api.h"
#include "hwtd-page.h"
#include "hwtd-work.h"
#include "metrics.h"
#include "options.h"
#include "queues.h"
#include "text.h"
#include "wait.h"

#define API_THREADS 16
#define API_WAIT_NS HWT_SEC(5)

/* Later than this is not well. */
#define LAG_MAX HWT_SEC(10)
uint64_t serve_queue_wait_ns;

/* The engine's statistics are read once in SAMPLE_MS at most, however many
 * requests want them. Reading them gives up after SAMPLE_WAIT_NS, so that
 * /health answers when the engine does not. */
#define SAMPLE_MS 1000
#define SAMPLE_WAIT_NS HWT_SEC(2)

static struct sample {
	pthread_mutex_t lock; /* over the rest */
	struct hwt_durable *durable;
	int stop_fd; /* readable: nobody waits any more */
	int64_t at_ms; /* when it was taken */
	int error; /* of that */
	struct hwt_durable_stats stats;
	struct queues queues;
} sample = {.lock = PTHREAD_MUTEX_INITIALIZER, .at_ms = INT64_MIN / 2};

/* Under the lock. */
static void
sample_take(void)
{
	const struct engine_wait wait = {.stop_fd = sample.stop_fd,
	    .timeout_ns = open_options.timeout_ns != 0 &&
		    open_options.timeout_ns < SAMPLE_WAIT_NS
		? open_options.timeout_ns
		: SAMPLE_WAIT_NS};

	if (wait_now_ms() - sample.at_ms < SAMPLE_MS)
		return;
	sample.error = durable_read_stats(sample.durable, &sample.stats, &wait);
	if (sample.error == 0)
		sample.error =
		    queues_read(sample.durable, &sample.queues, &wait);
	sample.at_ms = wait_now_ms();
}

static void
answer_metrics(struct http_answer *answer)
{
	const char *space = engine_space(durable_engine(sample.durable));

	answer->type = "text/plain; version=0.0.4; charset=utf-8";
	metrics_prometheus(answer->body, space,
	    sample.error == 0 ? &sample.stats : NULL, &sample.queues);
	work_prometheus(answer->body, space);
}

static void
warn_of_replicas(FILE *body)
{
	const struct hwt_durable_stats *stats = &sample.stats;

	if (stats->replicas > stats->replicas_awaited)
		(void)fprintf(body,
		    "warning: %" PRIu64 " replicas are connected, and %" PRIu64
		    " waited for: a fail-over to another one loses what that "
		    "has not got\n",
		    stats->replicas, stats->replicas_awaited);
}

/* A task waits there for too long; that it waits while the queue is paused, or
 * at its limits, is what somebody wanted. */
static bool
is_late(const struct queue *queue)
{
	return serve_queue_wait_ns != 0 &&
	    queue->unheld_ns > serve_queue_wait_ns &&
	    queue->paused < sample.queues.shards;
}

static void
warn_of_pauses(FILE *body)
{
	const struct queues *queues = &sample.queues;
	const struct queue *queue;

	for (queue = queues->queue; queue < queues->queue + queues->count;
	     queue++) {
		if (queue->paused == 0)
			continue;
		(void)fprintf(body,
		    "warning: queue %s: paused in %" PRIu64 " of %" PRIu32
		    " shards; %" PRIu64 " wait, the oldest for %" PRIu64 " s\n",
		    queue->name, queue->paused, queues->shards, queue->entries,
		    queue->age_ns / HWT_SEC(1));
	}
}

/* A backlog that grows at its limits is not healthy for ever: somebody may want
 * to look. */
static void
warn_of_limits(FILE *body)
{
	const struct queues *queues = &sample.queues;
	const struct queue *queue;

	for (queue = queues->queue; queue < queues->queue + queues->count;
	     queue++) {
		if (serve_queue_wait_ns == 0 || queue->paused > 0 ||
		    queue->age_ns <= serve_queue_wait_ns || is_late(queue))
			continue;
		(void)fprintf(body,
		    "warning: queue %s: at its limits; %" PRIu64
		    " wait, the oldest for %" PRIu64 " s\n",
		    queue->name, queue->entries, queue->age_ns / HWT_SEC(1));
	}
}

/* Of more queues than are told, one that nobody serves may not be among them:
 * the others are younger, but these are all too old. */
static void
warn_of_others(FILE *body)
{
	const struct queues *queues = &sample.queues;

	if (serve_queue_wait_ns == 0 || queues->all || queues->count == 0 ||
	    queues->queue[queues->count - 1].age_ns <= serve_queue_wait_ns)
		return;
	(void)fprintf(body,
	    "warning: the %zu queues that are looked at all wait for longer "
	    "than --queue-wait; others may have no worker\n",
	    queues->count);
}

/* What is wrong with the engine and its clock; false: nothing. */
static bool
complain_of_engine(FILE *body)
{
	const struct hwt_durable_stats *stats = &sample.stats;

	if (sample.error != 0)
		(void)fprintf(body, "%s\n", explain(sample.error));
	else if (stats->clock_ahead_ns > LAG_MAX)
		(void)fprintf(body,
		    "the clock was set back: nothing is executed for %" PRIu64
		    " s; see hwtctl clock\n",
		    stats->clock_ahead_ns / HWT_SEC(1));
	else if (stats->clock_leap_ns != 0)
		(void)fprintf(body,
		    "the clock has leapt by %" PRIu64
		    " s: nothing is executed until that has lasted\n",
		    stats->clock_leap_ns / HWT_SEC(1));
	else if (stats->lag_ns > LAG_MAX)
		(void)fprintf(body, "behind by %" PRIu64 " s\n",
		    stats->lag_ns / HWT_SEC(1));
	else
		return false;
	return true;
}

static bool
complain_of_queues(FILE *body)
{
	const struct queues *queues = &sample.queues;
	const struct queue *queue;
	bool late = false;

	for (queue = queues->queue; queue < queues->queue + queues->count;
	     queue++) {
		if (!is_late(queue))
			continue;
		late = true;
		(void)fprintf(body,
		    "queue %s: %" PRIu64 " wait for a worker, the oldest for "
		    "%" PRIu64 " s\n",
		    queue->name, queue->entries, queue->age_ns / HWT_SEC(1));
	}
	return late;
}

static void
answer_health(struct http_answer *answer)
{
	bool ill = complain_of_engine(answer->body);

	if (sample.error == 0)
		ill |= complain_of_queues(answer->body);
	if (ill)
		answer->status = 503;
	else
		(void)fputs("ok\n", answer->body);
	if (sample.error == 0) {
		warn_of_replicas(answer->body);
		warn_of_pauses(answer->body);
		warn_of_limits(answer->body);
		warn_of_others(answer->body);
	}
}

/* Who may ask. */

static bool
is_token_text(const char *text, size_t length)
{
	size_t i;

	for (i = 0; i < length; i++) {
		if (!isgraph((unsigned char)text[i]))
			return false;
	}
	return length >= TOKEN_MIN && length <= TOKEN_MAX;
}

int
serve_token_read(struct serve *serve, const char *path)
{
	char text[TOKEN_MAX + 2]; /* the end of the line, or more than fits */
	FILE *file = fopen(path, "re");
	size_t length;
	const char *end;
	bool valid;
	int error;

	if (file == NULL)
		return -errno;
	errno = EIO;
	length = fread(text, 1, sizeof(text), file);
	error = ferror(file) != 0 ? -errno : 0;
	(void)fclose(file);
	if (error != 0)
		return error;
	end = memchr(text, '\n', length);
	if (end != NULL)
		length = (size_t)(end - text);
	if (length > 0 && text[length - 1] == '\r')
		length--;
	valid = is_token_text(text, length);
	if (valid) {
		memcpy(serve->token, text, length);
		serve->token_length = length;
	}
	explicit_bzero(text, sizeof(text));
	return valid ? 0 : -EINVAL;
}

/* Takes as long for each text of a length, wherever it differs. */
static bool
is_token(const struct serve *serve, const char *text)
{
	size_t length = strlen(text), i;
	volatile unsigned char differ = length != serve->token_length;

	for (i = 0; i < length; i++)
		differ |= (unsigned char)(text[i] ^
		    serve->token[i % serve->token_length]);
	return differ == 0;
}

static bool
has_token(const struct serve *serve, const struct http_request *request)
{
	const char *text = http_header(request, "Authorization");

	return text != NULL && strncasecmp(text, "Bearer ", 7) == 0 &&
	    is_token(serve, text + 7);
}

/* Without the port, if there is one. */
static size_t
host_length(const char *host)
{
	const char *colon = strrchr(host, ':');
	uint64_t port;

	return colon != NULL && text_number(colon + 1, 0, 65535, &port)
	    ? (size_t)(colon - host)
	    : strlen(host);
}

/* The address that the server listens on, or "localhost": a browser that was
 * told another name for this address says that name. The port may be that of a
 * tunnel. */
static bool
is_own_host(const struct serve *serve, const char *host)
{
	size_t length = host_length(host);

	return (length == 9 && strncasecmp(host, "localhost", 9) == 0) ||
	    (length == host_length(serve->where) &&
		strncasecmp(host, serve->where, length) == 0);
}

/* Without a token, what a browser sends for a page of another origin must not
 * be done. A browser always names the origin of such a request. */
static bool
is_same_origin(const struct serve *serve, const struct http_request *request)
{
	const char *origin = http_header(request, "Origin");
	const char *host = http_header(request, "Host");

	if (host == NULL) /* HTTP/1.0, which no browser talks */
		return origin == NULL;
	return is_own_host(serve, host) &&
	    (origin == NULL ||
		(strncmp(origin, "http://", 7) == 0 &&
		    strcasecmp(origin + 7, host) == 0));
}

/* It has no data, and asks for a token itself. */
static bool
is_page(const struct http_request *request)
{
	return strcmp(request->method, "GET") == 0 && page_has(request->path);
}

/* Without the API, nothing has a body. */
static unsigned
admit(void *ctx, const struct http_request *request)
{
	const struct serve *serve = ctx;

	if (!serve->api)
		return strcmp(request->method, "GET") == 0 ? 0 : 405;
	if (serve->token_length > 0)
		return has_token(serve, request) || is_page(request) ? 0 : 401;
	return is_same_origin(serve, request) ? 0 : 403;
}

/* Routes. */

struct route {
	const char *method, *path; /* "{id}": a segment, an id or a name */
	api_function *call;
	bool always; /* without the API, too */
};

static void
route_metrics(struct api *api)
{
	(void)pthread_mutex_lock(&sample.lock);
	sample_take();
	answer_metrics(api->answer);
	(void)pthread_mutex_unlock(&sample.lock);
}

static void
route_health(struct api *api)
{
	(void)pthread_mutex_lock(&sample.lock);
	sample_take();
	answer_health(api->answer);
	(void)pthread_mutex_unlock(&sample.lock);
}

static void
route_stat(struct api *api)
{
	(void)pthread_mutex_lock(&sample.lock);
	sample_take();
	if (sample.error != 0)
		api_fail(api, sample.error);
	else {
		api->answer->type = "application/json";
		metrics_json(api->answer->body,
		    engine_space(durable_engine(sample.durable)), &sample.stats,
		    &sample.queues);
	}
	(void)pthread_mutex_unlock(&sample.lock);
}

static void
route_queues(struct api *api)
{
	(void)pthread_mutex_lock(&sample.lock);
	sample_take();
	if (sample.error != 0)
		api_fail(api, sample.error);
	else
		api_queues(api, &sample.queues);
	(void)pthread_mutex_unlock(&sample.lock);
}

static const struct route routes[] = {
    {"GET", "/", page_answer, false},
    {"GET", "/page.css", page_answer, false},
    {"GET", "/page.js", page_answer, false},
    {"GET", "/metrics", route_metrics, true},
    {"GET", "/health", route_health, true},
    {"POST", "/v1/tasks", api_add, false},
    {"GET", "/v1/tasks", api_tasks, false},
    {"PUT", "/v1/tasks/{id}", api_put, false},
    {"GET", "/v1/tasks/{id}", api_show, false},
    {"POST", "/v1/tasks/{id}/cancel", api_cancel, false},
    {"POST", "/v1/tasks/{id}/reschedule", api_reschedule, false},
    {"GET", "/v1/dead", api_dead, false},
    {"POST", "/v1/dead/{id}/replay", api_replay, false},
    {"POST", "/v1/dead/{id}/drop", api_drop, false},
    {"GET", "/v1/stat", route_stat, false},
    {"GET", "/v1/queues", route_queues, false},
    {"GET", "/v1/queues/{id}", api_queue, false},
    {"POST", "/v1/queues/{id}/pause", api_pause, false},
    {"POST", "/v1/queues/{id}/resume", api_resume, false},
    {"POST", "/v1/queues/{id}/limits", api_limit, false},
    {"GET", "/v1/schedules", api_schedules, false},
    {"GET", "/v1/schedules/{id}", api_schedule_show, false},
    {"PUT", "/v1/schedules/{id}", api_schedule_put, false},
    {"DELETE", "/v1/schedules/{id}", api_schedule_drop, false},
};

#define ROUTES (sizeof(routes) / sizeof(routes[0]))

/* *id: the id in the path, if the route has one. False: it is another path. */
static bool
route_fits(const struct route *route, const char *path, const char **id)
{
	const char *want = route->path;

	*id = NULL;
	for (; *want != '\0'; want++, path++) {
		if (strncmp(want, "{id}", 4) == 0) {
			*id = path;
			want += 3;
			path += strcspn(path, "/") - 1;
		} else if (*want != *path)
			return false;
	}
	return *path == '\0';
}

static void
route_find(const struct serve *serve, struct api *api)
{
	const struct http_request *request = api->request;
	const struct route *found = NULL;
	char allow[64] = "";
	const char *id;
	size_t i;

	for (i = 0; i < ROUTES; i++) {
		if ((!serve->api && !routes[i].always) ||
		    !route_fits(&routes[i], request->path, &id))
			continue;
		if (strcmp(routes[i].method, request->method) == 0) {
			found = &routes[i];
			api->escaped = id;
			api->escaped_length = id != NULL ? strcspn(id, "/") : 0;
		}
		if (strlen(allow) + 16 < sizeof(allow))
			(void)sprintf(allow + strlen(allow), "%s%s%s",
			    allow[0] != '\0' ? ", " : "", routes[i].method,
			    strcmp(routes[i].method, "GET") == 0 ? ", HEAD"
								 : "");
	}
	if (found != NULL) {
		found->call(api);
		return;
	}
	api->answer->status = allow[0] != '\0' ? 405 : 404;
	if (allow[0] != '\0')
		http_answer_header(api->answer, "Allow", allow);
	if (serve->api)
		api_refuse(api);
}

static void
handle(
    void *ctx, const struct http_request *request, struct http_answer *answer)
{
	const struct serve *serve = ctx;
	struct api api = {
	    .durable = sample.durable, .request = request, .answer = answer};

	if (request->refused == 0)
		route_find(serve, &api);
	else if (serve->api)
		api_refuse(&api);
	else if (request->refused == 405)
		http_answer_header(answer, "Allow", "GET, HEAD");
	if (!serve->api)
		return;
	http_answer_header(answer, "Cache-Control", "no-store");
	http_answer_header(answer, "X-Content-Type-Options", "nosniff");
}

void
serve_init(struct hwt_durable *durable, int stop_fd)
{
	sample.durable = durable;
	sample.stop_fd = stop_fd;
}

int
serve_start(struct http **http, int listener, struct serve *serve)
{
	const struct http_options options = {
	    .threads = serve->api ? API_THREADS : 1,
	    .wait_ns = serve->api ? API_WAIT_NS : 0,
	    .servers = serve->servers,
	    .admit = admit,
	    .handler = handle,
	    .ctx = serve};

	return http_start(http, listener, &options);
}
