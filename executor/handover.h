/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the executors of this library have beyond hwt.h: a link inside the
 * record of each timeout that is handed over to them, so that holding one
 * takes no memory and cannot fail. Workers push records onto a stack; the
 * executor takes the whole stack and turns it round, oldest first.
 *
 * The link belongs to the executor from execute until it calls hwt_run, which
 * it must not do before it has read the link.
 *
 * ck_stack would be the same few lines (push_upmc, batch_pop_upmc), but with an
 * order that ThreadSanitizer cannot see.
 *
 * EDGES
 *   E:stack    a record's link and all that the worker did: release in
 *              handover_push, acquire in handover_take.
 */
#ifndef HWT_HANDOVER_H
#define HWT_HANDOVER_H

#include "core/timer.h"

static inline struct record *
handover_next(const struct record *record)
{
	return (struct record *)(uintptr_t)a64_load_relaxed(&record->link);
}

static inline void
handover_link(struct record *record, const struct record *next)
{
	a64_store_relaxed(&record->link, (uint64_t)(uintptr_t)next);
}

/* For a handle that execute has got. */
static inline void
handover_push(aptr_t *stack, const struct hwt *timer, hwt_timeout timeout)
{
	struct record *record = record_find(&timer->store, timeout.id);
	void *top;

	do {
		top = aptr_load_acquire(stack);
		handover_link(record, top);
		/* E:stack release */
	} while (!aptr_cas_seq(stack, top, record));
}

/* Takes the whole stack, and adds to *count how many records it has. Returns
 * the oldest, linked to newer ones; *newest is the last of them. */
static inline struct record *
handover_take(aptr_t *stack, struct record **newest, uint64_t *count)
{
	/* E:stack acquire */
	struct record *record = aptr_swap_seq(stack, NULL);
	struct record *newer = NULL;
	struct record *older;

	*newest = record;
	for (; record != NULL; record = older) {
		older = handover_next(record);
		handover_link(record, newer);
		newer = record;
		++*count;
	}
	return newer;
}

/* 0: a task was started here. */
static inline int
handover_run(struct record *record)
{
	struct hwt *timer = record_slab(record)->timer;
	uint64_t id = word_id(pair_word(&record->pair), record_index(record));

	return hwt_run(timer, (hwt_timeout){id});
}

#endif
