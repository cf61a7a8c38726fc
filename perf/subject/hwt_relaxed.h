/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject hwt_relaxed: hwt with HWT_RELAXED, which reads no clock as it
 * schedules.
 */
#define SUBJECT_NAME "hwt_relaxed"
#define SUBJECT_HWT_FLAGS HWT_RELAXED

#include "perf/subject/hwt.h"
