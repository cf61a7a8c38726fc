/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records: the memory of timeouts, their states, and where free ones wait.
 *
 * A record is 64 bytes and stays a record until the timer is destroyed, so
 * that a stale handle can always be looked up and refused. A handle is a
 * record's index and generation; the generation moves on whenever the record
 * becomes free.
 *
 * STATES, in the record's word, with the function that makes each move:
 *
 *             schedule               worker_take            worker_expire
 *    FREE ---------------> QUEUED ---------------> PLACED --------+
 *     ^ ^ |                 |  ^                    ^ | |         |
 *     | | | schedule, with an entry that will do    | | |   with executor:
 *     | | +-----------------)--)--------------------+ | |   HANDED
 *     | |                   |  |                      | |    |    | hwt_cancel
 *     | +---- hwt_cancel ---+--)----------------------+ |    |    v
 *     |                        | end_periodic           |    |  REVOKED
 *     |                        | (periodic)     inline: |    |    |
 *     |  run_ended             |         worker_expire  v    |    |
 *     +--------------------- RUNNING <------------------+----+    |
 *     |                                        run_claim          |
 *     +------------------------------------ run_claim ------------+
 *
 * and stop_sweep moves QUEUED and PLACED to UNPROCESSED, which is final. While
 * stopping, timer_retract takes QUEUED and PLACED back to FREE.
 *
 * WHO OWNS WHAT. The word and the deadline are shared and change by
 * compare-and-swap only. task, arg, executor and period_ns are written by the
 * owner of a FREE record before it publishes QUEUED or PLACED, and read by
 * whoever then moves the record out of a pending state. placed is the worker's.
 * A FREE record belongs to the cache or batch that holds its index, with
 * ENQUEUED or BUCKETED set or not.
 *
 * ENQUEUED says that an entry for the record is in a queue, or about to be
 * pushed by whoever set the bit: there is never a second one. The worker clears
 * it when it takes the entry, and then acts on the record as it is at that
 * moment. So the queue is no longer than the
 * number of records, however often they are scheduled and cancelled.
 *
 * BUCKETED says that there is an entry in a bucket, at the tick placed, which
 * is not after the tick of the deadline (of the last one, when FREE; for which
 * a delay that never began to run counts as a deadline long ago), unless
 * ENQUEUED says that the worker is still to look. The worker sets it as it
 * takes the timeout over, and clears it as it takes the entry out; it stays set
 * when the timeout is cancelled. Whoever uses the record next for a deadline
 * that is not earlier finds all done, and need not tell the worker.
 */
#ifndef HWT_RECORD_H
#define HWT_RECORD_H

#include <stddef.h>

#include "hwt.h"
#include "core/process.h"

#ifndef INDEX_BITS
#define INDEX_BITS 28
#endif
#define INDEX_MASK ((UINT64_C(1) << INDEX_BITS) - 1)
#define GENERATION_ONE (UINT64_C(1) << INDEX_BITS)

/* The low bits of a record's word; above them, the generation. */
#define STATE_MASK UINT64_C(0x7)
#define STATE_FREE UINT64_C(0)
#define STATE_QUEUED UINT64_C(1) /* accepted; the worker is to place it */
#define STATE_PLACED UINT64_C(2) /* in a bucket, or never due */
#define STATE_HANDED UINT64_C(3) /* an executor holds it */
#define STATE_REVOKED UINT64_C(4) /* an executor holds it, cancelled */
#define STATE_RUNNING UINT64_C(5)
#define STATE_UNPROCESSED UINT64_C(7) /* given back by stop */
#define FLAG_ENQUEUED UINT64_C(0x8)
#define FLAG_PERIODIC UINT64_C(0x10)
#define FLAG_RELATIVE UINT64_C(0x20) /* deadline_ns is still a delay */
#define FLAG_ENDING UINT64_C(0x40) /* periodic: this run is the last */
#define FLAG_CLAIMED UINT64_C(0x80) /* a cancel_wait owns arg */
#define FLAG_WAITED UINT64_C(0x100) /* somebody sleeps on the word */
#define FLAG_MOVED UINT64_C(0x200) /* periodic: its task moved it */
#define FLAG_AFTER UINT64_C(0x400) /* due after its deadline's boundary */
#define FLAG_BUCKETED UINT64_C(0x800) /* has an entry at the tick placed */

