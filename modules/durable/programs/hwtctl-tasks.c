/* SPDX-License-Identifier: Apache-2.0 */
/* hwtctl add, cancel, reschedule, show: tasks that the user names. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hwtctl.h"
#include "task-json.h"
#include "text.h"
#include "walk.h"

/* --in or --at; sets what a task has for it. */
static void
time_read(struct hwt_durable_task *task)
{
	if ((given.in == NULL) == (given.at == NULL))
		usage_error("want either --in SECONDS or --at UNIX");
	if (given.in != NULL) {
		task->delay_ns =
		    option_seconds("in", given.in, 0, 0, HWT_DURABLE_DELAY_MAX);
		return;
	}
	task->due_unix_ns = option_seconds("at", given.at, 0, 0, UINT64_MAX);
	task->flags = HWT_DURABLE_AT;
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

/* As ids are taken: with --base64 in this form. */
static void
print_id(const char *text, size_t length)
{
	if (given.base64 != NULL)
		base64_write(stdout, text, length);
	else
		text_write(stdout, text, length);
	(void)putchar('\n');
}

/* --id, or one that is made. */
static struct engine_argument
id_find(void)
{
	static char text[4 * HWT_DURABLE_ID_MAX];

	if (given.id == NULL) {
		id_make(text);
		return argument_text(text);
	}
	if (strlen(given.id) >= sizeof(text))
		usage_error("an ID has 1 to %d bytes", HWT_DURABLE_ID_MAX);
	memcpy(text, given.id, strlen(given.id) + 1);
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
		    given.replace == NULL ? ", but with --replace" : "");
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

	if (given.queue == NULL)
		usage_error("add needs --queue");
	option_queue("--queue", given.queue);
	time_read(&task);
	expires_read(&task);
	retries_read(&task);
	priority_option_read(&task);
	task.queue = given.queue;
	task.max_attempts = (uint32_t)option_number(
	    "attempts", given.attempts, 0, 1, HWT_DURABLE_ATTEMPTS_MAX);
	name = id_find();
	task.id = name.data;
	task.id_length = name.length;
	payload_find(&task);
	if (given.replace != NULL)
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
	if (given.replace != NULL)
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

	options_fit("add --from", " from base64 replace ");
	feed.name = given.from;
	feed.file =
	    strcmp(given.from, "-") == 0 ? stdin : fopen(given.from, "re");
	if (feed.file == NULL)
		usage_error("%s: %s", given.from, system_text(errno));
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

enum status
run_add(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return given.from != NULL ? add_lines() : add_one();
}

/* One task. */

/* What went wrong with a task. */
static enum status
tell_error(struct engine_argument name, int error)
{
	if (error != 0)
		complain("%.*s: %s", (int)name.length, (const char *)name.data,
		    explain(error));
	return error_status(error);
}

enum status
run_cancel(int argc, char **argv)
{
	struct engine_argument name = id_read(argv[0]);

	(void)argc;
	return tell_error(
	    name, hwt_durable_cancel(handle_open(), name.data, name.length));
}

enum status
run_reschedule(int argc, char **argv)
{
	struct engine_argument name = id_read(argv[0]);
	struct hwt_durable_task task = {0};

	(void)argc;
	time_read(&task);
	return tell_error(name,
	    hwt_durable_reschedule(handle_open(), name.data, name.length,
		given.in != NULL ? task.delay_ns : task.due_unix_ns,
		task.flags));
}

enum status
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
