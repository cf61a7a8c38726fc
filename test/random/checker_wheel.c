/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets, chunks and their entries. See checker.h and ../../wheel.c, whose
 * invariants have the numbers that are named here. */
#include "test/random/checker.h"

#define ARENA_CHUNKS 4096u
#define SLOT_BITS 4

/* What one bucket's entries say. */
struct bucket_view {
	uint32_t number;
	uint32_t entries;
	uint32_t round_min;
};

static const struct chunk *
chunk_of(const struct wheel *wheel, uint32_t chunk)
{
	const struct chunk *arena =
	    aptr_load_acquire(&wheel->arenas[chunk / ARENA_CHUNKS]);

	return &arena[chunk % ARENA_CHUNKS];
}

static bool
chunk_exists(const struct wheel *wheel, uint32_t chunk)
{
	return chunk != 0 && chunk < wheel->carved;
}

/* The tick of an entry: of those that have its bucket and the low half of its
 * round, the one next to the present. */
static uint64_t
entry_tick(const struct wheel *wheel, uint32_t number, uint32_t round)
{
	uint64_t now = wheel->next_tick >> wheel->bits;
	int32_t ahead = (int32_t)(round - (uint32_t)now);

	return ((now + (uint64_t)(int64_t)ahead) << wheel->bits) | number;
}

uint64_t
checker_place_tick(const struct hwt *timer, uint32_t index)
{
	const struct wheel *wheel = &timer->wheel;
	uint32_t place = record_at(&timer->store, index)->place;
	const struct chunk *chunk;

	if (place == 0)
		return TICK_NEVER;
	chunk = chunk_of(wheel, place >> SLOT_BITS);
	return entry_tick(wheel, chunk->bucket,
	    chunk->entry[place % (1u << SLOT_BITS)].round);
}

static bool
check_entry(struct checker *checker, struct bucket_view *view, uint32_t chunk,
    uint32_t slot)
{
	const struct wheel *wheel = &checker->timer->wheel;
	const struct entry *entry = &chunk_of(wheel, chunk)->entry[slot];
	uint32_t index = entry->index;
	uint64_t tick = entry_tick(wheel, view->number, entry->round);

	must(checker_knows(checker, index), index,
	    "wheel: an entry names a record that exists");
	must(checker->placed.times[index]++ == 0, index,
	    "wheel: a record is in one bucket");
	must(record_at(&checker->timer->store, index)->place ==
		(chunk << SLOT_BITS | slot),
	    index, "wheel 4: place is that of the entry");
	must(tick >= wheel->next_tick || checker_stopping(checker), index,
	    "wheel 1: entries lie at ticks to come");
	if (view->entries++ == 0 ||
	    (int32_t)(entry->round - view->round_min) < 0)
		view->round_min = entry->round;
	if (tick < checker->earliest)
		checker->earliest = tick;
	return true;
}

static bool
check_chunk(
    struct checker *checker, struct bucket_view *view, uint32_t at, bool first)
{
	const struct wheel *wheel = &checker->timer->wheel;
	const struct chunk *chunk;
	uint32_t slot;

	must(chunk_exists(wheel, at), 0, "wheel: links lead to chunks");
	must(checker->chunks.times[at]++ == 0, 0,
	    "wheel: a chunk is in one place");
	chunk = chunk_of(wheel, at);
	must(chunk->bucket == view->number, 0,
	    "wheel: a chunk knows its bucket");
	must(chunk->count > 0 && chunk->count <= CHUNK_ENTRIES, 0,
	    "wheel 2: no chunk is empty");
	must(first || chunk->count == CHUNK_ENTRIES, 0,
	    "wheel 2: chunks but the first are full");
	for (slot = 0; slot < chunk->count; slot++) {
		if (!check_entry(checker, view, at, slot))
			return false;
	}
	return true;
}

