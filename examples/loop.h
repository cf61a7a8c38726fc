/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event loop: one thread, one epoll, one mailbox. All loops share one
 * timer and one listening socket.
 */
#ifndef EXAMPLES_LOOP_H
#define EXAMPLES_LOOP_H

#include <pthread.h>
#include <stdbool.h>

#include "hwt.h"
#include "tally.h"

struct connection;

struct loop {
	/* Set by whoever makes the loop, constant then. */
	struct hwt *timer;
	const uint64_t *limits_ns;
	int listen_fd;
	/* An eventfd that becomes readable, and stays so, for all loops. */
	int stop_fd;

	/* The loop thread's own, until loop_join. */
	struct hwt_mailbox *mailbox;
	int epoll_fd;
	/* {0}, or the end of a pause in which the loop accepts nobody. */
	hwt_timeout pause;
	/* All that are open, in no order. */
	struct connection *connections;
	struct tally tally;
	pthread_t thread;
};

/* Makes what the loop needs, and starts its thread. 0 or -errno. */
int loop_start(struct loop *loop);

/* Waits for the thread, which ends once stop_fd is readable. The caller has
 * taken the loop thread's place then, mailbox and connections included. */
void loop_join(struct loop *loop);

/* What stop returned: whether it was the timeout of a loop. */
bool loop_unprocessed(const struct hwt_timeout_info *info);

/* Frees the rest; no connections and no timeouts may be left. */
void loop_destroy(struct loop *loop);

#endif
