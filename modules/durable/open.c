/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens and closes the client of an engine. It stands above all parts of it:
 * the first call shows whether the engine can be used.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_internal.h"

#define TIMEOUT_DEFAULT HWT_SEC(5)
#define SKEW_DEFAULT HWT_SEC(5)

static bool
level_is_one(uint32_t level)
{
	return level >= HWT_DURABLE_MEMORY && level <= HWT_DURABLE_REPLICATED;
}

/* What the space has, if there is one. */
static int
level_read(struct engine *engine, uint32_t *level)
{
	char key[ENGINE_KEY_MAX];
	const struct engine_argument arg[] = {
	    {"HGET", 4}, {key, 0}, {"level", 5}};
	struct engine_argument argument[3];
	struct engine_call call = {
	    .script = COMMAND, .count = 3, .arg = argument};
	int error;

	engine_key(engine, key, 0, "meta");
	memcpy(argument, arg, sizeof(argument));
	argument[1].length = strlen(key);
	error = engine_call(engine, &call, 1, NULL);
	if (error != 0)
		return error;
	if (call.reply->type == REDIS_REPLY_STRING) {
		*level = (uint32_t)strtoul(call.reply->str, NULL, 10);
		if (!level_is_one(*level))
			error = -EPROTO;
	}
	engine_call_free(&call, 1);
	return error;
}

static int
engine_begin(struct engine *engine, const struct hwt_durable_options *options)
{
	uint32_t level =
	    options->flags & HWT_DURABLE_CREATE ? HWT_DURABLE_FSYNCED : 0;
	int error = credentials_read(engine, options);

	/* The first connection tells whether it can be used at all. */
	if (error == 0)
		error = level_read(engine, &level);
	if (error != 0)
		return error;
	engine->level = options->level != 0 ? options->level : level;
	engine->opened = true;
	return 0;
}

int
engine_open(struct engine **engine, const struct hwt_durable_options *options)
{
	struct engine *made = calloc(1, sizeof(*made));
	int error;

	if (made == NULL)
		return -ENOMEM;
	(void)pthread_mutex_init(&made->lock, NULL);
	made->stale = true;
	made->replicas = options->replicas;
	made->skew_ns = options->skew_ns != 0 ? options->skew_ns : SKEW_DEFAULT;
	made->timeout_ns =
	    options->timeout_ns != 0 ? options->timeout_ns : TIMEOUT_DEFAULT;
	if (options->log != NULL)
		made->log = *options->log;
	(void)snprintf(made->space, sizeof(made->space), "%s",
	    options->space != NULL ? options->space : "hwt");
	error = route_read_servers(&made->servers,
	    options->servers != NULL ? options->servers : "127.0.0.1:6379");
	if (error == 0)
		error = engine_begin(made, options);
	if (error != 0) {
		engine_close(made);
		return error;
	}
	*engine = made;
	return 0;
}

void
engine_close(struct engine *engine)
{
	uint32_t i;

	for (i = 0; i < ROUTE_NODES_MAX; i++)
		pool_empty(engine, i);
	if (engine->password != NULL)
		explicit_bzero(engine->password, strlen(engine->password));
	free(engine->password);
	free(engine->user);
	(void)pthread_mutex_destroy(&engine->lock);
	free(engine);
}
