/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ROWS. The key of a row is a queue's number, a serial, and a bit. Serial 0 is
 * the machine's header, others are records. A large payload has a row of its
 * own, in which the bit is 0: it is written once, and not with each change of
 * its record. Queue 0 is the directory: its serials are the numbers of queues,
 * and its rows their names; and in serial 0 the greatest fence of queues that
 * were removed, above which those of a new queue begin.
 */
#include "modules/durable/server/queues.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define NUMBER_SHIFT 41
#define NUMBER_MAX ((UINT64_C(1) << 22) - 1)
#define EMPTY_MS 3600000 /* after which an empty queue is removed */
#define LARGE 4096 /* payloads with more bytes */
#define HEAD_MAX 4096 /* of an encoded record, before its payload */

static uint64_t
row_key(uint64_t number, uint64_t serial)
{
	return number << NUMBER_SHIFT | serial << 1 | 1;
}

static uint64_t
payload_key(uint64_t number, uint64_t serial)
{
	return row_key(number, serial) - 1;
}

static const void *
queue_key(const struct node *node, size_t *length)
{
	const struct queue *queue = (const void *)node;

	*length = queue->name_length;
	return queue->name;
}

static struct machine *
machine_new(const struct queues *queues)
{
	struct machine *machine = machine_create(queues->seed);

	machine->tracked = true;
	machine->fence = queues->fence;
	return machine;
}

static struct queue *
queue_create(struct queues *queues, const char *name, size_t length)
{
	struct queue *queue = calloc(1, sizeof(*queue) + length);

	if (queue != NULL)
		queue->machine = machine_new(queues);
	if (queue == NULL)
		return NULL;
	machine_new_epoch(queue->machine);
	clock_begin(&queue->clock, queue->machine);
	queue->name_length = length;
	memcpy(queue->name, name, length);
	list_insert(&queues->all, &queue->link);
	list_init(&queue->waiting);
	table_insert(&queues->names, &queue->node);
	return queue;
}

static void
queue_destroy(struct queues *queues, struct queue *queue)
{
	list_remove(&queue->link);
	table_remove(&queues->names, &queue->node);
	machine_destroy(queue->machine);
	free(queue);
}

struct queue *
queues_get(struct queues *queues, const char *name, size_t length)
{
	struct queue *queue = (void *)table_find(&queues->names, name, length);

	return queue != NULL ? queue : queue_create(queues, name, length);
}

void
queues_drop_unused(struct queues *queues, struct queue *queue)
{
	if (queue->number == 0 && !queue->dirty && !queue->held &&
	    list_is_empty(&queue->waiting))
		queue_destroy(queues, queue);
}

/* A row's bytes and those of its payload's row, if there is one; NULL: they
 * are too many. */
static const void *
join(struct queues *queues, const void *head, size_t *length, size_t payload)
{
	char *to;

	if (payload == 0)
		return head;
	if (*length > HEAD_MAX)
		return NULL;
	to = queues->buffer + HEAD_MAX - *length;
	memcpy(to, head, *length);
	*length += payload;
	return to;
}

static bool
keep_payload(struct queues *queues, const void *bytes, size_t length)
{
	if (length > MACHINE_PAYLOAD_MAX)
		return false;
	memcpy(queues->buffer + HEAD_MAX, bytes, length);
	return true;
}

struct loading {
	struct queues *queues;
	struct queue *queue; /* whose rows are being read */
	size_t payload; /* the row before was one of so many bytes */
};

static bool
load_name(
    struct queues *queues, uint64_t number, const void *name, size_t length)
{
	struct queue *queue;

	if (number == 0 && length == sizeof(queues->fence)) {
		memcpy(&queues->fence, name, length);
		return true;
	}
	if (number == 0 || length == 0 || length > QUEUE_NAME_MAX ||
	    number > NUMBER_MAX)
		return false;
	queue = queue_create(queues, name, length);
	if (queue == NULL)
		return false;
	queue->number = queues->last_number = number;
	return true;
}

static bool
load_row(void *ctx, uint64_t key, const void *bytes, size_t length)
{
	struct loading *loading = ctx;
	uint64_t number = key >> NUMBER_SHIFT;
	uint64_t serial = (key & (payload_key(1, 0) - 1)) >> 1;

	if ((key & 1) == 0) {
		loading->payload = length;
		return keep_payload(loading->queues, bytes, length);
	}
	if (number == 0)
		return load_name(loading->queues, serial, bytes, length);
	/* They come by their numbers, as the names did. */
	while (loading->queue == NULL || loading->queue->number < number) {
		loading->queue = queues_next(loading->queues, loading->queue);
		if (loading->queue == NULL)
			return false;
	}
	if (loading->queue->number != number)
		return false;
	loading->queue->large |= loading->payload > 0;
	bytes = join(loading->queues, bytes, &length, loading->payload);
	loading->payload = 0;
	return bytes != NULL &&
	    (serial == 0 ? machine_load_header : machine_load_record)(
		loading->queue->machine, bytes, length);
}

