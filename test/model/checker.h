/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A brute-force checker of a timer's inside: it walks the slabs, the sets, the
 * caches and the wheel, bit by bit and entry by entry, and compares them with
 * the invariants that core/record.h, core/record.c, core/wheel.c and
 * mpsc_queue.c state. It keeps nothing from one check to the next and believes
 * no counter.
 *
 * A timer can be checked when it is quiescent: no call on it is under way,
 * other than tasks that run in an executor, and its wheel is not being turned.
 *
 * The first invariant that does not hold is named, and with it the timeout. In
 * this order:
 *
 *   store    slabs and their pages; room for their records in the wheel
 *   free     caches and the free set: every free record in one place
 *   queue    bits above the free set; urgencies, and passes
 *   wheel    buckets, chunks, entries, bounds, bitmaps, the earliest tick
 *   record   state against flags, entry and queue; announcements
 *   count    counters against the records' states; memory_bytes
 */
#ifndef HWT_TEST_MODEL_CHECKER_H
#define HWT_TEST_MODEL_CHECKER_H

#include "core/timer.h"

/* How often each record or chunk was found in a place. */
struct checker_tally {
	uint8_t *times;
	size_t room;
};

struct checker {
	const struct hwt *timer;
	uint64_t checks;
	/* What does not hold, when checker_check returned false. */
	char text[512];

	struct checker_tally free, entries, chunks;
	/* Slabs that are not idle, and committed pages. */
	uint64_t open_slabs, pages;
	/* Records by what they count as. */
	uint64_t pending, dispatched;
};

bool checker_check(struct checker *checker, const struct hwt *timer);
void checker_close(struct checker *checker);

/* The parts, each in a file of its own. */
bool check_store(struct checker *checker);
bool check_free(struct checker *checker);
bool check_queue(struct checker *checker);
/* Whether the worker will come to a record that the queue is to hold. */
bool check_queued(
    struct checker *checker, uint32_t index, struct pair_value seen);
bool check_wheel(struct checker *checker);
bool check_records(struct checker *checker);
bool check_counts(struct checker *checker);

/* index: the timeout that it is about; 0: none. Returns false. */
bool checker_object(struct checker *checker, uint32_t index,
    const char *invariant, const char *condition);

/* Leaves the calling check unless condition holds. */
#define must(condition, index, invariant)                               \
	do {                                                            \
		if (!(condition))                                       \
			return checker_object(                          \
			    checker, (index), (invariant), #condition); \
	} while (0)

static inline uint32_t
checker_limit(const struct checker *checker)
{
	return store_limit(&checker->timer->store);
}

static inline bool
checker_is_idle(const struct checker *checker, uint32_t slab)
{
	return checker->timer->store.idle[slab / 64] >> slab % 64 & 1;
}

/* Whether a page of a slab that is not idle has records. */
static inline bool
checker_is_committed(const struct slab *slab, uint32_t page)
{
	return a64_load_acquire(&slab->committed) >> page & 1;
}

/* Whether index names a record that is there. */
static inline bool
checker_knows(const struct checker *checker, uint32_t index)
{
	uint32_t slab = index >> SLAB_BITS;

	return slab < checker_limit(checker) &&
	    !checker_is_idle(checker, slab) &&
	    checker_is_committed(slab_at(&checker->timer->store, slab),
		index % SLAB_RECORDS / PAGE_RECORDS);
}

static inline bool
checker_stopping(const struct checker *checker)
{
	return timer_is_stopping(checker->timer);
}

#endif
