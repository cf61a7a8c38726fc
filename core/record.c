/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slabs, free records, the caches in which threads keep them, and releasing
 * memory to the system.
 *
 * Slabs are mapped when they are needed and stay until the timer is destroyed.
 * A free record is in a thread's cache, or in the free set, which all share.
 *
 * A cache is last in, first out: the record which was cancelled last, and is
 * still in the processor's cache, is scheduled next. An empty cache takes all
 * free records of a page by one swap, and more pages until it has enough. A
 * full one returns its older half, by an addition for each page. The free set
 * has a bit for each record (free_bits), for each page that may have some
 * (free_summary), and for each slab (free_top): see free_raise.
 *
 * TRIMMING. A page is complete when all its records are in the free set. When
 * there are TRIM_PAGES, the worker returns them to the system, a slab with each
 * call: it claims them as a caller would, removes the entries of their records
 * from the wheel, keeps the highest number of uses, releases the memory, and
 * returns the pages to the free set as not committed. A slab without a
 * committed page is released with its header; it is then idle, and is opened
 * again before another one is mapped. When a page is committed again, its
 * records start with the highest number of uses of any record of the slab that
 * was released: so no handle becomes valid again before its 36 bits have
 * wrapped. If the system refuses a page, as it does when memory is locked, the
 * worker leaves trim_refused set and stops trimming. The thread that next
 * raises the number of complete pages to TRIM_PAGES clears it (free_add).
 *
 * GROWING takes no lock, so that no thread, and above all not the worker, waits
 * for one that is in mmap. A thread that finds no free record takes the bit of
 * an idle slab, or maps a slab with all its records free and puts it into the
 * table. Two steps follow, in free_top and in limit, which any thread makes
 * that finds the slab in the table. Before it publishes its slab, a thread
 * looks for free records once more: threads that need memory at the same time
 * share a slab. One that is paused meanwhile costs others a slab at most.
 *
 * INVARIANTS
 *   1. The index of a FREE record is in one cache, or in the free set, or owned
 *      by one thread that has taken it. That of any other record is in none.
 *   2. Every slab below limit is in the table, with room for all its records
 *      in the wheel (wheel_reserve).
 *   3. All records of a page that is not committed are FREE without HAS_ENTRY,
 *      have no entry, and read as 0; so do all words of an idle slab. Callers
 *      with stale handles read such pages. A caller may push a record late,
 *      so that the worker finds it FREE; one that returns records may set
 *      free_summary late, so that page_take finds no bits.
 *   4. A thread that exits leaves its cache to the next one, with its counters.
 *
 * EDGES
 *   E:slab    a slab's contents, release in slab_publish by the swap into the
 *             table, acquired by slab_at. limit follows.
 *   E:free    all that was done to a free record, or to a page, a slab's header
 *             and its generation_base: release by adding to a word of free_bits
 *             in free_add, or by setting the slab's bit in idle in slab_retire,
 *             acquire by the swap in page_take or the compare-and-swap in
 *             pages_claim and take_idle.
 *   E:owned   a cache and its counters: release in cache_release, acquire in
 *             cache_claim, by the next thread.
 *
 * E:set is drawn in mpsc_queue.c, E:closed in hwt.c.
 */
#define _GNU_SOURCE
#include <string.h>

#include "core/timer.h"

/* All pages of a slab that have records. */
#define SLAB_ALL \
	(UINT64_MAX >> (64 - SLAB_PAGES) & ~((UINT64_C(1) << HEADER_PAGES) - 1))

/* Fewer complete pages than these, a megabyte, are kept. */
#ifndef TRIM_PAGES
#define TRIM_PAGES 256u
#endif
/* A worker that is not idle waits so long, since callers that have just freed
 * many records may soon need them again. */
#define TRIM_DELAY_NS UINT64_C(250000000)
/* Slabs that one call of record_trim visits at most. */
#define TRIM_LOOKS 64u

/* Caches, slabs by number, generation bases, urgencies, free_top, idle. */
#define TABLE_BYTES                                            \
	(CACHES_MAX * sizeof(struct cache) +                   \
	    SLABS_MAX * (sizeof(aptr_t) + 2 * sizeof(a64_t)) + \
	    2 * TOP_WORDS * sizeof(a64_t))

