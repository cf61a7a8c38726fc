/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of records and of what belongs to them: policies, leases, workers,
 * reasons. A record is one block: a struct, the id, the payload.
 */
#include <stdlib.h>
#include <string.h>

#include "modules/durable/machine/internal.h"

#define CHANGES_FIRST 16384
/* Records that one command can change: those of its advance, each task of it,
 * each that it takes or finds expired. */
#define CHANGES_OF_COMMAND (2 * ADVANCE_WORK + 2 * MACHINE_TASKS_MAX)

struct memory memory = {malloc, calloc, realloc, free};

const struct policy machine_policy = {
    .attempts = 20,
    .retry_first_ms = 1000,
    .retry_most_ms = 600000,
    .result_ms = 600000,
};

const void *
record_key(const struct node *node, size_t *length)
{
	const struct record *record = (const void *)node;

	*length = record->id_length;
	return record->bytes;
}

const void *
worker_key(const struct node *node, size_t *length)
{
	const struct worker *worker = (const void *)node;

	*length = worker->length;
	return worker->name;
}

struct record *
machine_find(const struct machine *machine, const char *id, size_t id_length)
{
	return (void *)table_find(&machine->records, id, id_length);
}

static void *
block_create(struct machine *machine, size_t bytes)
{
	void *block = memory.allocate(bytes);

	if (block != NULL)
		machine->bytes += bytes;
	return block;
}

static void
block_destroy(struct machine *machine, void *block, size_t bytes)
{
	machine->bytes -= bytes;
	memory.release(block);
}

static size_t
record_bytes(const struct record *record)
{
	return sizeof(*record) + record->id_length + record->payload_length;
}

static bool
policy_equals(const struct policy *a, const struct policy *b)
{
	return a->attempts == b->attempts &&
	    a->retry_first_ms == b->retry_first_ms &&
	    a->retry_most_ms == b->retry_most_ms &&
	    a->expires_ms == b->expires_ms && a->result_ms == b->result_ms;
}

static struct policy **
policy_slot(struct machine *machine, const struct policy *policy)
{
	uint64_t hash = policy->attempts + 3 * policy->retry_first_ms +
	    5 * policy->retry_most_ms + 7 * policy->expires_ms +
	    11 * policy->result_ms;

	return &machine->policies[(hash ^ hash >> 7) & 7];
}

static struct policy *
policy_take(struct machine *machine, const struct policy *policy)
{
	struct policy **slot = policy_slot(machine, policy);
	struct policy *made;

	if (*slot == NULL || !policy_equals(*slot, policy)) {
		made = block_create(machine, sizeof(*made));
		if (made == NULL)
			return NULL;
		*made = *policy;
		made->references = 0;
		*slot = made;
	}
	(*slot)->references++;
	return *slot;
}

static void
policy_release(struct machine *machine, struct policy *policy)
{
	struct policy **slot = policy_slot(machine, policy);

	if (--policy->references > 0)
		return;
	if (*slot == policy)
		*slot = NULL;
	block_destroy(machine, policy, sizeof(*policy));
}

struct record *
record_create(struct machine *machine, const struct policy *policy,
    const struct machine_task *task)
{
	size_t bytes =
	    sizeof(struct record) + task->id_length + task->payload_length;
	struct record *record = block_create(machine, bytes);

	if (record == NULL)
		return NULL;
	memset(record, 0, sizeof(*record));
	record->policy = policy_take(machine, policy);
	if (record->policy == NULL) {
		block_destroy(machine, record, bytes);
		return NULL;
	}
	record->id_length = (uint8_t)task->id_length;
	record->payload_length = (uint32_t)task->payload_length;
	record->due_ms = record->time_ms = task->due_ms;
	memcpy(record->bytes, task->id, task->id_length);
	memcpy(record->bytes + task->id_length, task->payload,
	    task->payload_length);
	table_insert(&machine->records, &record->node);
	return record;
}

void
record_destroy(struct machine *machine, struct record *record)
{
	record_changed(machine, record);
	if (record->change != 0)
		machine->changes[record->change - 1].record = NULL;
	table_remove(&machine->records, &record->node);
	policy_release(machine, record->policy);
	block_destroy(machine, record, record_bytes(record));
}

struct record *
record_shrink(struct machine *machine, struct record *record)
{
	size_t bytes = sizeof(*record) + record->id_length;
	struct record *small;

	if (record->payload_length == 0)
		return record;
	small = block_create(machine, bytes);
	if (small == NULL)
		return record;
	memcpy(small, record, bytes);
	small->payload_length = 0;
	table_replace(&machine->records, &record->node, &small->node);
	if (small->change != 0)
		machine->changes[small->change - 1].record = small;
	block_destroy(machine, record, record_bytes(record));
	return small;
}

/* Without memory, the reason is lost, and nothing else. */
void
record_set_reason(struct machine *machine, struct record *record,
    const char *text, size_t length)
{
	record->reason = block_create(machine, sizeof(struct reason) + length);
	if (record->reason == NULL)
		return;
	record->reason->length = length;
	memcpy(record->reason->text, text, length);
}

