/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hashed wheel whose buckets carry round counters (Varghese & Lauck's scheme
 * 6): a power of two of buckets, each with the entries of the ticks that are
 * congruent to its number. An entry is 8 bytes: the record's index and its
 * round, which is the tick divided by the wheel's length.
 *
 * A BUCKET is two lists of chunks of 15 entries: near, for the next rounds, and
 * far, for what lies 64 rounds ahead or more when it is inserted. Inserting
 * appends. Removing moves the list's last entry into the gap and updates
 * entry_at of its record. Passing over entries of other rounds reads memory in
 * sequence and does not access their records. The far list is walked only in a
 * round in which one of its entries may be due; that walk moves entries that
 * have come near to the near list, a bounded number. So a million timeouts that
 * are half an hour away cost a tick next to nothing. A walk goes from a list's
 * last entry to its first, so that entries which were not visited yet stay in
 * place when it removes some and the caller appends others.
 *
 * ROUNDS are kept modulo 2^32 and compared by their signed difference, so two
 * compared rounds must be less than 2^31 apart. An entry is inserted at most
 * 2^30 rounds ahead; the worker inserts a later one again in that round. No
 * list that has entries keeps a bound (round_min) in a past round; an empty one
 * may, which costs one walk that finds nothing.
 *
 * FINDING THE NEXT TICK. A bitmap with levels of 64 skips empty buckets; each
 * list has a lower bound of its entries' rounds, which a complete walk makes
 * exact.
 *
 * MEMORY. Chunks are in arenas, which are mapped together with slabs of
 * records: enough for one entry for each record, and one partial chunk for each
 * list. So inserting cannot fail. Untouched memory costs nothing. The free
 * chunk with the lowest number is used first, so that free chunks gather in
 * whole pages, which wheel_trim returns to the system.
 *
 * INVARIANTS
 *   1. Entries are at ticks >= next_tick, except those of the tick that is
 *      being walked.
 *   2. A record whose entry_at is not 0 has one entry: at that position, in the
 *      bucket and the round of entry_tick. Other records have none.
 *   3. The bit of a bucket is set if and only if it has a chunk.
 *   4. A list's round_min is not after any of its entries' rounds, nor behind;
 *      earliest is not after any entry's tick, nor before next_tick unless
 *      that tick is being walked. No chunk in a list is empty, and only the
 *      last is not full.
 *   5. A chunk below carved is in one bucket or free; all of a page that is
 *      decommitted are free. The count of one that is in no bucket is 0.
 *
 * COST, in what is written. insert: one chunk and the record; remove: also the
 * chunk with the list's last entry, and that entry's record.
 *
 * EDGES
 *   E:chunks   an arena of chunks, and then the capacity that it adds: release
 *              in wheel_reserve, acquire in chunk_at and wheel_reserve.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <string.h>

#include "core/record.h"
#include "sys/system.h"
#include "core/wheel.h"

#define CHUNKS_MAX (1u << 28)
#ifndef ARENA_BITS
#define ARENA_BITS 12
#define ARENAS_MAX (CHUNKS_MAX >> ARENA_BITS)
#endif
#define ARENA_CHUNKS (1u << ARENA_BITS)
#define ARENA_BYTES (ARENA_CHUNKS * sizeof(struct chunk))
#define ARENA_TABLE_BYTES (ARENAS_MAX * sizeof(aptr_t))
#define CHUNKS_PER_PAGE 32u
#define CHUNK_PAGE_BYTES (CHUNKS_PER_PAGE * sizeof(struct chunk))
/* Pages that one call of wheel_trim looks at, at most. */
#define TRIM_CHUNK_PAGES 64u
#define ROUND_FAR (UINT32_C(1) << 30)
/* Entries so many rounds ahead are far. */
#ifndef NEAR_ROUNDS
#define NEAR_ROUNDS 64u
#endif
/* Buckets that one call of wheel_next looks at, at most. */
#define SEARCH_MAX 4096u
/* Entries that one walk moves to the near list at most. */
#define MOVES_MAX 256u
/* entry_at: the chunk's number and the slot in it. */
#define SLOT_BITS 4

_Static_assert(sizeof(struct chunk) == 128, "a chunk is two cache lines");
_Static_assert(CHUNK_ENTRIES < 1u << SLOT_BITS, "entry_at has room for slots");

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

/* How much memory a bitmap takes. Each level has one extra word, always 0, as a
 * sentinel for searches. */
