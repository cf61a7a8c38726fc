/* SPDX-License-Identifier: Apache-2.0 */
/* Of the designs that talk to Redis by hiredis alone: its port, set by
 * queue_open, and producers. */
#ifndef HWT_PERF_REDIS_H
#define HWT_PERF_REDIS_H

#include <stdbool.h>
#include <stdlib.h>

#include <hiredis/hiredis.h>

#include "modules/durable/perf/threads.h"

struct producer {
	redisContext *redis; /* NULL: not connected */
};

static int port;

void
queue_close(void)
{
}

static bool
connect_to(struct producer *producer)
{
	redisContext *redis = redisConnect("127.0.0.1", port);

	if (redis != NULL && redis->err != 0) {
		redisFree(redis);
		redis = NULL;
	}
	producer->redis = redis;
	return redis != NULL;
}

struct producer *
producer_open(void)
{
	struct producer *producer = malloc(sizeof(*producer));

	if (producer == NULL || !connect_to(producer))
		FAIL("not connected");
	return producer;
}

void
producer_close(struct producer *producer)
{
	if (producer->redis != NULL)
		redisFree(producer->redis);
	free(producer);
}

#endif
