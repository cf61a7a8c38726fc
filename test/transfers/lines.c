/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the lines that moved. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/timer.h"
#include "lines.h"
#include "simulator.h"

static const struct hwt *timer;
static struct hwt_mailbox *const *mailbox;
static unsigned mailboxes;

/* Names of lines: of a word of a structure, by the last field that begins at or
 * before it; of arrays, one name for all elements. */
struct field {
	size_t offset;
	const char *name;
};

#define FIELD(type, field)                    \
	{                                     \
		offsetof(type, field), #field \
	}
static const struct field of_timer[] = {
    {0, "what hwt_create sets"},
    FIELD(struct hwt, wake_before),
    FIELD(struct hwt, wake_sequence),
    FIELD(struct hwt, permits),
    FIELD(struct hwt, batches),
    FIELD(struct hwt, queue),
    FIELD(struct hwt, queue.due),
    FIELD(struct hwt, store.slabs),
    FIELD(struct hwt, store.caches_used),
    FIELD(struct hwt, store.shared_cache),
    FIELD(struct hwt, store.free_pages),
    FIELD(struct hwt, store.trim_refused),
    FIELD(struct hwt, wheel),
    FIELD(struct hwt, worker),
    FIELD(struct hwt, dispatched_count),
    FIELD(struct hwt, dispatching_to),
    FIELD(struct hwt, trim),
    FIELD(struct hwt, life),
    {sizeof(struct hwt), NULL},
};
static const struct field of_slab[] = {
    FIELD(struct slab, timer),
    FIELD(struct slab, committed),
    FIELD(struct slab, free_summary),
    FIELD(struct slab, free_bits),
    FIELD(struct slab, waiting),
    FIELD(struct slab, queued),
    {sizeof(struct slab), NULL},
};
static const struct field of_record[] = {
    FIELD(struct record, pair),
    FIELD(struct record, executor),
    FIELD(struct record, task),
    FIELD(struct record, arg),
    FIELD(struct record, period_ns),
    FIELD(struct record, link),
    FIELD(struct record, entry_at),
    {sizeof(struct record), NULL},
};

static const char *
field_at(const struct field *field, size_t offset)
{
	while (field[1].name != NULL && field[1].offset <= offset)
		field++;
	return field->name;
}

static bool
is_in(uintptr_t address, const volatile void *begin, size_t bytes)
{
	return address - (uintptr_t)begin < bytes;
}

static void
name_of(uintptr_t address, char *name, size_t size)
{
	const struct record_store *store = &timer->store;
	const struct slab *slab;
	uint32_t i;

	snprintf(name, size, "elsewhere");
	if (is_in(address, timer, sizeof(*timer)))
		snprintf(name, size, "hwt.%s",
		    field_at(of_timer, address - (uintptr_t)timer));
	else if (is_in(
		     address, store->caches, CACHES_MAX * sizeof(struct cache)))
		snprintf(name, size, "cache");
	else if (is_in(address, store->slab_urgency, SLABS_MAX * sizeof(a64_t)))
		snprintf(name, size, "store.slab_urgency[]");
	else if (is_in(address, store->free_top, TOP_WORDS * sizeof(a64_t)))
		snprintf(name, size, "store.free_top[]");
	for (i = 0; i < mailboxes; i++)
		if (is_in(address, mailbox[i], 256))
			snprintf(name, size, "mailbox + %zu",
			    (size_t)(address - (uintptr_t)mailbox[i]));
	for (i = 0; i < store_limit(store); i++) {
		slab = slab_at(store, i);
		address -= (uintptr_t)slab;
		if (address < HEADER_PAGES * PAGE_BYTES)
			snprintf(
			    name, size, "slab.%s", field_at(of_slab, address));
		else if (address < SLAB_BYTES)
			snprintf(name, size, "record.%s",
			    field_at(
				of_record, address % sizeof(struct record)));
		address += (uintptr_t)slab;
	}
}

static struct moved {
	char name[64];
	uint64_t transfers;
} moved[64];

static void
add_moved(uintptr_t address, uint64_t transfers)
{
	struct moved *entry = moved;
	char name[64];

	name_of(address, name, sizeof(name));
	while (entry->transfers != 0 && strcmp(entry->name, name) != 0)
		entry++;
	if (entry == moved + 63)
		abort(); /* too many names */
	memcpy(entry->name, name, sizeof(name));
	entry->transfers += transfers;
}

static int
by_transfers(const void *a, const void *b)
{
	const struct moved *x = a, *y = b;

	return (x->transfers < y->transfers) - (x->transfers > y->transfers);
}

void
lines_print(const struct hwt *of, struct hwt_mailbox *const *of_cores,
    unsigned cores, unsigned operations)
{
	unsigned i;

	timer = of;
	mailbox = of_cores;
	mailboxes = cores;
	memset(moved, 0, sizeof(moved));
	transfers_each(add_moved);
	qsort(moved, 64, sizeof(moved[0]), by_transfers);
	for (i = 0; moved[i].transfers > 0; i++)
		printf("      %6.2f  %s\n",
		    (double)moved[i].transfers / operations, moved[i].name);
}
