/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm: threads that do everything to timers at once, and a ledger that counts
 * how each timeout ended.
 *
 * A round makes timers and executors of five kinds, lets 2 to 16 threads at
 * them, and stops the timers from several threads at the same time. Each
 * timeout has an item. When the executors have drained, each accepted item must
 * have ended exactly once (started, cancelled, or returned by stop) and each
 * refused one never; one stop must have got the list; the sums must be those of
 * hwt_read_stats; no task may have started before its deadline by
 * CLOCK_MONOTONIC; nothing may be pending. Between rounds, descriptors, threads
 * and memory must be as before.
 *
 * A periodic item ends when it is cancelled or returned, or its last run ends
 * it, because a cancel or the stop came while it was in an executor or running.
 * Its runs do not overlap, and none is before its first deadline.
 *
 * The payload of an item is a plain word on purpose. It belongs to the
 * producer, then to whoever ends the timeout; so ThreadSanitizer checks the
 * ownership of arg and the order of memory. What the ledger counts is relaxed,
 * so that it gives no order to what the library must order.
 *
 *   storm.c      the program, its modes and its rounds
 *   ledger.c     items: how they begin and end, and what must be in the end
 *   actors.c     what threads do, and tasks
 *   executors.c  pool, mailboxes, and executors of our own
 *   disturb.c    signals, SIGSTOP, threads that come and go
 *   children.c   forks
 *   sleep.c      no rounds: wake-ups of a worker and of a pool that sleep
 */
#ifndef STORM_H
#define STORM_H

#include "stress.h"

enum {
	ITEMS = 40000,
	TIMERS_MAX = 10,
	ACTORS_MIN = 2,
	ACTORS_MAX = 16,
	VETERANS = 2,
	STOPPERS_MAX = 3,
	LOOPS = 2,
	/* Cancellers choose among that many of the newest timeouts. */
	WINDOW = 2048,
	GROWTH_MAX = 2 << 20
};

/* Ends, counted in bits of their own. */
enum {
	STARTED = 1,
	CANCELLED = 1 << 24,
	UNPROCESSED = 1 << 28
};

enum kind {
	INLINE,
	POOL,
	MAILBOX,
	OTHER_MAILBOX,
	MOODY,
	KINDS
};

struct item {
	enum kind kind;
	unsigned timer;
	const struct hwt_executor *executor;
	bool accepted;
	atomic_uint ends;
	/* Set when the handle may be read by others. */
	atomic_bool published;
	/* Held by the one thread that reschedules this item. */
	atomic_bool rescheduling;
	/* A touch has made another one in its place: it may have been
	 * cancelled by that. */
	atomic_bool replaced;
	uint64_t payload;
	/* due_ns: not before. started_ns: of the last run. */
	uint64_t due_ns, started_ns, period_ns;
	atomic_bool running;
	/* Of a periodic one. moved: its grid was moved. last: its task was told
	 * that there is no run after this one. */
	atomic_bool moved;
	bool last;
};

/* An event loop of its own thread. It waits without a time limit, so that a due
 * timeout of which the descriptor does not tell ends as a hang. */
struct loop {
	struct hwt_mailbox *mailbox;
	size_t max_per_run;
	int quit_fd;
	pthread_t thread;
};

struct round {
	struct hwt *timers[TIMERS_MAX];
	unsigned timers_count;
	uint64_t tick_ns;
	struct hwt_pool *pool;
	struct loop loops[LOOPS];
	const struct hwt_executor *executors[KINDS];
	atomic_uint taken;
	atomic_bool stopped[TIMERS_MAX], quit;
	/* By max_pending; by executors; rescheduled. */
	atomic_uint rejected, refused, rescheduled;
	/* Accepted, ended by a task, cancelled, returned; each run. */
	uint64_t counts[4], runs;
	/* Stops that got a list that was not empty. */
	atomic_uint lists[TIMERS_MAX];
	struct item items[ITEMS];
	hwt_timeout handles[ITEMS];
};

extern struct round round_;

/* Of the mode that is run. */
struct disturbers {
	bool forks, threads, signals;
};
extern struct disturbers disturbers;

/* ledger.c */
struct item *item_take(unsigned timer, uint64_t delay_ns, enum kind kind);
struct item *item_any(uint64_t *random);
static inline size_t
item_index(const struct item *item)
{
	return (size_t)(item - round_.items);
}
static inline hwt_timeout *
item_handle(const struct item *item)
{
	return &round_.handles[item_index(item)];
}
static inline struct hwt *
item_timer(const struct item *item)
{
	return round_.timers[item->timer];
}
/* After the call that was to schedule it. */
void item_publish(struct item *item, int error);
/* By whoever has just ended the timeout. */
void item_end(struct item *item, unsigned how);
/* A call was told that it has ended. */
void item_seen_ended(struct item *item);
void item_begin_run(struct item *item, hwt_timeout timeout);
void item_end_run(struct item *item);
void ledger_verify(bool exact);

/* actors.c */
uint64_t any_delay(uint64_t *random);
hwt_task storm_task;
/* False when the timer is stopped or the items are used up. */
bool act_produce(uint64_t *random);
void act_cancel(struct item *item, bool waits);
void *actor_thread(void *salt);
/* The loop of each thread that lives as long as the round. */
void actor_run(uint64_t *random);

/* executors.c */
void loop_start(struct loop *loop, size_t max_per_run);
void loop_stop(struct loop *loop);
void executors_start(uint64_t *random);
void executors_stop(void);

/* disturb.c */
void *disturber_threads(void *salt);
void signals_start(void);
void signals_stop(void);
/* In a child process that is stopped now and then, runs the rest of the
 * program; returns in that process alone. */
void sigstop_begin(void);

/* sleep.c */
void run_sleep(void);

/* children.c */
void *disturber_forks(void *salt);
/* Forks now and then; called by tasks. */
void fork_in_task(hwt_timeout timeout);
void children_reap(void);

#endif
