/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kafka's purgatory as it has been since 2015 and is in 2025, in C
 * (DelayedOperationPurgatory, DelayedOperation): a list of operations for each
 * key, in 512 parts, each with a lock. Whoever walks a list removes what has
 * completed, and the key, when its list is empty. An operation has a lock for
 * its predicate and its outcome, and is cancelled in the wheel when it
 * completes. When more than 1,000 have completed since the last time, the
 * wheel's thread purges all lists: it looks whenever one of its buckets is due,
 * for delays of more than 20 ms each 20 ms.
 *
 * Who would call it unfair: who maintains Kafka, since a broker does not spend
 * its time here, and this is not its code. So it is the design that is
 * compared, with the same compiler and allocator, and each time that there was
 * a choice the cheaper one was taken: hwt is its wheel too (Kafka's has 20
 * buckets of 1, 20, 400 ms and so on, each with a lock, in a queue by deadline,
 * behind a lock for readers and writers); a list is walked under its part's
 * lock, and is no lock-free queue; a watch asks the predicate once, not twice;
 * an operation is one block of memory, its places in lists inside. For that,
 * predicates and callbacks run with locks held here, and must not call back.
 */
#include <pthread.h>

#include "modules/purgatory/perf/design.h"

enum {
	PARTS = 512,
	PURGE_AT = 1000
};

struct operation;

/* An operation's place in a key's list. */
struct place {
	struct place *next;
	struct operation *operation;
};

/* Freed when no list, no timeout and no call refers to it any more. */
struct operation {
	struct request *request;
	pthread_mutex_t lock; /* for predicate and outcome */
	atomic_uint references;
	atomic_bool completed;
	hwt_timeout timeout;
	struct place place[]; /* for each key */
};

struct list {
	struct entry entry;
	struct place *first, **last;
};

static struct part {
	_Alignas(64) pthread_mutex_t lock;
	struct table keys;
	struct list *spares;
} part[PARTS];

static struct hwt *timer;
static atomic_int_fast64_t ended; /* since the last purge */

static void
release(struct operation *operation, unsigned references)
{
	if (atomic_fetch_sub(&operation->references, references) != references)
		return;
	free(operation->request);
	free(operation);
}

static bool
has_completed(struct operation *operation)
{
	return atomic_load_explicit(
	    &operation->completed, memory_order_acquire);
}

/* With the operation's lock. */
static void
complete(struct operation *operation, bool expired)
{
	atomic_store_explicit(
	    &operation->completed, true, memory_order_release);
	atomic_fetch_add_explicit(&ended, 1, memory_order_relaxed);
	if (!expired && hwt_cancel(timer, operation->timeout) == 0)
		release(operation, 1);
	request_ended(operation->request);
}

static void
try_complete(struct operation *operation)
{
	pthread_mutex_lock(&operation->lock);
	if (!has_completed(operation) && request_holds(operation->request))
		complete(operation, false);
	pthread_mutex_unlock(&operation->lock);
}

static void
expire(hwt_timeout timeout, void *arg)
{
	struct operation *operation = arg;

	(void)timeout;
	pthread_mutex_lock(&operation->lock);
	if (!has_completed(operation))
		complete(operation, true);
	pthread_mutex_unlock(&operation->lock);
	release(operation, 1);
}

/* Lists, with their part's lock. */

static void
list_add(struct part *where, uint32_t name, uint32_t hash, struct place *place)
{
	struct entry **at = table_find(&where->keys, name, hash);
	struct list *list = at != NULL ? (struct list *)*at : where->spares;

	if (at == NULL) {
		if (list != NULL)
			where->spares = (struct list *)list->entry.chain;
		else
			list = malloc(sizeof(*list));
		perf_must(list != NULL, "malloc");
		table_add(&where->keys, &list->entry, name, hash);
		list->last = &list->first;
	}
	place->next = NULL;
	*list->last = place;
	list->last = &place->next;
}

/* Removes what has completed; purge: asks no predicate. False: the key has gone
 * as well. */
