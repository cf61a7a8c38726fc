/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of a purgatory share: see the top of purgatory.c. */
#ifndef PURGATORY_H
#define PURGATORY_H

#include <pthread.h>

#include "sys/atomic.h"
#include "sys/pause.h"
#include "sys/secret.h"
#include "sys/valid.h"
#include "hwt_purgatory.h"

#define NOINLINE __attribute__((noinline))
#define SLOT_LEVEL UINT32_MAX
#define SLOT_GONE (UINT32_MAX - 1)

/* An entry of a shard's table: the first link of a key's ring, so that a key
 * needs no memory of its own; or the key's level. Guarded by the shard's lock;
 * key and hash do not change while it is in use. */
struct node {
	union {
		struct node *chain; /* of an entry */
		uint64_t count; /* links of the ring; in its last, not first */
	};
	struct hwt_key key;
	uint32_t hash; /* the lowest bits are the shard's number */
	uint32_t slot; /* in operation.link; SLOT_GONE: in no ring any more */
};

struct link {
	struct node node;
	struct link *next, *previous; /* a ring, in order of arrival */
};

/* A key's value, if raised or waited for. */
struct level {
	struct node node;
	uint64_t value, arrivals;
	struct operation *root; /* of the thresholds: see table.c */
};

/* Of an operation with at_least: behind its one link. */
struct threshold {
	struct operation *left, *right;
	uint64_t at_least, arrival;
	struct level *level; /* NULL: it is in none */
};

enum state {
	OPERATION_LINKING, /* its watch owns it */
	OPERATION_IDLE,
	OPERATION_RUNNING, /* a walk owns it to call its predicate */
	OPERATION_ENDED /* who has ended it owns it */
};

/* A block of malloc. Its guard guards state, outcome and again; the rest does
 * not change until it has ended. */
struct operation {
	hwt_operation handle; /* its timeout's, with salt */
	struct shard *home; /* of its first key */
	struct operation *next; /* of those that have ended */
	hwt_try *try_complete;
	void *arg;
	hwt_done *done;
	a64_t lock; /* the guard, if it has several keys */
	uint8_t state; /* enum state */
	uint8_t outcome; /* enum hwt_outcome, once decided */
	bool again; /* an event came while it was owned */
	bool has_threshold;
	uint32_t link_count;
	struct link link[];
};

struct ended_list {
	struct operation *first, *last; /* by next; last: if there is one */
};

/* Guarded by lock, but for purgatory, and what is atomic. It is two lines of
 * the cache, of which what changes most is in the first. */
struct shard {
	_Alignas(128) a64_t lock;
	struct node **bucket;
	uint32_t bucket_mask;
	uint32_t entry_count, levels; /* a key has an entry and maybe a level */
	uint32_t links, pending;
	uint32_t thresholds; /* operations with at_least */
	uint8_t hash_bits; /* for the shard's number */
	bool closed;
	struct walk *walks; /* under way */
	uint64_t tried;
	a64_t returned; /* done, of those whose home it is; less requests */
	uint64_t ended[HWT_SHUT_DOWN]; /* by outcome, from HWT_COMPLETED on */
	struct hwt_purgatory *purgatory;
	struct node *first_bucket; /* until the table grows */
	a64_t deciding; /* calls by handle that ask for the right or use it */
};

struct hwt_purgatory {
	struct hwt *timer;
	uint32_t shard_count;
	struct secret salt; /* word 0, so that handles of others are refused */
	uint64_t max_pending; /* 0: no limit */
	struct secret secret;
	a64_t permits; /* taken, of max_pending */
	struct shard shard[];
};

/* Through what is linked under a key; guarded by its shard's lock. */
struct walk {
	struct walk *next; /* of the shard's */
	struct link *at, *end; /* to be visited next, and last; NULL: none */
	struct call *call;
	struct shard *shard;
	struct ended_list ended; /* done is to be called */
	uint32_t visited; /* since the lock was taken */
	size_t decided; /* by this call */
};

