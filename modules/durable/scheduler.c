/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that pumps shards.
 *
 * One turn of it: wait for a timeout, a message or the stop; once a second, say
 * that this scheduler lives and learn who else does; then pump a batch of the
 * shards that are due, and rest for 2 ms, unless something is left over: so the
 * next batch has what becomes due meanwhile. Each shard has a timeout, for when
 * its last pump said that the next is needed; a message makes it due at once. A
 * shard whose pump left something over goes to the end of the line, so none
 * starves another.
 *
 * OWNERSHIP. Each scheduler that covers a shard weighs every name that is
 * registered with a hash of name and shard; the heaviest owns the shard: it
 * pumps it when something is due, and runs its janitor with a pump: once a
 * second, or up to 8 times if there are few shards and as many pumps, so that
 * each takes less time. The others pump it once a second. That saves work, and
 * nothing depends on it: a pump that finds nothing due does nothing, and two at
 * once are one after the other.
 * A name is registered with the range of its shards, "0-15.NAME".
 *
 * THREADS. Everything belongs to the loop's thread from its begin to its end,
 * but stopping, which hwt_durable_scheduler_stop sets before it wakes the loop.
 *
 * EDGES
 *   E:stop  stopping: release by hwt_durable_scheduler_stop, acquire by the
 *           loop, before each turn.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "connection.h"
#include "loop.h"

#define BATCH_SHARDS 16u
#define PUMP_LIMIT 256u /* tasks of one script: it must not take long */
#define JANITOR_LIMIT 128u
#define JANITOR_NS HWT_MS(125) /* between two, at least */
#define JANITOR_KEYS_MAX 1024u /* that it walks over in a second, or once */
#define HINTS_MAX 128u /* queues of one call */
#define LEASE_MS 3000u
#define CLOCK_OFF_MS 10000u /* that the log is told of */
#define GOODBYE_NS HWT_MS(200)
#define REST_NS HWT_MS(2) /* so one batch has what becomes due in this time */
#define SCHEDULER_NAME_MAX 48
#define MEMBER_MAX 64

struct watched {
	struct hwt_durable_scheduler *scheduler;
	hwt_timeout timeout;
	uint64_t back_off_ns;
	uint64_t cleaned_ns; /* when the janitor was last there; 0: never */
	/* The engine's clock as a pump found it, and CLOCK_BOOTTIME then; 0:
	 * not yet. So this scheduler knows how late it must be by now, if the
	 * engine's clock leaps. */
	uint64_t clock_ms, clock_ns;
	uint32_t shard;
	bool owned, in_line;
};

struct hwt_durable_scheduler {
	struct hwt_durable *durable;
	struct loop loop;
	pthread_t thread;
	a64_t stopping;
	char member[MEMBER_MAX + 1];
	uint32_t first, count; /* shards */
	struct watched *watched;
	uint32_t *line; /* a ring of those that are due, by their index */
	uint32_t line_first, line_count;
	hwt_timeout beat, rest;
	bool beat_due, resting;
	int logged_error; /* of a pump, that was logged */
	uint64_t logged_ns;
};

static void
line_add(struct hwt_durable_scheduler *scheduler, struct watched *watched)
{
	uint32_t at;

	if (watched->in_line)
		return;
	watched->in_line = true;
	at = (scheduler->line_first + scheduler->line_count) % scheduler->count;
	scheduler->line[at] = (uint32_t)(watched - scheduler->watched);
	scheduler->line_count++;
}

static struct watched *
line_take(struct hwt_durable_scheduler *scheduler)
{
	struct watched *watched =
	    &scheduler->watched[scheduler->line[scheduler->line_first]];

	scheduler->line_first = (scheduler->line_first + 1) % scheduler->count;
	scheduler->line_count--;
	watched->in_line = false;
	return watched;
}

static void
shard_is_due(hwt_timeout timeout, void *arg)
{
	struct watched *watched = arg;

	(void)timeout;
	line_add(watched->scheduler, watched);
}

static void
beat_is_due(hwt_timeout timeout, void *arg)
{
	struct hwt_durable_scheduler *scheduler = arg;

	(void)timeout;
	scheduler->beat_due = true;
}

