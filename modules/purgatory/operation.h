/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a purgatory, and what its source files share.
 *
 *   stats_write.c counters as text
 *   mailbox.c     the executor for an event loop
 *   list.c        what waits under a key
 *   purgatory.c   making, watching, events, shutting down
 *   reschedule.c  a deadline: its timeout's task, moving it
 *   walk.c        walking a key; the end of a call
 *   deferred.c    operations that a call leaves to the next one or a timeout
 *   operation.c   the word of an operation, its owner's rule, callbacks
 *   quorum.c      operations that wait for the values of several keys
 *   shard.c       links and thresholds under keys
 *   pool.c        the memory of operations
 *   table.c       the hash table of a shard's keys
 *   key.c         the memory of keys
 *   lock.c        the lock of a shard
 *   memory.c      pages of the system
 *
 * Each calls those below it, and none above, but for three that call each
 * other: see CIRCLE in operation.c.
 *
 * A record stays one until the purgatory is destroyed, so that a stale handle
 * can be looked up and refused; the generation in its word moves on whenever it
 * becomes free. While it is used it has a home: the shard of the operation's
 * first key, which counts it. All shards share what is free: see pool.c.
 *
 * LOCKS. A shard's lock protects its keys, their links, its counters and the
 * few free records that it has taken; the pool's lock, all others. A thread
 * holds at most one shard's lock, and may then take the pool's, but holds none
 * while it calls user code or the timer.
 */
#ifndef HWT_PURGATORY_OPERATION_H
#define HWT_PURGATORY_OPERATION_H

/* libbsd's; the BSDs have it themselves. */
#if __has_include(<bsd/sys/tree.h>)
#include <bsd/sys/tree.h>
#else
#include <sys/tree.h>
#endif
#include <pthread.h>

#include "core/atomic.h"
#include "core/secret.h"
#include "core/valid.h"
#include "hwt_purgatory.h"
#include "lock.h"
#include "table.h"

#ifndef INDEX_BITS
#define INDEX_BITS 28
#define SLAB_BITS 9
#endif
#define INDEX_MASK ((UINT64_C(1) << INDEX_BITS) - 1)
#define GENERATION_ONE (UINT64_C(1) << INDEX_BITS)
#define SLAB_OPERATIONS (1u << SLAB_BITS)
#define SLAB_SEGMENTS (INDEX_BITS - SLAB_BITS + 1)
/* Free records of a word that a shard takes at once: 8, or one of a small
 * slab. */
#define TAKEN_AT_ONCE ((SLAB_OPERATIONS + 63) / 64)

/* The low bits of an operation's word; above them, the generation. A word
 * without LIVE and ARMED is that of a free record. */
#define LIVE UINT64_C(0x1) /* until done has returned */
#define RUN UINT64_C(0x2) /* a thread owns it: see operation.c */
#define AGAIN UINT64_C(0x4) /* the owner must call the predicate once more */
#define ARMED UINT64_C(0x8) /* the timeout's task may still use the record */
#define HELD UINT64_C(0x10) /* an executor took it; with RUN: done is called */
#define OUTCOME_ONE UINT64_C(0x20)
#define OUTCOME_MASK (7 * OUTCOME_ONE)
#define QUEUED UINT64_C(0x100) /* HELD, and in the list of a mailbox */
#define DEFERRED UINT64_C(0x200) /* in the list of deferred.c */
#define ARMING UINT64_C(0x400) /* gets a timeout: see reschedule.c */

/* Set by a watch that fails after it has linked the operation. */
#define OUTCOME_REFUSED (HWT_SHUT_DOWN + 1)

#define LINKS_INSIDE 3

/* Operations that a walk takes under a lock. */
#ifndef WALK_BATCH
#define WALK_BATCH 32u
#endif

/* How often a call calls predicates once more for events of others. */
#ifndef AGAIN_MAX
#define AGAIN_MAX 16u
#endif

struct key;
struct operation;

/* One operation under one key. operation NULL: the position of a walk. */
struct link {
	union {
		struct {
			struct link *next, *previous;
		};
		struct hwt_key name; /* alone under its key */
	};
	/* 0: not linked; odd: alone, and the key's hash; even: the address of
	 * the key. With the lock of the key's shard; the operation's owner
	 * reads it without, to find out which shard that is. */
	a64_t where;
	struct operation *operation;
};

/* The link of an operation that waits for a value. */
struct threshold {
	struct link link;
	RB_ENTRY(threshold) entry;
	uint64_t at_least;
	uint64_t arrival; /* orders equal ones */
};

/* What is allocated for an operation that waits for the values of several keys:
 * see quorum.c. */
