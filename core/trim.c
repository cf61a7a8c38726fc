/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving memory back to the system while the timer lives.
 *
 * Records, chunks of the wheel and segments of the queues stay where they are
 * when they become free, to be used again. After a peak, that is memory which
 * nobody needs: when enough of it was spare for a quarter of a second, the
 * worker gives it back, in pieces of some ten or a hundred microseconds between
 * its turns.
 *
 * RECORDS. A page holds 64 of them. The worker takes the batches of free
 * records from the stack that all threads share, notes in a table which it has,
 * and when a page is complete, makes it blank: the system takes its memory, and
 * it reads as 0, which is the word of a FREE record. What does not complete a
 * page goes back to the stack in the end. Whoever needs records meanwhile takes
 * all that the worker holds of a page, and only then blank pages, or new ones:
 * so no more are made than there would be without trimming, but for what the
 * worker has in its hands in one step, and what lies farther in the table than
 * a caller looks.
 *
 * Where the system refuses to take a page, as it does when memory is locked, no
 * other is tried before there has been another peak. The same when it was not
 * worth it, since a few records in use were everywhere, or most lay in threads'
 * caches; then after a quarter more than stayed spare, or after more of it each
 * time, or when half of those few have ended. And when callers have left a
 * quarter of what stayed spare since, 4 to 128 seconds after the last time: it
 * may be what the caches had, when there is no more to come. So what it costs
 * follows what ends.
 *
 *   GENERATIONS go on: of each slab it is kept how often any record of its
 *   blank pages had been used, and a blank page's records start from there. So
 *   no handle is ever valid again before its 36 bits have come round.
 *
 *   A SLAB'S HEADER is in its first page and is needed while any record of the
 *   slab is in an executor. So that page becomes blank last and is used first:
 *   in the slab's word of blank pages, bit 0 is set only if all bits are. Who
 *   takes it takes all of them, writes the header, and leaves the others.
 *
 *   A page with a record that is ENQUEUED is not complete: the worker may clear
 *   that bit at any time.
 *
 * CHUNKS and SEGMENTS: see wheel_trim, after a sweep, and mpsc_pool_trim.
 *
 * INVARIANTS
 *   1. A record of a blank page is FREE, neither ENQUEUED nor BUCKETED, in no
 *      cache or batch, and nobody writes to it. Callers with old handles read
 *      it. Entries of it that are left in the wheel are dead.
 *   2. A record whose bit is set in the table is FREE and in no cache or
 *      batch. Who clears the bit has the record.
 *
 * EDGES
 *   E:blank   uses, and a page that was given back, release in page_release;
 *             the header, release in slab_take; both acquired in slab_take.
 *   E:spare   fence between leaving a batch, in record_batch_give, and reading
 *             call_at, in must_call; fence between storing call_at and reading
 *             stacked, in trim_ask: a caller that is not told how many are
 *             enough is seen to have left them.
 *   E:held    what the worker read in a free record, release by setting its bit
 *             in page_hold; the zeroed table, release in trim_has_table; both
 *             acquired in page_claim and trim_take_held.
 */
#define _GNU_SOURCE
#include "core/timer.h"

#define PAGES (SLAB_RECORDS / BATCH)
#define PAGE_BYTES (BATCH * sizeof(struct record))
#define ALL_PAGES (UINT64_MAX >> (64 - PAGES))
#define ALL_RECORDS (UINT64_MAX >> (64 - BATCH))
#define HELD_BYTES ((size_t)SLABS_MAX * PAGES * sizeof(uint64_t))
#define GENERATION_MASK (UINT64_MAX >> INDEX_BITS)

/* What a step takes from the stack, looks at, and gives back to it. */
#define STEP_BATCHES 32u
#define STEP_PAGES 64u
#define CHAINS 8u
#define STEP_LOOKS 1024u
#define STEP_SEGMENTS 8u
#define VAIN_MAX 6u
/* A caller calls the worker for no less; and not when fewer have ended of those
 * timeouts that have kept pages, a megabyte of them. */
#define ASK_MIN (SPARE_RECORDS / 4)
#define PINS_MIN (SPARE_RECORDS / BATCH)
/* So much of the table a caller looks at: a microsecond or two. */
#define TAKE_LOOKS 4096u
#define SPARE_NS UINT64_C(250000000)
/* After a try in vain, twice as long, and so on. */
#define AGAIN_NS UINT64_C(2000000000)
/* A busy worker looks no oftener than that. */
#define LOOK_NS UINT64_C(50000000)

_Static_assert(PAGES <= 64 && BATCH <= 64, "a word has a bit for each");

