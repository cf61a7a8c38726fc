/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native type: a queue in an RDB file, in an append-only file that is
 * rewritten without RDB, and in a copy.
 *
 * All three have the header, then batches of encoded records, each with its
 * length before it, in the order of machine_walk; an empty batch is the end.
 */
#include <string.h>
#include <sys/random.h>

#include "modules/durable/redis/module.h"

/* Records are written in batches of about this size. */
#define BATCH_BYTES 65536
#define LENGTH_BYTES sizeof(uint32_t)

value_type *queue_type;

struct queue *
queue_create(void)
{
	struct queue *queue = api.calloc(1, sizeof(*queue));
	uint64_t seed = 0;

	(void)!getrandom(&seed, sizeof(seed), GRND_NONBLOCK);
	queue->machine = machine_create(seed);
	return queue;
}

void
queue_destroy(void *value)
{
	struct queue *queue = value;

	machine_destroy(queue->machine);
	api.free(queue);
}

/* Where batches go. */
struct batch {
	void (*write)(void *ctx, const char *bytes, size_t length);
	void *ctx;
	char *bytes;
	size_t length, room;
};

static void
batch_flush(struct batch *batch)
{
	if (batch->length > 0)
		batch->write(batch->ctx, batch->bytes, batch->length);
	batch->length = 0;
}

static void
batch_add(const struct record *record, void *ctx)
{
	struct batch *batch = ctx;
	size_t room = batch->length + LENGTH_BYTES + record_encoded_max(record);
	uint32_t length;
	char *at;

	if (room > batch->room) {
		batch->bytes = api.realloc(batch->bytes, room);
		batch->room = room;
	}
	at = batch->bytes + batch->length;
	length = (uint32_t)record_encode(
	    record, true, (unsigned char *)at + LENGTH_BYTES);
	memcpy(at, &length, LENGTH_BYTES);
	batch->length += LENGTH_BYTES + length;
	if (batch->length >= BATCH_BYTES)
		batch_flush(batch);
}

/* The header, the batches, an empty one. */
static void
queue_write(const struct queue *queue,
    void (*write)(void *ctx, const char *bytes, size_t length), void *ctx)
{
	unsigned char header[MACHINE_HEADER_MAX];
	struct batch batch = {.write = write, .ctx = ctx};

	write(ctx, (const char *)header,
	    machine_save_header(queue->machine, header));
	machine_walk(queue->machine, batch_add, &batch);
	batch_flush(&batch);
	write(ctx, "", 0);
	api.free(batch.bytes);
}

/* False: damaged. */
static bool
batch_load(struct machine *machine, const char *bytes, size_t length)
{
	uint32_t prefix;

	while (length > 0) {
		if (length < LENGTH_BYTES)
			return false;
		memcpy(&prefix, bytes, LENGTH_BYTES);
		bytes += LENGTH_BYTES;
		length -= LENGTH_BYTES;
		if (prefix > length ||
		    !machine_load_record(machine, bytes, prefix))
			return false;
		bytes += prefix;
		length -= prefix;
	}
	return true;
}

static void
write_rdb(void *ctx, const char *bytes, size_t length)
{
	api.save_bytes(ctx, bytes, length);
}

static void
rdb_save(file *to, void *value)
{
	queue_write(value, write_rdb, to);
}

static void *
rdb_load(file *from, int version)
{
	struct queue *queue;
	bool whole;
	size_t length;
	char *bytes;

	if (version != MACHINE_VERSION)
		return NULL;
	queue = queue_create();
	bytes = api.load_bytes(from, &length);
	whole =
	    bytes != NULL && machine_load_header(queue->machine, bytes, length);
	while (whole && length > 0) {
		api.free(bytes);
		bytes = api.load_bytes(from, &length);
		whole =
		    bytes != NULL && batch_load(queue->machine, bytes, length);
	}
	api.free(bytes);
	if (whole && machine_load_end(queue->machine))
		return queue;
	queue_destroy(queue);
	return NULL;
}

/* What type_restore reads. */
struct rewrite {
	file *to;
	string *name;
	bool begun;
};

static void
write_aof(void *ctx, const char *bytes, size_t length)
{
	struct rewrite *rewrite = ctx;
	const char *word = length == 0 ? "RESTORED"
	    : rewrite->begun           ? "RECORDS"
				       : "HEADER";

	api.emit(rewrite->to, "HWT.X", "scccb", rewrite->name, "0", "0", word,
	    bytes, length);
	rewrite->begun = true;
}

static void
aof_rewrite(file *to, string *name, void *value)
{
	struct rewrite rewrite = {to, name, false};

	queue_write(value, write_aof, &rewrite);
}

bool
type_restore(struct queue *queue, string **argv, int argc)
{
	struct machine *machine = queue->machine;
	struct argument word;
	const char *bytes;
	size_t length;

	if (argc != 2)
		return false;
	word.bytes = api.string_bytes(argv[0], &word.length);
	bytes = api.string_bytes(argv[1], &length);
	if (argument_is(&word, "HEADER"))
		return machine_load_header(machine, bytes, length);
	if (argument_is(&word, "RECORDS"))
		return batch_load(machine, bytes, length);
	return argument_is(&word, "RESTORED") && machine_load_end(machine);
}

static size_t
mem_usage(const void *value)
{
	const struct queue *queue = value;

	return sizeof(*queue) + machine_memory(queue->machine);
}

/* DEBUG DIGEST-VALUE tells whether a replica has the same. */
static void
add_digest(digest *of, void *value)
{
	struct queue *queue = value;

	api.digest_number(of, (long long)machine_digest(queue->machine));
	api.digest_end(of);
}

/* UNLINK frees in the background what takes many steps. */
static size_t
free_effort(string *name, const void *value)
{
	const struct queue *queue = value;

	(void)name;
	return 1 + queue->machine->records.count;
}

struct copying {
	struct machine *machine;
	bool begun, whole;
};

static void
write_copy(void *ctx, const char *bytes, size_t length)
{
	struct copying *copying = ctx;

	copying->whole = copying->whole &&
	    (copying->begun
		    ? batch_load(copying->machine, bytes, length)
		    : machine_load_header(copying->machine, bytes, length));
	copying->begun = true;
}

static void *
copy(string *from, string *to, const void *value)
{
	struct queue *made = queue_create();
	struct copying copying = {made->machine, false, true};

	(void)from;
	(void)to;
	queue_write(value, write_copy, &copying);
	if (copying.whole && machine_load_end(made->machine))
		return made;
	queue_destroy(made);
	return NULL;
}

int
type_create(context *ctx)
{
	static struct type_methods methods = {
	    .version = 4,
	    .rdb_load = rdb_load,
	    .rdb_save = rdb_save,
	    .aof_rewrite = aof_rewrite,
	    .mem_usage = mem_usage,
	    .digest = add_digest,
	    .free = queue_destroy,
	    .free_effort = free_effort,
	    .copy = copy,
	};

	queue_type =
	    api.create_type(ctx, "hwt-queue", MACHINE_VERSION, &methods);
	return queue_type != NULL ? API_OK : API_ERR;
}
