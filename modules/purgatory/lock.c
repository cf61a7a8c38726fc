/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting ends for no reason at times, and waking has no error that matters.
 * Tested on Linux, and compiled for the others: docs/PLATFORMS. */
#define _GNU_SOURCE
#include "lock.h"

#include "core/system.h"

#ifndef HWT_ATOMIC_MODEL

/* As core/system_*.c, whose functions a module does not see. */
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
/* <linux/futex.h> is the kernel's, and not everywhere. */
#define FUTEX_WAIT_PRIVATE (0 | 128)
#define FUTEX_WAKE_PRIVATE (1 | 128)
#define SLEEP(low) syscall(SYS_futex, low, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0)
#define WAKE(low) syscall(SYS_futex, low, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0)
#elif defined(__FreeBSD__)
#include <sys/types.h>
#include <sys/umtx.h>
#define SLEEP(low) _umtx_op(low, UMTX_OP_WAIT_UINT_PRIVATE, 2, NULL, NULL)
#define WAKE(low) _umtx_op(low, UMTX_OP_WAKE_PRIVATE, 1, NULL, NULL)
#elif defined(__OpenBSD__)
#include <sys/futex.h>
#define SLEEP(low) futex(low, FUTEX_WAIT_PRIVATE, 2, NULL, NULL)
#define WAKE(low) futex(low, FUTEX_WAKE_PRIVATE, 1, NULL, NULL)
#elif defined(__APPLE__)
#define UL_COMPARE_AND_WAIT 1u
#define SLEEP(low) __ulock_wait(UL_COMPARE_AND_WAIT, low, 2, 0)
#define WAKE(low) __ulock_wake(UL_COMPARE_AND_WAIT, low, 0)
int __ulock_wait(
    uint32_t operation, void *address, uint64_t value, uint32_t timeout_us);
int __ulock_wake(uint32_t operation, void *address, uint64_t ignored);
#endif

static void *
low_half(struct lock *lock)
{
	return (void *)(uintptr_t)system_low_half(&lock->word);
}

void
lock_wait(struct lock *lock)
{
	while (a64_swap_seq(&lock->word, 2) != 0)
		(void)SLEEP(low_half(lock));
}

void
lock_wake(struct lock *lock)
{
	(void)WAKE(low_half(lock));
}

#endif
