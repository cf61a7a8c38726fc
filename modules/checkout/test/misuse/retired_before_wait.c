/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread has found an object, and calls hwt_checkout_acquire_wait without the
 * mutex under which it was found. Another one retires the object and frees it
 * just before: the order in which the two threads run is that of the lines
 * here. AddressSanitizer must report a use after free; when this program ends
 * with 0, it has not. test/stress/checkout_found.c does it right.
 */
#include <stdlib.h>

#include "modules/checkout/hwt_checkout.h"

static struct hwt_checkout *checkout;

static int
retire_and_free(struct hwt_object *object)
{
	struct hwt_object *set[] = {object};
	struct hwt_request last;

	if (hwt_request_init(&last, set, 1, NULL, NULL) ||
	    hwt_checkout_try(checkout, &last) ||
	    hwt_object_retire(checkout, object))
		return -1;
	free(object);
	return hwt_checkout_release(checkout, &last);
}

int
main(void)
{
	struct hwt_options options = {.flags = HWT_MANUAL};
	struct hwt_object *object = malloc(sizeof(*object));
	struct hwt_object *found[] = {object};
	struct hwt_request request;
	struct hwt *timer;

	if (!object || hwt_create(&timer, &options) ||
	    hwt_checkout_create(&checkout, timer, NULL) ||
	    hwt_object_init(checkout, object, 0) ||
	    hwt_request_init(&request, found, 1, NULL, NULL) ||
	    retire_and_free(object))
		return 0;
	(void)!hwt_checkout_acquire_wait(checkout, &request, 0);
	return 0;
}
