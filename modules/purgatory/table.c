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

static struct hwt_key
entry_name(entry_t entry)
{
	return entry_is_link(entry) ? entry_link(entry)->name
				    : ((struct key *)entry)->name;
}

static uint64_t
entry_hash(entry_t entry)
{
	return entry_is_link(entry) ? link_hash(entry_link(entry))
				    : ((struct key *)entry)->hash;
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

entry_t
table_find(const struct table *table, struct hwt_key name, uint64_t hash)
{
	const struct key_group *group = group_of(table, hash);
	uint64_t tags = tags_load(group);
	uint64_t match = tags_match(tags, hash_tag(hash));
	struct key *key;
	entry_t entry;

	for (; match != 0; match &= match - 1) {
		entry = group->place[match_place(match)];
		if (names_are_equal(entry_name(entry), name))
			return entry;
	}
	if (!(tags & TAG_MORE))
		return NULL;
	key = group->more;
	while (key != NULL && !names_are_equal(key->name, name))
		key = key->chain;
	return key;
}

/* False: a link, which cannot be chained, and there is no place. */
static bool
group_add(struct key_group *group, entry_t entry, uint64_t hash)
{
	uint64_t tags = tags_load(group);
	uint64_t match = tags_match(tags, 0);
	struct key *key = entry;
	uint32_t place;

	if (match != 0) {
		place = match_place(match);
		group->place[place] = entry;
		tags_store(group, tags | hash_tag(hash) << 8 * place);
		return true;
	}
	if (entry_is_link(entry))
		return false;
	key->chain = group->more;
	group->more = key;
	tags_store(group, tags | TAG_MORE);
	return true;
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

/* GROUP_PLACES: it has none, and is chained. */
static uint32_t
group_place(const struct key_group *group, entry_t entry, uint64_t hash)
{
	uint64_t match = tags_match(tags_load(group), hash_tag(hash));

	for (; match != 0; match &= match - 1) {
		if (group->place[match_place(match)] == entry)
			return match_place(match);
	}
	return GROUP_PLACES;
}

static void
group_remove(struct key_group *group, entry_t entry, uint64_t hash)
{
	uint32_t place = group_place(group, entry, hash);
	struct key **at = &group->more;

	if (place < GROUP_PLACES) {
		group_clear(group, place);
		return;
	}
	while (*at != entry)
		at = &(*at)->chain;
	*at = (*at)->chain;
	if (group->more == NULL)
		tags_store(group, tags_load(group) & ~TAG_MORE);
}

/* The highest bit of each place's byte that is taken. */
static uint64_t
group_taken(const struct key_group *group)
{
	return ~tags_match(tags_load(group), 0) & 0x80 * TAG_ONES;
}

/* One of its entries; NULL: it has none. */
static entry_t
group_any(const struct key_group *group)
{
	uint64_t taken = group_taken(group);

	if (tags_load(group) & TAG_MORE)
		return group->more;
	return taken != 0 ? group->place[match_place(taken)] : NULL;
}

/* Whether one has places for all of the other. */
static bool
group_has_places(const struct key_group *group, const struct key_group *other)
{
	return !(tags_load(other) & TAG_MORE) &&
	    __builtin_popcountll(group_taken(group)) +
		__builtin_popcountll(group_taken(other)) <=
	    (int)GROUP_PLACES;
}

/* Puts a key of the same name into the link's place. */
static void
table_replace(
    struct table *table, struct link *link, struct key *key, uint64_t hash)
{
	struct key_group *group = group_of(table, hash);

	group->place[group_place(group, link_entry(link), hash)] = key;
}

struct key *
key_for_alone(struct shard *shard, struct link *link)
{
	struct hwt_key name = link->name;
	uint64_t hash = link_hash(link);
	struct key *key = key_alloc(shard);

	if (key == NULL)
		return NULL;
	*key = (struct key){
	    .name = name, .hash = hash, .links = 1, .chunk = key->chunk};
	table_replace(&shard->table, link, key, hash);
	link_store(link, key);
	link->previous = NULL;
	link->next = NULL;
	key->first = link;
	key->last = link;
	return key;
}

/* Its links get keys, which can be chained. False: no memory. */
static bool
group_make_keys(struct shard *shard, const struct key_group *group)
{
	uint64_t taken = group_taken(group);
	entry_t entry;

	for (; taken != 0; taken &= taken - 1) {
		entry = group->place[match_place(taken)];
		if (entry_is_link(entry) &&
		    key_for_alone(shard, entry_link(entry)) == NULL)
			return false;
	}
	return true;
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
segment_count(struct shard *shard, uint32_t segment)
{
	if (!(shard->table.counted >> segment & 1))
		shard->memory_bytes += segment_bytes(segment);
	shard->table.counted |= UINT32_C(1) << segment;
}

/* Makes it, if it was not made. */
static int
segment_open(struct shard *shard, uint32_t segment)
{
	aptr_t *at = &shard->table.segment[segment];
	size_t bytes = segment_bytes(segment);
	void *groups;

	if (aptr_load_acquire(at) == NULL) {
		groups = segment_is_mapped(segment)
		    ? memory_map(bytes)
		    : aligned_alloc(CACHE_LINE, bytes);
		if (groups == NULL)
			return -ENOMEM;
		if (!segment_is_mapped(segment))
			memset(groups, 0, bytes);
		/* E:groups release */
		aptr_store_release(at, groups);
	}
	segment_count(shard, segment);
	return 0;
}

/* All its groups are empty. */
static void
segment_close(struct shard *shard, uint32_t segment)
{
	struct table *table = &shard->table;
	size_t bytes = segment_bytes(segment);

	if (!segment_is_mapped(segment) ||
	    !memory_release(aptr_load_acquire(&table->segment[segment]), bytes))
		return;
	table->counted &= ~(UINT32_C(1) << segment);
	shard->memory_bytes -= bytes;
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

/* Entries that belong to a group that is added go there: first those that have
 * places, since links need one, and then keys that were chained. */
static void
group_split(struct key_group *from, struct key_group *to, uint32_t groups)
{
	uint32_t last = groups - 1;
	struct key *key = from->more, *next;
	entry_t entry;
	uint32_t place;

	from->more = NULL;
	tags_store(from, tags_load(from) & ~TAG_MORE);
	for (place = 0; place < GROUP_PLACES; place++) {
		if (!(tags_load(from) >> 8 * place & 0xff))
			continue;
		entry = from->place[place];
		if (group_number(groups, entry_hash(entry)) != last)
			continue;
		(void)group_add(to, entry, entry_hash(entry));
		group_clear(from, place);
	}
	for (; key != NULL; key = next) {
		next = key->chain;
		(void)group_add(
		    group_number(groups, key->hash) == last ? to : from, key,
		    key->hash);
	}
}

/* Adds a group. Without memory the table stays as it is. */
static void
table_grow(struct shard *shard)
{
	struct table *table = &shard->table;
	uint32_t group = table_groups(table);
	uint32_t segment = group_segment(group);
	uint32_t base = UINT32_C(1) << segment;

	if (group == GROUPS_MAX || segment_open(shard, segment) != 0)
		return;
	size_begin(table);
	group_split(
	    group_at(table, group - base), group_at(table, group), group + 1);
	size_end(table, group + 1);
}

/* Removes the last group; its entries go to the one it was split from. Without
 * memory for keys that are to be chained the table stays as it is. */
static void
table_shrink(struct shard *shard)
{
	struct table *table = &shard->table;
	uint32_t last = table_groups(table) - 1;
	uint32_t segment = group_segment(last);
	struct key_group *from = group_at(table, last);
	struct key_group *to = group_at(table, last - (UINT32_C(1) << segment));
	entry_t entry;

	if (!group_has_places(to, from) && !group_make_keys(shard, from))
		return;
	size_begin(table);
	while ((entry = group_any(from)) != NULL) {
		group_remove(from, entry, entry_hash(entry));
		(void)group_add(to, entry, entry_hash(entry));
	}
	size_end(table, last);
	if (last == segment_first(segment))
		segment_close(shard, segment);
}

bool
table_add(struct shard *shard, entry_t entry, uint64_t hash)
{
	if (shard->entries >= table_groups(&shard->table) * KEYS_PER_GROUP)
		table_grow(shard);
	if (!group_add(group_of(&shard->table, hash), entry, hash))
		return false;
	shard->entries++;
	return true;
}

void
table_remove(struct shard *shard, entry_t entry, uint64_t hash)
{
	uint32_t groups = table_groups(&shard->table);

	group_remove(group_of(&shard->table, hash), entry, hash);
	if (--shard->entries < groups && groups > GROUPS_MIN)
		table_shrink(shard);
}

int
table_create(struct shard *shard)
{
	if (segment_open(shard, 0) != 0)
		return -ENOMEM;
	a64_store_release(&shard->table.size, GROUPS_MIN);
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