#ifndef SLAB_BITS
#define SLAB_BITS 12
#endif
#define SLAB_RECORDS (1u << SLAB_BITS)
#define SLAB_BYTES (SLAB_RECORDS * sizeof(struct record))
#define SLABS_MAX (1u << (INDEX_BITS - SLAB_BITS))

#ifndef BATCH
#define BATCH 64u
#define CACHE_SLOTS 128u
#define CACHES_MAX 1024u
#endif

_Static_assert(FLAG_BUCKETED < GENERATION_ONE, "the index's bits hold them");

/* Deadlines from here on are never due. */
#define DEADLINE_NEVER ((uint64_t)INT64_MAX)

#define NODE_RECORDS 4u

struct record {
	pair_t pair; /* word and deadline in ns */
	/* NULL: the timer's. Atomic: the worker reads it before it knows
	 * whether the timeout is still there. */
	aptr_t executor;
	union {
		struct {
			hwt_task *task;
			void *arg;
			uint64_t period_ns;
		};
		/* FREE, in a batch: it and these others, and where to go on. */
		struct {
			uint32_t node_next;
			uint32_t node_count;
			uint32_t node[NODE_RECORDS];
		};
	};
	/* Head of a batch: how many records it has, and the next one's index.
	 * HANDED: the executor's. */
	a64_t next;
	a32_t overflow_link; /* in the overflow stack: the next index */
	uint32_t placed; /* worker's: its entry's tick, the low 32 bits */
};

_Static_assert(sizeof(struct record) == 64, "a record is one cache line");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
    "a futex compares the first half of the word, which has the state");

/* In the place of a slab's first record, which is never used. */
struct slab_header {
	struct hwt *timer;
	uint32_t first_index;
};

/* Counters of one thread for one timer, and the free records that it keeps.
 * The owner alone writes; readers add up all caches. */
struct cache {
	_Alignas(CACHE_LINE) a32_t owned;
	bool shared; /* the one for threads that can have none */
	uint32_t stripe; /* which queue its thread pushes to */
	/* Of slots in use; the last one is the hottest. Shared: 0. */
	uint32_t count;
	a64_t accepted, ended; /* pending is the difference */
	a64_t started, cancelled, rescheduled, rejected;
	uint32_t slot[CACHE_SLOTS];
};

struct record_store {
	/* Read by all, written when a slab is added. */
	_Alignas(CACHE_LINE) aptr_t *slabs;
	uint64_t seed;
	/* Of each slab: which pages of BATCH records take no memory, and how
	 * often their records were used. See trim.c. */
	a64_t *blank, *uses;
	a32_t blank_pages;
	a32_t blank_at; /* a slab to begin with */
	/* While it gives memory back, the worker holds free records: of each
	 * page, which; NULL: it never did. How many pages have some. */
	aptr_t held;
	a32_t held_pages;
	a32_t held_at; /* a page to begin with */
	struct cache *caches; /* all there can be; zero is a fresh one */
	a32_t caches_used; /* how many of them ever were */
	struct cache spare; /* shared by threads without a cache */
	/* Free batches: tag and index of the first. How many records they have,
	 * or are about to; with how many the worker wants to be called; how
	 * many callers have ever left there. */
	_Alignas(CACHE_LINE) a64_t free;
	a64_t stacked, call_at, given;
	/* The first index that was never handed out, and the end of the last
	 * slab. */
	_Alignas(CACHE_LINE) a32_t carved;
	a32_t limit;
	a64_t memory_bytes;
	pthread_mutex_t grow_lock;
};

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

/* The word of the same record, free again: with its entries, and what tells
 * whether the one in a bucket serves another deadline as well. */
static inline uint64_t
word_freed(uint64_t word)
{
	return (word & ~INDEX_MASK) + GENERATION_ONE +
	    (word & (FLAG_ENQUEUED | FLAG_BUCKETED | FLAG_AFTER));
}

