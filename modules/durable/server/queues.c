/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ROWS. The key of a row is a queue's number times 2^40 and a serial. Serial 0
 * is the machine's header, others are records. Queue 0 is the directory: its
 * serials are the numbers of queues, and its rows their names; and in serial 0
 * the greatest fence of queues that were removed, above which those of a new
 * queue begin.
 */
#include "modules/durable/server/queues.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define NUMBER_SHIFT 40
#define NUMBER_MAX ((UINT64_C(1) << 22) - 1)
#define EMPTY_MS 3600000 /* after which an empty queue is removed */

static uint64_t
row_key(uint64_t number, uint64_t serial)
{
	return number << NUMBER_SHIFT | serial;
}

static const void *
queue_key(const struct node *node, size_t *length)
{
	const struct queue *queue = (const void *)node;

	*length = queue->name_length;
	return queue->name;
}

/* The machine of a new queue; NULL: no memory. */
static struct machine *
machine_begin(const struct queues *queues)
{
	struct machine *machine = machine_create(queues->seed);

	if (machine == NULL)
		return NULL;
	machine->tracked = true;
	machine->fence = queues->fence;
	machine_new_epoch(machine);
	return machine;
}

static struct queue *
queue_create(struct queues *queues, const char *name, size_t length)
{
	struct queue *queue = calloc(1, sizeof(*queue) + length);

	if (queue != NULL)
		queue->machine = machine_begin(queues);
	if (queue == NULL || queue->machine == NULL) {
		free(queue);
		return NULL;
	}
	clock_begin(&queue->clock, queue->machine);
	queue->name_length = length;
	memcpy(queue->name, name, length);
	queue->link = queues->end;
	*queue->link = queue;
	queues->end = &queue->next;
	table_insert(&queues->names, &queue->node);
	return queue;
}

static void
queue_destroy(struct queues *queues, struct queue *queue)
{
	*queue->link = queue->next;
	if (queue->next != NULL)
		queue->next->link = queue->link;
	else
		queues->end = queue->link;
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
	if (queue->number == 0 && !queue->dirty && queue->waiting == 0)
		queue_destroy(queues, queue);
}

struct loading {
	struct queues *queues;
	struct queue *queue; /* whose rows are being read */
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
	uint64_t serial = key & (row_key(1, 0) - 1);

	if (number == 0)
		return load_name(loading->queues, serial, bytes, length);
	/* They come by their numbers, as the names did. */
	if (loading->queue == NULL)
		loading->queue = loading->queues->first;
	while (loading->queue != NULL && loading->queue->number < number)
		loading->queue = loading->queue->next;
	if (loading->queue == NULL || loading->queue->number != number)
		return false;
	return (serial == 0 ? machine_load_header : machine_load_record)(
	    loading->queue->machine, bytes, length);
}

