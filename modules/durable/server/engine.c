/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "modules/durable/server/engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "modules/durable/server/server.h"

#define IDLE_MAX 8
#define TIMEOUT_S 3

struct engine {
	struct engine_options options;
	pthread_mutex_t lock; /* over what follows, and server_connect */
	redisContext *idle[IDLE_MAX];
	size_t idle_count;
	bool closed;
};

struct engine *
engine_create(const struct engine_options *options)
{
	struct engine *engine = calloc(1, sizeof(*engine));

	if (engine == NULL)
		return NULL;
	engine->options = *options;
	(void)pthread_mutex_init(&engine->lock, NULL);
	return engine;
}

void
engine_close(struct engine *engine)
{
	(void)pthread_mutex_lock(&engine->lock);
	engine->closed = true;
	(void)pthread_mutex_unlock(&engine->lock);
}

bool
engine_is_closed(struct engine *engine)
{
	bool closed;

	(void)pthread_mutex_lock(&engine->lock);
	closed = engine->closed;
	(void)pthread_mutex_unlock(&engine->lock);
	return closed;
}

void
engine_destroy(struct engine *engine)
{
	while (engine->idle_count > 0)
		redisFree(engine->idle[--engine->idle_count]);
	(void)pthread_mutex_destroy(&engine->lock);
	free(engine);
}

const char *
engine_space(const struct engine *engine)
{
	return engine->options.space;
}

/* To the server of this process. */
static redisContext *
connect_inside(struct engine *engine)
{
	redisContext *context = NULL;
	int error = -1, ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return NULL;
	(void)pthread_mutex_lock(&engine->lock);
	if (!engine->closed)
		error = server_connect(engine->options.server, ends[1]);
	else
		(void)close(ends[1]);
	(void)pthread_mutex_unlock(&engine->lock);
	if (error == 0)
		context = redisConnectFd(ends[0]);
	if (context == NULL)
		(void)close(ends[0]);
	return context;
}

static redisContext *
connect_redis(const char *address)
{
	const struct timeval timeout = {.tv_sec = TIMEOUT_S};
	const char *colon = strrchr(address, ':');
	bool brackets = address[0] == '[' && colon != NULL && colon[-1] == ']';
	char host[256] = "127.0.0.1";

	if (strncmp(address, "unix:", 5) == 0)
		return redisConnectUnixWithTimeout(address + 5, timeout);
	if (colon != NULL)
		(void)snprintf(host, sizeof(host), "%.*s",
		    (int)(colon - address) - 2 * brackets, address + brackets);
	return redisConnectWithTimeout(
	    host, atoi(colon != NULL ? colon + 1 : address), timeout);
}

void
engine_say(
    char why[ENGINE_WHY], const redisContext *context, const redisReply *reply)
{
	const char *text = reply != NULL && reply->type == REDIS_REPLY_ERROR
	    ? reply->str
	    : context != NULL && context->err != 0 ? context->errstr
						   : "no connection";

	(void)snprintf(why, ENGINE_WHY, "the engine: %.120s", text);
}

/* False: why says what is wrong. */
static bool
make_ready(const struct engine *engine, redisContext *context, char *why)
{
	const struct timeval timeout = {.tv_sec = TIMEOUT_S};
	redisReply *reply = NULL;
	bool ready = context != NULL && context->err == 0;

	if (ready)
		(void)redisSetTimeout(context, timeout);
	if (ready && engine->options.password != NULL) {
		reply =
		    redisCommand(context, "AUTH %s", engine->options.password);
		ready = reply != NULL && reply->type == REDIS_REPLY_STATUS;
	}
	if (!ready)
		engine_say(why, context, reply);
	freeReplyObject(reply);
	return ready;
}