bool
record_store_create(struct record_store *store)
{
	store->caches = system_map(TABLE_BYTES);
	if (store->caches == NULL)
		return false;
	store->slabs = (aptr_t *)(store->caches + CACHES_MAX);
	store->generation_base = (a64_t *)(store->slabs + SLABS_MAX);
	store->slab_urgency = store->generation_base + SLABS_MAX;
	store->free_top = store->slab_urgency + SLABS_MAX;
	store->idle = store->free_top + TOP_WORDS;
	secret_make(&store->random);
	store->shared_cache.shared = true;
	return true;
}

void
record_store_destroy(struct record_store *store)
{
	uint32_t i;

	for (i = 0; i < SLABS_MAX; i++) {
		struct slab *slab = slab_at(store, i);

		if (slab == NULL)
			break;
		system_unmap(slab, SLAB_BYTES);
	}
	system_unmap(store->caches, TABLE_BYTES);
}

/* Generations start at random multiples of the index, so that a foreign or
 * made-up handle does not match, nor one with a wrong bit of the index. */
static uint64_t
record_first_word(const struct record_store *store, uint32_t index)
{
	const uint64_t *random = store->random.word;

	return (random[0] + index * random[1]) & ~INDEX_MASK;
}

/* On a boundary of its own size, so that a record finds its header. */
static void *
map_slab(void)
{
	char *memory = system_map(2 * SLAB_BYTES);
	size_t before;

	if (memory == NULL)
		return NULL;
	before = -(uintptr_t)memory & (SLAB_BYTES - 1);
	if (before > 0)
		system_unmap(memory, before);
	system_unmap(memory + before + SLAB_BYTES, SLAB_BYTES - before);
	return memory + before;
}

/* Makes free records of a page visible to a thread that searches from the top.
 * The caller has set bits below before this reads those above; whoever takes
 * bits clears above before it reads below. So one of the two sees the other
 * (E:set). */
static void
free_raise(struct record_store *store, uint32_t number, uint32_t page)
{
	a64_t *summary = &slab_at(store, number)->free_summary;
	a64_t *top = &store->free_top[number / 64];
	uint64_t page_bit = UINT64_C(1) << page;
	uint64_t slab_bit = UINT64_C(1) << number % 64;

	/* E:set fence, after the caller's change of bits */
	if (!(a64_load_seq(summary) & page_bit))
		a64_or_seq(summary, page_bit);
	/* E:set fence */
	if (!(a64_load_seq(top) & slab_bit))
		a64_or_seq(top, slab_bit);
}

/* Makes all records of pages free which the caller owns. counted: the pages
 * count as complete, since they are committed. */
static void
pages_return(
    struct record_store *store, uint32_t number, uint64_t pages, bool counted)
{
	struct slab *slab = slab_at(store, number);
	uint32_t page;

	for (; pages != 0; pages &= pages - 1) {
		page = (uint32_t)__builtin_ctzll(pages);
		/* E:free release */
		(void)a64_add_seq(&slab->free_bits[page], PAGE_ALL);
		if (counted)
			(void)a64_add_seq(&store->free_pages, 1);
		free_raise(store, number, page);
	}
}

/* The lowest slab that may have free records; limit: there is none. */
static uint32_t
find_slab(struct record_store *store, uint32_t limit)
{
	uint32_t word, number;
	uint64_t slabs;

	for (word = 0; word < (limit + 63) / 64; word++) {
		a64_t *top = &store->free_top[word];

		/* E:slab acquire: one may be newer than the limit. */
		while ((slabs = a64_load_acquire(top)) != 0) {
			number = word * 64 + (uint32_t)__builtin_ctzll(slabs);
			if (a64_load_relaxed(
				&slab_at(store, number)->free_summary) != 0)
				return number;
			a64_and_seq(top, ~(slabs & -slabs));
			/* E:set fence */
			if (a64_load_seq(
				&slab_at(store, number)->free_summary) != 0)
				a64_or_seq(top, slabs & -slabs);
		}
	}
	return limit;
}

