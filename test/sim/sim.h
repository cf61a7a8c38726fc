/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated system: locks, threads, sleeping, the clock, memory and eventfds,
 * in the place of the real one. Each of its steps is a point of
 * test/explore/explore.h, which has the threads and says whose turn it is.
 *
 * Code under test is compiled with atomic.h as the back end of atomic.h, and
 * objcopy makes malloc simulated_malloc, which sim.c defines, and so on:
 * build/explore/core.o is the library made so, without system.c and
 * system_*.c. Call sim_init once and sim_reset at the begin of each execution;
 * then set sim_settings, and call the library. In begin and end of an
 * execution everything happens at once, without threads.
 *
 * TIME is a word, sim_now_ns. It moves when somebody calls sim_clock_add, or
 * when no thread can go on: then to the next moment at which a sleep ends.
 */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "test/explore/explore.h"

/* Settings of a program in begin; each execution starts with none of it. */
struct sim_settings {
	bool memory_recurs; /* what was freed is allocated again */
	bool clock_moves; /* by a thread: reading it is a point */
	bool thread_fails; /* the first pthread_create: EAGAIN */
	unsigned releases_max; /* then system_release fails */
	/* A thread that is about to use the word at stop waits there until
	 * go_on. */
	struct {
		const void *at; /* NULL: none, or it was there */
		unsigned thread;
		bool changes; /* not before it changes the word */
		uint32_t stopped; /* it is there */
		uint32_t go_on;
	} stop;
};
extern struct sim_settings sim_settings;

extern uint64_t sim_now_ns;

/* Once, before all. */
void sim_init(void);
/* At the begin of each execution: the library's static data too is as it was
 * after its constructors. */
void sim_reset(void);
/* A step that moves the clock on. */
void sim_clock_add(uint64_t ns);
/* For explore_program.idle. */
bool sim_idle(void);
/* At a thread's end: destructors of its data. */
void sim_thread_ends(void);
/* Whether a thread waits for this futex, and has not been woken. */
bool sim_sleeps_on(const void *word);
/* How often this thread has called futex_wake for one. */
unsigned sim_wakes(void);
/* Lines of memory that are mapped or allocated. */
extern unsigned sim_held;
/* The count of an eventfd. */
uint64_t sim_eventfd_count(int fd);
/* Memory of the program's own. */
void *simulated_calloc(size_t count, size_t bytes);
void simulated_free(void *memory);

#endif