/* Takes the slab's first blank page, with all the others if that is the one
 * with the header. Its number; UINT32_MAX: there is none. */
static uint32_t
slab_take(struct hwt *timer, uint32_t slab)
{
	a64_t *blank = &timer->store.blank[slab];
	struct slab_header *header;
	uint64_t old, next;

	do {
		old = a64_load_relaxed(blank);
		if (old == 0)
			return UINT32_MAX;
		next = old & 1 ? 0 : old & (old - 1);
		/* E:blank acquire */
	} while (!a64_cas_acq_rel(blank, old, next));
	if (old & 1) {
		header = aptr_load_acquire(&timer->store.slabs[slab]);
		header->timer = timer;
		header->first_index = slab << SLAB_BITS;
		/* E:blank release */
		a64_store_release(blank, old & ~UINT64_C(1));
	}
	return slab * PAGES + (uint32_t)__builtin_ctzll(old);
}

/* What is held of a page. Acquired by the caller, or 0. */
static uint64_t
page_claim(struct record_store *store, a64_t *held)
{
	uint64_t records;

	if (a64_load_relaxed(held) == 0)
		return 0;
	/* E:held acquire */
	records = a64_swap_acq_rel(held, 0);
	if (records != 0)
		(void)a32_add_acq_rel(&store->held_pages, UINT32_MAX);
	return records;
}

uint32_t
trim_take_held(struct hwt *timer, uint32_t *index)
{
	struct record_store *store = &timer->store;
	/* E:held acquire */
	a64_t *held = aptr_load_acquire(&store->held);
	uint32_t pages = a32_load_acquire(&store->limit) / BATCH;
	uint32_t page = a32_load_relaxed(&store->held_at);
	uint32_t looks = pages < TAKE_LOOKS ? pages : TAKE_LOOKS;
	uint64_t records = 0;
	uint32_t count = 0;

	if (held == NULL || a32_load_relaxed(&store->held_pages) == 0)
		return 0;
	for (; looks > 0 && records == 0; looks--) {
		page = page + 1 < pages ? page + 1 : 0;
		records = page_claim(store, &held[page]);
	}
	a32_store_relaxed(&store->held_at, page);
	for (; records != 0; records &= records - 1)
		index[count++] =
		    page * BATCH + (uint32_t)__builtin_ctzll(records);
	return count;
}

uint32_t
trim_take_page(struct hwt *timer, uint32_t *first)
{
	struct record_store *store = &timer->store;
	uint32_t slabs = a32_load_acquire(&store->limit) >> SLAB_BITS;
	uint32_t slab = a32_load_relaxed(&store->blank_at);
	uint32_t page, i;

	if (a32_load_relaxed(&store->blank_pages) == 0)
		return 0;
	for (i = 0; i < slabs; i++, slab++) {
		if (slab >= slabs)
			slab = 0;
		page = slab_take(timer, slab);
		if (page == UINT32_MAX)
			continue;
		a32_store_relaxed(&store->blank_at, slab);
		(void)a32_add_acq_rel(&store->blank_pages, UINT32_MAX);
		*first = page * BATCH;
		return record_page_create(store, first);
	}
	return 0;
}

bool
trim_is_blank(const struct record_store *store, uint32_t index)
{
	uint64_t blank = a64_load_acquire(&store->blank[index >> SLAB_BITS]);

	return blank >> index % SLAB_RECORDS / BATCH & 1;
}

uint32_t
trim_skip_blank(const struct record_store *store, uint32_t index, uint32_t end)
{
	while (index < end) {
		if (trim_is_blank(store, index))
			index = (index / BATCH + 1) * BATCH;
		else if (index % SLAB_RECORDS == 0)
			index++;
		else
			return index;
	}
	return end;
}

/* How often a record of the page was used, at most, or those of its slab that
 * became blank before; false: one of them is ENQUEUED. */
static bool
page_uses(const struct record_store *store, uint32_t page, uint64_t *uses)
{
	uint32_t index = page * BATCH + (page % PAGES == 0);
	uint64_t word, used;

	*uses = a64_load_relaxed(&store->uses[page / PAGES]);
	for (; index < (page + 1) * BATCH; index++) {
		word = pair_word(&record_at(store, index)->pair);
		if (word & FLAG_ENQUEUED)
			return false;
		used =
		    ((word - record_first_word(store, index)) >> INDEX_BITS) &
		    GENERATION_MASK;
		if (used > *uses)
			*uses = used;
	}
	return true;
}