static void
rest_is_over(hwt_timeout timeout, void *arg)
{
	struct hwt_durable_scheduler *scheduler = arg;

	(void)timeout;
	scheduler->resting = false;
}

static void
scheduler_notify(void *ctx, uint32_t queue, uint32_t shard)
{
	struct hwt_durable_scheduler *scheduler = ctx;
	uint32_t i;

	(void)queue;
	if (shard == EVERY_SHARD) {
		scheduler->resting = false;
		for (i = 0; i < scheduler->count; i++)
			line_add(scheduler, &scheduler->watched[i]);
		scheduler->beat_due = true;
		return;
	}
	if (shard < scheduler->first ||
	    shard - scheduler->first >= scheduler->count)
		return;
	i = shard - scheduler->first;
	if (scheduler->watched[i].owned)
		line_add(scheduler, &scheduler->watched[i]);
}

/* Who has which shard. */

/* Of a hash and a number: splitmix64. */
static uint64_t
mix(uint64_t hash)
{
	hash += UINT64_C(0x9e3779b97f4a7c15);
	hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
	return hash ^ hash >> 31;
}

static bool
covers(const char *member, uint32_t shard)
{
	unsigned long first, last;
	char *end;

	first = strtoul(member, &end, 10);
	if (*end != '-')
		return false;
	last = strtoul(end + 1, &end, 10);
	return *end == '.' && shard >= first && shard <= last;
}

static uint64_t
weight(const char *member, uint32_t shard)
{
	return mix(id_hash(member, strlen(member)) ^ mix(shard));
}

static bool
is_owner(const struct hwt_durable_scheduler *scheduler,
    const struct redisReply *members, uint32_t shard)
{
	uint64_t own = weight(scheduler->member, shard);
	const struct redisReply *member;
	size_t i;

	for (i = 0; i < members->elements; i++) {
		member = members->element[i];
		if (member->type == REDIS_REPLY_STRING &&
		    covers(member->str, shard) &&
		    weight(member->str, shard) > own)
			return false;
	}
	return true;
}

static void
owners_read(
    struct hwt_durable_scheduler *scheduler, const struct redisReply *members)
{
	struct watched *watched;
	uint32_t i;
	bool owned;

	if (members->type != REDIS_REPLY_ARRAY)
		return;
	for (i = 0; i < scheduler->count; i++) {
		watched = &scheduler->watched[i];
		owned = is_owner(scheduler, members, watched->shard);
		if (owned && !watched->owned)
			line_add(scheduler, watched);
		watched->owned = owned;
	}
}

/* Without an answer, who owns what stays as it was. Whose space is gone, and
 * may be there anew, owns nothing, and has no name that others would heed. */
static void
beat(struct hwt_durable_scheduler *scheduler)
{
	const struct engine_wait wait = loop_no_retry(&scheduler->loop);
	struct number lease;
	bool gone = engine_is_gone(scheduler->loop.engine, 0);
	const struct engine_argument argument[] = {
	    argument_text(gone ? "" : scheduler->member),
	    argument_number(&lease, LEASE_MS),
	};
	struct engine_call call = {.script = SCRIPT_HOSTS,
	    .shard = SHARD_SPACE,
	    .count = 2,
	    .arg = argument};

	scheduler->beat_due = false;
	if (engine_call(scheduler->loop.engine, &call, 1, &wait) == 0)
		owners_read(scheduler, call.reply);
	engine_call_free(&call, 1);
	(void)loop_after(&scheduler->loop, &scheduler->beat, beat_is_due,
	    scheduler, SECOND_NS);
}

/* So that the others need not wait until the lease is over. */
static void
goodbye(struct hwt_durable_scheduler *scheduler)
{
	const struct engine_wait wait = {
	    .timeout_ns = GOODBYE_NS, .stop_fd = -1, .no_retry = true};
	char key[ENGINE_KEY_MAX];
	struct engine_argument argument[3];
	struct engine_call call = {.script = COMMAND,
	    .shard = SHARD_SPACE,
	    .count = 3,
	    .arg = argument};

	engine_key(scheduler->loop.engine, key, SHARD_SPACE, "hosts");
	argument[0] = argument_text("ZREM");
	argument[1] = argument_text(key);
	argument[2] = argument_text(scheduler->member);
	(void)engine_call(scheduler->loop.engine, &call, 1, &wait);
	engine_call_free(&call, 1);
}

