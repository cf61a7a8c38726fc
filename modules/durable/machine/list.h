/* SPDX-License-Identifier: Apache-2.0 */
/* Doubly linked, circular lists of structs that have a struct link in them. */
#ifndef HWT_DURABLE_LIST_H
#define HWT_DURABLE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
