/* SPDX-License-Identifier: Apache-2.0 */
/* libev for any thread: see libev.h. */
#define SUBJECT_NAME "libev_mt"
#define LOOP_MT 1
#include "perf/subject/libev.h"
