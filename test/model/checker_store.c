/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs, pages, caches and the free set. See checker.h and core/record.c. */
#include "test/model/checker.h"

#include <string.h>

static bool
is_zero(const void *memory, size_t bytes)
{
	const char *first = memory;

	return *first == 0 && memcmp(first, first + 1, bytes - 1) == 0;
}

static const void *
page_of(const struct slab *slab, uint32_t page)
{
	return (const char *)(const void *)slab + page * PAGE_BYTES;
}

static bool
check_pages(struct checker *checker, const struct slab *slab)
{
	uint32_t first = slab->first_index;
	uint32_t page;

	for (page = 0; page < HEADER_PAGES; page++)
		must(!checker_is_committed(slab, page), first,
		    "store: the header has no records");
	for (; page < SLAB_PAGES; page++) {
		if (checker_is_committed(slab, page)) {
			checker->pages++;
			continue;
		}
		must(is_zero(page_of(slab, page), PAGE_BYTES),
		    first + page * PAGE_RECORDS,
		    "record 3: a page that is not committed reads as 0");
		must(a64_load_acquire(&slab->free_bits[page]) == PAGE_ALL,
		    first + page * PAGE_RECORDS,
		    "record 3: and all its records are free");
	}
	return true;
}

static bool
check_slab(struct checker *checker, uint32_t number)
{
	const struct hwt *timer = checker->timer;
	const struct slab *slab = slab_at(&timer->store, number);
	uint32_t first = number << SLAB_BITS;

	must(slab != NULL, first, "record 2: each slab is in the table");
	must((uintptr_t)slab % SLAB_BYTES == 0, first,
	    "store: a slab lies on a boundary of its size");
	if (checker_is_idle(checker, number)) {
		must(is_zero(slab, SLAB_BYTES), first,
		    "record 3: an idle slab reads as 0");
		return true;
	}
	checker->open_slabs++;
	must(slab->timer == timer && slab->first_index == first, first,
	    "store: a slab knows timer and index");
	return check_pages(checker, slab);
}

/* Enough for the worst that its records can do. */
static bool
check_room(struct checker *checker, uint64_t records)
{
	const struct wheel *wheel = &checker->timer->wheel;
	uint64_t lists = 2 * ((uint64_t)wheel->mask + 1);
	uint64_t partial = records < lists ? records : lists;

	must(
	    records == 0 || wheel->capacity > records / CHUNK_ENTRIES + partial,
	    0, "record 2: the wheel has room for all records");
	return true;
}

bool
check_store(struct checker *checker)
{
	uint32_t limit = checker_limit(checker);
	uint32_t number;

	must(limit <= SLABS_MAX, 0, "store: limit");
	for (number = 0; number < limit; number++) {
		if (!check_slab(checker, number))
			return false;
	}
	must(limit == SLABS_MAX ||
		slab_at(&checker->timer->store, limit) == NULL,
	    0, "store: no slab beyond the limit");
	must(limit % 64 == 0 ||
		checker->timer->store.idle[limit / 64] >> limit % 64 == 0,
	    0, "store: none is idle there");
	return check_room(checker, (uint64_t)limit * SLAB_RECORDS);
}

static bool
note_free(struct checker *checker, uint32_t index)
{
	must(checker_knows(checker, index), index,
	    "record 1: a cache or the free set has a record that is there");
	must(checker->free.times[index]++ == 0, index,
	    "record 1: a free record is in one place");
	return true;
}

static bool
check_cache(struct checker *checker, const struct cache *cache)
{
	uint64_t owned = a64_load_acquire(&cache->owned);
	uint32_t i;

	must(owned <= 1, 0, "free: a cache has one owner or none");
	must(cache->count <= CACHE_SLOTS, 0, "free: a cache has its slots");
	must(cache->count == 0 || owned == 1, 0,
	    "free: a cache without an owner is empty");
	for (i = 0; i < cache->count; i++) {
		if (!note_free(checker, cache->slot[i]))
			return false;
	}
	return true;
}

static bool
check_caches(struct checker *checker)
{
	static const struct cache fresh;
	const struct record_store *store = &checker->timer->store;
	uint64_t used = a64_load_acquire(&store->caches_used);
	uint32_t i;

	must(used <= CACHES_MAX, 0, "free: caches within their array");
	for (i = 0; i < used; i++) {
		must(!store->caches[i].shared, 0, "free: one cache is shared");
		if (!check_cache(checker, &store->caches[i]))
			return false;
	}
	must(used == CACHES_MAX ||
		memcmp(&store->caches[used], &fresh, sizeof(fresh)) == 0,
	    0, "record 4: a cache that was never used is all zero");
	must(store->shared_cache.shared, 0, "free: the shared one is shared");
	return check_cache(checker, &store->shared_cache);
}

/* *complete counts the committed pages that are. */
static bool
check_free_page(struct checker *checker, const struct slab *slab, uint32_t page,
    uint64_t *complete)
{
	uint64_t bits = a64_load_acquire(&slab->free_bits[page]);
	uint32_t first = slab->first_index + page * PAGE_RECORDS;

	must(page >= HEADER_PAGES || bits == 0, first,
	    "free: the header has no free records");
	must((bits & ~PAGE_ALL) == 0, first, "free: a page has its records");
	if (!checker_is_committed(slab, page))
		return true;
	*complete += bits == PAGE_ALL;
	for (; bits != 0; bits &= bits - 1) {
		if (!note_free(
			checker, first + (uint32_t)__builtin_ctzll(bits)))
			return false;
	}
	return true;
}

bool
check_free(struct checker *checker)
{
	const struct record_store *store = &checker->timer->store;
	uint64_t complete = 0;
	uint32_t number, page;

	if (!check_caches(checker))
		return false;
	for (number = 0; number < checker_limit(checker); number++) {
		if (checker_is_idle(checker, number))
			continue;
		for (page = 0; page < SLAB_PAGES; page++) {
			if (!check_free_page(checker, slab_at(store, number),
				page, &complete))
				return false;
		}
	}
	must(a64_load_acquire(&store->free_pages) == complete, 0,
	    "free: complete pages are counted");
	return true;
}
