/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the subjects share that put other libraries, or the system itself,
 * beside hwt: limits, units, and blocks kept for reuse.
 */
#ifndef PEER_H
#define PEER_H

#include <sys/time.h>

#include "perf/perf.h"

/* Raises the limit as far as it goes; skips where that is not enough. */
static inline void
peer_limit(int resource, uint64_t needed, const char *name)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit))
		perf_skip("%s", name);
	if (limit.rlim_cur >= needed)
		return;
	limit.rlim_cur = needed;
	if (limit.rlim_max < needed)
		limit.rlim_max = needed;
	if (setrlimit(resource, &limit))
		perf_skip("%s cannot be raised to %" PRIu64, name, needed);
}

static inline const char *
peer_version(const char *name, const char *version)
{
	static char text[64];

	snprintf(text, sizeof(text), "%s %s", name, version);
	return text;
}

/* Rounded up, since a timeout must not be early. */
static inline uint64_t
peer_ms(uint64_t delay_ns)
{
	return delay_ns / 1000000u + !!(delay_ns % 1000000u);
}

static inline struct timeval
peer_timeval(uint64_t delay_ns)
{
	uint64_t us = delay_ns / 1000u + !!(delay_ns % 1000u);
	struct timeval delay = {
	    (time_t)(us / 1000000u), (suseconds_t)(us % 1000000u)};

	return delay;
}

static inline struct timespec
peer_timespec(uint64_t ns)
{
	struct timespec time = {
	    (time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	return time;
}

/*
 * Blocks, each with a timer of the library inside, for libraries whose timers
 * are meant to be used again and again or which cannot tell what is pending.
 * The last one returned serves next. Every block stays on a list of all, from
 * which destroy frees it. A block links into one more list at a time: of the
 * idle ones, or of those due. No locking here.
 *
 * Who asked for a handle holds the block beside the timer, and cancels it once,
 * whether it has ended or not.
 */
struct peer_block {
	struct peer_block *next, *next_made;
	void (*task)(void *arg);
	void *arg;
	unsigned holders;
};

struct peer_blocks {
	struct peer_block *idle, *made;
};

/* NULL: there is none; make one. Either way, peer_set. */
static inline void *
peer_take(struct peer_blocks *blocks)
{
	struct peer_block *block = blocks->idle;

	if (block)
		blocks->idle = block->next;
	return block;
}

/* Seldom, so that it is no part of its callers. */
static __attribute__((noinline, unused)) void *
peer_make(struct peer_blocks *blocks, size_t size)
{
	struct peer_block *block = malloc(size);

	perf_must(block, "malloc");
	block->next_made = blocks->made;
	blocks->made = block;
	return block;
}

static inline void
peer_give(struct peer_blocks *blocks, struct peer_block *block)
{
	block->next = blocks->idle;
	blocks->idle = block;
}

static inline void
peer_set(struct peer_block *block, void (*task)(void *arg), void *arg,
    bool by_handle)
{
	block->task = task;
	block->arg = arg;
	block->holders = by_handle ? 2 : 1;
}

static inline void
peer_drop(struct peer_blocks *blocks, struct peer_block *block)
{
	if (!--block->holders)
		peer_give(blocks, block);
}

/* Each block once, idle or not; NULL: that was all. */
static inline void *
peer_unmake(struct peer_blocks *blocks)
{
	struct peer_block *block = blocks->made;

	if (block)
		blocks->made = block->next_made;
	return block;
}

/* First in, first out. */
struct peer_queue {
	struct peer_block *first, **end;
};

static inline void
peer_queue_append(struct peer_queue *queue, struct peer_block *block)
{
	if (!queue->first)
		queue->end = &queue->first;
	block->next = NULL;
	*queue->end = block;
	queue->end = &block->next;
}

/* Without the lock: the queue is the caller's own. */
static inline void
peer_run_queue(const struct peer_queue *queue)
{
	struct peer_block *block;

	for (block = queue->first; block; block = block->next)
		block->task(block->arg);
}

/* The timer lets go of all blocks of the queue, and leaves it empty. */
static inline void
peer_drop_queue(struct peer_blocks *blocks, struct peer_queue *queue)
{
	struct peer_block *block, *next;

	for (block = queue->first; block; block = next) {
		next = block->next;
		peer_drop(blocks, block);
	}
	queue->first = NULL;
}

#endif
