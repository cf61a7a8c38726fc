/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hashed wheel with ticks of 1 ms (Varghese & Lauck's scheme 6), whose slots
 * grow with what is in it: the slots are the buckets of a table by time. An
 * entry of a slot is a group, the records of one time: its first record stands
 * in the slot, and the others are linked to that. Groups of later rounds stay
 * in their slot, and each round begins at another one. The table knows the
 * least time. So no operation depends on how many records there are, or on
 * their times, and a wheel without records has no slots in memory.
 *
 * Records leave the wheel in the order of their times, and those of the same
 * time in the order in which they were inserted. So the order depends on the
 * contents alone, and not on how often the wheel is turned.
 */
#include "modules/durable/machine/internal.h"

/* A running record is not in need of the node of its lease for anything else,
 * and the lease is there anyway. */
static struct node *
node_of(struct record *record)
{
	return record->state == STATE_RUNNING ? &record->lease->by_time
					      : &record->by_time;
}

/* The first record of a time; NULL: there is none. */
static struct record *
first_at(const struct table *wheel, uint64_t time_ms)
{
	struct node *node = table_find(wheel, &time_ms, sizeof(time_ms));
	size_t length;

	return node == NULL
	    ? NULL
	    : container_of(wheel->key(node, &length), struct record, time_ms);
}

void
wheel_insert(struct table *wheel, struct record *record)
{
	struct record *first = first_at(wheel, record->time_ms);

	if (first != NULL) {
		list_insert(&first->link, &record->link);
		return;
	}
	list_init(&record->link);
	table_insert(wheel, node_of(record));
}

void
wheel_remove(struct table *wheel, struct record *record)
{
	struct record *after =
	    container_of(record->link.next, struct record, link);

	if (after == record) {
		table_remove(wheel, node_of(record));
		return;
	}
	if (first_at(wheel, record->time_ms) == record)
		table_replace(wheel, node_of(record), node_of(after));
	list_remove(&record->link);
}

void
wheel_turn(struct table *wheel, uint64_t now_ms, size_t *work,
    void (*act)(struct machine *machine, struct record *record),
    struct machine *machine)
{
	uint64_t time_ms;

	for (; *work > 0 && (time_ms = table_least(wheel)) <= now_ms; --*work)
		act(machine, first_at(wheel, time_ms));
}

struct walk {
	const struct table *wheel;
	void (*visit)(const struct record *record, void *ctx);
	void *ctx;
};

static void
walk_time(struct node *node, void *ctx)
{
	const struct walk *walk = ctx;
	size_t length;
	const struct record *first = container_of(
	    walk->wheel->key(node, &length), struct record, time_ms);
	const struct record *record = first;

	do {
		walk->visit(record, walk->ctx);
		record = container_of(record->link.next, struct record, link);
	} while (record != first);
}

void
wheel_walk(const struct table *wheel,
    void (*visit)(const struct record *record, void *ctx), void *ctx)
{
	struct walk walk = {wheel, visit, ctx};
	uint64_t cursor = 0;

	do
		cursor = table_scan(wheel, cursor, walk_time, &walk);
	while (cursor != 0);
}