int
queues_open(struct queues *queues, const char *folder, char why[200])
{
	struct loading loading = {.queues = queues};
	struct queue *queue;
	int error;

	memset(queues, 0, sizeof(*queues));
	list_init(&queues->all);
	queues->names.key = queue_key;
	(void)!getrandom(&queues->seed, sizeof(queues->seed), GRND_NONBLOCK);
	queues->names.seed = queues->seed;
	queues->buffer = malloc(HEAD_MAX + MACHINE_PAYLOAD_MAX);
	if (queues->buffer == NULL)
		return -ENOMEM;
	error = store_open(&queues->store, folder, why);
	if (error != 0) {
		free(queues->buffer);
		return error;
	}
	error = store_scan(queues->store, load_row, &loading);
	for (queue = queues_next(queues, NULL); queue && error == 0;
	     queue = queues_next(queues, queue)) {
		if (!machine_load_end(queue->machine))
			error = -EILSEQ;
		machine_new_epoch(queue->machine);
		clock_begin(&queue->clock, queue->machine);
		queue->changed_ms = queue->machine->time.now_ms;
		queue->serial = queue->machine->serial;
	}
	if (error != 0) {
		(void)snprintf(why, 200, "%s: it is damaged", folder);
		queues_close(queues);
	}
	return error;
}

void
queues_close(struct queues *queues)
{
	while (!list_is_empty(&queues->all))
		queue_destroy(queues, queues_next(queues, NULL));
	table_clear(&queues->names, NULL);
	store_close(queues->store);
	free(queues->buffer);
}

static uint64_t
stored_revision(const struct machine *machine)
{
	return machine->revision - machine->came_due;
}

static void
mark_dirty(struct queues *queues, struct queue *queue)
{
	queue->changed = true;
	if (queue->dirty)
		return;
	queue->dirty = true;
	queue->changed_ms = clock_time(&queue->clock).now_ms;
	queue->dirty_next = queues->dirty;
	queues->dirty = queue;
}

void
queues_run(struct queues *queues, struct queue *queue,
    const struct command *command, struct call *call)
{
	uint64_t revision = stored_revision(queue->machine);

	if (command->adds && queues->disk_full) {
		call->reply->error(call->reply->ctx, "FULL the disk is full");
		return;
	}
	call->machine = queue->machine;
	call->time = clock_time(&queue->clock);
	/* So that STAT can say how far the queue is ahead of it. */
	if (!command->writes)
		call->time.now_ms = clock_read_ns(CLOCK_REALTIME) / CLOCK_MS_NS;
	command_run(command, call);
	if (stored_revision(queue->machine) != revision)
		mark_dirty(queues, queue);
}

/* As it was made. */
static bool
is_empty(const struct queue *queue)
{
	static const struct machine_settings none;
	const struct machine *machine = queue->machine;

	return queue->number != 0 && list_is_empty(&queue->waiting) &&
	    machine->records.count == 0 &&
	    memcmp(&machine->settings, &none, sizeof(none)) == 0;
}

void
queues_tidy(struct queues *queues)
{
	struct queue *queue;
	uint64_t revision;

	for (queue = queues_next(queues, NULL); queue != NULL;
	     queue = queues_next(queues, queue)) {
		struct machine_time time = clock_time(&queue->clock);

		queue->gone = !queue->dirty && is_empty(queue) &&
		    time.now_ms - queue->changed_ms > EMPTY_MS;
		if (queue->gone)
			mark_dirty(queues, queue);
		revision = stored_revision(queue->machine);
		machine_advance(queue->machine, time);
		if (stored_revision(queue->machine) != revision)
			mark_dirty(queues, queue);
	}
	if (queues->disk_full && store_refill(queues->store))
		queues->disk_full = false;
}

static enum store_error
put_record(
    struct queues *queues, struct queue *queue, const struct record *record)
{
	bool large = record->payload_length > LARGE;
	size_t payload = large ? record->payload_length : 0;
	bool gone = record->state == STATE_NONE;
	uint64_t key = row_key(queue->number, record->serial);
	unsigned char *bytes = (unsigned char *)queues->buffer;
	enum store_error error;

	error = gone ? store_remove(queues->store, key)
		     : store_put(queues->store, key, bytes,
			   record_encode(record, bytes) - payload);
	queue->large |= large;
	if (error != STORE_OK || !queue->large)
		return error;
	key = payload_key(queue->number, record->serial);
	if (gone || !large)
		return store_remove(queues->store, key);
	if (record->serial <= queue->serial)
		return STORE_OK;
	return store_put(queues->store, key, record_payload(record), payload);
}

