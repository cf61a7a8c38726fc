/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of connections to a Redis, through hiredis, on top of a group of
 * hwt_checkout.
 *
 *   struct pool_hold hold;
 *   if (pool_take(pool, &hold, "checkout page") == 0) {
 *           reply = redisCommand(hold.redis, "GET %s", key);
 *           ...
 *           pool_release(pool, &hold);
 *   }
 *
 * Any thread may call everything here, but pool_close. Functions return 0 or a
 * negative errno value. README has the options of HikariCP and PgBouncer beside
 * these.
 */
#ifndef POOL_H
#define POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <hiredis/hiredis.h>
#include <hwt_checkout.h>

struct pool;

/* Times are in ns; 0: the default. HWT_NEVER: no limit, no check, no warning,
 * but for connect_ns. */
struct pool_options {
	const char *host; /* kept by the caller; NULL: 127.0.0.1 */
	uint16_t port; /* 0: 6379 */
	unsigned least; /* kept open, used or not; 0 to most */
	unsigned most; /* 1 to 10000; 0: 10 */
	bool in_order; /* takers: first come, first served */
	uint64_t wait_ns; /* of a taker for a connection; 30 s */
	uint64_t connect_ns; /* to connect, and for each reply; 5 s */
	uint64_t idle_ns; /* unused for so long, it is closed; 10 min */
	/* It is closed after this time, less up to a tenth at random, when
	 * nobody uses it; 30 min. */
	uint64_t age_ns;
	uint64_t check_ns; /* unused for so long, a PING comes before; 500 ms */
	uint64_t leak_ns; /* a hold of this length is warned of; never */
	const char *name; /* in statistics; at most 15 bytes; NULL: pool */
	/* A line without its end, on a thread of the pool; NULL: stderr. */
	void (*warn)(const char *line);
};

/* The caller's memory, from pool_take to pool_release. */
struct pool_hold {
	redisContext *redis; /* not to be freed; a reply's timeout is set */
	struct pool_slot *slot;
	struct hwt_request request;
	struct hwt_item item;
};

struct pool_stats {
	uint64_t open; /* connections, used and idle */
	uint64_t out, waiting; /* holds; takers that wait */
	uint64_t taken, waited, expired; /* takers so far */
	uint64_t failed; /* takers that could not connect */
	uint64_t made; /* connections so far; closed, and why: */
	uint64_t closed_idle, closed_old, closed_broken, closed_pause;
	uint64_t leaks; /* warnings */
	uint64_t pauses;
};

/* Connects options->least times.
 * -EINVAL        an option out of its range
 * -ECONNREFUSED and what else connect(2) says; -ETIMEDOUT; -ENOMEM -EAGAIN */
int pool_open(struct pool **pool, const struct pool_options *options);

/* who is a string that stays: it is named in a warning.
 * -ETIMEDOUT     no connection was free for wait_ns, or the server did not
 *                answer within connect_ns
 * -ECONNREFUSED and what else connect(2) says: nothing is taken
 * -ESHUTDOWN     pool_close has been called */
int pool_take(struct pool *pool, struct pool_hold *hold, const char *who);

/* Closes the connection if hiredis has seen an error on it, or it is old. */
void pool_release(struct pool *pool, struct pool_hold *hold);

/* For a fail-over: waits until nobody has a connection, and closes all. Takers
 * wait until pool_resume, each for its wait_ns. If the pool is connecting by
 * itself at that moment, that is waited for, too.
 * -ETIMEDOUT     somebody still had one after within_ns: all goes on
 * -EALREADY      another pause has begun */
int pool_pause(struct pool *pool, uint64_t within_ns);

/* -EALREADY      there is no pause */
int pool_resume(struct pool *pool);

void pool_read_stats(struct pool *pool, struct pool_stats *stats);

/* For a monitor: the pool's own counters, and what hwt_checkout_stats_write has
 * of its checkout, with a histogram of waits; in JSON as its member checkout.
 * Errors as that one. */
int pool_stats_write(struct pool *pool, FILE *file, enum hwt_format format);

/* For people: who has which connection, since when, and what
 * hwt_checkout_dump says of those that wait. Errors as that one. */
int pool_dump(struct pool *pool, FILE *file);

/* Takers that wait get -ESHUTDOWN. No other call may be under way when it is
 * called again and answers 0.
 * -EBUSY         somebody has a connection, or has waited until now: call it
 *                again when that is over */
int pool_close(struct pool *pool);

#endif
