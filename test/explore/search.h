/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between explore.c, which has the threads and does what a step does, and
 * search.c, which chooses whose step comes next.
 *
 * PROCESSES are what a step can be of: the threads, and the flushers that make
 * buffered stores visible. Those of thread t are t + THREADS, t + 2 * THREADS
 * and so on: see owner_of.
 */
#ifndef SEARCH_H
#define SEARCH_H

#include <string.h>

#include "test/explore/explore.h"

#define THREADS EXPLORE_THREADS_MAX
/* The context of explore_run: begin, end, idle. */
#define NOBODY THREADS
/* Stores that a thread may have in its buffer. */
#define SLOTS 7u
#define PROCESSES 64u
#define BIT(n) (UINT64_C(1) << (n))

_Static_assert(THREADS *(1 + SLOTS) == PROCESSES, "a word has one bit each");

enum kind {
	NOTHING,
	LOAD,
	STORE, /* into the buffer */
	STORE_NOW,
	MODIFY,
	AWAIT,
	YIELD,
	FLUSH
};

/* The last step of each process that happens before. */
struct clock {
	uint16_t known[PROCESSES];
};

struct operation {
	uintptr_t at;
	uint8_t bytes; /* 0: none that others could see */
	uint8_t kind;
	bool writes;
	bool fence; /* waits for an empty buffer */
	bool (*ready)(const void *context);
	const void *context;
};

struct process {
	struct operation next; /* or the last one, when it is not pending */
	struct clock clock; /* of its last step */
	const struct clock *more; /* also happens before next; NULL: nothing */
};

extern struct process processes[PROCESSES];
extern uint64_t pending; /* the processes that have a next operation */
extern unsigned running; /* the thread that ran last; NOBODY: none has */
extern uint32_t step_count; /* of this execution */
extern unsigned clock_width; /* the processes of this memory model */
extern bool reducing; /* clocks are kept */

/* A flusher's owner; a thread is its own. */
static inline unsigned
owner_of(unsigned process)
{
	return process % THREADS;
}

static inline bool
overlap(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

static inline void
clock_join(struct clock *into, const struct clock *from)
{
	for (unsigned first = 0; first < clock_width; first += 8)
		for (unsigned i = first; i < first + 8; i++)
			if (into->known[i] < from->known[i])
				into->known[i] = from->known[i];
}

static inline void
clock_copy(struct clock *into, const struct clock *from)
{
	memcpy(into->known, from->known, clock_width * sizeof(from->known[0]));
}

/* Before all executions, and before each of them. */
void search_begin(const struct explore_limits *limits);
void search_execution(void);
/* Whether there is another one after this: it begins as far as it is given. */
bool search_next(void);
/* The process has its next operation. */
void search_announce(unsigned process);
/* One of the enabled processes takes its next step: usual, unless something
 * else is to be tried. free: to leave the running thread is no preemption. */
unsigned search_step(uint64_t enabled, unsigned usual, bool free);
/* Replays this execution. Lasts until the next search_begin. */
const char *search_schedule(void);

#endif
