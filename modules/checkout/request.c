/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a request: trying it, waiting, ending, and what a thread has to
 * do before its call returns.
 *
 *               acquire                    all objects were free
 *     READY ------------> TRYING ---------------------------------> GRANTED
 *       ^                |      ^                                     |
 *       |    one refused |      | queue_end                           |
 *       |                v      |                                     |
 *       |             WAITING -> WOKEN      release                   |
 *       |                |       object_give, gate_open               |
 *       |    deadline,   v                                            |
 *       +<---cancel--- ENDED <----------------------------------------+
 *
 * TRYING, WOKEN and ENDED belong to one thread. A request is tried in ascending
 * order of its objects. If one refuses, those it has got are released first,
 * which wakes whoever waits for them, and then it waits for that one; if that
 * is free by then, it is tried again.
 *
 * OUTCOME. A deadline, a cancel, a retirement or a shutdown ends what is
 * WAITING. In what is WOKEN or TRYING it leaves the outcome as a mark. The mark
 * of a WOKEN one stands; that of a TRYING one counts when the try has failed.
 * The first mark stays.
 *
 * BATON. WOKEN for an object, at, a request has BATON. When the try is refused
 *   by at            it keeps the baton, and is the next waiter again;
 *   by a later one   at was taken and released, which woke the next one;
 *   by an earlier one, or the gate, or it ends without a try:
 *                    it hands on: if at is free, the next waiter is woken.
 *
 * THE TIMEOUT'S TASK may come while the wait ends otherwise, and the request is
 * the caller's memory. ARMED says that the task may still use it. Whoever ends
 * the wait cancels the timeout. If its task has begun, he leaves LATE, unless
 * ARMED has gone; the task clears ARMED by its only change of the word, and if
 * it finds LATE, it carries the outcome out. So granted is called when nobody
 * else uses the request, and neither thread waits for the other.
 *
 * QUEUE. What a call wakes or ends goes to the thread's queue, and is tried, or
 * its granted called, before the outermost call returns: so without a lock, and
 * a chain of grants takes no stack.
 *
 * BLOCKING. A request whose thread waits is tried by that thread: a call that
 * has woken it hands it over. If another thread got the objects for it, they
 * would be out while it sleeps, and whoever meets them then would go to sleep
 * as well. For the same reason, and since most holds are shorter than a sleep,
 * such a thread looks at the object that refused for some microseconds before
 * it waits. Meanwhile its request is TRYING and holds nothing. One that is
 * served in order does not look: it is handed the object anyway.
 *
 * AN EXECUTOR gets a request that has ended or was granted as HANDED: nobody
 * else changes it, and whoever makes it ENDED again calls granted. Its objects
 * are out meanwhile, if it was granted.
 *
 * LAST ACCESS. busy counts requests from the beginning of their waits until
 * granted has returned; it is the last that is touched of the checkout.
 * hwt_checkout_destroy waits for it. In a retirement, no request that is WOKEN
 * has the object as its baton, and no TRYING one has the object in its set,
 * when its memory becomes the user's.
 *
 * PAUSE. What waits and keeps objects would delay a pause, for ever if it waits
 * for a group without members. So a pause has it release them, and wait for the
 * end of the pause:
 *
 *        waits, and keeps                     pauses
 *        ----------------                     ------
 *   (A1) become WAITING, with KEEPS      (B1) close the gate
 *   (A2) read the gate; if it is         (B2) wake what is WAITING with KEEPS
 *        closed, wait no more
 *
 *   Forbidden: A2 finds the gate open, and B2 does not find what waits.
 *
 * A request that pauses all, PAUSES_ALL, has no objects: see gate.c.
 *
 * EDGES
 *   E:keep    the drawing above.
 *   E:request what the owner wrote into the request: release by giving it up,
 *             acquire by the next owner. All changes of the word are
 *             read-modify-writes, but for the owner's last one.
 *   E:pause   in_flight is counted up, then the gate is read; a pause closes
 *             the gate, then reads in_flight. One of them sees the other. One
 *             to which an object is handed over is counted up at once, and
 *             reads the gate before it takes the next one. And
 *             what a holder wrote: release by counting down, acquire by reading
 *             in_flight.
 */
