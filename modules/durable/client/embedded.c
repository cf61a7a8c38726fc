/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "file:DIR": a server in a thread of this process, on pairs of sockets.
 *
 * THREADS. server is read with the lock, by those that connect; the server's
 * thread sets it to NULL with the lock when the store has failed, and so before
 * anybody could connect to what no longer runs. A store that has failed is not
 * closed: its files stay as they are until the process ends.
 */

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "modules/durable/client/client.h"
#include "modules/durable/server/server.h"

struct embedded {
	struct hwt_durable *durable; /* for its log */
	pthread_t thread;
	pthread_mutex_t lock;
	struct server *server; /* NULL: the store has failed */
	struct server *started;
};

static void *
serve(void *arg)
{
	struct embedded *embedded = arg;
	char why[200] = "";

	if (server_run(embedded->started, why) == 0)
		return NULL;
	(void)pthread_mutex_lock(&embedded->lock);
	embedded->server = NULL;
	(void)pthread_mutex_unlock(&embedded->lock);
	durable_log(embedded->durable, "the store has failed: %s", why);
	return NULL;
}

/* A thread without signals. */
static int
start(struct embedded *embedded)
{
	sigset_t all, before;
	int error;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&embedded->thread, NULL, serve, embedded);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -error;
}

int
embedded_start(struct hwt_durable *durable, const char *folder)
{
	const struct server_options options = {
	    .folder = folder, .payload_max = HWT_DURABLE_PAYLOAD_MAX};
	struct embedded *embedded = calloc(1, sizeof(*embedded));
	char why[200] = "";
	int error;

	if (embedded == NULL)
		return -ENOMEM;
	embedded->durable = durable;
	(void)pthread_mutex_init(&embedded->lock, NULL);
	error = server_create(&embedded->started, &options, why);
	if (error == 0) {
		embedded->server = embedded->started;
		error = start(embedded);
		if (error != 0)
			server_destroy(embedded->started);
	} else {
		durable_log(durable, "cannot open the queues: %s", why);
	}
	if (error != 0) {
		free(embedded);
		return error;
	}
	durable->embedded = embedded;
	return 0;
}

void
embedded_stop(struct embedded *embedded)
{
	if (embedded == NULL)
		return;
	server_stop(embedded->started);
	(void)pthread_join(embedded->thread, NULL);
	if (embedded->server != NULL)
		server_destroy(embedded->server);
	(void)pthread_mutex_destroy(&embedded->lock);
	free(embedded);
}

int
embedded_connect(struct hwt_durable *durable, int *fd)
{
	struct embedded *embedded = durable->embedded;
	int pair[2];
	int error = -EIO;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
		pair) != 0)
		return -errno;
	(void)pthread_mutex_lock(&embedded->lock);
	if (embedded->server != NULL)
		error = server_connect(embedded->server, pair[1]);
	else
		(void)close(pair[1]);
	(void)pthread_mutex_unlock(&embedded->lock);
	if (error != 0)
		(void)close(pair[0]);
	else
		*fd = pair[0];
	return error;
}
