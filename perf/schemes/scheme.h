/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of functions behind which each scheme stands. A scheme is a file
 * that defines it; a program has one scheme, and one instance of it at a time.
 * Time is counted in ticks and begins at 0. One thread does everything.
 */
#ifndef SCHEME_H
#define SCHEME_H

#include <stdbool.h>
#include <stdint.h>

enum {
	/* Buckets of the hashed wheels: as many as hwt has by default. */
	HASHED_BUCKETS = 512
};

struct scheme {
	const char *what;
	/* What START, STOP and PER_TICK cost, as the table of complexities has
	 * it: n timers, m wheels. */
	const char *start_cost, *stop_cost, *tick_cost;
	/* Nothing is ever due. */
	bool never_due;
	/* START refuses intervals far beyond the range. */
	bool bounded;
	/* Room for capacity timers of intervals below range. */
	void (*create)(uint64_t capacity, uint64_t range);
	void (*destroy)(void);
	/* Starts the timer of number `who`; interval is 1 or more. Returns its
	 * handle; 0: refused. */
	uint64_t (*start)(uint64_t interval, uint32_t who);
	void (*stop)(uint64_t handle);
	/* Moves time on by one tick, and calls expire for each that is due. */
	void (*tick)(void);
	/* Does now what START and STOP have left for the next tick to do; NULL:
	 * they leave nothing. */
	void (*settle)(void);
};

extern const struct scheme scheme;

/* The user's action, the same for all. */
void expire(uint32_t who);

#endif
