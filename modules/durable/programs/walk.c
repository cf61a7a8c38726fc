/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

/* Records are asked for by so many of a shard: a millisecond of the engine. */
#define LIST_MAX 128

/* All commands that are sent from here do. */
static bool
is_read(enum script script)
{
	return script == SCRIPT_LIST || script == SCRIPT_STAT ||
	    script == SCRIPT_AUDIT || script == COMMAND;
}

int
walk_script(struct hwt_durable *durable, enum script script, uint32_t shard,
    size_t count, const struct engine_argument *arg, struct engine_call *call)
{
	const struct engine_wait wait = {.stop_fd = -1,
	    .replicated = script == SCRIPT_DEAD,
	    .no_retry = script == SCRIPT_DEAD};
	int error;

	*call = (struct engine_call){.script = script,
	    .shard = shard,
	    .count = (uint32_t)count,
	    .arg = arg,
	    .reads = is_read(script)};
	error = engine_call(durable_engine(durable), call, 1, &wait);
	if (error != 0)
		complain("shard %" PRIu32 ": %s", shard, explain(error));
	return error;
}

int
walk_command(struct hwt_durable *durable, uint32_t shard, size_t count,
    const struct engine_argument *words, struct engine_call *call)
{
	return walk_script(durable, COMMAND, shard, count, words, call);
}

const char *
state_name(enum hwt_durable_state state)
{
	static const char *const names[] = {
	    [HWT_DURABLE_PENDING] = "pending",
	    [HWT_DURABLE_DELIVERED] = "delivered",
	    [HWT_DURABLE_RUNNING] = "running",
	    [HWT_DURABLE_SUCCEEDED] = "succeeded",
	    [HWT_DURABLE_FAILED] = "failed",
	    [HWT_DURABLE_CANCELLED] = "cancelled",
	    [HWT_DURABLE_QUARANTINED] = "quarantined",
	};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : NULL;
}

/* Asks for what the failed ids of a shard have failed with: a text, or nil, for
 * each. */
static int
failures_read(struct hwt_durable *durable, uint32_t shard, size_t count,
    const struct engine_argument *id, struct engine_call *call)
{
	char key[LIST_MAX][ENGINE_KEY_MAX];
	struct engine_argument words[1 + LIST_MAX];
	size_t i, prefix;
	int error;

	words[0] = argument_text("MGET");
	for (i = 0; i < count; i++) {
		engine_key(durable_engine(durable), key[i], shard, "e:");
		prefix = strlen(key[i]);
		memcpy(key[i] + prefix, id[i].data, id[i].length);
		words[1 + i] =
		    (struct engine_argument){key[i], prefix + id[i].length};
	}
	error = walk_command(durable, shard, 1 + count, words, call);
	if (error == 0 && !is_array(call->reply, count)) {
		engine_call_free(call, 1);
		error = -EPROTO;
	}
	return error;
}

static void
failure_print(FILE *file, const struct hwt_durable_info *info,
    const struct redisReply *failure)
{
	const char *text = failure->str, *space;

	(void)fprintf(
	    file, ",\"failed_ms\":%" PRIu64, info->changed_unix_ns / NS_PER_MS);
	if (!is_string(failure))
		return;
	space = memchr(text, ' ', failure->len);
	(void)fputc(',', file);
	json_write(file, "worker", text,
	    space != NULL ? (size_t)(space - text) : failure->len);
	if (space == NULL)
		return;
	(void)fputc(',', file);
	json_write(file, "error", space + 1,
	    failure->len - (size_t)(space + 1 - text));
}

int
failure_write(FILE *file, struct hwt_durable *durable, const char *id,
    size_t id_length, const struct hwt_durable_info *info)
{
	const struct engine_argument argument = {id, id_length};
	struct engine_call call;
	int error = failures_read(durable,
	    durable_shard_of(durable, id, id_length), 1, &argument, &call);

	if (error != 0)
		return error;
	failure_print(file, info, call.reply->element[0]);
	engine_call_free(&call, 1);
	return 0;
}