/* Takes an idle slab; limit: there is none. */
static uint32_t
take_idle(struct record_store *store, uint32_t limit)
{
	uint32_t word;
	uint64_t idle;

	for (word = 0; word < (limit + 63) / 64; word++) {
		while ((idle = a64_load_relaxed(&store->idle[word])) != 0) {
			/* E:free acquire */
			if (a64_cas_seq(
				&store->idle[word], idle, idle & (idle - 1)))
				return word * 64 +
				    (uint32_t)__builtin_ctzll(idle);
		}
	}
	return limit;
}

/* The caller owns the slab, whose header reads as 0. */
static void
slab_open(struct hwt *timer, uint32_t number)
{
	struct slab *slab = slab_at(&timer->store, number);

	slab->timer = timer;
	slab->first_index = number << SLAB_BITS;
	memory_add(&timer->store, HEADER_PAGES * PAGE_BYTES);
	pages_return(&timer->store, number, SLAB_ALL, false);
}

/* A slab whose pages are all in the free set, but not above it. */
static struct slab *
slab_create(struct hwt *timer)
{
	struct slab *slab = map_slab();
	uint32_t page;

	if (slab == NULL)
		return NULL;
	slab->timer = timer;
	for (page = HEADER_PAGES; page < SLAB_PAGES; page++)
		a64_store_relaxed(&slab->free_bits[page], PAGE_ALL);
	a64_store_relaxed(&slab->free_summary, SLAB_ALL);
	return slab;
}

/* Puts a slab into the table, unless there are free records again, or no memory
 * (false): then it is unmapped. Whoever finds another one in its place, which
 * is not counted yet, counts it. */
static bool
slab_publish(struct hwt *timer, struct slab *slab)
{
	struct record_store *store = &timer->store;
	bool found, published;
	uint32_t limit;

	do {
		limit = store_limit(store);
		found = find_slab(store, limit) < limit;
		/* The last slab stays away: HWT_CLOSED names a record in it. */
		if (found || limit == SLABS_MAX - 1 ||
		    !wheel_reserve(
			&timer->wheel, (uint64_t)(limit + 1) * SLAB_RECORDS)) {
			system_unmap(slab, SLAB_BYTES);
			return found;
		}
		slab->first_index = limit << SLAB_BITS;
		/* E:slab release */
		published = aptr_cas_seq(&store->slabs[limit], NULL, slab);
		/* Whoever finds the new limit finds free records. None is taken
		 * before that (cache_add_page): the sweep of hwt_stop ends at
		 * the limit. E:slab release */
		a64_or_seq(
		    &store->free_top[limit / 64], UINT64_C(1) << limit % 64);
		(void)a64_cas_seq(&store->limit, limit, limit + 1);
	} while (!published);
	memory_add(store, HEADER_PAGES * PAGE_BYTES);
	return true;
}

/* Opens an idle slab, or adds one. False: no memory. Lock-free. */
static bool
store_grow(struct hwt *timer)
{
	uint32_t limit = store_limit(&timer->store);
	uint32_t idle = take_idle(&timer->store, limit);
	struct slab *slab;

	if (idle < limit) {
		slab_open(timer, idle);
		return true;
	}
	slab = slab_create(timer);
	return slab != NULL && slab_publish(timer, slab);
}

/* The caller owns all records of the page, which read as 0. */
static void
page_commit(struct record_store *store, struct slab *slab, uint32_t page)
{
	uint32_t first = slab->first_index + page * PAGE_RECORDS;
	uint64_t used =
	    a64_load_relaxed(&store->generation_base[first >> SLAB_BITS]);
	uint32_t i;

	memory_add(store, PAGE_BYTES);
	for (i = first; i < first + PAGE_RECORDS; i++)
		wide_init(&record_at(store, i)->wide,
		    record_first_word(store, i) + (used << INDEX_BITS));
	/* E:slab release */
	a64_or_seq(&slab->committed, UINT64_C(1) << page);
}

/* Adds records of a page, given as bits. The lowest is used first. */
static void
cache_add(struct record_store *store, struct cache *cache, uint32_t first,
    uint64_t records)
{
	uint32_t index;

	while (records != 0) {
		index = first + 63 - (uint32_t)__builtin_clzll(records);
		records &= ~(UINT64_C(1) << index % PAGE_RECORDS);
		take_line(record_at(store, index));
		cache->slot[cache->count++] = index;
	}
}

