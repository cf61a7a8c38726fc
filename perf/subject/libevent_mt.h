/* SPDX-License-Identifier: Apache-2.0 */
/* libevent for any thread, with its own locks: see libevent.h. */
#define SUBJECT_NAME "libevent_mt"
#define LIBEVENT_MT 1
#define LIBEVENT_COMMON 0
#include "perf/subject/libevent.h"
