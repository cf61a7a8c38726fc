/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that wait under keys: watching, events, deadlines, ends.
 *
 * Each key belongs to a shard, which has one lock and a table of what is linked
 * under its keys (table.c). What guards the state of an operation is its GUARD:
 * the lock of its key's shard, if it has one key, otherwise a lock of its own,
 * which may be taken inside of a shard's lock, never the reverse. Nobody holds
 * two locks of a kind, nor any while a predicate or done runs.
 *
 * THE OPERATION IS A TIMEOUT. Each has one, HWT_NEVER without a deadline, and
 * its handle is the timeout's. The RIGHT to end it belongs to whoever gets 0
 * from hwt_cancel, or else to the timeout's task. So the timer decides all
 * races and refuses stale handles, and an operation that was found by its
 * handle cannot be freed before that caller has used its right. Events ask for
 * the right under the guard and use it there; the task and a call by handle
 * have it before they know the guard.
 *
 * STATES, and who makes each move, always with the guard
 *
 *          operation_settle       walk_try
 *   LINKING ----------> IDLE --------------------> RUNNING
 *      |                 | <----------------------    |
 *      |                 |     operation_settle       |
 *      +-----------------+----------------------------+---> ENDED
 *                         operation_end
 *
 * IDLE: a walk takes it, the right ends it. LINKING or RUNNING: events and
 * those who have the right leave a mark with the owner, again or outcome, and
 * do not wait. The owner reads the marks in operation_settle: an outcome ends
 * the operation, also if the predicate has answered true; a predicate that
 * holds ends it if the owner gets the right, and otherwise somebody is about
 * to; again makes it call the predicate once more. So its predicate never runs
 * twice at a time nor beside or after done, which the same thread calls. One
 * that holds in the watch wins over the deadline: then the watch waits for the
 * task, which finds it ENDED, before it is freed.
 *
 * WHY IT TRIES AFTER IT IS LINKED, AND TWICE
 *
 *        watch                               event
 *   (A1) link, under the shard's lock   (B1) change the state
 *   (A2) call the predicate             (B2) look under the key, with its
 *                                            shard's lock
 *
 *   Forbidden: A2 does not see B1, and B2 does not find A1. One of the two is
 *   first under the lock. If it is A1, then B2 finds the link; if it is B2,
 *   then B1 is before A2. An event that finds a predicate running is as late as
 *   B2 after A1, and A2 may have looked before B1: that is what again is for.
 *
 * A WALK through a key takes one operation at a time, so that whatever comes
 * for another one waits for no predicate. Where it calls none, it keeps the
 * lock for WALK_BATCH operations at most. It is in its shard's list meanwhile:
 * whoever unlinks the link that it is at, or its end, moves it (walks_skip).
 * What is linked, or watched again, meanwhile is behind its end.
 *
 * ENDING. A link is removed with its shard's lock, the one that is held by
 * operation_end or later by call_unlink. Who finds the operation under a key
 * meanwhile sees ENDED, and that shard's lock keeps it from being freed. It
 * counts as pending until its first link has gone.
 *
 * EDGES
 *   E:lock      what a lock guards: lock_take, lock_release
 *   E:returned  done has returned: release by call_done, acquire by shards_sum
 *   E:deciding  a right was got by a handle and is used later: seq by
 *               decide_by_handle, then hwt_cancel; acquire by
 *               operation_is_orphan, after its caller's hwt_cancel
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "purgatory.h"

#define SHARDS_DEFAULT 64u
#define SHARDS_MAX (1u << 16)
#ifndef WALK_BATCH
#define WALK_BATCH 32u
#endif
/* A watch in callbacks nested so deep leaves done to the outermost call. */
#define DEPTH_MAX 8u
#define KEYS_FEW 8u /* more are sorted to find duplicates */

/* An event; in a predicate it waits for the end of the outermost call. */
struct request {
	struct request *next; /* NULL */
	struct hwt_key key;
	unsigned outcome; /* 0: a check; HWT_COMPLETED: a raise */
	uint64_t value;
};

/* The outermost call of a thread for a purgatory; calls in its callbacks are
 * inside of it. What ends in them waits here, so that a chain takes no stack;
 * but for a watch that completes at once, which calls done itself, up to
 * DEPTH_MAX deep. An event in a predicate waits as a request. */
struct call {
	struct hwt_purgatory *purgatory;
	struct call *outer; /* for another purgatory */
	struct ended_list ended; /* done is to be called */
	struct request *first_request, *last_request;
	unsigned dones, predicates; /* that the thread is in */
};

