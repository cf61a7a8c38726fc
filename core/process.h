/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the process knows about its timers: whether it is still the process
 * that made them, which of them live, and what each thread keeps for them.
 */
#ifndef HWT_PROCESS_H
#define HWT_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/clock.h"

struct hwt;
struct cache;

/* A task that this thread is running, or a wheel that it is turning, innermost
 * first. The timer is named by its serial: in a forked child, a task's copy
 * outlives its timer. */
struct run_frame {
	uint64_t serial;
	uint64_t id; /* 0: turning the wheel */
	struct run_frame *outer;
};

/* Which cache this thread uses for a timer. A timer may be gone and its
 * address in use again: serial tells. */
struct thread_slot {
	struct hwt *timer;
	uint64_t serial;
	struct cache *cache;
};

#define THREAD_SLOTS 8
/* A thread whose slots are all taken changes one this seldom; one that found no
 * cache to take looks for one this seldom. */
#define MISSES_PER_CHANGE 64

struct thread_state {
	struct thread_slot slot[THREAD_SLOTS];
	struct run_frame *frames;
	/* The executor whose thread this is, and the epoch of its making. */
	const void *executor;
	uint64_t executor_epoch;
	/* The serial of the timer whose worker this is; also while its
	 * destructors of thread-specific data run. */
	uint64_t worker_serial;
	struct clock_anchor anchor;
	/* How often no slot was free to a call that may lock, [true], or may
	 * not: when to give up one, and which. */
	unsigned misses[2];
	/* How often not to look for a cache, since a timer had none left. */
	unsigned passes;
	/* Whether thread exit will call back. */
	bool watched;
};

/* initial-exec: one instruction instead of a call. The few bytes fit into what
 * the C library keeps free for libraries that are loaded late. */
#ifdef __SANITIZE_ADDRESS__
/* gcc 12 tests flags that the linker's relaxation of that model leaves unset,
 * and then reports null pointers where there are none. */
#define THREAD_STATE_MODEL
#else
#define THREAD_STATE_MODEL __attribute__((tls_model("initial-exec")))
#endif
extern _Thread_local struct thread_state thread_state THREAD_STATE_MODEL;

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
void process_unlock(void);

/* Registers a timer and gives it its serial. True when this one is the first
 * beyond the number that deserves a warning. */
bool process_add_timer(struct hwt *timer);
void process_remove_timer(struct hwt *timer);

/* Waits until no live timer is in the middle of handing a timeout to executor,
 * or to a copy of it. */
struct hwt_executor;
void process_await_hand_overs(const struct hwt_executor *executor);

/* The calling thread's cache for timer; NULL when it has none. The slow half of
 * cache_of in timer.h. may_lock: may wait for the registry's lock to change
 * what it has; lock-free otherwise. */
struct cache *process_attach_cache(struct hwt *timer, bool may_lock);

/* Whether this thread runs a task of timer (and, with an id, that task). */
bool process_runs_task_of(const struct hwt *timer);
bool process_runs_task(const struct hwt *timer, uint64_t id);

/* Blocks all signals but those that a thread's own faults raise, and SIGPROF;
 * *old gets what was there. */
void process_block_signals(void *old);

#endif
