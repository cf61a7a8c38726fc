/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to the engine: see engine.h.
 *
 * A BATCH goes in rounds. A round finds the node of each call that has no
 * answer yet, sends each node its part, and then reads the answers. What is
 * left goes into the next round: at once if a node said where to go, or lacked
 * a script; otherwise after a back-off.
 *
 * LOCK. It protects the table of the nodes, the pools of connections that are
 * not in use, and when the log was last written to. It is never held while a
 * thread waits, or writes to the log. A connection that was taken from a pool
 * belongs to the thread that took it. All else is written by engine_open alone,
 * but for level: engine_open writes that after its first calls, and no other
 * thread has the engine then.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "connection.h"
#include "durable.h"
#include "route.h"

#define TIMEOUT_DEFAULT HWT_SEC(5)
#define SKEW_DEFAULT HWT_SEC(5)
#define BACK_OFF_FIRST_MS 10u
#define BACK_OFF_LAST_MS 500u
#define LAST_PART 10u /* of the time: the least that a round is given */
#define IDLE_MAX 8u /* connections to a node that are kept */
#define PASSWORD_MAX 512
#define AT_ONCE_MAX 5u /* rounds without a back-off */

/* The marks of a call. */
#define DONE 1u /* error or reply is there */
#define UNCERTAIN 2u /* sent once, and not answered */
#define LOAD 4u /* the whole script is sent */
#define ASKING 8u /* node was named by ASK */
#define SENT 16u /* in this round, and not answered yet */
#define FRESH 32u /* answered in this round */
#define UNROUTED UINT32_MAX

struct script_text {
	const char *name, *sum;
	size_t length;
	const char *text;
};

static const struct script_text scripts[] = {
#include "build/durable/scripts.h"
};

_Static_assert(
    sizeof(scripts) / sizeof(scripts[0]) == SCRIPT_COUNT, "enum script");

struct pool {
	struct connection *first;
	uint32_t count;
};

struct engine {
	pthread_mutex_t lock;
	struct route_table table;
	struct pool pool[ROUTE_NODES_MAX];
	bool stale; /* the table is to be read anew */
	uint64_t logged_ns;
	uint64_t held_back; /* lines of the log */
	/* Constant. */
	struct route_servers servers;
	struct hwt_log log;
	struct demand demand;
	char space[HWT_DURABLE_SPACE_MAX + 1];
	char *user, *password;
	uint32_t level, replicas;
	uint64_t skew_ns, timeout_ns;
	bool opened;
};

static void
lock(struct engine *engine)
{
	(void)pthread_mutex_lock(&engine->lock);
}

static void
unlock(struct engine *engine)
{
	(void)pthread_mutex_unlock(&engine->lock);
}

const char *
engine_space(const struct engine *engine)
{
	return engine->space;
}

uint32_t
engine_level(const struct engine *engine)
{
	return engine->level;
}

void
engine_key(const struct engine *engine, char key[ENGINE_KEY_MAX],
    uint32_t shard, const char *name)
{
	if (shard == SHARD_SPACE)
		(void)snprintf(
		    key, ENGINE_KEY_MAX, "{%s}:%s", engine->space, name);
	else
		(void)snprintf(key, ENGINE_KEY_MAX, "{%s:%u}:%s", engine->space,
		    shard, name);
}

struct limit
engine_limit(const struct engine *engine, const struct engine_wait *wait)
{
	uint64_t timeout_ns =
	    wait->timeout_ns != 0 ? wait->timeout_ns : engine->timeout_ns;

	return (struct limit){limit_now_ns() + timeout_ns, wait->stop_fd};
}

/* The log. */

/* False: a line was written less than a second ago. */
static bool
log_may_write(struct engine *engine, int level, uint64_t *held_back)
{
	uint64_t now = limit_now_ns();
	bool may;

	lock(engine);
	may = level <= LOG_ERR || engine->logged_ns == 0 ||
	    now - engine->logged_ns >= HWT_SEC(1);
	*held_back = engine->held_back;
	engine->held_back = may ? 0 : engine->held_back + 1;
	if (may)
		engine->logged_ns = now;
	unlock(engine);
	return may;
}

