/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The word of an operation, and its owner's rule.
 *
 * RULE. Whoever sets RUN in a word without RUN owns the operation. Only the
 * owner calls its predicate, unlinks it, and calls done or hands it over. All
 * others change nothing but the word:
 *
 *   an event (check)    no RUN: becomes the owner, and looks. RUN: sets AGAIN
 *   deadline, cancel,   no RUN: becomes the owner, with the outcome. RUN: sets
 *   complete, shutdown  the outcome, which the owner carries out
 *
 * The owner clears AGAIN, calls the predicate, and gives RUN up by a
 * compare-and-swap that fails if AGAIN or an outcome was set meanwhile. So an
 * event that finds RUN is followed by a predicate that began after it. watch
 * begins as the owner; it links the operation first and looks then. The first
 * outcome that is set stays.
 *
 * So events of others could keep an owner for ever. A call that has called
 * predicates AGAIN_MAX times for such events gives RUN up although AGAIN is
 * set: see deferred.c.
 *
 *     free --watch--> LIVE RUN <------> LIVE (waits)
 *                        | outcome
 *                        v
 *               unlinked, timeout cancelled
 *                 |                |  executor
 *                 | done           v
 *                 |              HELD --hwt_operation_run--> RUN
 *                 v                                           |
 *               free, or ARMED alone <-----------------------+
 *
 * A refusal, too, makes HELD RUN. In a mailbox the word has QUEUED as well:
 * then only the mailbox can run it, whose list it is in.
 *
 * ARMED keeps the record for the timeout's task. Whoever cancels the timeout
 * before its task has started clears it; otherwise the task clears it as the
 * last thing it does, and frees the record if done has returned before. So the
 * task, whose argument is the record's address, never finds another operation.
 *
 * CALLBACKS. In a callback, a done or a hand-over that a call causes is put off
 * until the thread's outermost callback of that purgatory has returned; the
 * operation keeps RUN until then. A walk that a predicate asks for is put off
 * to the end of the outermost call, or a chain of predicates would need stack.
 * (If there is no memory to remember it, it is done at once: that is only a
 * matter of stack.) One that execute asks for is not: what it decides is put
 * off. A watch that completes at once carries that out itself; a few levels
 * deep it is put off as well.
 *
 * Calls of several purgatories may be one in the other. Each has its own
 * outermost call, so that hwt_purgatory_shutdown of one, called in a callback
 * of another, finds nothing that its own thread has put off.
 *
 * LAST ACCESS. hwt_purgatory_shutdown returns when no word has RUN or ARMED,
 * and the purgatory may be destroyed then. What the timeout's task does to the
 * purgatory ends with the change of the word that clears ARMED, or under the
 * pool's lock, which shutdown takes last (operation_free_locked). An operation
 * that was handed over may be gone while its executor's execute still runs, and
 * may use a mailbox. So the home counts execute from before RUN is dropped for
 * HELD; shutdown first waits for all words, then for that count, and then for
 * the words of those that were refused. Each operation is handed over once at
 * most.
 *
 * CIRCLE. This file, deferred.c and walk.c call each other in a circle: the
 * owner leaves an operation to a timeout (operation_defer) whose task owns it
 * again, and is a call like any other, at whose end a walk may have been put
 * off.
 *
 * EDGES
 *   E:event   what a thread wrote before an event: release by its change of the
 *             word, acquire by the owner's change that clears AGAIN or takes
 *             RUN. All changes are read-modify-writes.
 *   E:execute the count of calls of execute: release by the change of RUN to
 *             HELD after it, acquire by shutdown, which loads the word, then
 *             the count.
 *   E:spec    what watch wrote into the record: release by giving RUN up,
 *             acquire by the next owner.
 */
#include <errno.h>

#include "operation.h"
#include "probe.h"

/* done of a watch is called in at most so many callbacks, one in the other. */
#define CALLBACKS_MAX 8u

_Thread_local struct call *calls;

void
call_keep_on(const struct hwt_purgatory *purgatory)
{
	call_of(purgatory)->keeps_on = true;
}

void
call_be_tired(const struct hwt_purgatory *purgatory)
{
	call_of(purgatory)->again = AGAIN_MAX;
}

static void
call_put_end_off(struct call *call, struct operation *operation)
{
	operation->next = NULL;
	if (call->first == NULL)
		call->first = operation;
	else
		call->last->next = operation;
	call->last = operation;
}

/* done has returned: frees the record, or leaves it to the timeout's task. */
static void
operation_release(struct operation *operation)
{
	uint64_t word, next;

	do {
		word = a64_load_acquire(&operation->word);
		if (!(word & ARMED)) {
			operation_free(operation, word);
			return;
		}
		next = word & ~(LIVE | RUN | HELD);
	} while (!a64_cas_seq(&operation->word, word, next));
}

/* For the owner of one that has ended. A record that an executor held is
 * counted until done has returned. */
