/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject mutex_wheel_sharded: the baseline at its best for threads that
 * have loops of their own. Each thread has a wheel and a mutex, which other
 * threads lock only to cancel what is in it; a timeout is embedded in its
 * connection, and the loop has read the clock. One worker turns all wheels.
 */
#define SUBJECT_DEADLINES 1
#define SUBJECT_NAME "mutex_wheel_sharded"
#define SUBJECT_VERSION "a wheel and a mutex per thread, embedded, deadlines"
#define MUTEX_WHEEL_EMBEDDED 1
#define MUTEX_WHEEL_SHARDS 64

#include "perf/subject/mutex_wheel.h"
