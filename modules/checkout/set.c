/* SPDX-License-Identifier: Apache-2.0 */
/* The set of a request: what hwt_request_init checks, and in which order its
 * objects are taken. */
#include <errno.h>

#include "checkout.h"

/* One of these is NULL. */
struct set {
	struct request_item *items;
	struct object *const *objects;
};

static struct object *
named(const struct set *set, size_t i)
{
	return set->items != NULL ? set->items[i].wanted : set->objects[i];
}

static enum hwt_use
named_use(const struct set *set, size_t i)
{
	return set->items != NULL ? set->items[i].use : HWT_WRITE;
}

/* Whether it may be in a set: with a group, the caller must learn which member
 * it has got, and writes. */
static bool
may_be_named(const struct set *set, size_t i)
{
	const struct object *object = named(set, i);
	enum hwt_use use = named_use(set, i);
	uint64_t word;

	if (object == NULL || object->checkout == NULL ||
	    object->checkout != named(set, 0)->checkout ||
	    (use != HWT_WRITE && use != HWT_READ))
		return false;
	word = a64_load_relaxed(&object->word);
	if (word & GROUP)
		return set->items != NULL && use == HWT_WRITE;
	return !(word & MEMBER);
}

/* By insertion, where k is the place of i. */
static int
rank_object(const struct set *set, uint8_t *rank, size_t i)
{
	const struct object *object = named(set, i);
	size_t k = i;

	for (; k > 0 && object_precedes(object, named(set, rank[k - 1])); k--)
		rank[k] = rank[k - 1];
	rank[k] = (uint8_t)i;
	if (k == 0 || named(set, rank[k - 1]) != object)
		return 0;
	return named_use(set, rank[k - 1]) != named_use(set, i) ? -ENOTSUP
								: -EINVAL;
}

/* Beyond HWT_SORTED_MAX, in ascending order. */
static int
check_set(const struct set *set, size_t count, uint8_t *rank)
{
	int error = 0;
	size_t i;

	if (count == 0 || count > UINT32_MAX)
		return -EINVAL;
	for (i = 0; i < count && error == 0; i++) {
		if (!may_be_named(set, i))
			error = -EINVAL;
		else if (count <= HWT_SORTED_MAX)
			error = rank_object(set, rank, i);
		else if (i > 0 && named(set, i) == named(set, i - 1))
			error = -EINVAL;
		else if (i > 0 &&
		    !object_precedes(named(set, i - 1), named(set, i)))
			error = -E2BIG;
	}
	return error;
}

static int
request_make(struct request *request, const struct set *set, size_t count,
    hwt_granted *granted, void *arg)
{
	uint8_t rank[HWT_SORTED_MAX];
	int error = request == NULL ? -EINVAL : check_set(set, count, rank);
	size_t i;

	if (error != 0)
		return error;
	request->flags = count <= HWT_SORTED_MAX ? IS_RANKED : 0;
	if (request->flags & IS_RANKED)
		memcpy(request->rank, rank, count);
	if (set->items != NULL) {
		request->flags |= HAS_ITEMS;
		request->items = set->items;
	} else {
		request->objects = set->objects;
	}
	for (i = 0; i < count && set->items != NULL; i++) {
		set->items[i].granted = NULL;
		if (set->items[i].use == HWT_READ)
			request->flags |= HAS_READS;
	}
	request->granted = granted;
	request->arg = arg;
	request->checkout = named(set, 0)->checkout;
	request->count = (uint32_t)count;
	request->linked = request->given = request->baton = false;
	request_store(request, STATE_READY);
	return 0;
}

int
hwt_request_init(struct hwt_request *request, struct hwt_object *const *objects,
    size_t count, hwt_granted *granted, void *arg)
{
	const struct set set = {.objects = (struct object *const *)objects};

	if (objects == NULL)
		return -EINVAL;
	return request_make(
	    (struct request *)request, &set, count, granted, arg);
}

int
hwt_request_init_items(struct hwt_request *request, struct hwt_item *items,
    size_t count, hwt_granted *granted, void *arg)
{
	const struct set set = {.items = (struct request_item *)items};

	if (items == NULL)
		return -EINVAL;
	return request_make(
	    (struct request *)request, &set, count, granted, arg);
}
