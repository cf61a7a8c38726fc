/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the machine have in common. See machine.h. */
#ifndef HWT_DURABLE_MACHINE_INTERNAL_H
#define HWT_DURABLE_MACHINE_INTERNAL_H

#include "modules/durable/machine/machine.h"
#include "modules/durable/machine/memory.h"

/* record.c: memory, and what a record belongs to. NULL or false: no memory. */
struct record *record_create(struct machine *machine,
    const struct policy *policy, const struct machine_task *task);
/* The record is in no wheel and no list. */
void record_destroy(struct machine *machine, struct record *record);
/* Frees the payload. Returns the record, which may have moved. */
struct record *record_shrink(struct machine *machine, struct record *record);
void record_set_reason(struct machine *machine, struct record *record,
    const char *text, size_t length);
void record_clear_reason(struct machine *machine, struct record *record);
bool record_lease(struct machine *machine, struct record *record,
    const char *worker, size_t worker_length, uint64_t request,
    uint64_t due_ms);
void record_release_lease(struct machine *machine, struct record *record);
/* Frees all records and workers, and nothing else: before machine_destroy. */
void machine_clear(struct machine *machine);
/* The wheels are mapped while there are records. */
bool machine_map_wheels(struct machine *machine);
void machine_unmap_if_empty(struct machine *machine);
struct record *machine_find(
    const struct machine *machine, const char *id, size_t id_length);
/* Says that a record has changed, or is about to be destroyed. */
void record_changed(struct machine *machine, struct record *record);
const void *record_key(const struct node *node, size_t *length);
const void *worker_key(const struct node *node, size_t *length);

/* machine.c: puts a record into the place that its state says, or takes it out.
 */
void machine_place(
    struct machine *machine, struct record *record, enum machine_state state);
void machine_unplace(struct machine *machine, struct record *record);

#endif
