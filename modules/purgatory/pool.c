/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of operations, and their handles.
 *
 * Operations lie in slabs, each twice as large as the one before, which are
 * kept until the purgatory is destroyed. So a handle, which is a generation and
 * an index, can always be looked up, however stale it is. A free operation is
 * in the list of a shard, or of the pool where a shard has too many or none.
 *
 * An operation may be freed into another shard than its home, since its last
 * link may be there. Its identity says who it is, whose lock guards it, and
 * whether it is LIVE, in one word that is read without a lock: operation_lock
 * reads it, locks that home, and reads it again. LIVE is cleared only under
 * that lock. So if the word is still the same, the operation is not decided,
 * and will not be while the lock is held.
 *
 * EDGES
 *   E:grown    a slab's address: release by pool_grow, acquire by slab_at
 *   E:used    how many operations have been used: release by pool_take, after
 *             the slab's address; acquire by operation_lock
 *   E:identity  release by operation_alloc and operation_free; acquire by
 *             operation_lock, which then takes the home's lock, and needs no
 *             more than the value
 */
#include <stdlib.h>

#include "purgatory.h"

#define SHARE 8u /* that a shard gets or gives back at once */

static uint32_t
slab_number(uint32_t index)
{
	uint64_t n = (uint64_t)index + SLAB_FIRST;

	return 63u - (uint32_t)__builtin_clzll(n) -
	    (uint32_t)__builtin_ctz(SLAB_FIRST);
}

static uint32_t
slab_start(uint32_t number)
{
	return (SLAB_FIRST << number) - SLAB_FIRST;
}

static struct slab *
slab_at(const struct pool *pool, uint32_t number)
{
	/* E:grown acquire */
	return (struct slab *)aptr_load_acquire(&pool->slab[number]);
}