static void
operation_call_done(struct call *call, struct operation *operation)
{
	struct shard *home = operation->home;
	uint64_t word = a64_load_acquire(&operation->word);

	call->callbacks++;
	operation->done(operation_handle(operation), operation->arg,
	    (enum hwt_outcome)word_outcome(word));
	call->callbacks--;
	operation_release(operation);
	if (word & HELD)
		(void)a64_add_seq(&home->held, UINT64_MAX);
}

void
operation_change(struct operation *operation, uint64_t clear, uint64_t set)
{
	uint64_t word;

	do
		word = a64_load_acquire(&operation->word);
	while (!a64_cas_seq(&operation->word, word, (word & ~clear) | set));
}

/* HELD gets RUN, and is queued no more; false: no executor holds it, or it is
 * queued while queued is 0, or the other way round. */
static bool
operation_claim(struct operation *operation, uint64_t id, uint64_t queued)
{
	uint64_t word;

	do {
		word = a64_load_acquire(&operation->word);
		if (((word ^ id) & ~INDEX_MASK) != 0 ||
		    (word & (HELD | RUN | QUEUED)) != (HELD | queued))
			return false;
	} while (!a64_cas_seq(&operation->word, word, (word | RUN) & ~QUEUED));
	return true;
}

bool
operation_queue(struct operation *operation, uint64_t id)
{
	uint64_t word;

	do {
		word = a64_load_acquire(&operation->word);
		if (((word ^ id) & ~INDEX_MASK) != 0 ||
		    (word & (HELD | RUN | QUEUED)) != HELD)
			return false;
	} while (!a64_cas_seq(&operation->word, word, word | QUEUED));
	return true;
}

/* True: an executor has taken the operation. One that has called
 * hwt_operation_run, or has put it into a mailbox, and then refuses has taken
 * it. */
static bool
operation_hand_over(struct call *call, struct operation *operation)
{
	const struct hwt_operation_executor *executor = operation->executor;
	hwt_operation handle = operation_handle(operation);
	struct shard *home = operation->home;
	bool taken;

	if (executor == NULL)
		return false;
	(void)a64_add_seq(&home->held, 1);
	(void)a64_add_seq(&home->executing, 1);
	/* E:execute release */
	operation_change(operation, RUN, HELD);
	call->callbacks++;
	taken =
	    executor->execute(executor->ctx, call->purgatory, handle) == 0 ||
	    !operation_claim(operation, handle.id, 0);
	call->callbacks--;
	if (!taken) {
		operation_change(operation, HELD, 0);
		(void)a64_add_seq(&home->held, UINT64_MAX);
	}
	/* The last access: shutdown may have waited for it. */
	(void)a64_add_seq(&home->executing, UINT64_MAX);
	return taken;
}

/* For the owner of one that has ended: an executor gets it, unless it had it
 * already, or done is called. */
static void
operation_carry_out(struct call *call, struct operation *operation)
{
	bool held = (a64_load_acquire(&operation->word) & HELD) != 0;

	if (held || !operation_hand_over(call, operation))
		operation_call_done(call, operation);
}

void
call_carry_out(struct call *call)
{
	struct operation *operation;

	while (call->callbacks == 0 && (operation = call->first) != NULL) {
		call->first = operation->next;
		operation_carry_out(call, operation);
	}
}

/* Carries out now or, in a callback, later. */
static void
operation_finish(struct call *call, struct operation *operation, unsigned depth)
{
	if (call->callbacks <= depth)
		operation_carry_out(call, operation);
	else
		call_put_end_off(call, operation);
}

bool
operation_run(struct operation *operation, uint64_t id, uint64_t queued)
{
	if (!operation_claim(operation, id, queued))
		return false;
	operation_finish(call_of(operation->home->purgatory), operation, 0);
	return true;
}

/* ARMING is over then: see reschedule.c. */
static void
operation_await_arming(struct operation *operation)
{
	struct hwt_purgatory *purgatory = operation->home->purgatory;

	(void)pthread_mutex_lock(&purgatory->arming);
	(void)pthread_mutex_unlock(&purgatory->arming);
}

/* The timeout's task decides EXPIRED itself, and has started then. */
void
operation_disarm(struct operation *operation)
{
	struct hwt *timer = operation->home->purgatory->timer;
	uint64_t word = a64_load_acquire(&operation->word);
	hwt_timeout timeout;

	if (word & ARMING) {
		operation_await_arming(operation);
		word = a64_load_acquire(&operation->word);
	}
	if (!(word & ARMED) || word_outcome(word) == HWT_EXPIRED)
		return;
	/* E:timeout acquire */
	timeout.id = a64_load_acquire(&operation->timeout);
	/* -ENOENT: it has returned, the timer was stopped before, or watch
	 * found an outcome and made no timeout. Nobody else changes the word of
	 * one that has an owner and an outcome. */
	if (hwt_cancel(timer, timeout) != -EINPROGRESS)
		a64_store_release(&operation->word, word & ~(ARMED | AGAIN));
}

