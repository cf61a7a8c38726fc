/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ROWS. A row is of one queue. It is pieces of bytes, each after its length:
 * the greatest fence of queues that were removed, above which those of a new
 * queue begin; the queue's name; its machine's header, or nothing if the queue
 * was removed; and encoded records, new ones whole, of others what has changed.
 * A commit appends rows, and changes none. So a change costs as much as it is
 * long, in whatever order tasks end.
 *
 * CLEANING. When the rows have more than twice the bytes of what is in memory,
 * each commit removes old ones, twice as many bytes as it has added. Records
 * that they have as a whole and that are still there are appended again.
 */
#include "modules/durable/server/queues.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define EMPTY_MS 3600000 /* after which an empty queue is removed */
#define STORED_LEAST ((size_t)1 << 20) /* below which there is no cleaning */
#define ROW_BYTES 32768 /* after which another row begins */
/* What may come before and after that. */
#define ROW_MOST (ROW_BYTES + MACHINE_PAYLOAD_MAX + 4096)

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

static void
renew(const struct queues *queues, struct queue *queue)
{
	machine_destroy(queue->machine);
	queue->machine = machine_new(queues);
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
	queues->memory -= queue->memory;
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
	if (queue->newest == 0 && !queue->dirty && !queue->held &&
	    list_is_empty(&queue->waiting))
		queue_destroy(queues, queue);
}

static void
count_memory(struct queues *queues, struct queue *queue)
{
	queues->memory += queue->machine->bytes - queue->memory;
	queue->memory = queue->machine->bytes;
}

/* Takes the next piece of a row; false: there is none. */
static bool
take_piece(struct argument *row, struct argument *piece)
{
	uint32_t length;

	if (row->length < sizeof(length))
		return false;
	memcpy(&length, row->bytes, sizeof(length));
	if (length > row->length - sizeof(length))
		return false;
	*piece = (struct argument){row->bytes + sizeof(length), length};
	row->bytes += sizeof(length) + length;
	row->length -= sizeof(length) + length;
	return true;
}

/* What every row begins with. */
struct front {
	struct argument fence, name, header;
};

static bool
take_front(struct argument *row, struct front *front)
{
	return take_piece(row, &front->fence) &&
	    take_piece(row, &front->name) && take_piece(row, &front->header);
}

static bool
load_row(void *ctx, uint64_t key, const void *bytes, size_t length)
{
	struct queues *queues = ctx;
	struct argument row = {bytes, length}, piece;
	struct front front;
	struct queue *queue;

	if (!take_front(&row, &front) ||
	    front.fence.length != sizeof(queues->fence) ||
	    front.name.length > QUEUE_NAME_MAX)
		return false;
	memcpy(&queues->fence, front.fence.bytes, sizeof(queues->fence));
	queue = queues_get(queues, front.name.bytes, front.name.length);
	if (queue == NULL)
		return false;
	queues->stored += length;
	queue->newest = front.header.length > 0 ? key : 0;
	if (queue->newest == 0)
		renew(queues, queue);
	else if (!machine_load_header(
		     queue->machine, front.header.bytes, front.header.length))
		return false;
	while (take_piece(&row, &piece)) {
		if (!machine_load_record(
			queue->machine, piece.bytes, piece.length))
			return false;
	}
	return row.length == 0;
}

/* The machine of the queue has been loaded. Time goes on from what it was, and
 * from that of the queue if it was made again. Nothing else may change: the
 * queue is not dirty, so its rows would not say so. */
static bool
begin(struct queues *queues, struct queue *queue)
{
	struct machine *machine = queue->machine;
	struct machine_time time = clock_time(&queue->clock);

	if (!machine_load_end(machine))
		return false;
	machine_new_epoch(machine);
	queue->epoch_is_safe = false;
	machine->time.now_ms += minus(time.now_ms, machine->time.now_ms);
	machine->time.steady_ms +=
	    minus(time.steady_ms, machine->time.steady_ms);
	clock_begin(&queue->clock, machine);
	queue->changed_ms = machine->time.now_ms;
	queue->serial = machine->serial;
	count_memory(queues, queue);
	queues_drop_unused(queues, queue);
	return true;
}

/* Makes all machines from the rows, at the start or after a transaction that
 * did not commit. False: the store is damaged, or there is no memory. */
static bool
load_all(struct queues *queues)
{
	struct queue *queue, *next;
	bool whole;

	queues->dirty = NULL;
	queues->stored = 0;
	for (queue = queues_next(queues, NULL); queue != NULL;
	     queue = queues_next(queues, queue)) {
		queue->dirty = queue->gone = false;
		queue->newest = 0;
		renew(queues, queue);
	}
	whole = store_scan(queues->store, load_row, queues) == 0;
	for (queue = queues_next(queues, NULL); queue != NULL && whole;
	     queue = next) {
		next = queues_next(queues, queue);
		whole = begin(queues, queue);
	}
	return whole;
}

int
queues_open(struct queues *queues, const char *folder, char why[200])
{
	int error;

	memset(queues, 0, sizeof(*queues));
	list_init(&queues->all);
	queues->names.key = queue_key;
	(void)!getrandom(&queues->seed, sizeof(queues->seed), GRND_NONBLOCK);
	queues->names.seed = queues->seed;
	queues->row = malloc(ROW_MOST);
	if (queues->row == NULL)
		return -ENOMEM;
	error = store_open(&queues->store, folder, why);
	if (error != 0) {
		free(queues->row);
		return error;
	}
	if (load_all(queues))
		return 0;
	(void)snprintf(why, 200, "%s: it is damaged", folder);
	queues_close(queues);
	return -EILSEQ;
}

