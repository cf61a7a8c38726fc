/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hashed wheel with ticks of 1 ms (Varghese & Lauck's scheme 6), whose slots
 * grow with what is in it: the slots are the buckets of a table by time. An
 * entry of a slot is a group, the records of one time: its first record stands
 * in the slot, and the others are linked to that. Groups of later rounds stay
 * in their slot. So inserting and removing a record do not depend on how many
 * there are, and a wheel without records has no slots in memory.
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

static uint64_t
time_of(const struct wheel *wheel, const struct node *node)
{
	size_t length;

	return *(const uint64_t *)wheel->groups.key(node, &length);
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
	struct node *node = table_bucket(&wheel->groups, time_ms)->first;

	while (node != NULL && time_of(wheel, node) != time_ms)
		node = node->chain;
	return node;
}

void
wheel_insert(struct wheel *wheel, struct record *record)
{
	struct node *group = group_find(wheel, record->time_ms);

	if (wheel->groups.count == 0)
		wheel->next = wheel->later = TIME_NEVER;
	if (record->time_ms < wheel->next) {
		wheel->later = wheel->next;
		wheel->next = record->time_ms;
	} else if (record->time_ms < wheel->later &&
	    record->time_ms != wheel->next) {
		wheel->later = record->time_ms;
	}
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
	struct node *node = node_of(record);
	struct record *after =
	    container_of(record->link.next, struct record, link);

	if (group_find(wheel, record->time_ms) == node) {
		table_remove(&wheel->groups, node);
		if (after != record)
			table_insert(&wheel->groups, node_of(after));
	}
	list_remove(&record->link);
}

/* The next tick from from_ms on that has a group: the first in this revolution,
 * or else the earliest of all. A slot is only walked if its time may be now. */
static uint64_t
wheel_search(const struct wheel *wheel, uint64_t from_ms)
{
	uint64_t slots = 2 * (TABLE_FIRST + wheel->groups.grown);
	uint64_t best_ms = TIME_NEVER;
	const struct node *node;
	uint64_t tick;

	for (tick = from_ms; tick - from_ms < slots && tick < best_ms; tick++) {
		struct bucket *slot = table_bucket(&wheel->groups, tick);

		if (slot->hint <= tick) {
			slot->hint = TIME_NEVER;
			for (node = slot->first; node; node = node->chain) {
				if (time_of(wheel, node) < slot->hint)
					slot->hint = time_of(wheel, node);
			}
		}
		if (slot->first != NULL && slot->hint < best_ms)
			best_ms = slot->hint;
	}
	return best_ms;
}

void
wheel_turn(struct wheel *wheel, uint64_t now_ms, size_t *work,
    void (*act)(struct machine *machine, struct record *record),
    struct machine *machine)
{
	uint64_t passed_ms = TIME_NEVER; /* the last tick that had a group */
	const struct node *group;
	size_t slots;

	while (wheel->groups.count > 0 && wheel->next <= now_ms && *work > 0) {
		group = group_find(wheel, wheel->next);
		if (group == NULL) {
			wheel->next = wheel_search(wheel, wheel->later);
			wheel->later = wheel->next + 1;
			continue;
		}
		slots = wheel->groups.count;
		if (passed_ms > wheel->next)
			slots = 0;
		else if (wheel->next - passed_ms < slots)
			slots = wheel->next - passed_ms;
		passed_ms = wheel->next;
		slots /= SLOTS_OF_WORK;
		*work -= slots < *work ? slots : *work - 1;
		for (; group != NULL && *work > 0; --*work) {
			act(machine, first_of(wheel, group));
			group = group_find(wheel, wheel->next);
		}
	}
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
