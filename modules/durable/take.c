/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking: which shards may have something, and how many tasks of them.
 *
 * HOW MUCH IS TAKEN. As many as threads are idle, and ahead of that what the
 * threads will call within AHEAD_NS, as their callbacks took lately: none if
 * they take long. None while too many outcomes cannot be reported, or while
 * outstanding_max attempts have no outcome. What waits
 * for longer than WAITING_NS (job.c) all the same is released, for another
 * worker.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "worker_internal.h"

#define AHEAD_NS HWT_MS(10)
#define AHEAD_MAX 256u
#define TAKE_SHARDS 8u /* that a round of takes asks */
#define PASSED_MAX 64u /* shards of a hint; more are all */
#define POLL_MS "900" /* until another worker may poll */

static uint32_t
sources(const struct hwt_durable_worker *worker)
{
	return worker->queues * worker->durable->shards;
}

void
sources_notify(void *ctx, uint32_t queue, uint32_t shard)
{
	struct hwt_durable_worker *worker = ctx;
	uint32_t shards = worker->durable->shards;
	uint32_t i;

	for (i = 0; i < sources(worker); i++) {
		if ((shard == EVERY_SHARD || shard == i % shards) &&
		    (queue == EVERY_QUEUE || queue == i / shards) &&
		    !worker->source[i].notified) {
			worker->source[i].notified = true;
			worker->notified_count++;
		}
	}
}

static uint32_t
ahead(const struct hwt_durable_worker *worker)
{
	uint64_t count;

	if (!worker->measured)
		return 0;
	count = AHEAD_NS * worker->threads / (worker->mean_ns + 1);
	return count > AHEAD_MAX ? AHEAD_MAX : (uint32_t)count;
}

uint32_t
take_needed(struct hwt_durable_worker *worker)
{
	uint32_t wanted, there, room;

	if (worker->ended > ENDED_MAX)
		return 0;
	lock(worker);
	wanted = worker->stopping ? 0 : worker->threads + ahead(worker);
	there = worker->running + worker->ready.count;
	room = worker->later + there;
	unlock(worker);
	room =
	    worker->outstanding_max > room ? worker->outstanding_max - room : 0;
	wanted = wanted > there ? wanted - there : 0;
	wanted = wanted > room ? room : wanted;
	return wanted > REPORT_MAX ? REPORT_MAX : wanted;
}

/* Whether it is this worker that polls for all of a queue in this second: a key
 * that expires says that somebody does. */
static bool
may_poll(struct hwt_durable_worker *worker, uint32_t queue)
{
	const struct engine_wait wait = worker_wait(worker);
	char key[ENGINE_KEY_MAX], name[HWT_DURABLE_QUEUE_MAX + 8];
	struct engine_argument argument[] = {
	    argument_text("SET"),
	    {NULL, 0},
	    argument_text(worker->name),
	    argument_text("PX"),
	    argument_text(POLL_MS),
	    argument_text("NX"),
	};
	struct engine_call call = {.script = COMMAND,
	    .shard = SHARD_SPACE,
	    .count = 6,
	    .arg = argument};
	bool may;

	(void)snprintf(name, sizeof(name), "p:%s", worker->served[queue].queue);
	engine_key(worker->loop.engine, key, SHARD_SPACE, name);
	argument[1] = argument_text(key);
	/* If the node of that key does not answer, others may. */
	may = engine_call(worker->loop.engine, &call, 1, &wait) != 0 ||
	    call.reply->type != REDIS_REPLY_NIL;
	engine_call_free(&call, 1);
	return may;
}

/* Without hints, each worker polls; otherwise one of those that have nothing to
 * do. What has failed is tried again by who has tried. */
static void
poll_shards(struct hwt_durable_worker *worker)
{
	bool asks = take_needed(worker) > 0;
	uint32_t i;

	for (i = 0; i < worker->queues; i++) {
		if (worker->loop.subscription == NULL ||
		    (asks && may_poll(worker, i)))
			sources_notify(worker, i, EVERY_SHARD);
	}
	for (i = 0; i < sources(worker); i++) {
		if (worker->source[i].failed)
			sources_notify(worker, i / worker->durable->shards,
			    i % worker->durable->shards);
	}
}

void
take_poll(struct hwt_durable_worker *worker)
{
	poll_shards(worker);
	jobs_release(worker, false);
	jobs_check(worker);
	stats_publish(worker);
	worker->looked_ns = boot_now_ns();
	(void)loop_wake_after(&worker->loop, &worker->look, SECOND_NS);
}