struct quorum {
	a64_t missing; /* keys that are yet to be reached */
	size_t count;
	struct part {
		struct threshold threshold;
		struct shard *shard; /* NULL: watch has not come to it */
	} part[];
};

struct operation {
	a64_t word;
	/* Written by watch, before it links the operation. */
	struct shard *home; /* of its first key */
	hwt_try *try_complete; /* NULL: none */
	hwt_done *done;
	void *arg;
	const struct hwt_operation_executor *executor; /* NULL: none */
	a64_t timeout; /* its id; 0: watch has not stored it */
	uint32_t index;
	uint32_t link_count; /* that it has links for; 0: links is a quorum */
	struct link *links; /* inside, or allocated; NULL: it has ended */
	union {
		struct link inside[LINKS_INSIDE];
		struct threshold threshold; /* waits for a value */
		/* Free or ended: the next one of a list. */
		struct operation *next;
		a64_t link; /* held: the mailbox's */
	};
};

RB_HEAD(thresholds, threshold);

/* Exists while something is linked, or a walk has its position here; not for
 * an operation that is alone and waits for no value. */
struct key {
	struct hwt_key name;
	uint64_t hash;
	struct key *chain; /* of a group, or of free ones */
	struct link *first, *last; /* by arrival; without thresholds */
	struct thresholds thresholds;
	uint64_t value; /* the highest that it was raised to */
	uint32_t links; /* and thresholds */
	uint32_t positions; /* of walks */
	struct key_chunk *chunk; /* that it is in */
};

/* Keys that a shard has allocated at once: see key.c. */
struct key_chunk {
	struct key_chunk *next, *previous;
	struct key *free;
	uint32_t count, used;
	uint32_t begun; /* keys from this one on were never used */
	size_t bytes;
	struct key key[];
};

/* A line for what each link changes, and another for what each end does. */
struct shard {
	_Alignas(CACHE_LINE) struct lock lock;
	struct hwt_purgatory *purgatory;
	struct operation *free; /* taken from the pool */
	uint64_t links, keys, pending, memory_bytes;
	uint32_t entries; /* of the table */
	bool closed; /* shutdown was called */
	struct table table;
	_Alignas(CACHE_LINE) uint64_t ended[OUTCOME_REFUSED + 1];
	uint64_t tried; /* moved here from a call: see struct call */
	uint64_t arrivals;
	struct key_chunk *chunks; /* those with free keys are first */
	struct key_chunk *last_chunk;
	struct key_chunk *empty_chunk; /* one without keys that is kept */
	uint32_t objects; /* keys in chunks */
	/* These are changed without the lock. */
	_Alignas(CACHE_LINE) a64_t held; /* of this home, by executors */
	a64_t executing; /* calls of execute with one of them */
};

/* See pool.c. */
struct operation_pool {
	_Alignas(CACHE_LINE) pthread_mutex_t lock;
	uint32_t slabs;
	uint32_t idle; /* the first slab of a list */
	uint32_t complete; /* slabs that are not idle */
	bool refused; /* the system takes no memory back */
	size_t slab_bytes;
	uint64_t memory_bytes;
	/* Slab n is number n + 1 - 2^s of segment s, which has 2^s slabs. */
	aptr_t segments[SLAB_SEGMENTS];
};

/* See deferred.c. */
struct deferred_list {
	pthread_mutex_t
	    lock; /* of all that follows; no other is held with it */
	struct deferred *first;
	uint64_t armed, armings;
	unsigned users;
	bool closed;
	hwt_timeout timeout; /* of the number armed, when there are no users */
};

struct hwt_purgatory {
	struct hwt *timer;
	uint32_t shard_count;
	uint64_t max_pending; /* 0: none */
	struct hwt_operation_executor executor; /* execute NULL: none */
	char name[NAME_BYTES];
	uint64_t serial; /* no other one of the process has it */
	struct secret of_keys, of_generations;
	a64_t permits; /* taken, of max_pending */
	pthread_mutex_t arming; /* see reschedule.c */
	struct shard *shard;
	struct operation_pool *pool;
	struct deferred_list deferred;
};

static inline uint64_t
word_outcome(uint64_t word)
{
	return (word & OUTCOME_MASK) / OUTCOME_ONE;
}

static inline bool
word_is_open(uint64_t word, uint64_t id)
{
	return ((word ^ id) & ~INDEX_MASK) == 0 &&
	    (word & (LIVE | OUTCOME_MASK)) == LIVE;
}

static inline uint64_t
word_id(uint64_t word, uint32_t index)
{
	return (word & ~INDEX_MASK) | index;
}

