/* SPDX-License-Identifier: Apache-2.0 */
/*
 * B: Kafka's purgatory as it has been since 2015 and is in 2025, in C: lists in
 * 512 parts, each with a lock. Whoever walks a list removes what has completed;
 * when more than 1,000 have, the wheel's thread purges all, each 20 ms at most.
 * Without predicates it is a bare table of requests in flight, of mutexes and
 * timeouts of hwt: whoever cancels the timeout ends the request.
 *
 * Who would call it unfair: who maintains Kafka, since this is its design and
 * not its code; who needs handles, exact counts, or predicates without locks
 * held, since here are none. The cheaper choice is taken each time.
 */
#include "modules/purgatory/perf/design.h"

#define PARTS 512 /* of the table */
#define PURGE_AT 1000

/* Freed when no list, no timeout and no call refers to it any more. */
struct operation {
	struct request request;
	pthread_mutex_t lock; /* for predicate and outcome */
	atomic_uint references;
	atomic_bool completed;
	hwt_timeout timeout;
	struct link link[KEYS_MAX];
};

static pthread_mutex_t part[PARTS] = {
    [0 ... PARTS - 1] = PTHREAD_MUTEX_INITIALIZER};
static unsigned part_shift; /* a part is so many buckets, as a shift */
static struct hwt *timer;
static atomic_int_fast64_t ended; /* since the last purge */

static pthread_mutex_t *
part_lock(uint32_t key)
{
	pthread_mutex_t *at =
	    &part[(table_bucket(key) - table.bucket) >> part_shift];

	pthread_mutex_lock(at);
	return at;
}

static void
release(struct operation *operation)
{
	if (atomic_fetch_sub(&operation->references, 1) == 1)
		free(operation);
}

static void
try_complete(struct operation *operation, bool has_expired)
{
	if (operation->completed)
		return;
	pthread_mutex_lock(&operation->lock);
	if (!operation->completed &&
	    (has_expired || request_holds(&operation->request))) {
		operation->completed = true;
		atomic_fetch_add_explicit(&ended, 1, memory_order_relaxed);
		if (!has_expired && hwt_cancel(timer, operation->timeout) == 0)
			release(operation);
		request_ended(&operation->request);
	}
	pthread_mutex_unlock(&operation->lock);
}

/* With the part's lock: tries those under the key, NULL: none, and removes what
 * has completed. */
static void
purge(struct bucket *bucket, const uint32_t *key)
{
	struct link *link, *next;

	for (link = TAILQ_FIRST(bucket); link != NULL; link = next) {
		next = TAILQ_NEXT(link, place);
		if (key != NULL && link->key != *key)
			continue;
		if (key != NULL)
			try_complete(link->operation, false);
		if (link->operation->completed) {
			TAILQ_REMOVE(bucket, link, place);
			release(link->operation);
		}
	}
}

static void
maybe_purge(hwt_timeout timeout, void *arg)
{
	uint32_t i, k;

	(void)timeout, (void)arg;
	if (ended <= PURGE_AT)
		return;
	ended = 0;
	for (i = 0; i < PARTS; i++) {
		pthread_mutex_lock(&part[i]);
		for (k = i << part_shift; k >> part_shift == i; k++)
			purge(&table.bucket[k], NULL);
		pthread_mutex_unlock(&part[i]);
	}
}

static void
create(uint32_t links)
{
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};

	table_make(links | (PARTS - 1));
	part_shift = (unsigned)__builtin_ctz((table.mask + 1) / PARTS);
	perf_must(hwt_create(&timer, &options) == 0 &&
		hwt_new_periodic(timer, NULL, NULL, maybe_purge, NULL,
		    HWT_MS(20), HWT_MS(20)) == 0,
	    "create");
}

static void
expire(hwt_timeout timeout, void *operation)
{
	(void)timeout;
	try_complete(operation, true);
	release(operation);
}

static void
watch(struct request *request, uint64_t delay_ns)
{
	const bool waits = load == LOAD_CLOSED;
	struct operation *operation = (struct operation *)request;
	pthread_mutex_t *lock;
	uint32_t i;

	pthread_mutex_init(&operation->lock, NULL);
	/* Of each key, of the timeout and, for a predicate, of the caller. */
	atomic_init(&operation->references, request->key_count + 1 + waits);
	atomic_init(&operation->completed, false);
	/* Whoever finds it in a list knows its timeout. */
	perf_must(hwt_new_timeout(timer, &operation->timeout, expire, operation,
		      delay_ns) == 0,
	    "hwt_new_timeout");
	for (i = 0; i < request->key_count; i++) {
		lock = part_lock(request->key[i]);
		link_add(&operation->link[i], operation, request->key[i]);
		pthread_mutex_unlock(lock);
	}
	if (!waits)
		return;
	try_complete(operation, false);
	release(operation);
}

static void
event(uint32_t key, uint64_t value)
{
	pthread_mutex_t *lock = part_lock(key);
	struct link *link = NULL;

	(void)value;
	if (load == LOAD_CLOSED)
		purge(table_bucket(key), &key);
	else if ((link = link_of(TAILQ_FIRST(table_bucket(key)), key)) != NULL)
		TAILQ_REMOVE(table_bucket(key), link, place);
	pthread_mutex_unlock(lock);
	if (link != NULL && hwt_cancel(timer, link->operation->timeout) == 0) {
		request_ended(&link->operation->request);
		free(link->operation);
	} else if (link != NULL) {
		release(link->operation);
	}
}

const struct design design = {"Kafka's design: wheel, lists purged later",
    sizeof(struct operation), false, create, watch, event};