/* Not static: the explorer switches it with its threads. */
extern _Thread_local struct call *purgatory_calls
    __attribute__((tls_model("initial-exec")));
_Thread_local struct call *purgatory_calls;

/* 0; or what each call answers without one, or in a forked child. */
static int
purgatory_enter(const struct hwt_purgatory *purgatory)
{
	if (purgatory == NULL)
		return -EINVAL;
	return timer_is_foreign(purgatory->timer) ? -EOWNERDEAD : 0;
}

static struct call *
call_of(const struct hwt_purgatory *purgatory)
{
	struct call *call = purgatory_calls;

	while (call != NULL && call->purgatory != purgatory)
		call = call->outer;
	return call;
}

/* The outermost call of this thread: call, if it is in none. */
static struct call *
call_enter(struct call *call, struct hwt_purgatory *purgatory)
{
	struct call *outermost = call_of(purgatory);

	if (outermost != NULL)
		return outermost;
	*call = (struct call){.purgatory = purgatory, .outer = purgatory_calls};
	purgatory_calls = call;
	return call;
}

static void
ended_add(struct ended_list *list, struct operation *operation)
{
	operation->next = NULL;
	*(list->first == NULL ? &list->first : &list->last->next) = operation;
	list->last = operation;
}

static a64_t *
operation_guard(struct operation *operation)
{
	return operation->link_count == 1 ? &operation->home->lock
					  : &operation->lock;
}

/* For who holds the lock of a shard where it is linked. */
static inline void
operation_lock_here(struct operation *operation)
{
	if (operation->link_count != 1)
		lock_take(&operation->lock);
}

static inline void
operation_unlock_here(struct operation *operation)
{
	if (operation->link_count != 1)
		lock_release(&operation->lock);
}

static hwt_timeout
timeout_of(const struct hwt_purgatory *purgatory, hwt_operation handle)
{
	return (hwt_timeout){
	    handle.id != 0 ? handle.id ^ purgatory->salt.word[0] : 0};
}

/* Asks the timer for the right to end it. */
static int
operation_claim(const struct operation *operation)
{
	const struct hwt_purgatory *purgatory = operation->home->purgatory;

	return hwt_cancel(
	    purgatory->timer, timeout_of(purgatory, operation->handle));
}

static void
permit_release(struct hwt_purgatory *purgatory)
{
	if (purgatory->max_pending != 0)
		(void)a64_add_seq(&purgatory->permits, UINT64_MAX);
}

/* With the lock of its shard, for the owner of an operation that has ended. */
static void
operation_unlink(
    struct operation *operation, struct shard *shard, struct link *link)
{
	link_remove(shard, link);
	link->node.slot = SLOT_GONE;
	if (link != &operation->link[0])
		return;
	shard->pending--;
	shard->thresholds -= operation->has_threshold;
	shard->ended[operation->outcome - HWT_COMPLETED]++;
	permit_release(shard->purgatory);
}

/* With the guard and the right, of an operation that nobody else owns. From now
 * on whoever has ended it owns it. */
static void
operation_end(struct operation *operation, unsigned outcome)
{
	operation->outcome = (uint8_t)outcome;
	operation->state = OPERATION_ENDED;
	operation->next = NULL;
	if (operation->link_count != 1)
		return;
	if (operation->has_threshold && threshold_of(operation)->level != NULL)
		threshold_remove(operation);
	operation_unlink(operation, operation->home, &operation->link[0]);
}

enum settled {
	SETTLED_IDLE,
	SETTLED_AGAIN, /* the caller still owns it */
	SETTLED_LEFT, /* ended as another call had decided */
	SETTLED_ENDED /* completed by this call */
};

/* With the guard, for the owner, after its predicate has answered. */
static enum settled
operation_settle(struct operation *operation, bool holds)
{
	int rc = 0;
	/* Then a deadline's task has left a mark, or finds that it ended. */
	const bool is_early = holds && operation->state == OPERATION_LINKING;

	if (operation->outcome != 0 &&
	    !(is_early && operation->outcome == HWT_EXPIRED)) {
		operation_end(operation, operation->outcome);
		return SETTLED_LEFT;
	}
	if (holds && operation->outcome == 0)
		rc = operation_claim(operation);
	if (holds && (rc == 0 || (is_early && rc == -EINPROGRESS))) {
		operation_end(operation, HWT_COMPLETED);
		return SETTLED_ENDED;
	}
	if (operation->again && !holds) {
		operation->again = false;
		return SETTLED_AGAIN;
	}
	operation->state = OPERATION_IDLE;
	return SETTLED_IDLE;
}

