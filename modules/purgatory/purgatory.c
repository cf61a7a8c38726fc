/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that wait under keys: watching, events, deadlines, ends.
 *
 * An operation is watched under one to many keys. Each key belongs to a shard,
 * which has one lock and a table of what is linked under its keys (table.c).
 * The shard of an operation's first key is its HOME, whose lock guards its
 * state. No lock is held while a predicate or done runs. Two shards' locks are
 * held at once only in batch_lock_home, in the order of their addresses.
 *
 * THE OPERATION IS A TIMEOUT. Each has one, HWT_NEVER without a deadline, and
 * its handle is the timeout's. The RIGHT to end it belongs to whoever gets 0
 * from hwt_cancel, or else to the timeout's task. So the timer says once and
 * for all who decides; a handle is refused when the timer refuses it; and an
 * operation that was found by its handle cannot be freed before that caller has
 * used its right: nobody else may end it. Where the right is used at once,
 * under the home's lock, nobody sees the moment between. decide_by_handle and
 * the task get it without a lock, since they learn the home from the operation.
 *
 * STATES, and who makes each move, always with the home's lock
 *
 *   LINKING  its watch owns it
 *   IDLE     nobody owns it
 *   RUNNING  a walk owns it to call its predicate
 *   ENDED    whoever has ended it owns it, unlinks and frees it
 *
 *          operation_settle      batch_take
 *   LINKING ----------> IDLE --------------------> RUNNING
 *      |                 | <----------------------    |
 *      |                 |   operation_settle,        |
 *      |                 |   visit_take_back          |
 *      +-----------------+----------------------------+---> ENDED
 *                         operation_end
 *
 * Events, and those who have the right, come upon an operation in one of these.
 * IDLE: a walk takes it, the right ends it. LINKING or RUNNING: they leave a
 * mark with the owner, again or outcome, and do not wait. The owner reads the
 * marks under the same lock in operation_settle: an outcome ends the operation,
 * also if the predicate has answered true; a predicate that holds ends it if
 * the owner gets the right, and otherwise somebody is about to; again makes it
 * call the predicate once more. So an operation ends once, its predicate never
 * runs twice at the same time nor beside or after done, and done of an
 * operation whose predicate runs is called by the thread that runs it.
 *
 * WHY IT TRIES TWICE
 *
 *        watch                               event
 *        -----                               -----
 *   (A1) link, under the shard's lock   (B1) change the state
 *   (A2) call the predicate             (B2) look under the key, with its
 *                                            shard's lock
 *
 *   Forbidden: A2 does not see B1, and B2 does not find A1. One of the two is
 *   first under the lock. If it is A1, then B2 finds the link; if it is B2,
 *   then B1 is before A2. That is why the predicate is called after the links
 *   exist, and not only before.
 *
 *   An event that finds the operation while its predicate runs is as late as
 *   B2 after A1, and A2 may have looked before B1. That is what again is for:
 *   the owner finds it when it settles, and tries a second time. KAFKA-6653 is
 *   the version without it.
 *
 * A WALK (struct batch) takes what is linked under a key, one at first and then
 * up to WALK_BATCH at a time, and calls the predicates without the lock.
 *   - What it has taken and not begun, or has tried without success, is as good
 *     as idle: a deadline, a cancel or another event takes it back
 *     (visit_take_back), and so waits for no predicate but its operation's own.
 *     The walk announces each predicate that it begins, after the first, and
 *     looks whether somebody has come upon it; they mark it, and look which one
 *     has begun: one of the two sees the other.
 *   - When a predicate holds, or it has come upon a mark, it settles; what it
 *     has not begun becomes idle again, and the walk goes back to that.
 *   - While it holds no lock it is in its shard's list. Whoever unlinks the
 *     link that it is at, or the one that it ends with, moves it (walks_skip).
 *     What is linked meanwhile is behind its end. So an operation that is
 *     watched again is not visited by it.
 *   - An operation of another home is visited alone.
 *
 * ENDING. operation_end unlinks it from its first key and counts it, in one
 * step under the home's lock. call_done then unlinks it from its other keys,
 * one lock at a time, calls done and frees it. Who finds it under another key
 * meanwhile sees ENDED, with both locks.
 *
 * CALLBACKS. A call that is made in a callback of the same thread is inside of
 * its outermost call (struct call). What ends there waits on the outermost
 * one's list, so that a chain takes no stack; but for a watch that completes at
 * once, which calls done itself, up to DEPTH_MAX deep. An event in a predicate
 * waits as a request, and is carried out when the predicates have returned.
 *
 * SHUTDOWN closes each shard, so that no watch begins, and then ends what it
 * gets the right to, until nothing is pending and each done has returned. If
 * the timer was stopped, its timeouts are gone, and nobody gets a right. Such
 * an orphan is one whose timeout was gone (-ENOENT: its task is not under way)
 * before no call had a right that it did not use (deciding is 0), and which has
 * no outcome since.
 *
 * EDGES
 *   E:begun     which predicate of a walk has begun, and the mark of another
 *               call: seq, store then load, on both sides (batch_try,
 *               visit_take_back)
 *   E:returned  done has returned: release by call_done, acquire by shards_sum
 *   E:deciding  a right that was got by a handle was used: release by
 *               decide_by_handle, acquire by shards_sum
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sys/pause.h"
#include "purgatory.h"

