/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shard's hash table of keys: see table.h. The shard's lock protects it.
 *
 * WITHOUT THE LOCK, table_may_have finds that a key is not there: its group has
 * neither its tag nor more keys than places. A key's tag, or TAG_MORE, is in
 * its group's tags from table_add to table_remove: what changes them is one
 * store. Only where a group is split or joined is a key in another one than the
 * size says; then the size is odd, or another one afterwards.
 *
 *        splits or joins                      table_may_have
 *        ---------------                      --------------
 *   (A1) make the size odd               (B1) load the size
 *   (A2) move keys: store tags           (B2) load a group's tags
 *   (A3) make the size even              (B3) load the size
 *
 *   Forbidden: B1 and B3 see the same even size, and B2 only a part of A2, or
 *   what does not belong to that size. Each store releases those before it, and
 *   each load acquires.
 *
 * EDGES
 *   E:groups a segment, all zero: release by the store of its address in
 *            segment_open, acquire in group_at.
 *   E:found  a key that is linked: see WATCH in purgatory.c. Release by
 *            tags_store, acquire by table_may_have.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "operation.h"

#define GROUPS_MIN 2u
#define GROUPS_MAX (UINT32_C(1) << (TABLE_SEGMENTS - 1))
#ifndef KEYS_PER_GROUP
#define KEYS_PER_GROUP 3u
#endif
#define SIZE_ONE (UINT64_C(1) << 32)

/* Groups. */

static bool
names_are_equal(struct hwt_key a, struct hwt_key b)
{
	return a.id == b.id && a.kind == b.kind;
}

static uint32_t
table_groups(const struct table *table)
{
	return (uint32_t)a64_load_relaxed(&table->size);
}

static struct key_group *
group_of(const struct table *table, uint64_t hash)
{
	return group_at(table, group_number(table_groups(table), hash));
}

static uint64_t
tags_load(const struct key_group *group)
{
	return a64_load_relaxed(&group->tags);
}

static void
tags_store(struct key_group *group, uint64_t tags)
{
	/* E:found release */
	a64_store_release(&group->tags, tags);
}

struct key *
table_find(const struct table *table, struct hwt_key name, uint64_t hash)
{
	const struct key_group *group = group_of(table, hash);
	uint64_t tags = tags_load(group);
	uint64_t match = tags_match(tags, hash_tag(hash));
	struct key *key;

	for (; match != 0; match &= match - 1) {
		key = group->place[match_place(match)];
		if (names_are_equal(key->name, name))
			return key;
	}
	if (!(tags & TAG_MORE))
		return NULL;
	key = group->more;
	while (key != NULL && !names_are_equal(key->name, name))
		key = key->chain;
	return key;
}

static void
group_add(struct key_group *group, struct key *key)
{
	uint64_t tags = tags_load(group);
	uint64_t match = tags_match(tags, 0);
	uint32_t place;

	if (match != 0) {
		place = match_place(match);
		group->place[place] = key;
		tags_store(group, tags | hash_tag(key->hash) << 8 * place);
	} else {
		key->chain = group->more;
		group->more = key;
		tags_store(group, tags | TAG_MORE);
	}
}

/* The first one that is chained takes the place. */
static void
group_clear(struct key_group *group, uint32_t place)
{
	uint64_t tags = tags_load(group) & ~(UINT64_C(0xff) << 8 * place);
	struct key *key = group->more;

	if (tags & TAG_MORE) {
		group->place[place] = key;
		group->more = key->chain;
		tags |= hash_tag(key->hash) << 8 * place;
		if (key->chain == NULL)
			tags &= ~TAG_MORE;
	}
	tags_store(group, tags);
}

static void
group_remove(struct key_group *group, struct key *key)
{
	uint64_t match = tags_match(tags_load(group), hash_tag(key->hash));
	struct key **at = &group->more;

	for (; match != 0; match &= match - 1) {
		if (group->place[match_place(match)] == key) {
			group_clear(group, match_place(match));
			return;
		}
	}
	while (*at != key)
		at = &(*at)->chain;
	*at = key->chain;
	if (group->more == NULL)
		tags_store(group, tags_load(group) & ~TAG_MORE);
}

/* One of its keys; NULL: it has none. */
static struct key *
group_any(const struct key_group *group)
{
	uint64_t tags = tags_load(group);
	uint64_t taken = ~tags_match(tags, 0) & 0x80 * TAG_ONES;

	if (tags & TAG_MORE)
		return group->more;
	return taken != 0 ? group->place[match_place(taken)] : NULL;
}

/* Segments. */

static size_t
segment_bytes(uint32_t segment)
{
	return (segment == 0 ? 2 : segment_first(segment)) *
	    sizeof(struct key_group);
}

/* Whole pages, which can be released. */
static bool
segment_is_mapped(uint32_t segment)
{
	return memory_round(segment_bytes(segment)) == segment_bytes(segment);
}

