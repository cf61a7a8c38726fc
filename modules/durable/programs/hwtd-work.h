/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What workers publish of themselves, added up by queue since hwtd's start: see
 * stats.c. What was published while hwtd heard nothing is not in it.
 */
#ifndef HWT_DURABLE_HWTD_WORK_H
#define HWT_DURABLE_HWTD_WORK_H

#include <stdio.h>

#include "modules/durable/hwt_durable.h"

/* Listens, on a thread of its own. 0 or -errno. */
int work_start(struct hwt_durable *durable);

/* Ends that, if it was started. */
void work_stop(void);

/* Writes an array of JSON: of each queue how many attempts have ended how, and
 * how late they began. Any thread. */
void work_write(FILE *file);

/* The same in Prometheus' text format. Any thread. */
void work_prometheus(FILE *file, const char *space);

#endif
