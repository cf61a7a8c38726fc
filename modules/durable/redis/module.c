/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt.so: queues of delayed tasks in Redis 7 or Valkey.
 *
 * A value of the type hwt-queue is a machine (machine/machine.h). HWT.ADD to
 * HWT.QUEUE run on it by machine/command.h. What has changed it is written to
 * replicas and to the append-only file as
 *
 *   HWT.X key now steady COMMAND words
 *
 * with the time that the machine was given; so replicas and files have the same
 * machine. Clients may not call HWT.X. It also has words of its own:
 *
 *   EPOCH                     see machine_new_epoch; before the first command
 *                             of a queue after a start or a promotion
 *   HEADER, RECORDS, RESTORED a rewritten append-only file: type.c
 *
 * A take that finds nothing and was told to BLOCK waits: see blocked.c. Adds
 * are refused while the server keeps less than the queue's level: see level.c.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "modules/durable/redis/module.h"

#define PAYLOAD_DEFAULT 65536
/* With its name and key; and after HWT.X key now steady COMMAND. */
#define WORDS_MAX (COMMAND_WORDS_MAX + 2)
#define REPLICATED_MAX (COMMAND_WORDS_MAX + 5)

struct api api;
uint64_t mastership;
static uint64_t masterships; /* so many there were */
static size_t payload_max = PAYLOAD_DEFAULT;
static uint64_t block_ms; /* of the take that ran last */

static void
answer_number(void *ctx, char mark, uint64_t number)
{
	if (mark == '*')
		(void)api.reply_array(ctx, (long)number);
	else
		(void)api.reply_number(ctx, (long long)number);
}

static void
answer_bytes(void *ctx, const void *bytes, size_t length)
{
	if (bytes == NULL)
		(void)api.reply_null(ctx);
	else
		(void)api.reply_bytes(ctx, bytes, length);
}

static void
answer_error(void *ctx, const char *text)
{
	(void)api.reply_error(ctx, text);
}

/* False: the key has a value of another type. */
static bool
key_read(key *opened, struct queue **queue)
{
	*queue = NULL;
	if (opened == NULL || api.key_kind(opened) == API_KEY_EMPTY)
		return true;
	if (api.key_type(opened) != queue_type)
		return false;
	*queue = api.key_value(opened);
	return true;
}

struct queue *
queue_find(context *ctx, string *name)
{
	key *opened = api.open_key(ctx, name, API_READ);
	struct queue *queue;

	(void)key_read(opened, &queue);
	api.close_key(opened);
	return queue;
}

static const struct command *
command_of(const string *word)
{
	size_t length;
	const char *name = api.string_bytes(word, &length);

	if (length < 4 || strncasecmp(name, "HWT.", 4) != 0)
		return NULL;
	return command_find(name + 4, length - 4);
}

/* One command at a time. */
static const struct argument *
words_of(string **argv, int argc)
{
	static struct argument words[REPLICATED_MAX];
	int i;

	for (i = 0; i < argc; i++)
		words[i].bytes = api.string_bytes(argv[i], &words[i].length);
	return words;
}

/* True: it is the first command of the queue that this server runs as its
 * master. */
static bool
queue_begin(struct queue *queue)
{
	if (queue->mastership == mastership)
		return false;
	queue->mastership = mastership;
	clock_begin(&queue->clock, queue->machine);
	machine_new_epoch(queue->machine);
	return true;
}

bool
queue_has_task(struct queue *queue)
{
	return queue->mastership == mastership &&
	    machine_has_task(queue->machine, clock_time(&queue->clock));
}

static const char *
refusal(const struct command *command, const struct queue *queue)
{
	if (command->writes && mastership == 0)
		return "READONLY this server is a replica";
	if (!command->adds ||
	    (queue != NULL && queue->machine->settings.memory_level))
		return NULL;
	return level_error();
}

/* Runs a command of a client on the queue, which may be one that was made for
 * it. True: the client is to wait. */
static bool
run_on(context *ctx, key *opened, const struct command *command,
    struct queue *queue, bool made, string **argv, int argc, bool may_block)
{
	const struct reply reply = {
	    ctx, answer_number, answer_bytes, answer_error};
	struct call call = {
	    .machine = queue->machine,
	    .argc = (size_t)argc - 2,
	    .argv = words_of(argv + 2, argc - 2),
	    .reply = &reply,
	    .payload_max = payload_max,
	    .final = !may_block,
	};
	bool begins = command->writes && queue_begin(queue);
	uint64_t revision = queue->machine->revision;
	bool changed;

