/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets, chunks and their entries. See checker.h and core/wheel.c, whose
 * invariants have the numbers that are named here. */
#include "test/model/checker.h"

#define ARENA_CHUNKS 4096u
#define PAGE_CHUNKS 32u
#define SLOT_BITS 4

static const struct chunk *
chunk_of(const struct wheel *wheel, uint32_t chunk)
{
	const struct chunk *arena =
	    aptr_load_acquire(&wheel->arenas[chunk / ARENA_CHUNKS]);

	return &arena[chunk % ARENA_CHUNKS];
}

static bool
chunk_is_free(const struct wheel *wheel, uint32_t chunk)
{
	return wheel->free.level[0][chunk / 64] >> chunk % 64 & 1;
}

static bool
chunk_is_decommitted(const struct wheel *wheel, uint32_t chunk)
{
	uint32_t page = chunk / PAGE_CHUNKS;

	return wheel->decommitted[page / 64] >> page % 64 & 1;
}

static bool
check_entry(
    struct checker *checker, uint32_t number, uint32_t at, uint32_t slot)
{
	const struct wheel *wheel = &checker->timer->wheel;
	const struct entry *entry = &chunk_of(wheel, at)->entry[slot];
	uint32_t index = entry->index;
	const struct record *record;
	uint64_t tick;

	must(checker_knows(checker, index), index,
	    "wheel 2: an entry names a record that is there");
	must(checker->entries.times[index]++ == 0, index,
	    "wheel 2: a record has one entry");
	record = record_at(&checker->timer->store, index);
	tick = record->entry_tick;
	must(record->entry_at == (at << SLOT_BITS | slot), index,
	    "wheel 2: entry_at is where the entry is");
	must((tick & wheel->mask) == number &&
		(uint32_t)(tick >> wheel->bits) == entry->round,
	    index, "wheel 2: in the bucket and the round of entry_tick");
	must(tick >= wheel->next_tick || checker_stopping(checker), index,
	    "wheel 1: entries lie at ticks to come");
	must(tick >= wheel->earliest, index,
	    "wheel 4: earliest is not after any entry");
	must((int32_t)(entry->round -
		 wheel->buckets[number]
		     .list[chunk_of(wheel, at)->which]
		     .round_min) >= 0,
	    index, "wheel 4: round_min is not after any entry");
	return true;
}

/* last: it is the last of its list. */
static bool
check_chunk(struct checker *checker, uint32_t number, uint32_t at, bool last)
{
	const struct wheel *wheel = &checker->timer->wheel;
	uint32_t count, slot;

	must(at < wheel->carved, 0, "wheel: links lead to chunks");
	must(checker->chunks.times[at]++ == 0, 0,
	    "wheel 5: a chunk is in one place");
	count = chunk_of(wheel, at)->count;
	must(count > 0 && count <= CHUNK_ENTRIES, 0,
	    "wheel 4: no chunk is empty");
	must(last || count == CHUNK_ENTRIES, 0,
	    "wheel 4: only the last chunk is not full");
	for (slot = 0; slot < count; slot++) {
		if (!check_entry(checker, number, at, slot))
			return false;
	}
	return true;
}

/* The tick at which the wheel comes to the bucket next. */
static uint64_t
pass_of(const struct wheel *wheel, uint32_t number)
{
	return wheel->next_tick +
	    ((number - (uint32_t)wheel->next_tick) & wheel->mask);
}

static bool
check_list(struct checker *checker, uint32_t number, enum which which)
{
	const struct wheel *wheel = &checker->timer->wheel;
	const struct list *list = &wheel->buckets[number].list[which];
	uint32_t last = list->last;
	uint32_t at;

	must(last == 0 || checker_stopping(checker) ||
		(int32_t)(list->round_min -
		    (uint32_t)(pass_of(wheel, number) >> wheel->bits)) >= 0,
	    0, "wheel 4: round_min is not behind");
	for (at = last; at != 0; at = chunk_of(wheel, at)->previous) {
		must(chunk_of(wheel, at)->which == which, 0,
		    "wheel: a chunk knows its list");
		if (!check_chunk(checker, number, at, at == last))
			return false;
	}
	return true;
}

static bool
check_bucket(struct checker *checker, uint32_t number)
{
	return check_list(checker, number, false) &&
	    check_list(checker, number, true);
}

static size_t
words_of(uint32_t length, uint32_t level)
{
	size_t words = length;

	do
		words = (words + 63) / 64;
	while (level-- > 0);
	return words;
}

/* Of the first bits, so many. */
static bool
check_levels(
    struct checker *checker, const struct bitmap *bitmap, uint32_t used)
{
	uint32_t level;
	size_t i;

	must(bitmap->levels <= BITMAP_LEVELS_MAX &&
		words_of(bitmap->length, bitmap->levels - 1) == 1,
	    0, "wheel 3: levels up to one word");
	for (level = 1; level < bitmap->levels; level++) {
		const uint64_t *below = bitmap->level[level - 1];
		const uint64_t *words = bitmap->level[level];

		for (i = 0; i < words_of(used, level - 1); i++)
			must((words[i / 64] >> i % 64 & 1) == (below[i] != 0),
			    0, "wheel 3: a bit for each word that has bits");
	}
	return true;
}

/* The bits that a word of the lowest level must have. */
static uint64_t
bucket_bits(const struct wheel *wheel, uint32_t word)
{
	uint32_t number = word * 64;
	uint64_t bits = 0;
	uint32_t i;

	for (i = 0; i < 64 && number + i <= wheel->mask; i++) {
		const struct list *list = wheel->buckets[number + i].list;

		if (list[0].last != 0 || list[1].last != 0)
			bits |= UINT64_C(1) << i;
	}
	return bits;
}

static bool
check_buckets(struct checker *checker)
{
	const struct wheel *wheel = &checker->timer->wheel;
	uint32_t words = (uint32_t)words_of(wheel->mask + 1, 0);
	uint32_t word;

	for (word = 0; word < words; word++) {
		uint64_t bits = bucket_bits(wheel, word);

		must(wheel->filled.level[0][word] == bits, 0,
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
	must(!chunk_is_free(wheel, 0), 0, "wheel: chunk 0 is none");
	for (chunk = 1; chunk < wheel->carved; chunk++) {
		bool is_free = chunk_is_free(wheel, chunk);

		must(is_free || !chunk_is_decommitted(wheel, chunk), 0,
		    "wheel 5: what is decommitted is free");
		must(checker->chunks.times[chunk] + is_free == 1, 0,
		    "wheel 5: a chunk is in one place");
		must(!is_free || chunk_of(wheel, chunk)->count == 0, 0,
		    "wheel 5: a free chunk has no entry");
	}
	must(wheel->free.level[0][chunk / 64] >> chunk % 64 == 0, 0,
	    "wheel 5: what was never used is not free");
	return true;
}

bool
check_wheel(struct checker *checker)
{
	const struct wheel *wheel = &checker->timer->wheel;

	must(wheel->mask + 1 == 1u << wheel->bits, 0,
	    "wheel: a power of two of buckets");
	must(wheel->store == &checker->timer->store, 0, "wheel: its store");
	must(wheel->earliest >= wheel->next_tick || checker_stopping(checker),
	    0, "wheel 4: earliest is not before next_tick");
	return check_levels(checker, &wheel->filled, wheel->mask + 1) &&
	    check_levels(checker, &wheel->free, wheel->carved) &&
	    check_buckets(checker) && check_chunks(checker);
}