/* The record of an index that is known to exist. */
static inline struct record *
record_at(const struct record_store *store, uint32_t index)
{
	/* E:slab acquire */
	struct record *slab =
	    aptr_load_acquire(&store->slabs[index >> SLAB_BITS]);

	return slab + (index & (SLAB_RECORDS - 1));
}

/* The record that a handle names, of whatever generation; NULL when there is
 * none. */
static inline struct record *
record_find(const struct record_store *store, uint64_t id)
{
	uint32_t index = (uint32_t)(id & INDEX_MASK);
	struct record *slab =
	    aptr_load_acquire(&store->slabs[index >> SLAB_BITS]);

	if (slab == NULL || (index & (SLAB_RECORDS - 1)) == 0)
		return NULL;
	return slab + (index & (SLAB_RECORDS - 1));
}

static inline struct slab_header *
record_slab(const struct record *record)
{
	return (struct slab_header *)((uintptr_t)record & ~(SLAB_BYTES - 1));
}

static inline uint32_t
record_index(const struct record *record)
{
	const struct slab_header *slab = record_slab(record);

	return slab->first_index +
	    (uint32_t)(record - (const struct record *)(const void *)slab);
}

/* The word of a record that was never used. */
uint64_t record_first_word(const struct record_store *store, uint32_t index);
/* Makes the records of a page, which read as 0, FREE: all but a slab's header.
 * Returns how many; *first becomes the first. */
uint32_t record_page_create(struct record_store *store, uint32_t *first);
/* The first node of a batch of free records that is now the caller's; 0: there
 * is none. */
uint32_t record_batch_pop(struct record_store *store);
/* Adds the indexes of a node to those in index, and returns the next node. */
static inline uint32_t
record_node_read(const struct record_store *store, uint32_t node,
    uint32_t *index, uint32_t *count)
{
	const struct record *record = record_at(store, node);
	uint32_t i;

	index[(*count)++] = node;
	for (i = 0; i < record->node_count; i++)
		index[(*count)++] = record->node[i];
	return record->node_next;
}

/* Leaves free records to all: BATCH at most, or none. */
void record_batch_give(
    struct record_store *store, const uint32_t *index, uint32_t count);

int record_store_create(struct record_store *store);
void record_store_destroy(struct record_store *store);

/* What record_alloc and record_free do where the cache is empty, or full, or
 * shared. */
uint32_t record_alloc_slowly(
    struct hwt *timer, struct cache *cache, int *error);
bool record_free_slowly(struct hwt *timer, struct cache *cache, uint32_t index);

/* An index whose record is the caller's; 0 and *error when there is none. */
static inline uint32_t
record_alloc(struct hwt *timer, struct cache *cache, int *error)
{
	if (__builtin_expect(cache->count == 0, 0))
		return record_alloc_slowly(timer, cache, error);
	return cache->slot[--cache->count];
}

/* The caller has just made the record FREE. True: so many are free by now that
 * the worker wants to be called. */
static inline bool
record_free(struct hwt *timer, struct cache *cache, uint32_t index)
{
	if (__builtin_expect(cache->shared || cache->count == CACHE_SLOTS, 0))
		return record_free_slowly(timer, cache, index);
	cache->slot[cache->count++] = index;
	return false;
}

/* A cache that no thread holds; NULL: too many threads. Lock-free. */
struct cache *cache_claim(struct hwt *timer);
/* True: as with record_free. */
bool cache_release(struct hwt *timer, struct cache *cache);
/* Leaves the cache's free records to all. */
void cache_flush(struct hwt *timer, struct cache *cache);

/* The caches whose counters count: the i-th, up to NULL. */
static inline const struct cache *
cache_counted(const struct record_store *store, uint32_t i)
{
	if (i == 0)
		return &store->spare;
	return i <= a32_load_acquire(&store->caches_used)
	    ? &store->caches[i - 1]
	    : NULL;
}

/* E:counted release */
static inline void
cache_count(struct cache *cache, a64_t *counter, uint64_t by)
{
	if (cache->shared)
		(void)a64_add_acq_rel(counter, by);
	else
		a64_count(counter, by);
}

#endif
