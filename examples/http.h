/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP/1.1 that the example server speaks, as pure functions: no socket,
 * no clock. http_parse.c reads request heads, http_answer.c words the answers.
 */
#ifndef EXAMPLES_HTTP_H
#define EXAMPLES_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum http_method {
	HTTP_GET,
	HTTP_HEAD,
	HTTP_POST,
	HTTP_OTHER
};

/* A piece of somebody else's text; not terminated. */
struct slice {
	const char *at;
	size_t length;
};

struct http_request {
	enum http_method method;
	/* Without the query; points into the head that was parsed. */
	struct slice path;
	uint64_t body_length;
	bool has_body_length, keep_alive, expects_continue, is_chunked;
	unsigned minor_version, host_count;
};

/* A document whose byte i is block[i % block_length], so that a large one
 * needs no memory. */
struct http_document {
	const char *path, *type, *block;
	size_t block_length;
	uint64_t length;
};

/* An answer: text first, which is the head and the body of small answers, then
 * body_length bytes of the document. */
struct http_answer {
	int status;
	char text[256];
	size_t text_length;
	const struct http_document *document;
	uint64_t body_length;
	/* The document of http_answer_text, and its text. */
	struct http_document own;
	char *own_text;
};

/*
 * Finds the end of the head that starts at text: its length with the empty
 * line, or 0 when more must come. The first known bytes of text were searched
 * before.
 */
size_t http_head_length(const char *text, size_t length, size_t known);

/*
 * Reads a whole head. 0, or the status of the error to answer: 400, 501, 505.
 * Then the position of the next request is unknown: the connection must end.
 */
int http_parse(const char *head, size_t length, struct http_request *request);

/* Fills the documents; once, before the first answer. */
void http_answer_prepare(void);

/* The answer to a request that was understood. */
void http_answer_request(
    struct http_answer *answer, const struct http_request *request);

/* The same with a text of malloc, which becomes the answer's own until
 * http_answer_clear. */
void http_answer_text(struct http_answer *answer,
    const struct http_request *request, const char *type, char *text,
    size_t length);
void http_answer_clear(struct http_answer *answer);

bool http_path_is(struct slice path, const char *text);

/* The answer to one that was not; the connection ends after it. */
void http_answer_error(struct http_answer *answer, int status);

/* The number of bytes that answer has in all. */
uint64_t http_answer_length(const struct http_answer *answer);

/* Describes what comes after the first sent bytes, as far as max parts reach;
 * returns the number of parts. */
size_t http_answer_parts(const struct http_answer *answer, uint64_t sent,
    struct iovec *parts, size_t max);

#endif
