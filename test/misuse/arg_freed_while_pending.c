/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arg is lent to a timeout until it ends. Here it is freed while the timeout
 * is pending, and the task reads it. AddressSanitizer must report a use after
 * free; when this program ends with 0, it has not.
 */
#include <stdlib.h>

#include "hwt.h"

static uint64_t now_ns;

static uint64_t
manual_now(void *ctx)
{
	return *(const uint64_t *)ctx;
}

static void
task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	++*(volatile int *)arg;
}

int
main(void)
{
	struct hwt_clock clock = {manual_now, &now_ns};
	struct hwt_options options = {.flags = HWT_MANUAL, .clock = &clock};
	int *arg = malloc(sizeof(*arg));
	struct hwt *timer;

	if (!arg || hwt_create(&timer, &options) ||
	    hwt_new_timeout(timer, NULL, task, arg, HWT_SEC(1)))
		return 0;
	*arg = 0;
	free(arg);
	now_ns = HWT_SEC(2);
	(void)hwt_advance(timer, NULL);
	return 0;
}