#define SHARDS_DEFAULT 64u
#define SHARDS_MAX (1u << 16)
/* A watch in callbacks nested so deep leaves done to the outermost call. */
#define DEPTH_MAX 8u
/* More keys are sorted to find duplicates. */
#define KEYS_FEW 8u

enum event {
	EVENT_CHECK,
	EVENT_RAISE,
	EVENT_CANCEL
};

/* An event in a predicate. */
struct request {
	struct request *next;
	struct hwt_key key;
	uint64_t value;
	enum event event;
};

/* The outermost call of a thread for a purgatory. What calls inside of it leave
 * is carried out at its end. */
struct call {
	struct hwt_purgatory *purgatory;
	struct call *outer; /* for another purgatory */
	struct operation *first, **last; /* have ended */
	struct request *first_request, **last_request;
	unsigned callbacks, predicates; /* that the thread is in */
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
	call->last = &call->first;
	call->last_request = &call->first_request;
	purgatory_calls = call;
	return call;
}

static size_t
operation_bytes(const struct operation *operation)
{
	return sizeof(*operation) +
	    operation->link_count * sizeof(struct link) +
	    (operation->has_threshold ? sizeof(struct threshold) : 0);
}

static void
permit_release(struct hwt_purgatory *purgatory)
{
	if (purgatory->max_pending != 0)
		(void)a64_add_seq(&purgatory->permits, UINT64_MAX);
}

/* Deciding. */

/* For the owner of one that has ended, without a lock. */
static void
call_done(struct call *call, struct operation *operation)
{
	struct shard *home = operation->home, *shard;
	uint32_t i;

	for (i = 1; i < operation->link_count; i++) {
		shard = shard_of(call->purgatory, operation->link[i].node.hash);
		shard_lock(shard);
		link_remove(shard, &operation->link[i]);
		shard_unlock(shard);
	}
	call->callbacks++;
	operation->done(operation->handle, operation->arg, operation->outcome);
	call->callbacks--;
	free(operation);
	/* E:returned release */
	(void)a64_add_seq(&home->returned, 1);
}

static void
call_later(struct call *call, struct operation *operation)
{
	operation->next = NULL;
	*call->last = operation;
	call->last = &operation->next;
}

/* What callbacks have left, at the outermost call. */
static void
call_drain(struct call *call)
{
	struct operation *operation;

	while ((operation = call->first) != NULL) {
		call->first = operation->next;
		if (call->first == NULL)
			call->last = &call->first;
		call_done(call, operation);
	}
}

/* A list of those that a call has ended, with no lock held. */
static void
call_done_all(struct call *call, struct operation *operation)
{
	struct operation *next;

	for (; operation != NULL; operation = next) {
		next = operation->next;
		if (call->callbacks > 0) {
			call_later(call, operation);
			continue;
		}
		call_done(call, operation);
		call_drain(call);
	}
}

/* Asks the timer for the right to end it. */
static int
operation_claim(const struct operation *operation)
{
	const struct hwt_purgatory *purgatory = operation->home->purgatory;

	return hwt_cancel(purgatory->timer,
	    (hwt_timeout){operation->handle.id ^ purgatory->salt});
}

/* With the home's lock and the right, of an operation that nobody else owns.
 * From now on whoever has ended it owns it. */
static void
operation_end(struct operation *operation, unsigned outcome)
{
	struct shard *home = operation->home;

	operation->outcome = (uint8_t)outcome;
	operation->state = OPERATION_ENDED;
	operation->next = NULL;
	home->pending--;
	home->ended[outcome]++;
	home->bytes -= operation_bytes(operation);
	permit_release(home->purgatory);
	if (operation->has_threshold && threshold_of(operation)->level != NULL)
		threshold_remove(operation);
	link_remove(home, &operation->link[0]);
}

enum settled {
	SETTLED_IDLE,
	SETTLED_AGAIN, /* the caller still owns it */
	SETTLED_LEFT, /* ended as another call had decided */
	SETTLED_ENDED /* completed by this call */
};

