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

/* False: why says what is wrong. */
static bool
make_ready(const struct engine *engine, redisContext *context, char *why)
{
	const struct timeval timeout = {.tv_sec = TIMEOUT_S};
	const char *auth[] = {"AUTH", engine->options.password};
	redisReply *reply;
	bool ready;

	if (context == NULL || context->err != 0) {
		(void)snprintf(why, ENGINE_WHY, "the engine: %.120s",
		    context != NULL ? context->errstr : "no connection");
		return false;
	}
	(void)redisSetTimeout(context, timeout);
	if (engine->options.server != NULL || auth[1] == NULL)
		return true;
	reply = redisCommandArgv(context, 2, auth, NULL);
	ready = reply != NULL && reply->type == REDIS_REPLY_STATUS;
	if (!ready)
		(void)snprintf(why, ENGINE_WHY, "the engine: %.120s",
		    reply != NULL ? reply->str : context->errstr);
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

void
words_add_bytes(struct command_words *words, const char *bytes, size_t length)
{
	words->word[words->count] = bytes;
	words->length[words->count++] = length;
}

void
words_add(struct command_words *words, const char *word)
{
	words_add_bytes(words, word, strlen(word));
}

void
words_begin(struct command_words *words, const struct engine *engine,
    const char *command, const char *queue)
{
	words->count = 0;
	words_add(words, command);
	if (queue == NULL)
		return;
	(void)snprintf(words->key, sizeof(words->key), "{%s:%s}",
	    engine->options.space, queue);
	words_add(words, words->key);
}

redisReply *
words_run(struct command_words *words, redisContext *context)
{
	return redisCommandArgv(
	    context, words->count, words->word, words->length);
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

/* The queue of {SPACE:QUEUE}, on the heap; NULL: another key, or no memory. */
static char *
name_of_key(const struct engine *engine, const redisReply *key)
{
	size_t space = strlen(engine->options.space);
	char *name;

	if (key->type != REDIS_REPLY_STRING || key->len < space + 4 ||
	    key->str[0] != '{' || key->str[space + 1] != ':' ||
	    memcmp(key->str + 1, engine->options.space, space) != 0 ||
	    key->str[key->len - 1] != '}' || strlen(key->str) != key->len)
		return NULL;
	name = strndup(key->str + space + 2, key->len - space - 3);
	if (name != NULL && !queue_name_is_valid(name)) {
		free(name);
		name = NULL;
	}
	return name;
}

static int
compare_names(const void *one, const void *other)
{
	return strcmp(*(char *const *)one, *(char *const *)other);
}

/* A scan may tell of one twice. */
static int
sort_unique(char **names, int count)
{
	int i, kept = 0;

	qsort(names, (size_t)count, sizeof(*names), compare_names);
	for (i = 0; i < count; i++) {
		if (kept > 0 && strcmp(names[kept - 1], names[i]) == 0)
			free(names[i]);
		else
			names[kept++] = names[i];
	}
	return kept;
}

/* A page of HWT.QUEUES. NULL: why says what is wrong. */
static redisReply *
read_names(const struct engine *engine, redisContext *context,
    const char *cursor, char *why)
{
	struct command_words words;
	redisReply *reply;

	words_begin(&words, engine, "HWT.QUEUES", NULL);
	words_add(&words, cursor);
	words_add(&words, "1000");
	reply = words_run(&words, context);
	if (reply != NULL && reply->type == REDIS_REPLY_ARRAY &&
	    reply->elements == 2)
		return reply;
	(void)snprintf(why, ENGINE_WHY, "the engine: %.120s",
	    reply == NULL                          ? "no answer"
		: reply->type == REDIS_REPLY_ERROR ? reply->str
						   : "not what was asked");
	freeReplyObject(reply);
	return NULL;
}

static int
read_all_names(struct engine *engine, redisContext *context,
    struct queue_list *list, char *why)
{
	char cursor[32] = "0";
	redisReply *reply;
	char *name;
	size_t i;

	do {
		reply = read_names(engine, context, cursor, why);
		if (reply == NULL)
			return -1;
		(void)snprintf(
		    cursor, sizeof(cursor), "%s", reply->element[0]->str);
		for (i = 0; i < reply->element[1]->elements &&
		     list->total < ENGINE_QUEUES_MAX;
		     i++) {
			name =
			    name_of_key(engine, reply->element[1]->element[i]);
			if (name != NULL)
				list->name[list->total++] = name;
		}
		freeReplyObject(reply);
	} while (strcmp(cursor, "0") != 0 && list->total < ENGINE_QUEUES_MAX);
	list->total = sort_unique(list->name, list->total);
	return 0;
}

/* QUEUE without a word lets come due what is due, also where nobody takes. */
static void
ask_stat(const struct engine *engine, redisContext *context, const char *queue)
{
	static const char *const commands[] = {"HWT.QUEUE", "HWT.STAT"};
	struct command_words words;
	size_t i;

	for (i = 0; i < 2; i++) {
		words_begin(&words, engine, commands[i], queue);
		(void)redisAppendCommandArgv(
		    context, words.count, words.word, words.length);
	}
}

int
engine_read_queues(struct engine *engine, redisContext *context,
    const char *after, int most, struct queue_list *list, char why[ENGINE_WHY])
{
	void *reply = NULL;
	int i;

	memset(list, 0, sizeof(*list));
	list->name = calloc(ENGINE_QUEUES_MAX, sizeof(*list->name));
	list->stat = calloc(ENGINE_QUEUES_MAX, sizeof(*list->stat));
	(void)snprintf(why, ENGINE_WHY, "the engine: the connection was lost");
	if (list->name == NULL || list->stat == NULL ||
	    read_all_names(engine, context, list, why) != 0)
		goto failed;
	while (after != NULL && list->first < list->total &&
	    strcmp(list->name[list->first], after) <= 0)
		list->first++;
	list->end =
	    list->total - list->first > most ? list->first + most : list->total;
	for (i = list->first; i < list->end; i++)
		ask_stat(engine, context, list->name[i]);
	for (i = list->first; i < list->end; i++) {
		if (redisGetReply(context, &reply) != REDIS_OK)
			goto failed;
		freeReplyObject(reply);
		if (redisGetReply(context, &reply) != REDIS_OK)
			goto failed;
		list->stat[i] = reply;
	}
	return 0;
failed:
	engine_free_queues(list);
	return -1;
}

void
engine_free_queues(struct queue_list *list)
{
	int i;

	for (i = 0; i < list->total; i++) {
		free(list->name[i]);
		freeReplyObject(list->stat[i]);
	}
	free(list->name);
	free(list->stat);
}
