/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The explorer's programs. A program is a row of scripts (test/script.h): what
 * happens first, what each thread runs, what happens last. The rows of the
 * library are in rows.c, in the verbs of calls.c, verbs.c and verbs_inside.c; a
 * module has rows and verbs of its own, and may use what is declared here.
 *
 * Conditions at the end of each execution:
 *
 *   once          each timeout that was accepted was started, cancelled or
 *                 returned by stop: one of them, once; of one that was
 *                 refused, nothing was heard. Periodic ones start as they like
 *                 and end at most once.
 *   answers       some order of all calls, starts and ends of tasks, which
 *                 keeps to who returned before whom was called, explains each
 *                 answer by the rules of hwt.h: see order.c. With it, no task
 *                 starts before its deadline; and none after its tick, if time
 *                 only moves when all wait
 *   inside        what test/model/checker.h compares
 *   stop          no task runs in the worker when hwt_stop has returned
 *   memory        nothing is used after it was released, and nothing is left
 *
 * Where the script first made a timer, stopping it, the list of what is
 * unprocessed, and destroying it come after last, unless the program has done
 * so itself.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "test/explore/explore.h"
#include "test/sim/sim.h"
#include "core/timer.h"
#include "test/script.h"

#define TICK_NS HWT_US(10)
#define SUBJECTS 8

struct program {
	const char *name;
	/* run has a part for each thread. */
	const char *first, *run, *last;
	const struct verb *verbs; /* NULL: the library's */
	void (*end)(void); /* after last */
	uint64_t schedules; /* short form: at most so many; 0: 4,000 */
	unsigned preemptions; /* bounded: at most so many; 0: 2 */
	bool pso; /* depends on relaxed stores: also with PSO */
};

/* A timeout. Counts change between points: they are looked at in the end. */
struct subject {
	hwt_timeout handle; /* the variable that the calls write */
	hwt_timeout known; /* what others use, from when the call returned */
	unsigned accepted, started, ended, cancelled, returned;
	unsigned running; /* now */
	bool periodic;
	bool handed_over; /* to an executor of its own */
	bool last; /* a run ended while the timer was stopping */
	unsigned touch; /* the how manieth touch is to make it; 0: none */
	bool never; /* is due never */
	bool replaced; /* a touch made another in its place */
	bool moves; /* its task reschedules it, three ticks on */
	bool releases; /* its task lets the stopped thread go on */
	bool tells; /* its task stores told, as any data of a user */
	bool awake; /* whoever runs its task is not to be woken */
	unsigned schedules; /* its task schedules that one, one tick on */
	unsigned waits; /* its task waits for that flag; 0: none */
	_Alignas(8) uint64_t told; /* how many of its runs have */
};

extern struct hwt *timer;
extern uint64_t timer_limit; /* its max_pending */
extern bool timer_external; /* it has an executor */
extern uint32_t timer_stopped; /* hwt_stop has returned 0 */
extern struct subject subject[SUBJECTS];
/* Handles are used before the call that writes them has returned. */
extern bool handles_early;

/* A timer of 8 buckets of TICK_NS. */
void timer_make(const struct hwt_options *options);
/* Gives the program's thread i a cache with that many records; without it, a
 * thread finds itself one, as threads do. In first. */
void thread_prepare(unsigned thread, unsigned records);

/* Calls on subject i. All of them, and what its task does, are noted for
 * order.c. */
int schedule(unsigned i, uint64_t delay_ns);
int schedule_on(
    unsigned i, const struct hwt_executor *executor, uint64_t delay_ns);
void subject_task(hwt_timeout timeout, void *arg);
int cancel(unsigned i);
/* Turns the wheel, some ticks later. */
void advance(unsigned ticks);
bool wheel_is_behind(void); /* not turned since the clock moved */

/* Waits until a word of 4 bytes is not 0. */
void word_await(const uint32_t *word);
/* The index of its record. */
uint32_t index_of(unsigned i);
/* The inside, when no call is under way. */
void verify_inside(void);

