/* SPDX-License-Identifier: Apache-2.0 */
/* hwtctl pause, resume, limit: a queue, or a shard. */
#include <inttypes.h>
#include <string.h>

#include "hwtctl.h"
#include "text.h"
#include "walk.h"

static enum status
shard_call(enum script script, const char *text)
{
	struct engine_call call;
	struct hwt_durable *durable;
	uint64_t shard;
	int error;

	if (!text_number(text, 0, 1023, &shard))
		usage_error("SHARD is a number from 0");
	durable = handle_open();
	if (shard >= durable_shards(durable))
		usage_error("SHARD: there are %" PRIu32 ", from 0",
		    durable_shards(durable));
	error = walk_script(durable, script, (uint32_t)shard, 0, NULL, &call);
	if (error == 0)
		engine_call_free(&call, 1);
	return error_status(error);
}

/* A queue, or a shard: a queue may have a number as its name. */
static enum status
queue_or_shard(int argc, char **argv, enum script script,
    int (*call)(struct hwt_durable *, const char *))
{
	int error;

	if ((argc == 0) != (given.queue != NULL))
		usage_error("want either --queue Q or SHARD");
	if (given.queue == NULL)
		return shard_call(script, argv[0]);
	option_queue("--queue", given.queue);
	error = call(handle_open(), given.queue);
	if (error != 0)
		complain("queue %s: %s; some shards may be paused and others "
			 "not, so repeat it",
		    given.queue, explain(error));
	return error_status(error);
}

enum status
run_pause(int argc, char **argv)
{
	return queue_or_shard(argc, argv, SCRIPT_PAUSE, hwt_durable_pause);
}

enum status
run_resume(int argc, char **argv)
{
	return queue_or_shard(argc, argv, SCRIPT_RESUME, hwt_durable_resume);
}

enum status
run_limit(int argc, char **argv)
{
	struct hwt_durable_limits limits = {0};
	struct hwt_durable *durable;
	uint64_t billionths = 0;
	int error;

	(void)argc;
	(void)argv;
	if (given.queue == NULL ||
	    (given.at_once == NULL && given.rate == NULL))
		usage_error("want --queue Q, and --at-once, --rate or both");
	option_queue("--queue", given.queue);
	limits.at_once =
	    option_number("at-once", given.at_once, 0, 0, INT32_MAX);
	if (given.rate != NULL &&
	    (!text_seconds(given.rate, strlen(given.rate), &billionths) ||
		billionths > HWT_SEC(1000000) ||
		(billionths > 0 && billionths < HWT_MS(1))))
		usage_error("--rate: want 0.001 to 1000000, or 0");
	limits.rate = (double)billionths / 1e9;
	durable = handle_open();
	if (limits.at_once > 0 && limits.at_once < durable_shards(durable))
		usage_error("--at-once: each of %" PRIu32
			    " shards has a part, so at least as many",
		    durable_shards(durable));
	error = hwt_durable_limit(durable, given.queue, &limits);
	if (error != 0)
		complain("queue %s: %s; some shards may have the limits and "
			 "others not, so repeat it",
		    given.queue, explain(error));
	return error_status(error);
}
