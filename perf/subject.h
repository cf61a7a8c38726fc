/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of a subject. The driver is compiled once for each subject, so
 * that no call through a pointer is measured. A header of perf/subject has:
 *
 *   subject_version     name and version
 *   subject_create      a timer that is started. capacity: timeouts at most
 *   subject_destroy     drops what is pending
 *   subject_schedule    handle may be NULL: then it cannot be cancelled
 *   subject_cancel      called once for each handle, ended or not; adds to
 *                       subject_refused if its task has started
 *   subject_reschedule  of what is pending, by a thread that has the handle
 *   subject_turn        only if SUBJECT_SINGLE: runs what is due
 *
 * None of them fails: they end the program. No task starts before its delay has
 * passed since the call.
 */
#ifndef PERF_SUBJECT_H
#define PERF_SUBJECT_H

#include "perf/perf.h"

/* A task as the subject calls it: hwt's have one more argument, and a wrapper
 * around them would be measured. */
#ifndef SUBJECT_TASK
#define SUBJECT_TASK(name, arg) static void name(void *arg)
#endif

/* Cancels of this thread that were refused. */
static _Thread_local uint64_t subject_refused __attribute__((unused));

/* 1: the caller gives deadlines, from a clock that it reads once per turn of
 * its loop. 0: it gives delays, and the subject reads the clock. */
#ifndef SUBJECT_DEADLINES
#define SUBJECT_DEADLINES 0
#endif

/* With SUBJECT_DEADLINES: when this turn of the loop began; 0: not in one. */
static _Thread_local uint64_t subject_turn_ns __attribute__((unused));

#include SUBJECT

/* 1: each thread has a timer of its own, and turns it. */
#ifndef SUBJECT_SINGLE
#define SUBJECT_SINGLE 0
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
