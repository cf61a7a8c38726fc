/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions for tasks: arguments are checked, commands are built, answers
 * are read.
 *
 * The tasks of an add that have one queue, one due time and one policy are one
 * command; the commands of an add are sent together.
 */
#include "modules/durable/client/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sys/valid.h"

#define SECOND_NS UINT64_C(1000000000)
#define ADD_BYTES_MAX ((size_t)64 << 20) /* hwtd takes commands of 80 MiB */

bool
name_is_valid(const char *name, size_t most)
{
	size_t length;

	if (name == NULL)
		return false;
	length = strnlen(name, most + 1);
	return length >= 1 && length <= most &&
	    strspn(name,
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
		"0123456789._-") == length;
}

static bool
id_is_valid(const char *id, size_t length)
{
	return id != NULL && length >= 1 && length <= HWT_DURABLE_ID_MAX;
}

static uint64_t
unix_now_ns(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static uint64_t
ms_of(uint64_t ns)
{
	return ns / MS_NS + (ns % MS_NS != 0);
}

/* now_ns: Unix time. */
static bool
due_is_valid(uint64_t delay_or_due_ns, uint32_t flags, uint64_t now_ns)
{
	if (flags & ~HWT_DURABLE_AT)
		return false;
	return delay_or_due_ns <=
	    HWT_DURABLE_DELAY_MAX + (flags & HWT_DURABLE_AT ? now_ns : 0);
}

static bool
task_is_valid(const struct hwt_durable_task *task, uint64_t now_ns)
{
	return id_is_valid(task->id, task->id_length) &&
	    name_is_valid(task->queue, HWT_DURABLE_QUEUE_MAX) &&
	    due_is_valid(task->delay_ns, task->flags, now_ns) &&
	    task->max_attempts <= HWT_DURABLE_ATTEMPTS_MAX &&
	    task->payload_length <= HWT_DURABLE_PAYLOAD_MAX &&
	    (task->payload != NULL || task->payload_length == 0) &&
	    task->expires_ns <= HWT_DURABLE_DELAY_MAX &&
	    task->retry_most_ns <= HWT_DURABLE_DELAY_MAX &&
	    task->retry_first_ns <= task->retry_most_ns &&
	    task->result_ns <= HWT_DURABLE_DELAY_MAX && RESERVED_IS_ZERO(task);
}

/* False: at least one is invalid, and results say which. */
static bool
tasks_are_valid(
    const struct hwt_durable_task *tasks, size_t count, int *results)
{
	uint64_t now_ns = unix_now_ns();
	bool valid = true;
	size_t i;

	for (i = 0; i < count; i++) {
		results[i] =
		    task_is_valid(&tasks[i], now_ns) ? -ECANCELED : -EINVAL;
		valid &= results[i] == -ECANCELED;
	}
	return valid;
}

/* Whether they may stand in one command. */
static bool
tasks_are_alike(
    const struct hwt_durable_task *a, const struct hwt_durable_task *b)
{
	return a->flags == b->flags &&
	    (a->flags & HWT_DURABLE_AT ||
		ms_of(a->delay_ns) == ms_of(b->delay_ns)) &&
	    a->max_attempts == b->max_attempts &&
	    a->expires_ns == b->expires_ns &&
	    a->retry_first_ns == b->retry_first_ns &&
	    a->retry_most_ns == b->retry_most_ns &&
	    a->result_ns == b->result_ns && strcmp(a->queue, b->queue) == 0;
}

static void
add_begin(struct call *call, const struct hwt_durable *durable,
    const struct hwt_durable_task *task)
{
	call_begin(call, durable, "HWT.ADD", task->queue);
	call->writes = true;
	if (task->max_attempts != 0) {
		call_text(call, "ATTEMPTS");
		call_number(call, task->max_attempts);
	}
	if (task->retry_most_ns != 0) {
		call_text(call, "RETRY");
		call_number(call, ms_of(task->retry_first_ns));
		call_number(call, ms_of(task->retry_most_ns));
	}
	if (task->expires_ns != 0) {
		call_text(call, "EXPIRES");
		call_number(call, ms_of(task->expires_ns));
	}
	if (task->result_ns != 0) {
		call_text(call, "RESULT");
		call_number(call, ms_of(task->result_ns));
	}
	if (task->flags & HWT_DURABLE_AT) {
		call_text(call, "EACH");
	} else {
		call_text(call, "IN");
		call_number(call, ms_of(task->delay_ns));
	}
	call_text(call, "TASKS");
	call->head_words = call->words;
	call->body_at = call->buffer.length;
}

static void
add_task(struct call *call, const struct hwt_durable_task *task)
{
	call_word(call, task->id, task->id_length);
	if (task->flags & HWT_DURABLE_AT)
		call_number(call, ms_of(task->due_unix_ns));
	call_word(call, task->payload, task->payload_length);
	call->tasks++;
}

/*
 * An add: its commands, and which task is in which one.
 */
struct add {
	struct call *calls;
	size_t count;
	const struct hwt_durable_task **first; /* of each call */
	uint16_t *call_of; /* each task's call */
	unsigned char *answers; /* room for one of each task, by call */
};

/* False: no memory. */
static bool
add_allocate(struct add *add, size_t count)
{
	add->calls = calloc(count, sizeof(*add->calls));
	add->first = calloc(count, sizeof(*add->first));
	add->call_of = calloc(count, sizeof(*add->call_of));
	add->answers = calloc(count, 1);
	return add->calls != NULL && add->first != NULL &&
	    add->call_of != NULL && add->answers != NULL;
}

static void
add_free(struct add *add)
{
	size_t i;

	for (i = 0; i < add->count; i++)
		call_free(&add->calls[i]);
	free(add->calls);
	free(add->first);
	free(add->call_of);
	free(add->answers);
}

/* Tasks that are alike mostly follow each other, or take turns. */
static size_t
add_find(struct add *add, const struct hwt_durable *durable,
    const struct hwt_durable_task *task)
{
	size_t i;

	for (i = add->count; i > 0; i--) {
		if (tasks_are_alike(add->first[i - 1], task))
			return i - 1;
	}
	add->first[add->count] = task;
	add_begin(&add->calls[add->count], durable, task);
	return add->count++;
}

static void
add_build(struct add *add, const struct hwt_durable *durable,
    const struct hwt_durable_task *tasks, size_t count)
{
	unsigned char *answers = add->answers;
	size_t i, at;

	for (i = 0; i < count; i++) {
		at = add_find(add, durable, &tasks[i]);
		add->call_of[i] = (uint16_t)at;
		add_task(&add->calls[at], &tasks[i]);
	}
	for (i = 0; i < add->count; i++) {
		add->calls[i].results = answers;
		answers += add->calls[i].tasks;
	}
}

static int
add_read(struct add *add, size_t count, int *results)
{
	struct call *call;
	int error = 0;
	size_t i;

	for (i = 0; i < count; i++) {
		call = &add->calls[add->call_of[i]];
		results[i] = call->error != 0 ? call->error : *call->results++;
		if (results[i] < 0 && error == 0)
			error = results[i];
	}
	return error;
}

static int
add_all(struct hwt_durable *durable, size_t count,
    const struct hwt_durable_task *tasks, int *results)
{
	struct add add = {.count = 0};
	int error = -ENOMEM;
	size_t i;

	if (!tasks_are_valid(tasks, count, results))
		return -EINVAL;
	if (add_allocate(&add, count)) {
		add_build(&add, durable, tasks, count);
		call_run(durable, add.calls, add.count);
		error = add_read(&add, count, results);
	} else {
		for (i = 0; i < count; i++)
			results[i] = -ENOMEM;
	}
	add_free(&add);
	return error;
}

int
hwt_durable_add(struct hwt_durable *durable, size_t count,
    const struct hwt_durable_task *tasks, int *results)
{
	int own[HWT_DURABLE_BATCH_MAX];
	size_t bytes = 0, i;

	if (durable == NULL || count > HWT_DURABLE_BATCH_MAX ||
	    (count > 0 && tasks == NULL))
		return -EINVAL;
	if (!durable_is_own(durable))
		return -EOWNERDEAD;
	if (count == 0)
		return 0;
	for (i = 0; i < count && bytes <= ADD_BYTES_MAX; i++)
		bytes += tasks[i].payload_length;
	if (count > 1 && bytes > ADD_BYTES_MAX)
		return -EINVAL;
	return add_all(durable, count, tasks, results != NULL ? results : own);
}

/*
 * Calls about one task.
 */

static int
check_one(const struct hwt_durable *durable, const char *queue, const char *id,
    size_t id_length)
{
	if (durable == NULL || !name_is_valid(queue, HWT_DURABLE_QUEUE_MAX) ||
	    !id_is_valid(id, id_length))
		return -EINVAL;
	return durable_is_own(durable) ? 0 : -EOWNERDEAD;
}

/* The answer is an array of one number: 1, or 0 for -ENOENT. */
static int
run_one(struct hwt_durable *durable, struct call *call)
{
	const redisReply *reply;
	int error;

	call_run(durable, call, 1);
	error = call->error;
	reply = call->reply;
	if (error == 0 &&
	    (reply->type != REDIS_REPLY_ARRAY || reply->elements != 1 ||
		reply->element[0]->type != REDIS_REPLY_INTEGER))
		error = -EPROTO;
	if (error == 0 && reply->element[0]->integer == 0)
		error = -ENOENT;
	call_free(call);
	return error;
}

int
hwt_durable_cancel(struct hwt_durable *durable, const char *queue,
    const char *id, size_t id_length)
{
	int error = check_one(durable, queue, id, id_length);
	struct call call;

	if (error != 0)
		return error;
	call_begin(&call, durable, "HWT.CANCEL", queue);
	call.writes = true;
	call_word(&call, id, id_length);
	return run_one(durable, &call);
}

int
hwt_durable_reschedule(struct hwt_durable *durable, const char *queue,
    const char *id, size_t id_length, uint64_t delay_or_due_ns, uint32_t flags)
{
	int error = check_one(durable, queue, id, id_length);
	struct call call;

	if (error != 0)
		return error;
	if (!due_is_valid(delay_or_due_ns, flags, unix_now_ns()))
		return -EINVAL;
	call_begin(&call, durable, "HWT.RESCHEDULE", queue);
	call.writes = true;
	call_text(&call, flags & HWT_DURABLE_AT ? "DUE" : "IN");
	call_number(&call, ms_of(delay_or_due_ns));
	call_word(&call, id, id_length);
	return run_one(durable, &call);
}

/*
 * Names and values.
 */

/* The value of a name; NULL: there is none of this type. */
static const redisReply *
field(const redisReply *reply, const char *name, int type)
{
	const redisReply *key;
	size_t i;

	for (i = 0; i + 1 < reply->elements; i += 2) {
		key = reply->element[i];
		if (key->type == REDIS_REPLY_STRING &&
		    strcmp(key->str, name) == 0)
			return reply->element[i + 1]->type == type
			    ? reply->element[i + 1]
			    : NULL;
	}
	return NULL;
}

/* 0 and -EPROTO: it is no number. */
static uint64_t
number(const redisReply *reply, const char *name, int *error)
{
	const redisReply *value = field(reply, name, REDIS_REPLY_INTEGER);

	if (value == NULL || value->integer < 0) {
		*error = -EPROTO;
		return 0;
	}
	return (uint64_t)value->integer;
}

static uint64_t
time_ns(const redisReply *reply, const char *name, int *error)
{
	uint64_t ms = number(reply, name, error);

	return ms > UINT64_MAX / MS_NS ? UINT64_MAX : ms * MS_NS;
}

static enum hwt_durable_state
read_state(const redisReply *reply, int *error)
{
	static const char *const names[] = {
	    NULL, "waiting", "due", "running", "done", "dead", "cancelled"};
	const redisReply *value = field(reply, "state", REDIS_REPLY_STRING);
	int state;

	for (state = HWT_DURABLE_WAITING;
	     value != NULL && state <= HWT_DURABLE_CANCELLED; state++) {
		if (strcmp(value->str, names[state]) == 0)
			return (enum hwt_durable_state)state;
	}
	*error = -EPROTO;
	return HWT_DURABLE_WAITING;
}

/* The first bytes of a text; returns how many it has. */
static size_t
read_bytes(const redisReply *reply, const char *name, void *to, size_t size,
    int *error)
{
	const redisReply *value = field(reply, name, REDIS_REPLY_STRING);
	size_t length;

	if (value == NULL) {
		*error = -EPROTO;
		return 0;
	}
	length = (size_t)value->len;
	if (to != NULL && size > 0)
		memcpy(to, value->str, length < size ? length : size);
	return length;
}

static int
read_info(const redisReply *reply, struct hwt_durable_info *info, void *payload,
    size_t payload_size)
{
	size_t reason;
	int error = 0;

	memset(info, 0, sizeof(*info));
	info->state = read_state(reply, &error);
	info->attempt = (uint32_t)number(reply, "attempt", &error);
	info->max_attempts = (uint32_t)number(reply, "attempts", &error);
	info->due_unix_ns = time_ns(reply, "due", &error);
	if (info->state != HWT_DURABLE_RUNNING)
		info->time_unix_ns = time_ns(reply, "time", &error);
	info->fence = number(reply, "fence", &error);
	info->expires_ns = time_ns(reply, "expires", &error);
	info->retry_first_ns = time_ns(reply, "retry-first", &error);
	info->retry_most_ns = time_ns(reply, "retry-most", &error);
	info->result_ns = time_ns(reply, "result", &error);
	info->payload_length =
	    read_bytes(reply, "payload", payload, payload_size, &error);
	reason = read_bytes(
	    reply, "reason", info->reason, sizeof(info->reason), &error);
	info->reason_length =
	    (uint32_t)(reason < sizeof(info->reason) ? reason
						     : sizeof(info->reason));
	return error;
}

int
hwt_durable_get(struct hwt_durable *durable, const char *queue, const char *id,
    size_t id_length, struct hwt_durable_info *info, void *payload,
    size_t payload_size)
{
	int error = check_one(durable, queue, id, id_length);
	struct call call;

	if (error != 0)
		return error;
	if (info == NULL || (payload == NULL && payload_size > 0))
		return -EINVAL;
	call_begin(&call, durable, "HWT.GET", queue);
	call_word(&call, id, id_length);
	call_run(durable, &call, 1);
	error = call.error;
	if (error == 0 && call.reply->type == REDIS_REPLY_NIL)
		error = -ENOENT;
	else if (error == 0)
		error = call.reply->type == REDIS_REPLY_ARRAY
		    ? read_info(call.reply, info, payload, payload_size)
		    : -EPROTO;
	call_free(&call);
	return error;
}

static int
read_stats(const redisReply *reply, struct hwt_durable_stats *stats)
{
	const struct {
		const char *name;
		uint64_t *to;
	} numbers[] = {
	    {"waiting", &stats->waiting},
	    {"due", &stats->due},
	    {"running", &stats->running},
	    {"done", &stats->done},
	    {"dead", &stats->dead},
	    {"cancelled", &stats->cancelled},
	    {"added-total", &stats->added_total},
	    {"begun-total", &stats->begun_total},
	    {"retried-total", &stats->retried_total},
	    {"done-total", &stats->done_total},
	    {"dead-total", &stats->dead_total},
	    {"cancelled-total", &stats->cancelled_total},
	    {"leases-ended-total", &stats->leases_ended_total},
	    {"expired-total", &stats->expired_total},
	    {"removed-total", &stats->removed_total},
	    {"dropped-total", &stats->dropped_total},
	    {"paused", &stats->paused},
	    {"limit-running", &stats->limit_running},
	    {"limit-rate", &stats->limit_rate},
	    {"limit-pending", &stats->limit_pending},
	    {"memory-bytes", &stats->memory_bytes},
	};
	int error = 0;
	size_t i;

	if (reply->type != REDIS_REPLY_ARRAY)
		return -EPROTO;
	memset(stats, 0, sizeof(*stats));
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		*numbers[i].to = number(reply, numbers[i].name, &error);
	stats->now_unix_ns = time_ns(reply, "now", &error);
	stats->ahead_ns = time_ns(reply, "ahead", &error);
	return error;
}

int
hwt_durable_read_stats(struct hwt_durable *durable, const char *queue,
    struct hwt_durable_stats *stats)
{
	struct call call;
	int error;

	if (durable == NULL || stats == NULL ||
	    !name_is_valid(queue, HWT_DURABLE_QUEUE_MAX))
		return -EINVAL;
	if (!durable_is_own(durable))
		return -EOWNERDEAD;
	call_begin(&call, durable, "HWT.STAT", queue);
	call_run(durable, &call, 1);
	error = call.error != 0 ? call.error : read_stats(call.reply, stats);
	call_free(&call);
	return error;
}
