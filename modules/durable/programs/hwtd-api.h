/* SPDX-License-Identifier: Apache-2.0 */
/* What the HTTP API does, by path: see hwtd-serve.c for the table. */
#ifndef HWT_DURABLE_HWTD_API_H
#define HWT_DURABLE_HWTD_API_H

#include "http.h"
#include "modules/durable/hwt_durable.h"

/* A request and its answer. */
struct api {
	struct hwt_durable *durable;
	const struct http_request *request;
	struct http_answer *answer;
	const char *escaped; /* the id in the path, as it was sent */
	size_t escaped_length;
};

typedef void api_function(struct api *api);

/* Says why a request has the status of the answer, which is none of the
 * library's errors. */
void api_refuse(struct api *api);

/* Below /v1/tasks. */
void api_add(struct api *api); /* one, or an array */
void api_put(struct api *api);
void api_show(struct api *api);
void api_cancel(struct api *api);
void api_reschedule(struct api *api);

#endif
