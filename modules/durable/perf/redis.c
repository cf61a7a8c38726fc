/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What speaks Redis' protocol. ADDRESS is a port of this machine, with "sets:"
 * before it for sorted sets.
 *
 * A queue of hwtd, or of Redis with hwt.so. A finish carries the next take; a
 * take that has nothing to end blocks in the server. All fsynced.
 *
 * Two sorted sets of Redis: what is due by due time, and what is taken by the
 * end of its lease. The member is the payload. An add is one ZADD NX of the
 * batch; a worker ends what it has done and takes the next tasks in one script,
 * which first puts back up to 100 leases that have ended. With nothing due it
 * polls again after 1 ms. appendfsync always. Who would call it unfair: users
 * of Redis who would let more than one command be outstanding; a script for
 * each batch is fewer commands than they send. There are no attempts, results,
 * states or fences, and a task that is added again after its end is executed
 * again: the least that a queue of one's own needs.
 */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "modules/durable/perf/engine.h"

#define KEY "{perf:tasks}"
#define HEAD_BYTES 16 /* of a command: how many words it has */
#define WORD_BYTES 80 /* of each, and its length */
#define WORDS_MAX (16 + 3 * BATCH_MAX)

unsigned engine_pause_ms = 0;
unsigned engine_visibility_ms = 30000;

struct connection {
	redisContext *redis;
	unsigned index;
	size_t done_count; /* tasks that the outstanding request ends */
	bool takes, sets;
	char hash[41]; /* of the script */
	size_t words;
	char text[HEAD_BYTES + WORDS_MAX * WORD_BYTES], *end;
};

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

/* A server that was killed has forgotten the script. */
static bool
load_script(struct connection *connection)
{
	redisReply *reply =
	    redisCommand(connection->redis, "SCRIPT LOAD %s", script);
	bool right = reply != NULL && reply->type == REDIS_REPLY_STRING;

	if (right)
		(void)strcpy(connection->hash, reply->str);
	freeReplyObject(reply);
	return right;
}

struct connection *
engine_connect(const char *address, unsigned index)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	if (connection == NULL)
		fail("connection", "no memory");
	connection->index = index;
	connection->sets = strncmp(address, "sets:", 5) == 0;
	engine_pause_ms = connection->sets;
	connection->redis = redisConnect(
	    "127.0.0.1", atoi(address + (connection->sets ? 5 : 0)));
	if (connection->redis != NULL && connection->redis->err == 0 &&
	    (!connection->sets || load_script(connection)))
		return connection;
	engine_close(connection);
	return NULL;
}

void
engine_close(struct connection *connection)
{
	redisFree(connection->redis);
	free(connection);
}

int
engine_fd(const struct connection *connection)
{
	return connection->redis->fd;
}

static void
add_word(struct connection *to, const char *word, size_t length)
{
	to->end += sprintf(to->end, "$%zu\r\n", length);
	memcpy(to->end, word, length);
	to->end += length;
	*to->end++ = '\r';
	*to->end++ = '\n';
	to->words++;
}

/* Words with blanks between; the first ones of a command begin it. */
static void __attribute__((format(printf, 2, 3)))
add_words(struct connection *to, const char *format, ...)
{
	char text[160], *word = text;
	va_list arguments;
	size_t length;

	if (to->words == 0)
		to->end = to->text + HEAD_BYTES;
	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	for (; *word != '\0'; word += length + (word[length] != '\0')) {
		length = strcspn(word, " ");
		add_word(to, word, length);
	}
}

static void
add_payload(struct connection *to, const struct task *task)
{
	char payload[PAYLOAD_SIZE + 1];

	payload_write(payload, task);
	add_word(to, payload, PAYLOAD_SIZE);
}

/* The server reads while nothing is outstanding, so this ends. */
static bool
send_words(struct connection *connection)
{
	char head[HEAD_BYTES + 1], *begin = connection->text + HEAD_BYTES;
	int done = 0, length = sprintf(head, "*%zu\r\n", connection->words);

	begin -= length;
	memcpy(begin, head, (size_t)length);
	connection->words = 0;
	if (redisAppendFormattedCommand(connection->redis, begin,
		(size_t)(connection->end - begin)) != REDIS_OK)
		return false;
	while (!done) {
		if (redisBufferWrite(connection->redis, &done) != REDIS_OK)
			return false;
	}
	return true;
}

bool
engine_send_add(
    struct connection *connection, const struct task *tasks, size_t count)
{
	size_t i;

	connection->takes = false;
	add_words(connection,
	    connection->sets ? "ZADD perf:due NX"
			     : "HWT.ADD " KEY " RESULT 60000 EACH TASKS");
	for (i = 0; i < count; i++) {
		if (!connection->sets)
			add_words(connection, "%" PRIu64, tasks[i].number);
		add_words(connection, "%" PRIu64, tasks[i].due_ms);
		add_payload(connection, &tasks[i]);
	}
	return send_words(connection);
}

bool
engine_send_take(struct connection *connection, const struct task *done,
    size_t count, unsigned limit)
{
	size_t i;

	connection->done_count = count;
	connection->takes = true;
	if (connection->sets) {
		add_words(connection, "EVALSHA %s 2 perf:due perf:taken %u %u",
		    connection->hash, limit, engine_visibility_ms);
		for (i = 0; i < count; i++)
			add_payload(connection, &done[i]);
		return send_words(connection);
	}
	add_words(connection,
	    count > 0 ? "HWT.FINISH " KEY " DONE TASKS" : "HWT.TAKE " KEY);
	for (i = 0; i < count; i++)
		add_words(connection, "%" PRIu64 " %" PRIu64, done[i].number,
		    done[i].fence);
	add_words(connection, "%sw%u %u %u%s", count > 0 ? "TAKE " : "",
	    connection->index, limit, engine_visibility_ms,
	    count > 0 ? "" : " BLOCK 1000");
	return send_words(connection);
}

/* As engine_receive; an error of the server ends the program. */
static int
receive(struct connection *connection, redisReply **reply)
{
	void *found = NULL;

	if (redisBufferRead(connection->redis) != REDIS_OK ||
	    redisGetReplyFromReader(connection->redis, &found) != REDIS_OK)
		return -1;
	*reply = found;
	if (found == NULL || (*reply)->type != REDIS_REPLY_ERROR)
		return found != NULL;
	if (strncmp((*reply)->str, "LOADING", 7) != 0)
		fail("the server answers", (*reply)->str);
	freeReplyObject(found);
	(void)usleep(10000);
	return -1;
}

/* A task of hwt is [id, fence, attempt, attempts, due, payload]. */
int
engine_receive(struct connection *connection, struct task *taken, size_t *count,
    size_t *refused)
{
	redisReply *reply, *tasks, *task;
	int came = receive(connection, &reply);
	size_t i;

	*count = *refused = 0;
	if (came != 1)
		return came;
	tasks = reply;
	if (connection->takes && !connection->sets) {
		for (i = 0; i < connection->done_count; i++)
			*refused += reply->element[i]->integer == 0;
		tasks = i > 0 ? reply->element[i] : reply;
	}
	for (; connection->takes && *count < tasks->elements; (*count)++) {
		task = tasks->element[*count];
		if (!connection->sets) {
			taken[*count].fence =
			    (uint64_t)task->element[1]->integer;
			task = task->element[5];
		}
		payload_read(task->str, &taken[*count]);
	}
	freeReplyObject(reply);
	return 1;
}
