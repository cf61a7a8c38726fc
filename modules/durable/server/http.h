/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP: eight paths, which do what commands do.
 *
 *   GET /                         the page
 *   GET /metrics                  for Prometheus
 *   GET /health                   200, or 503 and why
 *   GET /queues?after=&count=     names and HWT.STAT of each
 *   GET /queues/Q/tasks?state=&cursor=&count=
 *   PUT, GET, DELETE /queues/Q/tasks/ID
 *       adds the body (?in=MS or due=UNIX-MS, attempts=, retry=FIRST,MOST,
 *       expires=, result=), shows, cancels
 *   GET /queues/Q/dead?cursor=&count=
 *   PUT, DELETE /queues/Q/dead/ID
 *       replays, drops
 *
 * An id is percent-encoded in paths, and in answers, which are JSON. An error
 * is {"error": SENTENCE}, and nothing was changed.
 *
 * WHO IS ANSWERED. With a token, who sends it: Authorization: Bearer TOKEN.
 * Without one, who names the address that is listened on, or localhost, as the
 * Host: so not a page of another site whose name was made to lead here. What
 * changes something needs PUT or DELETE, which a browser does not send for a
 * page of another origin without asking first. The page has no data, and
 * anybody gets it.
 */
#ifndef HWT_DURABLE_SERVER_HTTP_H
#define HWT_DURABLE_SERVER_HTTP_H

#include <stdio.h>

#include "modules/durable/server/engine.h"

struct http;

struct http_options {
	struct engine *engine;
	int fd; /* a socket that listens */
	const char *token; /* NULL: none */
	size_t payload_max;
};

/* 0 or -errno; then why is a sentence. */
int http_start(struct http **http, const struct http_options *options,
    char why[ENGINE_WHY]);
void http_stop(struct http *http);

/*
 * A request, for the functions that answer it. They write JSON to out, and may
 * set the status, which is 200.
 */
enum place {
	PLACE_PAGE,
	PLACE_METRICS,
	PLACE_HEALTH,
	PLACE_QUEUES,
	PLACE_TASKS,
	PLACE_TASK,
	PLACE_DEAD,
	PLACE_LETTER,
	PLACES
};

#define HTTP_ID_MAX 64

struct request;
typedef void request_function(struct request *request, redisContext *context);

struct request {
	struct http *http;
	struct MHD_Connection *connection;
	request_function *function;
	struct engine *engine;
	const char *space;
	enum place place;
	char queue[ENGINE_NAME_MAX + 1];
	char id[HTTP_ID_MAX];
	size_t id_length;
	char *body;
	size_t body_length, body_room;
	bool too_long;
	unsigned status;
	const char *type; /* of out */
	FILE *out; /* to text */
	char *text;
	size_t text_length;
};

/* A parameter of the query; NULL: it is not given. */
const char *request_parameter(const struct request *request, const char *name);
void request_fail(struct request *request, unsigned status, const char *text);

/* api.c */
request_function api_health, api_queues, api_tasks, api_add, api_get,
    api_cancel, api_dead, api_replay, api_drop;
/* metrics.c */
request_function metrics_answer;

#endif