void
record_clear_reason(struct machine *machine, struct record *record)
{
	if (record->reason != NULL)
		block_destroy(machine, record->reason,
		    sizeof(struct reason) + record->reason->length);
	record->reason = NULL;
}

static struct worker *
worker_take(struct machine *machine, const char *name, size_t length)
{
	struct worker *worker =
	    (void *)table_find(&machine->workers, name, length);

	if (worker != NULL)
		return worker;
	if (!table_prepare(&machine->workers))
		return NULL;
	worker = block_create(machine, sizeof(*worker) + length);
	if (worker == NULL)
		return NULL;
	worker->leases = NULL;
	worker->length = length;
	memcpy(worker->name, name, length);
	table_insert(&machine->workers, &worker->node);
	return worker;
}

static void
worker_release(struct machine *machine, struct worker *worker)
{
	if (worker->leases != NULL)
		return;
	table_remove(&machine->workers, &worker->node);
	if (machine->workers.count == 0)
		table_clear(&machine->workers, NULL);
	block_destroy(machine, worker, sizeof(*worker) + worker->length);
}

bool
record_lease(struct machine *machine, struct record *record, const char *worker,
    size_t worker_length, uint64_t request, uint64_t due_ms)
{
	struct worker *of = worker_take(machine, worker, worker_length);
	struct lease *lease;

	if (of == NULL)
		return false;
	lease = block_create(machine, sizeof(*lease));
	if (lease == NULL) {
		worker_release(machine, of);
		return false;
	}
	*lease = (struct lease){
	    .record = record,
	    .worker = of,
	    .next = of->leases,
	    .request = request,
	    .due_ms = due_ms,
	};
	if (of->leases != NULL)
		of->leases->prev = lease;
	of->leases = lease;
	record->lease = lease;
	return true;
}

void
record_release_lease(struct machine *machine, struct record *record)
{
	struct lease *lease = record->lease;

	if (lease->prev != NULL)
		lease->prev->next = lease->next;
	else
		lease->worker->leases = lease->next;
	if (lease->next != NULL)
		lease->next->prev = lease->prev;
	worker_release(machine, lease->worker);
	block_destroy(machine, lease, sizeof(*lease));
	record->lease = NULL;
}

static void
record_free(struct node *node)
{
	struct record *record = (void *)node;

	if (record->state == STATE_RUNNING)
		memory.release(record->lease);
	else if (record->state == STATE_DEAD)
		memory.release(record->reason);
	if (--record->policy->references == 0)
		memory.release(record->policy);
	memory.release(record);
}

static void
worker_free(struct node *node)
{
	memory.release(node);
}

void
machine_clear(struct machine *machine)
{
	table_clear(&machine->records, record_free);
	table_clear(&machine->workers, worker_free);
}

bool
machine_map_wheels(struct machine *machine)
{
	struct wheel_slot *slots;

	if (machine->wheel.slots != NULL)
		return true;
	if (!table_prepare(&machine->records))
		return false;
	slots = memory.zeroed(WHEEL_SLOTS + LEASE_SLOTS, sizeof(*slots));
	if (slots == NULL)
		return false;
	machine->wheel =
	    (struct wheel){.slots = slots, .mask = WHEEL_SLOTS - 1};
	machine->leases = (struct wheel){
	    .slots = slots + WHEEL_SLOTS, .mask = LEASE_SLOTS - 1};
	return true;
}

void
machine_unmap_if_empty(struct machine *machine)
{
	if (machine->records.count > 0)
		return;
	table_clear(&machine->records, NULL);
	memory.release(machine->wheel.slots);
	machine->wheel = (struct wheel){0};
	machine->leases = (struct wheel){0};
}

size_t
machine_memory(const struct machine *machine)
{
	size_t slots = machine->wheel.slots == NULL
	    ? 0
	    : (WHEEL_SLOTS + LEASE_SLOTS) * sizeof(struct wheel_slot);

	return sizeof(*machine) + machine->bytes + machine->records.bytes +
	    machine->workers.bytes + slots +
	    machine->changes_max * sizeof(struct change);
}

void
record_changed(struct machine *machine, struct record *record)
{
	machine->revision++;
	if (!machine->tracked || record->change != 0)
		return;
	machine->changes[machine->changes_count++] =
	    (struct change){record->serial, record};
	record->change = (uint32_t)machine->changes_count;
}

void
machine_track(struct machine *machine)
{
	machine->tracked = true;
}

bool
machine_reserve(struct machine *machine)
{
	size_t most =
	    machine->changes_max == 0 ? CHANGES_FIRST : machine->changes_max;
	struct change *changes;

	while (most < machine->changes_count + CHANGES_OF_COMMAND)
		most *= 2;
	if (most == machine->changes_max)
		return true;
	changes = memory.resize(machine->changes, most * sizeof(*changes));
	if (changes == NULL)
		return false;
	machine->changes = changes;
	machine->changes_max = most;
	return true;
}

void
machine_settle(struct machine *machine)
{
	size_t i;

	for (i = 0; i < machine->changes_count; i++) {
		if (machine->changes[i].record != NULL)
			machine->changes[i].record->change = 0;
	}
	machine->changes_count = 0;
}
