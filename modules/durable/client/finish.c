/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's finisher: see worker.h.
 *
 * A ROUND takes what has ended, and all leases if they are to be extended;
 * makes commands, each of what is alike of one queue; sends them together; and
 * frees the attempts whose outcomes the server has. What failed ends in a later
 * round, after a pause.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "modules/durable/client/worker.h"

#define PARTS_MAX 128
#define PART_MAX 1024
#define PAUSE_NS (100 * MS_NS)
#define LOG_NS HWT_SEC(10) /* not more often */

/* A command of a round. */
struct part {
	struct taker *queue;
	bool extends;
	struct attempts list; /* of outcomes */
	size_t count;
	struct attempt **leases; /* of an extension */
	uint64_t request; /* 0: it takes nothing */
	size_t limit;
};

struct round {
	struct call call[PARTS_MAX];
	struct part part[PARTS_MAX];
	size_t parts;
	uint64_t sent_ns;
	uint64_t log_ns; /* until then, errors are not logged again */
	bool failed;
};

struct round *
round_create(void)
{
	return calloc(1, sizeof(struct round));
}

void
round_destroy(struct round *round)
{
	free(round);
}

static struct part *
part_make(struct round *round, struct taker *queue)
{
	struct part *part = &round->part[round->parts++];

	*part = (struct part){.queue = queue};
	part->list.last = &part->list.first;
	return part;
}

static bool
is_alike(const struct part *part, const struct attempt *attempt)
{
	const struct attempt *other = part->list.first;

	if (part->extends || part->queue != attempt->queue ||
	    part->count == PART_MAX || other->outcome != attempt->outcome)
		return false;
	if (attempt->outcome == HWT_DURABLE_RETRY)
		return other->delay_ns == attempt->delay_ns;
	if (attempt->outcome == HWT_DURABLE_FAIL)
		return strcmp(other->reason != NULL ? other->reason : "",
			   attempt->reason != NULL ? attempt->reason : "") == 0;
	return true;
}

/* False: the round is full. */
static bool
round_add(struct round *round, struct attempt *attempt)
{
	struct part *part = NULL;
	size_t i;

	for (i = round->parts; i > 0 && part == NULL; i--) {
		if (is_alike(&round->part[i - 1], attempt))
			part = &round->part[i - 1];
	}
	if (part == NULL) {
		if (round->parts == PARTS_MAX)
			return false;
		part = part_make(round, attempt->queue);
	}
	attempts_add(&part->list, attempt);
	part->count++;
	return true;
}

/* Those of a queue that have no outcome, from a slot on. Returns the next slot.
 */
static size_t
round_extend(struct round *round, struct taker *queue, size_t slot)
{
	struct hwt_durable_worker *worker = queue->worker;
	struct part *part = part_make(round, queue);
	struct attempt *attempt;

	part->extends = true;
	part->leases = calloc(PART_MAX, sizeof(struct attempt *));
	for (; slot < worker->slots && part->count < PART_MAX; slot++) {
		attempt = worker->slot[slot];
		if (part->leases != NULL && attempt != NULL &&
		    attempt->queue == queue && !attempt->decided &&
		    !attempt->lost)
			part->leases[part->count++] = attempt;
	}
	if (part->count == 0) {
		free(part->leases);
		round->parts--;
	}
	return slot;
}

/* It is not reported, or not any more: a stop does not wait for a server that
 * is away. Otherwise it is, whenever the server comes back: while it was away,
 * no lease has ended there. */
static bool
is_over(const struct attempt *attempt, uint64_t now_ns)
{
	return attempt->outcome == OUTCOME_NONE ||
	    (attempt->queue->worker->stopping &&
		attempt->lease_end_ns <= now_ns);
}

/* With the lock. */
static void
round_collect(struct round *round, struct hwt_durable_worker *worker)
{
	uint64_t now_ns = boot_now_ns();
	struct attempt *attempt;
	size_t slot;
	unsigned i;

	round->parts = 0;
	round->failed = false;
	for (i = 0; worker->extend_due && i < worker->queues; i++) {
		slot = 0;
		while (slot < worker->slots && round->parts < PARTS_MAX)
			slot = round_extend(round, &worker->queue[i], slot);
	}
	worker->extend_due = false;
	while ((attempt = worker->ended.first) != NULL) {
		if (is_over(attempt, now_ns))
			attempt_free(attempts_take(&worker->ended));
		else if (!round_add(round, attempts_take(&worker->ended)))
			break;
	}
	if (attempt != NULL)
		attempts_add(&worker->ended, attempt);
}

/* With the lock: the last finish of each queue takes what it makes room for,
 * and more if there is room. */
static void
round_take(struct round *round, struct hwt_durable_worker *worker)
{
	struct part *part;
	size_t i;

	for (i = round->parts; i > 0; i--) {
		part = &round->part[i - 1];
		if (part->extends)
			continue;
		part->limit =
		    take_limit(part->queue, part->count + worker_room(worker));
		if (part->limit == 0)
			continue;
		part->request = take_begin(part->queue, part->limit);
		/* held still counts those that it finishes. */
		if (part->limit > part->count)
			worker->reserved += part->limit - part->count;
	}
}

static void
add_attempt(struct call *call, const struct attempt *attempt)
{
	const redisReply *record = attempt->record;

	call_word(
	    call, record->element[0]->str, (size_t)record->element[0]->len);
	call_number(call, (uint64_t)record->element[1]->integer);
}

