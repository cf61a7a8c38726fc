/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is linked under the keys of a shard: a hash table of chains, whose
 * entries are the first links of rings and the levels of keys (struct node),
 * and a tree of thresholds for each level.
 *
 *   bucket --> link of key K <-> link of K <-> link of K  (a ring)
 *                | chain
 *                v
 *              level of K: value, thresholds
 *                | chain
 *                v
 *              link of key L  (a ring of one)
 *
 * When the first link of a ring leaves, the next one takes over chain and
 * count. A key exists while it has a ring. Its level goes with its last ring.
 *
 * The thresholds of a level are a treap: a search tree by value and arrival
 * that is a heap by random priorities, so that its depth is logarithmic
 * whatever values others choose. A priority is a hash of the arrival under the
 * purgatory's secret, and takes no memory.
 */
#include <stdlib.h>

#include "purgatory.h"

#define BUCKETS_FIRST 16u

int
table_create(struct shard *shard)
{
	shard->bucket = calloc(BUCKETS_FIRST, sizeof(*shard->bucket));
	shard->bucket_mask = BUCKETS_FIRST - 1;
	shard->bytes = BUCKETS_FIRST * sizeof(*shard->bucket);
	return shard->bucket != NULL ? 0 : -ENOMEM;
}

void
table_destroy(struct shard *shard, bool is_inherited)
{
	struct node *node, *next;
	uint32_t i;

	for (i = 0;
	     !is_inherited && shard->bucket != NULL && i <= shard->bucket_mask;
	     i++) {
		for (node = shard->bucket[i]; node != NULL; node = next) {
			next = node->chain;
			if (node->kind == KIND_LEVEL)
				free(node);
		}
	}
	free(shard->bucket);
}

static struct node **
table_bucket(
    struct hwt_purgatory *purgatory, struct shard *shard, uint32_t hash)
{
	return &shard->bucket[hash >> purgatory->shard_bits &
	    shard->bucket_mask];
}

/* If there is no memory, chains become longer. */
static void
table_grow(struct hwt_purgatory *purgatory, struct shard *shard)
{
	struct node **old = shard->bucket, **to, *node;
	uint32_t i, mask = shard->bucket_mask;
	struct node **bucket = calloc(2 * ((size_t)mask + 1), sizeof(*bucket));

	if (bucket == NULL)
		return;
	shard->bucket = bucket;
	shard->bucket_mask = 2 * mask + 1;
	shard->bytes += ((size_t)mask + 1) * sizeof(*bucket);
	for (i = 0; i <= mask; i++) {
		while ((node = old[i]) != NULL) {
			old[i] = node->chain;
			to = table_bucket(purgatory, shard, node->hash);
			node->chain = *to;
			*to = node;
		}
	}
	free(old);
}

static void
table_add(
    struct hwt_purgatory *purgatory, struct shard *shard, struct node *node)
{
	struct node **to;

	if (shard->entry_count++ > shard->bucket_mask)
		table_grow(purgatory, shard);
	to = table_bucket(purgatory, shard, node->hash);
	node->chain = *to;
	*to = node;
}

static bool
key_is(const struct node *node, const struct hwt_key *name, uint32_t hash)
{
	return node->hash == hash && node->name.id == name->id &&
	    node->name.kind == name->kind;
}

/* The three entries that a key may have: where the pointer to each is. */
struct found {
	struct node **at[KIND_LEVEL + 1]; /* NULL: there is none */
};

static void
table_look(struct hwt_purgatory *purgatory, struct shard *shard,
    const struct hwt_key *name, uint32_t hash, struct found *found)
{
	struct node **at = table_bucket(purgatory, shard, hash);

	*found = (struct found){{NULL, NULL, NULL}};
	for (; *at != NULL; at = &(*at)->chain) {
		if (key_is(*at, name, hash))
			found->at[(*at)->kind] = at;
	}
}

static struct node *
table_find(struct hwt_purgatory *purgatory, struct shard *shard,
    struct hwt_key name, uint32_t hash, enum kind kind)
{
	struct node *node = *table_bucket(purgatory, shard, hash);

	while (
	    node != NULL && (node->kind != kind || !key_is(node, &name, hash)))
		node = node->chain;
	return node;
}

struct link *
table_ring(struct hwt_purgatory *purgatory, struct shard *shard,
    struct hwt_key name, uint32_t hash, enum kind kind)
{
	struct node *node = table_find(purgatory, shard, name, hash, kind);

	return node != NULL ? node_link(node) : NULL;
}

static struct link *
found_ring(const struct found *found, enum kind kind)
{
	return found->at[kind] != NULL ? node_link(*found->at[kind]) : NULL;
}

void
link_add(
    struct hwt_purgatory *purgatory, struct shard *shard, struct link *link)
{
	struct found found;
	struct link *first;

	table_look(purgatory, shard, &link->node.name, link->node.hash, &found);
	first = found_ring(&found, link->node.kind);
	shard->links++;
	if (first != NULL) {
		link->next = first;
		link->previous = first->previous;
		first->previous->next = link;
		first->previous = link;
		first->node.count++;
		return;
	}
	link->next = link->previous = link;
	link->node.count = 1;
	if (found.at[KIND_TRIED] == NULL && found.at[KIND_PLAIN] == NULL)
		shard->keys++;
	table_add(purgatory, shard, &link->node);
}

