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
#include "hwtd-serve.h"
#include "hwtd-work.h"
#include "options.h"
#include "wait.h"

static const char usage[] =
    "usage: hwtd [--shards A-B] [--listen [ADDRESS:]PORT]\n"
    "            [--metrics [ADDRESS:]PORT] [OPTION...]\n"
    "\n"
    "  --shards A-B       looks after these alone, from 0; without it: all\n"
    "  --listen PORT      a page, the HTTP API, /metrics and /health; on\n"
    "                     127.0.0.1 if there is no ADDRESS, 0: a free port\n"
    "  --token-file FILE  its first line is what clients of --listen must\n"
    "                     send: Authorization: Bearer TOKEN; needed for an\n"
    "                     ADDRESS that others can reach\n"
    "  --metrics PORT     only GET /metrics and GET /health, without a token\n"
    "  --queue-wait SECONDS   not healthy if a task waits for a worker for\n"
    "                     longer; 300; 0: however long\n"
    "  --name NAME        unique among schedulers\n";

static const char *shards, *listen_at, *token_file, *metrics, *queue_wait,
    *name;

static const struct option_row rows[] = {
    {"shards", &shards, false},
    {"listen", &listen_at, false},
    {"token-file", &token_file, false},
    {"metrics", &metrics, false},
    {"queue-wait", &queue_wait, false},
    {"name", &name, false},
    {NULL, NULL, false},
};

#define NAME_MAX_BYTES 48

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
	    (uint32_t)option_number("shards", dash + 1, 0, 0, 1023);
	options->first_shard =
	    (uint32_t)option_number("shards", copy, 0, 0, options->last_shard);
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

/* The servers, each by its option; only the first one has a token. */
static struct server {
	const char *option, *path; /* path is told */
	const char **address;
	int listener;
	struct serve serve;
	struct http *http;
} servers[] = {
    {"listen", "/", &listen_at, -1, {.api = true}, NULL},
    {"metrics", "/metrics", &metrics, -1, {.api = false}, NULL},
};

#define SERVERS (sizeof(servers) / sizeof(servers[0]))

static void
token_read(struct serve *serve)
{
	int error;

	if (token_file != NULL && listen_at == NULL)
		usage_error("--token-file: there is no --listen");
	if (token_file == NULL)
		return;
	error = serve_token_read(serve, token_file);
	if (error != 0 && error != -EINVAL)
		usage_error(
		    "--token-file %s: %s", token_file, system_text(-error));
	if (error == -EINVAL)
		usage_error("--token-file: its first line must be a token of "
			    "%d to %d printable characters",
		    TOKEN_MIN, TOKEN_MAX);
}

static void
server_open(struct server *server)
{
	if (*server->address == NULL)
		return;
	server->listener = http_listen(*server->address,
	    server->serve.api && server->serve.token_length == 0,
	    server->serve.where);
	if (server->listener == -EINVAL)
		usage_error("--%s: want PORT, ADDRESS:PORT or [ADDRESS]:PORT",
		    server->option);
	if (server->listener == -EPERM)
		usage_error("--%s: an address that other machines can reach "
			    "needs --token-file",
		    server->option);
	if (server->listener < 0) {
		complain(
		    "--%s: %s", server->option, system_text(-server->listener));
		finish(STATUS_NO);
	}
	complain("http://%s%s", server->serve.where, server->path);
}

static void
servers_open(void)
{
	unsigned count = 0;
	size_t i;

	token_read(&servers[0].serve);
	for (i = 0; i < SERVERS; i++) {
		server_open(&servers[i]);
		count += *servers[i].address != NULL;
	}
	for (i = 0; i < SERVERS; i++)
		servers[i].serve.servers = count;
	serve_queue_wait_ns =
	    option_seconds("queue-wait", queue_wait, HWT_MIN(5), 0, UINT64_MAX);
}

static void
servers_start(struct hwt_durable *durable, int signals)
{
	size_t i;
	int error;

	serve_init(durable, signals);
	error = listen_at != NULL || metrics != NULL ? work_start(durable) : 0;
	if (error != 0) {
		complain("%s", explain(error));
		finish(STATUS_NO);
	}
	for (i = 0; i < SERVERS; i++) {
		if (servers[i].listener < 0)
			continue;
		error = serve_start(
		    &servers[i].http, servers[i].listener, &servers[i].serve);
		if (error == 0)
			continue;
		complain("--%s: %s", servers[i].option, explain(error));
		finish(STATUS_NO);
	}
}

/* False: what a server has called takes too long. */
static bool
servers_stop(void)
{
	bool stopped = true;
	size_t i;

	for (i = 0; i < SERVERS; i++)
		stopped &= http_stop(servers[i].http);
	return stopped;
}

int
main(int argc, char **argv)
{
	static const struct program program = {
	    .name = "hwtd", .usage = usage, .rows = {rows}};
	struct hwt_durable_scheduler_options options = {0};
	struct hwt_durable_scheduler *scheduler;
	struct hwt_durable *durable;
	int error, signals;
	bool gone = false, stopped;

	if (options_read(&program, argc, argv) != 0)
		usage_error("%s: not expected", argv[0]);
	shards_read(&options);
	options.name = name;
	if (name != NULL && !name_is_valid(name, NAME_MAX_BYTES))
		usage_error("--name: want 1 to %d of A-Z a-z 0-9 . _ -",
		    NAME_MAX_BYTES);
	servers_open();
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
	servers_start(durable, signals);
	while (!gone && !wait_for(signals, POLLIN, wait_now_ms() + 1000))
		gone = space_is_gone();
	stopped = servers_stop();
	work_stop();
	error = hwt_durable_scheduler_stop(scheduler);
	if (error != 0)
		complain("%s", explain(error));
	if (!stopped) {
		complain("calls that were under way have no answer");
		_exit(STATUS_UNREACHABLE);
	}
	finish(gone ? STATUS_NO : error_status(error));
}