	if (command->writes)
		call.time = clock_time(&queue->clock);
	else
		call.time.now_ms = clock_read_ns(CLOCK_REALTIME) / CLOCK_MS_NS;
	command_run(command, &call);
	changed = queue->machine->revision != revision;
	if (changed && made)
		(void)api.set_value(opened, queue_type, queue);
	if (begins && (changed || !made))
		(void)api.replicate(
		    ctx, "HWT.X", "sccc", argv[1], "0", "0", "EPOCH");
	if (changed)
		(void)api.replicate(ctx, "HWT.X", "sllsv", argv[1],
		    (long long)call.time.now_ms, (long long)call.time.steady_ms,
		    argv[0], argv + 2, (size_t)argc - 2);
	if (made && !changed)
		queue_destroy(queue);
	else if (command->writes)
		blocked_look(ctx, argv[1], queue);
	block_ms = call.block_ms;
	return call.blocked;
}

/* API_ERR: the client goes on to wait, or is to. */
static int
run_command(context *ctx, string **argv, int argc, bool may_block)
{
	const struct command *command = command_of(argv[0]);
	struct queue *queue;
	const char *error;
	bool blocked = false;
	bool made;
	key *opened;

	if (argc < 2 || argc > WORDS_MAX)
		return api.reply_error(ctx, "ARG too few or too many words");
	opened = api.open_key(
	    ctx, argv[1], API_READ | (command->writes ? API_WRITE : 0));
	if (!key_read(opened, &queue)) {
		api.close_key(opened);
		return api.reply_error(
		    ctx, "WRONGTYPE the key holds no queue of hwt");
	}
	error = refusal(command, queue);
	if (error != NULL) {
		(void)api.reply_error(ctx, error);
	} else {
		made = queue == NULL;
		if (made)
			queue = queue_create();
		blocked = run_on(
		    ctx, opened, command, queue, made, argv, argc, may_block);
	}
	api.close_key(opened);
	return blocked ? API_ERR : API_OK;
}

void
queue_advance(context *ctx, string *name)
{
	string *argv[] = {api.create_string(ctx, "HWT.QUEUE", 9), name};

	if (mastership != 0 && queue_find(ctx, name) != NULL)
		(void)run_command(ctx, argv, 2, false);
	api.free_string(ctx, argv[0]);
}

/* Nothing may be replicated here unless the take ends: see blocked.c. */
static int
run_again(context *ctx, string **argv, int argc)
{
	struct queue *queue = queue_find(ctx, argv[1]);

	if (api.avoid_traffic())
		return API_ERR;
	/* One whose task expires in between ends, too. */
	if (queue == NULL || queue_has_task(queue))
		return run_command(ctx, argv, argc, queue == NULL);
	blocked_look(ctx, argv[1], queue);
	return API_ERR;
}

static int
command_any(context *ctx, string **argv, int argc)
{
	bool may_block = !(api.context_flags(ctx) &
	    (API_IN_SCRIPT | API_IN_MULTI | API_NO_BLOCKING));
	struct queue *queue;

	if (run_command(ctx, argv, argc, may_block) == API_OK)
		return API_OK;
	blocked_add(ctx, argv[1], block_ms, run_again);
	queue = queue_find(ctx, argv[1]);
	if (queue != NULL)
		blocked_look(ctx, argv[1], queue);
	return API_OK;
}

/* A file that does not make the machine that it says is not loaded. */
static void
fail_load(context *ctx, const char *text)
{
	api.log(ctx, "warning", "%s", text);
	if (api.context_flags(ctx) & API_LOADING)
		exit(1);
	(void)api.reply_error(ctx, text);
}

static void
run_replicated(context *ctx, struct queue *queue, string **argv, int argc)
{
	const struct command *command = command_of(argv[4]);
	const struct argument *words = words_of(argv, argc);
	struct call call = {
	    .machine = queue->machine,
	    .argc = (size_t)argc - 5,
	    .argv = words + 5,
	    .payload_max = MACHINE_PAYLOAD_MAX,
	    .final = true,
	};

	if (!argument_number(&words[2], 0, INT64_MAX, &call.time.now_ms) ||
	    !argument_number(&words[3], 0, INT64_MAX, &call.time.steady_ms))
		fail_load(ctx, "ARG HWT.X: no time");
	else if (argument_is(&words[4], "EPOCH"))
		machine_new_epoch(queue->machine);
	else if (command != NULL)
		command_run(command, &call);
	else if (!type_restore(queue, argv + 4, argc - 4))
		fail_load(ctx, "ARG HWT.X: damaged, or of another version");
}

