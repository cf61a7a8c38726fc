/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group: the calls of a round that go to the same node, on one connection,
 * and, with level REPLICATED, the wait for its replicas.
 */
#include <syslog.h>

#include "engine_internal.h"

#define VERIFIED_NS HWT_SEC(1) /* for so long a verification is believed */

static bool
in_group(const struct engine_call *call, const struct engine_group *group)
{
	return (call->marks & DONE) == 0 && call->node == group->node;
}

/* WAIT answers by itself when three quarters of the time are over. ROLE says
 * who has come since the replicas were counted. */
static void
write_wait(struct buffer *buffer, const struct engine_batch *batch,
    struct engine_group *group)
{
	struct engine *engine = batch->engine;
	uint64_t until = group->limit.deadline_ns;
	uint64_t now = limit_now_ns();
	uint64_t left = until > now ? until - now : 0;

	lock(engine);
	group->replicas =
	    replicas_awaited(engine, engine->pool[group->node].replicas);
	unlock(engine);
	buffer_command(buffer, 3);
	buffer_text(buffer, "WAIT");
	buffer_number(buffer, group->replicas);
	buffer_number(buffer, left / 4 * 3 / 1000000 + 1);
	if (engine->replicas != 0)
		return;
	buffer_command(buffer, 1);
	buffer_text(buffer, "ROLE");
}

static bool
batch_waits(const struct engine_batch *batch)
{
	return batch->replicated &&
	    batch->engine->level == HWT_DURABLE_REPLICATED;
}

/* Too few replicas have what this round has answered: it stands on one machine
 * alone, and may be lost with it. */
static void
round_time_out(struct engine_batch *batch, uint32_t node)
{
	struct engine_call *call;

	for (call = batch->call; call < batch->call + batch->count; call++) {
		if ((call->marks & FRESH) == 0 || call->node != node)
			continue;
		freeReplyObject(call->reply);
		call->reply = NULL;
		call->error = -ETIMEDOUT;
	}
}

/* sent: at least in part. */
static void
group_fail(struct engine_batch *batch, struct engine_group *group, int error,
    bool sent)
{
	struct engine_call *call;

	connection_close(group->connection);
	group->connection = NULL;
	for (call = batch->call; call < batch->call + batch->count; call++) {
		if (!in_group(call, group))
			continue;
		call->marks &= ~SENT;
		if (sent)
			call_lost(batch, call, error);
		else
			call_unreached(batch, call, error);
	}
}

/* Until when its node is to answer. silent: it did not, the last time. */
static void
group_set_limit(
    struct engine_batch *batch, struct engine_group *group, bool silent)
{
	uint64_t least_ns;

	group->began_ns = limit_now_ns();
	group->limit = batch->limit;
	if (batch->engine->servers.kind != ROUTE_CLUSTER ||
	    (batch->group_count == 1 && !batch->no_retry))
		return;
	group->limit = limit_part(&batch->limit, 2);
	least_ns = group->began_ns + batch->least_ns;
	if (silent && group->limit.deadline_ns > least_ns)
		group->limit.deadline_ns = least_ns;
}

/* Without a connection in the pool: -ECONNREFUSED while it is silent. */
static int
group_connect(struct engine_batch *batch, struct engine_group *group)
{
	struct engine *engine = batch->engine;
	struct route_address address;
	uint64_t silent_ns;
	int error;

	lock(engine);
	address = engine->table.node[group->node];
	silent_ns = engine->pool[group->node].silent_ns;
	unlock(engine);
	if (silent_ns > limit_now_ns())
		return -ECONNREFUSED;
	group_set_limit(batch, group, silent_ns != 0);
	error =
	    engine_connect(engine, &address, &group->connection, &group->limit);
	if (error != 0) {
		node_judge(engine, group->node, group->began_ns, &group->limit);
		table_set_stale(engine);
	} else
		node_verified(engine, group->node, group->connection);
	return error;
}

/* One from the pool was verified when it was made. Of a second, one call pays
 * for asking the node again; those beside it go on meanwhile. */
static int
group_verify(struct engine_batch *batch, struct engine_group *group)
{
	static const struct demand nothing;
	struct engine *engine = batch->engine;
	struct connection_pool *pool = &engine->pool[group->node];
	struct connection *connection = group->connection;
	char why[VERIFY_WHY_MAX] = "";
	uint64_t now = limit_now_ns();
	bool due;
	int error;

	lock(engine);
	due = now - pool->verified_ns >= VERIFIED_NS;
	if (due)
		pool->verified_ns = now;
	unlock(engine);
	if (!due)
		return 0;
	error = verify(connection, &nothing, why, &group->limit);
	if (error == 0) {
		node_verified(engine, group->node, connection);
		return 0;
	}
	lock(engine);
	pool->verified_ns = 0;
	unlock(engine);
	node_judge(engine, group->node, group->began_ns, &group->limit);
	table_set_stale(engine);
	return connect_failed(engine, &connection->address, error, why);
}

