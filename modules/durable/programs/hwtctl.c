/* SPDX-License-Identifier: Apache-2.0 */
/* hwtctl - adds, cancels and shows tasks, and looks after a space. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "metrics.h"
#include "options.h"
#include "schedules.h"
#include "task-json.h"
#include "text.h"
#include "wait.h"
#include "walk.h"

static const char usage[] =
    "usage: hwtctl COMMAND [OPTION...]\n"
    "\n"
    "  init [--shards N] [--slots N] [--tick MS] [--retention SECONDS]\n"
    "       [--level memory|fsync|replicated] [--repair]\n"
    "  add --queue Q (--in SECONDS | --at UNIX) [--id ID] [--attempts N]\n"
    "      [--payload TEXT | --payload -] [--replace]\n"
    "      [--priority high|normal|low]\n"
    "      [--expires-in SECONDS | --expires-at UNIX]\n"
    "      [--retry-first SECONDS] [--retry-factor N] "
    "[--retry-most SECONDS]\n"
    "  add --from FILE|- [--replace]\n"
    "  cancel ID\n"
    "  reschedule ID (--in SECONDS | --at UNIX)\n"
    "  show ID\n"
    "  list [--state STATE]\n"
    "  stat [--json | --prometheus]\n"
    "  dead list\n"
    "  dead replay|drop ID...|--all\n"
    "  pause --queue Q | SHARD\n"
    "  resume --queue Q | SHARD\n"
    "  limit --queue Q [--at-once N] [--rate N]\n"
    "  schedule add NAME (--every SECONDS | --cron LINE [--zone ZONE])\n"
    "      --queue Q [--missed last|all|none] [--attempts N]\n"
    "      [--payload TEXT | --payload -] [--priority high|normal|low]\n"
    "      [--expires-in SECONDS]\n"
    "      [--retry-first SECONDS] [--retry-factor N] "
    "[--retry-most SECONDS]\n"
    "  schedule list [NAME...]\n"
    "  schedule drop NAME...\n"
    "  clock [--reset]\n"
    "  check\n"
    "\n"
    "  --base64    each ID on the command line is base64\n";

static const char *shards, *slots, *tick, *retention, *level, *queue, *in, *at,
    *id, *attempts, *payload, *from, *state, *json, *prometheus, *all, *base64,
    *replace, *repair, *reset, *expires_in, *expires_at, *every, *cron, *zone,
    *missed, *retry_first, *retry_factor, *retry_most, *priority, *at_once,
    *rate;

/* Of all commands; which of them a command has stands in its row. */
static const struct option_row rows[] = {
    {"shards", &shards, false},
    {"slots", &slots, false},
    {"tick", &tick, false},
    {"retention", &retention, false},
    {"level", &level, false},
    {"repair", &repair, true},
    {"queue", &queue, false},
    {"in", &in, false},
    {"at", &at, false},
    {"id", &id, false},
    {"attempts", &attempts, false},
    {"payload", &payload, false},
    {"from", &from, false},
    {"state", &state, false},
    {"json", &json, true},
    {"prometheus", &prometheus, true},
    {"all", &all, true},
    {"base64", &base64, true},
    {"replace", &replace, true},
    {"priority", &priority, false},
    {"at-once", &at_once, false},
    {"rate", &rate, false},
    {"expires-in", &expires_in, false},
    {"expires-at", &expires_at, false},
    {"retry-first", &retry_first, false},
    {"retry-factor", &retry_factor, false},
    {"retry-most", &retry_most, false},
    {"reset", &reset, true},
    {"every", &every, false},
    {"cron", &cron, false},
    {"zone", &zone, false},
    {"missed", &missed, false},
    {NULL, NULL, false},
};

/* An id of the command line, which it may change. */
static struct engine_argument
id_read(char *text)
{
	size_t length = strlen(text);

	if (base64 != NULL && !base64_decode(text, &length))
		usage_error("an ID that is no base64");
	if (length < 1 || length > HWT_DURABLE_ID_MAX)
		usage_error("an ID has 1 to %d bytes", HWT_DURABLE_ID_MAX);
	return (struct engine_argument){text, length};
}

/* What went wrong with a task. */
static enum status
tell_error(struct engine_argument name, int error)
{
	if (error != 0)
		complain("%.*s: %s", (int)name.length, (const char *)name.data,
		    explain(error));
	return error_status(error);
}

