/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a store, and what its source files share.
 *
 *   store.c          making and freeing
 *   store_request.c  who wants it: requests
 *   complete.c       jobs that go on elsewhere
 *   unload.c         what is unloaded, and when
 *   job.c            loads and unloads
 *   entry.c          the table of keys, the order in which idle objects are
 *                    unloaded, the ends of entries
 *
 * Each calls those below it, and none above, but for entry.c: it sets timeouts
 * whose task, in unload.c, begins a job, at whose end another one is set.
 *
 * LOCKS. A shard's lock protects its table, its order, and the entries in both.
 * Under it the timer is called, and flight_begin, which takes locks of the
 * checkout one after the other; no user code but a timer's wake. No lock of the
 * checkout is held where this one is taken.
 */
#ifndef HWT_CHECKOUT_STORE_H
#define HWT_CHECKOUT_STORE_H

#include "checkout.h"
#include "sys/secret.h"

#define STORE_ITEMS_MAX 20u
/* Objects that are looked at while a lock is held, to find one to unload. */
#define STORE_LOOKS 64u

/* See store.c. */
enum entry_state {
	ENTRY_LOADING = 1,
	ENTRY_LOADED,
	ENTRY_UNLOADING,
	ENTRY_FAILED,
	ENTRY_DEAD
};

/* Which objects are unloaded: those that were not used again; also others that
 * nobody wants; pinned ones, too. */
enum choice {
	CHOOSE_UNUSED,
	CHOOSE_IDLE,
	CHOOSE_ALL
};

/* An object of the store. Under the shard's lock, but for object. */
struct store_entry {
	struct object object; /* its order: the store's address */
	struct store_entry *chain; /* of its bucket */
	/* The order of those LOADED; newer: of those that wait for a load to
	 * begin, a thread's list. */
	struct store_entry *newer, *older;
	/* Written by the job. Read by who holds the object. */
	void *value;
	hwt_timeout timeout; /* while armed */
	/* When it was idle or failed, or its job began; by the timer's
	 * clock. */
	uint64_t since_ns;
	uint64_t hash;
	uint32_t wants; /* requests that name it, and its job */
	union {
		uint32_t weight;
		int32_t error; /* FAILED */
	};
	uint8_t state;
	bool armed; /* a timeout is to come */
	bool used; /* again, since it was passed over */
	bool pinned;
	bool handed; /* the executor has its job */
	bool pending; /* its callback was called, and has not answered */
	bool in_table;
	uint8_t size;
	unsigned char key[];
};

struct store_shard {
	_Alignas(CACHE_LINE) pthread_mutex_t lock;
	struct store_entry **bucket;
	/* Linear hashing: base <= buckets < 2 * base, there is room for so
	 * many. */
	uint32_t base, buckets, room;
	uint32_t entries; /* that are not DEAD, also those in no table */
	uint32_t keys; /* in the table */
	struct store_entry *newest, *oldest;
	struct store_entry
	    *hand; /* the next to be looked at; NULL: the oldest */
	struct hwt_store_stats stats;
};

struct hwt_store {
	struct hwt_checkout *checkout;
	struct hwt_store_options options;
	struct hwt_store_executor executor; /* execute NULL: none */
	struct secret secret;
	struct store_shard *shards;
	uint32_t shard_count;
	_Alignas(CACHE_LINE) a64_t weight; /* of all that is LOADED */
	char name[NAME_BYTES]; /* in statistics */
	uint64_t serial; /* among the stores of the process */
	a64_t turn; /* the shard where the next one is looked for */
	_Alignas(CACHE_LINE) a64_t busy; /* tasks and jobs that run */
};

/* The user's memory. */
struct store_item {
	const void *key;
	size_t size;
	void *value;
	enum hwt_use use;
} ALIASES;

struct store_request {
	a64_t word; /* see store_request.c */
	struct hwt_request inner;
	struct hwt_store *store;
	struct store_item *items;
	hwt_store_granted *granted;
	void *arg;
	uint32_t count;
	/* Of what it wants, while it is BEGUN. */
	struct hwt_item inner_item[STORE_ITEMS_MAX];
} ALIASES;