static size_t
bitmap_bytes(uint32_t length)
{
	size_t words = length;
	size_t bytes = 0;

	do {
		words = (words + 63) / 64;
		bytes += (words + 1) * sizeof(uint64_t);
	} while (words > 1);
	return bytes;
}

/* In as much zeroed memory. */
static void
bitmap_create(struct bitmap *bitmap, uint32_t length, void *memory)
{
	uint64_t *level = memory;
	size_t words = length;

	bitmap->length = length;
	do {
		words = (words + 63) / 64;
		bitmap->level[bitmap->levels++] = level;
		level += words + 1;
	} while (words > 1);
}

/* The most chunks that so many records may need: full ones, and a partial one
 * for each list that is not empty. */
static uint64_t
chunks_for(uint64_t records, uint32_t length)
{
	uint64_t lists = UINT64_C(2) * length;
	uint64_t partial = records < lists ? records : lists;

	return 1 + records / CHUNK_ENTRIES + partial;
}

/* The same for the most records that there can be, in whole arenas. */
static uint32_t
chunks_max(uint32_t length)
{
	uint64_t needed = chunks_for(UINT64_C(1) << INDEX_BITS, length);
	uint64_t arenas = (needed + ARENA_CHUNKS - 1) / ARENA_CHUNKS;

	if (arenas >= ARENAS_MAX)
		arenas = ARENAS_MAX;
	return (uint32_t)(arenas * ARENA_CHUNKS);
}

bool
wheel_create(struct wheel *wheel, struct record_store *store, uint32_t length)
{
	size_t bucket_bytes = length * sizeof(struct bucket);
	size_t filled_bytes = bitmap_bytes(length);
	uint32_t most = chunks_max(length);
	size_t page_bytes = ((size_t)most / CHUNKS_PER_PAGE + 63) / 64 * 8;
	char *memory;

	wheel->store = store;
	wheel->mask = length - 1;
	wheel->bits = (uint32_t)__builtin_ctz(length);
	wheel->next_tick = 1;
	wheel->earliest = 1;
	wheel->carved = 1;
	wheel->bytes = bucket_bytes + filled_bytes + ARENA_TABLE_BYTES +
	    page_bytes + bitmap_bytes(most);
	memory = system_map(wheel->bytes);
	if (memory == NULL)
		return false;
	wheel->buckets = (void *)memory;
	memory += bucket_bytes;
	bitmap_create(&wheel->filled, length, memory);
	memory += filled_bytes;
	wheel->arenas = (void *)memory;
	memory += ARENA_TABLE_BYTES;
	wheel->decommitted = (void *)memory;
	memory += page_bytes;
	bitmap_create(&wheel->free, most, memory);
	memory_add(store, bucket_bytes + filled_bytes);
	return true;
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
	system_unmap(wheel->buckets, wheel->bytes);
}

bool
wheel_reserve(struct wheel *wheel, uint64_t records)
{
	uint64_t needed = chunks_for(records, wheel->filled.length);
	uint64_t capacity;
	void *arena;

	/* E:chunks acquire */
	while ((capacity = a64_load_acquire(&wheel->capacity)) < needed) {
		if (capacity >= wheel->free.length)
			return false;
		arena = system_map(ARENA_BYTES);
		if (arena == NULL)
			return false;
		/* E:chunks release */
		if (!aptr_cas_seq(
			&wheel->arenas[capacity >> ARENA_BITS], NULL, arena))
			system_unmap(arena, ARENA_BYTES);
		/* Also for the thread that was first. */
		(void)a64_cas_seq(
		    &wheel->capacity, capacity, capacity + ARENA_CHUNKS);
	}
	return true;
}

static void
bitmap_set(struct bitmap *bitmap, uint32_t bit)
{
	uint32_t i;

	for (i = 0; i < bitmap->levels; i++, bit /= 64) {
		uint64_t *word = &bitmap->level[i][bit / 64];
		uint64_t old = *word;

		*word = old | UINT64_C(1) << bit % 64;
		if (old != 0)
			break;
	}
}

static void
bitmap_clear(struct bitmap *bitmap, uint32_t bit)
{
	uint32_t i;

	for (i = 0; i < bitmap->levels; i++, bit /= 64) {
		uint64_t *word = &bitmap->level[i][bit / 64];

		*word &= ~(UINT64_C(1) << bit % 64);
		if (*word != 0)
			break;
	}
}