static int
command_x(context *ctx, string **argv, int argc)
{
	int flags = api.context_flags(ctx);
	struct queue *queue;
	key *opened;

	if (!(flags & (API_REPLICATED | API_LOADING)))
		return api.reply_error(ctx,
		    "ARG HWT.X is for replicas and files, not for clients");
	if (argc < 5 || argc > REPLICATED_MAX)
		return api.reply_error(ctx, "ARG HWT.X: words");
	opened = api.open_key(ctx, argv[1], API_READ | API_WRITE);
	if (!key_read(opened, &queue)) {
		fail_load(ctx, "WRONGTYPE HWT.X on another type");
	} else {
		if (queue == NULL) {
			queue = queue_create();
			(void)api.set_value(opened, queue_type, queue);
		}
		run_replicated(ctx, queue, argv, argc);
	}
	api.close_key(opened);
	if (!(flags & API_LOADING))
		(void)api.replicate_verbatim(ctx);
	return api.reply_null(ctx);
}

/* HWT.QUEUES cursor count: [cursor, [name, ...]], as SCAN. */
static int
command_queues(context *ctx, string **argv, int argc)
{
	const struct argument *words = words_of(argv, argc == 3 ? 3 : 0);
	uint64_t number;
	call_reply *reply;

	if (argc != 3 || !argument_number(&words[1], 0, INT64_MAX, &number) ||
	    !argument_number(&words[2], 1, INT64_MAX, &number))
		return api.reply_error(ctx, "ARG HWT.QUEUES cursor count");
	reply = api.call(ctx, "SCAN", "scscc", argv[1], "COUNT", argv[2],
	    "TYPE", "hwt-queue");
	if (reply == NULL)
		return api.reply_error(ctx, "ERR the server does not scan");
	(void)api.reply_call(ctx, reply);
	api.free_reply(reply);
	return API_OK;
}

static void
role_changed(context *ctx, struct event event, uint64_t sub_event, void *data)
{
	(void)ctx;
	(void)event;
	(void)data;
	/* 0: a master now. */
	mastership = sub_event == 0 ? ++masterships : 0;
}

static void
cron(context *ctx, struct event event, uint64_t sub_event, void *data)
{
	(void)event;
	(void)sub_event;
	(void)data;
	level_cron(ctx);
	blocked_cron(ctx);
}

static int
create_commands(context *ctx)
{
	char name[32] = "HWT.";
	size_t i;

	for (i = 0; i < command_count; i++) {
		const struct command *command = &command_table[i];
		const char *flags = command->adds ? "write deny-oom"
		    : command->writes             ? "write"
						  : "readonly";

		(void)strcpy(name + 4, command->name);
		if (api.create_command(
			ctx, name, command_any, flags, 1, 1, 1) != API_OK)
			return API_ERR;
	}
	if (api.create_command(ctx, "HWT.X", command_x, "write", 1, 1, 1) !=
	    API_OK)
		return API_ERR;
	return api.create_command(
	    ctx, "HWT.QUEUES", command_queues, "readonly", 0, 0, 0);
}

/* loadmodule hwt.so [payload BYTES] */
static int
read_options(context *ctx, string **argv, int argc)
{
	struct argument word;
	uint64_t number;

	if (argc == 0)
		return API_OK;
	word.bytes = api.string_bytes(argv[0], &word.length);
	if (argc == 2 && argument_is(&word, "payload")) {
		word.bytes = api.string_bytes(argv[1], &word.length);
		if (argument_number(&word, 1, MACHINE_PAYLOAD_MAX, &number)) {
			payload_max = number;
			return API_OK;
		}
	}
	api.log(ctx, "warning", "hwt.so takes: payload 1 to 1048576");
	return API_ERR;
}

static bool
find_functions(context *ctx)
{
	int (*find)(const char *name, void *function);

	memcpy(&find, ctx, sizeof(find));
#define API_FIND(here, there, result, parameters)                     \
	if (find("RedisModule_" #there, (void *)&api.here) != API_OK) \
		return false;
	API_FUNCTIONS(API_FIND)
#undef API_FIND
	return true;
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(
    context *ctx, string **argv, int argc);

int
RedisModule_OnLoad(context *ctx, string **argv, int argc)
{
	if (!find_functions(ctx))
		return API_ERR;
	api.set_attributes(ctx, "hwt", 1, API_VERSION);
	memory =
	    (struct memory){api.alloc, api.calloc, api.free, api.malloc_size};
	if (read_options(ctx, argv, argc) != API_OK ||
	    type_create(ctx) != API_OK || create_commands(ctx) != API_OK)
		return API_ERR;
	if (api.context_flags(ctx) & API_MASTER)
		mastership = ++masterships;
	if (api.subscribe(ctx, (struct event){EVENT_ROLE, 1}, role_changed) !=
		API_OK ||
	    api.subscribe(ctx, (struct event){EVENT_CRON, 1}, cron) != API_OK)
		return API_ERR;
	return level_start(ctx);
}