/* As ids are taken: with --base64 in this form. */
static void
print_id(const char *text, size_t length)
{
	if (base64 != NULL)
		base64_write(stdout, text, length);
	else
		text_write(stdout, text, length);
	(void)putchar('\n');
}

/* --in or --at; sets what a task has for it. */
static void
time_read(struct hwt_durable_task *task)
{
	if ((in == NULL) == (at == NULL))
		usage_error("want either --in SECONDS or --at UNIX");
	if (in != NULL) {
		task->delay_ns = option_seconds("in", in);
		if (task->delay_ns > HWT_DURABLE_DELAY_MAX)
			usage_error("--in: at most 10 years");
		return;
	}
	task->due_unix_ns = option_seconds("at", at);
	task->flags = HWT_DURABLE_AT;
}

/* --expires-in or --expires-at, if there is one. */
static void
expires_read(struct hwt_durable_task *task)
{
	if (expires_in != NULL && expires_at != NULL)
		usage_error("--expires-in and --expires-at exclude each other");
	if (expires_in != NULL)
		task->expires_ns = option_seconds("expires-in", expires_in);
	else if (expires_at != NULL) {
		task->expires_unix_ns =
		    option_seconds("expires-at", expires_at);
		task->flags |= HWT_DURABLE_EXPIRES_AT;
	} else
		return;
	if (task->expires_ns == 0)
		usage_error("--expires-in, --expires-at: more than 0");
}

static uint64_t
retry_time(const char *name, const char *value)
{
	uint64_t ns = value != NULL ? option_seconds(name, value) : 0;

	if (value != NULL && (ns == 0 || ns > HWT_DURABLE_DELAY_MAX))
		usage_error("--%s: more than 0, at most 10 years", name);
	return ns;
}

static void
priority_option_read(struct hwt_durable_task *task)
{
	if (priority != NULL && !priority_read(priority, &task->flags))
		usage_error("--priority: want high, normal or low");
}

static void
retries_read(struct hwt_durable_task *task)
{
	uint64_t billionths = 0;

	task->retry_first_ns = retry_time("retry-first", retry_first);
	task->retry_most_ns = retry_time("retry-most", retry_most);
	if (retry_factor == NULL)
		return;
	if (!text_seconds(retry_factor, strlen(retry_factor), &billionths) ||
	    billionths < HWT_SEC(1) || billionths > HWT_SEC(1000))
		usage_error("--retry-factor: want 1 to 1000");
	task->retry_factor = (double)billionths / 1e9;
}

/* What a walk came to; it has told what the engine refused. */
static enum status
walk_status(int error)
{
	if (error == -EPROTO || error == -ENOMEM)
		complain("%s", explain(error));
	return error_status(error);
}

/* init */

static enum status
print_shape(struct hwt_durable *durable)
{
	static const char *const levels[] = {
	    "", "memory", "fsync", "replicated"};
	const struct engine_argument arg[7] = {{NULL, 0}};
	const char *name = engine_space(durable_engine(durable));
	struct engine_call call;
	long long value[5];
	int error;
	size_t i;

	error = walk_script(durable, SCRIPT_INIT, 0, 7, arg, &call);
	if (error != 0)
		return error_status(error);
	for (i = 0; i < 5 && is_array(call.reply, 5); i++)
		value[i] = is_string(call.reply->element[i])
		    ? strtoll(call.reply->element[i]->str, NULL, 10)
		    : call.reply->element[i]->integer;
	engine_call_free(&call, 1);
	if (i < 5 || value[3] < 1 || value[3] > 3) {
		complain("%s", explain(-EPROTO));
		return STATUS_UNREACHABLE;
	}
	(void)printf("%s: %lld shard%s of %lld slots, tick %lld ms, level %s, "
		     "retention %.15g s\n",
	    name, value[0], value[0] == 1 ? "" : "s", value[1], value[2],
	    levels[value[3]], (double)value[4] / 1000);
	return STATUS_YES;
}

static uint32_t
level_read(void)
{
	if (level == NULL)
		return 0;
	if (strcmp(level, "memory") == 0)
		return HWT_DURABLE_MEMORY;
	if (strcmp(level, "fsync") == 0)
		return HWT_DURABLE_FSYNCED;
	if (strcmp(level, "replicated") == 0)
		return HWT_DURABLE_REPLICATED;
	usage_error("--level: want memory, fsync or replicated");
}

