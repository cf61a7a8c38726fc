/* SPDX-License-Identifier: Apache-2.0 */
/* The clock from which callers count delays. See clock.c. */
#ifndef HWT_CLOCK_H
#define HWT_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "sys/atomic.h"

/* A thread's readings of both clocks: the last one, the first one of the
 * measurement of the scale, and the last time that was returned. */
struct clock_sample {
	uint64_t ticks, ns;
	uint64_t first_ticks, first_ns;
	uint64_t scale; /* the last measurement; the next one must agree */
	uint64_t last_returned_ns;
};

/* If the clock fails after hwt_create has read it: aborts, with a message. */
_Noreturn void clock_failed(void);

static inline uint64_t
clock_monotonic_ns(void)
{
	struct timespec now;

	if (__builtin_expect(clock_gettime(CLOCK_MONOTONIC, &now) != 0, 0))
		clock_failed();
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Once per process; until then, clock_ahead_ns is clock_monotonic_ns. */
void clock_prepare(void);

/* A model of the machine has no counter, only a clock; and only Linux tells
 * whether the counter is the clock. */
#if defined(__x86_64__) && defined(__linux__) && !defined(HWT_ATOMIC_MODEL)
#define CLOCK_COUNTER

#include <x86intrin.h>

#define CLOCK_MARGIN_NS 100u

/* Alone in its line: otherwise the linker could put beside it what a program's
 * threads write. */
struct clock_rate {
	/* Nanoseconds per tick of the counter, times 2^32, a quarter too fast;
	 * 0: the counter is not used, or its rate is not known yet. */
	_Alignas(CACHE_LINE) a64_t scale;
	/* How many ticks a sample is valid. */
	a64_t window;
};
extern struct clock_rate clock_rate;

uint64_t clock_take_sample(struct clock_sample *sample);

static inline uint64_t
clock_return(struct clock_sample *sample, uint64_t now_ns)
{
	if (now_ns < sample->last_returned_ns)
		now_ns = sample->last_returned_ns;
	sample->last_returned_ns = now_ns;
	return now_ns;
}

/* Fast path of clock_ahead_ns: the sample is fresh enough. */
static inline bool
clock_is_at_hand(struct clock_sample *sample, uint64_t *now_ns)
{
	uint64_t scale = a64_load_relaxed(&clock_rate.scale);
	uint64_t ticks = __rdtsc() - sample->ticks;

	if (__builtin_expect(
		scale == 0 || ticks >= a64_load_relaxed(&clock_rate.window), 0))
		return false;
	*now_ns = clock_return(
	    sample, sample->ns + (ticks * scale >> 32) + CLOCK_MARGIN_NS);
	return true;
}

/* CLOCK_MONOTONIC or a little later: 3 us at most. Never earlier, and never
 * back in one thread. */
static inline uint64_t
clock_ahead_ns(struct clock_sample *sample)
{
	uint64_t now_ns;

	if (clock_is_at_hand(sample, &now_ns))
		return now_ns;
	return clock_return(sample, clock_take_sample(sample));
}

#else

static inline uint64_t
clock_ahead_ns(struct clock_sample *sample)
{
	(void)sample;
	return clock_monotonic_ns();
}

static inline bool
clock_is_at_hand(struct clock_sample *sample, uint64_t *now_ns)
{
	*now_ns = clock_ahead_ns(sample);
	return true;
}

#endif
#endif
