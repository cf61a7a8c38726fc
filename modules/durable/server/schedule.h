/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SCHEDULES. A schedule is a task of the queue hwt.schedules. Its id is the
 * schedule's name, at most 43 bytes. Its payload is lines of a word and a
 * value, an empty line, and the payload of the tasks that the schedule adds:
 *
 *   queue NAME            where they are added, in the same space
 *   every SECONDS         at multiples of so many seconds of Unix time; or
 *   cron M H D M W        five fields: minute hour day month weekday
 *   zone NAME             of cron, as Europe/Berlin; without it, UTC
 *   late SECONDS          0 to 86400; without it, 3600: an occurrence that is
 *                         found later than this is skipped
 *   attempts N, retry FIRST MOST, expires MS     as in HWT.ADD
 *
 *   HWT.ADD {hwt:hwt.schedules} ATTEMPTS 1000 RESULT 0 IN 0 TASKS NAME PAYLOAD
 *
 * adds one, HWT.CANCEL ends it, HWT.RESCHEDULE ... IN 0 skips nothing. A
 * schedule that cannot be read becomes a dead letter, with the reason.
 *
 * ONCE. The due time of a schedule is the first occurrence that was not added.
 * hwtd takes the schedule, adds the task NAME@TIME of each occurrence from
 * there until now, and reschedules the schedule to the next. If it is killed in
 * between, it does the same again when the lease has ended; the ids, which are
 * kept for a day longer than an occurrence may be late, keep each from being
 * added twice. So may several hwtd's work off the schedules of one Redis.
 */
#ifndef HWT_DURABLE_SERVER_SCHEDULE_H
#define HWT_DURABLE_SERVER_SCHEDULE_H

#include "modules/durable/server/engine.h"

struct schedules;

/* A thread that works off the schedules. NULL: none could be started. */
struct schedules *schedules_start(struct engine *engine);
/* After engine_close. */
void schedules_stop(struct schedules *schedules);

#endif