static enum status
run_init(int argc, char **argv)
{
	struct hwt_durable_options *open = &open_options;

	(void)argc;
	(void)argv;
	if (shards != NULL)
		open->shards =
		    (uint32_t)option_number("shards", shards, 1, 1024);
	if (slots != NULL)
		open->slots =
		    (uint32_t)option_number("slots", slots, 8, 1u << 20);
	if ((open->slots & (open->slots - 1)) != 0)
		usage_error("--slots: want a power of two");
	if (tick != NULL)
		open->tick_ns = HWT_MS(option_number("tick", tick, 1, 3600000));
	if (retention != NULL)
		open->retention_ns = option_seconds("retention", retention);
	if (retention != NULL &&
	    (open->retention_ns < HWT_MS(1) ||
		open->retention_ns > HWT_DURABLE_DELAY_MAX))
		usage_error("--retention: want 0.001 s to 10 years");
	open->level = level_read();
	open->flags =
	    HWT_DURABLE_CREATE | (repair != NULL ? HWT_DURABLE_REPAIR : 0);
	return print_shape(handle_open());
}

/* add */

/* An id that nobody else makes. */
static void
id_make(char text[TASK_ID_MADE])
{
	if (task_id_make(text))
		return;
	complain("no random numbers: %s", system_text(errno));
	exit(STATUS_NO);
}

/* Reads the payload from standard input, of at most size bytes. */
static size_t
payload_read(char *to, size_t size)
{
	size_t length = fread(to, 1, size, stdin);

	if (ferror(stdin)) {
		complain("standard input: %s", system_text(errno));
		exit(STATUS_NO);
	}
	if (getchar() != EOF)
		usage_error(
		    "--payload: more than %d bytes", HWT_DURABLE_PAYLOAD_MAX);
	return length;
}

static void
payload_find(struct hwt_durable_task *task)
{
	static char text[HWT_DURABLE_PAYLOAD_MAX];

	if (payload == NULL)
		return;
	task->payload = payload;
	task->payload_length = strlen(payload);
	if (strcmp(payload, "-") == 0) {
		task->payload = text;
		task->payload_length = payload_read(text, sizeof(text));
	}
	if (task->payload_length > HWT_DURABLE_PAYLOAD_MAX)
		usage_error(
		    "--payload: more than %d bytes", HWT_DURABLE_PAYLOAD_MAX);
	if (task->payload_length == 0)
		task->payload = NULL;
}

/* --id, or one that is made. */
static struct engine_argument
id_find(void)
{
	static char text[4 * HWT_DURABLE_ID_MAX];

	if (id == NULL) {
		id_make(text);
		return argument_text(text);
	}
	if (strlen(id) >= sizeof(text))
		usage_error("an ID has 1 to %d bytes", HWT_DURABLE_ID_MAX);
	memcpy(text, id, strlen(id) + 1);
	return id_read(text);
}

/* What has become of a task: prints its id if it is stored, or was there and
 * will be executed, or was; that is as good. One that has failed or was
 * cancelled will not. name is where it comes from, and a colon. */
static enum status
add_tell(const char *name, const struct hwt_durable_task *task, int result)
{
	int length = (int)task->id_length;

	if (result < 0) {
		complain("%s%.*s: %s", name, length, task->id, explain(result));
		return error_status(result);
	}
	if (result > HWT_DURABLE_SUCCEEDED) {
		complain("%s%.*s: exists, %s; nothing is added%s", name, length,
		    task->id, state_name((enum hwt_durable_state)result),
		    replace == NULL ? ", but with --replace" : "");
		return STATUS_NO;
	}
	if (result > 0)
		complain("%s%.*s: exists, %s; nothing is added", name, length,
		    task->id, state_name((enum hwt_durable_state)result));
	print_id(task->id, task->id_length);
	return STATUS_YES;
}

