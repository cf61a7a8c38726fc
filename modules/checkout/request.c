/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request: its calls, trying it, waiting, ending, and what a thread has to do
 * before its call returns. DESIGN has the argument: who is woken, and what
 * holds where two calls meet.
 *
 *     READY --------------------- all were free --------------> GRANTED
 *       |                                                          ^
 *       | begin_wait                                               |
 *       v        object_wait            serve, gate_open           |
 *     TRYING ---------------> WAITING -----------------> WOKEN     |
 *       |  ^                     | interrupt               |       |
 *       |  +---------------------+-------------------------+       |
 *       |                                  request_resume          |
 *       +---------------------- deliver ---------------------------+
 *       |                                                          |
 *       +------> READY <------------------------- release ---------+
 *
 * TRYING and WOKEN belong to one thread: all fields but the word, the links and
 * linked are that owner's. Between request_finish and deliver a request is in
 * no list, and its outcome is in its word. A request is tried in ascending
 * order of its objects. If one refuses, those it has got are given back first,
 * in reverse; then it waits for that one.
 *
 * EDGES
 *   E:wait    a word that refuses gets WAITERS, by compare-and-swap; whoever
 *             gives the object back changes the same word.
 *   E:pause   drawn in pause.c
 *   E:request what the owner wrote into the request: release by giving it up,
 *             acquire by the next owner. All changes of the word are
 *             read-modify-writes, but for the owner's.
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

	request->link[AT].next = NULL;
	if (queue->first == NULL)
		queue->first = request;
	else
		queue->last->link[AT].next = request;
	queue->last = request;
}

/* The word. */

/* Answers what it was. */
static uint64_t
request_change(struct request *request, uint64_t clear, uint64_t set)
{
	uint64_t word;

	do
		word = a64_load_acquire(&request->word);
	while (!a64_cas_seq(&request->word, word, (word & ~clear) | set));
	return word;
}

static bool
may_be_ended(uint64_t word)
{
	return word_state(word) >= STATE_TRYING &&
	    word_state(word) <= STATE_WOKEN;
}

uint64_t
request_interrupt(struct request *request, enum hwt_grant grant, uint64_t clear,
    const struct object *gone)
{
	uint64_t word, next;

	do {
		word = a64_load_acquire(&request->word);
		next = word & ~clear;
		if (may_be_ended(word) && !(word & OUTCOME_MASK))
			next |= grant * OUTCOME_ONE;
		if (word_state(word) == STATE_WAITING)
			next = (next & ~STATE_MASK) | STATE_TRYING;
		else if (word_state(word) == STATE_WOKEN && gone != NULL &&
		    aptr_load_acquire(&request->at) == gone)
			next |= GONE;
		/* E:request acquire */
	} while (!a64_cas_seq(&request->word, word, next));
	return word;
}

/* Trying. */

static void
give_back(struct request *request)
{
	while (request->held > 0)
		object_give(request, --request->held);
}

static __attribute__((noinline)) int64_t
take_set(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;
	uint32_t i, count = request->count;

	if (a64_load_seq(&checkout->gate.word) & (IN_USE | RETIRED))
		return TRIED_GATE;
	for (i = request->held; i < count && object_take(request, i); i++)
		;
	request->held = i;
	if (i < count)
		return i;
	return out_begin(checkout, &shard_of(checkout, request)->granted)
	    ? TRIED_ALL
	    : TRIED_GATE;
}

/* In order, refused by an object, it keeps what it has. */
static void
refused(struct request *request, int64_t tried)
{
	if (tried >= 0 && request->refusals < UINT8_MAX)
		request->refusals++;
	if (tried == TRIED_GATE || !request_is_in_order(request))
		give_back(request);
}

/* Once, by its owner. */
static inline int64_t
try_once(struct request *request)
{
	int64_t tried =
	    request->is_pool ? group_take(request, 0) : take_set(request);

	if (tried != TRIED_ALL)
		refused(request, tried);
	return tried;
}

/* Why it refuses for good; 0: it may be had later. */
static enum hwt_grant
refusal_of(const struct request *request, int64_t tried)
{
	const struct object *object;

	if (tried == TRIED_ALL)
		return HWT_GRANTED;
	object = tried == TRIED_GATE ? &request->checkout->gate
				     : request_object(request, (uint32_t)tried);
	if (!(a64_load_seq(&object->word) & RETIRED))
		return (enum hwt_grant)0;
	return tried == TRIED_GATE ? HWT_GRANT_SHUT_DOWN : HWT_GRANT_RETIRED;
}

