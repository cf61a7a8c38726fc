/* SPDX-License-Identifier: Apache-2.0 */
/* See resp.h. */
#include "modules/durable/perf/resp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ADDRESS is a port of this machine. */
struct connection *
engine_connect(const char *address, unsigned index)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	if (connection == NULL)
		fail("connection", "no memory");
	connection->index = index;
	connection->redis = redisConnect("127.0.0.1", atoi(address));
	if (connection->redis != NULL && connection->redis->err == 0)
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

void
resp_begin(struct connection *connection, const char *name)
{
	connection->words = 0;
	connection->end = connection->text;
	resp_text(connection, name);
}

void
resp_text(struct connection *connection, const char *text)
{
	connection->word[connection->words] = text;
	connection->length[connection->words++] = strlen(text);
}

void
resp_number(struct connection *connection, uint64_t number)
{
	char *text = connection->end;

	connection->end += sprintf(text, "%" PRIu64, number) + 1;
	resp_text(connection, text);
}

void
resp_payload(struct connection *connection, const struct task *task)
{
	char *text = connection->end;

	payload_write(text, task);
	connection->end += PAYLOAD_SIZE + 1;
	resp_text(connection, text);
}

/* The server reads while nothing is outstanding, so this ends. */
bool
resp_send(struct connection *connection)
{
	int done = 0;

	if (redisAppendCommandArgv(connection->redis, (int)connection->words,
		connection->word, connection->length) != REDIS_OK)
		return false;
	while (!done) {
		if (redisBufferWrite(connection->redis, &done) != REDIS_OK)
			return false;
	}
	return true;
}

int
resp_receive(struct connection *connection, redisReply **reply)
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
