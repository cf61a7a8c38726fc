/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets with round counters.
 *
 * A bucket is a stack of chunks of 14 entries, 8 bytes each: the round and the
 * record's index. Passing over the entries of later rounds reads memory in
 * sequence and touches no record. A record knows its place (chunk and slot),
 * so that it is taken out in constant time: the last entry of the first chunk
 * fills the gap.
 *
 * ROUNDS are kept modulo 2^32 and compared by difference. What lies 2^31
 * rounds ahead or more is placed at the last round that can be told apart; the
 * worker looks at the record there and places it again.
 *
 * FINDING THE NEXT TICK. A bitmap in levels of 64 skips empty buckets; each
 * bucket has a lower bound of its entries' rounds. Removing an entry may leave
 * the bound loose, which costs a look at the bucket and never a wrong answer.
 * wheel_earliest tightens the bounds that it relies on, since a worker that
 * goes to sleep must not be woken by a timeout that is gone, but looks at a
 * bounded number of entries for that; and it remembers its answer until the
 * entries at that tick change.
 *
 * MEMORY. Chunks come from arenas that are mapped when slabs of records are,
 * enough for the worst spread: every record's entry, 14 to a chunk, and one
 * chunk in each bucket that is not full. So placing cannot fail. What was never
 * touched takes no memory.
 *
 * INVARIANTS
 *   1. Entries lie at ticks >= next_tick, but for those of the tick that is
 *      being walked.
 *   2. Of a bucket's chunks, all but the first are full, and none is empty.
 *   3. The bit of a bucket is set if and only if it has a chunk.
 *   4. record->place is chunk * 16 + slot of its entry, or 0; chunk 0 is none.
 *
 * COST. place and unplace: one chunk and one or two records. Chunk overhead:
 * 128 bytes for 14 entries, 9.2 bytes per timeout.
 *
 * EDGES
 *   E:chunks   an arena of chunks, release in wheel_reserve, acquired by
 *              chunk_at.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "record.h"
#include "system.h"
#include "wheel.h"

#define PLACE_SLOT_BITS 4
#define PLACE_SLOT_MASK ((1u << PLACE_SLOT_BITS) - 1)
#define CHUNKS_MAX (1u << (32 - PLACE_SLOT_BITS))
#ifndef ARENA_BITS
#define ARENA_BITS 12
#define ARENAS_MAX (CHUNKS_MAX >> ARENA_BITS)
#endif
#define ARENA_CHUNKS (1u << ARENA_BITS)
#define ARENA_BYTES (ARENA_CHUNKS * sizeof(struct chunk))
#define TABLE_BYTES (ARENAS_MAX * sizeof(aptr_t))
#define ROUND_FAR ((uint32_t)INT32_MAX)
/* What one search may tighten: half a megabyte, a tenth of a millisecond. It
 * passes over whole buckets beyond that. */
#define SEARCH_CHUNKS 4096u

_Static_assert(sizeof(struct chunk) == 128, "a chunk is two cache lines");

static inline struct chunk *
chunk_at(const struct wheel *wheel, uint32_t chunk)
{
	/* E:chunks acquire */
	struct chunk *arena =
	    aptr_load_acquire(&wheel->arenas[chunk >> ARENA_BITS]);

	return &arena[chunk & (ARENA_CHUNKS - 1)];
}

static inline bool
round_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

static size_t
bitmap_words(uint32_t length, uint32_t level)
{
	size_t words = length;

	do
		words = (words + 63) / 64;
	while (level-- > 0);
	return words;
}

int
wheel_create(struct wheel *wheel, const struct record_store *store,
    uint32_t length, a64_t *memory_bytes)
{
	size_t bytes = length * sizeof(struct bucket);
	char *memory;

	wheel->store = store;
	wheel->mask = length - 1;
	wheel->bits = (uint32_t)__builtin_ctz(length);
	wheel->next_tick = 1;
	wheel->carved = 1;
	wheel->memory_bytes = memory_bytes;
	do
		bytes += 8 * bitmap_words(length, wheel->levels);
	while (bitmap_words(length, wheel->levels++) > 1);
	wheel->bytes = bytes;
	memory = system_map(bytes);
	if (memory == NULL)
		return -ENOMEM;
	wheel->arenas = system_map(TABLE_BYTES);
	if (wheel->arenas == NULL) {
		system_unmap(memory, bytes);
		return -ENOMEM;
	}
	wheel->buckets = (void *)memory;
	memory += length * sizeof(struct bucket);
	for (uint32_t i = 0; i < wheel->levels; i++) {
		wheel->level[i] = (void *)memory;
		memory += 8 * bitmap_words(length, i);
	}
	(void)a64_add_relaxed(memory_bytes, bytes);
	return 0;
}

