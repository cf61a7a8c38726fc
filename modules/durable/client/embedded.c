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
	struct hwt_post post; /* first */
	struct hwt_durable *durable; /* for its log */
	struct hwt_pool *thread;
	struct server *server;
	atomic_bool failed;
};

static void
serve(struct hwt_post *post)
{
	struct embedded *embedded = (struct embedded *)post;
	char why[200] = "";

	if (server_run(embedded->server, why) == 0)
		return;
	atomic_store(&embedded->failed, true);
	durable_log(embedded->durable, "the store has failed: %s", why);
}

int
embedded_start(struct hwt_durable *durable)
{
	const struct server_options options = {.folder = durable->servers.name,
	    .payload_max = HWT_DURABLE_PAYLOAD_MAX};
	struct embedded *embedded = calloc(1, sizeof(*embedded));
	char why[200] = "";
	int error;

	durable->embedded = embedded;
	if (embedded == NULL)
		return -ENOMEM;
	embedded->durable = durable;
	error = server_create(&embedded->server, &options, why);
	if (error != 0) {
		durable_log(durable, "cannot open the queues: %s", why);
		return error;
	}
	error = hwt_pool_create(&embedded->thread, 1, 0);
	if (error == 0)
		(void)!hwt_pool_post(embedded->thread, &embedded->post, serve);
	return error;
}

void
embedded_stop(struct embedded *embedded)
{
	if (embedded != NULL && embedded->server != NULL) {
		server_stop(embedded->server);
		(void)!hwt_pool_destroy(embedded->thread);
		if (!embedded->failed)
			server_destroy(embedded->server);
	}
	free(embedded);
}

int
embedded_connect(struct embedded *embedded)
{
	int pair[2];
	int error;

	if (embedded->failed)
		return -EIO;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
		pair) != 0)
		return -errno;
	error = server_connect(embedded->server, pair[1]);
	if (error == 0)
		return pair[0];
	(void)close(pair[0]);
	return error;
}
