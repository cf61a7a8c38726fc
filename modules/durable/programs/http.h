/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server of HTTP, on libmicrohttpd, whose handlers may wait for the engine.
 *
 * One thread does all input and output. A whole request goes to a pool of
 * threads, which call the handler; its connection costs only memory meanwhile,
 * and so does one that is idle. A client has LIMIT_NS from the connection, or
 * from its last answer, for a whole request, and as long again to read the
 * answer: then it is cut, by a timeout of hwt. Bodies, and answers until they
 * are sent or cut, take at most TEXTS_MAX together; what is asked for beyond
 * that is refused.
 */
#ifndef HWT_DURABLE_HTTP_H
#define HWT_DURABLE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct http;
struct MHD_Connection;

/* Valid until the callback that gets it has returned. */
struct http_request {
	const char *method; /* never HEAD, which is answered as GET */
	const char *path; /* as it was sent, without the query */
	const char *body; /* NULL if there is none */
	size_t length; /* of body; at most HTTP_BODY_MAX */
	/* 0, or the status that the answer is to have: what admit has said; 413
	 * if the body is too long; 503 if there is no room for it or for the
	 * answer, or the request has waited for a thread for longer than
	 * wait_ns. */
	unsigned refused;
	struct MHD_Connection *connection;
};

#define HTTP_BODY_MAX (1u << 20)

/* As they were sent; NULL: there is none. */
const char *http_header(const struct http_request *request, const char *name);
const char *http_query(const struct http_request *request, const char *name);

#define HTTP_HEADERS_MAX 8

struct http_answer {
	unsigned status; /* 200, or what the request was refused with */
	const char *type; /* of the body; "text/plain; charset=utf-8" */
	FILE *body; /* if nothing is written: what the status means */
	size_t headers;
	struct {
		const char *name;
		char value[192];
	} header[HTTP_HEADERS_MAX];
};

/* A header of the answer; name is constant. */
void http_answer_header(
    struct http_answer *answer, const char *name, const char *value);

/* Looks at the head of a request, before its body is read, and returns 0, or
 * the status to refuse it with; then the body is not kept. Must not block. */
typedef unsigned http_admit(void *ctx, const struct http_request *request);

/* Several threads call it at a time. It does not block if the request was
 * refused. */
typedef void http_handler(
    void *ctx, const struct http_request *request, struct http_answer *answer);

struct http_options {
	uint32_t threads; /* that call the handler */
	uint64_t wait_ns; /* for one of them; 0: however long */
	/* At most so many; 0: as many as the descriptors of this process
	 * suffice for, of which each of its servers, at least 1, has its
	 * part. */
	unsigned connections;
	unsigned servers;
	http_admit *admit; /* NULL: all are admitted */
	http_handler *handler;
	void *ctx; /* of both */
};

/* Listens on [ADDRESS:]PORT, writes the address to where, and returns the
 * socket. -EINVAL: the text makes no sense; -EPERM: other machines can reach
 * the address, and loopback is true; or another -errno. */
int http_listen(const char *address, bool loopback, char where[64]);

/* Serves a socket of http_listen, which it closes in the end. Its threads block
 * all signals. 0 or -errno. */
int http_start(
    struct http **http, int listener, const struct http_options *options);

/* Waits for up to 10 s for handlers that run, and for up to a second until
 * clients have their answers: those whose turn has not come get 503. Then
 * closes all connections. False: a handler runs on, with all that it uses, and
 * nothing is closed; the process should end. NULL: does nothing. */
bool http_stop(struct http *http);

#endif
