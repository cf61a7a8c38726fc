/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving and loading, by pieces and by rows, and digests.
 *
 * Numbers are stored in base 128, least significant digit first, with the high
 * bit set in all bytes but the last. A loader believes nothing: it checks each
 * number, so that a damaged file is refused, and never leads to a broken
 * machine.
 */
#include <string.h>

#include "modules/durable/machine/internal.h"

#define HEADER_MAGIC 0x6877745f71ull /* "hwt_q" */
/* The longest payload that any host allows. */
#define PAYLOAD_MAX ((size_t)1 << 20)

struct writer {
	unsigned char *to; /* NULL: only counts */
	size_t length;
};

static void
put_bytes(struct writer *writer, const void *bytes, size_t length)
{
	if (writer->to != NULL)
		memcpy(writer->to + writer->length, bytes, length);
	writer->length += length;
}

static void
put(struct writer *writer, uint64_t number)
{
	unsigned char digits[10];
	size_t count = 0;

	while (number >= 128) {
		digits[count++] = (unsigned char)(number | 128);
		number >>= 7;
	}
	digits[count++] = (unsigned char)number;
	put_bytes(writer, digits, count);
}

struct reader {
	const unsigned char *at, *end;
	bool bad;
};

static const void *
get_bytes(struct reader *reader, size_t length)
{
	const unsigned char *at = reader->at;

	if (reader->bad || (size_t)(reader->end - at) < length) {
		reader->bad = true;
		return NULL;
	}
	reader->at += length;
	return at;
}

/* From least to most, or the reader has failed. */
static uint64_t
get(struct reader *reader, uint64_t least, uint64_t most)
{
	uint64_t number = 0;
	const unsigned char *digit;
	unsigned shift = 0;

	do {
		digit = get_bytes(reader, 1);
		if (digit == NULL)
			return least;
		if (shift > 63 || (shift == 63 && *digit > 1)) {
			reader->bad = true;
			return least;
		}
		number |= (uint64_t)(*digit & 127) << shift;
		shift += 7;
	} while (*digit & 128);
	if (number < least || number > most)
		reader->bad = true;
	return number;
}

static void
put_counters(struct writer *writer, const struct machine_counters *c)
{
	put(writer, c->added);
	put(writer, c->begun);
	put(writer, c->retried);
	put(writer, c->done);
	put(writer, c->dead);
	put(writer, c->cancelled);
	put(writer, c->leases_ended);
	put(writer, c->expired);
	put(writer, c->removed);
	put(writer, c->dropped);
}

static void
get_counters(struct reader *reader, struct machine_counters *c)
{
	c->added = get(reader, 0, UINT64_MAX);
	c->begun = get(reader, 0, UINT64_MAX);
	c->retried = get(reader, 0, UINT64_MAX);
	c->done = get(reader, 0, UINT64_MAX);
	c->dead = get(reader, 0, UINT64_MAX);
	c->cancelled = get(reader, 0, UINT64_MAX);
	c->leases_ended = get(reader, 0, UINT64_MAX);
	c->expired = get(reader, 0, UINT64_MAX);
	c->removed = get(reader, 0, UINT64_MAX);
	c->dropped = get(reader, 0, UINT64_MAX);
}

static void
put_header(struct writer *writer, const struct machine *machine)
{
	put(writer, HEADER_MAGIC);
	put(writer, MACHINE_VERSION);
	put(writer, machine->fence);
	put(writer, machine->serial);
	put(writer, machine->paused);
	put(writer, machine->memory_level);
	put(writer, machine->limits.running);
	put(writer, machine->limits.rate);
	put(writer, machine->limits.pending);
	put(writer, machine->tokens);
	put(writer, machine->tokens_ms);
	put_counters(writer, &machine->counters);
}

size_t
machine_save_header(
    const struct machine *machine, unsigned char header[MACHINE_HEADER_MAX])
{
	struct writer writer = {header, 0};

	put_header(&writer, machine);
	put(&writer, machine->time.now_ms);
	put(&writer, machine->time.steady_ms);
	return writer.length;
}

bool
machine_load_header(struct machine *machine, const void *header, size_t length)
{
	struct reader reader = {
	    header, (const unsigned char *)header + length, false};
	struct machine loaded = *machine;

	(void)get(&reader, HEADER_MAGIC, HEADER_MAGIC);
	(void)get(&reader, MACHINE_VERSION, MACHINE_VERSION);
	loaded.fence = get(&reader, 0, INT64_MAX);
	loaded.serial = get(&reader, 0, INT64_MAX);
	loaded.paused = get(&reader, 0, 1);
	loaded.memory_level = get(&reader, 0, 1);
	loaded.limits.running = get(&reader, 0, MACHINE_LIMIT_MAX);
	loaded.limits.rate = get(&reader, 0, MACHINE_LIMIT_MAX);
	loaded.limits.pending = get(&reader, 0, MACHINE_LIMIT_MAX);
	loaded.tokens = get(&reader, 0, UINT64_MAX / 2);
	loaded.tokens_ms = get(&reader, 0, INT64_MAX);
	get_counters(&reader, &loaded.counters);
	loaded.time.now_ms = get(&reader, 0, INT64_MAX);
	loaded.time.steady_ms = get(&reader, loaded.tokens_ms, INT64_MAX);
	if (reader.bad || reader.at != reader.end)
		return false;
	*machine = loaded;
	return true;
}

