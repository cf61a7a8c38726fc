/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject mutex_wheel_spin: the baseline with a lock that only spins, for
 * processors that nobody else wants: whoever waits for a holder that does not
 * run burns its whole time slice.
 */
#define SUBJECT_NAME "mutex_wheel_spin"
#define SUBJECT_VERSION "mutex_wheel with pthread_spin_lock"
#define MUTEX_WHEEL_LOCK MUTEX_WHEEL_SPIN

#include "perf/subject/mutex_wheel.h"
