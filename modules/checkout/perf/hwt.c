/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkout. A thread has one request at a time, made anew for each set.
 * hwt_in_order.c is the same, first come, first served.
 */
#ifndef HOLD_AFTER
#define HOLD_AFTER 0
#define WHAT "hwt_checkout"
#endif
#include "modules/checkout/hwt_checkout.h"
#include "modules/checkout/perf/design.h"
#include "perf/perf.h"

static struct hwt *timer;
static struct hwt_checkout *checkout;
static struct hwt_store *store;
static struct {
	_Alignas(64) struct hwt_object object;
} object[OBJECTS_MAX], member[OBJECTS_MAX];
static _Thread_local struct hwt_request request;
static _Thread_local struct hwt_object *members[SET_MAX];
static struct hwt_group group; /* for any one: its own objects */
static _Thread_local struct hwt_item item;

static void
create(unsigned objects)
{
	const struct hwt_checkout_options options = {.hold_after = HOLD_AFTER};
	unsigned i;

	perf_must(hwt_create(&timer, NULL) == 0, "hwt_create");
	perf_must(
	    hwt_checkout_create(&checkout, timer, &options) == 0, "create");
	perf_must(hwt_group_init(checkout, &group, OBJECTS_MAX) == 0, "group");
	for (i = 0; i < objects; i++)
		perf_must(
		    hwt_group_add(checkout, &group, &member[i].object) == 0 &&
			hwt_object_init(checkout, &object[i].object, i) == 0,
		    "objects");
}

static void
destroy(void)
{
	perf_must(hwt_checkout_destroy(checkout) == 0, "destroy");
	perf_must(hwt_stop(timer, NULL) == 0, "hwt_stop");
	perf_must(hwt_destroy(timer) == 0, "hwt_destroy");
}

static void
acquire(const unsigned *set, unsigned count)
{
	unsigned i;

	for (i = 0; i < count; i++)
		members[i] = &object[set[i]].object;
	perf_must(hwt_request_init(&request, members, count, NULL, NULL) == 0,
	    "request");
	perf_must(hwt_checkout_acquire_wait(
		      checkout, &request, HWT_SEC(WAIT_LIMIT_S)) == 0,
	    "acquire");
}

static void
release(const unsigned *set, unsigned count)
{
	(void)set;
	(void)count;
	perf_must(hwt_checkout_release(checkout, &request) == 0, "release");
}

static unsigned
acquire_any(void)
{
	/* Once a thread, as a pool's user would. */
	if (item.wanted == NULL) {
		item.wanted = &group.any;
		perf_must(
		    hwt_request_init_items(&request, &item, 1, NULL, NULL) == 0,
		    "request");
	}
	perf_must(hwt_checkout_acquire_wait(
		      checkout, &request, HWT_SEC(WAIT_LIMIT_S)) == 0,
	    "acquire");
	return (unsigned)(((char *)item.granted - (char *)member) /
	    (ptrdiff_t)sizeof(member[0]));
}

static void
release_any(unsigned number)
{
	release(&number, 1);
}

static void
fill_store(uint64_t objects)
{
	struct hwt_store_request one;
	uint64_t number;
	struct hwt_store_item key = {.key = &number, .size = sizeof(number)};

	perf_must(hwt_store_create(&store, checkout, NULL) == 0, "store");
	perf_must(hwt_store_request_init(store, &one, &key, 1, NULL, NULL) == 0,
	    "request");
	for (number = 0; number < objects; number++)
		perf_must(hwt_store_acquire_wait(store, &one, HWT_NEVER) == 0 &&
			hwt_store_release(store, &one) == 0,
		    "acquire");
}

static void
destroy_store(void)
{
	perf_must(hwt_store_destroy(store) == 0, "destroy");
}

const struct design design = {WHAT, create, destroy, acquire, release,
    acquire_any, release_any, fill_store, destroy_store};
