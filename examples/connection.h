/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client's connection and the timeouts that guard it. Everything here
 * belongs to the thread of the connection's loop.
 */
#ifndef EXAMPLES_CONNECTION_H
#define EXAMPLES_CONNECTION_H

#include <stdbool.h>

#include "common.h"
#include "http.h"
#include "hwt.h"

struct loop;

/* A timeout of a connection; its address is the task's arg. */
struct deadline {
	/* {0} while there is none. */
	hwt_timeout timeout;
	/* When it is due, to tell how late it came. */
	uint64_t due_ns;
	/* It was to be moved when it lay in the mailbox already: due_ns has
	 * moved, the timeout has not. */
	bool is_moved;
	struct connection *connection;
};

enum phase {
	PHASE_IDLE, /* waits for the first byte of a request */
	PHASE_HEADER, /* has it, and waits for the end of the header */
	PHASE_BODY, /* forgets the request's body */
	PHASE_RESPONSE, /* writes the answer */
	PHASE_DRAIN /* has written the last answer; waits for the end */
};

struct connection {
	struct loop *loop;
	struct connection *next, **link;
	int fd;
	enum phase phase;
	/* What epoll watches for. */
	uint32_t events;
	bool keep_alive;
	struct deadline deadlines[LIMITS];
	uint64_t body_left, sent;
	/* input_known: how much was searched for the end of a header. */
	size_t input_length, input_known;
	struct http_answer answer;
	/* A longer header is refused. */
	char input[8192];
};

/* Takes fd over; closes it when the connection cannot be had. */
void connection_create(struct loop *loop, int fd);

/* Does what can be done now; may free the connection. */
void connection_ready(struct connection *connection);

/*
 * For the end, when the timer has stopped. The first tells what stop returned
 * and answers whether it was a timeout of a connection; the second frees the
 * connection and answers how many of its timeouts nobody has ended.
 */
bool connection_unprocessed(
    const struct hwt_timeout_info *info, enum limit *limit);
unsigned connection_destroy(struct connection *connection);

#endif