static void
blank_add(a64_t *blank, uint64_t pages)
{
	uint64_t old;

	do {
		old = a64_load_relaxed(blank);
		/* E:blank release */
	} while (!a64_cas_acq_rel(blank, old, old | pages));
}

/* From here on, callers may take the records. Returns all of the page that are
 * held now. */
static uint64_t
page_hold(struct record_store *store, uint32_t page, uint64_t records)
{
	a64_t *held = aptr_load_acquire(&store->held);
	/* E:held release */
	uint64_t old = a64_add_acq_rel(&held[page], records);

	if (old == 0)
		(void)a32_add_acq_rel(&store->held_pages, 1);
	return old | records;
}

/* The worker has all records of the page. Makes it blank, or false: not in this
 * step, or not at all. */
static bool
page_release(struct hwt *timer, uint32_t page)
{
	struct record_store *store = &timer->store;
	a64_t *blank = &store->blank[page / PAGES];
	uint64_t pages = UINT64_C(1) << page % PAGES;
	uint64_t others = 0;
	uint64_t uses;

	if (timer->trim.refused || timer->trim.step_pages == 0 ||
	    !page_uses(store, page, &uses))
		return false;
	if (page % PAGES == 0) {
		others = ALL_PAGES & ~pages;
		if (!a64_cas_acq_rel(blank, others, 0))
			return false;
	}
	if (!system_release(record_at(store, page * BATCH), PAGE_BYTES)) {
		blank_add(blank, others);
		timer->trim.refused = true;
		timer->trim.records = 0;
		return false;
	}
	timer->trim.step_pages--;
	timer->trim.pages++;
	a64_store_relaxed(&store->uses[page / PAGES], uses);
	(void)a64_add_relaxed(&store->memory_bytes, -(uint64_t)PAGE_BYTES);
	(void)a32_add_acq_rel(&store->blank_pages, 1);
	blank_add(blank, pages | others);
	return true;
}

/* All of a page, but for a slab's header. */
static uint64_t
page_records(uint32_t page)
{
	return ALL_RECORDS - (page % PAGES == 0 ? 1 : 0);
}

/* A complete page goes, if nobody is faster; or later, in trim_return. */
static void
trim_hold(struct hwt *timer, uint32_t index)
{
	struct record_store *store = &timer->store;
	uint32_t page = index / BATCH;
	uint64_t all = page_records(page);
	a64_t *held;

	if (page_hold(store, page, UINT64_C(1) << index % BATCH) != all)
		return;
	held = aptr_load_acquire(&store->held);
	if (!a64_cas_acq_rel(&held[page], all, 0))
		return;
	(void)a32_add_acq_rel(&store->held_pages, UINT32_MAX);
	if (!page_release(timer, page))
		(void)page_hold(store, page, all);
}

/* The first record of another batch; 0: there is none, or it is enough. */
static uint32_t
trim_pop(struct hwt *timer)
{
	return timer->trim.records > 0 ? record_batch_pop(&timer->store) : 0;
}

/* Holds a node's records. Returns the next node, or another batch's first. */
static uint32_t
trim_follow(struct hwt *timer, uint32_t node, uint32_t *batches)
{
	const struct record_store *store = &timer->store;
	struct trim *trim = &timer->trim;
	uint32_t index[1 + NODE_RECORDS];
	uint32_t count = 0;
	uint32_t next = record_node_read(store, node, index, &count);
	uint32_t i;

	for (i = 0; i < count; i++)
		trim_hold(timer, index[i]);
	trim->records -= count < trim->records ? count : trim->records;
	if (next == 0 && *batches > 0) {
		--*batches;
		next = trim_pop(timer);
	}
	if (next != 0)
		__builtin_prefetch(record_at(store, next));
	return next;
}

/* Several batches side by side, since each node tells where the next one is,
 * and most are in no cache. False: no batch is left. */
static bool
trim_collect(struct hwt *timer)
{
	uint32_t batches = STEP_BATCHES - CHAINS;
	uint32_t chain[CHAINS] = {0};
	bool going = false;
	uint32_t i;

	for (i = 0; i < CHAINS; i++) {
		chain[i] = trim_pop(timer);
		going |= chain[i] != 0;
	}
	if (!going)
		return false;
	while (going) {
		going = false;
		for (i = 0; i < CHAINS; i++) {
			if (chain[i] == 0)
				continue;
			chain[i] = trim_follow(timer, chain[i], &batches);
			going |= chain[i] != 0;
		}
	}
	return true;
}

/* Backwards, as a header's page can go when the others are blank. What is left
 * of pages goes back in full batches. False: nothing is held. */