static inline struct store_entry *
entry_at(const struct store_request *request, uint32_t i)
{
	return (struct store_entry *)(uintptr_t)request->inner_item[i].wanted;
}

static inline struct hwt_store *
entry_store(const struct store_entry *entry)
{
	return (struct hwt_store *)(uintptr_t)entry->object.order;
}

/* A hash's high bits choose the shard, as the low ones choose the bucket. */
static inline struct store_shard *
store_shard_at(const struct hwt_store *store, uint64_t hash)
{
	return &store->shards[hash >> 48 & (store->shard_count - 1)];
}

static inline struct store_shard *
entry_shard(const struct store_entry *entry)
{
	return store_shard_at(entry_store(entry), entry->hash);
}

static inline void
store_lock(struct store_shard *shard)
{
	(void)pthread_mutex_lock(&shard->lock);
}

static inline void
store_unlock(struct store_shard *shard)
{
	(void)pthread_mutex_unlock(&shard->lock);
}

static inline struct hwt *
store_timer(const struct hwt_store *store)
{
	return store->checkout->timer;
}

/* 0, -EINVAL of NULL, or -EOWNERDEAD. */
static inline int
store_enter(const struct hwt_store *store)
{
	if (store == NULL)
		return -EINVAL;
	return timer_is_foreign(store_timer(store)) ? -EOWNERDEAD : 0;
}

/* Entries whose load is to begin, by newer. */
struct work {
	struct store_entry *first, *last;
};

static inline void
work_add(struct work *work, struct store_entry *entry)
{
	entry->newer = NULL;
	if (work->first == NULL)
		work->first = entry;
	else
		work->last->newer = entry;
	work->last = entry;
}

/* job.c */

/* Begins to load or unload it; work gets what is to be loaded then. */
void job_begin(struct work *work, struct store_entry *entry);
/* Its callback is called, by whom it is given to. */
void job_call(struct work *work, struct store_entry *entry);
/* It has ended so. */
void job_ended(struct work *work, struct store_entry *entry, int result,
    const struct hwt_loaded *loaded);

/* unload.c */

/* Unloads until what is loaded weighs no more than that. */
void store_trim(struct hwt_store *store, uint64_t weight, enum choice choice);
/* Does all that is to be done, and unloads what is above the limit. */
void work_do(struct hwt_store *store, struct work *work);
/* The timeout of an entry. */
hwt_task entry_expire;

/* entry.c */

/* One less wants it. error: what its load has answered, or as it was; NULL: its
 * job has ended. */
void entry_put(struct store_entry *entry, int *error);

/* All that follows is called with the shard's lock held. */

bool shard_open(struct store_shard *shard);
struct store_entry *entry_find(const struct store_shard *shard, const void *key,
    size_t size, uint64_t hash);
/* In the table, LOADING, in use, with its job; NULL: no memory. */
struct store_entry *entry_create(struct hwt_store *store,
    struct store_shard *shard, const void *key, size_t size, uint64_t hash);
void entry_leave_table(struct store_shard *shard, struct store_entry *entry);
/* The newest in the order; it weighs. */
void entry_link(struct hwt_store *store, struct store_shard *shard,
    struct store_entry *entry);
void entry_unlink(struct hwt_store *store, struct store_shard *shard,
    struct store_entry *entry);
/* The next one in the order that nobody wants; *steps counts down for each that
 * is looked at. */
struct store_entry *entry_choose(
    struct store_shard *shard, enum choice choice, uint64_t *steps);
/* It has its timeout. False: the timer has no room. */
bool entry_arm(struct store_entry *entry, uint64_t delay_ns);
/* It stays FAILED in the table for a while; false: not. */
bool entry_back_off(struct store_entry *entry);
/* It is DEAD, and the caller frees it; NULL: it lives on, or its timeout's task
 * has begun, and frees it. */
struct store_entry *entry_die(struct store_entry *entry);

#endif
