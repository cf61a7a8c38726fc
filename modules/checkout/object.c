/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The word of an object, who waits for it, and groups.
 *
 * A word changes by compare-and-swap. Without WAITERS, takers and givers need
 * no lock. With it, whoever gives the object back does so under the lock and
 * serves the list. Outside the lock there is
 *
 *   WAITERS if and only if the list is not empty: both change under the lock.
 *   WAITERS and free only with WOKEN: an object that is given back is served
 *       at once. So a newcomer, which needs it free, takes it if nobody waits,
 *       or beside the thread that was woken for it.
 *   WOKEN as long as a request has the baton of this object: it was woken for
 *       it, and has neither taken it, nor waits for it again, nor has handed
 *       the wake-up on. Meanwhile giving it back wakes nobody.
 *   ASKED never: under the lock, a retirement looks at the request that has
 *       the object, which cannot end before the lock is free.
 *
 * The word of a group changes under the lock alone. The gate is an object that
 * a pause holds, and that all leave when it is opened.
 */
#include "checkout.h"

static struct shard *
lock_of(const struct object *object)
{
	return shard_lock(shard_of(object->checkout, object));
}

static bool
is_open(uint64_t word, bool reads)
{
	if ((word & (WAITERS | WOKEN)) == WAITERS || word & RETIRED)
		return false;
	return !(word & IN_USE) || (reads && word & SHARED);
}

static uint64_t
word_given(uint64_t word, bool reads)
{
	if (reads && (word & HOLDER_MASK) > READER_ONE)
		return word - READER_ONE;
	return word & ~(IN_USE | SHARED | HOLDER_MASK);
}

/* WAITING becomes WOKEN; false: it does not wait. */
static bool
request_wake(struct request *request)
{
	uint64_t word;

	do {
		/* E:request acquire */
		word = a64_load_acquire(&request->word);
		if (word_state(word) != STATE_WAITING)
			return false;
	} while (!a64_cas_seq(
	    &request->word, word, (word & ~STATE_MASK) | STATE_WOKEN));
	return true;
}

/* TRYING becomes WAITING, unless a mark was left. */
static bool
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

/* The list, under the lock. */

/* In order of tickets: mostly as the last, or near the first. */
static void
link_request(struct object *object, struct request *request)
{
	struct request *first = object->first, *before = first;
	bool is_last =
	    first == NULL || first->link[AT].previous->ticket < request->ticket;

	request->linked = true;
	while (!is_last && before->ticket < request->ticket)
		before = before->link[AT].next;
	ring_add(before, request, AT);
	if (first == NULL || (!is_last && before == first))
		object->first = request;
}

static void
unlink_request(struct object *object, struct request *request)
{
	request->linked = false;
	object->first = ring_remove(object->first, request, AT);
}

/* A free member, for the request. */
static inline void
group_pop(struct group *group, struct request *request, uint32_t i)
{
	struct object *member = group->free;

	group->free = member->next_free;
	if (group->free == NULL)
		a64_or_seq(&group->any.word, IN_USE);
	/* E:object acquire: by the lock */
	a64_store_relaxed(&member->word,
	    word_taken(a64_load_relaxed(&member->word), request, false));
	item_granted(request, i, member);
}

/* It is free for that one, which is not its owner's any more. */
static void
hand_over(struct object *object, struct request *request)
{
	uint32_t i = request->at_index;
	bool reads = request_reads(request, i);
	uint64_t word = a64_load_relaxed(&object->word);

	if (word & GROUP) {
		group_pop((struct group *)(void *)object, request, i);
	} else {
		/* E:object acquire; it fails where a reader leaves. */
		while (!a64_cas_seq(
		    &object->word, word, word_taken(word, request, reads)))
			word = a64_load_relaxed(&object->word);
		item_granted(request, i, object);
	}
	request->held++; /* it was refused as the next one */
	queue_add(request);
}