/* A batch: the pump of each shard, and before it the janitor of some. */

struct visit {
	struct watched *watched;
	bool cleans;
	struct number random;
	struct number keys;
	struct engine_argument janitor[3], pump[3];
};

struct round {
	struct visit visit[BATCH_SHARDS];
	uint32_t count;
	struct engine_call call[2 * BATCH_SHARDS];
	size_t calls;
	struct number pump_limit, janitor_limit;
};

static uint64_t
clock_must_be_ms(const struct watched *watched)
{
	if (watched->clock_ms == 0)
		return 0;
	return watched->clock_ms +
	    (boot_now_ns() - watched->clock_ns) / NS_PER_MS;
}

static void
call_add(struct round *round, enum script script, const struct watched *watched,
    const struct engine_argument *argument, uint32_t count)
{
	round->call[round->calls++] = (struct engine_call){.script = script,
	    .shard = watched->shard,
	    .count = count,
	    .arg = argument,
	    .trusted_time_ms = clock_must_be_ms(watched)};
}

/* The walk is over all keys of the engine: the more shards, the fewer of them
 * are this one's, and the less time it takes. */
static uint64_t
janitor_after_ns(const struct watched *watched)
{
	uint64_t shards = watched->scheduler->durable->shards;

	if (!watched->owned)
		return 10 * SECOND_NS;
	return shards < SECOND_NS / JANITOR_NS ? shards * JANITOR_NS
					       : SECOND_NS;
}

/* As many a second, however often it comes. */
static uint64_t
janitor_keys(const struct watched *watched, uint64_t now)
{
	uint64_t since_ns = JANITOR_NS;

	if (watched->cleaned_ns != 0)
		since_ns = now - watched->cleaned_ns;
	return since_ns < SECOND_NS ? JANITOR_KEYS_MAX * since_ns / SECOND_NS
				    : JANITOR_KEYS_MAX;
}

static void
round_add(struct round *round, struct watched *watched, uint64_t now)
{
	struct visit *visit = &round->visit[round->count++];

	visit->watched = watched;
	/* Its owner may be alive, and not reach it. */
	visit->cleans = watched->cleaned_ns == 0 ||
	    now - watched->cleaned_ns >= janitor_after_ns(watched);
	if (visit->cleans) {
		visit->janitor[0] =
		    argument_number(&round->janitor_limit, JANITOR_LIMIT);
		visit->janitor[1] =
		    argument_number(&visit->random, random_number() >> 11);
		visit->janitor[2] =
		    argument_number(&visit->keys, janitor_keys(watched, now));
		call_add(round, SCRIPT_JANITOR, watched, visit->janitor, 3);
	}
	visit->pump[0] = argument_number(&round->pump_limit, PUMP_LIMIT);
	visit->pump[1] = argument_text("");
	visit->pump[2] = argument_text("notify");
	/* Of several shards, one hint is for all. */
	call_add(round, SCRIPT_PUMP, watched, visit->pump,
	    watched->scheduler->durable->shards == 1 ? 3 : 2);
}

/* Element at of an array of numbers; 0 if there is none. */
static uint64_t
reply_at(const struct engine_call *call, size_t at)
{
	uint64_t number = 0;

	if (call->error == 0 && call->reply->type == REDIS_REPLY_ARRAY &&
	    at < call->reply->elements)
		(void)reply_number(call->reply->element[at], &number);
	return number;
}

/* {leases over, restored, missed, more}. One that fails is due again in a
 * second. */
static void
janitor_read(
    struct watched *watched, const struct engine_call *call, uint64_t now)
{
	uint64_t missed = reply_at(call, 2);

	watched->cleaned_ns = reply_at(call, 3) != 0 ? 0 : now | 1;
	if (missed != 0)
		engine_log(watched->scheduler->loop.engine, LOG_ERR,
		    "shard %u: %llu due tasks were missed, and are found",
		    watched->shard, (unsigned long long)missed);
}

