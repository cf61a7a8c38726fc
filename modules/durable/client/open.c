/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens and closes a handle. It stands above all parts of the client: the first
 * call shows whether the server can be used.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "modules/durable/client/client.h"
#include "sys/valid.h"

#define SERVERS_DEFAULT "127.0.0.1:7379"
#define TIMEOUT_DEFAULT HWT_SEC(5)
#define TIMEOUT_MOST HWT_MIN(60)
#define REPLICAS_MOST 10
#define PASSWORD_MAX 512
#define LOG_LINE_MAX 512

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
	char line[LOG_LINE_MAX];
	va_list list;

	va_start(list, format);
	(void)vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	if (durable->log.write != NULL)
		durable->log.write(durable->log.ctx, LOG_WARNING, line);
	else
		(void)fprintf(stderr, "hwt_durable: %s\n", line);
}

struct nap {
	pthread_mutex_t lock;
	pthread_cond_t end;
	bool over;
};

static void
nap_end(hwt_timeout timeout, void *arg)
{
	struct nap *nap = arg;

	(void)timeout;
	(void)pthread_mutex_lock(&nap->lock);
	nap->over = true;
	(void)pthread_cond_signal(&nap->end);
	(void)pthread_mutex_unlock(&nap->lock);
}

int
durable_nap(struct hwt_durable *durable, uint64_t ns)
{
	struct nap nap = {
	    PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
	hwt_timeout timeout;
	int error;

	error = hwt_new_timeout(durable->timer, &timeout, nap_end, &nap, ns);
	if (error != 0)
		return error;
	(void)pthread_mutex_lock(&nap.lock);
	while (!nap.over)
		(void)pthread_cond_wait(&nap.end, &nap.lock);
	(void)pthread_mutex_unlock(&nap.lock);
	/* The task may not have unlocked it yet. */
	(void)!hwt_cancel_wait(durable->timer, timeout);
	return 0;
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

/* -EINVAL: it is too long, or has a byte that a text cannot have; what is left
 * of it would be another password. */
static int
keep_password(struct hwt_durable *durable, const char *line, size_t count)
{
	const char *end = memchr(line, '\n', count);
	size_t length = end != NULL ? (size_t)(end - line) : count;

	if (length > 0 && line[length - 1] == '\r')
		length--;
	if (length > PASSWORD_MAX || memchr(line, 0, length) != NULL) {
		durable_log(durable,
		    "the first line of the password file has more than %d "
		    "bytes, or a zero byte",
		    PASSWORD_MAX);
		return -EINVAL;
	}
	durable->password = strndup(line, length);
	return durable->password != NULL ? 0 : -ENOMEM;
}

static int
read_password(struct hwt_durable *durable, const char *path)
{
	char line[PASSWORD_MAX + 2]; /* its end, or one byte too many */
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t count = -1;
	size_t length = 0;
	int error = -ENOENT;

	while (fd >= 0 && length < sizeof(line)) {
		count = read(fd, line + length, sizeof(line) - length);
		if (count <= 0)
			break;
		length += (size_t)count;
	}
	if (fd >= 0)
		(void)close(fd);
	if (count >= 0 && length > 0)
		error = keep_password(durable, line, length);
	else
		durable_log(durable, "%s: no password can be read", path);
	explicit_bzero(line, sizeof(line));
	return error;
}

/* A copy of a text that may be NULL. */
static int
copy_text(char **to, const char *text)
{
	if (text == NULL)
		return 0;
	*to = strdup(text);
	return *to != NULL ? 0 : -ENOMEM;
}

static int
read_options(
    struct hwt_durable *durable, const struct hwt_durable_options *options)
{
	int error;

	if (options->log != NULL)
		durable->log = *options->log;
	durable->timeout_ns =
	    options->timeout_ns != 0 ? options->timeout_ns : TIMEOUT_DEFAULT;
	durable->replicas_wanted = (int)options->replicas;
	(void)snprintf(durable->space, sizeof(durable->space), "%s",
	    options->space != NULL ? options->space : "hwt");
	error = copy_text(&durable->text,
	    options->servers != NULL ? options->servers : SERVERS_DEFAULT);
	if (error == 0)
		error = copy_text(&durable->user, options->user);
	if (error == 0)
		error = route_read_servers(&durable->servers, durable->text);
	if (error == 0 && options->password_file != NULL)
		error = read_password(durable, options->password_file);
	return error;
}

static int
make_timer(struct hwt_durable *durable, struct hwt *timer)
{
	const struct hwt_options options = {
	    .tick_ns = MS_NS, .thread_name = "hwt-durable"};

	durable->timer = timer;
	if (timer != NULL)
		return 0;
	durable->own_timer = true;
	return hwt_create(&durable->timer, &options);
}

/* The servers of the options. */
static int
make_nodes(struct hwt_durable *durable)
{
	unsigned i;

	if (durable->servers.count == 0 ||
	    durable->servers.kind == ROUTE_SENTINEL)
		return node_at(durable, &(struct address){"", 0}) != NULL
		    ? 0
		    : -ENOMEM;
	for (i = 0; i < durable->servers.count; i++) {
		if (node_at(durable, &durable->servers.address[i]) == NULL)
			return -ENOMEM;
	}
	return 0;
}

static int
see_queues(void *ctx, const redisReply *reply)
{
	(void)ctx;
	return reply->type == REDIS_REPLY_ARRAY ? 0 : -EPROTO;
}

static int
greet(struct hwt_durable *durable)
{
	static const struct durable_word words[] = {
	    {"HWT.QUEUES", 10}, {"0", 1}, {"1", 1}};
	uint64_t deadline_ns = durable_now_ns(durable) + durable->timeout_ns;
	int error = 0;

	if (durable->servers.kind == ROUTE_FILE)
		error = embedded_start(durable, durable->servers.folder);
	if (error == 0)
		error = node_refresh(durable, deadline_ns);
	if (error == 0)
		error = durable_call_each(durable, words, 3, see_queues, NULL);
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
	unsigned i;

	for (i = 0; i < durable->nodes; i++)
		node_destroy(durable->node[i]);
	embedded_stop(durable->embedded);
	if (durable->own_timer && durable->timer != NULL) {
		(void)!hwt_stop(durable->timer, NULL);
		(void)!hwt_destroy(durable->timer);
	}
	if (durable->password != NULL)
		explicit_bzero(durable->password, strlen(durable->password));
	free(durable->password);
	free(durable->user);
	free(durable->text);
	(void)pthread_mutex_destroy(&durable->lock);
	free(durable);
}

int
hwt_durable_open(
    struct hwt_durable **durable, const struct hwt_durable_options *options)
{
	static const struct hwt_durable_options defaults;
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
	(void)pthread_mutex_init(&made->lock, NULL);
	error = read_options(made, options);
	if (error == 0)
		error = make_timer(made, options->timer);
	if (error == 0)
		error = make_nodes(made);
	if (error == 0)
		error = greet(made);
	if (error != 0) {
		durable_free(made);
		return error;
	}
	*durable = made;
	return 0;
}

int
hwt_durable_close(struct hwt_durable *durable)
{
	bool busy;

	if (durable == NULL)
		return 0;
	if (!durable_is_own(durable))
		return -EOWNERDEAD;
	(void)pthread_mutex_lock(&durable->lock);
	busy = durable->workers > 0;
	(void)pthread_mutex_unlock(&durable->lock);
	if (busy)
		return -EBUSY;
	durable_free(durable);
	return 0;
}