static void
add_outcome(struct call *call, const struct attempt *attempt)
{
	if (attempt->outcome == HWT_DURABLE_RETRY) {
		call_text(call, "RETRY");
		if (attempt->delay_ns == HWT_NEVER)
			call_text(call, "-1");
		else
			call_number(call,
			    attempt->delay_ns / MS_NS +
				(attempt->delay_ns % MS_NS != 0));
	} else if (attempt->outcome == HWT_DURABLE_FAIL) {
		call_text(call, "FAIL");
		call_text(call, attempt->reason != NULL ? attempt->reason : "");
	} else {
		call_text(call, "DONE");
	}
}

static void
part_build(const struct part *part, struct call *call)
{
	const struct hwt_durable_worker *worker = part->queue->worker;
	const struct attempt *attempt;
	size_t i;

	call_begin(call, worker->durable,
	    part->extends ? "HWT.EXTEND" : "HWT.FINISH", part->queue->name);
	if (part->extends)
		call_number(call, worker->visibility_ns / MS_NS);
	else
		add_outcome(call, part->list.first);
	call_text(call, "TASKS");
	for (i = 0; part->extends && i < part->count; i++)
		add_attempt(call, part->leases[i]);
	for (attempt = part->list.first; attempt; attempt = attempt->next)
		add_attempt(call, attempt);
	if (part->request != 0) {
		call_text(call, "TAKE");
		take_words(call, worker, part->limit, part->request);
	}
}

/* An array of numbers, and what was taken. */
static bool
answer_is_valid(const struct part *part, const redisReply *reply)
{
	size_t i;

	if (reply->type != REDIS_REPLY_ARRAY ||
	    reply->elements != part->count + (part->request != 0))
		return false;
	for (i = 0; i < part->count; i++) {
		if (reply->element[i]->type != REDIS_REPLY_INTEGER)
			return false;
	}
	return true;
}

/* With the lock. */
static void
part_extended(
    const struct part *part, const redisReply *reply, uint64_t sent_ns)
{
	struct attempt *attempt;
	size_t i;

	for (i = 0; i < part->count; i++) {
		attempt = part->leases[i];
		if (reply->element[i]->integer != 0) {
			attempt->lease_end_ns =
			    sent_ns + part->queue->worker->visibility_ns;
			continue;
		}
		attempt->lost = true;
		if (attempt->decided)
			attempt->outcome = OUTCOME_NONE;
		if (attempt->state != ATTEMPT_OPEN)
			continue;
		attempt_decide(attempt, OUTCOME_NONE, 0, NULL);
		attempt_end(attempt);
	}
}

/* With the lock. */
static void
part_end(struct round *round, struct part *part, const struct call *call)
{
	struct hwt_durable_worker *worker = part->queue->worker;
	bool good = call->error == 0 && answer_is_valid(part, call->reply);
	struct attempt *attempt;

	if (part->extends) {
		if (good)
			part_extended(part, call->reply, round->sent_ns);
		else
			worker->extend_due = true;
		free(part->leases);
	}
	while ((attempt = attempts_take(&part->list)) != NULL) {
		if (good)
			attempt_free(attempt);
		else
			attempts_add(&worker->ended, attempt);
	}
	if (part->request != 0) {
		if (part->limit > part->count)
			worker->reserved -= part->limit - part->count;
		good &= take_end(part->queue,
		    good ? call->reply->element[part->count] : NULL,
		    part->limit, round->sent_ns);
	}
	round->failed |= !good;
}

static void
round_log(struct round *round, const struct hwt_durable_worker *worker)
{
	uint64_t now_ns = boot_now_ns();
	size_t i;

	for (i = 0; now_ns >= round->log_ns && i < round->parts; i++) {
		if (round->call[i].error == 0)
			continue;
		round->log_ns = now_ns + LOG_NS;
		durable_log(worker->durable,
		    "%s: outcomes of the queue %s are not taken, and are "
		    "tried again: %s",
		    worker->name, round->part[i].queue->name,
		    strerror(-round->call[i].error));
	}
}

/* With the lock, and without it while the server is asked. */
static void
round_run(struct round *round, struct hwt_durable_worker *worker)
{
	size_t i;

	round_collect(round, worker);
	round_take(round, worker);
	if (round->parts == 0)
		return;
	(void)pthread_mutex_unlock(&worker->lock);
	for (i = 0; i < round->parts; i++)
		part_build(&round->part[i], &round->call[i]);
	round->sent_ns = boot_now_ns();
	call_run(worker->durable, round->call, round->parts);
	round_log(round, worker);
	(void)pthread_mutex_lock(&worker->lock);
	for (i = 0; i < round->parts; i++)
		part_end(round, &round->part[i], &round->call[i]);
	for (i = 0; i < round->parts; i++)
		call_free(&round->call[i]);
	if (!round->failed)
		return;
	(void)pthread_mutex_unlock(&worker->lock);
	(void)durable_nap(worker->durable, PAUSE_NS);
	(void)pthread_mutex_lock(&worker->lock);
}

void *
finish_thread(void *arg)
{
	struct hwt_durable_worker *worker = arg;

	(void)pthread_mutex_lock(&worker->lock);
	while (!worker->over) {
		if (worker->ended.first == NULL && !worker->extend_due)
			(void)pthread_cond_wait(
			    &worker->outcomes, &worker->lock);
		else
			round_run(worker->round, worker);
	}
	(void)pthread_mutex_unlock(&worker->lock);
	return NULL;
}
