/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table that grows and shrinks by one bucket at a time (linear hashing:
 * Litwin, 1980; Larson, 1988). No operation moves more than one bucket, so that
 * a table of a million entries never stalls its caller. The table does not own
 * its entries: each has a struct node.
 */
#ifndef HWT_DURABLE_TABLE_H
#define HWT_DURABLE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct node {
	struct node *chain;
};

struct table {
	uint64_t seed; /* of the hash */
	/* The key of an entry. */
	const void *(*key)(const struct node *node, size_t *length);
	struct node ***segments; /* of TABLE_SEGMENT buckets each */
	size_t segments_max; /* room in segments */
	size_t buckets;
	size_t count; /* entries */
	size_t bytes; /* memory, entries not counted */
};

struct node *table_find(
    const struct table *table, const void *key, size_t length);

/* Makes room for the first entry. False: no memory. Without room for further
 * buckets the table only becomes slower. */
bool table_prepare(struct table *table);
void table_insert(struct table *table, struct node *node);
void table_remove(struct table *table, struct node *node);
/* Puts one node in the place of another that has the same key. */
void table_replace(struct table *table, struct node *node, struct node *with);
/* Frees the table, after it has passed each entry to release, if that is not
 * NULL. The table is empty then. */
void table_clear(struct table *table, void (*release)(struct node *node));

/*
 * Visits the entries of one bucket and returns the cursor of the next one; 0:
 * that was the last. The first cursor is 0. An entry that is there during the
 * whole scan is visited exactly once, however the table changes between the
 * calls. visit must not change the table.
 */
uint64_t table_scan(struct table *table, uint64_t cursor,
    void (*visit)(struct node *node, void *ctx), void *ctx);

#endif
