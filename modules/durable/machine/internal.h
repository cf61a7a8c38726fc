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
/* The newest attempt: see struct attempt. */
void record_attempt(struct machine *machine, struct record *record,
    const struct argument *text, uint64_t request, uint64_t due_ms);
void record_release(struct machine *machine, struct record *record);
/* The first of a group; NULL: no attempt of this take runs. */
struct entry *take_find(const struct machine *machine,
    const struct argument *worker, uint64_t request);
/* Says that a record changes, or is about to be destroyed. */
void record_changed(struct machine *machine, struct record *record);

/* save.c: visits the records of a wheel; those of one time in their order. */
void wheel_walk(const struct table *wheel,
    void (*visit)(const struct record *record, void *ctx), void *ctx);

/* machine.c: into the place that its state says, or out of it. */
void record_place(
    struct machine *machine, struct record *record, enum machine_state state);
void record_unplace(struct machine *machine, struct record *record);

#endif
