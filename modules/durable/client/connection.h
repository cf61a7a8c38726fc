/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: a socket that does not block, and hiredis' reader of replies.
 * One thread at a time uses it. Waits have no limit of their own: a timeout of
 * hwt shuts the socket down at the deadline, which ends them.
 *
 * hiredis' contexts would write without MSG_NOSIGNAL, and their time-outs begin
 * anew with each byte.
 */
#ifndef HWT_DURABLE_CONNECTION_H
#define HWT_DURABLE_CONNECTION_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hwt.h"

#define ADDRESS_HOST_MAX 255

/* port 0: host is the path of a socket. */
struct address {
	char host[ADDRESS_HOST_MAX + 1];
	uint16_t port;
};

/* Commands as they are sent. failed: there was no memory. */
struct buffer {
	char *bytes;
	size_t length, size;
	bool failed;
};

void buffer_add(struct buffer *buffer, const void *bytes, size_t length);
/* The head of a command of count words, and each of its words. */
void buffer_command(struct buffer *buffer, size_t count);
void buffer_word(struct buffer *buffer, const void *bytes, size_t length);
void buffer_text(struct buffer *buffer, const char *text);
void buffer_number(struct buffer *buffer, uint64_t number);
void buffer_free(struct buffer *buffer);

struct connection {
	int fd;
	struct hwt *timer;
	hwt_timeout timeout; /* shuts fd down; {0}: none */
	redisReader *reader;
	redisReplyObjectFunctions functions; /* the reader's */
	/* Of the reply that is being read: elements of all its arrays, and
	 * bytes since it was begun. */
	size_t elements, received;
	struct address address;
};

/* Connects by the deadline, which is on the timer's clock. -ECONNREFUSED:
 * nobody there, or not in time; -EMFILE, -ENOMEM, -ESHUTDOWN. The look-up of a
 * name takes as long as it takes. */
int connection_open(struct connection **connection, struct hwt *timer,
    const struct address *address, uint64_t deadline_ns);
/* One that is connected: it owns fd, also on an error. */
int connection_adopt(struct connection **connection, struct hwt *timer, int fd);
void connection_close(struct connection *connection);

/* From here on it is shut down at the deadline, until connection_rest. */
int connection_limit(struct connection *connection, uint64_t deadline_ns);
void connection_rest(struct connection *connection);

/* -ETIMEDOUT: broken, or the deadline; *sent: how many bytes may have reached
 * the other side. */
int connection_send(
    struct connection *connection, const struct buffer *buffer, size_t *sent);
/* -ETIMEDOUT, -ENOMEM; -EPROTO: no reply in Redis' protocol, or more than any
 * that is expected. After an error it can only be closed. */
int connection_receive(struct connection *connection, redisReply **reply);
/* One command with its limit. */
int connection_ask(struct connection *connection, const struct buffer *command,
    uint64_t deadline_ns, redisReply **reply);

/* False: the other side has closed it, or has sent what nobody asked for. */
bool connection_is_usable(const struct connection *connection);

#endif
