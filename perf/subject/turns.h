/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For subjects with deadlines, in a loop that reads the clock once per turn:
 * the workload says when a turn begins. Outside of its turns, calls have
 * delays.
 */
#ifndef SUBJECT_TURNS_H
#define SUBJECT_TURNS_H

#include <stdint.h>

#define SUBJECT_DEADLINES 1

/* 0: not in a turn. */
static _Thread_local uint64_t subject_turn_ns;

static inline void
subject_turn_begins(uint64_t now_ns)
{
	subject_turn_ns = now_ns;
}

#endif
