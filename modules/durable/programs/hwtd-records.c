/* SPDX-License-Identifier: Apache-2.0 */
/* The records of a page: see hwtd-list.h. */
#include <errno.h>
#include <string.h>

#include "hwtd-list.h"
#include "walk.h"

/* One that is gone meanwhile is left out. */
static int
task_write(struct page *page, const struct engine_argument *id,
    const struct redisReply *record)
{
	struct hwt_durable_info info;
	const char *payload;
	int error = 0;

	if (!is_string(record))
		return 0;
	record_read(&info, record->str, record->len, &payload);
	if ((page->state != 0 && info.state != page->state) ||
	    (page->queue != NULL && strcmp(info.queue, page->queue) != 0))
		return 0;
	(void)fputs(page->count > 0 ? ",{" : "{", page->body);
	record_write(page->body, id->data, id->length, &info);
	if (info.state == HWT_DURABLE_FAILED)
		error = failure_write(page->body, page->api->durable, id->data,
		    id->length, &info);
	(void)fputc('}', page->body);
	page->count++;
	return error;
}

int
page_add(struct page *page, uint32_t shard, size_t count,
    const struct engine_argument *ids)
{
	struct engine_call call = {.script = SCRIPT_LIST,
	    .shard = shard,
	    .count = (uint32_t)count,
	    .arg = ids,
	    .reads = true};
	size_t i;
	int error =
	    engine_call(durable_engine(page->api->durable), &call, 1, NULL);

	page->looked += count;
	page->calls++;
	if (error == 0 && !is_array(call.reply, count))
		error = -EPROTO;
	for (i = 0; i < count && error == 0; i++)
		error = task_write(page, &ids[i], call.reply->element[i]);
	engine_call_free(&call, 1);
	return error;
}
