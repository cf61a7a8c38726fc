/* SPDX-License-Identifier: Apache-2.0 */
/*
 * B: Kafka's purgatory as it has been since 2015 and is in 2025, in C
 * (DelayedOperationPurgatory, DelayedOperation): a list of operations for each
 * key, in 512 parts, each with a lock. Whoever walks a list removes what has
 * completed, and the key, when its list is empty. An operation has a lock for
 * its predicate and its outcome. When more than 1,000 have completed since the
 * last time, the wheel's thread purges all lists, at most each 20 ms.
 *
 * Who would call it unfair: who maintains Kafka, since a broker does not spend
 * its time here, and this is not its code. So it is the design that is
 * compared, with the same compiler and allocator, and each time that there was
 * a choice the cheaper one was taken: hwt is its wheel, a list is walked under
 * its part's lock, a watch asks the predicate once, an operation is one block.
 * For that, predicates run with locks held here, and must not call back.
 */
#include "modules/purgatory/perf/design.h"

enum {
	PARTS = 512,
	PURGE_AT = 1000
};

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

static void
try_complete(struct operation *operation, bool has_expired)
{
	pthread_mutex_lock(&operation->lock);
	if (!has_completed(operation) &&
	    (has_expired || request_holds(operation->request))) {
		atomic_store_explicit(
		    &operation->completed, true, memory_order_release);
		atomic_fetch_add_explicit(&ended, 1, memory_order_relaxed);
		if (!has_expired && hwt_cancel(timer, operation->timeout) == 0)
			release(operation, 1);
		request_ended(operation->request);
	}
	pthread_mutex_unlock(&operation->lock);
}

static void
expire(hwt_timeout timeout, void *operation)
{
	(void)timeout;
	try_complete(operation, true);
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
			try_complete(place->operation, false);
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
maybe_purge(hwt_timeout timeout, void *arg)
{
	struct part *where;
	struct entry **at;
	uint32_t i;

	(void)timeout;
	(void)arg;
	if (atomic_load(&ended) <= PURGE_AT)
		return;
	atomic_store(&ended, 0);
	for (where = part; where < &part[PARTS]; where++) {
		pthread_mutex_lock(&where->lock);
		for (i = 0; i < where->keys.buckets; i++) {
			for (at = &where->keys.bucket[i]; *at != NULL;)
				if (list_walk(where, at, true))
					at = &(*at)->chain;
		}
		pthread_mutex_unlock(&where->lock);
	}
}

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

static void
watch(struct request *request, uint64_t delay_ns)
{
	const uint32_t count = request->key_count;
	struct operation *operation =
	    malloc(sizeof(*operation) + count * sizeof(operation->place[0]));
	struct part *where;
	uint32_t hash, i;

	perf_must(operation != NULL, "malloc");
	operation->request = request;
	pthread_mutex_init(&operation->lock, NULL);
	/* Of each key, of the timeout and of the caller. */
	atomic_init(&operation->references, count + 2);
	atomic_init(&operation->completed, false);
	/* Whoever finds it in a list knows its timeout. */
	perf_must(hwt_new_timeout(timer, &operation->timeout, expire, operation,
		      delay_ns) == 0,
	    "hwt_new_timeout");
	for (i = 0; i < count && !has_completed(operation); i++) {
		hash = request_hash(request->key[i]);
		where = &part[hash % PARTS];
		operation->place[i].operation = operation;
		pthread_mutex_lock(&where->lock);
		list_add(
		    where, request->key[i], hash / PARTS, &operation->place[i]);
		pthread_mutex_unlock(&where->lock);
	}
	try_complete(operation, false);
	release(operation, count - i + 1);
}

static void
check(uint32_t key)
{
	uint32_t hash = request_hash(key);
	struct part *where = &part[hash % PARTS];
	struct entry **at;

	pthread_mutex_lock(&where->lock);
	at = table_find(&where->keys, key, hash / PARTS);
	if (at != NULL)
		(void)list_walk(where, at, false);
	pthread_mutex_unlock(&where->lock);
}

const struct design design = {"Kafka's design: wheel, lists purged later",
    create, destroy, watch, check, NULL, NULL, NULL};
