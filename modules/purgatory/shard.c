/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shards: links and thresholds under keys.
 *
 * A shard is a hash table of keys under a lock. A key has a list of operations
 * by arrival, and a tree of those that wait for a value, by value and arrival.
 * It is freed with its last link, unless a walk has its position in the list.
 *
 * An operation that is alone under a key, and waits for no value, needs no more
 * than its link, which the table has then: a key is made with the second one,
 * with a raise, or where the table has no place for the link.
 *
 *   alone under it -> has a key     key_for_alone: another operation, a raise,
 *                                   or two groups that are joined
 *   has a key -> alone under it     never
 *
 * Which shard and which group of its table a key belongs to follows from a
 * keyed hash, so that nobody can choose keys that meet; handles, which others
 * see, have another secret.
 *
 * EDGES
 *   E:where a link's key, whose hash the operation's owner reads without the
 *           lock, after another thread may have made that key: release by
 *           link_store, acquire by link_hash. Before and after that the hash is
 *           the same, and the key stays until the owner unlinks the link.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "operation.h"
#include "probe.h"

static int
threshold_compare(const struct threshold *a, const struct threshold *b)
{
	if (a->at_least != b->at_least)
		return a->at_least < b->at_least ? -1 : 1;
	return a->arrival < b->arrival ? -1 : a->arrival > b->arrival;
}

RB_GENERATE_INTERNAL(thresholds, threshold, entry, threshold_compare,
    __attribute__((unused)) static)

/* With the lock held. NULL: no memory. */
static struct key *
key_create(struct shard *shard, struct hwt_key name, uint64_t hash)
{
	struct key *key = key_alloc(shard);

	if (key == NULL)
		return NULL;
	*key = (struct key){.name = name, .hash = hash, .chunk = key->chunk};
	(void)table_add(shard, key, hash);
	return key;
}

static void
key_destroy(struct shard *shard, struct key *key)
{
	table_remove(shard, key, key->hash);
	key_free(shard, key);
}

static void
list_insert(struct key *key, struct link *link, struct link *before)
{
	struct link *after = before != NULL ? before->previous : key->last;

	link_store(link, key);
	link->previous = after;
	link->next = before;
	*(after != NULL ? &after->next : &key->first) = link;
	*(before != NULL ? &before->previous : &key->last) = link;
}

static void
list_remove(struct key *key, struct link *link)
{
	*(link->previous != NULL ? &link->previous->next : &key->first) =
	    link->next;
	*(link->next != NULL ? &link->next->previous : &key->last) =
	    link->previous;
}

/* False: the table has no place for it. */
static bool
key_link_alone(
    struct shard *shard, struct link *link, struct hwt_key name, uint64_t hash)
{
	link->name = name;
	a64_store_release(&link->where, hash);
	if (!table_add(shard, link_entry(link), hash)) {
		link_store(link, NULL);
		return false;
	}
	shard->keys++;
	shard->links++;
	OPERATION_PROBE(key_make, shard->purgatory, name.kind, name.id);
	return true;
}

static void
key_unlink_alone(struct shard *shard, struct link *link)
{
	table_remove(shard, link_entry(link), link_hash(link));
	shard->keys--;
	shard->links--;
	OPERATION_PROBE(
	    key_remove, shard->purgatory, link->name.kind, link->name.id);
	link_store(link, NULL);
}

int
key_link(struct shard *shard, struct operation *operation, struct link *link,
    struct hwt_key name, uint64_t hash, uint64_t at_least)
{
	entry_t entry = table_find(&shard->table, name, hash);
	struct key *key = entry;

	link->operation = operation;
	if (entry == NULL && at_least == 0 &&
	    key_link_alone(shard, link, name, hash))
		return 0;
	if (entry == NULL)
		key = key_create(shard, name, hash);
	else if (entry_is_link(entry))
		key = key_for_alone(shard, entry_link(entry));
	if (key == NULL)
		return -ENOMEM;
	if (at_least != 0 && key->links > 0 && key->value >= at_least)
		return 1;
	if (key->links++ == 0) {
		key->value = 0;
		shard->keys++;
		OPERATION_PROBE(key_make, shard->purgatory, name.kind, name.id);
	}
	shard->links++;
	if (at_least != 0) {
		link_store(link, key);
		link->previous = NULL;
		threshold_of(link)->at_least = at_least;
		threshold_of(link)->arrival = shard->arrivals++;
		RB_INSERT(thresholds, &key->thresholds, threshold_of(link));
	} else {
		list_insert(key, link, NULL);
	}
	return 0;
}

