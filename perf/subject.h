/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject of a program, and what holds where it says nothing else. It has
 * these functions; what cannot be done ends the program.
 *
 *   subject_create      a timer that is started; a subject without ticks takes
 *                       none, and one without bounds no capacity
 *   subject_destroy     drops what is pending
 *   subject_schedule    the handle may be NULL: then it cannot be cancelled
 *   subject_cancel      once for each handle, whether it has ended or not
 *   subject_reschedule  what is pending, by a thread that has the handle
 */
#ifndef PERF_SUBJECT_H
#define PERF_SUBJECT_H

#include "perf/perf.h"

/* Cancels of a thread that found nothing to cancel, of what SUBJECT_TELLS. */
static _Thread_local uint64_t subject_refused __attribute__((unused));

/* 1: deadlines are from the begin of the loop's turn, where there is one. */
#ifndef SUBJECT_DEADLINES
#define SUBJECT_DEADLINES 0
#endif

/* With SUBJECT_DEADLINES, the time of the turn of a loop that reads the clock
 * once for each; 0: not in a turn. */
static _Thread_local uint64_t subject_turn_ns __attribute__((unused));

#include SUBJECT

/* 1: one thread alone may call, and turns it by subject_turn. */
#ifndef SUBJECT_SINGLE
#define SUBJECT_SINGLE 0
#endif
#ifndef SUBJECT_TELLS
#define SUBJECT_TELLS 0
#endif
/* 1: a task may start before its time, by a coarse clock. */
#ifndef SUBJECT_MAY_BE_EARLY
#define SUBJECT_MAY_BE_EARLY 0
#endif
/* 1: tasks may start in several threads at once. */
#ifndef SUBJECT_CONCURRENT
#define SUBJECT_CONCURRENT 0
#endif
/* 1: tasks of an earlier tick start before those of a later one; tick
 * boundaries are the clock at creation plus n ticks. */
#ifndef SUBJECT_TICK_ORDER
#define SUBJECT_TICK_ORDER 0
#endif
/* 1: subject_create_wheel makes wheels of any length. */
#ifndef SUBJECT_WHEELS
#define SUBJECT_WHEELS 0
#endif
/* 1: rescheduling leaves the handle as it is, and two threads may do it to one
 * timeout at once. Otherwise a thread takes the handle out of the table. */
#ifndef SUBJECT_KEEPS_HANDLE
#define SUBJECT_KEEPS_HANDLE 0
#endif
#ifndef SUBJECT_FLOOR
#define SUBJECT_FLOOR 0
#endif

static inline void
subject_turn_begins(uint64_t now_ns)
{
	if (SUBJECT_DEADLINES)
		subject_turn_ns = now_ns;
}

#ifndef SUBJECT_TURNS
static inline void
subject_turn(struct subject *subject)
{
	(void)subject;
}
#endif

#endif
