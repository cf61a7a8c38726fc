/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions behind which each design of a purgatory stands, for main.c; a
 * program has one design. And the hash table of those that hwt_purgatory is
 * compared with: chains, and twice as many buckets as soon as there are more
 * entries than buckets; not thread-safe.
 */
#ifndef DESIGN_H
#define DESIGN_H

#include <stdlib.h>

#include "perf/perf.h"

enum {
	KEYS_MAX = 3
};

/* What waits. The design frees it when nothing refers to it any more. */
struct request {
	uint64_t number;
	uint64_t due_ns; /* on CLOCK_MONOTONIC: its deadline */
	uint32_t key_count;
	uint32_t key[KEYS_MAX];
};

struct design {
	const char *what;
	void (*create)(void);
	/* Ends all, and waits for threads. */
	void (*destroy)(void);
	void (*watch)(struct request *request, uint64_t delay_ns);
	/* Something under this key has changed. */
	void (*check)(uint32_t key);
	/* The request with this key, which it has alone, is over: what a table
	 * of requests in flight does. */
	void (*finish)(uint32_t key);
	/* Waiters for a value of one key; NULL: none. */
	void (*watch_value)(uint32_t key, uint64_t at_least);
	void (*raise)(uint32_t key, uint64_t value);
};

extern const struct design design;

/* main.c's, for designs. */
bool request_holds(const struct request *request);
void request_ended(const struct request *request);

static inline uint32_t
request_hash(uint32_t key)
{
	return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

/* What a table holds begins with one. */
struct entry {
	struct entry *chain;
	uint32_t name, hash;
};

struct table { /* all zero: empty */
	struct entry **bucket;
	uint32_t buckets, count;
};

static inline struct entry **
table_bucket(const struct table *table, uint32_t hash)
{
	return &table->bucket[hash & (table->buckets - 1)];
}

/* Where the pointer to the entry is; NULL: there is none. */
static inline struct entry **
table_find(const struct table *table, uint32_t name, uint32_t hash)
{
	struct entry **at;

	if (table->buckets == 0)
		return NULL;
	at = table_bucket(table, hash);
	while (*at != NULL && (*at)->name != name)
		at = &(*at)->chain;
	return *at != NULL ? at : NULL;
}

static inline void
table_grow(struct table *table)
{
	const uint32_t old = table->buckets;
	struct entry **from = table->bucket, **to, *entry;
	uint32_t i;

	table->buckets = old > 0 ? 2 * old : 16;
	table->bucket = calloc(table->buckets, sizeof(struct entry *));
	perf_must(table->bucket != NULL, "calloc");
	for (i = 0; i < old; i++) {
		while ((entry = from[i]) != NULL) {
			from[i] = entry->chain;
			to = table_bucket(table, entry->hash);
			entry->chain = *to;
			*to = entry;
		}
	}
	free(from);
}

/* There is none of that name. */
static inline void
table_add(
    struct table *table, struct entry *entry, uint32_t name, uint32_t hash)
{
	struct entry **at;

	if (table->count++ == table->buckets)
		table_grow(table);
	at = table_bucket(table, hash);
	*entry = (struct entry){*at, name, hash};
	*at = entry;
}

static inline void
table_remove(struct table *table, struct entry **at)
{
	*at = (*at)->chain;
	table->count--;
}

#endif
