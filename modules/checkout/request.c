/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a request: trying it, waiting, ending, and what a thread has to
 * do before its call returns.
 *
 *              acquire            all objects were free        deliver
 *     READY ------------> TRYING -----------------------> ENDED ------> GRANTED
 *       ^                | ^   ^ \__________________________________/   |
 *       |    object_wait | |   |      at the first try, by the caller   |
 *       |                v |   | request_start                          |
 *       |            WAITING -> WOKEN                                   |
 *       |              serve, gate_open                                 |
 *       +<------------- ENDED <- TRYING <- WAITING: request_end         |
 *       ^   deliver                                       release       |
 *       +---------------------------------------------------------------+
 *
 * TRYING, WOKEN and ENDED belong to one thread: all fields but the word, the
 * links and linked are that owner's. A request is tried in ascending order of
 * its objects, without waiting for any. If one refuses, those it has got are
 * given back first, in reverse, which serves who waits for them as a release
 * does; then it waits for that one. Whether that still refuses is asked under
 * the lock, and WAITERS is set in the same word by the same compare-and-swap
 * (E:wait): no release is missed.
 *
 * OUTCOME. A deadline, a cancel, a retirement or a shutdown ends what is
 * WAITING: whoever makes it TRYING is its owner. In what is WOKEN or TRYING it
 * leaves the outcome as a mark. The mark of a WOKEN one stands; that of a
 * TRYING one counts when the try has failed, also if the request was about to
 * wait. The first mark stays.
 *
 * WAKING. Whoever gives an object back serves its list (object.c). A request
 * that wants nothing else, and has no thread, is handed the object, given, and
 * is tried by the thread that served: the object itself is the wake-up. One
 * whose thread sleeps is woken with nothing but the BATON: the object would be
 * out until that thread runs, which takes as long as a thousand short holds. So
 * is a set that does not keep what it has got: of sets that were handed objects
 * each could have what another one wants. With the baton it
 *     takes the object:          that it gives back later, and so serves;
 *     is refused by the object:  it waits there again, at its place, and the
 *                                baton is over in the word that says so;
 *     is refused by another one, or ends: it hands on, which serves the list.
 * Refused hold_after times, a request is handed the object, too. Then nobody
 * who comes later can take it before.
 *
 * IN ORDER. A request refused hold_after times also keeps what it has got
 * while it waits for the next object: all come before that one in order. So
 * whoever has the last object of all that are kept does not wait for another
 * one that is kept, and each is granted if what is granted is released.
 *
 * EACH PAIR THAT MEETS
 *   release, and a request about to wait    E:wait: the compare-and-swap that
 *                  sets WAITERS fails if the object was given back before; if
 *                  after, whoever gives it finds WAITERS.
 *   release, deadline or cancel    serve makes it WOKEN, or request_end makes
 *                  it TRYING, by compare-and-swap from WAITING. If serve comes
 *                  late, it takes it out of the list and serves the next. If
 *                  request_end does, its mark ends the request before its try;
 *                  what it was given, or the baton, goes on to the next.
 *   deadline, and the first of a list    what it kept from others behind it, a
 *                  writer from readers, is served by object_leave.
 *   deadline, and the end of its wait    THE TIMEOUT'S TASK, below.
 *   baton, and release    while WOKEN is set, nobody is served. Who holds the
 *                  baton ends it by one of the three ways above, all of which
 *                  look at the word after that.
 *   pause, and a grant    E:pause, in pause.c. A request that has all objects
 *                  is counted, and then reads the gate. If that is closed, it
 *                  gives all back and waits at the gate. What one that waits
 *                  for an object keeps is not granted, and so not out.
 *   resume, and a request about to wait at the gate    both under its lock.
 *   retirement, and a wait for another object of the set    a request is listed
 *                  by its shard from before it waits until nobody uses its
 *                  objects for it any more. requests_stop finds it there:
 *                  WAITING, it ends it; WOKEN, it leaves a mark, which stands,
 *                  and GONE, if its at is retired, which the count of waits
 *                  in the word proves; TRYING, it waits until it is not: a try
 *                  is short, and calls no user code.
 *   shutdown, and a wait that begins    the gate is RETIRED before the lists
 *                  are searched, and who lists a request looks at the gate
 *                  under the same lock.
 *
 * THE TIMEOUT'S TASK may come while the wait ends otherwise, and the request is
 * the caller's memory. ARMED says that the task may still use it. Whoever ends
 * the wait cancels the timeout. If its task has begun, he leaves LATE, unless
 * ARMED has gone; the task clears ARMED by its only change of the word, and if
 * it finds LATE, it carries the outcome out. So granted is called when nobody
 * else uses the request, and neither thread waits for the other. A timer that
 * was stopped has no such task: hwt_cancel says so.
 *
 * QUEUE. What a call wakes or ends goes to the thread's queue, and is tried, or
 * its granted called, before the outermost call returns: so without a lock, and
 * a chain of grants takes no stack.
 *
 * A THREAD begins its wait in hwt_checkout_acquire, if its request has no
 * granted, or in hwt_checkout_acquire_wait; BLOCKING says that it sleeps, or is
 * about to. What ends before that is KEPT.
 *
 * LAST ACCESS. busy counts requests from the beginning of their waits until
 * granted has returned; it is the last that is touched of the checkout.
 * hwt_checkout_destroy waits for it.
 *
 * EDGES
 *   E:wait    above: a word that refuses gets WAITERS, by compare-and-swap;
 *             whoever gives the object back changes the same word.
 *   E:pause   drawn in pause.c
 *   E:request what the owner wrote into the request: release by giving it up,
 *             acquire by the next owner. All changes of the word are
 *             read-modify-writes, but for the owner's last one.
 *   E:object  what a holder wrote: release by giving the object back, acquire
 *             by taking it.
 */