static enum status
add_one(void)
{
	struct hwt_durable_task task = {0};
	struct engine_argument name;
	int error, result = 0;

	if (queue == NULL)
		usage_error("add needs --queue");
	option_queue("--queue", queue);
	time_read(&task);
	expires_read(&task);
	retries_read(&task);
	priority_option_read(&task);
	task.queue = queue;
	if (attempts != NULL)
		task.max_attempts = (uint32_t)option_number(
		    "attempts", attempts, 1, HWT_DURABLE_ATTEMPTS_MAX);
	name = id_find();
	task.id = name.data;
	task.id_length = name.length;
	payload_find(&task);
	if (replace != NULL)
		task.flags |= HWT_DURABLE_REPLACE;
	error = hwt_durable_add(handle_open(), 1, &task, &result);
	return add_tell("", &task, error != 0 ? error : result);
}

/* add --from */

#define LINE_MAX_BYTES (1u << 20)

struct feed {
	struct hwt_durable *durable;
	FILE *file;
	const char *name;
	uint64_t line; /* that was read last, from 1 */
	size_t count; /* of the batch */
	struct hwt_durable_task task[HWT_DURABLE_BATCH_MAX];
	uint64_t at[HWT_DURABLE_BATCH_MAX]; /* the lines of the tasks */
	json_t *value[HWT_DURABLE_BATCH_MAX]; /* what the tasks lie in */
	char made[HWT_DURABLE_BATCH_MAX][TASK_ID_MADE];
	size_t bytes; /* of the lines */
	enum status status; /* the worst one of a task */
	bool failed; /* so that nothing more is stored */
};

/* Stores the batch, and prints the ids of what is stored. */
static void
feed_flush(struct feed *feed)
{
	int results[HWT_DURABLE_BATCH_MAX] = {0};
	enum status status;
	char where[64];
	size_t i;

	if (feed->count == 0)
		return;
	feed->failed = hwt_durable_add(feed->durable, feed->count, feed->task,
			   results) != 0;
	for (i = 0; i < feed->count; i++) {
		(void)snprintf(where, sizeof(where), "%.32s:%" PRIu64 ": ",
		    feed->name, feed->at[i]);
		status = add_tell(where, &feed->task[i], results[i]);
		if (status > feed->status)
			feed->status = status;
		json_decref(feed->value[i]);
	}
	/* What is stored is told before more is read. */
	(void)fflush(stdout);
	feed->count = 0;
	feed->bytes = 0;
}

/* Reads a line into text, of at most size bytes. False: the end. */
static bool
line_read(struct feed *feed, char *text, size_t size, size_t *length)
{
	int c;

	*length = 0;
	while ((c = getc_unlocked(feed->file)) != EOF && c != '\n') {
		if (*length == size)
			usage_error("%s:%" PRIu64 ": more than %zu bytes",
			    feed->name, feed->line + 1, size);
		text[(*length)++] = (char)c;
	}
	if (ferror(feed->file)) {
		complain("%s: %s", feed->name, system_text(errno));
		exit(STATUS_USAGE);
	}
	feed->line++;
	return c != EOF || *length > 0;
}

/* What is before a line that is wrong was stored, but for its batch. */
static void
feed_line(struct feed *feed, const char *text, size_t length)
{
	struct hwt_durable_task *task = &feed->task[feed->count];
	json_error_t where;
	json_t *value = task_json_load(text, length, &where);
	const char *error =
	    value != NULL ? task_json_read(value, TASK_ALL, task) : where.text;

	if (error != NULL) {
		complain("%s:%" PRIu64 ": %s", feed->name, feed->line, error);
		complain("%s: nothing is stored from line %" PRIu64 " on",
		    feed->name, feed->count > 0 ? feed->at[0] : feed->line);
		finish(STATUS_USAGE);
	}
	feed->value[feed->count] = value;
	if (task->id == NULL) {
		id_make(feed->made[feed->count]);
		task->id = feed->made[feed->count];
		task->id_length = TASK_ID_MADE - 1;
	}
	if (replace != NULL)
		task->flags |= HWT_DURABLE_REPLACE;
	feed->at[feed->count++] = feed->line;
	feed->bytes += length;
}

