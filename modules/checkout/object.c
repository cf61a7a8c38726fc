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
 * READERS share an object: SHARED, and their count in the place of a holder.
 * One who comes shares it while nobody waits, so that a writer waits for no
 * more readers than have it when its wait begins; one that was woken for the
 * object was in front of those that wait, and shares it although they do. The
 * last reader frees the object: while others wait, it does so under the lock,
 * and makes it in use by nobody first, which no reader can join any more.
 * Whoever wakes a reader wakes the readers behind it, too, up to the first
 * writer. So
 *
 *   if the object is free or shared and the first waiter reads, a request that
 *   was woken for the object has not been tried yet.
 *
 * A reader comes to be the first of those that wait when a writer before it is
 * woken, which has the baton then; or when the writer's wait ends otherwise:
 * whoever takes that out of the ring serves what is behind it. To serve readers
 * beside others, one takes a share first, so that the object is not freed
 * meanwhile.
 *
 * A GROUP is an object that no request holds. Its IN_USE says that no member is
 * free; it, the list of free members and the ring change under the lock of the
 * group's shard alone, so that the drawing above is true of it as well. Its
 * members have holders, but no waiters. Each free member wakes one waiter.
 *
 * SLOTS. A group without waiters keeps some free members in slots, one of which
 * each request uses first, chosen by its address, so that a thread takes what
 * it released last with no lock, and on a cache line that is its own. IN_USE
 * says nothing about them. Whoever takes a member out of a slot has it; nobody
 * does while WAITERS is set, so that who waits in order is not overtaken.
 *
 *        begins to wait, under the lock       releases a member
 *        ------------------------------       -----------------
 *   (C1) set WAITERS                     (D1) slot: 0 becomes releasing
 *   (C2) empty all slots: a member goes  (D2) read WAITERS: if set, empty the
 *        to the free ones, and it tries       slot and release under the lock
 *        again; releasing becomes 0      (D3) slot: releasing becomes the
 *                                          member; if it is 0, under the lock
 *
 *   Forbidden: C2 leaves a slot to a release whose D2 finds no WAITERS, and
 *   whose D3 succeeds. If D2 is before C1, D1 is before C2, which makes D3 fail
 *   or finds the member. Releasing has the address of the request, so that D3
 *   succeeds for its own D1 alone. D3 is the last that a release touches of the
 *   group: before it, the member is held, so that the group is not retired.
 *
 * A retired object's memory is the user's. Whoever ends a wait takes the
 * request out of its ring under the lock, whose shard follows from the address
 * alone, and finds it unlinked then.
 *
 * EDGES
 *   E:holder  what a holder wrote: release by giving the object, acquire by
 *             taking it. All changes of the word are read-modify-writes. Of
 *             a member in a slot, by the slot's word.
 *   E:slot    the drawing of slots.
 */
#include <errno.h>

#include "checkout.h"

static uint32_t
position(const struct request *request, uint32_t i)
{
	return request->rank_count > 0 ? request->rank[i] : i;
}

struct object *
object_at(const struct request *request, uint32_t i)
{
	uint32_t at = position(request, i);

	return request->flags & HAS_ITEMS ? request->items[at].wanted
					  : request->objects[at];
}

bool
reads_at(const struct request *request, uint32_t i)
{
	return request->flags & HAS_READS &&
	    request->items[position(request, i)].use == HWT_READ;
}

static bool
reads(const struct request *request, const struct object *object)
{
	uint32_t i;

	for (i = 0; i < request->count && request->flags & HAS_READS; i++) {
		if (object_at(request, i) == object)
			return reads_at(request, i);
	}
	return false;
}

/* It was woken for the object, and so is in front of those that wait. */
static bool
is_next(const struct request *request, const struct object *object)
{
	return a64_load_relaxed(&request->word) & BATON &&
	    aptr_load_acquire(&request->at) == object;
}

struct object **
object_granted(const struct request *request, uint32_t i)
{
	return &request->items[position(request, i)].granted;
}