void
wheel_destroy(struct wheel *wheel)
{
	uint32_t i;

	for (i = 0; i < ARENAS_MAX; i++) {
		void *arena = aptr_load_acquire(&wheel->arenas[i]);

		if (arena == NULL)
			break;
		system_unmap(arena, ARENA_BYTES);
	}
	system_unmap(wheel->arenas, TABLE_BYTES);
	system_unmap(wheel->buckets, wheel->bytes);
}

bool
wheel_reserve(struct wheel *wheel, uint64_t records)
{
	uint64_t partial = records <= wheel->mask ? records : wheel->mask + 1;
	uint64_t needed = 1 + records / CHUNK_ENTRIES + partial;
	void *arena;

	while (wheel->capacity < needed) {
		if (wheel->capacity >= CHUNKS_MAX)
			return false;
		arena = system_map(ARENA_BYTES);
		if (arena == NULL)
			return false;
		/* E:chunks release */
		aptr_store_release(
		    &wheel->arenas[wheel->capacity >> ARENA_BITS], arena);
		wheel->capacity += ARENA_CHUNKS;
	}
	return true;
}

static void
bitmap_set(struct wheel *wheel, uint32_t bit)
{
	uint32_t i;

	for (i = 0; i < wheel->levels; i++, bit /= 64) {
		uint64_t *word = &wheel->level[i][bit / 64];
		uint64_t old = *word;

		*word = old | UINT64_C(1) << bit % 64;
		if (old != 0)
			break;
	}
}

static void
bitmap_clear(struct wheel *wheel, uint32_t bit)
{
	uint32_t i;

	for (i = 0; i < wheel->levels; i++, bit /= 64) {
		uint64_t *word = &wheel->level[i][bit / 64];

		*word &= ~(UINT64_C(1) << bit % 64);
		if (*word != 0)
			break;
	}
}

/* The first bit at or after from; mask + 1: none. */
static uint32_t
bitmap_find(const struct wheel *wheel, uint32_t from)
{
	uint32_t end = wheel->mask + 1;
	uint32_t level = 0;
	uint64_t word;

	if (from >= end)
		return end;
	for (;;) { /* upwards, to a word with a bit at or after from */
		word = wheel->level[level][from / 64] >> from % 64;
		if (word != 0)
			break;
		from = from / 64 + 1;
		if (++level == wheel->levels ||
		    from >= bitmap_words(end, level - 1))
			return end;
	}
	from += (uint32_t)__builtin_ctzll(word);
	while (level-- > 0) /* and down again, to its first bit */
		from = from * 64 +
		    (uint32_t)__builtin_ctzll(wheel->level[level][from]);
	return from;
}

static uint32_t
chunk_alloc(struct wheel *wheel)
{
	uint32_t chunk = wheel->free;

	if (chunk != 0) {
		wheel->free = chunk_at(wheel, chunk)->next;
		return chunk;
	}
	(void)a64_add_relaxed(wheel->memory_bytes, sizeof(struct chunk));
	return wheel->carved++;
}

uint64_t
wheel_reach(const struct wheel *wheel, uint64_t tick)
{
	uint64_t now = wheel->next_tick >> wheel->bits;
	uint64_t round = tick >> wheel->bits;

	if (tick == TICK_NEVER)
		return tick;
	if (tick < wheel->next_tick)
		return wheel->next_tick;
	if (round - now < ROUND_FAR)
		return tick;
	return (now + ROUND_FAR) << wheel->bits | (tick & wheel->mask);
}

/* An entry comes: the bounds. */
static void
bounds_lower(struct wheel *wheel, uint64_t tick)
{
	struct bucket *bucket = &wheel->buckets[tick & wheel->mask];
	uint32_t round = (uint32_t)(tick >> wheel->bits);

	if (bucket->first == 0 || round_before(round, bucket->round_min)) {
		bucket->round_min = round;
		bucket->loose = 0;
	}
	if (tick < wheel->earliest)
		wheel->earliest = tick;
}

