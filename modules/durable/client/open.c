/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens and closes a handle, and any command for the programs. It stands above
 * the other parts: the first command shows whether the server can be used.
 */
#define _GNU_SOURCE
#include "modules/durable/client/client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "sys/valid.h"

#define SERVERS_DEFAULT "127.0.0.1:7379"
#define TIMEOUT_DEFAULT HWT_SEC(5)
#define TIMEOUT_MOST HWT_MIN(60)
#define REPLICAS_MOST 10

bool
durable_is_own(const struct hwt_durable *durable)
{
	return !timer_is_foreign(durable->timer);
}

void
durable_log(const struct hwt_durable *durable, const char *format, ...)
{
	char line[512];
	va_list list;

	va_start(list, format);
	(void)vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	if (durable->log.write != NULL)
		durable->log.write(durable->log.ctx, LOG_WARNING, line);
	else
		(void)fprintf(stderr, "hwt_durable: %s\n", line);
}

/*
 * Any command.
 */

int
durable_call(struct hwt_durable *durable, const char *queue,
    const struct durable_word *words, size_t count, redisReply **reply)
{
	struct request request;
	size_t i;
	int error;

	*reply = NULL;
	if (durable == NULL || !name_is_valid(queue, HWT_DURABLE_QUEUE_MAX))
		return -EINVAL;
	if (!durable_is_own(durable))
		return -EOWNERDEAD;
	request_begin(&request, durable, words[0].bytes, queue);
	for (i = 1; i < count; i++)
		request_word(&request, words[i].bytes, words[i].length);
	requests_run(durable, &request, 1);
	error = request.error;
	*reply = request.reply;
	request.reply = NULL;
	request_free(&request);
	return error;
}

/* The nodes that have slots; of others than a cluster, the one. */
struct masters {
	struct hwt_durable *durable;
	struct node *node[NODES_MAX];
};

static void
list_masters(void *arg)
{
	struct masters *masters = arg;
	struct hwt_durable *durable = masters->durable;
	unsigned slot, index;

	if (durable->servers.kind != SERVER_CLUSTER)
		masters->node[0] = durable->node[0];
	for (slot = 0; slot < SLOTS; slot++) {
		index = durable->node_of[slot];
		if (index > 0)
			masters->node[index - 1] = durable->node[index - 1];
	}
}

int
durable_call_each(struct hwt_durable *durable, const struct durable_word *words,
    size_t count, int (*visit)(void *ctx, const redisReply *reply), void *ctx)
{
	struct masters masters = {.durable = durable};
	struct request request;
	unsigned i = 0;
	size_t word;
	int error = 0;

	if (!durable_is_own(durable))
		return -EOWNERDEAD;
	loop_call(durable, list_masters, &masters);
	while (i < NODES_MAX && error >= 0) {
		request = (struct request){.node = masters.node[i]};
		if (request.node == NULL) {
			i++;
			continue;
		}
		for (word = 0; word < count; word++)
			request_word(
			    &request, words[word].bytes, words[word].length);
		requests_run(durable, &request, 1);
		error = request.error;
		if (error == 0)
			error = visit(ctx, request.reply);
		i += error == 0;
		request_free(&request);
	}
	return error;
}

const char *
durable_space(const struct hwt_durable *durable)
{
	return durable->space;
}

/*
 * Options.
 */

/* The first line. */
static int
read_password(struct hwt_durable *durable, const char *path)
{
	char *password = durable->password;
	FILE *file = fopen(path, "re");
	size_t length = 0;
	int error = 0;

	if (file != NULL &&
	    fgets(password, sizeof(durable->password), file) != NULL)
		length = strcspn(password, "\r\n");
	if (file != NULL)
		(void)fclose(file);
	password[length] = '\0';
	if (length == 0)
		error = -ENOENT;
	else if (length > PASSWORD_MAX)
		error = -EINVAL;
	if (error != 0)
		durable_log(durable, "%s: its first line is no password", path);
	return error;
}

