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

#include "atomic.h"

#define TICK_NEVER UINT64_MAX
#define CHUNK_ENTRIES 14u
#define WHEEL_LEVELS 5

struct record_store;

struct entry {
	uint32_t round; /* the low 32 bits; see wheel.c */
	uint32_t index;
};

/* Two cache lines of entries. Only a bucket's first chunk has free places. */
struct chunk {
	uint32_t next;
	uint32_t count;
	uint32_t bucket;
	uint32_t padding;
	struct entry entry[CHUNK_ENTRIES];
};

struct bucket {
	uint32_t first : 28; /* chunk; 0: empty */
	uint32_t loose : 1; /* round_min may be too early */
	uint32_t round_min; /* no entry has an earlier round */
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
	/* Which buckets are not empty; level k+1 tells which words of level k
	 * are not 0. */
	uint64_t *level[WHEEL_LEVELS];
	uint32_t levels;
	size_t bytes;
	/* Chunks: arenas, the first that was never used, those that are free,
	 * and how many there is room for. */
	aptr_t *arenas;
	uint32_t carved;
	uint32_t free;
	uint32_t capacity; /* under the record store's lock */
	a64_t *memory_bytes;
};

/* Where a walk through the entries of one bucket stands. */
struct wheel_walk {
	uint32_t bucket;
	uint32_t round;
	uint32_t chunk;
	uint32_t next_chunk; /* noted while chunk is surely there */
	uint32_t slot;
};

int wheel_create(struct wheel *wheel, const struct record_store *store,
    uint32_t length, a64_t *memory_bytes);
void wheel_destroy(struct wheel *wheel);

/* Makes sure that so many records can be placed, however they are spread. */
bool wheel_reserve(struct wheel *wheel, uint64_t records);

/* The tick at which wheel_place would put tick now: no more rounds ahead than
 * can be told apart. */
uint64_t wheel_reach(const struct wheel *wheel, uint64_t tick);
/* Puts a record that is in no bucket into that of tick, or of next_tick when
 * that is later. TICK_NEVER: into none. */
void wheel_place(struct wheel *wheel, uint32_t index, uint64_t tick);
/* Takes a record out of its bucket, if it is in one. */
void wheel_unplace(struct wheel *wheel, uint32_t index);

/* A tick in [next_tick, last] before which nothing is due, though maybe not at
 * it; TICK_NEVER: none. */
uint64_t wheel_next(struct wheel *wheel, uint64_t last);
/* The earliest tick of any entry; when that would take too long to find out,
 * one that was the earliest until its entries were taken out. */
uint64_t wheel_earliest(struct wheel *wheel);

/* Walks the entries of tick's bucket that are of tick's round. Between calls,
 * the caller may unplace the record that it was told last, and place records;
 * it may not unplace others. A walk that ends early is to be stopped. */
void wheel_walk_start(
    struct wheel *wheel, struct wheel_walk *walk, uint64_t tick);
uint32_t wheel_walk_next(struct wheel *wheel, struct wheel_walk *walk);
void wheel_walk_stop(struct wheel *wheel, const struct wheel_walk *walk);

#endif
