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
#define PASSWORD_MAX 512

bool
durable_is_own(const struct hwt_durable *durable)
{
	return !timer_is_foreign(durable->timer);
}

uint64_t
durable_now_ns(const struct hwt_durable *durable)
{
	uint64_t now_ns = 0;

	(void)hwt_now(durable->timer, &now_ns);
	return now_ns;
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

	for (slot = 0; slot < SLOTS; slot++) {
		index = durable->node_of[slot];
		if (index > 0)
			masters->node[index - 1] = durable->node[index - 1];
	}
}

static int
call_node(struct hwt_durable *durable, struct node *node,
    const struct durable_word *words, size_t count,
    int (*visit)(void *ctx, const redisReply *reply), void *ctx)
{
	struct request request = {.node = node, .finds = visit == NULL};
	size_t i;
	int error;

	for (i = 0; i < count; i++)
		request_word(&request, words[i].bytes, words[i].length);
	requests_run(durable, &request, 1);
	error = request.error;
	if (error == 0 && visit != NULL)
		error = visit(ctx, request.reply);
	request_free(&request);
	return error;
}

int
durable_call_each(struct hwt_durable *durable, const struct durable_word *words,
    size_t count, int (*visit)(void *ctx, const redisReply *reply), void *ctx)
{
	struct masters masters = {.durable = durable};
	bool cluster = durable->servers.kind == SERVER_CLUSTER;
	unsigned i;
	int error = 0;

	if (!durable_is_own(durable))
		return -EOWNERDEAD;
	if (cluster)
		loop_call(durable, list_masters, &masters);
	for (i = 0; i < (cluster ? NODES_MAX : 1) && error == 0; i++) {
		if (cluster && masters.node[i] == NULL)
			continue;
		do
			error = call_node(
			    durable, masters.node[i], words, count, visit, ctx);
		while (error == 1);
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

static bool
options_are_valid(const struct hwt_durable_options *options)
{
	return (options->space == NULL ||
		   name_is_valid(options->space, HWT_DURABLE_SPACE_MAX)) &&
	    (options->timeout_ns == 0 ||
		(options->timeout_ns >= MS_NS &&
		    options->timeout_ns <= TIMEOUT_MOST)) &&
	    options->replicas <= REPLICAS_MOST && options->flags == 0 &&
	    RESERVED_IS_ZERO(options);
}

/* The first line. -EINVAL: it is too long, or has a byte that a text cannot
 * have; what is left of it would be another password. */
static int
read_password(struct hwt_durable *durable, const char *path)
{
	FILE *file = fopen(path, "re");
	size_t size = 0, length = 0;
	ssize_t count = -1;
	int error = -ENOENT;

	if (file != NULL) {
		count = getline(&durable->password, &size, file);
		(void)fclose(file);
	}
	if (count > 0) {
		length = strcspn(durable->password, "\r\n");
		error = length > PASSWORD_MAX ||
			strlen(durable->password) != (size_t)count
		    ? -EINVAL
		    : 0;
		durable->password[length] = '\0';
	} else {
		free(durable->password); /* of an empty file, it has no text */
		durable->password = NULL;
	}
	if (error != 0)
		durable_log(durable, "%s: its first line is no password", path);
	return error;
}

static int
read_options(
    struct hwt_durable *durable, const struct hwt_durable_options *options)
{
	if (options->log != NULL)
		durable->log = *options->log;
	durable->timeout_ns =
	    options->timeout_ns != 0 ? options->timeout_ns : TIMEOUT_DEFAULT;
	durable->replicas_wanted = (int)options->replicas;
	(void)strcpy(
	    durable->space, options->space != NULL ? options->space : "hwt");
	durable->text = strdup(
	    options->servers != NULL ? options->servers : SERVERS_DEFAULT);
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

static int
see_queues(void *ctx, const redisReply *reply)
{
	(void)ctx;
	return reply->type == REDIS_REPLY_ARRAY ? 0 : -EPROTO;
}

/* Nothing can have happened, so no error is uncertain. */
static int
greet(struct hwt_durable *durable)
{
	static const struct durable_word words[] = {{"HWT.QUEUES", 10},
	    {"0", 1}, {"1", 1}, {"CLUSTER", 7}, {"SLOTS", 5}};
	unsigned i = 0;
	int error = 0;

	if (durable->servers.kind == SERVER_FILE)
		error = embedded_start(durable, durable->servers.folder);
	else if (durable->servers.kind == SERVER_CLUSTER)
		do
			error = call_node(durable, durable->node[i], words + 3,
			    2, NULL, NULL);
		while (error != 0 && ++i < durable->servers.count);
	if (error == 0)
		error = durable_call_each(durable, words, 3, see_queues, NULL);
	if (error == -ETIMEDOUT)
		error = -ECONNREFUSED;
	if (error != 0)
		durable_log(durable, "%s: %s", durable->text,
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
	if (durable->password != NULL)
		explicit_bzero(durable->password, strlen(durable->password));
	free(durable->password);
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
	struct hwt_durable *made;
	int error;

	if (options == NULL)
		options = &defaults;
	if (durable == NULL || !options_are_valid(options))
		return -EINVAL;
	if (options->timer != NULL && timer_is_foreign(options->timer))
		return -EOWNERDEAD;
	made = calloc(1, sizeof(*made));
	if (made == NULL)
		return -ENOMEM;
	made->epoll = -1;
	made->timer = options->timer;
	made->own_timer = options->timer == NULL;
	error = read_options(made, options);
	if (error == 0 && made->own_timer)
		error = hwt_create(&made->timer, &own_timer);
	if (error == 0)
		error = nodes_create(made);
	if (error == 0)
		error = loop_start(made);
	if (error == 0)
		error = greet(made);
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
	if (atomic_load(&durable->workers) > 0)
		return -EBUSY;
	durable_free(durable);
	return 0;
}
