/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the explorer's programs have in common: a timer, a ledger of timeouts,
 * and what must hold at the end of each execution.
 *
 *   once          each timeout that was accepted was started, cancelled, or
 *                 returned by stop: one of them, once; of one that was
 *                 refused, nothing was heard. Periodic ones start as they like
 *                 and end at most once.
 *   never-early   no task starts before its deadline; in programs where time
 *                 only moves when all wait, none after its tick either
 *   records       each free record is in one cache or in the free set, each
 *                 other one in neither; what is in a set can be found from
 *                 the top; a page that is not committed reads as 0
 *   entries       each entry in the wheel is its record's only one; a record
 *                 with HAS_ENTRY has one in time for its deadline; what is
 *                 PENDING without HAS_ENTRY is in the queue, and as urgent as
 *                 its deadline is at each level
 *   stop          no task runs in the worker when hwt_stop has returned
 *   memory        nothing is used after it was released, and nothing is left
 *
 * A program's begin runs first; where it made a timer, stopping it, the list of
 * what is unprocessed, and destroying it come after end, unless the program
 * has done so itself.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "explore.h"
#include "test/sim/sim.h"
#include "core/timer.h"
#include "test/script.h"

#define TICK_NS HWT_US(10)
#define SUBJECTS 8

struct program {
	const char *name;
	void (*begin)(void);
	void (*thread[EXPLORE_THREADS_MAX])(void);
	void (*end)(void);
	/* In the place of begin and threads, and before end: scripts with these
	 * verbs. run has a part for each thread. */
	const struct verb *verbs;
	const char *first, *run, *last;
	uint64_t schedules; /* short form: at most so many; 0: 4,000 */
	unsigned preemptions; /* bounded: at most so many; 0: 2 */
	bool pso; /* depends on relaxed stores: also with PSO */
};

/* A timeout. Counts change between points: they are looked at in the end. */
struct subject {
	hwt_timeout handle;
	unsigned accepted, started, ended, cancelled, returned;
	unsigned running; /* now */
	bool periodic;
	bool handed_over; /* to an executor of its own */
	bool last; /* a run ended while the timer was stopping */
	bool ending; /* a cancel came while it ran */
	bool contested; /* several threads reschedule it */
	bool replaced; /* a touch made another in its place */
	bool moves; /* its task reschedules it, three ticks on */
	bool releases; /* its task lets the stopped thread go on */
	bool tells; /* its task stores told, as any data of a user */
	bool awake; /* whoever runs its task is not to be woken */
	unsigned schedules; /* its task schedules that one, one tick on */
	unsigned waits; /* its task waits for flag[waits] */
	uint64_t not_before_ns, not_after_ns;
	_Alignas(8) uint64_t told; /* how many of its runs have */
};

extern struct hwt *timer;
/* The program has called hwt_stop and take_list. */
extern uint32_t timer_stopped;
void note_stopped(void);
extern struct subject subject[SUBJECTS];

/* A timer of 8 buckets of TICK_NS: with HWT_MANUAL, or with a worker. */
void timer_make(uint32_t flags, const struct hwt_executor *executor);
void timer_make_with(const struct hwt_options *options);
/* Gives the program's thread i a cache with that many records; without it, a
 * thread finds itself one, as threads do. In begin. */
void thread_prepare(unsigned thread, unsigned records);
void threads_prepare(unsigned first, unsigned second, unsigned third);
/* That thread stops when it is about to use this word, until go_on or until a
 * task releases it. In begin. */
void thread_stop_at(unsigned thread, const void *word);
/* The same when it is about to change the word, which it may have read. */
void thread_stop_before_change(unsigned thread, const void *word);
void await_stopped(void);
void go_on(void);

/* The task of all; its arg is the subject. */
void subject_task(hwt_timeout timeout, void *arg);
int schedule(unsigned i, uint64_t delay_ns);
int schedule_on(
    unsigned i, const struct hwt_executor *executor, uint64_t delay_ns);
int schedule_periodic(unsigned i, uint64_t delay_ns, uint64_t period_ns);
/* Both sets of counts change if the call's result says so. */
int cancel(unsigned i);
int cancel_wait(unsigned i);
/* What each of its runs so far has told is seen: for who knows of its end. */
void see_told(unsigned i);
int reschedule(unsigned i, uint64_t delay_ns);
/* The same with deadlines on the clock. */
int schedule_at(unsigned i, uint64_t deadline_ns);
int reschedule_at(unsigned i, uint64_t deadline_ns);
/* Touches subject i; the new one, if there is one, is subject fresh, whose
 * handle is the variable. */
int touch(unsigned i, unsigned fresh, uint64_t delay_ns);
/* Whether it was replaced. */
bool is_touched(unsigned i, unsigned fresh);
/* Turns the wheel, at this moment or some ticks later. */
uint64_t advance(unsigned ticks);
void turn(void);
void turn_twice(void);
/* What was scheduled is taken over, and then a tick passes. */
void make_due(void);
/* Subject 0. */
void cancel_it(void);
/* hwt_stop, which must answer 0, and what it returns. */
void stop(void);
void take_list(struct hwt_unprocessed *list);

/* Waits until the program's thread i, or all but the caller and the worker,
 * have ended; until a subject has started; until a word is that. */
void await_thread(unsigned i);
void await_started(unsigned i);
/* Until the worker is in a long sleep. */
void await_worker_sleeps(void);
/* A program's own flags between its threads; 0 is no task's. */
extern uint32_t flag[4];
void flag_set(unsigned i);
void flag_await(unsigned i);

/* What belongs to the record of a handle, or of an index. */
uint32_t index_of(unsigned i);
struct slab *slab_of(uint32_t index);
a64_t *free_bits_of(uint32_t index);
struct queued *queued_of(uint32_t index);
a64_t *slab_urgency_of(uint32_t index);
/* Whether the worker finds it in the queue before the tick of that deadline. */
bool queue_has(uint32_t index, uint64_t deadline_ns);
/* The worker releases all that it can. */
void trim_all(void);

void verify_records(void);
/* The same of entries and of the queue, before stop. */
void verify_entries(void);

/* For main.c: before begin, at the begin of each thread, after end. */
void program_reset(void);
void program_thread(unsigned i);
void program_finish(void);

extern const struct program queue_programs[], record_programs[],
    place_programs[], handover_programs[], periodic_programs[],
    sleep_programs[], lifecycle_programs[], shared_programs[], touch_programs[];
/* Of modules/purgatory. */
extern const struct program purgatory_programs[];
void purgatory_programs_init(void);

#endif