/* The first bit at or after from, which is below length; length: none. */
static uint32_t
bitmap_find(const struct bitmap *bitmap, uint32_t from)
{
	uint32_t level = 0;
	uint64_t word;

	for (;;) { /* up, to a word with a bit at or after from */
		word = bitmap->level[level][from / 64] >> from % 64;
		if (word != 0)
			break;
		from = from / 64 + 1;
		if (++level == bitmap->levels)
			return bitmap->length;
	}
	from += (uint32_t)__builtin_ctzll(word);
	while (level-- > 0) /* down again, to its first bit */
		from = from * 64 +
		    (uint32_t)__builtin_ctzll(bitmap->level[level][from]);
	return from;
}

/* The distance from start to the first bit that is at least steps after it,
 * wrapping around; length: none. */
static uint32_t
bitmap_find_from(const struct bitmap *bitmap, uint32_t start, uint32_t steps)
{
	uint32_t length = bitmap->length;
	uint32_t at;

	if (steps < length - start) {
		at = bitmap_find(bitmap, start + steps);
		if (at < length)
			return at - start;
		steps = length - start;
	}
	at = bitmap_find(bitmap, steps - (length - start));
	return at < start ? at + (length - start) : length;
}

static uint64_t
chunk_page_bit(uint32_t page)
{
	return UINT64_C(1) << page % 64;
}

static uint32_t
chunk_alloc(struct wheel *wheel)
{
	uint32_t chunk = bitmap_find(&wheel->free, 0);
	uint32_t page = chunk / CHUNKS_PER_PAGE;

	if (chunk == wheel->free.length) {
		assert(wheel->carved < wheel->free.length);
		memory_add(wheel->store, sizeof(struct chunk));
		return wheel->carved++;
	}
	bitmap_clear(&wheel->free, chunk);
	if (wheel->decommitted[page / 64] & chunk_page_bit(page)) {
		wheel->decommitted[page / 64] &= ~chunk_page_bit(page);
		memory_add(wheel->store, CHUNK_PAGE_BYTES);
	}
	return chunk;
}

static bool
page_is_free(const struct wheel *wheel, uint32_t page)
{
	uint64_t word = wheel->free.level[0][page / 2];

	return (uint32_t)(word >> page % 2 * CHUNKS_PER_PAGE) == UINT32_MAX;
}

bool
wheel_trim(struct wheel *wheel)
{
	uint32_t end = wheel->carved / CHUNKS_PER_PAGE;
	uint32_t page = wheel->trimmed;
	uint32_t stop = page + TRIM_CHUNK_PAGES;

	for (; page < end && page < stop; page++) {
		if (!page_is_free(wheel, page) ||
		    wheel->decommitted[page / 64] & chunk_page_bit(page))
			continue;
		if (!system_release(chunk_at(wheel, page * CHUNKS_PER_PAGE),
			CHUNK_PAGE_BYTES)) {
			page = end;
			break;
		}
		wheel->decommitted[page / 64] |= chunk_page_bit(page);
		memory_add(wheel->store, -(uint64_t)CHUNK_PAGE_BYTES);
	}
	wheel->trimmed = page < end ? page : 0;
	return page < end;
}

uint64_t
wheel_reach(const struct wheel *wheel, uint64_t tick)
{
	uint64_t now = wheel->next_tick >> wheel->bits;

	if (tick < wheel->next_tick)
		return wheel->next_tick;
	if ((tick >> wheel->bits) - now < ROUND_FAR)
		return tick;
	return (now + ROUND_FAR) << wheel->bits | (tick & wheel->mask);
}

static void
list_add(struct wheel *wheel, struct bucket *bucket, enum which which,
    uint32_t index, uint32_t round)
{
	struct list *list = &bucket->list[which];
	struct chunk *chunk;
	uint32_t at = list->last;

	if (at == 0 || round_before(round, list->round_min))
		list->round_min = round;
	if (at == 0 || chunk_at(wheel, at)->count == CHUNK_ENTRIES) {
		at = chunk_alloc(wheel);
		chunk = chunk_at(wheel, at);
		chunk->previous = list->last;
		chunk->which = which;
		list->last = at;
	}
	chunk = chunk_at(wheel, at);
	record_at(wheel->store, index)->entry_at =
	    at << SLOT_BITS | chunk->count;
	chunk->entry[chunk->count++] =
	    (struct entry){.round = round, .index = index};
}

