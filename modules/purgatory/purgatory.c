/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that wait under keys: watching, events, deadlines, ends.
 *
 * An operation is watched under one to many keys. Each key belongs to a shard,
 * which has one lock, a table of what is linked under its keys (table.c), and
 * a list of free operations (pool.c). The shard of an operation's first key is
 * its HOME. All fields of an operation are plain, and guarded by its home's
 * lock, but for those that only its owner uses. No lock is held while a
 * predicate or done runs, and no two shards' locks are held at once, so that
 * there is no order among them. The pool's lock may be taken with a shard's;
 * hwt_cancel is called with a shard's lock, which calls nobody.
 *
 * STATES, and who makes each move, always with the home's lock
 *
 *   LINKING  its watch owns it, and no other call may decide it
 *   IDLE     nobody owns it; whoever has the home's lock may take or end it
 *   RUNNING  a thread owns it to call its predicate
 *   not LIVE ended: the thread that has it on its list owns it
 *
 *            watch_own           operation_take
 *   LINKING ----------> IDLE --------------------> RUNNING
 *      |                 | <----------------------    |
 *      |                 |   operation_settle,        |
 *      |                 |   visit_take_back          |
 *      +-----------------+----------------------------+---> ended
 *                         operation_end
 *
 * Events, deadlines and cancels come upon an operation in one of these. IDLE:
 * they take it, or end it. LINKING or RUNNING: they leave a mark with the
 * owner, again or outcome, and do not wait. The first outcome stays. The owner
 * reads the marks under the same lock, in operation_settle: an outcome ends the
 * operation, also if the predicate has answered true; again makes it call the
 * predicate once more; neither: IDLE. So an operation ends once, its predicate
 * never runs twice at the same time nor beside or after done, and done of an
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
 *   then B1 is before A2.
 *
 *   An event that finds the operation while its predicate runs is as late as
 *   B2 after A1, and A2 may have looked before B1. That is what again is for:
 *   the owner finds it when it settles, and looks again. KAFKA-6653 is the
 *   version without it. A predicate that holds when it is watched has no
 *   timeout yet: that is armed last, and only if the first try fails.
 *
 * A WALK (struct batch) takes what is linked under a key, up to WALK_BATCH at a
 * time, and calls the predicates without the lock. It is in its shard's list
 * meanwhile.
 *   - What it has taken and not begun, or has tried without success, is as good
 *     as idle: a deadline, a cancel or another event takes it back
 *     (visit_take_back), and so waits for no predicate but its operation's own.
 *     The walk announces each predicate that it begins, after the first, and
 *     looks whether somebody has come upon it; they mark it, and look which one
 *     has begun: one of the two sees the other.
 *   - When a predicate holds, or it has come upon a mark, it settles; what it
 *     has not begun becomes idle again, and the walk goes back to that.
 *   - Whoever unlinks the link that it is at, or the one that it ends with,
 *     moves it (walks_skip). What is linked meanwhile is behind its end. So an
 *     operation that is watched again is not visited by it.
 *   - An operation of another home is visited alone: found by its handle, under
 *     its home's lock.
 *
 * ENDING. operation_end clears LIVE, so that no handle finds the operation,
 * unlinks it from its first key, and counts it, in one step under the home's
 * lock; a link under another key that has the same home is seen to be not LIVE.
 * operation_finish then cancels the timeout and unlinks it from its other keys,
 * one lock at a time, and frees it under the last one; then done is called.
 *   If the timeout's task runs at that moment, hwt_cancel says -EINPROGRESS.
 * The task, too, takes the home's lock. Whoever of both is second under it
 * frees the operation: the task sets expired, and finish finds that; or finish
 * sets orphan, and the task finds that. So a task never finds its operation
 * freed or used again. With -ENOENT the task has been there, or the timer was
 * stopped, and there is none to come.
 *
 * CALLBACKS. A call that is made in a callback of the same thread is inside of
 * its outermost call (struct call). What ends there waits on the outermost
 * one's list, so that a chain takes no stack; but for a watch that completes at
 * once, which calls done itself, up to DEPTH_MAX deep. An event in a predicate
 * waits as a request, and is carried out when the predicates have returned.
 *
 * SHUTDOWN closes each shard, so that no watch begins, and then decides each
 * operation that was ever used and is LIVE. It waits until none is in use, each
 * done has returned, and no thread is in a timeout's task.
 *
 * EDGES
 *   E:begun     which predicate of a walk has begun, and the mark of another
 *               call: seq, store then load, on both sides (batch_try,
 *               visit_take_back)
 *   E:returned  done has returned: release by call_done, acquire by shards_sum
 *   E:expiring  the task of a timeout has returned: release by
 *               operation_expire, acquire by purgatory_await_quiet
 * pool.c has the others.
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

/* What is left of an operation that has been decided: its done is to be
 * called. */
struct ended {
	struct operation *operation; /* NULL: it is free already */
	hwt_operation handle;
	hwt_done *done;
	void *arg;
	struct shard *home;
	enum hwt_outcome outcome;
};

