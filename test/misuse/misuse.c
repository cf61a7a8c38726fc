/* SPDX-License-Identifier: Apache-2.0 */
/*
 * misuse CASE: breaks a rule of ownership of hwt.h. AddressSanitizer must
 * report a use after free; with status 0 it has not.
 */
#include <stdlib.h>
#include <string.h>

#include "hwt.h"

static uint64_t now_ns;

static uint64_t
manual_now(void *ctx)
{
	return *(const uint64_t *)ctx;
}

static void
write_arg(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	++*(volatile int *)arg;
}

int
main(int argc, char **argv)
{
	const char *which = argc == 2 ? argv[1] : "";
	const struct hwt_clock clock = {manual_now, &now_ns};
	struct hwt_options options = {.flags = HWT_MANUAL, .clock = &clock};
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	int *arg = calloc(1, sizeof(*arg));
	struct hwt_pool *pool;
	struct hwt *timer;

	if (arg == NULL || hwt_pool_create(&pool, 1, 0) != 0)
		return 0;
	if (strcmp(which, "pool_destroyed_before_timeouts") == 0)
		options.executor = hwt_pool_executor(pool);
	if (hwt_create(&timer, &options) != 0 ||
	    hwt_new_timeout(timer, NULL, write_arg, arg, HWT_SEC(1)) != 0 ||
	    hwt_pool_destroy(pool) != 0)
		return 0;
	if (strcmp(which, "arg_freed_while_pending") == 0)
		free(arg);
	if (strcmp(which, "arg_freed_while_pending") == 0 ||
	    strcmp(which, "pool_destroyed_before_timeouts") == 0) {
		now_ns = HWT_SEC(2);
		(void)hwt_advance(timer, NULL);
	}
	if (hwt_stop(timer, &unprocessed) != 0 || hwt_destroy(timer) != 0)
		return 0;
	if (strcmp(which, "list_after_destroy") == 0)
		(void)hwt_unprocessed_next(&unprocessed, &info);
	if (strcmp(which, "timer_after_destroy") == 0)
		(void)hwt_pending_timeouts(timer);
	free(arg);
	return 0;
}