static enum status
add_lines(void)
{
	static char text[LINE_MAX_BYTES];
	static struct feed feed;
	size_t length;

	if (queue != NULL || in != NULL || at != NULL || id != NULL ||
	    attempts != NULL || payload != NULL || expires_in != NULL ||
	    expires_at != NULL || retry_first != NULL || retry_factor != NULL ||
	    retry_most != NULL || priority != NULL)
		usage_error("--from: options of tasks stand in its lines");
	feed.name = from;
	feed.file = strcmp(from, "-") == 0 ? stdin : fopen(from, "re");
	if (feed.file == NULL)
		usage_error("%s: %s", from, system_text(errno));
	feed.durable = handle_open();
	while (!feed.failed && line_read(&feed, text, sizeof(text), &length)) {
		if (length == 0)
			continue;
		feed_line(&feed, text, length);
		if (feed.count == HWT_DURABLE_BATCH_MAX ||
		    feed.bytes > LINE_MAX_BYTES)
			feed_flush(&feed);
	}
	feed_flush(&feed);
	return feed.status;
}

static enum status
run_add(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return from != NULL ? add_lines() : add_one();
}

/* One task. */

static enum status
run_cancel(int argc, char **argv)
{
	struct engine_argument name = id_read(argv[0]);

	(void)argc;
	return tell_error(
	    name, hwt_durable_cancel(handle_open(), name.data, name.length));
}

static enum status
run_reschedule(int argc, char **argv)
{
	struct engine_argument name = id_read(argv[0]);
	struct hwt_durable_task task = {0};

	(void)argc;
	time_read(&task);
	return tell_error(name,
	    hwt_durable_reschedule(handle_open(), name.data, name.length,
		in != NULL ? task.delay_ns : task.due_unix_ns, task.flags));
}

static enum status
run_show(int argc, char **argv)
{
	static char text[1 << 20];
	struct engine_argument name = id_read(argv[0]);
	struct hwt_durable *durable = handle_open();
	struct hwt_durable_info info;
	int error;

	(void)argc;
	error = hwt_durable_get(
	    durable, name.data, name.length, &info, text, sizeof(text));
	if (error != 0)
		return tell_error(name, error);
	(void)putchar('{');
	record_write(stdout, name.data, name.length, &info);
	(void)putchar(',');
	json_write(stdout, "payload", text, info.payload_length);
	if (info.state == HWT_DURABLE_FAILED)
		error = failure_write(
		    stdout, durable, name.data, name.length, &info);
	(void)puts("}");
	return error_status(error);
}

/* All tasks. */

static enum status
run_list(int argc, char **argv)
{
	enum hwt_durable_state wanted = 0;

	(void)argc;
	(void)argv;
	while (state != NULL &&
	    (wanted == 0 || strcmp(state_name(wanted), state) != 0)) {
		wanted++;
		if (state_name(wanted) == NULL)
			usage_error("--state: want pending, delivered, "
				    "running, succeeded, failed, cancelled or "
				    "quarantined");
	}
	return walk_status(walk_list(handle_open(), wanted));
}

static enum status
run_stat(int argc, char **argv)
{
	struct hwt_durable_stats stats;
	struct hwt_durable *durable;
	struct queues queues;
	const char *name;
	int error;

	(void)argc;
	(void)argv;
	if (json != NULL && prometheus != NULL)
		usage_error("--json and --prometheus exclude each other");
	durable = handle_open();
	error = hwt_durable_read_stats(durable, &stats);
	if (error == 0)
		error = queues_read(durable, &queues, NULL);
	name = engine_space(durable_engine(durable));
	if (error != 0)
		complain("%s", explain(error));
	else if (json != NULL)
		metrics_json(stdout, name, &stats, &queues);
	else if (prometheus != NULL)
		metrics_prometheus(stdout, name, &stats, &queues);
	else
		metrics_human(stdout, &stats, &queues);
	return error_status(error);
}

static enum status
dead_one(struct hwt_durable *durable, const char *verb, char *text)
{
	struct engine_argument name = id_read(text);
	struct engine_argument arg[] = {argument_text(verb), name};
	struct engine_call call;
	int error;

	error = walk_script(durable, SCRIPT_DEAD,
	    durable_shard_of(durable, name.data, name.length), 2, arg, &call);
	if (error != 0)
		return error_status(error);
	if (call.reply->type != REDIS_REPLY_INTEGER || call.reply->integer != 0)
		error = -ENOENT;
	engine_call_free(&call, 1);
	if (error != 0)
		complain("%.*s: no such dead letter", (int)name.length,
		    (const char *)name.data);
	return error_status(error);
}