static inline hwt_operation
operation_handle(struct operation *operation)
{
	return (hwt_operation){
	    word_id(a64_load_acquire(&operation->word), operation->index)};
}

static inline struct key *
link_key(const struct link *link)
{
	return (struct key *)aptr_load_acquire(&link->where);
}

/* Of a link, also by its operation's owner without the lock. */
static inline uint64_t
link_hash(const struct link *link)
{
	/* E:where acquire */
	uint64_t where = a64_load_acquire(&link->where);

	return (where & 1) ? where : ((struct key *)(uintptr_t)where)->hash;
}

/* With the lock of the key's shard; NULL: it is not linked. */
static inline void
link_store(struct link *link, const struct key *key)
{
	/* E:where release */
	aptr_store_release(&link->where, key);
}

static inline bool
link_is_linked(const struct link *link)
{
	return a64_load_relaxed(&link->where) != 0;
}

static inline bool
link_is_alone(const struct link *link)
{
	return a64_load_relaxed(&link->where) & 1;
}

/* The link is that of a threshold. */
static inline struct threshold *
threshold_of(struct link *link)
{
	return (struct threshold *)(void *)link;
}

/* NULL: it waits for no value, or for that of one key. */
static inline struct quorum *
quorum_of(const struct operation *operation)
{
	return operation->link_count == 0
	    ? (struct quorum *)(void *)operation->links
	    : NULL;
}

/* Not inside of the record; it has not ended. */
static inline bool
links_are_allocated(const struct operation *operation)
{
	return operation->links != NULL &&
	    operation->links != operation->inside;
}

/* A key's hash says which shard it belongs to: by the high bits, since others
 * choose the group. The lowest bit is set, as it is in no address: see struct
 * link. It is keyed, so that nobody can choose keys that meet: wyhash's of two
 * words (Wang Yi, 2019), which Go's maps have where there is no AES. Nobody
 * sees hashes, so that a hash from which one learns nothing, as SipHash is,
 * which takes five times as long, is not needed. */
static inline uint64_t
key_hash(const struct hwt_purgatory *purgatory, struct hwt_key name)
{
	__extension__ typedef unsigned __int128 product_t;
	const struct secret *secret = &purgatory->of_keys;
	uint64_t a = secret->word[0] ^ UINT64_C(0xa0761d6478bd642f);
	uint64_t b = secret->word[1] ^ UINT64_C(0xe7037ed1a0b428db);
	product_t product = (product_t)(name.kind ^ a) * (name.id ^ b);

	product = (product_t)((uint64_t)product ^ a) *
	    ((uint64_t)(product >> 64) ^ b);
	return ((uint64_t)product ^ (uint64_t)(product >> 64)) | 1;
}

static inline struct shard *
shard_of(const struct hwt_purgatory *purgatory, uint64_t hash)
{
	return &purgatory->shard[hash >> 48 & (purgatory->shard_count - 1)];
}

static inline void
shard_lock(struct shard *shard)
{
	lock_take(&shard->lock);
}

static inline void
shard_unlock(struct shard *shard)
{
	lock_drop(&shard->lock);
}

/* 0; or what each call answers without one, or in a forked child. */
static inline int
purgatory_enter(const struct hwt_purgatory *purgatory)
{
	if (purgatory == NULL)
		return -EINVAL;
	return timer_is_foreign(purgatory->timer) ? -EOWNERDEAD : 0;
}

/* A call of the library that this thread is in: the outermost one of its
 * purgatory. What is put off waits there: see CALLBACKS in operation.c. */
struct call {
	struct hwt_purgatory *purgatory; /* NULL: it is inside of another one */
	struct operation *first, *last; /* have ended; to be carried out */
	struct walk_request *first_request, *last_request;
	unsigned callbacks; /* that the thread is in, one in the other */
	unsigned predicates; /* of these */
	unsigned again; /* predicates called for events of others */
	/* Calls of predicates, less those that a shard has counted. Only this
	 * thread changes it, so that to count one takes no lock and no atomic
	 * operation. It is moved to shard.tried, of any shard, wherever the
	 * call holds a shard's lock anyway, or at its end. A watch moves the
	 * first call of its predicate beforehand, and the difference is -1,
	 * modulo 2^64, until then. hwt_purgatory_read_stats adds the shards
	 * and, in a callback, this; the sum is exact when no other thread is
	 * in a call. */
	uint64_t tried;
	bool keeps_on; /* with that: nothing can be deferred */
	struct call *outer; /* of another purgatory */
};

/* The innermost one of this thread. */
extern _Thread_local struct call *calls;

/* NULL: this thread is in no call of the purgatory. If it is in one it is in a
 * callback, or in one of the timer's hooks. */
