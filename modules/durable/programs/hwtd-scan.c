/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cursor, SHARD.CURSOR, has that of the engine's SCAN, on the node of the
 * shard. In a cluster the walk is one for each shard, as a node does not tell
 * which shards it has; otherwise all are on one node, and the shard is 0.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "hwtd-list.h"
#include "text.h"
#include "walk.h"

#define SCAN_COUNT \
	"500" /* keys that a SCAN looks at: less than a millisecond */
#define SCANS_MAX 10 /* for a page */
/* After so many calls for records no other SCAN: what one finds may be in as
 * many shards as it has keys. */
#define CALLS_MAX 500
#define IDS_MAX 512 /* of a page_add */

struct scan {
	struct page *page;
	uint32_t shard;
	char at
	    [24]; /* of the engine; "0" before the first, and after the last */
};

static bool
cursor_read(struct scan *scan, const char *text)
{
	char shard[16] = "";
	size_t length = strcspn(text, ".");
	uint64_t number, at;

	if (length >= sizeof(shard) || text[length] != '.' ||
	    strlen(text + length + 1) >= sizeof(scan->at))
		return false;
	memcpy(shard, text, length);
	if (!text_number(shard, 0, UINT32_MAX, &number) ||
	    !text_number(text + length + 1, 0, UINT64_MAX, &at))
		return false;
	scan->shard = (uint32_t)number;
	(void)snprintf(scan->at, sizeof(scan->at), "%" PRIu64, at);
	return true;
}

/* The ids of one shard among the keys. Those of other nodes and spaces do not
 * match; whose shard is none, hwtctl check names. */
static int
keys_add(struct scan *scan, const struct redisReply *keys, uint32_t shard)
{
	struct engine_argument ids[IDS_MAX];
	char prefix[ENGINE_KEY_MAX];
	const struct redisReply *key;
	size_t i, length, count = 0;
	int error = 0;

	engine_key(
	    durable_engine(scan->page->api->durable), prefix, shard, "r:");
	length = strlen(prefix);
	for (i = 0; i < keys->elements && error == 0; i++) {
		key = keys->element[i];
		if (!is_string(key) || key->len <= length ||
		    key->len > length + HWT_DURABLE_ID_MAX ||
		    memcmp(key->str, prefix, length) != 0)
			continue;
		ids[count++] = (struct engine_argument){
		    key->str + length, key->len - length};
		if (count < IDS_MAX)
			continue;
		error = page_add(scan->page, shard, count, ids);
		count = 0;
	}
	if (error == 0 && count > 0)
		error = page_add(scan->page, shard, count, ids);
	return error;
}

/* What one SCAN finds. */
static int
scan_read(struct scan *scan, const struct redisReply *reply, bool shared)
{
	uint32_t shard = shared ? scan->shard : 0;
	uint32_t last =
	    shared ? shard : durable_shards(scan->page->api->durable) - 1;
	int error = 0;

	if (!is_array(reply, 2) || !is_string(reply->element[0]) ||
	    !is_array(reply->element[1], 0) ||
	    reply->element[0]->len >= sizeof(scan->at))
		return -EPROTO;
	for (; shard <= last && error == 0; shard++)
		error = keys_add(scan, reply->element[1], shard);
	(void)snprintf(
	    scan->at, sizeof(scan->at), "%s", reply->element[0]->str);
	return error;
}

static int
scan_once(struct scan *scan, bool shared)
{
	struct engine *engine = durable_engine(scan->page->api->durable);
	char pattern[HWT_DURABLE_SPACE_MAX + 32];
	struct engine_argument words[] = {argument_text("SCAN"),
	    argument_text(scan->at), argument_text("MATCH"), {pattern, 0},
	    argument_text("COUNT"), argument_text(SCAN_COUNT)};
	struct engine_call call = {.script = COMMAND,
	    .shard = scan->shard,
	    .count = sizeof(words) / sizeof(words[0]),
	    .arg = words,
	    .reads = true};
	int error;

	if (shared)
		(void)snprintf(pattern, sizeof(pattern), "{%s:%" PRIu32 "}:r:*",
		    engine_space(engine), scan->shard);
	else
		(void)snprintf(pattern, sizeof(pattern), "{%s:*}:r:*",
		    engine_space(engine));
	words[3] = argument_text(pattern);
	error = engine_call(engine, &call, 1, NULL);
	if (error == 0)
		error = scan_read(scan, call.reply, shared);
	engine_call_free(&call, 1);
	return error;
}

int
scan_walk(struct page *page, const char *cursor)
{
	struct scan scan = {.page = page, .at = "0"};
	bool shared = nodes_are_many();
	uint32_t shards = shared ? durable_shards(page->api->durable) : 1;
	unsigned scans = 0;
	int error = 0;

	if (cursor != NULL && !cursor_read(&scan, cursor))
		return -EINVAL;
	while (scan.shard < shards && scans < SCANS_MAX &&
	    page->calls < CALLS_MAX && page->count < page->limit &&
	    error == 0) {
		error = scan_once(&scan, shared);
		scans++;
		scan.shard += strcmp(scan.at, "0") == 0;
	}
	if (scan.shard < shards)
		(void)snprintf(page->next, sizeof(page->next), "%" PRIu32 ".%s",
		    scan.shard, scan.at);
	return error;
}