/* Likely all shards fail for one reason: one of them speaks for all. */
static void
pump_complain(const struct watched *watched, int error)
{
	struct hwt_durable_scheduler *scheduler = watched->scheduler;
	uint64_t now = boot_now_ns();

	if (error == scheduler->logged_error &&
	    now - scheduler->logged_ns < 60 * SECOND_NS)
		return;
	scheduler->logged_error = error;
	scheduler->logged_ns = now;
	engine_log(scheduler->loop.engine, LOG_WARNING,
	    "shard %u, and maybe others, cannot be pumped: %s", watched->shard,
	    error_says(error));
}

static void
pump_failed(struct watched *watched, int error)
{
	struct hwt_durable_scheduler *scheduler = watched->scheduler;

	if (error == -ECANCELED)
		return;
	if (error != -EAGAIN && error != -ECONNREFUSED && error != -ETIMEDOUT)
		pump_complain(watched, error);
	(void)loop_after(&scheduler->loop, &watched->timeout, shard_is_due,
	    watched, back_off_next(&watched->back_off_ns));
}

/* Time stands still: somebody should know. */
static void
clock_complain(
    const struct watched *watched, uint64_t ahead_ms, uint64_t leap_ms)
{
	struct engine *engine = watched->scheduler->loop.engine;

	if (ahead_ms > CLOCK_OFF_MS)
		engine_log(engine, LOG_ERR,
		    "the engine's clock is behind what it was by %llu min: "
		    "nothing is executed until it has caught up; man hwtctl "
		    "(1), clock",
		    (unsigned long long)ahead_ms / 60000 + 1);
	if (leap_ms != 0)
		engine_log(engine, LOG_WARNING,
		    "the engine's clock has leapt ahead by %llu s: nothing is "
		    "executed until it has lasted for 10 s",
		    (unsigned long long)leap_ms / 1000);
}

/* {moved, wait, version, cursor, now, more, ahead, leap, queues, schedules} */
static void
pump_read(struct watched *watched, const struct engine_call *call)
{
	struct hwt_durable_scheduler *scheduler = watched->scheduler;
	uint64_t wait_ns = HWT_MS(reply_at(call, 1));

	if (call->error != 0) {
		pump_failed(watched, call->error);
		return;
	}
	watched->back_off_ns = 0;
	watched->clock_ms = reply_at(call, 4);
	watched->clock_ns = boot_now_ns();
	clock_complain(watched, reply_at(call, 6), reply_at(call, 7));
	if (reply_at(call, 5) != 0 ||
	    (watched->owned && watched->cleaned_ns == 0)) {
		line_add(scheduler, watched);
		return;
	}
	if (!watched->owned || wait_ns > SECOND_NS)
		wait_ns = SECOND_NS;
	(void)loop_after(&scheduler->loop, &watched->timeout, shard_is_due,
	    watched, wait_ns);
}

/* Of each queue that has got something, one of those that wait for it is
 * notified of the shards, if its hint was not written by the pump. */

struct hint {
	const char *queue;
	char shards[8 * BATCH_SHARDS];
};

struct hints {
	size_t count;
	struct hint hint[HINTS_MAX];
};

static void
hints_send(struct hwt_durable_scheduler *scheduler, struct hints *hints)
{
	const struct engine_wait wait = loop_no_retry(&scheduler->loop);
	struct engine_argument argument[2 * HINTS_MAX];
	struct engine_call call = {
	    .script = SCRIPT_NOTIFY, .shard = SHARD_SPACE, .arg = argument};
	size_t i;

	for (i = 0; i < hints->count; i++) {
		argument[2 * i] = argument_text(hints->hint[i].queue);
		argument[2 * i + 1] = argument_text(hints->hint[i].shards);
	}
	call.count = (uint32_t)(2 * hints->count);
	hints->count = 0;
	if (call.count == 0)
		return;
	(void)engine_call(scheduler->loop.engine, &call, 1, &wait);
	engine_call_free(&call, 1);
}