void
pool_create(struct pool *pool)
{
	pool->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

void
pool_destroy(struct pool *pool, bool is_inherited)
{
	uint32_t used = (uint32_t)a64_load_acquire(&pool->used);
	struct operation *operation;
	struct slab *slab;
	uint32_t i, k;

	for (i = 0; i < SLABS && (slab = slab_at(pool, i)) != NULL; i++) {
		for (k = 0; k < SLAB_FIRST << i && slab_start(i) + k < used;
		     k++) {
			operation = &slab->operation[k];
			if (operation->inside_count == 0 && !is_inherited)
				free(operation->outside);
		}
		free(slab);
	}
}

static size_t
slab_bytes(uint32_t number)
{
	return sizeof(struct slab) +
	    ((size_t)SLAB_FIRST << number) * sizeof(struct operation);
}

/* Memory that is not touched costs nothing. */
static struct slab *
pool_grow(struct hwt_purgatory *purgatory, uint32_t number)
{
	struct slab *slab;

	if (number == SLABS)
		return NULL;
	slab = aligned_alloc(64, slab_bytes(number));
	if (slab == NULL)
		return NULL;
	slab->purgatory = purgatory;
	/* E:grown release */
	aptr_store_release(&purgatory->pool.slab[number], slab);
	return slab;
}

/* Random generations, so that a handle of another purgatory is refused. */
static void
operation_init(struct hwt_purgatory *purgatory, struct operation *operation,
    uint32_t index)
{
	const struct hwt_key name = {~UINT64_C(0), index};

	operation->index = index;
	operation->inside_count = 1;
	a64_store_relaxed(
	    &operation->identity, (key_mix(purgatory, name) | 1) << 32);
}

/* With the pool's lock: one that is free. NULL: no memory. */
static struct operation *
pool_take(struct hwt_purgatory *purgatory)
{
	struct pool *pool = &purgatory->pool;
	struct operation *operation = pool->free;
	uint64_t index = a64_load_relaxed(&pool->used);
	uint32_t number;
	struct slab *slab;

	if (operation != NULL) {
		pool->free = operation->next;
		return operation;
	}
	if (index >= slab_start(SLABS))
		return NULL;
	number = slab_number((uint32_t)index);
	slab = slab_at(pool, number);
	if (slab == NULL)
		slab = pool_grow(purgatory, number);
	if (slab == NULL)
		return NULL;
	operation = &slab->operation[index - slab_start(number)];
	operation_init(purgatory, operation, (uint32_t)index);
	/* E:used release */
	a64_store_release(&pool->used, index + 1);
	return operation;
}

static void
shard_refill(struct hwt_purgatory *purgatory, struct shard *shard)
{
	struct operation **last = &shard->free;

	(void)pthread_mutex_lock(&purgatory->pool.lock);
	while (shard->free_count < SHARE &&
	    (*last = pool_take(purgatory)) != NULL) {
		last = &(*last)->next;
		shard->free_count++;
	}
	*last = NULL;
	(void)pthread_mutex_unlock(&purgatory->pool.lock);
}

struct operation *
operation_alloc(struct hwt_purgatory *purgatory, struct shard *home)
{
	struct operation *operation;
	uint64_t generation;

	if (home->free == NULL)
		shard_refill(purgatory, home);
	operation = home->free;
	if (operation == NULL)
		return NULL;
	home->free = operation->next;
	home->free_count--;
	home->taken++;
	generation = a64_load_relaxed(&operation->identity) >> 32;
	/* E:identity release */
	a64_store_release(&operation->identity,
	    generation << 32 | LIVE | (uint64_t)(home - purgatory->shard));
	return operation;
}

static void
shard_give_back(struct hwt_purgatory *purgatory, struct shard *shard)
{
	struct operation *operation;
	unsigned i;

	(void)pthread_mutex_lock(&purgatory->pool.lock);
	for (i = 0; i < SHARE; i++) {
		operation = shard->free;
		shard->free = operation->next;
		operation->next = purgatory->pool.free;
		purgatory->pool.free = operation;
	}
	shard->free_count -= SHARE;
	(void)pthread_mutex_unlock(&purgatory->pool.lock);
}

void
operation_free(struct hwt_purgatory *purgatory, struct shard *shard,
    struct operation *operation)
{
	uint64_t generation = a64_load_relaxed(&operation->identity) >> 32;

	if (operation->inside_count == 0) {
		shard->bytes -=
		    operation->outside_count * sizeof(struct outside);
		free(operation->outside);
		operation->inside_count = 1;
	}
	generation = (uint32_t)(generation + 1) | (generation == UINT32_MAX);
	/* E:identity release */
	a64_store_release(&operation->identity, generation << 32);
	operation->next = shard->free;
	shard->free = operation;
	shard->free_count++;
	shard->taken--;
	if (shard->free_count == 2 * SHARE)
		shard_give_back(purgatory, shard);
}

uint32_t
pool_used(const struct pool *pool)
{
	/* E:used acquire */
	return (uint32_t)a64_load_acquire(&pool->used);
}

static struct operation *
pool_at(const struct pool *pool, uint32_t index)
{
	uint32_t number = slab_number(index);

	return &slab_at(pool, number)->operation[index - slab_start(number)];
}

hwt_operation
pool_handle(const struct pool *pool, uint32_t index)
{
	return operation_handle(pool_at(pool, index));
}

struct operation *
operation_lock(
    struct hwt_purgatory *purgatory, hwt_operation handle, struct shard **home)
{
	uint32_t index = (uint32_t)handle.id;
	struct operation *operation;
	uint64_t identity;

	if (index >= pool_used(&purgatory->pool))
		return NULL;
	operation = pool_at(&purgatory->pool, index);
	/* E:identity acquire */
	identity = a64_load_acquire(&operation->identity);
	if (identity >> 32 != handle.id >> 32 || !(identity & LIVE))
		return NULL;
	*home = operation_home(purgatory, identity);
	shard_lock(*home);
	if (a64_load_acquire(&operation->identity) == identity)
		return operation;
	shard_unlock(*home);
	return NULL;
}

struct hwt_purgatory *
operation_purgatory(struct operation *operation)
{
	uint32_t start = slab_start(slab_number(operation->index));
	struct operation *first = operation - (operation->index - start);

	return ((struct slab *)(void *)((char *)first -
		    offsetof(struct slab, operation)))
	    ->purgatory;
}
