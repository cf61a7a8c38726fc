/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_destroy frees the timer: no call may follow. AddressSanitizer must
 * report a use after free; when this program ends with 0, it has not.
 */
#include "hwt.h"

int
main(void)
{
	struct hwt *timer;

	if (hwt_create(&timer, NULL) || hwt_stop(timer, NULL) ||
	    hwt_destroy(timer))
		return 0;
	(void)hwt_pending_timeouts(timer);
	return 0;
}
