/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system as the explorer's programs see it, put before the first line of
 * each source of the core: locks, threads, sleeping, the clock and memory are
 * models whose every step is a point of explore.h.
 *
 * Time is a word, model_now_ns. It moves when a program says so, or when no
 * thread can go on: then to the next moment at which a sleep ends.
 */
#ifndef MODEL_H
#define MODEL_H

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
struct model_stop {
	const void *at; /* NULL: none, or it was there */
	unsigned thread;
	bool changes; /* not before it changes the word */
	uint32_t stopped; /* it is there */
	uint32_t go_on;
};

/* What a program sets in begin; each execution starts with 0. */
struct model_settings {
	unsigned thread_failures; /* pthread_create may fail so often */
	bool releases_refused; /* system_release, but for the first so many */
	unsigned releases;
	bool memory_recurs; /* what was freed is allocated again */
	bool clock_moves; /* by a thread: reading it is a point */
	struct model_stop stop;
};
extern struct model_settings model_settings;
extern uint64_t model_now_ns;

/* At the begin of each execution. */
void model_reset(void);
void model_on_reset(void (*function)(void));
/* For programs of the core: once, before all. */
void model_init(void);
/* Sees each word that is used by an atomic operation or a lock; NULL: none. */
extern void (*model_watch)(const void *at);
/* A step that moves the clock on. */
void model_clock_add(uint64_t ns);
/* For explore_program.idle. */
bool model_idle(void);
/* What a thread does when it has ended: destructors of its data. */
void model_thread_ends(void);
/* Whether a thread waits for this futex, and has not been woken. */
bool model_sleeps_on(const void *word);
/* How often this thread has called futex_wake for one. */
unsigned model_wakes(void);
/* How many pieces of memory are mapped or allocated. */
unsigned model_memory_held(void);
/* What is held is meant to stay. */
void model_forget(void);
uint64_t model_eventfd_count(int fd);

int model_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr);
int model_mutex_destroy(pthread_mutex_t *mutex);
int model_mutex_lock(pthread_mutex_t *mutex);
int model_mutex_trylock(pthread_mutex_t *mutex);
int model_mutex_unlock(pthread_mutex_t *mutex);
int model_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int model_cond_signal(pthread_cond_t *cond);
int model_cond_destroy(pthread_cond_t *cond);
int model_thread_create(pthread_t *thread, const pthread_attr_t *attr,
    void *(*start)(void *), void *argument);
int model_thread_join(pthread_t thread, void **result);
pthread_t model_thread_self(void);
int model_key_create(pthread_key_t *key, void (*destructor)(void *));
int model_setspecific(pthread_key_t key, const void *value);
int model_nothing(void);
int model_nanosleep(const struct timespec *pause);
int model_clock_gettime(struct timespec *now);
ssize_t model_getrandom(void *to, size_t bytes);
void *model_alloc(size_t bytes, int fill);
/* It reads as 0 then: for what is released and may still be read. */
void model_wipe(void *memory, size_t bytes);
void model_free(void *memory);
int model_eventfd(void);
int model_eventfd_read(int fd, eventfd_t *count);
int model_eventfd_write(int fd, eventfd_t count);
int model_close(int fd);

#ifdef MODEL_SHIM
#define pthread_mutex_init(mutex, attr) model_mutex_init(mutex, attr)
#define pthread_mutex_destroy(mutex) model_mutex_destroy(mutex)
#define pthread_mutex_lock(mutex) model_mutex_lock(mutex)
#define pthread_mutex_trylock(mutex) model_mutex_trylock(mutex)
#define pthread_mutex_unlock(mutex) model_mutex_unlock(mutex)
#define pthread_cond_wait(cond, mutex) model_cond_wait(cond, mutex)
#define pthread_cond_signal(cond) model_cond_signal(cond)
#define pthread_cond_destroy(cond) model_cond_destroy(cond)
#define pthread_create(thread, attr, start, argument) \
	model_thread_create(thread, attr, start, argument)
#define pthread_join(thread, result) model_thread_join(thread, result)
#define pthread_self() model_thread_self()
#define pthread_key_create(key, destructor) model_key_create(key, destructor)
#define pthread_setspecific(key, value) model_setspecific(key, value)
#define pthread_sigmask(how, set, old) \
	((void)(set), (void)(old), model_nothing())
#define pthread_atfork(prepare, parent, child) ((void)(child), model_nothing())
#define sched_yield() (explore_yield(), 0)
#define nanosleep(pause, left) model_nanosleep(pause)
#define clock_gettime(clock, now) model_clock_gettime(now)
#define getrandom(to, bytes, flags) model_getrandom(to, bytes)
#define malloc(bytes) model_alloc(bytes, 0xa5)
#define calloc(count, bytes) model_alloc((count) * (bytes), 0)
#define aligned_alloc(alignment, bytes) model_alloc(bytes, 0xa5)
#define free(memory) model_free(memory)
#define eventfd(count, flags) model_eventfd()
#define eventfd_read(fd, count) model_eventfd_read(fd, count)
#define eventfd_write(fd, count) model_eventfd_write(fd, count)
#define close(fd) model_close(fd)
#endif
#endif
