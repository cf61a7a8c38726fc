/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwtd - the scheduler of a space: it moves what is due into the queues, and
 * takes back what crashed workers held. Any number of them may run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "modules/durable/durable.h"
#include "http.h"
#include "metrics.h"
#include "options.h"
#include "queues.h"
#include "wait.h"

static const char usage[] =
    "usage: hwtd [--shards A-B] [--metrics [ADDRESS:]PORT] [OPTION...]\n"
    "\n"
    "  --shards A-B       looks after these alone, from 0; without it: all\n"
    "  --metrics PORT     answers GET /metrics and GET /health there; on\n"
    "                     127.0.0.1 if there is no ADDRESS, 0: a free port\n"
    "  --queue-wait SECONDS   not healthy if a task waits for a worker for\n"
    "                     longer; 300; 0: however long\n"
    "  --name NAME        unique among schedulers\n";

static const char *shards, *metrics, *queue_wait, *name;

static const struct option_row rows[] = {
    {"shards", &shards, false},
    {"metrics", &metrics, false},
    {"queue-wait", &queue_wait, false},
    {"name", &name, false},
    {NULL, NULL, false},
};

#define NAME_MAX_BYTES 48

/* Later than this is not well. */
#define LAG_MAX HWT_SEC(10)
static uint64_t queue_wait_ns = HWT_MIN(5); /* 0: however late */

/* What is asked of the engine for those who ask us: at most once in a while, so
 * that they do not add to its work, and for so long, so that they are answered
 * when it is not. */
#define SAMPLE_MS 1000
#define SAMPLE_WAIT_NS HWT_SEC(2)

static struct sample {
	pthread_mutex_t lock; /* over the rest */
	struct hwt_durable *durable;
	int stop_fd; /* readable: nobody waits any more */
	int64_t at_ms; /* when it was taken */
	int error; /* of that */
	struct hwt_durable_stats stats;
	struct queues queues;
} sample = {.lock = PTHREAD_MUTEX_INITIALIZER, .at_ms = INT64_MIN / 2};

/* Under the lock. */
static void
sample_take(void)
{
	const struct engine_wait wait = {.stop_fd = sample.stop_fd,
	    .timeout_ns = open_options.timeout_ns != 0 &&
		    open_options.timeout_ns < SAMPLE_WAIT_NS
		? open_options.timeout_ns
		: SAMPLE_WAIT_NS};

	if (wait_now_ms() - sample.at_ms < SAMPLE_MS)
		return;
	sample.error = durable_read_stats(sample.durable, &sample.stats, &wait);
	if (sample.error == 0)
		sample.error =
		    queues_read(sample.durable, &sample.queues, &wait);
	sample.at_ms = wait_now_ms();
}

static void
answer_metrics(struct http_answer *answer)
{
	answer->type = "text/plain; version=0.0.4; charset=utf-8";
	metrics_prometheus(answer->body,
	    engine_space(durable_engine(sample.durable)),
	    sample.error == 0 ? &sample.stats : NULL, &sample.queues);
}

static void
warn_of_replicas(FILE *body)
{
	const struct hwt_durable_stats *stats = &sample.stats;

	if (stats->replicas > stats->replicas_awaited)
		(void)fprintf(body,
		    "warning: %" PRIu64 " replicas are connected, and %" PRIu64
		    " waited for: a fail-over to another one loses what that "
		    "has not got\n",
		    stats->replicas, stats->replicas_awaited);
}

static void
answer_health(struct http_answer *answer)
{
	const struct queue *oldest = &sample.queues.queue[0];
	bool ages = queue_wait_ns != 0 && sample.error == 0 &&
	    sample.queues.count > 0 && oldest->age_ns > queue_wait_ns;

	if (sample.error == 0 && sample.stats.lag_ns <= LAG_MAX && !ages &&
	    sample.stats.clock_ahead_ns <= LAG_MAX &&
	    sample.stats.clock_leap_ns == 0) {
		(void)fputs("ok\n", answer->body);
		warn_of_replicas(answer->body);
		return;
	}
	answer->status = 503;
	if (sample.error != 0)
		(void)fprintf(answer->body, "%s\n", explain(sample.error));
	else if (sample.stats.clock_ahead_ns > LAG_MAX)
		(void)fprintf(answer->body,
		    "the clock was set back: nothing is executed for %" PRIu64
		    " s; see hwtctl clock\n",
		    sample.stats.clock_ahead_ns / HWT_SEC(1));
	else if (sample.stats.clock_leap_ns != 0)
		(void)fprintf(answer->body,
		    "the clock has leapt by %" PRIu64
		    " s: nothing is executed until that has lasted\n",
		    sample.stats.clock_leap_ns / HWT_SEC(1));
	else if (sample.stats.lag_ns > LAG_MAX)
		(void)fprintf(answer->body, "behind by %" PRIu64 " s\n",
		    sample.stats.lag_ns / HWT_SEC(1));
	if (ages)
		(void)fprintf(answer->body,
		    "queue %s: %" PRIu64 " wait for a worker, the oldest for "
		    "%" PRIu64 " s\n",
		    oldest->name, oldest->entries, oldest->age_ns / HWT_SEC(1));
}

