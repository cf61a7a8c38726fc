/* SPDX-License-Identifier: Apache-2.0 */
/* What a payload asks for, and whether hwt-http may do it. */
#ifndef HWT_DURABLE_PROGRAMS_HWT_HTTP_CALL_H
#define HWT_DURABLE_PROGRAMS_HWT_HTTP_CALL_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

#define ALLOWED_MAX 64

/* Prefixes of URLs, in their parts. */
struct allowed {
	size_t count;
	CURLU *url[ALLOWED_MAX];
};

/* A payload is a URL, lines of headers as "Name: value", an empty line, and the
 * body; each line ends with LF or CRLF. */
struct http_call {
	CURLU *url;
	struct curl_slist *headers;
	const char *body; /* in the payload */
	size_t body_length;
};

/* Whether it is a URL that can be a prefix. */
bool allowed_add(struct allowed *allowed, const char *url);
bool allowed_has(const struct allowed *allowed, CURLU *url);

/* NULL; or why it is no call that is allowed, which is not to be tried again.
 * http_call_free in both cases. */
const char *http_call_parse(struct http_call *call,
    const struct allowed *allowed, char *payload, size_t length);
/* True: there was memory for it. */
bool http_call_add(struct http_call *call, const char *name, const char *value);
void http_call_free(struct http_call *call);

/* Of Standard Webhooks: "v1," and the base64 of HMAC-SHA256 of ID.TIME.BODY. */
#define SIGNATURE_SIZE 64
void http_call_sign(const struct http_call *call, const char *secret,
    size_t secret_length, const char *id, const char *time,
    char signature[SIGNATURE_SIZE]);

#endif
