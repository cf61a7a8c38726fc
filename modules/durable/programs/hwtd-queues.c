/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "hwtd-api.h"
#include "hwtd-work.h"

static void
queue_write(FILE *body, const struct queue *queue, uint32_t shards)
{
	(void)fprintf(body,
	    "{\"queue\":\"%s\",\"depth\":%" PRIu64 ",\"oldest_age_ms\":%" PRIu64
	    ",\"in_flight\":%" PRIu64
	    ",\"paused\":%s,\"paused_shards\":%" PRIu64 ",\"shards\":%" PRIu32
	    ",\"paused_since_ms\":",
	    queue->name, queue->entries, queue->age_ns / NS_PER_MS,
	    queue->running, queue->paused == shards ? "true" : "false",
	    queue->paused, shards);
	if (queue->paused_since_ms != 0)
		(void)fprintf(body, "%" PRIu64 "}", queue->paused_since_ms);
	else
		(void)fputs("null}", body);
}

void
api_queues(struct api *api, const struct queues *queues)
{
	FILE *body = api_json(api, 200);
	size_t i;

	(void)fputs("{\"queues\":[", body);
	for (i = 0; i < queues->count; i++) {
		if (i > 0)
			(void)fputc(',', body);
		queue_write(body, &queues->queue[i], queues->shards);
	}
	(void)fprintf(body,
	    "],\"all_queues\":%s,\"work\":", queues->all ? "true" : "false");
	work_write(body);
	(void)fputs("}\n", body);
}

void
api_queue(struct api *api)
{
	char name[HWT_DURABLE_QUEUE_MAX + 1];
	struct queue queue;
	FILE *body;
	int error = -EINVAL;

	api_name(api, name);
	if (name_is_valid(name, HWT_DURABLE_QUEUE_MAX))
		error = queue_read(api->durable, &queue, name);
	if (error != 0) {
		api_fail(api, error);
		return;
	}
	body = api_json(api, 200);
	queue_write(body, &queue, durable_shards(api->durable));
	(void)fputc('\n', body);
}

static void
queue_do(struct api *api, int (*call)(struct hwt_durable *, const char *),
    bool paused)
{
	char queue[HWT_DURABLE_QUEUE_MAX + 1];
	int error;

	api_name(api, queue);
	error = call(api->durable, queue);
	if (error != 0)
		api_fail(api, error);
	else
		(void)fprintf(api_json(api, 200),
		    "{\"queue\":\"%s\",\"paused\":%s}\n", queue,
		    paused ? "true" : "false");
}

void
api_pause(struct api *api)
{
	queue_do(api, hwt_durable_pause, true);
}

void
api_resume(struct api *api)
{
	queue_do(api, hwt_durable_resume, false);
}