void
engine_log(struct engine *engine, int level, const char *format, ...)
{
	char line[512];
	uint64_t held_back;
	va_list list;
	int length;

	if (!log_may_write(engine, level, &held_back))
		return;
	va_start(list, format);
	length = vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	if (held_back > 0 && length >= 0 && (size_t)length < sizeof(line))
		(void)snprintf(line + length, sizeof(line) - (size_t)length,
		    " (and %llu lines more)", (unsigned long long)held_back);
	if (engine->log.write != NULL)
		engine->log.write(engine->log.ctx, level, line);
	else
		(void)fprintf(stderr, "hwt_durable: %s\n", line);
}

/* Connections. */

static int
level_verify(struct engine *engine, const struct connection *connection)
{
	if (engine->level < HWT_DURABLE_FSYNCED || connection->keeps_always)
		return 0;
	engine_log(engine, LOG_ERR,
	    "the engine may lose what it acknowledges; appendonly yes, "
	    "appendfsync always, aof-load-truncated no and "
	    "no-appendfsync-on-rewrite no are needed");
	return -EOPNOTSUPP;
}

/* A replica that the options name themselves will not become a master soon. */
static int
connect_failed(struct engine *engine, const struct route_address *address,
    int error, const char *why)
{
	if (error == -EAGAIN && !engine->opened &&
	    engine->servers.kind == ROUTE_SINGLE && why[0] != 0)
		error = -EOPNOTSUPP;
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

static struct connection *
pool_take(struct engine *engine, uint32_t node, struct route_address *address)
{
	struct pool *pool = &engine->pool[node];
	struct connection *taken;

	lock(engine);
	*address = engine->table.node[node];
	taken = pool->first;
	if (taken != NULL) {
		pool->first = taken->next;
		pool->count--;
	}
	unlock(engine);
	return taken;
}

static void
pool_give(struct engine *engine, uint32_t node, struct connection *connection)
{
	struct pool *pool = &engine->pool[node];
	bool full;

	lock(engine);
	full = pool->count >= IDLE_MAX;
	if (!full) {
		connection->next = pool->first;
		pool->first = connection;
		pool->count++;
	}
	unlock(engine);
	if (full)
		connection_close(connection);
}

static void
pool_empty(struct engine *engine, uint32_t node)
{
	struct route_address address;
	struct connection *connection;

	while ((connection = pool_take(engine, node, &address)) != NULL)
		connection_close(connection);
}

static int
node_connect(struct engine *engine, uint32_t node,
    struct connection **connection, const struct limit *limit)
{
	struct route_address address;
	int error = 0;

	while ((*connection = pool_take(engine, node, &address)) != NULL &&
	    !connection_is_usable(*connection))
		connection_close(*connection);
	if (*connection == NULL)
		error = engine_connect(engine, &address, connection, limit);
	if (error == 0)
		error = level_verify(engine, *connection);
	if (error == -EOPNOTSUPP)
		connection_close(*connection);
	if (error != 0)
		*connection = NULL;
	return error;
}

/* Which node has what. */

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
	if (error != 0 && error != -EAGAIN) {
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
	}
	freeReplyObject(reply);
	return error;
}

/* A part of what is left, so that one server that does not answer leaves time
 * for the others. */
static struct limit
limit_part(const struct limit *limit, uint32_t parts)
{
	uint64_t now = limit_now_ns();
	struct limit part = *limit;

	if (part.deadline_ns > now)
		part.deadline_ns = now + (part.deadline_ns - now) / parts;
	return part;
}

/* The servers of the options, then the nodes that are known. */
static bool
candidate(struct engine *engine, uint32_t index, struct route_address *address)
{
	bool known = index < engine->servers.count;

	if (known) {
		*address = engine->servers.address[index];
		return true;
	}
	if (engine->servers.kind == ROUTE_SENTINEL)
		return false;
	index -= engine->servers.count;
	lock(engine);
	known = index < engine->table.count;
	if (known)
		*address = engine->table.node[index];
	unlock(engine);
	return known;
}

