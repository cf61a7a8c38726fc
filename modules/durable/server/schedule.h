/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SCHEDULES. A schedule is a task of the queue hwt.schedules: hwtd (8) has its
 * form. Its id is the schedule's name. A worker of that queue gets it when it
 * is due, adds the tasks NAME@TIME, and reschedules it.
 *
 * ONCE. The due time of a schedule is the first occurrence that was not added.
 * hwtd adds the occurrences from there until now, and reschedules the schedule
 * to the next. If it is killed in between, it does the same again when the
 * lease has ended; the ids, which are kept for a day longer than an occurrence
 * may be late, keep each from being added twice. So may several hwtd's work off
 * the schedules of one Redis: one that hung beyond its lease, and reschedules a
 * schedule to an earlier time than another one has, only repeats adds.
 */
#ifndef HWT_DURABLE_SERVER_SCHEDULE_H
#define HWT_DURABLE_SERVER_SCHEDULE_H

#include "modules/durable/hwt_durable.h"

/* After calendar_begin. 0 or -errno. */
int schedules_start(struct hwt_durable *durable);
/* -EBUSY: what was taken has not ended in time. */
int schedules_stop(void);

#endif
