/* SPDX-License-Identifier: Apache-2.0 */
/* A design of a purgatory as main.c drives it; a program has one. And what the
 * others beside hwt_purgatory share: a hash table, whose buckets are lists of
 * what is linked under keys, in order of arrival. Not thread-safe. */
#ifndef DESIGN_H
#define DESIGN_H

#include <stdlib.h>
#include <sys/queue.h>

#include "perf/perf.h"

#define KEYS_MAX 3

/* Waits for request_holds, a value of its key, or finish. The rest of its block
 * is the design's, which frees it after request_ended. */
struct request {
	atomic_uchar *flag; /* of request_holds and request_ended */
	uint64_t at_least;
	bool has_predicate;
	uint32_t key_count;
	uint32_t key[KEYS_MAX]; /* each once */
};

extern const struct design {
	const char *what;
	size_t size; /* of the block */
	void (*create)(uint32_t links); /* so many at once */
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
	struct operation *operation;
	uint32_t key;
};

TAILQ_HEAD(bucket, link);

struct table {
	struct bucket *bucket;
	uint32_t mask;
};

/* For so many links. */
static inline void
table_make(struct table *table, uint32_t links)
{
	uint32_t i;

	while (table->mask < links)
		table->mask = 2 * table->mask + 1;
	table->bucket = calloc(table->mask + 1, sizeof(struct bucket));
	perf_must(table->bucket != NULL, "calloc");
	for (i = 0; i <= table->mask; i++)
		TAILQ_INIT(&table->bucket[i]);
}

/* The lower bits are the part's, where there are several. */
static inline struct bucket *
table_bucket(const struct table *table, uint32_t key)
{
	return &table->bucket[request_hash(key) >> 9 & table->mask];
}

static inline void
table_add(struct table *table, struct link *link, struct operation *operation,
    uint32_t key)
{
	link->operation = operation;
	link->key = key;
	TAILQ_INSERT_TAIL(table_bucket(table, key), link, place);
}

static inline void
table_remove(struct table *table, struct link *link)
{
	TAILQ_REMOVE(table_bucket(table, link->key), link, place);
}

/* The first of the key from that link on; NULL: there is none. */
static inline struct link *
link_of(struct link *link, uint32_t key)
{
	while (link != NULL && link->key != key)
		link = TAILQ_NEXT(link, place);
	return link;
}

static inline struct link *
table_first(const struct table *table, uint32_t key)
{
	return link_of(TAILQ_FIRST(table_bucket(table, key)), key);
}

#endif
