/* SPDX-License-Identifier: Apache-2.0 */
/* System calls. See system.c. */
#ifndef HWT_SYSTEM_H
#define HWT_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

static inline struct timespec
system_timespec(uint64_t ns)
{
	return (struct timespec){
	    .tv_sec = (time_t)(ns / 1000000000u),
	    .tv_nsec = (long)(ns % 1000000000u),
	};
}

/* Sleeps a tenth of a millisecond, where a wait that fails at once would be
 * repeated. */
void system_pause(void);
/* For a wait that another thread ends within a few instructions, once it runs.
 * *tries starts at 0: yields, and after some tries sleeps, since sched_yield
 * does not let threads of lower priority run. */
void system_yield(uint32_t *tries);

/* Zeroed memory in whole pages, which takes space when it is touched; NULL: no
 * memory. */
void *system_map(size_t bytes);
void system_unmap(void *memory, size_t bytes);
/* Releases the memory of whole pages, which then read as 0 and take space
 * when they are written. False: they stay as they are. */
bool system_release(void *memory, size_t bytes);

/* Sleeps while *word is value, at most until the deadline (CLOCK_MONOTONIC,
 * HWT_NEVER: for ever); may return without cause. */
void futex_wait(const void *word, uint32_t value, uint64_t until_ns);
void futex_wake_one(const void *word);
void futex_wake_all(const void *word);

#endif