static bool
trim_return(struct hwt *timer)
{
	struct record_store *store = &timer->store;
	struct trim *trim = &timer->trim;
	a64_t *held = aptr_load_acquire(&store->held);
	uint32_t batches = STEP_BATCHES;
	uint32_t looks = STEP_LOOKS;
	uint32_t index[BATCH];
	uint32_t count = 0;
	uint64_t records;

	for (;
	     trim->page > 0 && looks > 0 && batches > 0 && trim->step_pages > 0;
	     looks--) {
		uint32_t page = --trim->page;

		records = page_claim(store, &held[page]);
		if (records == page_records(page) && page_release(timer, page))
			continue;
		for (; records != 0; records &= records - 1) {
			index[count++] =
			    page * BATCH + (uint32_t)__builtin_ctzll(records);
			if (count < BATCH)
				continue;
			record_batch_give(store, index, count);
			count = 0;
			batches--;
		}
	}
	record_batch_give(store, index, count);
	return trim->page > 0;
}

/* Timeouts, and records that are there and serve none. */
struct census {
	uint64_t pending, spare;
};

static struct census
trim_count(struct hwt *timer)
{
	const struct record_store *store = &timer->store;
	uint64_t blank = a32_load_relaxed(&store->blank_pages);
	uint64_t there = a32_load_relaxed(&store->carved) - blank * BATCH;
	struct census count = {0};

	if (there < SPARE_RECORDS)
		return count;
	count.pending = hwt_pending_timeouts(timer);
	if (there > count.pending)
		count.spare = there - count.pending;
	return count;
}

/* Each timeout keeps one page at most. When no more are left of those that did
 * so the last time, PINS_MIN or more, it is worth another. */
static uint64_t
few_left(const struct trim *trim)
{
	uint64_t half = trim->pending / 2;
	uint64_t most = trim->pending - PINS_MIN;

	return half < most ? half : most;
}

static uint64_t
max_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Whether callers have left a quarter as many records as stayed spare since the
 * last time began: pages may be complete by now. vain: or twice as many, so
 * often. */
static bool
quarter_is_new(const struct hwt *timer, uint32_t vain)
{
	const struct trim *trim = &timer->trim;
	uint64_t given = a64_load_relaxed(&timer->store.given) - trim->given;

	return given >= trim->floor / 4 << vain;
}

/* Or when few are left of the timeouts that kept pages. */
static bool
floor_is_old(const struct hwt *timer, uint64_t pending)
{
	const struct trim *trim = &timer->trim;

	return quarter_is_new(timer, trim->vain) ||
	    (trim->pending >= PINS_MIN && pending <= few_left(trim));
}

/* When so many are spare, it is time. After a time in vain, it takes a quarter
 * more than stayed spare: so each that becomes free pays for a few looks. */
static uint64_t
spare_enough(const struct trim *trim)
{
	uint64_t more = trim->vain > 0 ? trim->floor / 4 : 0;

	return trim->floor + max_of(more, SPARE_RECORDS);
}

/* When it may be time to trim, one caller calls the worker, which does not know
 * by itself. Not for a few that come and go. stacked: as it was before the
 * census. False: so many have been left since. */
static bool
trim_ask(struct hwt *timer, const struct census *count, uint64_t stacked)
{
	const struct trim *trim = &timer->trim;
	struct record_store *store = &timer->store;
	uint64_t few = few_left(trim);
	uint64_t at = UINT64_MAX;
	uint64_t pins;

	if (count->spare < spare_enough(trim))
		at = stacked +
		    max_of(spare_enough(trim) - count->spare, ASK_MIN);
	if (at < UINT64_MAX && trim->pending >= PINS_MIN &&
	    count->pending > few) {
		pins = stacked + max_of(count->pending - few, PINS_MIN);
		if (pins < at)
			at = pins;
	}
	a64_store_seq(&store->call_at, at);
	/* E:spare fence */
	return a64_load_seq(&store->stacked) < at;
}

static void
trim_judge(struct hwt *timer, const struct census *count, uint64_t now_ns)
{
	struct trim *trim = &timer->trim;
	bool enough;

	if (floor_is_old(timer, count->pending))
		trim->floor = 0;
	if (count->spare < trim->floor)
		trim->floor = count->spare;
	/* Of next to nothing, a quarter is always new. */
	enough = count->spare >= spare_enough(trim);
	if (!enough &&
	    (count->spare < SPARE_RECORDS || !quarter_is_new(timer, 0))) {
		trim->since_ns = 0;
		return;
	}
	if (trim->since_ns == 0 || (enough && trim->since_ns > now_ns))
		trim->since_ns = now_ns;
	if (!enough)
		trim->since_ns = max_of(
		    trim->since_ns, trim->began_ns + (AGAIN_NS << trim->vain));
}

