/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one loop counts. Only the loop's own thread writes; the counters may be
 * read meanwhile, the lateness only when the loop has ended.
 */
#ifndef EXAMPLES_TALLY_H
#define EXAMPLES_TALLY_H

#include <stdatomic.h>
#include <stdint.h>

#include "common.h"

/* A distribution of lateness in steps of LATENESS_STEP_NS. */
#define LATENESS_STEP_NS (100 * NS_PER_US)
#define LATENESS_BINS 10000

struct lateness {
	uint64_t count;
	/* Below zero: before the deadline, which must never be. */
	uint64_t early;
	int64_t max_ns;
	/* The last one takes everything that is beyond. */
	uint32_t bins[LATENESS_BINS];
};

struct tally {
	_Atomic uint64_t requests, open;
	/* Connections that a limit ended. */
	_Atomic uint64_t cut[LIMITS];
	/* What the timer was told, to be compared with what it counted. */
	_Atomic uint64_t scheduled, rescheduled, cancelled, started;
	/* Timeouts that came due and were not meant any more: see
	 * deadline_due. */
	_Atomic uint64_t spared;
	struct lateness lateness[LIMITS];
};

/* One writer: a load and a store are enough, and cheaper than an atomic add.
 * Relaxed: a reader wants a recent figure and concludes nothing from it. */
static inline void
tally_add(_Atomic uint64_t *counter, uint64_t n)
{
	uint64_t old = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, old + n, memory_order_relaxed);
}

static inline uint64_t
tally_read(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

void lateness_add(struct lateness *lateness, int64_t ns);

void lateness_merge(struct lateness *into, const struct lateness *from);

/* The upper end of the step in which percent of the values are; 0 if none. */
int64_t lateness_percentile_ns(
    const struct lateness *lateness, unsigned percent);

#endif