/* Takes all free records of a page whose bit in summary the caller has
 * cleared. */
static uint64_t
page_take(struct record_store *store, struct slab *slab, uint32_t page)
{
	/* E:set fence, E:free acquire */
	uint64_t records = a64_swap_seq(&slab->free_bits[page], 0);

	if (records == 0)
		return 0;
	if (!(a64_load_relaxed(&slab->committed) >> page & 1))
		page_commit(store, slab, page);
	else if (records == PAGE_ALL)
		(void)a64_add_seq(&store->free_pages, UINT64_MAX);
	return records;
}

/* Adds the free records of the lowest page that has some to a cache. False:
 * there are none. Lock-free. */
static bool
cache_add_page(struct record_store *store, struct cache *cache)
{
	uint32_t limit = store_limit(store);
	uint32_t number = find_slab(store, limit);
	struct slab *slab;
	uint64_t pages;
	uint32_t page;

	/* find_slab may return a slab that was added after limit was read. */
	if (number >= limit)
		return false;
	slab = slab_at(store, number);
	pages = a64_load_relaxed(&slab->free_summary);
	if (pages == 0)
		return true;
	page = (uint32_t)__builtin_ctzll(pages);
	a64_and_seq(&slab->free_summary, ~(pages & -pages));
	cache_add(store, cache, (number << SLAB_BITS) + page * PAGE_RECORDS,
	    page_take(store, slab, page));
	return true;
}

/* Returns records of one page to the free set. Whoever makes the number of
 * complete pages TRIM_PAGES wakes a sleeping worker, to return them. */
static void
free_add(struct hwt *timer, uint32_t page_number, uint64_t records)
{
	struct record_store *store = &timer->store;
	uint32_t number = page_number / SLAB_PAGES;
	uint32_t page = page_number % SLAB_PAGES;
	struct slab *slab = slab_at(store, number);
	/* E:free release */
	uint64_t before = a64_add_seq(&slab->free_bits[page], records);

	free_raise(store, number, page);
	if ((before | records) != PAGE_ALL ||
	    a64_add_seq(&store->free_pages, 1) != TRIM_PAGES - 1)
		return;
	/* E:asleep fence: this, and then the caller reads wake_before. */
	a64_store_seq(&store->trim_refused, 0);
	store->trim_due(timer);
}

/* One addition for each run of indexes of the same page. */
static void
free_add_all(struct hwt *timer, const uint32_t *index, uint32_t count)
{
	uint64_t records = 0;
	uint32_t i;

	for (i = 0; i < count; i++) {
		records |= UINT64_C(1) << index[i] % PAGE_RECORDS;
		if (i + 1 < count &&
		    index[i + 1] / PAGE_RECORDS == index[i] / PAGE_RECORDS)
			continue;
		free_add(timer, index[i] / PAGE_RECORDS, records);
		records = 0;
	}
}

/* Up to so many; the store grows for the first one alone. */
static void
cache_refill(struct hwt *timer, struct cache *cache, uint32_t wanted)
{
	while (cache->count < wanted) {
		if (!cache_add_page(&timer->store, cache) &&
		    (cache->count > 0 || !store_grow(timer)))
			return;
	}
}

/* For a thread without a cache: takes a page and returns all records but
 * one. */
static uint32_t
alloc_uncached(struct hwt *timer)
{
	struct cache taken = {0};

	cache_refill(timer, &taken, 1);
	if (taken.count == 0)
		return 0;
	free_add_all(timer, taken.slot, taken.count - 1);
	return taken.slot[taken.count - 1];
}

uint32_t
record_alloc(struct hwt *timer, struct cache *cache)
{
	if (cache->shared)
		return alloc_uncached(timer);
	if (cache->count == 0)
		cache_refill(timer, cache, PAGE_RECORDS / 2);
	return cache->count != 0 ? cache->slot[--cache->count] : 0;
}

