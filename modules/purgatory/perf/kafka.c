/* SPDX-License-Identifier: Apache-2.0 */
/*
 * B: Kafka's purgatory as it has been since 2015 and is in 2025, in C: lists in
 * 512 parts, each with a lock. Whoever walks a list removes what has completed;
 * when more than 1,000 have, the wheel's thread purges all, each 20 ms at most.
 * Without predicates it is a bare table of requests in flight, of mutexes and
 * timeouts of hwt: whoever takes the link out ends the request.
 *
 * Who would call it unfair: who maintains Kafka, since this is its design and
 * not its code; who needs handles, exact counts, or predicates without locks
 * held, since here are none. The cheaper choice is taken each time.
 */
#include "modules/purgatory/perf/design.h"

#define PARTS 512 /* as many as table_bucket ignores */
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

static struct part {
	_Alignas(64) pthread_mutex_t lock;
	struct table keys;
} part[PARTS];

static struct hwt *timer;
static atomic_int_fast64_t ended; /* since the last purge */

static struct part *
part_lock(uint32_t key)
{
	struct part *where = &part[request_hash(key) % PARTS];

	pthread_mutex_lock(&where->lock);
	return where;
}

static void
release(struct operation *operation, unsigned references)
{
	if (atomic_fetch_sub(&operation->references, references) == references)
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
			release(operation, 1);
		request_ended(&operation->request);
	}
	pthread_mutex_unlock(&operation->lock);
}

static void
purge(struct table *keys, struct link *link)
{
	if (!link->operation->completed)
		return;
	table_remove(keys, link);
	release(link->operation, 1);
}

static void
maybe_purge(hwt_timeout timeout, void *arg)
{
	struct link *link, *next;
	struct part *where;
	uint32_t i;

	(void)timeout, (void)arg;
	if (ended <= PURGE_AT)
		return;
	ended = 0;
	for (where = part; where < &part[PARTS]; where++) {
		pthread_mutex_lock(&where->lock);
		for (i = 0; i <= where->keys.mask; i++) {
			link = TAILQ_FIRST(&where->keys.bucket[i]);
			for (; link != NULL; link = next) {
				next = TAILQ_NEXT(link, place);
				purge(&where->keys, link);
			}
		}
		pthread_mutex_unlock(&where->lock);
	}
}

static void
create(uint32_t links)
{
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};
	unsigned i;

	for (i = 0; i < PARTS; i++) {
		pthread_mutex_init(&part[i].lock, NULL);
		table_make(&part[i].keys, links / PARTS);
	}
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
	release(operation, 1);
}

/* Ends the request in flight with this key, if it has not ended. */
static void
finish(uint32_t key)
{
	struct part *where = part_lock(key);
	struct link *link = table_first(&where->keys, key);

	if (link != NULL)
		table_remove(&where->keys, link);
	pthread_mutex_unlock(&where->lock);
	if (link == NULL)
		return;
	(void)!hwt_cancel(timer, link->operation->timeout);
	request_ended(&link->operation->request);
	free(link->operation);
}

static void
expire_flight(hwt_timeout timeout, void *key)
{
	(void)timeout;
	finish((uint32_t)(uintptr_t)key);
}

static void
watch(struct request *request, uint64_t delay_ns)
{
	const uint32_t count = request->key_count;
	const bool waits = request->has_predicate;
	struct operation *operation = (struct operation *)request;
	struct part *where;
	uint32_t i;

	pthread_mutex_init(&operation->lock, NULL);
	/* Of each key, of the timeout and of the caller. */
	atomic_init(&operation->references, count + 2);
	atomic_init(&operation->completed, false);
	/* Whoever finds it in a list knows its timeout. */
	perf_must(hwt_new_timeout(timer, &operation->timeout,
		      waits ? expire : expire_flight,
		      waits ? operation : (void *)(uintptr_t)request->key[0],
		      delay_ns) == 0,
	    "hwt_new_timeout");
	for (i = 0; i < count; i++) {
		where = part_lock(request->key[i]);
		table_add(&where->keys, &operation->link[i], operation,
		    request->key[i]);
		pthread_mutex_unlock(&where->lock);
	}
	if (!waits)
		return;
	try_complete(operation, false);
	release(operation, 1);
}

static void
check(uint32_t key)
{
	struct part *where = part_lock(key);
	struct link *link, *next;

	for (link = table_first(&where->keys, key); link != NULL; link = next) {
		next = link_of(TAILQ_NEXT(link, place), key);
		try_complete(link->operation, false);
		purge(&where->keys, link);
	}
	pthread_mutex_unlock(&where->lock);
}

const struct design design = {"Kafka's design: wheel, lists purged later",
    sizeof(struct operation), create, watch, check, finish, NULL};