/* It is woken for the object, and not handed it: a thread that sleeps, and a
 * set that does not keep what it has got. Of sets that were each handed what
 * another one wants, each would give it back to the next, for ever. */
static bool
is_only_woken(const struct request *request)
{
	return (request->count > 1 || request->blocked != NULL) &&
	    !request_is_in_order(request);
}

/* Under the lock: hands the object to the first, or wakes it; readers, and of a
 * group as many as there are members, one after another. */
static void
serve(struct object *object, struct shard *shard)
{
	struct request *request;
	uint64_t word;
	bool waited;

	while ((request = object->first) != NULL) {
		word = a64_load_acquire(&object->word);
		if (word & WOKEN ||
		    !is_open(word & ~WAITERS,
			request_reads(request, request->at_index)))
			return;
		waited = request_wake(request);
		unlink_request(object, request);
		if (!waited)
			continue;
		shard->stats.woken++;
		if (is_only_woken(request)) {
			request->baton = true;
			a64_or_seq(&object->word, WOKEN);
			if (request->blocked != NULL)
				blocked_tell(request->blocked, TOLD_TO_TRY);
			else
				queue_add(request);
			break;
		}
		hand_over(object, request);
	}
	if (object->first == NULL)
		a64_and_seq(&object->word, ~WAITERS);
}

/* Taking and giving. */

int64_t
group_take(struct request *request, uint32_t i)
{
	struct object *any = request_object(request, i);
	struct shard *shard = lock_of(any);
	uint64_t gate = a64_load_seq(&request->checkout->gate.word);
	int64_t tried = TRIED_ALL;

	/* E:pause: by the lock */
	if (request->is_pool && gate & (IN_USE | RETIRED)) {
		tried = TRIED_GATE;
	} else if (request->held <= i) { /* it was not handed one */
		if (is_open(a64_load_relaxed(&any->word), false))
			group_pop((struct group *)(void *)any, request, i);
		else
			tried = i;
	}
	if (tried == TRIED_ALL && request->baton && request->at_index == i) {
		request->baton = false;
		a64_and_seq(&any->word, ~WOKEN);
		serve(any, shard);
	}
	if (tried == TRIED_ALL && request->is_pool) {
		request->held = 1;
		shard->pool_out++;
	}
	shard_unlock(shard);
	return tried;
}

bool
object_take_slowly(struct request *request, uint32_t i)
{
	struct object *object = request_object(request, i);
	bool reads = request_reads(request, i);
	bool baton = request->baton && request->at_index == i;
	uint64_t word, next;

	do {
		word = a64_load_relaxed(&object->word);
		if (word & GROUP)
			return group_take(request, i) == TRIED_ALL;
		if (!is_open(word, reads))
			return false;
		next = word_taken(word, request, reads);
		if (baton)
			next &= ~WOKEN;
		/* E:object acquire */
	} while (!a64_cas_seq(&object->word, word, next));
	item_granted(request, i, object);
	if (baton)
		request->baton = false;
	if (baton && reads && next & WAITERS)
		object_leave(request); /* so do those behind it */
	return true;
}

/* What another thread waits for is given back under the lock, as it may be
 * retired and freed as soon as it is free. */
void
object_free(struct object *object, bool reads)
{
	struct shard *shard = NULL;
	uint64_t word, next;

	do {
		word = a64_load_relaxed(&object->word);
		next = word_given(word, reads);
		if (shard == NULL &&
		    (next & ASKED ||
			(next & (IN_USE | WAITERS | WOKEN)) == WAITERS))
			shard = lock_of(object);
		/* E:object release; E:wait fence */
	} while (!a64_cas_seq(&object->word, word, next));
	if (shard != NULL) {
		serve(object, shard);
		shard_unlock(shard);
	}
}

void
group_put(struct group *group, struct object *member)
{
	a64_store_relaxed(&member->word, MEMBER);
	member->next_free = group->free;
	group->free = member;
	if (a64_load_relaxed(&group->any.word) & IN_USE)
		a64_and_seq(&group->any.word, ~IN_USE);
	if (group->any.first != NULL)
		serve(&group->any, shard_of(group->any.checkout, &group->any));
}

