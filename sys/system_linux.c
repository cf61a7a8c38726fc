/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linux. Sleeping is a futex. ConcurrencyKit's event count (ck_ec) does not
 * limit its back-off to the deadline (waits were up to 78 ms too long), and one
 * of the words that hwt sleeps on is half of one of 16 bytes. If a sandbox
 * refuses futex, against hwt(7), a wait is a short sleep, since callers check
 * again in a loop, and needs no wake-up.
 */
#ifdef __linux__
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hwt.h"
#include "sys/system.h"

/* <linux/futex.h> is the kernel's, and not everywhere. FUTEX_PRIVATE_FLAG is
 * in both operations. */
#define FUTEX_WAIT_BITSET_PRIVATE (9 | 128)
#define FUTEX_WAKE_PRIVATE (1 | 128)
#define FUTEX_BITSET_MATCH_ANY UINT32_MAX

/* Refuses parts of the system's pages: the rest of them would be lost, too. */
bool
system_release(void *memory, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	return ((uintptr_t)memory | bytes) % page == 0 &&
	    madvise(memory, bytes, MADV_DONTNEED) == 0;
}

/* Of anonymous memory alone, as that part of static data is which begins as 0
 * and is not in the file: whole pages of it. */
bool
system_wipe_in_children(void *memory, size_t bytes)
{
	return madvise(memory, bytes, MADV_WIPEONFORK) == 0;
}

void
futex_wait(const void *word, uint32_t value, uint64_t until_ns)
{
	struct timespec until = system_timespec(until_ns);

	if (syscall(SYS_futex, system_low_half(word), FUTEX_WAIT_BITSET_PRIVATE,
		value, until_ns == HWT_NEVER ? NULL : &until, NULL,
		FUTEX_BITSET_MATCH_ANY) != 0 &&
	    errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT)
		pause_shortly();
}

void
futex_wake(const void *word, int count)
{
	(void)syscall(SYS_futex, system_low_half(word), FUTEX_WAKE_PRIVATE,
	    count, NULL, NULL, 0);
}

bool
system_try_join(pthread_t thread)
{
	return pthread_tryjoin_np(thread, NULL) == 0;
}

void
system_name_thread(const char *name)
{
	(void)pthread_setname_np(pthread_self(), name);
}

/* The C library has no struct sched_attr: 48 bytes that begin with their size,
 * which the kernel sets. */
void
system_schedule_as_main(void)
{
	uint64_t attributes[6] = {0};

	if (syscall(SYS_sched_getattr, getpid(), attributes, sizeof(attributes),
		0) == 0)
		(void)syscall(SYS_sched_setattr, 0, attributes, 0);
}

const char *
system_environment(const char *name)
{
	return secure_getenv(name);
}

#endif