#include <errno.h>
#include <stddef.h>

#include "checkout.h"

/* Of a thread, at an object that refused, before it sleeps. */
#ifndef LOOKS
#define LOOKS 100u
#endif

void
request_store_granted(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;
	struct checkout_shard *shard = request_shard(request);

	if (checkout->lists_grants) {
		request->since_ns = checkout_now(checkout);
		checkout_shard_lock(shard);
		ring_add(&shard->granted, request);
		checkout_shard_unlock(shard);
	}
	request_store(request, STATE_GRANTED);
}

void
request_unlist_granted(struct request *request)
{
	struct checkout_shard *shard = request_shard(request);

	if (!request->checkout->lists_grants)
		return;
	checkout_shard_lock(shard);
	ring_remove(&shard->granted, request);
	checkout_shard_unlock(shard);
}

/* Trying. */

void
request_give(struct request *request, uint64_t grants)
{
	struct hwt_checkout *checkout = request->checkout;
	struct checkout_shard *shard = request_shard(request);
	uint64_t in_flight;

	while (request->held > 0) {
		request->held--;
		object_give(request, request->held);
	}
	/* E:pause release */
	in_flight = a64_add_seq(&shard->in_flight, grants * RELEASED_ONE - 1);
	if (grants != 0 && in_flight >> IN_FLIGHT_BITS == IN_FLIGHT_MASK)
		(void)a64_add_seq(&shard->released_high, 1);
	if (a64_load_seq(&checkout->gate.word) & IN_USE)
		pause_notify(checkout);
}

void
request_drop(struct request *request)
{
	if (request->held == 0)
		return;
	(void)a64_add_seq(&request_shard(request)->holding, UINT64_MAX);
	request_give(request, 0);
}

/* The first object that refuses, or NULL. */
static struct object *
take_all(struct request *request)
{
	for (; request->held < request->count; request->held++) {
		if (!object_take(request, request->held))
			return object_at(request, request->held);
	}
	return NULL;
}

static bool
may_hold(struct request *request, const struct object *refused)
{
	if (refused == &request->checkout->gate)
		return false;
	if (request->refusals < UINT8_MAX)
		request->refusals++;
	return request->held > 0 && request_is_in_order(request);
}

/* Refused by that; NULL: it ends without a try. */
static void
settle_baton(struct request *request, const struct object *refused)
{
	struct object *at;

	if (!(a64_load_acquire(&request->word) & BATON))
		return;
	at = aptr_load_acquire(&request->at);
	if (at == refused)
		return;
	if (refused == NULL || refused == &request->checkout->gate ||
	    object_precedes(refused, at))
		object_hand_on(at);
	request_change(request, BATON, 0);
}

static bool
is_closed(const struct object *gate)
{
	return a64_load_seq(&gate->word) & (IN_USE | RETIRED);
}

/* False: not counted, as the gate is closed, so that what comes while a pause
 * begins does not delay it. What sees the gate open is counted, and looks
 * again. */
static bool
count_in(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;

	if (request->held > 0) {
		(void)a64_add_seq(&request_shard(request)->holding, UINT64_MAX);
		return true;
	}
	if (is_closed(&checkout->gate))
		return false;
	(void)a64_add_seq(&request_shard(request)->in_flight, 1);
	return true;
}

bool
flight_begin(struct hwt_checkout *checkout, const void *at)
{
	(void)a64_add_seq(&checkout_shard_of(checkout, at)->in_flight, 1);
	/* E:pause fence: count up, then read the gate. */
	if (!(a64_load_seq(&checkout->gate.word) & IN_USE))
		return true;
	flight_end(checkout, at);
	return false;
}

void
flight_end(struct hwt_checkout *checkout, const void *at)
{
	/* E:pause release */
	(void)a64_add_seq(
	    &checkout_shard_of(checkout, at)->in_flight, UINT64_MAX);
	if (a64_load_seq(&checkout->gate.word) & IN_USE)
		pause_notify(checkout);
}

