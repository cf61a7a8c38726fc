/* SPDX-License-Identifier: Apache-2.0 */
/* libuv for any thread: see libuv.h. */
#define SUBJECT_NAME "libuv_mt"
#define LOOP_MT 1
#include "perf/subject/libuv.h"
