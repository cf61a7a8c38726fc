/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the example server answers: a small page, a large document for slow
 * readers, a sink for request bodies, and errors. Read it from
 * http_answer_request downwards.
 */
#include "http.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 65536
#define LARGE_BYTES (UINT64_C(8) << 20)

static const char small_page[] =
    "<!DOCTYPE html>\n<title>hwt</title>\n"
    "<p>Served by several epoll loops on one shared timer.\n"
    "<p>Try <a href=\"/large\">a large document</a>, and watch\n"
    "<a href=\"/_timer\">what the timer does</a>.\n";

static char large_block[BLOCK_BYTES];

static const struct http_document documents[] = {
    {"/", "text/html", small_page, sizeof(small_page) - 1,
	sizeof(small_page) - 1},
    {"/large", "text/plain", large_block, BLOCK_BYTES, LARGE_BYTES},
};

/* Takes the body of a POST and forgets it. */
static const char sink_path[] = "/sink";

static const char *
status_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {
	    {200, "OK"},
	    {204, "No Content"},
	    {400, "Bad Request"},
	    {404, "Not Found"},
	    {405, "Method Not Allowed"},
	    {408, "Request Timeout"},
	    {431, "Request Header Fields Too Large"},
	    {501, "Not Implemented"},
	    {503, "Service Unavailable"},
	    {505, "HTTP Version Not Supported"},
	};
	size_t i;

	for (i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	assert(!"a status that has no reason here");
	return "";
}

bool
http_path_is(struct slice path, const char *text)
{
	return path.length == strlen(text) &&
	    memcmp(path.at, text, path.length) == 0;
}

static const struct http_document *
document_find(struct slice path)
{
	size_t i;

	for (i = 0; i < sizeof(documents) / sizeof(documents[0]); i++)
		if (http_path_is(path, documents[i].path))
			return &documents[i];
	return NULL;
}

static void
answer_document(struct http_answer *answer, const struct http_document *found,
    const struct http_request *request)
{
	int length = snprintf(answer->text, sizeof(answer->text),
	    "HTTP/1.1 200 OK\r\nContent-Type: %s\r\n"
	    "Content-Length: %" PRIu64 "\r\nConnection: %s\r\n\r\n",
	    found->type, found->length,
	    request->keep_alive ? "keep-alive" : "close");

	assert(length > 0 && (size_t)length < sizeof(answer->text));
	answer->status = 200;
	answer->text_length = (size_t)length;
	answer->document = found;
	answer->body_length = request->method == HTTP_HEAD ? 0 : found->length;
}

/* An answer that its status says all about. extra: more lines of the head. */
static void
answer_status(struct http_answer *answer, int status, const char *extra,
    bool keep_alive, bool wants_body)
{
	const char *reason = status_reason(status);
	const char *body = wants_body && status != 204 ? reason : "";
	const char *end = body[0] != '\0' ? "\n" : "";
	char content[80] = "";
	int length;

	/* Without content, its length may not be told either. */
	if (status != 204)
		snprintf(content, sizeof(content),
		    "Content-Type: text/plain\r\nContent-Length: %zu\r\n",
		    strlen(reason) + 1);
	length = snprintf(answer->text, sizeof(answer->text),
	    "HTTP/1.1 %d %s\r\n%s%sConnection: %s\r\n\r\n%s%s", status, reason,
	    content, extra, keep_alive ? "keep-alive" : "close", body, end);
	assert(length > 0 && (size_t)length < sizeof(answer->text));
	answer->status = status;
	answer->text_length = (size_t)length;
	answer->document = NULL;
	answer->body_length = 0;
}

void
http_answer_prepare(void)
{
	static const char pattern[] = "approximately on time, every time.\n";
	size_t i;

	for (i = 0; i < BLOCK_BYTES; i++)
		large_block[i] = pattern[i % (sizeof(pattern) - 1)];
}

/* found may be NULL. */
static void
answer_found(struct http_answer *answer, const struct http_request *request,
    const struct http_document *found)
{
	bool wants_body = request->method != HTTP_HEAD;

	if (found == NULL)
		answer_status(answer, 404, "", request->keep_alive, wants_body);
	else if (request->method != HTTP_GET && request->method != HTTP_HEAD)
		answer_status(answer, 405, "Allow: GET, HEAD\r\n",
		    request->keep_alive, wants_body);
	else
		answer_document(answer, found, request);
}

void
http_answer_request(
    struct http_answer *answer, const struct http_request *request)
{
	if (!http_path_is(request->path, sink_path))
		answer_found(answer, request, document_find(request->path));
	else if (request->method != HTTP_POST)
		answer_status(answer, 405, "Allow: POST\r\n",
		    request->keep_alive, request->method != HTTP_HEAD);
	else
		answer_status(answer, 204, "", request->keep_alive, false);
}

void
http_answer_text(struct http_answer *answer, const struct http_request *request,
    const char *type, char *text, size_t length)
{
	assert(answer->own_text == NULL);
	answer->own_text = text;
	answer->own = (struct http_document){
	    .type = type,
	    .block = text,
	    .block_length = length,
	    .length = length,
	};
	answer_found(answer, request, &answer->own);
}

void
http_answer_clear(struct http_answer *answer)
{
	free(answer->own_text);
	answer->own_text = NULL;
}

void
http_answer_error(struct http_answer *answer, int status)
{
	answer_status(answer, status, "", false, true);
}

uint64_t
http_answer_length(const struct http_answer *answer)
{
	return answer->text_length + answer->body_length;
}

size_t
http_answer_parts(const struct http_answer *answer, uint64_t sent,
    struct iovec *parts, size_t max)
{
	uint64_t end = http_answer_length(answer);
	size_t count;

	for (count = 0; count < max && sent < end; count++) {
		const struct http_document *document = answer->document;
		const char *from;
		uint64_t left;

		if (sent < answer->text_length) {
			from = answer->text + sent;
			left = answer->text_length - sent;
		} else {
			uint64_t offset = sent - answer->text_length;

			from =
			    document->block + offset % document->block_length;
			left = document->block_length -
			    offset % document->block_length;
			if (left > end - sent)
				left = end - sent;
		}
		/* iovec has no const: the parts are only read. */
		parts[count].iov_base = (void *)(uintptr_t)from;
		parts[count].iov_len = (size_t)left;
		sent += left;
	}
	return count;
}
