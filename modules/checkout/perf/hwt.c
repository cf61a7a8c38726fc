/* SPDX-License-Identifier: Apache-2.0 */
/* The checkout. A thread has one request at a time, made anew for each set. */
#include "modules/checkout/hwt_checkout.h"
#include "modules/checkout/perf/design.h"
#include "perf/perf.h"

static struct hwt *timer;
static struct hwt_checkout *checkout;
static struct {
	_Alignas(64) struct hwt_object object;
} object[OBJECTS_MAX];
static _Thread_local struct hwt_request request;
static _Thread_local struct hwt_object *members[SET_MAX];

static void
create(unsigned objects)
{
	unsigned i;

	perf_must(hwt_create(&timer, NULL) == 0, "hwt_create");
	perf_must(hwt_checkout_create(&checkout, timer, NULL) == 0, "create");
	for (i = 0; i < objects; i++)
		perf_must(hwt_object_init(checkout, &object[i].object, i) == 0,
		    "init");
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
	perf_must(hwt_checkout_acquire_wait(checkout, &request, HWT_NEVER) == 0,
	    "acquire");
}

static void
release(const unsigned *set, unsigned count)
{
	(void)set;
	(void)count;
	perf_must(hwt_checkout_release(checkout, &request) == 0, "release");
}

const struct design design = {
    "hwt_checkout", create, destroy, acquire, release};
