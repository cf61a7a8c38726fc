/* SPDX-License-Identifier: Apache-2.0 */
/* libevent with its queues for common delays: see libevent.h. */
#define SUBJECT_NAME "libevent_common"
#define LIBEVENT_MT 0
#define LIBEVENT_COMMON 1
#include "perf/subject/libevent.h"
