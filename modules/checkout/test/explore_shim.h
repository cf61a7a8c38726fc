/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system and the timer as the explorer's programs of the checkout see them,
 * put before the first line of each of its sources: every step of a lock or a
 * timeout is a point of test/explore/explore.h.
 */
#ifndef CHECKOUT_EXPLORE_H
#define CHECKOUT_EXPLORE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "test/explore/explore.h"

int model_lock(pthread_mutex_t *mutex);
int model_unlock(pthread_mutex_t *mutex);
int model_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int model_signal(pthread_cond_t *cond);
int model_forget(void *memory, size_t bytes);
void *model_alloc(size_t bytes);
void model_free(void *memory);

#define pthread_mutex_destroy(mutex) model_forget(mutex, sizeof(*(mutex)))
#define pthread_mutex_lock(mutex) model_lock(mutex)
#define pthread_mutex_unlock(mutex) model_unlock(mutex)
#define pthread_cond_destroy(cond) model_forget(cond, sizeof(*(cond)))
#define pthread_cond_wait(cond, mutex) model_wait(cond, mutex)
#define pthread_cond_signal(cond) model_signal(cond)
#define LOOKS 1
#define SLOTS 2u
#define sched_yield() (explore_yield(), 0)
#define nanosleep(pause, left) ((void)(pause), explore_yield(), 0)
#define aligned_alloc(alignment, bytes) model_alloc(bytes)
#define malloc(bytes) model_alloc(bytes)
#define calloc(count, bytes) model_alloc((count) * (bytes))
#define free(memory) model_free(memory)
#define getrandom(at, bytes, flags) \
	((ssize_t)(memset(at, 1, bytes), (void)(flags), (bytes)))

#endif