static void
handle_request(
    void *ctx, const struct http_request *request, struct http_answer *answer)
{
	bool metrics_asked = strcmp(request->path, "/metrics") == 0;

	(void)ctx;
	if (!metrics_asked && strcmp(request->path, "/health") != 0) {
		answer->status = 404;
		return;
	}
	if (strcmp(request->method, "GET") != 0) {
		answer->status = 405;
		answer->allow = "GET, HEAD";
		return;
	}
	(void)pthread_mutex_lock(&sample.lock);
	sample_take();
	if (metrics_asked)
		answer_metrics(answer);
	else
		answer_health(answer);
	(void)pthread_mutex_unlock(&sample.lock);
}

static void
shards_read(struct hwt_durable_scheduler_options *options)
{
	char *copy, *dash;

	if (shards == NULL)
		return;
	copy = strdup(shards);
	dash = copy != NULL ? strchr(copy, '-') : NULL;
	if (dash == NULL)
		usage_error("--shards: want A-B");
	*dash = '\0';
	options->last_shard =
	    (uint32_t)option_number("shards", dash + 1, 0, 1023);
	options->first_shard =
	    (uint32_t)option_number("shards", copy, 0, options->last_shard);
	free(copy);
}

/* Both 0 stands for all, and a space of one shard has no other. */
static void
shards_check(const struct hwt_durable *durable,
    const struct hwt_durable_scheduler_options *options)
{
	if (shards == NULL)
		return;
	if (options->last_shard >= durable_shards(durable))
		usage_error("--shards: there are %" PRIu32 ", from 0",
		    durable_shards(durable));
	if (options->last_shard == 0 && durable_shards(durable) > 1)
		usage_error("--shards: 0 does not go alone");
}

/* SIGTERM and SIGINT can be read from it. */
static int
signals_open(void)
{
	sigset_t set;
	int fd;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (fd >= 0)
		return fd;
	complain("%s", system_text(errno));
	exit(STATUS_NO);
}

static int
metrics_open(void)
{
	char where[64];
	int fd;

	if (metrics == NULL)
		return -1;
	fd = http_listen(metrics, where);
	if (fd == -EINVAL)
		usage_error("--metrics: want PORT, ADDRESS:PORT or "
			    "[ADDRESS]:PORT");
	if (fd < 0) {
		complain("--metrics: %s", system_text(-fd));
		finish(STATUS_NO);
	}
	complain("http://%s/metrics", where);
	return fd;
}

/* NULL: without --metrics. */
static struct http *
metrics_start(struct hwt_durable *durable, int signals, int listener)
{
	struct http *http = NULL;
	int error;

	if (listener < 0)
		return NULL;
	sample.durable = durable;
	sample.stop_fd = signals;
	error = http_start(&http, listener, 1, handle_request, NULL);
	if (error != 0) {
		complain("--metrics: %s", explain(error));
		finish(STATUS_NO);
	}
	return http;
}

int
main(int argc, char **argv)
{
	static const struct program program = {
	    .name = "hwtd", .usage = usage, .rows = {rows}};
	struct hwt_durable_scheduler_options options = {0};
	struct hwt_durable_scheduler *scheduler;
	struct hwt_durable *durable;
	struct http *http;
	int error, signals, listener;
	bool gone = false;

	if (options_read(&program, argc, argv) != 0)
		usage_error("%s: not expected", argv[0]);
	shards_read(&options);
	options.name = name;
	if (name != NULL && !name_is_valid(name, NAME_MAX_BYTES))
		usage_error("--name: want 1 to %d of A-Z a-z 0-9 . _ -",
		    NAME_MAX_BYTES);
	if (queue_wait != NULL)
		queue_wait_ns = option_seconds("queue-wait", queue_wait);
	listener = metrics_open();
	/* However long that takes, a signal ends us as it would any program.
	 * The library's threads block all. */
	durable = handle_open();
	signals = signals_open();
	shards_check(durable, &options);
	error = hwt_durable_scheduler_start(&scheduler, durable, &options);
	if (error != 0) {
		complain("%s", explain(error));
		finish(error_status(error));
	}
	complain("serves space %s", engine_space(durable_engine(durable)));
	http = metrics_start(durable, signals, listener);
	while (!gone && !wait_for(signals, POLLIN, wait_now_ms() + 1000))
		gone = space_is_gone();
	http_stop(http);
	error = hwt_durable_scheduler_stop(scheduler);
	if (error != 0)
		complain("%s", explain(error));
	finish(gone ? STATUS_NO : error_status(error));
}
