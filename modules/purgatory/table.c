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
 * When the first link of a ring leaves, the next one takes over its place in
 * the chain. The last one has the count. A key exists while it has a ring. Its
 * level goes with its last link.
 *
 * The thresholds of a level are a treap: a search tree by value and arrival
 * that is a heap by random priorities, so that its depth is logarithmic
 * whatever values others choose. A priority is a hash of the arrival under the
 * purgatory's secret, and takes no memory.
 */
#include <errno.h>
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
bucket_each(struct shard *shard, uint32_t bucket,
    bool (*visit)(struct operation *operation, void *arg), void *arg)
{
	struct node *node = shard->bucket[bucket];
	struct link *link;

	for (; node != NULL; node = node->chain) {
		if (node->slot == SLOT_LEVEL)
			continue;
		link = node_link(node);
		do {
			if (link->node.slot == 0 &&
			    !visit(link_operation(link), arg))
				return;
			link = link->next;
		} while (link != node_link(node));
	}
}

static struct node **
table_bucket(struct shard *shard, uint32_t hash)
{
	return &shard->bucket[hash >> shard->purgatory->shard_bits &
	    shard->bucket_mask];
}

/* Where the entry is, or is to be. */
static struct node **
table_find(struct shard *shard, const struct hwt_key *key, uint32_t hash,
    bool is_level)
{
	struct node **at = table_bucket(shard, hash), *node;

	for (; (node = *at) != NULL; at = &node->chain) {
		if (node->hash == hash &&
		    (node->slot == SLOT_LEVEL) == is_level &&
		    key_is(&node->key, key))
			break;
	}
	return at;
}

/* If there is no memory, chains become longer. */
static void
table_grow(struct shard *shard)
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
			to = table_bucket(shard, node->hash);
			node->chain = *to;
			*to = node;
		}
	}
	free(old);
}

static void
table_add(struct shard *shard, struct node **at, struct node *node)
{
	node->chain = NULL;
	*at = node;
	if (++shard->entry_count > shard->bucket_mask)
		table_grow(shard);
}

struct link *
ring_first(struct shard *shard, const struct hwt_key *key, uint32_t hash)
{
	return node_link(*table_find(shard, key, hash, false));
}

uint64_t
ring_count(const struct link *first)
{
	return first->next == first ? 1 : first->previous->node.count;
}

void
link_add(struct shard *shard, struct link *link)
{
	struct node **at =
	    table_find(shard, &link->node.key, link->node.hash, false);
	struct link *first = node_link(*at);

	shard->links++;
	if (first == NULL) {
		link->next = link->previous = link;
		shard->keys++;
		table_add(shard, at, &link->node);
		return;
	}
	link->node.count = ring_count(first) + 1;
	link->next = first;
	link->previous = first->previous;
	first->previous->next = link;
	first->previous = link;
}

/* Walks that are about to visit the link, or to end with it. */
static void
walks_skip(struct shard *shard, const struct link *link)
{
	struct batch *walk;

	for (walk = shard->walks; walk != NULL; walk = walk->next_walk) {
		if (walk->at == link)
			walk->at = walk->end == link ? NULL : link->next;
		if (walk->end == link)
			walk->end = link->previous;
	}
}

static void
level_remove(struct shard *shard, const struct hwt_key *key, uint32_t hash)
{
	struct node **at = table_find(shard, key, hash, true), *level = *at;

	if (level == NULL)
		return;
	*at = level->chain;
	shard->levels--;
	shard->entry_count--;
	shard->bytes -= sizeof(struct level);
	free(level);
}

void
link_remove(struct shard *shard, struct link *link)
{
	struct node **at =
	    table_find(shard, &link->node.key, link->node.hash, false);
	struct link *first = node_link(*at), *next = link->next;
	uint64_t count;

	if (shard->walks != NULL)
		walks_skip(shard, link);
	shard->links--;
	if (next == link) {
		*at = link->node.chain;
		shard->entry_count--;
		shard->keys--;
		if (shard->levels != 0)
			level_remove(shard, &link->node.key, link->node.hash);
		return;
	}
	count = ring_count(first);
	next->previous = link->previous;
	link->previous->next = next;
	if (first == link) {
		next->node.chain = link->node.chain;
		*at = &next->node;
		first = next;
	}
	if (first->next != first)
		first->previous->node.count = count - 1;
}

struct level *
level_find(struct shard *shard, const struct hwt_key *key, uint32_t hash)
{
	if (shard->levels == 0)
		return NULL;
	return (struct level *)(void *)*table_find(shard, key, hash, true);
}

void
level_add(struct shard *shard, struct level *level, const struct hwt_key *key,
    uint32_t hash)
{
	*level = (struct level){
	    .node = {.key = *key, .hash = hash, .slot = SLOT_LEVEL}};
	shard->bytes += sizeof(*level);
	shard->levels++;
	table_add(shard, table_find(shard, key, hash, true), &level->node);
}

/* Thresholds. */

static uint32_t
priority(struct operation *operation)
{
	const struct hwt_key arrival = {threshold_of(operation)->arrival, 0};

	return key_hash(&operation->home->purgatory->secret, &arrival);
}

static bool
is_before(struct operation *a, struct operation *b)
{
	const struct threshold *x = threshold_of(a), *y = threshold_of(b);

	return x->at_least != y->at_least ? x->at_least < y->at_least
					  : x->arrival < y->arrival;
}

void
threshold_add(struct level *level, struct operation *operation)
{
	struct threshold *threshold = threshold_of(operation);
	struct operation **at = &level->root, *rest;
	struct operation **left = &threshold->left;
	struct operation **right = &threshold->right;

	threshold->level = level;
	threshold->arrival = level->arrivals++;
	while (*at != NULL && priority(*at) >= priority(operation))
		at = is_before(*at, operation) ? &threshold_of(*at)->right
					       : &threshold_of(*at)->left;
	/* It takes this place; what was there is divided between its sides. */
	for (rest = *at, *at = operation; rest != NULL;) {
		if (is_before(rest, operation)) {
			*left = rest;
			left = &threshold_of(rest)->right;
			rest = *left;
		} else {
			*right = rest;
			right = &threshold_of(rest)->left;
			rest = *right;
		}
	}
	*left = *right = NULL;
}

void
threshold_remove(struct operation *operation)
{
	struct threshold *threshold = threshold_of(operation);
	struct operation *left = threshold->left, *right = threshold->right;
	struct operation **at = &threshold->level->root;

	while (*at != operation)
		at = is_before(*at, operation) ? &threshold_of(*at)->right
					       : &threshold_of(*at)->left;
	while (left != NULL && right != NULL) {
		if (priority(left) >= priority(right)) {
			*at = left;
			at = &threshold_of(left)->right;
			left = *at;
		} else {
			*at = right;
			at = &threshold_of(right)->left;
			right = *at;
		}
	}
	*at = left != NULL ? left : right;
	threshold->level = NULL;
}

struct operation *
threshold_first(struct level *level)
{
	struct operation *operation = level->root, *left;

	while (
	    operation != NULL && (left = threshold_of(operation)->left) != NULL)
		operation = left;
	return operation;
}
