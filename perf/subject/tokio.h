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
#define SUBJECT_TELLS 0

/* One that could be polled too late starts in the thread that schedules it. */
#define SUBJECT_CONCURRENT 1

#include "perf/foreign.h"
