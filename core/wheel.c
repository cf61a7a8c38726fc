/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets with round counters.
 *
 * An entry is 8 bytes, the round and the record's index, and is written once:
 * it stays in its bucket until its tick comes, and is then told to the worker,
 * which looks at the record. Cancelling a timeout or pushing it out touches no
 * bucket at all. A record knows the tick of its latest entry, placed, and says
 * BUCKETED in its word while that one is there. Entries of before it are dead,
 * and so is that one when the record is not PLACED any more; but if the record
 * is used again, for a later deadline, its old entry serves that as well.
 *
 * Dead entries go when their tick comes, or when they are swept: a sweep reads
 * what every entry's record says. The worker begins one when there are twice as
 * many entries as the last one left, or twice as many as there can be timeouts
 * at present, and a third of them must be dead; and before a long sleep, when
 * most are. So a dead one costs at most three looks.
 *
 * A BUCKET is two lists of chunks of 15 entries: near, for the next rounds, and
 * far, for what lies 64 rounds ahead or more. Passing over near entries of
 * later rounds reads memory in sequence and touches no record; far ones are not
 * even passed over, but once in 64 rounds, when those that have come near go
 * over to the near list. So a million timeouts half an hour away cost nothing
 * beside traffic of now.
 *
 * ROUNDS are kept modulo 2^32 and compared by difference. What lies 2^31
 * rounds ahead or more is placed at the last round that can be told apart; the
 * worker looks at the record there and places it again.
 *
 * FINDING THE NEXT TICK. A bitmap in levels of 64 skips empty buckets; each
 * list has the earliest round of its entries, live or dead. wheel_earliest
 * remembers its answer until the entries at that tick change.
 *
 * MEMORY. Chunks come from arenas that are mapped when slabs of records are,
 * enough for three entries for each record, 15 to a chunk, and those chunks of
 * each list that are not full. When there are as many entries as that, all of
 * them are swept at once, which leaves one for each record at most. So placing
 * cannot fail. What was never touched takes no memory. The free chunk with the
 * least number is used first, so that free ones gather in whole pages, which
 * wheel_trim gives back to the system; a chunk says nothing while it is free.
 *
 * INVARIANTS
 *   1. Entries lie at ticks >= next_tick, but for those of the tick that is
 *      being walked.
 *   2. A record that is BUCKETED has an entry at the tick placed. That is not
 *      after the tick of its deadline, unless the record is ENQUEUED as well. A
 *      record that is PLACED is BUCKETED, or never due.
 *   3. The bit of a bucket is set if and only if one of its lists has a chunk.
 *   4. A list's round_min is not after any of its entries' rounds. No chunk
 *      in a list is empty, and at most SLACK of them are not full.
 *   5. A chunk below carved is in one list or free; all of a blank page are
 *      free.
 *
 * COST. place: one chunk and the record. 8.5 bytes per entry.
 *
 * EDGES
 *   E:chunks   an arena of chunks, or a piece of the set of records that are
 *              kept, release in wheel_reserve, acquired by chunk_at and
 *              kept_word; and all of them by wheel_place, with entries_max.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "core/record.h"
#include "core/system.h"
#include "core/trim.h"
#include "core/wheel.h"

#define CHUNKS_MAX (1u << 31)
#ifndef ARENA_BITS
#define ARENA_BITS 12
#define ARENAS_MAX (CHUNKS_MAX >> ARENA_BITS)
#endif
#define ARENA_CHUNKS (1u << ARENA_BITS)
#define ARENA_BYTES (ARENA_CHUNKS * sizeof(struct chunk))
#define TABLE_BYTES (ARENAS_MAX * sizeof(aptr_t))
/* Records that share a piece of the set of those that are kept. */
#define KEPT_BITS (INDEX_BITS < 20 ? INDEX_BITS : 20)
#define KEPT_PIECES (1u << (INDEX_BITS - KEPT_BITS))
#define KEPT_BYTES ((UINT64_C(1) << KEPT_BITS) / 8)
#define PAGE_CHUNKS 32u
#define PAGE_BYTES (PAGE_CHUNKS * sizeof(struct chunk))
/* What one call of wheel_trim gives back at most. */
#define TRIM_PAGES 64u
#define ROUND_FAR ((uint32_t)INT32_MAX)
/* So many rounds ahead is far. */
#ifndef NEAR_ROUNDS
#define NEAR_ROUNDS 64u
#endif
/* Chunks of a list that may be not full: the last, and one where a walk has
 * stopped. And what sieves need beside that. */
