/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The word of an object, and the ring of requests that wait for it.
 *
 * IN_USE and WAITERS are bits of one word. Under the lock of the object's
 * shard, WAITERS is set exactly while the ring is not empty. Whoever frees an
 * object does it by a compare-and-swap that fails if WAITERS is set, and then
 * under the lock; whoever begins to wait sets WAITERS by one that fails if
 * IN_USE is not set. So no request waits for an object that is free, unless
 * another one has been woken for it.
 *
 *        begins to wait                       frees the object
 *        --------------                       ----------------
 *   (A1) link, under the lock            (B1) clear IN_USE
 *   (A2) set WAITERS while IN_USE        (B2) wake one if WAITERS was set
 *
 *   Forbidden: A2 succeeds, and B2 finds no waiter. Both change the word: if B1
 *   is first, A2 fails; if A2 is first, B1 fails and is done again under the
 *   lock, where the ring has the waiter.
 *
 * BATON. A release wakes one waiter, the first that has not ended. That one has
 * the baton of the object: it uses the object, or waits for it again, or hands
 * the wake-up on. So does whoever frees an object because it could not have
 * another one. See request.c.
 *
 * A retired object's memory is the user's. Whoever ends a wait takes the
 * request out of its ring under the lock, whose shard follows from the address
 * alone, and finds it unlinked then.
 *
 * EDGES
 *   E:holder  what a holder wrote: release by giving the object, acquire by
 *             taking it. All changes of the word are read-modify-writes.
 */
#include "checkout.h"

void
checkout_shard_lock(struct checkout_shard *shard)
{
	(void)pthread_mutex_lock(&shard->lock);
}

void
checkout_shard_unlock(struct checkout_shard *shard)
{
	(void)pthread_mutex_unlock(&shard->lock);
}

bool
object_take(struct object *object, struct request *request)
{
	uint64_t word;

	do {
		word = a64_load_relaxed(&object->word);
		if (word & (IN_USE | RETIRED))
			return false;
		/* E:holder acquire */
	} while (!a64_cas_seq(
	    &object->word, word, word | IN_USE | (uintptr_t)request));
	return true;
}

/* The rest is done with the lock held. */

static void
link_waiter(struct object *object, struct request *request, bool first)
{
	struct request *head = object->first;

	request->linked = 1;
	if (head == NULL) {
		request->next = request;
		request->previous = request;
		object->first = request;
		return;
	}
	request->next = head;
	request->previous = head->previous;
	head->previous->next = request;
	head->previous = request;
	if (first)
		object->first = request;
}

static void
unlink_waiter(struct object *object, struct request *request)
{
	request->linked = 0;
	request->next->previous = request->previous;
	request->previous->next = request->next;
	if (request->next == request)
		object->first = NULL;
	else if (object->first == request)
		object->first = request->next;
	if (object->first == NULL)
		a64_and_seq(&object->word, ~WAITERS);
}

/* Those that have ended are taken out by whoever ended them. */
static bool
wake_one(struct object *object, uint64_t baton)
{
	struct request *request = object->first;

	while (request != NULL) {
		if (request_wake(request, baton)) {
			unlink_waiter(object, request);
			queue_add(request);
			return true;
		}
		request = request->next != object->first ? request->next : NULL;
	}
	return false;
}

void
object_give(struct object *object, struct request *request)
{
	uint64_t word = a64_load_acquire(&object->word);
	struct checkout_shard *shard;

	/* Retired, or more: see hwt_object_retire. */
	if ((word & HOLDER_MASK) != (uintptr_t)request)
		return;
	while (!(word & WAITERS)) {
		/* E:holder release */
		if (a64_cas_seq(&object->word, word, 0))
			return;
		word = a64_load_acquire(&object->word);
	}
	shard = checkout_shard_of(object->checkout, object);
	checkout_shard_lock(shard);
	/* E:holder release */
	a64_and_seq(&object->word, WAITERS);
	(void)wake_one(object, BATON);
	checkout_shard_unlock(shard);
}

void
object_hand_on(struct object *object)
{
	struct checkout_shard *shard =
	    checkout_shard_of(object->checkout, object);

	checkout_shard_lock(shard);
	if (!(a64_load_acquire(&object->word) & IN_USE))
		(void)wake_one(object, BATON);
	checkout_shard_unlock(shard);
}

static bool
object_announce(struct object *object)
{
	uint64_t word;

	do {
		word = a64_load_acquire(&object->word);
		if (!(word & IN_USE))
			return false;
	} while (!a64_cas_seq(&object->word, word, word | WAITERS));
	return true;
}

/* TRYING becomes WAITING, unless an outcome was set meanwhile. */
static bool
enter_wait(struct request *request)
{
	uint64_t word;

	do {
		word = a64_load_acquire(&request->word);
		if (word & OUTCOME_MASK)
			return false;
	} while (!a64_cas_seq(&request->word, word,
	    (word & ~(STATE_MASK | BATON)) | STATE_WAITING));
	return true;
}

bool
object_wait(struct object *object, struct request *request)
{
	struct checkout_shard *shard =
	    checkout_shard_of(object->checkout, object);
	/* Who was woken for it and overtaken is the next one again; a baton of
	 * another object has been handed on. */
	bool first = a64_load_relaxed(&request->word) & BATON;
	bool waits = false;

	checkout_shard_lock(shard);
	if (object_announce(object)) {
		link_waiter(object, request, first);
		aptr_store_release(&request->at, object);
		waits = enter_wait(request);
		if (!waits)
			unlink_waiter(object, request);
	}
	checkout_shard_unlock(shard);
	return waits;
}

void
object_unlink(struct request *request)
{
	struct object *object = aptr_load_acquire(&request->at);
	struct checkout_shard *shard =
	    checkout_shard_of(request->checkout, object);

	checkout_shard_lock(shard);
	if (request->linked)
		unlink_waiter(object, request);
	checkout_shard_unlock(shard);
}

void
gate_open(struct hwt_checkout *checkout)
{
	struct object *gate = &checkout->gate;
	struct checkout_shard *shard = checkout_shard_of(checkout, gate);

	checkout_shard_lock(shard);
	a64_and_seq(&gate->word, ~IN_USE);
	while (wake_one(gate, 0))
		;
	checkout_shard_unlock(shard);
}

void
object_close(struct object *object)
{
	struct checkout_shard *shard =
	    checkout_shard_of(object->checkout, object);
	struct request *request;

	checkout_shard_lock(shard);
	/* They stay WAITING: hwt_object_retire finds them in the lists. */
	while ((request = object->first) != NULL)
		unlink_waiter(object, request);
	(void)a64_swap_seq(&object->word, RETIRED);
	checkout_shard_unlock(shard);
}
