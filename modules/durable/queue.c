/* SPDX-License-Identifier: Apache-2.0 */
/* What is said to a queue as a whole: each shard has its part of it. */
#include <errno.h>
#include <stdlib.h>

#include "connection.h"
#include "durable.h"

/* verb: of the script queue. It is done in each shard, or the error is that of
 * one where it may not have been. */
static int
queue_call(struct hwt_durable *durable, const char *verb, const char *queue)
{
	const struct engine_wait wait = {.stop_fd = -1, .replicated = true};
	const struct engine_argument argument[] = {
	    argument_text(verb), argument_text(queue)};
	struct engine_call *call = calloc(durable->shards, sizeof(*call));
	uint32_t i;
	int error;

	if (call == NULL)
		return -ENOMEM;
	for (i = 0; i < durable->shards; i++)
		call[i] = (struct engine_call){.script = SCRIPT_QUEUE,
		    .shard = i,
		    .count = 2,
		    .arg = argument};
	error = engine_call(durable->engine, call, durable->shards, &wait);
	engine_call_free(call, durable->shards);
	free(call);
	return error;
}

/* One that waits is told of all shards, and tells the next. If this is lost, or
 * no time is left, a worker finds what there is within a second. */
static void
tell_worker(struct hwt_durable *durable, const char *queue, uint64_t until_ns)
{
	uint64_t now_ns = limit_now_ns();
	const struct engine_wait wait = {
	    .stop_fd = -1, .timeout_ns = until_ns - now_ns};
	const struct engine_argument argument[] = {
	    argument_text(queue), argument_text("*")};
	struct engine_call call = {.script = SCRIPT_TELL,
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

	return error != 0 ? error : queue_call(durable, "pause", queue);
}

int
hwt_durable_resume(struct hwt_durable *durable, const char *queue)
{
	int error = check(durable, queue);
	uint64_t until_ns;

	if (error != 0)
		return error;
	until_ns = limit_now_ns() + engine_timeout_ns(durable->engine);
	error = queue_call(durable, "resume", queue);
	if (error == 0)
		tell_worker(durable, queue, until_ns);
	return error;
}