#define SLACK 3u
#define SIEVE_CHUNKS 8u
#define ENTRIES_PER_RECORD 3u
/* With fewer entries than that, no sweep. What a step of one looks at, or
 * more: whole buckets. */
#ifndef SWEEP_MIN
#define SWEEP_MIN 8192u
#endif
#define SWEEP_STEP 2048u

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

/* How much memory it takes. */
static size_t
bitmap_bytes(uint32_t length)
{
	uint32_t level = 0;
	size_t bytes = 0;

	do
		bytes += 8 * bitmap_words(length, level);
	while (bitmap_words(length, level++) > 1);
	return bytes;
}

/* In that much zeroed memory. */
static void
bitmap_create(struct bitmap *bitmap, uint32_t length, void *memory)
{
	uint64_t *words = memory;
	size_t count;

	bitmap->length = length;
	do {
		count = bitmap_words(length, bitmap->levels);
		bitmap->level[bitmap->levels++] = words;
		words += count;
	} while (count > 1);
}

/* As many chunks as so many records may need at once. */
static uint64_t
chunks_for(uint64_t records, uint32_t length)
{
	uint64_t entries = records * ENTRIES_PER_RECORD;
	uint64_t chunks =
	    entries / CHUNK_ENTRIES + UINT64_C(2) * SLACK * length;

	return 1 + SIEVE_CHUNKS + (entries < chunks ? entries : chunks);
}

/* The same for all records that there can be, in whole arenas. */
static uint32_t
chunks_max(uint32_t length)
{
	uint64_t needed = chunks_for(UINT64_C(1) << INDEX_BITS, length);
	uint64_t arenas = (needed + ARENA_CHUNKS - 1) / ARENA_CHUNKS;

	if (arenas >= ARENAS_MAX)
		arenas = ARENAS_MAX;
	return (uint32_t)(arenas * ARENA_CHUNKS);
}

static bool
wheel_create_chunks(struct wheel *wheel, uint32_t length)
{
	uint32_t most = chunks_max(length);
	size_t blank_words = ((size_t)most / PAGE_CHUNKS + 63) / 64;

	wheel->arenas = system_map(TABLE_BYTES);
	if (wheel->arenas == NULL)
		return false;
	wheel->free_bytes = blank_words * sizeof(uint64_t) +
	    KEPT_PIECES * sizeof(aptr_t) + bitmap_bytes(most);
	wheel->blank = system_map(wheel->free_bytes);
	if (wheel->blank == NULL) {
		system_unmap(wheel->arenas, TABLE_BYTES);
		return false;
	}
	wheel->kept = (void *)(wheel->blank + blank_words);
	bitmap_create(&wheel->free, most, wheel->kept + KEPT_PIECES);
	wheel->carved = 1;
	return true;
}

int
wheel_create(struct wheel *wheel, const struct record_store *store,
    uint32_t length, a64_t *memory_bytes)
{
	size_t bucket_bytes = length * sizeof(struct bucket);
	char *memory;

	wheel->store = store;
	wheel->mask = length - 1;
	wheel->bits = (uint32_t)__builtin_ctz(length);
	wheel->next_tick = 1;
	wheel->sweep_at = SWEEP_MIN;
	wheel->memory_bytes = memory_bytes;
	wheel->bytes = bucket_bytes + bitmap_bytes(length);
	memory = system_map(wheel->bytes);
	if (memory == NULL)
		return -ENOMEM;
	if (!wheel_create_chunks(wheel, length)) {
		system_unmap(memory, wheel->bytes);
		return -ENOMEM;
	}
	wheel->buckets = (void *)memory;
	bitmap_create(&wheel->filled, length, memory + bucket_bytes);
	(void)a64_add_relaxed(memory_bytes, wheel->bytes);
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
	for (i = 0; i < KEPT_PIECES; i++) {
		void *piece = aptr_load_acquire(&wheel->kept[i]);

		if (piece == NULL)
			break;
		system_unmap(piece, KEPT_BYTES);
	}
	system_unmap(wheel->arenas, TABLE_BYTES);
	system_unmap(wheel->blank, wheel->free_bytes);
	system_unmap(wheel->buckets, wheel->bytes);
}

