/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of unprocessed timeouts lies in the timer's own storage and is valid
 * until hwt_destroy. AddressSanitizer must report a use after free; when this
 * program ends with 0, it has not.
 */
#include "hwt.h"

static void
task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

int
main(void)
{
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	struct hwt *timer;

	if (hwt_create(&timer, NULL) ||
	    hwt_new_timeout(timer, NULL, task, NULL, HWT_NEVER) ||
	    hwt_stop(timer, &unprocessed) || hwt_destroy(timer))
		return 0;
	(void)hwt_unprocessed_next(&unprocessed, &info);
	return 0;
}
