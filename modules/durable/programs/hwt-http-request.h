/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call that a task asks for: its payload, the headers that are sent, and
 * the signature. Nothing here sends anything.
 */
#ifndef HWT_DURABLE_HTTP_REQUEST_H
#define HWT_DURABLE_HTTP_REQUEST_H

#include <curl/curl.h>
#include <jansson.h>

#include "modules/durable/hwt_durable.h"

#define HOST_MAX 256
#define ORIGIN_MAX (HOST_MAX + 24) /* scheme, host and port */
#define WHY_MAX 400 /* bytes of an error's text, with the 0 */
#define SECRETS_MAX 4

/* Where a URL leads. */
struct target {
	char origin[ORIGIN_MAX]; /* as https://host:443, in lower case */
	char host[HOST_MAX]; /* in lower case; of IPv6 with brackets */
	bool secure; /* https */
};

struct request {
	json_t *json; /* has the texts that the others point to */
	const char *method, *url;
	const char *body; /* NULL: none */
	size_t body_length;
	json_t *headers; /* names and texts, or NULL */
	uint64_t timeout_ms; /* 0: none was given */
	struct target target;
};

/* What is told of a task in headers. */
struct sender {
	char id[3 * HWT_DURABLE_ID_MAX + 1]; /* percent-encoded */
	uint32_t attempt, generation;
	uint64_t due_ms, fence;
};

/* Keys of signatures, as they are and not as text. */
struct secrets {
	struct {
		unsigned char key[512];
		size_t length;
	} secret[SECRETS_MAX];
	size_t count;
};

/* Before the first request_read, which so sees what jansson does not tell: that
 * there is no memory. */
void requests_init(void);

/* 0: done. Otherwise why says what is wrong, and this is the task's outcome:
 * HWT_DURABLE_FAIL; or HWT_DURABLE_RETRY, if there is no memory. */
int request_read(struct request *request, const char *payload, size_t length,
    char why[WHY_MAX]);
void request_free(struct request *request);

/* NULL: done; or what is wrong with the URL. */
const char *target_read(struct target *target, const char *url);

void sender_read(
    struct sender *sender, const struct hwt_durable_delivery *delivery);

/* The headers of an attempt at unix_s, without what may not get to another
 * origin if is_other. body NULL: none. NULL: no memory. */
struct curl_slist *headers_make(const struct request *request,
    const struct sender *sender, const struct secrets *secrets, uint64_t unix_s,
    const char *body, bool is_other);

/* Reads the first lines of a file, up to SECRETS_MAX of them. NULL: done; or
 * what is wrong. */
const char *secrets_read(struct secrets *secrets, const char *path);

#endif
