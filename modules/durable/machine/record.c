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
take_key(const struct node *node, size_t *length)
{
	const struct take *take = (const void *)node;

	*length = sizeof(take->request) + take->length;
	return &take->request;
}

static const void *
policy_key(const struct node *node, size_t *length)
{
	*length = sizeof(struct policy) - offsetof(struct policy, attempts);
	return &((const struct policy *)(const void *)node)->attempts;
}

static void
machine_begin(struct machine *machine, uint64_t seed)
{
	const struct table times = {
	    .key = record_time, .seed = seed, .numbers = true};

	*machine = (struct machine){
	    .records = {.key = record_key, .seed = seed},
	    .takes = {.key = take_key, .seed = seed},
	    .policies = {.key = policy_key, .seed = seed},
	    .wheel = {times, TIME_NEVER},
	    .leases = {times, TIME_NEVER},
	    .tracked = machine->tracked,
	};
	machine->leases.groups.key = lease_time;
	list_init(&machine->due);
	list_init(&machine->dead);
}

struct machine *
machine_create(uint64_t seed)
{
	struct machine *machine = memory.zeroed(1, sizeof(*machine));

	if (machine != NULL)
		machine_begin(machine, seed);
	return machine;
}

static void *
block_create(struct machine *machine, size_t bytes)
{
	void *block = memory.allocate(bytes);

	if (block != NULL)
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

static struct policy *
policy_take(struct machine *machine, const struct policy *like)
{
	size_t length;
	const void *key = policy_key(&like->node, &length);
	struct policy *policy =
	    (void *)table_find(&machine->policies, key, length);

	if (policy == NULL) {
		policy = block_create(machine, sizeof(*policy));
		if (policy == NULL)
			return NULL;
		*policy = *like;
		policy->references = 0;
		table_insert(&machine->policies, &policy->node);
	}
	policy->references++;
	return policy;
}

static void
policy_release(struct machine *machine, struct policy *policy)
{
	if (--policy->references > 0)
		return;
	table_remove(&machine->policies, &policy->node);
	block_destroy(machine, policy);
}

struct record *
record_create(struct machine *machine, const struct policy *policy,
    const struct machine_task *task)
{
	const struct argument *id = &task->id, *payload = &task->payload;
	struct record *record = block_create(
	    machine, sizeof(*record) + id->length + payload->length);

	if (record == NULL)
		return NULL;
	memset(record, 0, sizeof(*record));
	record->policy = policy_take(machine, policy);
	if (record->policy == NULL) {
		block_destroy(machine, record);
		return NULL;
	}
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

	if (made == NULL)
		return record;
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
	struct reason *made =
	    block_create(machine, sizeof(*made) + reason->length);

	record->reason = made;
	if (made == NULL)
		return;
	made->length = reason->length;
	memcpy(made->bytes, reason->bytes, reason->length);
}

struct take *
take_find(const struct machine *machine, const struct argument *worker,
    uint64_t request)
{
	char key[sizeof(request) + MACHINE_WORKER_MAX];

	memcpy(key, &request, sizeof(request));
	memcpy(key + sizeof(request), worker->bytes, worker->length);
	return (void *)table_find(
	    &machine->takes, key, sizeof(request) + worker->length);
}

bool
record_lease(struct machine *machine, struct record *record,
    const struct argument *worker, uint64_t request, uint64_t due_ms)
{
	struct lease *lease = block_create(machine, sizeof(*lease));
	struct take *take = take_find(machine, worker, request);
	struct link *before;

	if (lease == NULL)
		return false;
	if (take == NULL) {
		take = block_create(machine, sizeof(*take) + worker->length);
		if (take == NULL) {
			block_destroy(machine, lease);
			return false;
		}
		list_init(&take->leases);
		take->length = worker->length;
		take->request = request;
		memcpy(take->name, worker->bytes, worker->length);
		table_insert(&machine->takes, &take->node);
	}
	/* In a machine that is loaded, they come by their times. */
	before = &take->leases;
	while (request != 0 && before->prev != &take->leases &&
	    container_of(before->prev, struct lease, link)->record->fence >
		record->fence)
		before = before->prev;
	*lease =
	    (struct lease){.take = take, .record = record, .due_ms = due_ms};
	list_insert(before, &lease->link);
	record->lease = lease;
	return true;
}

void
record_release(struct machine *machine, struct record *record)
{
	struct take *take;

	if (record->state == STATE_DEAD && record->reason != NULL)
		block_destroy(machine, record->reason);
	if (record->state != STATE_RUNNING)
		return;
	take = record->lease->take;
	list_remove(&record->lease->link);
	block_destroy(machine, record->lease);
	if (!list_is_empty(&take->leases))
		return;
	table_remove(&machine->takes, &take->node);
	block_destroy(machine, take);
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
machine_clear(struct machine *machine)
{
	machine_settle(machine);
	table_clear(&machine->wheel.groups, NULL);
	table_clear(&machine->leases.groups, NULL);
	table_clear(&machine->records, record_free);
	table_clear(&machine->takes, node_free);
	table_clear(&machine->policies, node_free);
	machine_begin(machine, machine->records.seed);
}

void
machine_destroy(struct machine *machine)
{
	machine_clear(machine);
	memory.release(machine);
}

size_t
machine_memory(const struct machine *machine)
{
	return sizeof(*machine) + machine->bytes +
	    table_memory(&machine->records) + table_memory(&machine->takes) +
	    table_memory(&machine->policies) +
	    table_memory(&machine->wheel.groups) +
	    table_memory(&machine->leases.groups);
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
