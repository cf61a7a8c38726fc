/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a purgatory: what its two files share. The argument why it
 * works is at the top of purgatory.c.
 */
#ifndef PURGATORY_H
#define PURGATORY_H

#include <pthread.h>

#include "sys/atomic.h"
#include "sys/secret.h"
#include "sys/valid.h"
#include "hwt_purgatory.h"

#ifndef WALK_BATCH
#define WALK_BATCH 32u
#endif
#define SLOT_LEVEL UINT32_MAX

/*
 * An entry of a shard's table: the first link of a key's ring, so that a key
 * needs no memory of its own; or the key's level. All of it is guarded by the
 * shard's lock; key, hash and slot do not change while it is in use.
 */
struct node {
	union {
		struct node *chain; /* of an entry */
		uint64_t count; /* links of the ring; in its last, not first */
	};
	struct hwt_key key;
	uint32_t hash; /* the lowest bits are the shard's number */
	uint32_t slot; /* in operation.link; SLOT_LEVEL: none */
};

struct link {
	struct node node;
	struct link *next, *previous; /* a ring, in order of arrival */
};

/* A key's value, if it was raised or is waited for. */
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

/*
 * A block of malloc. home is the shard of its first key, whose lock guards seen
 * and batch to has_threshold. The rest does not change until it has ended, or
 * is its owner's.
 */
struct operation {
	hwt_operation handle; /* its timeout's, with salt */
	struct shard *home;
	union {
		struct operation *next; /* of those that have ended */
		uint64_t seen; /* by the pass of a shutdown with this number */
	};
	hwt_try *try_complete;
	void *arg;
	hwt_done *done;
	struct batch *batch; /* RUNNING: of the walk that owns it */
	uint8_t index; /* RUNNING: in that batch */
	uint8_t state; /* enum state */
	uint8_t outcome; /* enum hwt_outcome, once decided */
	bool again : 1; /* an event came while it was owned */
	bool has_threshold : 1;
	uint32_t link_count;
	struct link link[];
};

struct shard {
	_Alignas(128) pthread_mutex_t lock;
	struct node **bucket;
	uint32_t bucket_mask, entry_count;
	struct batch *walks; /* under way, with links left */
	struct hwt_purgatory *purgatory;
	uint64_t links, keys, levels, pending, tried, bytes;
	uint64_t ended[HWT_SHUT_DOWN + 1]; /* by outcome */
	a64_t returned; /* calls of done, for operations whose home it is */
	a64_t deciding; /* calls that may have got the right, and not used it */
	bool closed;
};

struct hwt_purgatory {
	struct hwt *timer;
	struct shard *shard;
	uint32_t shard_count, shard_bits;
	uint64_t salt; /* so that handles of others are refused */
	uint64_t max_pending; /* 0: no limit */
	struct secret secret;
	a64_t permits; /* taken, of max_pending */
	a64_t passes; /* of shutdowns */
};

/* An operation that a walk has taken to call its predicate. */
struct visit {
	struct operation *operation; /* NULL: another call has taken it back */
	struct link *link;
};

/*
 * A walk through what is linked under a key, and what it has taken at once: up
 * to WALK_BATCH that have their home here, or one that has another. The
 * shard's lock guards what it has taken, at, end, and next_walk.
 */
struct batch {
	struct batch *next_walk; /* of the shard's */
	struct link *at, *end; /* to be visited next, and last; NULL: none */
	struct call *call;
	struct shard *shard;
	struct hwt_key key;
	uint32_t hash;
	enum hwt_outcome outcome; /* 0: what the predicate says */
	struct operation *ended, **last;
	uint32_t ended_count;
	size_t decided; /* by this call */
	uint32_t count; /* of visits */
	bool is_away; /* the one visit's home is another shard */
	bool holds; /* what the last predicate has answered */
	a64_t begun; /* the last visit whose predicate was called */
	a64_t marked; /* another call has come upon one of them */
	struct visit visit[WALK_BATCH];
};

/* Keyed, since others may choose keys: whoever does not know the secret cannot
 * find keys that meet in a bucket. It is wyhash's mixing of two words (Wang Yi,
 * 2019), as in Go's maps where there is no AES. Nobody sees a hash, so that
 * SipHash, which hides its key from those who do, and takes five times as
 * long, is not needed. */
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

static inline struct link *
node_link(struct node *node)
{
	return (struct link *)(void *)node;
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
key_is(const struct hwt_key *a, const struct hwt_key *b)
{
	return a->id == b->id && a->kind == b->kind;
}

/* table.c; all with the shard's lock held */
int table_create(struct shard *shard);
/* Visits the operations whose first key is in that bucket, until false. */
void bucket_each(struct shard *shard, uint32_t bucket,
    bool (*visit)(struct operation *operation, void *arg), void *arg);
/* Of a ring; NULL: there is none. */
struct link *ring_first(
    struct shard *shard, const struct hwt_key *key, uint32_t hash);
uint64_t ring_count(const struct link *first);
void link_add(struct shard *shard, struct link *link);
/* A key that has no more links goes, and its level with it. */
void link_remove(struct shard *shard, struct link *link);
/* NULL: the key has none. */
struct level *level_find(
    struct shard *shard, const struct hwt_key *key, uint32_t hash);
/* For a key with a link and without a level. */
void level_add(struct shard *shard, struct level *level,
    const struct hwt_key *key, uint32_t hash);
void threshold_add(struct level *level, struct operation *operation);
void threshold_remove(struct operation *operation);
/* The lowest one; NULL: there is none. */
struct operation *threshold_first(struct level *level);

#endif