void
queues_close(struct queues *queues)
{
	while (!list_is_empty(&queues->all))
		queue_destroy(queues, queues_next(queues, NULL));
	table_clear(&queues->names, NULL);
	store_close(queues->store);
	free(queues->row);
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

	return queue->newest != 0 && list_is_empty(&queue->waiting) &&
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

/*
 * Rows.
 */

static void
put_piece(struct queues *queues, const void *bytes, size_t length)
{
	unsigned char *at = queues->row + queues->row_length;
	uint32_t prefix = (uint32_t)length;

	memcpy(at, &prefix, sizeof(prefix));
	memcpy(at + sizeof(prefix), bytes, length);
	queues->row_length += sizeof(prefix) + length;
}

static void
row_begin(struct queues *queues, const struct queue *queue)
{
	unsigned char header[MACHINE_HEADER_MAX];

	queues->row_length = 0;
	put_piece(queues, &queues->fence, sizeof(queues->fence));
	put_piece(queues, queue->name, queue->name_length);
	put_piece(queues, header,
	    queue->gone ? 0 : machine_save_header(queue->machine, header));
}

static enum store_error
row_end(struct queues *queues, struct queue *queue)
{
	queues->stored += queues->row_length;
	return store_append(
	    queues->store, queues->row, queues->row_length, &queue->newest);
}

static enum store_error
put_record(struct queues *queues, struct queue *queue,
    const struct record *record, bool whole)
{
	enum store_error error = STORE_OK;
	unsigned char *at;
	uint32_t length;

	if (queues->row_length > ROW_BYTES) {
		error = row_end(queues, queue);
		row_begin(queues, queue);
	}
	at = queues->row + queues->row_length;
	length = (uint32_t)record_encode(record, whole, at + sizeof(length));
	memcpy(at, &length, sizeof(length));
	queues->row_length += sizeof(length) + length;
	return error;
}

static enum store_error
put_queue(struct queues *queues, struct queue *queue)
{
	struct machine *machine = queue->machine;
	enum store_error error = STORE_OK;
	struct record *record = NULL;

	if (queue->gone && machine->fence > queues->fence)
		queues->fence = machine->fence;
	count_memory(queues, queue); /* for clean */
	row_begin(queues, queue);
	while (error == STORE_OK &&
	    (record = machine_changed(machine, record)) != NULL) {
		bool new = record->serial > queue->serial;

		if (!new || record->state != STATE_NONE)
			error = put_record(queues, queue, record, new);
	}
	return error == STORE_OK ? row_end(queues, queue) : error;
}

/* Appends again what is still there of the oldest row, and removes that. */
static enum store_error
clean_row(struct queues *queues, uint64_t key, struct argument row)
{
	enum store_error error = STORE_OK;
	struct argument piece;
	struct front front;
	struct record *record;
	struct queue *queue;
	bool needed;

	queues->stored -= row.length;
	if (!take_front(&row, &front))
		return STORE_BROKEN;
	queue = (void *)table_find(
	    &queues->names, front.name.bytes, front.name.length);
	if (queue == NULL || queue->gone)
		return store_remove_oldest(queues->store);
	needed = queue->newest <= key;
	row_begin(queues, queue);
	while (error == STORE_OK && take_piece(&row, &piece)) {
		record = machine_find_encoded(
		    queue->machine, piece.bytes, piece.length);
		needed |= record != NULL;
		if (record != NULL)
			error = put_record(queues, queue, record, true);
	}
	if (error == STORE_OK && needed)
		error = row_end(queues, queue);
	return error == STORE_OK ? store_remove_oldest(queues->store) : error;
}

static enum store_error
clean(struct queues *queues, size_t appended)
{
	size_t left = 2 * appended;
	enum store_error error = STORE_OK;
	struct argument row;
	uint64_t key;

	while (error == STORE_OK && left > 0 &&
	    queues->stored > 2 * queues->memory + STORED_LEAST) {
		row.bytes = store_oldest(queues->store, &key, &row.length);
		if (row.bytes == NULL)
			return STORE_BROKEN;
		left = minus(left, row.length);
		error = clean_row(queues, key, row);
	}
	return error;
}

/* Stores all that has changed, or nothing. */
static enum store_error
put_all(struct queues *queues)
{
	size_t stored = queues->stored;
	enum store_error error;
	struct queue *queue;
	bool durable = false;

	for (queue = queues->dirty; queue != NULL; queue = queue->dirty_next)
		durable = durable || !queue->epoch_is_safe ||
		    !queue->machine->settings.memory_level;
	error = store_begin(queues->store, durable);
	for (queue = queues->dirty; queue != NULL && error == STORE_OK;
	     queue = queue->dirty_next)
		error = put_queue(queues, queue);
	if (error == STORE_OK)
		error = clean(queues, queues->stored - stored);
	if (error == STORE_OK)
		error = store_commit(queues->store);
	if (error != STORE_FULL)
		return error;
	store_roll_back(queues->store);
	queues->stored = stored;
	/* Which rows are the newest is not known any more. */
	for (queue = queues_next(queues, NULL); queue != NULL;
	     queue = queues_next(queues, queue))
		queue->newest = queue->newest > 0;
	return STORE_FULL;
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
		return load_all(queues) ? STORE_FULL : STORE_BROKEN;
	while (error == STORE_OK && (queue = queues->dirty) != NULL) {
		queues->dirty = queue->dirty_next;
		queue->dirty = false;
		queue->epoch_is_safe = true;
		queue->serial = queue->machine->serial;
		machine_settle(queue->machine);
		count_memory(queues, queue);
		if (queue->gone)
			queue_destroy(queues, queue);
	}
	return error;
}
