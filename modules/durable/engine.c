/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to the engine: see engine.h.
 *
 * A BATCH goes in rounds. A round finds the node of each call that has no
 * answer yet, sends each node its part, and then reads the answers: first of
 * the nodes that a connection is there to, then of the others. What is left
 * goes into the next round: at once if a node said where to go, or lacked a
 * script; otherwise after a back-off.
 *
 * A NODE THAT HANGS accepts connections, and answers nothing. In a cluster it
 * must not take the time of the others: where somebody else waits, a node gets
 * half of the time that is left. One that has let it pass is refused for a
 * second, and then is given a tenth of the whole time to show that it is back.
 *
 * LOCK. It protects the table of the nodes, the pools of connections that are
 * not in use, who is silent, and what the log was last told. It is never held
 * while a thread waits, or writes to the log. A connection that was taken from
 * a pool belongs to the thread that took it. All else is written by engine_open
 * alone, but for level and identity: those are written after the first calls,
 * and no other thread has the engine then.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "connection.h"
#include "durable.h"
#include "route.h"

#define TIMEOUT_DEFAULT HWT_SEC(5)
#define SKEW_DEFAULT HWT_SEC(5)
#define BACK_OFF_FIRST_MS 10u
#define BACK_OFF_LAST_MS 500u
#define LAST_PART 10u /* of the time: the least that anybody is given */
#define IDLE_MAX 8u /* connections to a node that are kept */
#define PASSWORD_MAX 512 /* bytes */
#define LOG_LINE_MAX 512
#define SAID_COUNT 16u /* different lines that are remembered */
#define SAID_NS HWT_SEC(60)
#define AT_ONCE_MAX 5u /* rounds without a back-off */
#define SILENT_NS HWT_SEC(1) /* for so long a node is left alone */
#define VERIFIED_NS HWT_SEC(1) /* for so long a verification is believed */

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
#include "scripts.h"
};

_Static_assert(
    sizeof(scripts) / sizeof(scripts[0]) == SCRIPT_COUNT, "enum script");

struct connection_pool {
	struct connection *first;
	uint32_t count;
	/* The node let a time-out pass, and is left alone until then; 0: it
	 * answered last. */
	uint64_t silent_ns;
	/* When it was verified last, by any connection; 0: it is to be. */
	uint64_t verified_ns;
	uint32_t replicas; /* that it then had */
	bool lapsed; /* it kept less than the level: see level_verify */
};