static enum status
run_dead(int argc, char **argv)
{
	enum status status = STATUS_YES, one;
	struct hwt_durable *durable;
	int i;

	if (strcmp(argv[0], "list") == 0 && argc == 1 && all == NULL)
		return walk_status(
		    walk_list(handle_open(), HWT_DURABLE_FAILED));
	if ((strcmp(argv[0], "replay") != 0 && strcmp(argv[0], "drop") != 0) ||
	    (argc == 1) != (all != NULL))
		usage_error("want dead list, dead replay ID... or dead drop "
			    "ID..., or --all instead of ID");
	durable = handle_open();
	if (all != NULL)
		return walk_status(walk_dead(durable, argv[0]));
	for (i = 1; i < argc; i++) {
		one = dead_one(durable, argv[0], argv[i]);
		status = one > status ? one : status;
	}
	return status;
}

static enum status
shard_call(enum script script, const char *text)
{
	struct engine_call call;
	struct hwt_durable *durable;
	uint64_t shard;
	int error;

	if (!text_number(text, 0, 1023, &shard))
		usage_error("SHARD is a number from 0");
	durable = handle_open();
	if (shard >= durable_shards(durable))
		usage_error("SHARD: there are %" PRIu32 ", from 0",
		    durable_shards(durable));
	error = walk_script(durable, script, (uint32_t)shard, 0, NULL, &call);
	if (error == 0)
		engine_call_free(&call, 1);
	return error_status(error);
}

/* A queue, or a shard: a queue may have a number as its name. */
static enum status
queue_or_shard(int argc, char **argv, enum script script,
    int (*call)(struct hwt_durable *, const char *))
{
	int error;

	if ((argc == 0) != (queue != NULL))
		usage_error("want either --queue Q or SHARD");
	if (queue == NULL)
		return shard_call(script, argv[0]);
	option_queue("--queue", queue);
	error = call(handle_open(), queue);
	if (error != 0)
		complain("queue %s: %s; some shards may be paused and others "
			 "not, so repeat it",
		    queue, explain(error));
	return error_status(error);
}

static enum status
run_pause(int argc, char **argv)
{
	return queue_or_shard(argc, argv, SCRIPT_PAUSE, hwt_durable_pause);
}

static enum status
run_resume(int argc, char **argv)
{
	return queue_or_shard(argc, argv, SCRIPT_RESUME, hwt_durable_resume);
}

static enum status
run_limit(int argc, char **argv)
{
	struct hwt_durable_limits limits = {0};
	struct hwt_durable *durable;
	uint64_t billionths = 0;
	int error;

	(void)argc;
	(void)argv;
	if (queue == NULL || (at_once == NULL && rate == NULL))
		usage_error("want --queue Q, and --at-once, --rate or both");
	option_queue("--queue", queue);
	if (at_once != NULL)
		limits.at_once =
		    option_number("at-once", at_once, 0, INT32_MAX);
	if (rate != NULL &&
	    (!text_seconds(rate, strlen(rate), &billionths) ||
		billionths > HWT_SEC(1000000) ||
		(billionths > 0 && billionths < HWT_MS(1))))
		usage_error("--rate: want 0.001 to 1000000, or 0");
	limits.rate = (double)billionths / 1e9;
	durable = handle_open();
	if (limits.at_once > 0 && limits.at_once < durable_shards(durable))
		usage_error("--at-once: each of %" PRIu32
			    " shards has a part, so at least as many",
		    durable_shards(durable));
	error = hwt_durable_limit(durable, queue, &limits);
	if (error != 0)
		complain("queue %s: %s; some shards may have the limits and "
			 "others not, so repeat it",
		    queue, explain(error));
	return error_status(error);
}

/* Schedules. */

/* What a line or a zone lacks is told before anything is asked for. */
static void
schedule_check(const struct hwt_durable_schedule *schedule)
{
	char why[HWT_DURABLE_WHY_MAX];
	uint64_t next;

	if (hwt_durable_schedule_next(schedule, 0, &next, why) != 0)
		usage_error("%s", why);
}

