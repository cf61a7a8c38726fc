/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules, as users see them; occur.c adds what they say. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "calendar.h"
#include "durable.h"

#define ATTEMPTS_DEFAULT 20u
#define NAMES_MAX 16u /* of one call */
/* A scheduler has 10 s to add what it has found: see scripts/add.lua. */
#define MARKS_KEPT_MS "60000"

_Static_assert(WHY_MAX == HWT_DURABLE_WHY_MAX, "calendar.h");

static const char *const missed_name[] = {
    [HWT_DURABLE_MISSED_LAST] = "last",
    [HWT_DURABLE_MISSED_ALL] = "all",
    [HWT_DURABLE_MISSED_NONE] = "none",
};
#define MISSED_MAX HWT_DURABLE_MISSED_NONE

/* Of when it occurs. */
static bool
is_sound(const struct hwt_durable_schedule *schedule)
{
	return schedule != NULL && RESERVED_IS_ZERO(schedule) &&
	    schedule->flags == 0 && schedule->missed <= MISSED_MAX &&
	    schedule->every_ns % SECOND_NS == 0 &&
	    schedule->every_ns <= HWT_DURABLE_DELAY_MAX &&
	    (schedule->every_ns == 0) == (schedule->cron != NULL) &&
	    (schedule->cron != NULL || schedule->zone == NULL);
}

int
schedule_calendar(struct calendar *calendar,
    const struct hwt_durable_schedule *schedule, char *why)
{
	return calendar_read(calendar, schedule->every_ns / SECOND_NS,
	    schedule->cron, schedule->zone, why);
}

int
hwt_durable_schedule_next(const struct hwt_durable_schedule *schedule,
    uint64_t after_unix_ns, uint64_t *next_unix_ns, char why[WHY_MAX])
{
	char unseen[WHY_MAX];
	struct calendar calendar;
	int64_t next;
	int error;

	if (why == NULL)
		why = unseen;
	why[0] = '\0';
	if (!is_sound(schedule) || next_unix_ns == NULL ||
	    after_unix_ns > INT64_MAX)
		return -EINVAL;
	error = schedule_calendar(&calendar, schedule, why);
	if (error != 0)
		return error;
	next = calendar_next(&calendar, (int64_t)(after_unix_ns / SECOND_NS));
	*next_unix_ns = next < 0 || next > INT64_MAX / (int64_t)SECOND_NS
	    ? 0
	    : (uint64_t)next * SECOND_NS;
	calendar_free(&calendar);
	return 0;
}

/* All but the line and the zone. */
static bool
is_valid(const struct hwt_durable_schedule *schedule)
{
	struct hwt_durable_task task;

	if (!is_sound(schedule) || schedule->name == NULL ||
	    !name_is_valid(schedule->name, HWT_DURABLE_SCHEDULE_MAX) ||
	    schedule->task.id != NULL || schedule->task.id_length != 0 ||
	    schedule->task.delay_ns != 0 ||
	    (schedule->task.flags & ~PRIORITY_FLAGS) != 0)
		return false;
	task = schedule->task;
	task.id = schedule->name;
	task.id_length = strlen(schedule->name);
	return task_is_valid(&task, 0);
}

/* Whether it can be sent; what is wrong with a line or zone is logged. */
static int
check(struct hwt_durable *durable, const struct hwt_durable_schedule *schedule)
{
	struct calendar calendar;
	char why[WHY_MAX];
	int error;

	if (!is_valid(schedule))
		return -EINVAL;
	error = schedule_calendar(&calendar, schedule, why);
	if (error == 0)
		calendar_free(&calendar);
	else
		engine_log(durable->engine, LOG_ERR, "schedule %s: %s",
		    schedule->name, why);
	return error;
}

