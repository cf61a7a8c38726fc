/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of tasks. A page begins behind its cursor, and says where the next one
 * begins. Between pages everything may change. A task that is there throughout,
 * in the state that is asked for, is in one of them or in several.
 */
#ifndef HWT_DURABLE_HWTD_LIST_H
#define HWT_DURABLE_HWTD_LIST_H

#include "hwtd-api.h"
#include "modules/durable/durable.h"

#define PAGE_MAX 500 /* tasks that a client may ask for */
#define PAGE_DEFAULT 100
#define CURSOR_MAX 192 /* bytes of its text, with the 0 */

struct page {
	struct api *api;
	FILE *body;
	enum hwt_durable_state state; /* 0: any */
	const char *queue; /* NULL: any */
	size_t limit;
	size_t count, looked; /* tasks that are in it, and that were read */
	size_t calls; /* for these */
	char next[CURSOR_MAX]; /* "": it is the last one */
};

/* hwtd-records.c: reads the records of a shard's ids, up to 512, and writes
 * those that the page is to have. 0 or -errno. */
int page_add(struct page *page, uint32_t shard, size_t count,
    const struct engine_argument *ids);

/* They fill a page, each in a file of its own: from a sorted set of each shard
 * whose members only get greater scores, by these and their bytes, and it has
 * at most limit tasks; from all keys of the engine, in its own order, and it
 * may have some more. cursor NULL: the first one. -EINVAL: the cursor is none
 * of these. */
int sets_walk(struct page *page, const char *set, const char *cursor);
int scan_walk(struct page *page, const char *cursor);

#endif