/* With the home's lock, for the owner, after its predicate has answered. */
static enum settled
operation_settle(struct operation *operation, bool holds)
{
	/* A deadline that came before the watch could try is no reason. */
	bool is_early = operation->state == OPERATION_LINKING &&
	    operation->outcome == HWT_EXPIRED;

	if (operation->outcome != 0 && !(holds && is_early)) {
		operation_end(operation, operation->outcome);
		return SETTLED_LEFT;
	}
	if (holds && (is_early || operation_claim(operation) == 0)) {
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

/* A predicate, between call_tries and call_has_tried. */
static bool
operation_try(const struct operation *operation)
{
	return operation->try_complete != NULL &&
	    operation->try_complete(operation->handle, operation->arg);
}

static void
call_tries(struct call *call)
{
	call->callbacks++;
	call->predicates++;
}

static void
call_has_tried(struct call *call)
{
	call->predicates--;
	call->callbacks--;
}

/* With the home's lock: takes the visit back, unless its predicate runs.
 *
 *        batch_try                           visit_take_back
 *   (A1) begun = i                      (B1) marked = 1
 *   (A2) marked? settle; else call      (B2) begun = i? leave it to the walk;
 *                                            else take it back
 *
 *   Forbidden: A2 reads 0, and B2 reads another number. */
static bool
visit_take_back(struct batch *batch, uint32_t i)
{
	struct visit *visit = &batch->visit[i];

	/* E:begun seq, both */
	a64_store_seq(&batch->marked, 1);
	if (a64_load_seq(&batch->begun) == i)
		return false;
	visit->operation->state = OPERATION_IDLE;
	visit->operation = NULL;
	return true;
}

/* With the home's lock. One that a walk has taken is so, too, unless its
 * predicate runs. */
static bool
operation_is_idle(struct operation *operation)
{
	return operation->state == OPERATION_IDLE ||
	    (operation->state == OPERATION_RUNNING &&
		visit_take_back(operation->batch, operation->index));
}

/* With the home's lock and the right. True: it has ended, and the caller is to
 * call its done; otherwise its owner does. */
static bool
operation_decide(struct operation *operation, enum hwt_outcome outcome)
{
	if (operation_is_idle(operation)) {
		operation_end(operation, outcome);
		return true;
	}
	operation->outcome = (uint8_t)outcome;
	return false;
}

/* Walks. */

static void
batch_begin(struct batch *batch, struct call *call, struct shard *shard,
    const struct node *node)
{
	batch->call = call;
	batch->shard = shard;
	batch->key = node->key;
	batch->hash = node->hash;
	batch->decided = 0;
	batch->count = batch->ended_count = 0;
	batch->ended = NULL;
	batch->last = &batch->ended;
	batch->is_away = false;
}

static void
batch_add_ended(struct batch *batch, struct operation *operation)
{
	*batch->last = operation;
	batch->last = &operation->next;
	batch->ended_count++;
}

/* Without a lock. */
static void
batch_done(struct batch *batch)
{
	struct operation *ended = batch->ended;

	batch->ended = NULL;
	batch->last = &batch->ended;
	batch->ended_count = 0;
	call_done_all(batch->call, ended);
}

/* With the home's lock. */
static void
batch_decide(
    struct batch *batch, struct operation *operation, enum hwt_outcome outcome)
{
	if (operation_claim(operation) != 0)
		return;
	batch->decided++;
	if (operation_decide(operation, outcome))
		batch_add_ended(batch, operation);
}

/* With the shard's lock: releases it, and is in the list of walks. */
static void
batch_leave(struct batch *batch)
{
	batch->next_walk = batch->shard->walks;
	batch->shard->walks = batch;
	shard_unlock(batch->shard);
}

static void
batch_return(struct batch *batch)
{
	struct batch **at;

	shard_lock(batch->shard);
	for (at = &batch->shard->walks; *at != batch;)
		at = &(*at)->next_walk;
	*at = batch->next_walk;
}

/* With the shard's lock: locks another shard, the home of what the walk is at.
 * False: it is at something else since. */
static bool
batch_lock_home(struct batch *batch, struct shard *home)
{
	struct link *link = batch->at;

	if (home > batch->shard) {
		shard_lock(home);
		return true;
	}
	if (pthread_mutex_trylock(&home->lock) == 0)
		return true;
	batch_leave(batch);
	shard_lock(home);
	batch_return(batch);
	if (batch->at == link)
		return true;
	shard_unlock(home);
	return false;
}

/* With both locks: decides the operation, or takes it, or leaves a mark. */
static void
batch_take(struct batch *batch, struct operation *operation, struct link *link)
{
	struct visit *visit = &batch->visit[batch->count];

	if (batch->outcome != 0) {
		batch_decide(batch, operation, batch->outcome);
		return;
	}
	if (!operation_is_idle(operation)) {
		operation->again = true;
		return;
	}
	operation->state = OPERATION_RUNNING;
	operation->batch = batch;
	operation->index = (uint8_t)batch->count++;
	visit->operation = operation;
	visit->link = link;
}

/* With the shard's lock: takes or decides the next ones, up to so many. When
 * something has ended, its done is first. */
static void
batch_collect(struct batch *batch, uint32_t most)
{
	struct operation *operation;
	struct link *link;
	struct shard *home;

	if (batch->outcome == 0 && batch->ended_count > 0)
		return;
	a64_store_relaxed(&batch->begun, 0);
	a64_store_relaxed(&batch->marked, 0);
	while (batch->at != NULL && !batch->is_away &&
	    batch->count + batch->ended_count < most) {
		link = batch->at;
		operation = link_operation(link);
		home = operation->home;
		if (home != batch->shard) {
			if (batch->count > 0)
				return;
			if (!batch_lock_home(batch, home))
				continue;
		}
		batch->at = link == batch->end ? NULL : link->next;
		batch_take(batch, operation, link);
		if (home != batch->shard) {
			batch->is_away = batch->count > 0;
			shard_unlock(home);
		}
	}
}

/* Without a lock: calls the predicate of an operation of another home. */
static void
batch_run_away(struct batch *batch)
{
	struct operation *operation = batch->visit[0].operation;
	struct shard *home = operation->home;
	enum settled settled;
	bool holds;

	do {
		call_tries(batch->call);
		holds = operation_try(operation);
		call_has_tried(batch->call);
		shard_lock(home);
		home->tried += operation->try_complete != NULL;
		settled = operation_settle(operation, holds);
		shard_unlock(home);
	} while (settled == SETTLED_AGAIN);
	batch->decided += settled == SETTLED_ENDED;
	if (settled >= SETTLED_LEFT)
		batch_add_ended(batch, operation);
	batch->is_away = false;
	batch->count = 0;
}

/* Without a lock: calls predicates, as far as none holds and none is marked.
 * Returns how many it has called. */
static uint32_t
batch_try(struct batch *batch)
{
	uint32_t i = 0;

	call_tries(batch->call);
	do {
		batch->holds = operation_try(batch->visit[i++].operation);
		if (i == batch->count || batch->holds)
			break;
		/* E:begun seq, then the mark */
		(void)a64_swap_seq(&batch->begun, i);
	} while (a64_load_seq(&batch->marked) == 0);
	call_has_tried(batch->call);
	return i;
}

/* With the shard's lock: what the first tried ones have answered. The others
 * are idle again, and the walk goes back to the first of them, or to one that
 * is to be tried again. */
static void
batch_settle(struct batch *batch, uint32_t tried)
{
	struct operation *operation;
	struct link *rest = NULL;
	enum settled settled;
	uint32_t i;

	for (i = 0; i < batch->count; i++) {
		operation = batch->visit[i].operation;
		if (operation == NULL)
			continue;
		batch->shard->tried +=
		    i < tried && operation->try_complete != NULL;
		if (i >= tried)
			operation->again = true;
		/* As most are: nobody has come upon it. */
		if (operation->outcome == 0 && !operation->again &&
		    !(batch->holds && i + 1 == tried)) {
			operation->state = OPERATION_IDLE;
			continue;
		}
		settled =
		    operation_settle(operation, batch->holds && i + 1 == tried);
		batch->decided += settled == SETTLED_ENDED;
		if (settled >= SETTLED_LEFT)
			batch_add_ended(batch, operation);
		if (settled != SETTLED_AGAIN)
			continue;
		operation->state = OPERATION_IDLE;
		if (rest == NULL)
			rest = batch->visit[i].link;
	}
	if (rest != NULL)
		batch->at = rest;
	batch->count = 0;
}

/* With the shard's lock, which it releases for a while: decides what was
 * collected. Returns the size of the next batch: twice as many, unless one had
 * to be settled before the others. */
static uint32_t
batch_run(struct batch *batch, uint32_t most)
{
	uint32_t tried = 0;

	batch_leave(batch);
	if (batch->is_away)
		batch_run_away(batch);
	else if (batch->count > 0)
		tried = batch_try(batch);
	else
		batch_done(batch);
	batch_return(batch);
	if (tried < batch->count)
		most = 1;
	else if (most < WALK_BATCH)
		most *= 2;
	batch_settle(batch, tried);
	return most;
}

/* With the shard's lock, which it releases: through the ring, except what is
 * linked meanwhile. */
static void
batch_walk(struct batch *batch, struct link *first, enum hwt_outcome outcome)
{
	uint32_t most = outcome != 0 ? WALK_BATCH : 1;

	batch->at = first;
	batch->end = first->previous;
	batch->outcome = outcome;
	while (
	    batch_collect(batch, most), batch->count > 0 || batch->at != NULL)
		most = batch_run(batch, most);
	shard_unlock(batch->shard);
	batch_done(batch);
}

/* Events. */

/* With the shard's lock: the key's value is now this. 0: no less before. */
static int
batch_raise(struct batch *batch, uint64_t value)
{
	struct level *level =
	    level_find(batch->shard, &batch->key, batch->hash);

	if (level == NULL) {
		level = malloc(sizeof(*level));
		if (level == NULL)
			return -ENOMEM;
		level_add(batch->shard, level, &batch->key, batch->hash);
	}
	if (value <= level->value)
		return 0;
	level->value = value;
	return 1;
}

/* With the shard's lock: ends a batch of those that the value reaches. False:
 * there are no more. */
static bool
batch_reach(struct batch *batch, uint64_t value)
{
	struct operation *operation;
	struct level *level;

	while (batch->ended_count < WALK_BATCH) {
		/* It goes with the last operation under the key; a later one of
		 * that key has another value. */
		level = level_find(batch->shard, &batch->key, batch->hash);
		if (level == NULL || level->value < value)
			return false;
		operation = threshold_first(level);
		if (operation == NULL ||
		    threshold_of(operation)->at_least > value)
			return false;
		threshold_remove(operation);
		batch_decide(batch, operation, HWT_COMPLETED);
	}
	return true;
}

/* With the shard's lock, which it releases. */
static int
key_raise(struct batch *batch, uint64_t value)
{
	int rc = batch_raise(batch, value);

	while (rc == 1 && batch_reach(batch, value)) {
		shard_unlock(batch->shard);
		batch_done(batch);
		shard_lock(batch->shard);
	}
	shard_unlock(batch->shard);
	batch_done(batch);
	return rc < 0 ? rc : 0;
}

/* Calls. */

/* With the shard's lock, which it releases: an event under a key whose ring
 * begins so. */
static int
call_event(struct call *call, struct shard *shard, struct link *first,
    enum event event, uint64_t value, size_t *decided)
{
	struct batch batch;
	int rc = 0;

	batch_begin(&batch, call, shard, &first->node);
	if (event == EVENT_RAISE)
		rc = key_raise(&batch, value);
	else
		batch_walk(
		    &batch, first, event == EVENT_CANCEL ? HWT_CANCELLED : 0);
	*decided = batch.decided;
	return rc;
}

/* Locks the shard if something is linked under the key; NULL: nothing is. */
static struct link *
key_lock(struct hwt_purgatory *purgatory, const struct hwt_key *key,
    struct shard **locked)
{
	const uint32_t hash = key_hash(&purgatory->secret, key);
	struct shard *shard = shard_of(purgatory, hash);
	struct link *first;

	shard_lock(shard);
	first = ring_first(shard, key, hash);
	if (first == NULL)
		shard_unlock(shard);
	*locked = shard;
	return first;
}

/* At the end of the outermost call: what was left for it. */
static void
call_leave(struct call *call, struct call *own)
{
	struct request *request;
	struct shard *shard;
	struct link *first;
	size_t decided;

	if (call != own)
		return;
	call_drain(call);
	while ((request = call->first_request) != NULL) {
		call->first_request = request->next;
		if (call->first_request == NULL)
			call->last_request = &call->first_request;
		first = key_lock(call->purgatory, &request->key, &shard);
		if (first != NULL)
			(void)call_event(call, shard, first, request->event,
			    request->value, &decided);
		free(request);
		call_drain(call);
	}
	purgatory_calls = call->outer;
}

/* In a predicate an event waits for the outermost call, so that it takes no
 * stack. False: there is no memory. */
static bool
call_request(struct call *call, const struct hwt_key *key, enum event event,
    uint64_t value)
{
	struct request *request = malloc(sizeof(*request));

	if (request == NULL)
		return false;
	*request = (struct request){NULL, *key, value, event};
	*call->last_request = request;
	call->last_request = &request->next;
	return true;
}

static int
purgatory_event(struct hwt_purgatory *purgatory, const struct hwt_key *key,
    enum event event, uint64_t value, size_t *count)
{
	struct call own, *call;
	struct shard *shard;
	struct link *first;
	size_t decided = 0;
	int rc = purgatory_enter(purgatory);

	if (count != NULL)
		*count = 0;
	if (rc != 0)
		return rc;
	first = key_lock(purgatory, key, &shard);
	if (first == NULL)
		return 0;
	call = call_enter(&own, purgatory);
	if (call->predicates > 0 && call_request(call, key, event, value))
		shard_unlock(shard);
	else
		rc = call_event(call, shard, first, event, value, &decided);
	call_leave(call, &own);
	if (count != NULL)
		*count = decided;
	return rc;
}

int
hwt_purgatory_check(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *completed)
{
	return purgatory_event(purgatory, &key, EVENT_CHECK, 0, completed);
}

int
hwt_purgatory_raise(struct hwt_purgatory *purgatory, struct hwt_key key,
    uint64_t value, size_t *completed)
{
	return purgatory_event(purgatory, &key, EVENT_RAISE, value, completed);
}

int
hwt_purgatory_cancel_key(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *cancelled)
{
	return purgatory_event(purgatory, &key, EVENT_CANCEL, 0, cancelled);
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
	first = key_lock(purgatory, &key, &shard);
	if (first != NULL) {
		*count = ring_count(first);
		shard_unlock(shard);
	}
	return 0;
}

/* The operation's done is to be called. */
static void
purgatory_done(struct hwt_purgatory *purgatory, struct operation *operation)
{
	struct call own, *call = call_enter(&own, purgatory);

	call_done_all(call, operation);
	call_leave(call, &own);
}

static int
operation_decide_by_handle(struct hwt_purgatory *purgatory,
    hwt_operation handle, enum hwt_outcome outcome)
{
	struct operation *operation;
	hwt_timeout timeout;
	bool is_over = false;
	void *arg = NULL;
	a64_t *deciding;
	int rc = purgatory_enter(purgatory);

	if (rc != 0 || handle.id == 0)
		return rc != 0 ? rc : -ENOENT;
	timeout.id = handle.id ^ purgatory->salt;
	deciding = &shard_of(purgatory, (uint32_t)handle.id)->deciding;
	(void)a64_add_seq(deciding, 1);
	rc = -ENOENT;
	/* If it can still be cancelled, then arg is its operation. */
	if (hwt_state(purgatory->timer, timeout, &arg) > 0 &&
	    hwt_cancel(purgatory->timer, timeout) == 0) {
		operation = arg;
		shard_lock(operation->home);
		is_over = operation_decide(operation, outcome);
		shard_unlock(operation->home);
		rc = 0;
	}
	/* E:deciding release */
	(void)a64_add_seq(deciding, UINT64_MAX);
	if (is_over)
		purgatory_done(purgatory, arg);
	return rc;
}

int
hwt_operation_complete(struct hwt_purgatory *purgatory, hwt_operation operation)
{
	return operation_decide_by_handle(purgatory, operation, HWT_COMPLETED);
}

int
hwt_operation_cancel(struct hwt_purgatory *purgatory, hwt_operation operation)
{
	return operation_decide_by_handle(purgatory, operation, HWT_CANCELLED);
}

int
hwt_operation_reschedule(
    struct hwt_purgatory *purgatory, hwt_operation operation, uint64_t delay_ns)
{
	hwt_timeout timeout;
	int rc = purgatory_enter(purgatory);

	if (rc != 0 || !delay_is_valid(delay_ns))
		return rc != 0 ? rc : -EINVAL;
	if (operation.id == 0)
		return -ENOENT;
	timeout.id = operation.id ^ purgatory->salt;
	rc = hwt_reschedule(purgatory->timer, timeout, delay_ns);
	return rc == -EINPROGRESS ? -ENOENT : rc;
}

/* A timeout's task: it has the right. */
static void
operation_expire(hwt_timeout timeout, void *arg)
{
	struct operation *operation = arg;
	struct shard *home = operation->home;
	struct hwt_purgatory *purgatory = home->purgatory;
	bool is_over;

	(void)timeout;
	shard_lock(home);
	is_over = operation_decide(operation, HWT_EXPIRED);
	shard_unlock(home);
	if (is_over)
		purgatory_done(purgatory, operation);
}

/* Watching. */

/* A call of hwt_purgatory_watch. */
struct watch {
	struct call *call;
	struct hwt_purgatory *purgatory;
	const struct hwt_operation_spec *spec;
	struct operation *operation;
	struct level *level; /* for a key that has none; NULL: not wanted */
};

static bool
spec_is_valid(const struct hwt_operation_spec *spec)
{
	return spec != NULL && spec->done != NULL && spec->keys != NULL &&
	    spec->key_count != 0 && RESERVED_IS_ZERO(spec) &&
	    spec->key_count < SLOT_LEVEL &&
	    (spec->at_least == 0 ||
		(spec->try_complete == NULL && spec->key_count == 1)) &&
	    delay_is_valid(spec->delay_ns);
}

static int
compare_links(const void *a, const void *b)
{
	const struct hwt_key *x = &((const struct link *)a)->node.key;
	const struct hwt_key *y = &((const struct link *)b)->node.key;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/* Each key once. Few are compared with each other, many are sorted. Returns how
 * many. */
static uint32_t
links_fill(struct link *link, const struct hwt_operation_spec *spec)
{
	const bool is_sorted = spec->key_count > KEYS_FEW;
	uint32_t i, k, from, count = 0;

	for (i = 0; i < spec->key_count; i++)
		link[i].node.key = spec->keys[i];
	if (is_sorted)
		qsort(link, spec->key_count, sizeof(*link), compare_links);
	for (i = 0; i < spec->key_count; i++) {
		from = is_sorted && count > 0 ? count - 1 : 0;
		for (k = from; k < count &&
		     !key_is(&link[k].node.key, &link[i].node.key);)
			k++;
		if (k == count)
			link[count++].node.key = link[i].node.key;
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
	struct link *link;
	uint32_t i;

	if (operation == NULL)
		return NULL;
	operation->try_complete = spec->try_complete;
	operation->done = spec->done;
	operation->arg = spec->arg;
	operation->state = OPERATION_LINKING;
	operation->outcome = 0;
	operation->again = false;
	operation->seen = 0;
	operation->has_threshold = spec->at_least != 0;
	operation->link_count = links_fill(operation->link, spec);
	for (i = 0; i < operation->link_count; i++) {
		link = &operation->link[i];
		link->node.hash = key_hash(&purgatory->secret, &link->node.key);
		link->node.slot = i;
	}
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

/* All that may fail, but shutdown. */
static int
watch_begin(struct watch *watch, hwt_operation *handle)
{
	struct hwt_purgatory *purgatory = watch->purgatory;
	struct operation *operation;
	hwt_timeout timeout;
	int rc;

	if (!permit_take(purgatory))
		return -ENOBUFS;
	operation = operation_make(purgatory, watch->spec);
	watch->level =
	    watch->spec->at_least != 0 ? malloc(sizeof(*watch->level)) : NULL;
	if (operation == NULL ||
	    (watch->spec->at_least != 0 && watch->level == NULL))
		rc = -ENOMEM;
	else
		rc = hwt_new_timeout(purgatory->timer, &timeout,
		    operation_expire, operation, watch->spec->delay_ns);
	if (rc != 0) {
		free(operation);
		free(watch->level);
		permit_release(purgatory);
		return rc;
	}
	watch->operation = operation;
	operation->handle.id = timeout.id ^ purgatory->salt;
	if (handle != NULL)
		*handle = operation->handle;
	return 0;
}

/* With the home's lock, after the first link: whether the key's value has
 * reached at_least. */
static bool
watch_link_threshold(struct watch *watch)
{
	struct operation *operation = watch->operation;
	struct node *node = &operation->link[0].node;
	struct level *level =
	    level_find(operation->home, &node->key, node->hash);

	if (level == NULL) {
		level = watch->level;
		watch->level = NULL;
		level_add(operation->home, level, &node->key, node->hash);
	}
	if (level->value >= watch->spec->at_least)
		return true;
	threshold_add(level, operation);
	return false;
}

/* Links it, unless shutdown was called. If it needs no more, it is settled at
 * once; otherwise SETTLED_AGAIN. */
static int
watch_link(struct watch *watch, enum settled *settled)
{
	struct operation *operation = watch->operation;
	struct shard *shard = operation->home;
	bool holds = false;
	uint32_t i;

	*settled = SETTLED_AGAIN;
	shard_lock(shard);
	if (shard->closed) {
		shard_unlock(shard);
		return -ESHUTDOWN;
	}
	shard->pending++;
	shard->bytes += operation_bytes(operation);
	link_add(shard, &operation->link[0]);
	if (operation->has_threshold)
		holds = watch_link_threshold(watch);
	if (operation->try_complete == NULL && operation->link_count == 1)
		*settled = operation_settle(operation, holds);
	shard_unlock(shard);
	/* Others may have freed it. */
	if (*settled != SETTLED_AGAIN)
		return 0;
	for (i = 1; i < operation->link_count; i++) {
		shard =
		    shard_of(watch->purgatory, operation->link[i].node.hash);
		shard_lock(shard);
		link_add(shard, &operation->link[i]);
		shard_unlock(shard);
	}
	return 0;
}

/* The owner's rule: looks until the operation has ended, or is idle. */
static enum settled
watch_try(struct watch *watch)
{
	struct operation *operation = watch->operation;
	struct shard *home = operation->home;
	enum settled settled;
	bool holds;

	do {
		call_tries(watch->call);
		holds = operation_try(operation);
		call_has_tried(watch->call);
		shard_lock(home);
		home->tried += operation->try_complete != NULL;
		settled = operation_settle(operation, holds);
		shard_unlock(home);
	} while (settled == SETTLED_AGAIN);
	return settled;
}

static int
watch_run(struct watch *watch)
{
	struct call *call = watch->call;
	struct operation *operation = watch->operation;
	enum settled settled;
	int rc = watch_link(watch, &settled);

	free(watch->level);
	if (rc != 0) {
		/* Afterwards its task is not running. */
		(void)!hwt_cancel_wait(call->purgatory->timer,
		    (hwt_timeout){
			operation->handle.id ^ call->purgatory->salt});
		free(operation);
		permit_release(call->purgatory);
		return rc;
	}
	if (settled == SETTLED_AGAIN)
		settled = watch_try(watch);
	if (settled == SETTLED_IDLE)
		return 0;
	if (call->callbacks >= DEPTH_MAX) {
		call_later(call, operation);
		return 0;
	}
	call_done(call, operation);
	return settled == SETTLED_ENDED;
}

int
hwt_purgatory_watch(struct hwt_purgatory *purgatory, hwt_operation *operation,
    const struct hwt_operation_spec *spec)
{
	struct watch watch = {.purgatory = purgatory, .spec = spec};
	struct call own;
	int rc = purgatory_enter(purgatory);

	if (operation != NULL)
		*operation = (hwt_operation){0};
	if (rc != 0 || !spec_is_valid(spec))
		return rc != 0 ? rc : -EINVAL;
	rc = watch_begin(&watch, operation);
	if (rc != 0)
		return rc;
	watch.call = call_enter(&own, purgatory);
	rc = watch_run(&watch);
	call_leave(watch.call, &own);
	if (rc < 0 && operation != NULL)
		*operation = (hwt_operation){0};
	return rc;
}

/* Making, ending, counting. */

static bool
options_are_valid(const struct hwt_purgatory_options *options)
{
	return RESERVED_IS_ZERO(options) && options->flags == 0 &&
	    options->shards <= SHARDS_MAX &&
	    (options->shards & (options->shards - 1)) == 0;
}

/* In a forked child other threads of the parent may have been changing the
 * tables: what is linked there is left. */
static void
purgatory_free(struct hwt_purgatory *purgatory, bool is_inherited)
{
	uint32_t i;

	for (i = 0; purgatory->shard != NULL && i < purgatory->shard_count; i++)
		free(is_inherited ? NULL : purgatory->shard[i].bucket);
	free(purgatory->shard);
	free(purgatory);
}

static int
shards_create(struct hwt_purgatory *purgatory)
{
	const size_t bytes = purgatory->shard_count * sizeof(struct shard);
	struct shard *shard = aligned_alloc(_Alignof(struct shard), bytes);
	uint32_t i;

	if (shard == NULL)
		return -ENOMEM;
	memset(shard, 0, bytes);
	purgatory->shard = shard;
	for (i = 0; i < purgatory->shard_count; i++) {
		shard[i].lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
		shard[i].purgatory = purgatory;
		if (table_create(&shard[i]) != 0)
			return -ENOMEM;
	}
	return 0;
}

int
hwt_purgatory_create(struct hwt_purgatory **purgatory, struct hwt *timer,
    const struct hwt_purgatory_options *options)
{
	static const struct hwt_purgatory_options defaults;
	struct hwt_purgatory *made;
	struct secret salt;

	if (options == NULL)
		options = &defaults;
	if (purgatory == NULL || timer == NULL || !options_are_valid(options))
		return -EINVAL;
	if (timer_is_foreign(timer))
		return -EOWNERDEAD;
	made = calloc(1, sizeof(*made));
	if (made == NULL)
		return -ENOMEM;
	made->timer = timer;
	made->max_pending = options->max_pending;
	made->shard_count =
	    options->shards != 0 ? options->shards : SHARDS_DEFAULT;
	made->shard_bits = (uint32_t)__builtin_ctz(made->shard_count);
	secret_make(&made->secret);
	secret_make(&salt);
	made->salt = salt.word[0];
	if (shards_create(made) != 0) {
		purgatory_free(made, false);
		return -ENOMEM;
	}
	*purgatory = made;
	return 0;
}

/* Adds the counters of all shards, each under its lock. */
static void
shards_sum(struct hwt_purgatory *purgatory, struct shard *sum)
{
	struct shard *shard;
	uint32_t i;
	unsigned k;

	memset(sum, 0, sizeof(*sum));
	for (i = 0; i < purgatory->shard_count; i++) {
		shard = &purgatory->shard[i];
		shard_lock(shard);
		sum->links += shard->links;
		sum->keys += shard->keys;
		sum->pending += shard->pending;
		sum->tried += shard->tried;
		sum->bytes += shard->bytes;
		for (k = HWT_COMPLETED; k <= HWT_SHUT_DOWN; k++)
			sum->ended[k] += shard->ended[k];
		/* E:deciding acquire */
		sum->deciding += a64_load_acquire(&shard->deciding);
		/* E:returned acquire */
		sum->returned += a64_load_acquire(&shard->returned);
		shard_unlock(shard);
	}
}

int
hwt_purgatory_read_stats(
    const struct hwt_purgatory *purgatory, struct hwt_purgatory_stats *stats)
{
	struct hwt_purgatory *locked =
	    (struct hwt_purgatory *)(uintptr_t)purgatory;
	struct shard sum;
	int rc = purgatory_enter(purgatory);

	if (rc != 0 || stats == NULL)
		return rc != 0 ? rc : -EINVAL;
	shards_sum(locked, &sum);
	*stats = (struct hwt_purgatory_stats){.pending = sum.pending,
	    .links = sum.links,
	    .keys = sum.keys,
	    .completed = sum.ended[HWT_COMPLETED],
	    .expired = sum.ended[HWT_EXPIRED],
	    .cancelled = sum.ended[HWT_CANCELLED],
	    .shut_down = sum.ended[HWT_SHUT_DOWN],
	    .tried = sum.tried,
	    .memory_bytes = sizeof(*purgatory) +
		purgatory->shard_count * sizeof(struct shard) + sum.bytes};
	return 0;
}

/* Whether nothing is pending and each done has returned. */
static bool
sum_is_quiet(const struct shard *sum)
{
	return sum->pending == 0 &&
	    sum->returned ==
	    sum->ended[HWT_COMPLETED] + sum->ended[HWT_EXPIRED] +
		sum->ended[HWT_CANCELLED] + sum->ended[HWT_SHUT_DOWN];
}

/* What a pass of a shutdown may end, of one bucket. */
struct pass {
	uint64_t number;
	uint64_t orphaned; /* the pass whose orphans it may end; 0: none */
	uint32_t count;
	struct operation *claimed[WALK_BATCH];
};

/* With the home's lock. */
static bool
pass_claim(struct operation *operation, void *arg)
{
	struct pass *pass = arg;
	int rc;

	if (operation->outcome != 0 || operation->seen == pass->number)
		return true;
	rc = operation_claim(operation);
	if (rc == 0 ||
	    (rc == -ENOENT && pass->orphaned != 0 &&
		operation->seen == pass->orphaned))
		pass->claimed[pass->count++] = operation;
	operation->seen = pass->number;
	return pass->count < WALK_BATCH;
}

/* Ends what has its home here, some at a time. */
static void
pass_end_all(struct pass *pass, struct call *call, struct shard *shard)
{
	struct operation *ended, **last;
	uint32_t i, bucket = 0;
	bool has_more = true;

	while (has_more) {
		last = &ended;
		pass->count = 0;
		shard_lock(shard);
		has_more = bucket <= shard->bucket_mask;
		if (has_more)
			bucket_each(shard, bucket, pass_claim, pass);
		for (i = 0; i < pass->count; i++) {
			if (operation_decide(pass->claimed[i], HWT_SHUT_DOWN)) {
				*last = pass->claimed[i];
				last = &(*last)->next;
			}
		}
		*last = NULL;
		shard_unlock(shard);
		call_done_all(call, ended);
		bucket += pass->count < WALK_BATCH;
	}
}

/* After the shards were closed, so that no operation begins. */
static void
purgatory_end_all(struct hwt_purgatory *purgatory)
{
	struct call own, *call = call_enter(&own, purgatory);
	struct pass pass;
	uint32_t i, tries = 0;
	struct shard sum;

	pass.orphaned = 0;
	for (;;) {
		pass.number = a64_add_seq(&purgatory->passes, 1) + 1;
		for (i = 0; i < purgatory->shard_count; i++)
			pass_end_all(&pass, call, &purgatory->shard[i]);
		shards_sum(purgatory, &sum);
		if (sum_is_quiet(&sum))
			break;
		/* They are orphans if no right is unused since. */
		pass.orphaned = sum.deciding == 0 ? pass.number : 0;
		yield_or_pause(&tries);
	}
	call_leave(call, &own);
}

int
hwt_purgatory_shutdown(struct hwt_purgatory *purgatory)
{
	struct shard *shard;
	uint32_t i;
	int rc = purgatory_enter(purgatory);

	if (rc != 0)
		return rc;
	if (call_of(purgatory) != NULL)
		return -EDEADLK;
	for (i = 0; i < purgatory->shard_count; i++) {
		shard = &purgatory->shard[i];
		shard_lock(shard);
		shard->closed = true;
		shard_unlock(shard);
	}
	purgatory_end_all(purgatory);
	return 0;
}

int
hwt_purgatory_destroy(struct hwt_purgatory *purgatory)
{
	uint32_t tries = 0;
	struct shard sum;

	if (purgatory == NULL)
		return 0;
	if (call_of(purgatory) != NULL)
		return -EDEADLK;
	if (timer_is_foreign(purgatory->timer)) {
		purgatory_free(purgatory, true);
		return 0;
	}
	for (;;) {
		shards_sum(purgatory, &sum);
		if (sum.pending != 0)
			return -EBUSY;
		if (sum_is_quiet(&sum))
			break;
		yield_or_pause(&tries);
	}
	purgatory_free(purgatory, false);
	return 0;
}