/* With the guard and the right. True: it has ended, and the caller is to call
 * its done; otherwise its owner does, or has completed it in its watch. */
static bool
operation_decide(struct operation *operation, enum hwt_outcome outcome)
{
	if (operation->state == OPERATION_IDLE) {
		operation_end(operation, outcome);
		return true;
	}
	if (operation->state != OPERATION_ENDED)
		operation->outcome = (uint8_t)outcome;
	return false;
}

static a64_t *
deciding_of(struct hwt_purgatory *purgatory, hwt_operation handle)
{
	return &shard_of(purgatory, (uint32_t)handle.id)->deciding;
}

/* If the timer was stopped, its timeouts are gone, and nobody gets a right.
 * With the guard: it is so if there is no outcome, the timer answers -ENOENT,
 * and after that no call by a handle like its own is deciding. For who had a
 * right that is not used yet would be the task, which is under way until then
 * (-EINPROGRESS), or such a call, counted from before it asked for it. */
static bool
operation_is_orphan(const struct operation *operation, int rc)
{
	/* E:deciding acquire */
	return rc == -ENOENT && operation->outcome == 0 &&
	    a64_load_acquire(deciding_of(
		operation->home->purgatory, operation->handle)) == 0;
}

static void
call_done(struct call *call, struct operation *operation)
{
	struct shard *home = operation->home;

	call->dones++;
	operation->done(operation->handle, operation->arg, operation->outcome);
	call->dones--;
	free(operation);
	/* E:returned release */
	(void)a64_add_seq(&home->returned, 1);
}

/* What callbacks have left, at the outermost call. */
static NOINLINE void
call_drain(struct call *call)
{
	struct operation *operation;

	while ((operation = call->ended.first) != NULL) {
		call->ended.first = operation->next;
		call_done(call, operation);
	}
}

/* Of its links, those that are left. */
static NOINLINE void
call_unlink(struct call *call, struct operation *operation)
{
	struct shard *shard;
	struct link *link;

	for (link = operation->link;
	     link < &operation->link[operation->link_count]; link++) {
		if (link->node.slot == SLOT_GONE)
			continue;
		shard = shard_of(call->purgatory, link->node.hash);
		lock_take(&shard->lock);
		operation_unlink(operation, shard, link);
		lock_release(&shard->lock);
	}
}

/* For a list of those that the call has ended. In callbacks nested so deep,
 * done is left to the outermost call. */
static void
call_finish(struct call *call, struct operation *operation, unsigned depth)
{
	struct operation *next;

	for (; operation != NULL; operation = next) {
		next = operation->next;
		if (operation->link_count != 1)
			call_unlink(call, operation);
		if (call->dones + call->predicates >= depth) {
			ended_add(&call->ended, operation);
			continue;
		}
		call_done(call, operation);
		if (call->ended.first != NULL && call->predicates == 0 &&
		    call->dones == 0)
			call_drain(call);
	}
}

/* With the shard's lock, which it releases for a while. */
static void
walk_pause(struct walk *walk)
{
	walk->visited = 0;
	lock_release(&walk->shard->lock);
	call_finish(walk->call, walk->ended.first, 1);
	walk->ended.first = NULL;
	lock_take(&walk->shard->lock);
}

/* With the shard's lock, where it is linked: decides it, if this call gets the
 * right, or shuts down an orphan. */
static void
walk_decide(
    struct walk *walk, struct operation *operation, enum hwt_outcome outcome)
{
	int rc = -ENOENT;

	operation_lock_here(operation);
	if (operation->outcome == 0)
		rc = operation_claim(operation);
	if (rc == 0 ||
	    (outcome == HWT_SHUT_DOWN && operation_is_orphan(operation, rc))) {
		walk->decided++;
		if (operation_decide(operation, outcome))
			ended_add(&walk->ended, operation);
	}
	operation_unlock_here(operation);
}

/* With the shard's lock, which it releases for a while: calls the predicate, or
 * leaves a mark with who owns the operation. */