/* Whether the link is that of a threshold; a list's first one has no previous
 * either, but is the key's first. */
static bool
link_waits_for_value(const struct link *link)
{
	return link->previous == NULL && link_key(link)->first != link;
}

bool
key_unlink(struct shard *shard, struct link *link)
{
	struct key *key;

	if (link_is_alone(link)) {
		key_unlink_alone(shard, link);
		return false;
	}
	key = link_key(link);
	if (link_waits_for_value(link))
		RB_REMOVE(thresholds, &key->thresholds, threshold_of(link));
	else
		list_remove(key, link);
	link_store(link, NULL);
	shard->links--;
	if (--key->links > 0)
		return true;
	shard->keys--;
	OPERATION_PROBE(
	    key_remove, shard->purgatory, key->name.kind, key->name.id);
	if (key->positions > 0)
		return true;
	key_destroy(shard, key);
	return false;
}

struct threshold *
key_lowest(struct key *key)
{
	return RB_MIN(thresholds, &key->thresholds);
}

struct threshold *
key_after(struct key *key, const struct threshold *after)
{
	struct threshold behind;

	behind.at_least = after->at_least;
	behind.arrival = after->arrival + 1;
	return RB_NFIND(thresholds, &key->thresholds, &behind);
}

void
key_raise(struct key *key, uint64_t value)
{
	/* Without a link, the first one begins anew. */
	if (key->value < value)
		key->value = value;
}

void
key_place(struct key *key, struct link *position, bool last)
{
	position->operation = NULL;
	key->positions++;
	list_insert(key, position, last ? NULL : key->first);
}

void
key_move(struct link *position, struct link *before)
{
	struct key *key = link_key(position);

	list_remove(key, position);
	list_insert(key, position, before);
}

void
key_displace(struct shard *shard, struct link *position)
{
	struct key *key = link_key(position);

	list_remove(key, position);
	key->positions--;
	if (key->links == 0 && key->positions == 0)
		key_destroy(shard, key);
}

/* Operations. */

struct operation *
shard_alloc(struct shard *shard)
{
	struct operation *operation;

	if (shard->free == NULL)
		shard->free = pool_take(shard->purgatory);
	operation = shard->free;
	if (operation != NULL)
		shard->free = operation->next;
	return operation;
}

/* Making and freeing. */

static int
shard_create(struct hwt_purgatory *purgatory, struct shard *shard)
{
	shard->purgatory = purgatory;
	return table_create(shard);
}

int
shards_create(struct hwt_purgatory *purgatory, uint32_t count)
{
	size_t bytes = count * sizeof(struct shard);
	uint32_t i;

	purgatory->shard_count = count;
	purgatory->pool = pool_create();
	purgatory->shard = aligned_alloc(CACHE_LINE, bytes);
	if (purgatory->pool == NULL || purgatory->shard == NULL) {
		pool_destroy(purgatory, false);
		free(purgatory->shard);
		return -ENOMEM;
	}
	memset(purgatory->shard, 0, bytes);
	purgatory->shard[0].memory_bytes = sizeof(*purgatory) + bytes;
	for (i = 0; i < count; i++) {
		if (shard_create(purgatory, &purgatory->shard[i]) != 0) {
			shards_destroy(purgatory, false);
			return -ENOMEM;
		}
	}
	return 0;
}

/* Where nobody was in the lock as the child was forked, all is as it should
 * be. */
void
shards_destroy(struct hwt_purgatory *purgatory, bool inherited)
{
	struct shard *shard;
	uint32_t i;

	for (i = 0; i < purgatory->shard_count; i++) {
		shard = &purgatory->shard[i];
		if (!inherited || lock_try(&shard->lock)) {
			keys_free(shard);
			table_destroy(&shard->table);
		}
	}
	pool_destroy(purgatory, inherited);
	free(purgatory->shard);
}
