/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokio, a Sleep for each timeout in a runtime of several threads: it is
 * registered when it is polled first, dropping it cancels, and reset moves it.
 * The Rust is in perf/peer/tokio.
 *
 * Who would call it unfair: who has a newer tokio than Debian's 1.24. A Sleep
 * has its own allocation, with the task that its waker calls; tokio's users
 * have it inside a future, without that.
 */
#define SUBJECT_NAME "tokio"

/* One that could be polled too late starts in the thread that schedules it. */
#define SUBJECT_CONCURRENT 1

#include "perf/foreign.h"

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	(void)subject;
	(void)foreign_cancel(timeout);
}

static inline uint64_t
subject_wakeups(struct subject *subject)
{
	(void)subject;
	return UINT64_MAX;
}
