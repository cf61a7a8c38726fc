/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cursor, SHARD-MS-ID with the id in hexadecimal digits, names the last one
 * that was told, which may be gone by the next page. Members that are put into
 * the set again come behind all that the cursor has passed: a dead letter by
 * the time when it failed, a running task by the end of its lease.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "hwtd-list.h"
#include "text.h"
#include "walk.h"

#define RANGE_MIN 128 /* members that are asked for */
#define LOOKED_MAX 2048 /* members for a page; some milliseconds */

struct cursor {
	uint32_t shard;
	uint64_t ms;
	size_t id_length; /* 0: before the first one of the shard */
	char id[HWT_DURABLE_ID_MAX];
};

static void
cursor_write(char text[CURSOR_MAX], const struct cursor *cursor)
{
	int length = snprintf(text, CURSOR_MAX, "%" PRIu32 "-%" PRIu64 "-",
	    cursor->shard, cursor->ms);
	size_t i;

	for (i = 0; i < cursor->id_length; i++)
		length += snprintf(text + length, CURSOR_MAX - (size_t)length,
		    "%02x", (unsigned char)cursor->id[i]);
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

/* So many of the shard, from the time of the cursor on, each with its time. */
static int
range_ask(struct page *page, const char *set, const struct cursor *cursor,
    size_t size, struct engine_call *call)
{
	struct engine *engine = durable_engine(page->api->durable);
	char key[ENGINE_KEY_MAX];
	struct number ms, count;
	struct engine_argument words[] = {argument_text("ZRANGE"), {key, 0},
	    argument_number(&ms, cursor->ms), argument_text("+inf"),
	    argument_text("BYSCORE"), argument_text("LIMIT"),
	    argument_text("0"), argument_number(&count, size),
	    argument_text("WITHSCORES")};
	int error;

	engine_key(engine, key, cursor->shard, set);
	words[1] = argument_text(key);
	*call = (struct engine_call){.script = COMMAND,
	    .shard = cursor->shard,
	    .count = sizeof(words) / sizeof(words[0]),
	    .arg = words,
	    .reads = true};
	error = engine_call(engine, call, 1, NULL);
	if (error != 0)
		return error;
	if (is_array(call->reply, 0) && call->reply->elements % 2 == 0)
		return 0;
	engine_call_free(call, 1);
	return -EPROTO;
}

/* Moves the cursor over up to max of a range, which it takes as ids. */
static size_t
range_take(const struct redisReply *range, struct cursor *cursor, size_t max,
    struct engine_argument *ids)
{
	const struct redisReply *id;
	uint64_t ms;
	size_t i, count = 0;

	for (i = 0; i < range->elements && count < max; i += 2) {
		id = range->element[i];
		if (!is_string(id) ||
		    !reply_number(range->element[i + 1], &ms) || id->len < 1 ||
		    id->len > HWT_DURABLE_ID_MAX)
			continue; /* somebody else's: hwtctl check names it */
		if (!is_after(cursor, ms, id->str, id->len))
			continue;
		ids[count++] = (struct engine_argument){id->str, id->len};
		cursor->ms = ms;
		cursor->id_length = id->len;
		memcpy(cursor->id, id->str, id->len);
	}
	return count;
}

/* The rest of a shard, or of the page. All that one range has may stand before
 * the cursor, at the same time: then a larger one is asked for, from the same
 * place, since what goes meanwhile would move a number of members to skip. */
static int
shard_walk(struct page *page, const char *set, struct cursor *cursor)
{
	struct engine_argument ids[RANGE_MIN];
	struct engine_call call;
	size_t size = RANGE_MIN, count, room;
	bool whole = false;
	int error = 0;

	while (error == 0 && !whole && page->count < page->limit &&
	    page->looked < LOOKED_MAX) {
		error = range_ask(page, set, cursor, size, &call);
		if (error != 0)
			return error;
		room = page->limit - page->count;
		room = room < RANGE_MIN ? room : RANGE_MIN;
		count = range_take(call.reply, cursor, room, ids);
		if (count > 0)
			error = page_add(page, cursor->shard, count, ids);
		whole = call.reply->elements / 2 < size && count < room;
		size = count > 0 ? RANGE_MIN : 2 * size;
		engine_call_free(&call, 1);
	}
	return error != 0 ? error : whole;
}

int
sets_walk(struct page *page, const char *set, const char *text)
{
	uint32_t shards = durable_shards(page->api->durable);
	struct cursor cursor = {0};
	int result = 1;

	if (text != NULL && !cursor_read(&cursor, text))
		return -EINVAL;
	while (cursor.shard < shards) {
		result = shard_walk(page, set, &cursor);
		if (result != 1)
			break;
		cursor = (struct cursor){.shard = cursor.shard + 1};
	}
	if (result == 0)
		cursor_write(page->next, &cursor);
	return result < 0 ? result : 0;
}