static inline struct call *
call_of(const struct hwt_purgatory *purgatory)
{
	struct call *call = calls;

	while (call != NULL && call->purgatory != purgatory)
		call = call->outer;
	return call;
}

/* A call counts its predicates itself, without an atomic operation, until it
 * holds a shard's lock: then that shard counts them. */
static inline uint64_t
call_take_tried(const struct hwt_purgatory *purgatory)
{
	struct call *call = call_of(purgatory);
	uint64_t tried = call->tried;

	call->tried = 0;
	return tried;
}

/* shard.c */
int shards_create(struct hwt_purgatory *purgatory, uint32_t count);
/* inherited: in a forked child; what another thread was changing is left. */
void shards_destroy(struct hwt_purgatory *purgatory, bool inherited);
/* With the lock held. A free record; NULL: no memory. */
struct operation *shard_alloc(struct shard *shard);
/* With the lock held. Links the operation under that key of this shard. 1: the
 * key's value reaches at_least, and it is not linked. */
int key_link(struct shard *shard, struct operation *operation,
    struct link *link, struct hwt_key name, uint64_t hash, uint64_t at_least);
/* With the lock of the key's shard held. False: the key is freed. */
bool key_unlink(struct shard *shard, struct link *link);
/* With the lock held: the lowest threshold, and the first one behind another
 * value and arrival; NULL: none. */
struct threshold *key_lowest(struct key *key);
struct threshold *key_after(struct key *key, const struct threshold *after);
/* With the lock held. */
void key_raise(struct key *key, uint64_t value);
/* With the lock held: puts a walk's position before the first link, or behind
 * the last; moves it on; and takes it out again. */
void key_place(struct key *key, struct link *position, bool last);
void key_move(struct link *position, struct link *before);
void key_displace(struct shard *shard, struct link *position);

/* table.c, besides table.h */
/* With the lock held: a key for the link that is alone. NULL: no memory. */
struct key *key_for_alone(struct shard *shard, struct link *link);

/* key.c */
/* With the lock held. Not initialized, but for its chunk; NULL: no memory. */
struct key *key_alloc(struct shard *shard);
void key_free(struct shard *shard, struct key *key);
/* All of the shard's. */
void keys_free(struct shard *shard);

/* pool.c */
struct operation_pool *pool_create(void);
/* inherited: as for shards_destroy. */
void pool_destroy(struct hwt_purgatory *purgatory, bool inherited);
/* A list of some free records; NULL: no memory. Takes the pool's lock. */
struct operation *pool_take(struct hwt_purgatory *purgatory);
/* Makes a record free that nobody uses any more. */
void operation_free(struct operation *operation, uint64_t word);
/* The same, and whoever has had the pool's lock after that knows that the
 * caller does not use the purgatory any more. */
void operation_free_locked(struct operation *operation, uint64_t word);
/* What was allocated for its links. */
void links_free(struct operation *operation);
/* The record at a handle's index; NULL: there is none. */
struct operation *operation_at(
    const struct hwt_purgatory *purgatory, uint64_t id);
/* All records that were ever used have a lower index. Takes the pool's lock. */
uint32_t pool_end(
    const struct hwt_purgatory *purgatory, uint64_t *memory_bytes);
/* The next record that may be used from *index on, which moves behind it, below
 * end; NULL: none. */
struct operation *pool_next(
    const struct hwt_purgatory *purgatory, uint32_t *index, uint32_t end);

/* memory.c */
/* Whole pages. */
size_t memory_round(size_t bytes);
/* Zeroed; NULL: no memory. */
void *memory_map(size_t bytes);
void memory_unmap(void *memory, size_t bytes);
/* It reads as 0 then. False: the system does not take it back. */
bool memory_release(void *memory, size_t bytes);

/* operation.c */
/* Every call that may end operations is between this and call_end. */
static inline void
call_begin(struct call *call, struct hwt_purgatory *purgatory)
{
	bool nested = call_of(purgatory) != NULL;

	*call = (struct call){
	    .purgatory = nested ? NULL : purgatory, .outer = calls};
	if (!nested)
		calls = call;
}
/* Hands over what was put off, or calls its done, if the thread is in no
 * callback. */
void call_carry_out(struct call *call);
static inline void
call_flush(struct call *call)
{
	if (call->first != NULL)
		call_carry_out(call);
}
/* Of the calls that this thread is in: it leaves nothing; or at once. */
void call_keep_on(const struct hwt_purgatory *purgatory);
void call_be_tired(const struct hwt_purgatory *purgatory);
/* Changes bits of the word that others may change, too. */
void operation_change(
    struct operation *operation, uint64_t clear, uint64_t set);
