/* SPDX-License-Identifier: Apache-2.0 */
#include "worker-serve.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "http.h"
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

static void
metrics_start(struct hwt_durable_worker *worker)
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

enum status
worker_serve(struct hwt_durable *durable,
    const struct hwt_durable_worker_options *options, void (*release)(void *),
    uint64_t patience_ns)
{
	const struct timespec second = {.tv_sec = 1};
	struct hwt_durable_worker *worker;
	sigset_t ending;
	bool gone = false;
	int error;

	(void)sigemptyset(&ending);
	(void)sigaddset(&ending, SIGTERM);
	(void)sigaddset(&ending, SIGINT);
	(void)pthread_sigmask(SIG_BLOCK, &ending, NULL);
	error = hwt_durable_worker_start(&worker, durable, options);
	if (error == 0) {
		metrics_start(worker);
		while (!gone && sigtimedwait(&ending, NULL, &second) < 0)
			gone = space_is_gone();
		http_stop(http);
		if (release != NULL)
			release(options->ctx);
		do
			error = hwt_durable_worker_stop(worker, patience_ns);
		while (error == -EBUSY);
	}
	if (error != 0)
		complain("%s", explain(error));
	return gone ? STATUS_NO : error_status(error);
}
