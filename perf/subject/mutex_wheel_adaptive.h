/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject mutex_wheel_adaptive: the baseline with a mutex that spins for a
 * while before it sleeps, which is glibc's alone.
 */
#define SUBJECT_NAME "mutex_wheel_adaptive"
#define SUBJECT_VERSION "mutex_wheel with a mutex that spins at first"
#define MUTEX_WHEEL_LOCK MUTEX_WHEEL_ADAPTIVE

#include "perf/subject/mutex_wheel.h"