/* An event in a predicate. */
struct request {
	struct request *next;
	struct hwt_key key;
	uint64_t value;
	enum event {
		EVENT_CHECK,
		EVENT_RAISE,
		EVENT_CANCEL
	} event;
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

/* An operation that a walk has taken to call its predicate. */
struct visit {
	struct operation *operation; /* NULL: another call has taken it back */
	struct link *link;
	hwt_operation handle;
	hwt_try *try_complete;
	void *arg;
	a64_t marked; /* another call has come upon it */
};

/*
 * A walk through what is linked under a key, and what it has taken at once: up
 * to WALK_BATCH that have their home here, or one that has another. While it
 * runs without the lock, it is in the shard's list of walks, whose lock guards
 * walk, count, and which operations it has.
 */
struct batch {
	struct walk walk; /* the first member */
	struct call *call;
	struct hwt_key key;
	uint32_t hash;
	struct shard *shard;
	unsigned next_kind, last_kind; /* of rings to be walked through */
	enum hwt_outcome outcome; /* 0: what the predicate says */
	size_t decided;
	uint32_t count, ended_count;
	hwt_operation elsewhere; /* {0}: none */
	bool holds; /* what the last predicate has answered */
	a64_t begun; /* the last visit whose predicate was called */
	struct visit visit[WALK_BATCH];
	struct ended ended[WALK_BATCH];
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
	call->purgatory = purgatory;
	call->outer = purgatory_calls;
	call->first = NULL;
	call->last = &call->first;
	call->first_request = NULL;
	call->last_request = &call->first_request;
	call->callbacks = call->predicates = 0;
	purgatory_calls = call;
	return call;
}

/* Deciding. */

/* For the owner of one that has ended, without a lock: takes it out of the
 * timer and out of all keys but the first, and frees it. */
static void
operation_finish(struct hwt_purgatory *purgatory, struct ended *ended)
{
	struct operation *operation = ended->operation;
	size_t i, count = operation_link_count(operation);
	/* The task is under way, or waits for the lock. */
	bool expiring = operation->timeout.id != 0 &&
	    hwt_cancel(purgatory->timer, operation->timeout) == -EINPROGRESS;
	bool is_free = false;
	struct shard *shard;

	for (i = 1; i < count; i++) {
		struct link *link = operation_link(operation, i);

		shard = shard_of(purgatory, link->node.hash);
		shard_lock(shard);
		link_remove(purgatory, shard, link);
		is_free = i == count - 1 && !expiring;
		if (is_free)
			operation_free(purgatory, shard, operation);
		shard_unlock(shard);
	}
	if (is_free)
		return;
	shard_lock(ended->home);
	if (expiring && !operation->expired)
		operation->orphan = true;
	else
		operation_free(purgatory, ended->home, operation);
	shard_unlock(ended->home);
}

static void
call_done(struct call *call, struct ended *ended)
{
	if (ended->operation != NULL)
		operation_finish(call->purgatory, ended);
	call->callbacks++;
	ended->done(ended->handle, ended->arg, ended->outcome);
	call->callbacks--;
	/* E:returned release */
	(void)a64_add_seq(&ended->home->returned, 1);
}

static void
ended_fill(struct ended *ended, struct hwt_purgatory *purgatory,
    struct operation *operation)
{
	uint64_t identity = a64_load_relaxed(&operation->identity);

	*ended = (struct ended){.operation = operation,
	    .handle = operation_handle(operation),
	    .done = operation->done,
	    .arg = operation->arg,
	    .home = operation_home(purgatory, identity),
	    .outcome = operation->outcome};
}

/* What callbacks have left, at the outermost call. */
static void
call_drain(struct call *call)
{
	struct operation *operation;
	struct ended ended;

	while ((operation = call->first) != NULL) {
		call->first = operation->next;
		if (call->first == NULL)
			call->last = &call->first;
		ended_fill(&ended, call->purgatory, operation);
		call_done(call, &ended);
	}
}

static void
call_later(struct call *call, struct operation *operation)
{
	operation->next = NULL;
	*call->last = operation;
	call->last = &operation->next;
}

/* Those that a call has decided, with no lock held. */
static void
call_done_all(struct call *call, struct ended *ended, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {
		if (call->callbacks > 0) {
			call_later(call, ended[i].operation);
			continue;
		}
		call_done(call, &ended[i]);
		call_drain(call);
	}
}

static void
permit_release(struct hwt_purgatory *purgatory)
{
	if (purgatory->max_pending != 0)
		(void)a64_add_seq(&purgatory->permits, UINT64_MAX);
}

/* With the home's lock, of an operation that nobody else owns. From now on
 * whoever has ended owns it. One that has a single link is freed at once, if
 * its done is not left for later. outcome 0: it is undone, and has no done. */
static void
operation_end(struct call *call, struct operation *operation, unsigned outcome,
    bool is_linked, bool is_later, struct ended *ended)
{
	struct hwt_purgatory *purgatory = call->purgatory;
	struct shard *home;

	operation->outcome = (uint8_t)outcome;
	ended_fill(ended, purgatory, operation);
	home = ended->home;
	a64_store_relaxed(&operation->identity,
	    a64_load_relaxed(&operation->identity) & ~LIVE);
	home->pending--;
	home->ended[outcome]++;
	permit_release(purgatory);
	if (operation->has_threshold && operation->threshold.level != NULL)
		threshold_remove(purgatory, operation);
	if (is_linked)
		link_remove(purgatory, home, operation_link(operation, 0));
	if (operation->inside_count != 1 || is_later)
		return;
	if (operation->timeout.id != 0 &&
	    hwt_cancel(purgatory->timer, operation->timeout) == -EINPROGRESS &&
	    !operation->expired)
		return;
	operation_free(purgatory, home, operation);
	ended->operation = NULL;
}

enum settled {
	SETTLED_IDLE,
	SETTLED_AGAIN, /* the caller still owns it */
	SETTLED_LEFT, /* ended as another call had decided */
	SETTLED_ENDED /* completed by this call */
};

/* With the home's lock, for the owner, after its predicate has answered. */
static enum settled
operation_settle(struct call *call, struct operation *operation, bool holds,
    bool is_later, struct ended *ended)
{
	if (operation->outcome != 0) {
		operation_end(
		    call, operation, operation->outcome, true, is_later, ended);
		return SETTLED_LEFT;
	}
	if (holds) {
		operation_end(
		    call, operation, HWT_COMPLETED, true, is_later, ended);
		return SETTLED_ENDED;
	}
	if (operation->again) {
		operation->again = false;
		return SETTLED_AGAIN;
	}
	operation->state = STATE_IDLE;
	return SETTLED_IDLE;
}

/* Around predicates. */
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
	a64_store_seq(&visit->marked, 1);
	if (a64_load_seq(&batch->begun) == i)
		return false;
	visit->operation->state = STATE_IDLE;
	visit->operation = NULL;
	return true;
}

