/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manual timers against a model that is too simple to be wrong: an array of
 * timeouts, searched from end to end, each with its state, deadline and tick.
 * Random operations go to both; every answer, every start, the pending count,
 * the waits, the wake-up calls and the counters must agree. After each step
 * checker.h compares the inside of the timer with its invariants. Meanwhile
 * calls of the system fail by plan (test/sim/plan.h): such an operation must
 * answer with an error that hwt.h lists, and must have changed nothing.
 *
 *   rules.c        the options and the rules that they make: the grid; what
 *                  ends, begins and wakes; where the timer calls back, which
 *                  asks the model whether this timeout may start now
 *   operations.c   functions op_ do one operation on both sides and compare
 *   life.c         timers of ever other options: made, used, stopped, destroyed
 *   choices.c      the choices: at random, or as bytes say (a file, libFuzzer)
 *   checker.c      the inside, by brute force
 *   scenarios.c    short programs with workers, a pool and forks
 *   sweep.c        each of them with the first, second ... nth call of the
 *                  system failing
 *   main.c         the program model
 *
 * Two timers live at a time. model is the one that is being looked at. Tasks
 * themselves do operations, on either timer.
 */
#ifndef HWT_TEST_MODEL_H
#define HWT_TEST_MODEL_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "hwt.h"
#include "test/model/checker.h"
#include "test/sim/plan.h"

#define MODELS 2
#define ENTRIES 4608
#define STALE 64
#define INDEXES (4 * SLAB_RECORDS)
#define DEPTH_MAX 3

#define TICK_NONE UINT64_MAX
#define DEADLINE_NONE ((uint64_t)INT64_MAX)

/* A wheel may keep its rounds in 32 bits and look in between at what is
 * further away. */
#define ROUNDS_APART ((UINT64_C(1) << 30) - 2)

enum state {
	/* No such timeout. */
	ENDED,
	PENDING,
	/* An executor has it, live or cancelled. */
	HELD,
	REVOKED,
	RUNNING,
	/* It is no timeout: its post is in the mailbox. */
	POSTED,
};

/* The fate of a due timeout. */
enum way {
	INLINE,
	HOLDS,
	REFUSES,
	RUNS,
	MAILS,
	WAYS
};

struct model;

struct model_entry {
	struct hwt_post post; /* the first */
	struct model *model;
	enum state state;
	enum way way;
	/* 0: the caller did not want it, and nobody has told it yet. */
	hwt_timeout handle;
	/* As it was scheduled with. */
	const struct hwt_executor *executor;
	/* On the clock; DEADLINE_NONE: never due. */
	uint64_t deadline_ns;
	uint64_t tick;
	/* Its deadline had passed when it was set, in this tick: the record's
	 * entry may still stand there, and then it is due there. */
	uint64_t begun_tick;
	uint64_t period_ns;
	/* Its deadline was set while the wheel was turned. */
	bool in_turn;
	/* Periodic and running: its last run; it has moved itself. */
	bool ending;
	bool moved;
};

/* An executor of one way. */
struct way_executor {
	struct hwt_executor hook;
	struct model *model;
	enum way way;
};

struct model {
	struct hwt *timer;
	struct way_executor executors[WAYS];
	/* The way of the timer's own executor; INLINE: it has none. */
	enum way default_way;
	struct hwt_mailbox *mailbox;

	struct hwt_options options; /* it was made with them */
	uint64_t wheel; /* its length */
	uint64_t start_ns;
	uint64_t now_ns;
	/* How many of entries are used. */
	unsigned limit;
	struct model_entry entries[ENTRIES];
	hwt_timeout stale[STALE];
	uint64_t stale_count;
	/* Steps until it is stopped. */
	uint64_t left;
	uint64_t operation;

	/* In the mailbox, oldest first, cancelled ones too. */
	struct model_entry *mail[ENTRIES];
	uint64_t mail_first, mail_end;
	unsigned mail_running; /* runs of it inside each other */
	size_t mail_started; /* tasks */
	size_t mail_begun; /* and posted functions */
	/* The system refused to make the descriptor readable. */
	bool mail_silent;
	/* The life ends: nothing posts itself again. */
	bool ending;

