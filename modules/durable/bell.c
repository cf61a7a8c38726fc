/* SPDX-License-Identifier: Apache-2.0 */
/* Subscriptions: see engine.h. What is lost of them, is only a hint. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "engine.h"

#define CHANNEL_MAX (HWT_DURABLE_SPACE_MAX + HWT_DURABLE_QUEUE_MAX + 16)

struct engine_bell {
	struct connection *connection;
};

static int
subscribe(struct connection *connection, const char *channel,
    const struct limit *limit)
{
	struct buffer buffer = {0};
	redisReply *reply = NULL;
	int error;

	buffer_command(&buffer, 2);
	buffer_text(&buffer, "SUBSCRIBE");
	buffer_text(&buffer, channel);
	error = connection_send(connection, &buffer, limit);
	buffer_free(&buffer);
	if (error == 0)
		error = connection_receive(connection, &reply, limit);
	if (error != 0)
		return error == -ECANCELED ? error : -ECONNREFUSED;
	if (reply->type == REDIS_REPLY_ERROR)
		error =
		    strncmp(reply->str, "NOPERM", 6) == 0 ? -EACCES : -EPROTO;
	freeReplyObject(reply);
	return error;
}

int
engine_bell_open(struct engine_bell **bell, struct engine *engine,
    const char *channel, const struct engine_wait *wait)
{
	struct engine_bell *made = calloc(1, sizeof(*made));
	struct limit limit = engine_limit(engine, wait);
	char name[CHANNEL_MAX];
	int error;

	if (made == NULL)
		return -ENOMEM;
	(void)snprintf(
	    name, sizeof(name), "%s:%s", engine_space(engine), channel);
	error = engine_connect_any(engine, &made->connection, &limit);
	if (error == 0)
		error = subscribe(made->connection, name, &limit);
	if (error != 0) {
		engine_bell_close(made);
		return error;
	}
	*bell = made;
	return 0;
}

int
engine_bell_fd(const struct engine_bell *bell)
{
	return bell->connection->fd;
}

/* {"message", channel, number} */
static bool
message_read(const redisReply *reply, uint32_t *shard)
{
	unsigned long number;
	char *end;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
	    reply->element[2]->type != REDIS_REPLY_STRING)
		return false;
	number = strtoul(reply->element[2]->str, &end, 10);
	if (end == reply->element[2]->str || *end != 0 || number >= UINT32_MAX)
		return false;
	*shard = (uint32_t)number;
	return true;
}

int
engine_bell_read(struct engine_bell *bell, uint32_t *shard)
{
	redisReply *reply;
	int error, found = 0;

	do {
		error = connection_poll(bell->connection, &reply);
		if (error != 0 || reply == NULL)
			return error;
		found = message_read(reply, shard);
		freeReplyObject(reply);
	} while (!found);
	return 1;
}

void
engine_bell_close(struct engine_bell *bell)
{
	if (bell == NULL)
		return;
	connection_close(bell->connection);
	free(bell);
}
