/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the executors of this library have beyond hwt.h: they hold items that
 * are inside of what is handed over, a record or the caller's struct hwt_post.
 * So holding one takes no memory and cannot fail.
 *
 * An item belongs to the executor from execute, or from the post, until it is
 * run: then the record may be freed and reused, and the post is the caller's
 * again, who may free it or post it again at once. So an executor reads the
 * link (inbox_pop, pool_take) before it calls item_run, and that reads the
 * function before it calls it.
 *
 * What the caller wrote before the post is seen by the function, and what is
 * here is seen by whoever runs it: E:stack in inbox.h.
 */
#ifndef HWT_HANDOVER_H
#define HWT_HANDOVER_H

#include "core/timer.h"
#include "inbox.h"

/* The link of a timeout, by a handle that execute has got. */
static inline a64_t *
timeout_link(const struct hwt *timer, hwt_timeout timeout)
{
	struct inbox_item *item = &record_find(&timer->store, timeout.id)->item;

	item->posted = NULL;
	return &item->link;
}

/* The link of a post, whose words are the executor's from now on. */
static inline a64_t *
post_link(struct hwt_post *post, hwt_posted *function)
{
	struct inbox_item *item = (void *)post;

	item->posted = function;
	return &item->link;
}

static inline int
timeout_run(struct inbox_item *item)
{
	struct record *record =
	    (void *)((uintptr_t)item - offsetof(struct record, item));
	struct hwt *timer = record_slab(record)->timer;
	uint64_t id = word_id(pair_word(&record->pair), record_index(record));

	return hwt_run(timer, (hwt_timeout){id});
}

enum item_end {
	ITEM_TASK, /* a task was started */
	ITEM_POST, /* a function was called */
	ITEM_NONE /* the timeout was cancelled meanwhile */
};

static inline enum item_end
item_run(a64_t *link)
{
	struct inbox_item *item = (void *)(uintptr_t)link;
	hwt_posted *posted = item->posted;

	if (posted == NULL)
		return timeout_run(item) == 0 ? ITEM_TASK : ITEM_NONE;
	posted((struct hwt_post *)(void *)item);
	return ITEM_POST;
}

#endif
