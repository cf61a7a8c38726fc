/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP: eight paths, which do what commands do; hwtd (8) lists them.
 *
 *   http.c     connections, who is answered, paths
 *   answers.c  commands, and their replies as JSON and for Prometheus
 *
 * AUTHENTICATION. With a password: a client that sends it (Basic, any user).
 * Without one: a client whose Host is an address or localhost, which excludes
 * pages of other sites whose name was made to resolve to this machine; the
 * server must listen on a loopback address then. Changes need PUT or DELETE,
 * which a browser does not send for a page of another origin without asking
 * first.
 */
#ifndef HWT_DURABLE_SERVER_HTTP_H
#define HWT_DURABLE_SERVER_HTTP_H

#include <stdbool.h>
#include <stdio.h>

#include "modules/durable/hwt_durable.h"

struct http_options {
	struct hwt_durable *durable;
	int fd; /* a socket that listens */
	const char *password; /* "": none */
	size_t payload_max;
};

/* One of a process. NULL, or why it has not started. */
const char *http_start(const struct http_options *options);
void http_stop(void);

/* A request, for the functions that answer it. They write to out, and may set
 * the status, which is 200. */
struct http_request {
	const struct http_options *options;
	struct MHD_Connection *connection;
	const struct route *route; /* NULL: it was answered already */
	char allow[32]; /* methods of the path, each behind ", " */
	char queue[HWT_DURABLE_QUEUE_MAX + 1];
	char id[HWT_DURABLE_ID_MAX];
	size_t id_length;
	char *body;
	size_t body_length;
	unsigned status;
	const char *type; /* of out */
	FILE *out; /* to text */
	char *text;
	size_t text_length;
};

struct route {
	const char *method;
	const char *path; /* with Q for a queue, # for an id */
	const char *parameters; /* of the query, each between blanks */
	void (*answer)(struct http_request *request);
	const char *command, *word; /* for answer */
};

/* A parameter of the query; otherwise if it is not given. */
const char *request_parameter(const struct http_request *request,
    const char *name, const char *otherwise);
/* {"error": text}. */
void request_fail(
    struct http_request *request, unsigned status, const char *text);

/* answers.c */
void answer_health(struct http_request *request);
void answer_metrics(struct http_request *request);
void answer_queues(struct http_request *request);
/* HWT.LIST of a state: word, or the parameter. */
void answer_list(struct http_request *request);
void answer_add(struct http_request *request);
void answer_get(struct http_request *request);
/* A command that says 1 or 0 of the id. */
void answer_change(struct http_request *request);
void write_error(FILE *out, const char *text);

#endif
