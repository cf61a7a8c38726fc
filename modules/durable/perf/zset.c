/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one writes oneself with Redis: a sorted set of tasks by due time, and
 * another one of those that a worker holds, by the end of its lease. An add is
 * one ZADD of the batch. A worker's thread calls a script that takes off what
 * it has executed and moves up to 256 that are due, or whose lease has ended;
 * if there are none, it polls again after 5 ms. SERVER is a port of the
 * loopback and the lease in ms.
 *
 * Why 256: of 16, 64 and 256, three rounds in turn on a busy machine, it had
 * the most lives a second (medians 18,296, 14,350 and 21,204) and caught up
 * with 23,404, 55,107 and 150,393 tasks a second; how late tasks were did not
 * differ. A worker of hwt_durable takes up to 256 ahead by itself.
 *
 * Who would call it unfair: who would write a module of Redis in C, or a
 * protocol of its own, for it. It has one queue in one node, equal tasks are
 * one, and it has no ids, attempts, results or states, no cluster and no
 * cancel: that is what its price is without, and hwt_durable's with.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "modules/durable/perf/redis.h"

const unsigned queue_unit_ms = 1;

enum {
	TAKEN_MAX = 256,
	EMPTY_US = 5000
};

/* ARGV: now, the end of a lease that begins now, how many to move, and what was
 * executed. */
static const char take[] =
    "if #ARGV > 3 then redis.call('ZREM', 'held', unpack(ARGV, 4)) end "
    "for _, from in ipairs({'held', 'due'}) do "
    "local tasks = redis.call('ZRANGEBYSCORE', from, '-inf', ARGV[1], "
    "'LIMIT', 0, ARGV[3]) "
    "if #tasks > 0 then "
    "local held = {} "
    "for _, task in ipairs(tasks) do "
    "held[#held + 1] = ARGV[2] held[#held + 1] = task end "
    "redis.call('ZADD', 'held', unpack(held)) "
    "if from == 'due' then redis.call('ZREM', 'due', unpack(tasks)) end "
    "return tasks end end "
    "return {}";

static unsigned lease_ms;

void
queue_open(const char *server)
{
	if (sscanf(server, "%d,%u", &port, &lease_ms) != 2)
		FAIL("not a server: %s", server);
}

bool
producer_add(struct producer *producer, size_t count, const struct task *tasks)
{
	const char *words[2 + 2 * BATCH_MAX] = {"ZADD", "due"};
	char due[BATCH_MAX][24];
	redisReply *reply;
	bool done;
	size_t i;

	for (i = 0; i < count; i++) {
		(void)snprintf(
		    due[i], sizeof(due[i]), "%" PRIu64, tasks[i].due_ms);
		words[2 + 2 * i] = due[i];
		words[3 + 2 * i] = tasks[i].payload;
	}
	if (producer->redis == NULL && !connect_to(producer))
		return false;
	reply = redisCommandArgv(
	    producer->redis, (int)(2 + 2 * count), words, NULL);
	done = reply != NULL && reply->type == REDIS_REPLY_INTEGER;
	if (reply != NULL)
		freeReplyObject(reply);
	if (!done) {
		redisFree(producer->redis);
		producer->redis = NULL;
	}
	return done;
}

/* By the hash of the script. */
static redisReply *
exchange(redisContext *redis, const char *hash, const redisReply *executed)
{
	const char *words[6 + TAKEN_MAX] = {"EVALSHA", hash, "0"};
	char now[24], until[24], most[24];
	redisReply *reply;
	size_t i, count = executed != NULL ? executed->elements : 0;

	(void)snprintf(now, sizeof(now), "%" PRIu64, now_ms());
	(void)snprintf(until, sizeof(until), "%" PRIu64, now_ms() + lease_ms);
	(void)snprintf(most, sizeof(most), "%d", TAKEN_MAX);
	words[3] = now;
	words[4] = until;
	words[5] = most;
	for (i = 0; i < count; i++)
		words[6 + i] = executed->element[i]->str;
	reply = redisCommandArgv(redis, (int)(6 + count), words, NULL);
	if (reply == NULL || reply->type != REDIS_REPLY_ARRAY)
		FAIL("take: %s", reply != NULL ? reply->str : redis->errstr);
	return reply;
}

static void *
work(void *argument)
{
	struct producer *connection = producer_open();
	redisReply *loaded, *tasks = NULL, *next;
	size_t i;

	loaded = redisCommand(connection->redis, "SCRIPT LOAD %s", take);
	if (loaded == NULL || loaded->type != REDIS_REPLY_STRING)
		FAIL("the script cannot be loaded");
	/* What was taken last is executed as well. */
	do {
		next = exchange(connection->redis, loaded->str, tasks);
		if (tasks != NULL)
			freeReplyObject(tasks);
		tasks = next;
		for (i = 0; i < tasks->elements; i++)
			task_executed(tasks->element[i]->str);
		if (tasks->elements == 0)
			(void)usleep(EMPTY_US);
	} while (tasks->elements > 0 || !atomic_load(&stopping));
	freeReplyObject(tasks);
	freeReplyObject(loaded);
	producer_close(connection);
	return argument;
}
