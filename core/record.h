/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records: the memory of timeouts, their states, and the sets that they are in.
 *
 * A record is 64 bytes and stays a record until the timer is destroyed, so
 * that a stale handle can always be looked up and refused. A handle is a
 * record's index and generation; the generation moves on whenever the record
 * becomes FREE.
 *
 * STATES, in the record's word, with the function that makes each move:
 *
 *            timer_publish             worker_expire
 *    FREE ------------------> PENDING ---------------+
 *     ^ ^                      |  ^  |               | with an executor
 *     | +---- hwt_cancel ------+  |  | inline        v
 *     |       timer_retract       |  |             HANDED --+ hwt_cancel
 *     |                           |  |               |      v
 *     |             end_periodic  |  |               |   REVOKED
 *     |               (periodic)  |  v     run_claim |      |
 *     +------ run_ended ------- RUNNING <------------+      |
 *     +---------------------------------------- run_claim --+
 *
 * stop_sweep moves PENDING to UNPROCESSED, which is final.
 *
 * HAS_ENTRY, a flag of the word, says that the wheel has an entry for the
 * record at a tick which is not after its deadline's, or that the
 * deadline is never due. Only the worker sets the flag, when it takes the
 * timeout over. It clears the flag when it expires the timeout, and when it has
 * removed the entry of a record that is not PENDING; callers clear it with the
 * same operation that sets an earlier deadline. It stays set when the timeout
 * is cancelled. Whoever leaves a record PENDING without HAS_ENTRY pushes its
 * index into the queue (mpsc_push), whatever other threads do.
 *
 * OWNERSHIP. The word and the deadline are shared and change only by
 * compare-and-swap. task, arg, executor and period_ns are written by the owner
 * of a FREE record before it publishes PENDING, and read by the thread that
 * moves the record out of PENDING; others may read them, but only believe them
 * if the word is the same before and after (E:reused). entry_at and entry_tick
 * are the worker's; a record that is HANDED or REVOKED has no entry, and the
 * item in their place is the executor's. Its function is NULL, so that entry_at
 * is 0 again afterwards. A FREE record belongs to the thread that took its
 * index.
 *
 * SLABS. A slab is 64 pages of 64 records. Its first HEADER_PAGES pages are the
 * header, which has two bits for each record: it is in the free set (FREE, and
 * no thread owns it), and it is in the queue.
 */
#ifndef HWT_RECORD_H
#define HWT_RECORD_H

#include <stddef.h>

#include "hwt.h"
#include "core/counters.h"
#include "core/process.h"
#include "sys/secret.h"

#ifndef INDEX_BITS
#define INDEX_BITS 28
#define SLAB_BITS 12
#define PAGE_BITS 6
#endif
#define INDEX_MASK ((UINT64_C(1) << INDEX_BITS) - 1)
#define GENERATION_ONE (UINT64_C(1) << INDEX_BITS)
#define GENERATION_MASK (UINT64_MAX >> INDEX_BITS)

/* The low bits of a record's word; above them, the generation. */
#define STATE_MASK UINT64_C(0x7)
#define STATE_FREE UINT64_C(0)
#define STATE_PENDING UINT64_C(1)
#define STATE_HANDED UINT64_C(2) /* an executor holds it */
#define STATE_REVOKED UINT64_C(3) /* an executor holds it, cancelled */
#define STATE_RUNNING UINT64_C(4)
#define STATE_UNPROCESSED UINT64_C(5) /* returned to the user by stop */
#define FLAG_HAS_ENTRY UINT64_C(0x8) /* has an entry in time for its deadline */
#define FLAG_PERIODIC UINT64_C(0x10)
#define FLAG_NEW UINT64_C(0x20) /* no run of it has begun */
#define FLAG_ENDING UINT64_C(0x40) /* periodic: this run is the last */
#define FLAG_WAITED UINT64_C(0x80) /* an hwt_cancel_wait sleeps on the word */

#define PAGE_RECORDS (1u << PAGE_BITS)
#define PAGE_BYTES (PAGE_RECORDS * sizeof(struct record))
#define SLAB_RECORDS (1u << SLAB_BITS)
#define SLAB_PAGES (SLAB_RECORDS / PAGE_RECORDS)
#define SLAB_BYTES (SLAB_RECORDS * sizeof(struct record))
#define SLABS_MAX (1u << (INDEX_BITS - SLAB_BITS))
#define TOP_WORDS (((size_t)SLABS_MAX + 63) / 64)
/* All records of a page, as a word of free_bits has them. */
#define PAGE_ALL (UINT64_MAX >> (64 - PAGE_RECORDS))

