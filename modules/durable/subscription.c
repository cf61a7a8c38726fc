/* SPDX-License-Identifier: Apache-2.0 */
/* Subscriptions and hints: see engine.h. What is lost of them is found by the
 * poll of each second. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "engine.h"

#define KEY_MAX (HWT_DURABLE_SPACE_MAX + HWT_DURABLE_QUEUE_MAX + 16)

/* Shards' numbers, with a space between. */
#define HINT_MAX 512

struct engine_subscription {
	struct connection *connection;
	uint32_t keys; /* of the hints; 0: it is a channel */
	uint32_t queue; /* of the last hint */
	char (*key)[KEY_MAX];
	bool waits; /* for a hint */
	char hint[HINT_MAX + 1]; /* what is left of the last one */
	redisReply *message; /* of a channel with texts, the last one */
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

/* The keys of the hints for a list of queues. */
static int
keys_make(struct engine_subscription *made, const struct engine *engine,
    const char *list)
{
	size_t length;

	made->key = calloc(HWT_DURABLE_QUEUES_MAX, sizeof(*made->key));
	if (made->key == NULL)
		return -ENOMEM;
	for (; *list != '\0' && made->keys < HWT_DURABLE_QUEUES_MAX;
	     list += length + (list[length] == ',')) {
		length = strcspn(list, ",");
		(void)snprintf(made->key[made->keys++], sizeof(*made->key),
		    "{%s}:k:%.*s", engine_space(engine), (int)length, list);
	}
	return 0;
}

int
engine_subscription_open(struct engine_subscription **subscription,
    struct engine *engine, const char *channel, const struct engine_wait *wait)
{
	struct engine_subscription *made = calloc(1, sizeof(*made));
	struct limit limit = engine_limit(engine, wait);
	char name[KEY_MAX];
	int error = 0;

	if (made == NULL)
		return -ENOMEM;
	if (strncmp(channel, "work:", 5) == 0)
		error = keys_make(made, engine, channel + 5);
	else
		(void)snprintf(
		    name, sizeof(name), "%s:%s", engine_space(engine), channel);
	if (error == 0)
		error = engine_connect_near(engine,
		    made->keys > 0 ? SHARD_SPACE : 0, &made->connection,
		    &limit);
	if (error == 0 && made->keys == 0)
		error = subscribe(made->connection, name, &limit);
	if (error != 0) {
		engine_subscription_close(made);
		return error;
	}
	*subscription = made;
	return 0;
}

int
engine_subscription_wait(struct engine_subscription *subscription,
    struct engine *engine, const struct engine_wait *wait)
{
	struct limit limit = engine_limit(engine, wait);
	struct buffer buffer = {0};
	uint32_t i;
	int error;

	if (subscription->keys == 0 || subscription->waits ||
	    subscription->hint[0] != '\0')
		return 0;
	/* The engine takes from the first list that has something. */
	buffer_command(&buffer, 2 + (size_t)subscription->keys);
	buffer_text(&buffer, "BLPOP");
	for (i = 1; i <= subscription->keys; i++)
		buffer_text(&buffer,
		    subscription
			->key[(subscription->queue + i) % subscription->keys]);
	buffer_text(&buffer, "0");
	error = connection_send(subscription->connection, &buffer, &limit);
	buffer_free(&buffer);
	subscription->waits = error == 0;
	return error;
}

int
engine_subscription_fd(const struct engine_subscription *subscription)
{
	return subscription->connection->fd;
}

/* {"message", channel, text} */
static bool
is_message(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
	    reply->element[2]->type == REDIS_REPLY_STRING;
}

/* Its text is a number. */
static bool
message_read(const redisReply *reply, uint32_t *shard)
{
	unsigned long number;
	char *end;

	if (!is_message(reply))
		return false;
	number = strtoul(reply->element[2]->str, &end, 10);
	if (end == reply->element[2]->str || *end != 0 || number >= UINT32_MAX)
		return false;
	*shard = (uint32_t)number;
	return true;
}

/* {key, hint}; nil or an error: it waits no more. */
static int
hint_take(struct engine_subscription *subscription, const redisReply *reply)
{
	const redisReply *hint;
	uint32_t i;

	subscription->waits = false;
	if (reply->type == REDIS_REPLY_NIL)
		return 0;
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
		return -EPROTO;
	for (i = 0; i < subscription->keys; i++) {
		if (reply->element[0]->type == REDIS_REPLY_STRING &&
		    strcmp(subscription->key[i], reply->element[0]->str) == 0)
			subscription->queue = i;
	}
	hint = reply->element[1];
	if (hint->type == REDIS_REPLY_STRING && hint->len <= HINT_MAX)
		memcpy(subscription->hint, hint->str, hint->len + 1);
	return 0;
}

/* The next shard of the hint. */
static bool
hint_read(struct engine_subscription *subscription, uint32_t *shard)
{
	unsigned long number;
	char *end = subscription->hint + 1;

	if (subscription->hint[0] == '\0')
		return false;
	number = HINT_EVERY_SHARD;
	if (subscription->hint[0] != '*')
		number = strtoul(subscription->hint, &end, 10);
	if (end == subscription->hint || number > HINT_EVERY_SHARD) {
		subscription->hint[0] = '\0'; /* of somebody else */
		return false;
	}
	*shard = (uint32_t)number;
	memmove(subscription->hint, end, strlen(end) + 1);
	return true;
}

int
engine_subscription_read(
    struct engine_subscription *subscription, uint32_t *queue, uint32_t *shard)
{
	redisReply *reply;
	int error, found = 0;

	*queue = subscription->queue;
	while (!hint_read(subscription, shard)) {
		error = connection_poll(subscription->connection, &reply);
		if (error != 0 || reply == NULL)
			return error;
		if (subscription->keys > 0)
			error = hint_take(subscription, reply);
		else
			found = message_read(reply, shard);
		freeReplyObject(reply);
		*queue = subscription->queue;
		if (error != 0 || found)
			return error != 0 ? error : 1;
	}
	return 1;
}

static void
message_free(struct engine_subscription *subscription)
{
	if (subscription->message != NULL)
		freeReplyObject(subscription->message);
	subscription->message = NULL;
}

int
engine_subscription_text(
    struct engine_subscription *subscription, const char **text)
{
	int error;

	do {
		message_free(subscription);
		error = connection_poll(
		    subscription->connection, &subscription->message);
		if (error != 0 || subscription->message == NULL)
			return error;
	} while (!is_message(subscription->message));
	*text = subscription->message->element[2]->str;
	return 1;
}

void
engine_subscription_close(struct engine_subscription *subscription)
{
	if (subscription == NULL)
		return;
	message_free(subscription);
	connection_close(subscription->connection);
	free(subscription->key);
	free(subscription);
}