static enum status
schedule_add(const char *name)
{
	struct hwt_durable_schedule schedule = {
	    .name = name, .cron = cron, .zone = zone};
	int error;

	if (queue == NULL || (every == NULL) == (cron == NULL))
		usage_error("schedule add needs --queue and either --every or "
			    "--cron");
	if (cron == NULL && zone != NULL)
		usage_error("--zone: there is no --cron");
	option_queue("--queue", queue);
	schedule.task.queue = queue;
	if (every != NULL)
		schedule.every_ns =
		    HWT_SEC(option_number("every", every, 1, 315360000));
	if (missed != NULL && !missed_read(missed, &schedule.missed))
		usage_error("--missed: want last, all or none");
	if (attempts != NULL)
		schedule.task.max_attempts = (uint32_t)option_number(
		    "attempts", attempts, 1, HWT_DURABLE_ATTEMPTS_MAX);
	expires_read(&schedule.task);
	retries_read(&schedule.task);
	priority_option_read(&schedule.task);
	payload_find(&schedule.task);
	schedule_check(&schedule);
	error = hwt_durable_schedule_put(handle_open(), &schedule);
	if (error != 0)
		complain("schedule %s: %s", name, explain(error));
	return error_status(error);
}

static int
schedule_print(void *ctx, const struct hwt_durable_schedule *schedule,
    const struct hwt_durable_schedule_info *info)
{
	(void)ctx;
	schedule_write(stdout, schedule, info, true);
	(void)putchar('\n');
	return 0;
}

static enum status
schedule_one(struct hwt_durable *durable, const char *verb, const char *name)
{
	int error = strcmp(verb, "drop") == 0
	    ? hwt_durable_schedule_drop(durable, name)
	    : hwt_durable_schedule_list(durable, name, schedule_print, NULL);

	if (error != 0)
		complain("schedule %s: %s", name,
		    error == -ENOENT ? "there is none" : explain(error));
	return error_status(error);
}

static enum status
run_schedule(int argc, char **argv)
{
	enum status status = STATUS_YES, one;
	struct hwt_durable *durable;
	bool adds = strcmp(argv[0], "add") == 0;
	bool lists = strcmp(argv[0], "list") == 0;
	int i, error;

	for (i = 1; i < argc; i++) {
		if (!name_is_valid(argv[i], HWT_DURABLE_SCHEDULE_MAX))
			usage_error("a schedule's NAME has 1 to %d of A-Z a-z "
				    "0-9 . _ -",
			    HWT_DURABLE_SCHEDULE_MAX);
	}
	if (adds && argc == 2)
		return schedule_add(argv[1]);
	if ((adds || (!lists && strcmp(argv[0], "drop") != 0)) ||
	    (!lists && argc == 1) || queue != NULL || payload != NULL ||
	    attempts != NULL || every != NULL || cron != NULL || zone != NULL ||
	    missed != NULL || expires_in != NULL || retry_first != NULL ||
	    retry_factor != NULL || retry_most != NULL || priority != NULL)
		usage_error("want schedule add NAME OPTION..., schedule list "
			    "[NAME...] or schedule drop NAME...");
	durable = handle_open();
	for (i = 1; i < argc; i++) {
		one = schedule_one(durable, argv[0], argv[i]);
		status = one > status ? one : status;
	}
	if (argc > 1)
		return status;
	error = hwt_durable_schedule_list(durable, NULL, schedule_print, NULL);
	if (error != 0)
		complain("%s", explain(error));
	return error_status(error);
}

/* How long workers have for what is in the queues. */
#define RESET_MS 5000

/* What the script clock answers. */
static enum status
shard_reset(struct hwt_durable *durable, uint32_t shard, int64_t *answer)
{
	struct engine_call call;
	int error = walk_script(durable, SCRIPT_CLOCK, shard, 0, NULL, &call);

	if (error != 0)
		return error_status(error);
	*answer =
	    call.reply->type == REDIS_REPLY_INTEGER ? call.reply->integer : 0;
	engine_call_free(&call, 1);
	return STATUS_YES;
}