/* With the home's lock. One that a walk has taken is so, too, unless its
 * predicate runs. */
static bool
operation_is_idle(struct shard *home, struct operation *operation)
{
	struct walk *walk;
	struct batch *batch;
	uint32_t i;

	if (operation->state != STATE_RUNNING)
		return operation->state == STATE_IDLE;
	for (walk = home->walks; walk != NULL; walk = walk->next_walk) {
		batch = (struct batch *)(void *)walk;
		for (i = 0; i < batch->count; i++) {
			if (batch->visit[i].operation == operation)
				return visit_take_back(batch, i);
		}
	}
	return false;
}

/* With the home's lock: takes it to call its predicate; or whoever is calling
 * that looks again. */
static bool
operation_take(
    struct shard *home, struct operation *operation, struct visit *visit)
{
	if (!operation_is_idle(home, operation)) {
		operation->again = true;
		return false;
	}
	operation->state = STATE_RUNNING;
	visit->operation = operation;
	visit->handle = operation_handle(operation);
	visit->try_complete = operation->try_complete;
	visit->arg = operation->arg;
	a64_store_relaxed(&visit->marked, 0);
	return true;
}

/* With the home's lock. Decides the outcome: 1: the operation has ended, and
 * *ended is to be carried out; 0: its owner will do so; -ENOENT: the outcome
 * was decided before. */
static int
operation_decide(struct call *call, struct shard *home,
    struct operation *operation, enum hwt_outcome outcome, struct ended *ended)
{
	if (operation_is_idle(home, operation)) {
		operation_end(
		    call, operation, outcome, true, call->callbacks > 0, ended);
		return 1;
	}
	if (operation->outcome != 0)
		return -ENOENT;
	operation->outcome = (uint8_t)outcome;
	return 0;
}

static int
decide(struct call *call, hwt_operation handle, enum hwt_outcome outcome)
{
	struct operation *operation;
	struct ended ended;
	struct shard *home;
	int rc;

	operation = operation_lock(call->purgatory, handle, &home);
	if (operation == NULL)
		return -ENOENT;
	rc = operation_decide(call, home, operation, outcome, &ended);
	shard_unlock(home);
	if (rc == 1)
		call_done_all(call, &ended, 1);
	return rc < 0 ? rc : 0;
}

/* Walks. */

/* Locks the key's shard. */
static void
batch_begin(struct batch *batch, struct call *call, struct hwt_key key)
{
	batch->call = call;
	batch->key = key;
	batch->hash = key_hash(call->purgatory, key);
	batch->shard = shard_of(call->purgatory, batch->hash);
	batch->decided = 0;
	batch->count = batch->ended_count = 0;
	batch->elsewhere.id = 0;
	shard_lock(batch->shard);
}

static struct link *
batch_ring(struct batch *batch, enum kind kind)
{
	return table_ring(batch->call->purgatory, batch->shard, batch->key,
	    batch->hash, kind);
}

/* Without a lock. */
static void
batch_done(struct batch *batch)
{
	call_done_all(batch->call, batch->ended, batch->ended_count);
	batch->ended_count = 0;
}

static void
batch_decide(struct batch *batch, struct operation *operation,
    struct shard *home, enum hwt_outcome outcome)
{
	int rc = operation_decide(batch->call, home, operation, outcome,
	    &batch->ended[batch->ended_count]);

	batch->ended_count += rc == 1;
	batch->decided += rc >= 0;
}

/* With the shard's lock: is at a link of this ring, or of the next one. */
static bool
batch_has_more(struct batch *batch)
{
	struct link *first;

	while (batch->walk.at == NULL && batch->next_kind <= batch->last_kind) {
		first = batch_ring(batch, batch->next_kind++);
		if (first != NULL) {
			batch->walk.at = first;
			batch->walk.end = first->previous;
		}
	}
	return batch->walk.at != NULL;
}

/* With the shard's lock: decides or takes the next ones, up to so many; or
 * keeps the handle of one that has another home. When something has ended, its
 * done is first. */
static void
batch_collect(struct batch *batch, uint32_t most)
{
	struct walk *walk = &batch->walk;
	struct operation *operation;
	uint64_t identity;
	struct shard *home;
	struct link *link;

	if (batch->outcome == 0 && batch->ended_count > 0)
		return;
	while (
	    batch->count + batch->ended_count < most && batch_has_more(batch)) {
		link = walk->at;
		operation = link_operation(link);
		identity = a64_load_relaxed(&operation->identity);
		home = operation_home(batch->call->purgatory, identity);
		if (home != batch->shard && batch->count > 0)
			break;
		walk->at = link == walk->end ? NULL : link->next;
		/* Decided, and about to be unlinked here, too. */
		if (!(identity & LIVE))
			continue;
		if (home != batch->shard) {
			batch->elsewhere = operation_handle(operation);
			break;
		}
		if (batch->outcome != 0) {
			batch_decide(batch, operation, home, batch->outcome);
		} else {
			batch->visit[batch->count].link = link;
			batch->count += operation_take(
			    home, operation, &batch->visit[batch->count]);
		}
	}
}