/* One locked instruction, where a mutex has two. It is held for short, but also
 * while a table grows. Whoever finds it taken yields, and then sleeps, since
 * the holder may have been preempted. The explorer knows mutexes alone. */
#ifdef HWT_ATOMIC_MODEL
#define lock_take(lock) (void)pthread_mutex_lock((pthread_mutex_t *)(lock))
#define lock_release(lock) (void)pthread_mutex_unlock((pthread_mutex_t *)(lock))
#else
static NOINLINE void
lock_wait(a64_t *lock)
{
	uint32_t tries = 0;

	/* E:lock acquire */
	do
		yield_or_pause(&tries);
	while (a64_swap_seq(lock, 1) != 0);
}

static inline void
lock_take(a64_t *lock)
{
	/* E:lock acquire */
	if (__builtin_expect(a64_swap_seq(lock, 1) != 0, 0))
		lock_wait(lock);
}

static inline void
lock_release(a64_t *lock)
{
	/* E:lock release */
	a64_store_release(lock, 0);
}
#endif

/* wyhash's mixing of two words (Wang Yi, 2019), keyed, since others may choose
 * keys: who does not know the secret cannot find keys that meet in a bucket.
 * Nobody sees hashes, from which the secret could be found. */
static inline uint32_t
key_hash(const struct secret *secret, const struct hwt_key *key)
{
	__extension__ typedef unsigned __int128 product_t;
	const uint64_t a = secret->word[0], b = secret->word[1];
	product_t product = (product_t)(key->kind ^ a) * (key->id ^ b);

	product = (product_t)((uint64_t)product ^ a) *
	    ((uint64_t)(product >> 64) ^ b);
	return (uint32_t)((uint64_t)product ^ (uint64_t)(product >> 64));
}

static inline struct shard *
shard_of(struct hwt_purgatory *purgatory, uint32_t hash)
{
	return &purgatory->shard[hash & (purgatory->shard_count - 1)];
}

static inline struct link *
node_link(struct node *node)
{
	return (struct link *)(void *)node;
}

static inline struct level *
node_level(struct node *node)
{
	return (struct level *)(void *)node;
}

static inline struct operation *
link_operation(struct link *link)
{
	return (struct operation *)(void *)((char *)(link - link->node.slot) -
	    offsetof(struct operation, link));
}

static inline struct threshold *
threshold_of(struct operation *operation)
{
	return (struct threshold *)(void *)&operation->link[1];
}

static inline bool
key_equals(const struct hwt_key *a, const struct hwt_key *b)
{
	return a->id == b->id && a->kind == b->kind;
}

static inline struct node **
table_bucket(struct shard *shard, uint32_t hash)
{
	return &shard->bucket[hash >> shard->hash_bits & shard->bucket_mask];
}

/* Where the key's level or first link is, or is to be. */
static inline struct node **
table_find(struct shard *shard, const struct hwt_key *key, uint32_t hash,
    bool is_level)
{
	struct node **at = table_bucket(shard, hash), *node;

	for (; (node = *at) != NULL; at = &node->chain) {
		if (key_equals(&node->key, key) &&
		    (node->slot == SLOT_LEVEL) == is_level)
			break;
	}
	return at;
}

/* table.c; all with the shard's lock, as table_find */
uint64_t ring_count(const struct link *first);
void link_add(struct shard *shard, struct link *link);
/* A key that has no more links goes, and its level with it. */
void link_remove(struct shard *shard, struct link *link);
/* Makes it, if the key has none. NULL: there is no memory. */
struct level *level_get(
    struct shard *shard, const struct hwt_key *key, uint32_t hash);
void threshold_add(struct level *level, struct operation *operation);
void threshold_remove(struct operation *operation);
/* Removes the lowest, if the value reaches it; NULL: it does not. */
struct operation *threshold_take(struct level *level, uint64_t value);

#endif