void
record_write(FILE *file, const char *id, size_t id_length,
    const struct hwt_durable_info *info)
{
	json_write(file, "id", id, id_length);
	(void)fprintf(file, ",\"state\":\"%s\",", state_name(info->state));
	json_write(file, "queue", info->queue, strlen(info->queue));
	(void)fprintf(file,
	    ",\"due_ms\":%" PRIu64 ",\"attempts\":%" PRIu32
	    ",\"max_attempts\":%" PRIu32 ",\"generation\":%" PRIu32,
	    info->due_unix_ns / NS_PER_MS, info->attempts, info->max_attempts,
	    info->generation);
	priority_write(file, info->flags);
	if (info->expires_unix_ns != 0)
		(void)fprintf(file, ",\"expires_ms\":%" PRIu64,
		    info->expires_unix_ns / NS_PER_MS);
	if (info->retry_first_ns != 0)
		(void)fprintf(file,
		    ",\"retry_first_ms\":%" PRIu64 ",\"retry_factor\":%.15g"
		    ",\"retry_most_ms\":%" PRIu64,
		    info->retry_first_ns / NS_PER_MS, info->retry_factor,
		    info->retry_most_ns / NS_PER_MS);
}

bool
is_string(const struct redisReply *reply)
{
	return reply != NULL &&
	    (reply->type == REDIS_REPLY_STRING ||
		reply->type == REDIS_REPLY_STATUS);
}

bool
is_array(const struct redisReply *reply, size_t count)
{
	return reply != NULL && reply->type == REDIS_REPLY_ARRAY &&
	    reply->elements >= count;
}

/* The number of a key's shard, and where its name begins; 0: it is none. */
static size_t
key_shard(const char *key, size_t length, size_t prefix, uint32_t *shard)
{
	size_t at = prefix;
	uint64_t number = 0;

	while (
	    at < length && key[at] >= '0' && key[at] <= '9' && number < 10000)
		number = number * 10 + (uint64_t)(key[at++] - '0');
	if (at == prefix || length - at < 3 || key[at] != '}' ||
	    key[at + 1] != ':')
		return 0;
	*shard = (uint32_t)number;
	return at + 2;
}

struct scan {
	struct hwt_durable *durable;
	walk_key *call;
	void *ctx;
	uint32_t node; /* a shard of the node that is walked */
	bool shared; /* it has others, which are walked from elsewhere */
	size_t prefix; /* the length of "{S:" */
};

static int
scan_keys(const struct scan *scan, const struct redisReply *keys)
{
	const struct redisReply *key;
	uint32_t shard;
	size_t i, at;
	int error;

	for (i = 0; i < keys->elements; i++) {
		key = keys->element[i];
		if (!is_string(key))
			return -EPROTO;
		at = key_shard(key->str, key->len, scan->prefix, &shard);
		if (at == 0 || (scan->shared && shard != scan->node))
			continue;
		error =
		    scan->call(scan->ctx, shard, key->str + at, key->len - at);
		if (error != 0)
			return error;
	}
	return 0;
}

/* All keys that match, on the node of a shard. */
static int
scan_node(const struct scan *scan, const char *pattern)
{
	char cursor[32] = "0";
	struct engine_argument words[] = {argument_text("SCAN"),
	    argument_text(cursor), argument_text("MATCH"),
	    argument_text(pattern), argument_text("COUNT"),
	    argument_text("500")};
	struct engine_call call;
	int error;

	do {
		words[1] = argument_text(cursor);
		error = walk_command(scan->durable, scan->node,
		    sizeof(words) / sizeof(words[0]), words, &call);
		if (error != 0)
			return error;
		if (!is_array(call.reply, 2) ||
		    !is_string(call.reply->element[0]) ||
		    !is_array(call.reply->element[1], 0) ||
		    call.reply->element[0]->len >= sizeof(cursor))
			error = -EPROTO;
		else
			error = scan_keys(scan, call.reply->element[1]);
		if (error == 0)
			(void)snprintf(cursor, sizeof(cursor), "%s",
			    call.reply->element[0]->str);
		engine_call_free(&call, 1);
	} while (error == 0 && strcmp(cursor, "0") != 0);
	return error;
}

bool
nodes_are_many(void)
{
	const char *servers = open_options.servers;

	return servers != NULL && strncmp(servers, "cluster:", 8) == 0;
}

/* The nodes of a cluster do not tell which shards they have: there, each shard
 * is a walk of its node. */
int
walk_keys(struct hwt_durable *durable, walk_key *call, void *ctx)
{
	struct scan scan = {.durable = durable, .call = call, .ctx = ctx};
	char pattern[HWT_DURABLE_SPACE_MAX + 32];
	const char *space = engine_space(durable_engine(durable));
	int error = 0;

	scan.shared = nodes_are_many();
	scan.prefix = strlen(space) + 2;
	if (!scan.shared) {
		(void)snprintf(pattern, sizeof(pattern), "{%s:*}:*", space);
		return scan_node(&scan, pattern);
	}
	for (; error == 0 && scan.node < durable_shards(durable); scan.node++) {
		(void)snprintf(pattern, sizeof(pattern), "{%s:%" PRIu32 "}:*",
		    space, scan.node);
		error = scan_node(&scan, pattern);
	}
	return error;
}

