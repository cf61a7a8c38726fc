/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool: the memory of operations, which all shards share.
 *
 * Records are in slabs, which are mapped when they are needed; their addresses
 * stay until the purgatory is destroyed. A free record has a bit set in its
 * slab (free). A shard that has no free record takes TAKEN_AT_ONCE under the
 * pool's lock, so that only the holder of that lock clears bits: all of one
 * word, since each word costs a locked instruction. A slab with such a word has
 * a bit in its segment (some), which may also be set without one. Whoever frees
 * a record sets these without a lock. Records are taken from the lowest slab in
 * some, or else from one that was released, or else from a new one. Fewer free
 * ones in a word wait until there are enough: if they were taken one by one, as
 * they come, almost every watch would take the pool's lock.
 *
 * RELEASING. A slab is complete when all its records are free. Who frees the
 * last one counts it, under the lock; while more than COMPLETE_KEPT are, this
 * one's memory is released to the system: one slab with each call at most. It
 * then reads as 0, which is no operation's word, so that a stale handle is
 * refused; and the slab keeps the highest number of uses that a record of it
 * had. Records that are used again start with that, so that no handle becomes
 * valid again before its 36 bits have wrapped. A record that was never used
 * reads as 0 as well.
 *
 * What the system refuses, as when memory is locked, stays; then no other slab
 * is offered before so many complete ones have been used that few are left.
 *
 * INVARIANTS, for the holder of the lock
 *   1. An idle slab, one that was released, is complete, and reads as 0.
 *   2. A record whose bit is set is used by nobody.
 *   3. A slab with enough bits in a word of free has one in some, or is idle,
 *      or a thread is about to set that (slab_raise): the one whose bit made
 *      them enough. So some may get a bit of an idle slab, late: whoever takes
 *      from a slab finds out in idle.
 *
 *        frees                                takes, with the lock
 *        -----                                --------------------
 *   (A1) set a bit in free: enough       (B1) no word has enough: clear some
 *   (A2) set some, if it is not set      (B2) look at free once more
 *
 *   Forbidden: A2 finds some set, B2 finds no word with enough.
 *
 * EDGES
 *   E:freed       a free record, whatever was done to it: release by adding its
 *                bit in record_return, acquire by slab_take and slab_is_full.
 *   E:operations a slab, all zero, and the table of slabs: release by the
 *                store into the table in pool_add_slab, acquire in slab_at and
 *                record_at. A record's word is stored after that; until
 *                then it is 0, which is no operation's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "operation.h"

/* A third of a megabyte. */
#ifndef COMPLETE_KEPT
#define COMPLETE_KEPT 4u
#endif

#define SLABS_MAX (1u << (INDEX_BITS - SLAB_BITS))
#define SLAB_WORDS ((SLAB_OPERATIONS + 63) / 64)
#define WORD_ALL (UINT64_MAX >> (64 * SLAB_WORDS - SLAB_OPERATIONS))
#define NO_SLAB UINT32_MAX
/* Records that a word of free has. */
#define POOL_WORD (SLAB_OPERATIONS < 64 ? SLAB_OPERATIONS : 64u)

struct operation_slab {
	a64_t free[SLAB_WORDS];
	aptr_t operation; /* the first record */
	/* With the lock. */
	uint64_t uses; /* the most of any record, when it was released */
	uint32_t next_idle;
	bool complete; /* and counted: not idle */
	bool idle;
};

/* Segments: number s has 2^s slabs, and a bit in some for each. */
static size_t
segment_words(uint32_t segment)
{
	return ((size_t)63 + (1u << segment)) / 64;
}

static size_t
segment_bytes(uint32_t segment)
{
	return (sizeof(struct operation_slab) << segment) +
	    segment_words(segment) * sizeof(a64_t);
}

static uint32_t
segment_of_slab(uint32_t number)
{
	return 31 - (uint32_t)__builtin_clz(number + 1);
}

static uint32_t
segment_first_slab(uint32_t segment)
{
	return (1u << segment) - 1;
}

/* NULL: it was not made yet. */
static struct operation_slab *
slab_at(const struct operation_pool *pool, uint32_t number)
{
	uint32_t segment = segment_of_slab(number);
	/* E:operations acquire */
	struct operation_slab *first =
	    aptr_load_acquire(&pool->segments[segment]);

	return first == NULL ? NULL
			     : first + number - segment_first_slab(segment);
}

/* The bits of a segment that was made. */
static a64_t *
segment_some(const struct operation_pool *pool, uint32_t segment)
{
	struct operation_slab *first =
	    aptr_load_acquire(&pool->segments[segment]);

	return (a64_t *)(void *)(first + ((size_t)1 << segment));
}

/* The bits of a word of free when all its records are. There is no record 0:
 * its handle could be 0. */