#include <errno.h>

#include "checkout.h"
#include "sys/pause.h"

_Thread_local struct queue checkout_queue;

void
queue_add(struct request *request)
{
	struct queue *queue = &checkout_queue;

	request->next = NULL;
	if (queue->first == NULL)
		queue->first = request;
	else
		queue->last->next = request;
	queue->last = request;
}

static inline void
stall(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
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

uint64_t
request_wake(struct request *request)
{
	uint64_t word;

	do {
		/* E:request acquire */
		word = a64_load_acquire(&request->word);
		if (word_state(word) != STATE_WAITING)
			return 0;
	} while (!a64_cas_seq(
	    &request->word, word, (word & ~STATE_MASK) | STATE_WOKEN));
	return word;
}

bool
request_enter_wait(struct request *request)
{
	uint64_t word, next;

	do {
		word = a64_load_acquire(&request->word);
		if (word & OUTCOME_MASK)
			return false;
		next = (word & ~(STATE_MASK | WAITS_MASK)) | STATE_WAITING;
		next |= (word + WAIT_ONE) & WAITS_MASK;
		/* E:request release */
	} while (!a64_cas_seq(&request->word, word, next));
	return true;
}

/* Trying. */

static void
give_back(struct request *request, bool keep)
{
	if (request->given) {
		request->given = false;
		object_give(request, request->at_index);
	}
	while (request->held > 0 && !keep)
		object_give(request, --request->held);
}

static bool
is_closed(struct hwt_checkout *checkout)
{
	return a64_load_seq(&checkout->gate.word) & (IN_USE | RETIRED);
}

static int64_t
take_all(struct request *request)
{
	if (is_closed(request->checkout))
		return TRIED_GATE;
	for (; request->held < request->count; request->held++) {
		if (request->given && request->at_index == request->held)
			request->given = false;
		else if (!object_take(request, request->held))
			return request->held;
	}
	return out_begin(request->checkout, request) ? TRIED_ALL : TRIED_GATE;
}

/* In order, refused by an object. */
static bool
may_keep(struct request *request, int64_t tried)
{
	if (tried == TRIED_GATE)
		return false;
	if (request->refusals < UINT8_MAX)
		request->refusals++;
	return request_is_in_order(request);
}

int64_t
request_try(struct request *request)
{
	int64_t tried = take_all(request);

	if (tried != TRIED_ALL)
		give_back(request, may_keep(request, tried));
	return tried;
}

enum hwt_grant
refusal_of(const struct request *request, int64_t tried)
{
	if (tried == TRIED_ALL)
		return HWT_GRANTED;
	if (tried == TRIED_GATE)
		return is_shut_down(request->checkout) ? HWT_GRANT_SHUT_DOWN
						       : (enum hwt_grant)0;
	return a64_load_acquire(
		   &request_object(request, (uint32_t)tried)->word) &
		RETIRED
	    ? HWT_GRANT_RETIRED
	    : (enum hwt_grant)0;
}

/* The list of those whose waits have begun. */

static bool
wait_begin(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;
	struct shard *shard = shard_of(checkout, request);
	bool open;

	request->since_ns = checkout_now(checkout);
	request->ticket = (uint32_t)a64_add_seq(&checkout->tickets, 1);
	(void)a64_add_seq(&checkout->busy, 1);
	shard_lock(shard);
	open = !is_shut_down(checkout);
	if (open) {
		if (shard->list == NULL)
			shard->list = request->list_previous = request;
		request->list_next = shard->list;
		request->list_previous = shard->list->list_previous;
		shard->list->list_previous->list_next = request;
		shard->list->list_previous = request;
		shard->waiting++;
		shard->waited++;
	}
	shard_unlock(shard);
	if (!open)
		(void)a64_add_seq(&checkout->busy, UINT64_MAX);
	return open;
}

static void
count_wait(struct shard *shard, enum hwt_grant grant, uint64_t waited_ns)
{
	struct waits *waits = &shard->waits;

	shard->ended[grant]++;
	waits->histogram[63 - __builtin_clzll(waited_ns | 1)]++;
	waits->sum_ns += waited_ns;
	if (waited_ns > waits->max_ns)
		waits->max_ns = waited_ns;
}

/* grant 0: it did not begin. */
static void
wait_end(struct request *request, enum hwt_grant grant)
{
	struct shard *shard = shard_of(request->checkout, request);
	uint64_t now_ns = checkout_now(request->checkout);

	shard_lock(shard);
	request->list_next->list_previous = request->list_previous;
	request->list_previous->list_next = request->list_next;
	if (request->list_next == request)
		shard->list = NULL;
	else if (shard->list == request)
		shard->list = request->list_next;
	shard->waiting--;
	if (grant == 0)
		shard->waited--;
	else
		count_wait(shard, grant, now_ns - request->since_ns);
	shard_unlock(shard);
}

/* Ending. */

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

/* By its owner. Nobody uses its objects for it after wait_end. */
static void
request_finish(struct request *request, enum hwt_grant grant)
{
	if (grant != HWT_GRANTED)
		give_back(request, false);
	if (request->baton && !(a64_load_acquire(&request->word) & GONE))
		object_hand_on(request);
	wait_end(request, grant);
	request_change(request, STATE_MASK | OUTCOME_MASK | GONE,
	    STATE_ENDED | grant * OUTCOME_ONE);
	if (disarm(request))
		queue_add(request);
}

void
blocked_tell(struct blocked *blocked, bool woken, enum hwt_grant grant)
{
	(void)pthread_mutex_lock(&blocked->lock);
	blocked->woken = woken;
	blocked->grant = grant;
	(void)pthread_cond_signal(&blocked->told);
	(void)pthread_mutex_unlock(&blocked->lock);
}

/* Of one that has ended: it is the user's when granted is called. */
static void
deliver(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;
	uint64_t word = a64_load_acquire(&request->word);
	enum hwt_grant grant = word_outcome(word);
	hwt_granted *granted = request->granted;
	enum state state = grant == HWT_GRANTED ? STATE_GRANTED : STATE_READY;
	struct blocked *blocked;
	void *arg = request->arg;

	/* Its thread may come meanwhile; nobody else does. */
	while (granted == NULL && !(word & (BLOCKING | KEPT))) {
		/* E:request release */
		if (a64_cas_seq(&request->word, word, word | KEPT))
			word |= KEPT;
		else
			word = a64_load_acquire(&request->word);
	}
	if (word & BLOCKING) {
		blocked = request->blocked;
		request_store(request, state);
		blocked_tell(blocked, false, grant);
	} else if (!(word & KEPT)) {
		request_store(request, state);
		checkout_queue.in_granted = true;
		granted((struct hwt_request *)request, arg, grant);
		checkout_queue.in_granted = false;
	}
	(void)a64_add_seq(&checkout->busy, UINT64_MAX);
}

void
queue_drain(void)
{
	struct queue *queue = &checkout_queue;
	struct request *request;

	queue->runs = true;
	while ((request = queue->first) != NULL) {
		queue->first = request->next;
		if (word_state(a64_load_acquire(&request->word)) == STATE_WOKEN)
			request_resume(request, 0);
		else
			deliver(request);
	}
	queue->runs = false;
}

void
request_go_on(struct request *request, int64_t tried)
{
	enum hwt_grant grant;

	for (;;) {
		grant = refusal_of(request, tried);
		if (grant == 0)
			grant = word_outcome(a64_load_acquire(&request->word));
		if (grant != 0) {
			request_finish(request, grant);
			return;
		}
		if (request->baton && tried != request->at_index)
			object_hand_on(request);
		if (object_wait(request, tried))
			return;
		tried = request_try(request);
	}
}

/* Most holds are shorter than a thread takes to sleep and wake up. These tries
 * do not count. */
int64_t
request_look(struct request *request, int64_t tried, unsigned looks)
{
	uint8_t refusals = request->refusals;

	for (; looks > 0 && tried >= 0 && !request_is_in_order(request);
	     looks--) {
		request->refusals = refusals;
		if (object_refuses(request, (uint32_t)tried))
			stall();
		else
			tried = request_try(request);
	}
	return tried;
}

void
request_resume(struct request *request, unsigned looks)
{
	int64_t tried;
	uint64_t word;

	do
		word = a64_load_acquire(&request->word);
	while (!a64_cas_seq(
	    &request->word, word, (word & ~STATE_MASK) | STATE_TRYING));
	if (word & OUTCOME_MASK) {
		request_finish(request, word_outcome(word));
		return;
	}
	tried = request_try(request);
	tried = request_look(request, tried, looks);
	request_go_on(request, tried);
}

int
request_end(struct request *request, enum hwt_grant grant)
{
	uint64_t word, next;
	enum state state;

	do {
		word = a64_load_acquire(&request->word);
		state = word_state(word);
		if (state != STATE_TRYING && state != STATE_WAITING &&
		    state != STATE_WOKEN)
			return -ENOENT;
		if (word & OUTCOME_MASK)
			return -EINPROGRESS;
		next = word | grant * OUTCOME_ONE;
		if (state == STATE_WAITING)
			next = (next & ~STATE_MASK) | STATE_TRYING;
		/* E:request acquire */
	} while (!a64_cas_seq(&request->word, word, next));
	if (state != STATE_WAITING)
		return state == STATE_WOKEN ? 0 : -EINPROGRESS;
	object_leave(request);
	request_finish(request, grant);
	return 0;
}

/* The deadline. Its one change of the word is the last that it does with a
 * request that others own. */
static void
expire(hwt_timeout timeout, void *arg)
{
	struct request *request = arg;
	uint64_t word, next;
	enum state state;

	(void)timeout;
	do {
		word = a64_load_acquire(&request->word);
		state = word_state(word);
		next = word & ~(ARMED | LATE);
		if (state != STATE_ENDED && !(word & OUTCOME_MASK))
			next |= HWT_GRANT_EXPIRED * OUTCOME_ONE;
		if (state == STATE_WAITING)
			next = (next & ~STATE_MASK) | STATE_TRYING;
	} while (!a64_cas_seq(&request->word, word, next));
	if (word & LATE) {
		queue_add(request);
	} else if (state == STATE_WAITING) {
		object_leave(request);
		request_finish(request, HWT_GRANT_EXPIRED);
	}
	queue_run();
}

int
request_begin(struct request *request, uint64_t delay_ns)
{
	int error;

	if (!wait_begin(request))
		return -ESHUTDOWN;
	if (delay_ns == HWT_NEVER)
		return 0;
	request_change(request, 0, ARMED);
	error = hwt_new_timeout(request->checkout->timer, &request->timeout,
	    expire, request, delay_ns);
	if (error != 0) {
		wait_end(request, (enum hwt_grant)0);
		(void)a64_add_seq(&request->checkout->busy, UINT64_MAX);
	}
	return error;
}

void
request_abandon(struct request *request)
{
	give_back(request, false);
	request_store(request, STATE_READY);
}

/* Stopping waits. */

static bool
names(const struct request *request, const struct object *object)
{
	uint32_t i;

	for (i = 0; i < request->count; i++) {
		if (request_object(request, i) == object)
			return true;
	}
	return object == NULL;
}

/* Whether the caller is its owner now. */
static bool
stop_request(struct request *request, const struct object *object,
    enum hwt_grant grant, bool *tried)
{
	uint64_t word, next;

	do {
		word = a64_load_acquire(&request->word);
		next = word;
		if (!(word & OUTCOME_MASK))
			next |= grant * OUTCOME_ONE;
		if (word_state(word) == STATE_WAITING)
			next = (next & ~STATE_MASK) | STATE_TRYING;
		else if (word_state(word) == STATE_TRYING)
			*tried = true;
		else if (aptr_load_acquire(&request->at) == object)
			next |= GONE;
	} while (!a64_cas_seq(&request->word, word, next));
	return word_state(word) == STATE_WAITING;
}

/* One that waited, in this shard; NULL: there is none left. */
static struct request *
stop_one(struct shard *shard, const struct object *object, enum hwt_grant grant,
    bool *tried)
{
	struct request *request, *stopped = NULL;

	shard_lock(shard);
	request = shard->list;
	while (request != NULL && stopped == NULL) {
		if (names(request, object) &&
		    stop_request(request, object, grant, tried))
			stopped = request;
		request = request->list_next;
		if (request == shard->list)
			break;
	}
	shard_unlock(shard);
	return stopped;
}

void
requests_stop(struct hwt_checkout *checkout, const struct object *object,
    enum hwt_grant grant)
{
	struct shard *shard, *end = checkout->shards + checkout->shard_count;
	struct request *request;
	uint32_t tries = 0;
	bool tried;

	for (;;) {
		tried = false;
		for (shard = checkout->shards; shard < end; shard++) {
			while ((request = stop_one(
				    shard, object, grant, &tried)) != NULL) {
				object_leave(request);
				request_finish(request, grant);
			}
		}
		if (!tried || object == NULL)
			return;
		yield_or_pause(&tries);
	}
}