static int
table_refresh(struct engine *engine, const struct limit *limit)
{
	struct route_address address;
	int error = -ECONNREFUSED;
	int each = -EAGAIN;
	struct limit part;
	uint32_t i;

	if (engine->servers.kind == ROUTE_SINGLE) {
		table_set_all(engine, &engine->servers.address[0]);
		return 0;
	}
	for (i = 0; each != 0 && candidate(engine, i, &address); i++) {
		part = limit_part(limit, 3);
		each = engine->servers.kind == ROUTE_SENTINEL
		    ? sentinel_ask(engine, &address, &part)
		    : cluster_ask(engine, &address, &part);
		if (each == -ECANCELED)
			return each;
		/* What cannot be mended by waiting says more. */
		if (each != -ECONNREFUSED && each != -ETIMEDOUT &&
		    each != -ECONNRESET)
			error = each;
	}
	return error;
}

static int
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

static void
table_doubt(struct engine *engine)
{
	lock(engine);
	engine->stale = true;
	unlock(engine);
}

/* The node of a shard, by the key of its counters. */
static uint32_t
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

int
engine_connect_any(struct engine *engine, struct connection **connection,
    const struct limit *limit)
{
	struct route_address address;
	int error = table_ensure(engine, limit);
	uint32_t node;

	if (error != 0)
		return error;
	node = table_node(engine, 0);
	if (node == UNROUTED)
		return -EAGAIN;
	lock(engine);
	address = engine->table.node[node];
	unlock(engine);
	error = engine_connect(engine, &address, connection, limit);
	if (error != 0)
		table_doubt(engine);
	return error;
}

/* A batch. */

struct group {
	struct connection *connection;
	uint32_t node;
};

struct batch {
	struct engine *engine;
	struct engine_call *call;
	size_t count;
	struct limit limit;
	bool replicated, hasty;
	bool wait; /* a back-off before the next round */
	uint32_t rounds, back_off_ms;
	uint64_t least_ns; /* that a round is given */
	uint32_t group_count;
	struct group group[ROUTE_NODES_MAX];
};

/* The error says that nothing has happened, which is not known to be so once
 * the call was sent. */
static int
certain(const struct engine_call *call, int error)
{
	if ((call->marks & UNCERTAIN) == 0)
		return error;
	switch (error) {
	case -ECONNREFUSED:
	case -EAGAIN:
	case -ETIME:
	case -EACCES:
	case -ENOSPC:
	case -ESTALE:
	case -ECANCELED:
	case -ENOMEM:
		return -ETIMEDOUT;
	default:
		return error;
	}
}

static void
call_fail(struct engine_call *call, int error)
{
	call->error = error == -ECANCELED ? error : certain(call, error);
	call->marks |= DONE;
}

/* error is what it is when the deadline comes. */
static void
call_again(struct batch *batch, struct engine_call *call, int error)
{
	call->error = certain(call, error);
	batch->wait = true;
}

/* A connection, or a node, that could not be had. */
static void
call_unreached(struct batch *batch, struct engine_call *call, int error)
{
	switch (error) {
	case -ECONNREFUSED:
	case -EAGAIN:
		call_again(batch, call, error);
		break;
	case -ETIMEDOUT:
	case -ECONNRESET:
		call_again(batch, call, -ECONNREFUSED);
		break;
	default:
		call_fail(call, error);
	}
}

/* It was sent, at least in part. */
static void
call_lost(struct batch *batch, struct engine_call *call, int error)
{
	call->marks = (call->marks | UNCERTAIN) & ~ASKING;
	if (error == -ECANCELED || error == -EPROTO)
		call_fail(call, error);
	else
		call_again(batch, call, -ETIMEDOUT);
}

static bool
in_group(const struct engine_call *call, const struct group *group)
{
	return (call->marks & DONE) == 0 && call->node == group->node;
}