void
group_give(struct request *request, uint32_t i, bool is_out)
{
	struct hwt_checkout *checkout = request->checkout;
	struct request_item *item = request_item(request, i);
	struct object *any = item->wanted, *member = item->granted;
	struct shard *shard = shard_lock(shard_of(checkout, any));
	bool paused = is_out && a64_load_seq(&checkout->gate.word) & IN_USE;

	item->granted = NULL;
	/* E:object release: by the lock */
	if (member != NULL)
		group_put((struct group *)(void *)any, member);
	shard->pool_out -= is_out;
	shard->pool_released += is_out;
	shard_unlock(shard);
	if (paused)
		pause_notify(checkout);
}

void
object_give_slowly(struct request *request, uint32_t i)
{
	struct object *object = request_object(request, i);
	struct request_item *item = request_item(request, i);

	if (item != NULL && item->granted != object) {
		group_give(request, i, false);
	} else {
		item_granted(request, i, NULL);
		object_free(object, request_reads(request, i));
	}
}

/* Waiting. */

/* Under the lock; exact, as WAITERS is set in the word that refuses. */
static bool
still_refuses(struct request *request, struct object *object)
{
	bool reads = request_reads(request, request->at_index);
	uint64_t word, next;

	do {
		word = a64_load_acquire(&object->word);
		if (word & RETIRED || is_open(word, reads))
			return false;
		next = word | WAITERS;
		if (request->baton)
			next &= ~WOKEN;
		/* E:wait fence */
	} while (!a64_cas_seq(&object->word, word, next));
	request->baton = false;
	return true;
}

bool
object_wait(struct request *request, int64_t i)
{
	struct object *object = i == TRIED_GATE
	    ? &request->checkout->gate
	    : request_object(request, (uint32_t)i);
	struct shard *shard = lock_of(object);
	bool waits;

	request->at_index = i == TRIED_GATE ? 0 : (uint32_t)i;
	aptr_store_release(&request->at, object);
	waits = still_refuses(request, object);
	if (waits) {
		link_request(object, request);
		waits = request_enter_wait(request);
		if (!waits) {
			unlink_request(object, request);
			serve(object, shard);
		}
	}
	shard_unlock(shard);
	return waits;
}

void
object_leave(struct request *request)
{
	struct object *object = aptr_load_acquire(&request->at);
	struct shard *shard = lock_of(object);

	if (request->linked)
		unlink_request(object, request);
	if (request->baton)
		a64_and_seq(&object->word, ~WOKEN);
	request->baton = false;
	serve(object, shard);
	shard_unlock(shard);
}

/* Most wait there, and are found without a search of all waits. */
void
object_retire(
    struct hwt_checkout *checkout, struct object *object, uint64_t waits)
{
	struct request *request;
	struct shard *shard;
	uint64_t word = 0;

	a64_or_seq(&object->word, RETIRED);
	do {
		shard = lock_of(object);
		request = object->first;
		if (request != NULL) {
			unlink_request(object, request);
			word = request_interrupt(
			    request, HWT_GRANT_RETIRED, 0, object);
		}
		shard_unlock(shard);
		if (request != NULL && word_state(word) == STATE_WAITING) {
			request_finish(request, HWT_GRANT_RETIRED);
			waits--;
		}
	} while (request != NULL);
	if (waits > 0)
		requests_stop(checkout, object, HWT_GRANT_RETIRED);
	queue_run();
}

void
gate_open(struct hwt_checkout *checkout)
{
	struct object *gate = &checkout->gate;
	struct shard *shard = lock_of(gate);
	struct request *request;

	a64_and_seq(&gate->word, ~(IN_USE | WAITERS));
	while ((request = gate->first) != NULL) {
		unlink_request(gate, request);
		if (request_wake(request))
			queue_add(request);
	}
	shard_unlock(shard);
}
