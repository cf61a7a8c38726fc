/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the machine have in common. See machine.h. */
#ifndef HWT_DURABLE_MACHINE_INTERNAL_H
#define HWT_DURABLE_MACHINE_INTERNAL_H

#include "modules/durable/machine/machine.h"

/* record.c: memory, and what a record belongs to. NULL: no memory. */
struct record *record_create(struct machine *machine,
    const struct policy *policy, const struct machine_task *task);
/* The record is in no place. */
void record_destroy(struct machine *machine, struct record *record);
/* Returns it without its payload. */
struct record *record_strip(struct machine *machine, struct record *record);
void record_give_reason(struct machine *machine, struct record *record,
    const struct argument *reason);
void record_lease(struct machine *machine, struct record *record,
    const struct argument *worker, uint64_t request, uint64_t due_ms);
/* Takes its lease or reason. */
void record_release(struct machine *machine, struct record *record);
struct shared *take_find(const struct machine *machine,
    const struct argument *worker, uint64_t request);
/* Says that a record changes, or is about to be destroyed. */
void record_changed(struct machine *machine, struct record *record);

/* wheel.c: at record->time_ms. */
void wheel_insert(struct table *wheel, struct record *record);
void wheel_remove(struct table *wheel, struct record *record);
/* Passes each record up to now_ms, in order, to act, which must remove it.
 * Stops after *work records, and subtracts how many there were. */
void wheel_turn(struct table *wheel, uint64_t now_ms, size_t *work,
    void (*act)(struct machine *machine, struct record *record),
    struct machine *machine);
/* Visits all records; records of one time in their order. */
void wheel_walk(const struct table *wheel,
    void (*visit)(const struct record *record, void *ctx), void *ctx);

/* machine.c: puts a record into the place that its state says, or takes it out.
 */
void record_place(
    struct machine *machine, struct record *record, enum machine_state state);
void record_unplace(struct machine *machine, struct record *record);

#endif
