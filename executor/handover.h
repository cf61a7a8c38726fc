/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the executors of this library have beyond hwt.h: a link inside the
 * record of each timeout that is handed over to them, so that holding one
 * takes no memory and cannot fail.
 *
 * The link belongs to the executor from execute until it calls hwt_run, which
 * it must not do before it has read the link.
 */
#ifndef HWT_HANDOVER_H
#define HWT_HANDOVER_H

#include "core/timer.h"
#include "inbox.h"

/* For a handle that execute has got. */
static inline a64_t *
handover_link(const struct hwt *timer, hwt_timeout timeout)
{
	return &record_find(&timer->store, timeout.id)->link;
}

/* 0: a task was started here. */
static inline int
handover_run(a64_t *link)
{
	struct record *record =
	    (void *)((uintptr_t)link - offsetof(struct record, link));
	struct hwt *timer = record_slab(record)->timer;
	uint64_t id = word_id(pair_word(&record->pair), record_index(record));

	return hwt_run(timer, (hwt_timeout){id});
}

#endif
