/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An executor must outlive the timeouts that name it: destroy the timer, or end
 * its timeouts, first. Here the pool goes first, and then a timeout is due.
 * AddressSanitizer must report a use after free; when this program ends with
 * 0, it has not.
 */
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
	(void)arg;
}

int
main(void)
{
	struct hwt_clock clock = {manual_now, &now_ns};
	struct hwt_options options = {.flags = HWT_MANUAL, .clock = &clock};
	struct hwt_pool *pool;
	struct hwt *timer;

	if (hwt_pool_create(&pool, 1, 0))
		return 0;
	options.executor = hwt_pool_executor(pool);
	if (hwt_create(&timer, &options) ||
	    hwt_new_timeout(timer, NULL, task, NULL, HWT_SEC(1)) ||
	    hwt_pool_destroy(pool))
		return 0;
	now_ns = HWT_SEC(2);
	(void)hwt_advance(timer, NULL);
	return 0;
}
