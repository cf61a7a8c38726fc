/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wheel: a power of two of buckets, each with the timeouts of the ticks
 * that are congruent to its number (Varghese & Lauck's scheme 6). An entry
 * carries its round: tick divided by the wheel's length.
 *
 * All functions belong to the thread that turns the wheel, but for
 * wheel_reserve, which is called under the record store's lock.
 *
 * wheel.c tells how buckets are kept.
 */
#ifndef HWT_WHEEL_H
#define HWT_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/atomic.h"

#define TICK_NEVER UINT64_MAX
#define CHUNK_ENTRIES 15u
#define WHEEL_LEVELS 6

struct record_store;

struct entry {
	uint32_t round; /* the low 32 bits; see wheel.c */
	uint32_t index;
};

/* Two cache lines of entries. */
struct chunk {
	uint32_t next;
	uint32_t count;
	struct entry entry[CHUNK_ENTRIES];
};

struct list {
	uint32_t first; /* chunk; 0: empty */
	uint32_t last; /* chunk, the one that grows, unless empty */
	uint32_t round_min; /* no entry has an earlier round */
};

struct bucket {
	struct list near, far;
};

/* A set of numbers below length, with its least element at hand: level k+1
 * tells which words of level k are not 0. */
struct bitmap {
	uint64_t *level[WHEEL_LEVELS];
	uint32_t levels;
	uint32_t length;
};

struct wheel {
	const struct record_store *store;
	uint32_t mask;
	uint32_t bits;
	/* The first tick that has not been begun: nothing is placed before. */
	uint64_t next_tick;
	/* The earliest tick of any entry, when it is known. */
	uint64_t earliest;
	bool earliest_known;
	struct bucket *buckets;
	struct bitmap filled; /* buckets that are not empty */
	size_t bytes;
	/* Chunks: arenas, the first that was never used, those that are free,
	 * and how many there is room for. */
	aptr_t *arenas;
	uint32_t carved;
	uint32_t capacity; /* under the record store's lock */
	uint64_t entries; /* in all buckets */
	a64_t entries_max; /* there is room for */
	/* With so many a sweep is worth a thought; whether one is under way,
	 * and the bucket with which it goes on. */
	uint64_t sweep_at;
	bool sweeping;
	uint32_t swept;
	/* An entry was once more than 2^31 ticks ahead, so that placed does not
	 * tell how far. */
	bool ambiguous;
	struct bitmap free;
	/* A set, in pieces: records of which the sweep of a bucket has kept an
	 * entry. Meanwhile, placed is that entry's round. */
	aptr_t *kept;
	size_t free_bytes;
	/* Pages of free chunks that were given back to the system. */
	uint64_t *blank;
	uint32_t trimmed; /* the page with which wheel_trim goes on */
	a64_t *memory_bytes;
};

/* A pass through a list, which leaves out what it does not keep. */
struct sieve {
	struct list *list;
	bool every; /* all records are looked at, or those of one round */
	uint32_t round;
	struct chunk read; /* a copy: the chunk itself is free */
	uint32_t slot;
	uint32_t last; /* chunk to be read */
};

struct wheel_walk {
	uint32_t bucket;
	uint32_t passed; /* entries of other rounds */
	struct sieve sieve;
};

int wheel_create(struct wheel *wheel, const struct record_store *store,
    uint32_t length, a64_t *memory_bytes);
void wheel_destroy(struct wheel *wheel);

/* Makes sure that so many records can be placed, however they are spread. */
bool wheel_reserve(struct wheel *wheel, uint64_t records);

/* The tick at which wheel_place would put tick now: no more rounds ahead than
 * can be told apart. */
uint64_t wheel_reach(const struct wheel *wheel, uint64_t tick);
/* Adds an entry at tick, or at next_tick when that is later, and notes it in
 * the record, which is BUCKETED and has no use for another any more. */
void wheel_place(struct wheel *wheel, uint32_t index, uint64_t tick);
/* Whether the entry of a record that is BUCKETED surely is not after tick. */
bool wheel_covers(const struct wheel *wheel, uint32_t index, uint64_t tick);

/* A tick in [next_tick, last] before which nothing is due, though maybe not at
 * it; TICK_NEVER: none. */
uint64_t wheel_next(const struct wheel *wheel, uint64_t last);
/* The earliest tick of any entry, live or dead. It looks at *budget buckets at
 * most, and takes those from it; when that is 0, it is an earlier one. */
uint64_t wheel_earliest(struct wheel *wheel, uint32_t *budget);

/* Takes the entries of a tick out of their bucket, one with each call; 0: that
 * were all. Between calls, the caller may place records. A walk that ends early
 * is to be stopped: what is left stays. */
void wheel_walk_start(
    struct wheel *wheel, struct wheel_walk *walk, uint64_t tick);
/* The same for a tick that is not to be begun yet, and with one of the bucket's
 * lists at a time. */
void wheel_look_start(
    struct wheel *wheel, struct wheel_walk *walk, uint64_t tick);
uint32_t wheel_walk_next(struct wheel *wheel, struct wheel_walk *walk);
void wheel_walk_stop(struct wheel *wheel, struct wheel_walk *walk);
/* Leaves the entry that was told last where it was, and stops. */
void wheel_walk_keep(
    struct wheel *wheel, struct wheel_walk *walk, uint32_t index);

/* A sweep takes out dead entries: begins one; puts off the next one until there
 * are twice as many entries as now. */
void wheel_sweep_start(struct wheel *wheel);
void wheel_sweep_later(struct wheel *wheel);
/* A piece of the sweep that is under way. False: none is, any more. */
bool wheel_sweep(struct wheel *wheel);
void wheel_sweep_all(struct wheel *wheel);

/* Gives pages of free chunks back to the system, a bounded number of them with
 * each call. False: that was all. */
bool wheel_trim(struct wheel *wheel);

#endif