static void
walk_try(struct walk *walk, struct operation *operation, struct link *link)
{
	struct shard *shard = walk->shard;
	enum settled settled = SETTLED_AGAIN;
	bool holds;

	operation_lock_here(operation);
	if (operation->state != OPERATION_IDLE) {
		operation->again = true;
		operation_unlock_here(operation);
		return;
	}
	operation->state = OPERATION_RUNNING;
	while (settled == SETTLED_AGAIN) {
		operation_unlock_here(operation);
		shard->tried++;
		lock_release(&shard->lock);
		holds =
		    operation->try_complete(operation->handle, operation->arg);
		lock_take(&shard->lock);
		operation_lock_here(operation);
		settled = operation_settle(operation, holds);
	}
	operation_unlock_here(operation);
	walk->visited = 0;
	if (settled == SETTLED_IDLE)
		return;
	walk->decided += settled == SETTLED_ENDED;
	if (operation->link_count != 1)
		operation_unlink(operation, shard, link);
	ended_add(&walk->ended, operation);
	/* After the last one, event_found does the same. */
	if (walk->at == NULL)
		return;
	walk->call->predicates--;
	walk_pause(walk);
	walk->call->predicates++;
}

/* With the shard's lock: through the ring, except what is linked meanwhile.
 * outcome 0: what the predicates say. */
static void
walk_ring(struct walk *walk, struct link *first, unsigned outcome)
{
	struct operation *operation;
	struct walk **at;
	struct link *link;

	walk->at = first;
	walk->end = first->previous;
	walk->next = walk->shard->walks;
	walk->shard->walks = walk;
	while ((link = walk->at) != NULL) {
		walk->at = link == walk->end ? NULL : link->next;
		operation = link_operation(link);
		walk->visited++;
		if (outcome != 0)
			walk_decide(walk, operation, outcome);
		else if (operation->try_complete != NULL)
			walk_try(walk, operation, link);
		if (walk->visited == WALK_BATCH)
			walk_pause(walk);
	}
	for (at = &walk->shard->walks; *at != walk;)
		at = &(*at)->next;
	*at = walk->next;
}

/* With the shard's lock, of a key with a ring. */
static int
walk_raise(struct walk *walk, const struct request *event, uint32_t hash)
{
	struct level *level = level_get(walk->shard, &event->key, hash);
	struct operation *operation;

	if (level == NULL)
		return -ENOMEM;
	if (event->value <= level->value)
		return 0;
	level->value = event->value;
	/* It goes with the last operation under the key; a later one of that
	 * key has another value. */
	while (level != NULL && level->value >= event->value &&
	    (operation = threshold_take(level, event->value)) != NULL) {
		walk_decide(walk, operation, HWT_COMPLETED);
		if (++walk->visited == WALK_BATCH)
			walk_pause(walk);
		level = node_level(
		    *table_find(walk->shard, &event->key, hash, true));
	}
	return 0;
}

/* Locks the shard if something is linked under the key; NULL: nothing is. */
static inline struct link *
key_lock(struct hwt_purgatory *purgatory, const struct hwt_key *key,
    struct shard **locked)
{
	const uint32_t hash = key_hash(&purgatory->secret, key);
	struct shard *shard = shard_of(purgatory, hash);
	struct link *first;

	lock_take(&shard->lock);
	first = node_link(*table_find(shard, key, hash, false));
	if (first == NULL)
		lock_release(&shard->lock);
	*locked = shard;
	return first;
}

/* In a predicate an event waits for the outermost call, so that it takes no
 * stack; a shutdown waits for that, as for a done. With the shard's lock, which
 * it releases. False: there is no memory. */
static bool
call_request(
    struct call *call, struct shard *shard, const struct request *event)
{
	struct request *request = malloc(sizeof(*request));

	if (request == NULL)
		return false;
	*request = *event;
	*(call->first_request == NULL ? &call->first_request
				      : &call->last_request->next) = request;
	call->last_request = request;
	(void)a64_add_seq(&shard->returned, UINT64_MAX);
	lock_release(&shard->lock);
	return true;
}

static void call_carry_out(struct call *call);

static inline void
call_leave(struct call *call, const struct call *own)
{
	if (call != own)
		return;
	if (call->ended.first != NULL || call->first_request != NULL)
		call_carry_out(call);
	purgatory_calls = call->outer;
}

/* With the shard's lock, which it releases: an event that concerns a ring. */
static NOINLINE int
event_found(struct hwt_purgatory *purgatory, struct shard *shard,
    struct link *first, const struct request *event, size_t *decided)
{
	struct call own, *call = call_enter(&own, purgatory);
	struct walk walk = {.call = call, .shard = shard};
	int rc = 0;