static uint64_t
word_all(uint32_t number, uint32_t word)
{
	return number == 0 && word == 0 ? WORD_ALL - 1 : WORD_ALL;
}

static struct operation *
record_at(const struct operation_slab *slab, uint32_t in_slab)
{
	/* E:operations acquire */
	struct operation *first = aptr_load_acquire(&slab->operation);

	return first == NULL ? NULL : first + in_slab;
}

struct operation *
operation_at(const struct hwt_purgatory *purgatory, uint64_t id)
{
	uint32_t index = (uint32_t)(id & INDEX_MASK);
	const struct operation_slab *slab =
	    slab_at(purgatory->pool, index >> SLAB_BITS);

	return index == 0 || slab == NULL
	    ? NULL
	    : record_at(slab, index % SLAB_OPERATIONS);
}

/* Generations. A word has the generation of its first use, which follows from
 * the index, and the number of uses, added up. */

static uint64_t
generation_skip_0(uint64_t generation)
{
	return generation != 0 ? generation : GENERATION_ONE;
}

static uint64_t
next_generation(uint64_t word)
{
	return generation_skip_0((word & ~INDEX_MASK) + GENERATION_ONE);
}

static uint64_t
first_generation(const struct hwt_purgatory *purgatory, uint32_t index)
{
	return secret_hash(&purgatory->of_generations, index, 0) & ~INDEX_MASK;
}

/* Growing. */

/* A word has enough free records. */
static void
slab_raise(struct operation_pool *pool, uint32_t number)
{
	uint32_t segment = segment_of_slab(number);
	uint32_t bit = number - segment_first_slab(segment);
	a64_t *some = &segment_some(pool, segment)[bit / 64];

	if (!(a64_load_seq(some) >> bit % 64 & 1))
		a64_or_seq(some, UINT64_C(1) << bit % 64);
}

/* With the lock held. */
static void
slab_lower(struct operation_pool *pool, uint32_t number)
{
	uint32_t segment = segment_of_slab(number);
	uint32_t bit = number - segment_first_slab(segment);

	a64_and_seq(
	    &segment_some(pool, segment)[bit / 64], ~(UINT64_C(1) << bit % 64));
}

/* With the lock held. */
static int
pool_add_segment(struct operation_pool *pool, uint32_t segment)
{
	void *memory = calloc(1, segment_bytes(segment));

	if (memory == NULL)
		return -ENOMEM;
	pool->memory_bytes += segment_bytes(segment);
	/* E:operations release */
	aptr_store_release(&pool->segments[segment], memory);
	return 0;
}

/* With the lock held. */
static int
pool_add_slab(struct operation_pool *pool)
{
	uint32_t number = pool->slabs;
	struct operation_slab *slab;
	void *memory;
	uint32_t i;

	if (number == SLABS_MAX)
		return -ENOMEM;
	if (slab_at(pool, number) == NULL &&
	    pool_add_segment(pool, segment_of_slab(number)) != 0)
		return -ENOMEM;
	memory = memory_map(pool->slab_bytes);
	if (memory == NULL)
		return -ENOMEM;
	pool->memory_bytes += pool->slab_bytes;
	pool->slabs++;
	slab = slab_at(pool, number);
	/* E:operations release */
	aptr_store_release(&slab->operation, memory);
	for (i = 0; i < SLAB_WORDS; i++)
		a64_store_relaxed(&slab->free[i], word_all(number, i));
	slab_raise(pool, number);
	return 0;
}

/* Taking. */

/* With the lock held: the lowest slab that may have enough free records. */
static uint32_t
find_some(const struct operation_pool *pool)
{
	uint32_t segment, word;
	uint64_t bits;

	for (segment = 0; segment < SLAB_SEGMENTS &&
	     segment_first_slab(segment) < pool->slabs;
	     segment++) {
		const a64_t *some = segment_some(pool, segment);

		for (word = 0; word < segment_words(segment); word++) {
			bits = a64_load_relaxed(&some[word]);
			if (bits != 0)
				return segment_first_slab(segment) + 64 * word +
				    (uint32_t)__builtin_ctzll(bits);
		}
	}
	return NO_SLAB;
}

/* With the lock held: opens a slab that was released. False: none was. */
static bool
slab_open(struct operation_pool *pool)
{
	uint32_t number = pool->idle;
	struct operation_slab *slab;

	if (number == NO_SLAB)
		return false;
	slab = slab_at(pool, number);
	pool->idle = slab->next_idle;
	slab->idle = false;
	pool->memory_bytes += pool->slab_bytes;
	slab_raise(pool, number);
	return true;
}

/* With the lock held: it is used from now on. */
static void
record_begin(struct hwt_purgatory *purgatory, const struct operation_slab *slab,
    struct operation *operation, uint32_t index)
{
	uint64_t first;

