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

#define NUMBER_BYTES 9 /* of one: it has up to 63 bits */

static unsigned char *
put(unsigned char *to, const uint64_t *numbers, size_t count)
{
	uint64_t number;

	for (; count > 0; count--) {
		for (number = *numbers++; number >= 128; number >>= 7)
			*to++ = (unsigned char)(number | 128);
		*to++ = (unsigned char)number;
	}
	return to;
}

struct reader {
	const unsigned char *at, *end;
	bool bad;
};

static struct argument
get_bytes(struct reader *reader, size_t length)
{
	struct argument bytes = {(const char *)reader->at, length};

	if ((size_t)(reader->end - reader->at) < length)
		reader->bad = true;
	else
		reader->at += length;
	return bytes;
}

/* Each at most so much, or the reader has failed, and they are 0. */
static void
get(struct reader *reader, uint64_t *numbers, const uint64_t *most,
    size_t count)
{
	unsigned char digit;
	unsigned shift;

	for (; count > 0; count--, numbers++, most++) {
		*numbers = shift = 0;
		do {
			digit = reader->at < reader->end ? *reader->at++ : 255;
			*numbers |= (uint64_t)(digit & 127) << shift;
			shift += 7;
		} while (digit > 127 && shift < 63);
		if (digit > 127 || *numbers > *most)
			reader->bad = true;
		if (reader->bad)
			*numbers = 0;
	}
}

/* Of machine->saved. */
static const uint64_t saved_most[SAVED_NUMBERS] = {INT64_MAX,
    MACHINE_SERIAL_MAX, MACHINE_LIMIT_MAX, MACHINE_LIMIT_MAX, MACHINE_LIMIT_MAX,
    1, 1, INT64_MAX, MACHINE_TIME_MAX_MS, INT64_MAX, INT64_MAX, INT64_MAX,
    INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX,
    MACHINE_TIME_MAX_MS, MACHINE_TIME_MAX_MS};
/* What a header begins with: "hwt_q". */
static const uint64_t mark[] = {UINT64_C(0x6877745f71), MACHINE_VERSION};

size_t
machine_save_header(
    const struct machine *machine, unsigned char header[MACHINE_HEADER_MAX])
{
	unsigned char *end = put(header, mark, 2);

	end = put(end, machine->saved, SAVED_NUMBERS);
	return (size_t)(end - header);
}

bool
machine_load_header(struct machine *machine, const void *header, size_t length)
{
	struct reader reader = {
	    header, (const unsigned char *)header + length, false};
	uint64_t its_mark[2];

	get(&reader, its_mark, mark, 2);
	get(&reader, machine->saved, saved_most, SAVED_NUMBERS);
	return memcmp(its_mark, mark, sizeof(mark)) == 0 && !reader.bad &&
	    reader.at == reader.end &&
	    machine->tokens_ms <= machine->time.steady_ms;
}

/* The numbers of an encoded record, in their order. Then come its worker or
 * reason, id and payload. */
union numbers {
	struct {
		uint64_t state, attempt, time_ms, due_ms, fence, serial;
		struct policy policy;
		uint64_t request, lease_due_ms; /* of a lease; or 0 */
		uint64_t text_length; /* of the worker or the reason; or 0 */
		uint64_t id_length, payload_length;
	};
	uint64_t all[16];
};
#define NUMBERS (sizeof(union numbers) / sizeof(uint64_t))

static const union numbers most = {{STATES - 1, MACHINE_ATTEMPTS_MAX,
    MACHINE_TIME_MAX_MS, MACHINE_TIME_MAX_MS, INT64_MAX, MACHINE_SERIAL_MAX,
    {MACHINE_ATTEMPTS_MAX, MACHINE_DELAY_MAX_MS, MACHINE_DELAY_MAX_MS,
	MACHINE_DELAY_MAX_MS, MACHINE_DELAY_MAX_MS},
    INT64_MAX, MACHINE_TIME_MAX_MS, MACHINE_REASON_MAX, MACHINE_ID_MAX,
    MACHINE_PAYLOAD_MAX}};

size_t
record_encoded_max(const struct record *record)
{
	return NUMBERS * NUMBER_BYTES + record_newest(record)->length +
	    record->id_length + record->payload_length;
}

/* Of a change, those of the policy and the payload are 0. */
static unsigned char *
put_numbers(const struct record *record, bool whole, unsigned char *to)
{
	static const struct policy none;
	const struct attempt *newest = record_newest(record);
	const union numbers numbers = {
	    {record->state, record->attempt, record->time_ms, record->due_ms,
		record->fence, record->serial, whole ? *record->policy : none,
		newest->request, newest->due_ms, newest->length,
		record->id_length, whole ? record->payload_length : 0}};

	return put(to, numbers.all, NUMBERS);
}

size_t
record_encode(const struct record *record, bool whole, unsigned char *to)
{
	const struct attempt *newest = record_newest(record);
	size_t length = record->id_length;
	unsigned char *end = put_numbers(record, whole, to);

	if (whole)
		length += record->payload_length;
	memcpy(end, newest->text, newest->length);
	memcpy(end + newest->length, record->bytes, length);
	return (size_t)(end - to) + newest->length + length;
}

/* Whether the numbers fit to each other and to the machine. */
static bool
are_valid(const struct machine *machine, const union numbers *n)
{
	bool whole = n->policy.attempts > 0;

	if (n->id_length == 0 || n->serial == 0 ||
	    (whole && n->state == STATE_NONE) ||
	    (whole && n->attempt > n->policy.attempts) ||
	    n->fence > machine->fence || n->serial > machine->serial ||
	    n->policy.retry_first_ms > n->policy.retry_most_ms)
		return false;
	if (n->state == STATE_RUNNING)
		return n->text_length >= 1 &&
		    n->text_length <= MACHINE_WORKER_MAX;
	return n->request == 0 && n->lease_due_ms == 0 &&
	    (n->text_length == 0 || n->state == STATE_DEAD);
}

