/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a timer, and what its source files share.
 *
 * SERIALIZATION. Callers own a record or compare-and-swap its word. struct
 * worker, struct trim, the wheel and the queue's passes belong to the thread
 * that turns the wheel. Start, stop and advance take the lifecycle lock; the
 * registry has one. The user sees to it that no other call is under way with
 * hwt_destroy. No lock is held while user code runs, and a forked child takes
 * no lock of a timer of its parent.
 */
#ifndef HWT_TIMER_H
#define HWT_TIMER_H

#include <errno.h>
#include <signal.h>

#include "mpsc_queue.h"
#include "core/record.h"
#include "sys/system.h"
#include "core/thread.h"
#include "sys/valid.h"
#include "core/wheel.h"

#define NOINLINE __attribute__((noinline))

/* Owned by the thread that turns the wheel. Counters are atomic because
 * hwt_read_stats reads them. */
struct worker {
	uint64_t now_ns; /* the clock when it was last read */
	uint32_t expired_count;
	/* woken: the last long sleep was ended or prevented by a caller.
	 * crowded: the same, for the second time within one tick. */
	bool woken, crowded;
	uint64_t woken_tick; /* next_tick in the turn after they last did */
	uint64_t refused_logged_ns, slow_logged_ns; /* 0: never */
	uint64_t tasks_started; /* in the worker itself */
	WORKER_COUNTERS(COUNTER_MEMBER)
	a64_t lateness_max, lateness_sum; /* ns */
	a64_t lateness[64];
};

/* The gate is open in PHASE_RUNNING. A manual timer is never new. */
enum phase {
	PHASE_NEW,
	PHASE_RUNNING,
	PHASE_STOPPING,
	PHASE_STOPPED
};

/* The thread that drives the wheel: the worker, or one in hwt_advance. */
enum driver {
	DRIVER_NONE,
	DRIVER_ACTIVE,
	DRIVER_ENDED, /* has nothing left to do but to leave its thread */
	DRIVER_JOINING /* is being joined, without the lock */
};

/* Starting and stopping. All under lock. */
struct lifecycle {
	pthread_mutex_t lock;
	a64_t driver; /* enum driver; atomic: a stop sleeps on it */
	uint64_t stopped_ns; /* when the stop that got the list was called */
	uint64_t unprocessed; /* timeouts in the list, until a stop gets it */
	pthread_t thread;
	char thread_name[NAME_BYTES];
};

struct hwt {
	/* Fixed by hwt_create, but for phase. */
	uint64_t epoch;
	uint64_t serial;
	a64_t phase; /* enum phase; changes under the lifecycle lock */
	uint64_t origin_ns;
	/* Defaults filled in. Of its pointers only thread_attr is used: what
	 * the others pointed to is copied below, and into life. */
	struct hwt_options options;
	struct hwt_executor
	    executor; /* execute NULL: tasks run in the worker */
	struct hwt_clock clock; /* now_ns NULL: CLOCK_MONOTONIC */
	struct hwt_wake wake;
	struct hwt_log log;
	bool shared; /* the process-wide one */
	struct hwt *registry_next;

	/* A push that is due before this must wake the worker. 0: it is awake,
	 * or wakes at the next boundary. 1: only due_ns 0 wakes it. */
	_Alignas(CACHE_LINE) a64_t wake_before;
	a64_t wake_sequence; /* the worker sleeps on its low half; from 1 on */
	a64_t announced_sequence; /* wake_sequence before the announcement */
	/* Timeouts that hold a permit of max_pending. */
	_Alignas(CACHE_LINE) a64_t permits;

	struct mpsc_queue queue;
	struct record_store store;
	_Alignas(CACHE_LINE) struct wheel wheel;
	struct worker worker;
	/* The worker's: timeouts that were ever handed to executors, and the
	 * executor to which one is being handed. */
	a64_t dispatched_count;
	aptr_t dispatching_to;
	struct trim trim;
	_Alignas(CACHE_LINE) struct lifecycle life;
};

static inline uint64_t
timer_now(const struct hwt *timer)
{
	if (timer->clock.now_ns != NULL)
		return timer->clock.now_ns(timer->clock.ctx);
	return clock_monotonic_ns();
}

/* Whether a call may continue: its timer is one of this process, and its other
 * arguments are valid. */
static inline int
timer_check(const struct hwt *timer, bool valid)
{
	if (timer == NULL)
		return -EINVAL;
	if (!process_owns(timer->epoch))
		return -EOWNERDEAD;
	return valid ? 0 : -EINVAL;
}

/* Timeouts that executors hold, and hwt_run calls under way; never below 0,
 * since what has returned is added up first. */
static inline uint64_t
timer_dispatched(const struct hwt *timer)
{
	const struct cache *cache;
	uint64_t returned = 0;
	uint32_t i;

	for (i = 0; (cache = cache_counted(&timer->store, i)) != NULL; i++)
		/* E:dispatched acquire */
		returned += a64_load_acquire(&cache->returned);
	return a64_load_acquire(&timer->dispatched_count) - returned;
}

/* The answer of hwt_remaining. */
static inline int64_t
remaining_at(struct wide seen, uint64_t now_ns)
{
	if (seen.deadline_ns == DEADLINE_NEVER)
		return INT64_MAX;
	return (int64_t)(seen.deadline_ns - now_ns);
}

