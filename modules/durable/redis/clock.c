/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of a queue. It is the wall clock's, but never falls, also after a
 * promotion to a server whose clock is behind; and while the wall clock is
 * behind, it goes on at nine tenths of the speed of the monotonic clock. So a
 * clock that was set ahead and back delays no task for longer than it lasted.
 *
 * The steady clock is the monotonic one, and goes on where the last host's
 * stood: while no server runs, no lease ends.
 */
#include <time.h>

#include "modules/durable/redis/module.h"

#define MS_NS UINT64_C(1000000)

static uint64_t
read_clock(clockid_t id)
{
	struct timespec at;

	(void)clock_gettime(id, &at);
	return (uint64_t)at.tv_sec * 1000 * MS_NS + (uint64_t)at.tv_nsec;
}

uint64_t
clock_steady_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

void
clock_begin(struct queue *queue)
{
	uint64_t read_ns = clock_steady_ns();

	queue->now_ns = queue->machine->time.now_ms * MS_NS;
	queue->read_ns = read_ns;
	queue->steady_ms = queue->machine->time.steady_ms;
	queue->steady_read_ns = read_ns;
}

struct machine_time
clock_time(struct queue *queue)
{
	uint64_t read_ns = clock_steady_ns();
	uint64_t wall_ns = read_clock(CLOCK_REALTIME);

	queue->now_ns += (read_ns - queue->read_ns) / 10 * 9;
	queue->read_ns = read_ns;
	if (wall_ns > queue->now_ns)
		queue->now_ns = wall_ns;
	return (struct machine_time){
	    .now_ms = queue->now_ns / MS_NS,
	    .steady_ms = queue->steady_ms +
		(read_ns - queue->steady_read_ns) / MS_NS,
	};
}
