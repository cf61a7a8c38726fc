/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of the system: memory in pages, and sleeping on a word.
 *
 * Memory is mapped without reserving swap for it: tables and arenas are made
 * for the most that there can be, and cost what is touched of them.
 *
 * For sleeping, ConcurrencyKit's event count (ck_ec) would do, but its back-off
 * is not cut at the deadline (waits measured up to 78 ms too long) unless each
 * wait gets a predicate that repairs that, and hwt has two words to sleep on of
 * which one is half of a record. The call itself is all that is needed. Where
 * it is refused (by a sandbox), a wait is a short sleep: whoever waits looks
 * again, and needs nobody to wake it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hwt.h"
#include "core/system.h"

#define WAKE_TRIES 3
#define YIELDS 16

void *
system_map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

void
system_unmap(void *memory, size_t bytes)
{
	(void)munmap(memory, bytes);
}

/* With larger pages than these, what lies beside them would go as well. */
bool
system_release(void *memory, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	return ((uintptr_t)memory | bytes) % page == 0 &&
	    madvise(memory, bytes, MADV_DONTNEED) == 0;
}

void
system_pause(void)
{
	const struct timespec pause = {.tv_nsec = 100000};

	(void)nanosleep(&pause, NULL);
}

void
system_yield(uint32_t *tries)
{
	if (*tries == YIELDS) {
		system_pause();
		return;
	}
	++*tries;
	(void)sched_yield();
}

void
futex_wait(const void *word, uint32_t value, uint64_t until_ns)
{
	struct timespec until = {
	    .tv_sec = (time_t)(until_ns / 1000000000u),
	    .tv_nsec = (long)(until_ns % 1000000000u),
	};

	if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value,
		until_ns == HWT_NEVER ? NULL : &until, NULL,
		FUTEX_BITSET_MATCH_ANY) != 0 &&
	    errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT)
		system_pause();
}

/* A wake-up that is lost is not made good by anybody. */
static void
futex_wake(const void *word, int count)
{
	int tries;

	for (tries = 0; tries < WAKE_TRIES; tries++) {
		if (syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL,
			NULL, 0) >= 0)
			return;
	}
}

void
futex_wake_one(const void *word)
{
	futex_wake(word, 1);
}

void
futex_wake_all(const void *word)
{
	futex_wake(word, INT32_MAX);
}
