/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead letters, shard by shard, each by the time when they failed and by id. A
 * cursor, SHARD-MS-ID with the id in hexadecimal digits, names the last one
 * that was told, which may be gone by the next page: so nothing is left out,
 * and nothing told twice, if others are replayed or dropped meanwhile.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "hwtd-api.h"
#include "text.h"
#include "walk.h"

#define PAGE_MAX 100

struct cursor {
	uint32_t shard;
	uint64_t ms;
	size_t id_length; /* 0: before the first one of the shard */
	char id[HWT_DURABLE_ID_MAX];
};

static void
cursor_write(FILE *body, const struct cursor *cursor)
{
	size_t i;

	(void)fprintf(
	    body, "\"%" PRIu32 "-%" PRIu64 "-", cursor->shard, cursor->ms);
	for (i = 0; i < cursor->id_length; i++)
		(void)fprintf(body, "%02x", (unsigned char)cursor->id[i]);
	(void)fputc('"', body);
}

static bool
cursor_read(struct cursor *cursor, const char *text)
{
	char part[3][2 * HWT_DURABLE_ID_MAX + 1] = {"", "", ""};
	static const char digits[] = "0123456789abcdef";
	uint64_t shard;
	size_t i, length;
	const char *high, *low;

	for (i = 0; i < 3; i++, text += length) {
		text += i > 0 && *text == '-';
		length = strcspn(text, "-");
		if (length >= sizeof(part[i]))
			return false;
		memcpy(part[i], text, length);
	}
	length = strlen(part[2]);
	if (*text != '\0' || length % 2 != 0 ||
	    !text_number(part[0], 0, UINT32_MAX, &shard) ||
	    !text_number(part[1], 0, INT64_MAX, &cursor->ms))
		return false;
	for (i = 0; i < length; i += 2) {
		high = strchr(digits, part[2][i]);
		low = strchr(digits, part[2][i + 1]);
		if (high == NULL || low == NULL)
			return false;
		cursor->id[i / 2] =
		    (char)((high - digits) << 4 | (low - digits));
	}
	cursor->shard = (uint32_t)shard;
	cursor->id_length = length / 2;
	return true;
}

/* Of the same time, the engine has them by their bytes. */
static bool
is_after(
    const struct cursor *cursor, uint64_t ms, const char *id, size_t length)
{
	size_t least = length < cursor->id_length ? length : cursor->id_length;
	int order;

	if (ms != cursor->ms || cursor->id_length == 0)
		return ms >= cursor->ms;
	order = memcmp(id, cursor->id, least);
	return order > 0 || (order == 0 && length > cursor->id_length);
}

static size_t
key_make(struct api *api, char key[ENGINE_KEY_MAX], uint32_t shard)
{
	engine_key(durable_engine(api->durable), key, shard, "dead");
	return strlen(key);
}

/* So many of the shard that did not fail before the cursor, from the one with
 * that number, each with its time. */
static int
range_ask(struct api *api, const struct cursor *cursor, size_t from,
    struct engine_call *call)
{
	char key[ENGINE_KEY_MAX];
	struct number ms, start, count;
	const struct engine_argument words[] = {argument_text("ZRANGE"),
	    {key, key_make(api, key, cursor->shard)},
	    argument_number(&ms, cursor->ms), argument_text("+inf"),
	    argument_text("BYSCORE"), argument_text("LIMIT"),
	    argument_number(&start, from), argument_number(&count, PAGE_MAX),
	    argument_text("WITHSCORES")};
	int error;

	*call = (struct engine_call){.script = COMMAND,
	    .shard = cursor->shard,
	    .count = sizeof(words) / sizeof(words[0]),
	    .arg = words};
	error = engine_call(durable_engine(api->durable), call, 1, NULL);
	if (error != 0)
		return error;
	if (is_array(call->reply, 0) && call->reply->elements % 2 == 0)
		return 0;
	engine_call_free(call, 1);
	return -EPROTO;
}

/* One that is gone meanwhile is left out. */
static int
letter_write(
    struct api *api, FILE *body, const char *id, size_t length, size_t *count)
{
	struct hwt_durable_info info;
	int error = hwt_durable_get(api->durable, id, length, &info, NULL, 0);

	if (error == -ENOENT ||
	    (error == 0 && info.state != HWT_DURABLE_FAILED))
		return 0;
	if (error != 0)
		return error;
	(void)fputs(*count > 0 ? ",{" : "{", body);
	record_write(body, id, length, &info);
	error = failure_write(body, api->durable, id, length, &info);
	(void)fputc('}', body);
	++*count;
	return error;
}

/* Moves the cursor over those that it writes. Returns how many there were, or
 * an error. */
static int
range_write(struct api *api, FILE *body, struct cursor *cursor,
    const struct redisReply *range, size_t *count)
{
	const struct redisReply *id, *score;
	uint64_t ms;
	size_t i;
	int error = 0;

	for (i = 0; i < range->elements && *count < PAGE_MAX && error == 0;
	     i += 2) {
		id = range->element[i];
		score = range->element[i + 1];
		if (!is_string(id) || !reply_number(score, &ms) ||
		    id->len < 1 || id->len > HWT_DURABLE_ID_MAX)
			continue; /* somebody else's: hwtctl check names it */
		if (!is_after(cursor, ms, id->str, id->len))
			continue;
		error = letter_write(api, body, id->str, id->len, count);
		cursor->ms = ms;
		cursor->id_length = id->len;
		memcpy(cursor->id, id->str, id->len);
	}
	return error != 0 ? error : (int)range->elements / 2;
}

/* The rest of a shard, or of the page. */
static int
shard_write(struct api *api, FILE *body, struct cursor *cursor, size_t *count)
{
	struct cursor start = *cursor;
	struct engine_call call;
	size_t from = 0;
	int result;

	do {
		start.shard = cursor->shard;
		result = range_ask(api, &start, from, &call);
		if (result < 0)
			return result;
		result = range_write(api, body, cursor, call.reply, count);
		engine_call_free(&call, 1);
		from += PAGE_MAX;
	} while (result == PAGE_MAX && *count < PAGE_MAX);
	return result < 0 ? result : 0;
}

void
api_dead(struct api *api)
{
	const char *text = http_query(api->request, "cursor");
	struct cursor cursor = {0};
	FILE *body = api->answer->body;
	size_t count = 0;
	int error = 0;

	if (text != NULL && !cursor_read(&cursor, text)) {
		api_fail(api, -EINVAL);
		return;
	}
	api->answer->type = "application/json";
	(void)fputs("{\"tasks\":[", body);
	while (error == 0 && cursor.shard < durable_shards(api->durable)) {
		error = shard_write(api, body, &cursor, &count);
		if (count == PAGE_MAX)
			break;
		cursor = (struct cursor){.shard = cursor.shard + 1};
	}
	if (error != 0) {
		rewind(body);
		api_fail(api, error);
		return;
	}
	(void)fputs("],\"cursor\":", body);
	if (cursor.shard < durable_shards(api->durable))
		cursor_write(body, &cursor);
	else
		(void)fputs("null", body);
	(void)fputs("}\n", body);
}

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