static void
put_record(struct writer *writer, const struct record *record)
{
	const struct policy *policy = record->policy;

	put(writer, record->state);
	put(writer, record->id_length);
	put(writer, record->attempt);
	put(writer, record->time_ms);
	put(writer, record->due_ms);
	put(writer, record->fence);
	put(writer, record->serial);
	put(writer, policy->attempts);
	put(writer, policy->retry_first_ms);
	put(writer, policy->retry_most_ms);
	put(writer, policy->expires_ms);
	put(writer, policy->result_ms);
	if (record->state == STATE_RUNNING) {
		put(writer, record->lease->request);
		put(writer, record->lease->due_ms);
		put(writer, record->lease->worker->length);
		put_bytes(writer, record->lease->worker->name,
		    record->lease->worker->length);
	} else if (record->state == STATE_DEAD && record->reason != NULL) {
		put(writer, record->reason->length);
		put_bytes(writer, record->reason->text, record->reason->length);
	} else if (record->state == STATE_DEAD) {
		put(writer, 0);
	}
	put(writer, record->payload_length);
	put_bytes(writer, record->bytes,
	    (size_t)record->id_length + record->payload_length);
}

size_t
record_encoded_length(const struct record *record)
{
	struct writer writer = {NULL, 0};

	put_record(&writer, record);
	return writer.length;
}

void
record_encode(const struct record *record, unsigned char *to)
{
	struct writer writer = {to, 0};

	put_record(&writer, record);
}

/* An encoded record. */
struct decoded {
	enum machine_state state;
	uint16_t attempt;
	uint64_t time_ms, due_ms, fence, serial;
	struct policy policy;
	uint64_t request, lease_due_ms; /* RUNNING */
	const char *text; /* RUNNING: the worker. DEAD: the reason */
	size_t text_length;
	struct machine_task task;
};

static void
get_policy(struct reader *reader, struct policy *policy)
{
	policy->attempts = (uint32_t)get(reader, 1, MACHINE_ATTEMPTS_MAX);
	policy->retry_first_ms = get(reader, 0, MACHINE_DELAY_MAX_MS);
	policy->retry_most_ms =
	    get(reader, policy->retry_first_ms, MACHINE_DELAY_MAX_MS);
	policy->expires_ms = get(reader, 0, MACHINE_DELAY_MAX_MS);
	policy->result_ms = get(reader, 0, MACHINE_DELAY_MAX_MS);
}

static bool
record_decode(
    const struct machine *machine, struct reader *reader, struct decoded *d)
{
	memset(d, 0, sizeof(*d));
	d->state = (enum machine_state)get(reader, STATE_WAITING, STATES - 1);
	d->task.id_length = get(reader, 1, MACHINE_ID_MAX);
	d->attempt = (uint16_t)get(reader, 0, MACHINE_ATTEMPTS_MAX);
	d->time_ms = get(reader, 0, INT64_MAX);
	d->due_ms = get(reader, 0, INT64_MAX);
	d->fence = get(reader, 0, machine->fence);
	d->serial = get(reader, 1, machine->serial);
	get_policy(reader, &d->policy);
	if (d->attempt > d->policy.attempts)
		return false;
	if (d->state == STATE_RUNNING) {
		d->request = get(reader, 0, UINT64_MAX);
		d->lease_due_ms = get(reader, 0, INT64_MAX);
		d->text_length = get(reader, 1, MACHINE_WORKER_MAX);
		d->text = get_bytes(reader, d->text_length);
	} else if (d->state == STATE_DEAD) {
		d->text_length = get(reader, 0, MACHINE_REASON_MAX);
		d->text = get_bytes(reader, d->text_length);
	}
	d->task.payload_length = get(reader, 0, PAYLOAD_MAX);
	d->task.id = get_bytes(reader, d->task.id_length);
	d->task.payload = get_bytes(reader, d->task.payload_length);
	return !reader->bad && reader->at == reader->end;
}

