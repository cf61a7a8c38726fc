/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hashed wheel with ticks of 1 ms (Varghese & Lauck's scheme 6). Records of
 * later rounds stay in their slot and are passed over; each slot knows the
 * earliest time in it, so that slots with nothing due in this round are not
 * walked.
 *
 * Records leave the wheel in the order of their times, and those of the same
 * time in the order in which they were inserted. So the order depends on the
 * contents alone, and not on how often the wheel is turned.
 */
#ifndef HWT_DURABLE_WHEEL_H
#define HWT_DURABLE_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct record;

#define TIME_NEVER UINT64_MAX

struct wheel_slot {
	struct record *first; /* its prev is the last one */
	/* No time in the slot is earlier. Only valid if there is a record. */
	uint64_t earliest;
};

struct wheel {
	struct wheel_slot *slots;
	uint64_t mask; /* slots - 1 */
	/* No record is earlier than this. All that was earlier has left. */
	uint64_t next;
	size_t count;
};

/* Inserts a record at record->time_ms. A time that the wheel has passed counts
 * as the next tick that it has not. */
void wheel_insert(struct wheel *wheel, struct record *record);
void wheel_remove(struct wheel *wheel, struct record *record);

/*
 * Removes all records up to now_ms, in order, and passes each to act, which may
 * insert it again at a later time. Stops after so much work: a unit is a record
 * that left or 128 slots that were looked through, and depends on the contents
 * alone. Returns how much is left; 0: something due may have stayed.
 */
size_t wheel_turn(struct wheel *wheel, uint64_t now_ms, size_t work,
    void (*act)(struct record *record, void *ctx), void *ctx);

/* Visits all records: by slot from the earliest, and in the order of each. */
void wheel_walk(const struct wheel *wheel,
    void (*visit)(const struct record *record, void *ctx), void *ctx);

#endif
