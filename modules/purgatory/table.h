/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shard's hash table of keys. An entry is a key, or the link of an operation
 * that is alone under its key: see shard.c.
 *
 * Its groups are a cache line each, which has the places of up to six entries
 * and a byte of each one's hash (tag, 0: free); further keys are chained behind
 * them, but links cannot be. So most look-ups of a key that is not there read
 * one line, and those of one that is there read its entry as well.
 *
 * It grows by one group where there are more than three keys for each, and
 * shrinks by one where there is less than one (linear hashing, Litwin 1980), so
 * that no call pays for a whole table.
 */
#ifndef HWT_PURGATORY_TABLE_H
#define HWT_PURGATORY_TABLE_H

#include "core/atomic.h"
#include "hwt_purgatory.h"

struct key;
struct link;
struct shard;

/* Its lowest bit is set in that of a link. NULL: none. */
typedef void *entry_t;

#define GROUP_PLACES 6u
/* The bytes of the places in tags, and the one that says that more is set. */
#define TAG_ONES UINT64_C(0x010101010101)
#define TAG_MORE (UINT64_C(1) << 8 * GROUP_PLACES)

struct key_group {
	_Alignas(CACHE_LINE) a64_t tags;
	/* With the lock. */
	entry_t place[GROUP_PLACES];
	struct key *more;
};

#define TABLE_SEGMENTS 28u

/* Changed with the shard's lock; table_may_have reads it without. Segment 0 has
 * two groups, each further one doubles the table. One that was made stays, so
 * that it can be read, but its memory is released. */
struct table {
	/* How many groups there are; above that, how often groups were split or
	 * joined, twice, plus one while one is. */
	_Alignas(CACHE_LINE) a64_t size;
	aptr_t segment[TABLE_SEGMENTS];
	uint32_t counted; /* segments that memory_bytes has, a bit each */
};

static inline uint32_t
group_segment(uint32_t group)
{
	return 31 - (uint32_t)__builtin_clz(group | 1);
}

/* The first group of a segment. */
static inline uint32_t
segment_first(uint32_t segment)
{
	return UINT32_C(1) << segment & ~UINT32_C(1);
}

static inline struct key_group *
group_at(const struct table *table, uint32_t group)
{
	uint32_t segment = group_segment(group);
	/* E:groups acquire */
	struct key_group *first = aptr_load_acquire(&table->segment[segment]);

	return first + (group - segment_first(segment));
}

static inline bool
entry_is_link(entry_t entry)
{
	return (uintptr_t)entry & 1;
}

static inline struct link *
entry_link(entry_t entry)
{
	return (struct link *)((uintptr_t)entry - 1);
}

static inline entry_t
link_entry(struct link *link)
{
	return (entry_t)((uintptr_t)link + 1);
}

static inline uint32_t
group_number(uint32_t groups, uint64_t hash)
{
	uint32_t base = UINT32_C(1) << (31 - (uint32_t)__builtin_clz(groups));
	uint32_t group = (uint32_t)(hash >> 8) & (2 * base - 1);

	return group < groups ? group : group & (base - 1);
}

/* Of bits that choose neither the shard nor, in most tables, the group. */
static inline uint64_t
hash_tag(uint64_t hash)
{
	uint64_t tag = hash >> 40 & 0xff;

	return tag + (tag == 0);
}

/* The highest bit of each place's byte that is this tag. */
static inline uint64_t
tags_match(uint64_t tags, uint64_t tag)
{
	const uint64_t low = 0x7f * TAG_ONES;
	uint64_t differs = (tags ^ tag * TAG_ONES) & 0xff * TAG_ONES;

	return ~(((differs & low) + low) | differs) & 0x80 * TAG_ONES;
}

/* The first place of a match. */
static inline uint32_t
match_place(uint64_t match)
{
	return (uint32_t)__builtin_ctzll(match) / 8;
}

/* Without the lock. False: after the last locked instruction of the caller,
 * there was a moment without that key. */
static inline bool
table_may_have(const struct table *table, uint64_t hash)
{
	/* E:found acquire */
	uint64_t size = a64_load_seq(&table->size);
	const struct key_group *group =
	    group_at(table, group_number((uint32_t)size, hash));
	uint64_t tags = a64_load_acquire(&group->tags);

	return (size >> 32 & 1) || (tags & TAG_MORE) ||
	    tags_match(tags, hash_tag(hash)) != 0 ||
	    a64_load_acquire(&table->size) != size;
}

/* -ENOMEM */
int table_create(struct shard *shard);
void table_destroy(struct table *table);
/* NULL: there is none. */
entry_t table_find(
    const struct table *table, struct hwt_key name, uint64_t hash);
/* There is none of that name. False: a link, and its group has no place. */
bool table_add(struct shard *shard, entry_t entry, uint64_t hash);
void table_remove(struct shard *shard, entry_t entry, uint64_t hash);

#endif