bool
machine_load_record(struct machine *machine, const void *bytes, size_t length)
{
	struct reader reader = {
	    bytes, (const unsigned char *)bytes + length, false};
	struct decoded d;
	struct record *record;

	if (!record_decode(machine, &reader, &d) ||
	    !machine_map_wheels(machine) ||
	    machine_find(machine, d.task.id, d.task.id_length) != NULL)
		return false;
	record = record_create(machine, &d.policy, &d.task);
	if (record == NULL)
		return false;
	record->attempt = d.attempt;
	record->time_ms = d.time_ms;
	record->due_ms = d.due_ms;
	record->fence = d.fence;
	record->serial = d.serial;
	if (d.state == STATE_DEAD && d.text_length > 0)
		record_set_reason(machine, record, d.text, d.text_length);
	if (d.state == STATE_RUNNING &&
	    !record_lease(machine, record, d.text, d.text_length, d.request,
		d.lease_due_ms)) {
		record_destroy(machine, record);
		return false;
	}
	machine_place(machine, record, d.state);
	return true;
}

bool
machine_load_end(struct machine *machine)
{
	return machine_check(machine) == NULL;
}

/* Encodes each record into a buffer that grows. */
struct saving {
	const struct machine_sink *sink;
	unsigned char *buffer;
	size_t room;
	enum machine_state state; /* of those that save_node is to save */
};

static void
save_record(const struct record *record, void *ctx)
{
	struct saving *saving = ctx;
	size_t length = record_encoded_length(record);

	if (length > saving->room) {
		memory.release(saving->buffer);
		saving->room = 2 * length;
		saving->buffer = memory.allocate(saving->room);
	}
	/* A record less makes the header wrong: such a file is refused. */
	if (saving->buffer == NULL) {
		saving->room = 0;
		return;
	}
	record_encode(record, saving->buffer);
	saving->sink->piece(saving->sink->ctx, saving->buffer, length);
}

void
machine_save(struct machine *machine, const struct machine_sink *sink)
{
	struct saving saving = {.sink = sink};
	const struct record *record;
	uint64_t cursor = 0;

	for (record = machine->due_first; record; record = record->next)
		save_record(record, &saving);
	wheel_walk(&machine->wheel, save_record, &saving);
	wheel_walk(&machine->leases, save_record, &saving);
	do
		cursor = machine_list(machine, STATE_DEAD, cursor, SIZE_MAX,
		    save_record, &saving);
	while (cursor != 0);
	memory.release(saving.buffer);
}

static uint64_t
digest_bytes(uint64_t digest, const unsigned char *bytes, size_t length)
{
	for (; length > 0; length--)
		digest = (digest ^ *bytes++) * UINT64_C(0x100000001b3);
	return digest;
}

/* The order of records in a slot counts through the order in which they come
 * due; that of dead letters does not count. */
static void
digest_piece(void *ctx, const void *bytes, size_t length)
{
	uint64_t *sum = ctx;

	*sum += digest_bytes(UINT64_C(0xcbf29ce484222325), bytes, length);
}

uint64_t
machine_digest(struct machine *machine)
{
	unsigned char header[MACHINE_HEADER_MAX];
	struct writer writer = {header, 0};
	uint64_t sum = 0;
	const struct machine_sink sink = {digest_piece, &sum};
	const struct record *record;
	uint64_t digest;

	put_header(&writer, machine);
	digest = digest_bytes(1, header, writer.length);
	for (record = machine->due_first; record; record = record->next)
		digest = digest_bytes(digest, (const void *)&record->serial,
		    sizeof(record->serial));
	machine_save(machine, &sink);
	return digest ^ sum;
}

/* Puts back what one change has changed. */
static bool
undo_change(struct machine *machine, const struct change *change,
    const struct machine_rows *rows)
{
	struct record *record = change->record;
	uint64_t serial = change->serial;
	const void *row;
	size_t length;

	if (record != NULL) {
		machine_unplace(machine, record);
		if (record->state == STATE_RUNNING)
			record_release_lease(machine, record);
		else if (record->state == STATE_DEAD)
			record_clear_reason(machine, record);
		record_destroy(machine, record);
	}
	row = rows->row(rows->ctx, serial, &length);
	return row == NULL || machine_load_record(machine, row, length);
}

bool
machine_undo(struct machine *machine, const struct machine_rows *rows)
{
	/* Time goes on: what has come due meanwhile stays due. */
	struct machine_time time = machine->time;
	size_t count = machine->changes_count;
	const void *header;
	size_t length;
	bool whole;

	header = rows->row(rows->ctx, 0, &length);
	whole = header != NULL && machine_load_header(machine, header, length);
	/* An id may have been freed and added again: the later goes first. */
	while (count-- > 0 && whole)
		whole = undo_change(machine, &machine->changes[count], rows);
	machine->changes_count = 0;
	machine->time = time;
	return whole;
}