	if (a64_load_relaxed(&operation->word) != 0)
		return;
	first = first_generation(purgatory, index);
	operation->index = index;
	a64_store_relaxed(
	    &operation->word, generation_skip_0(first + slab->uses));
}

/* It has as many as are taken at once. */
static bool
word_has_some(uint64_t bits)
{
	return (uint32_t)__builtin_popcountll(bits) >= TAKEN_AT_ONCE;
}

/* With the lock held: takes records of one word, and puts them into the list in
 * their order. */
static struct operation *
word_take(struct hwt_purgatory *purgatory, uint32_t number, uint32_t word)
{
	struct operation_slab *slab = slab_at(purgatory->pool, number);
	struct operation *list = NULL, *operation;
	/* E:operations acquire */
	struct operation *first = aptr_load_acquire(&slab->operation);
	struct operation **end = &list;
	/* E:freed acquire */
	uint64_t bits = a64_load_acquire(&slab->free[word]);
	uint64_t taken = 0;
	uint32_t count, in_slab;

	for (count = 0; count < TAKEN_AT_ONCE && bits != 0; count++) {
		in_slab = 64 * word + (uint32_t)__builtin_ctzll(bits);
		taken |= bits & -bits;
		bits &= bits - 1;
		operation = first + in_slab;
		record_begin(purgatory, slab, operation,
		    (number << SLAB_BITS) + in_slab);
		*end = operation;
		end = &operation->next;
	}
	*end = NULL;
	a64_and_seq(&slab->free[word], ~taken);
	return list;
}

/* With the lock held. NULL: no word has enough, which some says then. */
static struct operation *
slab_take(struct hwt_purgatory *purgatory, uint32_t number)
{
	struct operation_pool *pool = purgatory->pool;
	struct operation_slab *slab = slab_at(pool, number);
	uint32_t i;

	for (i = 0; i < SLAB_WORDS && !slab->idle; i++) {
		if (!word_has_some(a64_load_seq(&slab->free[i])))
			continue;
		if (slab->complete && --pool->complete <= COMPLETE_KEPT / 2)
			pool->refused = false;
		slab->complete = false;
		return word_take(purgatory, number, i);
	}
	slab_lower(pool, number);
	for (i = 0; i < SLAB_WORDS && !slab->idle; i++) {
		if (word_has_some(a64_load_seq(&slab->free[i])))
			slab_raise(pool, number);
	}
	return NULL;
}