/* Of a schedule's script. done: what else is as good as 0. */
static int
change(struct hwt_durable *durable, const struct engine_argument *argument,
    uint32_t count, int done)
{
	const struct engine_wait wait = {.stop_fd = -1, .replicated = true};
	struct engine_call call = {.script = SCRIPT_SCHEDULE,
	    .shard =
		durable_shard_of(durable, argument[1].data, argument[1].length),
	    .count = count,
	    .arg = argument};
	int error = engine_call(durable->engine, &call, 1, &wait);

	if (error == 0 && call.reply->type == REDIS_REPLY_INTEGER &&
	    call.reply->integer == -2)
		error = -ENOENT;
	else if (error == 0 &&
	    (call.reply->type != REDIS_REPLY_INTEGER ||
		(call.reply->integer != 0 && call.reply->integer != done)))
		error = -EPROTO;
	engine_call_free(&call, 1);
	return error;
}

static struct engine_argument
argument_or_empty(const char *text)
{
	return argument_text(text != NULL ? text : "");
}

int
hwt_durable_schedule_put(
    struct hwt_durable *durable, const struct hwt_durable_schedule *schedule)
{
	struct number every, attempts, expires, first, factor, most, priority;
	struct engine_argument argument[14];
	struct task_retries retries = {0};
	const struct hwt_durable_task *task;
	int error = durable_enter(durable);

	if (error == 0)
		error = check(durable, schedule);
	if (error != 0)
		return error;
	task = &schedule->task;
	if (task_has_retries(task))
		task_retries(task, &retries);
	argument[0] = argument_text("put");
	argument[1] = argument_text(schedule->name);
	argument[2] = argument_number(&every, schedule->every_ns / SECOND_NS);
	argument[3] = argument_or_empty(schedule->cron);
	argument[4] = argument_or_empty(schedule->zone);
	argument[5] = argument_text(missed_name[schedule->missed]);
	argument[6] = argument_text(task->queue);
	argument[7] = argument_number(&attempts,
	    task->max_attempts != 0 ? task->max_attempts : ATTEMPTS_DEFAULT);
	argument[8] =
	    (struct engine_argument){task->payload, task->payload_length};
	argument[9] = argument_number(&expires, whole_ms(task->expires_ns));
	argument[10] = argument_number(&first, retries.first_ms);
	argument[11] = argument_number(&factor, retries.thousandths);
	argument[12] = argument_number(&most, retries.most_ms);
	argument[13] = argument_number(&priority, priority_of(task->flags));
	return change(durable, argument, 14, 1);
}

/* What each shard knows of the last occurrence goes when no scheduler can be
 * late any more. What stays after an error is 100 bytes. */
static void
marks_expire(struct hwt_durable *durable, const char *name)
{
	struct engine_call *call = calloc(durable->shards, sizeof(*call));
	char(*key)[ENGINE_KEY_MAX] = calloc(durable->shards, sizeof(*key));
	struct engine_argument(*argument)[3] =
	    calloc(durable->shards, sizeof(*argument));
	char mark[HWT_DURABLE_SCHEDULE_MAX + 3] = "o:";
	uint32_t i;

	memcpy(mark + 2, name, strlen(name) + 1);
	for (i = 0; call != NULL && key != NULL && argument != NULL &&
	     i < durable->shards;
	     i++) {
		engine_key(durable->engine, key[i], i, mark);
		argument[i][0] = argument_text("PEXPIRE");
		argument[i][1] = argument_text(key[i]);
		argument[i][2] = argument_text(MARKS_KEPT_MS);
		call[i] = (struct engine_call){.script = COMMAND,
		    .shard = i,
		    .count = 3,
		    .arg = argument[i]};
	}
	if (i == durable->shards) {
		(void)engine_call(durable->engine, call, i, NULL);
		engine_call_free(call, i);
	}
	free(call);
	free(key);
	free(argument);
}

int
hwt_durable_schedule_drop(struct hwt_durable *durable, const char *name)
{
	struct engine_argument argument[2];
	int error = durable_enter(durable);

	if (error != 0)
		return error;
	if (name == NULL || !name_is_valid(name, HWT_DURABLE_SCHEDULE_MAX))
		return -EINVAL;
	argument[0] = argument_text("drop");
	argument[1] = argument_text(name);
	error = change(durable, argument, 2, 0);
	if (error == 0 || error == -ENOENT)
		marks_expire(durable, name);
	return error;
}

/* Reading. */

