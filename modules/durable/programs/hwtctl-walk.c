/* SPDX-License-Identifier: Apache-2.0 */
/* hwtctl list, dead, check: all tasks, or those of a state. */
#include <errno.h>
#include <string.h>

#include "hwtctl.h"
#include "walk.h"

/* What a walk came to; it has told what the engine refused. */
static enum status
walk_status(int error)
{
	if (error == -EPROTO || error == -ENOMEM)
		complain("%s", explain(error));
	return error_status(error);
}

enum status
run_list(int argc, char **argv)
{
	enum hwt_durable_state wanted = 0;

	(void)argc;
	(void)argv;
	while (given.state != NULL &&
	    (wanted == 0 || strcmp(state_name(wanted), given.state) != 0)) {
		wanted++;
		if (state_name(wanted) == NULL)
			usage_error("--state: want pending, delivered, "
				    "running, succeeded, failed, cancelled or "
				    "quarantined");
	}
	return walk_status(walk_list(handle_open(), wanted));
}

static enum status
dead_one(struct hwt_durable *durable, const char *verb, char *text)
{
	struct engine_argument name = id_read(text);
	struct engine_argument arg[] = {argument_text(verb), name};
	struct engine_call call;
	int error;

	error = walk_script(durable, SCRIPT_DEAD,
	    durable_shard_of(durable, name.data, name.length), 2, arg, &call);
	if (error != 0)
		return error_status(error);
	if (call.reply->type != REDIS_REPLY_INTEGER || call.reply->integer != 0)
		error = -ENOENT;
	engine_call_free(&call, 1);
	if (error != 0)
		complain("%.*s: no such dead letter", (int)name.length,
		    (const char *)name.data);
	return error_status(error);
}

enum status
run_dead(int argc, char **argv)
{
	enum status status = STATUS_YES, one;
	struct hwt_durable *durable;
	int i;

	if (strcmp(argv[0], "list") == 0 && argc == 1 && given.all == NULL)
		return walk_status(
		    walk_list(handle_open(), HWT_DURABLE_FAILED));
	if ((strcmp(argv[0], "replay") != 0 && strcmp(argv[0], "drop") != 0) ||
	    (argc == 1) != (given.all != NULL))
		usage_error("want dead list, dead replay ID... or dead drop "
			    "ID..., or --all instead of ID");
	durable = handle_open();
	if (given.all != NULL)
		return walk_status(walk_dead(durable, argv[0]));
	for (i = 1; i < argc; i++) {
		one = dead_one(durable, argv[0], argv[i]);
		status = one > status ? one : status;
	}
	return status;
}

enum status
run_check(int argc, char **argv)
{
	uint64_t broken = 0;
	int error;

	(void)argc;
	(void)argv;
	error = walk_check(handle_open(), &broken);
	if (error != 0)
		return walk_status(error);
	return broken == 0 ? STATUS_YES : STATUS_NO;
}
