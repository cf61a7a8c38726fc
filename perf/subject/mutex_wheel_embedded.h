/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject mutex_wheel_embedded: the baseline without malloc: see
 * perf/mutex_wheel.h.
 */
#define SUBJECT_NAME "mutex_wheel_embedded"
#define SUBJECT_VERSION "mutex_wheel, embedded timeouts: no malloc"
#define MUTEX_WHEEL_EMBEDDED 1

#include "perf/subject/mutex_wheel.h"
