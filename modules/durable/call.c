/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call: how it is written, and what its reply, or the lack of one, means for
 * it: a result, an error, or another round.
 */
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "engine_internal.h"

#define AT_ONCE_MAX 5u /* rounds without a back-off */

struct script_name {
	const char *name, *function;
};

#include "scripts.h"

_Static_assert(
    sizeof(scripts) / sizeof(scripts[0]) == SCRIPT_COUNT, "enum script");

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
	case -EOPNOTSUPP:
		return -ETIMEDOUT;
	default:
		return error;
	}
}

void
call_fail(struct engine_call *call, int error)
{
	call->error = error == -ECANCELED ? error : certain(call, error);
	call->marks |= DONE;
}

bool
engine_call_was_lost(const struct engine_call *call)
{
	return (call->marks & UNCERTAIN) != 0;
}

/* error is what it is when the deadline comes. */
void
call_again(struct engine_batch *batch, struct engine_call *call, int error)
{
	call->error = certain(call, error);
	batch->wait = true;
}

/* A connection, or a node, that could not be had. */
void
call_unreached(struct engine_batch *batch, struct engine_call *call, int error)
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
void
call_lost(struct engine_batch *batch, struct engine_call *call, int error)
{
	call->marks = (call->marks | UNCERTAIN) & ~ASKING;
	if (error == -ECANCELED || error == -EPROTO)
		call_fail(call, error);
	else
		call_again(batch, call, -ETIMEDOUT);
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

/* FCALL function 1 key clock skew argument... trusted_time identity */
static void
write_script(struct buffer *buffer, const struct engine *engine,
    const struct engine_call *call)
{
	char key[ENGINE_KEY_MAX];

	buffer_command(buffer, 8 + (size_t)call->count);
	buffer_text(buffer, "FCALL");
	buffer_text(buffer, scripts[call->script].function);
	buffer_text(buffer, "1");
	engine_key(engine, key, call->shard, call_key_name(call));
	buffer_text(buffer, key);
	buffer_number(buffer, clock_ms());
	if (engine->skew_ns == HWT_NEVER)
		buffer_text(buffer, "");
	else
		buffer_number(buffer, whole_ms(engine->skew_ns));
}

void
write_call(struct buffer *buffer, const struct engine *engine,
    const struct engine_call *call)
{
	uint32_t i;

	if (call->marks & LOADS) {
		buffer_command(buffer, 3);
		buffer_text(buffer, "FUNCTION");
		buffer_text(buffer, "LOAD");
		buffer_word(buffer, library_text, sizeof(library_text) - 1);
	}
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
	if (call->trusted_time_ms != 0)
		buffer_number(buffer, call->trusted_time_ms);
	else
		buffer_text(buffer, "");
	buffer_text(buffer, engine->identity.text);
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

/* Who lets calls ping-pong is named in the log: where slots are moved in
 * haste, two nodes may each name the other for ever. */
static void
call_move(struct engine_batch *batch, struct engine_call *call,
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
call_refused(struct engine_batch *batch, struct engine_call *call,
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
		/* Somebody may take it away again and again. */
		call->marks |= LOAD;
		call->error = certain(call, -EAGAIN);
		batch->wait |= batch->rounds >= AT_ONCE_MAX;
		return false;
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

/* *reply is the call's from now on. */
static void
call_done(struct engine *engine, struct engine_call *call, redisReply **reply)
{
	note_whether_gone(engine, call, NULL);
	call->marks |= DONE | FRESH;
	call->error = 0;
	call->reply = *reply;
	*reply = NULL;
}

/* Whether the library could be loaded, or was there. */
static bool
is_loaded(const redisReply *reply)
{
	static const char there[] = "ERR Library '";

	return reply->type != REDIS_REPLY_ERROR ||
	    strncmp(reply->str, there, sizeof(there) - 1) == 0;
}

/* Of the commands that stand before one. *load: why the library could not be
 * loaded, or NULL; it may be there all the same. */
static int
receive_before(const struct engine_call *call, const struct engine_group *group,
    redisReply **load)
{
	redisReply *reply = NULL;
	int error = 0;

	if (call->marks & LOADS)
		error =
		    connection_receive(group->connection, load, &group->limit);
	if (*load != NULL && is_loaded(*load)) {
		freeReplyObject(*load);
		*load = NULL;
	}
	if (error == 0 && (call->marks & ASKING))
		error = connection_receive(
		    group->connection, &reply, &group->limit);
	if (reply != NULL)
		freeReplyObject(reply);
	return error;
}

/* Reads the replies to one call. *useless: the connection is, afterwards. */
int
call_receive(struct engine_batch *batch, struct engine_call *call,
    const struct engine_group *group, bool *useless)
{
	redisReply *reply = NULL, *load = NULL;
	int error = receive_before(call, group, &load);

	if (error == 0)
		error = connection_receive(
		    group->connection, &reply, &group->limit);
	if (error == 0) {
		call->marks &= ~SENT;
		if (reply->type == REDIS_REPLY_ERROR)
			*useless |= call_refused(batch, call,
			    load != NULL &&
				    strcmp(reply->str, ROUTE_NO_FUNCTION) == 0
				? load
				: reply,
			    &group->connection->address);
		else
			call_done(batch->engine, call, &reply);
	}
	if (load != NULL)
		freeReplyObject(load);
	if (reply != NULL)
		freeReplyObject(reply);
	return error;
}