/* Without a lock: decides one that has another home. */
static void
batch_run_elsewhere(struct batch *batch)
{
	struct call *call = batch->call;
	enum settled settled = SETTLED_IDLE;
	struct operation *operation;
	struct visit visit;
	struct shard *home;
	bool holds;

	operation = operation_lock(call->purgatory, batch->elsewhere, &home);
	batch->elsewhere.id = 0;
	if (operation == NULL)
		return;
	if (batch->outcome != 0)
		batch_decide(batch, operation, home, batch->outcome);
	else if (operation_take(home, operation, &visit))
		settled = SETTLED_AGAIN;
	while (settled == SETTLED_AGAIN) {
		home->tried++;
		shard_unlock(home);
		call_tries(call);
		holds = visit.try_complete(visit.handle, visit.arg);
		call_has_tried(call);
		shard_lock(home);
		settled = operation_settle(call, operation, holds,
		    call->callbacks > 0, &batch->ended[batch->ended_count]);
	}
	shard_unlock(home);
	batch->ended_count += settled >= SETTLED_LEFT;
	batch->decided += settled == SETTLED_ENDED;
}

/* Without a lock: calls predicates, as far as none holds and none is marked.
 * Returns how many it has called. */
static uint32_t
batch_try(struct batch *batch)
{
	struct call *call = batch->call;
	struct visit *visit;
	uint32_t i;

	call_tries(call);
	for (i = 0; i < batch->count; i++) {
		visit = &batch->visit[i];
		if (i > 0) {
			/* E:begun seq, then both marks */
			(void)a64_swap_seq(&batch->begun, i);
			if (a64_load_seq(&visit[-1].marked) != 0 ||
			    a64_load_seq(&visit->marked) != 0)
				break;
		}
		batch->holds = visit->try_complete(visit->handle, visit->arg);
		if (batch->holds) {
			i++;
			break;
		}
	}
	call_has_tried(call);
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

	batch->shard->tried -= batch->count - tried;
	for (i = 0; i < batch->count; i++) {
		operation = batch->visit[i].operation;
		if (operation == NULL)
			continue;
		if (i >= tried)
			operation->again = true;
		settled = operation_settle(batch->call, operation,
		    batch->holds && i + 1 == tried, batch->call->callbacks > 0,
		    &batch->ended[batch->ended_count]);
		batch->ended_count += settled >= SETTLED_LEFT;
		batch->decided += settled == SETTLED_ENDED;
		if (settled != SETTLED_AGAIN)
			continue;
		operation->state = STATE_IDLE;
		if (rest == NULL)
			rest = batch->visit[i].link;
	}
	if (rest != NULL)
		batch->walk.at = rest;
	batch->count = 0;
}

/* With the shard's lock, which it releases for a while: decides what was
 * collected. Returns the size of the next batch: twice as many, unless one had
 * to be settled before the others. */
static uint32_t
batch_run(struct batch *batch, uint32_t most)
{
	struct shard *shard = batch->shard;
	struct walk **at;
	uint32_t tried = 0;

	batch->holds = false;
	a64_store_relaxed(&batch->begun, 0);
	shard->tried += batch->count;
	/* Others find in it what it has taken, and where it is. */
	batch->walk.next_walk = shard->walks;
	shard->walks = &batch->walk;
	shard_unlock(shard);
	if (batch->count > 0)
		tried = batch_try(batch);
	else if (batch->elsewhere.id != 0)
		batch_run_elsewhere(batch);
	else
		batch_done(batch);
	shard_lock(shard);
	for (at = &shard->walks; *at != &batch->walk;)
		at = &(*at)->next_walk;
	*at = batch->walk.next_walk;
	if (batch->outcome == 0 && tried < batch->count)
		most = 1;
	else if (most < WALK_BATCH)
		most *= 2;
	batch_settle(batch, tried);
	return most;
}

/* With the shard's lock, which it releases: through the rings of these kinds,
 * except what is linked meanwhile. */
static void
batch_walk(struct batch *batch, enum kind first_kind, enum kind last_kind,
    enum hwt_outcome outcome)
{
	uint32_t most = outcome != 0 ? WALK_BATCH : 1;

	batch->walk.at = NULL;
	batch->next_kind = first_kind;
	batch->last_kind = last_kind;
	batch->outcome = outcome;
	for (;;) {
		batch_collect(batch, most);
		if (batch->count == 0 && batch->elsewhere.id == 0 &&
		    !batch_has_more(batch))
			break;
		most = batch_run(batch, most);
	}
	shard_unlock(batch->shard);
	batch_done(batch);
}

/* Events. */

/* With the shard's lock: the key's value is now this. 0: no less before. */
static int
batch_raise(struct batch *batch, uint64_t value)
{
	struct hwt_purgatory *purgatory = batch->call->purgatory;
	struct level *level =
	    level_find(purgatory, batch->shard, batch->key, batch->hash);

	if (level == NULL && batch_ring(batch, KIND_TRIED) == NULL &&
	    batch_ring(batch, KIND_PLAIN) == NULL)
		return 0;
	level = level_get(purgatory, batch->shard, batch->key, batch->hash);
	if (level == NULL)
		return -ENOMEM;
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
	struct hwt_purgatory *purgatory = batch->call->purgatory;
	struct operation *operation;
	struct level *level;

	while (batch->ended_count < WALK_BATCH) {
		/* It goes with the last operation under the key; a later one of
		 * that key has another value. */
		level = level_find(
		    purgatory, batch->shard, batch->key, batch->hash);
		if (level == NULL || level->value < value)
			return false;
		operation = threshold_first(level);
		if (operation == NULL || operation->threshold.at_least > value)
			return false;
		threshold_remove(purgatory, operation);
		batch_decide(batch, operation, batch->shard, HWT_COMPLETED);
	}
	return true;
}

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

