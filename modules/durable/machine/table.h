/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table that grows and shrinks by one bucket at a time (linear hashing:
 * Litwin, 1980; Larson, 1988). No operation moves more than one bucket, so that
 * a table of a million entries never stalls its caller. The table does not own
 * its entries: each has a struct node.
 *
 * A struct table of zeros, with a key, is empty, and one without entries has no
 * memory of its own. Without memory for further buckets a table only becomes
 * slower: nothing here fails.
 */
#ifndef HWT_DURABLE_TABLE_H
#define HWT_DURABLE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Doubly linked, circular lists of structs that have a struct link in them. */
struct link {
	struct link *next, *prev;
};

/* The struct that has this member. */
#define container_of(address, type, member) \
	((type *)((uintptr_t)(address)-offsetof(type, member)))

/* A list without entries, or an entry that is alone. */
static inline void
list_init(struct link *list)
{
	list->next = list->prev = list;
}

static inline bool
list_is_empty(const struct link *list)
{
	return list->next == list;
}

/* Before this one; before the list itself: at its end. */
static inline void
list_insert(struct link *before, struct link *entry)
{
	entry->next = before;
	entry->prev = before->prev;
	before->prev->next = entry;
	before->prev = entry;
}

static inline void
list_remove(struct link *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
}

/* The allocator of tables and machines: malloc and its siblings, unless the
 * host sets others before its first machine. */
extern struct memory {
	void *(*allocate)(size_t bytes);
	void *(*zeroed)(size_t count, size_t bytes);
	void (*release)(void *block);
	size_t (*size)(void *block);
} memory;

/* Buckets in the struct itself; segment k has TABLE_FIRST << k. */
#define TABLE_FIRST 4
#define TABLE_SEGMENTS 28

struct node {
	struct node *chain;
};

/* Entries with the same key are a GROUP: the node of the first one is in the
 * table, and they are linked to each other in the order of their insertion. A
 * node of another one has itself as its chain. */
struct entry {
	struct node node;
	struct link link;
};

struct bucket {
	struct node *first;
	/* With numbers for keys: the complement of the least one, or 0 if there
	 * is none. Otherwise a bit for each entry, by the highest bits of its
	 * hash, so that an id that is new is mostly not looked for in the
	 * entries; after a removal it may have too many bits. */
	uint64_t hint;
};

struct table {
	/* The key of an entry. */
	const void *(*key)(const struct node *node, size_t *length);
	uint64_t seed; /* of the hash */
	bool numbers; /* keys are uint64_t: see TREE in table.c */
	size_t grown; /* buckets beyond the first */
	size_t count; /* entries */
	struct bucket first[TABLE_FIRST];
	struct bucket *segments[TABLE_SEGMENTS];
};

struct node *table_find(
    const struct table *table, const void *key, size_t length);
void table_insert(struct table *table, struct node *node);
void table_remove(struct table *table, struct node *node);
/* Puts a node into the place of another one with the same key. */
void table_replace(struct table *table, struct node *node, struct node *by);
void group_insert(struct table *table, struct entry *entry);
void group_remove(struct table *table, struct entry *entry);
/* The least of the numbers; UINT64_MAX: there is none. */
uint64_t table_least(const struct table *table);
/* Makes it empty. Passes each entry to release, if that is not NULL. */
void table_clear(struct table *table, void (*release)(struct node *node));
/* Bytes beside the struct and the entries. */
size_t table_memory(const struct table *table);

/*
 * Visits the entries of one bucket and returns the cursor of the next one; 0:
 * that was the last. The first cursor is 0. An entry that is there during the
 * whole scan is visited exactly once, however the table changes between the
 * calls. visit must not change the table.
 */
uint64_t table_scan(const struct table *table, uint64_t cursor,
    void (*visit)(struct node *node, void *ctx), void *ctx);

#endif
