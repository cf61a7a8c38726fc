/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A brute-force checker of a timer's inside: it walks the wheel, the queues,
 * the slabs and the caches, bucket by bucket and slot by slot, and compares
 * them with the invariants that wheel.c, mpsc_queue.c, record.c and hwt.c
 * state. It keeps nothing from one check to the next and believes no counter.
 *
 * A timer can be checked when it is quiescent: no call on it is under way,
 * other than tasks that run in an executor, and its wheel is not being turned.
 *
 * The first invariant that does not hold is named, and with it the timeout. In
 * this order:
 *
 *   store    slabs, and room for their records in wheel and queues
 *   free     caches, batches: every free record in one place
 *   queue    segments, slots, holes, the pool, the overflow stack
 *   wheel    buckets, chunks, entries, bounds, the bitmap, the earliest tick
 *   record   state against place, flags and entries
 *   count    counters against the records' states; memory_bytes
 */
#ifndef HWT_TEST_RANDOM_CHECKER_H
#define HWT_TEST_RANDOM_CHECKER_H

#include "core/timer.h"

/* How often each record, chunk or segment was found in a place. */
struct checker_tally {
	uint8_t *times;
	size_t room;
};

struct checker {
	const struct hwt *timer;
	uint64_t checks;
	/* What does not hold, when checker_check returned false. */
	char text[512];

	struct checker_tally free, queued, chunks, segments;
	/* Found in the wheel: the tick of each record's own entry, TICK_NEVER:
	 * none; the earliest of all; how many entries. */
	uint64_t *own;
	size_t own_room;
	uint64_t earliest, entries;
	/* Records by what they count as. */
	uint64_t pending, handed;
};

bool checker_check(struct checker *checker, const struct hwt *timer);
void checker_close(struct checker *checker);

/* The parts, each in a file of its own. */
bool check_store(struct checker *checker);
bool check_free(struct checker *checker);
bool check_queues(struct checker *checker);
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

/* Whether index names a record that exists. */
static inline bool
checker_knows(const struct checker *checker, uint32_t index)
{
	return index % SLAB_RECORDS != 0 &&
	    index < a32_load_acquire(&checker->timer->store.carved);
}

static inline bool
checker_stopping(const struct checker *checker)
{
	return checker->timer->life.phase >= PHASE_STOPPING;
}

#endif
