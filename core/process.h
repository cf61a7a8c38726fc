/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether this process has created a timer, and which timers are live.
 */
#ifndef HWT_PROCESS_H
#define HWT_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "sys/atomic.h"

struct hwt;
struct hwt_executor;

/* The largest page that the system may have: a linker aligns to no more. */
#ifndef EPOCH_PAGE
#if defined(__aarch64__) && defined(__linux__)
#define EPOCH_PAGE 65536
#else
#define EPOCH_PAGE 4096
#endif
#endif

/* The epoch of this process: 0 in a new child until process_epoch. Alone in its
 * pages, which the kernel wipes in a child. */
struct epoch_place {
	_Alignas(EPOCH_PAGE) a64_t word;
};
extern struct epoch_place process_epoch_at;

/* Whether this process created the object with that epoch. One load. */
static inline bool
process_owns(uint64_t epoch)
{
	return a64_load_relaxed(&process_epoch_at.word) == epoch;
}

uint64_t process_epoch(void);
/* False: a child could not detect the fork, and so nothing may be created. */
extern bool process_sees_forks;

void process_lock(void);
/* For callers that must not wait for the lock. */
bool process_trylock(void);
void process_unlock(void);

/* Registers a timer and gives it its serial. */
void process_add_timer(struct hwt *timer);
void process_remove_timer(struct hwt *timer);
/* With the lock held: the live timer with that serial, or NULL. */
struct hwt *process_find_timer(uint64_t serial);
/* With the lock held: the timer after that one, or the first for NULL; NULL:
 * there is none. */
const struct hwt *process_next_timer(const struct hwt *timer);

/* The shared timer: core/shared.c. 0 in a child that takes its epoch. */
extern a64_t process_shared;

/* Counts a worker that begins. True: it is the first one beyond the number that
 * is worth a warning. */
bool process_add_worker(void);
void process_remove_worker(void);

/* Waits until no live timer is handing a timeout over to executor, or to a copy
 * of it. Holds no lock while it waits: execute may call anything. */
void process_await_hand_overs(const struct hwt_executor *executor);

#endif