/* The list of those whose waits have begun. */

/* An error: what ends waits may have searched the list before. */
static int
list_add(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;
	struct shard *shard = shard_of(checkout, request);
	int error = 0;
	uint32_t i;

	request->since_ns = checkout_now(checkout);
	request->ticket = a64_add_seq(&checkout->tickets, 1);
	(void)a64_add_seq(&checkout->busy, 1);
	shard_lock(shard);
	ring_add(shard->list, request, ALL);
	if (shard->list == NULL)
		shard->list = request;
	shard->stats.waiting++;
	shard->stats.waited++;
	shard_unlock(shard);
	for (i = 0; i < request->count; i++) {
		if (a64_load_seq(&request_object(request, i)->word) & RETIRED)
			error = -EIDRM;
	}
	return is_shut_down(checkout) ? -ESHUTDOWN : error;
}

/* grant 0: its wait did not begin. */
static void
list_remove(struct request *request, enum hwt_grant grant)
{
	struct shard *shard = shard_of(request->checkout, request);
	struct hwt_checkout_stats *stats = &shard->stats;
	uint64_t waited_ns =
	    checkout_now(request->checkout) - request->since_ns;

	shard_lock(shard);
	shard->list = ring_remove(shard->list, request, ALL);
	stats->waiting--;
	stats->waited -= grant == 0;
	if (grant != 0) {
		shard->ended[grant]++;
		stats->wait_ns_histogram[63 - __builtin_clzll(waited_ns | 1)]++;
		stats->wait_ns_sum += waited_ns;
		if (waited_ns > stats->wait_ns_max)
			stats->wait_ns_max = waited_ns;
	}
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

/* Nobody uses its objects for it after list_remove. */
void
request_finish(struct request *request, enum hwt_grant grant)
{
	if (grant != HWT_GRANTED)
		give_back(request);
	if (request->baton && !(a64_load_acquire(&request->word) & GONE))
		object_leave(request);
	list_remove(request, grant);
	(void)request_change(request, OUTCOME_MASK | GONE, grant * OUTCOME_ONE);
	if (disarm(request))
		queue_add(request);
}

/* It was WAITING, and is this thread's now. */
static void
stop_waiting(struct request *request, enum hwt_grant grant)
{
	object_leave(request);
	request_finish(request, grant);
}

void
blocked_tell(struct blocked *blocked, int told)
{
	(void)pthread_mutex_lock(&blocked->lock);
	blocked->told = told;
	(void)pthread_cond_signal(&blocked->wakes);
	(void)pthread_mutex_unlock(&blocked->lock);
}

/* Of one that has ended: it is the user's when granted is called. */
static void
deliver(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;
	enum hwt_grant grant = word_outcome(a64_load_acquire(&request->word));
	struct blocked *blocked = request->blocked;
	hwt_granted *granted = request->granted;
	void *arg = request->arg;
	bool calls = checkout_queue.calls;

	request_store(
	    request, grant == HWT_GRANTED ? STATE_GRANTED : STATE_READY);
	if (blocked != NULL) {
		blocked_tell(blocked, (int)grant);
	} else {
		checkout_queue.calls = true;
		granted((struct hwt_request *)request, arg, grant);
		checkout_queue.calls = calls;
	}
	(void)a64_add_seq(&checkout->busy, UINT64_MAX);
}

/* It was tried with that result: goes on until it waits or has ended. */
static void
go_on(struct request *request, int64_t tried)
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
			object_leave(request);
		if (object_wait(request, tried))
			return;
		tried = try_once(request);
	}
}

/* WOKEN: it is tried. */
static void
request_resume(struct request *request)
{
	uint64_t word = request_change(request, STATE_MASK, STATE_TRYING);

	if (word & OUTCOME_MASK)
		request_finish(request, word_outcome(word));
	else
		go_on(request, try_once(request));
}

void
queue_drain(void)
{
	struct queue *queue = &checkout_queue;
	struct request *request;

	queue->runs = true;
	while ((request = queue->first) != NULL) {
		queue->first = request->link[AT].next;
		if (word_state(a64_load_acquire(&request->word)) == STATE_WOKEN)
			request_resume(request);
		else
			deliver(request);
	}
	queue->runs = false;
}

/* The deadline. Its one change of the word is the last that it does with a
 * request that others own. */