/* A line of the log; times are CLOCK_BOOTTIME's. */
struct said {
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
	struct said said[SAID_COUNT];
	/* CLOCK_BOOTTIME of the first of the calls that found the space gone,
	 * and after which none has found it; 0: the last one has. Without the
	 * lock: who reads it late is told so by the next call. */
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

bool
engine_is_gone(const struct engine *engine, uint64_t for_ns)
{
	uint64_t since = a64_load_relaxed(&engine->gone_ns);

	return since != 0 && boot_now_ns() - since >= for_ns;
}

/* Of the answer to a call; while the space is opened, it is no news. */
static void
note_whether_gone(struct engine *engine, const struct engine_call *call,
    const redisReply *error)
{
	bool was_gone = a64_load_relaxed(&engine->gone_ns) != 0;

	if (call->script == COMMAND || call->shard == SHARD_SPACE ||
	    engine->identity.text[0] == 0 || was_gone == (error != NULL))
		return;
	a64_store_relaxed(&engine->gone_ns, error != NULL ? boot_now_ns() : 0);
	if (error != NULL)
		engine_log(engine, LOG_ERR, "space %s, shard %u: %.200s",
		    engine->space, call->shard, error->str);
}

void
engine_set_identity(struct engine *engine, uint64_t identity)
{
	(void)argument_number(&engine->identity, identity);
}

uint64_t
engine_timeout_ns(const struct engine *engine)
{
	return engine->timeout_ns;
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

/* The one that has this hash, or else the oldest. */
static struct said *
said_find(struct engine *engine, uint64_t hash)
{
	struct said *oldest = engine->said;
	struct said *said;

	for (said = engine->said; said < engine->said + SAID_COUNT; said++) {
		if (said->hash == hash)
			return said;
		if (said->written_ns < oldest->written_ns)
			oldest = said;
	}
	return oldest;
}

/* False: it was written less than a minute ago, or, if it is no error, another
 * one less than a second ago. With the lock. */
static bool
log_may_write(struct engine *engine, int level, uint64_t hash, uint64_t *again,
    uint64_t *others)
{
	struct said *said = said_find(engine, hash);
	uint64_t now = boot_now_ns();

	*again = said->hash == hash ? said->held_back : 0;
	if (said->hash == hash && now - said->written_ns < SAID_NS) {
		said->held_back++;
		return false;
	}
	*others = engine->held_back;
	if (level > LOG_ERR && engine->logged_ns != 0 &&
	    now - engine->logged_ns < HWT_SEC(1)) {
		engine->held_back++;
		return false;
	}
	*said = (struct said){.hash = hash, .written_ns = now};
	engine->held_back = 0;
	engine->logged_ns = now;
	return true;
}

static void
line_append(char line[LOG_LINE_MAX], uint64_t count, const char *what)
{
	size_t length = strlen(line);

	if (count > 0)
		(void)snprintf(line + length, LOG_LINE_MAX - length,
		    " (%llu %s)", (unsigned long long)count, what);
}

void
engine_log(struct engine *engine, int level, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	uint64_t again = 0, others = 0;
	va_list list;
	bool may;

	va_start(list, format);
	(void)vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	lock(engine);
	may = log_may_write(
	    engine, level, id_hash(line, strlen(line)), &again, &others);
	unlock(engine);
	if (!may)
		return;
	line_append(line, again, "times since it was last said");
	line_append(line, others, "other lines were held back");
	if (engine->log.write != NULL)
		engine->log.write(engine->log.ctx, level, line);
	else
		(void)fprintf(stderr, "hwt_durable: %s\n", line);
}

/* Connections. */

/* Whether the node keeps what the level asks for. Once it did not, what it
 * appends is in no file that it would read at a start, until a rewrite has
 * ended. */
static int
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
static uint32_t
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

static void
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
static int
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

static void
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

static void
pool_empty(struct engine *engine, uint32_t node)
{
	struct connection *connection;
	bool ignored;

	while ((connection = pool_take(engine, node, &ignored)) != NULL)
		connection_close(connection);
}

/* NULL: there is none. */
static struct connection *
pool_take_usable(struct engine *engine, uint32_t node)
{
	struct connection *connection;
	bool fits;

	while ((connection = pool_take(engine, node, &fits)) != NULL &&
	    !(fits && connection_is_usable(connection)))
		connection_close(connection);
	return connection;
}

/* Nodes that hang. */

/* A tenth of a time: what is too little to judge by, and enough to show that
 * one is back. */
static uint64_t
least_of(uint64_t ns)
{
	return ns / LAST_PART;
}

/* It was to answer from began_ns on, within the limit, and did not. */
static void
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
		table_doubt(engine);
	}
	return error;
}

/* A batch. */