static bool
is_text(const struct redisReply *reply)
{
	return reply->type == REDIS_REPLY_STRING;
}

/* The value of a field, or NULL. */
static const struct redisReply *
field_of(const struct redisReply *reply, const char *name)
{
	size_t i;

	for (i = 2; i + 1 < reply->elements; i += 2) {
		if (is_text(reply->element[i]) &&
		    strcmp(reply->element[i]->str, name) == 0 &&
		    is_text(reply->element[i + 1]))
			return reply->element[i + 1];
	}
	return NULL;
}

static bool
number_of(const struct redisReply *reply, const char *name, uint64_t *number)
{
	const struct redisReply *value = field_of(reply, name);

	return value != NULL && reply_number(value, number);
}

/* NULL: it is not there, or empty. */
static const char *
text_of(const struct redisReply *reply, const char *name)
{
	const struct redisReply *value = field_of(reply, name);

	return value != NULL && value->len > 0 ? value->str : NULL;
}

/* Up to a limit, times a unit; 0: it is not there. False: it is none. */
static bool
scaled_of(const struct redisReply *reply, const char *name, uint64_t limit,
    uint64_t unit, uint64_t *number)
{
	*number = 0;
	if (field_of(reply, name) != NULL &&
	    (!number_of(reply, name, number) || *number > limit))
		return false;
	*number *= unit;
	return true;
}

/* What tasks have as options, which older versions did not store. */
static bool
options_of(const struct redisReply *reply, struct hwt_durable_task *task)
{
	const uint64_t limit = HWT_DURABLE_DELAY_MAX / NS_PER_MS;
	uint64_t thousandths, priority;
	bool valid =
	    scaled_of(reply, "expires", limit, NS_PER_MS, &task->expires_ns) &&
	    scaled_of(
		reply, "first", limit, NS_PER_MS, &task->retry_first_ns) &&
	    scaled_of(reply, "most", limit, NS_PER_MS, &task->retry_most_ns) &&
	    scaled_of(reply, "factor", 1000000, 1, &thousandths) &&
	    scaled_of(reply, "priority", PRIORITY_MAX, 1, &priority);

	if (valid) {
		task->retry_factor = (double)thousandths / 1000;
		task->flags = priority_flags(priority);
	}
	return valid;
}

bool
stored_read(struct stored_schedule *stored, const struct redisReply *reply)
{
	struct hwt_durable_schedule *schedule = &stored->schedule;
	const struct redisReply *payload;
	const char *missed;
	uint64_t attempts = 0;

	memset(stored, 0, sizeof(*stored));
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 ||
	    !is_text(reply->element[0]) ||
	    !number_of(reply, "version", &stored->version) ||
	    !number_of(reply, "last", &stored->last_ms) ||
	    !number_of(reply, "occurred", &stored->occurred_ms) ||
	    !scaled_of(reply, "every", HWT_DURABLE_DELAY_MAX / SECOND_NS,
		SECOND_NS, &schedule->every_ns) ||
	    !scaled_of(
		reply, "attempts", HWT_DURABLE_ATTEMPTS_MAX, 1, &attempts) ||
	    !options_of(reply, &schedule->task))
		return false;
	payload = field_of(reply, "payload");
	missed = text_of(reply, "missed");
	schedule->name = reply->element[0]->str;
	schedule->cron = text_of(reply, "cron");
	schedule->zone = text_of(reply, "zone");
	schedule->task.queue = text_of(reply, "queue");
	schedule->task.max_attempts = (uint32_t)attempts;
	schedule->task.payload_length = payload != NULL ? payload->len : 0;
	if (schedule->task.payload_length > 0)
		schedule->task.payload = payload->str;
	while (schedule->missed <= MISSED_MAX && missed != NULL &&
	    strcmp(missed, missed_name[schedule->missed]) != 0)
		schedule->missed++;
	return missed != NULL && is_valid(schedule);
}

struct listing {
	struct hwt_durable *durable;
	hwt_durable_schedule_callback *callback;
	void *ctx;
	uint32_t shard;
	bool is_of_one; /* which must be readable; of all, others are logged */
};

