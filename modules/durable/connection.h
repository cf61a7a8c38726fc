/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: a socket that does not block, and hiredis's reader of
 * replies. Each wait ends at a deadline, or when a descriptor becomes readable.
 * One that has failed is closed: a late reply would go to another command.
 *
 * hiredis itself would write without MSG_NOSIGNAL, and its time-outs begin anew
 * with each byte.
 */
#ifndef HWT_DURABLE_CONNECTION_H
#define HWT_DURABLE_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hiredis/hiredis.h>

#include "route.h"

struct connection {
	int fd;
	redisReader *reader;
	redisReplyObjectFunctions functions; /* the reader's */
	bool excess; /* an array was longer than any that is expected */
	/* What verify has found: the node keeps what level FSYNCED asks for; it
	 * rewrites its append-only file; so many replicas are connected. */
	bool keeps_always, rewrites;
	uint32_t replicas;
	struct route_address address;
	struct connection *next; /* in a pool */
};

/* How long to wait. */
struct limit {
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	int stop_fd; /* -1: none */
};

uint64_t limit_now_ns(void);

/* CLOCK_BOOTTIME: it goes on while the machine is suspended, as the engine's
 * clock does, and as a lease therefore does. */
uint64_t boot_now_ns(void);
uint64_t unix_now_ns(void); /* CLOCK_REALTIME */

/* Until fd has events; -1: until the deadline, which is -ETIMEDOUT too.
 * -ECANCELED: stop_fd is readable. */
int limit_wait(const struct limit *limit, int fd, short events);

/* Commands as they are sent. failed: there was no memory. */
struct buffer {
	char *data;
	size_t length, size;
	bool failed;
};

void buffer_add(struct buffer *buffer, const void *data, size_t length);
/* The head of a command of count words, and each of its words. */
void buffer_command(struct buffer *buffer, size_t count);
void buffer_word(struct buffer *buffer, const void *data, size_t length);
void buffer_text(struct buffer *buffer, const char *text);
void buffer_number(struct buffer *buffer, uint64_t number);
void buffer_free(struct buffer *buffer);

/* -ECONNREFUSED: nobody there, or not in time; -ECANCELED, -ENOMEM. The look-up
 * of a name takes as long as it takes: getaddrinfo cannot be interrupted, and a
 * thread that waits for it instead would have to outlive the call, and the
 * handle, or be waited for. */
int connection_open(struct connection **connection,
    const struct route_address *address, const struct limit *limit);
void connection_close(struct connection *connection);

/* -ECONNRESET: broken; -ETIMEDOUT, -ECANCELED, -ENOMEM. */
int connection_send(struct connection *connection, const struct buffer *buffer,
    const struct limit *limit);

/* As connection_send; -EPROTO: no reply in the protocol of Redis. */
int connection_receive(struct connection *connection, redisReply **reply,
    const struct limit *limit);

/* Does not wait: *reply is NULL if there is none yet. */
int connection_poll(struct connection *connection, redisReply **reply);

/* False: the other side has closed it, or has sent what nobody asked for. */
bool connection_is_usable(const struct connection *connection);

/* What engine.c, nodes.c and table.c have for subscription.c. */
struct engine;
struct engine_wait;

struct limit engine_limit(
    const struct engine *engine, const struct engine_wait *wait);

/* A new connection that is verified; the caller closes it. -ECONNREFUSED,
 * -EAGAIN: no master; -EACCES, -EOPNOTSUPP, -EPROTO, -ENOMEM, -ECANCELED. */
int engine_connect(struct engine *engine, const struct route_address *address,
    struct connection **connection, const struct limit *limit);

/* To the node of a shard, or to any other if that is silent. */
int engine_connect_near(struct engine *engine, uint32_t shard,
    struct connection **connection, const struct limit *limit);

/* What the options ask of an engine. */
struct demand {
	const char *user, *password; /* NULL: none */
};

/* Logs in if there is a password, and looks at what the engine is. why: a
 * sentence, or "". -EROFS: a replica; -EAGAIN: not ready now. It may be asked
 * further then: all answers have been read, or it is broken. After other
 * errors, close it. */
#define VERIFY_WHY_MAX 256
int verify(struct connection *connection, const struct demand *demand,
    char why[VERIFY_WHY_MAX], const struct limit *limit);

/* How many replicas are connected, and have got all that they need for going on
 * from there, by an answer to ROLE. */
uint32_t verify_replicas(const redisReply *role);

#endif