/* The time from which a delay counts: never behind the clock. */
static inline uint64_t
timer_now_ahead(const struct hwt *timer)
{
	if (timer->options.flags & HWT_MANUAL)
		return timer_now(timer);
	return clock_ahead_ns(&thread_state.sample);
}

/* A delay of 0 counts as 1 ns, so that a deadline which is set on a boundary
 * belongs to the next one. */
static inline uint64_t
deadline_from(uint64_t now_ns, uint64_t delay_ns)
{
	if (now_ns >= DEADLINE_NEVER || delay_ns >= DEADLINE_NEVER - now_ns)
		return DEADLINE_NEVER;
	return now_ns + delay_ns + (delay_ns == 0);
}

/* The last tick whose boundary is not after now_ns. */
static inline uint64_t
timer_tick_at(const struct hwt *timer, uint64_t now_ns)
{
	if (now_ns < timer->origin_ns)
		return 0;
	return (now_ns - timer->origin_ns) / timer->options.tick_ns;
}

/* The tick that a deadline belongs to, if it has not been begun: the one of the
 * first boundary at or after it. */
static inline uint64_t
timer_tick_of(const struct hwt *timer, uint64_t deadline_ns)
{
	if (deadline_ns >= DEADLINE_NEVER)
		return TICK_NEVER;
	if (deadline_ns <= timer->origin_ns)
		return 0;
	return (deadline_ns - timer->origin_ns - 1) / timer->options.tick_ns +
	    1;
}

static inline uint64_t
timer_boundary(const struct hwt *timer, uint64_t tick)
{
	return timer->origin_ns + tick * timer->options.tick_ns;
}

static inline bool
timer_is_open(const struct hwt *timer)
{
	/* E:gate acquire */
	return __builtin_expect(
	    a64_load_acquire(&timer->phase) == PHASE_RUNNING, 1);
}

static inline bool
timer_is_stopping(const struct hwt *timer)
{
	/* E:gate acquire */
	return a64_load_acquire(&timer->phase) >= PHASE_STOPPING;
}

/* The thread's cache that was found last, if it is this timer's; or NULL. Never
 * the shared one. */
static inline struct cache *
cache_at_hand(const struct hwt *timer)
{
	/* No two timers of a process have the same serial, and none has 0. */
	if (__builtin_expect(thread_state.slot[0].serial == timer->serial, 1))
		return thread_state.slot[0].cache;
	return NULL;
}

/* The calling thread's cache, or the shared one. It may change with each call
 * of user code, which may use other timers. Lock-free, allocates nothing. */
static inline struct cache *
cache_of(struct hwt *timer)
{
	struct cache *cache = cache_at_hand(timer);

	return cache != NULL ? cache : thread_attach_cache(timer, false);
}

/* Permits of max_pending. */
static inline void
pending_release(struct hwt *timer, uint64_t count)
{
	/* E:permits release */
	if (timer->options.max_pending != 0)
		(void)a64_add_seq(&timer->permits, -count);
}

/* core/lifecycle.c; 0: the gate is open. */
int timer_start(struct hwt *timer);
int timer_stop(
    struct hwt *timer, uint64_t wait_ns, struct hwt_unprocessed *unprocessed);

/* core/manual.c */
/* The calling thread has the wheel of a manual timer for itself until
 * timer_turn_end, and a stop waits. Errors as hwt_advance. */
int timer_turn_begin(struct hwt *timer);

/* core/wake.c */
/* Pushes a record that the caller left PENDING without HAS_ENTRY, and wakes the
 * worker if needed. Always 0, so that it can be tail-called. */
int timer_notify(struct hwt *timer, uint32_t index, uint64_t due_ns);
/* PENDING back to FREE, because the gate is closed; false: another thread has
 * changed the record first, or one of the flags is not set. */
bool timer_retract(struct record *record, uint64_t id, uint64_t flags);
/* Wakes a worker in a long sleep, to release memory. */
void wake_worker_for_trim(struct hwt *timer);

/* core/run.c */
/* hwt_run, without its check for a fork. */
int timer_run(struct hwt *timer, uint64_t id);
/* Runs the task of a record that the caller has made RUNNING. */
void timer_run_record(struct hwt *timer, struct record *record, uint32_t index);

/* worker.c */
void *worker_main(void *argument);
/* The wheel is no longer turned: the worker's last action, too. */
void timer_turn_end(struct hwt *timer);
/* Runs what is due. */
void worker_turn(struct hwt *timer);
/* Takes over what was pushed and is due at worker.now_ns or before. */
void worker_take_due(struct hwt *timer);
/* Does one bounded piece of housekeeping. False: nothing is left to do. */
bool worker_tidy(struct hwt *timer, bool idle);
/* Removes stale entries before the first live one, a bounded number with each
 * call. True: call it again. Otherwise *tick is the first entry's. */
bool worker_drop_stale(struct hwt *timer, uint64_t *tick);
/* Before a sleep until that tick. False: something was pushed meanwhile. */
bool worker_announce(struct hwt *timer, uint64_t tick, uint64_t *until_ns);

#endif