struct group {
	struct connection *connection;
	uint32_t node;
	bool tried;
	uint32_t replicas; /* that are waited for */
	uint64_t began_ns;
	struct limit limit;
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
	if ((call->marks & UNCERTAIN) == 0 || call->reads)
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
	call->marks &= ~ASKING;
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

/* EVALSHA sum 1 key clock skew argument... witness identity */
static void
write_script(struct buffer *buffer, const struct engine *engine,
    const struct engine_call *call)
{
	const struct script_text *script = &scripts[call->script];
	char key[ENGINE_KEY_MAX];

	buffer_command(buffer, 8 + (size_t)call->count);
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
	if (call->script == COMMAND)
		return;
	if (call->witness_ms != 0)
		buffer_number(buffer, call->witness_ms);
	else
		buffer_text(buffer, "");
	buffer_text(buffer, engine->identity.text);
}

/* WAIT answers by itself when three quarters of the time are over. ROLE tells
 * who has come since the replicas were counted. */
static void
write_wait(
    struct buffer *buffer, const struct batch *batch, struct group *group)
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
batch_waits(const struct batch *batch)
{
	return batch->replicated &&
	    batch->engine->level == HWT_DURABLE_REPLICATED;
}

/* sent: at least in part. */
static void
group_fail(struct batch *batch, struct group *group, int error, bool sent)
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
group_set_limit(struct batch *batch, struct group *group, bool silent)
{
	uint64_t least_ns;

	group->began_ns = limit_now_ns();
	group->limit = batch->limit;
	if (batch->engine->servers.kind != ROUTE_CLUSTER ||
	    (batch->group_count == 1 && !batch->hasty))
		return;
	group->limit = limit_part(&batch->limit, 2);
	least_ns = group->began_ns + batch->least_ns;
	if (silent && group->limit.deadline_ns > least_ns)
		group->limit.deadline_ns = least_ns;
}

/* Without a connection in the pool: -ECONNREFUSED while it is silent. */
static int
group_connect(struct batch *batch, struct group *group)
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
		table_doubt(engine);
	} else
		node_verified(engine, group->node, group->connection);
	return error;
}

/* One from the pool was verified when it was made. Of a second, one call pays
 * for asking the node again; those beside it go on meanwhile. */
static int
group_verify(struct batch *batch, struct group *group)
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
	table_doubt(engine);
	return connect_failed(engine, &connection->address, error, why);
}

/* False: there is no connection to it, or none in the pool. */
static bool
group_open(struct batch *batch, struct group *group, bool from_pool)
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
		table_doubt(batch->engine);
	if (error != 0)
		group_fail(batch, group, error, false);
	return error == 0;
}

static void
group_send(struct batch *batch, struct group *group)
{
	struct buffer buffer = {0};
	struct engine_call *call;
	bool written;
	int error;

	for (call = batch->call; call < batch->call + batch->count; call++) {
		if (!in_group(call, group))
			continue;
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
	table_doubt(batch->engine);
	group_fail(batch, group, error, written);
}

/* Who sends calls to and fro is named in the log: where slots are moved in
 * haste, two nodes may each name the other for ever. */
static void
call_move(struct batch *batch, struct engine_call *call,
    const struct route_verdict *verdict, const struct route_address *from)
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
	if (batch->rounds < AT_ONCE_MAX)
		return;
	batch->wait = true;
	engine_log(engine, LOG_WARNING, "%s:%u: slot %u is said to be at %s:%u",
	    from->host, from->port, verdict->slot, verdict->address.host,
	    verdict->address.port);
}

