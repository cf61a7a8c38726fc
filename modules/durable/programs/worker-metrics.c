/* SPDX-License-Identifier: Apache-2.0 */
#include "worker-metrics.h"

#include <errno.h>
#include <string.h>

#include "http.h"
#include "options.h"
#include "text.h"

#define CONNECTIONS 16 /* the others are for the work */

const char *worker_metrics_at;

static int listener = -1;
static struct http *http;

static unsigned
admit(void *ctx, const struct http_request *request)
{
	(void)ctx;
	return strcmp(request->method, "GET") == 0 ? 0 : 405;
}

static void
answer(
    void *ctx, const struct http_request *request, struct http_answer *answer)
{
	if (request->refused == 405)
		http_answer_header(answer, "Allow", "GET, HEAD");
	if (request->refused != 0)
		return;
	if (strcmp(request->path, "/metrics") != 0) {
		answer->status = 404;
		return;
	}
	answer->type = "text/plain; version=0.0.4; charset=utf-8";
	(void)hwt_durable_worker_stats_write(ctx, answer->body, HWT_PROMETHEUS);
}

void
worker_metrics_open(void)
{
	char where[64];

	if (worker_metrics_at == NULL)
		return;
	listener = http_listen(worker_metrics_at, false, where);
	if (listener == -EINVAL)
		usage_error("--metrics: want PORT, ADDRESS:PORT or "
			    "[ADDRESS]:PORT");
	if (listener < 0) {
		complain("--metrics: %s", system_text(-listener));
		finish(STATUS_NO);
	}
	complain("http://%s/metrics", where);
}

void
worker_metrics_start(struct hwt_durable_worker *worker)
{
	const struct http_options options = {.threads = 1,
	    .connections = CONNECTIONS,
	    .servers = 1,
	    .admit = admit,
	    .handler = answer,
	    .ctx = worker};
	int error;

	if (listener < 0)
		return;
	error = http_start(&http, listener, &options);
	if (error == 0)
		return;
	complain("--metrics: %s", explain(error));
	finish(STATUS_NO);
}

void
worker_metrics_stop(void)
{
	http_stop(http);
}