/* An entry goes. */
static void
bounds_loosen(struct wheel *wheel, uint32_t number, uint32_t round)
{
	struct bucket *bucket = &wheel->buckets[number];

	if (round == bucket->round_min)
		bucket->loose = 1;
	if (number == ((uint32_t)wheel->earliest & wheel->mask) &&
	    round == (uint32_t)(wheel->earliest >> wheel->bits))
		wheel->earliest_known = false;
}

void
wheel_place(struct wheel *wheel, uint32_t index, uint64_t tick)
{
	struct record *record = record_at(wheel->store, index);
	struct bucket *bucket;
	struct chunk *chunk;
	uint32_t number, at, round;

	assert(record->place == 0);
	if (tick == TICK_NEVER)
		return;
	tick = wheel_reach(wheel, tick);
	number = (uint32_t)tick & wheel->mask;
	round = (uint32_t)(tick >> wheel->bits);
	bucket = &wheel->buckets[number];
	bounds_lower(wheel, tick);
	at = bucket->first;
	if (at == 0)
		bitmap_set(wheel, number);
	if (at == 0 || chunk_at(wheel, at)->count == CHUNK_ENTRIES) {
		at = chunk_alloc(wheel);
		chunk = chunk_at(wheel, at);
		chunk->next = bucket->first;
		chunk->count = 0;
		chunk->bucket = number;
		bucket->first = at;
	}
	chunk = chunk_at(wheel, at);
	record->place = at << PLACE_SLOT_BITS | chunk->count;
	chunk->entry[chunk->count++] =
	    (struct entry){.round = round, .index = index};
}

void
wheel_unplace(struct wheel *wheel, uint32_t index)
{
	struct record *record = record_at(wheel->store, index);
	uint32_t place = record->place;
	uint32_t slot = place & PLACE_SLOT_MASK;
	struct chunk *chunk, *first;
	struct bucket *bucket;
	struct entry last;
	uint32_t number;

	if (place == 0)
		return;
	chunk = chunk_at(wheel, place >> PLACE_SLOT_BITS);
	assert(chunk->entry[slot].index == index);
	bucket = &wheel->buckets[chunk->bucket];
	bounds_loosen(wheel, chunk->bucket, chunk->entry[slot].round);
	number = bucket->first;
	first = chunk_at(wheel, number);
	last = first->entry[--first->count];
	if (last.index != index) {
		chunk->entry[slot] = last;
		record_at(wheel->store, last.index)->place = place;
	}
	record->place = 0;
	if (first->count > 0)
		return;
	bucket->first = first->next;
	if (bucket->first == 0)
		bitmap_clear(wheel, first->bucket);
	first->next = wheel->free;
	wheel->free = number;
}

/* The tick at which the bucket, distance ticks after next_tick, has its first
 * entry by its bound. A bound that is behind counts as the present round. */
static uint64_t
bucket_tick(const struct wheel *wheel, uint32_t number, uint32_t distance)
{
	uint64_t pass = wheel->next_tick + distance;
	uint32_t rounds =
	    wheel->buckets[number].round_min - (uint32_t)(pass >> wheel->bits);

	if ((int32_t)rounds <= 0)
		return pass;
	return pass + ((uint64_t)rounds << wheel->bits);
}

/* Makes the bucket's bound exact. Returns how many chunks it has. */
static uint32_t
bucket_tighten(struct wheel *wheel, uint32_t number)
{
	struct bucket *bucket = &wheel->buckets[number];
	const struct chunk *chunk = chunk_at(wheel, bucket->first);
	uint32_t min = chunk->entry[0].round;
	uint32_t chunks = 0;
	uint32_t at, i;

	for (at = bucket->first; at != 0; at = chunk->next, chunks++) {
		chunk = chunk_at(wheel, at);
		for (i = 0; i < chunk->count; i++) {
			if (round_before(chunk->entry[i].round, min))
				min = chunk->entry[i].round;
		}
	}
	bucket->round_min = min;
	bucket->loose = 0;
	return chunks;
}

/* Goes through buckets that are not empty in the order in which the wheel
 * comes to them, up to limit ticks away, and returns the tick of the first
 * whose bound lies in the present round, or else the earliest of all. Loose
 * bounds are tightened where they count, while *budget of chunks lasts; it is
 * 0 when one was left loose. */
