/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs of rows.c that drive the inside of a timer: threads that halt at a
 * word, and records. A slab has 2 pages of 2 records, a cache has
 * room for 4, and there are 4 caches.
 */
#include "program.h"

#include <errno.h>

#define FIRST (HEADER_PAGES * PAGE_RECORDS)
#define INDEXES (1u << INDEX_BITS)
#define THREADS (EXPLORE_THREADS_MAX + 1)

/* Numbers with names: see word_of. */
const char *const verb_names[] = {"bits", "urgency", "slab-urgency", "top",
    "limit", "next-slab", "summary", "free-pages", "wake-before",
    "wake-sequence", NULL};

static struct slab *
slab_of(uint32_t index)
{
	return (void *)(uintptr_t)timer->store.slabs[index >> SLAB_BITS];
}

static struct queued *
queued_of(uint32_t index)
{
	return &slab_of(index)->queued[index / PAGE_RECORDS % SLAB_PAGES];
}

/* Records in hand. */

static uint32_t held[THREADS][8];
static unsigned held_count[THREADS];
static bool in_hand[INDEXES];

static void
hold(unsigned thread, uint32_t index)
{
	const struct record *record = record_at(&timer->store, index);

	explore_check(index != 0 && !in_hand[index]);
	explore_check(index >> SLAB_BITS < timer->store.limit);
	explore_check(record_index(record) == index);
	explore_check(record_slab(record)->timer == timer);
	in_hand[index] = true;
	held[thread][held_count[thread]++] = index;
}

VERB1("take", take, count)
{
	while (count-- > 0)
		hold(explore_self(),
		    record_alloc(timer, thread_attach_cache(timer, true)));
}

/* Without a cache: what is left of a page goes back at once. */
ALONE("take-uncached",
    hold(explore_self(), record_alloc(timer, &timer->store.shared_cache)))

static void
give_of(unsigned thread)
{
	uint32_t index = held[thread][--held_count[thread]];

	in_hand[index] = false;
	record_free(timer, cache_of(timer), index);
}

VERB1("give", give, count)
{
	while (count-- > 0)
		give_of(explore_self());
	cache_flush(timer, cache_of(timer));
}

ALONE("give-all", give(held_count[explore_self()]))

/* What threads hold goes back: what two of them hold is there twice. */
void
verbs_give_back(void)
{
	unsigned i;

	for (i = 0; i < THREADS; i++) {
		while (held_count[i] > 0)
			give_of(i);
	}
}

/* In first: one of what was taken there is that thread's. */
VERB2("hand", hand, from, to)
{
	uint32_t *own = held[EXPLORE_THREADS_MAX];
	uint32_t *last = &own[--held_count[EXPLORE_THREADS_MAX]];

	held[to][held_count[to]++] = own[from];
	own[from] = *last;
}

TWO("slabs", least, most,
    explore_check(timer->store.limit >= least && timer->store.limit <= most))

/* A search has found nothing. */
ALONE("forget-free", a64_store_relaxed(timer->store.free_top, 0))

/* As hwt_stop does: each slab below the limit is there. */
VERB0("sweep", sweep)
{
	uint32_t index = 0;

	while ((index = record_next_used(&timer->store, index)) != 0)
		continue;
}

/* A handle in the next slab. */
VERB0("guess", guess)
{
	hwt_timeout never = {.id = GENERATION_ONE | (SLAB_RECORDS + FIRST)};

	explore_check(hwt_cancel(timer, never) == -ENOENT);
}

/* The worker releases all that it can. */
VERB0("trim", trim)
{
	timer->trim.active = true;
	a64_store_relaxed(&timer->store.trim_refused, 0);
	timer->trim.slab = store_limit(&timer->store);
	while (record_trim(timer, true))
		continue;
}

ALONE("trim-nothing", explore_check(!record_may_trim(timer)))

static bool
is_zero(const void *context)
{
	return *(const uint64_t *)context == 0;
}

VERB0("await-trim", await_trim)
{
	const uint64_t *committed = &slab_of(FIRST)->committed;

	explore_await(committed, 8, is_zero, committed);
}

ALONE("idle", explore_check(timer->store.idle[0] == 1))

/* As a worker does that is about to sleep: the first entry is live then. */
VERB0("drop-stale", drop_stale)
{
	uint64_t tick;

	while (worker_drop_stale(timer, &tick))
		continue;
	advance(0);
}

/* Caches that a thread owns. */
VERB1("owned", owned, count)
{
	unsigned i;

	for (i = 0; i < CACHES_MAX; i++)
		count -= timer->store.caches[i].owned;
	explore_check(count == 0);
}

ALONE("unshared", explore_check(timer->store.shared_cache.scheduled == 0))

/* Nobody ends the same sleep twice, however slowly the worker wakes. */
static uint64_t first_sleep;

ALONE("count-wakes", first_sleep = timer->announced_sequence)
ALONE("woken-per-sleep",
    explore_check(sim_wakes() <= timer->announced_sequence - first_sleep + 1))

/* Two records of different pages. */
ALONE("two-pages",
    explore_check(index_of(0) / PAGE_RECORDS != index_of(1) / PAGE_RECORDS))

/* It is no later than that tick. */
OF("by", ticks, explore_check(sim_now_ns <= timer->origin_ns + ticks * TICK_NS))

/* Who pulled it in as its tick was begun has pushed it only now. */
OF("push-late", i, (void)mpsc_push(&timer->queue, index_of(i), 0))

/* No handle is told twice. */
static hwt_timeout told[160];
static unsigned told_count;

VERB2("use", use, count, forwards)
{
	hwt_timeout own[8];
	unsigned i, j;

	for (i = 0; i < count; i++) {
		explore_check(hwt_new_timeout(timer, &own[i], subject_task,
				  NULL, 3 * TICK_NS) == 0);
		for (j = 0; j < told_count; j++)
			explore_check(told[j].id != own[i].id);
		told[told_count++] = own[i];
	}
	for (i = 0; i < count; i++)
		explore_check(
		    hwt_cancel(timer, own[forwards ? i : count - 1 - i]) == 0);
}

VERB2("use-down", use_down, count, forwards)
{
	for (; count > 0; count--)
		use(count, forwards);
}

/* Threads that halt. */

/* The record of timeout 0, or the next one of the first thread, or one that it
 * holds. */
static uint32_t
halt_index(void)
{
	const struct cache *cache = &timer->store.caches[0];

	if (subject[0].handle.id != 0)
		return index_of(0);
	if (cache->count > 0)
		return cache->slot[cache->count - 1];
	return held_count[0] > 0 ? held[0][0] : FIRST;
}

static const void *
word_of(unsigned name)
{
	uint32_t index = halt_index();
	const struct queued *queued = queued_of(index);
	const struct record_store *store = &timer->store;
	const void *const words[] = {&queued->bits, &queued->urgency,
	    &store->slab_urgency[index >> SLAB_BITS], store->free_top,
	    &store->limit, &store->slabs[1], &slab_of(index)->free_summary,
	    &store->free_pages, &timer->wake_before, &timer->wake_sequence};

	return words[name];
}

/* When it is about to use that word, or to change it. */
static void
stop_at(unsigned thread, unsigned name, bool changes)
{
	sim_settings.stop.thread = thread;
	sim_settings.stop.at = word_of(name);
	sim_settings.stop.changes = changes;
}

VERB2("halt", halt, thread, name)
{
	handles_early = true;
	stop_at(thread, name, false);
}

TWO("halt-before-change", thread, name, stop_at(thread, name, true))