static int
call_event(struct call *call, const struct request *request, size_t *decided)
{
	struct batch batch;
	int rc = 0;

	batch_begin(&batch, call, request->key);
	if (request->event == EVENT_CHECK)
		batch_walk(&batch, KIND_TRIED, KIND_TRIED, 0);
	else if (request->event == EVENT_CANCEL)
		batch_walk(&batch, KIND_TRIED, KIND_PLAIN, HWT_CANCELLED);
	else
		rc = key_raise(&batch, request->value);
	*decided = batch.decided;
	return rc;
}

/* At the end of the outermost call: what was left for it. */
static void
call_leave(struct call *call, struct call *own)
{
	struct request *request;
	size_t decided;

	if (call != own)
		return;
	call_drain(call);
	while ((request = call->first_request) != NULL) {
		call->first_request = request->next;
		if (call->first_request == NULL)
			call->last_request = &call->first_request;
		(void)call_event(call, request, &decided);
		free(request);
		call_drain(call);
	}
	purgatory_calls = call->outer;
}

/* In a predicate an event waits for the outermost call, so that it takes no
 * stack. */
static int
purgatory_event(struct hwt_purgatory *purgatory, const struct request *request,
    size_t *count)
{
	struct call own, *call;
	struct request *left;
	size_t decided = 0;
	int rc = purgatory_enter(purgatory);

	if (count != NULL)
		*count = 0;
	if (rc != 0)
		return rc;
	call = call_enter(&own, purgatory);
	left = call->predicates > 0 ? malloc(sizeof(*left)) : NULL;
	if (left != NULL) {
		*left = *request;
		left->next = NULL;
		*call->last_request = left;
		call->last_request = &left->next;
	} else {
		rc = call_event(call, request, &decided);
	}
	call_leave(call, &own);
	if (count != NULL)
		*count = decided;
	return rc;
}

int
hwt_purgatory_check(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *completed)
{
	return purgatory_event(purgatory,
	    &(struct request){.key = key, .event = EVENT_CHECK}, completed);
}

int
hwt_purgatory_raise(struct hwt_purgatory *purgatory, struct hwt_key key,
    uint64_t value, size_t *completed)
{
	return purgatory_event(purgatory,
	    &(struct request){.key = key, .value = value, .event = EVENT_RAISE},
	    completed);
}

int
hwt_purgatory_cancel_key(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *cancelled)
{
	return purgatory_event(purgatory,
	    &(struct request){.key = key, .event = EVENT_CANCEL}, cancelled);
}

int
hwt_purgatory_count_key(
    struct hwt_purgatory *purgatory, struct hwt_key key, size_t *count)
{
	struct shard *shard;
	struct link *first;
	uint32_t hash;
	unsigned kind;
	int rc = purgatory_enter(purgatory);

	if (rc != 0 || count == NULL)
		return rc != 0 ? rc : -EINVAL;
	hash = key_hash(purgatory, key);
	shard = shard_of(purgatory, hash);
	*count = 0;
	shard_lock(shard);
	for (kind = KIND_TRIED; kind <= KIND_PLAIN; kind++) {
		first = table_ring(purgatory, shard, key, hash, kind);
		*count += first != NULL ? first->node.count : 0;
	}
	shard_unlock(shard);
	return 0;
}