static void
expire(hwt_timeout timeout, void *arg)
{
	struct request *request = arg;
	uint64_t word =
	    request_interrupt(request, HWT_GRANT_EXPIRED, ARMED | LATE, NULL);

	(void)timeout;
	if (word & LATE)
		queue_add(request);
	else if (word_state(word) == STATE_WAITING)
		stop_waiting(request, HWT_GRANT_EXPIRED);
	queue_run();
}

/* Stopping waits. */

static bool
names(const struct request *request, const struct object *object)
{
	uint32_t i = 0;

	while (i < request->count && request_object(request, i) != object)
		i++;
	return object == NULL || i < request->count;
}

/* It waited, and is this thread's now. */
static bool
was_stopped(struct request *request, const struct object *object,
    enum hwt_grant grant, bool *tried)
{
	enum state state;

	if (!names(request, object))
		return false;
	state = word_state(request_interrupt(request, grant, 0, object));
	*tried = *tried || state == STATE_TRYING;
	return state == STATE_WAITING;
}

/* True: another thread tries one of them. What was stopped is in the list until
 * the next one is found behind it. */
static bool
stop_shard(
    struct shard *shard, const struct object *object, enum hwt_grant grant)
{
	struct request *next, *stopped = NULL;
	bool tried = false;

	do {
		shard_lock(shard);
		next = ring_next(shard->list, stopped, ALL);
		while (
		    next != NULL && !was_stopped(next, object, grant, &tried))
			next = ring_next(shard->list, next, ALL);
		shard_unlock(shard);
		if (stopped != NULL)
			stop_waiting(stopped, grant);
		stopped = next;
	} while (stopped != NULL);
	return tried;
}

void
requests_stop(struct hwt_checkout *checkout, const struct object *object,
    enum hwt_grant grant)
{
	struct shard *shard, *end = checkout->shards + checkout->shard_count;
	uint32_t tries = 0;
	bool tried;

	do {
		tried = false;
		for (shard = checkout->shards; shard < end; shard++)
			tried = stop_shard(shard, object, grant) || tried;
		if (tried && object != NULL)
			yield_or_pause(&tries);
	} while (tried && object != NULL);
	queue_run();
}

/* The calls. */

/* The state, or an error. */
static inline int
enter(const struct hwt_checkout *checkout, const struct request *request)
{
	int error = checkout_enter(checkout);
	uint64_t word;

	if (error != 0)
		return error;
	if (request == NULL)
		return -EINVAL;
	word = a64_load_acquire(&request->word);
	if ((word & MAGIC_MASK) != MAGIC || request->checkout != checkout)
		return -EINVAL;
	return (int)word_state(word);
}

int
grant_error(enum hwt_grant grant)
{
	static const int errors[] = {[HWT_GRANTED] = 0,
	    [HWT_GRANT_EXPIRED] = -ETIMEDOUT,
	    [HWT_GRANT_CANCELLED] = -ECANCELED,
	    [HWT_GRANT_RETIRED] = -EIDRM,
	    [HWT_GRANT_SHUT_DOWN] = -ESHUTDOWN};

	return errors[grant];
}

static void
abandon(struct request *request)
{
	give_back(request);
	request_store(request, STATE_READY);
}

/* If it is READY, it is tried once, and stays so: nobody else sees it before
 * its wait begins. 0: granted; 1: refused, and it may keep objects. */
static inline int
begin(struct hwt_checkout *checkout, struct request *request, uint64_t delay_ns,
    int64_t *tried)
{
	int state = enter(checkout, request);
	enum hwt_grant grant;

	if (state < 0 || !delay_is_valid(delay_ns))
		return state < 0 ? state : -EINVAL;
	if (state != STATE_READY)
		return -EBUSY;
	if (request->count == 0)
		return -EIDRM;
	request->held = 0;
	request->refusals = 0;
	*tried = try_once(request);
	if (*tried == TRIED_ALL) {
		request_store(request, STATE_GRANTED);
		return 0;
	}
	grant = refusal_of(request, *tried);
	if (grant == 0)
		return 1;
	abandon(request);
	return grant_error(grant);
}

/* 1: it waits, or has ended since. blocked: NULL, or this thread's. */
static int
begin_wait(struct request *request, uint64_t delay_ns, int64_t tried,
    struct blocked *blocked)
{
	bool armed = delay_ns != HWT_NEVER;
	int error;