static bool
check_bucket(struct checker *checker, uint32_t number)
{
	const struct wheel *wheel = &checker->timer->wheel;
	const struct bucket *bucket = &wheel->buckets[number];
	struct bucket_view view = {.number = number};
	uint32_t first = bucket->first;
	uint32_t at;

	for (at = first; at != 0; at = chunk_of(wheel, at)->next) {
		if (!check_chunk(checker, &view, at, at == first))
			return false;
	}
	must((int32_t)(view.round_min - bucket->round_min) >= 0, 0,
	    "wheel: no entry before its bucket's bound");
	must(bucket->loose || view.round_min == bucket->round_min ||
		checker_stopping(checker),
	    0, "wheel: a bound that is not loose is exact");
	return true;
}

static size_t
words_of(const struct wheel *wheel, uint32_t level)
{
	size_t words = (size_t)wheel->mask + 1;

	do
		words = (words + 63) / 64;
	while (level-- > 0);
	return words;
}

/* The bits that a word of the lowest level must have. */
static uint64_t
bucket_bits(const struct wheel *wheel, uint32_t word)
{
	uint32_t number = word * 64;
	uint64_t bits = 0;
	uint32_t i;

	for (i = 0; i < 64 && number + i <= wheel->mask; i++)
		bits |= (uint64_t)(wheel->buckets[number + i].first != 0) << i;
	return bits;
}

static bool
check_levels(struct checker *checker)
{
	const struct wheel *wheel = &checker->timer->wheel;
	uint32_t level;
	size_t i;

	must(wheel->levels <= WHEEL_LEVELS &&
		words_of(wheel, wheel->levels - 1) == 1,
	    0, "wheel 3: levels up to one word");
	for (level = 1; level < wheel->levels; level++) {
		const uint64_t *below = wheel->level[level - 1];
		const uint64_t *words = wheel->level[level];

		for (i = 0; i < words_of(wheel, level) * 64; i++)
			must((words[i / 64] >> i % 64 & 1) ==
				(i < words_of(wheel, level - 1) &&
				    below[i] != 0),
			    0, "wheel 3: a bit for each word that has bits");
	}
	return true;
}

static bool
check_buckets(struct checker *checker)
{
	const struct wheel *wheel = &checker->timer->wheel;
	uint32_t words = (uint32_t)words_of(wheel, 0);
	uint32_t word;

	for (word = 0; word < words; word++) {
		uint64_t bits = bucket_bits(wheel, word);

		must(wheel->level[0][word] == bits, 0,
		    "wheel 3: a bit for each bucket that has a chunk");
		for (; bits != 0; bits &= bits - 1) {
			if (!check_bucket(checker,
				word * 64 + (uint32_t)__builtin_ctzll(bits)))
				return false;
		}
	}
	return true;
}

static bool
check_chunks(struct checker *checker)
{
	const struct wheel *wheel = &checker->timer->wheel;
	uint32_t chunk;

	must(wheel->carved == 1 || wheel->carved <= wheel->capacity, 0,
	    "wheel: chunks within their arenas");
	for (chunk = wheel->free; chunk != 0;
	     chunk = chunk_of(wheel, chunk)->next) {
		must(chunk_exists(wheel, chunk), 0,
		    "wheel: a free chunk exists");
		must(checker->chunks.times[chunk]++ == 0, 0,
		    "wheel: a chunk is in one place");
	}
	for (chunk = 1; chunk < wheel->carved; chunk++)
		must(checker->chunks.times[chunk] == 1, 0,
		    "wheel: a chunk is somewhere");
	return true;
}

bool
check_wheel(struct checker *checker)
{
	const struct wheel *wheel = &checker->timer->wheel;

	must(wheel->mask + 1 == 1u << wheel->bits, 0,
	    "wheel: a power of two of buckets");
	must(wheel->store == &checker->timer->store, 0, "wheel: its store");
	if (!check_levels(checker) || !check_buckets(checker) ||
	    !check_chunks(checker))
		return false;
	must(!wheel->earliest_known || wheel->earliest == checker->earliest, 0,
	    "wheel: the earliest tick, when it is known");
	return true;
}
