/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the commands of the HTTP server and of schedules go: to the server in
 * this process, over a pair of sockets, or to a Redis that has loaded hwt.so.
 * Any thread may call.
 */
#ifndef HWT_DURABLE_SERVER_ENGINE_H
#define HWT_DURABLE_SERVER_ENGINE_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

#define ENGINE_WHY 160 /* bytes of a sentence about an error */
#define ENGINE_NAME_MAX 64 /* of a queue */
#define ENGINE_SPACE_MAX 32

struct server;
struct engine;

struct engine_options {
	struct server *server; /* in this process; or NULL, and */
	const char *redis; /* HOST:PORT, [ADDRESS]:PORT or unix:PATH */
	const char *password; /* of the Redis; NULL: none is needed */
	const char *space; /* all keys are {SPACE:QUEUE} */
};

/* NULL: no memory. The texts must outlive it. */
struct engine *engine_create(const struct engine_options *options);
/* From now on nothing is connected: before server_destroy, which ends what
 * is. */
void engine_close(struct engine *engine);
bool engine_is_closed(struct engine *engine);
/* When no other thread calls any more. */
void engine_destroy(struct engine *engine);
const char *engine_space(const struct engine *engine);

/* A connection for the caller alone, until it gives it back; NULL, with why:
 * the engine was not reached. */
redisContext *engine_take(struct engine *engine, char why[ENGINE_WHY]);
void engine_put(struct engine *engine, redisContext *context);

/* Why there is no reply, or one that is an error. */
void engine_say(
    char why[ENGINE_WHY], const redisContext *context, const redisReply *reply);

/* The element of a reply of names and values; NULL: there is none. */
const redisReply *reply_find(const redisReply *reply, const char *name);
long long reply_number(const redisReply *reply, const char *name);

bool queue_name_is_valid(const char *name);

/* Queues of the space, sorted by name, and HWT.STAT of each (or an error):
 * those after a name, up to so many. False, with why: the engine does not
 * answer, or no memory. */
#define ENGINE_QUEUES_MAX 10000
struct queue_list {
	int count;
	bool more; /* come after these */
	struct {
		char name[ENGINE_NAME_MAX + 1];
		redisReply *stat;
	} * row;
};
bool engine_read_queues(struct engine *engine, redisContext *context,
    const char *after, int most, struct queue_list *list, char why[ENGINE_WHY]);
void engine_free_queues(struct queue_list *list);

#endif
