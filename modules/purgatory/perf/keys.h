/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash table of those designs that hwt_purgatory is compared with: chains,
 * and twice as many buckets as soon as there are more keys than buckets. What
 * it holds begins with a struct key. It is not thread-safe.
 */
#ifndef KEYS_H
#define KEYS_H

#include <stdlib.h>

#include "modules/purgatory/perf/design.h"
#include "perf/perf.h"

enum {
	BUCKETS_MIN = 16,
	SPARES_MAX = 32
};

struct key {
	struct key *chain;
	uint32_t name, hash;
};

/* All zero: empty. */
struct keys {
	struct key **bucket;
	uint32_t buckets, count;
	struct key *spare; /* removed, to be used again */
	uint32_t spares;
};

static inline struct key **
keys_bucket(const struct keys *keys, uint32_t hash)
{
	return &keys->bucket[hash & (keys->buckets - 1)];
}

/* Where the pointer to the key is; NULL: there is none. */
static inline struct key **
keys_find(const struct keys *keys, uint32_t name, uint32_t hash)
{
	struct key **at;

	if (keys->buckets == 0)
		return NULL;
	at = keys_bucket(keys, hash);
	while (*at != NULL && (*at)->name != name)
		at = &(*at)->chain;
	return *at != NULL ? at : NULL;
}

static inline void
keys_grow(struct keys *keys)
{
	const uint32_t old = keys->buckets;
	struct key **from = keys->bucket, **to, *key;
	uint32_t i;

	keys->buckets = old > 0 ? 2 * old : BUCKETS_MIN;
	keys->bucket = calloc(keys->buckets, sizeof(struct key *));
	perf_must(keys->bucket != NULL, "calloc");
	for (i = 0; i < old; i++) {
		while ((key = from[i]) != NULL) {
			from[i] = key->chain;
			to = keys_bucket(keys, key->hash);
			key->chain = *to;
			*to = key;
		}
	}
	free(from);
}

/* There is none of that name. What follows the struct key has any content. */
static inline struct key *
keys_add(struct keys *keys, uint32_t name, uint32_t hash, size_t size)
{
	struct key *key = keys->spare, **at;

	if (keys->count++ == keys->buckets)
		keys_grow(keys);
	if (key != NULL) {
		keys->spare = key->chain;
		keys->spares--;
	} else {
		key = malloc(size);
		perf_must(key != NULL, "malloc");
	}
	at = keys_bucket(keys, hash);
	*key = (struct key){*at, name, hash};
	*at = key;
	return key;
}

static inline void
keys_remove(struct keys *keys, struct key **at)
{
	struct key *key = *at;

	*at = key->chain;
	keys->count--;
	if (keys->spares == SPARES_MAX) {
		free(key);
		return;
	}
	key->chain = keys->spare;
	keys->spare = key;
	keys->spares++;
}

#endif
