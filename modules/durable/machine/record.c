/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of records and of what belongs to them: policies, leases, takes,
 * reasons. A record is one block: a struct, the id, the payload.
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
lease_time(const struct node *node, size_t *length)
{
	*length = sizeof(uint64_t);
	return &((const struct lease *)(const void *)node)->record->time_ms;
}

static const void *
shared_key(const struct node *node, size_t *length)
{
	const struct shared *shared = (const void *)node;

	*length = shared->length;
	return shared->key;
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
	machine->policies = (struct table){.key = shared_key, .seed = seed};
	machine->takes = machine->policies;
	machine->waiting = machine->ended = machine->leases = wheel;
	machine->leases.key = lease_time;
	list_init(&machine->due);
	list_init(&machine->dead);
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

/* The one with that key, and makes it. */
static struct shared *
shared_get(struct machine *machine, struct table *table, const void *key,
    size_t length)
{
	struct shared *shared = (void *)table_find(table, key, length);

	if (shared == NULL) {
		shared = block_create(machine, sizeof(*shared) + length);
		shared->references = 0;
		list_init(&shared->leases);
		shared->length = length;
		memcpy(shared->key, key, length);
		table_insert(table, &shared->node);
	}
	shared->references++;
	return shared;
}

static void
shared_release(
    struct machine *machine, struct table *table, struct shared *shared)
{
	if (--shared->references > 0)
		return;
	table_remove(table, &shared->node);
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
	record->policy = (void *)shared_get(
	    machine, &machine->policies, policy, sizeof(*policy))
			     ->key;
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
	shared_release(machine, &machine->policies,
	    container_of(record->policy, struct shared, key));
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
record_give_reason(struct machine *machine, struct record *record,
    const struct argument *reason)
{
	record->reason =
	    block_create(machine, sizeof(*record->reason) + reason->length);
	record->reason->length = reason->length;
	memcpy(record->reason->bytes, reason->bytes, reason->length);
}

static size_t
take_key(struct take *key, const struct argument *worker, uint64_t request)
{
	key->request = request;
	memcpy(key->worker, worker->bytes, worker->length);
	return offsetof(struct take, worker) + worker->length;
}

struct shared *
take_find(const struct machine *machine, const struct argument *worker,
    uint64_t request)
{
	struct take key;
	size_t length = take_key(&key, worker, request);

	return (void *)table_find(&machine->takes, &key, length);
}

void
record_lease(struct machine *machine, struct record *record,
    const struct argument *worker, uint64_t request, uint64_t due_ms)
{
	struct lease *lease = block_create(machine, sizeof(*lease));
	struct take key;
	size_t length = take_key(&key, worker, request);
	struct shared *take =
	    shared_get(machine, &machine->takes, &key, length);
	struct link *before = &take->leases;

	/* In a machine that is loaded, they come by their times. */
	while (request != 0 && before->prev != &take->leases &&
	    container_of(before->prev, struct lease, link)->record->fence >
		record->fence)
		before = before->prev;
	*lease =
	    (struct lease){.take = take, .record = record, .due_ms = due_ms};
	list_insert(before, &lease->link);
	record->lease = lease;
}

void
record_release(struct machine *machine, struct record *record)
{
	if (record->state == STATE_DEAD)
		block_destroy(machine, record->reason);
	if (record->state != STATE_RUNNING)
		return;
	list_remove(&record->lease->link);
	shared_release(machine, &machine->takes, record->lease->take);
	block_destroy(machine, record->lease);
}

struct argument
record_text(const struct record *record)
{
	if (record->state == STATE_DEAD)
		return (struct argument){
		    record->reason->bytes, record->reason->length};
	if (record->state == STATE_RUNNING)
		return (struct argument){take_of(record)->worker,
		    record->lease->take->length -
			offsetof(struct take, worker)};
	return (struct argument){"", 0};
}

static void
record_free(struct node *node)
{
	struct record *record = (void *)node;

	if (record->state == STATE_RUNNING)
		memory.release(record->lease);
	if (record->state == STATE_DEAD)
		memory.release(record->reason);
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
	table_clear(&machine->takes, node_free);
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
	struct record *last = machine->changed_last;

	machine->revision++;
	if (!machine->tracked || record->changed != NULL)
		return;
	record->changed = record;
	machine->changed_last = record;
	if (last != NULL)
		last->changed = record;
	else
		machine->changed_first = record;
}

struct record *
machine_changed(const struct machine *machine, const struct record *after)
{
	struct record *next = machine->changed_first;

	if (after != NULL)
		next = after->changed != after ? after->changed : NULL;
	while (next != NULL && next->serial == 0)
		next = next->changed != next ? next->changed : NULL;
	return next;
}

void
machine_settle(struct machine *machine)
{
	struct record *record = machine->changed_first, *next;

	machine->changed_first = machine->changed_last = NULL;
	for (; record != NULL; record = next) {
		next = record->changed != record ? record->changed : NULL;
		record->changed = NULL;
		if (record->state == STATE_NONE)
			record_retire(machine, record);
	}
}