static void
trim_look(struct hwt *timer, uint64_t now_ns)
{
	struct census count;
	uint64_t stacked;

	timer->trim.looked_ns = now_ns;
	do {
		stacked = a64_load_acquire(&timer->store.stacked);
		count = trim_count(timer);
		trim_judge(timer, &count, now_ns);
	} while (!trim_ask(timer, &count, stacked));
}

static uint64_t
trim_due(const struct trim *trim)
{
	return trim->since_ns != 0 ? trim->since_ns + SPARE_NS : HWT_NEVER;
}

uint64_t
trim_time(struct hwt *timer, uint64_t now_ns)
{
	trim_look(timer, now_ns);
	return trim_due(&timer->trim);
}

void
trim_start(struct hwt *timer)
{
	timer->trim.records = a32_load_acquire(&timer->store.limit);
	timer->trim.given = a64_load_relaxed(&timer->store.given);
	timer->trim.pages = 0;
	timer->trim.refused = false;
	timer->trim.phase = TRIM_COLLECT;
}

bool
trim_begin(struct hwt *timer, uint64_t now_ns)
{
	struct trim *trim = &timer->trim;

	if (trim->phase != TRIM_NOT)
		return true;
	if (now_ns - trim->looked_ns >= LOOK_NS || now_ns >= trim_due(trim))
		trim_look(timer, now_ns);
	if (now_ns < trim_due(trim))
		return false;
	trim->began_ns = now_ns;
	trim_start(timer);
	return true;
}

static bool
trim_has_table(struct record_store *store)
{
	void *held = aptr_load_acquire(&store->held);

	if (held == NULL) {
		held = system_map(HELD_BYTES);
		/* E:held release */
		aptr_store_release(&store->held, held);
	}
	return held != NULL;
}

/* No batch is left, or it is enough. */
static void
trim_collected(struct hwt *timer)
{
	struct trim *trim = &timer->trim;

	trim->phase = TRIM_RETURN;
	trim->page = 0;
	if (aptr_load_acquire(&timer->store.held) != NULL)
		trim->page = a32_load_acquire(&timer->store.limit) / BATCH;
}

/* Of the table, which reads as 0 again: 8 bytes for each page of records. */
static void
table_release(struct record_store *store)
{
	void *held = aptr_load_acquire(&store->held);
	size_t pages = a32_load_acquire(&store->limit) / BATCH;
	size_t bytes = pages * sizeof(a64_t) & ~(size_t)4095;

	if (held != NULL && bytes > 0)
		(void)system_release(held, bytes);
}

/* What is spare now is in threads' caches or in pages that are not free as a
 * whole: no reason to begin again. */
static void
trim_returned(struct hwt *timer)
{
	struct trim *trim = &timer->trim;
	struct census count = trim_count(timer);

	trim->phase = TRIM_WHEEL;
	trim->floor = count.spare;
	trim->pending = count.pending;
	if ((uint64_t)trim->pages * BATCH >= trim->floor / 8)
		trim->vain = 0;
	else if (trim->vain < VAIN_MAX && !trim->refused)
		trim->vain++;
	table_release(&timer->store);
	/* It comes before the next step. */
	if (timer->wheel.entries > count.pending + count.pending / 4)
		wheel_sweep_start(&timer->wheel);
}

static void
trim_end(struct hwt *timer)
{
	timer->trim.phase = TRIM_NOT;
	timer->trim.since_ns = 0;
}

bool
trim_step(struct hwt *timer)
{
	struct trim *trim = &timer->trim;

	trim->step_pages = STEP_PAGES;
	switch (trim->phase) {
	case TRIM_COLLECT:
		if (!trim_has_table(&timer->store) || !trim_collect(timer))
			trim_collected(timer);
		return true;
	case TRIM_RETURN:
		if (!trim_return(timer))
			trim_returned(timer);
		return true;
	case TRIM_WHEEL:
		if (!wheel_trim(&timer->wheel))
			trim->phase = TRIM_QUEUES;
		return true;
	default:
		if (mpsc_pool_trim(&timer->pool, STEP_SEGMENTS))
			return true;
		trim_end(timer);
		return false;
	}
}

void
trim_destroy(struct hwt *timer)
{
	void *held = aptr_load_acquire(&timer->store.held);

	if (held != NULL)
		system_unmap(held, HELD_BYTES);
}
