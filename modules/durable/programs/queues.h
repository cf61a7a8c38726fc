/* SPDX-License-Identifier: Apache-2.0 */
/* How many tasks wait in which queue, and for how long. */
#ifndef HWT_DURABLE_QUEUES_H
#define HWT_DURABLE_QUEUES_H

#include "modules/durable/durable.h"

/* That are told: the others are those whose oldest entries are younger. */
#define QUEUES_MAX 64

struct queue {
	char name[HWT_DURABLE_QUEUE_MAX + 1];
	uint64_t entries;
	uint64_t age_ns; /* since the oldest one was due */
	uint64_t paused; /* in so many shards: all, or a call was cut short */
	uint64_t paused_since_ms; /* Unix time, of the first; 0: not paused */
	/* That workers have. Exact up to 256 of all queues in each shard; of
	 * more it is estimated, from as many. */
	uint64_t running;
	uint64_t at_once; /* that may run; 0: any number */
	uint64_t rate; /* that may begin in 1000 s; 0: any number */
	uint64_t unheld_ns; /* age_ns of shards where no limit is why */
};

struct queues {
	size_t count;
	uint32_t shards;
	/* No others have entries or limits, are paused, or have running ones.
	 */
	bool all;
	struct queue queue[QUEUES_MAX]; /* the oldest first */
};

/* Takes some microseconds of the engine for each shard and queue that is told,
 * however many there are. wait as for engine_call. 0 or -errno. */
int queues_read(struct hwt_durable *durable, struct queues *queues,
    const struct engine_wait *wait);

/* One, whatever it has; name is that of a queue. */
int queue_read(
    struct hwt_durable *durable, struct queue *queue, const char *name);

#endif