struct operation *
pool_take(struct hwt_purgatory *purgatory)
{
	struct operation_pool *pool = purgatory->pool;
	struct operation *taken = NULL;
	uint32_t number;

	(void)pthread_mutex_lock(&pool->lock);
	while (taken == NULL) {
		number = find_some(pool);
		if (number != NO_SLAB)
			taken = slab_take(purgatory, number);
		else if (!slab_open(pool) && pool_add_slab(pool) != 0)
			break;
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return taken;
}

/* Freeing. */

static bool
slab_is_full(const struct operation_slab *slab, uint32_t number)
{
	uint32_t i;

	for (i = 0; i < SLAB_WORDS; i++) {
		/* E:freed acquire */
		if (a64_load_acquire(&slab->free[i]) != word_all(number, i))
			return false;
	}
	return true;
}

/* With the lock held, of a complete slab: no use of a record is forgotten. */
static void
slab_keep_uses(struct hwt_purgatory *purgatory, uint32_t number)
{
	struct operation_slab *slab = slab_at(purgatory->pool, number);
	uint32_t first = number << SLAB_BITS;
	uint64_t word, uses;
	uint32_t i;

	for (i = 0; i < SLAB_OPERATIONS; i++) {
		word = a64_load_relaxed(&record_at(slab, i)->word);
		if (word == 0)
			continue;
		uses = (word & ~INDEX_MASK) -
		    first_generation(purgatory, first + i);
		if (uses > slab->uses)
			slab->uses = uses;
	}
}

/* With the lock held: releases a complete slab. */
static void
slab_release(struct hwt_purgatory *purgatory, uint32_t number)
{
	struct operation_pool *pool = purgatory->pool;
	struct operation_slab *slab = slab_at(pool, number);

	slab_keep_uses(purgatory, number);
	if (!memory_release(record_at(slab, 0), pool->slab_bytes)) {
		pool->refused = true;
		return;
	}
	pool->memory_bytes -= pool->slab_bytes;
	slab_lower(pool, number);
	slab->complete = false;
	pool->complete--;
	slab->idle = true;
	slab->next_idle = pool->idle;
	pool->idle = number;
}

/* With the lock held: all records of the slab were free. */
static void
slab_count(struct hwt_purgatory *purgatory, uint32_t number)
{
	struct operation_pool *pool = purgatory->pool;
	struct operation_slab *slab = slab_at(pool, number);

	if (slab->complete || slab->idle || !slab_is_full(slab, number))
		return;
	slab->complete = true;
	if (++pool->complete > COMPLETE_KEPT && !pool->refused)
		slab_release(purgatory, number);
}

/* True: all records of its slab are free then; see slab_count. */
static bool
record_return(struct operation *operation, uint64_t word)
{
	struct operation_pool *pool = operation->home->purgatory->pool;
	uint32_t index = operation->index;
	uint32_t number = index >> SLAB_BITS;
	uint32_t in_slab = index % SLAB_OPERATIONS;
	struct operation_slab *slab = slab_at(pool, number);
	uint64_t bit = UINT64_C(1) << in_slab % 64;
	uint64_t free;

	a64_store_release(&operation->word, next_generation(word));
	/* E:freed release */
	free = a64_add_seq(&slab->free[in_slab / 64], bit) | bit;
	if ((uint32_t)__builtin_popcountll(free) == TAKEN_AT_ONCE)
		slab_raise(pool, number);
	return free == word_all(number, in_slab / 64) &&
	    slab_is_full(slab, number);
}

void
operation_free(struct operation *operation, uint64_t word)
{
	struct hwt_purgatory *purgatory = operation->home->purgatory;
	uint32_t number = operation->index >> SLAB_BITS;

	if (!record_return(operation, word))
		return;
	(void)pthread_mutex_lock(&purgatory->pool->lock);
	slab_count(purgatory, number);
	(void)pthread_mutex_unlock(&purgatory->pool->lock);
}

void
operation_free_locked(struct operation *operation, uint64_t word)
{
	struct hwt_purgatory *purgatory = operation->home->purgatory;
	uint32_t number = operation->index >> SLAB_BITS;

	(void)pthread_mutex_lock(&purgatory->pool->lock);
	if (record_return(operation, word))
		slab_count(purgatory, number);
	(void)pthread_mutex_unlock(&purgatory->pool->lock);
}

/* What is used. */

uint32_t
pool_end(const struct hwt_purgatory *purgatory, uint64_t *memory_bytes)
{
	struct operation_pool *pool = purgatory->pool;
	uint32_t slabs;

	(void)pthread_mutex_lock(&pool->lock);
	slabs = pool->slabs;
	if (memory_bytes != NULL)
		*memory_bytes = pool->memory_bytes;
	(void)pthread_mutex_unlock(&pool->lock);
	return slabs << SLAB_BITS;
}

struct operation *
pool_next(const struct hwt_purgatory *purgatory, uint32_t *index, uint32_t end)
{
	const struct operation_slab *slab;
	uint32_t in_slab;
	uint64_t used;

	while (*index < end) {
		slab = slab_at(purgatory->pool, *index >> SLAB_BITS);
		in_slab = *index % SLAB_OPERATIONS;
		used =
		    (WORD_ALL & ~a64_load_acquire(&slab->free[in_slab / 64])) >>
		    in_slab % 64;
		if (used & 1 && *index != 0)
			return record_at(slab, (*index)++ % SLAB_OPERATIONS);
		*index += used >> 1 != 0
		    ? (uint32_t)__builtin_ctzll(used & ~UINT64_C(1))
		    : POOL_WORD - in_slab % POOL_WORD;
	}
	return NULL;
}

/* Making and freeing. */

struct operation_pool *
pool_create(void)
{
	struct operation_pool *pool = aligned_alloc(CACHE_LINE, sizeof(*pool));

	if (pool == NULL)
		return NULL;
	memset(pool, 0, sizeof(*pool));
	pool->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	pool->slab_bytes =
	    memory_round(SLAB_OPERATIONS * sizeof(struct operation));
	pool->idle = NO_SLAB;
	pool->memory_bytes = sizeof(*pool);
	return pool;
}

/* A child that was forked meanwhile must not free them again. */
void
links_free(struct operation *operation)
{
	struct link *links = operation->links;
	bool allocated = links_are_allocated(operation);

	operation->links = NULL;
	if (allocated)
		free(links);
}

/* Operations that are pending: in a forked child only. */
static void
pool_free_links(const struct hwt_purgatory *purgatory)
{
	uint32_t end = purgatory->pool->slabs << SLAB_BITS;
	struct operation *operation;
	uint32_t index = 1;

	while ((operation = pool_next(purgatory, &index, end)) != NULL)
		links_free(operation);
}

void
pool_destroy(struct hwt_purgatory *purgatory, bool inherited)
{
	struct operation_pool *pool = purgatory->pool;
	uint32_t i;

	if (pool == NULL)
		return;
	if (inherited)
		pool_free_links(purgatory);
	for (i = 0; i < pool->slabs; i++)
		memory_unmap(record_at(slab_at(pool, i), 0), pool->slab_bytes);
	for (i = 0; i < SLAB_SEGMENTS; i++)
		free(aptr_load_acquire(&pool->segments[i]));
	free(pool);
}
