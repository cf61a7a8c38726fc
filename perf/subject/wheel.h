/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subject wheel: the baseline without any lock or atomic operation, for the
 * one thread that turns it: what a program with a loop per thread would take,
 * and what there is to save where no other thread cancels. Timeouts are
 * embedded, and count from the turn's time, as in libuv: one may be early by
 * the length of a turn.
 */
#define SUBJECT_DEADLINES 1
#define SUBJECT_NAME "wheel"
#define SUBJECT_VERSION "a wheel for one thread: no lock, embedded, deadlines"
#define SUBJECT_SINGLE 1
#define SUBJECT_MAY_BE_EARLY 1
#define MUTEX_WHEEL_EMBEDDED 1
#define MUTEX_WHEEL_LOCK MUTEX_WHEEL_NONE

#include "perf/subject/mutex_wheel.h"
