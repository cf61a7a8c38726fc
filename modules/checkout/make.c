/* SPDX-License-Identifier: Apache-2.0 */
/* Making objects, groups and requests, and retiring the first two. */
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
group_lock(
    struct hwt_checkout *checkout, struct group *group, struct shard **shard)
{
	int error = checkout_enter(checkout);

	if (error != 0)
		return error;
	if (group == NULL || group->any.checkout != checkout ||
	    !(a64_load_acquire(&group->any.word) & GROUP))
		return -EINVAL;
	*shard = shard_lock(shard_of(checkout, group));
	if (!(a64_load_relaxed(&group->any.word) & RETIRED))
		return 0;
	shard_unlock(*shard);
	return -EIDRM;
}

int
hwt_group_add(struct hwt_checkout *checkout, struct hwt_group *user,
    struct hwt_object *object)
{
	struct group *group = (struct group *)user;
	struct object *member = (struct object *)object;
	struct shard *shard;
	int error = group_lock(checkout, member != NULL ? group : NULL, &shard);

	if (error != 0)
		return error;
	object_make(checkout, member, 0, MEMBER);
	member->group = group;
	group->members++;
	group_put(group, member);
	shard_unlock(shard);
	queue_run();
	return 0;
}

int
hwt_group_retire(struct hwt_checkout *checkout, struct hwt_group *user)
{
	struct group *group = (struct group *)user;
	struct shard *shard;
	int error = group_lock(checkout, group, &shard);

	if (error != 0)
		return error;
	if (group->members > 0)
		error = -EBUSY;
	else
		a64_or_seq(&group->any.word, RETIRED);
	shard_unlock(shard);
	if (error == 0)
		requests_stop(checkout, &group->any, HWT_GRANT_RETIRED);
	return error;
}

/* The set of a request: items, or pointers to objects; inlined for each. */
#define FOR_EACH_STRIDE static inline __attribute__((always_inline))
struct set {
	const void *names;
	size_t stride;
};

FOR_EACH_STRIDE struct object *
named(const struct set *set, size_t i)
{
	const void *at = (const char *)set->names + i * set->stride;

	return *(const object_name *)at;
}

FOR_EACH_STRIDE bool
has_items(const struct set *set)
{
	return set->stride == sizeof(struct request_item);
}

/* Whether it may be in a set: with a group, the caller must learn which member
 * it has got, and writes. */
FOR_EACH_STRIDE bool
may_be_named(const struct set *set, size_t i)
{
	const struct object *object = named(set, i);
	const struct request_item *items = set->names;
	enum hwt_use use = has_items(set) ? items[i].use : HWT_WRITE;
	uint64_t word;

	if (object == NULL || object->checkout == NULL ||
	    object->checkout != named(set, 0)->checkout)
		return false;
	word = a64_load_relaxed(&object->word);
	if (word & GROUP)
		return has_items(set) && use == HWT_WRITE;
	return !(word & MEMBER) && (use == HWT_WRITE || use == HWT_READ);
}

/* Ranks them by insertion; or, if they are too many, they have to be in
 * ascending order. */
FOR_EACH_STRIDE int
check_set(const struct set *set, size_t count, uint8_t *rank)
{
	const struct object *object, *before;
	bool sorts = count <= HWT_SORTED_MAX;
	size_t i, k;

	for (i = 0; i < count; i++) {
		if (!may_be_named(set, i))
			return -EINVAL;
		object = named(set, i);
		for (k = i; k > 0; k--) {
			before = named(set, sorts ? rank[k - 1] : k - 1);
			if (before == object)
				return -EINVAL;
			if (object_precedes(before, object))
				break;
			if (!sorts)
				return -E2BIG;
			rank[k] = rank[k - 1];
		}
		if (i < HWT_SORTED_MAX)
			rank[k] = (uint8_t)i;
	}
	return 0;
}

