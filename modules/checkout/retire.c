/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects and groups: making them, adding members, and retiring them.
 *
 * RETIRE. First nobody can take the object any more, and no ring has it. Then
 * the waits for sets with it end. What is being tried at that moment may still
 * look at the object: its mark keeps it from waiting again, and so the retiring
 * thread looks again until there is none. What is woken and waits for its turn
 * in a queue looks at its mark before it looks at an object.
 *
 * A wait that has just begun is tried before any list has it: until then only
 * the caller knows of it. acquire returns, and then it is listed; a thread that
 * blocks has acquire_wait_unlock, and a mutex of the user's in its place:
 *
 *        waits                                retires
 *        -----                                -------
 *   (A1) lock; find the object           (B1) lock; it is found no more; unlock
 *   (A2) try; if refused, list it        (B2) take the object; retire it
 *   (A3) unlock                          (B3) free it
 *
 *   Forbidden: A2 looks at what B3 has freed. If B1 is first, A1 does not find
 *   it. If A1 is first, A3 comes before B1: then the request is listed, and B2
 *   ends it; or it is granted, and B2 waits until it is released; or it has
 *   ended in vain. After A3, nothing but what is listed looks at the object.
 */
#include <errno.h>
#include <string.h>

#include "checkout.h"
#include "sys/pause.h"

int
hwt_object_init(
    struct hwt_checkout *checkout, struct hwt_object *object, uint64_t order)
{
	struct object *made = (struct object *)object;
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (object == NULL)
		return -EINVAL;
	made->order = order;
	made->checkout = checkout;
	made->first = NULL;
	a64_store_release(&made->word, 0);
	return 0;
}

/* Takes the object out of the set of its holder's request; where there are no
 * ranks, it stays in it, and was not granted. With the lock of the request's
 * shard, as it may be listed. */
static void
request_forget(struct request *request, const struct object *object)
{
	uint32_t i;

	for (i = 0; i < request->count; i++) {
		if (object_at(request, i) != object)
			continue;
		if (request->flags & HAS_ITEMS)
			*object_granted(request, i) = NULL;
		if (request->rank_count == 0)
			return;
		request->count--;
		request->held--;
		memmove(&request->rank[i], &request->rank[i + 1],
		    request->count - i);
		return;
	}
}

/* No request names it, so none waits for it. */
static void
member_retire(struct object *member, struct request *holder)
{
	struct object_group *group = member->group;
	struct checkout_shard *shard =
	    checkout_shard_of(member->checkout, group);
	uint32_t i;

	checkout_shard_lock(request_shard(holder));
	for (i = 0; i < holder->count; i++) {
		if (*object_granted(holder, i) == member)
			*object_granted(holder, i) = NULL;
	}
	checkout_shard_unlock(request_shard(holder));
	checkout_shard_lock(shard);
	group->members--;
	(void)a64_swap_seq(&member->word, RETIRED);
	checkout_shard_unlock(shard);
}

/* Ends all waits for sets with it, which is in no ring any more. */
static void
stop_waits(struct hwt_checkout *checkout, const struct object *object)
{
	uint32_t tries = 0;

	while (requests_stop(checkout, object, HWT_GRANT_RETIRED))
		yield_or_pause(&tries);
}

int
hwt_object_retire(struct hwt_checkout *checkout, struct hwt_object *object)
{
	struct object *retired = (struct object *)object;
	struct request *holder;
	struct queue queue;
	uint64_t word;
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (retired == NULL || retired->checkout != checkout)
		return -EINVAL;
	word = a64_load_acquire(&retired->word);
	holder = (struct request *)(uintptr_t)(word & HOLDER_MASK);
	if (holder == NULL || word & SHARED ||
	    word_state(a64_load_acquire(&holder->word)) != STATE_GRANTED)
		return -EPERM;
	if (word & MEMBER) {
		member_retire(retired, holder);
		return 0;
	}
	queue_begin(&queue);
	checkout_shard_lock(request_shard(holder));
	request_forget(holder, retired);
	checkout_shard_unlock(request_shard(holder));
	object_close(retired);
	stop_waits(checkout, retired);
	queue_end(&queue);
	return 0;
}

/* Slots that no group has are kept: a request that began beside a retirement
 * may still look into them (see slots_take). NULL: no memory, and the group is
 * without. */
static struct group_slots *
slots_new(struct hwt_checkout *checkout)
{
	struct group_slots *made;

	(void)pthread_mutex_lock(&checkout->pause_lock);
	made = checkout->unused;
	if (made != NULL)
		checkout->unused = made->next_unused;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	if (made != NULL || (made = alloc_lines(sizeof(*made))) == NULL)
		return made;
	(void)pthread_mutex_lock(&checkout->pause_lock);
	made->next = checkout->slots;
	checkout->slots = made;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
	return made;
}

/* They are empty. */
static void
slots_drop(struct hwt_checkout *checkout, struct group_slots *slots)
{
	if (slots == NULL)
		return;
	(void)pthread_mutex_lock(&checkout->pause_lock);
	slots->next_unused = checkout->unused;
	checkout->unused = slots;
	(void)pthread_mutex_unlock(&checkout->pause_lock);
}

int
hwt_group_init(
    struct hwt_checkout *checkout, struct hwt_group *group, uint64_t order)
{
	struct object_group *made = (struct object_group *)group;
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (group == NULL)
		return -EINVAL;
	memset(group, 0, sizeof(*group));
	made->any.order = order;
	made->any.checkout = checkout;
	made->slots = slots_new(checkout);
	a64_store_release(&made->any.word, GROUP | IN_USE);
	return 0;
}

/* A group of this checkout. */
static int
enter_group(struct hwt_checkout *checkout, const struct object_group *group)
{
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (group == NULL || group->any.checkout != checkout)
		return -EINVAL;
	return (a64_load_relaxed(&group->any.word) & GROUP) ? 0 : -EIDRM;
}

int
hwt_group_add(struct hwt_checkout *checkout, struct hwt_group *group,
    struct hwt_object *object)
{
	struct object_group *to = (struct object_group *)group;
	struct object *member = (struct object *)object;
	struct checkout_shard *shard;
	struct queue queue;
	int error = enter_group(checkout, to);

	if (error != 0)
		return error;
	if (object == NULL)
		return -EINVAL;
	shard = checkout_shard_of(checkout, to);
	checkout_shard_lock(shard);
	if (a64_load_relaxed(&to->any.word) & GROUP)
		to->members++;
	else
		error = -EIDRM;
	checkout_shard_unlock(shard);
	if (error != 0)
		return error;
	member->checkout = checkout;
	member->group = to;
	a64_store_release(&member->word, MEMBER | IN_USE);
	queue_begin(&queue);
	group_give(to, member);
	queue_end(&queue);
	return 0;
}

int
hwt_group_retire(struct hwt_checkout *checkout, struct hwt_group *group)
{
	struct object_group *retired = (struct object_group *)group;
	struct queue queue;
	int error = enter_group(checkout, retired);

	if (error != 0)
		return error;
	error = group_close(retired);
	if (error != 0)
		return error;
	queue_begin(&queue);
	stop_waits(checkout, &retired->any);
	slots_drop(checkout, retired->slots);
	queue_end(&queue);
	return 0;
}