/* Walks that are about to visit the link, or to end with it. */
static void
walks_skip(struct shard *shard, const struct link *link)
{
	struct walk *walk;

	for (walk = shard->walks; walk != NULL; walk = walk->next_walk) {
		if (walk->at == link)
			walk->at = walk->end == link ? NULL : link->next;
		if (walk->end == link)
			walk->end = link->previous;
	}
}

static void
level_remove(struct hwt_purgatory *purgatory, struct shard *shard,
    struct hwt_key name, uint32_t hash)
{
	struct found found;
	struct node *level;

	table_look(purgatory, shard, &name, hash, &found);
	if (found.at[KIND_LEVEL] == NULL)
		return;
	level = *found.at[KIND_LEVEL];
	*found.at[KIND_LEVEL] = level->chain;
	shard->entry_count--;
	shard->bytes -= sizeof(struct level);
	free(level);
}

void
link_remove(
    struct hwt_purgatory *purgatory, struct shard *shard, struct link *link)
{
	const enum kind kind = link->node.kind;
	struct link *first, *next = link->next;
	struct found found;

	table_look(purgatory, shard, &link->node.name, link->node.hash, &found);
	if (shard->walks != NULL)
		walks_skip(shard, link);
	shard->links--;
	first = found_ring(&found, kind);
	if (next != link) {
		next->previous = link->previous;
		link->previous->next = next;
		first->node.count--;
		if (first == link) {
			next->node.count = link->node.count;
			next->node.chain = link->node.chain;
			*found.at[kind] = &next->node;
		}
		return;
	}
	*found.at[kind] = link->node.chain;
	shard->entry_count--;
	if (found.at[kind == KIND_TRIED ? KIND_PLAIN : KIND_TRIED] != NULL)
		return;
	shard->keys--;
	if (found.at[KIND_LEVEL] != NULL)
		level_remove(
		    purgatory, shard, link->node.name, link->node.hash);
}

struct level *
level_find(struct hwt_purgatory *purgatory, struct shard *shard,
    struct hwt_key name, uint32_t hash)
{
	return (struct level *)(void *)table_find(
	    purgatory, shard, name, hash, KIND_LEVEL);
}

struct level *
level_get(struct hwt_purgatory *purgatory, struct shard *shard,
    struct hwt_key name, uint32_t hash)
{
	struct level *level = level_find(purgatory, shard, name, hash);

	if (level != NULL)
		return level;
	level = malloc(sizeof(*level));
	if (level == NULL)
		return NULL;
	*level = (struct level){
	    .node = {.name = name, .hash = hash, .kind = KIND_LEVEL}};
	shard->bytes += sizeof(*level);
	table_add(purgatory, shard, &level->node);
	return level;
}

/* Thresholds. */

static uint32_t
priority(
    const struct hwt_purgatory *purgatory, const struct operation *operation)
{
	const struct hwt_key arrival = {operation->threshold.arrival, 0};

	return key_hash(purgatory, arrival);
}

static bool
is_before(const struct operation *a, const struct operation *b)
{
	const struct threshold *x = &a->threshold, *y = &b->threshold;

	return x->at_least != y->at_least ? x->at_least < y->at_least
					  : x->arrival < y->arrival;
}

void
threshold_add(struct hwt_purgatory *purgatory, struct level *level,
    struct operation *operation)
{
	struct threshold *threshold = &operation->threshold;
	struct operation **at = &level->lowest, *rest;
	struct operation **left = &threshold->left;
	struct operation **right = &threshold->right;

	threshold->level = level;
	threshold->arrival = level->arrivals++;
	while (*at != NULL &&
	    priority(purgatory, *at) >= priority(purgatory, operation))
		at = is_before(*at, operation) ? &(*at)->threshold.right
					       : &(*at)->threshold.left;
	/* It takes this place; what was there is divided between its sides. */
	for (rest = *at, *at = operation; rest != NULL;) {
		if (is_before(rest, operation)) {
			*left = rest;
			left = &rest->threshold.right;
			rest = *left;
		} else {
			*right = rest;
			right = &rest->threshold.left;
			rest = *right;
		}
	}
	*left = *right = NULL;
}

void
threshold_remove(struct hwt_purgatory *purgatory, struct operation *operation)
{
	struct threshold *threshold = &operation->threshold;
	struct operation *left = threshold->left, *right = threshold->right;
	struct operation **at = &threshold->level->lowest;

	while (*at != operation)
		at = is_before(*at, operation) ? &(*at)->threshold.right
					       : &(*at)->threshold.left;
	while (left != NULL && right != NULL) {
		if (priority(purgatory, left) >= priority(purgatory, right)) {
			*at = left;
			at = &left->threshold.right;
			left = *at;
		} else {
			*at = right;
			at = &right->threshold.left;
			right = *at;
		}
	}
	*at = left != NULL ? left : right;
	threshold->level = NULL;
}

struct operation *
threshold_first(struct level *level)
{
	struct operation *operation = level->lowest;

	while (operation != NULL && operation->threshold.left != NULL)
		operation = operation->threshold.left;
	return operation;
}
