/* SPDX-License-Identifier: Apache-2.0 */
/* What is said to a queue as a whole: each shard has its part of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "durable.h"

#define RATE_MAX 1000000

/* What the script queue is given, in each shard. */
struct part {
	struct number places;
	struct engine_argument argument[4];
};

/* verb: of the script. at_once and thousandths are of a limit. It is done in
 * each shard, or the error is that of one where it may not have been. */
static int
queue_call(struct hwt_durable *durable, const char *verb, const char *queue,
    uint64_t at_once, uint64_t thousandths)
{
	const struct engine_wait wait = {.stop_fd = -1, .replicated = true};
	uint32_t shards = durable->shards, i;
	struct engine_call *call = calloc(shards, sizeof(*call));
	struct part *part = calloc(shards, sizeof(*part));
	struct number rate;
	int error = call == NULL || part == NULL ? -ENOMEM : 0;

	for (i = 0; error == 0 && i < shards; i++) {
		part[i].argument[0] = argument_text(verb);
		part[i].argument[1] = argument_text(queue);
		part[i].argument[2] = argument_number(
		    &part[i].places, at_once / shards + (i < at_once % shards));
		part[i].argument[3] = argument_number(&rate, thousandths);
		call[i] = (struct engine_call){.script = SCRIPT_QUEUE,
		    .shard = i,
		    .count = strcmp(verb, "limit") == 0 ? 4 : 2,
		    .arg = part[i].argument};
	}
	if (error == 0) {
		error = engine_call(durable->engine, call, shards, &wait);
		engine_call_free(call, shards);
	}
	free(part);
	free(call);
	return error;
}

/* One that waits is notified of all shards, and notifies the next. If this is
 * lost, or no time is left, a worker finds what there is within a second. */
static void
notify_worker(struct hwt_durable *durable, const char *queue, uint64_t until_ns)
{
	uint64_t now_ns = limit_now_ns();
	const struct engine_wait wait = {
	    .stop_fd = -1, .timeout_ns = until_ns - now_ns};
	const struct engine_argument argument[] = {
	    argument_text(queue), argument_text("*")};
	struct engine_call call = {.script = SCRIPT_NOTIFY,
	    .shard = SHARD_SPACE,
	    .count = 2,
	    .arg = argument};

	if (now_ns >= until_ns)
		return;
	(void)engine_call(durable->engine, &call, 1, &wait);
	engine_call_free(&call, 1);
}

static int
check(const struct hwt_durable *durable, const char *queue)
{
	int error = durable_enter(durable);

	if (error != 0)
		return error;
	return queue != NULL && name_is_valid(queue, HWT_DURABLE_QUEUE_MAX)
	    ? 0
	    : -EINVAL;
}

int
hwt_durable_pause(struct hwt_durable *durable, const char *queue)
{
	int error = check(durable, queue);

	return error != 0 ? error : queue_call(durable, "pause", queue, 0, 0);
}

/* So that more may begin than before. */
static int
call_and_tell(struct hwt_durable *durable, const char *verb, const char *queue,
    uint64_t at_once, uint64_t thousandths)
{
	uint64_t until_ns = limit_now_ns() + engine_timeout_ns(durable->engine);
	int error = queue_call(durable, verb, queue, at_once, thousandths);

	if (error == 0)
		notify_worker(durable, queue, until_ns);
	return error;
}

int
hwt_durable_resume(struct hwt_durable *durable, const char *queue)
{
	int error = check(durable, queue);

	return error != 0 ? error
			  : call_and_tell(durable, "resume", queue, 0, 0);
}

/* A number that is none is outside its range. */
static bool
limits_are_valid(const struct hwt_durable_limits *limits, uint32_t shards)
{
	return RESERVED_IS_ZERO(limits) &&
	    (limits->at_once == 0 ||
		(limits->at_once >= shards && limits->at_once <= INT32_MAX)) &&
	    (limits->rate == 0 ||
		(limits->rate >= 0.001 && limits->rate <= RATE_MAX));
}

int
hwt_durable_limit(struct hwt_durable *durable, const char *queue,
    const struct hwt_durable_limits *limits)
{
	int error = check(durable, queue);

	if (error != 0)
		return error;
	if (limits == NULL || !limits_are_valid(limits, durable->shards))
		return -EINVAL;
	return call_and_tell(durable, "limit", queue, limits->at_once,
	    (uint64_t)(limits->rate * 1000 + 0.5));
}