/* The list of tasks. */

/* Of a shard: those that are to be asked for. */
struct ids {
	size_t count;
	struct {
		size_t length;
		char text[HWT_DURABLE_ID_MAX];
	} id[LIST_MAX];
};

struct list {
	struct hwt_durable *durable;
	enum hwt_durable_state state;
	struct ids *ids; /* for each shard */
	uint32_t shard; /* the last one; dead letters come shard by shard */
};

/* Whether a task may be there; if not, it is told. */
static bool
is_place(const struct hwt_durable *durable, uint32_t shard, const char *id,
    size_t id_length)
{
	const char *why = NULL;

	if (shard >= durable_shards(durable))
		why = "there is no such shard";
	else if (id_length < 1 || id_length > HWT_DURABLE_ID_MAX)
		why = "is no task's id";
	if (why != NULL)
		complain("shard %" PRIu32 ": %.*s: %s", shard, (int)id_length,
		    id, why);
	return why == NULL;
}

/* A task of a page, and whether it is in the list. */
struct item {
	struct engine_argument id;
	struct hwt_durable_info info;
	bool wanted;
};

static void
item_read(
    const struct list *list, struct item *item, const struct redisReply *record)
{
	const char *payload;

	item->wanted = is_string(record);
	if (!item->wanted)
		return;
	record_read(&item->info, record->str, record->len, &payload);
	item->wanted = list->state == 0 || item->info.state == list->state;
}

/* The errors of the dead letters among them are read at once. */
static int
items_print(const struct list *list, uint32_t shard, const struct item *item,
    size_t count)
{
	struct engine_argument failed[LIST_MAX];
	struct engine_call call = {0};
	size_t i, failures = 0;
	int error;

	for (i = 0; i < count; i++) {
		if (item[i].wanted && item[i].info.state == HWT_DURABLE_FAILED)
			failed[failures++] = item[i].id;
	}
	if (failures > 0) {
		error = failures_read(
		    list->durable, shard, failures, failed, &call);
		if (error != 0)
			return error;
	}
	failures = 0;
	for (i = 0; i < count; i++) {
		if (!item[i].wanted)
			continue;
		(void)putchar('{');
		record_write(
		    stdout, item[i].id.data, item[i].id.length, &item[i].info);
		if (item[i].info.state == HWT_DURABLE_FAILED)
			failure_print(stdout, &item[i].info,
			    call.reply->element[failures++]);
		(void)puts("}");
	}
	engine_call_free(&call, 1);
	return 0;
}

static int
list_flush(struct list *list, uint32_t shard)
{
	struct ids *ids = &list->ids[shard];
	struct engine_argument arg[LIST_MAX];
	struct item item[LIST_MAX];
	struct engine_call call;
	size_t i, count = ids->count;
	int error;

	if (count == 0)
		return 0;
	ids->count = 0;
	for (i = 0; i < count; i++)
		arg[i] = item[i].id = (struct engine_argument){
		    ids->id[i].text, ids->id[i].length};
	error =
	    walk_script(list->durable, SCRIPT_LIST, shard, count, arg, &call);
	if (error != 0)
		return error;
	if (is_array(call.reply, count)) {
		for (i = 0; i < count; i++)
			item_read(list, &item[i], call.reply->element[i]);
		error = items_print(list, shard, item, count);
	} else
		error = -EPROTO;
	engine_call_free(&call, 1);
	return error;
}

static int
list_task(void *ctx, uint32_t shard, const char *id, size_t id_length)
{
	struct list *list = ctx;
	struct ids *ids;
	int error = 0;

	if (!is_place(list->durable, shard, id, id_length))
		return 0;
	if (list->state == HWT_DURABLE_FAILED && shard != list->shard)
		error = list_flush(list, list->shard);
	if (error != 0)
		return error;
	list->shard = shard;
	ids = &list->ids[shard];
	memcpy(ids->id[ids->count].text, id, id_length);
	ids->id[ids->count].length = id_length;
	return ++ids->count == LIST_MAX ? list_flush(list, shard) : 0;
}

static int
list_key(void *ctx, uint32_t shard, const char *name, size_t length)
{
	if (length < 2 || memcmp(name, "r:", 2) != 0)
		return 0;
	return list_task(ctx, shard, name + 2, length - 2);
}