	if (call->predicates != 0 && call_request(call, shard, event))
		return 0;
	call->predicates += event->outcome == 0;
	if (event->outcome == HWT_COMPLETED)
		rc = walk_raise(&walk, event, first->node.hash);
	else
		walk_ring(&walk, first, event->outcome);
	call->predicates -= event->outcome == 0;
	lock_release(&shard->lock);
	call_finish(call, walk.ended.first, 1);
	if (decided != NULL)
		*decided = walk.decided;
	call_leave(call, &own);
	return rc;
}

/* What was left for the outermost call. */
static NOINLINE void
call_carry_out(struct call *call)
{
	struct request *request;
	struct shard *shard;
	struct link *first;

	call_drain(call);
	while ((request = call->first_request) != NULL) {
		call->first_request = request->next;
		first = key_lock(call->purgatory, &request->key, &shard);
		if (first != NULL)
			(void)event_found(
			    call->purgatory, shard, first, request, NULL);
		call_drain(call);
		/* E:returned release */
		(void)a64_add_seq(&shard->returned, 1);
		free(request);
	}
}

static inline int
purgatory_event(struct hwt_purgatory *purgatory, struct hwt_key key,
    unsigned outcome, uint64_t value, size_t *decided)
{
	struct shard *shard;
	struct link *first;
	int rc = purgatory_enter(purgatory);

	if (decided != NULL)
		*decided = 0;
	if (rc != 0 || (first = key_lock(purgatory, &key, &shard)) == NULL)
		return rc;
	return event_found(purgatory, shard, first,
	    &(struct request){NULL, key, outcome, value}, decided);
}

int
hwt_purgatory_check(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *completed)
{
	return purgatory_event(purgatory, key, 0, 0, completed);
}

int
hwt_purgatory_raise(struct hwt_purgatory *purgatory, struct hwt_key key,
    uint64_t value, size_t *completed)
{
	return purgatory_event(purgatory, key, HWT_COMPLETED, value, completed);
}

int
hwt_purgatory_cancel_key(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *cancelled)
{
	return purgatory_event(purgatory, key, HWT_CANCELLED, 0, cancelled);
}

int
hwt_purgatory_count_key(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *count)
{
	struct shard *shard;
	struct link *first;
	int rc = purgatory_enter(purgatory);

	if (rc != 0 || count == NULL)
		return rc != 0 ? rc : -EINVAL;
	*count = 0;
	if ((first = key_lock(purgatory, &key, &shard)) != NULL) {
		*count = ring_count(first);
		lock_release(&shard->lock);
	}
	return 0;
}

/* For who has the right, without a lock. */
static void
operation_decide_alone(struct operation *operation, enum hwt_outcome outcome)
{
	struct hwt_purgatory *purgatory = operation->home->purgatory;
	struct call own, *call;
	bool is_over;

	lock_take(operation_guard(operation));
	is_over = operation_decide(operation, outcome);
	lock_release(operation_guard(operation));
	if (!is_over)
		return;
	call = call_enter(&own, purgatory);
	call_finish(call, operation, 1);
	call_leave(call, &own);
}

static int
decide_by_handle(struct hwt_purgatory *purgatory, hwt_operation handle,
    enum hwt_outcome outcome)
{
	hwt_timeout timeout;
	void *arg = NULL;
	int rc = purgatory_enter(purgatory);

	if (rc != 0)
		return rc;
	timeout = timeout_of(purgatory, handle);
	/* E:deciding seq */
	(void)a64_add_seq(deciding_of(purgatory, handle), 1);
	rc = -ENOENT;
	/* If it can still be cancelled, arg is its operation. */
	if (hwt_state(purgatory->timer, timeout, &arg) > 0 &&
	    hwt_cancel(purgatory->timer, timeout) == 0) {
		operation_decide_alone(arg, outcome);
		rc = 0;
	}
	/* E:deciding seq */
	(void)a64_add_seq(deciding_of(purgatory, handle), UINT64_MAX);
	return rc;
}

int
hwt_operation_complete(struct hwt_purgatory *purgatory, hwt_operation operation)
{
	return decide_by_handle(purgatory, operation, HWT_COMPLETED);
}

int
hwt_operation_cancel(struct hwt_purgatory *purgatory, hwt_operation operation)
{
	return decide_by_handle(purgatory, operation, HWT_CANCELLED);
}

int
hwt_operation_reschedule(
    struct hwt_purgatory *purgatory, hwt_operation operation, uint64_t delay_ns)
{
	int rc;

	if (purgatory == NULL || !delay_is_valid(delay_ns))
		return -EINVAL;
	rc = hwt_reschedule(
	    purgatory->timer, timeout_of(purgatory, operation), delay_ns);
	return rc == -EINPROGRESS ? -ENOENT : rc;
}

