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

/* The first record of a group. */
static struct record *
first_of(const struct wheel *wheel, const struct node *group)
{
	size_t length;

	return container_of(
	    wheel->groups.key(group, &length), struct record, time_ms);
}

static struct node *
group_find(const struct wheel *wheel, uint64_t time_ms)
{
	return table_find(&wheel->groups, &time_ms, sizeof(time_ms));
}

void
wheel_insert(struct wheel *wheel, struct record *record)
{
	const struct node *group = group_find(wheel, record->time_ms);

	if (record->time_ms < wheel->next)
		wheel->next = record->time_ms;
	if (group != NULL) {
		list_insert(&first_of(wheel, group)->link, &record->link);
		return;
	}
	list_init(&record->link);
	table_insert(&wheel->groups, node_of(record));
}

void
wheel_remove(struct wheel *wheel, struct record *record)
{
	struct record *after =
	    container_of(record->link.next, struct record, link);
	struct node *node = node_of(record);

	if (after != record) {
		if (group_find(wheel, record->time_ms) == node)
			table_replace(&wheel->groups, node, node_of(after));
		list_remove(&record->link);
		return;
	}
	table_remove(&wheel->groups, node);
	if (record->time_ms == wheel->next)
		wheel->next = table_least(&wheel->groups);
}

void
wheel_turn(struct wheel *wheel, uint64_t now_ms, size_t *work,
    void (*act)(struct machine *machine, struct record *record),
    struct machine *machine)
{
	for (; *work > 0 && wheel->next <= now_ms; --*work)
		act(machine, first_of(wheel, group_find(wheel, wheel->next)));
}

struct walk {
	const struct wheel *wheel;
	void (*visit)(const struct record *record, void *ctx);
	void *ctx;
};

static void
walk_group(struct node *node, void *ctx)
{
	const struct walk *walk = ctx;
	const struct record *first = first_of(walk->wheel, node);
	const struct record *record = first;

	do {
		walk->visit(record, walk->ctx);
		record = container_of(record->link.next, struct record, link);
	} while (record != first);
}

void
wheel_walk(const struct wheel *wheel,
    void (*visit)(const struct record *record, void *ctx), void *ctx)
{
	struct walk walk = {wheel, visit, ctx};
	uint64_t cursor = 0;

	do
		cursor = table_scan(&wheel->groups, cursor, walk_group, &walk);
	while (cursor != 0);
}