#ifndef CACHE_SLOTS
#define CACHE_SLOTS 128u
#define CACHES_MAX 1024u
#endif

_Static_assert(FLAG_WAITED < GENERATION_ONE, "the index's bits hold them");
_Static_assert(INDEX_BITS <= 32, "the high half is of the generation alone");
_Static_assert(PAGE_RECORDS <= 64 && SLAB_PAGES <= 64, "a bit for each");

/* Deadlines from here on are never due. */
#define DEADLINE_NEVER ((uint64_t)INT64_MAX)

/* An item of an executor: a link, and a function that was posted; NULL: the
 * item is in a record, and its task is to run. A struct hwt_post is an item. */
struct item {
	a64_t link;
	hwt_posted *posted;
};

struct record {
	wide_t wide; /* word and deadline in ns */
	/* Atomic: read before the record is owned, or the word is read again.
	 * NULL: the timer's. */
	aptr_t executor;
	aptr_t task, arg;
	a64_t period_ns;
	union {
		struct {
			/* Worker's; while entry_at is not 0. */
			uint64_t entry_tick;
			/* Worker's: position of its entry; 0: none. */
			uint32_t entry_at;
		};
		struct item item; /* HANDED, REVOKED: the executor's */
	};
};

_Static_assert(sizeof(struct record) == 64, "a record is one cache line");
_Static_assert(sizeof(struct item) == sizeof(struct hwt_post) &&
	_Alignof(struct item) <= _Alignof(struct hwt_post),
    "a post is an item");

/* A page in the queue: its records, and the earliest deadline that was pushed,
 * as mpsc_urgency has it. */
struct queued {
	APART a64_t bits;
	a64_t urgency;
};

/* In a slab's first pages, which have no records. */
struct slab {
	struct hwt *timer;
	uint32_t first_index;
	/* Pages whose records have their first word. The others take no memory
	 * and read as 0. Changed by the owner of all records of the page. */
	APART a64_t committed;
	a64_t free_summary; /* pages that may have a bit in free_bits */
	a64_t free_bits[SLAB_PAGES];
	/* How many pages have an urgency. One less or more where the slab's
	 * memory was released during a push: only wake-ups depend on it. */
	APART a64_t waiting;
	struct queued queued[SLAB_PAGES];
};

#define HEADER_PAGES \
	((uint32_t)((sizeof(struct slab) + PAGE_BYTES - 1) / PAGE_BYTES))

/* Counters of one thread for one timer, and the free records that it keeps. */
struct cache {
	/* The one for threads that have none of their own. */
	_Alignas(CACHE_LINE) bool shared;
	/* Number of slots in use. The newest is last. 0 in the shared cache. */
	uint32_t count;
	/* announced_sequence of the last sleep that its thread has ended. */
	uint64_t woken_sleep;
	CACHE_COUNTERS(COUNTER_MEMBER)
	a64_t ended; /* what is scheduled and has not is pending */
	a64_t returned; /* from executors, with their hwt_run calls */
	uint32_t slot[CACHE_SLOTS];
	/* Each new thread reads it in all caches, and would take a line with
	 * counters or slots from their owners. */
	APART a64_t owned;
};

struct record_store {
	/* Read by all threads, written when a slab is added. */
	_Alignas(CACHE_LINE) aptr_t *slabs;
	a64_t *free_top; /* slabs that may have a bit in free_summary */
	a64_t *slab_urgency; /* for each slab: the greatest of its pages' */
	a64_t limit; /* number of slabs */
	struct cache *caches; /* CACHES_MAX; all zero is an unused one */
	a64_t caches_used; /* how many were ever claimed */
	struct cache shared_cache;
	/* Committed pages all of whose records are in the free set. */
	_Alignas(CACHE_LINE) a64_t free_pages;
	/* 1: the system did not take a page, and free_pages has not reached
	 * TRIM_PAGES since. */
	a64_t trim_refused;
	/* Called when there are so many: wakes a worker in a long sleep. */
	void (*trim_due)(struct hwt *timer);
	a64_t memory_bytes;
	a64_t *idle; /* slabs that take no memory, header included */
	/* For each slab: the highest number of uses of any record in its pages
	 * that are not committed. Written by the worker, read by the thread
	 * that commits a page. */
	a64_t *generation_base;
	struct secret random; /* of first generations */
};