void
wheel_insert(struct wheel *wheel, uint32_t index, uint64_t tick)
{
	struct record *record = record_at(wheel->store, index);
	uint32_t number, round, ahead;

	assert(record->entry_at == 0);
	tick = wheel_reach(wheel, tick);
	number = (uint32_t)tick & wheel->mask;
	round = (uint32_t)(tick >> wheel->bits);
	ahead = round - (uint32_t)(wheel->next_tick >> wheel->bits);
	if (tick < wheel->earliest)
		wheel->earliest = tick;
	record->entry_tick = tick;
	bitmap_set(&wheel->filled, number);
	list_add(wheel, &wheel->buckets[number],
	    ahead >= NEAR_ROUNDS ? FAR : NEAR, index, round);
}

/* Moves the list's last entry into the gap at slot of that chunk, also where
 * that is its own place. The caller sets entry_at of what is removed. */
static void
list_remove(struct wheel *wheel, struct list *list, uint32_t at,
    struct chunk *chunk, uint32_t slot)
{
	struct chunk *last = chunk_at(wheel, list->last);
	uint32_t count = --last->count;

	chunk->entry[slot] = last->entry[count];
	record_at(wheel->store, chunk->entry[slot].index)->entry_at =
	    at << SLOT_BITS | slot;
	if (count == 0) {
		bitmap_set(&wheel->free, list->last);
		list->last = last->previous;
	}
}

static void
bucket_update_bit(struct wheel *wheel, const struct bucket *bucket)
{
	if (bucket->list[NEAR].last == 0 && bucket->list[FAR].last == 0)
		bitmap_clear(
		    &wheel->filled, (uint32_t)(bucket - wheel->buckets));
}

void
wheel_remove(struct wheel *wheel, uint32_t index)
{
	struct record *record = record_at(wheel->store, index);
	struct bucket *bucket =
	    &wheel->buckets[record->entry_tick & wheel->mask];
	uint32_t at = record->entry_at >> SLOT_BITS;
	uint32_t slot = record->entry_at & ((1u << SLOT_BITS) - 1);
	struct chunk *chunk = chunk_at(wheel, at);

	assert(at != 0 && chunk->entry[slot].index == index);
	list_remove(wheel, &bucket->list[chunk->which], at, chunk, slot);
	record->entry_at = 0;
	bucket_update_bit(wheel, bucket);
}

/* Whether the walk returns or moves an entry, and so touches its record. */
static bool
walk_stops_at(const struct wheel_walk *walk, const struct entry *entry)
{
	return entry->round == walk->round ||
	    (walk->which == FAR && walk->moves > 0 &&
		round_before(entry->round, walk->round + NEAR_ROUNDS));
}

/* The records that the walk will touch for a chunk, and the chunk before it. */
static void
walk_prefetch(
    const struct wheel *wheel, const struct wheel_walk *walk, uint32_t at)
{
	const struct chunk *chunk;
	uint32_t i;

	if (at == 0)
		return;
	chunk = chunk_at(wheel, at);
	if (chunk->previous != 0)
		__builtin_prefetch(chunk_at(wheel, chunk->previous));
	for (i = chunk->count; i-- > 0;) {
		if (walk_stops_at(walk, &chunk->entry[i]))
			take_line(
			    record_at(wheel->store, chunk->entry[i].index));
	}
}

static void
walk_enter(const struct wheel *wheel, struct wheel_walk *walk, uint32_t at)
{
	walk->at = at;
	if (at == 0)
		return;
	walk->chunks++;
	walk->chunk = chunk_at(wheel, at);
	walk->slot = walk->chunk->count;
	walk->previous = walk->chunk->previous;
	walk_prefetch(wheel, walk, walk->previous);
}

/* Until the walk ends, the list's bound is that of the entries which are added
 * meanwhile. */
static void
walk_list(const struct wheel *wheel, struct wheel_walk *walk, enum which which)
{
	struct list *list = &walk->bucket->list[which];

	walk->which = which;
	walk->round_min = walk->round + ROUND_FAR;
	list->round_min = walk->round_min;
	walk_prefetch(wheel, walk, list->last);
	walk_enter(wheel, walk, list->last);
}

void
wheel_walk_start(struct wheel *wheel, struct wheel_walk *walk, uint64_t tick)
{
	walk->bucket = &wheel->buckets[tick & wheel->mask];
	walk->round = (uint32_t)(tick >> wheel->bits);
	walk->chunks = 0;
	walk->moves = MOVES_MAX;
	walk_list(wheel, walk, NEAR);
}

/* Removes the entry at which the walk is. */
static void
walk_remove(struct wheel *wheel, struct wheel_walk *walk)
{
	list_remove(wheel, &walk->bucket->list[walk->which], walk->at,
	    walk->chunk, walk->slot);
}

