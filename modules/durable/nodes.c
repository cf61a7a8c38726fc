/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes: connections to them, whether they keep what the level asks for, the
 * pools of connections that are not in use, and which of them hang.
 */
#include <syslog.h>

#include "engine_internal.h"

#define IDLE_MAX 8u /* connections to a node that are kept */
#define SILENT_NS HWT_SEC(1) /* for so long a node is left alone */

/* Whether the node keeps what the level asks for. Once it did not, what it
 * appends is in no file that it would read at a start, until a rewrite has
 * ended. */
int
level_verify(
    struct engine *engine, uint32_t node, const struct connection *connection)
{
	struct connection_pool *pool = &engine->pool[node];
	bool lapsed;

	if (engine->level < HWT_DURABLE_FSYNCED)
		return 0;
	lock(engine);
	lapsed =
	    !connection->keeps_always || (pool->lapsed && connection->rewrites);
	pool->lapsed = lapsed;
	if (lapsed)
		pool->verified_ns = 0;
	unlock(engine);
	if (!lapsed)
		return 0;
	if (connection->keeps_always) {
		engine_log(engine, LOG_WARNING,
		    "the engine keeps again what it acknowledges, but has not "
		    "yet written the file from which it would start");
		return -EAGAIN;
	}
	engine_log(engine, LOG_ERR,
	    "the engine may lose what it acknowledges; appendonly yes, "
	    "appendfsync always, aof-load-truncated no and "
	    "no-appendfsync-on-rewrite no are needed");
	return -EOPNOTSUPP;
}

/* How many replicas are to have what is stored: what the options say; without,
 * all that are connected. */
uint32_t
replicas_awaited(const struct engine *engine, uint32_t connected)
{
	return engine->replicas != 0 ? engine->replicas
	    : connected != 0         ? connected
				     : 1;
}

/* A replica that is not waited for may be the next master. */
static void
replicas_judge(struct engine *engine, const struct connection *connection)
{
	uint32_t awaited = replicas_awaited(engine, connection->replicas);

	if (engine->level == HWT_DURABLE_REPLICATED &&
	    connection->replicas > awaited)
		engine_log(engine, LOG_WARNING,
		    "%s:%u: %u replicas are connected, and %u waited for: a "
		    "fail-over to another one loses what that has not got",
		    connection->address.host, connection->address.port,
		    connection->replicas, awaited);
}

void
node_verified(
    struct engine *engine, uint32_t node, const struct connection *connection)
{
	lock(engine);
	engine->pool[node].verified_ns = limit_now_ns();
	engine->pool[node].replicas = connection->replicas;
	unlock(engine);
	replicas_judge(engine, connection);
}

void
engine_replicas(struct engine *engine, uint32_t *connected, uint32_t *awaited)
{
	bool named[ROUTE_NODES_MAX];
	uint32_t i;

	*connected = *awaited = 0;
	if (engine->level != HWT_DURABLE_REPLICATED)
		return;
	lock(engine);
	route_table_named(&engine->table, named);
	for (i = 0; i < ROUTE_NODES_MAX; i++) {
		if (named[i] && engine->pool[i].replicas > *connected)
			*connected = engine->pool[i].replicas;
	}
	unlock(engine);
	*awaited = replicas_awaited(engine, *connected);
}

/* A replica that the options name themselves will not become a master soon. */
int
connect_failed(struct engine *engine, const struct route_address *address,
    int error, const char *why)
{
	if (error == -EROFS)
		error = !engine->opened && engine->servers.kind == ROUTE_SINGLE
		    ? -EOPNOTSUPP
		    : -EAGAIN;
	if (error != -ECANCELED)
		engine_log(engine,
		    error == -EACCES || error == -EOPNOTSUPP ? LOG_ERR
							     : LOG_WARNING,
		    "%s:%u: %s", address->host, address->port,
		    why[0] != 0 ? why : error_says(error));
	return error;
}

int
engine_connect(struct engine *engine, const struct route_address *address,
    struct connection **connection, const struct limit *limit)
{
	char why[VERIFY_WHY_MAX] = "";
	struct connection *made = NULL;
	int error = connection_open(&made, address, limit);

	if (error == 0)
		error = verify(made, &engine->demand, why, limit);
	if (error != 0) {
		connection_close(made);
		return connect_failed(engine, address, error, why);
	}
	*connection = made;
	return 0;
}

/* By now, its node may be another one: see route_table_add. With the lock. */
static bool
is_to(const struct engine *engine, const struct connection *connection,
    uint32_t node)
{
	return route_is_same(&connection->address, &engine->table.node[node]);
}

/* *fits: it is to this node. */
static struct connection *
pool_take(struct engine *engine, uint32_t node, bool *fits)
{
	struct connection_pool *pool = &engine->pool[node];
	struct connection *taken;

	lock(engine);
	taken = pool->first;
	if (taken != NULL) {
		*fits = is_to(engine, taken, node);
		pool->first = taken->next;
		pool->count--;
	}
	unlock(engine);
	return taken;
}

void
pool_give(struct engine *engine, uint32_t node, struct connection *connection)
{
	struct connection_pool *pool = &engine->pool[node];
	bool fits, keep;

	lock(engine);
	fits = is_to(engine, connection, node);
	if (fits)
		pool->silent_ns = 0;
	keep = fits && pool->count < IDLE_MAX;
	if (keep) {
		connection->next = pool->first;
		pool->first = connection;
		pool->count++;
	}
	unlock(engine);
	if (!keep)
		connection_close(connection);
}

void
pool_empty(struct engine *engine, uint32_t node)
{
	struct connection *connection;
	bool ignored;

	while ((connection = pool_take(engine, node, &ignored)) != NULL)
		connection_close(connection);
}

/* NULL: there is none. */
struct connection *
pool_take_usable(struct engine *engine, uint32_t node)
{
	struct connection *connection;
	bool fits;

	while ((connection = pool_take(engine, node, &fits)) != NULL &&
	    !(fits && connection_is_usable(connection)))
		connection_close(connection);
	return connection;
}

/* It was to answer from began_ns on, within the limit, and did not. */
void
node_judge(struct engine *engine, uint32_t node, uint64_t began_ns,
    const struct limit *limit)
{
	uint64_t timeout_ns = engine->timeout_ns;
	uint64_t now = limit_now_ns();

	if (engine->servers.kind != ROUTE_CLUSTER || now < limit->deadline_ns ||
	    limit->deadline_ns - began_ns < least_of(timeout_ns))
		return;
	lock(engine);
	engine->pool[node].silent_ns =
	    now + (timeout_ns < SILENT_NS ? timeout_ns : SILENT_NS);
	unlock(engine);
}
