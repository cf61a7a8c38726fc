/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request of objects, or of the keys of a store, behind the same calls. Its
 * wait ends with what hwt_store_granted says: 0, or a negative errno value.
 */
#ifndef WISH_H
#define WISH_H

#include "test/stress/stress.h"

#include "modules/checkout/hwt_checkout.h"

#define WISH_MAX 8

static struct hwt *timer;
static struct hwt_checkout *checkout;
static struct hwt_store *store;

struct wish {
	union {
		struct hwt_request of_objects;
		struct hwt_store_request of_keys;
	} request;
	struct hwt_item item[WISH_MAX];
	struct hwt_store_item key[WISH_MAX];
	unsigned count;
	bool wants_keys;
	void (*ended)(struct wish *wish, int result);
};

static void
wish_granted(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	static const int result[] = {[HWT_GRANTED] = 0,
	    [HWT_GRANT_EXPIRED] = -ETIMEDOUT,
	    [HWT_GRANT_CANCELLED] = -ECANCELED,
	    [HWT_GRANT_RETIRED] = -EIDRM,
	    [HWT_GRANT_SHUT_DOWN] = -ESHUTDOWN};
	struct wish *wish = arg;

	stress_must(request == &wish->request.of_objects, "another request");
	wish->ended(wish, result[grant]);
}

static void
wish_loaded(struct hwt_store_request *request, void *arg, int result)
{
	struct wish *wish = arg;

	stress_must(request == &wish->request.of_keys, "another request");
	wish->ended(wish, result);
}

static void
wish_init(struct wish *wish)
{
	int rc = wish->wants_keys
	    ? hwt_store_request_init(store, &wish->request.of_keys, wish->key,
		  wish->count, wish_loaded, wish)
	    : hwt_request_init_items(&wish->request.of_objects, wish->item,
		  wish->count, wish_granted, wish);

	stress_must(rc == 0, "request: %d", rc);
}

static int
wish_acquire(struct wish *wish, uint64_t delay_ns)
{
	return wish->wants_keys
	    ? hwt_store_acquire(store, &wish->request.of_keys, delay_ns)
	    : hwt_checkout_acquire(
		  checkout, &wish->request.of_objects, delay_ns);
}

static int
wish_wait(struct wish *wish, uint64_t delay_ns)
{
	return wish->wants_keys
	    ? hwt_store_acquire_wait(store, &wish->request.of_keys, delay_ns)
	    : hwt_checkout_acquire_wait(
		  checkout, &wish->request.of_objects, delay_ns);
}

static int
wish_release(struct wish *wish)
{
	return wish->wants_keys
	    ? hwt_store_release(store, &wish->request.of_keys)
	    : hwt_checkout_release(checkout, &wish->request.of_objects);
}

static int
wish_cancel(struct wish *wish)
{
	return wish->wants_keys
	    ? hwt_store_cancel(store, &wish->request.of_keys)
	    : hwt_checkout_cancel(checkout, &wish->request.of_objects);
}

#endif