/* Removes the next entry at the tick and returns its record; 0: the list has no
 * more. Far entries that have come near go to the near list, which was walked
 * before. */
static uint32_t
walk_list_take(struct wheel *wheel, struct wheel_walk *walk)
{
	struct entry entry;

	while (walk->at != 0) {
		while (walk->slot > 0) {
			entry = walk->chunk->entry[--walk->slot];
			if (entry.round == walk->round) {
				walk_remove(wheel, walk);
				record_at(wheel->store, entry.index)->entry_at =
				    0;
				return entry.index;
			}
			if (walk_stops_at(walk, &entry)) {
				walk_remove(wheel, walk);
				list_add(wheel, walk->bucket, NEAR, entry.index,
				    entry.round);
				walk->moves--;
			} else if (round_before(entry.round, walk->round_min)) {
				walk->round_min = entry.round;
			}
		}
		walk_enter(wheel, walk, walk->previous);
	}
	return 0;
}

uint32_t
wheel_walk_take(struct wheel *wheel, struct wheel_walk *walk)
{
	struct list *far = &walk->bucket->list[FAR];
	struct list *list;
	uint32_t index;

	while ((index = walk_list_take(wheel, walk)) == 0) {
		list = &walk->bucket->list[walk->which];
		if (round_before(walk->round_min, list->round_min))
			list->round_min = walk->round_min;
		if (walk->which == FAR ||
		    round_before(walk->round, far->round_min)) {
			bucket_update_bit(wheel, walk->bucket);
			return 0;
		}
		walk_list(wheel, walk, FAR);
	}
	return index;
}

/* The entries that were not visited have no earlier round than the walk's. */
void
wheel_walk_stop(struct wheel *wheel, struct wheel_walk *walk)
{
	walk->bucket->list[walk->which].round_min = walk->round;
	bucket_update_bit(wheel, walk->bucket);
}

/* A lower bound of the ticks of a list's entries; pass is the tick at which the
 * wheel comes to the bucket next. */
static uint64_t
list_tick(const struct wheel *wheel, const struct list *list, uint64_t pass)
{
	uint32_t rounds = list->round_min - (uint32_t)(pass >> wheel->bits);

	if (list->last == 0)
		return TICK_NEVER;
	assert((int32_t)rounds >= 0);
	return pass + ((uint64_t)rounds << wheel->bits);
}

static uint64_t
bucket_tick(const struct wheel *wheel, uint64_t pass)
{
	const struct bucket *bucket = &wheel->buckets[pass & wheel->mask];
	uint64_t near = list_tick(wheel, &bucket->list[NEAR], pass);
	uint64_t far = list_tick(wheel, &bucket->list[FAR], pass);

	return near < far ? near : far;
}

/*
 * Visits the buckets in the order in which the wheel comes to them, up to the
 * first whose bound lies in its present round: no entry is before that. A
 * search that ends early is continued by the next one. A wheel of 8 buckets
 * that begins its search at tick 21, with entries at ticks 22, 30 and 45:
 *
 *   bucket      0   1   2   3   4   5   6   7
 *   entries                        45  22         at their ticks
 *                                      30
 *   filled      .   .   .   .   .   x   x   .
 *   round_min                       5   2         45 / 8; 22 / 8
 *   pass       24  25  26  27  28  21  22  23     when the wheel comes next
 *
 * Bucket 5 comes at tick 21, in round 2: its bound is three rounds later, 21 +
 * 3 * 8 = 45. Bucket 6 comes at 22, in round 2, which is its bound: 22 is the
 * best, and no bucket after it comes sooner.
 */
uint64_t
wheel_next(struct wheel *wheel, uint64_t last)
{
	uint64_t from = wheel->earliest;
	uint32_t start = (uint32_t)from & wheel->mask;
	uint32_t looks = SEARCH_MAX;
	uint64_t best = TICK_NEVER;
	uint32_t steps, at;
	uint64_t pass, tick;

	for (steps = 0; steps <= wheel->mask; steps = at + 1) {
		at = bitmap_find_from(&wheel->filled, start, steps);
		pass = from + at;
		if (at > wheel->mask || pass >= best)
			break;
		tick = pass > last || looks-- == 0 ? pass
						   : bucket_tick(wheel, pass);
		if (tick < best)
			best = tick;
	}
	wheel->earliest = best;
	return best <= last ? best : TICK_NEVER;
}
