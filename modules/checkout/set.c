/* SPDX-License-Identifier: Apache-2.0 */
/* The set of a request: what hwt_request_init checks, and in which order its
 * objects are taken. */
#include <errno.h>
#include <string.h>

#include "checkout.h"

static struct object *
named(const struct request *request, size_t i)
{
	return request->flags & HAS_ITEMS ? request->items[i].wanted
					  : request->objects[i];
}

static enum hwt_use
named_use(const struct request *request, size_t i)
{
	return request->flags & HAS_ITEMS ? request->items[i].use : HWT_WRITE;
}

/* Whether it may be in a set: with a group, the caller must learn which member
 * it has got, and writes. */
static bool
may_be_named(const struct request *request, size_t i)
{
	const struct object *object = named(request, i);
	enum hwt_use use = named_use(request, i);
	uint64_t word;

	if (object == NULL || object->checkout == NULL ||
	    (use != HWT_WRITE && use != HWT_READ))
		return false;
	word = a64_load_relaxed(&object->word);
	if (word & GROUP)
		return request->flags & HAS_ITEMS && use == HWT_WRITE;
	return !(word & MEMBER);
}

/* An object is named by both. */
static int
error_of_two(const struct request *request, size_t a, size_t b)
{
	return named_use(request, a) != named_use(request, b) ? -ENOTSUP
							      : -EINVAL;
}

static int
check_set(const struct request *request, size_t count, bool *ascending)
{
	const struct object *object, *previous = NULL;
	size_t i;

	*ascending = true;
	for (i = 0; i < count; i++) {
		object = named(request, i);
		if (!may_be_named(request, i) ||
		    object->checkout != named(request, 0)->checkout)
			return -EINVAL;
		if (object == previous)
			return error_of_two(request, i - 1, i);
		if (previous != NULL && !object_precedes(previous, object))
			*ascending = false;
		previous = object;
	}
	return 0;
}

/* By insertion. */
static int
rank_objects(struct request *request, size_t count)
{
	uint8_t *rank = request->rank;
	const struct object *object;
	size_t i, k;

	for (i = 0; i < count; i++) {
		object = named(request, i);
		for (k = i; k > 0 &&
		     object_precedes(object, named(request, rank[k - 1]));
		     k--)
			rank[k] = rank[k - 1];
		if (k > 0 && named(request, rank[k - 1]) == object)
			return error_of_two(request, rank[k - 1], i);
		rank[k] = (uint8_t)i;
	}
	request->flags |= IS_RANKED;
	return 0;
}

/* made has what the caller gave, and the rest 0. */
static int
request_make(struct hwt_request *request, struct request *made, size_t count)
{
	bool ascending;
	size_t i;
	int error;

	if (request == NULL || made->objects == NULL || count == 0 ||
	    count > UINT32_MAX)
		return -EINVAL;
	error = check_set(made, count, &ascending);
	if (error == 0 && count <= HWT_SORTED_MAX)
		error = rank_objects(made, count);
	else if (error == 0 && !ascending)
		error = -E2BIG;
	if (error != 0)
		return error;
	for (i = 0; i < count && made->flags & HAS_ITEMS; i++) {
		made->items[i].granted = NULL;
		if (made->items[i].use == HWT_READ)
			made->flags |= HAS_READS;
	}
	made->count = (uint32_t)count;
	made->checkout = named(made, 0)->checkout;
	*(struct request *)request = *made;
	request_store((struct request *)request, STATE_READY);
	return 0;
}

int
hwt_request_init(struct hwt_request *request, struct hwt_object *const *objects,
    size_t count, hwt_granted *granted, void *arg)
{
	struct request made = {.objects = (struct object *const *)objects,
	    .granted = granted,
	    .arg = arg};

	return request_make(request, &made, count);
}

int
hwt_request_init_items(struct hwt_request *request, struct hwt_item *items,
    size_t count, hwt_granted *granted, void *arg)
{
	struct request made = {.items = (struct request_item *)items,
	    .flags = HAS_ITEMS,
	    .granted = granted,
	    .arg = arg};

	return request_make(request, &made, count);
}