	bool advancing;
	bool stopped;
	/* Tasks and advances that this thread is in. */
	unsigned frames;
	/* The tick whose timeouts are being handed over. */
	uint64_t tick_now;
	uint64_t advance_started;
	/* When the timer was turned last, and when it began with the timeout
	 * that it is handing over. */
	uint64_t turned_tick;
	uint64_t expiry_ns;

	/* The last handle of each record. */
	uint64_t handles[INDEXES];

	/* The answer of hwt_next_wakeup, as a tick, while it holds. */
	bool armed;
	uint64_t announced;
	uint64_t wakes;
	uint64_t wakes_expected;

	uint64_t expired;
	struct hwt_stats expected;
};

struct model_options {
	uint64_t seed;
	/* NULL: choices are random; otherwise these bytes make them, and the
	 * run ends when they are used up. */
	const uint8_t *bytes;
	size_t size;
	uint64_t steps;
	/* Look inside after so many steps, and at the end. */
	unsigned inside;
	/* Some steps on another thread; some calls of the system fail. */
	bool threads;
	bool failures;
};

extern struct model models[MODELS];
extern struct model *model;
/* for (EACH(entry)) */
#define EACH(entry)                            \
	entry = model->entries;                \
	entry < model->entries + model->limit; \
	entry++
/* Tasks that run inside each other, of all timers. */
extern unsigned depth;
extern struct model_options model_now;

/* Whatever does not hold ends here; must not return. text is one line. */
extern void (*model_failed)(const char *text);

#define model_check(condition)                    \
	do {                                      \
		if (!(condition))                 \
			model_object(#condition); \
	} while (0)

/* Counts the call and compares its answer, which it returns: rc, unless the
 * system has failed meanwhile and this is an error that comes of it. */
#define model_rc(call, arguments, rc) \
	(model_asks(), model_answered(#call, call arguments, (rc)))

void model_object(const char *text);
void model_asks(void);
int model_answered(const char *call, int rc, int expected);
extern uint64_t calls_compared;
/* Whether hwt.h lists rc as what a failure of the system may cause. */
bool may_fail(const char *call, int rc);

/* choices.c */
void choices_from(const struct model_options *options);
/* The bytes are used up: from here on, each choice is 0. */
bool choices_are_over(void);
uint64_t any_word(void);
/* A word of any length up to so many bits. */
uint64_t any_word_of(unsigned bits);
uint64_t any_below(uint64_t bound);
#define ANY_OF(array) (array)[any_below(sizeof(array) / sizeof((array)[0]))]

/* rules.c */
void choose_options(void);
uint64_t last_tick(void);
uint64_t deadline_after(uint64_t delay_ns);
/* As the timer keeps it. */
uint64_t deadline_at(uint64_t deadline_ns);
void entry_set_deadline(struct model_entry *entry, uint64_t deadline_ns);
void entry_begin(
    struct model_entry *entry, hwt_timeout handle, uint64_t deadline_ns);
/* The timer has told its handle: the one that is known, if one is. */
void entry_named(struct model_entry *entry, hwt_timeout handle);
void entry_end(struct model_entry *entry);
/* What lies before it in the mailbox was cancelled, and is released now. */
void pop_mail(const struct model_entry *entry);
uint64_t pending_count(void);
/* Timeouts that executors hold. */
uint64_t held_count(void);
/* The answer to a new timeout with valid arguments. */
int new_answer(void);
void expect_wake_for(uint64_t tick);
uint64_t model_clock(void *ctx);
void model_wake(void *ctx);
void model_log(void *ctx, int level, const char *message);
int model_execute(void *ctx, struct hwt *timer, hwt_timeout timeout);
hwt_task model_task;
const struct hwt_executor *executor_of(enum way way);

/* operations.c */
void op_any(void);
void op_in_task(struct model_entry *running);
void op_cancel(struct model_entry *entry);
void op_run(struct model_entry *entry);
void op_fill(void);
void op_run_mailbox(void);
void compare_counters(void);

/* life.c */
/* Stops it for the first time. */
void life_stop(void);
/* In a thread that has used no timer before, so that it repeats itself. */
void model_run(const struct model_options *options);

/* sweep.c: main for the words after "model --sweep". */
int sweep_main(int argc, char **argv);

#endif
