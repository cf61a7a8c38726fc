/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
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
		(void)fprintf(body, "%" PRIu64, queue->paused_since_ms);
	else
		(void)fputs("null", body);
	(void)fprintf(body, ",\"at_once\":%" PRIu64 ",\"rate\":%.15g}",
	    queue->at_once, (double)queue->rate / 1000);
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

static bool
member_read(json_t *value, const char *name, double *to)
{
	json_t *member = json_object_get(value, name);

	*to = json_number_value(member);
	return member == NULL || json_is_number(member);
}

/* What is wrong with the body, or NULL. */
static const char *
limits_read(json_t *value, struct hwt_durable_limits *limits)
{
	double at_once;
	size_t known = (json_object_get(value, "at_once") != NULL) +
	    (size_t)(json_object_get(value, "rate") != NULL);

	if (!json_is_object(value) || known == 0 ||
	    json_object_size(value) != known)
		return "want \"at_once\" or \"rate\", or both, and no other";
	if (!member_read(value, "at_once", &at_once) || !(at_once >= 0) ||
	    at_once > INT32_MAX || at_once != (double)(uint64_t)at_once)
		return "\"at_once\" is a number of tasks";
	if (!member_read(value, "rate", &limits->rate))
		return "\"rate\" is tasks a second";
	limits->at_once = (uint64_t)at_once;
	return NULL;
}

static void
limits_set(struct api *api, json_t *value)
{
	char queue[HWT_DURABLE_QUEUE_MAX + 1];
	struct hwt_durable_limits limits = {0};
	const char *wrong = limits_read(value, &limits);
	int error;

	if (wrong != NULL) {
		api_invalid(api, wrong);
		return;
	}
	api_name(api, queue);
	if (limits.at_once > 0 &&
	    limits.at_once < durable_shards(api->durable)) {
		api_invalid(
		    api, "\"at_once\" is at least the number of shards");
		return;
	}
	error = hwt_durable_limit(api->durable, queue, &limits);
	if (error != 0)
		api_fail(api, error);
	else /* as it was rounded */
		(void)fprintf(api_json(api, 200),
		    "{\"queue\":\"%s\",\"at_once\":%" PRIu64
		    ",\"rate\":%.15g}\n",
		    queue, limits.at_once,
		    (double)(uint64_t)(limits.rate * 1000 + 0.5) / 1000);
}

void
api_limit(struct api *api)
{
	json_t *value = api_body(api);

	if (value == NULL)
		return;
	limits_set(api, value);
	json_decref(value);
}
