/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both of Kafka's designs have: lists by key from which the completed are
 * removed when somebody comes by, and a purge of all when there are many. An
 * operation is freed when no list and no timer refers to it.
 */
#ifndef LAZY_H
#define LAZY_H

#include <pthread.h>
#include <stdlib.h>

#include "modules/purgatory/perf/design.h"
#include "perf/perf.h"

enum {
	PURGE_AT = 1000,
	LAZY_BUCKETS = 1 << 18
};

struct lazy {
	struct request *request;
	pthread_mutex_t lock; /* of B: KAFKA-5970 and after */
	atomic_bool again; /* of B */
	atomic_bool completed;
	atomic_uint references;
	uint64_t timeout; /* the design's */
};

struct watcher {
	struct watcher *next;
	struct lazy *lazy;
};

/* A key's list; lists stay where they are. */
struct watchers {
	struct watchers *chain;
	uint32_t key;
	struct watcher *first, **last;
};

static atomic_int_fast64_t watched, ended; /* places in lists; completed */

static inline void
lazy_release(struct lazy *lazy)
{
	if (atomic_fetch_sub(&lazy->references, 1) != 1)
		return;
	free(lazy->request);
	free(lazy);
}

static inline struct lazy *
lazy_make(struct request *request)
{
	struct lazy *lazy = calloc(1, sizeof(*lazy));

	perf_must(lazy != NULL, "calloc");
	lazy->request = request;
	pthread_mutex_init(&lazy->lock, NULL);
	/* The caller's, and the timer's. */
	atomic_init(&lazy->references, 2);
	return lazy;
}

static inline struct watchers *
watchers_of(struct watchers **table, uint32_t key, bool make)
{
	struct watchers **at = &table[request_hash(key) % LAZY_BUCKETS];
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

static inline void
watchers_add(struct watchers *list, struct lazy *lazy)
{
	struct watcher *watcher = malloc(sizeof(*watcher));

	perf_must(watcher != NULL, "malloc");
	atomic_fetch_add(&lazy->references, 1);
	atomic_fetch_add(&watched, 1);
	*watcher = (struct watcher){NULL, lazy};
	*list->last = watcher;
	list->last = &watcher->next;
}

/* Removes the one at *at. */
static inline void
watchers_remove(struct watchers *list, struct watcher **at)
{
	struct watcher *watcher = *at;

	*at = watcher->next;
	if (list->last == &watcher->next)
		list->last = at;
	lazy_release(watcher->lazy);
	free(watcher);
	atomic_fetch_sub(&watched, 1);
}

static inline void
watchers_purge(struct watchers *list)
{
	struct watcher **at = &list->first;

	while (*at != NULL) {
		if (atomic_load(&(*at)->lazy->completed))
			watchers_remove(list, at);
		else
			at = &(*at)->next;
	}
}

#endif
