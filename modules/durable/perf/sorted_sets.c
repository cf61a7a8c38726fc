/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two sorted sets of Redis: what is due by due time, and what is taken by the
 * end of its lease. The member is the payload. An add is one ZADD NX of the
 * batch; a worker ends what it has done and takes the next tasks in one script,
 * which first puts back up to 100 leases that have ended. With nothing due it
 * polls again after 1 ms. appendfsync always.
 *
 * Who would call it unfair: users of Redis who would let more than one command
 * be outstanding; a script for each batch is fewer commands than they send.
 * There are no attempts, results, states or fences, and a task that is added
 * again after its end is executed again: the least that a queue of one's own
 * needs.
 */
#include "modules/durable/perf/resp.h"

#include <string.h>

const unsigned engine_pause_ms = 1;
unsigned engine_visibility_ms = 30000;

static const char script[] =
    "if #ARGV > 2 then redis.call('ZREM', KEYS[2], unpack(ARGV, 3)) end\n"
    "local t = redis.call('TIME')\n"
    "local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "local back = redis.call('ZRANGEBYSCORE', KEYS[2], 0, now, 'LIMIT', 0,"
    " 100)\n"
    "for _, m in ipairs(back) do\n"
    "  redis.call('ZREM', KEYS[2], m)\n"
    "  redis.call('ZADD', KEYS[1], now, m)\n"
    "end\n"
    "local got = redis.call('ZRANGEBYSCORE', KEYS[1], 0, now, 'LIMIT', 0,"
    " ARGV[1])\n"
    "if #got == 0 then return got end\n"
    "redis.call('ZREM', KEYS[1], unpack(got))\n"
    "local leases = {}\n"
    "for i, m in ipairs(got) do\n"
    "  leases[2 * i - 1], leases[2 * i] = now + ARGV[2], m\n"
    "end\n"
    "redis.call('ZADD', KEYS[2], unpack(leases))\n"
    "return got\n";

bool
engine_send_add(
    struct connection *connection, const struct task *tasks, size_t count)
{
	size_t i;

	resp_begin(connection, "ZADD");
	resp_text(connection, "perf:due");
	resp_text(connection, "NX");
	for (i = 0; i < count; i++) {
		resp_number(connection, tasks[i].due_ms);
		resp_payload(connection, &tasks[i]);
	}
	connection->takes = false;
	return resp_send(connection);
}

/* Once for each connection: a server that was killed has forgotten it. */
static bool
load_script(struct connection *connection, char *hash)
{
	redisReply *reply;
	int came = 0;

	resp_begin(connection, "SCRIPT");
	resp_text(connection, "LOAD");
	resp_text(connection, script);
	if (!resp_send(connection))
		return false;
	while (came == 0)
		came = resp_receive(connection, &reply);
	if (came < 0)
		return false;
	memcpy(hash, reply->str, 40);
	freeReplyObject(reply);
	return true;
}

bool
engine_send_take(struct connection *connection, const struct task *done,
    size_t count, unsigned limit)
{
	static char hash[41];
	size_t i;

	if (!connection->loaded && !load_script(connection, hash))
		return false;
	connection->loaded = true;
	resp_begin(connection, "EVALSHA");
	resp_text(connection, hash);
	resp_text(connection, "2");
	resp_text(connection, "perf:due");
	resp_text(connection, "perf:taken");
	resp_number(connection, limit);
	resp_number(connection, engine_visibility_ms);
	for (i = 0; i < count; i++)
		resp_payload(connection, &done[i]);
	connection->takes = true;
	return resp_send(connection);
}

int
engine_receive(struct connection *connection, struct task *taken, size_t *count,
    size_t *refused)
{
	redisReply *reply;
	int came = resp_receive(connection, &reply);

	*count = *refused = 0;
	if (came != 1)
		return came;
	for (; connection->takes && *count < reply->elements; (*count)++)
		payload_read(reply->element[*count]->str, &taken[*count]);
	freeReplyObject(reply);
	return 1;
}
