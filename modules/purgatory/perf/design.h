/* SPDX-License-Identifier: Apache-2.0 */
/* A design of a purgatory as main.c drives it; a program has one. And what the
 * others beside hwt_purgatory share: a hash table, whose buckets are lists of
 * what is linked under keys, in order of arrival. */
#ifndef DESIGN_H
#define DESIGN_H

#include <sys/queue.h>

#include "perf/perf.h"

#define KEYS_MAX 3

/* What requests wait for: see main.c. */
extern enum load {
	LOAD_CLOSED = 'c', /* request_holds, their predicate */
	LOAD_INFLIGHT = 'i', /* the one event of their key */
	LOAD_VALUE = 'v' /* a value of their key */
} load;

/* The rest of its block is the design's, which frees it after request_ended. */
struct request {
	atomic_uchar *flag; /* of request_holds and request_ended */
	uint64_t at_least; /* the value */
	uint32_t key_count;
	uint32_t key[KEYS_MAX]; /* each once */
};

extern const struct design {
	const char *what;
	size_t size; /* of the block */
	bool has_values;
	void (*create)(uint32_t links); /* so many at once */
	void (*watch)(struct request *request, uint64_t delay_ns);
	void (*event)(uint32_t key, uint64_t value);
} design;

bool request_holds(const struct request *request);
void request_ended(const struct request *request);

struct link {
	TAILQ_ENTRY(link) place;
	struct operation *operation;
	uint32_t key;
};

static struct {
	TAILQ_HEAD(bucket, link) * bucket;
	uint32_t mask;
} table __attribute__((unused));

/* For so many links. */
static inline void
table_make(uint32_t links)
{
	uint32_t i;

	while (table.mask < links)
		table.mask = 2 * table.mask + 1;
	table.bucket = calloc(table.mask + 1, sizeof(*table.bucket));
	perf_must(table.bucket != NULL, "calloc");
	for (i = 0; i <= table.mask; i++)
		TAILQ_INIT(&table.bucket[i]);
}

static inline struct bucket *
table_bucket(uint32_t key)
{
	return &table.bucket[key * UINT64_C(0x9e3779b97f4a7c15) >> 32 &
	    table.mask];
}

static inline void
link_add(struct link *link, struct operation *operation, uint32_t key)
{
	*link = (struct link){.operation = operation, .key = key};
	TAILQ_INSERT_TAIL(table_bucket(key), link, place);
}

/* The first of the key from that link on; NULL: there is none. */
static inline struct link *
link_of(struct link *link, uint32_t key)
{
	while (link != NULL && link->key != key)
		link = TAILQ_NEXT(link, place);
	return link;
}

#endif
