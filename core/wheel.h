/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wheel: which record the worker visits in which tick.
 *
 * All functions belong to the thread that turns the wheel, except
 * wheel_reserve, which any thread may call. The wheel uses only two fields of a
 * record, which are its own: entry_tick, and entry_at, which is 0 while the
 * record has no entry.
 */
#ifndef HWT_WHEEL_H
#define HWT_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/atomic.h"

#define TICK_NEVER UINT64_MAX
#define CHUNK_ENTRIES 15u
#define BITMAP_LEVELS_MAX 6

struct record_store;

struct entry {
	uint32_t round; /* the low 32 bits; see wheel.c */
	uint32_t index;
};

/* Two cache lines of entries. */
struct chunk {
	uint32_t previous; /* of the same list; 0: this is the first one */
	uint16_t count; /* all but a list's last chunk are full */
	uint16_t which; /* list of its bucket */
	struct entry entry[CHUNK_ENTRIES];
};

struct list {
	uint32_t last; /* chunk; 0: empty */
	uint32_t round_min; /* no entry has an earlier round */
};

enum which {
	NEAR,
	FAR
};

struct bucket {
	struct list list[2]; /* by enum which */
};

/* A set of numbers below length: a bit of level k+1 is set if the word of level
 * k is not 0. */
struct bitmap {
	uint64_t *level[BITMAP_LEVELS_MAX];
	uint32_t levels;
	uint32_t length;
};

struct wheel {
	struct record_store *store;
	uint32_t mask; /* its length, a power of two, minus 1 */
	uint32_t bits;
	/* The first tick that has not been begun: no entry is inserted before
	 * it. The worker moves it on. */
	uint64_t next_tick;
	uint64_t earliest; /* no entry is before that tick */
	struct bucket *buckets;
	struct bitmap filled; /* buckets that are not empty */
	size_t bytes; /* that all tables take */
	aptr_t *arenas; /* of chunks */
	uint32_t carved; /* the first chunk that was never used */
	a64_t capacity; /* of the arenas; set by whoever needs more */
	struct bitmap free; /* chunks */
	/* Pages of free chunks that were returned to the system. */
	uint64_t *decommitted;
	uint32_t trimmed; /* the page with which wheel_trim continues */
};

/* A walk through the entries of one tick. */
struct wheel_walk {
	struct bucket *bucket;
	uint32_t round;
	enum which which; /* list of the bucket */
	uint32_t round_min; /* of the entries that were passed over */
	uint32_t at, previous; /* the present chunk and the one before */
	struct chunk *chunk; /* the present one */
	uint32_t slot; /* those before it were not visited yet */
	uint32_t chunks; /* that it has entered */
	uint32_t moves; /* how many more entries may change their list */
};

/* False: no memory. */
bool wheel_create(
    struct wheel *wheel, struct record_store *store, uint32_t length);
void wheel_destroy(struct wheel *wheel);

/* Makes sure that so many records can have entries. False: no memory. Any
 * thread; lock-free. */
bool wheel_reserve(struct wheel *wheel, uint64_t records);

/* The tick at which wheel_insert puts an entry for tick. */
uint64_t wheel_reach(const struct wheel *wheel, uint64_t tick);

/* Inserts an entry for a record that has none. */
void wheel_insert(struct wheel *wheel, uint32_t index, uint64_t tick);
/* Removes a record's entry. */
void wheel_remove(struct wheel *wheel, uint32_t index);

/* A tick in [next_tick, last] before which there is no entry; there may be none
 * at it either. TICK_NEVER: there is none up to last. */
uint64_t wheel_next(struct wheel *wheel, uint64_t last);

/* Removes the entries at tick, one with each call, and returns the record's
 * index; 0: there are no more. Between calls, the caller may insert entries. A
 * walk that ends early must be stopped: the other entries stay. */
void wheel_walk_start(
    struct wheel *wheel, struct wheel_walk *walk, uint64_t tick);
uint32_t wheel_walk_take(struct wheel *wheel, struct wheel_walk *walk);
void wheel_walk_stop(struct wheel *wheel, struct wheel_walk *walk);

/* Releases free memory to the system, a bounded amount with each call. False:
 * there is no more. */
bool wheel_trim(struct wheel *wheel);

#endif
