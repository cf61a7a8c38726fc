/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "hwtd-api.h"
#include "modules/durable/durable.h"

/* What becomes of one. Without another try: if it was done and the answer is
 * lost, a second one would find no such dead letter. */
static void
dead_do(struct api *api, const char *verb, const char *state)
{
	const struct engine_wait wait = {
	    .stop_fd = -1, .replicated = true, .no_retry = true};
	char id[HWT_DURABLE_ID_MAX];
	struct engine_argument arg[2] = {argument_text(verb), {id, 0}};
	struct engine_call call = {
	    .script = SCRIPT_DEAD, .count = 2, .arg = arg};
	int error;

	if (!api_id(api, id, &arg[1].length))
		return;
	call.shard = durable_shard_of(api->durable, id, arg[1].length);
	error = engine_call(durable_engine(api->durable), &call, 1, &wait);
	if (error == 0 &&
	    (call.reply->type != REDIS_REPLY_INTEGER ||
		call.reply->integer != 0))
		error = -ENOENT;
	engine_call_free(&call, 1);
	api_done(api, error, id, arg[1].length, state);
}

void
api_replay(struct api *api)
{
	dead_do(api, "replay", "pending");
}

void
api_drop(struct api *api)
{
	dead_do(api, "drop", "dropped");
}