/* A timeout's task: it has the right. */
static void
operation_expire(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	operation_decide_alone(arg, HWT_EXPIRED);
}

static bool
spec_is_valid(const struct hwt_operation_spec *spec)
{
	return spec != NULL && spec->done != NULL && spec->keys != NULL &&
	    spec->key_count != 0 && RESERVED_IS_ZERO(spec) &&
	    spec->key_count < SLOT_GONE &&
	    (spec->at_least == 0 ||
		(spec->try_complete == NULL && spec->key_count == 1)) &&
	    delay_is_valid(spec->delay_ns);
}

static int
compare_links(const void *a, const void *b)
{
	const struct link *x = a, *y = b;

	return memcmp(&x->node.key, &y->node.key, sizeof(x->node.key));
}

/* Each key once; many are sorted to find duplicates. Returns how many. */
static inline uint32_t
links_fill(const struct hwt_purgatory *purgatory, struct link *link,
    const struct hwt_operation_spec *spec)
{
	const bool is_sorted = spec->key_count > KEYS_FEW;
	const struct hwt_key *key;
	uint32_t i, k, count = 0;

	for (i = 0; is_sorted && i < spec->key_count; i++)
		link[i].node.key = spec->keys[i];
	if (is_sorted)
		qsort(link, spec->key_count, sizeof(*link), compare_links);
	for (i = 0; i < spec->key_count; i++) {
		key = is_sorted ? &link[i].node.key : &spec->keys[i];
		k = is_sorted && count > 0 ? count - 1 : 0;
		while (k < count && !key_equals(&link[k].node.key, key))
			k++;
		if (k < count)
			continue;
		link[k].node.key = *key;
		link[k].node.hash = key_hash(&purgatory->secret, key);
		link[k].node.slot = k;
		count++;
	}
	return count;
}

static struct operation *
operation_make(
    struct hwt_purgatory *purgatory, const struct hwt_operation_spec *spec)
{
	struct operation *operation =
	    malloc(sizeof(*operation) + spec->key_count * sizeof(struct link) +
		(spec->at_least != 0 ? sizeof(struct threshold) : 0));

	if (operation == NULL)
		return NULL;
	*operation = (struct operation){.try_complete = spec->try_complete,
	    .arg = spec->arg,
	    .done = spec->done,
	    .has_threshold = spec->at_least != 0};
	operation->link_count = links_fill(purgatory, operation->link, spec);
	operation->home = shard_of(purgatory, operation->link[0].node.hash);
	if (operation->has_threshold)
		*threshold_of(operation) =
		    (struct threshold){.at_least = spec->at_least};
	return operation;
}

static bool
permit_take(struct hwt_purgatory *purgatory)
{
	uint64_t taken;

	if (purgatory->max_pending == 0)
		return true;
	do {
		taken = a64_load_relaxed(&purgatory->permits);
		if (taken >= purgatory->max_pending)
			return false;
	} while (!a64_cas_seq(&purgatory->permits, taken, taken + 1));
	return true;
}

/* With the home's lock: puts it under its first key. *holds: the key's value
 * has reached at_least. */
static int
watch_link_first(struct shard *home, struct operation *operation, bool *holds)
{
	struct link *link = &operation->link[0];
	struct level *level;

	if (home->closed)
		return -ESHUTDOWN;
	if (operation->has_threshold) {
		level = level_get(home, &link->node.key, link->node.hash);
		if (level == NULL)
			return -ENOMEM;
		*holds = level->value >= threshold_of(operation)->at_least;
		if (!*holds)
			threshold_add(level, operation);
		home->thresholds++;
	}
	home->pending++;
	home->tried += operation->try_complete != NULL;
	link_add(home, link);
	return 0;
}

/* What is left: its other keys, and then the predicate, which so misses nothing
 * that others do. settled: before, with the home's lock; SETTLED_AGAIN: not. */
static int
watch_run(struct hwt_purgatory *purgatory, struct operation *operation,
    enum settled settled)
{
	struct call own, *call = call_enter(&own, purgatory);
	const bool is_deep = call->dones + call->predicates >= DEPTH_MAX;
	struct shard *home = operation->home, *shard;
	bool holds;
	uint32_t i;