void
record_free(struct hwt *timer, struct cache *cache, uint32_t index)
{
	if (cache->shared) {
		free_add_all(timer, &index, 1);
		return;
	}
	if (cache->count == CACHE_SLOTS) {
		free_add_all(timer, cache->slot, CACHE_SLOTS / 2);
		cache->count -= CACHE_SLOTS / 2;
		memmove(cache->slot, cache->slot + CACHE_SLOTS / 2,
		    cache->count * sizeof(cache->slot[0]));
	}
	cache->slot[cache->count++] = index;
}

struct cache *
cache_claim(struct hwt *timer)
{
	struct record_store *store = &timer->store;
	struct cache *cache;
	uint64_t used;
	uint32_t i;

	for (i = 0;; i++) {
		if (i == CACHES_MAX)
			return NULL;
		cache = &store->caches[i];
		if (a64_load_relaxed(&cache->owned) != 0)
			continue;
		/* E:owned acquire */
		if (a64_cas_seq(&cache->owned, 0, 1))
			break;
	}
	for (;;) {
		used = a64_load_relaxed(&store->caches_used);
		if (used > i)
			return cache;
		if (a64_cas_seq(&store->caches_used, used, i + 1))
			memory_add(store, (i + 1 - used) * sizeof(*cache));
	}
}

void
cache_flush(struct hwt *timer, struct cache *cache)
{
	free_add_all(timer, cache->slot, cache->count);
	cache->count = 0;
}

void
cache_release(struct hwt *timer, struct cache *cache)
{
	cache_flush(timer, cache);
	/* E:owned release */
	a64_store_release(&cache->owned, 0);
}

uint32_t
record_next_used(const struct record_store *store, uint32_t index)
{
	uint32_t number, page;
	uint64_t committed;

	while (++index >> SLAB_BITS < store_limit(store)) {
		number = index >> SLAB_BITS;
		page = index / PAGE_RECORDS % SLAB_PAGES;
		/* E:slab acquire, E:closed fence: the gate was closed before
		 * this, or a thread that commits the page finds it closed. */
		committed = a64_load_seq(&slab_at(store, number)->committed);
		if (committed >> page & 1)
			return index;
		/* The last index of what need not be looked at. */
		index |= committed >> page == 0 ? SLAB_RECORDS - 1
						: PAGE_RECORDS - 1;
	}
	return 0;
}

/* Takes those of these pages that are complete out of the free set, and returns
 * them. */
static uint64_t
pages_claim(struct slab *slab, uint64_t pages)
{
	uint64_t claimed = 0;
	a64_t *bits;

	for (; pages != 0; pages &= pages - 1) {
		bits = &slab->free_bits[__builtin_ctzll(pages)];
		if (a64_load_relaxed(bits) != PAGE_ALL)
			continue;
		/* E:free acquire */
		if (a64_cas_seq(bits, PAGE_ALL, 0))
			claimed |= pages & -pages;
	}
	return claimed;
}

/* Removes the entries of a page's records, and keeps the highest number of
 * uses. Backwards, as few others are then moved: last in, first out. */
static void
page_forget(struct hwt *timer, const struct slab *slab, uint32_t page)
{
	struct record_store *store = &timer->store;
	uint32_t first = slab->first_index + page * PAGE_RECORDS;
	a64_t *base = &store->generation_base[first >> SLAB_BITS];
	uint64_t most = a64_load_relaxed(base);
	uint64_t word, used;
	struct record *record;
	uint32_t index;

	for (index = first + PAGE_RECORDS; index-- > first;) {
		record = record_at(store, index);
		if (record->entry_at != 0)
			wheel_remove(&timer->wheel, index);
		word = wide_word(&record->wide);
		/* The record is owned here, but the page may be refused. */
		if (word & FLAG_HAS_ENTRY)
			(void)wide_cas_word(
			    &record->wide, word, word & ~FLAG_HAS_ENTRY);
		used =
		    ((word - record_first_word(store, index)) >> INDEX_BITS) &
		    GENERATION_MASK;
		/* In the circle of 36 bits. */
		if ((int64_t)((used - most) << INDEX_BITS) > 0)
			most = used;
	}
	a64_store_relaxed(base, most);
}