	request->blocked = blocked;
	request_store(request, STATE_TRYING | (armed ? ARMED : 0));
	error = list_add(request);
	if (error == 0 && armed)
		error = hwt_new_timeout(request->checkout->timer,
		    &request->timeout, expire, request, delay_ns);
	if (error == 0) {
		go_on(request, tried);
	} else {
		list_remove(request, (enum hwt_grant)0);
		(void)a64_add_seq(&request->checkout->busy, UINT64_MAX);
		abandon(request);
	}
	queue_run();
	return error != 0 ? error : 1;
}

int
hwt_checkout_try(struct hwt_checkout *checkout, struct hwt_request *user)
{
	struct request *request = (struct request *)user;
	int64_t tried;
	int result = begin(checkout, request, 0, &tried);

	if (result == 1) {
		abandon(request);
		result = -EAGAIN;
	}
	queue_run();
	return result;
}

/* In this thread: sleeps, and tries the request when it was woken for that. */
static __attribute__((noinline)) int
wait_in_thread(struct request *request, uint64_t delay_ns, int64_t tried)
{
	struct blocked blocked = {.lock = PTHREAD_MUTEX_INITIALIZER,
	    .wakes = PTHREAD_COND_INITIALIZER};
	int result = begin_wait(request, delay_ns, tried, &blocked), told;

	while (result == 1) {
		(void)pthread_mutex_lock(&blocked.lock);
		while (blocked.told == 0)
			(void)pthread_cond_wait(&blocked.wakes, &blocked.lock);
		told = blocked.told;
		blocked.told = 0;
		(void)pthread_mutex_unlock(&blocked.lock);
		if (told == TOLD_TO_TRY)
			request_resume(request);
		else
			result = grant_error((enum hwt_grant)told);
		queue_run();
	}
	(void)pthread_cond_destroy(&blocked.wakes);
	(void)pthread_mutex_destroy(&blocked.lock);
	return result;
}

static inline int
acquire(struct hwt_checkout *checkout, struct request *request,
    uint64_t delay_ns, bool in_thread)
{
	int64_t tried;
	int result = begin(checkout, request, delay_ns, &tried);

	if (result == 1)
		result = in_thread ? wait_in_thread(request, delay_ns, tried)
				   : begin_wait(request, delay_ns, tried, NULL);
	queue_run();
	return result;
}

int
hwt_checkout_acquire(
    struct hwt_checkout *checkout, struct hwt_request *user, uint64_t delay_ns)
{
	struct request *request = (struct request *)user;

	if (request != NULL && request->granted == NULL)
		delay_ns = DELAY_LIMIT; /* -EINVAL, behind other errors */
	return acquire(checkout, request, delay_ns, false);
}

int
hwt_checkout_acquire_wait(
    struct hwt_checkout *checkout, struct hwt_request *user, uint64_t delay_ns)
{
	if (checkout_queue.calls)
		return -EDEADLK;
	return acquire(checkout, (struct request *)user, delay_ns, true);
}

static __attribute__((noinline)) void
give_set(struct request *request)
{
	struct hwt_checkout *checkout = request->checkout;
	uint32_t i;

	for (i = request->held; i > 0; i--)
		object_give(request, i - 1);
	out_end(checkout, &shard_of(checkout, request)->released, 1);
}

int
hwt_checkout_release(struct hwt_checkout *checkout, struct hwt_request *user)
{
	struct request *request = (struct request *)user;
	int state = enter(checkout, request);

	if (state != STATE_GRANTED)
		return state < 0 ? state : -ENOENT;
	request_store(request, STATE_READY);
	if (request->is_pool)
		group_give(request, 0, true);
	else
		give_set(request);
	queue_run();
	return 0;
}

int
hwt_checkout_cancel(struct hwt_checkout *checkout, struct hwt_request *user)
{
	struct request *request = (struct request *)user;
	int result = enter(checkout, request);
	uint64_t word;

	if (result < 0)
		return result;
	word = request_interrupt(request, HWT_GRANT_CANCELLED, 0, NULL);
	if (!may_be_ended(word))
		result = -ENOENT;
	else if (word & OUTCOME_MASK || word_state(word) == STATE_TRYING)
		result = -EINPROGRESS;
	else
		result = 0;
	if (word_state(word) == STATE_WAITING)
		stop_waiting(request, HWT_GRANT_CANCELLED);
	queue_run();
	return result;
}