static int
operation_decide_by_handle(struct hwt_purgatory *purgatory,
    hwt_operation operation, enum hwt_outcome outcome)
{
	struct call own, *call;
	int rc = purgatory_enter(purgatory);

	if (rc != 0)
		return rc;
	call = call_enter(&own, purgatory);
	rc = decide(call, operation, outcome);
	call_leave(call, &own);
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

/* Deadlines. */

/* A timeout's task. Its operation is not freed before it has been here, unless
 * the timeout was cancelled before that. */
static void
operation_expire(hwt_timeout timeout, void *arg)
{
	struct operation *operation = arg;
	struct hwt_purgatory *purgatory = operation_purgatory(operation);
	uint64_t identity = a64_load_acquire(&operation->identity);
	struct shard *home = operation_home(purgatory, identity);
	struct call own, *call;
	struct ended ended;
	bool is_live, is_over = false;

	(void)a64_add_seq(&purgatory->expiring, 1);
	call = call_enter(&own, purgatory);
	shard_lock(home);
	if (operation->orphan) {
		operation_free(purgatory, home, operation);
	} else if (operation->timeout.id == 0 ||
	    operation->timeout.id == timeout.id) {
		operation->expired = true;
		is_live = a64_load_relaxed(&operation->identity) & LIVE;
		if (is_live) {
			operation->timeout.id = 0;
			is_over = operation_decide(call, home, operation,
				      HWT_EXPIRED, &ended) == 1;
		}
	}
	shard_unlock(home);
	if (is_over)
		call_done_all(call, &ended, 1);
	call_leave(call, &own);
	/* E:expiring release */
	(void)a64_add_seq(&purgatory->expiring, UINT64_MAX);
}

/* Gives an operation without a deadline a timeout that is never due, so that it
 * can be moved. 0: *timeout is the operation's. */
static int
operation_arm(struct hwt_purgatory *purgatory, struct operation *operation,
    hwt_operation handle, hwt_timeout *timeout)
{
	struct shard *home;
	hwt_timeout fresh;
	int unused = 0; /* it is never due, and so gone if nobody has it */
	int rc = hwt_new_timeout(
	    purgatory->timer, &fresh, operation_expire, operation, HWT_NEVER);

	if (rc != 0)
		return rc;
	operation = operation_lock(purgatory, handle, &home);
	if (operation != NULL) {
		if (operation->outcome != 0)
			rc = -ENOENT;
		else if (operation->timeout.id == 0)
			operation->timeout = fresh;
		*timeout = operation->timeout;
		shard_unlock(home);
	} else {
		rc = -ENOENT;
	}
	if (rc != 0 || timeout->id != fresh.id)
		unused = hwt_cancel(purgatory->timer, fresh);
	(void)unused;
	return rc;
}

/* Whether it still waits for this timeout: then the timer was stopped. */
static bool
operation_has(
    struct hwt_purgatory *purgatory, hwt_operation handle, hwt_timeout timeout)
{
	struct shard *home;
	struct operation *operation = operation_lock(purgatory, handle, &home);
	bool has;

	if (operation == NULL)
		return false;
	has = operation->outcome == 0 && operation->timeout.id == timeout.id;
	shard_unlock(home);
	return has;
}

int
hwt_operation_reschedule(
    struct hwt_purgatory *purgatory, hwt_operation operation, uint64_t delay_ns)
{
	struct operation *found;
	hwt_timeout timeout;
	struct shard *home;
	bool is_timed; /* its watch gives it a timeout later */
	int rc = purgatory_enter(purgatory);

	if (rc != 0 || !delay_is_valid(delay_ns))
		return rc != 0 ? rc : -EINVAL;
	found = operation_lock(purgatory, operation, &home);
	if (found == NULL)
		return -ENOENT;
	timeout = found->timeout;
	rc = found->outcome != 0 ? -ENOENT : 0;
	is_timed = found->state == STATE_LINKING && found->has_deadline;
	shard_unlock(home);
	if (rc == 0 && timeout.id == 0) {
		if (delay_ns == HWT_NEVER && !is_timed)
			return 0;
		rc = operation_arm(purgatory, found, operation, &timeout);
	}
	if (rc != 0)
		return rc;
	rc = hwt_reschedule(purgatory->timer, timeout, delay_ns);
	if (rc == -ENOENT && operation_has(purgatory, operation, timeout))
		return -ESHUTDOWN;
	return rc == -EINPROGRESS ? -ENOENT : rc;
}

/* Watching. */

/* A call of hwt_purgatory_watch. */
struct watch {
	struct call *call;
	struct hwt_purgatory *purgatory;
	const struct hwt_operation_spec *spec;
	hwt_operation *handle; /* of the caller; may be NULL */
	hwt_operation own_handle;
	struct hwt_key key[LINKS_INSIDE];
	struct outside *outside; /* NULL: the links are inside */
	size_t count;
	struct operation *operation;
	struct shard *home;
	hwt_timeout timeout; /* {0}: not armed */
	struct ended ended;
};

static bool
spec_is_valid(const struct hwt_operation_spec *spec)
{
	return spec != NULL && spec->done != NULL && spec->keys != NULL &&
	    spec->key_count != 0 && RESERVED_IS_ZERO(spec) &&
	    (spec->at_least == 0 ||
		(spec->try_complete == NULL && spec->key_count == 1)) &&
	    delay_is_valid(spec->delay_ns);
}

static int
compare_keys(const struct hwt_key *x, const struct hwt_key *y)
{
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static int
compare_outside(const void *a, const void *b)
{
	const struct outside *x = a, *y = b;

	return compare_keys(&x->link.node.name, &y->link.node.name);
}

/* Few keys are compared one by one, many are sorted. */
static int
watch_copy_keys(struct watch *watch)
{
	const struct hwt_operation_spec *spec = watch->spec;
	size_t i, k;

	watch->outside = NULL;
	watch->count = 0;
	for (i = 0; i < spec->key_count; i++) {
		for (k = 0; k < watch->count &&
		     compare_keys(&watch->key[k], &spec->keys[i]) != 0;)
			k++;
		if (k < watch->count)
			continue;
		if (k == LINKS_INSIDE)
			break;
		watch->key[watch->count++] = spec->keys[i];
	}
	if (i == spec->key_count)
		return 0;
	watch->outside = calloc(spec->key_count, sizeof(*watch->outside));
	if (watch->outside == NULL)
		return -ENOMEM;
	for (i = 0; i < spec->key_count; i++)
		watch->outside[i].link.node.name = spec->keys[i];
	qsort(watch->outside, spec->key_count, sizeof(*watch->outside),
	    compare_outside);
	for (i = k = 1; i < spec->key_count; i++) {
		if (compare_outside(
			&watch->outside[i], &watch->outside[k - 1]) != 0)
			watch->outside[k++] = watch->outside[i];
	}
	watch->count = k;
	return 0;
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

static void
watch_fill_link(struct watch *watch, size_t i, uint32_t hash)
{
	struct link *link = operation_link(watch->operation, i);

	link->node.name =
	    watch->outside != NULL ? link->node.name : watch->key[i];
	link->node.hash = hash;
	link->node.kind =
	    watch->spec->try_complete != NULL ? KIND_TRIED : KIND_PLAIN;
	link->node.slot = watch->outside != NULL ? OUTSIDE : (uint32_t)i & 3;
	if (watch->outside != NULL)
		watch->outside[i].operation = watch->operation;
}

/* With the home's lock. */
static void
watch_fill(struct watch *watch, uint32_t hash)
{
	const struct hwt_operation_spec *spec = watch->spec;
	struct operation *operation = watch->operation;

	operation->state = STATE_LINKING;
	operation->outcome = 0;
	operation->again = operation->expired = operation->orphan = false;
	operation->has_threshold = spec->at_least != 0;
	operation->has_deadline = spec->delay_ns != HWT_NEVER;
	operation->try_complete = spec->try_complete;
	operation->done = spec->done;
	operation->arg = spec->arg;
	operation->timeout.id = 0;
	operation->inside_count =
	    watch->outside == NULL ? (uint8_t)watch->count : 0;
	if (watch->outside != NULL) {
		operation->outside = watch->outside;
		operation->outside_count = watch->count;
		watch->home->bytes += watch->count * sizeof(struct outside);
	}
	watch_fill_link(watch, 0, hash);
	if (operation->has_threshold) {
		operation->threshold.at_least = spec->at_least;
		operation->threshold.level = NULL;
	}
	watch->own_handle = operation_handle(operation);
	if (watch->handle != NULL)
		*watch->handle = watch->own_handle;
}

/* With the home's lock: links the first key. 1: the key's value has reached
 * at_least, and the operation is not linked. */
static int
watch_link_first(struct watch *watch, uint32_t hash)
{
	struct hwt_purgatory *purgatory = watch->purgatory;
	struct operation *operation = watch->operation;
	struct link *link = operation_link(operation, 0);
	struct level *level;

	if (operation->has_threshold) {
		level =
		    level_get(purgatory, watch->home, link->node.name, hash);
		if (level == NULL)
			return -ENOMEM;
		if (level->value >= watch->spec->at_least)
			return 1;
		threshold_add(purgatory, level, operation);
	}
	link_add(purgatory, watch->home, link);
	return 0;
}

/* Makes the operation, which this call owns then, and links its first key. */
static int
watch_begin(struct watch *watch)
{
	struct hwt_purgatory *purgatory = watch->purgatory;
	const struct hwt_key first = watch->outside != NULL
	    ? watch->outside[0].link.node.name
	    : watch->key[0];
	uint32_t hash = key_hash(purgatory, first);
	struct shard *home = shard_of(purgatory, hash);
	int rc = -ESHUTDOWN;

	watch->home = home;
	shard_lock(home);
	if (!home->closed) {
		watch->operation = operation_alloc(purgatory, home);
		rc = -ENOMEM;
	}
	if (watch->operation != NULL) {
		watch_fill(watch, hash);
		rc = watch_link_first(watch, hash);
		home->pending += rc >= 0;
		home->tried += watch->spec->try_complete != NULL;
		if (rc == 1)
			operation_end(watch->call, watch->operation,
			    HWT_COMPLETED, false,
			    watch->call->callbacks >= DEPTH_MAX, &watch->ended);
		else if (rc < 0)
			operation_free(purgatory, home, watch->operation);
	} else {
		free(watch->outside);
	}
	if (rc < 0)
		permit_release(purgatory);
	shard_unlock(home);
	return rc;
}

static void
watch_link_others(struct watch *watch)
{
	struct hwt_purgatory *purgatory = watch->purgatory;
	struct shard *shard;
	struct link *link;
	uint32_t hash;
	size_t i;

	for (i = 1; i < watch->count; i++) {
		link = operation_link(watch->operation, i);
		hash = key_hash(purgatory,
		    watch->outside != NULL ? link->node.name : watch->key[i]);
		watch_fill_link(watch, i, hash);
		shard = shard_of(purgatory, hash);
		shard_lock(shard);
		link_add(purgatory, shard, link);
		shard_unlock(shard);
	}
}

/* The timer takes nothing: undoes it, unless an outcome was left. */
static enum settled
watch_fail(struct watch *watch)
{
	struct operation *operation = watch->operation;
	bool is_left;

	shard_lock(watch->home);
	is_left = operation->outcome != 0;
	operation_end(watch->call, operation, operation->outcome, true,
	    watch->call->callbacks >= DEPTH_MAX, &watch->ended);
	shard_unlock(watch->home);
	if (is_left)
		return SETTLED_LEFT;
	if (watch->ended.operation != NULL)
		operation_finish(watch->purgatory, &watch->ended);
	return SETTLED_IDLE;
}

/* With the home's lock: a reschedule may have given it a timeout already, which
 * counts. */
static void
watch_keep_timeout(struct watch *watch)
{
	struct operation *operation = watch->operation;
	int unused; /* either way its task does not run any more */

	if (operation->timeout.id != 0 && watch->timeout.id != 0 &&
	    operation->timeout.id != watch->timeout.id) {
		shard_unlock(watch->home);
		unused =
		    hwt_cancel_wait(watch->purgatory->timer, watch->timeout);
		(void)unused;
		shard_lock(watch->home);
	} else if (watch->timeout.id != 0 && !operation->expired) {
		operation->timeout = watch->timeout;
	}
}

/* The owner's rule: looks until the operation has ended, or is idle and has its
 * timeout. */
static enum settled
watch_own(struct watch *watch, int *rc)
{
	const struct hwt_operation_spec *spec = watch->spec;
	struct call *call = watch->call;
	enum settled settled;
	bool holds;

	do {
		call_tries(call);
		holds = spec->try_complete != NULL &&
		    spec->try_complete(watch->own_handle, spec->arg);
		call_has_tried(call);
		if (!holds && spec->delay_ns != HWT_NEVER &&
		    watch->timeout.id == 0)
			*rc = hwt_new_timeout(watch->purgatory->timer,
			    &watch->timeout, operation_expire, watch->operation,
			    spec->delay_ns);
		if (*rc != 0)
			return watch_fail(watch);
		shard_lock(watch->home);
		watch_keep_timeout(watch);
		settled = operation_settle(call, watch->operation, holds,
		    call->callbacks >= DEPTH_MAX, &watch->ended);
		watch->home->tried += settled == SETTLED_AGAIN;
		shard_unlock(watch->home);
	} while (settled == SETTLED_AGAIN);
	return settled;
}

static int
watch_run(struct watch *watch)
{
	struct call *call = watch->call;
	enum settled settled;
	int rc = watch_begin(watch);

	if (rc < 0)
		return rc;
	settled = SETTLED_ENDED;
	if (rc == 0) {
		watch_link_others(watch);
		settled = watch_own(watch, &rc);
	}
	if (settled == SETTLED_IDLE)
		return rc;
	if (call->callbacks >= DEPTH_MAX) {
		call_later(call, watch->ended.operation);
		return 0;
	}
	call_done(call, &watch->ended);
	return settled == SETTLED_ENDED;
}

int
hwt_purgatory_watch(struct hwt_purgatory *purgatory, hwt_operation *operation,
    const struct hwt_operation_spec *spec)
{
	struct watch watch;
	struct call own;
	int rc = purgatory_enter(purgatory);

	if (operation != NULL)
		*operation = (hwt_operation){0};
	if (rc != 0 || !spec_is_valid(spec))
		return rc != 0 ? rc : -EINVAL;
	watch.purgatory = purgatory;
	watch.spec = spec;
	watch.handle = operation;
	watch.operation = NULL;
	watch.timeout.id = 0;
	rc = watch_copy_keys(&watch);
	if (rc != 0)
		return rc;
	if (permit_take(purgatory)) {
		watch.call = call_enter(&own, purgatory);
		rc = watch_run(&watch);
		call_leave(watch.call, &own);
	} else {
		free(watch.outside);
		rc = -ENOBUFS;
	}
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

static void
purgatory_free(struct hwt_purgatory *purgatory, bool is_inherited)
{
	uint32_t i;

	for (i = 0; i < purgatory->shard_count; i++)
		table_destroy(&purgatory->shard[i], is_inherited);
	pool_destroy(&purgatory->pool, is_inherited);
	free(purgatory->shard);
	free(purgatory);
}

static int
shards_create(struct hwt_purgatory *purgatory, uint32_t count)
{
	const size_t bytes = count * sizeof(*purgatory->shard);
	struct shard *shard = aligned_alloc(_Alignof(struct shard), bytes);
	uint32_t i;

	if (shard == NULL)
		return -ENOMEM;
	memset(shard, 0, bytes);
	purgatory->shard = shard;
	purgatory->shard_count = count;
	purgatory->shard_bits = (uint32_t)__builtin_ctz(count);
	for (i = 0; i < count; i++) {
		shard[i].lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
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
	secret_make(&made->secret);
	pool_create(&made->pool);
	if (shards_create(made,
		options->shards != 0 ? options->shards : SHARDS_DEFAULT) != 0) {
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
		sum->taken += shard->taken;
		sum->bytes += shard->bytes;
		for (k = HWT_COMPLETED; k <= HWT_SHUT_DOWN; k++)
			sum->ended[k] += shard->ended[k];
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
		purgatory->shard_count * sizeof(struct shard) +
		pool_used(&purgatory->pool) * sizeof(struct operation) +
		sum.bytes};
	return 0;
}

/* Until no operation is in use, each done has returned, and no thread is in the
 * task of a timeout. Without an operation in use, no such task is to come. */
static void
purgatory_await_quiet(struct hwt_purgatory *purgatory)
{
	uint32_t tries = 0;
	struct shard sum;

	for (;;) {
		shards_sum(purgatory, &sum);
		/* E:expiring acquire */
		if (sum.taken == 0 &&
		    sum.returned ==
			sum.ended[HWT_COMPLETED] + sum.ended[HWT_EXPIRED] +
			    sum.ended[HWT_CANCELLED] +
			    sum.ended[HWT_SHUT_DOWN] &&
		    a64_load_seq(&purgatory->expiring) == 0)
			return;
		yield_or_pause(&tries);
	}
}

/* After the shards were closed, so that no operation becomes live. */
static void
purgatory_end_all(struct hwt_purgatory *purgatory)
{
	struct call own, *call = call_enter(&own, purgatory);
	uint32_t i, used = pool_used(&purgatory->pool);

	for (i = 0; i < used; i++)
		(void)decide(
		    call, pool_handle(&purgatory->pool, i), HWT_SHUT_DOWN);
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
	purgatory_await_quiet(purgatory);
	return 0;
}

int
hwt_purgatory_destroy(struct hwt_purgatory *purgatory)
{
	bool is_inherited;
	struct shard sum;

	if (purgatory == NULL)
		return 0;
	if (call_of(purgatory) != NULL)
		return -EDEADLK;
	is_inherited = timer_is_foreign(purgatory->timer);
	if (!is_inherited) {
		shards_sum(purgatory, &sum);
		if (sum.pending != 0)
			return -EBUSY;
		purgatory_await_quiet(purgatory);
	}
	purgatory_free(purgatory, is_inherited);
	return 0;
}
