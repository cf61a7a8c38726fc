/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server of queues: Redis' protocol on sockets, an embedded store below.
 *
 * One thread runs it. Commands that arrive together share a transaction, and
 * are answered when it has been committed.
 */
#ifndef HWT_DURABLE_SERVER_H
#define HWT_DURABLE_SERVER_H

#include <stddef.h>

struct server;

struct server_options {
	const char *folder; /* of the store */
	const char *password; /* clients must AUTH with it; NULL: none */
	size_t payload_max; /* 0: 64 KiB */
};

/* 0 or -errno: see store_open; then why is a sentence. */
int server_create(struct server **server, const struct server_options *options,
    char why[200]);
/* After server_run has returned, and no other call can come. It ends all
 * connections. */
void server_destroy(struct server *server);

/* A socket that listens, and does not block; before server_run. The server owns
 * it, also on an error. */
int server_listen(struct server *server, int fd);

/* One end of a pair of sockets, whose other end is a client that needs no
 * password. From any thread, also while the server runs. The server owns it,
 * also on an error. -EAGAIN: too many at a time. */
int server_connect(struct server *server, int fd);

/* Until server_stop, from any thread or signal handler. -EIO: the disk has
 * failed, and what was acknowledged last is not known; why says more. */
int server_run(struct server *server, char why[200]);
void server_stop(struct server *server);

#endif
