/* SPDX-License-Identifier: Apache-2.0 */
/* hwtctl init, stat, clock: a space as a whole. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hwtctl.h"
#include "metrics.h"
#include "wait.h"
#include "walk.h"

static enum status
print_shape(struct hwt_durable *durable)
{
	static const char *const levels[] = {
	    "", "memory", "fsync", "replicated"};
	const struct engine_argument arg[7] = {{NULL, 0}};
	const char *name = engine_space(durable_engine(durable));
	struct engine_call call;
	long long value[5];
	int error;
	size_t i;

	error = walk_script(durable, SCRIPT_INIT, 0, 7, arg, &call);
	if (error != 0)
		return error_status(error);
	for (i = 0; i < 5 && is_array(call.reply, 5); i++)
		value[i] = is_string(call.reply->element[i])
		    ? strtoll(call.reply->element[i]->str, NULL, 10)
		    : call.reply->element[i]->integer;
	engine_call_free(&call, 1);
	if (i < 5 || value[3] < 1 || value[3] > 3) {
		complain("%s", explain(-EPROTO));
		return STATUS_UNREACHABLE;
	}
	(void)printf("%s: %lld shard%s of %lld slots, tick %lld ms, level %s, "
		     "retention %.15g s\n",
	    name, value[0], value[0] == 1 ? "" : "s", value[1], value[2],
	    levels[value[3]], (double)value[4] / 1000);
	return STATUS_YES;
}

static uint32_t
level_read(void)
{
	if (given.level == NULL)
		return 0;
	if (strcmp(given.level, "memory") == 0)
		return HWT_DURABLE_MEMORY;
	if (strcmp(given.level, "fsync") == 0)
		return HWT_DURABLE_FSYNCED;
	if (strcmp(given.level, "replicated") == 0)
		return HWT_DURABLE_REPLICATED;
	usage_error("--level: want memory, fsync or replicated");
}

enum status
run_init(int argc, char **argv)
{
	struct hwt_durable_options *open = &open_options;

	(void)argc;
	(void)argv;
	open->shards =
	    (uint32_t)option_number("shards", given.shards, 0, 1, 1024);
	open->slots =
	    (uint32_t)option_number("slots", given.slots, 0, 8, 1u << 20);
	if ((open->slots & (open->slots - 1)) != 0)
		usage_error("--slots: want a power of two");
	open->tick_ns =
	    HWT_MS(option_number("tick", given.tick, 0, 1, 3600000));
	open->retention_ns = option_seconds(
	    "retention", given.retention, 0, HWT_MS(1), HWT_DURABLE_DELAY_MAX);
	open->level = level_read();
	open->flags = HWT_DURABLE_CREATE |
	    (given.repair != NULL ? HWT_DURABLE_REPAIR : 0);
	return print_shape(handle_open());
}

enum status
run_stat(int argc, char **argv)
{
	struct hwt_durable_stats stats;
	struct hwt_durable *durable;
	struct queues queues;
	const char *name;
	int error;

	(void)argc;
	(void)argv;
	if (given.json != NULL && given.prometheus != NULL)
		usage_error("--json and --prometheus exclude each other");
	durable = handle_open();
	error = hwt_durable_read_stats(durable, &stats);
	if (error == 0)
		error = queues_read(durable, &queues, NULL);
	name = engine_space(durable_engine(durable));
	if (error != 0)
		complain("%s", explain(error));
	else if (given.json != NULL)
		metrics_json(stdout, name, &stats, &queues);
	else if (given.prometheus != NULL)
		metrics_prometheus(stdout, name, &stats, &queues);
	else
		metrics_human(stdout, &stats, &queues);
	return error_status(error);
}

/* How long workers have for what is in the queues. */
#define RESET_MS 5000

/* What the script clock answers. */
static enum status
shard_reset(struct hwt_durable *durable, uint32_t shard, int64_t *answer)
{
	struct engine_call call;
	int error = walk_script(durable, SCRIPT_CLOCK, shard, 0, NULL, &call);

	if (error != 0)
		return error_status(error);
	*answer =
	    call.reply->type == REDIS_REPLY_INTEGER ? call.reply->integer : 0;
	engine_call_free(&call, 1);
	return STATUS_YES;
}

static enum status
clock_reset(struct hwt_durable *durable)
{
	int64_t until_ms = wait_now_ms() + RESET_MS;
	enum status status = STATUS_YES;
	int64_t answer = 0;
	uint32_t i;

	for (i = 0; i < durable_shards(durable) && status == STATUS_YES; i++) {
		while (
		    (status = shard_reset(durable, i, &answer)) == STATUS_YES &&
		    answer < 0 && wait_now_ms() < until_ms)
			(void)wait_for(-1, 0, wait_now_ms() + 20);
		if (answer > 0)
			(void)printf("shard %" PRIu32 ": set back by %.3f s\n",
			    i, (double)answer / 1000);
		if (answer >= 0)
			continue;
		complain("shard %" PRIu32 ": first a worker must execute the "
			 "%" PRId64 " tasks that are in queues; none begin in "
			 "a queue that is paused, and its limits may hold "
			 "them back: resume it, and take them away until then",
		    i, -answer);
		status = STATUS_NO;
	}
	return status;
}

/* Beyond this, somebody should do something. */
#define CLOCK_AHEAD_MAX HWT_SEC(10)

enum status
run_clock(int argc, char **argv)
{
	struct hwt_durable *durable = handle_open();
	struct hwt_durable_stats stats;
	int error;

	(void)argc;
	(void)argv;
	if (given.reset != NULL)
		return clock_reset(durable);
	error = hwt_durable_read_stats(durable, &stats);
	if (error != 0) {
		complain("%s", explain(error));
		return error_status(error);
	}
	(void)printf("time stands still for %.3f s\n"
		     "a leap of %.3f s is unconfirmed\n",
	    (double)stats.clock_ahead_ns / HWT_SEC(1),
	    (double)stats.clock_leap_ns / HWT_SEC(1));
	return stats.clock_ahead_ns > CLOCK_AHEAD_MAX ||
		stats.clock_leap_ns != 0
	    ? STATUS_NO
	    : STATUS_YES;
}
