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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sys/valid.h"

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

static bool
due_is_valid(uint64_t delay_or_due_ns, uint32_t flags)
{
	struct timespec now = {0};
	uint64_t most = HWT_DURABLE_DELAY_MAX;

	if (flags & HWT_DURABLE_AT) {
		(void)clock_gettime(CLOCK_REALTIME, &now);
		most += HWT_SEC(now.tv_sec);
	}
	return (flags & ~HWT_DURABLE_AT) == 0 && delay_or_due_ns <= most;
}

static bool
task_is_valid(const struct hwt_durable_task *task)
{
	return id_is_valid(task->id, task->id_length) &&
	    name_is_valid(task->queue, HWT_DURABLE_QUEUE_MAX) &&
	    due_is_valid(task->delay_ns, task->flags) &&
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
	bool valid = true;
	size_t i;

	for (i = 0; i < count; i++) {
		results[i] = task_is_valid(&tasks[i]) ? -ECANCELED : -EINVAL;
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

/* A duration, if it is set. */
static void
add_option(struct request *request, const char *word, uint64_t ns)
{
	if (ns == 0)
		return;
	request_text(request, word);
	request_number(request, ms_of(ns));
}

static void
add_begin(struct request *request, const struct hwt_durable *durable,
    const struct hwt_durable_task *task)
{
	request_begin(request, durable, "HWT.ADD", task->queue);
	add_option(request, "ATTEMPTS", task->max_attempts * MS_NS);
	if (task->retry_most_ns != 0) {
		request_text(request, "RETRY");
		request_number(request, ms_of(task->retry_first_ns));
		request_number(request, ms_of(task->retry_most_ns));
	}
	add_option(request, "EXPIRES", task->expires_ns);
	add_option(request, "RESULT", task->result_ns);
	request_text(request, task->flags & HWT_DURABLE_AT ? "EACH" : "IN");
	if (!(task->flags & HWT_DURABLE_AT))
		request_number(request, ms_of(task->delay_ns));
	request_text(request, "TASKS");
	request->head_words = request->buffer.words;
	request->body_at = request->buffer.length;
}

static void
add_task(struct request *request, const struct hwt_durable_task *task)
{
	request_word(request, task->id, task->id_length);
	if (task->flags & HWT_DURABLE_AT)
		request_number(request, ms_of(task->due_unix_ns));
	request_word(request, task->payload, task->payload_length);
	request->tasks++;
}

/* An add: its commands, and which task is in which one. */
struct add {
	struct request *requests;
	size_t count;
	const struct hwt_durable_task *first[HWT_DURABLE_BATCH_MAX];
	uint16_t request_of[HWT_DURABLE_BATCH_MAX];
	/* One of each task, by request. */
	unsigned char answers[HWT_DURABLE_BATCH_MAX];
};

/* Tasks that are alike mostly follow each other, or take turns. */
static void
add_build(struct add *add, const struct hwt_durable *durable,
    const struct hwt_durable_task *tasks, size_t count)
{
	unsigned char *answers = add->answers;
	size_t i, at;

	for (i = 0; i < count; i++) {
		at = add->count;
		while (
		    at > 0 && !tasks_are_alike(add->first[at - 1], &tasks[i]))
			at--;
		if (at == 0) {
			add->first[add->count] = &tasks[i];
			add_begin(
			    &add->requests[add->count], durable, &tasks[i]);
			at = ++add->count;
		}
		add->request_of[i] = (uint16_t)--at;
		add_task(&add->requests[at], &tasks[i]);
	}
	for (i = 0; i < add->count; i++) {
		add->requests[i].results = answers;
		answers += add->requests[i].tasks;
	}
}

static int
add_all(struct hwt_durable *durable, size_t count,
    const struct hwt_durable_task *tasks, int *results)
{
	struct add add = {.requests = calloc(count, sizeof(struct request))};
	struct request *request;
	int error = 0;
	size_t i;

	if (add.requests != NULL) {
		add_build(&add, durable, tasks, count);
		requests_run(durable, add.requests, add.count);
	}
	for (i = 0; i < count; i++) {
		results[i] = -ENOMEM;
		if (add.requests != NULL) {
			request = &add.requests[add.request_of[i]];
			results[i] = request->error != 0 ? request->error
							 : *request->results++;
		}
		if (results[i] < 0 && error == 0)
			error = results[i];
	}
	for (i = 0; i < add.count; i++)
		request_free(&add.requests[i]);
	free(add.requests);
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
	if (results == NULL)
		results = own;
	if (!tasks_are_valid(tasks, count, results))
		return -EINVAL;
	return add_all(durable, count, tasks, results);
}

/*
 * Calls about one task.
 */

/* The last word is the id. The answer is an array of one number: 1, or 0 for
 * -ENOENT. */
static int
change(struct hwt_durable *durable, const char *queue,
    const struct durable_word *words, size_t count)
{
	redisReply *reply = NULL;
	int error = -EINVAL;

	if (id_is_valid(words[count - 1].bytes, words[count - 1].length))
		error = durable_call(durable, queue, words, count, &reply);
	if (error == 0 &&
	    (reply->type != REDIS_REPLY_ARRAY || reply->elements != 1 ||
		reply->element[0]->type != REDIS_REPLY_INTEGER))
		error = -EPROTO;
	if (error == 0 && reply->element[0]->integer == 0)
		error = -ENOENT;
	freeReplyObject(reply);
	return error;
}

int
hwt_durable_cancel(struct hwt_durable *durable, const char *queue,
    const char *id, size_t id_length)
{
	const struct durable_word words[] = {
	    {"HWT.CANCEL", 10}, {id, id_length}};

	return change(durable, queue, words, 2);
}

int
hwt_durable_reschedule(struct hwt_durable *durable, const char *queue,
    const char *id, size_t id_length, uint64_t delay_or_due_ns, uint32_t flags)
{
	char ms[24];
	const int length = snprintf(
	    ms, sizeof(ms), "%llu", (unsigned long long)ms_of(delay_or_due_ns));
	const struct durable_word words[] = {{"HWT.RESCHEDULE", 14},
	    {flags & HWT_DURABLE_AT ? "DUE" : "IN ", 2 + (flags & 1)},
	    {ms, (size_t)length}, {id, id_length}};

	if (!due_is_valid(delay_or_due_ns, flags))
		return -EINVAL;
	return change(durable, queue, words, 4);
}

/*
 * Names and values.
 */

/* The value of a name. NULL and -EPROTO: there is none of this type. */
static const redisReply *
field(const redisReply *reply, const char *name, int type, int *error)
{
	const redisReply *key, *value;
	size_t i;

	for (i = 0; i + 1 < reply->elements; i += 2) {
		key = reply->element[i];
		value = reply->element[i + 1];
		if (key->type == REDIS_REPLY_STRING &&
		    strcmp(key->str, name) == 0 && value->type == type)
			return value;
	}
	*error = -EPROTO;
	return NULL;
}

static uint64_t
number(const redisReply *reply, const char *name, int *error)
{
	const redisReply *value =
	    field(reply, name, REDIS_REPLY_INTEGER, error);

	if (value != NULL && value->integer >= 0)
		return (uint64_t)value->integer;
	*error = -EPROTO;
	return 0;
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
	    "", "waiting", "due", "running", "done", "dead", "cancelled"};
	const redisReply *value =
	    field(reply, "state", REDIS_REPLY_STRING, error);
	int state = HWT_DURABLE_WAITING;

	while (value != NULL && state <= HWT_DURABLE_CANCELLED &&
	    strcmp(value->str, names[state]) != 0)
		state++;
	if (state > HWT_DURABLE_CANCELLED)
		*error = -EPROTO;
	return (enum hwt_durable_state)state;
}

/* The first bytes of a text; returns how many it has. */
static size_t
read_bytes(const redisReply *reply, const char *name, void *to, size_t size,
    int *error)
{
	const redisReply *value = field(reply, name, REDIS_REPLY_STRING, error);
	size_t length = value != NULL ? (size_t)value->len : 0;

	if (to != NULL && value != NULL)
		memcpy(to, value->str, length < size ? length : size);
	return length;
}

static int
read_info(const redisReply *reply, struct hwt_durable_info *info, void *payload,
    size_t payload_size)
{
	const size_t most = sizeof(info->reason);
	size_t reason;
	int error = 0;

	if (reply->type == REDIS_REPLY_NIL)
		return -ENOENT;
	if (reply->type != REDIS_REPLY_ARRAY)
		return -EPROTO;
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
	reason = read_bytes(reply, "reason", info->reason, most, &error);
	info->reason_length = (uint32_t)(reason < most ? reason : most);
	return error;
}

int
hwt_durable_get(struct hwt_durable *durable, const char *queue, const char *id,
    size_t id_length, struct hwt_durable_info *info, void *payload,
    size_t payload_size)
{
	const struct durable_word words[] = {{"HWT.GET", 7}, {id, id_length}};
	redisReply *reply;
	int error;

	if (!id_is_valid(id, id_length) || info == NULL ||
	    (payload == NULL && payload_size > 0))
		return -EINVAL;
	error = durable_call(durable, queue, words, 2, &reply);
	if (error == 0)
		error = read_info(reply, info, payload, payload_size);
	freeReplyObject(reply);
	return error;
}

static int
read_stats(const redisReply *reply, struct hwt_durable_stats *stats)
{
	static const char *const names[] = {"waiting", "due", "running", "done",
	    "dead", "cancelled", "added-total", "begun-total", "retried-total",
	    "done-total", "dead-total", "cancelled-total", "leases-ended-total",
	    "expired-total", "removed-total", "dropped-total", "paused",
	    "limit-running", "limit-rate", "limit-pending", "memory-bytes"};
	uint64_t *to = &stats->waiting; /* they follow each other */
	int error = 0;
	size_t i;

	if (reply->type != REDIS_REPLY_ARRAY)
		return -EPROTO;
	memset(stats, 0, sizeof(*stats));
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		to[i] = number(reply, names[i], &error);
	stats->now_unix_ns = time_ns(reply, "now", &error);
	stats->ahead_ns = time_ns(reply, "ahead", &error);
	return error;
}

int
hwt_durable_read_stats(struct hwt_durable *durable, const char *queue,
    struct hwt_durable_stats *stats)
{
	static const struct durable_word word = {"HWT.STAT", 8};
	redisReply *reply;
	int error;

	if (stats == NULL)
		return -EINVAL;
	error = durable_call(durable, queue, &word, 1, &reply);
	if (error == 0)
		error = read_stats(reply, stats);
	freeReplyObject(reply);
	return error;
}
