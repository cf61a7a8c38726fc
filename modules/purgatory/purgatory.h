/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a purgatory: what its files share. The argument why it works
 * is at the top of purgatory.c.
 */
#ifndef PURGATORY_H
#define PURGATORY_H

#include <pthread.h>

#include "sys/atomic.h"
#include "sys/secret.h"
#include "sys/valid.h"
#include "hwt_purgatory.h"

#define LINKS_INSIDE 3u
#define SLABS 25u
#ifndef SLAB_FIRST
#define SLAB_FIRST 256u /* operations in the first slab, a power of two */
#endif
#ifndef WALK_BATCH
#define WALK_BATCH 32u
#endif

enum kind {
	KIND_TRIED, /* links of operations with a predicate */
	KIND_PLAIN, /* of all others */
	KIND_LEVEL /* a key's value */
};

/*
 * An entry of a shard's table. The links under a key are two rings, of those
 * with a predicate and of all others, each in order of arrival; the first link
 * of each is the ring's entry, so that a key needs no memory of its own. A
 * third entry has the key's value, if it was raised or is waited for.
 * Everything is guarded by the shard's lock; name and the word of bits do not
 * change while the node is in use.
 */
struct node {
	struct node *chain;
	struct hwt_key name;
	uint32_t hash : 28; /* the lowest bits are the shard's number */
	uint32_t kind : 2;
	uint32_t
	    slot : 2; /* in operation.inside; OUTSIDE: see struct outside */
	uint32_t count; /* of the ring; in its first link */
};

#define OUTSIDE LINKS_INSIDE

struct link {
	struct link *next, *previous; /* a ring */
	struct node node;
};

struct level {
	struct node node;
	uint64_t value, arrivals;
	struct operation *lowest; /* root of the thresholds: see table.c */
};

/* Of an operation with at_least, in the place of the links that it does not
 * have. */
struct threshold {
	struct operation *left, *right;
	uint64_t at_least, arrival;
	struct level *level; /* NULL: it is in none */
};

/* Of an operation with more keys than fit. */
struct outside {
	struct link link;
	struct operation *operation;
};

enum state {
	STATE_LINKING, /* its watch owns it */
	STATE_IDLE,
	STATE_RUNNING /* a thread owns it to call its predicate */
};

#define LIVE (UINT64_C(1) << 16)

/*
 * An operation stays at its place until the purgatory is destroyed, so that
 * any handle can be looked at. Its home is the shard of its first key. All is
 * guarded by the home's lock, but identity, which is read without, and what
 * its owner alone uses: next, and the links under the locks of their shards.
 */
struct operation {
	/* generation << 32 | LIVE, until it is decided | number of the home */
	a64_t identity;
	uint32_t index; /* never changes */
	uint8_t state; /* enum state, while it is LIVE */
	uint8_t outcome; /* enum hwt_outcome, left for the owner; 0: none */
	bool again : 1; /* an event came while it was owned */
	bool has_threshold : 1;
	bool has_deadline : 1; /* its watch gives it a timeout */
	bool expired : 1; /* the timeout's task has been here */
	bool orphan : 1; /* that task, which is under way, is to free it */
	uint8_t inside_count; /* 0: its links are outside */
	union {
		hwt_try *try_complete; /* until it has ended */
		struct operation *next; /* from then on */
	};
	void *arg;
	/* What a walk reads of the first link is in the same cache line. */
	union {
		struct link inside[LINKS_INSIDE];
		struct {
			struct link only;
			struct threshold threshold;
		};
		struct {
			struct outside *outside;
			size_t outside_count;
		};
	};
	hwt_done *done;
	hwt_timeout timeout; /* {0}: none */
};

_Static_assert(sizeof(struct operation) == 192, "three cache lines");

struct walk {
	struct walk *next_walk; /* of the shard's */
	struct link *at, *end; /* to be visited next, and last; NULL: none */
};

struct shard {
	_Alignas(128) pthread_mutex_t lock;
	struct node **bucket;
	uint32_t bucket_mask, entry_count;
	struct operation *free;
	uint32_t free_count;
	bool closed;
	struct walk *walks; /* under way, with links left */
	uint64_t links, keys, pending, tried;
	uint64_t ended[HWT_SHUT_DOWN + 1]; /* by outcome */
	uint64_t taken; /* operations from free, less those put back */
	uint64_t bytes; /* buckets, levels, and links outside */
	a64_t returned; /* calls of done, for operations whose home it is */
};

struct slab {
	_Alignas(64) struct hwt_purgatory *purgatory;
	_Alignas(64) struct operation operation[];
};

struct pool {
	pthread_mutex_t lock; /* may be taken with a shard's lock held */
	struct operation *free;
	a64_t used; /* operations with a lower index have been used */
	aptr_t slab[SLABS]; /* slab i has SLAB_FIRST << i operations */
};

struct hwt_purgatory {
	struct hwt *timer;
	struct shard *shard;
	uint32_t shard_count, shard_bits;
	uint64_t max_pending; /* 0: no limit */
	struct secret secret;
	struct pool pool;
	a64_t permits; /* taken, of max_pending */
	a64_t expiring; /* threads in the task of a timeout */
};