static uint64_t
wheel_search(struct wheel *wheel, uint64_t limit, uint32_t *budget)
{
	uint32_t start = (uint32_t)wheel->next_tick & wheel->mask;
	uint32_t length = wheel->mask + 1;
	uint32_t at = bitmap_find(wheel, start);
	uint64_t best = TICK_NEVER;
	uint32_t distance, chunks;
	bool wrapped = false;
	uint64_t tick;

	for (;; at = bitmap_find(wheel, at + 1)) {
		if (at >= length && !wrapped) {
			wrapped = true;
			at = bitmap_find(wheel, 0);
		}
		if (at >= length || (wrapped && at >= start))
			return best;
		distance = (at - start) & wheel->mask;
		if (distance > limit)
			return best;
		tick = bucket_tick(wheel, at, distance);
		if (tick < best && wheel->buckets[at].loose && *budget > 0) {
			chunks = bucket_tighten(wheel, at);
			*budget -= chunks < *budget ? chunks : *budget;
			tick = bucket_tick(wheel, at, distance);
		}
		if (tick < best)
			best = tick;
		if (tick == wheel->next_tick + distance)
			return best;
	}
}

uint64_t
wheel_next(struct wheel *wheel, uint64_t last)
{
	uint32_t budget = 0;
	uint64_t tick;

	if (last < wheel->next_tick)
		return TICK_NEVER;
	tick = wheel_search(wheel, last - wheel->next_tick, &budget);
	return tick <= last ? tick : TICK_NEVER;
}

uint64_t
wheel_earliest(struct wheel *wheel)
{
	uint32_t budget = SEARCH_CHUNKS;

	if (!wheel->earliest_known) {
		wheel->earliest = wheel_search(wheel, UINT64_MAX, &budget);
		wheel->earliest_known = budget > 0;
	}
	return wheel->earliest;
}

static void
walk_enter(struct wheel *wheel, struct wheel_walk *walk, uint32_t at)
{
	const struct chunk *chunk;
	uint32_t i;

	walk->chunk = at;
	walk->slot = 0;
	if (at == 0)
		return;
	chunk = chunk_at(wheel, at);
	walk->slot = chunk->count;
	if (chunk->next != 0)
		__builtin_prefetch(chunk_at(wheel, chunk->next));
	for (i = 0; i < chunk->count; i++) {
		if (chunk->entry[i].round == walk->round)
			__builtin_prefetch(
			    record_at(wheel->store, chunk->entry[i].index));
	}
}

void
wheel_walk_start(struct wheel *wheel, struct wheel_walk *walk, uint64_t tick)
{
	walk->bucket = (uint32_t)tick & wheel->mask;
	walk->round = (uint32_t)(tick >> wheel->bits);
	walk_enter(wheel, walk, wheel->buckets[walk->bucket].first);
	/* As late as can be told from the present round; every entry that stays
	 * lowers it again. */
	wheel->buckets[walk->bucket].round_min =
	    (uint32_t)(wheel->next_tick >> wheel->bits) + ROUND_FAR;
	wheel->buckets[walk->bucket].loose = 0;
}

/* From the last entry down: an entry that fills a gap comes from above, where
 * the walk has been, and so do entries that are placed meanwhile. A chunk that
 * becomes empty is the first, and then the walk has left it or is at its last
 * slot. */
uint32_t
wheel_walk_next(struct wheel *wheel, struct wheel_walk *walk)
{
	struct bucket *bucket = &wheel->buckets[walk->bucket];
	struct chunk *chunk;
	struct entry *entry;

	while (walk->chunk != 0) {
		if (walk->slot == 0) {
			walk_enter(wheel, walk, walk->next_chunk);
			continue;
		}
		chunk = chunk_at(wheel, walk->chunk);
		walk->next_chunk = chunk->next;
		entry = &chunk->entry[--walk->slot];
		if (entry->round == walk->round)
			return entry->index;
		if (round_before(entry->round, bucket->round_min))
			bucket->round_min = entry->round;
	}
	return 0;
}

/* Entries of this round, which nothing precedes, may be left. */
void
wheel_walk_stop(struct wheel *wheel, const struct wheel_walk *walk)
{
	wheel->buckets[walk->bucket].round_min = walk->round;
}