static enum store_error
remove_queue(struct queues *queues, struct queue *queue)
{
	enum store_error error;

	if (queue->machine->fence > queues->fence)
		queues->fence = queue->machine->fence;
	error = store_put(queues->store, row_key(0, 0), &queues->fence,
	    sizeof(queues->fence));
	if (error == STORE_OK)
		error = store_remove(queues->store, row_key(queue->number, 0));
	if (error == STORE_OK)
		error = store_remove(queues->store, row_key(0, queue->number));
	return error;
}

static enum store_error
put_queue(struct queues *queues, struct queue *queue)
{
	unsigned char header[MACHINE_HEADER_MAX];
	struct machine *machine = queue->machine;
	enum store_error error = STORE_OK;
	const struct record *record = NULL;

	if (queue->gone)
		return remove_queue(queues, queue);
	if (queue->number == 0) {
		if (queues->last_number == NUMBER_MAX)
			return STORE_FULL;
		queue->number = ++queues->last_number;
		error = store_put(queues->store, row_key(0, queue->number),
		    queue->name, queue->name_length);
	}
	if (error == STORE_OK)
		error = store_put(queues->store, row_key(queue->number, 0),
		    header, machine_save_header(machine, header));
	while (error == STORE_OK &&
	    (record = machine_changed(machine, record)) != NULL)
		error = put_record(queues, queue, record);
	return error;
}

/* Stores all that has changed, or nothing. */
static enum store_error
put_all(struct queues *queues)
{
	enum store_error error;
	struct queue *queue;
	bool durable = false;
	size_t length;

	for (queue = queues->dirty; queue != NULL; queue = queue->dirty_next)
		durable = durable || !queue->machine->settings.memory_level;
	error = store_begin(queues->store, durable);
	for (queue = queues->dirty; queue != NULL && error == STORE_OK;
	     queue = queue->dirty_next)
		error = put_queue(queues, queue);
	if (error == STORE_OK)
		error = store_commit(queues->store);
	if (error != STORE_FULL)
		return error;
	store_roll_back(queues->store);
	for (queue = queues->dirty; queue != NULL; queue = queue->dirty_next) {
		if (store_get(queues->store, row_key(0, queue->number),
			&length) == NULL)
			queue->number = 0;
	}
	return STORE_FULL;
}

struct stored_rows {
	struct queues *queues;
	uint64_t number;
};

static const void *
stored_row(void *ctx, uint64_t serial, size_t *length)
{
	const struct stored_rows *rows = ctx;
	struct store *store = rows->queues->store;
	const void *row;
	size_t payload = 0;

	row = store_get(store, payload_key(rows->number, serial), &payload);
	if (row == NULL || !keep_payload(rows->queues, row, payload))
		payload = 0;
	row = store_get(store, row_key(rows->number, serial), length);
	return row != NULL ? join(rows->queues, row, length, payload) : NULL;
}

/* False: a queue could not be put back. */
static bool
undo_queue(struct queues *queues, struct queue *queue)
{
	struct stored_rows rows = {queues, queue->number};

	if (queue->number == 0) {
		/* It was made in this transaction. */
		machine_destroy(queue->machine);
		queue->machine = machine_new(queues);
	} else if (!machine_undo(queue->machine, stored_row, &rows)) {
		return false;
	}
	/* No fence that was given since may come again. */
	machine_new_epoch(queue->machine);
	queues_drop_unused(queues, queue);
	return true;
}

static enum store_error
undo_all(struct queues *queues)
{
	struct queue *queue;
	bool whole = true;

	while ((queue = queues->dirty) != NULL) {
		queues->dirty = queue->dirty_next;
		queue->dirty = queue->gone = false;
		whole = whole && undo_queue(queues, queue);
	}
	return whole ? STORE_FULL : STORE_BROKEN;
}

enum store_error
queues_commit(struct queues *queues)
{
	enum store_error error;
	struct queue *queue;

	if (queues->dirty == NULL)
		return STORE_OK;
	error = put_all(queues);
	if (error == STORE_FULL) {
		queues->disk_full = true;
		store_use_reserve(queues->store);
		error = put_all(queues);
	}
	if (error == STORE_FULL)
		return undo_all(queues);
	while (error == STORE_OK && (queue = queues->dirty) != NULL) {
		queues->dirty = queue->dirty_next;
		queue->dirty = false;
		queue->serial = queue->machine->serial;
		machine_settle(queue->machine);
		if (queue->gone)
			queue_destroy(queues, queue);
	}
	return error;
}
