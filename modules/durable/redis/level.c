/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server keeps of that which it acknowledges: asked when the module
 * is loaded, once a second, and after CONFIG SET.
 */
#include <string.h>

#include "modules/durable/redis/module.h"

#define LOOK_NS UINT64_C(1000000000)

static const char *error_now = "DURABILITY not known yet";
static uint64_t looked_ns;

/* Each option with the only value that loses nothing, and what to say. */
static const struct {
	const char *option, *value, *error;
} wanted[] = {
    {"appendonly", "yes", "DURABILITY appendonly is not yes"},
    {"appendfsync", "always", "DURABILITY appendfsync is not always"},
    {"no-appendfsync-on-rewrite", "no",
	"DURABILITY no-appendfsync-on-rewrite is not no"},
};

static bool
option_is(context *ctx, const char *option, const char *value)
{
	call_reply *reply = api.call(ctx, "CONFIG", "cc", "GET", option);
	call_reply *element;
	const char *text = NULL;
	size_t length = 0;
	bool equal;

	if (reply == NULL)
		return false;
	element = api.reply_element(reply, 1);
	if (element != NULL)
		text = api.reply_text(element, &length);
	equal = text != NULL && length == strlen(value) &&
	    memcmp(text, value, length) == 0;
	api.free_reply(reply);
	return equal;
}

static void
level_look(context *ctx)
{
	size_t i;

	looked_ns = clock_steady_ns();
	error_now = NULL;
	for (i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		if (!option_is(ctx, wanted[i].option, wanted[i].value)) {
			error_now = wanted[i].error;
			return;
		}
	}
}

const char *
level_error(void)
{
	return error_now;
}

void
level_cron(context *ctx)
{
	if (clock_steady_ns() - looked_ns >= LOOK_NS)
		level_look(ctx);
}

static void
config_changed(context *ctx, struct event event, uint64_t sub_event, void *data)
{
	(void)event;
	(void)sub_event;
	(void)data;
	level_look(ctx);
}

int
level_start(context *ctx)
{
	level_look(ctx);
	return api.subscribe(
	    ctx, (struct event){EVENT_CONFIG, 1}, config_changed);
}
