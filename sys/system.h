/* SPDX-License-Identifier: Apache-2.0 */
/* System calls. See system.c, and system_*.c for each system. */
#ifndef HWT_SYSTEM_H
#define HWT_SYSTEM_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "sys/pause.h"

static inline struct timespec
system_timespec(uint64_t ns)
{
	return (struct timespec){
	    .tv_sec = (time_t)(ns / 1000000000u),
	    .tv_nsec = (long)(ns % 1000000000u),
	};
}

/* Zeroed memory in whole pages, which takes space when it is touched; NULL: no
 * memory. */
void *system_map(size_t bytes);
void system_unmap(void *memory, size_t bytes);
/* Releases the memory of whole pages, which then read as 0. False: not so. */
bool system_release(void *memory, size_t bytes);
/* Makes whole pages of static data read as 0 in each child of this process.
 * False: the system cannot. */
bool system_wipe_in_children(void *memory, size_t bytes);

/* The word to sleep on: a word has 64 bits, and systems compare 32. */
static inline uint32_t *
system_low_half(const void *word)
{
	return (uint32_t *)(uintptr_t)word +
	    (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

/* The address that futex_wait and futex_wake take for the high half of a word,
 * which they compare in its place. */
static inline const void *
system_high_half(const void *word)
{
	bool low_first = __BYTE_ORDER__ != __ORDER_BIG_ENDIAN__;

	return (const char *)word + (low_first ? 4 : -4);
}

/* Sleeps while the low half of *word is value, at most until the deadline
 * (CLOCK_MONOTONIC, HWT_NEVER: for ever); may return without cause. */
void futex_wait(const void *word, uint32_t value, uint64_t until_ns);
/* Wakes one of those that sleep on *word, or FUTEX_ALL. */
#define FUTEX_ALL INT_MAX
void futex_wake(const void *word, int count);

/* Whether the thread has ended, and is joined. */
bool system_try_join(pthread_t thread);

/* Of the calling thread. */
void system_name_thread(const char *name);
/* With the policy, priority and nice value of the main thread, if it may. */
void system_schedule_as_main(void);

/* A variable of the environment; NULL, too, in a program that has more rights
 * than its caller. */
const char *system_environment(const char *name);

#endif
