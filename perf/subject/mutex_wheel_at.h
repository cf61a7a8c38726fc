/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject mutex_wheel_at: the baseline with deadlines, in a loop that reads
 * the clock once per turn, as hwt_at has them.
 */
#define SUBJECT_DEADLINES 1
#define SUBJECT_NAME "mutex_wheel_at"
#define SUBJECT_VERSION "mutex_wheel with deadlines: reads no clock"

#include "perf/subject/mutex_wheel.h"