static void
hints_add(struct hwt_durable_scheduler *scheduler, struct hints *hints,
    const char *queue, uint32_t shard)
{
	struct hint *hint = hints->hint;
	size_t length;

	while (hint < hints->hint + hints->count &&
	    strcmp(hint->queue, queue) != 0)
		hint++;
	if (hint == hints->hint + HINTS_MAX) {
		hints_send(scheduler, hints);
		hint = hints->hint;
	}
	if (hint == hints->hint + hints->count)
		hints->hint[hints->count++] = (struct hint){.queue = queue};
	length = strlen(hint->shards);
	(void)snprintf(hint->shards + length, sizeof(hint->shards) - length,
	    "%s%u", length > 0 ? " " : "", shard);
}

/* The names of the queues that a pump has filled without writing a hint. */
static const struct redisReply *
pump_queues(const struct engine_call *call)
{
	const struct redisReply *names;

	if (call->error != 0 || call->reply->type != REDIS_REPLY_ARRAY ||
	    call->reply->elements < 9)
		return NULL;
	names = call->reply->element[8];
	return names->type == REDIS_REPLY_ARRAY ? names : NULL;
}

static void
tell_workers(struct hwt_durable_scheduler *scheduler, const struct round *round)
{
	const struct redisReply *names;
	struct hints hints;
	size_t i, at;

	hints.count = 0;
	for (i = 0; i < round->calls; i++) {
		names = round->call[i].script == SCRIPT_PUMP
		    ? pump_queues(&round->call[i])
		    : NULL;
		for (at = 0; names != NULL && at < names->elements; at++) {
			if (names->element[at]->type == REDIS_REPLY_STRING)
				hints_add(scheduler, &hints,
				    names->element[at]->str,
				    round->call[i].shard);
		}
	}
	hints_send(scheduler, &hints);
}

/* What a schedule needs is known by the next pump. If nothing could be done,
 * that is a second later. */
static void
occur(struct watched *watched)
{
	struct hwt_durable_scheduler *scheduler = watched->scheduler;
	const struct engine_wait wait = loop_no_retry(&scheduler->loop);

	if (schedules_occur(scheduler->durable, watched->shard, &wait))
		line_add(scheduler, watched);
}

static void
pump(struct hwt_durable_scheduler *scheduler)
{
	const struct engine_wait wait = loop_no_retry(&scheduler->loop);
	struct round round = {0};
	const struct engine_call *call = round.call;
	uint64_t now;
	uint32_t i;

	if (hwt_now(scheduler->loop.timer, &now) != 0)
		return;
	while (round.count < BATCH_SHARDS && scheduler->line_count > 0)
		round_add(&round, line_take(scheduler), now);
	(void)engine_call(
	    scheduler->loop.engine, round.call, round.calls, &wait);
	tell_workers(scheduler, &round);
	for (i = 0; i < round.count; i++) {
		if (round.visit[i].cleans)
			janitor_read(round.visit[i].watched, call++, now);
		pump_read(round.visit[i].watched, call++);
		if (reply_at(call - 1, 9) != 0)
			occur(round.visit[i].watched);
	}
	engine_call_free(round.call, round.calls);
	/* Unless one of them has more, or not all that were due had room. */
	scheduler->resting = scheduler->line_count == 0 &&
	    loop_after(&scheduler->loop, &scheduler->rest, rest_is_over,
		scheduler, REST_NS) == 0;
}

static void *
scheduler_run(void *arg)
{
	struct hwt_durable_scheduler *scheduler = arg;

	/* E:stop acquire */
	while (a64_load_acquire(&scheduler->stopping) == 0) {
		if (scheduler->beat_due)
			beat(scheduler);
		if (scheduler->line_count > 0 && !scheduler->resting)
			pump(scheduler);
		scheduler->loop.expects = scheduler->resting;
		loop_turn(&scheduler->loop,
		    !scheduler->beat_due &&
			(scheduler->line_count == 0 || scheduler->resting));
	}
	goodbye(scheduler);
	return NULL;
}

/* Starting and stopping. */

static bool
options_are_valid(const struct hwt_durable_scheduler_options *options,
    const struct hwt_durable *durable)
{
	return options->flags == 0 && RESERVED_IS_ZERO(options) &&
	    options->first_shard <= options->last_shard &&
	    options->last_shard < durable->shards &&
	    (options->name == NULL ||
		name_is_valid(options->name, SCHEDULER_NAME_MAX));
}

