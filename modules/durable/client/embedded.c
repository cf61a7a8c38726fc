/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "file:DIR": a server in a thread of this process, on pairs of sockets. A
 * store that has failed is not closed: its files stay as they are until the
 * process ends, and who is connected hears nothing more.
 */
#include "modules/durable/client/client.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "modules/durable/server/server.h"

struct embedded {
	struct hwt_durable *durable; /* for its log */
	pthread_t thread;
	struct server *server;
	atomic_bool failed;
};

static void *
serve(void *arg)
{
	struct embedded *embedded = arg;
	char why[200] = "";

	if (server_run(embedded->server, why) == 0)
		return NULL;
	atomic_store(&embedded->failed, true);
	durable_log(embedded->durable, "the store has failed: %s", why);
	return NULL;
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
	error = server_create(&embedded->server, &options, why);
	if (error != 0) {
		durable_log(durable, "cannot open the queues: %s", why);
	} else {
		error = durable_thread(&embedded->thread, serve, embedded);
		if (error != 0)
			server_destroy(embedded->server);
	}
	if (error != 0)
		free(embedded);
	else
		durable->embedded = embedded;
	return error;
}

void
embedded_stop(struct embedded *embedded)
{
	if (embedded == NULL)
		return;
	server_stop(embedded->server);
	(void)pthread_join(embedded->thread, NULL);
	if (!embedded->failed)
		server_destroy(embedded->server);
	free(embedded);
}

int
embedded_connect(struct hwt_durable *durable, int *fd)
{
	struct embedded *embedded = durable->embedded;
	int pair[2];
	int error;

	if (embedded->failed)
		return -EIO;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
		pair) != 0)
		return -errno;
	error = server_connect(embedded->server, pair[1]);
	if (error != 0)
		(void)close(pair[0]);
	else
		*fd = pair[0];
	return error;
}