/* Keyed, since others may choose keys: whoever does not know the secret cannot
 * find keys that meet in a bucket. It is wyhash's mixing of two words (Wang Yi,
 * 2019), as in Go's maps where there is no AES. Nobody sees a hash, so that
 * SipHash, which hides its key from those who do, and takes five times as
 * long, is not needed. */
static inline uint64_t
key_mix(const struct hwt_purgatory *purgatory, struct hwt_key name)
{
	__extension__ typedef unsigned __int128 product_t;
	uint64_t a = purgatory->secret.word[0];
	uint64_t b = purgatory->secret.word[1];
	product_t product = (product_t)(name.kind ^ a) * (name.id ^ b);

	product = (product_t)((uint64_t)product ^ a) *
	    ((uint64_t)(product >> 64) ^ b);
	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* As many bits as a node has for it. */
static inline uint32_t
key_hash(const struct hwt_purgatory *purgatory, struct hwt_key name)
{
	return (uint32_t)(key_mix(purgatory, name) >> 36);
}

static inline struct shard *
shard_of(const struct hwt_purgatory *purgatory, uint32_t hash)
{
	return &purgatory->shard[hash & (purgatory->shard_count - 1)];
}

static inline void
shard_lock(struct shard *shard)
{
	(void)pthread_mutex_lock(&shard->lock);
}

static inline void
shard_unlock(struct shard *shard)
{
	(void)pthread_mutex_unlock(&shard->lock);
}

static inline hwt_operation
operation_handle(const struct operation *operation)
{
	uint64_t identity = a64_load_relaxed(&operation->identity);

	return (hwt_operation){(identity >> 32 << 32) | operation->index};
}

static inline struct shard *
operation_home(const struct hwt_purgatory *purgatory, uint64_t identity)
{
	return &purgatory->shard[identity & (LIVE - 1)];
}

static inline size_t
operation_link_count(const struct operation *operation)
{
	return operation->inside_count != 0 ? operation->inside_count
					    : operation->outside_count;
}

static inline struct link *
operation_link(struct operation *operation, size_t i)
{
	return operation->inside_count != 0 ? &operation->inside[i]
					    : &operation->outside[i].link;
}

static inline struct link *
node_link(struct node *node)
{
	return (
	    struct link *)(void *)((char *)node - offsetof(struct link, node));
}

static inline struct operation *
link_operation(struct link *link)
{
	if (link->node.slot == OUTSIDE)
		return ((struct outside *)(void *)link)->operation;
	return (struct operation *)(void *)((char *)(link - link->node.slot) -
	    offsetof(struct operation, inside));
}

/* pool.c */
void pool_create(struct pool *pool);
/* Inherited: in a forked child, where other threads of the parent were changing
 * what hangs on it: that is left. */
void pool_destroy(struct pool *pool, bool is_inherited);
/* Of the shard, whose lock is held: an operation that becomes its home's.
 * NULL: no memory. */
struct operation *operation_alloc(
    struct hwt_purgatory *purgatory, struct shard *home);
/* Into any shard whose lock is held. Its handle is stale then. */
void operation_free(struct hwt_purgatory *purgatory, struct shard *shard,
    struct operation *operation);
/* The operation of a handle, with its home locked; NULL: it has ended or never
 * was, and nothing is locked. */
struct operation *operation_lock(
    struct hwt_purgatory *purgatory, hwt_operation handle, struct shard **home);
struct hwt_purgatory *operation_purgatory(struct operation *operation);
uint32_t pool_used(const struct pool *pool);
/* Of an index below that; it may be stale. */
hwt_operation pool_handle(const struct pool *pool, uint32_t index);

/* table.c; all with the shard's lock held */
int table_create(struct shard *shard);
void table_destroy(struct shard *shard, bool is_inherited);
/* The first link of a ring; NULL: there is none. */
struct link *table_ring(struct hwt_purgatory *purgatory, struct shard *shard,
    struct hwt_key name, uint32_t hash, enum kind kind);
void link_add(
    struct hwt_purgatory *purgatory, struct shard *shard, struct link *link);
/* A key that has no more links goes, and its level with it. */
void link_remove(
    struct hwt_purgatory *purgatory, struct shard *shard, struct link *link);
/* NULL: the key has none. */
struct level *level_find(struct hwt_purgatory *purgatory, struct shard *shard,
    struct hwt_key name, uint32_t hash);
/* The key's level, which may be new; NULL: no memory. If nothing is linked
 * under the key, something must be linked under it at once. */
struct level *level_get(struct hwt_purgatory *purgatory, struct shard *shard,
    struct hwt_key name, uint32_t hash);
void threshold_add(struct hwt_purgatory *purgatory, struct level *level,
    struct operation *operation);
void threshold_remove(
    struct hwt_purgatory *purgatory, struct operation *operation);
/* The lowest one; NULL: there is none. */
struct operation *threshold_first(struct level *level);

#endif
