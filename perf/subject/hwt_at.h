/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject hwt_at: hwt with deadlines, in a loop that reads the clock once
 * per turn.
 */
#define SUBJECT_DEADLINES 1
#define SUBJECT_NAME "hwt_at"
#define SUBJECT_HWT_FLAGS 0

#include "perf/subject/hwt.h"