struct object *
request_try(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;
	struct object *refused = &checkout->gate;

	if (count_in(request)) {
		/* E:pause fence: count up, then read the gate. */
		if (!is_closed(refused))
			refused = take_all(request);
		if (refused == NULL)
			return NULL;
		if (may_hold(request, refused))
			(void)a64_add_seq(&request_shard(request)->holding, 1);
		else
			request_give(request, 0);
	}
	settle_baton(request, refused);
	return refused;
}

/* A hint that this is a loop which waits. */
static inline void
stall(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

struct object *
request_try_long(struct request *request, struct object *refused)
{
	unsigned looks;

	for (looks = 0; looks < LOOKS && refused != NULL &&
	     refused != &request->checkout->gate &&
	     !request_is_in_order(request);
	     looks++) {
		if (object_may_be_had(refused, request))
			refused = request_try(request);
		else
			stall();
	}
	return refused;
}

/* Ending. */

int
request_enlist(struct request *request, uint64_t delay_ns)
{
	struct hwt_checkout *checkout = request->checkout;
	uint64_t flags = (delay_ns != HWT_NEVER ? ARMED : 0) |
	    (request->blocked != NULL ? BLOCKING : 0);
	int error = 0;

	if (flags != 0)
		request_change(request, 0, flags);
	*request_since(request) = checkout_now(checkout);
	if (!wait_begin(request))
		return -ESHUTDOWN;
	(void)a64_add_seq(&checkout->busy, 1);
	if (delay_ns != HWT_NEVER) {
		error = hwt_new_timeout(checkout->timer, &request->timeout,
		    request_expire, request, delay_ns);
	}
	if (error != 0) {
		wait_end(request, (enum hwt_grant)0, 0);
		(void)a64_add_seq(&checkout->busy, UINT64_MAX);
	}
	return error;
}

/* For the owner: TRYING, or ENDED. */
static void
request_end(struct request *request, enum hwt_grant grant)
{
	if (grant != HWT_GRANTED) {
		request_drop(request);
		settle_baton(request, NULL);
		if (request->flags & PAUSES_ALL)
			pause_all_end(request->checkout);
	}
	request_finish(request, grant);
}

/* One that was WAITING. */
static void
request_end_wait(struct request *request, enum hwt_grant grant)
{
	if (request->flags & PAUSES_ALL)
		pause_all_unlink(request);
	else
		object_unlink(request);
	request_end(request, grant);
}

void
request_settle(struct request *request, struct object *refused)
{
	enum hwt_grant grant = HWT_GRANTED;

	if (request->flags & PAUSES_ALL) {
		grant = pause_all_settle(request);
		if (grant != 0)
			request_end(request, grant);
		return;
	}
	while (refused != NULL) {
		grant = refusal_of(refused);
		if (grant != 0)
			break;
		if (object_wait(refused, request))
			return;
		grant = word_grant(a64_load_acquire(&request->word));
		if (grant != 0)
			break;
		grant = HWT_GRANTED;
		refused = request_try(request);
	}
	request_end(request, grant);
}

/* The word after a stop; the word itself, if there is nothing to stop. */
static uint64_t
word_stopped(uint64_t word, enum hwt_grant grant)
{
	switch (word_state(word)) {
	case STATE_WAITING:
		word = (word & ~STATE_MASK) | STATE_ENDED;
		break;
	case STATE_TRYING:
	case STATE_WOKEN:
		if (!(word & OUTCOME_MASK))
			break;
		return word;
	default:
		return word;
	}
	return word | grant * OUTCOME_ONE;
}

int
request_stop(struct request *request, enum hwt_grant grant)
{
	uint64_t word, next;

	do {
		word = a64_load_acquire(&request->word);
		next = word_stopped(word, grant);
		if (next == word)
			return -ENOENT;
	} while (!a64_cas_seq(&request->word, word, next));
	if (word_state(word) == STATE_WAITING)
		request_end_wait(request, grant);
	return word_state(word) == STATE_TRYING ? -EINPROGRESS : 0;
}

void
request_expire(hwt_timeout timeout, void *arg)
{
	struct request *request = arg;
	struct queue queue;
	uint64_t word;

	(void)timeout;
	queue_begin(&queue);
	do {
		word = a64_load_acquire(&request->word);
	} while (!a64_cas_seq(&request->word, word,
	    word_stopped(word, HWT_GRANT_EXPIRED) & ~(ARMED | LATE)));
	if (word & LATE)
		queue_add(request);
	else if (word_state(word) == STATE_WAITING)
		request_end_wait(request, HWT_GRANT_EXPIRED);
	queue_end(&queue);
}

/* Stopping what is in the lists. */

static bool
request_has(const struct request *request, const struct object *object)
{
	uint32_t i;

	for (i = 0; i < request->count && object != NULL; i++) {
		if (object_at(request, i) == object)
			return true;
	}
	return object == NULL;
}

/* Takes the baton of a retired object away, too. True: it waited, and has ended
 * now. */
static bool
stop_listed(struct request *request, const struct object *object,
    enum hwt_grant grant, bool *tried)
{
	uint64_t word;

	do
		word = a64_load_acquire(&request->word);
	while (!a64_cas_seq(&request->word, word, word_stopped(word, grant)));
	/* With a mark it waits for no other object, so that at stays. */
	while (word_state(word) == STATE_WOKEN) {
		word = a64_load_acquire(&request->word);
		if (word_state(word) != STATE_WOKEN ||
		    aptr_load_acquire(&request->at) != object ||
		    a64_cas_seq(&request->word, word, word & ~BATON))
			break;
	}
	if (word_state(word) == STATE_TRYING)
		*tried = true;
	return word_state(word) == STATE_WAITING;
}

/* Those that waited and have ended now, in their order, by list_next. */
static struct request *
stop_list(struct checkout_shard *shard, const struct object *object,
    enum hwt_grant grant, bool *tried)
{
	struct request *ended = NULL, **end = &ended, *request, *last, *next;

	checkout_shard_lock(shard);
	request = shard->list;
	last = request != NULL ? request->list_previous : NULL;
	for (; request != NULL; request = next) {
		next = request != last ? request->list_next : NULL;
		if (!request_has(request, object) ||
		    !stop_listed(request, object, grant, tried))
			continue;
		ring_remove(&shard->list, request);
		*end = request;
		end = &request->list_next;
	}
	checkout_shard_unlock(shard);
	return ended;
}

bool
requests_stop(struct hwt_checkout *checkout, const struct object *object,
    enum hwt_grant grant)
{
	struct request *request, *next;
	bool tried = false;
	uint32_t i;

	for (i = 0; i < checkout->shard_count; i++) {
		request =
		    stop_list(&checkout->shards[i], object, grant, &tried);
		for (; request != NULL; request = next) {
			next = request->list_next;
			request->list_next = NULL;
			request_end_wait(request, grant);
		}
	}
	return tried;
}

/* The queue. */

/* grant is 0 for one that is woken. */
static void
tell_blocked(struct blocked *blocked, enum hwt_grant grant)
{
	(void)pthread_mutex_lock(&blocked->lock);
	blocked->grant = grant;
	blocked->woken = grant == 0;
	(void)pthread_cond_signal(&blocked->told);
	(void)pthread_mutex_unlock(&blocked->lock);
}

/* When its word is stored, the request is the caller's. */
static void
call_granted(struct request *request, uint64_t word)
{
	struct hwt_checkout *checkout = request->checkout;
	struct blocked *blocked = request->blocked;
	hwt_granted *granted = request->granted;
	enum hwt_grant grant = word_grant(word);
	void *arg = request->arg;

	if (grant == HWT_GRANTED)
		request_store_granted(request);
	else
		request_store(request, STATE_READY);
	if (word & BLOCKING)
		tell_blocked(blocked, grant);
	else
		granted((struct hwt_request *)request, arg, grant);
	(void)a64_add_seq(&checkout->busy, UINT64_MAX);
}

/* One that is WOKEN. */
static void
try_woken(struct request *request)
{
	struct object *refused;
	uint64_t word;

	do
		word = a64_load_acquire(&request->word);
	/* E:request acquire; the mark of a WOKEN one stands. */
	while (!a64_cas_seq(
	    &request->word, word, (word & ~STATE_MASK) | STATE_TRYING));
	if (word & OUTCOME_MASK) {
		request_end(request, word_grant(word));
		return;
	}
	refused = request_try(request);
	if (word & BLOCKING)
		refused = request_try_long(request, refused);
	request_settle(request, refused);
}

/* So many at a time. */
enum {
	KEEPERS = 8
};

/* These stay in the list, and are the caller's. */
static unsigned
wake_keepers(struct checkout_shard *shard, struct request **woken)
{
	struct request *request, *last, *next;
	unsigned count = 0;

	checkout_shard_lock(shard);
	request = shard->list;
	last = request != NULL ? request->list_previous : NULL;
	for (; request != NULL && count < KEEPERS; request = next) {
		next = request != last ? request->list_next : NULL;
		/* E:keep fence: the gate is closed, then it is looked for. */
		if (a64_load_seq(&request->word) & KEEPS &&
		    request_wake(shard, request, 0))
			woken[count++] = request;
	}
	checkout_shard_unlock(shard);
	return count;
}

/* They are tried here, also for a thread that waits: they meet the gate, and
 * the pause need not wait until that thread runs. */
void
requests_let_go(struct hwt_checkout *checkout)
{
	struct request *woken[KEEPERS];
	struct checkout_shard *shard;
	struct queue queue;
	unsigned count, i;

	queue_begin(&queue);
	for (shard = checkout->shards;
	     shard < checkout->shards + checkout->shard_count; shard++) {
		do {
			count = a64_load_seq(&shard->holding) != 0
			    ? wake_keepers(shard, woken)
			    : 0;
			for (i = 0; i < count; i++) {
				object_unlink(woken[i]);
				try_woken(woken[i]);
			}
		} while (count == KEEPERS);
	}
	queue_end(&queue);
}

/* Only one takes it. */
static bool
take_handed(struct request *request, uint64_t queued, uint64_t *word)
{
	*word = a64_load_acquire(&request->word);
	/* E:request acquire */
	if (word_state(*word) != STATE_HANDED || (*word & QUEUED) != queued ||
	    !a64_cas_seq(
		&request->word, *word, (*word & ~STATE_MASK) | STATE_ENDED))
		return false;
	(void)a64_add_seq(&request->checkout->handed, UINT64_MAX);
	return true;
}

int
request_run(struct request *request, uint64_t queued)
{
	struct queue queue;
	uint64_t word;

	if (!take_handed(request, queued, &word))
		return -ENOENT;
	queue_begin(&queue);
	call_granted(request, word);
	queue_end(&queue);
	return 0;
}

/* Its end, to be told. The executor may have called granted, and the request be
 * the caller's, before execute returns. */
static void
deliver(struct request *request, uint64_t word)
{
	struct hwt_checkout *checkout = request->checkout;
	struct hwt_request_executor executor = checkout->executor;

	if (executor.execute == NULL || word & BLOCKING) {
		call_granted(request, word);
		return;
	}
	(void)a64_add_seq(&checkout->handed, 1);
	request_change(request, STATE_MASK, STATE_HANDED);
	if (executor.execute(
		executor.ctx, checkout, (struct hwt_request *)request) != 0 &&
	    take_handed(request, 0, &word))
		call_granted(request, word);
}

static void
queue_step(struct request *request)
{
	uint64_t word = a64_load_acquire(&request->word);

	if (word_state(word) == STATE_ENDED)
		deliver(request, word);
	else if (word & BLOCKING)
		tell_blocked(request->blocked, (enum hwt_grant)0);
	else
		try_woken(request);
}

void
request_resume(struct request *request)
{
	struct queue queue;

	queue_begin(&queue);
	try_woken(request);
	queue_end(&queue);
}

void
queue_end(struct queue *queue)
{
	struct request *request;

	while ((request = queue_take(queue)) != NULL)
		queue_step(request);
}