/* False: there is no connection to it, or none in the pool. */
bool
group_open(
    struct engine_batch *batch, struct engine_group *group, bool from_pool)
{
	int error = 0;

	group->connection = pool_take_usable(batch->engine, group->node);
	if (group->connection != NULL) {
		group_set_limit(batch, group, false);
		error = group_verify(batch, group);
	} else if (from_pool)
		return false;
	else
		error = group_connect(batch, group);
	group->tried = true;
	if (error == 0 &&
	    (error = level_verify(
		 batch->engine, group->node, group->connection)) != 0)
		table_set_stale(batch->engine);
	if (error != 0)
		group_fail(batch, group, error, false);
	return error == 0;
}

void
group_send(struct engine_batch *batch, struct engine_group *group)
{
	struct buffer buffer = {0};
	struct engine_call *call;
	bool written, loads = false;
	int error;

	for (call = batch->call; call < batch->call + batch->count; call++) {
		if (!in_group(call, group))
			continue;
		call->marks &= ~LOADS;
		/* One of them is enough for all. */
		if (!loads && (call->marks & LOAD)) {
			call->marks |= LOADS;
			loads = true;
		}
		write_call(&buffer, batch->engine, call);
		call->marks |= SENT;
	}
	if (batch_waits(batch))
		write_wait(&buffer, batch, group);
	written = !buffer.failed;
	error = connection_send(group->connection, &buffer, &group->limit);
	buffer_free(&buffer);
	if (error == 0)
		return;
	node_judge(batch->engine, group->node, group->began_ns, &group->limit);
	table_set_stale(batch->engine);
	group_fail(batch, group, error, written);
}

/* *enough: all that are to have it have it. */
static int
wait_answers(
    struct engine_batch *batch, struct engine_group *group, bool *enough)
{
	redisReply *waited = NULL, *role = NULL;
	uint32_t connected;
	int error =
	    connection_receive(group->connection, &waited, &group->limit);

	if (error == 0 && batch->engine->replicas == 0)
		error =
		    connection_receive(group->connection, &role, &group->limit);
	connected = role != NULL ? verify_replicas(role) : 0;
	if (connected > group->replicas)
		group->replicas = connected;
	*enough = error == 0 && waited->type == REDIS_REPLY_INTEGER &&
	    waited->integer >= (long long)group->replicas;
	if (waited != NULL)
		freeReplyObject(waited);
	if (role != NULL)
		freeReplyObject(role);
	return error;
}

static int
wait_receive(struct engine_batch *batch, struct engine_group *group)
{
	struct engine *engine = batch->engine;
	bool enough;
	int error = wait_answers(batch, group, &enough);

	if (enough)
		return error;
	engine_log(engine, LOG_WARNING, "fewer than %u replicas have answered",
	    group->replicas);
	round_time_out(batch, group->node);
	/* One may have come or gone: they are to be counted again. */
	lock(engine);
	engine->pool[group->node].verified_ns = 0;
	unlock(engine);
	return error;
}

static void
group_end(struct engine_batch *batch, struct engine_group *group, int error,
    bool useless)
{
	struct engine_call *call;

	if (error == 0 && !useless) {
		pool_give(batch->engine, group->node, group->connection);
		group->connection = NULL;
		return;
	}
	connection_close(group->connection);
	group->connection = NULL;
	pool_empty(batch->engine, group->node);
	if (error != 0)
		node_judge(
		    batch->engine, group->node, group->began_ns, &group->limit);
	table_set_stale(batch->engine);
	for (call = batch->call; call < batch->call + batch->count; call++) {
		if ((call->marks & SENT) == 0 || call->node != group->node)
			continue;
		call->marks &= ~SENT;
		call_lost(batch, call, error);
	}
}

void
group_receive(struct engine_batch *batch, struct engine_group *group)
{
	struct engine_call *call;
	bool useless = false;
	int error = 0;

	for (call = batch->call;
	     error == 0 && call < batch->call + batch->count; call++) {
		if ((call->marks & SENT) && call->node == group->node)
			error = call_receive(batch, call, group, &useless);
	}
	if (error == 0 && batch_waits(batch))
		error = wait_receive(batch, group);
	else if (batch_waits(batch))
		round_time_out(batch, group->node);
	group_end(batch, group, error, useless);
}