static int
visit_one(
    const struct listing *list, const struct redisReply *reply, uint64_t now_ns)
{
	struct hwt_durable_schedule_info info = {0};
	struct stored_schedule stored;

	if (!stored_read(&stored, reply)) {
		engine_log(list->durable->engine, LOG_ERR,
		    "shard %u has a schedule that cannot be read: %.64s",
		    list->shard,
		    reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
			    is_text(reply->element[0])
			? reply->element[0]->str
			: "");
		return list->is_of_one ? -EPROTO : 0;
	}
	info.last_unix_ns = HWT_MS(stored.occurred_ms);
	(void)hwt_durable_schedule_next(
	    &stored.schedule, now_ns, &info.next_unix_ns, NULL);
	return list->callback(list->ctx, &stored.schedule, &info);
}

/* Up to NAMES_MAX names of the list's shard; those that are gone by now are
 * left out. How many were visited, or an error of the callback. */
static int
visit_some(const struct listing *list, const struct engine_argument *names,
    uint32_t count, uint32_t *visited)
{
	struct engine_argument argument[1 + NAMES_MAX];
	struct engine_call call = {.script = SCRIPT_SCHEDULES,
	    .shard = list->shard,
	    .count = 1 + count,
	    .arg = argument,
	    .reads = true};
	uint64_t now_ms = 0;
	size_t i;
	int error;

	argument[0] = argument_text("get");
	memcpy(argument + 1, names, count * sizeof(*names));
	error = engine_call(list->durable->engine, &call, 1, NULL);
	if (error == 0 &&
	    (call.reply->type != REDIS_REPLY_ARRAY ||
		call.reply->elements != 1 + count ||
		!reply_number(call.reply->element[0], &now_ms)))
		error = -EPROTO;
	for (i = 1; error == 0 && i <= count; i++) {
		if (call.reply->element[i]->type != REDIS_REPLY_ARRAY ||
		    call.reply->element[i]->elements < 2)
			continue;
		error = visit_one(list, call.reply->element[i], HWT_MS(now_ms));
		++*visited;
	}
	engine_call_free(&call, 1);
	return error;
}

static int
tell_shard(const struct listing *list)
{
	const struct engine_argument all = argument_text("names");
	struct engine_argument names[NAMES_MAX];
	struct engine_call call = {.script = SCRIPT_SCHEDULES,
	    .shard = list->shard,
	    .count = 1,
	    .arg = &all,
	    .reads = true};
	uint32_t count = 0, visited = 0;
	size_t i;
	int error = engine_call(list->durable->engine, &call, 1, NULL);

	if (error == 0 && call.reply->type != REDIS_REPLY_ARRAY)
		error = -EPROTO;
	for (i = 0; error == 0 && i < call.reply->elements; i++) {
		if (!is_text(call.reply->element[i]) ||
		    !name_is_valid(
			call.reply->element[i]->str, HWT_DURABLE_SCHEDULE_MAX))
			continue;
		names[count++] = argument_text(call.reply->element[i]->str);
		if (count == NAMES_MAX) {
			error = visit_some(list, names, count, &visited);
			count = 0;
		}
	}
	if (error == 0 && count > 0)
		error = visit_some(list, names, count, &visited);
	engine_call_free(&call, 1);
	return error;
}

int
hwt_durable_schedule_list(struct hwt_durable *durable, const char *name,
    hwt_durable_schedule_callback *callback, void *ctx)
{
	struct listing list = {durable, callback, ctx, 0, name != NULL};
	struct engine_argument one;
	uint32_t visited = 0;
	int error = durable_enter(durable);

	if (error != 0)
		return error;
	if (callback == NULL ||
	    (name != NULL && !name_is_valid(name, HWT_DURABLE_SCHEDULE_MAX)))
		return -EINVAL;
	if (name == NULL) {
		for (; error == 0 && list.shard < durable->shards; list.shard++)
			error = tell_shard(&list);
		return error;
	}
	one = argument_text(name);
	list.shard = durable_shard_of(durable, name, one.length);
	error = visit_some(&list, &one, 1, &visited);
	return error == 0 && visited == 0 ? -ENOENT : error;
}
