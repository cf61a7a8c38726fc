/* SPDX-License-Identifier: Apache-2.0 */
/* A compiler warns of the line with MUST, and of no other: the job
 * header/ignored. Only compiled. */
#include "hwt.h"

#ifndef MUST
#define MUST(call) call
#endif

void ignore_results(struct hwt *timer, hwt_timeout timeout);

void
ignore_results(struct hwt *timer, hwt_timeout timeout)
{
	hwt_start(timer);
	MUST(hwt_cancel(timer, timeout));
}
