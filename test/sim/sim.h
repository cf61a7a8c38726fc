/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated system: locks, threads, sleeping, the clock, memory and eventfds,
 * in the place of the real one. sim.c has the functions, atomic.h the back end
 * of atomic.h; each of their steps is a point of test/explore/explore.h, which
 * has the threads and says whose turn it is.
 *
 * HOW TO USE IT. Compile the code under test with
 *
 *	-DSIM_SHIM -include test/sim/sim.h
 *	-DHWT_ATOMIC_MODEL='"test/sim/atomic.h"'
 *
 * (build/explore/core.o is the library compiled so), link sim.c and
 * test/explore/explore.c, and library.c for the library. Call sim_init once and
 * sim_reset at the begin of each execution; then set sim_settings and
 * sim_failures, and call the library. Within explore_run, which has begin,
 * threads and end, threads may wait for each other. Outside of it and in begin
 * and end everything happens at once, without threads: enough for a manual
 * timer, whose clock is sim_now_ns.
 *
 * TIME is a word, sim_now_ns. It moves when somebody calls sim_clock_add, or
 * when no thread can go on: then to the next moment at which a sleep ends.
 *
 * FAILURES. sim_failures says which calls of a kind fail: the first so many
 * succeed, the next so many fail. With may set, the explorer tries both for
 * each of these: it fails, and it does not.
 */
#ifndef SIM_H
#define SIM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "test/explore/explore.h"

/* A thread that is about to read or write the word at waits there until
 * go_on. */
struct sim_stop {
	const void *at; /* NULL: none, or it was there */
	unsigned thread;
	bool changes; /* not before it changes the word */
	uint32_t stopped; /* it is there */
	uint32_t go_on;
};

/* What a program sets in begin; each execution starts with 0. */
struct sim_settings {
	bool memory_recurs; /* what was freed is allocated again */
	bool clock_moves; /* by a thread: reading it is a point */
	struct sim_stop stop;
};
extern struct sim_settings sim_settings;

enum sim_call {
	SIM_RELEASE, /* system_release: false */
	SIM_THREAD, /* pthread_create: EAGAIN */
	SIM_CALLS
};
/* Each execution starts without. */
struct sim_failure {
	unsigned after; /* so many succeed */
	unsigned count; /* then so many fail; 0: none */
};
extern struct sim_failure sim_failures[SIM_CALLS];

extern uint64_t sim_now_ns;

/* At the begin of each execution. */
void sim_reset(void);
void sim_on_reset(void (*function)(void));
/* For programs of the core: once, before all. */
void sim_init(void);
/* Sees each word that is used by an atomic operation or a lock; NULL: none. */
extern void (*sim_watch)(const void *at);
/* A step that moves the clock on. */
void sim_clock_add(uint64_t ns);
/* For explore_program.idle. */
bool sim_idle(void);
/* What a thread does when it has ended: destructors of its data. */
void sim_thread_ends(void);
/* Whether a thread waits for this futex, and has not been woken. */
bool sim_sleeps_on(const void *word);
/* How often this thread has called futex_wake for one. */
unsigned sim_wakes(void);
/* How many pieces of memory are mapped or allocated. */
unsigned sim_memory_held(void);
/* What is held is meant to stay. */
void sim_forget(void);
uint64_t sim_eventfd_count(int fd);

int sim_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr);
int sim_mutex_destroy(pthread_mutex_t *mutex);
int sim_mutex_lock(pthread_mutex_t *mutex);
int sim_mutex_trylock(pthread_mutex_t *mutex);
int sim_mutex_unlock(pthread_mutex_t *mutex);
int sim_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int sim_cond_signal(pthread_cond_t *cond);
int sim_cond_destroy(pthread_cond_t *cond);
int sim_thread_create(pthread_t *thread, const pthread_attr_t *attr,
    void *(*start)(void *), void *argument);
int sim_thread_join(pthread_t thread, void **result);
pthread_t sim_thread_self(void);
int sim_key_create(pthread_key_t *key, void (*destructor)(void *));
int sim_setspecific(pthread_key_t key, const void *value);
int sim_nothing(void);
int sim_nanosleep(const struct timespec *pause);
int sim_clock_gettime(struct timespec *now);
ssize_t sim_getrandom(void *to, size_t bytes);
void *sim_alloc(size_t bytes, int fill);
void sim_free(void *memory);
int sim_eventfd(void);
int sim_eventfd_read(int fd, eventfd_t *count);
int sim_eventfd_write(int fd, eventfd_t count);
int sim_close(int fd);

#ifdef SIM_SHIM
#define pthread_mutex_init(mutex, attr) sim_mutex_init(mutex, attr)
#define pthread_mutex_destroy(mutex) sim_mutex_destroy(mutex)
#define pthread_mutex_lock(mutex) sim_mutex_lock(mutex)
#define pthread_mutex_trylock(mutex) sim_mutex_trylock(mutex)
#define pthread_mutex_unlock(mutex) sim_mutex_unlock(mutex)
#define pthread_cond_wait(cond, mutex) sim_cond_wait(cond, mutex)
#define pthread_cond_signal(cond) sim_cond_signal(cond)
#define pthread_cond_destroy(cond) sim_cond_destroy(cond)
#define pthread_create(thread, attr, start, argument) \
	sim_thread_create(thread, attr, start, argument)
#define pthread_join(thread, result) sim_thread_join(thread, result)
#define pthread_self() sim_thread_self()
#define pthread_key_create(key, destructor) sim_key_create(key, destructor)
#define pthread_setspecific(key, value) sim_setspecific(key, value)
#define pthread_sigmask(how, set, old) ((void)(set), (void)(old), sim_nothing())
#define pthread_atfork(prepare, parent, child) ((void)(child), sim_nothing())
#define sched_yield() (explore_yield(), 0)
#define nanosleep(pause, left) sim_nanosleep(pause)
#define clock_gettime(clock, now) sim_clock_gettime(now)
#define getrandom(to, bytes, flags) sim_getrandom(to, bytes)
#define malloc(bytes) sim_alloc(bytes, 0xa5)
#define calloc(count, bytes) sim_alloc((count) * (bytes), 0)
#define aligned_alloc(alignment, bytes) sim_alloc(bytes, 0xa5)
#define free(memory) sim_free(memory)
#define eventfd(count, flags) sim_eventfd()
#define eventfd_read(fd, count) sim_eventfd_read(fd, count)
#define eventfd_write(fd, count) sim_eventfd_write(fd, count)
#define close(fd) sim_close(fd)
#endif
#endif
