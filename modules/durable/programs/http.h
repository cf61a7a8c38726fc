/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server of HTTP, on libmicrohttpd, whose handlers may wait for the engine.
 *
 * One thread does all input and output. A whole request goes to a pool of
 * threads, which call the handler; its connection costs only memory meanwhile,
 * and so does one that is idle. A client has LIMIT_NS from the connection, or
 * from its last answer, for a whole request, and as long again to read the
 * answer: then it is cut, by a timeout of hwt.
 */
#ifndef HWT_DURABLE_HTTP_H
#define HWT_DURABLE_HTTP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct http;

/* Lent to the handler until it returns. */
struct http_request {
	const char *method; /* never HEAD, which is answered as GET */
	const char *path; /* decoded, without the query */
	const char *body; /* NULL if there is none */
	size_t length; /* of body; at most HTTP_BODY_MAX */
};

#define HTTP_BODY_MAX (1u << 20)

struct http_answer {
	unsigned status; /* 200 */
	const char *type; /* of the body; "text/plain; charset=utf-8" */
	const char *allow; /* the header Allow; NULL: none */
	FILE *body; /* if nothing is written: what the status means */
};

/* Several threads call it at a time. */
typedef void http_handler(
    void *ctx, const struct http_request *request, struct http_answer *answer);

/* Listens on [ADDRESS:]PORT, writes the address to where, and returns the
 * socket. -EINVAL: the text makes no sense; or another -errno. */
int http_listen(const char *address, char where[64]);

/* Serves a socket of http_listen, which it closes in the end. Its threads block
 * all signals. 0 or -errno. */
int http_start(struct http **http, int listener, uint32_t threads,
    http_handler *handler, void *ctx);

/* Closes all connections, and waits for handlers that run. NULL: does nothing.
 */
void http_stop(struct http *http);

#endif
