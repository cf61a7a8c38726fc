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

/* The record behind a handle that execute has got. */
static inline struct record *
handover_record(const struct hwt *timer, hwt_timeout timeout)
{
	return record_find(&timer->store, timeout.id);
}

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

/* 0: a task was started here. */
static inline int
handover_run(struct record *record)
{
	struct hwt *timer = record_slab(record)->timer;
	uint64_t id = word_id(pair_word(&record->pair), record_index(record));

	return hwt_run(timer, (hwt_timeout){id});
}

#endif