	for (i = 1; i < operation->link_count; i++) {
		shard = shard_of(purgatory, operation->link[i].node.hash);
		lock_take(&shard->lock);
		link_add(shard, &operation->link[i]);
		lock_release(&shard->lock);
	}
	for (i = 0; settled == SETTLED_AGAIN; i++) {
		call->predicates++;
		holds = operation->try_complete != NULL &&
		    operation->try_complete(operation->handle, operation->arg);
		call->predicates--;
		lock_take(operation_guard(operation));
		settled = operation_settle(operation, holds);
		lock_release(operation_guard(operation));
	}
	if (i > 1) {
		lock_take(&home->lock);
		home->tried += i - 1;
		lock_release(&home->lock);
	}
	/* Afterwards the task of an early deadline is not running. */
	if (settled == SETTLED_ENDED)
		(void)!hwt_cancel_wait(
		    purgatory->timer, timeout_of(purgatory, operation->handle));
	if (settled != SETTLED_IDLE)
		call_finish(call, operation, DEPTH_MAX);
	call_leave(call, &own);
	return settled == SETTLED_ENDED && !is_deep;
}

int
hwt_purgatory_watch(struct hwt_purgatory *purgatory, hwt_operation *handle,
    const struct hwt_operation_spec *spec)
{
	enum settled settled = SETTLED_AGAIN;
	struct operation *operation;
	hwt_timeout timeout;
	struct shard *home;
	bool holds = false;
	int rc = -ENOMEM;

	if (handle != NULL)
		*handle = (hwt_operation){0};
	if (purgatory == NULL || !spec_is_valid(spec))
		return -EINVAL;
	if (!permit_take(purgatory))
		return -ENOBUFS;
	operation = operation_make(purgatory, spec);
	if (operation != NULL)
		rc = hwt_new_timeout(purgatory->timer, &timeout,
		    operation_expire, operation, spec->delay_ns);
	if (rc != 0)
		goto undo;
	operation->handle.id = timeout.id ^ purgatory->salt.word[0];
	if (handle != NULL)
		*handle = operation->handle;
	home = operation->home;
	lock_take(&home->lock);
	rc = watch_link_first(home, operation, &holds);
	/* If it is idle then, others may end it. */
	if (rc == 0 && operation->try_complete == NULL &&
	    operation->link_count == 1)
		settled = operation_settle(operation, holds);
	lock_release(&home->lock);
	if (rc == 0 && settled == SETTLED_IDLE)
		return 0;
	if (rc == 0)
		return watch_run(purgatory, operation, settled);
	/* Afterwards its task is not running. */
	(void)!hwt_cancel_wait(purgatory->timer, timeout);
	if (handle != NULL)
		*handle = (hwt_operation){0};
undo:
	free(operation);
	permit_release(purgatory);
	return rc;
}

int
hwt_purgatory_create(struct hwt_purgatory **purgatory, struct hwt *timer,
    const struct hwt_purgatory_options *options)
{
	static const struct hwt_purgatory_options defaults;
	struct hwt_purgatory *made;
	struct shard *shard;
	uint32_t count;
	size_t bytes;

	if (options == NULL)
		options = &defaults;
	if (purgatory == NULL || timer == NULL || !RESERVED_IS_ZERO(options) ||
	    options->flags != 0 || options->shards > SHARDS_MAX ||
	    (options->shards & (options->shards - 1)) != 0)
		return -EINVAL;
	if (timer_is_foreign(timer))
		return -EOWNERDEAD;
	count = options->shards != 0 ? options->shards : SHARDS_DEFAULT;
	bytes = sizeof(*made) + count * sizeof(struct shard);
	made = aligned_alloc(_Alignof(struct hwt_purgatory), bytes);
	if (made == NULL)
		return -ENOMEM;
	memset(made, 0, bytes);
	made->timer = timer;
	made->max_pending = options->max_pending;
	made->shard_count = count;
	secret_make(&made->secret);
	secret_make(&made->salt);
	while (count-- > 0) {
		shard = &made->shard[count];
		shard->purgatory = made;
		shard->hash_bits = (uint8_t)__builtin_ctz(made->shard_count);
		shard->bucket = &shard->first_bucket;
	}
	*purgatory = made;
	return 0;
}

static uint64_t
sum_ended(const struct hwt_purgatory_stats *sum)
{
	return sum->completed + sum->expired + sum->cancelled + sum->shut_down;
}

/* Adds the counters of all shards, each under its lock. Returns whether nothing
 * is pending and each done has returned. */
