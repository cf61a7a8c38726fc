/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An explorer of interleavings: runs a small program with several threads
 * again and again, each time in another order, and switches between its threads
 * (user-level contexts) only at the points below. search.c tells how it
 * searches.
 *
 * What a program does between two points happens at once. Each point says
 * which bytes it is about and whether it may change them; two points are
 * dependent when their bytes overlap and one of them changes them.
 */
#ifndef EXPLORE_H
#define EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPLORE_THREADS_MAX 8

/* A program: begin and end run alone, before and after all threads; they may
 * use all that follows, too. idle is called when no thread can go on but not
 * all have ended; it may change something (the clock) and answer true. When it
 * answers false, that is a deadlock, which is a failure. */
struct explore_program {
	unsigned threads;
	void (*begin)(void);
	void (*thread)(unsigned number);
	void (*end)(void);
	bool (*idle)(void);
};

/* It is a preemption when another thread takes over from one that could go on
 * and is not at a yield. Flushes cost nothing; a thread that waits for its own
 * buffer could go on. With sequential consistency all that can come out within
 * the bound is found; with store buffers, what needs just so many preemptions
 * is missed now and then. */
enum explore_search {
	EXPLORE_REDUCED, /* dynamic partial-order reduction */
	EXPLORE_BOUNDED, /* reduced, at most so many preemptions */
	EXPLORE_RANDOM /* PCT: seeded, change points at random */
};

/* How stores become visible. */
enum explore_memory {
	EXPLORE_SC, /* at once */
	EXPLORE_TSO, /* later, in their order: store buffers, as on x86-64 */
	EXPLORE_PSO /* later; relaxed ones may overtake, release ones not */
};

struct explore_limits {
	enum explore_search search;
	enum explore_memory memory;
	unsigned preemptions; /* EXPLORE_BOUNDED */
	uint64_t seed; /* EXPLORE_RANDOM */
	/* 0: until the search ends, which a random one does after 1. */
	uint64_t schedules_max;
	const char *replay; /* a schedule that was printed; NULL: none */
	bool trace; /* print each point */
};

struct explore_result {
	uint64_t schedules;
	uint64_t points; /* in all of them */
	bool complete; /* the search ended by itself */
	const char
	    *message; /* what failed, until the next run; NULL: nothing */
	const char *schedule; /* replays the failure */
};

void explore_run(const struct explore_program *program,
    const struct explore_limits *limits, struct explore_result *result);

/* For the code under test. Outside explore_run, and in begin, end and idle,
 * they act at once. bytes is 4, 8 or 16 (a store's 4 or 8), and at a multiple
 * of it. */
enum explore_order {
	EXPLORE_RELAXED,
	EXPLORE_RELEASE,
	EXPLORE_SEQ
};

/* A point, then the value: from the thread's store buffer, where that holds
 * these bytes. Of 16 bytes, nothing is answered: whoever called loads them
 * itself, before the next point. */
uint64_t explore_load(const void *at, unsigned bytes);
/* May be delayed when the order is not EXPLORE_SEQ. */
void explore_store(
    void *at, unsigned bytes, uint64_t value, enum explore_order order);
/* A point after which the caller changes memory itself, by a read-modify-write
 * that is one step and visible at once; the store buffer is emptied first.
 * EXPLORE_RELAXED: stores to other bytes stay in the buffer. */
void explore_modify_in(
    const void *at, unsigned bytes, enum explore_order order);
void explore_modify(const void *at, unsigned bytes); /* EXPLORE_SEQ */

/* A point that is enabled while ready says so, and then a modify of at. ready
 * must depend on those bytes and the clock alone. Locks, joins, futexes. */
void explore_await(const void *at, unsigned bytes,
    bool (*ready)(const void *context), const void *context);
/* A point that is enabled when that thread has ended, all its stores being
 * visible. */
void explore_await_end(unsigned thread);
/* For loops that wait: disabled until another thread has changed something
 * since this thread's last yield that went on, or when nobody else can go on.
 * A run of idle is a change; the end of a thread is none. */
void explore_yield(void);

/* Threads beside those of the program; ended when function returns. */
unsigned explore_spawn(void (*function)(void *argument), void *argument);
unsigned explore_self(void); /* EXPLORE_THREADS_MAX in begin, end, idle */
/* The code under test has these thread-local variables: each context keeps
 * them for itself; a new thread's are zero. Called before explore_run. */
void explore_add_local(void *local, size_t bytes);

/* Whether a store to some of these bytes is in a thread's buffer. No step: no
 * order is tried because of it. Who releases memory first changes each part of
 * it that was touched, asks this, and fails if so, or when memory is touched
 * after that. Then the reduction hides no failure:
 *
 *   A thread that changes part after part runs on from each of these steps
 *   where the search comes there first: it goes on with the thread that ran
 *   last, which is never held up. So of all executions that begin alike, up to
 *   the change of one part, one without any step of others up to the question
 *   is among those that are run. If a store to a part is in a buffer when that
 *   is changed, it still is then. That change and the store's flush are
 *   dependent, so that both orders are tried. A store that has not begun, or
 *   to a part that nobody has touched, begins after the question.
 */
bool explore_is_buffered(const void *at, size_t bytes);

/* The name of these bytes in traces and failures, until the next begin. */
void explore_name(const void *at, size_t bytes, const char *name);

/* Ends this execution as failed; does not return inside a thread. */
void explore_fail(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
#define explore_check(condition) \
	((condition)             \
		? (void)0        \
		: explore_fail("%s:%d: %s", __FILE__, __LINE__, #condition))

#endif
