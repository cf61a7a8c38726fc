/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "hwtd-api.h"

#include <string.h>

#include "text.h"

/* An object with "error" and "message". */
static void
fail(struct api *api, unsigned status, const char *name, const char *message)
{
	FILE *body = api->answer->body;

	api->answer->status = status;
	api->answer->type = "application/json";
	(void)fputc('{', body);
	json_write(body, "error", name, strlen(name));
	(void)fputc(',', body);
	json_write(body, "message", message, strlen(message));
	(void)fputs("}\n", body);
}

void
api_refuse(struct api *api)
{
	switch (api->answer->status) {
	case 401:
		http_answer_header(api->answer, "WWW-Authenticate", "Bearer");
		fail(api, 401, "unauthorized",
		    "want the token of --token-file: Authorization: Bearer "
		    "TOKEN");
		return;
	case 403:
		fail(api, 403, "forbidden",
		    "without a token, only programs of this machine, and the "
		    "page itself, may ask; Host must be localhost or a "
		    "number");
		return;
	case 404:
		fail(api, 404, "not_found", "there is no such path");
		return;
	case 405:
		fail(api, 405, "method_not_allowed",
		    "the path has other methods: see Allow");
		return;
	case 413:
		fail(api, 413, "too_large", "a body has at most 1 MiB");
		return;
	default:
		http_answer_header(api->answer, "Retry-After", "1");
		fail(api, 503, "busy",
		    "too many requests wait; nothing has happened");
		return;
	}
}