/* An error reply. True: the connection is of no more use. */
static bool
call_refused(struct batch *batch, struct engine_call *call,
    const redisReply *reply, const struct route_address *from)
{
	struct engine *engine = batch->engine;
	struct route_verdict verdict;

	route_judge(&verdict, reply->str, reply->len, from);
	call->marks &= ~ASKING;
	switch (verdict.action) {
	case ROUTE_MOVED:
	case ROUTE_ASK:
		call_move(batch, call, &verdict, from);
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
	if (verdict.error == -ESTALE)
		note_whether_gone(engine, call, reply);
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
		    group->connection, &reply, &group->limit);
	if (reply != NULL)
		freeReplyObject(reply);
	reply = NULL;
	if (error == 0)
		error = connection_receive(
		    group->connection, &reply, &group->limit);
	if (error != 0)
		return error;
	call->marks &= ~SENT;
	if (reply->type == REDIS_REPLY_ERROR) {
		*useless |= call_refused(
		    batch, call, reply, &group->connection->address);
		freeReplyObject(reply);
		return 0;
	}
	note_whether_gone(batch->engine, call, NULL);
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

/* *enough: all that are to have it have it. */
static int
wait_answers(struct batch *batch, struct group *group, bool *enough)
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
wait_receive(struct batch *batch, struct group *group)
{
	struct engine *engine = batch->engine;
	bool enough;
	int error = wait_answers(batch, group, &enough);

	if (enough)
		return error;
	engine_log(engine, LOG_WARNING, "fewer than %u replicas have answered",
	    group->replicas);
	round_doubt(batch, group->node);
	/* One may have come or gone: they are to be counted again. */
	lock(engine);
	engine->pool[group->node].verified_ns = 0;
	unlock(engine);
	return error;
}

static void
group_end(struct batch *batch, struct group *group, int error, bool useless)
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

/* All that have a connection in the pool, or all others. */
static void
groups_talk(struct batch *batch, bool from_pool)
{
	struct group *group;

	for (group = batch->group; group < batch->group + batch->group_count;
	     group++) {
		if (!group->tried && group_open(batch, group, from_pool))
			group_send(batch, group);
	}
	for (group = batch->group; group < batch->group + batch->group_count;
	     group++) {
		if (group->connection != NULL)
			group_receive(batch, group);
	}
}

static void
batch_round(struct batch *batch)
{
	int error = table_ensure(batch->engine, &batch->limit);
	struct engine_call *call;

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
	groups_talk(batch, true);
	groups_talk(batch, false);
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
	batch.least_ns = least_of(batch.limit.deadline_ns - limit_now_ns());
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

/* -EINVAL: it is too long, or has a byte that a text cannot have; what is left
 * of it would be another password. */
static int
password_keep(struct engine *engine, const char *line, size_t count)
{
	const char *end = memchr(line, '\n', count);
	size_t length = end != NULL ? (size_t)(end - line) : count;

	if (length > 0 && line[length - 1] == '\r')
		length--;
	if (length > PASSWORD_MAX || memchr(line, 0, length) != NULL) {
		engine_log(engine, LOG_ERR,
		    "the first line of the password file has more than %d "
		    "bytes, or a zero byte",
		    PASSWORD_MAX);
		return -EINVAL;
	}
	engine->password = strndup(line, length);
	return engine->password != NULL ? 0 : -ENOMEM;
}

static int
password_is_missing(struct engine *engine)
{
	engine_log(
	    engine, LOG_ERR, "the password file cannot be read, or is empty");
	return -ENOENT;
}

static int
password_read(struct engine *engine, const char *path)
{
	char line[PASSWORD_MAX + 2]; /* its end, or one byte too many */
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t count = 1;
	size_t length = 0;
	int error;

	if (fd < 0)
		return password_is_missing(engine);
	while (length < sizeof(line) && count > 0) {
		count = read(fd, line + length, sizeof(line) - length);
		length += count > 0 ? (size_t)count : 0;
	}
	(void)close(fd);
	error = count >= 0 && length > 0 ? password_keep(engine, line, length)
					 : password_is_missing(engine);
	explicit_bzero(line, sizeof(line));
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

static bool
level_is_one(uint32_t level)
{
	return level >= HWT_DURABLE_MEMORY && level <= HWT_DURABLE_REPLICATED;
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
	if (call.reply->type == REDIS_REPLY_STRING) {
		*level = (uint32_t)strtoul(call.reply->str, NULL, 10);
		if (!level_is_one(*level))
			error = -EPROTO;
	}
	engine_call_free(&call, 1);
	return error;
}

static int
engine_begin(struct engine *engine, const struct hwt_durable_options *options)
{
	uint32_t level =
	    options->flags & HWT_DURABLE_CREATE ? HWT_DURABLE_FSYNCED : 0;
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
	made->replicas = options->replicas;
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