FOR_EACH_STRIDE int
request_make(struct request *request, const struct set *set, size_t count,
    hwt_granted *granted, void *arg)
{
	uint8_t rank[HWT_SORTED_MAX] = {0};
	int error = -EINVAL;
	size_t i;

	if (request != NULL && set->names != NULL && count > 0 &&
	    count <= UINT32_MAX)
		error = check_set(set, count, rank);
	if (error != 0)
		return error;
	request->names = set->names;
	request->stride = (uint8_t)set->stride;
	request->granted = granted;
	request->arg = arg;
	request->checkout = named(set, 0)->checkout;
	request->count = (uint32_t)count;
	request->is_pool =
	    count == 1 && a64_load_relaxed(&named(set, 0)->word) & GROUP;
	request->linked = request->baton = false;
	memcpy(request->rank, rank, sizeof(rank));
	for (i = 0; i < count && has_items(set); i++)
		item_granted(request, (uint32_t)i, NULL);
	request_store(request, STATE_READY);
	return 0;
}

int
hwt_request_init(struct hwt_request *request, struct hwt_object *const *objects,
    size_t count, hwt_granted *granted, void *arg)
{
	const struct set set = {objects, sizeof(*objects)};

	return request_make(
	    (struct request *)request, &set, count, granted, arg);
}

int
hwt_request_init_items(struct hwt_request *request, struct hwt_item *items,
    size_t count, hwt_granted *granted, void *arg)
{
	const struct set set = {items, sizeof(*items)};

	return request_make(
	    (struct request *)request, &set, count, granted, arg);
}

/* Retiring. */

/* Out of the request that has it. A member's place stays: for its group. */
static void
drop_object(struct request *request, struct object *object, bool is_member)
{
	uint32_t i = 0;

	while (is_member ? request_item(request, i)->granted != object
			 : request_object(request, i) != object)
		i++;
	item_granted(request, i, NULL);
	if (is_member) {
		object->group->members--;
	} else {
		request->count--;
		request->held--;
		memmove(&request->rank[i], &request->rank[i + 1],
		    request->count - i);
	}
	a64_or_seq(&object->word, RETIRED);
}

/* Who has it to write; NULL: nobody. Under the lock that its holder needs to
 * give it back as long as it is ASKED, or a member: so the request stays, even
 * if the caller is not its holder. */
static struct request *
holder_of(struct object *object)
{
	struct request *request;
	uint64_t word;

	do {
		word = a64_load_acquire(&object->word);
		request = (struct request *)(uintptr_t)(word & HOLDER_MASK);
		if (!(word & IN_USE) || word & (SHARED | GROUP | RETIRED) ||
		    request == NULL)
			return NULL;
	} while (!a64_cas_seq(&object->word, word, word | ASKED));
	if (word_state(a64_load_acquire(&request->word)) == STATE_GRANTED)
		return request;
	a64_and_seq(&object->word, ~ASKED);
	return NULL;
}

int
hwt_object_retire(struct hwt_checkout *checkout, struct hwt_object *user)
{
	struct object *object = (struct object *)user;
	int error = checkout_enter(checkout);
	struct request *request;
	struct shard *shard;
	bool is_member;

	if (error != 0)
		return error;
	if (object == NULL || object->checkout != checkout)
		return -EINVAL;
	is_member = a64_load_acquire(&object->word) & MEMBER;
	/* Whoever served its list does not use it any more. */
	shard = shard_lock(
	    shard_of(checkout, is_member ? &object->group->any : object));
	request = holder_of(object);
	if (request == NULL)
		error = -EPERM;
	else if (!is_member && request->count > HWT_SORTED_MAX)
		error = -E2BIG;
	else
		drop_object(request, object, is_member);
	if (request != NULL)
		a64_and_seq(&object->word, ~ASKED);
	shard_unlock(shard);
	if (error == 0 && !is_member)
		requests_stop(checkout, object, HWT_GRANT_RETIRED);
	return error;
}
