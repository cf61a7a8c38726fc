/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads HTTP/1.x request heads. Strict where leniency has been an attack: no
 * bare line feeds, no folded lines, no space before a colon, one Host, lengths
 * that agree. Read it from http_parse at the end upwards.
 */
#define _GNU_SOURCE
#include "http.h"

#include <string.h>
#include <strings.h>

static bool
slice_is(struct slice slice, const char *text)
{
	return slice.length == strlen(text) &&
	    strncasecmp(slice.at, text, slice.length) == 0;
}

static bool
slice_starts(struct slice slice, const char *text)
{
	return slice.length >= strlen(text) &&
	    memcmp(slice.at, text, strlen(text)) == 0;
}

/* Cuts head off the front of *rest, up to the separator, which is dropped. */
static bool
slice_split(struct slice *rest, const char *separator, struct slice *head)
{
	size_t width = strlen(separator);
	const char *end = memmem(rest->at, rest->length, separator, width);

	if (end == NULL)
		return false;
	*head = (struct slice){rest->at, (size_t)(end - rest->at)};
	rest->at += head->length + width;
	rest->length -= head->length + width;
	return true;
}

static struct slice
slice_trimmed(struct slice slice)
{
	while (slice.length > 0 && (*slice.at == ' ' || *slice.at == '\t')) {
		slice.at++;
		slice.length--;
	}
	while (slice.length > 0 && strchr(" \t", slice.at[slice.length - 1]))
		slice.length--;
	return slice;
}

static bool
is_token(struct slice slice)
{
	static const char marks[] = "!#$%&'*+-.^_`|~";
	size_t i;

	for (i = 0; i < slice.length; i++) {
		unsigned char c = (unsigned char)slice.at[i];
		bool alphanumeric = (c >= '0' && c <= '9') ||
		    ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');

		if (!alphanumeric && (c == '\0' || strchr(marks, c) == NULL))
			return false;
	}
	return slice.length > 0;
}

/* No control characters but tabs, and no byte below lowest. */
static bool
is_text(struct slice slice, unsigned char lowest)
{
	size_t i;

	for (i = 0; i < slice.length; i++) {
		unsigned char c = (unsigned char)slice.at[i];

		if ((c < lowest && c != '\t') || c == 0x7f)
			return false;
		if (c == '\t' && lowest > ' ')
			return false;
	}
	return true;
}

static enum http_method
parse_method(struct slice method)
{
	/* Methods are case-sensitive, unlike the names of fields. */
	if (method.length == 3 && slice_starts(method, "GET"))
		return HTTP_GET;
	if (method.length == 4 && slice_starts(method, "HEAD"))
		return HTTP_HEAD;
	if (method.length == 4 && slice_starts(method, "POST"))
		return HTTP_POST;
	return HTTP_OTHER;
}

static int
parse_version(struct slice version, struct http_request *request)
{
	if (version.length != 8 || !slice_starts(version, "HTTP/") ||
	    version.at[6] != '.')
		return 400;
	if (version.at[5] != '1')
		return 505;
	request->minor_version = version.at[7] == '0' ? 0 : 1;
	request->keep_alive = request->minor_version == 1;
	return 0;
}

static int
parse_target(struct slice target, struct http_request *request)
{
	struct slice authority;

	if (slice_starts(target, "http://")) {
		target.at += 7;
		target.length -= 7;
		if (!slice_split(&target, "/", &authority))
			return 400;
		target.at--;
		target.length++;
	}
	if (!is_text(target, ' ' + 1) ||
	    !(slice_starts(target, "/") || slice_is(target, "*")))
		return 400;
	if (!slice_split(&target, "?", &request->path))
		request->path = target;
	return 0;
}

static int
parse_request_line(struct slice line, struct http_request *request)
{
	struct slice method, target;
	int status;

	if (!slice_split(&line, " ", &method) || !is_token(method))
		return 400;
	if (!slice_split(&line, " ", &target))
		return 400;
	request->method = parse_method(method);
	status = parse_version(line, request);
	return status != 0 ? status : parse_target(target, request);
}

static int
parse_length(struct slice value, struct http_request *request)
{
	uint64_t length = 0;
	size_t i;

	/* Eighteen digits cannot overflow, and are enough for anybody. */
	if (value.length == 0 || value.length > 18)
		return 400;
	for (i = 0; i < value.length; i++) {
		if (value.at[i] < '0' || value.at[i] > '9')
			return 400;
		length = length * 10 + (uint64_t)(value.at[i] - '0');
	}
	if (request->has_body_length && request->body_length != length)
		return 400;
	request->has_body_length = true;
	request->body_length = length;
	return 0;
}

static void
parse_connection(struct slice value, struct http_request *request)
{
	struct slice option;
	bool more;

	do {
		more = slice_split(&value, ",", &option);
		option = slice_trimmed(more ? option : value);
		if (slice_is(option, "close"))
			request->keep_alive = false;
		else if (slice_is(option, "keep-alive") &&
		    request->minor_version == 0)
			request->keep_alive = true;
	} while (more);
}

static int
parse_field(struct slice line, struct http_request *request)
{
	struct slice name, value;

	if (!slice_split(&line, ":", &name) || !is_token(name))
		return 400;
	value = slice_trimmed(line);
	if (!is_text(value, ' '))
		return 400;
	if (slice_is(name, "Host"))
		request->host_count++;
	else if (slice_is(name, "Content-Length"))
		return parse_length(value, request);
	else if (slice_is(name, "Transfer-Encoding"))
		request->is_chunked = true;
	else if (slice_is(name, "Connection"))
		parse_connection(value, request);
	else if (slice_is(name, "Expect"))
		request->expects_continue = slice_is(value, "100-continue");
	return 0;
}

/* What no single line can show. */
static int
check_request(const struct http_request *request)
{
	if (request->host_count > 1 ||
	    (request->host_count == 0 && request->minor_version > 0))
		return 400;
	if (request->is_chunked)
		return request->has_body_length ? 400 : 501;
	return 0;
}

size_t
http_head_length(const char *text, size_t length, size_t known)
{
	/* The mark may have begun in what was searched before. */
	size_t from = known > 3 ? known - 3 : 0;
	const char *end = memmem(text + from, length - from, "\r\n\r\n", 4);

	return end == NULL ? 0 : (size_t)(end - text) + 4;
}

int
http_parse(const char *head, size_t length, struct http_request *request)
{
	struct slice rest = {head, length}, line;
	int status;

	*request = (struct http_request){.method = HTTP_OTHER};
	/* Empty lines before a request are to be ignored. */
	do {
		if (!slice_split(&rest, "\r\n", &line))
			return 400;
	} while (line.length == 0);
	status = parse_request_line(line, request);
	while (
	    status == 0 && slice_split(&rest, "\r\n", &line) && line.length > 0)
		status = parse_field(line, request);
	return status != 0 ? status : check_request(request);
}