static bool
list_walk(struct part *where, struct entry **at, bool purge)
{
	struct list *list = (struct list *)*at;
	struct place **next = &list->first, *place;

	while (next != list->last) {
		place = *next;
		if (!purge && !has_completed(place->operation))
			try_complete(place->operation);
		if (!has_completed(place->operation)) {
			next = &place->next;
			continue;
		}
		if (list->last == &place->next)
			list->last = next;
		*next = place->next;
		release(place->operation, 1);
	}
	if (list->last != &list->first)
		return true;
	table_remove(&where->keys, at);
	list->entry.chain = (struct entry *)where->spares;
	where->spares = list;
	return false;
}

static void
part_purge(struct part *where)
{
	struct entry **at;
	uint32_t i;

	pthread_mutex_lock(&where->lock);
	for (i = 0; i < where->keys.buckets; i++) {
		at = &where->keys.bucket[i];
		while (*at != NULL) {
			if (list_walk(where, at, true))
				at = &(*at)->chain;
		}
	}
	pthread_mutex_unlock(&where->lock);
}

static void
maybe_purge(hwt_timeout timeout, void *arg)
{
	unsigned i;

	(void)timeout;
	(void)arg;
	if (atomic_load(&ended) <= PURGE_AT)
		return;
	atomic_store(&ended, 0);
	for (i = 0; i < PARTS; i++)
		part_purge(&part[i]);
}

/* The design. */

static void
create(void)
{
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};
	unsigned i;

	perf_must(hwt_create(&timer, &options) == 0, "hwt_create");
	for (i = 0; i < PARTS; i++)
		pthread_mutex_init(&part[i].lock, NULL);
	perf_must(hwt_new_periodic(timer, NULL, NULL, maybe_purge, NULL,
		      HWT_MS(20), HWT_MS(20)) == 0,
	    "hwt_new_periodic");
}

static void
destroy(void)
{
	perf_must(hwt_stop(timer, NULL) == 0, "hwt_stop");
	perf_must(hwt_destroy(timer) == 0, "hwt_destroy");
}

static struct part *
part_of(uint32_t hash)
{
	return &part[hash % PARTS];
}

static struct operation *
operation_make(struct request *request)
{
	const uint32_t count = request->key_count;
	struct operation *operation =
	    malloc(sizeof(*operation) + count * sizeof(operation->place[0]));

	perf_must(operation != NULL, "malloc");
	operation->request = request;
	pthread_mutex_init(&operation->lock, NULL);
	/* Of each key, of the timeout and of the caller. */
	atomic_init(&operation->references, count + 2);
	atomic_init(&operation->completed, false);
	return operation;
}

static void
watch(struct request *request, uint64_t delay_ns)
{
	struct operation *operation = operation_make(request);
	const uint32_t count = request->key_count;
	uint32_t i;

	/* Whoever finds it in a list knows its timeout. */
	perf_must(hwt_new_timeout(timer, &operation->timeout, expire, operation,
		      delay_ns) == 0,
	    "hwt_new_timeout");
	for (i = 0; i < count && !has_completed(operation); i++) {
		uint32_t hash = request_hash(request->key[i]);
		struct part *where = part_of(hash);

		operation->place[i].operation = operation;
		pthread_mutex_lock(&where->lock);
		list_add(
		    where, request->key[i], hash / PARTS, &operation->place[i]);
		pthread_mutex_unlock(&where->lock);
	}
	try_complete(operation);
	release(operation, count - i + 1);
}

static void
check(uint32_t key)
{
	uint32_t hash = request_hash(key);
	struct part *where = part_of(hash);
	struct entry **at;

	pthread_mutex_lock(&where->lock);
	at = table_find(&where->keys, key, hash / PARTS);
	if (at != NULL)
		(void)list_walk(where, at, false);
	pthread_mutex_unlock(&where->lock);
}

const struct design design = {"Kafka's design: wheel, lists purged later",
    create, destroy, watch, check, NULL, NULL, NULL};
