/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of records and of what belongs to them: policies and attempts. A
 * record is one block: a struct, the id, the payload.
 *
 * While changes are tracked, a record that is destroyed stays in their list
 * until they are settled: in the state STATE_NONE, without anything else.
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "modules/durable/machine/internal.h"

struct memory memory = {malloc, calloc, free, malloc_usable_size};

const struct policy machine_policy = {
    .attempts = 20,
    .retry_first_ms = 1000,
    .retry_most_ms = 600000,
    .result_ms = 600000,
};

/* What the last record of a list of changes has for the next one. */
static struct record changes_end;

static const void *
record_key(const struct node *node, size_t *length)
{
	const struct record *record = (const void *)node;

	*length = record->id_length;
	return record->bytes;
}

static const void *
record_time(const struct node *node, size_t *length)
{
	*length = sizeof(uint64_t);
	return &container_of(node, struct record, by_time)->time_ms;
}

static const void *
attempt_time(const struct node *node, size_t *length)
{
	*length = sizeof(uint64_t);
	return &container_of(node, struct attempt, by_time)->record->time_ms;
}

static const void *
attempt_take(const struct node *node, size_t *length)
{
	const struct attempt *attempt =
	    container_of(node, struct attempt, by_take);

	*length = sizeof(attempt->request) + attempt->length;
	return &attempt->request;
}

static const void *
policy_key(const struct node *node, size_t *length)
{
	*length = sizeof(struct policy);
	return &((const struct shared_policy *)(const void *)node)->policy;
}

struct machine *
machine_create(uint64_t seed)
{
	struct machine *machine = memory.zeroed(1, sizeof(*machine));
	struct table wheel = {
	    .key = record_time, .seed = seed, .numbers = true};

	if (machine == NULL)
		abort();
	machine->records = (struct table){.key = record_key, .seed = seed};
	machine->policies = (struct table){.key = policy_key, .seed = seed};
	machine->takes = (struct table){.key = attempt_take, .seed = seed};
	machine->waiting = machine->ended = machine->leases = wheel;
	machine->leases.key = attempt_time;
	list_init(&machine->due);
	list_init(&machine->dead);
	machine->changes_first = &changes_end;
	machine->changes_last = &machine->changes_first;
	return machine;
}

static void *
block_create(struct machine *machine, size_t bytes)
{
	void *block = memory.allocate(bytes);

	if (block == NULL)
		abort();
	machine->bytes += memory.size(block);
	return block;
}

static void
block_destroy(struct machine *machine, void *block)
{
	machine->bytes -= memory.size(block);
	memory.release(block);
}

struct record *
machine_find(const struct machine *machine, const struct argument *id)
{
	return (void *)table_find(&machine->records, id->bytes, id->length);
}

static const struct policy *
policy_share(struct machine *machine, const struct policy *policy)
{
	struct shared_policy *shared =
	    (void *)table_find(&machine->policies, policy, sizeof(*policy));

	if (shared == NULL) {
		shared = block_create(machine, sizeof(*shared));
		shared->references = 0;
		shared->policy = *policy;
		table_insert(&machine->policies, &shared->node);
	}
	shared->references++;
	return &shared->policy;
}

static void
policy_release(struct machine *machine, const struct policy *policy)
{
	struct shared_policy *shared =
	    container_of(policy, struct shared_policy, policy);

	if (--shared->references > 0)
		return;
	table_remove(&machine->policies, &shared->node);
	block_destroy(machine, shared);
}

struct record *
record_create(struct machine *machine, const struct policy *policy,
    const struct machine_task *task)
{
	const struct argument *id = &task->id, *payload = &task->payload;
	struct record *record =
	    memory.allocate(sizeof(*record) + id->length + payload->length);

	if (record == NULL)
		return NULL;
	machine->bytes += memory.size(record);
	memset(record, 0, sizeof(*record));
	record->policy = policy_share(machine, policy);
	record->id_length = id->length & 127;
	record->payload_length = payload->length & 0x1fffff;
	record->due_ms = task->due_ms & MACHINE_TIME_MAX_MS;
	record->time_ms = task->due_ms;
	record->state =
	    task->due_ms <= machine->time.now_ms ? STATE_DUE : STATE_WAITING;
	memcpy(record->bytes, id->bytes, id->length);
	memcpy(record->bytes + id->length, payload->bytes, payload->length);
	table_insert(&machine->records, &record->by_id);
	return record;
}

