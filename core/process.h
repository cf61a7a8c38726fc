/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the process knows about its timers: whether it is still the process
 * that made them, and which of them live.
 */
#ifndef HWT_PROCESS_H
#define HWT_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/atomic.h"

struct hwt;
struct hwt_executor;

/* The epoch of this process: 0 in a new child until somebody asks. */
extern a64_t *process_epoch_word;

/* Whether this process made what carries that epoch. One load. */
static inline bool
process_owns(uint64_t epoch)
{
	return a64_load_relaxed(process_epoch_word) == epoch;
}

uint64_t process_epoch(void);
/* False: a child could not tell, and so nothing may be made. */
bool process_sees_forks(void);

void process_lock(void);
/* For those who must not wait; about a timer of this process, whose making has
 * found the lock renewed. */
bool process_trylock(void);
void process_unlock(void);

/* Registers a timer and gives it its serial. */
void process_add_timer(struct hwt *timer);
void process_remove_timer(struct hwt *timer);
/* How many were removed. Relaxed: the lock hands on what is behind it. */
uint64_t process_destroyed(void);
/* The head of the list, which goes on at registry_next. With the lock held. */
const struct hwt *process_first_timer(void);

/* Counts a worker that begins. True when this one is the first beyond the
 * number that deserves a warning. */
bool process_add_worker(void);
void process_remove_worker(void);

/* Waits until no live timer is in the middle of handing a timeout to executor,
 * or to a copy of it. Holds no lock meanwhile: execute may call anything. */
void process_await_hand_overs(const struct hwt_executor *executor);

#endif