static enum status
clock_reset(struct hwt_durable *durable)
{
	int64_t until_ms = wait_now_ms() + RESET_MS;
	enum status status = STATUS_YES;
	int64_t answer = 0;
	uint32_t i;

	for (i = 0; i < durable_shards(durable) && status == STATUS_YES; i++) {
		while (
		    (status = shard_reset(durable, i, &answer)) == STATUS_YES &&
		    answer < 0 && wait_now_ms() < until_ms)
			(void)wait_for(-1, 0, wait_now_ms() + 20);
		if (answer > 0)
			(void)printf("shard %" PRIu32 ": set back by %.3f s\n",
			    i, (double)answer / 1000);
		if (answer >= 0)
			continue;
		complain("shard %" PRIu32 ": first a worker must execute the "
			 "%" PRId64 " tasks that are in queues; none begin in "
			 "a queue that is paused, and its limits may hold "
			 "them back: resume it, and take them away until then",
		    i, -answer);
		status = STATUS_NO;
	}
	return status;
}

/* Beyond this, somebody should do something. */
#define CLOCK_AHEAD_MAX HWT_SEC(10)

static enum status
run_clock(int argc, char **argv)
{
	struct hwt_durable *durable = handle_open();
	struct hwt_durable_stats stats;
	int error;

	(void)argc;
	(void)argv;
	if (reset != NULL)
		return clock_reset(durable);
	error = hwt_durable_read_stats(durable, &stats);
	if (error != 0) {
		complain("%s", explain(error));
		return error_status(error);
	}
	(void)printf("time stands still for %.3f s\n"
		     "a leap of %.3f s is unconfirmed\n",
	    (double)stats.clock_ahead_ns / HWT_SEC(1),
	    (double)stats.clock_leap_ns / HWT_SEC(1));
	return stats.clock_ahead_ns > CLOCK_AHEAD_MAX ||
		stats.clock_leap_ns != 0
	    ? STATUS_NO
	    : STATUS_YES;
}

static enum status
run_check(int argc, char **argv)
{
	uint64_t broken = 0;
	int error;

	(void)argc;
	(void)argv;
	error = walk_check(handle_open(), &broken);
	if (error != 0)
		return walk_status(error);
	return broken == 0 ? STATUS_YES : STATUS_NO;
}

static const struct command {
	const char *name;
	enum status (*run)(int argc, char **argv);
	int min, max; /* how many arguments */
	const char *options; /* each between blanks */
} commands[] = {
    {"init", run_init, 0, 0, " shards slots tick retention level repair "},
    {"add", run_add, 0, 0,
	" queue in at id attempts payload from base64 replace priority "
	"expires-in expires-at retry-first retry-factor retry-most "},
    {"cancel", run_cancel, 1, 1, " base64 "},
    {"reschedule", run_reschedule, 1, 1, " in at base64 "},
    {"show", run_show, 1, 1, " base64 "},
    {"list", run_list, 0, 0, " state "},
    {"stat", run_stat, 0, 0, " json prometheus "},
    {"dead", run_dead, 1, INT32_MAX, " all base64 "},
    {"pause", run_pause, 0, 1, " queue "},
    {"resume", run_resume, 0, 1, " queue "},
    {"limit", run_limit, 0, 0, " queue at-once rate "},
    {"schedule", run_schedule, 1, INT32_MAX,
	" queue every cron zone missed attempts payload priority expires-in "
	"retry-first retry-factor retry-most "},
    {"clock", run_clock, 0, 0, " reset "},
    {"check", run_check, 0, 0, " "},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct command *
command_find(const char *name)
{
	size_t i;

	for (i = 0; i < COMMANDS; i++) {
		if (strcmp(name, commands[i].name) == 0)
			return &commands[i];
	}
	usage_error("%s: no such command", name);
}

/* Options stand before the command or after it. Those of another one are
 * refused. */
static void
options_fit(const struct command *command)
{
	const struct option_row *row;
	char word[32];

	for (row = rows; row->name != NULL; row++) {
		(void)snprintf(word, sizeof(word), " %s ", row->name);
		if (*row->value != NULL &&
		    strstr(command->options, word) == NULL)
			usage_error(
			    "--%s: no option of %s", row->name, command->name);
	}
}

int
main(int argc, char **argv)
{
	static const struct program program = {
	    .name = "hwtctl", .usage = usage, .rows = {rows}};
	const struct command *command;
	int count = options_read(&program, argc, argv);

	if (count == 0)
		usage_error("want a command");
	command = command_find(argv[0]);
	options_fit(command);
	if (count - 1 < command->min || count - 1 > command->max)
		usage_error("%s: wrong number of arguments", command->name);
	finish(command->run(count - 1, argv + 1));
}