static bool
reserve_kept(struct wheel *wheel, uint64_t records)
{
	uint32_t pieces = (uint32_t)((records - 1) >> KEPT_BITS) + 1;
	uint32_t i;

	for (i = 0; i < pieces; i++) {
		void *piece;

		if (aptr_load_acquire(&wheel->kept[i]) != NULL)
			continue;
		piece = system_map(KEPT_BYTES);
		if (piece == NULL)
			return false;
		/* E:chunks release */
		aptr_store_release(&wheel->kept[i], piece);
	}
	return true;
}

bool
wheel_reserve(struct wheel *wheel, uint64_t records)
{
	uint64_t needed = chunks_for(records, wheel->mask + 1);
	void *arena;

	while (wheel->capacity < needed) {
		if (wheel->capacity >= wheel->free.length)
			return false;
		arena = system_map(ARENA_BYTES);
		if (arena == NULL)
			return false;
		/* E:chunks release */
		aptr_store_release(
		    &wheel->arenas[wheel->capacity >> ARENA_BITS], arena);
		wheel->capacity += ARENA_CHUNKS;
	}
	if (!reserve_kept(wheel, records))
		return false;
	/* E:chunks release */
	a64_store_release(&wheel->entries_max, records * ENTRIES_PER_RECORD);
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

/* The first bit at or after from; length: none. */
static uint32_t
bitmap_find(const struct bitmap *bitmap, uint32_t from)
{
	uint32_t end = bitmap->length;
	uint32_t level = 0;
	uint64_t word;

	if (from >= end)
		return end;
	for (;;) { /* upwards, to a word with a bit at or after from */
		word = bitmap->level[level][from / 64] >> from % 64;
		if (word != 0)
			break;
		from = from / 64 + 1;
		if (++level == bitmap->levels ||
		    from >= bitmap_words(end, level - 1))
			return end;
	}
	from += (uint32_t)__builtin_ctzll(word);
	while (level-- > 0) /* and down again, to its first bit */
		from = from * 64 +
		    (uint32_t)__builtin_ctzll(bitmap->level[level][from]);
	return from;
}

static bool
page_is_blank(const struct wheel *wheel, uint32_t page)
{
	return wheel->blank[page / 64] >> page % 64 & 1;
}

/* From its first new chunk on, a page takes memory again. */
static void
page_fill(struct wheel *wheel, uint32_t page)
{
	if (!page_is_blank(wheel, page))
		return;
	wheel->blank[page / 64] &= ~(UINT64_C(1) << page % 64);
	(void)a64_add_relaxed(wheel->memory_bytes, PAGE_BYTES);
}

static uint32_t
chunk_alloc(struct wheel *wheel)
{
	uint32_t chunk = bitmap_find(&wheel->free, 0);

	if (chunk < wheel->free.length) {
		bitmap_clear(&wheel->free, chunk);
		page_fill(wheel, chunk / PAGE_CHUNKS);
		return chunk;
	}
	assert(wheel->carved < wheel->free.length);
	(void)a64_add_relaxed(wheel->memory_bytes, sizeof(struct chunk));
	return wheel->carved++;
}

/* False: it stays. */
static bool
page_release(struct wheel *wheel, uint32_t page)
{
	if (!system_release(chunk_at(wheel, page * PAGE_CHUNKS), PAGE_BYTES))
		return false;
	wheel->blank[page / 64] |= UINT64_C(1) << page % 64;
	(void)a64_add_relaxed(wheel->memory_bytes, -(uint64_t)PAGE_BYTES);
	return true;
}

static bool
page_is_free(const struct wheel *wheel, uint32_t page)
{
	uint64_t word = wheel->free.level[0][page / 2];

	return (uint32_t)(word >> page % 2 * PAGE_CHUNKS) == UINT32_MAX;
}

bool
wheel_trim(struct wheel *wheel)
{
	uint32_t pages = TRIM_PAGES;
	uint32_t end = wheel->carved / PAGE_CHUNKS;
	uint32_t page = wheel->trimmed;

	for (; page < end && pages > 0; page++) {
		if (!page_is_free(wheel, page) || page_is_blank(wheel, page))
			continue;
		pages--;
		if (!page_release(wheel, page))
			page = end - 1;
	}
	wheel->trimmed = page < end ? page : 0;
	return page < end;
}

uint64_t
wheel_reach(const struct wheel *wheel, uint64_t tick)
{
	uint64_t now = wheel->next_tick >> wheel->bits;
	uint64_t round = tick >> wheel->bits;

	if (tick < wheel->next_tick)
		return wheel->next_tick;
	if (round - now < ROUND_FAR)
		return tick;
	return (now + ROUND_FAR) << wheel->bits | (tick & wheel->mask);
}

static void
list_add(struct wheel *wheel, struct list *list, struct entry entry)
{
	struct chunk *chunk;
	uint32_t at = list->last;

	if (list->first == 0 || round_before(entry.round, list->round_min))
		list->round_min = entry.round;
	if (list->first == 0 || chunk_at(wheel, at)->count == CHUNK_ENTRIES) {
		at = chunk_alloc(wheel);
		chunk = chunk_at(wheel, at);
		chunk->next = 0;
		chunk->count = 0;
		if (list->first == 0)
			list->first = at;
		else
			chunk_at(wheel, list->last)->next = at;
		list->last = at;
	}
	chunk = chunk_at(wheel, at);
	chunk->entry[chunk->count++] = entry;
}

static void
bucket_add(struct wheel *wheel, uint32_t number, struct entry entry)
{
	struct bucket *bucket = &wheel->buckets[number];
	uint32_t ahead =
	    entry.round - (uint32_t)(wheel->next_tick >> wheel->bits);

	if (bucket->near.first == 0 && bucket->far.first == 0)
		bitmap_set(&wheel->filled, number);
	list_add(
	    wheel, ahead < NEAR_ROUNDS ? &bucket->near : &bucket->far, entry);
}

static void
bucket_update_bit(struct wheel *wheel, uint32_t number)
{
	const struct bucket *bucket = &wheel->buckets[number];

	if (bucket->near.first == 0 && bucket->far.first == 0)
		bitmap_clear(&wheel->filled, number);
	else
		bitmap_set(&wheel->filled, number);
}

void
wheel_place(struct wheel *wheel, uint32_t index, uint64_t tick)
{
	struct entry entry = {.index = index};

	/* E:chunks acquire */
	if (wheel->entries >= a64_load_acquire(&wheel->entries_max))
		wheel_sweep_all(wheel);
	tick = wheel_reach(wheel, tick);
	if (tick < wheel->earliest)
		wheel->earliest = tick;
	if (tick - wheel->next_tick > INT32_MAX)
		wheel->ambiguous = true;
	entry.round = (uint32_t)(tick >> wheel->bits);
	record_at(wheel->store, index)->placed = (uint32_t)tick;
	wheel->entries++;
	bucket_add(wheel, (uint32_t)tick & wheel->mask, entry);
}

/* Half a tick's number tells how far it is, if none was ever too far for that;
 * and what is late goes to the next tick. */
bool
wheel_covers(const struct wheel *wheel, uint32_t index, uint64_t tick)
{
	uint32_t placed = record_at(wheel->store, index)->placed;
	uint64_t ahead = tick > wheel->next_tick ? tick - wheel->next_tick : 0;

	return !wheel->ambiguous &&
	    placed - (uint32_t)wheel->next_tick <= ahead;
}

/* Goes through a list's entries once. What is kept goes back to the list, as
 * what is added meanwhile does, into the free chunks with the least numbers. A
 * chunk is free as soon as it is entered: its entries are read from a copy. */
static void
sieve_enter(struct wheel *wheel, struct sieve *sieve, uint32_t at)
{
	const struct chunk *chunk;
	uint32_t i;

	sieve->slot = sieve->read.count = 0;
	sieve->read.next = 0;
	if (at == 0)
		return;
	chunk = chunk_at(wheel, at);
	sieve->read = *chunk;
	bitmap_set(&wheel->free, at);
	if (chunk->next != 0)
		__builtin_prefetch(chunk_at(wheel, chunk->next));
	for (i = 0; i < chunk->count; i++) {
		if (sieve->every || chunk->entry[i].round == sieve->round)
			__builtin_prefetch(
			    record_at(wheel->store, chunk->entry[i].index));
	}
}

/* Whether the records of every entry will be looked at, or those of a round. */
static void
sieve_start(struct wheel *wheel, struct sieve *sieve, struct list *list,
    bool every, uint32_t round)
{
	*sieve = (struct sieve){
	    .list = list,
	    .every = every,
	    .round = round,
	    .last = list->last,
	};
	sieve_enter(wheel, sieve, list->first);
	list->first = 0;
}

static bool
sieve_next(struct wheel *wheel, struct sieve *sieve, struct entry *entry)
{
	if (sieve->slot == sieve->read.count) {
		if (sieve->read.next == 0)
			return false;
		sieve_enter(wheel, sieve, sieve->read.next);
	}
	*entry = sieve->read.entry[sieve->slot++];
	return true;
}

static void
sieve_keep(struct wheel *wheel, struct sieve *sieve, struct entry entry)
{
	list_add(wheel, sieve->list, entry);
}

/* Before the last entry: the chunks that were not read stay as they are, behind
 * the others. No entry has an earlier round than the sieve's. */
static void
sieve_stop(struct wheel *wheel, struct sieve *sieve)
{
	struct list *list = sieve->list;

	while (sieve->slot < sieve->read.count)
		sieve_keep(wheel, sieve, sieve->read.entry[sieve->slot++]);
	if (sieve->read.next == 0)
		return;
	if (list->first == 0 || round_before(sieve->round, list->round_min))
		list->round_min = sieve->round;
	if (list->first == 0)
		list->first = sieve->read.next;
	else
		chunk_at(wheel, list->last)->next = sieve->read.next;
	list->last = sieve->last;
}

/* What comes near of a bucket's far entries, as seen from round. */
static void
bucket_draw_near(struct wheel *wheel, struct bucket *bucket, uint32_t round)
{
	struct sieve sieve;
	struct entry entry;

	if (bucket->far.first == 0 ||
	    round_before(round, bucket->far.round_min))
		return;
	sieve_start(wheel, &sieve, &bucket->far, false, round);
	while (sieve_next(wheel, &sieve, &entry)) {
		if (round_before(entry.round, round + NEAR_ROUNDS))
			list_add(wheel, &bucket->near, entry);
		else
			sieve_keep(wheel, &sieve, entry);
	}
}

void
wheel_walk_start(struct wheel *wheel, struct wheel_walk *walk, uint64_t tick)
{
	struct bucket *bucket = &wheel->buckets[tick & wheel->mask];
	uint32_t round = (uint32_t)(tick >> wheel->bits);

	walk->bucket = (uint32_t)tick & wheel->mask;
	walk->passed = 0;
	if (tick == wheel->earliest)
		wheel->earliest_known = false;
	bucket_draw_near(wheel, bucket, round);
	sieve_start(wheel, &walk->sieve, &bucket->near, false, round);
}

void
wheel_look_start(struct wheel *wheel, struct wheel_walk *walk, uint64_t tick)
{
	struct bucket *bucket = &wheel->buckets[tick & wheel->mask];
	uint32_t round = (uint32_t)(tick >> wheel->bits);
	bool near = bucket->near.first != 0 &&
	    !round_before(round, bucket->near.round_min);

	walk->bucket = (uint32_t)tick & wheel->mask;
	walk->passed = 0;
	wheel->earliest_known = false;
	sieve_start(wheel, &walk->sieve, near ? &bucket->near : &bucket->far,
	    false, round);
}

uint32_t
wheel_walk_next(struct wheel *wheel, struct wheel_walk *walk)
{
	struct entry entry;

	while (sieve_next(wheel, &walk->sieve, &entry)) {
		if (entry.round == walk->sieve.round) {
			wheel->entries--;
			return entry.index;
		}
		walk->passed++;
		sieve_keep(wheel, &walk->sieve, entry);
	}
	bucket_update_bit(wheel, walk->bucket);
	return 0;
}

void
wheel_walk_stop(struct wheel *wheel, struct wheel_walk *walk)
{
	sieve_stop(wheel, &walk->sieve);
	bucket_update_bit(wheel, walk->bucket);
}

void
wheel_walk_keep(struct wheel *wheel, struct wheel_walk *walk, uint32_t index)
{
	wheel->entries++;
	sieve_keep(wheel, &walk->sieve,
	    (struct entry){.round = walk->sieve.round, .index = index});
	wheel_walk_stop(wheel, walk);
}

/* The tick of a list's first entry by its bound, in the bucket that is distance
 * ticks after next_tick. A bound that is behind counts as the present round. */
static uint64_t
list_tick(const struct wheel *wheel, const struct list *list, uint32_t distance)
{
	uint64_t pass = wheel->next_tick + distance;
	uint32_t rounds = list->round_min - (uint32_t)(pass >> wheel->bits);

	if (list->first == 0)
		return TICK_NEVER;
	if ((int32_t)rounds <= 0)
		return pass;
	return pass + ((uint64_t)rounds << wheel->bits);
}

/* Goes through buckets that are not empty in the order in which the wheel
 * comes to them, up to limit ticks away, and returns the tick of the first
 * whose bound lies in the present round, or else the earliest of all. When it
 * has looked at *budget of them, it is the tick up to which nothing was found
 * that counts, and *budget is 0. */
static uint64_t
wheel_search(const struct wheel *wheel, uint64_t limit, uint32_t *budget)
{
	uint32_t start = (uint32_t)wheel->next_tick & wheel->mask;
	uint32_t length = wheel->mask + 1;
	uint32_t at = bitmap_find(&wheel->filled, start);
	uint64_t best = TICK_NEVER;
	bool wrapped = false;
	uint64_t near, far;
	uint32_t distance;

	for (;; at = bitmap_find(&wheel->filled, at + 1)) {
		if (at >= length && !wrapped) {
			wrapped = true;
			at = bitmap_find(&wheel->filled, 0);
		}
		if (at >= length || (wrapped && at >= start))
			return best;
		distance = (at - start) & wheel->mask;
		if (distance > limit)
			return best;
		if (--*budget == 0) /* what was found is a round later */
			return wheel->next_tick + distance;
		near = list_tick(wheel, &wheel->buckets[at].near, distance);
		far = list_tick(wheel, &wheel->buckets[at].far, distance);
		if (far < near)
			near = far;
		if (near < best)
			best = near;
		if (near == wheel->next_tick + distance)
			return best;
	}
}

uint64_t
wheel_next(const struct wheel *wheel, uint64_t last)
{
	uint32_t budget = UINT32_MAX;
	uint64_t tick;

	if (last < wheel->next_tick)
		return TICK_NEVER;
	tick = wheel_search(wheel, last - wheel->next_tick, &budget);
	return tick <= last ? tick : TICK_NEVER;
}

uint64_t
wheel_earliest(struct wheel *wheel, uint32_t *budget)
{
	if (!wheel->earliest_known) {
		wheel->earliest = wheel_search(wheel, UINT64_MAX, budget);
		wheel->earliest_known = *budget > 0;
	}
	return wheel->earliest;
}

/* Whether an entry of that tick is the record's own, and the record PLACED. If
 * it is not PLACED, it loses its entry: whoever uses it next queues it. */
static bool
entry_is_live(const struct wheel *wheel, struct entry entry, uint32_t tick)
{
	struct record *record;
	uint64_t word;

	if (trim_is_blank(wheel->store, entry.index))
		return false;
	record = record_at(wheel->store, entry.index);
	do {
		word = pair_word(&record->pair);
		if (!(word & FLAG_BUCKETED) || record->placed != tick)
			return false;
		if (word_state(word) == STATE_PLACED)
			return true;
	} while (!pair_cas_word(&record->pair, word, word & ~FLAG_BUCKETED));
	return false;
}

/* The word with a record's bit in the set of those that are kept. */
static inline uint64_t *
kept_word(const struct wheel *wheel, uint32_t index)
{
	/* E:chunks acquire */
	uint64_t *piece = aptr_load_acquire(&wheel->kept[index >> KEPT_BITS]);

	return &piece[(index & (8 * KEPT_BYTES - 1)) / 64];
}

/* Of a record's entries at the tick placed, one is kept. As placed has half of
 * a tick's number, that is the first of them: the worker may look at the record
 * too early, but not too late. */
static bool
sweep_keeps(struct wheel *wheel, struct entry entry, uint32_t number)
{
	struct record *record = record_at(wheel->store, entry.index);
	uint64_t *kept = kept_word(wheel, entry.index);
	uint64_t bit = UINT64_C(1) << entry.index % 64;
	uint32_t tick = entry.round << wheel->bits | number;

	if (*kept & bit) {
		if (record->placed << wheel->bits == tick - number &&
		    round_before(entry.round, record->placed))
			record->placed = entry.round;
		return false;
	}
	if (!entry_is_live(wheel, entry, tick))
		return false;
	*kept |= bit;
	record->placed = entry.round;
	return true;
}

/* Returns how many entries there were. */
static uint64_t
list_sweep(struct wheel *wheel, struct list *list, uint32_t number)
{
	uint64_t entries = 0;
	struct sieve sieve;
	struct entry entry;

	sieve_start(wheel, &sieve, list, true, 0);
	for (; sieve_next(wheel, &sieve, &entry); entries++) {
		if (sweep_keeps(wheel, entry, number))
			sieve_keep(wheel, &sieve, entry);
		else
			wheel->entries--;
	}
	return entries;
}

/* What was kept is as it was, or earlier. */
static void
list_restore(struct wheel *wheel, struct list *list, uint32_t number)
{
	struct record *record;
	struct chunk *chunk;
	struct entry *entry;
	uint32_t at, i;

	for (at = list->first; at != 0; at = chunk->next) {
		chunk = chunk_at(wheel, at);
		for (i = 0; i < chunk->count; i++) {
			entry = &chunk->entry[i];
			record = record_at(wheel->store, entry->index);
			entry->round = record->placed;
			if (round_before(entry->round, list->round_min))
				list->round_min = entry->round;
			record->placed = entry->round << wheel->bits | number;
			*kept_word(wheel, entry->index) &=
			    ~(UINT64_C(1) << entry->index % 64);
		}
	}
}

static uint64_t
bucket_sweep(struct wheel *wheel, uint32_t number)
{
	struct bucket *bucket = &wheel->buckets[number];
	uint64_t entries = list_sweep(wheel, &bucket->near, number);

	entries += list_sweep(wheel, &bucket->far, number);
	list_restore(wheel, &bucket->near, number);
	list_restore(wheel, &bucket->far, number);
	bucket_update_bit(wheel, number);
	return entries;
}

static void
sweep_end(struct wheel *wheel)
{
	wheel->swept = 0;
	wheel->sweeping = false;
	wheel->earliest_known = false;
	wheel_sweep_later(wheel);
}

void
wheel_sweep_later(struct wheel *wheel)
{
	uint64_t most = a64_load_relaxed(&wheel->entries_max) / 3 * 2;

	wheel->sweep_at = 2 * wheel->entries;
	if (wheel->sweep_at < SWEEP_MIN)
		wheel->sweep_at = SWEEP_MIN;
	else if (wheel->sweep_at > most)
		wheel->sweep_at = most;
}

void
wheel_sweep_start(struct wheel *wheel)
{
	wheel->sweeping = true;
}

bool
wheel_sweep(struct wheel *wheel)
{
	uint64_t looks = 0;
	uint32_t at;

	while (wheel->sweeping && looks < SWEEP_STEP) {
		at = bitmap_find(&wheel->filled, wheel->swept);
		if (at > wheel->mask) {
			sweep_end(wheel);
			break;
		}
		looks += bucket_sweep(wheel, at);
		wheel->swept = at + 1;
	}
	return wheel->sweeping;
}

/* In the middle of a walk, it would not see what the walk still has to read;
 * but there, something was always taken out before. */
void
wheel_sweep_all(struct wheel *wheel)
{
	uint32_t at = 0;

	while ((at = bitmap_find(&wheel->filled, at)) <= wheel->mask)
		(void)bucket_sweep(wheel, at++);
	sweep_end(wheel);
}
