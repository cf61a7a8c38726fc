/* SPDX-License-Identifier: Apache-2.0 */
/* libevent for any thread, with queues for common delays: see libevent.h. */
#define SUBJECT_NAME "libevent_common_mt"
#define LIBEVENT_MT 1
#define LIBEVENT_COMMON 1
#include "perf/subject/libevent.h"
