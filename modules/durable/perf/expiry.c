/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The naive way: a key of Redis that expires when the task is due, and a
 * subscriber to what Redis publishes of keys that it has removed because they
 * had expired (notify-keyspace-events Ex). The task is the key's name, since
 * the event has no more, and what was in the key is gone. A batch is so many
 * SETs in one message. SERVER is a port of the loopback.
 *
 * Who would call it unfair: nobody who has read Redis' manual, which says that
 * an event comes when a key is removed, not when it expires, and is for who is
 * subscribed at that time. Redis looks for expired keys ten times a second in
 * samples, and leaves off where fewer than a tenth of a sample are: so it is
 * later the more other keys there are. A subscriber that is away misses what
 * expires meanwhile: of a catch-up all. There is one subscriber, since a second
 * one would execute each task again. In return, a key is one that all know:
 * PERSIST and DEL cancel it, and EXPIRE moves it.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "modules/durable/perf/redis.h"

const unsigned queue_unit_ms = 1;

enum {
	STOP_MS = 20 /* until a subscriber sees that it is to end */
};

static atomic_bool subscribed;

void
queue_open(const char *server)
{
	port = (int)strtol(server, NULL, 10);
}

static bool
answered(redisContext *redis)
{
	redisReply *reply = NULL;
	bool done = redisGetReply(redis, (void **)&reply) == REDIS_OK;

	if (done && reply->type == REDIS_REPLY_ERROR &&
	    strncmp(reply->str, "LOADING", 7) != 0)
		FAIL("SET: %s", reply->str);
	done = done && reply->type == REDIS_REPLY_STATUS;
	freeReplyObject(reply);
	return done;
}

bool
producer_add(struct producer *producer, size_t count, const struct task *tasks)
{
	uint64_t now = now_ms(), delay;
	bool done = true;
	size_t i;

	if (producer->redis == NULL && !connect_to(producer))
		return false;
	for (i = 0; i < count; i++) {
		delay = tasks[i].due_ms > now ? tasks[i].due_ms - now : 1;
		(void)redisAppendCommand(producer->redis,
		    "SET %s 1 PX %" PRIu64, tasks[i].payload, delay);
	}
	for (i = 0; i < count && done; i++)
		done = answered(producer->redis);
	if (!done) {
		redisFree(producer->redis);
		producer->redis = NULL;
	}
	return done;
}

/* An event is "message", the channel, and the name of a key. */
static void
hear(redisContext *redis)
{
	redisReply *reply = NULL;

	if (redisBufferRead(redis) != REDIS_OK)
		FAIL("the server has gone: %s", redis->errstr);
	while (redisGetReplyFromReader(redis, (void **)&reply) == REDIS_OK &&
	    reply != NULL) {
		if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
		    strcmp(reply->element[0]->str, "message") == 0)
			task_executed(reply->element[2]->str);
		freeReplyObject(reply);
		reply = NULL;
	}
}

static void *
work(void *argument)
{
	struct producer *connection;
	struct pollfd file = {.events = POLLIN};
	int ready;

	if (atomic_exchange(&subscribed, true))
		return argument;
	connection = producer_open();
	freeReplyObject(redisCommand(
	    connection->redis, "SUBSCRIBE __keyevent@0__:expired"));
	file.fd = connection->redis->fd;
	while (!atomic_load(&stopping)) {
		ready = poll(&file, 1, STOP_MS);
		if (ready < 0 && errno != EINTR)
			FAIL("poll: %s", strerror(errno));
		if (ready > 0)
			hear(connection->redis);
	}
	producer_close(connection);
	return argument;
}