/* A predicate's event: calls it, or leaves it to the owner. True: this call has
 * completed the operation. */
bool operation_event(struct operation *operation, uint64_t id);
/* Decides the outcome, if it is open: leaves it to the owner, or becomes the
 * owner, who must call operation_end. Takes no lock. */
enum taken {
	TAKEN_NOT,
	TAKEN_LEFT,
	TAKEN_OWN
};
enum taken operation_take(
    struct operation *operation, uint64_t id, uint64_t outcome);
/* For the owner: unlinks it from all keys, and counts its end. */
void operation_unlink(struct operation *operation, uint64_t outcome);
/* One of max_pending less. */
void permit_release(struct hwt_purgatory *purgatory);
/* For the owner: carries the outcome out. watching: see operation_own. */
void operation_end(struct operation *operation, bool watching);
/* Both. True: this call has decided. */
bool operation_decide(
    struct operation *operation, uint64_t id, uint64_t outcome);
/* The same for the owner, who carries it out later. */
bool operation_set(struct operation *operation, uint64_t outcome);
/* The owner's rule; when it returns the caller is not the owner any more. True:
 * this call has completed the operation. watching: done of an operation that
 * ends is called at once, also in a callback. */
bool operation_own(struct operation *operation, bool watching);
/* For hwt_operation_run: queued 0; for a mailbox: QUEUED. False: no executor
 * holds it, or not in that way. */
bool operation_run(struct operation *operation, uint64_t id, uint64_t queued);
/* For a mailbox that an executor hands it to: from now on only that runs it.
 * False: no executor holds it. */
bool operation_queue(struct operation *operation, uint64_t id);
/* For the owner of one that has ended: cancels its timeout. */
void operation_disarm(struct operation *operation);

/* quorum.c */
size_t quorum_bytes(size_t count);
/* For so many keys, of which so many are to be reached. NULL: no memory. */
struct quorum *quorum_create(size_t count, uint64_t missing);
/* A key is reached. True: it was the last one that was missing. */
bool quorum_count(struct quorum *quorum);
/* Unlinks the operation from all keys. */
void quorum_unlink(struct quorum *quorum);

/* reschedule.c */
/* The task of an operation's timeout. */
hwt_task operation_expire;

/* deferred.c */
/* For the owner, whose word has AGAIN and no outcome: gives it up. False: the
 * word has changed. *completed: as operation_own answers. */
bool operation_defer(
    struct operation *operation, uint64_t word, bool *completed);
/* From now on nothing is deferred. */
void deferred_close(struct hwt_purgatory *purgatory);
/* Of those that are deferred, none is pending: cancels the timeout. False: look
 * again, another thread is about to make one. */
bool deferred_await(struct hwt_purgatory *purgatory);
void deferred_free(struct hwt_purgatory *purgatory);

/* walk.c */
/* What a walk through a key takes under the lock at once: see WALK. */
struct batch {
	struct visit {
		struct operation *operation;
		hwt_operation handle;
		void *arg;
	} visit[WALK_BATCH];
	uint32_t count;
};
void batch_add(struct batch *batch, struct operation *operation);
/* A walk through a key with many links. */
struct walk {
	struct link at, end;
	struct threshold after; /* the last one visited */
	uint64_t limit; /* arrivals from then on are not visited */
};
/* With the lock held. */
void walk_begin(struct walk *walk, struct shard *shard, struct key *key);
/* With the lock held: the next ones; all: also those without a predicate.
 * False: these were the last. */
bool walk_collect(
    struct walk *walk, struct key *key, bool all, struct batch *batch);
/* With the lock held. The key may be freed. */
void walk_end(struct walk *walk, struct shard *shard);
/* Walks through the operations under a key: outcome 0 calls their predicates,
 * HWT_COMPLETED ends those whose at_least is not above value, another one ends
 * all. Returns how many it has decided. In a predicate, that is put off until
 * the predicate has returned. */
struct walk_request {
	struct walk_request *next;
	struct hwt_key name;
	uint64_t hash; /* of name */
	uint64_t value;
	uint64_t outcome;
};
size_t purgatory_walk(
    struct hwt_purgatory *purgatory, const struct walk_request *request);
/* call: call_of(purgatory). False: the thread is in no predicate, or there is
 * no memory. */
bool call_put_off(struct call *call, const struct walk_request *request);
void call_end(struct call *call);

/* purgatory.c */
/* hwt_operation_run, with queued as for operation_run. */
int purgatory_run(
    struct hwt_purgatory *purgatory, hwt_operation operation, uint64_t queued);

#endif
