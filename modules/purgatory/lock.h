/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shard's lock: a word, and the kernel's futex where it is contended, as the
 * second mutex of Drepper's "Futexes Are Tricky" (2011). An operation on three
 * keys takes it seven times, and so it is inline, which pthread_mutex_t cannot
 * be; beside that, its release is a full fence everywhere. It is not recursive;
 * all zero, it is free.
 */
#ifndef HWT_PURGATORY_LOCK_H
#define HWT_PURGATORY_LOCK_H

#include <pthread.h>

#include "core/atomic.h"

struct lock {
#ifdef HWT_ATOMIC_MODEL
	pthread_mutex_t mutex; /* the explorer's */
#else
	a64_t word; /* 0; 1: held; 2: held, and others may wait */
#endif
};

#ifdef HWT_ATOMIC_MODEL

static inline void
lock_take(struct lock *lock)
{
	(void)pthread_mutex_lock(&lock->mutex);
}

static inline bool
lock_try(struct lock *lock)
{
	return pthread_mutex_trylock(&lock->mutex) == 0;
}

static inline void
lock_drop(struct lock *lock)
{
	(void)pthread_mutex_unlock(&lock->mutex);
}

#else

/* lock.c */
void lock_wait(struct lock *lock);
void lock_wake(struct lock *lock);

static inline bool
lock_try(struct lock *lock)
{
	return a64_cas_seq(&lock->word, 0, 1);
}

static inline void
lock_take(struct lock *lock)
{
	if (__builtin_expect(!lock_try(lock), 0))
		lock_wait(lock);
}

/* A full fence. */
static inline void
lock_drop(struct lock *lock)
{
	if (__builtin_expect(a64_swap_full(&lock->word, 0) == 2, 0))
		lock_wake(lock);
}

#endif
#endif