struct take {
	uint32_t count;
	struct number token[TAKE_SHARDS], received[TAKE_SHARDS];
	struct number limit_text, visibility;
	struct engine_argument argument[TAKE_SHARDS][6];
	struct engine_call call[TAKE_SHARDS];
	uint32_t source[TAKE_SHARDS];
	uint32_t limit; /* tasks of each */
};

/* The queue after the one before, and when all had their turn the next shard:
 * so a queue waits for one take of each other. */
static uint32_t
source_next(struct hwt_durable_worker *worker)
{
	uint32_t turn = worker->next_source++ % sources(worker);

	return turn % worker->queues * worker->durable->shards +
	    turn / worker->queues;
}

/* The sources that were notified, in turn. */
static void
take_write(struct hwt_durable_worker *worker, struct take *take, uint32_t need)
{
	uint32_t shards = worker->durable->shards;
	uint32_t most = need < TAKE_SHARDS ? need : TAKE_SHARDS;
	struct engine_argument *argument;
	const struct served *served;
	struct source *source;
	uint32_t looked, at;

	if (most > worker->notified_count)
		most = worker->notified_count;
	take->limit = need / most;
	take->count = 0;
	for (looked = 0; looked < sources(worker) && take->count < most;
	     looked++) {
		at = source_next(worker);
		source = &worker->source[at];
		served = &worker->served[at / shards];
		if (!source->notified)
			continue;
		argument = take->argument[take->count];
		argument[0] = argument_text(served->queue);
		argument[1] = argument_text(served->taker);
		argument[2] =
		    argument_number(&take->token[take->count], ++source->token);
		argument[3] = argument_number(
		    &take->received[take->count], source->received);
		argument[4] = argument_number(&take->limit_text, take->limit);
		argument[5] = argument_number(
		    &take->visibility, whole_ms(worker->visibility_ns));
		take->source[take->count] = at;
		take->call[take->count++] =
		    (struct engine_call){.script = SCRIPT_TAKE,
			.shard = at % shards,
			.count = 6,
			.arg = argument};
	}
}

static void
source_quiet(struct hwt_durable_worker *worker, uint32_t at)
{
	worker->source[at].notified = false;
	worker->notified_count--;
}

/* Which shards of a queue were notified, which they are no more. */
static bool
pass_on_write(struct hwt_durable_worker *worker, uint32_t queue,
    char shards[PASSED_MAX * 8])
{
	uint32_t first = queue * worker->durable->shards, count = 0, i;
	int length = 0;

	shards[0] = '\0';
	for (i = 0; i < worker->durable->shards; i++) {
		if (!worker->source[first + i].notified)
			continue;
		source_quiet(worker, first + i);
		if (++count <= PASSED_MAX)
			length += snprintf(shards + length,
			    (size_t)PASSED_MAX * 8 - (size_t)length, "%s%u",
			    length > 0 ? " " : "", i);
	}
	if (count > PASSED_MAX)
		memcpy(shards, "*", 2);
	return count > 0;
}

/* Whether nothing was notified of one of its queues. A hint of another is no
 * loss: it takes what is there, or passes it on. */
bool
take_awaits_hint(const struct hwt_durable_worker *worker)
{
	uint32_t shards = worker->durable->shards;
	const struct source *source = worker->source;
	uint32_t queue, i;

	for (queue = 0; queue < worker->queues; queue++, source += shards) {
		for (i = 0; i < shards && !source[i].notified; i++)
			;
		if (i == shards)
			return true;
	}
	return false;
}

/* A worker without a thread for what was notified notifies another. */
void
take_pass_on(struct hwt_durable_worker *worker)
{
	const struct engine_wait wait = worker_wait(worker);
	char shards[HWT_DURABLE_QUEUES_MAX][PASSED_MAX * 8];
	struct engine_argument argument[2 * HWT_DURABLE_QUEUES_MAX];
	struct engine_call call = {
	    .script = SCRIPT_NOTIFY, .shard = SHARD_SPACE, .arg = argument};
	uint32_t i;

	for (i = 0; i < worker->queues; i++) {
		if (!pass_on_write(worker, i, shards[i]))
			continue;
		argument[call.count++] = argument_text(worker->served[i].queue);
		argument[call.count++] = argument_text(shards[i]);
	}
	(void)engine_call(worker->loop.engine, &call, 1, &wait);
	engine_call_free(&call, 1);
}