int
queues_open(struct queues *queues, const char *folder, char why[200])
{
	struct loading loading = {.queues = queues};
	struct queue *queue;
	int error;

	memset(queues, 0, sizeof(*queues));
	queues->end = &queues->first;
	queues->names.key = queue_key;
	(void)!getrandom(&queues->seed, sizeof(queues->seed), GRND_NONBLOCK);
	queues->names.seed = queues->seed;
	error = store_open(&queues->store, folder, why);
	if (error != 0)
		return error;
	error = store_scan(queues->store, load_row, &loading);
	for (queue = queues->first; queue && error == 0; queue = queue->next) {
		if (!machine_load_end(queue->machine))
			error = -EILSEQ;
		machine_new_epoch(queue->machine);
		clock_begin(&queue->clock, queue->machine);
		queue->changed_ms = queue->machine->time.now_ms;
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
	while (queues->first != NULL)
		queue_destroy(queues, queues->first);
	table_clear(&queues->names, NULL);
	store_close(queues->store);
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
	command_run(command, call);
	if (stored_revision(queue->machine) != revision)
		mark_dirty(queues, queue);
}

/* As it was made. */
static bool
is_empty(const struct queue *queue)
{
	const struct machine *machine = queue->machine;
	const struct machine_limits *limits = &machine->limits;

	return queue->number != 0 && queue->waiting == 0 &&
	    machine->records.count == 0 && !machine->paused &&
	    !machine->memory_level && limits->running == 0 &&
	    limits->rate == 0 && limits->pending == 0;
}

void
queues_tidy(struct queues *queues)
{
	struct queue *queue;
	uint64_t revision;

	for (queue = queues->first; queue != NULL; queue = queue->next) {
		struct machine_time time = clock_time(&queue->clock);

		queue->gone = !queue->dirty && is_empty(queue) &&
		    time.now_ms - queue->changed_ms > EMPTY_MS;
		if (queue->gone)
			mark_dirty(queues, queue);
		if (machine_wait_ms(queue->machine, time) > 0)
			continue;
		revision = stored_revision(queue->machine);
		machine_advance(queue->machine, time);
		if (stored_revision(queue->machine) != revision)
			mark_dirty(queues, queue);
	}
	if (queues->disk_full && store_refill(queues->store))
		queues->disk_full = false;
}

static enum store_error
put_record(struct store *store, uint64_t number, const struct record *record)
{
	uint64_t key = row_key(number, record->serial);
	unsigned char small[1024], *bytes = small;
	enum store_error error;

	if (record->state == STATE_NONE)
		return store_remove(store, key);
	if (record_encoded_max(record) > sizeof(small))
		bytes = malloc(record_encoded_max(record));
	if (bytes == NULL)
		return STORE_FULL;
	error = store_put(store, key, bytes, record_encode(record, bytes));
	if (bytes != small)
		free(bytes);
	return error;
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
	uint64_t number = queue->number;

	if (queue->gone)
		return remove_queue(queues, queue);
	if (number == 0) {
		if (queues->last_number == NUMBER_MAX)
			return STORE_FULL;
		number = ++queues->last_number;
		queue->number = number;
		error = store_put(queues->store, row_key(0, number),
		    queue->name, queue->name_length);
	}
	if (error == STORE_OK)
		error = store_put(queues->store, row_key(number, 0), header,
		    machine_save_header(machine, header));
	while (error == STORE_OK &&
	    (record = machine_changed(machine, record)) != NULL)
		error = put_record(queues->store, number, record);
	return error;
}

struct stored_rows {
	struct store *store;
	uint64_t number;
};

static const void *
stored_row(void *ctx, uint64_t serial, size_t *length)
{
	const struct stored_rows *rows = ctx;

	return store_get(rows->store, row_key(rows->number, serial), length);
}

/* False: a queue could not be put back. */
static bool
undo_queue(struct queues *queues, struct queue *queue)
{
	struct stored_rows rows = {queues->store, queue->number};
	const struct machine_rows source = {stored_row, &rows};
	size_t length;

	if (store_get(queues->store, row_key(0, queue->number), &length) !=
		NULL &&
	    queue->number != 0) {
		if (!machine_undo(queue->machine, &source))
			return false;
		/* No fence that was given since may come again. */
		machine_new_epoch(queue->machine);
		return true;
	}
	/* It was made in this transaction. */
	machine_destroy(queue->machine);
	queue->number = 0;
	queue->machine = machine_begin(queues);
	return queue->machine != NULL;
}

static enum store_error
undo_all(struct queues *queues)
{
	struct queue *queue;
	bool whole = true;

	store_roll_back(queues->store);
	while ((queue = queues->dirty) != NULL) {
		queues->dirty = queue->dirty_next;
		queue->dirty = queue->gone = false;
		whole = whole && undo_queue(queues, queue);
	}
	queues->disk_full = true;
	store_use_reserve(queues->store);
	return whole ? STORE_FULL : STORE_BROKEN;
}

enum store_error
queues_commit(struct queues *queues)
{
	enum store_error error;
	struct queue *queue;
	bool durable = false;

	if (queues->dirty == NULL)
		return STORE_OK;
	for (queue = queues->dirty; queue != NULL; queue = queue->dirty_next)
		durable = durable || !queue->machine->memory_level;
	error = store_begin(queues->store, durable);
	for (queue = queues->dirty; queue != NULL && error == STORE_OK;
	     queue = queue->dirty_next)
		error = put_queue(queues, queue);
	if (error == STORE_OK)
		error = store_commit(queues->store);
	if (error == STORE_FULL)
		return undo_all(queues);
	while (error == STORE_OK && (queue = queues->dirty) != NULL) {
		queues->dirty = queue->dirty_next;
		queue->dirty = false;
		machine_settle(queue->machine);
		if (queue->gone)
			queue_destroy(queues, queue);
	}
	return error;
}
