/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which node has which shard: asked of the servers of the options, of Sentinel,
 * or of the nodes of a cluster.
 */
#include <string.h>
#include <syslog.h>

#include "engine_internal.h"

static void
table_set_all(struct engine *engine, const struct route_address *address)
{
	uint32_t slot;
	int node;

	lock(engine);
	node = route_table_add(&engine->table, address);
	for (slot = 0; slot < ROUTE_SLOTS && node >= 0; slot++)
		engine->table.node_of[slot] = (uint16_t)(node + 1);
	unlock(engine);
}

/* Sends one command and reads the reply, on a connection that is not verified.
 */
static int
ask_plainly(const struct route_address *address, const struct buffer *buffer,
    redisReply **reply, const struct limit *limit)
{
	struct connection *connection = NULL;
	int error = connection_open(&connection, address, limit);

	if (error == 0)
		error = connection_send(connection, buffer, limit);
	if (error == 0)
		error = connection_receive(connection, reply, limit);
	connection_close(connection);
	return error;
}

static int
sentinel_ask(struct engine *engine, const struct route_address *sentinel,
    const struct limit *limit)
{
	struct route_address master;
	struct buffer buffer = {0};
	redisReply *reply = NULL;
	int error;

	buffer_command(&buffer, 3);
	buffer_text(&buffer, "SENTINEL");
	buffer_text(&buffer, "get-master-addr-by-name");
	buffer_text(&buffer, engine->servers.name);
	error = ask_plainly(sentinel, &buffer, &reply, limit);
	buffer_free(&buffer);
	if (error != 0)
		return error;
	error = -EPROTO;
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
	    reply->element[0]->type == REDIS_REPLY_STRING &&
	    reply->element[1]->type == REDIS_REPLY_STRING)
		error = route_read_address(&master, reply->element[0]->str,
		    reply->element[0]->len, reply->element[1]->str,
		    reply->element[1]->len);
	freeReplyObject(reply);
	if (error == 0)
		table_set_all(engine, &master);
	return error;
}

/* CLUSTER SLOTS, also of a replica: that is no error here. */
static int
cluster_receive(struct engine *engine, const struct route_address *address,
    redisReply **reply, const struct limit *limit)
{
	struct connection *connection = NULL;
	struct buffer buffer = {0};
	char why[VERIFY_WHY_MAX] = "";
	int error = connection_open(&connection, address, limit);

	if (error == 0)
		error = verify(connection, &engine->demand, why, limit);
	if (error != 0 && error != -EAGAIN && error != -EROFS) {
		connection_close(connection);
		return connect_failed(engine, address, error, why);
	}
	buffer_command(&buffer, 2);
	buffer_text(&buffer, "CLUSTER");
	buffer_text(&buffer, "SLOTS");
	error = connection_send(connection, &buffer, limit);
	buffer_free(&buffer);
	if (error == 0)
		error = connection_receive(connection, reply, limit);
	connection_close(connection);
	return error;
}

static int
cluster_ask(struct engine *engine, const struct route_address *address,
    const struct limit *limit)
{
	struct route_verdict verdict;
	redisReply *reply = NULL;
	int error = cluster_receive(engine, address, &reply, limit);

	if (reply == NULL)
		return error != 0 ? error : -EPROTO;
	if (reply->type == REDIS_REPLY_ERROR) {
		route_judge(&verdict, reply->str, reply->len, address);
		error = verdict.error;
		engine_log(engine, LOG_WARNING,
		    "%s:%u: the engine says: %.200s", address->host,
		    address->port, reply->str);
	} else {
		lock(engine);
		error = route_table_read(&engine->table, reply, address);
		unlock(engine);
		if (error == -ENOBUFS)
			error = -EPROTO;
	}
	freeReplyObject(reply);
	return error;
}

/* The servers of the options, then the nodes that have slots; at first the one
 * that answered last. 1; 0: that is none; -1: nor is any further. */
static int
candidate(struct engine *engine, uint32_t nth, uint32_t *index,
    struct route_address *address)
{
	uint32_t servers = engine->servers.count;
	uint32_t count = servers;
	bool named[ROUTE_NODES_MAX];
	int is_one = 1;