/* Nothing is to be read from an idle connection but its end. */
static bool
has_ended(const redisContext *context)
{
	char byte;

	return recv(context->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

static redisContext *
take_idle(struct engine *engine)
{
	redisContext *context = NULL;

	(void)pthread_mutex_lock(&engine->lock);
	while (context == NULL && engine->idle_count > 0) {
		context = engine->idle[--engine->idle_count];
		if (has_ended(context)) {
			redisFree(context);
			context = NULL;
		}
	}
	(void)pthread_mutex_unlock(&engine->lock);
	return context;
}

redisContext *
engine_take(struct engine *engine, char why[ENGINE_WHY])
{
	redisContext *context = take_idle(engine);

	if (context != NULL)
		return context;
	context = engine->options.server != NULL
	    ? connect_inside(engine)
	    : connect_redis(engine->options.redis);
	if (make_ready(engine, context, why))
		return context;
	if (context != NULL)
		redisFree(context);
	return NULL;
}

void
engine_put(struct engine *engine, redisContext *context)
{
	(void)pthread_mutex_lock(&engine->lock);
	if (context->err == 0 && engine->idle_count < IDLE_MAX) {
		engine->idle[engine->idle_count++] = context;
		context = NULL;
	}
	(void)pthread_mutex_unlock(&engine->lock);
	if (context != NULL)
		redisFree(context);
}

const redisReply *
reply_find(const redisReply *reply, const char *name)
{
	size_t i;

	if (reply == NULL || reply->type != REDIS_REPLY_ARRAY)
		return NULL;
	for (i = 0; i + 1 < reply->elements; i += 2) {
		if (reply->element[i]->type == REDIS_REPLY_STRING &&
		    strcmp(reply->element[i]->str, name) == 0)
			return reply->element[i + 1];
	}
	return NULL;
}

long long
reply_number(const redisReply *reply, const char *name)
{
	const redisReply *element = reply_find(reply, name);

	return element != NULL && element->type == REDIS_REPLY_INTEGER
	    ? element->integer
	    : 0;
}

bool
queue_name_is_valid(const char *name)
{
	static const char fine[] = "abcdefghijklmnopqrstuvwxyz"
				   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t length = strlen(name);

	return length >= 1 && length <= ENGINE_NAME_MAX &&
	    strspn(name, fine) == length;
}

/* Whether a key is {SPACE:QUEUE}, and that queue's name. */
static bool
read_key(const struct engine *engine, const redisReply *key, char *name)
{
	size_t space = strlen(engine->options.space);
	size_t length = key->len - space - 3;

	if (key->len < space + 4 || length > ENGINE_NAME_MAX ||
	    key->str[0] != '{' || key->str[space + 1] != ':' ||
	    memcmp(key->str + 1, engine->options.space, space) != 0 ||
	    key->str[key->len - 1] != '}' || strlen(key->str) != key->len)
		return false;
	memcpy(name, key->str + space + 2, length);
	name[length] = '\0';
	return queue_name_is_valid(name);
}

static int
compare_names(const void *one, const void *other)
{
	return strcmp(one, other); /* the name is first in its row */
}

/* All names after one. False: why says what is wrong. */
static bool
read_names(struct engine *engine, redisContext *context, const char *after,
    struct queue_list *list, char *why)
{
	char cursor[32] = "0", name[ENGINE_NAME_MAX + 1];
	redisReply *reply;
	size_t i;

	do {
		reply = redisCommand(context, "HWT.QUEUES %s 1000", cursor);
		if (reply == NULL || reply->type != REDIS_REPLY_ARRAY) {
			engine_say(why, context, reply);
			freeReplyObject(reply);
			return false;
		}
		(void)snprintf(
		    cursor, sizeof(cursor), "%s", reply->element[0]->str);
		for (i = 0; i < reply->element[1]->elements &&
		     list->count < ENGINE_QUEUES_MAX;
		     i++) {
			if (read_key(
				engine, reply->element[1]->element[i], name) &&
			    strcmp(name, after) > 0)
				strcpy(list->row[list->count++].name, name);
		}
		freeReplyObject(reply);
	} while (strcmp(cursor, "0") != 0 && list->count < ENGINE_QUEUES_MAX);
	return true;
}

/* A scan may tell of one twice. */
static void
sort_names(struct queue_list *list)
{
	int i, kept = 0;

	qsort(
	    list->row, (size_t)list->count, sizeof(*list->row), compare_names);
	for (i = 0; i < list->count; i++) {
		if (i == 0 ||
		    strcmp(list->row[kept - 1].name, list->row[i].name) != 0)
			list->row[kept++] = list->row[i];
	}
	list->count = kept;
}

bool
engine_read_queues(struct engine *engine, redisContext *context,
    const char *after, int most, struct queue_list *list, char why[ENGINE_WHY])
{
	const char *space = engine->options.space;
	void *reply;
	int i;

	*list = (struct queue_list){0};
	list->row = calloc(ENGINE_QUEUES_MAX, sizeof(*list->row));
	if (list->row == NULL ||
	    !read_names(engine, context, after, list, why)) {
		free(list->row);
		return false;
	}
	sort_names(list);
	list->more = list->count > most;
	if (list->more)
		list->count = most;
	/* QUEUE without a word lets come due what is due, also where nobody
	 * takes. */
	for (i = 0; i < list->count; i++) {
		(void)redisAppendCommand(
		    context, "HWT.QUEUE {%s:%s}", space, list->row[i].name);
		(void)redisAppendCommand(
		    context, "HWT.STAT {%s:%s}", space, list->row[i].name);
	}
	for (i = 0; i < 2 * list->count; i++) {
		if (redisGetReply(context, &reply) != REDIS_OK) {
			engine_say(why, context, NULL);
			engine_free_queues(list);
			return false;
		}
		if (i % 2 == 0)
			freeReplyObject(reply);
		else
			list->row[i / 2].stat = reply;
	}
	return true;
}

void
engine_free_queues(struct queue_list *list)
{
	while (list->count > 0)
		freeReplyObject(list->row[--list->count].stat);
	free(list->row);
}
