/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, closing, and what a producer calls.
 *
 * A handle is written by hwt_durable_open alone, but for the number of those
 * who use it. Any number of threads may call: each call has its own batch, and
 * what they share is in struct engine.
 *
 * EDGES
 *   E:user  what a scheduler or worker did with the handle: release as it ends
 *           its use, acquire by hwt_durable_close, which frees the handle.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "durable.h"

#define SLOTS_MIN 8u
#define SLOTS_MAX (1u << 20)
#define REPLICAS_MAX 10u
#define OPEN_FLAGS (HWT_DURABLE_CREATE | HWT_DURABLE_REPAIR)
#define HOUR_NS HWT_SEC(3600)
#define ATTEMPTS_DEFAULT 20u
#define TASK_ARGUMENTS 7u

int
durable_enter(const struct hwt_durable *durable)
{
	if (durable == NULL)
		return -EINVAL;
	return durable->owner == getpid() ? 0 : -EOWNERDEAD;
}

struct engine *
durable_engine(struct hwt_durable *durable)
{
	return durable->engine;
}

uint32_t
durable_shards(const struct hwt_durable *durable)
{
	return durable->shards;
}

uint32_t
durable_shard_of(
    const struct hwt_durable *durable, const char *id, size_t id_length)
{
	return (uint32_t)(id_hash(id, id_length) % durable->shards);
}

struct hwt *
durable_begin_use(struct hwt_durable *durable)
{
	(void)a64_add_seq(&durable->users, 1);
	return durable->timer;
}

void
durable_end_use(struct hwt_durable *durable)
{
	/* E:user release */
	(void)a64_add_seq(&durable->users, UINT64_MAX);
}

/* The real-time clock, as Unix time. */
static uint64_t
clock_ns(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Opening. */

static bool
is_within(uint64_t value, uint64_t low, uint64_t high)
{
	return value >= low && value <= high;
}

static bool
shape_is_valid(const struct hwt_durable_options *options)
{
	return options->shards <= SHARDS_MAX &&
	    (options->slots == 0 ||
		is_within(options->slots, SLOTS_MIN, SLOTS_MAX)) &&
	    (options->slots & (options->slots - 1)) == 0 &&
	    options->tick_ns <= HOUR_NS && options->tick_ns % NS_PER_MS == 0 &&
	    options->retention_ns <= HWT_DURABLE_DELAY_MAX;
}

static bool
options_are_valid(const struct hwt_durable_options *options)
{
	return shape_is_valid(options) && (options->flags & ~OPEN_FLAGS) == 0 &&
	    options->level <= HWT_DURABLE_REPLICATED &&
	    options->replicas <= REPLICAS_MAX &&
	    (options->timeout_ns == 0 ||
		is_within(options->timeout_ns, NS_PER_MS, HOUR_NS)) &&
	    (options->space == NULL ||
		name_is_valid(options->space, HWT_DURABLE_SPACE_MAX)) &&
	    (options->log == NULL || options->log->write != NULL) &&
	    RESERVED_IS_ZERO(options);
}

static int
open_space(struct hwt_durable *made, const struct hwt_durable_options *options)
{
	int error = engine_open(&made->engine, options);

	if (error != 0)
		return error;
	error = space_open(made->engine, options, &made->shards);
	if (error != 0)
		engine_close(made->engine);
	return error;
}

/* A timer without timeouts has no thread yet, and costs nothing while nothing
 * is due; what is due is late by its tick. */
static int
own_timer_create(struct hwt_durable *made)
{
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};
	int error = hwt_create(&made->own_timer, &options);

	made->timer = made->own_timer;
	return error == -EAGAIN ? -ENOMEM : error;
}

static void
own_timer_destroy(struct hwt_durable *durable)
{
	if (durable->own_timer == NULL)
		return;
	(void)!hwt_stop(durable->own_timer, NULL);
	(void)!hwt_destroy(durable->own_timer);
}

int
hwt_durable_open(
    struct hwt_durable **durable, const struct hwt_durable_options *options)
{
	static const struct hwt_durable_options defaults;
	struct hwt_durable *made;
	int error;