/* order.c. A note is made when a call begins, or something is seen; it ends
 * with the call, or with the next note of the same thread. */
enum noted {
	NOTED_NEW,
	NOTED_CANCEL,
	NOTED_MARK, /* hwt_cancel_wait has begun */
	NOTED_WAIT,
	NOTED_MOVE,
	NOTED_REPLACE, /* by a touch */
	NOTED_STATE,
	NOTED_REMAINING,
	NOTED_STOP,
	NOTED_RETURN, /* by stop */
	NOTED_START,
	NOTED_END
};
struct note {
	enum noted noted;
	unsigned subject;
	unsigned other; /* of a touch: the other one + 1 */
	int result;
	uint64_t early_ns, late_ns; /* the deadline is between them */
	uint64_t period_ns;
	uint64_t now_ns; /* when it began; of starts and ends: then */
	uint64_t until_ns; /* the clock when it ended */
	uint32_t begin, end; /* turns: one is before another by these */
	unsigned thread;
	bool own; /* in that timeout's own task */
};
void notes_reset(void);
struct note *note_begin(enum noted noted, unsigned i);
void note_end(struct note *note, int result);
void note_call(void); /* of what may start tasks */
void note_start(unsigned i); /* since this thread's last note or call */
void note_stop_of(unsigned i); /* its task ends */
void note_jump(void); /* of the clock: what is due may be late */
void verify_order(void);

/* For main.c: before first, when static variables are as they were at first; at
 * the begin of each thread; after last. */
void program_reset(void);
void program_thread(unsigned i);
void program_finish(void);

/* A verb of the library's programs: its word, and a function of up to three
 * numbers, whose body follows. ALONE, OF, TWO: of one statement. */
#define VERB(word_, kind_, name_, numbers_)                          \
	static void name_ numbers_;                                  \
	static const struct verb verb_##name_ = {                    \
	    .word = word_, .kind_ = name_};                          \
	static const struct verb *const at_##name_                   \
	    __attribute__((used, section("verbs"))) = &verb_##name_; \
	static void name_ numbers_
#define VERB0(word_, name_) VERB(word_, alone, name_, (void))
#define VERB1(word_, name_, i_) VERB(word_, of, name_, (unsigned i_))
#define VERB2(word_, name_, i_, j_) \
	VERB(word_, two, name_, (unsigned i_, unsigned j_))
#define VERB3(word_, name_, i_, j_, k_) \
	VERB(word_, three, name_, (unsigned i_, unsigned j_, unsigned k_))
#define VERB_OF_LINE(kind_, line_, word_, numbers_, ...) \
	VERB(word_, kind_, of_line_##line_, numbers_)    \
	{                                                \
		__VA_ARGS__;                             \
	}
#define VERB_HERE(...) VERB_OF_LINE(__VA_ARGS__)
#define ALONE(word_, ...) VERB_HERE(alone, __LINE__, word_, (void), __VA_ARGS__)
#define OF(word_, i_, ...) \
	VERB_HERE(of, __LINE__, word_, (unsigned i_), __VA_ARGS__)
#define TWO(word_, i_, j_, ...) \
	VERB_HERE(two, __LINE__, word_, (unsigned i_, unsigned j_), __VA_ARGS__)

extern const char *const verb_names[]; /* of their numbers: script.h */
void verbs_give_back(void); /* what threads hold of records */
void verbs_finish(void); /* before the timer goes */

/* generate.c: a program by its number; its text lasts until the next. */
const struct program *generate(uint64_t seed);
/* The last one with fewer threads and verbs, while fails says so. */
const struct program *shrink(bool (*fails)(const struct program *program));
/* As a row of rows.c. */
void print_row(const struct program *program);

/* The tables, and those of modules, which add what is thread-local. */
extern const struct program rows[];
extern const struct program purgatory_programs[];
void purgatory_programs_init(void);
extern const struct program checkout_programs[];
void checkout_programs_init(void);

#endif