static bool
shards_sum(struct hwt_purgatory *purgatory, struct hwt_purgatory_stats *sum)
{
	uint64_t returned = 0;
	struct shard *shard;

	*sum = (struct hwt_purgatory_stats){.memory_bytes = sizeof(*purgatory)};
	for (shard = purgatory->shard;
	     shard < &purgatory->shard[purgatory->shard_count]; shard++) {
		lock_take(&shard->lock);
		sum->links += shard->links;
		sum->keys += shard->entry_count - shard->levels;
		sum->pending += shard->pending;
		sum->tried += shard->tried;
		sum->completed += shard->ended[HWT_COMPLETED - HWT_COMPLETED];
		sum->expired += shard->ended[HWT_EXPIRED - HWT_COMPLETED];
		sum->cancelled += shard->ended[HWT_CANCELLED - HWT_COMPLETED];
		sum->shut_down += shard->ended[HWT_SHUT_DOWN - HWT_COMPLETED];
		sum->memory_bytes += sizeof(*shard) +
		    (shard->bucket_mask + UINT64_C(1)) * sizeof(struct node *) +
		    shard->pending * sizeof(struct operation) +
		    shard->links * sizeof(struct link) +
		    shard->thresholds * sizeof(struct threshold) +
		    shard->levels * sizeof(struct level);
		/* E:returned acquire */
		returned += a64_load_acquire(&shard->returned);
		lock_release(&shard->lock);
	}
	return sum->pending == 0 && returned == sum_ended(sum);
}

int
hwt_purgatory_read_stats(
    const struct hwt_purgatory *purgatory, struct hwt_purgatory_stats *stats)
{
	int rc = purgatory_enter(purgatory);

	if (rc != 0 || stats == NULL)
		return rc != 0 ? rc : -EINVAL;
	(void)shards_sum((struct hwt_purgatory *)(uintptr_t)purgatory, stats);
	return 0;
}

/* With the shard's lock: one of the bucket's rings, by number; NULL: it has
 * fewer. */
static struct link *
bucket_ring(const struct shard *shard, uint32_t bucket, uint32_t number)
{
	struct node *node = shard->bucket[bucket];

	while (node != NULL && (node->slot == SLOT_LEVEL || number-- > 0))
		node = node->chain;
	return node_link(node);
}

/* No watch begins here any more. Ends what is linked here, but for what another
 * call or a task is about to end, and rings whose number changes meanwhile. */
static void
shard_shut_down(struct call *call, struct shard *shard)
{
	uint32_t bucket, number;
	struct link *first;
	struct walk walk = {.call = call, .shard = shard};

	lock_take(&shard->lock);
	shard->closed = true;
	for (bucket = 0; bucket <= shard->bucket_mask; bucket++) {
		number = 0;
		while ((first = bucket_ring(shard, bucket, number++)) != NULL)
			walk_ring(&walk, first, HWT_SHUT_DOWN);
	}
	lock_release(&shard->lock);
	call_finish(call, walk.ended.first, 1);
}

int
hwt_purgatory_shutdown(struct hwt_purgatory *purgatory)
{
	struct hwt_purgatory_stats sum;
	struct call own, *call;
	uint32_t i, tries = 0;
	int rc = purgatory_enter(purgatory);

	if (rc != 0)
		return rc;
	if (call_of(purgatory) != NULL)
		return -EDEADLK;
	call = call_enter(&own, purgatory);
	for (;;) {
		for (i = 0; i < purgatory->shard_count; i++)
			shard_shut_down(call, &purgatory->shard[i]);
		if (shards_sum(purgatory, &sum))
			break;
		yield_or_pause(&tries);
	}
	call_leave(call, &own);
	return 0;
}

int
hwt_purgatory_destroy(struct hwt_purgatory *purgatory)
{
	struct hwt_purgatory_stats sum, again;
	uint32_t i, tries = 0;

	if (purgatory == NULL)
		return 0;
	if (call_of(purgatory) != NULL)
		return -EDEADLK;
	if (timer_is_foreign(purgatory->timer)) {
		/* Threads of the parent may have been changing the tables. */
		free(purgatory);
		return 0;
	}
	/* A done may watch in a shard that was read, and return before its own
	 * is: then more have ended, or something is pending, the second time.
	 */
	while (!shards_sum(purgatory, &sum) || !shards_sum(purgatory, &again) ||
	    sum_ended(&sum) != sum_ended(&again)) {
		if (sum.pending != 0)
			return -EBUSY;
		yield_or_pause(&tries);
	}
	for (i = 0; i < purgatory->shard_count; i++)
		if (purgatory->shard[i].bucket_mask != 0)
			free(purgatory->shard[i].bucket);
	free(purgatory);
	return 0;
}