	if (options == NULL)
		options = &defaults;
	if (durable == NULL || !options_are_valid(options))
		return -EINVAL;
	made = calloc(1, sizeof(*made));
	if (made == NULL)
		return -ENOMEM;
	made->owner = getpid();
	made->timer = options->timer;
	error = made->timer != NULL ? 0 : own_timer_create(made);
	if (error == 0)
		error = open_space(made, options);
	if (error != 0) {
		own_timer_destroy(made);
		free(made);
		return error;
	}
	(void)pthread_mutex_init(&made->workers_lock, NULL);
	*durable = made;
	return 0;
}

int
hwt_durable_close(struct hwt_durable *durable)
{
	int error;

	if (durable == NULL)
		return 0;
	error = durable_enter(durable);
	if (error != 0)
		return error;
	/* E:user acquire */
	if (a64_load_acquire(&durable->users) != 0)
		return -EBUSY;
	engine_close(durable->engine);
	own_timer_destroy(durable);
	(void)pthread_mutex_destroy(&durable->workers_lock);
	free(durable);
	return 0;
}

/* Adding. */

/* Of the words that item_options writes. */
#define OPTIONS_LENGTH 160

struct item {
	uint32_t shard, index; /* of the task, as the caller has it */
	struct number time, attempts;
	char options[OPTIONS_LENGTH];
};

/* Of payloads in one script, which takes no more: see DESIGN. */
#define SCRIPT_BYTES_MAX (1u << 20)

struct add {
	struct hwt_durable *durable;
	const struct hwt_durable_task *task;
	size_t count;
	int *result;
	struct item *item; /* by shard */
	struct engine_argument *argument;
	struct engine_call *call;
	size_t calls;
	const struct engine_wait *wait;
	uint64_t read_ms; /* of occurrences: see scripts/add.lua; or 0 */
};