static uint64_t
clock_ms(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

static const char *
call_key_name(const struct engine_call *call)
{
	return call->shard == SHARD_SPACE ? "hosts" : "meta";
}

/* EVALSHA sum 1 key clock skew argument... */
static void
write_script(struct buffer *buffer, const struct engine *engine,
    const struct engine_call *call)
{
	const struct script_text *script = &scripts[call->script];
	char key[ENGINE_KEY_MAX];

	buffer_command(buffer, 6 + (size_t)call->count);
	if (call->marks & LOAD) {
		buffer_text(buffer, "EVAL");
		buffer_word(buffer, script->text, script->length);
	} else {
		buffer_text(buffer, "EVALSHA");
		buffer_text(buffer, script->sum);
	}
	buffer_text(buffer, "1");
	engine_key(engine, key, call->shard, call_key_name(call));
	buffer_text(buffer, key);
	buffer_number(buffer, clock_ms());
	if (engine->skew_ns == HWT_NEVER)
		buffer_text(buffer, "");
	else
		buffer_number(buffer, whole_ms(engine->skew_ns));
}

static void
write_call(struct buffer *buffer, const struct engine *engine,
    const struct engine_call *call)
{
	uint32_t i;

	if (call->marks & ASKING) {
		buffer_command(buffer, 1);
		buffer_text(buffer, "ASKING");
	}
	if (call->script == COMMAND)
		buffer_command(buffer, call->count);
	else
		write_script(buffer, engine, call);
	for (i = 0; i < call->count; i++)
		buffer_word(buffer, call->arg[i].data, call->arg[i].length);
}

/* WAIT answers by itself when three quarters of the time are over. */
static void
write_wait(struct buffer *buffer, const struct batch *batch)
{
	uint64_t now = limit_now_ns();
	uint64_t left =
	    batch->limit.deadline_ns > now ? batch->limit.deadline_ns - now : 0;

	buffer_command(buffer, 3);
	buffer_text(buffer, "WAIT");
	buffer_number(buffer, batch->engine->replicas);
	buffer_number(buffer, left / 4 * 3 / 1000000 + 1);
}

static bool
batch_waits(const struct batch *batch)
{
	return batch->replicated &&
	    batch->engine->level == HWT_DURABLE_REPLICATED;
}

static void
group_send(struct batch *batch, struct group *group)
{
	struct buffer buffer = {0};
	struct engine_call *call;
	int error = node_connect(
	    batch->engine, group->node, &group->connection, &batch->limit);
	bool reached = error == 0;

	for (call = batch->call; reached && call < batch->call + batch->count;
	     call++) {
		if (!in_group(call, group))
			continue;
		write_call(&buffer, batch->engine, call);
		call->marks |= SENT;
	}
	if (reached && batch_waits(batch))
		write_wait(&buffer, batch);
	if (reached && buffer.failed)
		error = -ENOMEM;
	else if (reached)
		error =
		    connection_send(group->connection, &buffer, &batch->limit);
	reached = reached && !buffer.failed;
	buffer_free(&buffer);
	if (error == 0)
		return;
	table_doubt(batch->engine);
	connection_close(group->connection);
	group->connection = NULL;
	for (call = batch->call; call < batch->call + batch->count; call++) {
		if (!in_group(call, group))
			continue;
		call->marks &= ~SENT;
		if (reached)
			call_lost(batch, call, error);
		else
			call_unreached(batch, call, error);
	}
}

/* MOVED. */
static void
call_move(struct batch *batch, struct engine_call *call,
    const struct route_verdict *verdict)
{
	struct engine *engine = batch->engine;
	int node;

	lock(engine);
	node = route_table_add(&engine->table, &verdict->address);
	if (node >= 0 && verdict->action == ROUTE_MOVED)
		engine->table.node_of[verdict->slot] = (uint16_t)(node + 1);
	unlock(engine);
	if (node < 0) {
		call_fail(call, -EPROTO);
		return;
	}
	call->error = certain(call, -EAGAIN);
	if (verdict->action == ROUTE_ASK) {
		call->node = (uint32_t)node;
		call->marks |= ASKING;
	}
	if (batch->rounds >= AT_ONCE_MAX)
		batch->wait = true;
}

/* An error reply. True: the connection is of no more use. */
static bool
call_refused(struct batch *batch, struct engine_call *call,
    const redisReply *reply, uint32_t node)
{
	struct engine *engine = batch->engine;
	struct route_verdict verdict;
	struct route_address from;

	lock(engine);
	from = engine->table.node[node];
	unlock(engine);
	route_judge(&verdict, reply->str, reply->len, &from);
	call->marks &= ~ASKING;
	switch (verdict.action) {
	case ROUTE_MOVED:
	case ROUTE_ASK:
		call_move(batch, call, &verdict);
		return false;
	case ROUTE_LOAD:
		if (call->script < SCRIPT_COUNT && !(call->marks & LOAD)) {
			call->marks |= LOAD;
			call->error = -EAGAIN;
			return false;
		}
		break;
	case ROUTE_AGAIN:
	case ROUTE_ELSEWHERE:
		call_again(batch, call, verdict.error);
		return verdict.action == ROUTE_ELSEWHERE;
	default:
		break;
	}
	if (verdict.error == -EPROTO || verdict.error == -EACCES)
		engine_log(engine, LOG_ERR, "%s: the engine says: %.300s",
		    call->script < SCRIPT_COUNT ? scripts[call->script].name
						: "command",
		    reply->str);
	call->index = verdict.index;
	call_fail(call, verdict.error);
	return false;
}

/* Reads the replies to one call. *useless: the connection is, afterwards. */
static int
call_receive(struct batch *batch, struct engine_call *call,
    const struct group *group, bool *useless)
{
	redisReply *reply = NULL;
	int error = 0;

	if (call->marks & ASKING)
		error = connection_receive(
		    group->connection, &reply, &batch->limit);
	if (reply != NULL)
		freeReplyObject(reply);
	reply = NULL;
	if (error == 0)
		error = connection_receive(
		    group->connection, &reply, &batch->limit);
	if (error != 0)
		return error;
	call->marks &= ~SENT;
	if (reply->type == REDIS_REPLY_ERROR) {
		*useless |= call_refused(batch, call, reply, group->node);
		freeReplyObject(reply);
		return 0;
	}
	call->marks |= DONE | FRESH;
	call->error = 0;
	call->reply = reply;
	return 0;
}

/* Too few replicas have what this round has answered: it stands on one machine
 * alone, and may be lost with it. */
static void
round_doubt(struct batch *batch, uint32_t node)
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

static int
wait_receive(struct batch *batch, const struct group *group)
{
	redisReply *reply = NULL;
	int error =
	    connection_receive(group->connection, &reply, &batch->limit);

	if (error != 0 || reply->type != REDIS_REPLY_INTEGER ||
	    reply->integer < (long long)batch->engine->replicas) {
		engine_log(batch->engine, LOG_WARNING,
		    "fewer than %u replicas have answered",
		    batch->engine->replicas);
		round_doubt(batch, group->node);
	}
	if (reply != NULL)
		freeReplyObject(reply);
	return error;
}

static void
group_end(struct batch *batch, struct group *group, int error, bool useless)
{
	struct engine_call *call;

	if (error == 0 && !useless) {
		pool_give(batch->engine, group->node, group->connection);
		return;
	}
	connection_close(group->connection);
	pool_empty(batch->engine, group->node);
	table_doubt(batch->engine);
	for (call = batch->call; call < batch->call + batch->count; call++) {
		if ((call->marks & SENT) == 0 || call->node != group->node)
			continue;
		call->marks &= ~SENT;
		call_lost(batch, call, error);
	}
}

static void
group_receive(struct batch *batch, struct group *group)
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
		round_doubt(batch, group->node);
	group_end(batch, group, error, useless);
}

