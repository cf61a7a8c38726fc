/* SPDX-License-Identifier: Apache-2.0 */
/*
 * INVARIANTS
 *   1. A record of time T is in slot T & mask.
 *   2. next <= the slot's earliest <= the time of each record in it. Both can
 *      be too early after a removal; corrected when the wheel comes by.
 */
#include "modules/durable/machine/wheel.h"

#include "modules/durable/machine/machine.h"

/* Slots that are looked through for one unit of work. */
#define SLOTS_PER_WORK 128

static struct wheel_slot *
slot_of(const struct wheel *wheel, uint64_t time_ms)
{
	return &wheel->slots[time_ms & wheel->mask];
}

static void
slot_append(struct wheel_slot *slot, struct record *record)
{
	struct record *first = slot->first;

	record->next = NULL;
	if (first == NULL) {
		record->prev = record;
		slot->first = record;
		return;
	}
	record->prev = first->prev;
	first->prev->next = record;
	first->prev = record;
}

static void
slot_unlink(struct wheel_slot *slot, struct record *record)
{
	struct record *after = record->next;

	if (slot->first == record)
		slot->first = after;
	else
		record->prev->next = after;
	if (after == NULL)
		after = slot->first;
	if (after != NULL)
		after->prev = record->prev;
}

void
wheel_insert(struct wheel *wheel, struct record *record)
{
	struct wheel_slot *slot = slot_of(wheel, record->time_ms);

	if (slot->first == NULL || record->time_ms < slot->earliest)
		slot->earliest = record->time_ms;
	if (wheel->count++ == 0 || record->time_ms < wheel->next)
		wheel->next = record->time_ms;
	slot_append(slot, record);
}

void
wheel_remove(struct wheel *wheel, struct record *record)
{
	slot_unlink(slot_of(wheel, record->time_ms), record);
	wheel->count--;
}

/* The next tick from from_ms on that may have a record: the first in this
 * revolution, or else the earliest of all. */
static uint64_t
wheel_search(const struct wheel *wheel, uint64_t from_ms)
{
	uint64_t best = TIME_NEVER;
	uint64_t tick;

	if (wheel->count == 0)
		return TIME_NEVER;
	for (tick = from_ms; tick - from_ms <= wheel->mask; tick++) {
		const struct wheel_slot *slot = slot_of(wheel, tick);

		if (slot->first == NULL)
			continue;
		if (slot->earliest <= tick)
			return tick;
		if (slot->earliest < best)
			best = slot->earliest;
	}
	return best;
}

/* One tick. Returns how many records have left, at most so many. */
static size_t
wheel_tick(struct wheel *wheel, size_t most,
    void (*act)(struct record *record, void *ctx), void *ctx)
{
	struct wheel_slot *slot = slot_of(wheel, wheel->next);
	uint64_t tick = wheel->next;
	struct record *record, *after;
	size_t left = 0;

	slot->earliest = TIME_NEVER;
	for (record = slot->first; record != NULL; record = after) {
		after = record->next;
		if (record->time_ms != tick || left == most) {
			if (record->time_ms < slot->earliest)
				slot->earliest = record->time_ms;
			continue;
		}
		wheel_remove(wheel, record);
		left++;
		act(record, ctx);
	}
	return left;
}

size_t
wheel_turn(struct wheel *wheel, uint64_t now_ms, size_t work,
    void (*act)(struct record *record, void *ctx), void *ctx)
{
	uint64_t before = TIME_NEVER; /* the last tick that had a record */
	uint64_t tick, passed;
	size_t left;

	while (wheel->count > 0 && wheel->next <= now_ms) {
		if (work == 0)
			return 0;
		tick = wheel->next;
		left = wheel_tick(wheel, work, act, ctx);
		/* It may have stopped before the end of the tick. */
		work -= left;
		if (left > 0 && before != TIME_NEVER) {
			passed = tick - before;
			if (passed > wheel->mask)
				passed = wheel->mask;
			passed /= SLOTS_PER_WORK;
			work -= passed < work ? passed : work;
		}
		if (left > 0)
			before = tick;
		if (work > 0)
			wheel->next = wheel_search(wheel, tick + 1);
	}
	return work;
}

void
wheel_walk(const struct wheel *wheel,
    void (*visit)(const struct record *record, void *ctx), void *ctx)
{
	const struct record *record;
	uint64_t i;

	if (wheel->count == 0)
		return;
	for (i = 0; i <= wheel->mask; i++) {
		record = slot_of(wheel, wheel->next + i)->first;
		for (; record != NULL; record = record->next)
			visit(record, ctx);
	}
}
