/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for another thread where there is no word to sleep on. */
#ifndef HWT_PAUSE_H
#define HWT_PAUSE_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define YIELDS 16

/* Sleeps a tenth of a millisecond. */
static inline void
pause_shortly(void)
{
	const struct timespec pause = {.tv_nsec = 100000};

	(void)nanosleep(&pause, NULL);
}

/* For a wait that another thread ends within a few instructions, once it runs.
 * *tries starts at 0: yields, and after some tries sleeps, since sched_yield
 * does not let threads of lower priority run. */
static inline void
yield_or_pause(uint32_t *tries)
{
	if (*tries == YIELDS) {
		pause_shortly();
		return;
	}
	++*tries;
	(void)sched_yield();
}

#endif
