/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets, chunks and their entries. See checker.h and ../../wheel.c, whose
 * invariants have the numbers that are named here. */
#include "test/random/checker.h"

#define ARENA_CHUNKS 4096u
#define SLACK 3u

/* What one list's entries say. */
struct list_view {
	uint32_t number; /* the bucket's */
	uint32_t chunks, full;
	bool filled;
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
chunk_is_blank(const struct wheel *wheel, uint32_t chunk)
{
	uint32_t page = chunk / 32;

	return wheel->blank[page / 64] >> page % 64 & 1;
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

static bool
check_entry(
    struct checker *checker, struct list_view *view, const struct entry *entry)
{
	const struct wheel *wheel = &checker->timer->wheel;
	uint64_t tick = entry_tick(wheel, view->number, entry->round);
	const struct record *record;
	uint32_t index = entry->index;

	must(checker_knows(checker, index), index,
	    "wheel: an entry names a record that exists");
	must(tick >= wheel->next_tick || checker_stopping(checker), index,
	    "wheel 1: entries lie at ticks to come");
	record = record_at(&checker->timer->store, index);
	if ((pair_word(&record->pair) & FLAG_BUCKETED) &&
	    record->placed == (uint32_t)tick && tick < checker->own[index])
		checker->own[index] = tick;
	if (!view->filled || (int32_t)(entry->round - view->round_min) < 0)
		view->round_min = entry->round;
	view->filled = true;
	if (tick < checker->earliest)
		checker->earliest = tick;
	checker->entries++;
	return true;
}

static bool
check_chunk(struct checker *checker, struct list_view *view, uint32_t at)
{
	const struct wheel *wheel = &checker->timer->wheel;
	const struct chunk *chunk;
	uint32_t slot;

	must(chunk_exists(wheel, at), 0, "wheel: links lead to chunks");
	must(checker->chunks.times[at]++ == 0, 0,
	    "wheel 5: a chunk is in one place");
	chunk = chunk_of(wheel, at);
	must(chunk->count > 0 && chunk->count <= CHUNK_ENTRIES, 0,
	    "wheel 4: no chunk is empty");
	view->chunks++;
	view->full += chunk->count == CHUNK_ENTRIES;
	for (slot = 0; slot < chunk->count; slot++) {
		if (!check_entry(checker, view, &chunk->entry[slot]))
			return false;
	}
	return true;
}

static bool
check_list(struct checker *checker, const struct list *list, uint32_t number)
{
	const struct wheel *wheel = &checker->timer->wheel;
	struct list_view view = {.number = number};
	uint32_t at;

	for (at = list->first; at != 0; at = chunk_of(wheel, at)->next) {
		if (!check_chunk(checker, &view, at))
			return false;
	}
	must(!view.filled || view.round_min == list->round_min ||
		checker_stopping(checker),
	    0, "wheel 4: a list's bound is its earliest round");
	must(view.chunks - view.full <= SLACK, 0,
	    "wheel 4: chunks but a few are full");
	return true;
}

static bool
check_bucket(struct checker *checker, uint32_t number)
{
	const struct bucket *bucket = &checker->timer->wheel.buckets[number];

	return check_list(checker, &bucket->near, number) &&
	    check_list(checker, &bucket->far, number);
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
		bits |= (uint64_t)(wheel->buckets[number + i].near.first != 0 ||
			    wheel->buckets[number + i].far.first != 0)
		    << i;
	return bits;
}

static bool
check_levels(struct checker *checker)
{
	const struct wheel *wheel = &checker->timer->wheel;
	uint32_t level;
	size_t i;

	must(wheel->filled.levels <= WHEEL_LEVELS &&
		words_of(wheel, wheel->filled.levels - 1) == 1,
	    0, "wheel 3: levels up to one word");
	for (level = 1; level < wheel->filled.levels; level++) {
		const uint64_t *below = wheel->filled.level[level - 1];
		const uint64_t *words = wheel->filled.level[level];

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
	for (chunk = 0; chunk < wheel->carved; chunk++) {
		bool is_free =
		    wheel->free.level[0][chunk / 64] >> chunk % 64 & 1;

		must(is_free || !chunk_is_blank(wheel, chunk), 0,
		    "wheel 5: what is blank is free");
		must(chunk == 0 || checker->chunks.times[chunk] + is_free == 1,
		    0, "wheel 5: a chunk is in one place");
	}
	must((wheel->free.level[0][wheel->carved / 64] >> wheel->carved % 64) ==
		0,
	    0, "wheel 5: what was never used is not free");
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
	must(wheel->entries == checker->entries, 0, "wheel: entries counted");
	must(wheel->entries <= a64_load_acquire(&wheel->entries_max), 0,
	    "wheel: there is room for all entries");
	must(!wheel->earliest_known || wheel->earliest == checker->earliest, 0,
	    "wheel: the earliest tick, when it is known");
	return true;
}
