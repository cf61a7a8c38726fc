/* SPDX-License-Identifier: Apache-2.0 */
/* Objects and groups: making and retiring them. */
#include <errno.h>

#include "checkout.h"

static void
object_make(struct hwt_checkout *checkout, struct object *object,
    uint64_t order, uint64_t bits)
{
	memset(object, 0, sizeof(*object));
	object->order = order;
	object->checkout = checkout;
	a64_store_release(&object->word, bits);
}

int
hwt_object_init(
    struct hwt_checkout *checkout, struct hwt_object *object, uint64_t order)
{
	int error = checkout_enter(checkout);

	if (error != 0 || object == NULL)
		return error != 0 ? error : -EINVAL;
	object_make(checkout, (struct object *)object, order, 0);
	return 0;
}

int
hwt_group_init(
    struct hwt_checkout *checkout, struct hwt_group *user, uint64_t order)
{
	struct group *group = (struct group *)user;
	int error = checkout_enter(checkout);

	if (error != 0 || group == NULL)
		return error != 0 ? error : -EINVAL;
	group->free = NULL;
	group->members = 0;
	object_make(checkout, &group->any, order, GROUP | IN_USE);
	return 0;
}

static int
group_enter(const struct hwt_checkout *checkout, const struct group *group)
{
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (group == NULL || group->any.checkout != checkout ||
	    !(a64_load_acquire(&group->any.word) & GROUP))
		return -EINVAL;
	return 0;
}

int
hwt_group_add(struct hwt_checkout *checkout, struct hwt_group *user,
    struct hwt_object *object)
{
	struct group *group = (struct group *)user;
	struct object *member = (struct object *)object;
	int error = group_enter(checkout, group);
	struct shard *shard;

	if (error != 0 || object == NULL)
		return error != 0 ? error : -EINVAL;
	shard = shard_of(checkout, group);
	shard_lock(shard);
	if (a64_load_relaxed(&group->any.word) & RETIRED) {
		error = -EIDRM;
	} else {
		object_make(checkout, member, 0, MEMBER);
		member->group = group;
		group->members++;
		group_put(group, member);
	}
	shard_unlock(shard);
	queue_run();
	return error;
}

int
hwt_group_retire(struct hwt_checkout *checkout, struct hwt_group *user)
{
	struct group *group = (struct group *)user;
	int error = group_enter(checkout, group);
	struct shard *shard;

	if (error != 0)
		return error;
	shard = shard_of(checkout, group);
	shard_lock(shard);
	if (a64_load_relaxed(&group->any.word) & RETIRED)
		error = -EIDRM;
	else if (group->members > 0)
		error = -EBUSY;
	else
		a64_or_seq(&group->any.word, RETIRED);
	shard_unlock(shard);
	if (error == 0)
		requests_stop(checkout, &group->any, HWT_GRANT_RETIRED);
	queue_run();
	return error;
}

/* Out of the set that is granted. */
static void
drop_object(struct request *request, struct object *object)
{
	uint32_t i = 0;

	while (request_object(request, i) != object)
		i++;
	if (request->flags & HAS_ITEMS)
		request->items[request->rank[i]].granted = NULL;
	request->count--;
	request->held--;
	memmove(&request->rank[i], &request->rank[i + 1], request->count - i);
}

static void
drop_member(struct request *request, struct object *member)
{
	struct group *group = member->group;
	struct shard *shard = shard_of(request->checkout, group);
	uint32_t i = 0;

	while (request->items[i].granted != member)
		i++;
	request->items[i].granted = NULL;
	shard_lock(shard);
	group->members--;
	shard_unlock(shard);
	a64_store_release(&member->word, MEMBER | RETIRED);
}

/* Who has it to write; NULL: nobody. */
static struct request *
holder_of(const struct object *object)
{
	uint64_t word = a64_load_acquire(&object->word);
	struct request *request =
	    (struct request *)(uintptr_t)(word & HOLDER_MASK);

	if (!(word & IN_USE) || word & (SHARED | GROUP | RETIRED) ||
	    request == NULL ||
	    word_state(a64_load_acquire(&request->word)) != STATE_GRANTED)
		return NULL;
	return request;
}

void
object_retire(struct hwt_checkout *checkout, struct object *object)
{
	struct shard *shard = shard_of(checkout, object);

	/* Under the lock: whoever served its list does not use it any more. */
	shard_lock(shard);
	a64_or_seq(&object->word, RETIRED);
	shard_unlock(shard);
	requests_stop(checkout, object, HWT_GRANT_RETIRED);
	queue_run();
}

int
hwt_object_retire(struct hwt_checkout *checkout, struct hwt_object *user)
{
	struct object *object = (struct object *)user;
	int error = checkout_enter(checkout);
	struct request *request;

	if (error != 0)
		return error;
	if (object == NULL || object->checkout != checkout)
		return -EINVAL;
	request = holder_of(object);
	if (request == NULL)
		return -EPERM;
	if (a64_load_relaxed(&object->word) & MEMBER) {
		drop_member(request, object);
		return 0;
	}
	if (!(request->flags & IS_RANKED))
		return -E2BIG;
	drop_object(request, object);
	object_retire(checkout, object);
	return 0;
}