static void
scheduler_name(struct hwt_durable_scheduler *scheduler,
    const struct hwt_durable_scheduler_options *options)
{
	char made[NAME_MAX_LENGTH + 1];
	const char *name = options->name;

	if (name == NULL) {
		name_make(made);
		name = made;
	}
	(void)snprintf(scheduler->member, sizeof(scheduler->member),
	    "%u-%u.%.48s", scheduler->first,
	    scheduler->first + scheduler->count - 1, name);
}

static int
watch_shards(struct hwt_durable_scheduler *scheduler,
    const struct hwt_durable_scheduler_options *options)
{
	bool all = options->first_shard == 0 && options->last_shard == 0;
	uint32_t i;

	scheduler->first = options->first_shard;
	scheduler->count = all ? scheduler->durable->shards
			       : options->last_shard - options->first_shard + 1;
	scheduler->watched =
	    calloc(scheduler->count, sizeof(*scheduler->watched));
	scheduler->line = calloc(scheduler->count, sizeof(*scheduler->line));
	if (scheduler->watched == NULL || scheduler->line == NULL)
		return -ENOMEM;
	for (i = 0; i < scheduler->count; i++)
		scheduler->watched[i] = (struct watched){.scheduler = scheduler,
		    .shard = scheduler->first + i,
		    .owned = true};
	scheduler_name(scheduler, options);
	return 0;
}

static void
scheduler_free(struct hwt_durable_scheduler *scheduler)
{
	uint32_t i;

	if (scheduler->loop.mailbox != NULL) {
		for (i = 0; i < scheduler->count; i++)
			loop_cancel(
			    &scheduler->loop, &scheduler->watched[i].timeout);
		loop_cancel(&scheduler->loop, &scheduler->beat);
		loop_cancel(&scheduler->loop, &scheduler->rest);
		loop_destroy(&scheduler->loop);
	}
	free(scheduler->watched);
	free(scheduler->line);
	free(scheduler);
}

/* The first timeout tells whether there is a timer that runs. */
static int
scheduler_begin(struct hwt_durable_scheduler *scheduler)
{
	int error;

	scheduler->loop.engine = scheduler->durable->engine;
	scheduler->loop.channel = "due";
	scheduler->loop.notify = scheduler_notify;
	scheduler->loop.ctx = scheduler;
	error = loop_create(&scheduler->loop);
	if (error == 0)
		error = loop_after(&scheduler->loop, &scheduler->beat,
		    beat_is_due, scheduler, SECOND_NS);
	if (error == 0) {
		scheduler_notify(scheduler, EVERY_QUEUE, EVERY_SHARD);
		error = thread_begin(
		    &scheduler->thread, scheduler_run, scheduler, "hwt-sched");
	}
	return error;
}

int
hwt_durable_scheduler_start(struct hwt_durable_scheduler **scheduler,
    struct hwt_durable *durable,
    const struct hwt_durable_scheduler_options *options)
{
	static const struct hwt_durable_scheduler_options defaults;
	struct hwt_durable_scheduler *made;
	int error = durable_enter(durable);

	if (error != 0)
		return error;
	if (options == NULL)
		options = &defaults;
	if (scheduler == NULL || !options_are_valid(options, durable))
		return -EINVAL;
	made = calloc(1, sizeof(*made));
	if (made == NULL)
		return -ENOMEM;
	made->durable = durable;
	made->loop.timer = durable_begin_use(durable);
	error = watch_shards(made, options);
	if (error == 0)
		error = scheduler_begin(made);
	if (error != 0) {
		scheduler_free(made);
		durable_end_use(durable);
		return error;
	}
	*scheduler = made;
	return 0;
}

int
hwt_durable_scheduler_stop(struct hwt_durable_scheduler *scheduler)
{
	struct hwt_durable *durable;
	int error;

	if (scheduler == NULL)
		return 0;
	durable = scheduler->durable;
	error = durable_enter(durable);
	if (error != 0)
		return error;
	/* E:stop release */
	a64_store_release(&scheduler->stopping, 1);
	loop_hurry(&scheduler->loop);
	loop_wake(&scheduler->loop);
	(void)pthread_join(scheduler->thread, NULL);
	scheduler_free(scheduler);
	durable_end_use(durable);
	return 0;
}
