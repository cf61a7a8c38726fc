/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one request's wait needs of no other one: the moves of its word, the
 * ring and the counters of its shard, the thread's queue that it comes to.
 * request.c says what they mean together.
 */
#include "checkout.h"

/* The queue. */

_Thread_local struct queue *queue_of_thread;

bool
queue_in_granted(void)
{
	return queue_of_thread != NULL;
}

void
queue_begin(struct queue *queue)
{
	*queue = (struct queue){NULL, NULL};
	if (queue_of_thread == NULL)
		queue_of_thread = queue;
}

void
queue_add(struct request *request)
{
	struct queue *queue = queue_of_thread;

	request->next = NULL;
	if (queue->first == NULL)
		queue->first = request;
	else
		queue->last->next = request;
	queue->last = request;
}

struct request *
queue_take(struct queue *queue)
{
	struct request *request;

	if (queue_of_thread != queue)
		return NULL;
	request = queue->first;
	if (request != NULL)
		queue->first = request->next;
	else
		queue_of_thread = NULL;
	return request;
}

/* The word. */

void
request_change(struct request *request, uint64_t clear, uint64_t set)
{
	uint64_t word;

	do
		word = a64_load_acquire(&request->word);
	while (!a64_cas_seq(&request->word, word, (word & ~clear) | set));
}

bool
request_wake(
    struct checkout_shard *shard, struct request *request, uint64_t baton)
{
	uint64_t word;

	do {
		word = a64_load_acquire(&request->word);
		if (word_state(word) != STATE_WAITING)
			return false;
	} while (!a64_cas_seq(
	    &request->word, word, (word & ~STATE_MASK) | STATE_WOKEN | baton));
	shard->woken++;
	return true;
}

bool
request_enter_wait(struct request *request)
{
	uint64_t keeps = request->held > 0 ? KEEPS : 0, word;

	do {
		word = a64_load_acquire(&request->word);
		if (word & OUTCOME_MASK)
			return false;
	} while (!a64_cas_seq(&request->word, word,
	    (word & ~(STATE_MASK | BATON | KEEPS)) | STATE_WAITING | keeps));
	return true;
}

bool
request_grant(struct request *request)
{
	uint64_t word;

	do {
		word = a64_load_acquire(&request->word);
		if (word_state(word) != STATE_WAITING)
			return false;
	} while (!a64_cas_seq(&request->word, word,
	    (word & ~STATE_MASK) | STATE_ENDED | HWT_GRANTED * OUTCOME_ONE));
	return true;
}

/* Rings. */

void
ring_remove(struct request **ring, struct request *request)
{
	request->list_next->list_previous = request->list_previous;
	request->list_previous->list_next = request->list_next;
	if (request->list_next == request)
		*ring = NULL;
	else if (*ring == request)
		*ring = request->list_next;
	request->list_next = NULL;
}

/* As the last one. */
void
ring_add(struct request **ring, struct request *request)
{
	struct request *head = *ring;

	if (head == NULL) {
		*ring = request;
		request->list_next = request;
		request->list_previous = request;
		return;
	}
	request->list_next = head;
	request->list_previous = head->list_previous;
	head->list_previous->list_next = request;
	head->list_previous = request;
}

/* The wait. */

static void
waits_add(
    struct checkout_shard *shard, enum hwt_grant grant, uint64_t waited_ns)
{
	struct waits *waits = &shard->waits;

	shard->ended[grant - HWT_GRANTED]++;
	waits->histogram[63 - __builtin_clzll(waited_ns | 1)]++;
	waits->sum_ns += waited_ns;
	if (waited_ns > waits->max_ns)
		waits->max_ns = waited_ns;
}

bool
wait_begin(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;
	struct checkout_shard *shard = checkout_shard_of(checkout, request);
	bool open;

	checkout_shard_lock(shard);
	open = !is_shut_down(checkout);
	if (open) {
		ring_add(&shard->list, request);
		shard->waiting++;
		shard->waited++;
	}
	checkout_shard_unlock(shard);
	return open;
}

void
wait_end(struct request *request, enum hwt_grant grant, uint64_t waited_ns)
{
	struct checkout_shard *shard = request_shard(request);

	checkout_shard_lock(shard);
	if (request->list_next != NULL)
		ring_remove(&shard->list, request);
	shard->waiting--;
	if (grant == 0)
		shard->waited--;
	else
		waits_add(shard, grant, waited_ns);
	checkout_shard_unlock(shard);
}

/* False: the timeout's task carries the outcome out. */
static bool
disarm(struct request *request)
{
	uint64_t word = a64_load_acquire(&request->word);

	if (!(word & ARMED))
		return true;
	/* -ENOENT: it has returned, or the timer was stopped before. */
	if (hwt_cancel(request->checkout->timer, request->timeout) !=
	    -EINPROGRESS)
		return true;
	do {
		/* E:request acquire */
		word = a64_load_acquire(&request->word);
		if (!(word & ARMED))
			return true;
	} while (!a64_cas_seq(&request->word, word, word | LATE));
	return false;
}

void
request_finish(struct request *request, enum hwt_grant grant)
{
	uint64_t waited_ns =
	    checkout_now(request->checkout) - *request_since(request);

	request_change(request, STATE_MASK | OUTCOME_MASK | BATON,
	    STATE_ENDED | grant * OUTCOME_ONE);
	wait_end(request, grant, waited_ns);
	if (disarm(request))
		queue_add(request);
}
