/* SPDX-License-Identifier: Apache-2.0 */
/*
 * B: Kafka since 2015. A wheel, from which the completed are cancelled (here
 * hwt's), and lazy lists in 512 parts, each with a lock. An operation has a
 * lock for its predicate, and a mark for those who do not get it.
 */
#include "modules/purgatory/perf/lazy.h"

enum {
	PARTS = 512
};

static struct part {
	_Alignas(64) pthread_mutex_t lock;
	struct watchers *table[LAZY_BUCKETS / PARTS];
} part[PARTS];

static struct hwt *timer;
static pthread_mutex_t purge_lock = PTHREAD_MUTEX_INITIALIZER;

static void
create(void)
{
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};
	unsigned i;

	perf_must(hwt_create(&timer, &options) == 0, "hwt_create");
	for (i = 0; i < PARTS; i++)
		pthread_mutex_init(&part[i].lock, NULL);
}

static void
destroy(void)
{
	perf_must(hwt_stop(timer, NULL) == 0, "hwt_stop");
	perf_must(hwt_destroy(timer) == 0, "hwt_destroy");
}

static struct watchers *
part_list(struct part *where, uint32_t key, bool make)
{
	struct watchers **at =
	    &where->table[request_hash(key) / PARTS % (LAZY_BUCKETS / PARTS)];
	struct watchers *list;

	for (list = *at; list != NULL && list->key != key; list = list->chain)
		continue;
	if (list != NULL || !make)
		return list;
	list = calloc(1, sizeof(*list));
	perf_must(list != NULL, "calloc");
	list->key = key;
	list->last = &list->first;
	list->chain = *at;
	*at = list;
	return list;
}

static bool
complete(struct lazy *lazy, bool expired)
{
	if (atomic_exchange(&lazy->completed, true))
		return false;
	atomic_fetch_add(&ended, 1);
	if (!expired && lazy->timeout != 0 &&
	    hwt_cancel(timer, (hwt_timeout){lazy->timeout}) == 0)
		lazy_release(lazy);
	request_ended(lazy->request, expired);
	return true;
}

/* Who does not get the lock leaves a mark, and whoever has it looks again. */
static void
maybe_complete(struct lazy *lazy)
{
	bool again;

	do {
		if (pthread_mutex_trylock(&lazy->lock) != 0) {
			if (atomic_exchange(&lazy->again, true))
				return;
			again = true;
			continue;
		}
		atomic_store(&lazy->again, false);
		if (!atomic_load(&lazy->completed) &&
		    request_holds(lazy->request))
			(void)complete(lazy, false);
		pthread_mutex_unlock(&lazy->lock);
		again = atomic_load(&lazy->again);
	} while (!atomic_load(&lazy->completed) && again);
}

static void
expire(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)complete(arg, true);
	lazy_release(arg);
}

static void
purge(void)
{
	struct watchers *list;
	unsigned i, k;

	if (pthread_mutex_trylock(&purge_lock) != 0)
		return;
	atomic_store(&ended, 0);
	for (i = 0; i < PARTS; i++) {
		pthread_mutex_lock(&part[i].lock);
		for (k = 0; k < LAZY_BUCKETS / PARTS; k++) {
			for (list = part[i].table[k]; list != NULL;
			     list = list->chain)
				watchers_purge(list);
		}
		pthread_mutex_unlock(&part[i].lock);
	}
	pthread_mutex_unlock(&purge_lock);
}

static uint64_t
watch(struct request *request, uint64_t delay_ns)
{
	struct lazy *lazy = lazy_make(request);
	hwt_timeout timeout = {0};
	uint32_t i;

	/* The lock is held until all is there, as tryComplete's is. */
	pthread_mutex_lock(&lazy->lock);
	for (i = 0; i < request->key_count; i++) {
		struct part *where =
		    &part[request_hash(request->key[i]) % PARTS];

		pthread_mutex_lock(&where->lock);
		watchers_add(part_list(where, request->key[i], true), lazy);
		pthread_mutex_unlock(&where->lock);
	}
	/* Before the timeout can be cancelled, it is known. */
	perf_must(hwt_new_timeout(timer, &timeout, expire, lazy, delay_ns) == 0,
	    "hwt_new_timeout");
	lazy->timeout = timeout.id;
	pthread_mutex_unlock(&lazy->lock);
	maybe_complete(lazy);
	lazy_release(lazy);
	if (atomic_load(&ended) > PURGE_AT)
		purge();
	return 0;
}

static void
check(uint32_t key)
{
	struct part *where = &part[request_hash(key) % PARTS];
	struct watchers *list;
	struct watcher **at;

	pthread_mutex_lock(&where->lock);
	list = part_list(where, key, false);
	at = list != NULL ? &list->first : NULL;
	while (at != NULL && *at != NULL) {
		if (!atomic_load(&(*at)->lazy->completed))
			maybe_complete((*at)->lazy);
		if (atomic_load(&(*at)->lazy->completed))
			watchers_remove(list, at);
		else
			at = &(*at)->next;
	}
	pthread_mutex_unlock(&where->lock);
}

static uint64_t
retained(void)
{
	return (uint64_t)atomic_load(&ended);
}

const struct design design = {"wheel, lazy lists", create, destroy, watch,
    check, NULL, retained, NULL, NULL};
