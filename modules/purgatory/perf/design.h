/* SPDX-License-Identifier: Apache-2.0 */
/* A design of a purgatory as main.c drives it; a program has one. And what the
 * others beside hwt_purgatory share: a hash table of a list for each key, which
 * goes with its last operation. Not thread-safe. */
#ifndef DESIGN_H
#define DESIGN_H

#include <stdlib.h>
#include <sys/queue.h>

#include "perf/perf.h"

#define KEYS_MAX 3

/* Waits for request_holds, a value of its key, or finish. The design frees it
 * after request_ended, when nothing refers to it any more. */
struct request {
	uint64_t number, at_least;
	bool has_predicate;
	uint32_t key_count;
	uint32_t key[KEYS_MAX]; /* each once */
};

extern const struct design {
	const char *what;
	void (*create)(void);
	void (*destroy)(void); /* waits for its threads */
	void (*watch)(struct request *request, uint64_t delay_ns);
	void (*check)(uint32_t key); /* something has changed */
	void (*finish)(uint32_t key); /* what has this key alone is over */
	void (*raise)(uint32_t key, uint64_t value); /* NULL: no values */
} design;

bool request_holds(const struct request *request);
void request_ended(const struct request *request);

static inline uint32_t
request_hash(uint32_t key)
{
	return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

struct link {
	TAILQ_ENTRY(link) place;
	struct list *list;
	struct operation *operation;
};

struct list {
	TAILQ_HEAD(, link) links;
	struct list *chain;
	uint32_t key, hash;
};

struct table { /* all zero: empty */
	struct list **bucket, *spares;
	uint32_t buckets, count;
};

static inline struct list **
table_bucket(const struct table *table, uint32_t hash)
{
	return &table->bucket[hash & (table->buckets - 1)];
}

static inline struct list *
table_find(const struct table *table, uint32_t key, uint32_t hash)
{
	struct list *list =
	    table->count > 0 ? *table_bucket(table, hash) : NULL;

	while (list != NULL && list->key != key)
		list = list->chain;
	return list;
}

static inline void
table_grow(struct table *table)
{
	struct list **old = table->bucket, **to, *list;
	uint32_t i, count = table->buckets;

	table->buckets = count > 0 ? 2 * count : 16;
	table->bucket = calloc(table->buckets, sizeof(struct list *));
	perf_must(table->bucket != NULL, "calloc");
	for (i = 0; i < count; i++) {
		while ((list = old[i]) != NULL) {
			old[i] = list->chain;
			to = table_bucket(table, list->hash);
			list->chain = *to;
			*to = list;
		}
	}
	free(old);
}

static inline void
table_add(struct table *table, uint32_t key, uint32_t hash, struct link *link)
{
	struct list *list = table_find(table, key, hash), **to;

	if (list == NULL) {
		if (table->count++ == table->buckets)
			table_grow(table);
		list = table->spares;
		if (list != NULL)
			table->spares = list->chain;
		else
			list = malloc(sizeof(*list));
		perf_must(list != NULL, "malloc");
		to = table_bucket(table, hash);
		list->chain = *to;
		list->key = key;
		list->hash = hash;
		TAILQ_INIT(&list->links);
		*to = list;
	}
	link->list = list;
	TAILQ_INSERT_TAIL(&list->links, link, place);
}

static inline void
table_remove(struct table *table, struct link *link)
{
	struct list *list = link->list, **at;

	TAILQ_REMOVE(&list->links, link, place);
	if (!TAILQ_EMPTY(&list->links))
		return;
	for (at = table_bucket(table, list->hash); *at != list;)
		at = &(*at)->chain;
	*at = list->chain;
	list->chain = table->spares;
	table->spares = list;
	table->count--;
}

#endif