static int
read_options(struct hwt_durable *durable,
    const struct hwt_durable_options *options, const char *servers)
{
	const char *space = options->space != NULL ? options->space : "hwt";

	if (!name_is_valid(space, HWT_DURABLE_SPACE_MAX) ||
	    (options->timeout_ns != 0 && options->timeout_ns < MS_NS) ||
	    options->timeout_ns > TIMEOUT_MOST ||
	    options->replicas > REPLICAS_MOST || options->flags != 0 ||
	    !RESERVED_IS_ZERO(options))
		return -EINVAL;
	if (options->log != NULL)
		durable->log = *options->log;
	durable->timeout_ns =
	    options->timeout_ns != 0 ? options->timeout_ns : TIMEOUT_DEFAULT;
	durable->replicas_wanted = (int)options->replicas;
	(void)strcpy(durable->space, space);
	durable->text = strdup(servers);
	if (options->user != NULL)
		durable->user = strdup(options->user);
	if (durable->text == NULL ||
	    (options->user != NULL && durable->user == NULL))
		return -ENOMEM;
	if (!servers_read(&durable->servers, durable->text))
		return -EINVAL;
	return options->password_file != NULL
	    ? read_password(durable, options->password_file)
	    : 0;
}

/* Of a cluster, the slots must be known; then the server of the first one is
 * asked whether it is one of hwt. Nothing can have happened, so no error is
 * uncertain. */
static int
greet(struct hwt_durable *durable, const char *servers)
{
	static const char *const words[] = {
	    "CLUSTER", "SLOTS", "HWT.QUEUES", "0", "1"};
	bool cluster = durable->servers.kind == SERVER_CLUSTER;
	struct request request;
	unsigned i = cluster ? 0 : 2;
	int error = 0;

	if (durable->servers.kind == SERVER_FILE)
		error = embedded_start(durable);
	while (i < 5 && error == 0) {
		request = (struct request){.finds = i == 0};
		do
			request_text(&request, words[i++]);
		while (i != 2 && i != 5);
		requests_run(durable, &request, 1);
		error = request.error;
		if (error == 0 && request.reply->type != REDIS_REPLY_ARRAY)
			error = -EPROTO;
		request_free(&request);
	}
	if (error == -ETIMEDOUT)
		error = -ECONNREFUSED;
	if (error != 0)
		durable_log(durable, "%s: %s", servers,
		    error == -EOPNOTSUPP ? "it knows no commands of hwt"
			: error == -EACCES
			? "wrong user or password, or no right"
			: strerror(-error));
	return error;
}

static void
durable_free(struct hwt_durable *durable)
{
	bool own_timer = durable->own_timer && durable->timer != NULL;

	if (own_timer)
		(void)!hwt_stop(durable->timer, NULL);
	loop_stop(durable);
	embedded_stop(durable->embedded);
	if (own_timer)
		(void)!hwt_destroy(durable->timer);
	explicit_bzero(durable->password, sizeof(durable->password));
	free(durable->user);
	free(durable->text);
	free(durable);
}

int
hwt_durable_open(
    struct hwt_durable **durable, const struct hwt_durable_options *options)
{
	static const struct hwt_durable_options defaults;
	const struct hwt_options own_timer = {
	    .tick_ns = MS_NS, .thread_name = "hwt-durable"};
	const char *servers = SERVERS_DEFAULT;
	struct hwt_durable *made;
	int error;

	if (durable == NULL)
		return -EINVAL;
	if (options == NULL)
		options = &defaults;
	if (options->servers != NULL)
		servers = options->servers;
	if (options->timer != NULL && timer_is_foreign(options->timer))
		return -EOWNERDEAD;
	made = calloc(1, sizeof(*made));
	if (made == NULL)
		return -ENOMEM;
	made->epoll = -1;
	made->timer = options->timer;
	made->own_timer = options->timer == NULL;
	error = read_options(made, options, servers);
	if (error == 0 && made->own_timer)
		error = hwt_create(&made->timer, &own_timer);
	if (error == 0)
		error = nodes_create(made);
	if (error == 0)
		error = loop_start(made);
	if (error == 0)
		error = greet(made, servers);
	if (error != 0)
		durable_free(made);
	else
		*durable = made;
	return error;
}

int
hwt_durable_close(struct hwt_durable *durable)
{
	if (durable == NULL)
		return 0;
	if (!durable_is_own(durable))
		return -EOWNERDEAD;
	if (durable->workers != NULL)
		return -EBUSY;
	durable_free(durable);
	return 0;
}
