/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The back end of atomic.h for the explorer: each access is a point, and then
 * takes place in one step. It is ConcurrencyKit's back end on x86-64, operation
 * by operation: what is one instruction there is one step here, what is two is
 * two. So wide_load may mix halves, wide_publish writes the deadline before
 * it swaps the word, a locked instruction empties the store buffer whatever its
 * order is called, and a load never does.
 *
 * Small sizes too, so that caches run over and slabs are added, released and
 * opened again within a handful of operations. A slab has 4 pages of 2 records,
 * of which its header takes 2.
 */
#ifndef SIM_ATOMIC_H
#define SIM_ATOMIC_H

#include "test/explore/explore.h"

#define APART
#define EPOCH_PAGE CACHE_LINE
#define INDEX_BITS 12
#define SLAB_BITS 3
#define PAGE_BITS 1
#define CACHE_SLOTS 4u
#define CACHES_MAX 4u
#define WAKE_PAGES 2
#define TRIM_PAGES 2u
#define ARENA_BITS 2
#define ARENAS_MAX 64u
#define WALK_BATCH 2u /* modules/purgatory */
#define LOOKS 1u /* modules/checkout */

typedef uint64_t a64_t;
typedef struct {
	_Alignas(16) uint64_t half[2];
} wide_t;

/* Fails when this memory was released. */
void sim_touch(const void *at);
/* The caller is about to use or to change what is there: see sim_settings. */
void sim_stop_at(const void *at, bool changes);
/* The caller has changed it. Fails when that is a record that was released to
 * the system. */
void sim_change(const void *at);
/* The record may be used again: it must read as 0. */
void sim_commit(const void *record);

static inline uint64_t
sim_load(const void *p)
{
	uint64_t value;

	sim_touch(p);
	value = explore_load(p, 8);
	sim_touch(p);
	return value;
}

static inline void
sim_store(void *p, uint64_t value, enum explore_order order)
{
	sim_touch(p);
	explore_store(p, 8, value, order);
	sim_touch(p);
	sim_change(p);
}

/* The caller then changes what is there. */
static inline void
sim_modify(const void *p, unsigned bytes, enum explore_order order)
{
	sim_stop_at(p, true);
	sim_touch(p);
	explore_modify_in(p, bytes, order);
	sim_touch(p);
}

static inline uint64_t
a64_load_acquire(const a64_t *p)
{
	return sim_load(p);
}

#define a64_load_relaxed(p) a64_load_acquire(p)
#define a64_load_seq(p) a64_load_acquire(p)

#define SIM_STORE(name, order)                            \
	static inline void name(a64_t *p, uint64_t value) \
	{                                                 \
		sim_store(p, value, order);               \
	}
SIM_STORE(a64_store_relaxed, EXPLORE_RELAXED)
SIM_STORE(a64_store_release, EXPLORE_RELEASE)
SIM_STORE(a64_store_seq, EXPLORE_SEQ)

#define SIM_MODIFY(name, changed)                             \
	static inline uint64_t name(a64_t *p, uint64_t value) \
	{                                                     \
		uint64_t old;                                 \
                                                              \
		sim_modify(p, 8, EXPLORE_SEQ);                \
		old = *p;                                     \
		*p = changed;                                 \
		return old;                                   \
	}
SIM_MODIFY(a64_add_seq, old + value)
SIM_MODIFY(a64_swap_seq, value)
SIM_MODIFY(a64_or_seq, old | value)
SIM_MODIFY(a64_and_seq, old &value)

#define SIM_CAS(name, order)                                            \
	static inline bool name(a64_t *p, uint64_t old, uint64_t value) \
	{                                                               \
		sim_modify(p, 8, order);                                \
		if (*p != old)                                          \
			return false;                                   \
		*p = value;                                             \
		sim_change(p);                                          \
		return true;                                            \
	}
SIM_CAS(a64_cas_seq, EXPLORE_SEQ)
SIM_CAS(a64_cas_relaxed, EXPLORE_RELAXED) /* of deliberate faults */

#define WIDE_OF_HALVES
#define WIDE_BEGINS(p) sim_commit(p)

static inline bool
wide_cas(wide_t *p, struct wide old, struct wide value)
{
	sim_modify(p, 16, EXPLORE_SEQ);
	if (p->half[0] != old.word || p->half[1] != old.deadline_ns)
		return false;
	p->half[0] = value.word;
	p->half[1] = value.deadline_ns;
	sim_change(p);
	return true;
}

#endif
