/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a timer, and what HWT_DEBUG asks for. */
#include <stdio.h>
#include <unistd.h>

#include "core/debug.h"
#include "core/timer.h"

struct debug debug;

void
timer_log(const struct hwt *timer, int level, const char *message)
{
	if (timer->log.write != NULL)
		timer->log.write(timer->log.ctx, level, message);
	else
		(void)dprintf(STDERR_FILENO, "hwt: %s\n", message);
}