static inline void
memory_add(struct record_store *store, uint64_t bytes)
{
	(void)a64_add_seq(&store->memory_bytes, bytes);
}

static inline uint64_t
word_id(uint64_t word, uint32_t index)
{
	return (word & ~INDEX_MASK) | index;
}

static inline bool
word_matches(uint64_t word, uint64_t id)
{
	return (word ^ id) <= INDEX_MASK;
}

static inline uint64_t
word_state(uint64_t word)
{
	return word & STATE_MASK;
}

/* The word of the same record when it is FREE again. HAS_ENTRY stays. */
static inline uint64_t
word_freed(uint64_t word)
{
	return (word & ~INDEX_MASK) + GENERATION_ONE + (word & FLAG_HAS_ENTRY);
}

/* The same for one that an hwt_cancel_wait sleeps on: the generation moves on
 * so far that the high half of the word changes. It may skip some. */
static inline uint64_t
word_freed_waited(uint64_t word)
{
	return (word | UINT32_MAX) + 1;
}

static inline struct slab *
slab_at(const struct record_store *store, uint32_t number)
{
	/* E:slab acquire */
	return aptr_load_acquire(&store->slabs[number]);
}

/* The record of a valid index. */
static inline struct record *
record_at(const struct record_store *store, uint32_t index)
{
	struct record *slab = (void *)slab_at(store, index >> SLAB_BITS);

	return slab + (index & (SLAB_RECORDS - 1));
}

/* The record that a handle names, of whatever generation; NULL when there is
 * none. */
static inline struct record *
record_find(const struct record_store *store, uint64_t id)
{
	uint32_t index = (uint32_t)(id & INDEX_MASK);
	struct record *slab = (void *)slab_at(store, index >> SLAB_BITS);
	uint32_t offset = index & (SLAB_RECORDS - 1);

	if (slab == NULL || offset < HEADER_PAGES * PAGE_RECORDS)
		return NULL;
	return slab + offset;
}

static inline hwt_task *
record_task(const struct record *record)
{
	/* E:reused acquire */
	return (hwt_task *)(uintptr_t)aptr_load_acquire(&record->task);
}

static inline const struct slab *
record_slab(const struct record *record)
{
	return (const void *)((uintptr_t)record & ~(SLAB_BYTES - 1));
}

static inline uint32_t
record_index(const struct record *record)
{
	const struct slab *slab = record_slab(record);

	return slab->first_index +
	    (uint32_t)(record - (const struct record *)(const void *)slab);
}

static inline uint32_t
store_limit(const struct record_store *store)
{
	/* E:asleep fence: see mpsc_is_empty. */
	return (uint32_t)a64_load_seq(&store->limit);
}

/* False: no memory. */
bool record_store_create(struct record_store *store);
void record_store_destroy(struct record_store *store);

/* Returns an index whose record the caller then owns; 0: no memory. */
uint32_t record_alloc(struct hwt *timer, struct cache *cache);
/* The caller has just made the record FREE. */
void record_free(struct hwt *timer, struct cache *cache, uint32_t index);

/* The first index after index whose record may be in use; 0: there is none. */
uint32_t record_next_used(const struct record_store *store, uint32_t index);

/* Claims a cache that no thread owns; NULL: too many threads. Lock-free. */
struct cache *cache_claim(struct hwt *timer);
void cache_release(struct hwt *timer, struct cache *cache);
/* Returns the cache's free records to the set. */
void cache_flush(struct hwt *timer, struct cache *cache);

/* The worker's. */
struct trim {
	bool active;
	uint32_t slab; /* those below it were not visited yet */
	uint64_t since_ns; /* when there were enough pages; 0: there are not */
};

/* Releases free pages, a bounded number with each call, if there are enough of
 * them, and were for a while if the worker is not idle. True: call it again. */
bool record_trim(struct hwt *timer, bool idle);

/* Whether there are enough: the last check before a long sleep. */
bool record_may_trim(const struct hwt *timer);

/* The i-th cache whose counters are added up; NULL: there are no more. */
static inline const struct cache *
cache_counted(const struct record_store *store, uint32_t i)
{
	if (i == 0)
		return &store->shared_cache;
	return i <= a64_load_relaxed(&store->caches_used)
	    ? &store->caches[i - 1]
	    : NULL;
}

static inline void
cache_count(struct cache *cache, a64_t *counter, uint64_t by)
{
	/* E:counted release, E:dispatched release, both */
	if (cache->shared)
		(void)a64_add_seq(counter, by);
	else
		a64_count(counter, by);
}

#endif
