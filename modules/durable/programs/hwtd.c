/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwtd - the scheduler of a space: it moves what is due into the queues, and
 * takes back what crashed workers held. Any number of them may run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "modules/durable/durable.h"
#include "http.h"
#include "metrics.h"
#include "options.h"

static const char usage[] =
    "usage: hwtd [--shards A-B] [--metrics [ADDRESS:]PORT] [OPTION...]\n"
    "\n"
    "  --shards A-B       looks after these alone, from 0; without it: all\n"
    "  --metrics PORT     answers GET /metrics and GET /health there; on\n"
    "                     127.0.0.1 if there is no ADDRESS, 0: a free port\n"
    "  --name NAME        unique among schedulers\n";

static const char *shards, *metrics, *name;

static const struct option_row rows[] = {
    {"shards", &shards, false},
    {"metrics", &metrics, false},
    {"name", &name, false},
    {NULL, NULL, false},
};

#define NAME_MAX_BYTES 48

/* Later than this is not well. */
#define LAG_MAX HWT_SEC(10)

static int
answer_metrics(struct hwt_durable *durable, FILE *body)
{
	struct hwt_durable_stats stats;
	int error = hwt_durable_read_stats(durable, &stats);

	metrics_prometheus(body, engine_space(durable_engine(durable)),
	    error == 0 ? &stats : NULL);
	return 200;
}

static int
answer_health(struct hwt_durable *durable, FILE *body)
{
	struct hwt_durable_stats stats;
	int error = hwt_durable_read_stats(durable, &stats);

	if (error != 0) {
		(void)fprintf(body, "%s\n", explain(error));
		return 503;
	}
	if (stats.lag_ns > LAG_MAX) {
		(void)fprintf(body, "behind by %" PRIu64 " s\n",
		    stats.lag_ns / HWT_SEC(1));
		return 503;
	}
	(void)fputs("ok\n", body);
	return 200;
}

static int
answer(void *ctx, const char *path, FILE *body)
{
	if (strcmp(path, "/metrics") == 0)
		return answer_metrics(ctx, body);
	if (strcmp(path, "/health") == 0)
		return answer_health(ctx, body);
	return 404;
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
	if (fd < 0)
		usage_error("--metrics: %s", system_text(-fd));
	complain("http://%s/metrics", where);
	return fd;
}

static void
serve(struct hwt_durable *durable, int signals, int listener)
{
	struct pollfd wait[] = {
	    {.fd = signals, .events = POLLIN},
	    {.fd = listener, .events = POLLIN},
	};

	do {
		if (poll(wait, 2, -1) < 0)
			continue;
		if (wait[1].revents != 0)
			http_serve(listener, answer, durable);
	} while (wait[0].revents == 0);
}

int
main(int argc, char **argv)
{
	static const struct program program = {
	    .name = "hwtd", .usage = usage, .rows = {rows}};
	struct hwt_durable_scheduler_options options = {0};
	struct hwt_durable_scheduler *scheduler;
	struct hwt_durable *durable;
	int error, signals, listener;

	if (options_read(&program, argc, argv) != 0)
		usage_error("%s: not expected", argv[0]);
	shards_read(&options);
	options.name = name;
	if (name != NULL && !name_is_valid(name, NAME_MAX_BYTES))
		usage_error("--name: want 1 to %d of A-Z a-z 0-9 . _ -",
		    NAME_MAX_BYTES);
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
	serve(durable, signals, listener);
	error = hwt_durable_scheduler_stop(scheduler);
	if (error != 0)
		complain("%s", explain(error));
	finish(error_status(error));
}
