/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject mutex_wheel_at: the baseline with deadlines, in a loop that reads
 * the clock once per turn, as hwt_at has them.
 */
#ifndef SUBJECT_MUTEX_WHEEL_AT_H
#define SUBJECT_MUTEX_WHEEL_AT_H

#include "perf/subject/turns.h"

#define SUBJECT_NAME "mutex_wheel_at"
#define SUBJECT_VERSION "mutex_wheel with deadlines: reads no clock"

#include "perf/subject/mutex_wheel.h"

#endif
