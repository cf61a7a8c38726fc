/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "modules/durable/programs/hwt-http-call.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* NULL if the URL has no such part. curl_free. */
static char *
part_of(CURLU *url, CURLUPart part)
{
	char *text = NULL;

	(void)curl_url_get(url, part, &text, CURLU_DEFAULT_PORT);
	return text;
}

static bool
has_part(CURLU *url, CURLUPart part)
{
	char *text = part_of(url, part);

	curl_free(text);
	return text != NULL;
}

/* The same parser reads what is allowed, what is asked for, and what is called,
 * and takes "." and ".." out of the path. */
static CURLU *
parse_url(const char *text)
{
	CURLU *url = curl_url();
	char *scheme;
	bool right;

	if (url == NULL || curl_url_set(url, CURLUPART_URL, text, 0) != 0) {
		curl_url_cleanup(url);
		return NULL;
	}
	scheme = part_of(url, CURLUPART_SCHEME);
	right = scheme != NULL &&
	    (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0) &&
	    !has_part(url, CURLUPART_USER) &&
	    !has_part(url, CURLUPART_PASSWORD) &&
	    !has_part(url, CURLUPART_FRAGMENT);
	curl_free(scheme);
	if (right)
		return url;
	curl_url_cleanup(url);
	return NULL;
}

bool
allowed_add(struct allowed *allowed, const char *text)
{
	CURLU *url = allowed->count < ALLOWED_MAX ? parse_url(text) : NULL;

	if (url == NULL || has_part(url, CURLUPART_QUERY)) {
		curl_url_cleanup(url);
		return false;
	}
	allowed->url[allowed->count++] = url;
	return true;
}

static bool
same_part(CURLU *a, CURLU *b, CURLUPart part)
{
	char *x = part_of(a, part), *y = part_of(b, part);
	bool same = x != NULL && y != NULL && strcasecmp(x, y) == 0;

	curl_free(x);
	curl_free(y);
	return same;
}

/* Whole segments: /hook allows /hook and /hook/1, not /hooks. What a server
 * could take for a dot, a slash or a backslash is under the root alone. */
static bool
path_begins(const char *path, const char *prefix)
{
	size_t length = strlen(prefix);

	if (strcmp(prefix, "/") == 0)
		return true;
	if (strcasestr(path, "%2e") != NULL ||
	    strcasestr(path, "%2f") != NULL ||
	    strcasestr(path, "%5c") != NULL || strchr(path, '\\') != NULL)
		return false;
	return strncmp(path, prefix, length) == 0 &&
	    (prefix[length - 1] == '/' || path[length] == '\0' ||
		path[length] == '/');
}

bool
allowed_has(const struct allowed *allowed, CURLU *url)
{
	char *prefix, *path = part_of(url, CURLUPART_PATH);
	bool found = false;
	size_t i;

	for (i = 0; path != NULL && i < allowed->count && !found; i++) {
		prefix = part_of(allowed->url[i], CURLUPART_PATH);
		found = prefix != NULL && path_begins(path, prefix) &&
		    same_part(allowed->url[i], url, CURLUPART_SCHEME) &&
		    same_part(allowed->url[i], url, CURLUPART_HOST) &&
		    same_part(allowed->url[i], url, CURLUPART_PORT);
		curl_free(prefix);
	}
	curl_free(path);
	return found;
}

/* The next line, which then ends with a NUL; NULL: there is none. */
static char *
take_line(char **at, char *end)
{
	char *line = *at;
	char *feed =
	    line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;

	if (line >= end)
		return NULL;
	*at = feed != NULL ? feed + 1 : end;
	if (feed == NULL)
		feed = end;
	if (feed > line && feed[-1] == '\r')
		feed--;
	*feed = '\0';
	return strlen(line) == (size_t)(feed - line) ? line : NULL;
}

/* A header of the caller: none that changes what is a request, or that is
 * ours. */
static bool
header_is_right(const char *line)
{
	static const char *const refused[] = {"Host", "Content-Length",
	    "Transfer-Encoding", "Connection", "Expect", "Upgrade", "TE",
	    "Trailer"};
	const char token[] = "!#$%&'*+-.^_`|~0123456789"
			     "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			     "abcdefghijklmnopqrstuvwxyz";
	size_t i, length = strspn(line, token);
	const char *c;

	if (length == 0 || line[length] != ':')
		return false;
	for (c = line + length; *c != '\0'; c++) {
		if ((unsigned char)*c < ' ' && *c != '\t')
			return false;
	}
	if (strncasecmp(line, "Webhook-", 8) == 0 ||
	    strncasecmp(line, "Hwt-", 4) == 0 ||
	    strncasecmp(line, "Proxy-", 6) == 0)
		return false;
	for (i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		if (length == strlen(refused[i]) &&
		    strncasecmp(line, refused[i], length) == 0)
			return false;
	}
	return true;
}

static bool
append(struct http_call *call, const char *line)
{
	struct curl_slist *list = curl_slist_append(call->headers, line);

	if (list != NULL)
		call->headers = list;
	return list != NULL;
}

bool
http_call_add(struct http_call *call, const char *name, const char *value)
{
	char line[400];

	return snprintf(line, sizeof(line), "%s: %s", name, value) <
	    (int)sizeof(line) &&
	    append(call, line);
}

const char *
http_call_parse(struct http_call *call, const struct allowed *allowed,
    char *payload, size_t length)
{
	char *line, *at = payload, *end = payload + length;

	*call = (struct http_call){.body = end};
	line = take_line(&at, end);
	call->url = line != NULL ? parse_url(line) : NULL;
	if (call->url == NULL)
		return "the payload does not begin with a URL of http or https";
	if (!allowed_has(allowed, call->url))
		return "the URL begins with none that is allowed";
	while ((line = take_line(&at, end)) != NULL && *line != '\0') {
		if (!header_is_right(line))
			return "the payload has a header that is not allowed";
		/* libcurl drops a header that ends with its colon. */
		if (line[strlen(line) - 1] == ':' || !append(call, line))
			return "the payload has a header without a value";
	}
	if (line == NULL && at < end)
		return "the payload has a NUL in its headers";
	call->body = at;
	call->body_length = (size_t)(end - at);
	return NULL;
}

void
http_call_free(struct http_call *call)
{
	curl_url_cleanup(call->url);
	curl_slist_free_all(call->headers);
}

void
http_call_sign(const struct http_call *call, const char *secret,
    size_t secret_length, const char *id, const char *time,
    char signature[SIGNATURE_SIZE])
{
	unsigned char mac[EVP_MAX_MD_SIZE];
	unsigned int mac_length = 0;
	size_t head = strlen(id) + strlen(time) + 2;
	char *text = malloc(head + call->body_length + 1);

	signature[0] = '\0';
	if (text == NULL)
		return;
	(void)sprintf(text, "%s.%s.", id, time);
	memcpy(text + head, call->body, call->body_length);
	if (HMAC(EVP_sha256(), secret, (int)secret_length,
		(const unsigned char *)text, head + call->body_length, mac,
		&mac_length) != NULL) {
		(void)strcpy(signature, "v1,");
		(void)EVP_EncodeBlock(
		    (unsigned char *)signature + 3, mac, (int)mac_length);
	}
	free(text);
}
