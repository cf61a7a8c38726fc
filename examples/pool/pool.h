/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of connections to a Redis for an event loop, through hiredis, on top
 * of a group of hwt_checkout.
 *
  * Who waits for a connection is a request of the checkout, and no thread. When
 * the wait ends, on whichever thread, hwt_mailbox_post brings it to the loop,
 * so that connections belong to the loop alone and need no lock.
 */
#ifndef POOL_H
#define POOL_H

#include <semaphore.h>
#include <stdatomic.h>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <hwt_checkout.h>

/* With the names of HikariCP and PgBouncer. */
struct pool_options {
	uint16_t port; /* of 127.0.0.1 */
	unsigned most; /* maximumPoolSize, default_pool_size */
	uint64_t wait_ns; /* connectionTimeout, query_wait_timeout */
	uint64_t idle_ns; /* idleTimeout, server_idle_timeout */
	uint64_t check_ns; /* unused for so long: a PING; server_check_delay */
	uint64_t answer_ns; /* for a connect and a PING; validationTimeout */
};

/* Connections so far; closed, and why. */
enum pool_count {
	MADE,
	IDLE,
	PAUSED,
	BROKEN
};

struct pool {
	struct hwt_post post; /* the first: closes all */
	struct pool_options options;
	struct hwt *timer;
	struct hwt_mailbox *mailbox;
	struct hwt_checkout *checkout;
	struct hwt_group group;
	struct pool_slot *slot; /* options.most */
	int epoll;
	pthread_t loop;
	bool ending, over; /* over: the loop's */
	sem_t closed;
	_Atomic unsigned long long count[BROKEN + 1];
};

/* The caller's memory, from pool_take until pool_release or an error. */
struct pool_hold {
	struct hwt_post post; /* the first */
	redisAsyncContext *redis; /* NULL: it has broken meanwhile */
	struct pool *pool;
	void (*taken)(struct pool_hold *hold, int error);
	int error;
	struct hwt_request request;
	struct hwt_item item;
};

/* Starts the loop, a thread; ends it when nobody has or wants a connection. */
void pool_open(struct pool *pool, const struct pool_options *options);
void pool_close(struct pool *pool);

/* On the loop, which then calls taken. error is 0; -ETIMEDOUT: none was free
 * within wait_ns; -ECONNREFUSED: the server does not answer; or the error of
 * hwt_checkout_acquire. */
void pool_take(struct pool *pool, struct pool_hold *hold,
    void (*taken)(struct pool_hold *hold, int error));
void pool_release(struct pool_hold *hold);

/* PAUSE, on another thread: waits until nobody has a connection, and closes
 * all; takers wait until hwt_checkout_resume. Errors as hwt_checkout_pause. */
int pool_pause(struct pool *pool, uint64_t within_ns);

#endif
