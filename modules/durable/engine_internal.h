/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the engine's client, and what its source files share.
 *
 *   open.c          open, close
 *   credentials.c   user and password
 *   batch.c         rounds and back-offs
 *   group.c         the calls of a round that go to one node
 *   call.c          one call: its command, and what a reply means for it
 *   subscription.c  a subscription, or waiting for hints
 *   table.c         which node has which shard: servers, Sentinel, cluster
 *   nodes.c         connections, levels, pools, nodes that hang
 *   engine.c        names, keys, identity, times
 *   log.c           which lines are written
 *
 * Each of them calls only those that stand below it here, and, below them all,
 * verify.c, connection.c, route.c and task.c.
 *
 * LOCK. It protects the table of the nodes, the pools of connections that are
 * not in use, which nodes are silent, and which lines were logged last. It is
 * never held while a thread waits, or writes to the log. A connection that was
 * taken from a pool belongs to the thread that took it. All else is written by
 * engine_open alone, but for level and identity: those are written after the
 * first calls, and no other thread has the engine then.
 */
#ifndef HWT_DURABLE_ENGINE_INTERNAL_H
#define HWT_DURABLE_ENGINE_INTERNAL_H

#include <errno.h>
#include <pthread.h>

#include "connection.h"
#include "durable.h"
#include "route.h"

#define LINES_MAX 16u /* different lines that are remembered */

struct connection_pool {
	struct connection *first;
	uint32_t count;
	/* The node did not answer in time, and is not called until then; 0: it
	 * answered last. */
	uint64_t silent_ns;
	/* When it was verified last, by any connection; 0: it is to be. */
	uint64_t verified_ns;
	uint32_t replicas; /* that it then had */
	bool lapsed; /* it kept less than the level: see level_verify */
};

/* A line of the log; times are CLOCK_BOOTTIME's. */
struct logged {
	uint64_t hash, written_ns, held_back;
};

struct engine {
	pthread_mutex_t lock;
	struct route_table table;
	struct connection_pool pool[ROUTE_NODES_MAX];
	bool stale; /* the table is to be read anew */
	uint32_t answered; /* the candidate that the table was read from */
	/* The log: when anything was last written, and what was held back. */
	uint64_t logged_ns, held_back;
	uint32_t errors; /* that followed another line within a second */
	struct logged line[LINES_MAX];
	/* CLOCK_BOOTTIME of the first of the calls that found the space gone,
	 * and after which none has found it; 0: the last one has. Without the
	 * lock: who reads an old value learns it from the next call. */
	a64_t gone_ns;
	/* Constant. */
	struct route_servers servers;
	struct hwt_log log;
	struct demand demand;
	char space[HWT_DURABLE_SPACE_MAX + 1];
	char *user, *password;
	uint32_t level;
	uint32_t replicas; /* 0: all that are connected */
	uint64_t skew_ns, timeout_ns;
	struct number identity; /* of the space; "": not known yet */
	bool opened;
};

static inline void
lock(struct engine *engine)
{
	(void)pthread_mutex_lock(&engine->lock);
}

static inline void
unlock(struct engine *engine)
{
	(void)pthread_mutex_unlock(&engine->lock);
}

/* The marks of a call. */
#define DONE 1u /* error or reply is there */
#define UNCERTAIN 2u /* sent once, and not answered */
#define LOAD 4u /* its node lacked the library of functions */
#define ASKING 8u /* node was named by ASK */
#define SENT 16u /* in this round, and not answered yet */
#define FRESH 32u /* answered in this round */
#define LOADS 64u /* it was sent with the library */
#define UNROUTED UINT32_MAX

struct engine_group {
	struct connection *connection;
	uint32_t node;
	bool tried;
	uint32_t replicas; /* that are waited for */
	uint64_t began_ns;
	struct limit limit;
};

struct engine_batch {
	struct engine *engine;
	struct engine_call *call;
	size_t count;
	struct limit limit;
	bool replicated, no_retry;
	bool wait; /* a back-off before the next round */
	uint32_t rounds, back_off_ms;
	uint64_t least_ns; /* that a round is given */
	uint32_t group_count;
	struct engine_group group[ROUTE_NODES_MAX];
};

/* engine.c */
struct limit limit_part(const struct limit *limit, uint32_t parts);
uint64_t least_of(uint64_t ns);

/* credentials.c: -EINVAL, -ENOENT, -ENOMEM. */
int credentials_read(
    struct engine *engine, const struct hwt_durable_options *options);

/* nodes.c */
int level_verify(
    struct engine *engine, uint32_t node, const struct connection *connection);
uint32_t replicas_awaited(const struct engine *engine, uint32_t connected);
void node_verified(
    struct engine *engine, uint32_t node, const struct connection *connection);
int connect_failed(struct engine *engine, const struct route_address *address,
    int error, const char *why);
void pool_give(
    struct engine *engine, uint32_t node, struct connection *connection);
void pool_empty(struct engine *engine, uint32_t node);
struct connection *pool_take_usable(struct engine *engine, uint32_t node);
void node_judge(struct engine *engine, uint32_t node, uint64_t began_ns,
    const struct limit *limit);

/* table.c; UNROUTED: no node is known to have the shard. */
int table_ensure(struct engine *engine, const struct limit *limit);
void table_set_stale(struct engine *engine);
uint32_t table_node(struct engine *engine, uint32_t shard);

/* call.c */
void call_fail(struct engine_call *call, int error);
void call_again(
    struct engine_batch *batch, struct engine_call *call, int error);
void call_unreached(
    struct engine_batch *batch, struct engine_call *call, int error);
void call_lost(struct engine_batch *batch, struct engine_call *call, int error);
void write_call(struct buffer *buffer, const struct engine *engine,
    const struct engine_call *call);
int call_receive(struct engine_batch *batch, struct engine_call *call,
    const struct engine_group *group, bool *useless);

/* group.c */
bool group_open(
    struct engine_batch *batch, struct engine_group *group, bool from_pool);
void group_send(struct engine_batch *batch, struct engine_group *group);
void group_receive(struct engine_batch *batch, struct engine_group *group);

#endif