/* A shard's now, in ms. */
static int
shard_now(struct hwt_durable *durable, uint32_t shard, uint64_t *now)
{
	struct engine_call call;
	int error = walk_script(durable, SCRIPT_STAT, shard, 0, NULL, &call);
	size_t i;

	if (error != 0)
		return error;
	error = -EPROTO;
	for (i = 0; is_array(call.reply, 0) && i + 1 < call.reply->elements;
	     i += 2) {
		if (is_string(call.reply->element[i]) &&
		    strcmp(call.reply->element[i]->str, "now") == 0 &&
		    reply_number(call.reply->element[i + 1], now))
			error = 0;
	}
	engine_call_free(&call, 1);
	return error;
}

/* A page of the dead letters of a shard, by the time when they failed, each
 * with that; empty at the end. */
static int
dead_page(struct hwt_durable *durable, uint32_t shard, size_t start,
    struct engine_call *call)
{
	char key[ENGINE_KEY_MAX], first[24], last[24];
	struct engine_argument words[] = {argument_text("ZRANGE"), {NULL, 0},
	    {NULL, 0}, {NULL, 0}, argument_text("WITHSCORES")};
	int error;
	size_t i;

	engine_key(durable_engine(durable), key, shard, "dead");
	(void)snprintf(first, sizeof(first), "%zu", start);
	(void)snprintf(last, sizeof(last), "%zu", start + 255);
	words[1] = argument_text(key);
	words[2] = argument_text(first);
	words[3] = argument_text(last);
	error = walk_command(durable, shard, 5, words, call);
	if (error != 0)
		return error;
	if (!is_array(call->reply, 0) || call->reply->elements % 2 != 0)
		error = -EPROTO;
	for (i = 0; error == 0 && i < call->reply->elements; i++) {
		if (!is_string(call->reply->element[i]))
			error = -EPROTO;
	}
	if (error != 0)
		engine_call_free(call, 1);
	return error;
}

/* Calls it for each dead letter of a shard that has failed by now: those that
 * are replayed may fail again before the end is reached. It returns 1 if that
 * is one no more, so that those behind it have moved up. */
static int
dead_shard(
    struct hwt_durable *durable, uint32_t shard, walk_key *call, void *ctx)
{
	const struct redisReply *id;
	struct engine_call page;
	size_t i, start = 0;
	uint64_t now;
	bool more;
	int result = shard_now(durable, shard, &now);

	if (result != 0)
		return result;
	do {
		result = dead_page(durable, shard, start, &page);
		if (result != 0)
			return result;
		more = page.reply->elements > 0;
		for (i = 0; result >= 0 && i < page.reply->elements; i += 2) {
			if (strtod(page.reply->element[i + 1]->str, NULL) >
			    (double)now) {
				more = false;
				break;
			}
			id = page.reply->element[i];
			result = call(ctx, shard, id->str, id->len);
			start += result == 0;
		}
		engine_call_free(&page, 1);
	} while (result >= 0 && more);
	return result < 0 ? result : 0;
}

static int
dead_each(struct hwt_durable *durable, walk_key *call, void *ctx)
{
	uint32_t shard;
	int error = 0;

	for (shard = 0; error == 0 && shard < durable_shards(durable); shard++)
		error = dead_shard(durable, shard, call, ctx);
	return error;
}

int
walk_list(struct hwt_durable *durable, enum hwt_durable_state state)
{
	uint32_t shard, shards = durable_shards(durable);
	struct list list = {durable, state, NULL, 0};
	int error;

	list.ids = calloc(shards, sizeof(*list.ids));
	if (list.ids == NULL)
		return -ENOMEM;
	error = state == HWT_DURABLE_FAILED
	    ? dead_each(durable, list_task, &list)
	    : walk_keys(durable, list_key, &list);
	for (shard = 0; shard < shards && error == 0; shard++)
		error = list_flush(&list, shard);
	free(list.ids);
	return error;
}

struct dead {
	struct hwt_durable *durable;
	const char *verb;
};

static int
dead_task(void *ctx, uint32_t shard, const char *id, size_t id_length)
{
	const struct dead *dead = ctx;
	struct engine_argument arg[] = {
	    argument_text(dead->verb), {id, id_length}};
	struct engine_call call;
	int error, gone;

	if (!is_place(dead->durable, shard, id, id_length))
		return 0;
	error = walk_script(dead->durable, SCRIPT_DEAD, shard, 2, arg, &call);
	if (error != 0)
		return error;
	gone =
	    call.reply->type == REDIS_REPLY_INTEGER && call.reply->integer == 0;
	engine_call_free(&call, 1);
	return gone;
}

int
walk_dead(struct hwt_durable *durable, const char *verb)
{
	struct dead dead = {durable, verb};

	return dead_each(durable, dead_task, &dead);
}