	lock(engine);
	if (engine->servers.kind == ROUTE_CLUSTER)
		count += engine->table.count;
	*index = (engine->answered + nth) % count;
	if (*index < servers)
		*address = engine->servers.address[*index];
	else {
		route_table_named(&engine->table, named);
		*address = engine->table.node[*index - servers];
		is_one = named[*index - servers];
	}
	unlock(engine);
	return nth < count ? is_one : -1;
}

/* What has no slot any more may never be asked again. */
static void
pools_sweep(struct engine *engine)
{
	bool named[ROUTE_NODES_MAX];
	uint32_t i;

	lock(engine);
	route_table_named(&engine->table, named);
	unlock(engine);
	for (i = 0; i < ROUTE_NODES_MAX; i++) {
		if (!named[i])
			pool_empty(engine, i);
	}
}

static int
candidate_ask(struct engine *engine, uint32_t index,
    const struct route_address *address, const struct limit *limit)
{
	struct limit part = limit_part(limit, 3);
	int error = engine->servers.kind == ROUTE_SENTINEL
	    ? sentinel_ask(engine, address, &part)
	    : cluster_ask(engine, address, &part);

	if (error != 0)
		return error;
	lock(engine);
	engine->answered = index;
	unlock(engine);
	pools_sweep(engine);
	return 0;
}

static int
table_refresh(struct engine *engine, const struct limit *limit)
{
	struct route_address address;
	int error = -ECONNREFUSED;
	int each = -EAGAIN;
	uint32_t nth, index;
	int is_one;

	if (engine->servers.kind == ROUTE_SINGLE) {
		table_set_all(engine, &engine->servers.address[0]);
		return 0;
	}
	for (nth = 0; (is_one = candidate(engine, nth, &index, &address)) >= 0;
	     nth++) {
		if (is_one == 0)
			continue;
		each = candidate_ask(engine, index, &address, limit);
		if (each == 0 || each == -ECANCELED)
			return each;
		/* What cannot be mended by waiting says more. */
		if (each != -ECONNREFUSED && each != -ETIMEDOUT &&
		    each != -ECONNRESET)
			error = each;
	}
	return error;
}

int
table_ensure(struct engine *engine, const struct limit *limit)
{
	bool stale;
	int error;

	lock(engine);
	stale = engine->stale;
	unlock(engine);
	if (!stale)
		return 0;
	error = table_refresh(engine, limit);
	if (error != 0)
		return error;
	lock(engine);
	engine->stale = false;
	unlock(engine);
	return 0;
}

void
table_set_stale(struct engine *engine)
{
	lock(engine);
	engine->stale = true;
	unlock(engine);
}

/* The node of a shard, by the key of its counters. */
uint32_t
table_node(struct engine *engine, uint32_t shard)
{
	char key[ENGINE_KEY_MAX];
	uint32_t node;

	engine_key(engine, key, shard, "");
	lock(engine);
	node = engine->table.node_of[route_slot(key, strlen(key))];
	unlock(engine);
	return node == 0 ? UNROUTED : node - 1;
}

/* The first node that is not silent, from that of the shard on. */
static uint32_t
table_near(struct engine *engine, uint32_t shard, struct route_address *address)
{
	uint64_t now = limit_now_ns();
	char key[ENGINE_KEY_MAX];
	uint32_t first, slot, node;
	uint32_t found = UNROUTED;

	engine_key(engine, key, shard, "");
	first = route_slot(key, strlen(key));
	lock(engine);
	for (slot = 0; slot < ROUTE_SLOTS && found == UNROUTED; slot++) {
		node = engine->table.node_of[(first + slot) % ROUTE_SLOTS];
		if (node != 0 && engine->pool[node - 1].silent_ns <= now)
			found = node - 1;
	}
	if (found != UNROUTED)
		*address = engine->table.node[found];
	unlock(engine);
	return found;
}

int
engine_connect_near(struct engine *engine, uint32_t shard,
    struct connection **connection, const struct limit *limit)
{
	uint64_t began_ns = limit_now_ns();
	struct route_address address;
	int error = table_ensure(engine, limit);
	uint32_t node;

	if (error != 0)
		return error;
	node = table_near(engine, shard, &address);
	if (node == UNROUTED)
		return -EAGAIN;
	error = engine_connect(engine, &address, connection, limit);
	if (error != 0) {
		node_judge(engine, node, began_ns, limit);
		table_set_stale(engine);
	}
	return error;
}
