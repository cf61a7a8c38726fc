/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject mutex_wheel_lazy: the baseline that notes a connection's activity
 * without the lock, and looks at it when the timeout is due; deadlines as in
 * hwt_at.
 */
#define SUBJECT_DEADLINES 1
#define SUBJECT_NAME "mutex_wheel_lazy"
#define SUBJECT_VERSION "mutex_wheel_at that puts off without the lock"
#define MUTEX_WHEEL_LAZY 1

#include "perf/subject/mutex_wheel.h"