/* The owner's: only a raise unlinks what others own, and only thresholds, for
 * which this takes the lock of each key's shard. */
void
operation_unlink(struct operation *operation, uint64_t outcome)
{
	struct shard *home = operation->home;
	struct quorum *quorum = quorum_of(operation);
	struct shard *shard;
	struct link *link;
	uint32_t i;

	OPERATION_PROBE(end, home->purgatory, operation_handle(operation).id,
	    outcome, operation->arg);
	if (quorum != NULL)
		quorum_unlink(quorum);
	for (i = operation->link_count; i-- > 1;) {
		link = &operation->links[i];
		if (!link_is_linked(link))
			continue;
		shard = shard_of(home->purgatory, link_hash(link));
		shard_lock(shard);
		(void)key_unlink(shard, link);
		shard_unlock(shard);
	}
	shard_lock(home);
	if (operation->link_count > 0 && link_is_linked(&operation->links[0]))
		(void)key_unlink(home, &operation->links[0]);
	if (quorum != NULL)
		home->memory_bytes -= quorum_bytes(quorum->count);
	else if (links_are_allocated(operation))
		home->memory_bytes -=
		    operation->link_count * sizeof(struct link);
	home->pending--;
	home->ended[outcome]++;
	home->tried += call_take_tried(home->purgatory);
	shard_unlock(home);
	links_free(operation);
}

void
permit_release(struct hwt_purgatory *purgatory)
{
	if (purgatory->max_pending != 0)
		(void)a64_add_seq(&purgatory->permits, UINT64_MAX);
}

void
operation_end(struct operation *operation, bool watching)
{
	struct hwt_purgatory *purgatory = operation->home->purgatory;
	struct call *call = call_of(purgatory);
	uint64_t word = a64_load_acquire(&operation->word);

	operation_unlink(operation, word_outcome(word));
	operation_disarm(operation);
	permit_release(purgatory);
	operation_finish(call, operation, watching ? CALLBACKS_MAX : 0);
}

static bool
operation_try(struct operation *operation)
{
	struct call *call = call_of(operation->home->purgatory);
	bool holds;

	call->tried++;
	call->callbacks++;
	call->predicates++;
	holds = operation->try_complete(
	    operation_handle(operation), operation->arg);
	call->predicates--;
	call->callbacks--;
	OPERATION_PROBE(try, operation->home->purgatory,
	    operation_handle(operation).id, holds);
	return holds;
}

bool
operation_set(struct operation *operation, uint64_t outcome)
{
	uint64_t word;

	do {
		word = a64_load_acquire(&operation->word);
		if (word_outcome(word) != 0)
			return false;
	} while (
	    !a64_cas_seq(&operation->word, word, word | outcome * OUTCOME_ONE));
	return true;
}

bool
operation_own(struct operation *operation, bool watching)
{
	struct call *call = call_of(operation->home->purgatory);
	bool look = operation->try_complete != NULL;
	bool completed = false;
	uint64_t word, next;

	for (;;) {
		/* E:event acquire, E:spec acquire */
		word = a64_load_acquire(&operation->word);
		if (word_outcome(word) != 0) {
			operation_end(operation, watching);
			return completed;
		}
		if (!look && (word & AGAIN) && call->again >= AGAIN_MAX &&
		    !call->keeps_on) {
			if (operation_defer(operation, word, &completed))
				return completed;
			continue;
		}
		next = word & ~AGAIN;
		if (!look && next == word)
			next &= ~RUN;
		/* E:spec release */
		if (next != word && !a64_cas_seq(&operation->word, word, next))
			continue;
		if (!(next & RUN))
			return false;
		call->again += !look;
		look = false;
		/* Without a predicate nobody sets AGAIN: see batch_add_link. */
		if (operation_try(operation))
			completed = operation_set(operation, HWT_COMPLETED);
	}
}

bool
operation_event(struct operation *operation, uint64_t id)
{
	uint64_t word;

	do {
		word = a64_load_acquire(&operation->word);
		if (!word_is_open(word, id))
			return false;
		/* E:event release */
	} while (!a64_cas_seq(
	    &operation->word, word, word | ((word & RUN) ? AGAIN : RUN)));
	return !(word & RUN) && operation_own(operation, false);
}

enum taken
operation_take(struct operation *operation, uint64_t id, uint64_t outcome)
{
	uint64_t word, next;

	do {
		word = a64_load_acquire(&operation->word);
		if (!word_is_open(word, id))
			return TAKEN_NOT;
		next = word | RUN | outcome * OUTCOME_ONE;
	} while (!a64_cas_seq(&operation->word, word, next));
	return (word & RUN) ? TAKEN_LEFT : TAKEN_OWN;
}

bool
operation_decide(struct operation *operation, uint64_t id, uint64_t outcome)
{
	enum taken taken = operation_take(operation, id, outcome);

	if (taken == TAKEN_OWN)
		operation_end(operation, false);
	return taken != TAKEN_NOT;
}
