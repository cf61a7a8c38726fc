/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A proxy with a pool of connections to a backend. A client sends lines
 *
 *   get MS TEXT     on one connection of the pool
 *   pair MS TEXT    on two of them at the same time
 *
 * and is answered with what the backend says to TEXT on each, or with "busy"
 * when MS milliseconds have passed before the connections were there. On a
 * socket of its own, control takes
 *
 *   PAUSE MS        "OK", as soon as no connection is in use, and then none is
 *                   given out; "TIMEOUT" after MS milliseconds, and all goes on
 *   RESUME          "OK"
 *   STATS           "GRANTED OUT", two numbers
 *
 *   pool.c    the proxy: an event loop, and a thread for control
 *   load.c    a backend that stalls now and then, 500 clients, three pauses,
 *             and the account of it all
 */
#ifndef POOL_H
#define POOL_H

#include <stdbool.h>
#include <stdint.h>

enum {
	LINKS = 16, /* connections of the pool */
	LINE_SIZE = 64
};

/* What the proxy has seen; of the waits, those that ended with a grant. */
struct pool_counts {
	uint64_t granted, waited, expired, out, waiting;
	double wait_p50_ms, wait_p99_ms;
};

struct pool;

/* Connects to the backend's port on the loopback and serves, in threads of its
 * own, until it is closed. */
struct pool *pool_open(uint16_t backend);
uint16_t pool_port(const struct pool *pool);
uint16_t pool_control_port(const struct pool *pool);
/* Waits until all clients have gone. */
void pool_close(struct pool *pool, struct pool_counts *counts);

/* Sockets, for both files. */
int listen_on(uint16_t *port);
int connect_to(uint16_t port);
uint64_t now_ns(void);

#endif
