/* SPDX-License-Identifier: Apache-2.0 */
/* The subject of a program, and what holds where it says nothing else. */
#ifndef PERF_SUBJECT_H
#define PERF_SUBJECT_H

#include SUBJECT

/* 1: it may have deadlines, from the clock at the begin of a turn; 0: no turn
 * any more. */
#ifndef SUBJECT_DEADLINES
#define SUBJECT_DEADLINES 0
#endif
#if !SUBJECT_DEADLINES
static inline void
subject_turn_begins(uint64_t now_ns)
{
	(void)now_ns;
}
#endif

/* 1: the calling thread turns it, by subject_turn. */
#ifndef SUBJECT_TURNS
static inline void
subject_turn(struct subject *subject)
{
	(void)subject;
}
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

#endif
