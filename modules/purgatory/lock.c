/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef HWT_ATOMIC_MODEL

/* Of the low half of the word. Waiting ends for no reason at times, and waking
 * has no error that matters. */
static void
lock_futex(struct lock *lock, int operation, uint32_t value)
{
	const uint32_t *low = (const uint32_t *)(const void *)lock +
	    (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);

	(void)syscall(SYS_futex, low, operation, value, NULL, NULL, 0);
}

void
lock_wait(struct lock *lock)
{
	while (a64_swap_seq(&lock->word, 2) != 0)
		lock_futex(lock, FUTEX_WAIT_PRIVATE, 2);
}

void
lock_wake(struct lock *lock)
{
	lock_futex(lock, FUTEX_WAKE_PRIVATE, 1);
}

#endif