/* Releases pages to the system, by runs. Returns those that it took. */
static uint64_t
pages_release(struct slab *slab, uint64_t pages)
{
	uint64_t left = pages;
	uint32_t first, count;

	while (left != 0) {
		first = (uint32_t)__builtin_ctzll(left);
		count = (uint32_t)__builtin_ctzll(~(left >> first));
		if (!system_release(
			(char *)slab + first * PAGE_BYTES, count * PAGE_BYTES))
			return pages & ~left;
		left &= ~(((UINT64_C(1) << count) - 1) << first);
	}
	return pages;
}

/* Releases a slab's header if all its pages are free and not committed. */
static void
slab_retire(struct record_store *store, uint32_t number)
{
	struct slab *slab = slab_at(store, number);
	uint64_t claimed = pages_claim(slab, SLAB_ALL);

	if (claimed == SLAB_ALL && a64_load_relaxed(&slab->committed) == 0 &&
	    system_release(slab, HEADER_PAGES * PAGE_BYTES)) {
		memory_add(store, -(uint64_t)(HEADER_PAGES * PAGE_BYTES));
		/* E:free release */
		a64_or_seq(
		    &store->idle[number / 64], UINT64_C(1) << number % 64);
	} else {
		pages_return(store, number, claimed, false);
	}
}

/* Releases the complete pages of a slab. False: there are none. */
static bool
slab_trim(struct hwt *timer, uint32_t number)
{
	struct record_store *store = &timer->store;
	struct slab *slab = slab_at(store, number);
	uint64_t committed = a64_load_relaxed(&slab->committed);
	uint64_t claimed, released;
	uint32_t page;

	/* Stored before the claim: if other pages become complete after it and
	 * reach TRIM_PAGES, free_add clears this, even if these are refused. */
	a64_store_seq(&store->trim_refused, 1);
	claimed = pages_claim(slab, committed);
	if (claimed == 0) {
		a64_store_relaxed(&store->trim_refused, 0);
		return false;
	}
	(void)a64_add_seq(
	    &store->free_pages, -(uint64_t)__builtin_popcountll(claimed));
	for (page = SLAB_PAGES; page-- > 0;) {
		if (claimed >> page & 1)
			page_forget(timer, slab, page);
	}
	released = pages_release(slab, claimed);
	a64_and_seq(&slab->committed, ~released);
	memory_add(
	    store, -(uint64_t)__builtin_popcountll(released) * PAGE_BYTES);
	if (released == claimed)
		a64_store_relaxed(&store->trim_refused, 0);
	pages_return(store, number, released, false);
	pages_return(store, number, claimed & ~released, true);
	if (released == committed)
		slab_retire(store, number);
	return true;
}

bool
record_may_trim(const struct hwt *timer)
{
	/* E:asleep fence. Below 0 while somebody has counted a page off before
	 * it was counted on. */
	return (int64_t)a64_load_seq(&timer->store.free_pages) >= TRIM_PAGES &&
	    a64_load_seq(&timer->store.trim_refused) == 0;
}

static bool
trim_is_due(struct hwt *timer, bool idle)
{
	struct trim *trim = &timer->trim;
	uint64_t now_ns = timer->worker.now_ns;

	if (!record_may_trim(timer)) {
		trim->since_ns = 0;
		return false;
	}
	if (trim->since_ns == 0)
		trim->since_ns = now_ns;
	return idle || now_ns - trim->since_ns >= TRIM_DELAY_NS;
}

/* From the highest slab down: callers allocate from the lowest. */
bool
record_trim(struct hwt *timer, bool idle)
{
	struct trim *trim = &timer->trim;
	const a64_t *refused = &timer->store.trim_refused;
	uint32_t looks = TRIM_LOOKS;

	if (!trim->active) {
		if (!trim_is_due(timer, idle))
			return false;
		trim->active = true;
		trim->slab = store_limit(&timer->store);
	}
	while (trim->slab > 0 && a64_load_relaxed(refused) == 0) {
		if (looks-- == 0 || slab_trim(timer, --trim->slab))
			return true;
	}
	trim->active = wheel_trim(&timer->wheel);
	return trim->active;
}