/* Puts the record where its numbers say. */
static void
record_load(struct machine *machine, struct record *record,
    const union numbers *n, const struct argument *text)
{
	record->attempt = n->attempt & 1023;
	record->fence = n->fence;
	record->serial = n->serial & MACHINE_SERIAL_MAX;
	record->due_ms = n->due_ms & MACHINE_TIME_MAX_MS;
	record->time_ms = n->time_ms;
	if (n->state == STATE_RUNNING || n->state == STATE_DEAD)
		record_attempt(
		    machine, record, text, n->request, n->lease_due_ms);
	record_place(machine, record, (enum machine_state)n->state);
}

/* Up to the payload. */
static struct reader
decode(const void *bytes, size_t length, union numbers *n,
    struct argument *text, struct argument *id)
{
	struct reader reader = {
	    bytes, (const unsigned char *)bytes + length, false};

	get(&reader, n->all, most.all, NUMBERS);
	*text = get_bytes(&reader, n->text_length);
	*id = get_bytes(&reader, n->id_length);
	return reader;
}

bool
machine_load_record(struct machine *machine, const void *bytes, size_t length)
{
	struct argument text, id, payload;
	struct record *record;
	union numbers n;
	struct reader reader = decode(bytes, length, &n, &text, &id);
	bool whole = n.policy.attempts > 0;

	payload = get_bytes(&reader, n.payload_length);
	if (reader.bad || reader.at != reader.end || !are_valid(machine, &n))
		return false;
	record = machine_find(machine, &id);
	if (!whole && (record == NULL || record->serial != n.serial))
		return true;
	if (!whole && n.attempt > record->policy->attempts)
		return false;
	if (record != NULL) {
		record_unplace(machine, record);
		record_release(machine, record);
	}
	if (record != NULL && (whole || n.state == STATE_NONE))
		record_destroy(machine, record);
	if (n.state == STATE_NONE)
		return true;
	if (whole)
		record = record_create(machine, &n.policy,
		    &(struct machine_task){id, payload, n.due_ms});
	else if (n.state == STATE_DONE || n.state == STATE_CANCELLED)
		record = record_strip(machine, record);
	if (record != NULL)
		record_load(machine, record, &n, &text);
	return record != NULL;
}

struct record *
machine_find_encoded(
    const struct machine *machine, const void *bytes, size_t length)
{
	struct argument text, id;
	union numbers n;
	struct reader reader = decode(bytes, length, &n, &text, &id);
	struct record *record;

	if (reader.bad || n.policy.attempts == 0)
		return NULL;
	record = machine_find(machine, &id);
	return record != NULL && record->serial == n.serial ? record : NULL;
}

/* Each record is in its place by the way in which it was loaded. */
bool
machine_load_end(const struct machine *machine)
{
	return machine->counters[COUNT_ADDED] ==
	    machine->records.count + machine->counters[COUNT_REMOVED] +
	    machine->counters[COUNT_DROPPED];
}

struct walk {
	const struct table *wheel;
	void (*visit)(const struct record *record, void *ctx);
	void *ctx;
};

static void
walk_time(struct node *node, void *ctx)
{
	const struct walk *walk = ctx;
	const struct entry *first = (const void *)node, *entry = first;
	size_t length;

	do {
		walk->visit(
		    container_of(walk->wheel->key(&entry->node, &length),
			struct record, time_ms),
		    walk->ctx);
		entry = container_of(entry->link.next, struct entry, link);
	} while (entry != first);
}

void
wheel_walk(const struct table *wheel,
    void (*visit)(const struct record *record, void *ctx), void *ctx)
{
	struct walk walk = {wheel, visit, ctx};
	uint64_t cursor = 0;

	do
		cursor = table_scan(wheel, cursor, walk_time, &walk);
	while (cursor != 0);
}

static void
walk_list(const struct link *list,
    void (*visit)(const struct record *record, void *ctx), void *ctx)
{
	const struct link *link;

	for (link = list->next; link != list; link = link->next)
		visit(container_of(link, struct record, link), ctx);
}

void
machine_walk(const struct machine *machine,
    void (*visit)(const struct record *record, void *ctx), void *ctx)
{
	walk_list(&machine->due, visit, ctx);
	walk_list(&machine->dead, visit, ctx);
	wheel_walk(&machine->waiting, visit, ctx);
	wheel_walk(&machine->ended, visit, ctx);
	wheel_walk(&machine->leases, visit, ctx);
}

static uint64_t
digest_bytes(uint64_t digest, const void *bytes, size_t length)
{
	const unsigned char *at = bytes;

	for (; length > 0; length--)
		digest = (digest ^ *at++) * UINT64_C(0x100000001b3);
	return digest;
}

static void
digest_record(const struct record *record, void *ctx)
{
	unsigned char numbers[NUMBERS * NUMBER_BYTES];
	const struct attempt *newest = record_newest(record);
	uint64_t digest = digest_bytes(
	    7, numbers, (size_t)(put_numbers(record, true, numbers) - numbers));

	digest = digest_bytes(digest, newest->text, newest->length);
	*(uint64_t *)ctx += digest_bytes(digest, record->bytes,
	    (size_t)record->id_length + record->payload_length);
}

/* Without the time. An order that differs shows in the next fences. */
uint64_t
machine_digest(const struct machine *machine)
{
	uint64_t digest = digest_bytes(
	    1, machine->saved, (SAVED_NUMBERS - 2) * sizeof(uint64_t));

	machine_walk(machine, digest_record, &digest);
	return digest;
}
