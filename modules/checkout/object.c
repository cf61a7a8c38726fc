/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The word of an object, and the ring of requests that wait for it; groups.
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
 * IN ORDER. If the first waiter was refused hold_after times, whoever frees the
 * object, or hands its wake-up on, hands it over: IN_USE stays set, the waiter
 * becomes the holder, and is WOKEN without a baton. Nobody can take it in
 * between. If its wait has ended when it is tried, it gives the object to the
 * next one.
 *
 * A GROUP is an object that no request holds. Its IN_USE says that no member is
 * free; it, the list of free members and the ring change under the lock of the
 * group's shard alone, so that the drawing above is true of it as well. Its
 * members have holders, but no waiters. Each free member wakes one waiter.
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

static uint32_t
position(const struct request *request, uint32_t i)
{
	return request->rank_count > 0 ? request->rank[i] : i;
}

struct object *
object_at(const struct request *request, uint32_t i)
{
	uint32_t at = position(request, i);

	return request->has_items ? request->items[at].wanted
				  : request->objects[at];
}

struct object **
object_granted(const struct request *request, uint32_t i)
{
	return &request->items[position(request, i)].granted;
}

static void
note_granted(const struct request *request, uint32_t i, struct object *object)
{
	if (request->has_items)
		*object_granted(request, i) = object;
}

static void
member_take(struct object *member, const struct request *request)
{
	/* E:holder acquire */
	(void)a64_swap_seq(&member->word, MEMBER | IN_USE | (uintptr_t)request);
}

/* With the lock held. */
static struct object *
member_pop(struct object_group *group)
{
	struct object *member = group->free;

	if (member == NULL)
		return NULL;
	group->free = member->next_free;
	if (group->free == NULL)
		a64_or_seq(&group->any.word, IN_USE);
	return member;
}

static bool
group_take(struct object_group *group, struct request *request, uint32_t i)
{
	struct checkout_shard *shard =
	    checkout_shard_of(request->checkout, group);
	struct object *member;

	if (a64_load_relaxed(&group->any.word) & (IN_USE | RETIRED))
		return false;
	checkout_shard_lock(shard);
	member = member_pop(group);
	if (member != NULL) {
		member_take(member, request);
		note_granted(request, i, member);
	}
	checkout_shard_unlock(shard);
	return member != NULL;
}

bool
object_take(struct request *request, uint32_t i)
{
	struct object *object = object_at(request, i);
	uint64_t word = a64_load_relaxed(&object->word);

	if (word & GROUP)
		return group_take((struct object_group *)object, request, i);
	while (!(word & (IN_USE | RETIRED))) {
		/* E:holder acquire */
		if (a64_cas_seq(&object->word, word,
			word | IN_USE | (uintptr_t)request)) {
			note_granted(request, i, object);
			return true;
		}
		word = a64_load_relaxed(&object->word);
	}
	return false;
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
static struct request *
wake_one(struct object *object, uint64_t baton)
{
	struct request *request = object->first;

	while (request != NULL) {
		if (request_wake(request, baton)) {
			unlink_waiter(object, request);
			queue_add(request);
			return request;
		}
		request = request->next != object->first ? request->next : NULL;
	}
	return NULL;
}

/* Wakes the next waiter. If that is served in order, it becomes the holder of
 * what is given, and is the answer. */
static struct request *
wake_next(struct object *object, struct object *given)
{
	struct request *request = wake_one(object, BATON);

	if (request == NULL || !request_is_in_order(request))
		return NULL;
	request_change(request, BATON, 0);
	if (request->held == 0) {
		/* E:pause fence: it reads the gate before it is granted. */
		(void)a64_add_seq(&request_shard(request)->in_flight, 1);
		(void)a64_add_seq(&request_shard(request)->holding, 1);
	}
	note_granted(request, request->held, given);
	request->held++;
	return request;
}

static void
member_give(struct object_group *group, struct object *member)
{
	struct request *next = wake_next(&group->any, member);

	if (next != NULL) {
		member_take(member, next);
		return;
	}
	/* E:holder release */
	(void)a64_swap_seq(&member->word, MEMBER);
	member->next_free = group->free;
	group->free = member;
	a64_and_seq(&group->any.word, ~IN_USE);
}

void
group_give(struct object_group *group, struct object *member)
{
	struct checkout_shard *shard =
	    checkout_shard_of(group->any.checkout, group);

	checkout_shard_lock(shard);
	member_give(group, member);
	checkout_shard_unlock(shard);
}

/* One that nobody else can take. With the lock held. */
static void
give_waited(struct object *object)
{
	struct request *next = wake_next(object, object);
	uint64_t waiters = object->first != NULL ? WAITERS : 0;

	/* E:holder release; it stays in use for the next one. */
	(void)a64_swap_seq(&object->word,
	    next != NULL ? waiters | IN_USE | (uintptr_t)next : waiters);
}

void
object_give(struct request *request, uint32_t i)
{
	struct object *object = object_at(request, i);
	struct object *granted = object;
	struct checkout_shard *shard;
	uint64_t word;

	if (request->has_items)
		granted = *object_granted(request, i);
	note_granted(request, i, NULL);
	if (granted == NULL)
		return;
	word = a64_load_acquire(&granted->word);
	/* Retired, or more: see hwt_object_retire. */
	if ((word & HOLDER_MASK) != (uintptr_t)request)
		return;
	if (word & MEMBER) {
		group_give((struct object_group *)object, granted);
		return;
	}
	while (!(word & WAITERS)) {
		/* E:holder release */
		if (a64_cas_seq(&object->word, word, 0))
			return;
		word = a64_load_acquire(&object->word);
	}
	shard = checkout_shard_of(object->checkout, object);
	checkout_shard_lock(shard);
	give_waited(object);
	checkout_shard_unlock(shard);
}

static bool
take_free(struct object *object)
{
	uint64_t word;

	do {
		word = a64_load_acquire(&object->word);
		if (word & IN_USE)
			return false;
		/* E:holder acquire */
	} while (!a64_cas_seq(&object->word, word, word | IN_USE));
	return true;
}

static void
hand_on(struct object *object)
{
	struct object_group *group = (struct object_group *)object;
	struct object *member;

	if (object->first == NULL)
		return;
	if (!(a64_load_relaxed(&object->word) & GROUP)) {
		if (take_free(object))
			give_waited(object);
		return;
	}
	member = member_pop(group);
	if (member != NULL)
		member_give(group, member);
}

/* It is taken first, so that it can be handed over to one in order. */
void
object_hand_on(struct object *object)
{
	struct checkout_shard *shard =
	    checkout_shard_of(object->checkout, object);

	checkout_shard_lock(shard);
	hand_on(object);
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
	while (wake_one(gate, 0) != NULL)
		;
	checkout_shard_unlock(shard);
}

/* With the lock held. They stay WAITING: whoever retires the object finds them
 * in the lists. */
static void
close_locked(struct object *object)
{
	struct request *request;

	while ((request = object->first) != NULL)
		unlink_waiter(object, request);
	(void)a64_swap_seq(&object->word, RETIRED);
}

void
object_close(struct object *object)
{
	struct checkout_shard *shard =
	    checkout_shard_of(object->checkout, object);

	checkout_shard_lock(shard);
	close_locked(object);
	checkout_shard_unlock(shard);
}

bool
group_close(struct object_group *group)
{
	struct checkout_shard *shard =
	    checkout_shard_of(group->any.checkout, group);
	bool closed;

	checkout_shard_lock(shard);
	closed = group->members == 0;
	if (closed)
		close_locked(&group->any);
	checkout_shard_unlock(shard);
	return closed;
}
