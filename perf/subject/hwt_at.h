/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject hwt_at: hwt with deadlines, in a loop that reads the clock once
 * per turn. The workload says when a turn begins; outside of its turns, calls
 * have delays.
 */
#ifndef SUBJECT_HWT_AT_H
#define SUBJECT_HWT_AT_H

#include <stdint.h>

#define SUBJECT_NAME "hwt_at"
#define SUBJECT_HWT_FLAGS 0
#define SUBJECT_DEADLINES 1

/* 0: not in a turn. */
static _Thread_local uint64_t subject_turn_ns;

static inline void
subject_turn_begins(uint64_t now_ns)
{
	subject_turn_ns = now_ns;
}

#include "perf/subject/hwt.h"

#endif