static void
group_add(struct batch *batch, uint32_t node)
{
	uint32_t i;

	for (i = 0; i < batch->group_count; i++) {
		if (batch->group[i].node == node)
			return;
	}
	batch->group[batch->group_count++] = (struct group){.node = node};
}

/* Finds the nodes of all calls that are left. */
static void
round_route(struct batch *batch)
{
	struct engine_call *call;

	batch->group_count = 0;
	for (call = batch->call; call < batch->call + batch->count; call++) {
		call->marks &= ~FRESH;
		if (call->marks & DONE)
			continue;
		if ((call->marks & ASKING) == 0)
			call->node = table_node(batch->engine, call->shard);
		if (call->node == UNROUTED) {
			call_again(batch, call, -EAGAIN);
			table_doubt(batch->engine);
		} else
			group_add(batch, call->node);
	}
}

static void
batch_round(struct batch *batch)
{
	int error = table_ensure(batch->engine, &batch->limit);
	struct engine_call *call;
	uint32_t i;

	batch->wait = false;
	batch->rounds++;
	if (error != 0) {
		for (call = batch->call; call < batch->call + batch->count;
		     call++) {
			if ((call->marks & DONE) == 0)
				call_unreached(batch, call, error);
		}
		return;
	}
	round_route(batch);
	for (i = 0; i < batch->group_count; i++)
		group_send(batch, &batch->group[i]);
	for (i = 0; i < batch->group_count; i++) {
		if (batch->group[i].connection != NULL)
			group_receive(batch, &batch->group[i]);
	}
}