/* Nothing but the list of changes has it any more. */
static void
record_retire(struct machine *machine, struct record *record)
{
	record->state = STATE_NONE;
	if (record->changed == NULL)
		block_destroy(machine, record);
}

void
record_destroy(struct machine *machine, struct record *record)
{
	table_remove(&machine->records, &record->by_id);
	policy_release(machine, record->policy);
	record_retire(machine, record);
}

struct record *
record_strip(struct machine *machine, struct record *record)
{
	size_t bytes = sizeof(*record) + record->id_length;
	struct record *made = block_create(machine, bytes);

	memcpy(made, record, bytes);
	made->payload_length = 0;
	made->changed = NULL;
	table_replace(&machine->records, &record->by_id, &made->by_id);
	if (record->changed != NULL)
		record_changed(machine, made);
	record->serial = 0; /* its row is that of the other one */
	record_retire(machine, record);
	return made;
}

void
record_attempt(struct machine *machine, struct record *record,
    const struct argument *text, uint64_t request, uint64_t due_ms)
{
	struct attempt *made =
	    block_create(machine, sizeof(*made) + text->length);

	made->record = record;
	made->due_ms = due_ms;
	made->request = request;
	made->length = text->length;
	memcpy(made->text, text->bytes, text->length);
	if (request != 0)
		group_insert(&machine->takes, &made->by_take);
	record->newest = made;
}

static bool
has_attempt(const struct record *record)
{
	return record->state == STATE_RUNNING || record->state == STATE_DEAD;
}

void
record_release(struct machine *machine, struct record *record)
{
	if (!has_attempt(record))
		return;
	if (record->newest->request != 0)
		group_remove(&machine->takes, &record->newest->by_take);
	block_destroy(machine, record->newest);
}

const struct attempt *
record_newest(const struct record *record)
{
	static const struct attempt none;

	return has_attempt(record) ? record->newest : &none;
}

struct entry *
take_find(const struct machine *machine, const struct argument *worker,
    uint64_t request)
{
	char key[sizeof(request) + MACHINE_WORKER_MAX];

	memcpy(key, &request, sizeof(request));
	memcpy(key + sizeof(request), worker->bytes, worker->length);
	return (void *)table_find(
	    &machine->takes, key, sizeof(request) + worker->length);
}

static void
record_free(struct node *node)
{
	struct record *record = (void *)node;

	if (has_attempt(record))
		memory.release(record->newest);
	memory.release(record);
}

static void
node_free(struct node *node)
{
	memory.release(node);
}

void
machine_destroy(struct machine *machine)
{
	machine_settle(machine);
	table_clear(&machine->waiting, NULL);
	table_clear(&machine->leases, NULL);
	table_clear(&machine->ended, NULL);
	table_clear(&machine->records, record_free);
	table_clear(&machine->takes, NULL);
	table_clear(&machine->policies, node_free);
	memory.release(machine);
}

size_t
machine_memory(const struct machine *machine)
{
	return sizeof(*machine) + machine->bytes +
	    table_memory(&machine->records) + table_memory(&machine->takes) +
	    table_memory(&machine->policies) + table_memory(&machine->waiting) +
	    table_memory(&machine->leases) + table_memory(&machine->ended);
}

void
record_changed(struct machine *machine, struct record *record)
{
	machine->revision++;
	if (!machine->tracked || record->changed != NULL)
		return;
	record->changed = &changes_end;
	*machine->changes_last = record;
	machine->changes_last = &record->changed;
}

struct record *
machine_changed(const struct machine *machine, const struct record *after)
{
	struct record *next =
	    after != NULL ? after->changed : machine->changes_first;

	while (next != &changes_end && next->serial == 0)
		next = next->changed;
	return next != &changes_end ? next : NULL;
}

void
machine_settle(struct machine *machine)
{
	struct record *record = machine->changes_first, *next;

	machine->changes_first = &changes_end;
	machine->changes_last = &machine->changes_first;
	for (; record != &changes_end; record = next) {
		next = record->changed;
		record->changed = NULL;
		if (record->state == STATE_NONE)
			record_retire(machine, record);
	}
}