static int
compare_items(const void *a, const void *b)
{
	const struct item *x = a;
	const struct item *y = b;

	if (x->shard != y->shard)
		return x->shard < y->shard ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* Words, each with a space before the next one. */
static struct engine_argument
item_options(const struct add *add, struct item *item,
    const struct hwt_durable_task *task)
{
	char *to = item->options, *end = to + sizeof(item->options);
	struct task_retries retries;

	if (add->read_ms != 0)
		to += snprintf(to, (size_t)(end - to), " occurrence=%" PRIu64,
		    add->read_ms);
	if (task->flags & HWT_DURABLE_REPLACE)
		to += snprintf(to, (size_t)(end - to), " replace");
	if (task->flags & (HWT_DURABLE_HIGH | HWT_DURABLE_LOW))
		to += snprintf(to, (size_t)(end - to),
		    task->flags & HWT_DURABLE_HIGH ? " high" : " low");
	if (task->expires_ns != 0)
		to += snprintf(to, (size_t)(end - to), " expires-%s=%" PRIu64,
		    task->flags & HWT_DURABLE_EXPIRES_AT ? "at" : "in",
		    whole_ms(task->expires_ns));
	if (task_has_retries(task)) {
		task_retries(task, &retries);
		to += snprintf(to, (size_t)(end - to),
		    " retry=%" PRIu64 ",%" PRIu64 ",%" PRIu64, retries.first_ms,
		    retries.thousandths, retries.most_ms);
	}
	return argument_text(to == item->options ? "" : item->options + 1);
}

/* id queue mode time attempts payload options */
static void
item_write(const struct add *add, struct engine_argument *argument,
    struct item *item, const struct hwt_durable_task *task)
{
	argument[0] = (struct engine_argument){task->id, task->id_length};
	argument[1] = argument_text(task->queue);
	argument[2] = argument_text(task->flags & HWT_DURABLE_AT ? "at" : "in");
	argument[3] = argument_number(&item->time, whole_ms(task->delay_ns));
	argument[4] = argument_number(&item->attempts,
	    task->max_attempts != 0 ? task->max_attempts : ATTEMPTS_DEFAULT);
	argument[5] =
	    (struct engine_argument){task->payload, task->payload_length};
	argument[6] = item_options(add, item, task);
}

static void
add_sort(struct add *add)
{
	size_t i;

	for (i = 0; i < add->count; i++)
		add->item[i] = (struct item){.index = (uint32_t)i,
		    .shard = durable_shard_of(
			add->durable, add->task[i].id, add->task[i].id_length)};
	qsort(add->item, add->count, sizeof(*add->item), compare_items);
}

/* A call for each shard, or several with long payloads. */
static void
add_write(struct add *add)
{
	const struct hwt_durable_task *task;
	struct engine_argument *argument = add->argument;
	struct engine_call *call = NULL;
	size_t i, bytes = 0;

	add_sort(add);
	for (i = 0; i < add->count; i++) {
		task = &add->task[add->item[i].index];
		item_write(add, argument, &add->item[i], task);
		if (call == NULL || call->shard != add->item[i].shard ||
		    bytes + task->payload_length > SCRIPT_BYTES_MAX) {
			call = &add->call[add->calls++];
			*call = (struct engine_call){.script = SCRIPT_ADD,
			    .shard = add->item[i].shard,
			    .arg = argument};
			bytes = 0;
		}
		bytes += task->payload_length;
		call->count += TASK_ARGUMENTS;
		argument += TASK_ARGUMENTS;
	}
}

/* The result of one call: item is its first. */
static void
add_read_call(
    struct add *add, const struct engine_call *call, const struct item *item)
{
	size_t count = call->count / TASK_ARGUMENTS;
	bool sound = call->error == 0 &&
	    call->reply->type == REDIS_REPLY_ARRAY &&
	    call->reply->elements == count;
	uint64_t number = 0;
	size_t i;
	int result;

	for (i = 0; i < count; i++) {
		result = call->error != 0 ? call->error : -EPROTO;
		if (result == -EINVAL && call->index != i + 1)
			result = -ECANCELED;
		if (sound && reply_number(call->reply->element[i], &number) &&
		    number <= HWT_DURABLE_QUARANTINED)
			result = (int)number;
		add->result[item[i].index] = result;
	}
}

static void
add_read(struct add *add)
{
	const struct item *item = add->item;
	size_t i;

	for (i = 0; i < add->calls; i++) {
		add_read_call(add, &add->call[i], item);
		item += add->call[i].count / TASK_ARGUMENTS;
	}
}

static int
add_all(struct add *add)
{
	add->item = calloc(add->count, sizeof(*add->item));
	add->argument =
	    calloc(add->count * TASK_ARGUMENTS, sizeof(*add->argument));
	add->call = calloc(add->count, sizeof(*add->call));
	if (add->item == NULL || add->argument == NULL || add->call == NULL)
		return -ENOMEM;
	add_write(add);
	(void)engine_call(
	    add->durable->engine, add->call, add->calls, add->wait);
	add_read(add);
	engine_call_free(add->call, add->calls);
	return 0;
}

/* Whether all can be sent. */
static bool
add_check(struct add *add)
{
	uint64_t now = clock_ns();
	bool valid = true;
	size_t i;

	for (i = 0; i < add->count; i++) {
		add->result[i] =
		    task_is_valid(&add->task[i], now) ? -ECANCELED : -EINVAL;
		valid &= add->result[i] != -EINVAL;
	}
	return valid;
}

/* The first error; that of what was given up only because of another is the
 * last that counts. */
static int
add_result(const struct add *add)
{
	int error = 0;
	size_t i;

	for (i = 0; i < add->count; i++) {
		if (add->result[i] < 0 && (error == 0 || error == -ECANCELED))
			error = add->result[i];
	}
	return error;
}

int
hwt_durable_add(struct hwt_durable *durable, size_t count,
    const struct hwt_durable_task *tasks, int *results)
{
	const struct engine_wait wait = {.stop_fd = -1, .replicated = true};

	return durable_add(durable, count, tasks, results, &wait, 0);
}

int
durable_add(struct hwt_durable *durable, size_t count,
    const struct hwt_durable_task *tasks, int *results,
    const struct engine_wait *wait, uint64_t read_ms)
{
	int room[HWT_DURABLE_BATCH_MAX];
	struct add add = {.durable = durable,
	    .task = tasks,
	    .count = count,
	    .result = room,
	    .wait = wait,
	    .read_ms = read_ms};
	int error = durable_enter(durable);
	size_t i;

	if (error != 0)
		return error;
	if (count > HWT_DURABLE_BATCH_MAX || (tasks == NULL && count > 0))
		return -EINVAL;
	if (count == 0)
		return 0;
	if (results != NULL)
		add.result = results;
	if (add_check(&add))
		error = add_all(&add);
	for (i = 0; i < count && error != 0; i++)
		add.result[i] = error;
	free(add.item);
	free(add.argument);
	free(add.call);
	return add_result(&add);
}

/* One task. */

static bool
id_is_valid(const char *id, size_t id_length)
{
	return id != NULL && id_length >= 1 && id_length <= HWT_DURABLE_ID_MAX;
}

/* 0, or a negative number: the answers of scripts that change one task. */
static int
one_result(const struct engine_call *call)
{
	switch (call->reply->type == REDIS_REPLY_INTEGER ? call->reply->integer
							 : 1) {
	case 0:
		return 0;
	case -2:
		return -ENOENT;
	case -22:
		return -EINVAL;
	case -115:
		return -EINPROGRESS;
	case -114:
		return -EALREADY;
	default:
		return -EPROTO;
	}
}

static int
change_one(struct hwt_durable *durable, enum script script,
    const struct engine_argument *argument, uint32_t count)
{
	const struct engine_wait wait = {.stop_fd = -1, .replicated = true};
	struct engine_call call = {.script = script,
	    .shard =
		durable_shard_of(durable, argument[0].data, argument[0].length),
	    .count = count,
	    .arg = argument};
	int error = engine_call(durable->engine, &call, 1, &wait);

	if (error == 0)
		error = one_result(&call);
	/* A delay counts anew, and may now be longer than the task lives. */
	if (error == -EINVAL && engine_call_was_lost(&call))
		error = -ETIMEDOUT;
	engine_call_free(&call, 1);
	return error;
}

int
hwt_durable_cancel(
    struct hwt_durable *durable, const char *id, size_t id_length)
{
	const struct engine_argument argument = {id, id_length};
	int error = durable_enter(durable);

	if (error != 0)
		return error;
	if (!id_is_valid(id, id_length))
		return -EINVAL;
	return change_one(durable, SCRIPT_CANCEL, &argument, 1);
}

int
hwt_durable_reschedule(struct hwt_durable *durable, const char *id,
    size_t id_length, uint64_t delay_or_due_ns, uint32_t flags)
{
	struct engine_argument argument[3];
	struct number number;
	int error = durable_enter(durable);

	if (error != 0)
		return error;
	if (!id_is_valid(id, id_length) || (flags & ~HWT_DURABLE_AT) != 0 ||
	    !time_is_valid(delay_or_due_ns, flags, clock_ns()))
		return -EINVAL;
	argument[0] = (struct engine_argument){id, id_length};
	argument[1] = argument_text(flags & HWT_DURABLE_AT ? "at" : "in");
	argument[2] = argument_number(&number, whole_ms(delay_or_due_ns));
	return change_one(durable, SCRIPT_RESCHEDULE, argument, 3);
}

static int
get_read(const struct redisReply *reply, struct hwt_durable_info *info,
    void *payload, size_t payload_size)
{
	const char *found;

	if (reply->type == REDIS_REPLY_NIL)
		return -ENOENT;
	if (reply->type != REDIS_REPLY_STRING)
		return -EPROTO;
	record_read(info, reply->str, reply->len, &found);
	if (payload != NULL && info->payload_length > 0)
		memcpy(payload, found,
		    info->payload_length < payload_size ? info->payload_length
							: payload_size);
	return 0;
}

int
hwt_durable_get(struct hwt_durable *durable, const char *id, size_t id_length,
    struct hwt_durable_info *info, void *payload, size_t payload_size)
{
	const struct engine_argument argument = {id, id_length};
	struct engine_call call = {
	    .script = SCRIPT_GET, .count = 1, .arg = &argument, .reads = true};
	int error = durable_enter(durable);

	if (error != 0)
		return error;
	if (!id_is_valid(id, id_length) || info == NULL)
		return -EINVAL;
	call.shard = durable_shard_of(durable, id, id_length);
	error = engine_call(durable->engine, &call, 1, NULL);
	if (error == 0)
		error = get_read(call.reply, info, payload, payload_size);
	engine_call_free(&call, 1);
	return error;
}

/* Counters. */

#define AT(field) offsetof(struct hwt_durable_stats, field)
static const struct {
	const char *name;
	size_t offset;
} counters[] = {
    {"added", AT(added)},
    {"succeeded", AT(succeeded)},
    {"failed", AT(failed)},
    {"cancelled", AT(cancelled)},
    {"dropped", AT(dropped)},
    {"begun", AT(begun)},
    {"retried", AT(retried)},
    {"given_back", AT(given_back)},
    {"expired", AT(expired_leases)},
    {"pending", AT(pending)},
    {"delivered", AT(delivered)},
    {"running", AT(running)},
    {"quarantined", AT(quarantined)},
    {"dead", AT(dead)},
    {"missed", AT(missed)},
};

/* In milliseconds; the greatest of all shards. */
static const struct {
	const char *name;
	size_t offset;
} times[] = {
    {"lag", AT(lag_ns)},
    {"ahead", AT(clock_ahead_ns)},
    {"leap", AT(clock_leap_ns)},
};

static void
stats_add(struct hwt_durable_stats *stats, const char *name, uint64_t value)
{
	uint64_t sum;
	char *at;
	size_t i;

	for (i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		if (strcmp(name, times[i].name) != 0)
			continue;
		at = (char *)stats + times[i].offset;
		memcpy(&sum, at, sizeof(sum));
		if (value * NS_PER_MS > sum)
			sum = value * NS_PER_MS;
		memcpy(at, &sum, sizeof(sum));
	}
	for (i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
		if (strcmp(name, counters[i].name) != 0)
			continue;
		at = (char *)stats + counters[i].offset;
		memcpy(&sum, at, sizeof(sum));
		sum += value;
		memcpy(at, &sum, sizeof(sum));
	}
}

static int
stats_read(struct hwt_durable_stats *stats, const struct redisReply *reply)
{
	uint64_t value;
	size_t i;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements % 2 != 0)
		return -EPROTO;
	for (i = 0; i < reply->elements; i += 2) {
		if (reply->element[i]->type != REDIS_REPLY_STRING)
			return -EPROTO;
		if (reply_number(reply->element[i + 1], &value))
			stats_add(stats, reply->element[i]->str, value);
	}
	return 0;
}

int
hwt_durable_read_stats(
    struct hwt_durable *durable, struct hwt_durable_stats *stats)
{
	int error = durable_enter(durable);

	if (error != 0)
		return error;
	if (stats == NULL)
		return -EINVAL;
	return durable_read_stats(durable, stats, NULL);
}

int
durable_read_stats(struct hwt_durable *durable, struct hwt_durable_stats *stats,
    const struct engine_wait *wait)
{
	struct engine_call *call;
	uint32_t i, connected, awaited;
	int error;

	memset(stats, 0, sizeof(*stats));
	call = calloc(durable->shards, sizeof(*call));
	if (call == NULL)
		return -ENOMEM;
	for (i = 0; i < durable->shards; i++)
		call[i] = (struct engine_call){
		    .script = SCRIPT_STAT, .shard = i, .reads = true};
	error = engine_call(durable->engine, call, durable->shards, wait);
	for (i = 0; i < durable->shards && error == 0; i++)
		error = stats_read(stats, call[i].reply);
	engine_replicas(durable->engine, &connected, &awaited);
	stats->replicas = connected;
	stats->replicas_awaited = awaited;
	engine_call_free(call, durable->shards);
	free(call);
	return error;
}
