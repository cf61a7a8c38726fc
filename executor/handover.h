/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of the library's executors: items inside of what is handed over,
 * a record or the caller's struct hwt_post. So holding one takes no memory and
 * cannot fail, and a queue of them has no limit.
 *
 * An item belongs to the executor from execute, or from the post, until it is
 * run: then the record may be freed and reused, and the post is the caller's
 * again, who may free it or post it again at once. So an executor reads the
 * link before it calls item_run, and that reads the function before it calls
 * it.
 *
 * A STACK of items: any thread pushes, and a consumer takes all of it and turns
 * it round. (ThreadSanitizer could not see the order of ck_stack.)
 *
 * EDGES
 *   E:stack    a link and all that was done to what has it, or before the post:
 *              release in stack_push, acquire in stack_take; fence between A1
 *              and A2, and between B2 and B3, in mailbox.c.
 */
#ifndef HWT_HANDOVER_H
#define HWT_HANDOVER_H

#include "core/timer.h"

/* The link of a timeout, by a handle that execute has got. */
static inline a64_t *
timeout_link(const struct hwt *timer, hwt_timeout timeout)
{
	struct item *item = &record_find(&timer->store, timeout.id)->item;

	item->posted = NULL;
	return &item->link;
}

/* The link of a post, whose words are the executor's from now on. */
static inline a64_t *
post_link(struct hwt_post *post, hwt_posted *function)
{
	struct item *item = (void *)post;

	item->posted = function;
	tsan_release(item);
	return &item->link;
}

static inline int
timeout_run(struct item *item)
{
	struct record *record =
	    (void *)((uintptr_t)item - offsetof(struct record, item));
	struct hwt *timer = record_slab(record)->timer;
	uint64_t id = word_id(wide_word(&record->wide), record_index(record));

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
	struct item *item = (void *)(uintptr_t)link;
	hwt_posted *posted = item->posted;

	if (posted == NULL)
		return timeout_run(item) == 0 ? ITEM_TASK : ITEM_NONE;
	tsan_acquire(item);
	posted((struct hwt_post *)(void *)item);
	return ITEM_POST;
}

/* A stack's top, and the link of each item, is the address of a link. */
static inline a64_t *
link_next(const a64_t *link)
{
	return (a64_t *)(uintptr_t)a64_load_relaxed(link);
}

static inline void
link_set(a64_t *link, const a64_t *next)
{
	a64_store_relaxed(link, (uint64_t)(uintptr_t)next);
}

static inline void
stack_push(aptr_t *stack, a64_t *link)
{
	void *top;

	take_line(stack);
	do {
		top = aptr_load_acquire(stack);
		link_set(link, top);
		/* E:stack release */
	} while (!aptr_cas_seq(stack, top, link));
}

/* Takes the whole stack, and adds to *count how many there are. Returns the
 * oldest, linked to newer ones; *newest is the last of them. */
static inline a64_t *
stack_take(aptr_t *stack, a64_t **newest, uint64_t *count)
{
	/* E:stack acquire */
	a64_t *link = aptr_swap_seq(stack, NULL);
	a64_t *newer = NULL;
	a64_t *older;

	*newest = link;
	for (; link != NULL; link = older) {
		take_line(link);
		older = link_next(link);
		link_set(link, newer);
		newer = link;
		++*count;
	}
	return newer;
}

#endif