static bool
batch_is_done(const struct batch *batch)
{
	const struct engine_call *call;

	for (call = batch->call; call < batch->call + batch->count; call++) {
		if ((call->marks & DONE) == 0)
			return false;
	}
	return true;
}

static uint32_t
back_off_ms(struct batch *batch)
{
	uint32_t most = batch->back_off_ms;
	uint64_t noise = limit_now_ns() * UINT64_C(0x9e3779b97f4a7c15) >> 33;

	batch->back_off_ms =
	    most * 2 > BACK_OFF_LAST_MS ? BACK_OFF_LAST_MS : most * 2;
	return most / 2 + (uint32_t)(noise % (most / 2 + 1));
}

/* False: there is no next round. One that begins shortly before the deadline
 * would likely get no answer in time, and so make doubtful what is certain. */
static bool
batch_pause(struct batch *batch)
{
	struct limit pause = batch->limit;
	uint64_t now = limit_now_ns();
	struct engine_call *call;
	bool last;

	if (now >= batch->limit.deadline_ns)
		return false;
	if (!batch->wait)
		return true;
	if (batch->hasty)
		return false;
	now += HWT_MS(back_off_ms(batch));
	last = now + batch->least_ns >= pause.deadline_ns;
	if (!last)
		pause.deadline_ns = now;
	if (limit_wait(&pause, -1, 0) != -ECANCELED)
		return !last;
	for (call = batch->call; call < batch->call + batch->count; call++) {
		if ((call->marks & DONE) == 0)
			call_fail(call, -ECANCELED);
	}
	return false;
}

int
engine_call(struct engine *engine, struct engine_call *call, size_t count,
    const struct engine_wait *wait)
{
	static const struct engine_wait defaults = {.stop_fd = -1};
	struct batch batch = {.engine = engine,
	    .call = call,
	    .count = count,
	    .back_off_ms = BACK_OFF_FIRST_MS};
	size_t i;

	if (wait == NULL)
		wait = &defaults;
	batch.limit = engine_limit(engine, wait);
	batch.least_ns = (batch.limit.deadline_ns - limit_now_ns()) / LAST_PART;
	batch.replicated = wait->replicated;
	batch.hasty = wait->hasty;
	for (i = 0; i < count; i++) {
		call[i].marks = 0;
		call[i].index = 0;
		call[i].node = UNROUTED;
		call[i].error = -ECONNREFUSED;
		call[i].reply = NULL;
	}
	do
		batch_round(&batch);
	while (!batch_is_done(&batch) && batch_pause(&batch));
	for (i = 0; i < count; i++) {
		if (call[i].error != 0)
			return call[i].error;
	}
	return 0;
}

void
engine_call_free(struct engine_call *call, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {
		if (call[i].reply != NULL)
			freeReplyObject(call[i].reply);
		call[i].reply = NULL;
	}
}

