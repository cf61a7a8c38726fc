/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A brute-force checker of a timer's inside, for the model and the explorer: it
 * walks the slabs, the sets, the caches and the wheel, bit by bit and entry by
 * entry, and compares them with the invariants that core/record.h,
 * core/record.c, core/wheel.c and mpsc_queue.c state. It keeps nothing from one
 * check to the next and believes no counter.
 *
 * A timer can be checked when it is quiescent: no call on it is under way,
 * other than tasks that run in an executor, and its wheel is not being turned.
 */
#ifndef HWT_TEST_MODEL_CHECKER_H
#define HWT_TEST_MODEL_CHECKER_H

#include "core/timer.h"

/* NULL, or the first invariant that does not hold, with the timeout. raced:
 * calls on it have overlapped, which may leave the queue more urgent than what
 * is in it, and a late push in a slab that was released. */
const char *checker_check(const struct hwt *timer, bool raced);
uint64_t checker_checks(void);
/* Frees what it has allocated. */
void checker_close(void);

#endif
