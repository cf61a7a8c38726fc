/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of a queue, for hosts; the machine itself has no clock.
 *
 * It is the wall clock's, but never falls, also after a promotion to a server
 * whose clock is behind; and while the wall clock is behind, it runs at nine
 * tenths of the speed of the monotonic clock. So a clock that was set ahead and
 * back delays no task for longer than it lasted.
 *
 * The steady clock is the monotonic one, continued from where the last host's
 * stood: while no server runs, no lease ends.
 */
#ifndef HWT_DURABLE_CLOCK_H
#define HWT_DURABLE_CLOCK_H

#include <time.h>

#include "modules/durable/machine/machine.h"

#define CLOCK_MS_NS UINT64_C(1000000)

struct queue_clock {
	/* now: never falls and never stands still. */
	uint64_t now_ns, read_ns;
	/* steady: what it was, and the monotonic clock, then. */
	uint64_t steady_ms, steady_read_ns;
};

static inline uint64_t
clock_read_ns(clockid_t id)
{
	struct timespec at;

	(void)clock_gettime(id, &at);
	return (uint64_t)at.tv_sec * 1000 * CLOCK_MS_NS + (uint64_t)at.tv_nsec;
}

static inline uint64_t
clock_steady_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

/* After a start or a promotion: continues from the machine's times. */
static inline void
clock_begin(struct queue_clock *clock, const struct machine *machine)
{
	uint64_t read_ns = clock_steady_ns();

	*clock = (struct queue_clock){
	    .now_ns = machine->time.now_ms * CLOCK_MS_NS,
	    .read_ns = read_ns,
	    .steady_ms = machine->time.steady_ms,
	    .steady_read_ns = read_ns,
	};
}

/* The time of a command that begins now. */
static inline struct machine_time
clock_time(struct queue_clock *clock)
{
	/* In this order: what passes in between makes this clock late. In the
	 * other one it would be ahead, and tasks early. */
	uint64_t wall_ns = clock_read_ns(CLOCK_REALTIME);
	uint64_t read_ns = clock_steady_ns();

	clock->now_ns += (read_ns - clock->read_ns) / 10 * 9;
	clock->read_ns = read_ns;
	if (wall_ns > clock->now_ns)
		clock->now_ns = wall_ns;
	return (struct machine_time){
	    .now_ms = clock->now_ns / CLOCK_MS_NS,
	    .steady_ms = clock->steady_ms +
		(read_ns - clock->steady_read_ns) / CLOCK_MS_NS,
	};
}

#endif
