/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping on a word.
 *
 * ConcurrencyKit's event count (ck_ec) would do, but its back-off is not cut
 * at the deadline (waits measured up to 78 ms too long) unless each wait gets
 * a predicate that repairs that, and hwt has two words to sleep on of which
 * one is half of a record. The call itself is all that is needed.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "timer.h"

void
futex_wait(const void *word, uint32_t value, uint64_t until_ns)
{
	struct timespec until = {
	    .tv_sec = (time_t)(until_ns / 1000000000u),
	    .tv_nsec = (long)(until_ns % 1000000000u),
	};

	(void)syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value,
	    until_ns == HWT_NEVER ? NULL : &until, NULL,
	    FUTEX_BITSET_MATCH_ANY);
}

void
futex_wake_one(const void *word)
{
	(void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void
futex_wake_all(const void *word)
{
	(void)syscall(
	    SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}