static void
segment_count(struct table *table, uint32_t segment, uint64_t *memory_bytes)
{
	if (!(table->counted >> segment & 1))
		*memory_bytes += segment_bytes(segment);
	table->counted |= UINT32_C(1) << segment;
}

/* Makes it, if it was not made. */
static int
segment_open(struct table *table, uint32_t segment, uint64_t *memory_bytes)
{
	size_t bytes = segment_bytes(segment);
	void *groups;

	if (aptr_load_acquire(&table->segment[segment]) == NULL) {
		groups = segment_is_mapped(segment)
		    ? memory_map(bytes)
		    : aligned_alloc(CACHE_LINE, bytes);
		if (groups == NULL)
			return -ENOMEM;
		if (!segment_is_mapped(segment))
			memset(groups, 0, bytes);
		/* E:groups release */
		aptr_store_release(&table->segment[segment], groups);
	}
	segment_count(table, segment, memory_bytes);
	return 0;
}

/* All its groups are empty. */
static void
segment_close(struct table *table, uint32_t segment, uint64_t *memory_bytes)
{
	size_t bytes = segment_bytes(segment);

	if (!segment_is_mapped(segment) ||
	    !memory_release(aptr_load_acquire(&table->segment[segment]), bytes))
		return;
	table->counted &= ~(UINT32_C(1) << segment);
	*memory_bytes -= bytes;
}

/* Tables. */

/* See WITHOUT THE LOCK. */
static void
size_begin(struct table *table)
{
	a64_store_release(
	    &table->size, a64_load_relaxed(&table->size) + SIZE_ONE);
}

static void
size_end(struct table *table, uint32_t groups)
{
	uint64_t changes = a64_load_relaxed(&table->size) >> 32;

	a64_store_release(&table->size, (changes + 1) << 32 | groups);
}

/* Keys that belong to a group that is added go there. */
static void
group_split(struct key_group *from, struct key_group *to, uint32_t groups)
{
	uint32_t last = groups - 1;
	struct key *key = from->more, *next;
	uint32_t place;

	from->more = NULL;
	tags_store(from, tags_load(from) & ~TAG_MORE);
	for (place = 0; place < GROUP_PLACES; place++) {
		if (!(tags_load(from) >> 8 * place & 0xff))
			continue;
		if (group_number(groups, from->place[place]->hash) != last)
			continue;
		group_add(to, from->place[place]);
		group_clear(from, place);
	}
	for (; key != NULL; key = next) {
		next = key->chain;
		group_add(
		    group_number(groups, key->hash) == last ? to : from, key);
	}
}

/* Adds a group. Without memory the table stays as it is. */
static void
table_grow(struct table *table, uint64_t *memory_bytes)
{
	uint32_t group = table_groups(table);
	uint32_t segment = group_segment(group);
	uint32_t base = UINT32_C(1) << segment;

	if (group == GROUPS_MAX ||
	    segment_open(table, segment, memory_bytes) != 0)
		return;
	size_begin(table);
	group_split(
	    group_at(table, group - base), group_at(table, group), group + 1);
	size_end(table, group + 1);
}

/* Removes the last group; its keys go to the one it was split from. */
static void
table_shrink(struct table *table, uint64_t *memory_bytes)
{
	uint32_t last = table_groups(table) - 1;
	uint32_t segment = group_segment(last);
	struct key_group *from = group_at(table, last);
	struct key_group *to = group_at(table, last - (UINT32_C(1) << segment));
	struct key *key;

	size_begin(table);
	while ((key = group_any(from)) != NULL) {
		group_remove(from, key);
		group_add(to, key);
	}
	size_end(table, last);
	if (last == segment_first(segment))
		segment_close(table, segment, memory_bytes);
}

void
table_add(struct table *table, struct key *key, uint64_t *memory_bytes)
{
	if (table->keys++ >= table_groups(table) * KEYS_PER_GROUP)
		table_grow(table, memory_bytes);
	group_add(group_of(table, key->hash), key);
}

void
table_remove(struct table *table, struct key *key, uint64_t *memory_bytes)
{
	group_remove(group_of(table, key->hash), key);
	table->keys--;
	if (table->keys < table_groups(table) &&
	    table_groups(table) > GROUPS_MIN)
		table_shrink(table, memory_bytes);
}

int
table_create(struct table *table, uint64_t *memory_bytes)
{
	if (segment_open(table, 0, memory_bytes) != 0)
		return -ENOMEM;
	a64_store_release(&table->size, GROUPS_MIN);
	return 0;
}

void
table_destroy(struct table *table)
{
	void *groups;
	uint32_t i;

	for (i = 0; i < TABLE_SEGMENTS; i++) {
		groups = aptr_load_acquire(&table->segment[i]);
		if (groups != NULL && segment_is_mapped(i))
			memory_unmap(groups, segment_bytes(i));
		else
			free(groups);
	}
}
