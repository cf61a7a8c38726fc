/* SPDX-License-Identifier: Apache-2.0 */
/* The clock for those who schedule. See clock.c. */
#ifndef HWT_CLOCK_H
#define HWT_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "core/atomic.h"

/* Where a thread read both clocks last, where it read them first, and the last
 * time that it was told. */
struct clock_anchor {
	uint64_t ticks, ns;
	uint64_t first_ticks, first_ns;
	uint64_t scale; /* as measured from first, for a second opinion */
	uint64_t told_ns;
};

/* What is told of a clock that the system does not let us read. */
#define CLOCK_FAILED UINT64_C(0)

/* Or CLOCK_FAILED. */
static inline uint64_t
clock_monotonic_ns(void)
{
	struct timespec now;

	if (__builtin_expect(clock_gettime(CLOCK_MONOTONIC, &now) != 0, 0))
		return CLOCK_FAILED;
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Once per process; before, clock_ahead_ns is clock_monotonic_ns. */
void clock_prepare(void);

/* A model of the machine has no counter, only a clock. */
#if defined(__x86_64__) && !defined(HWT_ATOMIC_MODEL)
#define CLOCK_COUNTER

#include <x86intrin.h>

#define CLOCK_MARGIN_NS 100u

/* Nanoseconds per tick of the counter, times 2^32, a quarter too fast; 0: the
 * counter is not to be used, or not known yet. */
extern a64_t clock_scale;
/* How many ticks an anchor is good for. */
extern a64_t clock_window;

uint64_t clock_drop_anchor(struct clock_anchor *anchor);

static inline uint64_t
clock_tell(struct clock_anchor *anchor, uint64_t now_ns)
{
	if (now_ns < anchor->told_ns)
		now_ns = anchor->told_ns;
	anchor->told_ns = now_ns;
	return now_ns;
}

/* clock_ahead_ns where that takes no call: the anchor is fresh enough. */
static inline bool
clock_is_at_hand(struct clock_anchor *anchor, uint64_t *now_ns)
{
	uint64_t scale = a64_load_relaxed(&clock_scale);
	uint64_t ticks = __rdtsc() - anchor->ticks;

	if (__builtin_expect(
		scale == 0 || ticks >= a64_load_relaxed(&clock_window), 0))
		return false;
	*now_ns = clock_tell(
	    anchor, anchor->ns + (ticks * scale >> 32) + CLOCK_MARGIN_NS);
	return true;
}

/* CLOCK_MONOTONIC or a little later: 3 us at most. Never earlier, and never
 * back in one thread. Or CLOCK_FAILED. */
static inline uint64_t
clock_ahead_ns(struct clock_anchor *anchor)
{
	uint64_t now_ns;

	if (clock_is_at_hand(anchor, &now_ns))
		return now_ns;
	now_ns = clock_drop_anchor(anchor);
	return now_ns != CLOCK_FAILED ? clock_tell(anchor, now_ns) : now_ns;
}

#else

static inline uint64_t
clock_ahead_ns(struct clock_anchor *anchor)
{
	(void)anchor;
	return clock_monotonic_ns();
}

static inline bool
clock_is_at_hand(struct clock_anchor *anchor, uint64_t *now_ns)
{
	*now_ns = clock_ahead_ns(anchor);
	return *now_ns != CLOCK_FAILED;
}

#endif
#endif
