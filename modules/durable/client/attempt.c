/* SPDX-License-Identifier: Apache-2.0 */
/* The attempts that a worker has: see worker.h. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "modules/durable/client/worker.h"

#define SLOT_BITS 20

uint64_t
boot_now_ns(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000 * MS_NS + (uint64_t)now.tv_nsec;
}

void
attempts_add(struct attempts *list, struct attempt *attempt)
{
	attempt->next = NULL;
	*list->last = attempt;
	list->last = &attempt->next;
}

struct attempt *
attempts_take(struct attempts *list)
{
	struct attempt *attempt = list->first;

	if (attempt == NULL)
		return NULL;
	list->first = attempt->next;
	if (list->first == NULL)
		list->last = &list->first;
	return attempt;
}

size_t
worker_room(const struct hwt_durable_worker *worker)
{
	size_t used = worker->held + worker->reserved;

	return used < worker->outstanding_max ? worker->outstanding_max - used
					      : 0;
}

size_t
take_limit(const struct taker *queue, size_t room)
{
	const struct hwt_durable_worker *worker = queue->worker;
	unsigned i;

	if (worker->stopping || queue->taking)
		return 0;
	for (i = 0; i < queue->index; i++) {
		if (!worker->queue[i].idle)
			return 0;
	}
	if (queue->request != 0)
		return room >= queue->limit ? queue->limit : 0;
	return room < TAKE_MAX ? room : TAKE_MAX;
}

uint64_t
take_begin(struct taker *queue, size_t limit)
{
	queue->taking = true;
	queue->limit = limit;
	if (queue->request == 0)
		queue->request = ++queue->worker->last_request;
	return queue->request;
}

void
take_words(struct call *call, const struct hwt_durable_worker *worker,
    size_t limit, uint64_t request)
{
	call_text(call, worker->name);
	call_number(call, limit);
	call_number(call, worker->visibility_ns / MS_NS);
	call_text(call, "REQUEST");
	call_number(call, request);
}

/* {id, fence, attempt, attempts, due, payload} */
static bool
record_is_valid(const redisReply *record)
{
	size_t i;

	if (record->type != REDIS_REPLY_ARRAY || record->elements != 6)
		return false;
	for (i = 0; i < 6; i++) {
		if (record->element[i]->type !=
		    (i == 0 || i == 5 ? REDIS_REPLY_STRING
				      : REDIS_REPLY_INTEGER))
			return false;
	}
	return (size_t)record->element[0]->len <= HWT_DURABLE_ID_MAX;
}

/* False: there is no memory, and it is as if it had been taken by a worker that
 * is gone. */
static bool
attempt_make(struct taker *queue, redisReply *record, uint64_t lease_end_ns)
{
	struct hwt_durable_worker *worker = queue->worker;
	struct attempt *attempt = calloc(1, sizeof(*attempt));
	uint32_t slot;

	if (attempt == NULL || worker->free_slots == 0) {
		free(attempt);
		return false;
	}
	slot = worker->free_slot[--worker->free_slots];
	worker->slot[slot] = attempt;
	worker->held++;
	attempt->queue = queue;
	attempt->number = ++worker->serial << SLOT_BITS | slot;
	attempt->record = record;
	attempt->lease_end_ns = lease_end_ns;
	attempts_add(&queue->waiting, attempt);
	(void)pthread_cond_signal(&worker->work);
	return true;
}

static bool
take_answer(
    struct taker *queue, redisReply *reply, size_t limit, uint64_t sent_ns)
{
	uint64_t end_ns = sent_ns + queue->worker->visibility_ns;
	size_t i;

	queue->request = 0;
	queue->idle = reply->type == REDIS_REPLY_NIL;
	if (queue->idle)
		return true;
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements > limit)
		return false;
	queue->idle = reply->elements < limit;
	for (i = 0; i < reply->elements; i++) {
		if (!record_is_valid(reply->element[i]))
			return false;
		/* It keeps this part of the reply. */
		if (attempt_make(queue, reply->element[i], end_ns))
			reply->element[i] = NULL;
	}
	return true;
}

bool
take_end(struct taker *queue, redisReply *reply, size_t limit, uint64_t sent_ns)
{
	bool good = true;

	queue->taking = false;
	if (reply != NULL)
		good = take_answer(queue, reply, limit, sent_ns);
	else
		queue->idle = true; /* those behind it may go on */
	(void)pthread_cond_broadcast(&queue->worker->room);
	return good;
}

void
attempt_decide(
    struct attempt *attempt, int outcome, uint64_t delay_ns, const char *reason)
{
	attempt->decided = true;
	attempt->outcome = attempt->lost ? OUTCOME_NONE : outcome;
	attempt->delay_ns = delay_ns;
	if (outcome == HWT_DURABLE_FAIL && reason != NULL && reason[0] != '\0')
		attempt->reason = strdup(reason);
}

void
attempt_end(struct attempt *attempt)
{
	struct hwt_durable_worker *worker = attempt->queue->worker;

	attempt->state = ATTEMPT_ENDED;
	attempts_add(&worker->ended, attempt);
	(void)pthread_cond_signal(&worker->outcomes);
}

struct attempt *
attempt_find(struct hwt_durable_worker *worker, uint64_t number)
{
	size_t slot = number & ((1u << SLOT_BITS) - 1);
	struct attempt *attempt =
	    slot < worker->slots ? worker->slot[slot] : NULL;

	return attempt != NULL && attempt->number == number ? attempt : NULL;
}

void
attempt_free(struct attempt *attempt)
{
	struct hwt_durable_worker *worker = attempt->queue->worker;
	uint32_t slot = attempt->number & ((1u << SLOT_BITS) - 1);

	worker->slot[slot] = NULL;
	worker->free_slot[worker->free_slots++] = slot;
	worker->held--;
	(void)pthread_cond_broadcast(&worker->room);
	if (worker->held == 0)
		(void)pthread_cond_broadcast(&worker->gone);
	freeReplyObject(attempt->record);
	free(attempt->reason);
	free(attempt);
}