/* When the script stopped before the limit, and not for want of entries, it may
 * say after how many ms it is to be asked again. 1, at once: payloads are long,
 * or there are many entries that nobody waits for. More: the queue has a limit.
 * 0: it says nothing. */
static uint64_t
take_again_ms(const struct redisReply *reply)
{
	const struct redisReply *last =
	    reply->elements > 0 ? reply->element[reply->elements - 1] : NULL;

	return last != NULL && last->type == REDIS_REPLY_INTEGER &&
		last->integer > 0
	    ? (uint64_t)last->integer
	    : 0;
}

static void again_is_due(hwt_timeout timeout, void *arg);

/* For the first of the sources that wait for the time of a limit. */
static void
await_limits(struct hwt_durable_worker *worker)
{
	uint64_t first_ns = HWT_NEVER, now_ns = boot_now_ns();
	uint32_t i;

	for (i = 0; i < sources(worker); i++) {
		if (worker->source[i].again_ns != 0 &&
		    worker->source[i].again_ns < first_ns)
			first_ns = worker->source[i].again_ns;
	}
	if (first_ns != HWT_NEVER)
		(void)loop_after(&worker->loop, &worker->ask_again,
		    again_is_due, worker,
		    first_ns > now_ns ? first_ns - now_ns : 0);
}

static void
again_is_due(hwt_timeout timeout, void *arg)
{
	struct hwt_durable_worker *worker = arg;
	uint32_t shards = worker->durable->shards, i;
	uint64_t now_ns = boot_now_ns();

	(void)timeout;
	for (i = 0; i < sources(worker); i++) {
		if (worker->source[i].again_ns == 0 ||
		    worker->source[i].again_ns > now_ns)
			continue;
		worker->source[i].again_ns = 0;
		sources_notify(worker, i / shards, i % shards);
	}
	await_limits(worker);
}

void
take_note_room(
    struct hwt_durable_worker *worker, const struct engine_call *call)
{
	const struct redisReply *reply = call->reply, *name;
	uint32_t queue;
	size_t i;

	if (call->error != 0 || reply->type != REDIS_REPLY_ARRAY)
		return;
	for (i = 0; i < reply->elements; i++) {
		name = reply->element[i];
		for (queue = 0;
		     name->type == REDIS_REPLY_STRING && queue < worker->queues;
		     queue++) {
			if (strcmp(name->str, worker->served[queue].queue) == 0)
				sources_notify(worker, queue, call->shard);
		}
	}
}

static void
take_hold(struct hwt_durable_worker *worker, const struct engine_call *call,
    struct served *served, uint64_t asked_ns)
{
	const struct redisReply *reply = call->reply;
	struct job *job;
	size_t i;

	lock(worker);
	for (i = 0; i < reply->elements; i++) {
		job = job_make(
		    worker, served, call->shard, reply->element[i], asked_ns);
		if (job != NULL)
			job_list_add(&worker->ready, job);
	}
	if (reply->elements > 0)
		(void)pthread_cond_broadcast(&worker->changed);
	unlock(worker);
}

/* After an error it is asked again a second later, or when hints are back. */
static void
take_read(struct hwt_durable_worker *worker, const struct engine_call *call,
    uint32_t at, uint32_t limit, uint64_t asked_ns)
{
	struct source *source = &worker->source[at];
	uint64_t again_ms;

	source->failed =
	    call->error != 0 || call->reply->type != REDIS_REPLY_ARRAY;
	if (source->failed) {
		source_quiet(worker, at);
		return;
	}
	source->received = source->token;
	again_ms = take_again_ms(call->reply);
	if (again_ms > 1) {
		source->again_ns = boot_now_ns() + again_ms * NS_PER_MS;
		await_limits(worker);
	}
	if (again_ms > 1 || (again_ms == 0 && call->reply->elements < limit))
		source_quiet(worker, at);
	take_hold(worker, call, &worker->served[at / worker->durable->shards],
	    asked_ns);
}

void
take_some(struct hwt_durable_worker *worker, uint32_t need)
{
	/* What has no answer is asked for again before its lease ends. */
	struct engine_wait wait = worker_wait(worker);
	uint64_t asked_ns = boot_now_ns();
	struct take take;
	uint32_t i;

	wait.replicated = true;
	take_write(worker, &take, need);
	(void)engine_call(worker->loop.engine, take.call, take.count, &wait);
	for (i = 0; i < take.count; i++)
		take_read(worker, &take.call[i], take.source[i], take.limit,
		    asked_ns);
	engine_call_free(take.call, take.count);
}
