/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is linked under the keys of a shard: a hash table of chains, whose
 * entries are the first links of rings and the levels of keys.
 *
 *   bucket --> link of key K <-> link of K <-> link of K  (a ring)
 *                | chain
 *                v
 *              level of K: value, thresholds
 *                | chain
 *                v
 *              link of key L  (a ring of one)
 *
 * When the first link of a ring leaves, the next one takes its place in the
 * chain. The last one has the count. A level goes with its key's last link.
 *
 * The thresholds of a level are a treap: a search tree by value and arrival
 * that is a heap by keyed hashes of the arrivals, so that its depth is
 * logarithmic whatever values others choose.
 */
#include <stdlib.h>

#include "purgatory.h"

#define BUCKETS_FIRST 16u

/* If there is no memory, chains become longer. */
static void
table_grow(struct shard *shard)
{
	const size_t count = shard->bucket_mask + (size_t)1;
	const size_t more = count > 1 ? 2 * count : BUCKETS_FIRST;
	struct node **bucket = calloc(more, sizeof(*bucket));
	struct node **old = shard->bucket, **to, *node;
	size_t i;

	if (bucket == NULL)
		return;
	shard->bucket = bucket;
	shard->bucket_mask = (uint32_t)(more - 1);
	for (i = 0; i < count; i++) {
		while ((node = old[i]) != NULL) {
			old[i] = node->chain;
			to = table_bucket(shard, node->hash);
			node->chain = *to;
			*to = node;
		}
	}
	if (count > 1)
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
	struct walk *walk;

	for (walk = shard->walks; walk != NULL; walk = walk->next) {
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
	free(level);
}

void
link_remove(struct shard *shard, struct link *link)
{
	struct link *next = link->next, *first;
	struct node **at;
	uint64_t count;

	if (shard->walks != NULL)
		walks_skip(shard, link);
	shard->links--;
	if (next == link) {
		at = table_bucket(shard, link->node.hash);
		while (*at != &link->node)
			at = &(*at)->chain;
		*at = link->node.chain;
		shard->entry_count--;
		if (shard->levels != 0)
			level_remove(shard, &link->node.key, link->node.hash);
		return;
	}
	at = table_find(shard, &link->node.key, link->node.hash, false);
	first = node_link(*at);
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
level_get(struct shard *shard, const struct hwt_key *key, uint32_t hash)
{
	struct node **at = table_find(shard, key, hash, true);
	struct level *level = node_level(*at);

	if (level != NULL || (level = malloc(sizeof(*level))) == NULL)
		return level;
	*level = (struct level){
	    .node = {.key = *key, .hash = hash, .slot = SLOT_LEVEL}};
	shard->levels++;
	table_add(shard, at, &level->node);
	return level;
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

/* In the subtree, towards the other operation. */
static struct operation **
side_of(struct operation *root, struct operation *other)
{
	return is_before(root, other) ? &threshold_of(root)->right
				      : &threshold_of(root)->left;
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
		at = side_of(*at, operation);
	/* It takes this place; what was there is divided between its sides. */
	for (rest = *at, *at = operation; rest != NULL;) {
		struct operation ***side =
		    is_before(rest, operation) ? &left : &right;

		**side = rest;
		*side = side_of(rest, operation);
		rest = **side;
	}
	*left = *right = NULL;
}

void
threshold_remove(struct operation *operation)
{
	struct threshold *threshold = threshold_of(operation);
	struct operation *left = threshold->left, *right = threshold->right;
	struct operation **at = &threshold->level->root, *higher;

	while (*at != operation)
		at = side_of(*at, operation);
	while (left != NULL && right != NULL) {
		higher = priority(left) >= priority(right) ? left : right;
		*at = higher;
		at = side_of(higher, operation);
		*(higher == left ? &left : &right) = *at;
	}
	*at = left != NULL ? left : right;
	threshold->level = NULL;
}

struct operation *
threshold_take(struct level *level, uint64_t value)
{
	struct operation *operation = level->root;

	while (operation != NULL && threshold_of(operation)->left != NULL)
		operation = threshold_of(operation)->left;
	if (operation == NULL || threshold_of(operation)->at_least > value)
		return NULL;
	threshold_remove(operation);
	return operation;
}