/* Opening. */

static int
password_read(struct engine *engine, const char *path)
{
	char line[PASSWORD_MAX];
	FILE *file = fopen(path, "re");
	int error = 0;

	if (file == NULL)
		return -ENOENT;
	if (fgets(line, sizeof(line), file) == NULL)
		error = -ENOENT;
	else {
		line[strcspn(line, "\r\n")] = 0;
		engine->password = strdup(line);
		if (engine->password == NULL)
			error = -ENOMEM;
	}
	explicit_bzero(line, sizeof(line));
	(void)fclose(file);
	return error;
}

/* A user without a password file has any password, in Redis' words. */
static int
credentials_read(
    struct engine *engine, const struct hwt_durable_options *options)
{
	int error = 0;

	if (options->user != NULL) {
		engine->user = strdup(options->user);
		if (engine->user == NULL)
			return -ENOMEM;
	}
	if (options->password_file != NULL)
		error = password_read(engine, options->password_file);
	engine->demand.user = engine->user;
	engine->demand.password = engine->password;
	if (engine->user != NULL && engine->password == NULL)
		engine->demand.password = "";
	return error;
}

/* What the space has, if there is one. */
static int
level_read(struct engine *engine, uint32_t *level)
{
	char key[ENGINE_KEY_MAX];
	const struct engine_argument arg[] = {
	    {"HGET", 4}, {key, 0}, {"level", 5}};
	struct engine_argument argument[3];
	struct engine_call call = {
	    .script = COMMAND, .count = 3, .arg = argument};
	int error;

	engine_key(engine, key, 0, "meta");
	memcpy(argument, arg, sizeof(argument));
	argument[1].length = strlen(key);
	error = engine_call(engine, &call, 1, NULL);
	if (error != 0)
		return error;
	*level = HWT_DURABLE_FSYNCED;
	if (call.reply->type == REDIS_REPLY_STRING)
		*level = (uint32_t)strtoul(call.reply->str, NULL, 10);
	engine_call_free(&call, 1);
	return *level < HWT_DURABLE_MEMORY || *level > HWT_DURABLE_REPLICATED
	    ? -EPROTO
	    : 0;
}

static int
engine_begin(struct engine *engine, const struct hwt_durable_options *options)
{
	uint32_t level = 0;
	int error = credentials_read(engine, options);

	/* The first connection tells whether it can be used at all. */
	if (error == 0)
		error = level_read(engine, &level);
	if (error != 0)
		return error;
	engine->level = options->level != 0 ? options->level : level;
	engine->opened = true;
	return 0;
}

int
engine_open(struct engine **engine, const struct hwt_durable_options *options)
{
	struct engine *made = calloc(1, sizeof(*made));
	int error;

	if (made == NULL)
		return -ENOMEM;
	(void)pthread_mutex_init(&made->lock, NULL);
	made->stale = true;
	made->replicas = options->replicas != 0 ? options->replicas : 1;
	made->skew_ns = options->skew_ns != 0 ? options->skew_ns : SKEW_DEFAULT;
	made->timeout_ns =
	    options->timeout_ns != 0 ? options->timeout_ns : TIMEOUT_DEFAULT;
	if (options->log != NULL)
		made->log = *options->log;
	(void)snprintf(made->space, sizeof(made->space), "%s",
	    options->space != NULL ? options->space : "hwt");
	error = route_read_servers(&made->servers,
	    options->servers != NULL ? options->servers : "127.0.0.1:6379");
	if (error == 0)
		error = engine_begin(made, options);
	if (error != 0) {
		engine_close(made);
		return error;
	}
	*engine = made;
	return 0;
}

void
engine_close(struct engine *engine)
{
	uint32_t i;

	for (i = 0; i < ROUTE_NODES_MAX; i++)
		pool_empty(engine, i);
	if (engine->password != NULL)
		explicit_bzero(engine->password, strlen(engine->password));
	free(engine->password);
	free(engine->user);
	(void)pthread_mutex_destroy(&engine->lock);
	free(engine);
}