static void
note_granted(const struct request *request, uint32_t i, struct object *object)
{
	if (request->flags & HAS_ITEMS)
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

/* The first that it looks at. */
static uint32_t
slot_of(const struct request *request)
{
	return (uint32_t)((uint64_t)(uintptr_t)request *
		       UINT64_C(0x9e3779b97f4a7c15) >>
		   40) &
	    (SLOTS - 1);
}

static struct object *
slot_take(struct group_slot *slot)
{
	uint64_t word = a64_load_acquire(&slot->word);

	/* E:holder acquire */
	if (word == 0 || word & SLOT_RELEASING ||
	    !a64_cas_seq(&slot->word, word, 0))
		return NULL;
	return (struct object *)(uintptr_t)word;
}

/* All, so that few members are in use, and go on being warm. */
static struct object *
slots_take(struct object_group *group, const struct request *request)
{
	struct object *member = NULL;
	uint32_t first = slot_of(request);
	uint32_t i;

	for (i = first; i < first + SLOTS && member == NULL; i++)
		member = slot_take(&group->slots->slot[i & (SLOTS - 1)]);
	/* The group was retired meanwhile, and another one has its slots: for
	 * this moment, a member less. */
	if (member != NULL && member->group != group) {
		group_give(member->group, member);
		return NULL;
	}
	return member;
}

/* False: the caller releases it under the lock. */
static bool
slot_release(
    struct request *request, struct object_group *group, struct object *member)
{
	uint64_t releasing = (uintptr_t)request | SLOT_RELEASING;
	a64_t *slot;

	if (group->slots == NULL)
		return false;
	slot = &group->slots->slot[slot_of(request)].word;
	if (a64_load_relaxed(&group->any.word) & WAITERS ||
	    a64_load_relaxed(slot) != 0 || !a64_cas_seq(slot, 0, releasing))
		return false;
	/* E:slot fence: D1, then D2. */
	if (a64_load_seq(&group->any.word) & WAITERS) {
		(void)a64_cas_seq(slot, releasing, 0);
		return false;
	}
	a64_store_release(&member->word, MEMBER);
	/* E:holder release */
	return a64_cas_seq(slot, releasing, (uintptr_t)member);
}

static bool
group_take(struct object_group *group, struct request *request, uint32_t i)
{
	struct checkout_shard *shard =
	    checkout_shard_of(request->checkout, group);
	uint64_t word = a64_load_relaxed(&group->any.word);
	struct object *member = NULL;

	if (word & RETIRED)
		return false;
	if (group->slots != NULL && !(word & WAITERS))
		member = slots_take(group, request);
	if (member == NULL && !(word & IN_USE)) {
		checkout_shard_lock(shard);
		member = member_pop(group);
		checkout_shard_unlock(shard);
	}
	if (member == NULL)
		return false;
	member_take(member, request);
	note_granted(request, i, member);
	return true;
}

/* These return the word when it is taken; 0: it cannot be taken now. */

static uint64_t
word_written(uint64_t word, const struct request *request)
{
	return (word & (IN_USE | RETIRED)) ? 0
					   : word | IN_USE | (uintptr_t)request;
}

static uint64_t
word_read(uint64_t word, bool next)
{
	if (!(word & (IN_USE | RETIRED)))
		return word | IN_USE | SHARED | READER_ONE;
	if (word & SHARED && (next || !(word & WAITERS)))
		return word + READER_ONE;
	return 0;
}

static uint64_t
word_taken(uint64_t word, const struct request *request,
    const struct object *object, bool to_read)
{
	return to_read ? word_read(word, is_next(request, object))
		       : word_written(word, request);
}

bool
object_take(struct request *request, uint32_t i)
{
	struct object *object = object_at(request, i);
	uint64_t word = a64_load_relaxed(&object->word), taken;
	bool to_read;

	if (word & GROUP)
		return group_take((struct object_group *)object, request, i);
	to_read = reads_at(request, i);
	while ((taken = word_taken(word, request, object, to_read)) != 0) {
		/* E:holder acquire */
		if (a64_cas_seq(&object->word, word, taken)) {
			note_granted(request, i, object);
			return true;
		}
		word = a64_load_relaxed(&object->word);
	}
	return false;
}

bool
group_has_slotted(const struct object_group *group)
{
	uint64_t word = 0;
	uint32_t i;

	for (i = 0; i < SLOTS && group->slots != NULL; i++) {
		word = a64_load_relaxed(&group->slots->slot[i].word);
		if (word != 0 && !(word & SLOT_RELEASING))
			return true;
	}
	return false;
}

bool
object_may_be_had(struct object *object, const struct request *request)
{
	uint64_t word = a64_load_relaxed(&object->word);

	if (word & GROUP)
		return !(word & IN_USE) ||
		    (!(word & WAITERS) &&
			group_has_slotted((struct object_group *)object));
	return !(word & IN_USE) ||
	    word_taken(word, request, object, reads(request, object)) != 0;
}

/* The rest is done with the lock held. */

/* In request->linked; to read is true of the last wait until the next one. */
#define LINKED 1
#define LINKED_TO_READ 2

static void
link_waiter(struct object *object, struct request *request, bool first)
{
	struct request *head = object->first;

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

/* Its last one may be gone. */
static void
note_waiters(struct object *object)
{
	if (object->first == NULL && a64_load_relaxed(&object->word) & WAITERS)
		a64_and_seq(&object->word, ~WAITERS);
}

/* note_waiters follows, or another change of the word. */
static void
unlink_waiter(struct object *object, struct request *request)
{
	request->linked &= (uint8_t)~LINKED;
	request->next->previous = request->previous;
	request->previous->next = request->next;
	if (request->next == request)
		object->first = NULL;
	else if (object->first == request)
		object->first = request->next;
}

static bool
waits_to_write(struct request *request)
{
	return !(request->linked & LINKED_TO_READ) &&
	    word_state(a64_load_acquire(&request->word)) == STATE_WAITING;
}

/* Those that have ended are taken out by whoever ended them. */
static struct request *
wake_one(struct object *object, uint64_t baton, bool reader)
{
	struct checkout_shard *shard =
	    checkout_shard_of(object->checkout, object);
	struct request *request = object->first;

	while (request != NULL && !(reader && waits_to_write(request))) {
		if (request_wake(shard, request, baton)) {
			unlink_waiter(object, request);
			queue_add(request);
			return request;
		}
		request = request->next != object->first ? request->next : NULL;
	}
	return NULL;
}

/* To one that was woken, and is served in order. */
static void
hand_over(struct request *request, struct object *given)
{
	request_change(request, BATON, 0);
	if (request->held == 0) {
		/* E:pause fence: it reads the gate before it is granted. */
		(void)a64_add_seq(&request_shard(request)->in_flight, 1);
		(void)a64_add_seq(&request_shard(request)->holding, 1);
	}
	note_granted(request, request->held, given);
	request->held++;
}

static void
member_give(struct object_group *group, struct object *member)
{
	struct request *next = wake_one(&group->any, BATON, false);

	note_waiters(&group->any);
	if (next != NULL && request_is_in_order(next)) {
		hand_over(next, member);
		member_take(member, next);
		return;
	}
	/* E:holder release */
	(void)a64_swap_seq(&member->word, MEMBER);
	member->next_free = group->free;
	group->free = member;
	if (a64_load_relaxed(&group->any.word) & IN_USE)
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

/* With the lock held: wakes the first waiter, and if that reads, the readers
 * behind it; with readers set, these alone. Those that are served in order have
 * the object then, by these bits of its word. */
static uint64_t
serve(struct object *object, bool readers)
{
	struct request *request;
	uint64_t given = 0;

	while ((request = wake_one(object, BATON, readers)) != NULL) {
		readers = request->linked & LINKED_TO_READ;
		if (request_is_in_order(request)) {
			hand_over(request, object);
			given = readers ? (given | IN_USE | SHARED) + READER_ONE
					: IN_USE | (uintptr_t)request;
		}
		if (!readers)
			break;
	}
	return given;
}

/* One that nobody else can take. With the lock held. */
static void
give_waited(struct object *object)
{
	uint64_t given = serve(object, false);
	uint64_t waiters = object->first != NULL ? WAITERS : 0;

	/* E:holder release; it stays in use for the next ones. */
	(void)a64_swap_seq(&object->word, waiters | given);
}

static bool
is_last_reader(uint64_t word)
{
	return (word & HOLDER_MASK) == READER_ONE;
}

/* A share of it. With the lock held. */
static void
give_share_waited(struct object *object)
{
	uint64_t word;

	do
		word = a64_load_acquire(&object->word);
	/* E:holder release */
	while (!a64_cas_seq(&object->word, word,
	    is_last_reader(word) ? IN_USE | (word & WAITERS)
				 : word - READER_ONE));
	if (is_last_reader(word))
		give_waited(object);
}

static void
give_share(struct object *object)
{
	uint64_t word = a64_load_acquire(&object->word);
	struct checkout_shard *shard;

	while (!is_last_reader(word) || !(word & WAITERS)) {
		/* E:holder release */
		if (a64_cas_seq(&object->word, word,
			is_last_reader(word) ? 0 : word - READER_ONE))
			return;
		word = a64_load_acquire(&object->word);
	}
	shard = checkout_shard_of(object->checkout, object);
	checkout_shard_lock(shard);
	give_share_waited(object);
	checkout_shard_unlock(shard);
}

void
object_hold(struct object *object)
{
	/* E:holder acquire */
	(void)a64_swap_seq(&object->word, IN_USE);
}

void
object_free(struct object *object)
{
	struct checkout_shard *shard;
	uint64_t word = a64_load_acquire(&object->word);

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

void
object_give(struct request *request, uint32_t i)
{
	struct object *object = object_at(request, i);
	struct object *granted = object;
	uint64_t word;

	if (request->flags & HAS_ITEMS)
		granted = *object_granted(request, i);
	note_granted(request, i, NULL);
	if (granted == NULL)
		return;
	if (reads_at(request, i)) {
		give_share(granted);
		return;
	}
	word = a64_load_acquire(&granted->word);
	/* Retired, or more: see hwt_object_retire. */
	if ((word & HOLDER_MASK) != (uintptr_t)request)
		return;
	if (word & MEMBER) {
		if (!slot_release(
			request, (struct object_group *)object, granted))
			group_give((struct object_group *)object, granted);
		return;
	}
	object_free(object);
}

/* It is taken first, whole or a share of it, so that it can be handed over to
 * those in order. */
static void
hand_on_one(struct object *object)
{
	uint64_t word;

	do {
		word = a64_load_acquire(&object->word);
		if ((word & (IN_USE | SHARED)) == IN_USE)
			return;
		/* E:holder acquire */
	} while (!a64_cas_seq(&object->word, word,
	    (word & SHARED) ? word + READER_ONE : word | IN_USE));
	if (!(word & SHARED)) {
		give_waited(object);
		return;
	}
	(void)a64_add_seq(&object->word, serve(object, true) & HOLDER_MASK);
	note_waiters(object);
	give_share_waited(object);
}

static void
hand_on(struct object *object)
{
	struct object_group *group = (struct object_group *)object;
	struct object *member;

	if (object->first == NULL)
		return;
	if (!(a64_load_relaxed(&object->word) & GROUP)) {
		hand_on_one(object);
		return;
	}
	member = member_pop(group);
	if (member != NULL)
		member_give(group, member);
}

void
object_hand_on(struct object *object)
{
	struct checkout_shard *shard =
	    checkout_shard_of(object->checkout, object);

	checkout_shard_lock(shard);
	hand_on(object);
	checkout_shard_unlock(shard);
}

/* C2: with WAITERS set. Whether a member is free now. While others wait, the
 * slots are empty. */
static bool
slots_had(struct object *object)
{
	struct object_group *group = (struct object_group *)object;
	struct object *member;
	uint64_t word;
	uint32_t i;

	if (object->first != NULL ||
	    !(a64_load_relaxed(&object->word) & GROUP) || group->slots == NULL)
		return false;
	for (i = 0; i < SLOTS; i++) {
		do
			/* E:slot fence: C1, then C2. */
			word = a64_load_seq(&group->slots->slot[i].word);
		while (word != 0 &&
		    !a64_cas_seq(&group->slots->slot[i].word, word, 0));
		if (word == 0 || word & SLOT_RELEASING)
			continue;
		member = (struct object *)(uintptr_t)word;
		member->next_free = group->free;
		group->free = member;
	}
	if (group->free == NULL)
		return false;
	a64_and_seq(&object->word, ~(IN_USE | WAITERS));
	return true;
}

static bool
object_announce(struct object *object, bool to_read, bool next)
{
	uint64_t word;

	do {
		word = a64_load_acquire(&object->word);
		if (!(word & IN_USE) || (to_read && word_read(word, next) != 0))
			return false;
	} while (!a64_cas_seq(&object->word, word, word | WAITERS));
	return true;
}

/* One that keeps objects does not wait at them in a pause. False: its wait has
 * ended. */
static bool
leave_wait_in_pause(struct request *request)
{
	uint64_t word;

	/* E:keep fence: it is WAITING, then it reads the gate. */
	if (request->held == 0 ||
	    !(a64_load_seq(&request->checkout->gate.word) & IN_USE))
		return false;
	do {
		word = a64_load_acquire(&request->word);
		if (word_state(word) != STATE_WAITING)
			return false;
	} while (!a64_cas_seq(
	    &request->word, word, (word & ~STATE_MASK) | STATE_TRYING));
	return true;
}

/* Whose wait has ended without a wake-up. */
static void
leave_ring(struct object *object, struct request *request)
{
	unlink_waiter(object, request);
	note_waiters(object);
	/* It was a writer, and they may join those that read. */
	if (object->first != NULL && object->first->linked & LINKED_TO_READ)
		hand_on(object);
}

bool
object_wait(struct object *object, struct request *request)
{
	struct checkout_shard *shard =
	    checkout_shard_of(object->checkout, object);
	/* Who was woken for it and overtaken is the next one again; a baton of
	 * another object has been handed on. */
	bool next = a64_load_relaxed(&request->word) & BATON;
	bool to_read = reads(request, object);
	bool waits = false;

	checkout_shard_lock(shard);
	if (object_announce(object, to_read, next) && !slots_had(object)) {
		request->linked = to_read ? LINKED | LINKED_TO_READ : LINKED;
		link_waiter(object, request, next || request->flags & PAUSES);
		aptr_store_release(&request->at, object);
		waits = request_enter_wait(request) &&
		    !leave_wait_in_pause(request);
		if (!waits)
			leave_ring(object, request);
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
	if (request->linked & LINKED)
		leave_ring(object, request);
	checkout_shard_unlock(shard);
}

void
gate_open(struct hwt_checkout *checkout)
{
	struct object *gate = &checkout->gate;
	struct checkout_shard *shard = checkout_shard_of(checkout, gate);

	checkout_shard_lock(shard);
	a64_and_seq(&gate->word, ~IN_USE);
	while (wake_one(gate, 0, false) != NULL)
		;
	note_waiters(gate);
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

int
group_close(struct object_group *group)
{
	struct checkout_shard *shard =
	    checkout_shard_of(group->any.checkout, group);
	int error = 0;

	checkout_shard_lock(shard);
	if (!(a64_load_relaxed(&group->any.word) & GROUP))
		error = -EIDRM;
	else if (group->members > 0)
		error = -EBUSY;
	else
		close_locked(&group->any);
	checkout_shard_unlock(shard);
	return error;
}
